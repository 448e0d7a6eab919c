"""The Conversation tab: texts, tool calls and questions in order, with the cost and the context usage."""

from typing import Any, Final

from nicegui import ui

from toolwire._support.words import count, plain
from toolwire.studio.conversation import (
    Asked,
    Called,
    Conversation,
    Item,
    Noted,
    Prompted,
    Said,
    TurnEnded,
)
from toolwire.studio.pages.call_view import CallView, QuestionView
from toolwire.studio.pages.parts import action_button, folded, show_json, show_text
from toolwire.tools.names import short_name

SCRIPTED: Final = "Scripted model"
LIVE: Final = "Your own Claude"
_ABOUT: Final = {
    SCRIPTED: "A scripted model answers, not Claude: no API key, no network, no cost.",
    LIVE: "Your own Claude answers, using your account: this costs money.",
}
_STATES: Final = {
    "new": "not started",
    "starting": "starting Claude Code",
    "idle": "waiting for a prompt",
    "running": "working",
    "ended": "ended",
}


class ConversationTab:
    """Draws a conversation. `update` redraws changes."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._seen = -1
        self._items: list[Item] = []
        self._views: list[Any] = []
        self._drawn_of: Any = None
        with ui.element("div").classes("tw-conversation"):
            with ui.row().classes("items-center tw-bar"):
                self._who = ui.select(
                    [SCRIPTED, LIVE],
                    value=LIVE if conversation.live else SCRIPTED,
                    label="Who answers",
                    on_change=lambda e: self._choose(e.value),
                ).props("outlined dense options-dense")
                self._state = ui.label("").props("role=status")
                self._cost = ui.label("").classes("tw-chip")
                self._tokens = ui.label("").classes("tw-chip")
                self._context = ui.label("").classes("tw-chip")
                self._interrupt = action_button("Interrupt", conversation.interrupt, "stop", "stop")
                self._new = ui.button("New conversation", on_click=self._restart)
                self._new.props("no-caps dense flat icon=add")
            self._banner = ui.label("").classes("tw-banner")
            self._log = (
                ui.element("div").classes("tw-log").props('role=log aria-label="Conversation" tabindex=0')
            )
            with ui.row().classes("tw-prompt"):
                self._prompt = ui.textarea("Prompt").props("outlined autogrow dense").classes("tw-grow")
                self._prompt.on("keydown.enter.exact.prevent", self._send)
                action_button("Send", self._send, icon="send")
            ui.label("Enter sends the prompt, Shift+Enter starts a new line.").classes("tw-dim")
        self.update()

    async def _send(self) -> None:
        text = (self._prompt.value or "").strip()
        if text:
            self._prompt.value = ""
            await self._conversation.send(text)

    async def _restart(self) -> None:
        await self._conversation.restart()

    async def _choose(self, who: str) -> None:
        live = who == LIVE
        if live != self._conversation.live:
            await self._conversation.restart(live=live)

    def update(self) -> None:
        """Redraw the parts that have changed."""
        conversation = self._conversation
        for view in self._views:
            if isinstance(view, CallView | QuestionView | _SaidView):
                view.update()
        if conversation.version == self._seen:
            return
        self._seen = conversation.version
        self._update_bar()
        if self._drawn_of is not conversation.items:
            self._drawn_of = conversation.items
            self._items, self._views = [], []
            self._log.clear()
        new = conversation.items[len(self._items) :]
        with self._log:
            for item in new:
                self._items.append(item)
                self._views.append(self._draw(item))
        if new:
            self._log.run_method("scrollTo", {"top": 10_000_000})

    def _update_bar(self) -> None:
        conversation, totals = self._conversation, self._conversation.totals
        who = LIVE if conversation.live else SCRIPTED
        self._who.value = who
        self._banner.set_text(
            plain(_ABOUT[who] if conversation.live else f"{_ABOUT[who]} {conversation.hint}")
        )
        self._banner.classes(
            add="tw-live" if conversation.live else "", remove="" if conversation.live else "tw-live"
        )
        waits = len(conversation.questions.open)
        asked = f", {count(waits, 'question')} for you" if waits else ""
        self._state.set_text(f"{_STATES[conversation.state]}{asked}")
        self._interrupt.set_visibility(conversation.state == "running")
        self._new.set_visibility(conversation.state not in {"new", "starting"})
        cost = "" if totals.cost_usd is None else f"${totals.cost_usd:.4f}"
        note = "" if conversation.live else " (computed, not charged)"
        _set_chip(self._cost, f"Cost {cost}{note}" if cost else "")
        _set_chip(self._tokens, f"{totals.output_tokens:,} tokens out" if totals.turns else "")
        used, limit = totals.context_tokens, totals.context_limit
        share = f" ({100 * used / limit:.0f} %)" if used is not None and limit else ""
        _set_chip(self._context, "" if used is None else f"Context {used:,} tokens{share}")

    def _draw(self, item: Item) -> Any:
        match item:
            case Prompted():
                with ui.element("section").classes("tw-card tw-you"):
                    ui.label("You").classes("tw-dim")
                    return show_text(item.text)
            case Said():
                return _SaidView(item)
            case Called():
                view = CallView(item.call, title=short_name(item.call.tool))
                if item.subagent:
                    view.root.classes("tw-inner")
                return view
            case Asked():
                return QuestionView(item.question)
            case Noted():
                return self._draw_note(item)
            case TurnEnded():
                return self._draw_end(item)

    @staticmethod
    def _draw_note(item: Noted) -> Any:
        with ui.element("section").classes(f"tw-note tw-note-{item.level}") as section:
            label = show_text(item.text)
            if item.level == "error":
                label.props("role=alert")
            if item.detail is not None:
                with folded("Details"):
                    show_json(item.detail)
        return section

    @staticmethod
    def _draw_end(item: TurnEnded) -> Any:
        with ui.element("section").classes("tw-note") as section:
            ui.label(f"Turn ended: {item.summary}").classes("tw-dim")
            if item.failed:
                show_text(f"The turn failed: {item.failed}").classes("tw-bad").props("role=alert")
        return section


class _SaidView:
    """Text of the model, which may still be streaming."""

    def __init__(self, said: Said) -> None:
        self._said = said
        self._seen = -1
        with ui.element("section").classes("tw-card" + (" tw-inner" if said.subagent else "")):
            ui.label("Thinking" if said.thinking else "Subagent" if said.subagent else "Model").classes(
                "tw-dim"
            )
            self._box = ui.element("div")
            with self._box:
                self._label = ui.label("").classes("tw-text" + (" tw-dim" if said.thinking else ""))
        self.update()

    def update(self) -> None:
        said = self._said
        if said.version == self._seen:
            return
        self._seen = said.version
        if said.streaming:
            self._label.set_text(plain(said.text[-10_000:]))
        else:
            self._box.clear()
            with self._box:
                show_text(said.text)


def _set_chip(label: ui.label, text: str) -> None:
    label.set_text(text)
    label.set_visibility(bool(text))
