"""Makes the paid calls of one catalogue: queue, rate, circuit breaker, cached results.

Owns the wait in our own queue, which has a limit of its own and ends "not sent": nothing is reserved while a call
waits, and the API's time begins when its order goes out. One call is in `purchase`.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import Answer, is_success
from toolwire.catalog.http.api import Api
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.types import Busy, Limits, Stopped
from toolwire.catalog.money import dollars
from toolwire.catalog.observe import Observer
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.purchase.limits import Breaker, RateLimit, ResultCache
from toolwire.catalog.purchase.purchase import FAILED, Purchase
from toolwire.catalog.tools.definitions import Definition
from toolwire.errors import CatalogError
from toolwire.tools.context import Context
from toolwire.tools.results.result import error_result

logger = logger_for("catalog")

MAX_IN_FLIGHT: Final = 32
"""Calls of one catalogue that may be out at once. An API that charges more than it said can do so for these."""
QUEUE_TIMEOUT: Final = 60.0
"""Seconds that a call may wait for its turn."""
_KEPT: Final = "This is the result of an earlier call: nothing was bought this time."
_ROUNDING: Final = 10_000  # a cent: balances are often told in cents
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


@dataclass
class Buyer:
    """Buys for one catalogue. `identity` stands for the payer: results are never shared between two.

    `entry_id` makes of an entry's id the one of the ledger, by which `limits` has single tools too.
    """

    api: Api
    profile: Profile
    ledger: AsyncLedger
    limits: Limits
    entry_id: Callable[[str], str]
    session: str
    identity: str
    scrubber: Scrubber
    observer: Observer
    breaker: Breaker
    workers: Workers
    default_price: int | None = None
    """The price that a call without a known price counts as."""
    rate: RateLimit | None = None
    cache: ResultCache | None = None
    cached_for: Mapping[str, float] = field(default_factory=dict)
    """Tool -> seconds for which its result may be given again."""
    max_in_flight: int = MAX_IN_FLIGHT
    queue_timeout: float = QUEUE_TIMEOUT

    def __post_init__(self) -> None:
        self.balances = Balances()
        self._places = anyio.CapacityLimiter(self.max_in_flight)
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._certain: set[tuple[str, str]] = set()  # what the ledger lets run beside others
        self.unbooked: dict[str, str] = {}
        """Entries that must stop, and why, where the ledger could not book it."""
        self._warned: set[str] = set()

    async def call(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any]
    ) -> dict[str, Any]:
        """Make a call and return its MCP result. Failures are results too; only a cancellation gets out."""
        with self.observer.call(definition.name) as record:
            try:
                return await self._cached(Purchase(self, definition, arguments, context, record))
            except CatalogError as error:
                record.outcome = record.outcome or "refused"
                return error_result(self.scrubber.text(FAILED + str(error)))

    async def _cached(self, purchase: Purchase) -> dict[str, Any]:
        """Return a cached result if that is allowed, else buy it."""
        name = purchase.definition.name
        if self.cache is None or name not in self.cached_for:
            return await self._buy(purchase)
        key = ResultCache.key(self.identity, purchase.definition.id, purchase.arguments)
        kept = self.cache.get(key)
        if kept is not None:
            purchase.record.outcome = "cached"
            return _mark_as_kept(kept)
        result = await self._buy(purchase)
        if not result.get("isError"):
            self.cache.put(key, result, self.cached_for[name])
        return result

    async def _buy(self, purchase: Purchase) -> dict[str, Any]:
        """Wait for a turn and a place, then buy; once more if another call of uncertain cost was in the way."""
        ends, pause, paced = anyio.current_time() + self.queue_timeout, _FIRST_PAUSE, False
        while True:
            try:
                async with self._turn(purchase, ends), self._place(ends):
                    if not paced:
                        await self._wait_for_rate(ends)
                        paced = True
                    return await self._admit(purchase)
            except Busy as busy:
                self._certain.discard(purchase.price_key)
                if not busy.retryable or anyio.current_time() + pause > ends:
                    raise
            await anyio.sleep(pause)  # it is another process's call: nobody tells us when it is over
            pause = min(2 * pause, _LONGEST_PAUSE)

    @asynccontextmanager
    async def _turn(self, purchase: Purchase, ends: float) -> AsyncIterator[None]:
        """Let calls whose cost is not certain go out one at a time; the ledger says which these are.

        It would refuse a second one: to wait here saves connecting in vain.
        """
        lock = None if self._is_certain(purchase) else self._lock_for(purchase)
        if lock is not None:
            why = "calls whose cost is not certain yet go out one at a time, and others took"
            await self._wait(lock.acquire, ends, why)
            if self._is_certain(purchase):  # an earlier one has shown it
                lock.release()
                lock = None
        if lock is None:
            yield
            return

        def on_certain() -> None:
            self._certain.add(purchase.price_key)
            release()

        def release() -> None:
            nonlocal lock
            if lock is not None:
                lock.release()
                lock = None

        purchase.on_certain = on_certain
        try:
            yield
        finally:
            release()

    def _is_certain(self, purchase: Purchase) -> bool:
        """True if the call may run beside others, as far as is known here. The ledger has the last word."""
        unlimited = purchase.price is not None and not self.limits.any_for(purchase.entry)
        return unlimited or purchase.price_key in self._certain

    def _lock_for(self, purchase: Purchase) -> anyio.Lock:
        limits = self.limits
        shared = any(each is not None for each in (limits.per_session, limits.per_day, limits.total))
        return self._locks["" if shared else purchase.entry]

    @asynccontextmanager
    async def _place(self, ends: float) -> AsyncIterator[None]:
        """Hold one of the places for calls that are out."""
        place = object()
        why = f"{self.max_in_flight} calls of this catalogue were out (max_in_flight) for"
        await self._wait(partial(self._places.acquire_on_behalf_of, place), ends, why)
        try:
            yield
        finally:
            self._places.release_on_behalf_of(place)

    async def _wait(self, acquire: Callable[[], Awaitable[None]], ends: float, why: str) -> None:
        try:
            with anyio.fail_after(max(0.0, ends - anyio.current_time())):
                await acquire()
        except TimeoutError:
            raise CatalogError(
                f"{why} {self.queue_timeout:g} s (queue_timeout): nothing was sent or bought"
            ) from None

    async def _wait_for_rate(self, ends: float) -> None:
        """Keep to the rate limit. The last wait of all: calls that queued together must not go out together."""
        if self.rate is not None and not await self.rate.wait(at_most=ends - anyio.current_time()):
            raise CatalogError(
                f"the rate limit has no place within {self.queue_timeout:g} s: nothing was sent or bought"
            )

    async def _admit(self, purchase: Purchase) -> dict[str, Any]:
        """Pass the circuit breaker, and report to it if the API answered."""
        ticket = self.breaker.admit()
        if ticket is None:
            raise CatalogError(
                f"the API keeps failing, so nothing was sent; it is tried again in {self.breaker.retry_in:.0f} s"
            )
        reported = False
        try:
            answer = await purchase.send()
            if purchase.tried:
                (self.breaker.succeeded if _is_well(answer) else self.breaker.failed)(ticket)
                reported = True
        finally:
            if not reported:
                self.breaker.abandoned(ticket)
        return await purchase.close(answer)

    def check_unbooked(self, entry: str, name: str) -> None:
        """Raise if an entry must stop, and the ledger could not book that."""
        if entry in self.unbooked:
            raise Stopped(
                f"{name} is stopped ({self.unbooked[entry]}), and the ledger could not book that: nothing was sent."
                " Check toolwire catalog spend, then start this process again"
            )

    def warn_unpriced(self, definition: Definition) -> None:
        """Log once that a tool has no known price."""
        if definition.id not in self._warned:
            self._warned.add(definition.id)
            limited = self.limits.any_for(self.entry_id(definition.id))
            logger.warning(
                "%s has no known price, so its calls are not counted%s. "
                "Set one: toolwire catalog accept %s --price 0.01",
                definition.name,
                ", and under a limit it is not bought again" if limited else "",
                definition.name,
            )


def _is_well(answer: Answer) -> bool:
    """True if the API itself answered, with something that can be read."""
    if answer.status is None or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return False
    return not (answer.state == "unknown" and is_success(answer.status))


class Balances:
    """Compares the balances in replies with the costs in them.

    Two balances can be compared if no other call of ours was out between them. Others may spend from the same
    account, so a contradiction is told, and stops nothing.
    """

    def __init__(self) -> None:
        self._out = 0
        self._started = 0
        self._last: tuple[int, int] | None = None  # the balance, and how many calls had started by then

    def start(self) -> int:
        """Count a call that is being sent. Returns its number."""
        self._out += 1
        self._started += 1
        return self._started

    def end(self) -> None:
        """Count a call that has ended."""
        self._out -= 1

    def compare(self, number: int, balance: int, cost: int) -> str | None:
        """Describe a balance that fell by more than the call cost; None if it did not."""
        alone = self._out == 1 and self._started == number
        last, self._last = self._last, (balance, number) if alone else None
        if last is None or not alone or last[1] != number - 1:
            return None
        fell = last[0] - balance
        if fell <= cost + _ROUNDING:
            return None
        return f"the balance fell by {dollars(fell)}, and the reply says that the call cost {dollars(cost)}"


def _mark_as_kept(kept: dict[str, Any]) -> dict[str, Any]:
    """Add to a result that it was paid for before."""
    again = {**kept, "content": [*kept["content"], {"type": "text", "text": _KEPT}]}
    if "cost" in (structured := kept.get("structuredContent") or {}):
        again["structuredContent"] = {**structured, "cost": 0.0}
    return again
