"""The money of a batch: each attempt of a run is a booking in the ledger, made before its CLI starts.

Owns who may spend, and the order: reserve what a run may cost, then settle what it did cost. An attempt has one
booking, by its key: the ledger itself refuses a second one. A booking that may have been spent is never released.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire.batch.states import Claim, to_dollars
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.types import (
    MOST,
    Duplicate,
    Ledger,
    Limits,
    Order,
    OverBudget,
    Row,
    Stopped,
)
from toolwire.errors import BatchError, CatalogError

logger = logger_for("batch")

_LOOK: Final = 1.0  # seconds between two tries to reserve what others may still give back
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_PATIENCE: Final = 300.0  # seconds that a ledger may be away


class NoMoney(Exception):  # noqa: N818 - what happened
    """The budget has no room for a run any more, whatever becomes of those that are out."""


class AlreadyBooked(Exception):  # noqa: N818 - as above
    """The attempt was booked before, and that booking has ended: it must not be run again."""


class Books:
    """The bookings of one batch. `per_run` and `budget` are micro-dollars; a budget of None has no end."""

    def __init__(self, ledger: Ledger, name: str, uid: str, per_run: int, budget: int | None) -> None:
        self.ledger = ledger
        self._books = AsyncLedger(ledger)
        self._name = name
        self.session = f"batch:{uid}"
        self.per_run = per_run
        self.budget = budget
        self._settled = asyncio.Event()

    async def aclose(self) -> None:
        """Wait for what is being booked."""
        await self._books.aclose()

    async def reserve(self, claim: Claim) -> str:
        """Reserve what an attempt may cost, and return the id of the booking.

        Waits as long as money that is reserved for other runs stands in the way, since they may cost less.
        `NoMoney` if what is spent, or held for unknown runs, leaves no room. Who is cancelled meanwhile calls
        `release_unstarted`.
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
                booking = await self._persist(self._begin, order, limits)
            except OverBudget as error:
                await self._check_room(error)
                try:
                    async with asyncio.timeout(_LOOK):
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
            # A claim is one worker's, so this is our own booking: its commit was made, and the answer lost.
            mine = [row for row in self._rows(("sent",)) if row.key == order.key]
            if not mine:
                raise AlreadyBooked(f"attempt {order.key} is booked and ended: it is not run again") from None
            return mine[0].id

    async def _check_room(self, error: OverBudget) -> None:
        """Raise `NoMoney` if waiting would not help."""
        if self.budget is None:
            raise error
        spent, _, unknown = await self._persist(self._sums)
        if self.budget - spent - unknown < self.per_run:
            held = f", {to_dollars(unknown)} held for unknown runs" if unknown else ""
            raise NoMoney(
                f"the budget of {to_dollars(self.budget)} dollars has no room for a run of"
                f" {to_dollars(self.per_run)}: {to_dollars(spent)} spent{held}"
            ) from error

    async def settle(self, booking: str, cost: int) -> int:
        """Book what an attempt cost, and return what is booked. Twice is the same as once.

        What a person has said about it meanwhile stays: a booking that has ended is never changed.
        """
        booked: int = await self._persist(self._settle, booking, min(cost, MOST))
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
                told = row.key, to_dollars(cost), to_dollars(booked)
                logger.warning("attempt %s cost %s dollars, but was booked with %s before: that stays", *told)
            return booked
        return cost

    async def release(self, booking: str) -> None:
        """Book that an attempt cost nothing, because its CLI was certainly not started."""
        await self._persist(self._release, booking)
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
        """Release the booking of an attempt that was not recorded, if there is one: its CLI was not started."""
        for row in await self._persist(self._rows, ("sent", "unknown")):
            if row.key == key_of(key, attempt):
                await self.release(row.id)

    async def give_up(self, booking: str, why: str) -> None:
        """Book that nobody knows what an attempt cost: its money stays reserved. Twice is the same as once."""
        await self._persist(self._give_up, booking, why)

    def _give_up(self, booking: str, why: str) -> None:
        try:
            self.ledger.unknown(booking, why)
        except CatalogError:
            row = self._find(booking)
            if row is None or row.state == "sent":
                raise

    async def unknown(self) -> list[Row]:
        """List the bookings whose cost nobody knows."""
        found: list[Row] = await self._persist(self._rows, ("unknown",))
        return found

    async def resolve(self, booking: str, cost: int | None) -> int:
        """Book what a person says an unknown attempt cost; None is all that was reserved. Returns the cost."""

        def resolve() -> int:
            row = self._find(booking)
            if row is None or row.state != "unknown":
                raise BatchError(
                    f"booking {booking} is {'not there' if row is None else row.state}, not unknown"
                )
            amount = row.reserved if cost is None else cost
            self.ledger.resolve(booking, charged=amount > 0, amount=amount or None)
            return amount

        return int(await self._persist(resolve))

    async def sums(self) -> tuple[int, int, int]:
        """Return what is spent, reserved, and held for unknown attempts, in micro-dollars."""
        found: tuple[int, int, int] = await self._persist(self._sums)
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

    async def _persist(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call the ledger, again for a while if it fails: a database that is away comes back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        pauses = iter(_PAUSES)
        while True:
            try:
                return await self._books.commit(act, *args)
            except (OverBudget, Stopped, Duplicate):
                raise
            except CatalogError as error:
                if loop.time() > until:
                    raise BatchError(f"the ledger of the batch cannot be used: {error}") from error
                logger.warning("the ledger of the batch failed, trying again: %s", error)
                await asyncio.sleep(next(pauses, _PAUSES[-1]))


def key_of(key: str, attempt: int) -> str:
    """Return the idempotency key of an attempt."""
    return f"{key}#{attempt}"


def attempt_of(row: Row) -> tuple[str, int]:
    """Return the key of the run and the number of the attempt that a booking is for."""
    key, _, attempt = row.key.rpartition("#")
    return key, int(attempt)
