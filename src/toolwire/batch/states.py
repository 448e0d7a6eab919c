"""The states of a run, and the values that describe runs. Pure: no I/O, no engines, no databases.

waiting ──> running ──> done | failed      the run ended; its cost is booked
   ^           ├──────> unknown ──> done | failed | waiting     its worker was lost: a person decides
   └───────────┤        (on_lost="hold")
               ├──────> waiting            a retryable failure, or a lost worker with "resume" or "again"
               ├──────> refused            the budget has no room for it
               └──────> cancelled
"""

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final, Generic, Literal, TypeVar, get_args

T = TypeVar("T")

State = Literal["waiting", "running", "done", "failed", "unknown", "refused", "cancelled"]
OnLost = Literal["hold", "resume", "again"]
STATES: Final[tuple[State, ...]] = get_args(State)
ON_LOST: Final[tuple[OnLost, ...]] = get_args(OnLost)
OPEN: Final = ("waiting", "running")
ENDED: Final = tuple(state for state in STATES if state not in OPEN)
RETRIED: Final = ("failed", "refused", "cancelled")
"""The states that `retry` queues again by default. An unknown run must be reconciled first."""

POLL: Final = 1.0
"""Seconds between two polls for runs and results."""
BEAT: Final = 5.0
"""Seconds between two heartbeats of a worker."""
STALE: Final = 30.0
"""Seconds without a heartbeat after which a worker counts as lost."""

_PER_DOLLAR: Final = Decimal(1_000_000)


def to_dollars(micros: int) -> Decimal:
    """Convert micro-dollars to dollars, exactly."""
    return Decimal(micros) / _PER_DOLLAR


@dataclass(frozen=True)
class Claim:
    """A run that a worker has claimed, with all it needs to execute it."""

    key: str
    item: str
    """The item as JSON."""
    attempt: int
    session: str
    """The session id of the previous attempt."""
    resumes: bool
    """True if this attempt should continue that session."""
    worker: str
    machine: str
    """The machine of the previous attempt."""
    token: str
    """Identifies this claim: every delivery has its own token, even to the same worker."""


@dataclass(frozen=True)
class RunRow:
    """A run as recorded. Money is in micro-dollars; `cost` is the total of all attempts."""

    key: str
    state: State
    attempt: int
    worker: str
    booking: str
    cost: int
    reserved: int
    result: str
    error: str
    session: str
    machine: str
    resumes: int
    lost: int
    delivery: int
    finished: int


@dataclass(frozen=True)
class Outcome:
    """How one attempt of a run ended, to be booked. `cost` is in micro-dollars; None if it is unknown."""

    state: State
    cost: int | None
    result: str = ""
    """The result of the run as JSON: text, output, usage."""
    error: str = ""
    retryable: bool = False
    """True if the attempt failed in a way that makes a retry safe."""


@dataclass(frozen=True)
class Done(Generic[T]):
    """A run that has ended, as `results()` yields it."""

    key: str
    state: State
    output: T
    """The structured output, an instance of the batch's `output_type`; None if there is none."""
    text: str
    """The text of the result."""
    cost: Decimal
    """The cost of all attempts of this run, in dollars."""
    error: str
    """Why the run failed, was refused or is unknown; "" if it is done."""
    attempts: int
    session_id: str
    usage: dict[str, Any] | None


@dataclass(frozen=True)
class Progress:
    """The progress of a batch: the number of runs by state, and the money in dollars."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    unknown: int = 0
    refused: int = 0
    cancelled: int = 0
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    """Money held for runs in progress and for unknown ones."""
    budget: Decimal | None = None
    workers: int = 0
    """The number of workers with a valid lease."""

    @property
    def total(self) -> int:
        """The number of runs."""
        return sum(getattr(self, state) for state in STATES)

    @property
    def ended(self) -> int:
        """The number of runs that have ended, whatever the outcome."""
        return sum(getattr(self, state) for state in ENDED)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. Dollars are strings, so that they stay exact."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: str(value) if isinstance(value, Decimal) else value for name, value in values.items()}
