"""`Recorder` writes every frame between host and real CLI to a readable file without secrets; `Replay` plays it.

Owns the format of a recording, the comparison of host frames, and the selection of environment values to scrub.
`_support.scrubber` knows the encodings in which a secret may appear, and `_support.secrets` the names that mark a
value as secret. One JSON object per line:

    {"toolwire_recording": 1, "version": "0.1.0", "argv": [...]}   a connection begins; "connection": 2 and so on
    {"t": 0.012, "dir": ">", "frame": {...}}                       the host wrote a frame
    {"t": 0.815, "dir": "<", "frame": {...}}                       the CLI wrote one
    {"t": 2.110, "input": "ended"}                                 the host ended the input
    {"t": 2.110, "host": "closed"}                                 the host closed the connection
    {"t": 2.250, "exit": 0}                                        the CLI has exited

`t` is in seconds since the start. Lines of a second or later connection have its number in "connection". Readers
skip lines of other kinds, so that the format can grow.

A replay plays the CLI's frames in the recorded order. Each frame is played once the host has sent all frames that
it had sent before that frame in the recording; the order among those host frames may differ. Compared are
- prompts, in order, by their content;
- responses to the CLI's control requests, matched by request id, completely; except that only the names in a list
  of tools are compared, and only the subtype of the response to MCP's `initialize` (its content has versions);
- control requests, in order for each subtype, completely; except that `mcp_message` may come in any order, and that
  `initialize` only has to be sent (its content depends on the options and the version of this library);
- any other frame completely, except for its ids.

Uuids, session ids, request ids, times, the command line, and any text in place of a scrubbed secret are ignored.
Responses to cancelled requests are optional. After the host has closed the connection, nothing more is expected of
it, and it need not have read the frames after the CLI's last result.
"""

import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import anyio
import anyio.lowlevel

from toolwire._conversation.process_transport import ProcessTransport
from toolwire._protocol.lines import decode
from toolwire._support.files import open_for_lines, write_line
from toolwire._support.scrubber import Scrubber
from toolwire._support.secrets import SHORTEST, is_secret_name, is_secret_place, secret_values
from toolwire._support.waiting import Signal
from toolwire._transport.custom import Transport
from toolwire._transport.process import Command
from toolwire._version import __version__
from toolwire.errors import ProcessError

FORMAT: Final = 1


class Recorder:
    """Records each connection made with it: `ClaudeAgentOptions(spawn_claude_code_process=Recorder("run.jsonl"))`.

    The first connection replaces the file, which only this user can read; later ones append to it.

    Secrets are replaced by `<scrubbed>`: the values of environment variables with names like API_KEY, of the CLI
    and of this process, and those passed as `secrets`, also JSON-escaped, URL-encoded, in hex and in base64. Values
    of fewer than 6 characters, other secrets, and secrets that are split over several frames (partial messages) are
    *not* replaced: check a recording before you share it.

    The CLI's stderr is not recorded and not passed to `ClaudeAgentOptions.stderr`; it goes to the log.
    """

    starts_here = True
    """The CLI runs on this machine and can read its files."""

    def __init__(self, path: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> None:
        self.path = os.fspath(path)
        self._secrets = tuple(secrets)
        self._connections = count(1)

    def __call__(self, command: Command) -> Transport:
        """Make a connection, for `spawn_claude_code_process`. `connect()` starts the CLI."""
        return _RecordedProcess(command, self.path, next(self._connections), self._secrets)


@dataclass(frozen=True)
class Entry:
    """One line of a recording."""

    line: int
    t: float
    kind: str  # ">", "<", "input", "host" or "exit"
    frame: dict[str, Any]
    exit: int | None = None


def load(path: str | os.PathLike[str]) -> list[list[Entry]]:
    """Return the entries of each connection of a recording. Lines of unknown kinds are skipped."""
    connections: dict[int, list[Entry]] = {}
    for number, text in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number}: not a JSON object")  # noqa: TRY004 - the file is invalid
        key = line.get("connection", 1)
        if "toolwire_recording" in line:
            if line["toolwire_recording"] > FORMAT:
                raise ValueError(
                    f"{path}, line {number}: recorded by a newer toolwire ({line.get('version')}); "
                    "update toolwire to replay it"
                )
            connections[key] = []
        elif key not in connections:
            raise ValueError(
                f"{path}, line {number}: not a recording; the first line of one has the key toolwire_recording"
            )
        elif (entry := _parse_entry(number, line)) is not None:
            connections[key].append(entry)
    if not connections:
        raise ValueError(f"{path}: the recording is empty; record it again")
    return list(connections.values())


