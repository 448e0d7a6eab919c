"""How much of a server one client may take: sizes, times and connections.

Here are the figures. They are kept to in `connections`, in `http` (bodies) and in `json_limits`.
"""

import math
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Final

from toolwire._support.log import logger_for
from toolwire.errors import UsageError

logger = logger_for("serving")

_MOST_CONNECTIONS: Final = 10_000  # unless the user says otherwise: each one costs memory too
_RESERVE: Final = 64  # descriptors for everything that is no connection: files, pipes, what tools open
_ENOUGH_DESCRIPTORS: Final = 65_536  # programs that tools start may walk through all that they could have


@dataclass(frozen=True)
class JsonLimits:
    """How large a JSON message may be before anybody decodes it."""

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
    """Levels of objects and lists inside one another in a request."""
    max_values: int = 100_000
    """Values in a request, those inside of lists and objects counted one by one."""
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
    """How long a client may take to read the next 64 KiB of its answer."""
    max_sessions: int = 1_000
    """Sessions of clients up to MCP 2025-11-25. When there are more, the one that was idle longest is ended: its
    client gets a 404 if it comes back, as MCP has it, and opens another."""
    session_timeout: float = 1_800.0
    """How long a session that nobody uses is kept."""

    def __post_init__(self) -> None:
        """UsageError for what is no limit."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{each.name} must be a number greater than 0, got {value!r}")

    @property
    def json(self) -> JsonLimits:
        """Those of a request's JSON."""
        return JsonLimits(self.max_depth, self.max_values)


def connection_limit(limits: HttpLimits) -> int:
    """How many connections this process can hold, with descriptors to spare for its tools."""
    allowed = _descriptors()
    room = _MOST_CONNECTIONS if allowed is None else max(1, allowed - max(_RESERVE, allowed // 4))
    if limits.max_connections is None:
        return min(room, _MOST_CONNECTIONS)
    if allowed is not None and limits.max_connections > room:
        logger.warning(
            "max_connections is %d, but this process may have only %d descriptors (ulimit -n): "
            "%d connections are allowed",
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
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then the soft limit has to do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _descriptors() -> int | None:
    """How many descriptors this process may have. None if there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
