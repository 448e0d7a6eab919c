"""Limits of the resources that one client may use: sizes, times, connections, and the JSON of a message.

Connections are limited in `connections`, bodies in `http`. JSON is checked here, before it is decoded: a decoder
makes an object of every value, so that 60 MB of `[[],[],...]` became 8.8 GB; the time to write an integer grows
with the square of its digits; and integers over 64 bits can be chosen so that a set of them takes minutes to build.
The check counts characters. For most messages it is enough to count the brackets and to search for long runs of
digits; only for the others strings are removed first. Each step is one short call into C, so that other threads can
run in between.
"""

import math
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Final

from toolwire._protocol.json_codec import SHAPES
from toolwire._support.log import logger_for
from toolwire.errors import UsageError

logger = logger_for("serving")

_NO_BRACKETS: Final = bytes(each for each in range(256) if each not in b"[]{}")
_LONG: Final = b":" + b"0" * 21  # an integer over 64 bits, in JSON that is translated by SHAPES
_NESTING: Final = [0] * 256
_NESTING[ord("[")] = _NESTING[ord("{")] = 1
_NESTING[ord("]")] = _NESTING[ord("}")] = -1
_CHUNK: Final = 1 << 15  # bytes checked at a time
_ID: Final = rb'"id"\s*:\s*(\d{1,15}|"[^"\\\x00-\x1f\x80-\xff]{1,100}")(?=\s*[,}])'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_EDGE: Final = 300  # bytes at either end of a message in which its id is searched for

_MOST_CONNECTIONS: Final = 10_000  # by default, because each one also costs memory
_RESERVE: Final = 64  # descriptors for everything else: files, pipes, and what tools open
_ENOUGH_DESCRIPTORS: Final = 65_536  # with more, programs that loop over all possible descriptors get slow


@dataclass(frozen=True)
class JsonLimits:
    """Limits of the size of a JSON message, checked before it is decoded."""

    max_depth: int = 100
    max_values: int = 100_000
    max_digits: int = 1_000
    """Of one number."""
    max_long: int = 1_000
    """Integers of more than 20 digits, which is more than 64 bits hold."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of a server over HTTP. Times are in seconds."""

    max_body: int = 4 << 20
    """Bytes in the body of a request. More is refused with 413."""
    max_depth: int = 100
    """Levels of nested objects and lists in a request."""
    max_values: int = 100_000
    """Values in a request, including those inside lists and objects."""
    max_connections: int | None = None
    """Open connections. None: three quarters of the descriptors that the process may have, at most 10,000."""
    max_per_address: int | None = None
    """Open connections of one client address. None: no limit, since behind a proxy all clients share one."""
    header_timeout: float = 10.0
    """From a new connection to its first byte, and from the first byte of a request to the end of its header."""
    body_timeout: float = 60.0
    """From the end of the header to the end of the body."""
    idle_timeout: float = 75.0
    """How long a connection that has sent an authorised request is kept open for the next one."""
    write_timeout: float = 30.0
    """How long a client may take to read the next 64 KiB of a response."""
    max_sessions: int = 1_000
    """Sessions of clients up to MCP 2025-11-25. When there are more, the one that was idle longest is ended: the
    next request of its client gets a 404, as MCP specifies, and the client opens another."""
    session_timeout: float = 1_800.0
    """How long an unused session is kept."""

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is not a limit."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{each.name} must be a number greater than 0, got {value!r}")

    @property
    def json(self) -> JsonLimits:
        """The limits of the JSON of a request."""
        return JsonLimits(self.max_depth, self.max_values)


def connection_limit(limits: HttpLimits) -> int:
    """Return how many connections this process can hold, with descriptors to spare for its tools."""
    allowed = _descriptors()
    room = _MOST_CONNECTIONS if allowed is None else max(1, allowed - max(_RESERVE, allowed // 4))
    if limits.max_connections is None:
        return min(room, _MOST_CONNECTIONS)
    if allowed is not None and limits.max_connections > room:
        logger.warning(
            "max_connections is %d, but this process can have only %d file descriptors (ulimit -n): "
            "at most %d connections are accepted",
            limits.max_connections,
            allowed,
            room,
        )
        return room
    return limits.max_connections


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of descriptors to its hard limit (at most 65,536)."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then the soft limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _descriptors() -> int | None:
    """Return how many descriptors this process may have. None if there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def describe_excess(body: bytes, limits: JsonLimits) -> str | None:
    """Return a description of the limit that a JSON text exceeds; None if it exceeds none, or is not JSON."""
    if is_clearly_within(body, limits):
        return None
    # In valid JSON, backslashes occur only in strings, and a pair of them is an escaped backslash.
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    values = level = in_string = long = 0
    end = b":"  # the end of the previous chunk
    for start in range(0, len(text), _CHUNK):
        pieces = text[start : start + _CHUNK].split(b'"')
        structure = b"".join(pieces[in_string::2])
        in_string = (in_string + len(pieces) - 1) % 2
        values += _count_values(structure)
        if values > limits.max_values:
            return f"it has more than {limits.max_values} values"
        brackets = structure.translate(None, _NO_BRACKETS)
        levels = list(accumulate(map(_NESTING.__getitem__, brackets), initial=level))
        if max(levels) > limits.max_depth:
            return f"its lists and objects are nested more than {limits.max_depth} deep"
        level = levels[-1]
        shapes = end + structure.translate(SHAPES)
        if b"0" * (limits.max_digits + 1) in shapes:
            return f"it has a number of more than {limits.max_digits} digits"
        long += shapes.count(_LONG) - end.count(_LONG)
        if long > limits.max_long:
            return f"it has more than {limits.max_long} integers of more than 20 digits"
        end = shapes[-limits.max_digits :]
    return None


def is_clearly_within(body: bytes, limits: JsonLimits) -> bool:
    """Return True if a text has so few brackets, commas and digits that it must be within the limits."""
    opened = body.count(b"[") + body.count(b"{")
    if opened > limits.max_depth or opened + body.count(b",") >= limits.max_values:
        return False
    if len(body) <= min(limits.max_digits, limits.max_long):
        return True
    shapes = body.translate(SHAPES)
    return b"0" * (limits.max_digits + 1) not in shapes and shapes.count(_LONG) < limits.max_long


def _count_values(structure: bytes) -> int:
    """Count the values: one more in each list and object than it has commas. The count may be a little too high."""
    return structure.count(b",") + structure.count(b"[") + structure.count(b"{")


def find_id(body: bytes) -> Any:
    """Return the id of a request without decoding it, if the id is its first or last member; else None."""
    found = _ID_FIRST.match(body[:_EDGE]) or _ID_LAST.search(body[-_EDGE:])
    if found is None:
        return None
    text = found[1].decode("ascii")
    return text[1:-1] if text.startswith('"') else int(text)
