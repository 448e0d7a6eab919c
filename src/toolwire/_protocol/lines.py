"""Converts bytes to JSON objects and back: one object per line.

Owns the framing. No line is ever fatal: one that is not a JSON object is skipped, counted and logged; one over the
limit is dropped, and a `line_dropped` frame takes its place so that the conversation shows it. Must not know what
the objects mean.
"""

import json
from typing import Any, Final

import orjson

from toolwire._protocol.json_codec import LONG_INTEGER, SHAPES, loads
from toolwire._support.log import logger_for

logger = logger_for("wire")

DEFAULT_LIMIT: Final = 256 * 1024 * 1024
_SHOWN: Final = 200
_CALL: Final = b'"tools/call"'
_MIRROR: Final = b'{"type":"transcript_mirror"'


def encode(frame: dict[str, Any]) -> bytes:
    """Encode one frame as a line. Raises TypeError if it contains a value that JSON cannot represent."""
    try:
        return orjson.dumps(frame, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as reason:
        return _encode_slowly(frame, reason)


def _encode_slowly(frame: dict[str, Any], reason: TypeError) -> bytes:
    """Encode values that orjson rejects and JSON allows: lone surrogates, integers over 64 bits, numeric keys.

    Rejects NaN, because the CLI exits on a line that is not JSON.
    """
    try:
        return json.dumps(frame, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"cannot be written as JSON: {error}") from reason


def decode(line: bytes) -> Any:
    """Decode the value on a line. Raises ValueError if it is not JSON in UTF-8.

    Numbers are exact where they reach a tool or a session store. Elsewhere integers over 64 bits may become floats,
    which is faster.
    """
    if (_CALL in line or line.startswith(_MIRROR)) and LONG_INTEGER in line.translate(
        SHAPES
    ):  # as in `loads`
        return loads(line, lone_surrogates=True)
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # JavaScript writes half of a cut emoji as a lone surrogate escape, which orjson refuses.
        return loads(line, lone_surrogates=True)


class Lines:
    """Splits chunks of bytes, cut anywhere, into frames. Takes time linear in the number of bytes."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.skipped = 0
        """Lines that were not JSON objects."""
        self._parts: list[bytes] = []
        self._held = 0
        self._overflow = 0  # bytes of the line that is being dropped, 0 if none is

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the frames that this chunk completes."""
        if b"\n" not in chunk:
            self._hold(chunk)
            return []
        *whole, tail = chunk.split(b"\n")
        frames: list[dict[str, Any]] = []
        lines = iter(whole)
        if self._held:
            self._hold(next(lines))
            self._complete(self._take(), frames)
        if len(chunk) > self.limit or _CALL in chunk:
            for line in lines:
                self._complete(line, frames)
        else:
            for line in lines:  # most lines are valid, so decode them here and save a call for each
                try:
                    value = orjson.loads(line)
                except orjson.JSONDecodeError:
                    self._complete(line, frames)
                else:
                    if isinstance(value, dict):
                        frames.append(value)
                    else:
                        self._complete(line, frames)
        if tail:
            self._hold(tail)
        return frames

    def finish(self) -> list[dict[str, Any]]:
        """Return the frame that is left at the end of the stream, where the last line may lack its newline."""
        frames: list[dict[str, Any]] = []
        self._complete(self._take(), frames)
        return frames

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self.limit:
            self._overflow = self._held
            self._parts.clear()
        else:
            self._parts.append(part)

    def _take(self) -> bytes:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        return line

    def _complete(self, line: bytes, frames: list[dict[str, Any]]) -> None:
        dropped, self._overflow = self._overflow or (len(line) if len(line) > self.limit else 0), 0
        if dropped:
            logger.error(
                "dropped a line of %d bytes from the CLI: the limit (max_buffer_size) is %d",
                dropped,
                self.limit,
            )
            frames.append(
                {"type": "system", "subtype": "line_dropped", "bytes": dropped, "limit": self.limit}
            )
            return
        if not line or line.isspace():
            return
        try:
            value = decode(line)
        except ValueError as error:
            self._skip(line, str(error))
            return
        if isinstance(value, dict):
            frames.append(value)
        else:
            self._skip(line, f"a JSON {type(value).__name__}, not an object")

    def _skip(self, line: bytes, why: str) -> None:
        self.skipped += 1
        shown = line[:_SHOWN].decode(errors="replace")
        logger.warning("skipped a line from the CLI that is not a JSON object (%s): %s", why, shown)
