"""The page as a whole: the heading, the tabs, the colours, and the timer that brings everything up to date."""

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from toolwire._support.words import plain_line
from toolwire.studio.pages.conversation_tab import ConversationTab
from toolwire.studio.pages.spending_tab import SpendingTab
from toolwire.studio.pages.timeline_tab import TimelineTab
from toolwire.studio.pages.tools_tab import ToolsTab

if TYPE_CHECKING:
    from toolwire.studio.app import Studio

_EVERY: Final = 0.15  # seconds between two looks at what has changed
_STYLE: Final = files("toolwire.studio.pages").joinpath("studio.css").read_text(encoding="utf-8")


def draw_page(studio: "Studio") -> None:
    """Draw the page for one window of the browser."""
    ui.add_css(_STYLE)
    ui.colors(primary="#1d4ed8", positive="#15803d", negative="#b91c1c")
    dark = ui.dark_mode(None)  # as the system has it
    views: dict[str, Any] = {}
    with ui.header().classes("tw-header"), ui.row().classes("items-center tw-wide"):
        with ui.element("h1").classes("tw-h1"):
            ui.label(plain_line(f"toolwire studio: {studio.title}"))
        with ui.tabs().props('no-caps inline-label aria-label="Parts of the studio"') as tabs:
            for name in _names(studio):
                ui.tab(name)
        ui.space()
        theme = ui.button(icon="contrast", on_click=lambda: _switch(dark)).props(
            "flat round dense color=white"
        )
        theme.props["aria-label"] = "Light or dark"
    with (
        ui.element("div").classes("tw-page"),
        ui.tab_panels(tabs, animated=False).classes("tw-wide") as panels,
    ):
        panels.props("keep-alive")
        for name in _names(studio):
            with ui.tab_panel(name):
                views[name] = _draw_tab(studio, name)

    async def update() -> None:
        name = str(panels.value or "")
        view = views.get(name)
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
    panels.value = tabs.value = _names(studio)[0]
    ui.timer(0.0, lambda: show(str(panels.value)), once=True)
    ui.timer(_EVERY, update)


def _names(studio: "Studio") -> list[str]:
    names = ["Tools", "Conversation"] if studio.conversation is not None else []
    return [*names, "Timeline", *(["Spending"] if studio.spending is not None else [])]


def _draw_tab(studio: "Studio", name: str) -> Any:
    if name == "Tools":
        return ToolsTab(studio.benches)
    if name == "Conversation":
        assert studio.conversation is not None  # noqa: S101 - see `_names`
        return ConversationTab(studio.conversation)
    if name == "Spending":
        assert studio.spending is not None  # noqa: S101 - see `_names`
        return SpendingTab(studio.spending)
    return TimelineTab(studio.runs, studio.write_test)


def _switch(dark: ui.dark_mode) -> None:
    """Go from the system's choice to dark, to light, and back."""
    dark.value = {None: True, True: False, False: None}[dark.value]
