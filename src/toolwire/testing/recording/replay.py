"""`Replay`: plays the CLI's side of a recording, and reports where the host differs from it.

Owns the comparison of host frames. The CLI's frames are played in the recorded order, each once the host has sent
everything that it had sent by then; the order among those host frames may differ.

Compared are
- prompts, in order, by their content;
- responses to the CLI's control requests, by the request id, whole; but only the names in a list of tools, and
  nothing of the response to MCP's `initialize` (it has versions);
- control requests, in order for each subtype, whole; `mcp_message` in any order; of `initialize` only that it is
  sent (its content follows from the options and the version of this library);
- any other frame by its type, without ids.

Ignored are uuids, session ids, request ids, times, the command line, and anything in place of a scrubbed secret.
Responses to cancelled requests are optional. Nothing is expected of the host after it closed, and it need not have
read what the CLI sent after its last result.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count, zip_longest
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel

from toolwire._support.waiting import Signal
from toolwire._transport.custom import Transport
from toolwire._transport.process import Command
from toolwire.errors import ProcessError
from toolwire.testing.recording.recorder import Entry, load
from toolwire.testing.recording.scrub import same

_IDS: Final = ("uuid", "session_id", "request_id", "timestamp")
_WIDTH: Final = 52  # of a column
_ROWS: Final = 24
_BEFORE: Final = 3  # rows shown above the first that differs

Frame = dict[str, Any]


class ReplayMismatch(AssertionError):  # noqa: N818 - it reads better where it is expected
    """The host differs from the recording. `line` is the line number in the file, from 1."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class Replay:
    """Plays a recording: `ClaudeAgentOptions(spawn_claude_code_process=Replay("run.jsonl"))`.

    `speed` None plays without pauses, 1.0 with the recorded pauses, 2.0 with half of them. It is a mismatch if a
    host frame does not come within `timeout` seconds, plus the time that it took in the recording. Each connection
    starts from the beginning; if several were recorded, the n-th connection plays the n-th.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, speed: float | None = None, timeout: float = 10.0
    ) -> None:
        if speed is not None and speed <= 0:
            raise ValueError(f"speed must be more than 0, or None for no pauses, not {speed!r}")
        self.path = os.fspath(path)
        self._connections = load(self.path)
        self._speed = speed
        self._timeout = timeout
        self._plays: list[_ReplayConnection] = []
        self._number = count()

    def __call__(self, command: Command) -> Transport:  # noqa: ARG002 - the command line is not compared
        """Make a connection, for `spawn_claude_code_process`."""
        number = next(self._number) if len(self._connections) > 1 else 0
        if number >= len(self._connections):
            raise ReplayMismatch(
                f"{self.path}: connection {number + 1} was opened, but only {len(self._connections)} were recorded"
            )
        play = _ReplayConnection(self.path, self._connections[number], self._speed, self._timeout)
        self._plays.append(play)
        return play

    def assert_finished(self) -> None:
        """Raise the first `ReplayMismatch`, or `AssertionError` if the recording was not played to its end."""
        if not self._plays:
            raise AssertionError(
                f"{self.path}: nothing was connected to this recording; pass it as spawn_claude_code_process"
            )
        for play in self._plays:
            if play.mismatch is not None:
                raise play.mismatch
        rest = [text for play in self._plays for text in play.describe_rest()]
        if rest:
            raise AssertionError("\n".join([f"{self.path}: the recording was not played to its end", *rest]))


class _ReplayConnection(Transport):
    def __init__(self, path: str, entries: list[Entry], speed: float | None, timeout: float) -> None:
        self.mismatch: ReplayMismatch | None = None
        self._path = path
        closed = next((at for at, entry in enumerate(entries) if entry.kind == "host"), len(entries))
        self._entries = entries[: closed + 1]  # nothing is expected of a host that has closed
        self._speed = speed
        self._timeout = timeout
        self._requests = {
            e.frame.get("request_id"): e for e in entries if _type(e) == "control_request" and e.kind == "<"
        }
        self._cancelled = {
            e.frame.get("request_id")
            for e in entries
            if _type(e) == "control_cancel_request" and e.kind == "<"
        }
        self._expected = [e for e in self._entries if e.kind == ">" and not self._is_optional(e.frame)]
        self._ids: dict[str, str] = {}  # recorded id -> id of this host
        self._played = 0
        self._input_ended = self._closed = False
        self._changed = Signal()

    def describe_rest(self) -> Iterable[str]:
        """Yield a line for each frame that was not sent or not played."""
        for entry in self._expected:
            yield f"line {entry.line}: the host never sent {_title(entry.frame)}"
        # The host may or may not have read what came after the last result.
        ends = (at for at, e in enumerate(self._entries, 1) if e.kind == ">" or _type(e) == "result")
        for entry in self._entries[self._played : max(ends, default=0)]:
            if entry.kind == "<":
                yield f"line {entry.line}: {_title(entry.frame)} was not played"

    async def connect(self) -> None:
        """Nothing to start."""

    def is_ready(self) -> bool:
        return not self._closed

    async def read_messages(self) -> AsyncIterator[Frame]:
        before = 0.0
        for entry in self._entries:
            gap, before = max(0.0, entry.t - before), entry.t
            if entry.kind == "<":
                await (anyio.sleep(gap / self._speed) if self._speed else anyio.lowlevel.checkpoint())
                self._played += 1
                yield self._to_host(entry.frame)
                continue
            await self._wait_for(entry, gap)
            if entry.kind == "host":
                return
            self._played += 1
            if entry.exit:
                raise ProcessError("Claude Code failed", exit_code=entry.exit)

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        if not self._is_optional(frame):
            entry = self._find(frame)
            self._expected.remove(entry)
            if frame.get("type") == "control_request":
                self._ids[entry.frame["request_id"]] = frame["request_id"]
        self._changed.notify()

    async def end_input(self) -> None:
        self._input_ended = True
        self._changed.notify()

    async def close(self) -> None:
        self._closed = True
        self._changed.notify()

    async def _wait_for(self, entry: Entry, gap: float) -> None:
        """Wait until the host has done what this entry records."""
        conditions: dict[str, Callable[[], bool]] = {
            ">": lambda: entry not in self._expected,
            "input": lambda: self._input_ended or self._closed,
            "host": lambda: self._closed,
        }
        done = conditions.get(entry.kind, lambda: True)
        with anyio.move_on_after(self._timeout + gap):
            await self._changed.wait_until(done)
        if not done():
            events = {"input": "the end of the input", "host": "the host to close the connection"}
            what = events.get(entry.kind) or _title(entry.frame)
            self._fail(
                entry.line,
                f"expected {what}, which did not come within {self._timeout + gap:.3g} s",
                entry.frame,
            )

    def _find(self, frame: Frame) -> Entry:
        """Return the recorded frame for a host frame; `ReplayMismatch` if there is none or it differs."""
        key = _match_key(frame)
        candidates = [entry for entry in self._expected if _match_key(entry.frame) == key]
        if not candidates:
            after = self._entries[self._played - 1].line if self._played else 1
            expected = next(iter(self._expected), None)
            self._fail(
                expected.line if expected else after,
                f"the host sent {_title(frame)}, which is not in the recording here",
                expected.frame if expected else None,
                frame,
            )
        actual = self._select(frame)
        if key == ("control_request", "mcp_message"):
            candidates = [e for e in candidates if same(self._select(e.frame), actual)] or candidates
        entry = candidates[0]
        expected_part = self._select(entry.frame)
        if not same(expected_part, actual):
            self._fail(entry.line, f"the host sent a different {_title(entry.frame)}", expected_part, actual)
        return entry

    def _fail(self, line: int, what: str, expected: Any = None, actual: Any = None) -> NoReturn:
        text = f"{self._path}, line {line}: {what}\n{side_by_side(expected, actual)}"
        self.mismatch = self.mismatch or ReplayMismatch(text, line)
        raise self.mismatch

    def _is_optional(self, frame: Frame) -> bool:
        """Return True for a response to a cancelled request."""
        return frame.get("type") == "control_response" and _response_id(frame) in self._cancelled

    def _select(self, frame: Frame) -> Any:
        """Return the part of a host frame that must be as recorded."""
        match frame.get("type"):
            case "user":
                message = frame.get("message")
                return message.get("content") if isinstance(message, dict) else message
            case "control_request":
                body = frame.get("request")
                return "initialize" if _match_key(frame) == ("control_request", "initialize") else body
            case "control_response":
                response = frame.get("response") or {}
                request = self._requests.get(response.get("request_id"))
                message = (request.frame.get("request") or {}).get("message") if request else None
                if isinstance(message, dict) and message.get("method") == "initialize":
                    return response.get("subtype")
                return _tools_by_name({key: value for key, value in response.items() if key != "request_id"})
        return {key: value for key, value in frame.items() if key not in _IDS}

    def _to_host(self, frame: Frame) -> Frame:
        """Return a recorded frame of the CLI with the ids of this host's requests."""
        if frame.get("type") == "control_response" and _response_id(frame) in self._ids:
            return {**frame, "response": {**frame["response"], "request_id": self._ids[_response_id(frame)]}}
        return frame


