"""Makes the paid calls of one catalogue, each from the model's arguments to the result for the model.

    wait for a turn (`Buyer`: queue, rate, circuit breaker, cached results) -> one `Purchase`:
    connect -> book (price, limits, stops: one transaction) -> send once -> settle | release | unknown -> result

Owns that order and nothing else: `http.api` decides what may be sent again, and the ledger what may be spent.
The arguments were checked before anything here runs. Whatever happens, a cancellation included, the outcome of
the call is booked in the ledger, and a call whose outcome is not certain keeps its money reserved.

The wait in our own queue has a separate limit, after which the call fails without being sent: nothing is reserved
while a call waits, and the API's time begins when the order is sent.
"""

import hashlib
import secrets as random_bytes
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Any, Final

import anyio

from toolwire._protocol.json_codec import dumps
from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import Answer, Attempt, RawBody, is_success, run_off_loop
from toolwire.catalog.http.api import Api
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.types import Booking, Busy, Limits, Order, Stopped
from toolwire.catalog.money import dollars, micros
from toolwire.catalog.observe import CallRecord, Observer
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.purchase.limits import Breaker, RateLimit, ResultCache, SharedRateLimit
from toolwire.catalog.purchase.replies import FAILED, Outcome, build_result, read_reply
from toolwire.catalog.tools.definitions import Definition, identity, price_for
from toolwire.errors import CatalogError
from toolwire.tools.context import Context
from toolwire.tools.dispatch.interface import PlannedCall
from toolwire.tools.results.result import error_result

logger = logger_for("catalog")

_UNPRICED: Final = "Cost: unknown, not counted"
MAX_IN_FLIGHT: Final = 32
"""Calls of one catalogue that may be in flight at once. An API that overcharges can do so only for these."""
QUEUE_TIMEOUT: Final = 60.0
"""Seconds that a call may wait in our queue."""
_CACHED: Final = "This is the result of an earlier call: nothing was bought this time."
_ROUNDING: Final = 10_000  # a cent: balances are often rounded to cents
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


@dataclass(frozen=True)
class Allowance:
    """What a step of a chain may spend: the money that is held for it, and the most that it may cost."""

    entry: str
    held: str
    most: int | None


_ALLOWANCE: ContextVar[Allowance | None] = ContextVar("toolwire_allowance", default=None)
"""The allowance of the call that runs now."""


class HeldMoney:
    """The money held for all paid steps of one run of a chain. `steps` has entry and maximum cost of each."""

    def __init__(
        self, ledger: AsyncLedger, held: Sequence[Booking], steps: Sequence[tuple[str, int | None]]
    ) -> None:
        self._ledger = ledger
        self._held = held
        self._steps = steps

    @property
    def micros(self) -> int:
        """The sum, in micro-dollars."""
        return sum(each.reserved for each in self._held)

    @contextmanager
    def using(self, index: int) -> Iterator[None]:
        """Let the call that is made inside the block use the money of one step."""
        entry, most = self._steps[index]
        token = _ALLOWANCE.set(Allowance(entry, self._held[index].id, most))
        try:
            yield
        finally:
            _ALLOWANCE.reset(token)

    def release(self) -> None:
        """Release what was not used. If the ledger is closed, `recover` does that after this process has ended."""
        with suppress(CatalogError):
            self._ledger.post(self._ledger.ledger.drop_held, [each.id for each in self._held])


