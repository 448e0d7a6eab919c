"""One paid call, from the model's arguments to what the model is shown.

    cached? -> breaker -> rate limit -> price -> reserve -> send once -> settle | release | unknown

Owns that order and nothing else: what may be sent again is `http`'s to know, what may be spent the ledger's. The
arguments were checked before anything here runs. Whatever happens, a cancellation included, the ledger is told how
the call ended, and a call of which that is not certain keeps its money reserved.
"""

import hashlib
import secrets as random_bytes
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import anyio
import orjson

from toolwire._log import logger_for
from toolwire.catalog.http.answers import Answer, Attempt, RawBody
from toolwire.catalog.http.api import Api
from toolwire.catalog.ledger.async_ledger import Books
from toolwire.catalog.ledger.types import Limits, OverBudget, Settled, Spend
from toolwire.catalog.money import dollars
from toolwire.catalog.observe import Observer, Seen
from toolwire.catalog.profile.tables import Reply
from toolwire.catalog.purchase.limits import Breaker, RateLimit, ResultCache
from toolwire.catalog.purchase.replies import Outcome, read_reply, shown
from toolwire.catalog.secrets import Scrubber
from toolwire.catalog.tools.definitions import Definition
from toolwire.errors import CatalogError
from toolwire.tools.context import Context
from toolwire.tools.results import error_result

logger = logger_for("catalog")

_FAILED: Final = "Tool execution failed: "
_UNTOLD: Final = "Cost: unknown, not counted"
_KEPT: Final = "This is the result of an earlier call: nothing was bought this time."


@dataclass(frozen=True)
class _Price:
    """What a call costs by the catalogue, None if nobody knows, and the most that was agreed to.

    `guessed`: it is what the user wants it to count as, and a reply knows better.
    """

    asked: int | None
    agreed: int = 0
    guessed: bool = False

    @property
    def reserved(self) -> list[int]:
        """What to put aside, and if that is too much for the budget, then what."""
        asked = self.asked or 0
        return [self.agreed, asked] if self.agreed > asked else [asked]


