"""Makes one paid call, from the model's arguments to the result for the model.

    connect -> book (price, limits, stops: one transaction) -> send once -> settle | release | unknown -> result

Owns that order and nothing else: what may be sent again is for `http.orders` to know, what may be spent for the
ledger. The arguments were checked before anything here runs. Whatever happens, a cancellation included, the ledger
is told how the call ended, and a call of which that is not certain keeps its money reserved.
"""

import hashlib
import secrets as random_bytes
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._protocol.json_codec import dumps
from toolwire._support.log import logger_for
from toolwire.catalog.http.answers import Answer, Attempt, RawBody
from toolwire.catalog.http.streams import run_off_loop
from toolwire.catalog.ledger.types import Booking, Order
from toolwire.catalog.money import dollars
from toolwire.catalog.observe import CallRecord
from toolwire.catalog.purchase.replies import Outcome, build_result, read_reply
from toolwire.catalog.tools.definitions import Definition, price_for
from toolwire.catalog.tools.names import identity
from toolwire.errors import CatalogError
from toolwire.tools.context import Context
from toolwire.tools.results.result import error_result

if TYPE_CHECKING:
    from toolwire.catalog.purchase.buyer import Buyer

logger = logger_for("catalog")

FAILED: Final = "Tool execution failed: "
_UNPRICED: Final = "Cost: unknown, not counted"