class Purchase:
    """A paid call in progress: `send` it, then `close` it with the answer."""

    def __init__(
        self,
        buyer: "Buyer",
        definition: Definition,
        arguments: dict[str, Any],
        context: Context[Any],
        record: CallRecord,
    ) -> None:
        self.definition = definition
        self.arguments = arguments
        self.record = record
        self.entry = buyer.entry_id(definition.id)
        variant, self.price = price_for(definition, arguments)
        self.price_key = self.entry, variant
        """The entry and variant for which the price is agreed on."""
        self.on_certain: Callable[[], None] = lambda: None
        """Called once the ledger has booked it as a call that need not run alone."""
        self._buyer = buyer
        self._context = context
        self._digest = hashlib.sha256(_write(arguments)).hexdigest()
        self._key = _key(buyer.session, self.entry, self._digest, context)
        self.attempt = Attempt()
        self._booking: Booking | None = None
        self._number, self._sent_at = 0, 0.0
        allowance = _ALLOWANCE.get()
        self._allowance = allowance if allowance is not None and allowance.entry == self.entry else None
        record.entry, record.digest = definition.id, self._digest

    # Before the answer.

    async def send(self) -> Answer:
        """Send the order. CatalogError if it may not be sent. If this raises, the outcome was booked."""
        numbers, timeouts = count(1), self._buyer.profile.call.timeouts
        try:
            return await self._buyer.api.buy(
                self.definition.id,
                self.arguments,
                key=self._key,
                timeout=timeouts.get(self.definition.name),
                on_progress=lambda message: self._context.progress(
                    next(numbers), None, self._buyer.scrubber.text(message)
                ),
                on_send=self._book,
                attempt=self.attempt,
            )
        except BaseException as error:
            await self._book_interrupted(error)
            raise
        finally:
            if self._sent_at:
                self.record.api_seconds = time.perf_counter() - self._sent_at

    async def _book(self) -> None:
        """Book the order just before it is sent. Before it is sent again, check that this is still allowed."""
        buyer, ledger = self._buyer, self._buyer.ledger
        buyer.check_unbooked(self.entry, self.definition.name)
        if self._booking is not None:
            await ledger.query(ledger.ledger.check_again, self._booking.id, buyer.limits)
            return
        held, most = ("", None) if self._allowance is None else (self._allowance.held, self._allowance.most)
        order, limits = buyer.make_order(
            self.definition, self.price_key, self.price, most, key=self._key, digest=self._digest
        )
        started = time.monotonic()
        booking: Booking = await ledger.commit(
            ledger.ledger.begin, order, limits, held, undo=lambda made: ledger.ledger.release(made.id)
        )
        self._booking = booking
        self._number, self._sent_at = buyer.balances.start(), time.perf_counter()
        self.record.booking, self.record.reserved = booking.id, booking.reserved
        if not booking.exclusive:
            self.on_certain()
        if time.monotonic() - started > ledger.ledger.lease / 2:  # this process may have been paused just now
            await ledger.query(ledger.ledger.check_again, booking.id, buyer.limits)

    async def _book_interrupted(self, error: BaseException) -> None:
        """Book the outcome of a call that was cancelled, or may not be sent again."""
        if self._booking is None:
            return
        ledger = self._buyer.ledger.ledger
        self._buyer.balances.end()
        if self.attempt.sent:
            self.record.outcome = "unknown"
            why = f"the call was abandoned after the order was sent ({type(error).__name__})"
            await self._commit(ledger.unknown, self._booking.id, why)
        else:
            self.record.outcome = "released"
            await self._commit(ledger.release, self._booking.id)

    # After the answer.

    async def close(self, answer: Answer) -> dict[str, Any]:
        """Book the outcome according to the answer, and return the MCP result."""
        booking, ledger = self._booking, self._buyer.ledger.ledger
        if booking is None:  # it failed before it could be sent
            self.record.outcome = "refused"
            return error_result(f"{FAILED}{answer.error}. Nothing was bought.")
        try:
            if answer.ok and isinstance(answer.body, Mapping | list | RawBody):
                return await self._settle(booking, answer)
        finally:
            self._buyer.balances.end()
        if answer.state == "unknown" or answer.ok:
            self.record.outcome = "unknown"
            why = answer.error or "the reply cannot be read"
            await self._commit(ledger.unknown, booking.id, why)
            return error_result(self._describe_unknown(booking, why))
        self.record.outcome = "released"
        await self._commit(ledger.release, booking.id)
        return error_result(f"{FAILED}{answer.error}. Nothing was bought.")

    async def _settle(self, booking: Booking, answer: Answer) -> dict[str, Any]:
        """Book the cost of a reply. If it is within the reserved amount, the model need not wait for the disk."""
        outcome, result = await self._read_reply(booking, answer)
        ledger, record = self._buyer.ledger.ledger, self.record
        record.outcome, record.balance = "bought" if outcome.ok else "failed", outcome.balance
        if not outcome.ok and outcome.cost == 0:
            self._buyer.ledger.post(ledger.release, booking.id)
            return result
        cost = outcome.cost
        if outcome.unreadable_cost is not None:
            why = f"the cost in its reply is {outcome.unreadable_cost}, which is not an amount"
            settle = partial(ledger.settle, booking.id, None, unreadable=outcome.unreadable_cost)
            await self._commit_stop(why, settle)
            text = f"{self.definition.name} is stopped until a person has checked it: {why}."
            result["content"].append({"type": "text", "text": text})
        elif cost is not None and booking.price is not None and cost > booking.reserved:
            why = f"a call cost {dollars(cost)}, but {dollars(booking.reserved)} was agreed"
            await self._commit_stop(why, ledger.settle, booking.id, cost)
        else:
            self._buyer.ledger.post(ledger.settle, booking.id, cost)
        self._note_cost(booking, outcome, result)
        return result

    async def _read_reply(self, booking: Booking, answer: Answer) -> tuple[Outcome, dict[str, Any]]:
        """Read a reply, in a thread if it is long. The call was charged, so even a cancelled caller waits."""

        def read() -> tuple[Outcome, dict[str, Any]]:
            outcome = read_reply(answer.body, self._buyer.profile.reply, answer.headers)
            return outcome, build_result(outcome, booking.price)

        try:
            with anyio.CancelScope(shield=True):
                found = await run_off_loop(read, answer.size, self._buyer.workers)
        except BaseException as error:  # a native cancellation of asyncio ignores the shield
            self.record.outcome = "unknown"
            why = f"the call was abandoned while its reply was being read ({type(error).__name__})"
            await self._commit(self._buyer.ledger.ledger.unknown, booking.id, why)
            raise
        return found

    def _note_cost(self, booking: Booking, outcome: Outcome, result: dict[str, Any]) -> None:
        """Add notes about the cost to the result and the log."""
        cost = booking.price if outcome.cost is None else outcome.cost
        self.record.cost = cost or 0
        if outcome.balance is not None and self._number:
            odd = self._buyer.balances.compare(self._number, outcome.balance, cost or 0)
            if odd is not None:
                self.record.note = odd
                logger.warning("%s (call %s): %s", self.definition.name, booking.id, odd)
        if cost is None:
            self._buyer.warn_unpriced(self.definition)
            result["content"].append({"type": "text", "text": _UNPRICED})
            if "structuredContent" in result:
                result["structuredContent"]["cost"] = None
        elif not outcome.ok and outcome.cost is None and cost:
            # The order was accepted and its tool failed: only the API knows whether that was charged.
            text = f"The API does not say what that cost: {dollars(cost)} counts as spent."
            result["content"].append({"type": "text", "text": text})

    async def _commit_stop(self, why: str, act: Callable[..., Any], *args: Any) -> None:
        """Book a cost that stops the tool. If that fails, the tool is stopped in this process only."""
        name = self.definition.name
        if await self._commit(act, *args):
            logger.warning(
                "%s is stopped: %s. To allow it again: toolwire catalog accept %s", name, why, name
            )
        else:
            self._buyer.unbooked[self.entry] = why
            logger.warning("%s is stopped until this process is restarted: %s", name, why)

    def _describe_unknown(self, booking: Booking, why: str) -> str:
        money = f"{dollars(booking.reserved)} stays reserved" if booking.reserved else "its cost is not known"
        return (
            f"{FAILED}{why}. UNKNOWN whether {self.definition.name} was bought: {money} (call {booking.id}). Do "
            "not repeat it by yourself. A person can settle it: toolwire catalog reconcile"
        )

    async def _commit(self, act: Callable[..., Any], *args: Any) -> bool:
        """Call a ledger method; False if that fails. Then it is retried later, and the model gets its result now.

        Until it is booked, the money stays reserved.
        """
        try:
            await self._buyer.ledger.commit(act, *args)
        except CatalogError as error:
            logger.error(  # noqa: TRY400 - the message says everything
                "the ledger could not book that call %s of %s is %s: %s",
                self.record.booking,
                self.record.tool,
                self.record.outcome,
                error,
            )
            with suppress(CatalogError):  # the ledger is closed: the next start books the call as unknown
                self._buyer.ledger.post(act, *args)
            return False
        return True


