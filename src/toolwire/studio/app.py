"""The studio application: combines tools, conversation, runs and spending into one page, and serves it.

Needs NiceGUI (the extra `studio`). NiceGUI has one application per process, so there is one studio per process. It
listens on loopback. The page loads nothing from the network: all its files are in NiceGUI's wheel and this package.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from nicegui import ui

from toolwire._support.words import plain_line
from toolwire.studio.access import Access, AccessMiddleware
from toolwire.studio.calls import ToolBench
from toolwire.studio.conversation import Conversation
from toolwire.studio.pages.conversation_tab import ConversationTab
from toolwire.studio.pages.spending_tab import SpendingTab
from toolwire.studio.pages.timeline_tab import TimelineTab
from toolwire.studio.pages.tools_tab import ToolsTab
from toolwire.studio.runs import Runs
from toolwire.studio.spending import Spending
from toolwire.studio.timeline import Timeline

_SHUTDOWN: Final = 2  # seconds that open connections get to finish when the studio ends
_UPDATE_INTERVAL: Final = 0.15  # seconds
_STYLE: Final = files("toolwire.studio.pages").joinpath("studio.css").read_text(encoding="utf-8")
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#1e3a8a"/>'
    '<path d="M3 5h10M8 5v7" stroke="#fff" stroke-width="2" fill="none"/></svg>'
)


@dataclass(eq=False)
class Studio:
    """Everything that the page shows."""

    title: str
    benches: list[ToolBench] = field(default_factory=list)
    conversation: Conversation | None = None
    runs: Runs = field(default_factory=Runs)
    spending: Spending | None = None
    write_test: Callable[[Timeline], str] | None = None

    async def open(self) -> None:
        """Connect to the servers."""
        for bench in self.benches:
            await bench.open()

    async def aclose(self) -> None:
        """End the conversation and all calls."""
        if self.conversation is not None:
            await self.conversation.aclose()
        for bench in self.benches:
            await bench.aclose()


async def serve(studio: Studio, listening: socket.socket, ready: Callable[[Access, str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM. Calls `ready` with the maker of links and the page's address."""
    logging.getLogger("nicegui").setLevel(logging.WARNING)
    access = Access()
    web = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        web,
        root=lambda: _draw_page(studio),
        title=f"toolwire studio: {studio.title}",
        favicon=_ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=30.0,
    )
    host, port = listening.getsockname()[:2]
    config = uvicorn.Config(
        AccessMiddleware(web, access),
        log_config=None,
        log_level="warning",  # the user's module may have set up logging, and the terminal is for the links
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN,
        server_header=False,
    )
    server = _Server(config, lambda: ready(access, f"http://{host}:{port}/"))
    loading = asyncio.get_running_loop().create_task(studio.open())
    try:
        await server.serve([listening])
    finally:
        loading.cancel()
        await asyncio.wait([loading])
        await studio.aclose()


class _Server(uvicorn.Server):
    """Calls a function once it listens, and ends at SIGINT and SIGTERM without raising them again."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


# --- the page: heading, tabs, colours, and the timer that updates everything ---


def _draw_page(studio: Studio) -> None:
    """Draw the page for one window of the browser."""
    ui.add_css(_STYLE)
    ui.colors(primary="#1d4ed8", positive="#15803d", negative="#b91c1c")
    dark = ui.dark_mode(None)  # follow the system
    parts = _list_tabs(studio)
    views: dict[str, Any] = {}
    with ui.header().classes("tw-header"), ui.row().classes("items-center tw-wide"):
        with ui.element("h1").classes("tw-h1"):
            ui.label(plain_line(f"toolwire studio: {studio.title}"))
        with ui.tabs().props('no-caps inline-label aria-label="Parts of the studio"') as tabs:
            for name in parts:
                ui.tab(name)
        ui.space()
        theme = ui.button(icon="contrast", on_click=lambda: _switch_colours(dark)).props(
            "flat round dense color=white"
        )
        theme.props["aria-label"] = "Light or dark"
    with (
        ui.element("div").classes("tw-page"),
        ui.tab_panels(tabs, animated=False).classes("tw-wide") as panels,
    ):
        panels.props("keep-alive")
        for name, draw in parts.items():
            with ui.tab_panel(name):
                views[name] = draw()

    async def update() -> None:
        view = views.get(str(panels.value or ""))
        if isinstance(view, TimelineTab):
            await view.update()
        elif isinstance(view, ToolsTab | ConversationTab):
            view.update()

    async def show(name: str) -> None:
        view = views.get(name)
        if isinstance(view, TimelineTab):
            await view.open()
        elif isinstance(view, SpendingTab):
            await view.refresh()

    panels.on_value_change(lambda event: show(str(event.value)))
    panels.value = tabs.value = next(iter(parts))
    ui.timer(0.0, lambda: show(str(panels.value)), once=True)
    ui.timer(_UPDATE_INTERVAL, update)


def _list_tabs(studio: Studio) -> dict[str, Callable[[], Any]]:
    """Return the tabs that have something to show, each with the function that draws it."""
    tabs: dict[str, Callable[[], Any]] = {}
    if studio.conversation is not None:
        tabs["Tools"] = partial(ToolsTab, studio.benches)
        tabs["Conversation"] = partial(ConversationTab, studio.conversation)
    tabs["Timeline"] = partial(TimelineTab, studio.runs, studio.write_test)
    if studio.spending is not None:
        tabs["Spending"] = partial(SpendingTab, studio.spending)
    return tabs


def _switch_colours(dark: ui.dark_mode) -> None:
    """Switch from the system's choice to dark, to light, and back."""
    dark.value = {None: True, True: False, False: None}[dark.value]
