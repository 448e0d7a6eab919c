"""The values and errors of a ledger.

Money is whole micro-dollars ("micros"; 1,000,000 is one dollar), never a float. A paid call is booked just before
its first byte is sent, in one transaction that checks everything. Its state is then

    sent ──> settled      the reply was received; `actual` is the cost
      ├────> released     nothing was spent
      └────> unknown ───> settled | released      the reply was lost; a user decides what happened

Money counts against the limits from `sent` on: the reserved amount until the call is settled, then the true cost,
and nothing once it is released. Prices, stops and sums are kept by entry (`entry_id`, which must be unique among
all APIs: the text before its first ":" identifies the API). The name of a tool may change, and is only for
display. This module does no I/O and knows no database.

Money can be held for several orders together before the first is sent (`hold`). Such a row is `sent` as well, with
`HELD` as its reason. It is removed when its order is booked, when it is dropped, or when its process has died.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from toolwire.catalog.money import dollars
from toolwire.errors import CatalogError

State = Literal["sent", "settled", "released", "unknown"]
Grouping = Literal["tool", "day", "session", "state"]
STATES: Final[tuple[State, ...]] = get_args(State)
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

HELD: Final = "reserved for a later step of a chain: nothing was sent"
"""The reason (`Row.why`) of a row that only holds money (`Ledger.hold`)."""

MOST: Final = 1_000_000_000_000
"""One million dollars, the most that a single call is booked with, so that sums fit 64-bit integers."""


class OverBudget(CatalogError):  # noqa: N818 - named after the reason
    """The call would exceed a limit. `limit` names it; `left` and `cost` are micros."""

    def __init__(self, message: str, limit: str = "", left: int = 0, cost: int = 0) -> None:
        self.limit = limit
        self.left = left
        self.cost = cost
        super().__init__(message)


class PriceRaised(CatalogError):  # noqa: N818
    """The price in the list is higher than the agreed price. `pinned` (agreed) and `offered` are micros."""

    def __init__(self, message: str, pinned: int = 0, offered: int = 0) -> None:
        self.pinned = pinned
        self.offered = offered
        super().__init__(message)


class Busy(CatalogError):  # noqa: N818
    """Another call whose cost is not certain is in flight, perhaps in another process; only one may be at a time.

    `retryable`: the call can be tried again when the other one is over; otherwise a user must reconcile that first.
    """

    def __init__(self, message: str, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(message)


class Duplicate(CatalogError):  # noqa: N818
    """This session has already booked a call with the same idempotency key."""


class Unavailable(CatalogError):  # noqa: N818
    """The ledger cannot be reached or written at the moment. Nothing was booked; a retry may succeed."""


class LeaseLost(CatalogError):  # noqa: N818
    """This process was paused, or disconnected from the ledger, for so long that others have declared it dead.

    Orders that it had booked must not be sent any more. It books new ones under a new owner name.
    """


class Stopped(CatalogError):  # noqa: N818
    """The tool is stopped until a user accepts it again."""


class Unpriceable(CatalogError):  # noqa: N818
    """Money cannot be held for a call without a known price."""


def check_micros(name: str, value: int) -> int:
    """Return an amount in micros. Rejects negative amounts, and floats, which would be dollars by mistake."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be whole micro-dollars, 0 or more, got {value!r}")
    return value


@dataclass(frozen=True)
class Order:
    """A call that is about to be sent. `digest` is a hash of its arguments."""

    session: str
    tool: str
    """The current name of the tool, for display."""
    entry_id: str
    """The API and the id, separated by ":"."""
    name: str
    """The entry's own name, without the suffix that makes it unique. A new id with this name inherits prices
    and stops; with "" it inherits nothing."""
    price: int | None
    """The price in the list; None if the list has none."""
    key: str
    """The idempotency key. A session may use each key once, unless that call was released; "" is not checked."""
    digest: str
    variant: str = ""
    """The action, for an entry with a price for each action. Prices are agreed on per entry and variant."""
    default_price: int | None = None
    """The user's price for a call if neither the list nor an earlier reply had one."""
    vouched: bool = False
    """True if the caller sets the price itself and keeps the cost within it as far as possible, as for a run of a
    batch. Nothing is agreed on or inherited, and any number of such calls may be in flight."""

    def __post_init__(self) -> None:
        for name in ("price", "default_price"):
            if (value := getattr(self, name)) is not None:
                check_micros(name, value)
        if self.vouched and self.price is None:
            raise ValueError("an order with vouched=True needs a price")


