"""The interface to the engine that delivers a batch's runs to its workers.

Small on purpose, so that another engine can replace DBOS. The guarantees that matter (no run is lost or paid twice)
do not depend on the engine: `records` is the source of truth. The engine may deliver twice, late, or to a dead
worker. It must deliver everything that was queued and not cancelled at least once, as long as a worker is alive.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Deliver = Callable[[str], Awaitable[None]]
"""Called with the key of a run. The delivery is complete when it returns."""


@dataclass(frozen=True)
class Delivery:
    """One delivery of a run. Each new delivery of the same key has a new number."""

    key: str
    number: int


class Queue(Protocol):
    """Carries the deliveries of one batch. All methods must be called from one asyncio event loop."""

    executor: str
    """The name under which this process receives deliveries; "" if it receives none."""

    async def open(self, deliver: Deliver | None, slots: int) -> None:
        """Connect. With `deliver`, start to receive deliveries, at most `slots` at a time."""
        ...

    async def put(self, deliveries: Sequence[Delivery]) -> None:
        """Queue deliveries. Those that were queued before are skipped."""
        ...

    async def locate(self, deliveries: Sequence[Delivery]) -> Mapping[Delivery, str]:
        """Return where deliveries are: "" in the queue, else the executor that has it. Omits complete ones."""
        ...

    async def cancel(self, deliveries: Sequence[Delivery]) -> None:
        """Remove deliveries from the queue. Those that were already received are left alone."""
        ...

    async def stop(self, seconds: float) -> None:
        """Receive no more deliveries, and wait at most `seconds` until those received are complete."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
