"""The Timeline tab: a summary of a run with its failures, a waterfall of its spans, and every frame."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from nicegui import ui

from toolwire._support.words import count, plain, plain_line
from toolwire.errors import ClaudeSDKError
from toolwire.studio.pages.parts import (
    as_dict,
    folded,
    show_heading,
    show_json,
    show_text,
    small_button,
    to_text,
)
from toolwire.studio.runs import Run, Runs
from toolwire.studio.timeline import Span, TimedFrame, Timeline

_MOST_FRAMES: Final = 200  # frames of one span that are listed in its details

_SPAN_COLUMNS: Final = [
    {"name": "what", "label": "What", "field": "title", "align": "left"},
    {"name": "start", "label": "Start", "field": "start", "align": "right"},
    {"name": "took", "label": "Took", "field": "took", "align": "right"},
    {"name": "bar", "label": "When", "field": "left", "align": "left"},
]
_FRAME_COLUMNS: Final = [
    {"name": "number", "label": "No.", "field": "number", "align": "right"},
    {"name": "t", "label": "Time", "field": "t", "align": "right"},
    {"name": "way", "label": "Direction", "field": "way", "align": "left"},
    {"name": "what", "label": "What", "field": "what", "align": "left"},
]
# Vue inserts values into these templates as text and numbers, never as markup. The grandparent of a row is the
# table; between them is the virtual scroll.
_SPAN_ROW: Final = """
<q-tr :props="props" class="tw-row" tabindex="0" :aria-label="props.row.label"
  @click="$parent.$parent.$emit('choose', props.row.number)"
  @keydown.enter="$parent.$parent.$emit('choose', props.row.number)">
  <q-td key="what" :props="props"><span :style="{paddingLeft: (props.row.depth * 14) + 'px'}"></span>
    <span :class="'tw-kind tw-kind-' + props.row.kind">{{ props.row.kind }}</span>
    <span :class="props.row.failed ? 'tw-bad' : ''">{{ props.row.title }}</span></q-td>
  <q-td key="start" :props="props">{{ props.row.start }}</q-td>
  <q-td key="took" :props="props">{{ props.row.took }}</q-td>
  <q-td key="bar" :props="props"><div class="tw-lane"><div
    :class="'tw-span tw-span-' + props.row.kind + (props.row.failed ? ' tw-span-failed' : '')"
    :style="{left: props.row.left + '%', width: props.row.width + '%'}"></div></div></q-td>
</q-tr>
"""
_FRAME_ROW: Final = """
<q-tr :props="props" class="tw-row" tabindex="0"
  @click="$parent.$parent.$emit('choose', props.row.number)"
  @keydown.enter="$parent.$parent.$emit('choose', props.row.number)">
  <q-td v-for="col in props.cols" :key="col.name" :props="props">{{ col.value }}</q-td>
