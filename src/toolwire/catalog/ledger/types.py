"""What a ledger of money is asked and what it answers: values, errors, and the interface itself.

Money is whole micro-dollars ("micros"; 1,000,000 is one dollar), never a float. A call that costs money goes

    reserved ──> sent ──> settled      the answer came; `actual` is what it cost
        │         ├─────> released     nothing was spent
        │         └─────> unknown ───> settled | released   the answer was lost; a person says what became of it
        └───────> released

Money counts against the limits from `reserved` on: as reserved until it is settled, with its true cost then, and
not at all once it is released. Prices, stops and sums are those of an entry (`entry_id`, which must be unique among
all APIs); the name of a tool may change and is there for people. This module does no I/O and knows no database.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, get_args

from toolwire.catalog.money import dollars
from toolwire.errors import CatalogError

State = Literal["reserved", "sent", "settled", "released", "unknown"]
Grouping = Literal["tool", "day", "session", "state"]
STATES: Final[tuple[State, ...]] = get_args(State)
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

MOST: Final = 1_000_000_000_000
"""One million dollars: no single call is booked with more, so that sums stay whole numbers of 64 bits."""


class OverBudget(CatalogError):  # noqa: N818 - what happened, not "error"
    """A call that would go over a limit. `limit` names it; `left` and `cost` are micros."""

    def __init__(self, message: str, limit: str = "", left: int = 0, cost: int = 0) -> None:
        self.limit = limit
        self.left = left
        self.cost = cost
        super().__init__(message)


class Busy(CatalogError):  # noqa: N818
    """A tool of unknown price is being called already, perhaps by another process. One at a time."""


class Duplicate(CatalogError):  # noqa: N818
    """This session has booked a call with that idempotency key before."""


class Stopped(CatalogError):  # noqa: N818
    """The tool was stopped, and nobody has let it run again."""


def whole(name: str, value: int) -> int:
    """An amount in micros. Dollars given by mistake (a float) and negative amounts are refused."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be whole micro-dollars, 0 or more, not {value!r}")
    return value


@dataclass(frozen=True)
class Spend:
    """A call that wants money. `key` is the idempotency key of the call, `digest` stands for its arguments.

    `exclusive` is for a tool whose price is not known: `amount` is 0 then, and one call runs at a time.
    A session may use a key once, unless that call was released; an empty key is not looked at.
    """

    session: str
    tool: str
    entry_id: str
    amount: int
    key: str
    digest: str
    exclusive: bool = False

    def __post_init__(self) -> None:
        whole("amount", self.amount)


@dataclass(frozen=True)
class Limits:
    """Hard limits in micros; None is no limit. A day is one of UTC; `per_tool` is per session.

    For a `Catalog` the keys of `per_tool` are names of tools; for a ledger, which knows better, ids of entries.
    """

    per_call: int | None = None
    per_session: int | None = None
    per_day: int | None = None
    total: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("per_call", "per_session", "per_day", "total"):
            if (value := getattr(self, name)) is not None:
                whole(name, value)
        for tool, value in self.per_tool.items():
            whole(f"per_tool[{tool!r}]", value)

    def any_for(self, entry_id: str) -> bool:
        """Whether an entry is under any limit."""
        general = (self.per_call, self.per_session, self.per_day, self.total)
        return any(each is not None for each in general) or entry_id in self.per_tool


@dataclass(frozen=True)
class Settled:
    """How a call was booked. `over`: it cost more than was reserved, and its tool is stopped now.

    `untold`: neither a price nor a cost was known, so nothing is counted; under a limit it is not bought again.
    """

    id: str
    reserved: int
    actual: int
    over: bool
    untold: bool = False


@dataclass(frozen=True)
class Row:
    """A call in the ledger. `at` and `changed` are seconds since 1970, `day` is that of `at`."""

    id: str
    at: float
    day: str
    session: str
    tool: str
    entry_id: str
    key: str
    digest: str
    reserved: int
    exclusive: bool
    owner: str
    state: State
    actual: int | None
    over: bool
    why: str
    changed: float

    @property
    def money(self) -> int:
        """What counts against the limits."""
        if self.state == "released":
            return 0
        return self.reserved if self.actual is None else self.actual


