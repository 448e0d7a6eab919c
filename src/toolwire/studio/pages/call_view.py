"""Views of tool calls and of questions for the user, shared by several tabs."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from nicegui import ui

from toolwire._support.words import plain
from toolwire.studio.calls import ToolCall
from toolwire.studio.forms import Form
from toolwire.studio.pages.form_view import FormView
from toolwire.studio.pages.parts import (
    LONGEST_TEXT,
    action_button,
    folded,
    show_content,
    show_json,
    show_text,
    small_button,
    to_text,
)
from toolwire.studio.questions import Question

_SMALL: Final = 400  # arguments with fewer characters are unfolded from the start
_ICONS: Final = {
    "running": "hourglass_top",
    "done": "check_circle",
    "failed": "error",
    "cancelled": "cancel",
}


class CallView:
    """One tool call, drawn once and then updated in place, so that text typed by the user stays."""

    def __init__(
        self, call: ToolCall, *, title: str | None = None, on_cancel: Callable[[], None] | None = None
    ) -> None:
        self._call = call
        self._title = title
        self._seen = -1
        self._logs = 0
        self._questions: list[QuestionView] = []
        self._with_arguments = self._finished = False
        with ui.element("section").classes("tw-card tw-call") as self.root:
            with ui.row().classes("items-center tw-head"):
                self._icon = ui.icon(_ICONS["running"]).props("aria-hidden=true")
                self._name = ui.label("").classes("tw-strong")
                self._state = ui.label("").classes("tw-state")
                self._cancel = small_button("Cancel", on_cancel or (lambda: None))
                self._cancel.set_visibility(False)
            self._can_cancel = on_cancel is not None
            self._arguments = ui.element("div")
            with ui.element("div") as self._progress:
                self._bar = ui.linear_progress(0.0, show_value=False).props(
                    'aria-label="Progress of the tool"'
                )
                self._progress_text = ui.label("").classes("tw-dim")
            self._progress.set_visibility(False)
            self._log_box = ui.element("div").classes("tw-logs").props('role=log aria-label="Log messages"')
            self._log_box.set_visibility(False)
            self._question_box = ui.element("div")
            self._result = ui.element("div")
        self.update()

    def update(self) -> None:
        """Redraw the parts that have changed."""
        call = self._call
        for each in self._questions:
            each.update()
        if call.version == self._seen:
            return
        self._seen = call.version
        self._name.set_text(plain(self._title or call.tool))
        took = "" if call.seconds is None else f" in {call.seconds:.2f} s"
        self._state.set_text(f"{call.state}{took}")
        self._icon.props["name"] = _ICONS[call.state]
        self._icon.classes(replace=f"tw-{call.state}")
        self._cancel.set_visibility(self._can_cancel and call.state == "running")
        if not self._with_arguments and call.tool:
            self._with_arguments = True
            with self._arguments, folded("Arguments", is_open=len(to_text(call.arguments)) < _SMALL):
                show_json(call.arguments)
        self._update_progress()
        self._update_logs()
        for question in call.questions[len(self._questions) :]:
            with self._question_box:
                self._questions.append(QuestionView(question, with_arguments=False))
        if call.state != "running" and not self._finished:
            self._finished = True
            with self._result:
                self._draw_result()

    def _update_progress(self) -> None:
        call = self._call
        self._progress.set_visibility(call.progress is not None and call.state == "running")
        if call.progress is None:
            return
        done, total = call.progress, call.total
        self._bar.set_value(min(max(done / total, 0.0), 1.0) if total else 0.0)
        self._bar.props["indeterminate"] = not total
        count = f"{done:g} of {total:g}" if total else f"{done:g}"
        self._progress_text.set_text(plain(f"{count} {call.progress_text[:500]}").strip())

    def _update_logs(self) -> None:
        call = self._call
        self._log_box.set_visibility(bool(call.logs))
        with self._log_box:
            for line in call.logs[self._logs :]:
                ui.label(plain(f"{line.level}: {line.text[:2_000]}")).classes("tw-mono")
        self._logs = len(call.logs)

    def _draw_result(self) -> None:
        call = self._call
        if call.logs_left_out:
            ui.label(f"{call.logs_left_out:,} more log messages are not shown.").classes("tw-dim")
        if call.error:
            show_text(call.error).classes("tw-bad").props("role=alert")
        if call.content or call.structured is not None:
            ui.label("Error for the model" if call.state == "failed" else "Result").classes("tw-dim")
            with ui.element("div").classes("tw-bad-box" if call.state == "failed" else ""):
                show_content(call.content, call.structured)
        elif call.state == "done":
            ui.label("No output.").classes("tw-dim")
        if call.traceback:
            with folded("Where your code failed", is_open=True):
                show_text(call.traceback, mono=True)


class QuestionView:
    """A question with its form or buttons."""

    def __init__(self, question: Question, *, with_arguments: bool = True) -> None:
        """`with_arguments=False`: the arguments of the call are already shown next to the question."""
        self._question = question
        self._with_arguments = with_arguments
        self._drawn = ""
        with ui.element("section").classes("tw-card tw-question") as self._root:
            self._root.props["aria-label"] = "Question for you"
            ui.label(plain(question.title[:LONGEST_TEXT])).classes("tw-strong").props("role=alert")
            self._body = ui.element("div")
        self.update()
        if question.state == "open":
            self._root.run_method("scrollIntoView", {"block": "nearest"})

    def update(self) -> None:
        """Draw the question, or its answer."""
        question = self._question
        if question.state == self._drawn:
            return
        self._drawn = question.state
        self._body.clear()
        with self._body:
            if question.state == "answered":
                ui.label(plain(f"Answered: {question.answer_text}")).classes("tw-dim")
            elif question.state == "cancelled":
                ui.label("No longer needed: the call has ended.").classes("tw-dim")
            elif question.kind == "permission":
                self._draw_permission()
            elif question.url is not None:
                self._draw_url()
            else:
                self._draw_form()

    def _draw_permission(self) -> None:
        question = self._question
        if self._with_arguments:
            with folded("Arguments", is_open=True):
                show_json(question.arguments)
        if question.why:
            ui.label(plain(question.why)).classes("tw-dim")
        with ui.row().classes("items-center"):
            action_button("Allow", lambda: self._answer(question.allow()), "go")
            always = ui.button(
                "Always allow in this conversation",
                on_click=lambda: self._answer(question.allow(always=True)),
            )
            always.props("no-caps dense outline")
            reason = ui.input("Reason (sent to the model)").props("dense outlined").classes("tw-reason")
            action_button("Deny", lambda: self._answer(question.deny(reason.value or "")), "stop")

    def _draw_url(self) -> None:
        question = self._question
        url = question.url or ""
        show_text(url, mono=True)
        with ui.row().classes("items-center"):
            if _is_web(url):
                ui.link("Open it in a new tab", url, new_tab=True)
            action_button("I have done it", lambda: self._answer(question.accept({})))
            small_button("Decline", lambda: self._answer(question.decline()))

    def _draw_form(self) -> None:
        question = self._question
        form = Form(question.schema or {"type": "object"})
        view = FormView(form)

        def send() -> None:
            if view.check():
                self._answer(question.accept(form.arguments()))

        with ui.row().classes("items-center"):
            action_button("Send", send)
            small_button("Decline", lambda: self._answer(question.decline()))

    def _answer(self, accepted: bool) -> None:
        if not accepted:
            ui.notify("This question was already answered, or is no longer open.", type="warning")
        self.update()


def _is_web(url: str) -> bool:
    """True if a URL may become a link: an address on the web, not a script."""
    try:
        return urlsplit(url).scheme in {"http", "https"}
    except ValueError:  # such as http://[
        return False
