"""Decides when a run is over.

A `result` ends a turn, not always the run: background agents wake the session for another turn, and prompts may be
queued. Owns that decision, which depends on frames and times alone; time is always an argument. Must not know who
waits, nor what is closed when the run is over.

    prompt written ─▶ turn ─▶ result ─▶ idle ─▶ over
                       ▲        │
                       └────────┴─ running: another turn follows, or background work continues (up to a ceiling)

With a CLI that reports no state (older versions), a run is over at its result, unless a background agent is known
to be running.
"""

from typing import Any, Final

from toolwire.messages import TERMINAL_TASK_STATUSES

DEFAULT_CEILING: Final = 600.0
"""Seconds that a finished turn waits for background work."""
GRACE: Final = 5.0
"""Seconds that a prompt sent into a running turn may take to start its own before it counts as merged into it."""

DROPPED: Final = 30.0
"""Seconds after which a prompt that an idle CLI has not started on counts as dropped."""

_AGENT_TASKS: Final = frozenset({"local_agent", "local_workflow"})
"""Tasks whose end wakes the session. Shells, monitors and teammates may run forever, so no run waits for them."""


class Run:
    """Tracks one session: what is still expected, and until when to wait for it."""

    def __init__(self, ceiling: float | None = DEFAULT_CEILING) -> None:
        self._ceiling = ceiling
        self._since = 0.0  # time of the last frame that counts for the end of the run
        self._heard = 0.0  # time of the last frame of any kind
        self.session_id: str | None = None
        """The id of the conversation as last reported by the CLI; None before its first turn."""
        self._open = 0  # prompts whose result has not arrived
        self.prompt_sent = False
        """True once a prompt was written."""
        self._result_seen = False
        self._in_turn = False
        self._early_interrupt = False  # sent when the prompt's turn had not begun
        self.must_interrupt_again = False
        """True from the beginning of a turn on that an early interrupt was for; whoever sends another resets it."""
        self._state: str | None = None
        self._agents: set[str] = set()  # ids of tasks that the run waits for
        self._others: set[str] = set()  # and of those that it does not

    @property
    def busy(self) -> bool:
        """True while the CLI is working, or has a prompt to work on."""
        return self._in_turn or bool(self._agents) or self._open > 0

    @property
    def unanswered(self) -> bool:
        """True if a prompt was written and no result has arrived since."""
        return self.prompt_sent and not self._result_seen

    def prompted(self, now: float) -> None:
        """Record that a prompt was written: a result is expected again."""
        self.prompt_sent = True
        self._early_interrupt = False
        self._open += 1
        self._result_seen = False
        self._since = now

    def interrupted(self) -> None:
        """Record that an interrupt was sent. The CLI may ignore it until the turn begins.

        If several prompts wait, another interrupt could stop the wrong one, so none is sent.
        """
        self._early_interrupt = not self._in_turn and self._open == 1

    def feed(self, frame: dict[str, Any], now: float) -> None:
        """Record one message frame."""
        self._heard = now
        kind = frame.get("type")
        if kind in ("assistant", "stream_event"):  # first, because most are
            if frame.get("parent_tool_use_id") is None:
                self._in_turn = True
        elif kind == "result":
            origin = frame.get("origin")
            if not isinstance(origin, dict) or origin.get("kind") == "human":
                self._open = max(0, self._open - 1)
            self._in_turn = self._early_interrupt = False
            self._result_seen = True
            self._since = now
            self.session_id = _text(frame.get("session_id")) or self.session_id
        elif kind == "system":
            self._system(frame, now)

    def at_work(self, now: float) -> None:
        """Record that the CLI was working at this time although it sent no message: it waited for our response."""
        self._heard = max(self._heard, now)
        if not self._result_seen:
            self._since = max(self._since, now)

    def over_at(self) -> float | None:
        """Return when the run is over if nothing more arrives.

        A time in the past means now. None means that the end is not known yet.
        """
        if not self.prompt_sent:
            return self._since
        if self._in_turn or self._agents or self._state == "requires_action":
            return None
        if not self._result_seen:
            return self._dropped_at()
        if self._state in (None, "idle"):
            return self._since + (GRACE if self._open else 0.0)
        return None if self._ceiling is None else self._since + self._ceiling

    def result_due(self, asked_at: float) -> float | None:
        """Return until when another result may arrive if no prompt is written after `asked_at`; None if unknown.

        All background tasks count here, because the CLI may start a turn of its own when one ends.
        """
        if self._in_turn or self._agents or self._others or self._state not in (None, "idle"):
            return None
        if self.unanswered:
            return self._dropped_at()
        return max(self._heard, asked_at) + (DROPPED if self._open else GRACE)

    def _dropped_at(self) -> float | None:
        """Return when a CLI that stays idle counts as having dropped the prompt; None if it is not idle.

        It drops a prompt whose uuid it already knows.
        """
        return self._since + DROPPED if self._state == "idle" else None

    def _system(self, frame: dict[str, Any], now: float) -> None:
        subtype = frame.get("subtype")
        if subtype == "init":
            self._in_turn = True
            self.must_interrupt_again, self._early_interrupt = self._early_interrupt, False
            self.session_id = _text(frame.get("session_id")) or self.session_id
        elif subtype == "session_state_changed":
            self._state = _text(frame.get("state"))
            self._since = now
            if self._state == "idle":
                self._in_turn = False
        elif subtype in ("task_started", "task_notification", "task_updated"):
            self._task(subtype, frame, now)

    def _task(self, subtype: str, frame: dict[str, Any], now: float) -> None:
        task_id = _text(frame.get("task_id"))
        if task_id is None:
            return
        if subtype == "task_started":
            is_agent = _text(frame.get("task_type")) in _AGENT_TASKS
            (self._agents if is_agent else self._others).add(task_id)
            return
        patch = frame.get("patch")
        ended = subtype == "task_notification" or (
            isinstance(patch, dict) and _text(patch.get("status")) in TERMINAL_TASK_STATUSES
        )
        if not ended:
            return
        if task_id in self._agents:
            self._since = now
        self._agents.discard(task_id)
        self._others.discard(task_id)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