</q-tr>
"""


class TimelineTab:
    """Draws the timeline of the selected run. `update` redraws a live run."""

    def __init__(self, runs: Runs, write_test: Callable[[Timeline], str] | None) -> None:
        """`write_test` turns a timeline into the source of a pytest file; None if there is no target to test."""
        self._runs = runs
        self._write_test = write_test
        self._run: Run | None = None
        self._timeline: Timeline | None = None
        self._drawn_frames = -1
        with ui.row().classes("items-center tw-bar"):
            self._select = ui.select({}, label="Run", on_change=lambda e: self._choose(e.value))
            self._select.props("outlined dense options-dense").classes("tw-run")
            small_button("List past sessions", self._list_sessions)
            self._test = small_button("Turn into a pytest", self._show_test)
        self._problem = ui.label("").classes("tw-bad").props("role=alert")
        self._summary = ui.element("div").props('role=region aria-label="Summary of the run"')
        with ui.element("div").classes("tw-columns tw-timeline"):
            with ui.element("div").classes("tw-main"):
                self._spans = _make_table("Timeline", _SPAN_COLUMNS, _SPAN_ROW, self._open_span)
                with folded("All frames"):
                    self._frames = _make_table("Frames", _FRAME_COLUMNS, _FRAME_ROW, self._open_frame)
            self._detail = (
                ui.element("aside").classes("tw-detail").props('aria-label="Details" aria-live=polite')
            )
        with self._detail:
            ui.label("Select a row to see its details.").classes("tw-dim")

    async def open(self) -> None:
        """Show the first run, when the tab is first opened."""
        self._fill_select()
        if self._run is None and self._runs.all:
            self._select.value = self._runs.all[0].key

    async def update(self) -> None:
        """Redraw a live run if it has changed."""
        if self._run is not None and self._run.is_live:
            self._timeline = await self._run.load()
            if len(self._timeline.frames) != self._drawn_frames:
                self._draw()

    def _fill_select(self) -> None:
        self._select.set_options({each.key: plain_line(each.title) for each in self._runs.all})

    async def _list_sessions(self) -> None:
        await self._runs.list_sessions()
        self._fill_select()
        found = count(len(self._runs.sessions), "past session")
        ui.notify(f"Found {found} of this directory. Choose one under Run.")

    async def _choose(self, key: str | None) -> None:
        run = self._runs.find(key or "")
        if run is None:
            return
        self._problem.set_text("")
        try:
            self._timeline = await run.load()
        except (ClaudeSDKError, OSError, ValueError) as error:
            self._problem.set_text(plain(f"{run.title} cannot be read: {error}"))
            return
        self._run = run
        self._detail.clear()
        with self._detail:
            ui.label("Select a row to see its details.").classes("tw-dim")
        self._draw()

    def _draw(self) -> None:
        timeline = self._timeline
        if timeline is None:
            return
        self._drawn_frames = len(timeline.frames)
        self._test.set_visibility(self._write_test is not None and bool(timeline.spans))
        whole = max(timeline.summary.duration, 0.001)
        self._spans.rows = [_span_row(each, whole) for each in timeline.in_order()]
        self._frames.rows = [_frame_row(each) for each in timeline.frames]
        self._summary.clear()
        with self._summary:
            self._draw_summary(timeline)

    def _draw_summary(self, timeline: Timeline) -> None:
        summary = timeline.summary
        cost = (
            "no cost reported"
            if summary.cost_usd is None
            else f"${summary.cost_usd:.4f}, as the CLI computed it"
        )
        if summary.cost_usd is not None and self._run is not None and not self._run.is_paid():
            cost += "; not charged: the model is scripted"
        tokens = summary.tokens
        facts = {
            "Cost": cost,
            "Took": f"{summary.duration:.2f} s",
            "Turns": f"{summary.turns}",
            "Model calls": f"{summary.model_calls}",
            "Tool calls": f"{summary.tool_calls}",
            "Tokens": f"{tokens.input_tokens:,} in, {tokens.output_tokens:,} out",
            "Model": summary.model or "unknown",
            "Frames": f"{len(timeline.frames):,}",
        }
        with ui.element("dl").classes("tw-facts"):
            for name, value in facts.items():
                with ui.element("div"):
                    with ui.element("dt"):
                        ui.label(name)
                    with ui.element("dd"):
                        ui.label(plain_line(value))
        problems = timeline.problems()
        if problems:
            with ui.element("section").classes("tw-card tw-bad-box").props('aria-label="What went wrong"'):
                ui.label(f"What went wrong ({len(problems)})").classes("tw-strong")
                for each in problems[:20]:
                    with ui.row().classes("items-center"):
                        ui.label(plain_line(f"{each.t:.2f} s, {each.title}: {each.why}"))
                        if each.span is not None:
                            number = each.span
                            small_button(
                                "Show",
                                partial(self._open_span, number),
                                label=f"Show {plain_line(each.title)}",
                            )
        elif timeline.frames:
            ui.label("Nothing failed.").classes("tw-dim")

    # --- details ---

    def _open_span(self, number: int) -> None:
        timeline = self._timeline
        if timeline is None or not 0 <= number < len(timeline.spans):
            return
        span = timeline.spans[number]
        self._detail.clear()
        with self._detail:
            show_heading(span.title)
            ends = "still running" if span.end is None else f"{span.end - span.start:.3f} s"
            ui.label(f"{span.kind}, from {span.start:.3f} s, {ends}").classes("tw-dim")
            if span.failed:
                show_text(f"Failed: {span.failed}").classes("tw-bad")
            for title, value in (("Input", span.input), ("Output", span.output)):
                if value is not None:
                    ui.label(title).classes("tw-strong")
                    show_text(value, mono=True) if isinstance(value, str) else show_json(value)
            ui.label(f"Frames ({len(span.frames)})").classes("tw-strong")
            for at in span.frames[:_MOST_FRAMES]:
                frame = timeline.frames[at]
                row = _frame_row(frame)
                text = f"{row['t']} {row['way']} {row['what']}"[:100]
                small_button(text, partial(self._open_frame, at)).props("align=left").classes("tw-frame")
            if len(span.frames) > _MOST_FRAMES:
                ui.label(f"{len(span.frames) - _MOST_FRAMES:,} more are under All frames.").classes("tw-dim")

    def _open_frame(self, number: int) -> None:
        timeline = self._timeline
        if timeline is None or not 0 <= number < len(timeline.frames):
            return
        frame = timeline.frames[number]
        self._detail.clear()
        with self._detail:
            show_heading(f"Frame {frame.number}")
            ui.label(f"{_describe_direction(frame)}, at {frame.t:.4f} s").classes("tw-dim")
            show_text(to_text(frame.frame), mono=True, name=f"frame-{frame.number}.json")

    def _show_test(self) -> None:
        if self._timeline is None or self._write_test is None:
            return
        try:
            text = self._write_test(self._timeline)
        except (ClaudeSDKError, ValueError) as error:
            ui.notify(plain_line(str(error)), type="warning", multi_line=True)
            return
        self._detail.clear()
        with self._detail:
            show_heading("The run as a pytest")
            ui.label("Save it next to the file with your tools. It runs without an API key or a network.")
            small_button("Download test_run.py", lambda: ui.download.content(text, "test_run.py"))
            show_text(text, mono=True, name="test_run.py")


def _make_table(title: str, columns: Any, row: str, choose: Callable[[int], None]) -> ui.table:
    table = ui.table(columns=columns, rows=[], row_key="number", title=title)
    table.props('flat bordered dense virtual-scroll :rows-per-page-options="[0]" hide-pagination').classes(
        "tw-table"
    )
    table.add_slot("body", row)
    table.on("choose", lambda event: choose(int(event.args)))
    return table


def _span_row(span: Span, whole: float) -> dict[str, Any]:
    end = whole if span.end is None else span.end
    took = "..." if span.end is None else f"{span.end - span.start:.3f} s"
    failed = "" if not span.failed else f", failed: {span.failed}"
    return {
        "number": span.number,
        "kind": span.kind,
        "title": plain_line(span.title),
        "depth": min(span.depth, 12),
        "start": f"{span.start:.3f}",
        "took": took,
        "left": round(100 * min(span.start / whole, 1), 3),
        "width": round(max(100 * (end - span.start) / whole, 0.3), 3),
        "failed": bool(span.failed),
        "label": plain_line(f"{span.kind}: {span.title}, {took}{failed}")[:300],
    }


def _describe_direction(frame: TimedFrame) -> str:
    return "from the CLI" if frame.direction == "in" else "to the CLI"


def _frame_row(frame: TimedFrame) -> dict[str, Any]:
    return {
        "number": frame.number,
        "t": f"{frame.t:.4f}",
        "way": _describe_direction(frame),
        "what": plain_line(_describe(frame.frame))[:160],
    }


def _describe(frame: dict[str, Any]) -> str:
    """Describe a frame in one line by its types."""
    request, event = as_dict(frame.get("request")), as_dict(frame.get("event"))
    parts = [
        str(frame.get("type")),
        frame.get("subtype"),
        request.get("subtype"),
        as_dict(request.get("message")).get("method"),
        event.get("type"),
        request.get("tool_name"),
    ]
    return " ".join(str(each) for each in parts if each)
