"""A run as spans over time: turns, requests to the model, tool calls, hooks, permissions, ...

A timeline is built frame by frame, so it works for a live run, a recording and the history of a session. It decides
what each frame means for the spans, and describes to the user why something failed. It has no clock (time is an
argument) and knows nothing about pages. No frame makes it raise, whatever the frame contains.

Measured spans, whose start and end are frames:

- `start`: from 0, when the CLI was started, to its response to `initialize`.
- `tool`: from the model's call to the result that the CLI reports, including waiting, permission and hooks.
- `mcp`: from a request to an in-process server to its response; for a tool call, the time of your function.
- `hook`, `permission`, `elicitation`, `control`, `subagent` and `task`.

Derived spans:

- `model`: the CLI does not report when it calls the API. The span starts at the prompt (or the `init` after it) or
  at the last tool result, and ends at the last block of the response. With partial messages both ends are measured
  for the main agent, because the CLI then reports each request and streams the response. In the history of a
  session the start is measured. If nothing shows that a request was sent, the title is "Model (no request)".
- `retry`: starts at its frame and ends after the delay that the CLI announced, or when the response arrives.
- `turn`: starts when its prompt is written, or at the first frame of the turn if the prompt had to wait, and ends
  at its result; in a history, at its last entry.
"""

import heapq
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolwire.messages import TERMINAL_TASK_STATUSES
from toolwire.sessions import entries
from toolwire.sessions.cost import API_KEYS, MODEL_KEYS, TokenUsage, read_cost, subtract
from toolwire.sessions.recorded import RecordedSession, Transcript
from toolwire.testing.recording import load

Direction = Literal["in", "out"]
"""`in`: from the CLI. `out`: to it."""

Kind = Literal[
    "start",
    "turn",
    "model",
    "tool",
    "mcp",
    "hook",
    "permission",
    "elicitation",
    "retry",
    "subagent",
    "task",
    "control",
]
"""`mcp`: a request from the CLI to an in-process server. `task`: background work other than a subagent.
`control`: any other control request, from either side, such as an interrupt."""

_TITLE: Final = 100
_REASON: Final = 500
DENIED: Final = "permission denied: "
"""The prefix of `Span.failed` for a call that was denied."""
INTERRUPTED: Final = "interrupted"
"""The prefix of `Span.failed` for anything that the user interrupted."""
_NO_REASON: Final = "no reason was given"
_FINISHED: Final = "Background task finished"
_NOTIFICATION: Final = "<task-notification>"
_CUT_OFF: Final = "the turn ended before this finished"
_INTERRUPTED: Final = "[Request interrupted by user"
_COUNTED: Final = frozenset({"turn", "tool", "hook", "subagent", "task"})
_AGENT_TASKS: Final = frozenset({"local_agent", "remote_agent", "local_workflow"})
_ENDS: Final = {
    "error_max_turns": "the turn limit (max_turns) was reached",
    "error_max_budget_usd": "the cost limit (max_budget_usd) was reached",
    "error_max_structured_output_retries": "the model produced no valid structured output",
    "aborted_tools": f"{INTERRUPTED} while a tool was running",
    "aborted_streaming": f"{INTERRUPTED} while the model was responding",
}
"""Why a turn ended, by the `subtype` or the `terminal_reason` of its result."""


@dataclass(frozen=True, slots=True)
class TimedFrame:
    """A frame with the time, in seconds since the start, at which it was written or read."""

    number: int
    """Its index in `Timeline.frames`."""
    t: float
    direction: Direction
    frame: dict[str, Any]


@dataclass(slots=True)
class Span:
    """An operation with a start and an end, such as a tool call."""

    number: int
    """Its index in `Timeline.spans`."""
    kind: Kind
    title: str
    start: float
    end: float | None = None
    """None while it runs."""
    parent: int | None = None
    """The number of the enclosing span."""
    depth: int = 0
    failed: str | None = None
    """Why it failed, as a text for the user; None if it did not."""
    name: str = ""
    """The full name of the tool, the hook event, the model, the MCP method or the type of subagent."""
    input: Any = None
    output: Any = None
    """The result of a tool, the output of a hook, a permission decision, or the response of the model (`text`,
    `thinking`, `calls`, `usage`, `stop_reason`, `first_token`: seconds until it began)."""
    frames: list[int] = field(default_factory=list)
    """The numbers of the frames that belong to it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A failure. `fatal`: it ended a turn or the run; otherwise Claude could continue."""

    title: str
    why: str
    t: float
    span: int | None = None
    fatal: bool = False


@dataclass(slots=True)
class Summary:
    """The totals of a run so far."""

    cost_usd: float | None = None
    """As the CLI reported it at the last result; None before."""
    duration: float = 0.0
    """Seconds from the start to the last frame."""
    turns: int = 0
    model: str = ""
    session_id: str = ""
    tokens: TokenUsage = field(default_factory=TokenUsage)
    """Including subagents. Between two results, some tokens may be missing."""
    model_calls: int = 0
    tool_calls: int = 0
    failures: int = 0
    """Turns, tool calls, hooks, subagents and tasks that failed."""
    prompts: list[str] = field(default_factory=list)
    permission_questions: int = 0
    is_over: bool = False
    """True if nothing is running and no prompt is waiting, or the CLI has exited."""
    error: str | None = None
    """Why the run failed; None if its last turn succeeded."""


class _Agent:
    """The state of the main agent or a subagent: its open tool calls and its request to the model."""

    __slots__ = ("calls", "confirmed", "last_seen", "model", "responses", "span", "streaming")

    def __init__(self, span: Span | None) -> None:
        self.span = span
        """The subagent's span; None for the main agent, whose spans belong to the turn."""
        self.calls: set[str] = set()
        self.model: Span | None = None
        self.confirmed = False
        """True if a frame shows that the open request was really sent: a report of it, or a response."""
        self.streaming = False
        self.last_seen: float | None = None
        """The time of its last frame."""
        self.responses: dict[str, Span] = {}