@dataclass(frozen=True)
class Booking:
    """An order that may be sent now. `reserved` is the most that it may cost, `price` its expected cost.

    `price` is None if it is unknown. `exclusive`: while this call is in flight, no other call of uncertain cost
    may be.
    """

    id: str
    reserved: int
    price: int | None
    exclusive: bool


@dataclass(frozen=True)
class Limits:
    """Hard limits in micros; None is no limit. Days are UTC; `per_tool` applies per session.

    For a `Catalog` the keys of `per_tool` are tool names; for a ledger they are entry ids, which do not change.
    """

    per_call: int | None = None
    per_session: int | None = None
    per_day: int | None = None
    total: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)
    same_tool: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For a ledger: entry -> other entries that share its `per_tool` limit, such as earlier ids of the tool."""

    def __post_init__(self) -> None:
        for name in ("per_call", "per_session", "per_day", "total"):
            if (value := getattr(self, name)) is not None:
                check_micros(name, value)
        for tool, value in self.per_tool.items():
            check_micros(f"per_tool[{tool!r}]", value)

    def any_for(self, entry_id: str) -> bool:
        """True if any limit applies to an entry."""
        general = (self.per_call, self.per_session, self.per_day, self.total)
        return any(each is not None for each in general) or entry_id in self.per_tool


@dataclass(frozen=True)
class Settled:
    """A call as it was settled. `over`: it cost more than was reserved.

    `unpriced`: neither a price nor a cost was known, so nothing is counted; under a limit it is not bought again.
    `stopped` is the reason if this reply has stopped the entry; "" if not.
    """

    id: str
    reserved: int
    actual: int
    over: bool
    unpriced: bool = False
    stopped: str = ""


@dataclass(frozen=True)
class Row:
    """A call in the ledger. `at` and `changed` are seconds since 1970; `day` is the UTC day that it counts for.

    `price` is the expected cost, None if it was unknown; `guessed`: it was the user's default price.
    """

    id: str
    at: float
    day: str
    session: str
    tool: str
    entry_id: str
    variant: str
    key: str
    digest: str
    price: int | None
    guessed: bool
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
        """The micro-dollars that count against the limits."""
        if self.state == "released":
            return 0
        return self.reserved if self.actual is None else self.actual


@dataclass(frozen=True)
class Total:
    """Sums over the calls of one tool, day, session or state. `calls` includes released ones."""

    name: str
    calls: int
    settled: int
    reserved: int
    unknown: int

    @property
    def money(self) -> int:
        """The micro-dollars that count against the limits."""
        return self.settled + self.reserved + self.unknown


@dataclass(frozen=True)
class Price:
    """An agreed price. `offered` is the current price, or what was charged; a higher one must be accepted first.

    `confirmed`: a reply has charged no more than the agreed price.
    """

    entry_id: str
    tool: str
    price: int
    offered: int
    variant: str = ""
    confirmed: bool = False


@dataclass(frozen=True)
class Unpriced:
    """A tool, or one action of it, whose price is in neither the list nor a reply."""

    entry_id: str
    tool: str
    variant: str = ""


@dataclass(frozen=True)
class Stop:
    """A tool that may not be called."""

    entry_id: str
    tool: str
    why: str
    at: float


@dataclass(frozen=True)
class Document:
    """A text that all users of a ledger share, such as pins. Its version increases with each change."""

    version: int
    content: str


def format_dollars(micros: int) -> str:
    """Format an amount with 4 decimal places, or 6 if it needs them."""
    return dollars(micros, 4 if micros % 100 == 0 else 6)


@dataclass(frozen=True)
class Limit:
    """One limit that is set: how much it allows, and how much of that is used. `text` names it in messages."""

    name: str
    most: int
    used: int
    text: str

    def check(self, tool: str, amount: int | None) -> None:
        """Raise `OverBudget` if a call does not fit.

        A free call always fits. A call without a known price (None) fits as long as anything is left.
        """
        left = max(self.most - self.used, 0)
        if left >= (1 if amount is None else amount):
            return
        costs = "has no known price" if amount is None else f"costs {format_dollars(amount)}"
        rest = "" if self.name == "call" else f" and {format_dollars(left)} is left"
        raise OverBudget(
            f"{tool} {costs}, but {self.text} is {format_dollars(self.most)}{rest}: nothing was spent",
            self.name,
            left,
            amount or 0,
        )
