"""The interface of a ledger: its methods, values and errors.

Money is whole micro-dollars ("micros"; 1,000,000 is one dollar), never a float. A paid call is booked just before
its first byte goes out, in one step that checks everything, and then goes

    sent ──> settled      the reply came; `actual` is what it cost
      ├────> released     nothing was spent
      └────> unknown ───> settled | released      the reply was lost; a person says what became of it

Money counts against the limits from `sent` on: as reserved until it is settled, with its true cost then, and not at
all once it is released. Prices, stops and sums are those of an entry (`entry_id`, which must be unique among all
APIs: the text before its first ":" stands for the API); the name of a tool may change and is there for people. This
module does no I/O and knows no database.

Money can be held for several orders together before the first is sent (`hold`). Such a row is `sent` as well, with
`HELD` as its reason; it goes when its order is booked, when it is dropped, or when its process has died.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, get_args

from toolwire.catalog.money import dollars
from toolwire.errors import CatalogError

State = Literal["sent", "settled", "released", "unknown"]
Grouping = Literal["tool", "day", "session", "state"]
STATES: Final[tuple[State, ...]] = get_args(State)
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

HELD: Final = "reserved for a later step of a chain: nothing was sent"
"""The reason of a row that only holds money (`Ledger.hold`)."""

MOST: Final = 1_000_000_000_000
"""One million dollars: no single call is booked with more, so that sums stay whole numbers of 64 bits."""


class OverBudget(CatalogError):  # noqa: N818 - what happened, not "error"
    """A call that would go over a limit. `limit` names it; `left` and `cost` are micros."""

    def __init__(self, message: str, limit: str = "", left: int = 0, cost: int = 0) -> None:
        self.limit = limit
        self.left = left
        self.cost = cost
        super().__init__(message)


class PriceRaised(CatalogError):  # noqa: N818
    """The list asks more than was agreed to. `pinned` and `offered` are micros."""

    def __init__(self, message: str, pinned: int = 0, offered: int = 0) -> None:
        self.pinned = pinned
        self.offered = offered
        super().__init__(message)


class Busy(CatalogError):  # noqa: N818
    """A call whose cost is not certain is out, perhaps of another process, and only one may be at a time.

    `retryable`: it can be tried again when that call is over; else a person has to reconcile it first.
    """

    def __init__(self, message: str, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(message)


class Duplicate(CatalogError):  # noqa: N818
    """This session has booked a call with that idempotency key before."""


class Unavailable(CatalogError):  # noqa: N818
    """The ledger cannot be reached or written just now: nothing was booked, and it may be tried again."""


class LeaseLost(CatalogError):  # noqa: N818
    """This process was paused, or cut off from the ledger, for so long that others have taken it for dead.

    Nothing may be sent for what it had booked. What it books from now on is under a new owner's name.
    """


class Stopped(CatalogError):  # noqa: N818
    """The tool was stopped, and nobody has accepted it again."""


class Unpriceable(CatalogError):  # noqa: N818
    """Money cannot be held for a call whose price nobody knows."""


def whole(name: str, value: int) -> int:
    """Return an amount in micros. Dollars given by mistake (a float) and negative amounts are refused."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be whole micro-dollars, 0 or more, not {value!r}")
    return value


@dataclass(frozen=True)
class Order:
    """A call that is about to be sent. `digest` stands for its arguments."""

    session: str
    tool: str
    """The present name of the tool, for people."""
    entry_id: str
    """API and id, with a ":" between them."""
    name: str
    """The entry's own name, without what was added to make it unique. A new id inherits by it; "" by none."""
    price: int | None
    """The price in the list; None if there is none."""
    key: str
    """The idempotency key. A session may use one once, unless that call was released; "" is not looked at."""
    digest: str
    variant: str = ""
    """The action, for an entry with a price for each. Prices are agreed to per entry and variant."""
    default_price: int | None = None
    """The user's price for a call if neither the list nor an earlier reply told one."""
    vouched: bool = False
    """The buyer itself sets the price, and keeps the cost within it as far as that can be done, as for a run of a
    batch. Nothing is agreed to or inherited, and any number of such calls may be out."""

    def __post_init__(self) -> None:
        for name in ("price", "default_price"):
            if (value := getattr(self, name)) is not None:
                whole(name, value)
        if self.vouched and self.price is None:
            raise ValueError("an order that is vouched for needs a price")


