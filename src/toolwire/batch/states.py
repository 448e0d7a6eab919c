"""The states of a run, and the values that describe runs. Pure: no I/O, and nothing of engines or databases.

waiting ──> running ──> done | failed      it ended; its cost is booked
   ^           ├──────> unknown ──> done | failed | waiting     its worker was lost: a person decides
   └───────────┤        (on_lost="hold")
               ├──────> waiting            a failure that may be repeated, or a lost worker with "resume" or "again"
               ├──────> refused            no money is left for it
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
"""What `retry` queues again unless told otherwise. An unknown run is reconciled first."""

POLL: Final = 1.0
"""Seconds between two looks for runs and results."""
BEAT: Final = 5.0
"""Seconds between two signs of life of a worker."""
STALE: Final = 30.0
"""Seconds without one after which it counts as lost."""

_PER_DOLLAR: Final = Decimal(1_000_000)


def to_dollars(micros: int) -> Decimal:
    """Convert micro-dollars to dollars, exactly."""
    return Decimal(micros) / _PER_DOLLAR


@dataclass(frozen=True)
class Claim:
    """A run that a worker has taken: what it needs to carry it out."""

    key: str
    item: str
    """The item as JSON."""
    attempt: int
    session: str
    """The session id of the attempt before."""
    resumes: bool
    """True if that is a conversation to go on with."""
    worker: str
    machine: str
    """The machine of the attempt before."""
    token: str
    """That of the one who claimed it: no other delivery has it, not even to the same worker."""


@dataclass(frozen=True)
class RunRow:
    """A run as it is recorded. Money is micro-dollars; `cost` is that of all its attempts."""

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
    """How one attempt of a run ended, to be booked. `cost` in micro-dollars; None if nobody knows."""

    state: State
    cost: int | None
    result: str = ""
    """What the run answered, as JSON: text, output, usage."""
    error: str = ""
    again: bool = False
    """True if the failure may be repeated without harm."""


@dataclass(frozen=True)
class Done(Generic[T]):
    """A run that has ended, as `results()` yields it."""

    key: str
    state: State
    output: T
    """The structured output, of the batch's `output_type`; None where there is none."""
    text: str
    """The text of the answer."""
    cost: Decimal
    """Dollars, of all attempts of this run."""
    error: str
    """Why it failed, was refused or is unknown; "" if it is done."""
    attempts: int
    session_id: str
    usage: dict[str, Any] | None


@dataclass(frozen=True)
class Progress:
    """How far a batch is: the number of runs by state, and dollars."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    unknown: int = 0
    refused: int = 0
    cancelled: int = 0
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    """Held for runs that are out, and for unknown ones."""
    budget: Decimal | None = None
    workers: int = 0
    """Workers whose lease is fresh."""

    @property
    def total(self) -> int:
        """The number of runs."""
        return sum(getattr(self, state) for state in STATES)

    @property
    def ended(self) -> int:
        """The number of runs that have ended, whatever the outcome."""
        return sum(getattr(self, state) for state in ENDED)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dollars as text, so that they stay exact."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: str(value) if isinstance(value, Decimal) else value for name, value in values.items()}
