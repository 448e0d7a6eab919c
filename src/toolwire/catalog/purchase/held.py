"""Money that a chain holds for its paid steps: given to the purchase that it is for, or given back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.types import Held
from toolwire.errors import CatalogError


@dataclass(frozen=True)
class Allowance:
    """What a step of a chain may spend: the money that is held for it, and the most that it may cost."""

    entry: str
    held: str
    most: int | None


ALLOWANCE: ContextVar[Allowance | None] = ContextVar("toolwire_allowance", default=None)
"""That of the call that runs now."""


class HeldMoney:
    """The money of all paid steps of one run of a chain. `steps` has the entry of each and the most it may cost."""

    def __init__(
        self, ledger: AsyncLedger, held: Sequence[Held], steps: Sequence[tuple[str, int | None]]
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
        token = ALLOWANCE.set(Allowance(entry, self._held[index].id, most))
        try:
            yield
        finally:
            ALLOWANCE.reset(token)

    def release(self) -> None:
        """Give back what was not used. If the ledger is closed, that is done when this process has ended."""
        with suppress(CatalogError):
            self._ledger.post(self._ledger.ledger.drop_held, [each.id for each in self._held])
