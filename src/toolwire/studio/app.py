"""The studio: puts tools, conversation, runs and money together, and serves the page on loopback.

Needs NiceGUI (the extra `studio`). One studio per process: NiceGUI has one application. Nothing is fetched from
anywhere: all that the page loads is in NiceGUI's wheel and in this package.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from nicegui import ui

from toolwire.studio.access import Access, AccessMiddleware
from toolwire.studio.calls import ToolBench
from toolwire.studio.conversation import Conversation
from toolwire.studio.pages.layout import draw_page
from toolwire.studio.runs import Runs
from toolwire.studio.spending import Spending
from toolwire.studio.timeline import Timeline

_SHUTDOWN: Final = 2  # seconds that open connections get when the studio ends
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
    """Serve the page until the process is told to end. `ready` gets what makes links, and the address."""
    logging.getLogger("nicegui").setLevel(logging.WARNING)
    access = Access()
    web = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        web,
        root=lambda: draw_page(studio),
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
        log_level="warning",  # a target may have set up logging: the terminal is for the links
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
    """Calls a function when it listens, and ends at SIGINT and SIGTERM without raising them again."""

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
