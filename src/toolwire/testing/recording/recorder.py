"""`Recorder`: starts the real CLI and writes every frame, in both directions, to a readable file without secrets.

Owns the format of a recording, for writing and reading, and the transport to a process. One JSON object per line:

    {"toolwire_recording": 1, "version": "0.1.0", "argv": [...]}   a connection begins; "connection": 2 and so on
    {"t": 0.012, "dir": ">", "frame": {...}}                       the host wrote a frame
    {"t": 0.815, "dir": "<", "frame": {...}}                       the CLI wrote one
    {"t": 2.110, "input": "ended"}                                 the host ended the input
    {"t": 2.110, "host": "closed"}                                 the host closed the connection
    {"t": 2.250, "exit": 0}                                        the CLI has exited

`t` is in seconds since the start. Lines of a second or later connection have its number in "connection". Readers
skip lines of other kinds, so that the format can grow. Must not know how a recording is replayed.
"""

import json
import os
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from toolwire._protocol.lines import Lines, decode
from toolwire._support.files import open_for_lines, write_line
from toolwire._support.log import logger_for, redact
from toolwire._support.waiting import Mailbox
from toolwire._transport.custom import Transport
from toolwire._transport.find_cli import find_cli
from toolwire._transport.process import Command, process_pipe
from toolwire._version import __version__
from toolwire.errors import ProcessError
from toolwire.testing.recording.scrub import RecordingScrubber, secrets_of

FORMAT: Final = 1
_TAIL: Final = 8_192  # bytes of stderr kept for an error message

_stderr = logger_for("cli.stderr")


class Recorder:
    """Records each connection made with it: `ClaudeAgentOptions(spawn_claude_code_process=Recorder("run.jsonl"))`.

    The first connection replaces the file, which only this user can read; later ones append to it.

    Secrets are replaced by `<scrubbed>`: the values of environment variables with names like API_KEY, of the CLI
    and of this process, and those given as `secrets`, also JSON-escaped, in base64 and URL-encoded. Not replaced
    are values of fewer than 6 characters, any other secret, and one that is split over several frames (partial
    messages): check a recording before you share it.

    The CLI's stderr is not recorded and does not reach `ClaudeAgentOptions.stderr`; it goes to the log.
    """

    starts_here = True
    """The CLI runs on this machine and can read its files."""

    def __init__(self, path: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> None:
        self.path = os.fspath(path)
        self._secrets = tuple(secrets)
        self._connections = count(1)

    def __call__(self, command: Command) -> Transport:
        """Make a connection, for `spawn_claude_code_process`. The CLI starts when it is connected."""
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
    """Read a recording: the entries of each connection. Lines of unknown kinds are skipped."""
    connections: dict[int, list[Entry]] = {}
    for number, text in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number}: not a JSON object")  # noqa: TRY004 - the file's fault
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
                f"{path}, line {number}: not a recording, which has a toolwire_recording line before this"
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


class ProcessTransport(Transport):
    """A CLI process as a `Transport`, for wrappers that look at its frames."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines = Lines()
        self._frames: Mailbox[dict[str, Any]] = Mailbox()
        self._tail = b""
        self._exit: int | None = None
        self._ended = False

    async def connect(self) -> None:
        argv = list(self._command.argv)
        if argv[0] == "claude":  # the options name no CLI, and none was searched for yet
            argv[0] = find_cli(None)
        pipe = process_pipe(replace(self._command, argv=argv))
        await pipe.open(self)
        self._pipe = pipe

    async def write(self, data: str) -> None:
        self._pipe.write(data.encode())
        await self._pipe.drain()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for frame in self._frames:
            yield frame
        if self._exit not in (0, None):
            stderr = redact(self._tail.decode(errors="replace"))
            raise ProcessError("Claude Code failed", exit_code=self._exit, stderr=stderr)

    async def close(self) -> None:
        if hasattr(self, "_pipe"):
            await self._pipe.stop()

    def is_ready(self) -> bool:
        return hasattr(self, "_pipe") and not self._ended

    async def end_input(self) -> None:
        self._pipe.end_input()

    # --- called by the pipe ---

    def data_received(self, data: bytes) -> None:
        for frame in self._lines.feed(data):
            self.frame_received(frame)

    def frame_received(self, frame: dict[str, Any]) -> None:
        self._frames.put(frame)

    def stderr_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]
        for line in data.decode(errors="replace").splitlines():
            _stderr.debug("%s", line)

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:  # noqa: ARG002 - of other pipes
        for frame in self._lines.finish():
            self.frame_received(frame)
        self._exit, self._ended = exit_code, True
        self._frames.close()


class _RecordedProcess(ProcessTransport):
    def __init__(self, command: Command, path: str, connection: int, secrets: Iterable[str]) -> None:
        super().__init__(command)
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
        if self._file is None:  # the process had already exited
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