class Timeline:
    """A run as spans. Call `add` with each frame, and `finish` when the CLI has exited."""

    def __init__(self) -> None:
        self.frames: list[TimedFrame] = []
        self.spans: list[Span] = []
        self.summary = Summary()
        self._problems: list[Problem] = []  # those that are not the failure of a span
        self._changed: dict[int, Span] = {}
        self._open: dict[int, Span] = {}
        self._requests: dict[tuple[Direction, str], Span] = {}
        self._calls: dict[tuple[str, Any], Span] = {}  # open MCP requests, by server and JSON-RPC id
        self._tools: dict[str, Span] = {}
        self._owners: dict[str, _Agent] = {}  # the agents that called the tools
        self._unseen: set[str] = set()  # calls that the CLI did not report; only their requests were seen
        self._denied: dict[str, str] = {}
        self._main = _Agent(None)
        self._agents: dict[str, _Agent] = {}  # subagents, by the call that started them
        self._tasks: dict[str, Span] = {}
        self._agent_ids: dict[str, str] = {}  # id of a subagent -> the call that started it
        self._turn: Span | None = None
        self._last_turn: Span | None = None
        self._prompt: tuple[Any, int] | None = None  # of the open turn: content and frame number
        self._queue: deque[tuple[Any, int, float]] = deque()
        self._started: Span | None = None
        self._retry: tuple[Span, float] | None = None
        self._hooks: dict[str, Span] = {}
        self._call_ids: dict[int, str] = {}  # number of a span (tool, subagent) -> id of the call
        self._requesters: dict[int, _Agent] = {}  # number of a model span -> the agent that sent the request
        self._usage: dict[str, TokenUsage] = {}  # by response, since the last result
        self._servers_failed: set[str] = set()
        self._finished = False
        self._is_history = False
        self._now = 0.0
        self._number = 0
        self._messages: dict[str, Callable[[dict[str, Any]], None]] = {
            "stream_event": self._on_stream,
            "assistant": self._on_assistant,
            "user": self._on_user,
            "result": self._on_result,
            "system": self._on_system,
            "tool_progress": self._on_progress,
            "api-request": self._on_api_request,
        }
        self._system_handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "init": self._on_init,
            "status": self._on_status,
            "session_state_changed": self._on_state,
            "api_retry": self._on_retry,
            "permission_denied": self._on_denied,
            "task_started": self._on_task_started,
            "task_progress": self._on_task_update,
            "task_updated": self._on_task_update,
            "task_notification": self._on_task_update,
            "hook_started": self._on_hook_started,
            "hook_response": self._on_hook_response,
        }

    # --- input ---

    def add(self, t: float, direction: Direction, frame: dict[str, Any]) -> list[Span]:
        """Add a frame. Returns the spans that it opened or changed."""
        return self._add(t, direction, frame, frame)

    def finish(self, t: float, exit_code: int | None = None) -> list[Span]:
        """Record that the CLI has exited, which ends all open spans. Returns the spans that changed."""
        self._changed = {}
        self._now = _time(t, self._now)
        code = exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None
        why = "Claude Code exited before this finished" + (f" (exit code {code})" if code else "")
        if code and self.summary.error is None:
            self.summary.error = f"Claude Code exited with code {code}"
            self._problems.append(Problem("Claude Code", self.summary.error, self._now, fatal=True))
        self._close_all(None if self._is_history else why)
        self._finished = True
        self._update()
        return list(self._changed.values())

    def _add(
        self, t: float, direction: Direction, frame: dict[str, Any], shown: dict[str, Any]
    ) -> list[Span]:
        self._changed = {}
        self._now = _time(t, self._now)
        self._number = len(self.frames)
        self.frames.append(TimedFrame(self._number, self._now, direction, shown))
        kind = _text(frame.get("type"))
        if kind == "control_request":
            self._on_request(direction, frame)
        elif kind == "control_response":
            self._on_response(direction, _dict(frame.get("response")))
        elif kind == "control_cancel_request":
            self._on_cancel(direction, _text(frame.get("request_id")))
        elif direction == "out":
            if kind == "user":
                self._on_prompt(frame)
        elif (handler := self._messages.get(kind)) is not None:
            handler(frame)
        self._update(frame)
        return list(self._changed.values())

    # --- output ---

    def problems(self) -> list[Problem]:
        """Return what failed and why: fatal problems first, then the others, each group in order of time.

        If a span and a part of it failed for the same reason, only the outer span is listed.
        """
        found = list(self._problems)
        found += [
            Problem(span.title, span.failed, span.start, span.number, span.kind == "turn")
            for span in self.spans
            if span.failed is not None and not self._has_same_failure_above(span)
        ]
        return sorted(found, key=lambda each: (not each.fatal, each.t))

    def _has_same_failure_above(self, span: Span) -> bool:
        above = span
        while above.parent is not None:
            above = self.spans[above.parent]
            if above.failed == span.failed:
                return True
        return False

    def in_order(self) -> list[Span]:
        """Return the spans in depth-first order: each span before its parts, which are ordered by start."""
        parts = self.parts()
        ordered: list[Span] = []
        waiting = [iter(parts.get(None, []))]
        while waiting:
            if (found := next(waiting[-1], None)) is None:
                waiting.pop()
                continue
            ordered.append(found)
            if below := parts.get(found.number):
                waiting.append(iter(below))
        return ordered

    def parts(self) -> dict[int | None, list[Span]]:
        """Return the parts of each span by its number, ordered by start; None stands for the whole run."""
        found: dict[int | None, list[Span]] = {}
        for span in sorted(self.spans, key=lambda each: (each.start, each.number)):
            found.setdefault(span.parent, []).append(span)
        return found

    # --- spans ---

    def _begin(
        self, kind: Kind, title: str, parent: Span | None, *, name: str = "", given: Any = None
    ) -> Span:
        span = Span(
            number=len(self.spans),
            kind=kind,
            title=_shorten(title, _TITLE) or kind,
            start=self._now,
            parent=None if parent is None else parent.number,
            depth=0 if parent is None else parent.depth + 1,
            name=name,
            input=given,
        )
        self.spans.append(span)
        self._open[span.number] = span
        self._touch(span)
        return span

    def _touch(self, span: Span | None) -> None:
        if span is None:
            return
        if not span.frames or span.frames[-1] != self._number:
            span.frames.append(self._number)
        self._changed[span.number] = span

    def _end(self, span: Span, *, failed: str | None = None, at: float | None = None) -> None:
        self._open.pop(span.number, None)
        span.end = max(span.start, self._now if at is None else at)
        if failed is not None:
            self._fail(span, failed)
        self._touch(span)

    def _fail(self, span: Span, why: str) -> None:
        if span.failed is None and span.kind in _COUNTED:
            self.summary.failures += 1
        span.failed = _shorten(why, _REASON) or _NO_REASON
        self._changed[span.number] = span

    def _close_all(self, why: str | None) -> None:
        """End all open spans, inner ones first."""
        for span in sorted(self._open.values(), key=lambda each: -each.depth):
            if span.kind == "model":
                was_sent = why is not None or self._requesters[span.number].confirmed
                lost = was_sent and span.output is None
                self._end_model(span, (why or "no response was received") if lost else None)
            elif span.kind == "tool" and why is None:
                self._end(span, failed="no result was recorded")
            elif span.kind == "subagent" and why is None:
                self._end(span, at=self._agents[self._call_ids[span.number]].last_seen)
            else:
                self._end(span, failed=why)
        self._queue.clear()
        self._turn = None

    # --- turns ---

    def _on_prompt(self, frame: dict[str, Any]) -> None:
        content = _dict(frame.get("message")).get("content")
        text = read_text(content)
        if not text.lstrip().startswith(_NOTIFICATION):
            self.summary.prompts.append(text)
        if self._is_history and self._turn is not None:
            self._end_history_turn()
        if self._turn is None:
            self._begin_turn((content, self._number))
        else:
            self._queue.append((content, self._number, self._now))

    def _begin_turn(self, prompt: tuple[Any, int] | None) -> Span:
        given = None if prompt is None else prompt[0]
        text = "" if prompt is None else read_text(given)
        if prompt is None or text.lstrip().startswith(_NOTIFICATION):
            text = "Turn without a prompt" if prompt is None else _FINISHED
        turn = self._begin("turn", text or "Prompt", None, given=given)
        if prompt is not None and prompt[1] != self._number:
            turn.frames.insert(0, prompt[1])
        turn.name = "task-notification" if prompt is not None and text == _FINISHED else ""
        self._prompt, self._turn = prompt, turn
        self.summary.turns += 1
        self._main = _Agent(None)
        self._await_model(self._main)
        return turn

    def _need_turn(self) -> Span:
        """Return the open turn. If there is none, begin one, with the next waiting prompt or without a prompt."""
        if self._turn is not None:
            return self._turn
        if not self._queue:
            return self._begin_turn(None)
        content, number, _ = self._queue.popleft()
        return self._begin_turn((content, number))

    def _on_result(self, frame: dict[str, Any]) -> None:
        turn = self._need_turn()
        origin = _dict(frame.get("origin"))
        if isinstance(origin.get("kind"), str) and origin["kind"] != "human":
            if self._prompt is not None:  # the turn was one of the CLI's own, so the prompt still waits
                self._queue.appendleft((*self._prompt, self._now))
                turn.input = None
            finished = origin["kind"] == "task-notification"
            turn.title = _FINISHED if finished else _shorten(f"Started by {origin['kind']}", _TITLE)
            turn.name = origin["kind"]
        failed = _describe_end(frame)
        turn.output = {
            name: frame[key]
            for name, key in (
                ("result", "result"),
                ("structured_output", "structured_output"),
                ("usage", "usage"),
                ("cost_usd", "total_cost_usd"),
                ("model_requests", "num_turns"),
                ("permission_denials", "permission_denials"),
            )
            if frame.get(key) not in (None, [], {})
        }
        self._end_retry()
        for span in sorted(self._open.values(), key=lambda each: -each.depth):
            if self._is_of_turn(span):
                self._end_part(span, frame, failed)
        self._end(turn, failed=failed)
        self._last_turn, self._turn, self._prompt = turn, None, None
        self.summary.error = failed
        self._read_totals(frame)

    def _is_of_turn(self, span: Span) -> bool:
        """True if a span is part of the main agent's turn. Subagents and tasks may outlast the turn."""
        while span.parent is not None:
            if span.kind in ("subagent", "task"):
                return False
            span = self.spans[span.parent]
        return span is self._turn

    def _end_part(self, span: Span, result: dict[str, Any], failed: str | None) -> None:
        if span is self._turn:
            return
        if span.kind == "model":
            was_sent = result.get("subtype") != "error_max_turns"
            self._end_model(span, failed if was_sent else None)
        elif span.kind in ("hook", "permission", "elicitation"):
            self._end(span, failed="there was no response when the turn ended")
        else:
            self._end(span, failed=failed or _CUT_OFF)

    def _end_history_turn(self) -> None:
        """End the turn at the previous entry, because a history has no result frames."""
        turn = self._turn
        if turn is None:
            return
        now, self._now = self._now, self.frames[-2].t if len(self.frames) > 1 else self._now
        for span in sorted(self._open.values(), key=lambda each: -each.depth):
            if self._is_of_turn(span) and span is not turn:
                if span.kind == "model":
                    self._end_model(span, None)
                else:
                    self._end(span, failed="no result was recorded" if span.kind == "tool" else None)
        self._end(turn)
        turn.frames.pop()  # the frame of the next prompt
        self._now, self._turn, self._last_turn = now, None, turn

    # --- the model ---

    def _agent_of(self, frame: dict[str, Any]) -> _Agent:
        """Return the agent that a frame belongs to. Begins the span of a subagent that was not known yet."""
        call = _text(frame.get("parent_tool_use_id"))
        if not call:
            self._need_turn()
            return self._main
        if agent_id := _text(frame.get("agent_id")):
            self._agent_ids.setdefault(agent_id, call)
        agent = self._agents.get(call)
        if agent is None:
            name = _text(frame.get("subagent_type"))
            agent = self._begin_subagent(call, _text(frame.get("task_description")) or name, name, None)
        agent.last_seen = self._now
        return agent

    def _begin_subagent(self, call: str, title: str, name: str, given: Any) -> _Agent:
        tool = self._tools.get(call)
        arguments = _dict(None if tool is None else tool.input)
        title = title or _text(arguments.get("description")) or "Subagent"
        name = name or _text(arguments.get("subagent_type"))
        given = arguments.get("prompt") if given is None else given
        span = self._begin("subagent", title, tool or self._turn, name=name, given=given)
        agent = self._agents[call] = _Agent(span)
        self._call_ids[span.number] = call
        self._await_model(agent)
        return agent

    def _await_model(self, agent: _Agent) -> None:
        """Begin a model span: all input for the next request is complete."""
        model = agent.model
        if model is not None and model.end is None:
            if not agent.confirmed:
                model.start = self._now
                self._touch(model)
            return
        agent.model = self._begin("model", "Model", agent.span or self._turn)
        self._requesters[agent.model.number] = agent
        agent.confirmed = agent.streaming = False

    def _on_model_request(self, agent: _Agent) -> None:
        """Record that the CLI reported a request to the model."""
        self._await_model(agent)
        if agent.model is not None and not agent.streaming:
            agent.model.start = self._now if not agent.confirmed else agent.model.start
            self._confirm(agent)

    def _confirm(self, agent: _Agent) -> None:
        if not agent.confirmed:
            agent.confirmed = True
            self.summary.model_calls += 1

    def _find_response(self, agent: _Agent, message: dict[str, Any]) -> Span:
        """Return the span of the response that a message is part of."""
        key = _text(message.get("id"))
        model = agent.responses.get(key) if key else None
        if model is None:
            if agent.model is None or agent.model.end is not None:
                self._await_model(agent)
            model = agent.model
            assert model is not None  # noqa: S101 - _await_model has made it
            self._confirm(agent)
            if key:
                agent.responses[key] = model
            if model.output is None:
                model.output = {"first_token": round(max(0.0, self._now - model.start), 4)}
        elif agent.model is not None and agent.model.end is None and not agent.confirmed:
            agent.model.start = self._now  # the previous response had one more block
        name = _text(message.get("model"))
        if name:
            model.name = name
            model.title = (_shorten(name, _TITLE) if name != "<synthetic>" else "") or "Model"
            if name != "<synthetic>" and agent.span is None:
                self.summary.model = name
        self._count_usage(model, key, message.get("usage"))
        return model

    def _count_usage(self, model: Span, key: str, usage: object) -> None:
        if not isinstance(usage, dict) or not isinstance(model.output, dict):
            return
        merged = {**_dict(model.output.get("usage")), **usage}
        model.output["usage"] = merged
        tokens = TokenUsage(*(_count(merged.get(key)) for key in API_KEYS))
        name = key or f"#{model.number}"
        self.summary.tokens = subtract(self.summary.tokens + tokens, self._usage.get(name))
        self._usage[name] = tokens

    def _on_stream(self, frame: dict[str, Any]) -> None:
        agent = self._agent_of(frame)
        event = _dict(frame.get("event"))
        kind = event.get("type")
        if kind == "message_start":
            self._end_retry()
            message = _dict(event.get("message"))
            if agent.streaming and agent.model is not None and agent.model.end is None:
                self._end(agent.model)
            self._touch(self._find_response(agent, message))
            agent.streaming = True
        elif agent.streaming and agent.model is not None:
            model = agent.model
            self._touch(model)
            if kind == "message_delta":
                key = next((each for each, span in reversed(agent.responses.items()) if span is model), "")
                self._count_usage(model, key, event.get("usage"))
                reason = _dict(event.get("delta")).get("stop_reason")
                if reason and isinstance(model.output, dict):
                    model.output["stop_reason"] = reason
            elif kind == "message_stop":
                agent.streaming = False
                self._end(model)
                if isinstance(model.output, dict) and model.output.get("calls") and not agent.calls:
                    self._await_model(agent)  # its calls had ended before the stream did

    def _on_assistant(self, frame: dict[str, Any]) -> None:
        agent = self._agent_of(frame)
        message = _dict(frame.get("message"))
        if agent is self._main:
            self._end_retry()
        model = self._find_response(agent, message)
        blocks = entries.list_blocks(message.get("content"))
        self._record_response(model, blocks, message.get("stop_reason"))
        self._touch(model)
        if any(frame.get(each) for each in ("error", "is_api_error_message", "isApiErrorMessage")):
            self._fail(model, read_text(message.get("content")) or _text(frame.get("error")))
            if self._is_history and agent is self._main and self._turn is not None:
                self._fail(self._turn, model.failed or "")
        if model is not agent.model or not agent.streaming:
            self._end(model)
        for block in blocks:
            if block.get("type") == "tool_use":
                self._on_tool_use(agent, block)

    def _record_response(self, model: Span, blocks: list[dict[str, Any]], stop_reason: object) -> None:
        output = model.output if isinstance(model.output, dict) else {}
        for block in blocks:
            kind = block.get("type")
            if kind in ("text", "thinking") and isinstance(text := block.get(str(kind)), str):
                output[str(kind)] = output.get(str(kind), "") + text
            elif kind == "tool_use":
                output.setdefault("calls", []).append(_text(block.get("name")))
        if stop_reason:
            output["stop_reason"] = stop_reason
        model.output = output

    def _end_model(self, model: Span, failed: str | None) -> None:
        agent = self._requesters[model.number]
        if not agent.confirmed and failed is None:
            model.title = "Model (no request)"
            self._end(model, at=model.start)
        else:
            self._confirm(agent)
            agent.streaming = False
            self._end(model, failed=failed)

    def _end_retry(self) -> None:
        if self._retry is not None:
            (span, until), self._retry = self._retry, None
            if span.end is None:
                self._end(span, at=min(self._now, until))

    # --- tools ---

    def _on_tool_use(self, agent: _Agent, block: dict[str, Any]) -> None:
        call, name = _text(block.get("id")), _text(block.get("name"))
        tool = self._tools.get(call) if call else None
        if tool is not None and call not in self._unseen:
            self._touch(tool)
            return
        if tool is None:
            tool = self._begin_tool(agent, call, name)
        self._unseen.discard(call)
        tool.input = block.get("input")
        self._touch(tool)

    def _begin_tool(self, agent: _Agent, call: str, name: str) -> Span:
        tool = self._begin("tool", name_tool(name) or "Tool", agent.span or self._turn, name=name)
        self.summary.tool_calls += 1
        if call:
            self._tools[call] = tool
            self._owners[call] = agent
            self._call_ids[tool.number] = call
            agent.calls.add(call)
        return tool

    def _need_tool(self, call: str, name: str, given: Any, agent_id: str = "") -> Span | None:
        """Return the span of a call. Begins one if the CLI has not reported the call (of a nested subagent)."""
        if not call or not name:
            return self._tools.get(call)
        if (tool := self._tools.get(call)) is None:
            agent = self._agents.get(self._agent_ids.get(agent_id, ""))
            if agent is None:
                self._need_turn()
                agent = self._main
            tool = self._begin_tool(agent, call, name)
            agent.calls.discard(call)  # its result may never be reported
            tool.input = given
            self._unseen.add(call)
        return tool

    def _on_user(self, frame: dict[str, Any]) -> None:
        content = _dict(frame.get("message")).get("content")
        if frame.get("isReplay") is True:
            return
        results = [each for each in entries.list_blocks(content) if each.get("type") == "tool_result"]
        for block in results:
            self._on_tool_result(frame, block)
        if results:
            return
        if read_text(content).startswith(_INTERRUPTED) and self._turn is not None:
            self._touch(self._turn)
            if self._is_history:
                self._fail(self._turn, INTERRUPTED)
        elif call := _text(frame.get("parent_tool_use_id")):
            agent = self._agent_of(frame)
            if agent.span is not None and agent.span.input is None:
                agent.span.input = content
            self._touch(agent.span)
            if call in self._agents and not agent.confirmed:
                self._await_model(agent)
        elif self._turn is not None:
            self._touch(self._turn)

    def _on_tool_result(self, frame: dict[str, Any], block: dict[str, Any]) -> None:
        call = _text(block.get("tool_use_id"))
        tool = self._tools.get(call)
        if tool is None:
            tool = self._begin_tool(self._agent_of(frame), call, "")
        self._unseen.discard(call)
        tool.output = block.get("content")
        failed = None
        if block.get("is_error") is True:
            failed = self._explain(call, frame, read_text(tool.output) or "it failed without a message")
        self._end(tool, failed=failed)
        agent = self._agents.get(call)
        result = frame.get("tool_use_result", frame.get("toolUseResult"))
        in_background = isinstance(result, dict) and result.get("isAsync") is True
        if agent is not None and agent.span is not None and not in_background:
            self._end_subagent(call, tool.output, failed)
        owner = self._owners.get(call)
        if owner is not None:
            owner.calls.discard(call)
            is_running = self._turn is not None if owner.span is None else owner.span.end is None
            if is_running and not owner.calls:
                self._await_model(owner)

    def _explain(self, call: str, frame: dict[str, Any], error: str) -> str:
        """Return why a call failed: it was denied or interrupted, or else the error of the tool."""
        if call in self._denied:
            return f"{DENIED}{self._denied[call]}"
        notes = frame.get("tool_result_meta")
        for note in map(_dict, notes if isinstance(notes, list) else [frame]):
            if note.get("id") not in (call, None):
                continue
            if note.get("non_execution_kind") == "user-rejected":
                return INTERRUPTED
            decision = _dict(note.get("permission_decision", note.get("permissionDecision")))
            if decision.get("decision") == "reject":
                return f"{DENIED}{error}"
        return error

    def _end_subagent(self, call: str, output: Any, failed: str | None) -> None:
        agent = self._agents[call]
        span = agent.span
        if span is None:
            return
        if agent.model is not None and agent.model.end is None:
            self._end_model(agent.model, None)
        if output is not None:
            span.output = output
        self._end(span, failed=failed)

    # --- system frames ---

    def _on_system(self, frame: dict[str, Any]) -> None:
        handler = self._system_handlers.get(_text(frame.get("subtype")))
        if handler is not None:
            handler(frame)
        elif self._turn is not None:
            self._touch(self._turn)

    def _on_status(self, frame: dict[str, Any]) -> None:
        if frame.get("status") == "requesting" and self._turn is not None:
            self._on_model_request(self._main)

    def _on_state(self, frame: dict[str, Any]) -> None:
        if frame.get("state") == "idle" and self._turn is None:
            self._merge_queued()

    def _on_api_request(self, frame: dict[str, Any]) -> None:
        if self._turn is not None or frame.get("parent_tool_use_id"):
            self._on_model_request(self._agent_of(frame))

    def _on_progress(self, frame: dict[str, Any]) -> None:
        ids = (_text(frame.get(each)) for each in ("parent_tool_use_id", "tool_use_id"))
        self._touch(next((self._tools[each] for each in ids if each in self._tools), None))

    def _on_denied(self, frame: dict[str, Any]) -> None:
        call = _text(frame.get("tool_use_id"))
        self._denied[call] = _text(frame.get("message")) or _text(frame.get("decision_reason")) or _NO_REASON
        self._touch(self._tools.get(call))

    def _on_hook_started(self, frame: dict[str, Any]) -> None:
        event = _text(frame.get("hook_event")) or _text(frame.get("hook_name")) or "Hook"
        hook = self._begin("hook", event, self._turn or self._started_open(), name=event)
        hook.input = _text(frame.get("hook_name")) or None
        self._hooks[_text(frame.get("hook_id"))] = hook

    def _on_hook_response(self, frame: dict[str, Any]) -> None:
        if (hook := self._hooks.pop(_text(frame.get("hook_id")), None)) is None:
            return
        bad = frame.get("outcome") == "error" or finite_number(frame.get("exit_code")) not in (None, 0)
        hook.output = _text(frame.get("output")) or _text(frame.get("stdout"))
        self._end(hook, failed=(_text(frame.get("stderr")) or hook.output or _NO_REASON) if bad else None)

    def _started_open(self) -> Span | None:
        return self._started if self._started is not None and self._started.end is None else None

    def _on_init(self, frame: dict[str, Any]) -> None:
        turn = self._need_turn()
        self._touch(turn)
        if not self._main.confirmed:
            self._await_model(self._main)
        self.summary.model = _text(frame.get("model")) or self.summary.model
        servers = frame.get("mcp_servers")
        for server in servers if isinstance(servers, list) else []:
            name, status = _text(_dict(server).get("name")), _text(_dict(server).get("status"))
            if status in ("failed", "needs-auth") and name not in self._servers_failed:
                self._servers_failed.add(name)
                why = "Claude Code could not connect to it"
                if status == "needs-auth":
                    why = "it requires authentication"
                self._problems.append(Problem(f"MCP server {name}", why, self._now, turn.number))

    def _merge_queued(self) -> None:
        """Add waiting prompts to the last turn: the CLI is idle, so it answered them there."""
        while self._queue and self._last_turn is not None and self._queue[0][2] <= self._now:
            content, number, _ = self._queue.popleft()
            given = self._last_turn.input
            self._last_turn.input = [*given, content] if isinstance(given, list) else [given, content]
            self._last_turn.frames.append(number)
            self._changed[self._last_turn.number] = self._last_turn

    def _on_retry(self, frame: dict[str, Any]) -> None:
        self._end_retry()
        self._need_turn()
        if self._main.model is None or self._main.model.end is not None:
            self._await_model(self._main)
        self._confirm(self._main)
        status = finite_number(frame.get("error_status"))
        error = _text(frame.get("error")).replace("_", " ") or "the request failed"
        delay = max(0.0, finite_number(frame.get("retry_delay_ms")) or 0.0) / 1000
        attempt, most = finite_number(frame.get("attempt")), finite_number(frame.get("max_retries"))
        counted = f", attempt {attempt:g} of {most:g}" if attempt is not None and most is not None else ""
        why = f"the model's API returned: {error}{f' (HTTP {status:g})' if status else ''}{counted}"
        span = self._begin("retry", f"Retry after {delay:.3g} s", self._main.model, name=error, given=frame)
        self._fail(span, why)
        self._retry = (span, self._now + delay)

    def _on_task_started(self, frame: dict[str, Any]) -> None:
        task, call = _text(frame.get("task_id")), _text(frame.get("tool_use_id"))
        title = _text(frame.get("description"))
        kind, name = _text(frame.get("task_type")), _text(frame.get("subagent_type"))
        if name or kind in _AGENT_TASKS:
            agent = self._agents.get(call)
            if agent is None:
                agent = self._begin_subagent(call or task, title, name, frame.get("prompt"))
            self._agent_ids[task] = call or task
            span = agent.span
        else:
            parent = self._tools.get(call) or self._turn
            span = self._begin("task", title or kind or "Background task", parent, name=kind)
        self._touch(span)
        if span is not None:
            self._tasks[task] = span

    def _on_task_update(self, frame: dict[str, Any]) -> None:
        span = self._tasks.get(_text(frame.get("task_id")))
        update = _dict(frame.get("patch")) or frame
        status = _text(update.get("status"))
        if span is None:
            return
        self._touch(span)
        if output := update.get("summary") or update.get("error"):
            span.output = output
        if status not in TERMINAL_TASK_STATUSES or span.end is not None:
            return
        failed = None
        if status != "completed":
            failed = _text(update.get("error")) or _text(update.get("summary")) or f"the task was {status}"
        call = self._call_ids.get(span.number)
        if call in self._agents:
            self._end_subagent(call, None, failed)
        else:
            self._end(span, failed=failed)

    # --- control requests ---

    def _on_cancel(self, direction: Direction, key: str) -> None:
        span = self._requests.get((direction, key))
        if span is not None and span.end is None:
            self._end(span, failed="cancelled by Claude Code" if direction == "in" else "cancelled")

    def _on_request(self, direction: Direction, frame: dict[str, Any]) -> None:
        key, request = _text(frame.get("request_id")), _dict(frame.get("request"))
        subtype = _text(request.get("subtype"))
        span: Span | None
        match direction, subtype:
            case "out", "initialize" if self._started is None:
                span = self._started = self._begin(
                    "start", "Start of Claude Code", None, name=subtype, given=request
                )
                span.start = min(0.0, self._now)
            case "out", "mcp_message":  # a notification of a server, which the CLI acknowledges at once
                return
            case "in", "mcp_message":
                span = self._on_mcp(_text(request.get("server_name")), _dict(request.get("message")))
            case "in", "hook_callback":
                span = self._on_hook(request)
            case "in", "can_use_tool":
                self.summary.permission_questions += 1
                name, given = _text(request.get("tool_name")), request.get("input")
                agent_id = _text(request.get("agent_id"))
                tool = self._need_tool(_text(request.get("tool_use_id")), name, given, agent_id)
                title = f"May Claude use {name_tool(name)}?" if name else "Permission"
                span = self._begin("permission", title, tool or self._turn, name=name, given=given)
            case "in", "elicitation":
                server = _text(request.get("mcp_server_name"))
                title, call = (
                    _text(request.get("message")) or "Elicitation",
                    self._find_eliciting_call(server),
                )
                span = self._begin("elicitation", title, call, name=server, given=request)
            case _:
                title = subtype or "control request"
                span = self._begin("control", title, self._turn, name=subtype, given=request)
        if span is not None and key:
            self._requests[direction, key] = span

    def _on_mcp(self, server: str, message: dict[str, Any]) -> Span | None:
        method, params = _text(message.get("method")), _dict(message.get("params"))
        if method == "notifications/cancelled":
            call = self._calls.pop((server, _hashable(params.get("requestId"))), None)
            if call is not None and call.end is None:
                reason = _text(params.get("reason"))
                self._end(call, failed="cancelled by Claude Code" + (f" ({reason})" if reason else ""))
            return None
        if not method or message.get("id") is None:
            return None
        given: Any = params
        if method == "tools/call":
            name = _text(params.get("name"))
            given = params.get("arguments")
            call_id = _text(_dict(params.get("_meta")).get("claudecode/toolUseId"))
            parent = self._need_tool(call_id, f"mcp__{server}__{name}", given)
            title = f"{name} runs in {server}"
        else:
            parent, title = self._started_open(), f"{method} of {server}"
        span = self._begin("mcp", title, parent or self._turn, name=method, given=given)
        self._calls[server, _hashable(message.get("id"))] = span
        return span

    def _on_hook(self, request: dict[str, Any]) -> Span:
        given = _dict(request.get("input"))
        event = _text(given.get("hook_event_name")) or "Hook"
        call = _text(request.get("tool_use_id"))
        parent: Span | None = self._tools.get(call)
        agent_id = _text(given.get("agent_id"))
        if parent is None and given.get("tool_name") and event == "PreToolUse":
            parent = self._need_tool(call, _text(given.get("tool_name")), given.get("tool_input"), agent_id)
        if parent is None and (agent := self._agents.get(self._agent_ids.get(agent_id, ""))) is not None:
            parent = agent.span
        if parent is None:
            parent = self._need_turn() if event == "UserPromptSubmit" else self._turn
        return self._begin("hook", event, parent, name=event, given=given)

    def _find_eliciting_call(self, server: str) -> Span | None:
        """Return the call for which a server asks the user: the newest open call of its tools."""
        prefix = f"mcp__{server}__"
        tools = [each for each in self._open.values() if each.kind == "tool" and each.name.startswith(prefix)]
        return tools[-1] if tools else self._turn

    def _on_response(self, direction: Direction, response: dict[str, Any]) -> None:
        request_direction: Direction = "in" if direction == "out" else "out"
        span = self._requests.get((request_direction, _text(response.get("request_id"))))
        if span is None:
            return
        if span.end is not None:  # cancelled meanwhile
            self._touch(span)
            return
        failed = None
        if response.get("subtype") == "error":
            failed = _text(response.get("error")) or "it failed without a message"
        body = response.get("response")
        if span.kind == "mcp":
            failed = self._read_mcp_response(span, _dict(_dict(body).get("mcp_response"))) or failed
        elif span.kind == "start":
            shown = ("claude_code_version", "pid", "account")
            span.output = {key: value for key, value in _dict(body).items() if key in shown}
        else:
            span.output = body
        self._end(span, failed=failed)
        if span.kind == "permission":
            self._on_decision(span, _dict(body))
        elif span.kind == "control" and span.name == "interrupt":
            if failed is None and self._turn is not None:
                self._turn.frames.append(self._number)
        elif span.kind == "mcp" and span.name == "tools/call":
            self._end_unseen(span, failed)

    def _read_mcp_response(self, span: Span, response: dict[str, Any]) -> str | None:
        result = response.get("result")
        if "error" in response:
            span.output = response["error"]
            return _text(_dict(response["error"]).get("message")) or "the server responded with an error"
        if span.name != "tools/call":
            span.output = result
            return None
        found = _dict(result)
        span.output = found.get("structuredContent", found.get("content", result))
        if found.get("isError") is True:
            return read_text(found.get("content")) or "the tool failed without a message"
        return None

    def _end_unseen(self, span: Span, failed: str | None) -> None:
        """End a call whose result the CLI will not report, with the result of the function."""
        tool = self.spans[span.parent] if span.parent is not None else None
        if tool is not None and self._call_ids.get(tool.number) in self._unseen:
            tool.output = span.output
            self._end(tool, failed=failed)

    def _on_decision(self, span: Span, decision: dict[str, Any]) -> None:
        if decision.get("behavior") != "deny" or span.parent is None:
            return
        if call := self._call_ids.get(span.parent):
            self._denied[call] = _text(decision.get("message")) or _NO_REASON

    # --- the summary ---

    def _read_totals(self, frame: dict[str, Any]) -> None:
        cost = finite_number(frame.get("total_cost_usd"))
        if cost is not None and cost >= 0:
            self.summary.cost_usd = cost
        models = [each for each in _dict(frame.get("modelUsage")).values() if isinstance(each, dict)]
        if models:  # totals of the connection so far, including subagents
            totals = (sum(_count(each.get(key)) for each in models) for key in MODEL_KEYS)
            self.summary.tokens = TokenUsage(*totals)
            self._usage.clear()

    def _update(self, frame: Mapping[str, Any] | None = None) -> None:
        summary = self.summary
        summary.duration = max(summary.duration, self._now)
        if frame is not None and frame.get("type") in ("system", "result", "assistant"):
            summary.session_id = _text(frame.get("session_id")) or summary.session_id
        summary.is_over = self._finished or (summary.turns > 0 and not self._open and not self._queue)


