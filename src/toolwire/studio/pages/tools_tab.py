"""The Tools tab: a searchable list of tools, a form for each, and the calls made with it."""

from functools import partial
from typing import Any, Final

from nicegui import ui

from toolwire._support.words import plain, plain_line
from toolwire.mcp.direct_client import ListedTool
from toolwire.studio.calls import ToolBench, ToolCall
from toolwire.studio.forms import Form
from toolwire.studio.pages.call_view import CallView
from toolwire.studio.pages.form_view import FormView
from toolwire.studio.pages.parts import action_button, folded, show_heading, show_json, show_text, to_text
from toolwire.studio.shapes import read_json
from toolwire.tools.schema.arguments import InvalidArguments

_MOST_LISTED: Final = 200
_HINTS: Final = (
    ("readOnlyHint", "read-only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open world"),
)


class ToolsTab:
    """Draws the tools of all servers. `update` redraws changes."""

    def __init__(self, benches: list[ToolBench]) -> None:
        self._benches = benches
        self._seen: list[int] = []
        self._listings: list[int] = []
        self._word = ""
        self._chosen: tuple[ToolBench, str] | None = None
        self._drawn: ListedTool | None = None
        self._views: dict[ToolCall, CallView] = {}
        with ui.element("div").classes("tw-columns"):
            with ui.element("nav").classes("tw-side").props('aria-label="Tools"'):
                ui.input("Search the tools", on_change=lambda e: self._search(e.value)).props(
                    "outlined dense clearable"
                ).classes("tw-wide")
                self._count = ui.label("").classes("tw-dim").props("role=status")
                self._list = ui.element("div").classes("tw-list")
            with ui.element("div").classes("tw-main"):
                self._problem = ui.label("").classes("tw-bad").props("role=alert")
                self._tool = ui.element("div")
                self._calls = ui.element("div").props('aria-label="Calls" role=region')
        self.update()

    def update(self) -> None:
        """Redraw what has changed: the list, the selected tool, its calls."""
        for view in self._views.values():
            view.update()
        versions = [each.version for each in self._benches]
        if versions == self._seen:
            return
        self._seen = versions
        problems = [f"{each.name}: {each.problem}" for each in self._benches if each.problem]
        self._problem.set_text(plain("\n".join(problems)))
        self._problem.set_visibility(bool(problems))
        listings = [each.listings for each in self._benches]
        if listings != self._listings:  # a redraw would lose the focus, so not for every change of a call
            self._listings = listings
            self._draw_list()
        if self._chosen is None:
            first = next((each for each in self._benches if each.tools), None)
            if first is not None:
                self._choose(first, first.tools[0].name)
        else:
            self._refresh_tool()
        self._draw_calls()

    # --- the list ---

    def _search(self, word: str | None) -> None:
        self._word = (word or "").lower()
        self._draw_list()

    def _draw_list(self) -> None:
        found = [
            (bench, tool)
            for bench in self._benches
            for tool in bench.tools
            if self._word in tool.name.lower() or self._word in tool.description.lower()
        ]
        total = sum(len(each.tools) for each in self._benches)
        more = f", first {_MOST_LISTED} shown; search for others" if len(found) > _MOST_LISTED else ""
        what = (
            f"{len(found):,} of {total:,} tools"
            if self._word
            else f"{total:,} tool{'' if total == 1 else 's'}"
        )
        self._count.set_text(what + more)
        shown = found[:_MOST_LISTED]
        self._list.clear()
        with self._list:
            last = None
            for bench, tool in shown:
                if len(self._benches) > 1 and bench is not last:
                    ui.label(plain_line(bench.name)).classes("tw-dim")
                    last = bench
                self._draw_entry(bench, tool)

    def _draw_entry(self, bench: ToolBench, tool: ListedTool) -> None:
        current = self._chosen == (bench, tool.name)
        button = ui.element("button").classes("tw-entry" + (" tw-current" if current else ""))
        button.props["type"] = "button"
        if current:
            button.props["aria-current"] = "true"
        button.on("click", lambda: self._choose(bench, tool.name))
        with button:
            ui.label(plain_line(tool.name)).classes("tw-strong")
            ui.label(plain_line(tool.description.partition("\n")[0])[:120]).classes("tw-dim tw-one-line")

    def _choose(self, bench: ToolBench, name: str) -> None:
        if self._chosen == (bench, name):
            return  # keep the text that the user has typed
        self._chosen = (bench, name)
        self._drawn = None
        self._refresh_tool()
        self._draw_list()
        self._views.clear()
        self._calls.clear()
        self._draw_calls()

    # --- the tool ---

    def _refresh_tool(self) -> None:
        """Draw the selected tool. If it is unchanged, keep the form with the text that the user has typed."""
        if self._chosen is None:
            return
        bench, name = self._chosen
        tool = bench.find(name)
        if tool is not None and self._drawn is not None and tool.raw == self._drawn.raw:
            return
        self._drawn = tool
        self._tool.clear()
        with self._tool:
            if tool is None:
                ui.label(plain(f"The tool {name} no longer exists.")).classes("tw-dim")
            else:
                self._draw_tool(bench, tool)

    def _draw_tool(self, bench: ToolBench, tool: ListedTool) -> None:
        show_heading(tool.title or tool.name)
        with ui.row().classes("items-center"):
            ui.label(plain_line(f"mcp__{bench.name}__{tool.name}")).classes("tw-mono tw-dim")
            for key, word in _HINTS:
                if tool.annotations.get(key) is True:
                    ui.label(word).classes("tw-chip")
        if tool.description:
            show_text(tool.description)
        form = Form(tool.input_schema)
        with ui.element("div").classes("tw-card"):
            if form.schema_error is not None:
                with ui.element("div").classes("tw-note tw-note-warning"):
                    ui.label(f"The form cannot check the arguments: {form.schema_error}")
            view = FormView(form)
            with ui.row().classes("items-center"):
                action_button("Call", lambda: self._call(bench, tool, form, view), icon="play_arrow")
            with folded("As JSON"):
                _JsonEditor(form, view)
        with folded("Schemas"):
            ui.label("Arguments").classes("tw-dim")
            show_json(tool.input_schema)
            if tool.output_schema is not None:
                ui.label("Structured result").classes("tw-dim")
                show_json(tool.output_schema)
            rest = {
                key: value for key, value in tool.raw.items() if key not in {"inputSchema", "outputSchema"}
            }
            ui.label("Everything else").classes("tw-dim")
            show_json(rest)

    def _call(self, bench: ToolBench, tool: ListedTool, form: Form, view: FormView) -> None:
        if not view.check():
            ui.notify("Some arguments are invalid; see the errors at the fields.", type="warning")
            return
        call = bench.call(tool.name, form.arguments())

        def locate(text: str) -> None:
            if "Validation failed" in text:
                view.show_errors(form.locate(text))

        call.on_failure = locate

    # --- the calls ---

    def _draw_calls(self) -> None:
        """Add views for new calls of the selected tool, the newest first."""
        if self._chosen is None:
            return
        bench, name = self._chosen
        for call in bench.calls:
            if call.tool == name and call not in self._views:
                with self._calls:
                    view = CallView(call, on_cancel=partial(bench.cancel, call))
                view.root.move(target_index=0)
                self._views[call] = view


class _JsonEditor:
    """Copies the arguments between the form and a text area with JSON."""

    def __init__(self, form: Form, view: FormView) -> None:
        self._form = form
        self._view = view
        self._area: Any = (
            ui.textarea("Arguments as JSON").props("outlined autogrow").classes("tw-wide tw-mono-input")
        )
        with ui.row():
            ui.button("Copy from the form", on_click=self._copy_from_form).props("flat dense no-caps")
            ui.button("Apply to the form", on_click=self._apply_to_form).props("flat dense no-caps")

    def _copy_from_form(self) -> None:
        try:
            self._area.value = to_text(self._form.arguments())
        except InvalidArguments as error:
            self._area.error = str(error)
        else:
            self._area.error = None

    def _apply_to_form(self) -> None:
        try:
            value = read_json(self._area.value or "{}")
            if not isinstance(value, dict):
                raise ValueError("The arguments must be a JSON object")  # noqa: TRY004, TRY301 - the user's text
            self._form.set_arguments(value)
        except ValueError as error:
            self._area.error = str(error)
            return
        self._area.error = None
        self._view.redraw()