@dataclass
class Buyer:
    """Buys for one catalogue. `identity` stands for the payer: results are never shared between two.

    `entry_id` makes of an entry's id the one of the ledger, by which `limits` has single tools too.
    """

    api: Api
    books: Books
    limits: Limits
    entry_id: Callable[[str], str]
    session: str
    identity: str
    scrubber: Scrubber
    observer: Observer
    breaker: Breaker
    reply: Reply = field(default_factory=Reply)
    """How replies are read."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds for single tools, by name or id."""
    default_price: int | None = None
    """What a call counts as if nobody tells its price."""
    rate: RateLimit | None = None
    cache: ResultCache | None = None
    cached_for: Mapping[str, float] = field(default_factory=dict)
    """Tool -> seconds for which its result may be given again."""
    _warned: set[str] = field(default_factory=set)
    _unpriced: defaultdict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))

    async def call(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any]
    ) -> dict[str, Any]:
        """The MCP result of a call. Failures are results too; only a cancellation gets out."""
        with self.observer.call(definition.name) as seen:
            try:
                result = await self._answered(definition, arguments, context, seen)
            except CatalogError as error:
                seen.outcome = seen.outcome or "refused"
                result = error_result(_FAILED + str(error))
            clean: dict[str, Any] = self.scrubber.data(result)
            return clean

    async def _answered(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any], seen: Seen
    ) -> dict[str, Any]:
        """From the cache, or bought."""
        if self.cache is None or definition.name not in self.cached_for:
            return await self._admitted(definition, arguments, context, seen)
        key = ResultCache.key(self.identity, definition.id, arguments)
        kept = self.cache.get(key)
        if kept is not None:
            seen.outcome = "cached"
            return _once_more(kept)
        result = await self._admitted(definition, arguments, context, seen)
        if not result.get("isError"):
            self.cache.put(key, result, self.cached_for[definition.name])
        return result

    async def _admitted(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any], seen: Seen
    ) -> dict[str, Any]:
        """Past the breaker, which hears whether the API is there."""
        ticket = self.breaker.admit()
        if ticket is None:
            raise CatalogError(
                f"the API keeps failing, so nothing was sent; it is tried again in {self.breaker.retry_in:.0f} s"
            )
        reported = False
        try:
            if self.rate is not None and not await self.rate.wait(at_most=30.0):
                raise CatalogError("too many calls at once: the rate limit has no place within 30 s")
            result, answer = await self._priced(definition, arguments, context, seen)
            there = answer.status is not None and answer.status < 500  # noqa: PLR2004 - it answered for itself
            (self.breaker.succeeded if there else self.breaker.failed)(ticket)
            reported = True
        finally:
            if not reported:
                self.breaker.abandoned(ticket)
        return result

    async def _priced(
        self, definition: Definition, arguments: dict[str, Any], context: Context[Any], seen: Seen
    ) -> tuple[dict[str, Any], Answer]:
        if definition.price is None and await self._untold(definition):
            async with self._unpriced[definition.id]:  # one at a time, until a reply tells
                if await self._untold(definition):
                    return await self._order(definition, arguments, context, seen)
        return await self._order(definition, arguments, context, seen)

    async def _untold(self, definition: Definition) -> bool:
        """Whether nobody knows what a call costs."""
        price: _Price = await self.books.ask(self._price, definition)
        return price.asked is None

    def _price(self, definition: Definition) -> _Price:
        """What the call may cost, by the ledger. CatalogError for a price that was never agreed to."""
        ledger, entry = self.books.ledger, self.entry_id(definition.id)
        if definition.price is None:
            known = ledger.price(entry)
            return _Price(known) if known is not None else _Price(self.default_price, guessed=True)
        checked = ledger.pin_price(entry, definition.name, definition.price)
        if not checked.accepted:
            raise CatalogError(
                f"the price of {definition.name} rose from {dollars(checked.pinned)} to "
                f"{dollars(checked.offered)}; nothing was bought. A person can accept it: "
                f"toolwire catalog accept {definition.name}"
            )
        return _Price(definition.price, checked.pinned)

    async def _order(
        self,
        definition: Definition,
        arguments: dict[str, Any],
        context: Context[Any],
        seen: Seen,
    ) -> tuple[dict[str, Any], Answer]:
        digest = hashlib.sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)).hexdigest()
        entry = self.entry_id(definition.id)
        key = _key(self.session, entry, digest, context.tool_use_id)
        seen.entry, seen.digest = definition.id, digest
        spend = Spend(
            session=self.session,
            tool=definition.name,
            entry_id=entry,
            amount=0,
            key=key,
            digest=digest,
        )
        booked = await self.books.tell(self._reserve, spend, definition, undo=self._give_back)
        seen.booking, seen.reserved, price = booked
        booking = seen.booking
        attempt, numbers, since = Attempt(), count(1), time.perf_counter()
        try:
            answer = await self.api.buy(
                definition.id,
                arguments,
                key=key,
                timeout=self.timeouts.get(definition.name),
                on_progress=lambda news: _progressed(context, next(numbers), self.scrubber.text(news)),
                on_send=lambda: self.books.ask(self.books.ledger.sent, booking),
                attempt=attempt,
            )
        except BaseException as error:
            await self._left(booking, attempt, seen, error)
            raise
        finally:
            seen.api_seconds = time.perf_counter() - since
        return await self._closed(definition, answer, seen, price), answer

    def _reserve(self, spend: Spend, definition: Definition) -> tuple[str, int, _Price]:
        """The booking, and what was put aside: as much as was agreed to, or what is asked if only that is left.

        In the ledger's thread, and in one go: each way there and back costs as much as a booking in memory.
        """
        price, ledger = self._price(definition), self.books.ledger
        *more, least = price.reserved
        spend = replace(spend, exclusive=price.asked is None)
        for amount in more:
            with suppress(OverBudget):
                return ledger.reserve(replace(spend, amount=amount), self.limits), amount, price
        return ledger.reserve(replace(spend, amount=least), self.limits), least, price

    def _give_back(self, booked: tuple[str, int, _Price]) -> None:
        self.books.ledger.release(booked[0])

    async def _left(self, booking: str, attempt: Attempt, seen: Seen, error: BaseException) -> None:
        """The call was cancelled, or could not be booked: say what is certain of it."""
        ledger = self.books.ledger
        if attempt.sent:
            seen.outcome = "unknown"
            why = f"the call was given up while the order was out ({type(error).__name__})"
            await self._book(seen, ledger.unknown, booking, why)
        else:
            seen.outcome = "released"
            await self._book(seen, ledger.release, booking)

    async def _closed(
        self, definition: Definition, answer: Answer, seen: Seen, price: _Price
    ) -> dict[str, Any]:
        """Book how it ended, and say it. An answer that is there is not lost to a cancellation: `tell` waits."""
        ledger = self.books.ledger
        body = self.scrubber.data(answer.body)  # before anything is cut: half a secret would not be found
        if answer.ok and isinstance(body, Mapping | list | RawBody):
            outcome = read_reply(body, self.reply, answer.headers)
            return await self._settled(definition, outcome, seen, price)
        if answer.state == "unknown" or answer.ok:
            seen.outcome = "unknown"
            why = self.scrubber.text(answer.error or read_reply(body).error or "no answer")
            await self._book(seen, ledger.unknown, seen.booking, why)
            return error_result(_unknown(definition, seen, why))
        seen.outcome = "released"
        await self._book(seen, ledger.release, seen.booking)
        return error_result(f"{_FAILED}{answer.error}. Nothing was bought.")

    async def _settled(
        self, definition: Definition, outcome: Outcome, seen: Seen, price: _Price
    ) -> dict[str, Any]:
        ledger = self.books.ledger
        seen.outcome, seen.balance = "bought" if outcome.ok else "failed", outcome.balance
        if not outcome.ok and outcome.cost == 0:
            await self._book(seen, ledger.release, seen.booking)
            return shown(outcome)
        cost = price.asked if outcome.cost is None else outcome.cost
        seen.cost = cost or 0
        settled: Settled | None = await self._book(seen, ledger.settle, seen.booking, cost)
        over = settled is not None and settled.over  # then it waits to be accepted
        if price.guessed and outcome.cost is not None and not over:
            entry = self.entry_id(definition.id)
            await self._book(seen, ledger.pin_price, entry, definition.name, outcome.cost)
        if settled is not None and over:
            logger.warning(
                "%s cost %s, and %s was agreed: it is stopped until that is accepted (toolwire catalog accept %s)",
                definition.name,
                dollars(settled.actual),
                dollars(settled.reserved),
                definition.name,
            )
        result = shown(outcome, price.asked)
        if cost is None:
            self._warn(definition)
            result["content"].append({"type": "text", "text": _UNTOLD})
            if "structuredContent" in result:
                result["structuredContent"]["cost"] = None
        elif not outcome.ok and outcome.cost is None and cost:
            # The order went through and its tool failed: whether that was charged only the API knows.
            said = f"The API does not say what that cost: {dollars(cost)} counts as spent."
            result["content"].append({"type": "text", "text": said})
        return result

    def _warn(self, definition: Definition) -> None:
        """Say once of a tool that nobody tells what it costs."""
        if definition.id not in self._warned:
            self._warned.add(definition.id)
            limited = self.limits.any_for(self.entry_id(definition.id))
            logger.warning(
                "nobody tells what %s costs, so it is not counted%s (toolwire catalog accept %s --price 0.01)",
                definition.name,
                ", and under a limit it is not bought again until a price is given" if limited else "",
                definition.name,
            )

    async def _book(self, seen: Seen, act: Callable[..., Any], *args: Any) -> Any:
        """Tell the ledger. If that fails, the money stays reserved, and the model gets its answer all the same."""
        try:
            return await self.books.tell(act, *args)
        except CatalogError as error:
            logger.error(  # noqa: TRY400 - the ledger says all there is
                "the ledger could not be told that call %s of %s is %s: %s",
                seen.booking,
                seen.tool,
                seen.outcome,
                error,
            )
            return None


def _key(session: str, entry_id: str, digest: str, tool_use_id: str | None) -> str:
    """The same for the same use of the same tool by the model, and for nothing else."""
    call = tool_use_id or random_bytes.token_hex(8)
    return hashlib.sha256(f"{session}\0{entry_id}\0{digest}\0{call}".encode()).hexdigest()


def _unknown(definition: Definition, seen: Seen, why: str) -> str:
    money = f"{dollars(seen.reserved)} stays reserved" if seen.reserved else "its cost is not known"
    return (
        f"{_FAILED}{why}. UNKNOWN whether {definition.name} was bought: {money} (call {seen.booking}). Do not "
        "repeat it by yourself. A person can settle it: toolwire catalog reconcile"
    )


def _once_more(kept: dict[str, Any]) -> dict[str, Any]:
    """A result that was paid for before, and says so."""
    again = {**kept, "content": [*kept["content"], {"type": "text", "text": _KEPT}]}
    if "cost" in (structured := kept.get("structuredContent") or {}):
        again["structuredContent"] = {**structured, "cost": 0.0}
    return again


def _progressed(context: Context[Any], number: int, message: str) -> None:
    context.progress(number, None, message)