def read_recording(path: str | os.PathLike[str]) -> list[Timeline]:
    """Return one timeline for each connection of a recording. Raises ValueError if it is not a recording."""
    timelines = []
    for connection in load(path):
        timeline = Timeline()
        for entry in connection:
            if entry.kind in ("<", ">"):
                timeline.add(entry.t, "in" if entry.kind == "<" else "out", entry.frame)
            elif entry.kind == "exit":
                timeline.finish(entry.t, entry.exit)
        timelines.append(timeline)
    return timelines


def read_session(session: RecordedSession) -> Timeline:
    """Return the timeline of a past session, which `sessions.recorded` opens from disk or loads from a store.

    The frames are the entries of the session and its subagents, ordered by timestamp, including prompts that were
    rewound. There are no hooks, permission requests and MCP requests, because a session does not record them.
    """
    timeline = Timeline()
    timeline._is_history = True  # noqa: SLF001 - only set here
    sources = [_read_times(session.main, "", 0)]
    for order, each in enumerate(session.subagents.values(), 1):
        sources.append(_read_times(each, _text(each.metadata.get("toolUseId")), order))
    first: float | None = None
    for when, _, _, call, entry in heapq.merge(*sources, key=lambda each: each[:3]):
        if first is None and when:
            first = when
        is_prompt = not call and _is_prompt(entry)
        frame = {**entry, "session_id": session.session_id}
        if call:
            frame["parent_tool_use_id"] = call
        t = max(0.0, when - (first or when)) / 1000
        timeline._add(t, "out" if is_prompt else "in", frame, entry)  # noqa: SLF001 - of this module
    timeline.finish(timeline.summary.duration)
    cost = read_cost(session)
    timeline.summary.cost_usd, timeline.summary.tokens = cost.cost_usd, cost.usage
    turns = [each for each in timeline.spans if each.kind == "turn"]
    timeline.summary.error = turns[-1].failed if turns else None
    return timeline