@dataclass(frozen=True)
class Booking:
    """An order that may be sent now. `reserved` is the most that it may cost, `price` what it is expected to cost.

    `price` is None if nobody knows. `exclusive`: no other call of uncertain cost is out, and none may go out.
    """

    id: str
    reserved: int
    price: int | None
    exclusive: bool


@dataclass(frozen=True)
class Held:
    """Money that is held for an order which may be sent later."""

    id: str
    reserved: int


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
    same_tool: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For a ledger: entry -> others that share its limit of `per_tool`, such as ids that the tool had before."""

    def __post_init__(self) -> None:
        for name in ("per_call", "per_session", "per_day", "total"):
            if (value := getattr(self, name)) is not None:
                whole(name, value)
        for tool, value in self.per_tool.items():
            whole(f"per_tool[{tool!r}]", value)

    def any_for(self, entry_id: str) -> bool:
        """True if any limit applies to an entry."""
        general = (self.per_call, self.per_session, self.per_day, self.total)
        return any(each is not None for each in general) or entry_id in self.per_tool


@dataclass(frozen=True)
class Settled:
    """A call as it was booked. `over`: it cost more than was reserved.

    `unpriced`: neither a price nor a cost was known, so nothing is counted; under a limit it is not bought again.
    `stopped` says why the entry is stopped now because of this reply; "" if it is not.
    """

    id: str
    reserved: int
    actual: int
    over: bool
    unpriced: bool = False
    stopped: str = ""


@dataclass(frozen=True)
class Row:
    """A call in the ledger. `at` and `changed` are seconds since 1970; `day` is the one of UTC that it counts for.

    `price` is what it was expected to cost, None if nobody knew; `guessed`: by the user's default price.
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
    """Sums over the calls of one tool, day, session or state. Released calls are counted, and cost nothing."""

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
    """A price that was agreed to. `offered` is what is asked now, or was charged; if more, it waits to be accepted.

    `confirmed`: a reply was charged no more than that.
    """

    entry_id: str
    tool: str
    price: int
    offered: int
    variant: str = ""
    confirmed: bool = False


@dataclass(frozen=True)
class Unpriced:
    """A tool, or one action of it, whose price neither the list nor a reply told."""

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
    """A text that all who use a ledger share, such as pins. Its version goes up with each change."""

    version: int
    content: str