def _parse_entry(number: int, line: dict[str, Any]) -> Entry | None:
    t = float(line.get("t", 0.0))
    if isinstance(line.get("frame"), dict) and line.get("dir") in {"<", ">"}:
        return Entry(number, t, line["dir"], line["frame"])
    if "exit" in line:
        return Entry(number, t, "exit", {}, line["exit"])
    for kind, value in (("input", "ended"), ("host", "closed")):
        if line.get(kind) == value:
            return Entry(number, t, kind, {})
    return None


class _RecordedProcess(ProcessTransport):
    def __init__(self, command: Command, path: str, connection: int, secrets: Iterable[str]) -> None:
        super().__init__(lambda: command)
        self._command = command
        self._path = path
        self._connection = connection
        self._scrubber = RecordingScrubber([*secrets, *secrets_of(command.env, os.environ)])
        self._file: int | None = None
        self._start = 0.0

    async def connect(self) -> None:
        self._file = open_for_lines(self._path, truncate=self._connection == 1)
        if os.name != "nt":
            os.fchmod(self._file, 0o600)  # an existing file may have been readable by others
        self._start = time.monotonic()
        argv = [self._scrubber.argument(each) for each in self._command.argv]
        self._write({"toolwire_recording": FORMAT, "version": __version__, "argv": argv})
        try:
            await super().connect()
        except BaseException:
            self._close_file()
            raise

    async def write(self, data: str) -> None:
        self._write_event(dir=">", frame=decode(data.encode()))
        await super().write(data)

    async def end_input(self) -> None:
        self._write_event(input="ended")
        await super().end_input()

    async def close(self) -> None:
        self._write_event(host="closed")
        try:
            await super().close()
        finally:
            self._close_file()

    def frame_received(self, frame: dict[str, Any]) -> None:
        self._write_event(dir="<", frame=frame)
        super().frame_received(frame)

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        super().ended(exit_code, error)
        self._write_event(exit=exit_code)
        self._close_file()

    def _write_event(self, **event: Any) -> None:
        self._write({"t": round(time.monotonic() - self._start, 4), **self._scrubber.value(event)})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:  # the process has already exited
            return
        if self._connection > 1:
            line["connection"] = self._connection
        try:
            data = json.dumps(line, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half a surrogate pair
            data = json.dumps(line).encode()
        write_line(self._file, data)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_IDS: Final = ("uuid", "session_id", "request_id", "timestamp")
_WIDTH: Final = 52  # of a column
_ROWS: Final = 24
_BEFORE: Final = 3  # rows shown above the first that differs

Frame = dict[str, Any]


class ReplayMismatch(AssertionError):  # noqa: N818 - reads better in tests
    """The host behaved differently from the recording. `line` is the line number in the file, from 1."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class Replay:
    """Plays a recording: `ClaudeAgentOptions(spawn_claude_code_process=Replay("run.jsonl"))`.

    `speed` None plays without pauses, 1.0 with the recorded pauses, 2.0 with pauses half as long. It is a mismatch
    if a host frame does not arrive within `timeout` seconds plus the time that it took in the recording. Each
    connection plays from the beginning; if several were recorded, the n-th connection plays the n-th.
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
                f"{self.path}: the recording was not used; pass it as spawn_claude_code_process"
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
        self._entries = entries[: closed + 1]  # nothing is expected after the host has closed
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
        self._ids: dict[str, str] = {}  # recorded request id -> request id of this host
        self._played = 0
        self._input_ended = self._closed = False
        self._changed = Signal()

    def describe_rest(self) -> Iterable[str]:
        """Yield a text for each frame that was not sent or not played."""
        for entry in self._expected:
            yield f"line {entry.line}: the host never sent {_title(entry.frame)}"
        # The host may or may not have read the frames after the last result.
        ends = (at for at, e in enumerate(self._entries, 1) if e.kind == ">" or _type(e) == "result")
        for entry in self._entries[self._played : max(ends, default=0)]:
            if entry.kind == "<":
                yield f"line {entry.line}: {_title(entry.frame)} was not played"

    async def connect(self) -> None:
        """Do nothing: there is no process to start."""

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
                f"expected {what}, which did not happen within {self._timeout + gap:.3g} s",
                entry.frame,
            )

    def _find(self, frame: Frame) -> Entry:
        """Return the recorded frame for a host frame. Raises `ReplayMismatch` if there is none or it differs."""
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
        """Return the part of a host frame that must equal the recording."""
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
        """Return a recorded frame of the CLI, with the request ids of this host."""
        if frame.get("type") == "control_response" and _response_id(frame) in self._ids:
            return {**frame, "response": {**frame["response"], "request_id": self._ids[_response_id(frame)]}}
        return frame