@dataclass(frozen=True)
class Total:
    """Sums over the calls of one tool, day, session or state. Released calls are counted, and cost nothing."""

    name: str
    calls: int
    settled: int
    reserved: int
    unknown: int

    @property
    def money(self) -> int:
        """What counts against the limits."""
        return self.settled + self.reserved + self.unknown


@dataclass(frozen=True)
class PriceCheck:
    """Whether a price may be paid. `pinned` is the highest price accepted so far."""

    accepted: bool
    pinned: int
    offered: int
    first: bool = False


@dataclass(frozen=True)
class Price:
    """A pinned price. `offered` is what is asked now, or was charged: above `price` it waits to be accepted."""

    entry_id: str
    tool: str
    price: int
    offered: int


@dataclass(frozen=True)
class Stop:
    """A tool that may not be called."""

    entry_id: str
    tool: str
    why: str
    at: float


class Ledger(Protocol):
    """Where money is booked. Every method may be called from any thread, and all or nothing of it happens.

    What cannot be booked raises `CatalogError` and changes nothing: then no request may go out.
    """

    def reserve(self, spend: Spend, limits: Limits) -> str:
        """Put money aside and return the id of the call. `OverBudget`, `Stopped`, `Busy`, `Duplicate`."""
        ...

    def sent(self, id: str) -> None:
        """Tell that the request goes out now. It must not, if this raises."""
        ...

    def settle(self, id: str, actual: int | None) -> Settled:
        """Book what the call cost; None is as reserved. A late answer may settle an unknown call too."""
        ...

    def release(self, id: str) -> None:
        """Tell that nothing was spent."""
        ...

    def unknown(self, id: str, why: str) -> None:
        """Tell that the answer was lost: the money stays reserved."""
        ...

    def resolve(self, id: str, charged: bool, amount: int | None = None) -> None:
        """Book what became of an unknown call; no amount is as reserved."""
        ...

    def recover(self, owner_alive: Callable[[str], bool]) -> list[Row]:
        """Book what dead owners left: what was not sent is released, what was is unknown. The rows changed."""
        ...

    def stopped(self, entry_id: str) -> str | None:
        """Why an entry is stopped, None if it is not."""
        ...

    def stop(self, entry_id: str, tool: str, why: str) -> None:
        """Let an entry be called no more."""
        ...

    def accept(self, entry_id: str) -> None:
        """Let a stopped entry be called again."""
        ...

    def stops(self) -> list[Stop]:
        """The tools that are stopped."""
        ...

    def price(self, entry_id: str) -> int | None:
        """The pinned price, None if none was seen."""
        ...

    def pin_price(self, entry_id: str, tool: str, price: int) -> PriceCheck:
        """Check a price. The first one is pinned; a lower one is fine and leaves the pin; a higher one is not."""
        ...

    def accept_price(self, entry_id: str, price: int, tool: str = "") -> None:
        """Pin this price instead, or for the first time."""
        ...

    def prices(self) -> list[Price]:
        """The pinned prices."""
        ...

    def rows(
        self, since: float | None = None, states: Collection[State] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Calls, the newest first."""
        ...

    def totals(self, by: Grouping, since: float | None = None) -> list[Total]:
        """Sums by tool, day, session or state, in the order of their names."""
        ...


def shown(micros: int) -> str:
    """An amount for people, with as many places as it needs."""
    return dollars(micros, 4 if micros % 100 == 0 else 6)


_OF: Final = {
    "call": "the limit for one call",
    "session": "the budget of this session",
    "tool": "the budget of this tool",
    "day": "the budget of this day (UTC)",
    "total": "the whole budget",
}


def check(spend: Spend, limit: str, most: int, used: int) -> None:
    """Raise `OverBudget` if a call does not fit under a limit of which so much is used. Pure.

    What is free always fits. What has no known price fits as long as anything is left.
    """
    left = max(most - used, 0)
    if spend.amount > left or (spend.exclusive and left == 0):
        costs = (
            f"costs {shown(spend.amount)}" if spend.amount or not spend.exclusive else "has no known price"
        )
        rest = "" if limit == "call" else f", of which {shown(left)} is left"
        raise OverBudget(
            f"{spend.tool} {costs}, and {_OF[limit]} is {shown(most)}{rest}: nothing was spent",
            limit,
            left,
            spend.amount,
        )
