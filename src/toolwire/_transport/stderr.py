"""The CLI's stderr: lines for the user's callback and the log, and its tail for error texts."""

from collections.abc import Callable
from typing import Final

from toolwire._support.log import logger_for, redact

logger = logger_for("session")
stderr_logger = logger_for("cli.stderr")

_TAIL: Final = 8_192  # bytes kept for an error message, and how much of them is shown
_TAIL_LINES: Final = 20
_TAIL_WIDTH: Final = 300


class Stderr:
    """Splits stderr into lines and keeps the last of it."""

    def __init__(self, callback: Callable[[str], None] | None) -> None:
        self._callback = callback
        self._tail = b""
        self._line = b""

    def feed(self, data: bytes) -> None:
        """Take bytes, cut anywhere."""
        self._tail = (self._tail + data)[-2 * _TAIL :]  # more than is shown: no secret may begin before it
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._line) > _TAIL:
            self.finish()

    def finish(self) -> None:
        """Take what is left as a line: the last one may lack its newline."""
        line, self._line = self._line, b""
        self._emit(line)

    def tail(self) -> str | None:
        """Return the last lines without secrets, long ones cut; None if there are none."""
        text = redact(self._tail.decode(errors="replace"))
        lines = text[-_TAIL:].strip().splitlines()[-_TAIL_LINES:]
        return (
            "\n".join(line if len(line) <= _TAIL_WIDTH else line[:_TAIL_WIDTH] + "…" for line in lines)
            or None
        )

    def _emit(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        stderr_logger.debug("%s", text)
        if self._callback is not None:
            try:
                self._callback(text)
            except Exception:  # the user's own code: it must not end the session
                logger.exception("the stderr callback failed")
