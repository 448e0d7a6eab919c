"""A rate limit, a circuit breaker and a cache of results.

The decisions are plain functions of the time, which is passed in as a clock, so that no test has to wait. Only
`wait` of a rate limit sleeps. This module knows nothing of HTTP, of tools or of money.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import anyio

from toolwire._protocol.json_codec import dumps, loads

Clock = Callable[[], float]


class Places(Protocol):
    """Gives out places under a rate limit to all who share it, as `Ledger.take_turn` and `return_turn` do."""

    def take(self, interval: float, slack: float, at_most: float) -> Awaitable[float | None]:
        """Take the next place. Returns the seconds until then; None, with no place, if those are too many."""
        ...

    def give_back(self, interval: float) -> None:
        """Give a place back."""
        ...


class RateLimit:
    """At most `per_second` calls a second in the long run, and up to `burst` of them at once.

    Places are given out in the order of asking, as points in time (the leaky bucket as a meter, GCRA): nothing runs
    in the background, and callers that wait need no queue.
    """

    def __init__(self, per_second: float, burst: int = 1, *, clock: Clock = time.monotonic) -> None:
        self._interval, self._slack = _spacing(per_second, burst)
        self._clock = clock
        self._next = -math.inf  # when the bucket would be empty: the place after all that were given out

    def delay(self) -> float:
        """Return the seconds that a caller would have to wait now."""
        return max(0.0, self._next - self._slack - self._clock())

    def take(self) -> float:
        """Take a place, and return how many seconds are left until then."""
        delay = self.delay()
        self._next = max(self._next, self._clock()) + self._interval
        return delay

    async def wait(self, at_most: float = math.inf) -> bool:
        """Wait for a place. False, at once and with no place taken, if that would take longer than `at_most`."""
        if self.delay() > at_most:
            return False
        if delay := self.take():
            try:
                await anyio.sleep(delay)
            except BaseException:
                self._next -= self._interval  # cancelled: those who ask later may have the place
                raise
        return True


class SharedRateLimit:
    """A `RateLimit` that others keep to as well: the places are given out elsewhere."""

    def __init__(self, per_second: float, burst: int, places: Places) -> None:
        self._interval, self._slack = _spacing(per_second, burst)
        self._places = places

    async def wait(self, at_most: float = math.inf) -> bool:
        """Wait for a place. False, at once and with no place taken, if that would take longer than `at_most`."""
        delay = await self._places.take(self._interval, self._slack, max(0.0, at_most))
        if delay:
            try:
                await anyio.sleep(delay)
            except BaseException:
                self._places.give_back(self._interval)
                raise
        return delay is not None


def _spacing(per_second: float, burst: int) -> tuple[float, float]:
    """Return the seconds between two calls, and by how many a call may be early."""
    if not (math.isfinite(per_second) and per_second > 0):
        raise ValueError(f"per_second must be a number above 0, got {per_second!r}")
    if burst < 1:
        raise ValueError(f"burst must be 1 or more, got {burst!r}")
    return 1 / per_second, (burst - 1) / per_second


class Breaker:
    """Stops asking an API that keeps failing: closed, then open for a while, then one call as a probe.

        ticket = breaker.admit()          None: do not call; `retry_in` tells for how long
        breaker.succeeded(ticket)         or failed(ticket), or abandoned(ticket) when nothing was learnt

    A ticket from before the last change of state has no more say, so that late answers upset nothing.
    """

    def __init__(
        self, failures: int = 5, reset_after: float = 30.0, *, clock: Clock = time.monotonic
    ) -> None:
        if failures < 1:
            raise ValueError(f"failures must be 1 or more, got {failures!r}")
        if not (math.isfinite(reset_after) and reset_after > 0):
            raise ValueError(f"reset_after must be a number of seconds above 0, got {reset_after!r}")
        self._failures = failures
        self._reset_after = reset_after
        self._clock = clock
        self._count = 0  # failures in a row
        self._until: float | None = None  # when the next probe may go; None while closed
        self._probing = False
        self._ticket = 0

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """Closed lets calls through, open refuses them, half-open has one call under way that decides."""
        if self._until is None:
            return "closed"
        return "half-open" if self._probing else "open"

    @property
    def retry_in(self) -> float:
        """Seconds until a call may be tried again; 0 if now."""
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    def admit(self) -> int | None:
        """Return a ticket for a call, or None if it must not be made."""
        if self._until is None:
            return self._ticket
        if self.retry_in > 0:
            return None
        # A probe that never reports back does not lock the door: after the same time another one may go.
        self._until = self._clock() + self._reset_after
        self._probing = True
        self._ticket += 1
        return self._ticket

    def succeeded(self, ticket: int) -> None:
        """Report that the API answered, whatever the answer."""
        if ticket != self._ticket:
            return
        self._count = 0
        if self._until is not None:
            self._until, self._probing = None, False
            self._ticket += 1

    def failed(self, ticket: int) -> None:
        """Report that the API did not answer, or failed."""
        if ticket != self._ticket:
            return
        self._count += 1
        if self._probing or self._count >= self._failures:
            self._until, self._probing = self._clock() + self._reset_after, False
            self._ticket += 1

    def abandoned(self, ticket: int) -> None:
        """Report that the call was cancelled before an answer; after a probe the next may be made at once."""
        if ticket == self._ticket and self._probing:
            self._until, self._probing = self._clock(), False
            self._ticket += 1


class ResultCache:
    """Results that may be given again for a while. Bounded in number and in bytes; the oldest go first.

    Values are kept as JSON, so that nobody can change what the next one will get.
    """

    def __init__(
        self,
        ttl: float,
        max_entries: int = 1_000,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Clock = time.monotonic,
    ) -> None:
        if not ttl > 0:
            raise ValueError(f"ttl must be a number of seconds above 0, got {ttl!r}")
        if max_entries < 1 or max_bytes < 1:
            raise ValueError(
                f"max_entries and max_bytes must be 1 or more, got {max_entries!r} and {max_bytes!r}"
            )
        self._ttl = ttl
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._bytes = 0
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @staticmethod
    def key(identity: str, tool: str, arguments: Any) -> str:
        """Return a key that is the same for the same payer, tool and arguments."""
        told = dumps([identity, tool, arguments], sort_keys=True)
        return hashlib.sha256(told).hexdigest()

    def get(self, key: str) -> Any:
        """Return the value under a key if it is still fresh, else None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        until, encoded = kept
        if until <= self._clock():
            self._drop(key)
            return None
        return loads(encoded)

    def put(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Store a JSON value, for `ttl` seconds or as long as usual. One that is too big is not stored."""
        if key in self._kept:
            self._drop(key)
        encoded = dumps(value)
        if len(encoded) > self._max_bytes:
            return
        self._kept[key] = (self._clock() + (self._ttl if ttl is None else ttl), encoded)
        self._bytes += len(encoded)
        while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self, key: str) -> None:
        _, encoded = self._kept.pop(key)
        self._bytes -= len(encoded)