def side_by_side(expected: Any, actual: Any) -> str:
    """Show two JSON values in two columns, from just above the first row that differs."""
    left, right = (_rows(value) for value in (expected, actual))
    rows = list(zip_longest(left, right, fillvalue=""))
    first = next((at for at, (one, other) in enumerate(rows) if one != other), 0)
    start = max(0, first - _BEFORE)
    table = [f"  {'recorded':<{_WIDTH}} | now"]
    for one, other in rows[start : start + _ROWS]:
        table.append(f"{' ' if one == other else '!'} {one[:_WIDTH]:<{_WIDTH}} | {other[:_WIDTH]}".rstrip())
    if len(rows) > start + _ROWS:
        table.append("  ...")
    return "\n".join(table)


def _rows(value: Any) -> list[str]:
    if value is None:
        return ["(nothing)"]
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
    # A long text is wrapped, so that the place where it differs is shown.
    return [row[at : at + _WIDTH] for row in text.splitlines() for at in range(0, len(row), _WIDTH)]


def _tools_by_name(response: Frame) -> Any:
    body = response.get("response")
    message = body.get("mcp_response") if isinstance(body, dict) else None
    result = message.get("result") if isinstance(message, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return response
    return {"tools": [tool.get("name") for tool in tools if isinstance(tool, dict)]}


def _type(entry: Entry) -> Any:
    return entry.frame.get("type")


def _match_key(frame: Frame) -> tuple[Any, Any]:
    """Return the key by which host frames are matched: the type, and what distinguishes frames of that type."""
    kind = frame.get("type")
    if kind == "control_request":
        return kind, (frame.get("request") or {}).get("subtype")
    return kind, _response_id(frame) if kind == "control_response" else None


def _response_id(frame: Frame) -> Any:
    return (frame.get("response") or {}).get("request_id")


def _title(frame: Frame) -> str:
    kind, what = _match_key(frame)
    return (
        f"{kind} {what}" if what else f"{kind} {frame['subtype']}" if "subtype" in frame else f"{kind} frame"
    )