def side_by_side(expected: Any, actual: Any) -> str:
    """Format two JSON values in two columns, starting just above the first row that differs."""
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
    # Long lines are wrapped, so that the difference is visible.
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


SCRUBBED: Final = "<scrubbed>"


class RecordingScrubber(Scrubber):
    """Replaces secrets by `<scrubbed>`, in texts and anywhere in JSON values, keys included.

    Values of fewer than 6 characters are *not* scrubbed: a variable such as `MY_KEY=1` would make every number 1
    disappear. In mappings named `env` or `headers`, every value whose name looks like that of a secret is replaced,
    even if the value itself is not known as a secret.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__([each for each in secrets if len(each.strip()) >= SHORTEST], masks=[SCRUBBED])

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets. A number that contains a secret becomes the text `<scrubbed>`."""
        return self.data(_scrub_by_name(value))

    def argument(self, argument: str) -> str:
        """Return a command-line argument without secrets. The argument may be JSON."""
        if argument.startswith("{"):
            try:
                return json.dumps(self.value(json.loads(argument)), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        return self.text(argument)


def _scrub_by_name(value: Any, name: str = "") -> Any:
    """Replace the values of headers and variables whose names look like that of a secret."""
    if isinstance(value, dict):
        place = is_secret_place(name)
        return {
            key: SCRUBBED if place and is_secret_name(str(key)) else _scrub_by_name(each, str(key))
            for key, each in value.items()
        }
    return [_scrub_by_name(each) for each in value] if isinstance(value, list | tuple) else value


def secrets_of(*environments: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables with names like API_KEY and the secrets in URLs, unchanged and URL-decoded."""
    for environment in environments:
        for value in secret_values({"env": environment}):
            yield value
            if (decoded := unquote(value)) != value:
                yield decoded


def same(expected: Any, actual: Any) -> bool:
    """Compare two values; a scrubbed secret equals anything."""
    match expected:
        case str() if SCRUBBED in expected:
            pattern = ".*".join(map(re.escape, expected.split(SCRUBBED)))
            return expected == SCRUBBED or (
                isinstance(actual, str) and bool(re.fullmatch(pattern, actual, re.DOTALL))
            )
        case dict():
            if not isinstance(actual, dict) or len(expected) != len(actual):
                return False
            if any(SCRUBBED in key for key in expected):
                pairs = zip(expected.items(), actual.items(), strict=True)
                return all(same(key, k) and same(value, v) for (key, value), (k, v) in pairs)
            return all(key in actual and same(value, actual[key]) for key, value in expected.items())
        case list():
            return (
                isinstance(actual, list) and len(expected) == len(actual) and all(map(same, expected, actual))
            )
    return bool(expected == actual)
