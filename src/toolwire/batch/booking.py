"""The money of a batch: each attempt of a run is a booking in the ledger, made before its CLI starts.

Decides whether a run may spend. First the most that it may cost is reserved, then its actual cost is settled. Each
attempt has one booking, identified by its key; the ledger itself refuses a second one. A booking whose money may
have been spent is never released.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire.batch.states import Claim, to_dollars
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.types import (
    MOST,
    Duplicate,
    Limits,
    Order,
    OverBudget,
    Row,
    Stopped,
)
from toolwire.errors import BatchError, CatalogError

logger = logger_for("batch")

_RESERVE_EVERY: Final = 1.0  # seconds between attempts to reserve money that other runs may still release
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_PATIENCE: Final = 300.0  # seconds to keep retrying while the ledger fails


class NoMoney(Exception):  # noqa: N818 - what happened
    """The budget has no room for another run, whatever the runs in progress turn out to cost."""


class AlreadyBooked(Exception):  # noqa: N818 - as above
    """The attempt was booked before and that booking is closed, so the attempt must not run again."""


class Books:
    """The bookings of one batch. `per_run` and `budget` are micro-dollars; a budget of None is unlimited."""

    def __init__(self, ledger: Ledger, name: str, uid: str, per_run: int, budget: int | None) -> None:
        self.ledger = ledger
        self._async_ledger = AsyncLedger(ledger)
        self._name = name
        self.session = f"batch:{uid}"
        self.per_run = per_run
        self.budget = budget
        self._settled = asyncio.Event()
        self._retries = True

    def stop_retrying(self) -> None:
        """Let every call fail at once if the ledger is unreachable, also those that are being retried."""
        self._retries = False

    async def aclose(self) -> None:
        """Wait until all pending bookings are written."""
        await self._async_ledger.aclose()

    async def reserve(self, claim: Claim) -> str:
        """Reserve the most that an attempt may cost, and return the id of the booking.

        Waits while only money reserved for other runs is in the way, since they may cost less. Raises `NoMoney` if
        the money that is spent, or held for unknown runs, leaves no room. If this call is cancelled, the caller
        must call `release_unstarted`.
        """
        order = Order(
            session=self.session,
            tool=f"batch {self._name}",
            entry_id=f"batch:{self._name}",
            name="",
            price=self.per_run,
            key=key_of(claim.key, claim.attempt),
            digest="",
            vouched=True,
        )
        limits = Limits(per_session=self.budget)
        while True:
            self._settled.clear()
            try:
                booking = await self._call_with_retries(self._begin, order, limits)
            except OverBudget as error:
                await self._check_room(error)
                try:
                    async with asyncio.timeout(_RESERVE_EVERY):
                        await self._settled.wait()
                except TimeoutError:
                    pass
            except Stopped as error:
                raise NoMoney(str(error)) from error
            else:
                return str(booking)

    def _begin(self, order: Order, limits: Limits) -> str:
        try:
            return self.ledger.begin(order, limits).id
        except Duplicate:
            # Only one worker has this claim, so the booking is our own: it was committed, but the reply was lost.
            mine = [row for row in self._rows(("sent",)) if row.key == order.key]
            if not mine:
                raise AlreadyBooked(
                    f"attempt {order.key} is booked and closed, so it is not run again"
                ) from None
            return mine[0].id

    async def _check_room(self, error: OverBudget) -> None:
        """Raise `NoMoney` if waiting would not help."""
        if self.budget is None:
            raise error
        spent, _, unknown = await self._call_with_retries(self._sums)
        if self.budget - spent - unknown < self.per_run:
            held = f", {to_dollars(unknown)} held for unknown runs" if unknown else ""
            raise NoMoney(
                f"the budget of {to_dollars(self.budget)} dollars has no room for a run of"
                f" {to_dollars(self.per_run)}: {to_dollars(spent)} spent{held}; raise the budget and retry"
            ) from error

    async def settle(self, booking: str, cost: int) -> int:
        """Book the cost of an attempt, and return the cost that is booked. Idempotent.

        A closed booking is never changed: if a person has reconciled it meanwhile, their figure stays.
        """
        booked: int = await self._call_with_retries(self._settle, booking, min(cost, MOST))
        self._settled.set()
        return booked

    def _settle(self, booking: str, cost: int) -> int:
        try:
            self.ledger.settle(booking, cost, stop_if_over=False)
        except CatalogError:
            row = self._find(booking)
            if row is None or row.state not in ("settled", "released"):
                raise
            booked = row.actual or 0
            if booked != cost:
                figures = row.key, to_dollars(cost), to_dollars(booked)
                logger.warning(
                    "attempt %s cost %s dollars, but is already booked with %s, which stays", *figures
                )
            return booked
        return cost

    async def release(self, booking: str) -> None:
        """Release the money of an attempt whose CLI was certainly not started."""
        await self._call_with_retries(self._release, booking)
        self._settled.set()

    def _release(self, booking: str) -> None:
        try:
            self.ledger.release(booking)
        except CatalogError:
            row = self._find(booking)
            if row is None or row.state not in ("released", "unknown"):
                raise
            if row.state == "unknown":
                self.ledger.resolve(booking, charged=False)

    async def release_unstarted(self, key: str, attempt: int) -> None:
        """Release the booking of an attempt that was never recorded as started, if there is one."""
        for row in await self._call_with_retries(self._rows, ("sent", "unknown")):
            if row.key == key_of(key, attempt):
                await self.release(row.id)

    async def mark_unknown(self, booking: str, why: str) -> None:
        """Mark the cost of an attempt as unknown, so that its money stays reserved. Idempotent."""
        await self._call_with_retries(self._mark_unknown, booking, why)

    def _mark_unknown(self, booking: str, why: str) -> None:
        try:
            self.ledger.unknown(booking, why)
        except CatalogError:
            row = self._find(booking)
            if row is None or row.state == "sent":
                raise

    async def unknown(self) -> list[Row]:
        """List the bookings whose cost is unknown."""
        found: list[Row] = await self._call_with_retries(self._rows, ("unknown",))
        return found

    async def closed(self, key: str) -> list[Row]:
        """List the bookings of a run whose cost is known."""
        rows: list[Row] = await self._call_with_retries(self._rows, ("settled", "released"))
        return [row for row in rows if attempt_of(row)[0] == key]

    async def resolve(self, booking: str, cost: int | None) -> int:
        """Book the cost that a person gives for an unknown attempt; None means all that was reserved. Return it."""

        def resolve() -> int:
            row = self._find(booking)
            if row is None or row.state != "unknown":
                raise BatchError(
                    f"booking {booking} is {'missing' if row is None else row.state}, not unknown"
                )
            amount = row.reserved if cost is None else cost
            self.ledger.resolve(booking, charged=amount > 0, amount=amount or None)
            return amount

        return int(await self._call_with_retries(resolve))

    async def sums(self) -> tuple[int, int, int]:
        """Return the money spent, reserved, and held for unknown attempts, in micro-dollars."""
        found: tuple[int, int, int] = await self._call_with_retries(self._sums)
        return found

    def _sums(self) -> tuple[int, int, int]:
        for total in self.ledger.totals("session"):
            if total.name == self.session:
                return total.settled, total.reserved, total.unknown
        return 0, 0, 0

    def _rows(self, states: tuple[Any, ...] | None) -> list[Row]:
        return [row for row in self.ledger.rows(states=states) if row.session == self.session]

    def _find(self, booking: str) -> Row | None:
        return next((row for row in self._rows(None) if row.id == booking), None)

    async def _call_with_retries(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call the ledger, and retry for a while if it fails: an unreachable database usually comes back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        pauses = iter(_PAUSES)
        while True:
            try:
                return await self._async_ledger.commit(act, *args)
            except (OverBudget, Stopped, Duplicate):
                raise
            except CatalogError as error:
                if loop.time() > until or not self._retries:
                    seconds = loop.time() - until + _PATIENCE
                    raise BatchError(
                        f"the ledger of the batch failed for {seconds:.0f} seconds: {error}"
                    ) from error
                logger.warning("the ledger of the batch failed, retrying: %s", error)
                await asyncio.sleep(next(pauses, _PAUSES[-1]))


def key_of(key: str, attempt: int) -> str:
    """Return the idempotency key of an attempt."""
    return f"{key}#{attempt}"


def attempt_of(row: Row) -> tuple[str, int]:
    """Return the run's key and the attempt number of a booking."""
    key, _, attempt = row.key.rpartition("#")
    return key, int(attempt)