class Purchase:
    """A paid call that is being made: `send`, then `close` with the answer."""

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
        self._variant, self.price = price_for(definition, arguments)
        self.on_certain: Callable[[], None] = lambda: None
        """Called once the ledger has booked it as a call that others may run beside."""
        self._buyer = buyer
        self._context = context
        self._digest = hashlib.sha256(_write(arguments)).hexdigest()
        self._key = _key(buyer.session, self.entry, self._digest, context)
        self._attempt = Attempt()
        self._booking: Booking | None = None
        self._number, self._sent_at = 0, 0.0
        record.entry, record.digest = definition.id, self._digest

    @property
    def price_key(self) -> tuple[str, str]:
        """The entry and variant that the price is agreed on for."""
        return self.entry, self._variant

    @property
    def tried(self) -> bool:
        """True if a request was sent, rather than that none could be made of the arguments."""
        return self._attempt.tries > 0

    # Before the answer.

    async def send(self) -> Answer:
        """Send the order. CatalogError if it may not be sent; the ledger knows how it ended, if this raises."""
        attempt, numbers = self._attempt, count(1)
        timeouts = self._buyer.profile.call.timeouts
        try:
            return await self._buyer.api.buy(
                self.definition.id,
                self.arguments,
                key=self._key,
                timeout=timeouts.get(self.definition.name),
                on_progress=lambda news: _report(
                    self._context, next(numbers), self._buyer.scrubber.text(news)
                ),
                on_send=self._book,
                attempt=attempt,
            )
        except BaseException as error:
            await self._give_up(attempt, error)
            raise
        finally:
            if self._sent_at:
                self.record.api_seconds = time.perf_counter() - self._sent_at

    async def _book(self) -> None:
        """Book the order just before it goes out; before it goes out again, check that it still may."""
        buyer, ledger = self._buyer, self._buyer.ledger
        buyer.check_unbooked(self.entry, self.definition.name)
        if self._booking is not None:
            await ledger.query(ledger.ledger.check_again, self._booking.id, buyer.limits)
            return
        order = Order(
            session=buyer.session,
            tool=self.definition.name,
            entry_id=self.entry,
            name=identity(self.definition.base),
            price=self.price,
            key=self._key,
            digest=self._digest,
            variant=self._variant,
            default_price=buyer.default_price,
        )
        booking: Booking = await ledger.commit(
            ledger.ledger.begin, order, buyer.limits, undo=lambda made: ledger.ledger.release(made.id)
        )
        self._booking = booking
        self._number, self._sent_at = buyer.balances.start(), time.perf_counter()
        self.record.booking, self.record.reserved = booking.id, booking.reserved
        if not booking.exclusive:
            self.on_certain()

    async def _give_up(self, attempt: Attempt, error: BaseException) -> None:
        """Book what is certain of a call that was cancelled, or may not be sent again."""
        if self._booking is None:
            return
        ledger = self._buyer.ledger.ledger
        self._buyer.balances.end()
        if attempt.sent:
            self.record.outcome = "unknown"
            why = f"the call was given up while the order was out ({type(error).__name__})"
            await self._commit(ledger.unknown, self._booking.id, why)
        else:
            self.record.outcome = "released"
            await self._commit(ledger.release, self._booking.id)

    # After the answer.

    async def close(self, answer: Answer) -> dict[str, Any]:
        """Book what the answer says, and return the MCP result."""
        booking, ledger = self._booking, self._buyer.ledger.ledger
        if booking is None:  # it never came so far
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
            return error_result(self._tell_unknown(booking, why))
        self.record.outcome = "released"
        await self._commit(ledger.release, booking.id)
        return error_result(f"{FAILED}{answer.error}. Nothing was bought.")

    async def _settle(self, booking: Booking, answer: Answer) -> dict[str, Any]:
        """Book what a reply cost. Where that is at most what was reserved, the model need not wait for the disk."""
        outcome, result = await self._read_reply(booking, answer)
        ledger, record = self._buyer.ledger.ledger, self.record
        record.outcome, record.balance = "bought" if outcome.ok else "failed", outcome.balance
        if not outcome.ok and outcome.cost == 0:
            self._buyer.ledger.post(ledger.release, booking.id)
            return result
        cost = outcome.cost
        if outcome.unreadable_cost is not None:
            why = f"its reply says that it cost {outcome.unreadable_cost}, which is not an amount"
            settle = partial(ledger.settle, booking.id, None, unreadable=outcome.unreadable_cost)
            await self._commit_stop(why, settle)
            text = f"{self.definition.name} is stopped until a person has looked at it: {why}."
            result["content"].append({"type": "text", "text": text})
        elif cost is not None and booking.price is not None and cost > booking.reserved:
            why = f"a call cost {dollars(cost)}, and {dollars(booking.reserved)} was agreed"
            await self._commit_stop(why, ledger.settle, booking.id, cost)
        else:
            self._buyer.ledger.post(ledger.settle, booking.id, cost)
        self._note_cost(booking, outcome, result)
        return result

    async def _read_reply(self, booking: Booking, answer: Answer) -> tuple[Outcome, dict[str, Any]]:
        """Read a reply, a long one in a thread. It was paid for: a caller that is cancelled waits for its cost."""
        read = partial(self._read, answer, booking.price)
        try:
            with anyio.CancelScope(shield=True):
                found = await run_off_loop(read, answer.size, self._buyer.workers)
        except BaseException as error:  # a cancellation of asyncio itself gets through
            self.record.outcome = "unknown"
            why = f"the call was given up while its reply was read ({type(error).__name__})"
            await self._commit(self._buyer.ledger.ledger.unknown, booking.id, why)
            raise
        return found

    def _read(self, answer: Answer, price: int | None) -> tuple[Outcome, dict[str, Any]]:
        outcome = read_reply(answer.body, self._buyer.profile.reply, answer.headers)
        return outcome, build_result(outcome, price)

    def _note_cost(self, booking: Booking, outcome: Outcome, result: dict[str, Any]) -> None:
        """Add notes on the cost to the result and the log."""
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
            # The order went through and its tool failed: whether that was charged only the API knows.
            text = f"The API does not say what that cost: {dollars(cost)} counts as spent."
            result["content"].append({"type": "text", "text": text})

    async def _commit_stop(self, why: str, act: Callable[..., Any], *args: Any) -> None:
        """Book a cost that stops the tool. If that fails, it is stopped in this process only."""
        name = self.definition.name
        if await self._commit(act, *args):
            logger.warning("%s is stopped: %s. To go on: toolwire catalog accept %s", name, why, name)
        else:
            self._buyer.unbooked[self.entry] = why
            logger.warning("%s is stopped until this process is started again: %s", name, why)

    def _tell_unknown(self, booking: Booking, why: str) -> str:
        money = f"{dollars(booking.reserved)} stays reserved" if booking.reserved else "its cost is not known"
        return (
            f"{FAILED}{why}. UNKNOWN whether {self.definition.name} was bought: {money} (call {booking.id}). Do "
            "not repeat it by yourself. A person can settle it: toolwire catalog reconcile"
        )

    async def _commit(self, act: Callable[..., Any], *args: Any) -> bool:
        """Book something; False if that fails. It is then retried later, and the model gets its result now.

        Until it is booked the money stays reserved.
        """
        try:
            await self._buyer.ledger.commit(act, *args)
        except CatalogError as error:
            logger.error(  # noqa: TRY400 - the ledger says all there is
                "the ledger could not book that call %s of %s is %s: %s",
                self.record.booking,
                self.record.tool,
                self.record.outcome,
                error,
            )
            with suppress(CatalogError):  # it is closed: the next start books the call as unknown
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
    """Make the call's own id: the same for the same tool use of the model or the same request id of a client."""
    if context.tool_use_id is None and context.request_key is not None:
        parts = [session, context.request_key]  # whatever it asks for now: a client must not use an id twice
    else:
        parts = [session, entry_id, digest, context.tool_use_id or random_bytes.token_hex(8)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _report(context: Context[Any], number: int, message: str) -> None:
    context.progress(number, None, message)
