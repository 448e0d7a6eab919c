"""The interface by which a chain reserves the money of its paid steps before the first of them runs."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class PlannedCall:
    """A paid call that is to come, with those of its arguments that are known already."""

    tool: str
    arguments: Mapping[str, Any]
    max_price: float | str | None = None
    """The most that it may cost, in dollars; what it counts as if its price is not known."""


class Reservation(Protocol):
    """Money that is reserved for several calls."""

    @property
    def micros(self) -> int:
        """The sum, in micro-dollars."""
        ...

    def using(self, index: int) -> AbstractContextManager[None]:
        """Let the call that is made inside the block use the money of the planned call of that index."""
        ...

    def release(self) -> None:
        """Give back what was not used. Never waits."""
        ...


class Reserver(Protocol):
    """Whoever pays for calls."""

    def quote(self, calls: Sequence[PlannedCall]) -> str:
        """Return a sentence on what these calls cost together, "" if that is not known."""
        ...

    async def reserve(self, calls: Sequence[PlannedCall]) -> Reservation:
        """Reserve the money of all of these calls, or of none. `CatalogError` says why it cannot be."""
        ...