class Ledger(Protocol):
    """Books money. Every method may be called from any thread, and is done entirely or not at all.

    What cannot be booked raises `CatalogError` and changes nothing: then no request may go out.
    """

    def hold(self, orders: Sequence[tuple[Order, Limits]]) -> list[Held]:
        """Hold the money of several orders, of all or none, before the first of them is sent.

        Raises as `begin` does, and `Unpriceable` if nobody knows what one of them costs.
        """
        ...

    def drop_held(self, ids: Collection[str]) -> None:
        """Give back money that is still held. Ids whose orders were booked meanwhile are left alone."""
        ...

    def begin(self, order: Order, limits: Limits, held: str = "") -> Booking:
        """Check an order against all that is known and book it as sent, in place of what is held for it.

        `OverBudget`, `Stopped`, `PriceRaised`, `Busy`, `Duplicate`: then nothing may be sent.
        """
        ...

    def check_again(self, id: str, limits: Limits) -> None:
        """Raise if a booked order must not be sent once more: `Stopped`, `OverBudget`, or it is no longer sent."""
        ...

    def settle(
        self, id: str, actual: int | None, *, unreadable: str = "", stop_if_over: bool = True
    ) -> Settled:
        """Book what a call cost; None if the reply does not tell. A late reply may settle an unknown call too.

        `unreadable` is a cost that is in the reply and makes no sense: the reserved money counts as spent, and the
        entry is stopped. Without `stop_if_over` a cost above what was reserved is booked, and stops nothing.
        """
        ...

    def release(self, id: str) -> None:
        """Book that nothing was spent."""
        ...

    def unknown(self, id: str, why: str) -> None:
        """Book that the reply was lost: the money stays reserved."""
        ...

    def resolve(self, id: str, charged: bool, amount: int | None = None) -> None:
        """Book what became of an unknown call; no amount is as reserved."""
        ...

    @property
    def owner(self) -> str:
        """Whose the calls are that are booked now: this process, under an id of its own."""
        ...

    @property
    def remote(self) -> bool:
        """True if processes of other machines may book in it too."""
        ...

    @property
    def lease(self) -> float:
        """Seconds after which an owner without a sign of life counts as dead; infinity if it is seen to live."""
        ...

    def beat(self) -> float:
        """Say that this owner lives. Returns the seconds for which that holds: infinity, or a lease.

        `LeaseLost` if the last one was too long ago: others have taken this owner for dead. What it had out is for
        them to book as unknown, and it must stop what it pays for. From then on there is a new owner with a lease
        of its own. Whoever books with a lease need not call this: the ledger does while it is open.
        """
        ...

    def recover(self) -> list[Row]:
        """Book the calls of dead owners as unknown. Returns their rows."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Book all calls that this thread makes inside with one wait for the disk."""
        ...

    def note_entries(self, names: Mapping[str, str]) -> None:
        """Take note of a list that was just read: the name of every entry, by its id.

        An id that is new inherits stops and prices of the entries that had its name before.
        """
        ...

    def stopped(self, entry_id: str) -> str | None:
        """Return why an entry is stopped, None if it is not."""
        ...

    def stop(self, entry_id: str, tool: str, why: str) -> None:
        """Refuse calls of an entry from now on."""
        ...

    def accept(self, entry_id: str) -> None:
        """Allow calls of a stopped entry again."""
        ...

    def stops(self) -> list[Stop]:
        """Return the tools that are stopped."""
        ...

    def price(self, entry_id: str, variant: str = "") -> int | None:
        """Return the price that was agreed to, None if there is none."""
        ...

    def accept_price(self, entry_id: str, price: int, tool: str = "", variant: str = "") -> None:
        """Agree to this price instead, or for the first time."""
        ...

    def prices(self) -> list[Price]:
        """Return the prices that were agreed to."""
        ...

    def rows(
        self, since: float | None = None, states: Collection[State] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Return calls, the newest first."""
        ...

    def totals(self, by: Grouping, since: float | None = None) -> list[Total]:
        """Return sums by tool, day, session or state, in the order of their names."""
        ...

    def unpriced(self) -> list[Unpriced]:
        """Return the tools, or actions of them, whose price neither the list nor a reply told."""
        ...

    def find(self, name: str) -> dict[str, str]:
        """Find the entries that a name stands for (an id, or a tool's name), each with the name of its tool."""
        ...

    def today(self) -> str:
        """Return the day (UTC) that a call made now counts for."""
        ...

    # What those who use the ledger share beside money.

    def take_turn(self, name: str, interval: float, slack: float, at_most: float) -> float | None:
        """Take the next place under a rate limit: one each `interval` seconds, those of `slack` seconds at once.

        Returns the seconds to wait for it; None, and no place is taken, if those are more than `at_most`.
        """
        ...

    def return_turn(self, name: str, interval: float) -> None:
        """Give a place under a rate limit back."""
        ...

    def document(self, name: str) -> Document | None:
        """Return a shared document; None if there is none of that name."""
        ...

    def document_version(self, name: str) -> int:
        """Return the version of a shared document; 0 if there is none."""
        ...

    def change_document(self, name: str, change: Callable[[str | None], str]) -> Document:
        """Replace a shared document by what `change` makes of it, and return it. Others cannot write meanwhile."""
        ...

    @property
    def path(self) -> str:
        """Where the ledger is, for people; without a password."""
        ...

    def close(self) -> None:
        """Close the ledger. Twice is fine."""
        ...


def format_dollars(micros: int) -> str:
    """Format an amount with as many places as it needs."""
    return dollars(micros, 4 if micros % 100 == 0 else 6)


@dataclass(frozen=True)
class Limit:
    """One limit that is set: how much it allows, and how much of that is used. `text` is what people call it."""

    name: str
    most: int
    used: int
    text: str

    def check(self, tool: str, amount: int | None) -> None:
        """Raise `OverBudget` if a call does not fit.

        What is free always fits. What has no known price (None) fits as long as anything is left.
        """
        left = max(self.most - self.used, 0)
        if left >= (1 if amount is None else amount):
            return
        costs = "has no known price" if amount is None else f"costs {format_dollars(amount)}"
        rest = "" if self.name == "call" else f", of which {format_dollars(left)} is left"
        raise OverBudget(
            f"{tool} {costs}, and {self.text} is {format_dollars(self.most)}{rest}: nothing was spent",
            self.name,
            left,
            amount or 0,
        )
