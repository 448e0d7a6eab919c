"""A rate limit, a circuit breaker and a cache of results.

The decisions are plain functions of the time, which comes from a clock argument, so that no test has to wait. Only
`wait` of a rate limit sleeps. This module knows nothing about HTTP, tools or money; the ledger only keeps the slots
of a rate limit that several processes share.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import anyio

from toolwire._protocol.json_codec import dumps, loads
from toolwire.catalog.ledger.async_ledger import AsyncLedger

Clock = Callable[[], float]


class RateLimit:
    """At most `per_second` calls a second in the long run, and up to `burst` of them at once.

    Each caller gets a slot, which is a point in time, in the order of the requests (the leaky bucket as a meter,
    GCRA): nothing runs in the background, and waiting callers need no queue.
    """

    def __init__(self, per_second: float, burst: int = 1, *, clock: Clock = time.monotonic) -> None:
        self._interval, self._slack = _spacing(per_second, burst)
        self._clock = clock
        self._next = -math.inf  # when the bucket would be empty: the first slot that was not handed out yet

    def delay(self) -> float:
        """Return the seconds that a caller would have to wait now."""
        return max(0.0, self._next - self._slack - self._clock())

    def take(self) -> float:
        """Take a slot, and return the seconds until it."""
        delay = self.delay()
        self._next = max(self._next, self._clock()) + self._interval
        return delay

    async def wait(self, at_most: float = math.inf) -> bool:
        """Wait for a slot. False, at once and without taking one, if that would take longer than `at_most`."""
        if self.delay() > at_most:
            return False
        if delay := self.take():
            try:
                await anyio.sleep(delay)
            except BaseException:
                self._next -= self._interval  # cancelled: a later caller may have the slot
                raise
        return True


class SharedRateLimit:
    """A `RateLimit` that is shared, through the ledger, with all who use it with the same account."""

    def __init__(self, per_second: float, burst: int, ledger: AsyncLedger, account: str) -> None:
        self._interval, self._slack = _spacing(per_second, burst)
        self._books = ledger
        self._account = account

    async def wait(self, at_most: float = math.inf) -> bool:
        """Wait for a slot. False, at once and without taking one, if that would take longer than `at_most`."""
        ledger = self._books.ledger

        def undo(taken: float | None) -> None:
            if taken is not None:
                ledger.return_turn(self._account, self._interval)

        delay: float | None = await self._books.commit(
            ledger.take_turn, self._account, self._interval, self._slack, max(0.0, at_most), undo=undo
        )
        if delay:
            try:
                await anyio.sleep(delay)
            except BaseException:
                self._books.post(ledger.return_turn, self._account, self._interval)
                raise
        return delay is not None


def _spacing(per_second: float, burst: int) -> tuple[float, float]:
    """Return the seconds between two calls, and the seconds by which a call may be early."""
    if not (math.isfinite(per_second) and per_second > 0):
        raise ValueError(f"per_second must be a number above 0, got {per_second!r}")
    if burst < 1:
        raise ValueError(f"burst must be 1 or more, got {burst!r}")
    return 1 / per_second, (burst - 1) / per_second


class Breaker:
    """A circuit breaker for an API that keeps failing: closed, then open for a while, then one call as a probe.

        ticket = breaker.admit()          None: do not call; `retry_in` says for how long
        breaker.succeeded(ticket)         or failed(ticket), or abandoned(ticket) if the outcome is not known

    A ticket from before the last change of state is ignored, so that late results change nothing.
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
        self._until: float | None = None  # when the next probe is allowed; None while closed
        self._probing = False
        self._ticket = 0

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """Closed allows calls, open refuses them, half-open waits for one call that decides."""
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
        # A probe that never reports back does not block forever: after the same time another one is allowed.
        self._until = self._clock() + self._reset_after
        self._probing = True
        self._ticket += 1
        return self._ticket

    def succeeded(self, ticket: int) -> None:
        """Report that the API responded, whatever the response."""
        if ticket != self._ticket:
            return
        self._count = 0
        if self._until is not None:
            self._until, self._probing = None, False
            self._ticket += 1

    def failed(self, ticket: int) -> None:
        """Report that the API did not respond, or failed."""
        if ticket != self._ticket:
            return
        self._count += 1
        if self._probing or self._count >= self._failures:
            self._until, self._probing = self._clock() + self._reset_after, False
            self._ticket += 1

    def abandoned(self, ticket: int) -> None:
        """Report that the call was cancelled before a response. After a probe, the next one is allowed at once."""
        if ticket == self._ticket and self._probing:
            self._until, self._probing = self._clock(), False
            self._ticket += 1


class ResultCache:
    """Results that may be returned again for a while. Bounded in number and bytes; the oldest are dropped first.

    Values are stored as JSON, so that a caller cannot change what the next one gets.
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
        encoded = dumps([identity, tool, arguments], sort_keys=True)
        return hashlib.sha256(encoded).hexdigest()

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
        """Store a JSON value, for `ttl` seconds or the default. One that is too large is not stored."""
        if key in self._kept:
            self._drop(key)
        encoded = dumps(value)
        if len(encoded) > self._max_bytes:
            return
        self._kept[key] = (self._clock() + (self._ttl if ttl is None else ttl), encoded)
        self._bytes += len(encoded)
        while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        _, encoded = self._kept.pop(key)
        self._bytes -= len(encoded)