def _write(arguments: dict[str, Any]) -> bytes:
    """Encode arguments the same way whatever their order. CatalogError if they are not JSON."""
    try:
        return dumps(arguments, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CatalogError(f"the arguments cannot be sent: {error}. Nothing was bought") from None


def _key(session: str, entry_id: str, digest: str, context: Context[Any]) -> str:
    """Return the unique id of a call: the same for the same tool use of the model or request id of a client."""
    tool_use = context.tool_use_id
    if tool_use is None and context.request_key is not None:
        parts = [session, context.request_key]  # whatever the arguments: a client must not reuse an id
    else:
        parts = [session, entry_id, digest, tool_use or random_bytes.token_hex(8)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass
class Buyer:
    """Buys for one catalogue. `identity` identifies the payer: cached results are never shared between payers.

    `entry_id` converts an entry's id to that of the ledger, which is also the key in `limits.per_tool`.
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
    rate: RateLimit | SharedRateLimit | None = None
    cache: ResultCache | None = None
    cached_for: Mapping[str, float] = field(default_factory=dict)
    """Tool -> seconds for which its result may be returned again."""
    max_in_flight: int = MAX_IN_FLIGHT
    queue_timeout: float = QUEUE_TIMEOUT

    def __post_init__(self) -> None:
        self.balances = Balances()
        self._in_flight = anyio.CapacityLimiter(self.max_in_flight)
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        # Price keys whose calls need not run alone, as far as is known.
        self._certain: set[tuple[str, str]] = set()
        self.unbooked: dict[str, str] = {}
        """Entry -> why it is stopped in this process, because the ledger could not book the stop."""
        self._warned: set[str] = set()

    async def call(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any]
    ) -> dict[str, Any]:
        """Make a call and return its MCP result. Failures are results too; only a cancellation is raised."""
        with self.observer.call(definition.name) as record:
            try:
                return await self._buy_or_reuse(Purchase(self, definition, arguments, context, record))
            except CatalogError as error:
                record.outcome = record.outcome or "refused"
                return error_result(self.scrubber.text(FAILED + str(error)))

    async def reserve(self, calls: Sequence[tuple[Definition, PlannedCall]]) -> HeldMoney:
        """Hold the money for planned calls, for all of them or none. Raises CatalogError with the reason."""
        steps = [(self.entry_id(definition.id), _max_price(definition, call)) for definition, call in calls]
        orders = []
        for (definition, call), (entry, most) in zip(calls, steps, strict=True):
            self.check_unbooked(entry, definition.name)
            variant, price = price_for(definition, call.arguments)
            orders.append(self.make_order(definition, (entry, variant), price, most))
        ledger = self.ledger.ledger
        held: list[Booking] = await self.ledger.commit(
            ledger.hold, orders, undo=lambda made: ledger.drop_held([each.id for each in made])
        )
        return HeldMoney(self.ledger, held, steps)

    def make_order(
        self,
        definition: Definition,
        price_key: tuple[str, str],
        price: int | None,
        most: int | None,
        *,
        key: str = "",
        digest: str = "",
    ) -> tuple[Order, Limits]:
        """Return an order, and the limits that apply to it; `most` is an additional limit."""
        entry, variant = price_key
        limits = self.limits
        if most is not None:
            per_call = most if limits.per_call is None else min(most, limits.per_call)
            limits = replace(limits, per_call=per_call)
        order = Order(
            session=self.session,
            tool=definition.name,
            entry_id=entry,
            name=identity(definition.base),
            price=price,
            key=key,
            digest=digest,
            variant=variant,
            default_price=self.default_price if most is None else most,
        )
        return order, limits

    async def _buy_or_reuse(self, purchase: Purchase) -> dict[str, Any]:
        """Return a cached result if the tool allows that, else buy it."""
        name = purchase.definition.name
        if self.cache is None or name not in self.cached_for:
            return await self._buy(purchase)
        key = ResultCache.key(self.identity, purchase.definition.id, purchase.arguments)
        cached = self.cache.get(key)
        if cached is not None:
            purchase.record.outcome = "cached"
            return _mark_as_cached(cached)
        result = await self._buy(purchase)
        if not result.get("isError"):
            self.cache.put(key, result, self.cached_for[name])
        return result

    async def _buy(self, purchase: Purchase) -> dict[str, Any]:
        """Wait for a turn and a free slot, then buy. Retried while another call of uncertain cost is in flight."""
        ends, pause, paced = anyio.current_time() + self.queue_timeout, _FIRST_PAUSE, False
        while True:
            try:
                async with self._turn(purchase, ends), self._slot(ends):
                    if not paced:
                        await self._wait_for_rate(ends)
                        paced = True
                    return await self._admit(purchase)
            except Busy as busy:
                self._certain.discard(purchase.price_key)
                if not busy.retryable or anyio.current_time() + pause > ends:
                    raise
            await anyio.sleep(pause)  # the other call is in another process, which does not notify this one
            pause = min(2 * pause, _LONGEST_PAUSE)

    @asynccontextmanager
    async def _turn(self, purchase: Purchase, ends: float) -> AsyncIterator[None]:
        """Let calls whose cost is not certain run one at a time; the ledger decides which these are.

        The ledger would refuse a second one: waiting here saves a useless connection.
        """
        lock = None if self._is_certain(purchase) else self._lock_for(purchase)
        if lock is not None:
            why = "calls whose cost is not certain yet are sent one at a time, and others took"
            await self._wait(lock.acquire, ends, why)
            if self._is_certain(purchase):  # an earlier call has made it certain
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
        """True if the call may run beside others, as far as is known here. The ledger decides."""
        unlimited = purchase.price is not None and not self.limits.any_for(purchase.entry)
        return unlimited or purchase.price_key in self._certain

    def _lock_for(self, purchase: Purchase) -> anyio.Lock:
        limits = self.limits
        shared = any(each is not None for each in (limits.per_session, limits.per_day, limits.total))
        return self._locks["" if shared else purchase.entry]

    @asynccontextmanager
    async def _slot(self, ends: float) -> AsyncIterator[None]:
        """Hold one of the `max_in_flight` slots."""
        slot = object()
        why = f"{self.max_in_flight} calls of this catalogue were in flight (max_in_flight) for"
        await self._wait(partial(self._in_flight.acquire_on_behalf_of, slot), ends, why)
        try:
            yield
        finally:
            self._in_flight.release_on_behalf_of(slot)

    async def _wait(self, acquire: Callable[[], Awaitable[None]], ends: float, why: str) -> None:
        try:
            with anyio.fail_after(max(0.0, ends - anyio.current_time())):
                await acquire()
        except TimeoutError:
            raise CatalogError(
                f"{why} {self.queue_timeout:g} s (queue_timeout): nothing was sent or bought"
            ) from None

    async def _wait_for_rate(self, ends: float) -> None:
        """Wait for the rate limit, after all other waits: calls that queued together must not be sent together."""
        if self.rate is not None and not await self.rate.wait(at_most=ends - anyio.current_time()):
            raise CatalogError(
                f"the rate limit allows no call within {self.queue_timeout:g} s: nothing was sent or bought"
            )

    async def _admit(self, purchase: Purchase) -> dict[str, Any]:
        """Pass the circuit breaker, buy, and report to the breaker whether the API works."""
        ticket = self.breaker.admit()
        if ticket is None:
            raise CatalogError(
                f"the API keeps failing, so nothing was sent; try again in {self.breaker.retry_in:.0f} s"
            )
        reported = False
        try:
            answer = await purchase.send()
            if purchase.attempt.tries:  # else no request could be built from the arguments
                (self.breaker.succeeded if _is_healthy(answer) else self.breaker.failed)(ticket)
                reported = True
        finally:
            if not reported:
                self.breaker.abandoned(ticket)
        return await purchase.close(answer)

    def check_unbooked(self, entry: str, name: str) -> None:
        """Raise `Stopped` if an entry is stopped in this process only, because the ledger could not book it."""
        if entry in self.unbooked:
            raise Stopped(
                f"{name} is stopped ({self.unbooked[entry]}), and the ledger could not book that: nothing was sent."
                " Check toolwire catalog spend, then restart this process"
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


def _max_price(definition: Definition, call: PlannedCall) -> int | None:
    """Return the most that a planned call may cost, in micros; None if it is not limited."""
    try:
        return None if call.max_price is None else micros(call.max_price)
    except ValueError as error:
        raise CatalogError(
            f"the max_price of {definition.name} is not an amount of dollars: {error}"
        ) from None


def _is_healthy(answer: Answer) -> bool:
    """True if the API replied, without a server error, and the reply can be read."""
    if answer.status is None or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return False
    return not (answer.state == "unknown" and is_success(answer.status))


class Balances:
    """Compares the balances in replies with the costs in them.

    Two balances can be compared if no other call of ours was in flight between them. Others may spend from the same
    account, so a contradiction is only reported, and stops nothing.
    """

    def __init__(self) -> None:
        self._in_flight = 0
        self._started = 0
        self._last: tuple[int, int] | None = None  # the balance, and how many calls had started by then

    def start(self) -> int:
        """Count a call that is being sent. Returns its number."""
        self._in_flight += 1
        self._started += 1
        return self._started

    def end(self) -> None:
        """Count a call that has ended."""
        self._in_flight -= 1

    def compare(self, number: int, balance: int, cost: int) -> str | None:
        """Describe a balance that fell by more than the cost of the call; None if it did not."""
        alone = self._in_flight == 1 and self._started == number
        last, self._last = self._last, (balance, number) if alone else None
        if last is None or not alone or last[1] != number - 1:
            return None
        fell = last[0] - balance
        if fell <= cost + _ROUNDING:
            return None
        return f"the balance fell by {dollars(fell)}, but the reply says that the call cost {dollars(cost)}"


def _mark_as_cached(cached: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a result with a note that it was paid for before."""
    result = {**cached, "content": [*cached["content"], {"type": "text", "text": _CACHED}]}
    if "cost" in (structured := cached.get("structuredContent") or {}):
        result["structuredContent"] = {**structured, "cost": 0.0}
    return result
