"""The interface to the engine that carries a batch's runs to its workers.

Small on purpose, so that another engine can take DBOS's place. What must never happen (a run paid twice, or lost)
does not rest on the engine: `records` has the truth. The engine may deliver twice, late, or to a worker that is
gone; it must deliver what was put in and not cancelled at least once, as long as a worker lives.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Deliver = Callable[[str], Awaitable[None]]
"""Called with the key of a run. The delivery is over when it returns."""


@dataclass(frozen=True)
class Delivery:
    """One delivery of a run: the same key has a new number for each."""

    key: str
    number: int


class Queue(Protocol):
    """Carries the deliveries of one batch. All methods are for one event loop (asyncio)."""

    executor: str
    """The name under which this process takes deliveries; "" if it takes none."""

    async def open(self, deliver: Deliver | None, places: int) -> None:
        """Connect, and with `deliver` begin to take deliveries, at most `places` at a time."""
        ...

    async def put(self, deliveries: Sequence[Delivery]) -> None:
        """Queue deliveries. One that was put before is skipped."""
        ...

    async def locate(self, deliveries: Sequence[Delivery]) -> Mapping[Delivery, str]:
        """Tell where deliveries are: "" waits in the queue, else the executor that took it. Others are over."""
        ...

    async def cancel(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries out of the queue. Those that are being carried out are left alone."""
        ...

    async def stop(self, seconds: float) -> None:
        """Take no more deliveries, and wait until those that were taken are over, at most so long."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