def _read_times(
    source: Transcript, call: str, order: int
) -> Iterator[tuple[float, int, int, str, dict[str, Any]]]:
    """Yield the entries with their times. An entry without a time, or out of order, gets that of the one before."""
    last = 0.0
    for place, (_, entry) in enumerate(source.read_all()):
        last = max(last, entries.read_time(entry.get("timestamp")) or 0.0)
        yield last, order, place, call, entry


def _is_prompt(entry: Mapping[str, Any]) -> bool:
    is_internal = any(entry.get(each) for each in ("isMeta", "isCompactSummary", "isSidechain"))
    texts = [] if is_internal or entry.get("type") != "user" else entries.prompt_texts(entry)
    return bool(texts) and not texts[0].startswith(_INTERRUPTED)


def name_tool(name: str) -> str:
    """Return the display name of a tool: `calc: add` for `mcp__calc__add`."""
    prefix, server, tool = [*name.split("__", 2), "", ""][:3]
    return f"{server}: {tool}" if prefix == "mcp" and tool else name


def read_text(content: object) -> str:
    """Return the text of a message's or result's content. Blocks without text appear as their type in brackets."""
    if isinstance(content, str):
        return content
    parts = []
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict):
            continue
        text = block.get("text")
        parts.append(text if isinstance(text, str) else f"[{_text(block.get('type')) or '?'}]")
    return "\n".join(parts)


def _describe_end(result: dict[str, Any]) -> str | None:
    """Return why a turn failed; None if it did not."""
    subtype, reason = _text(result.get("subtype")), _text(result.get("terminal_reason"))
    if result.get("is_error") is not True and subtype in ("success", ""):
        return None
    if known := _ENDS.get(subtype) or _ENDS.get(reason):
        return known
    errors = result.get("errors")
    texts = [each for each in errors if isinstance(each, str)] if isinstance(errors, list) else []
    return _text(result.get("result")) or "; ".join(texts) or reason or subtype or _NO_REASON


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _hashable(value: object) -> object:
    return value if isinstance(value, str | int | float) else None


def finite_number(value: object) -> float | None:
    """Return a number as a float; None if it is not a number or not finite. JSON integers may be too large."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int:
    return max(0, int(finite_number(value) or 0))


def _time(value: object, last: float) -> float:
    number = finite_number(value)
    return last if number is None else number


def _shorten(text: str, length: int) -> str:
    return entries.shorten(" ".join(text[: 4 * length].split()), length)
