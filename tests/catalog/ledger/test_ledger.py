"""Behaviour of every ledger. To test another implementation, add a row to `LEDGERS` of shared.ledgers."""

import contextlib
import threading
from contextlib import closing

import pytest

from shared.ledgers import EVERY_KIND, LEDGERS
from toolwire.catalog.ledger.types import (
    Busy,
    Document,
    Duplicate,
    Limits,
    Order,
    OverBudget,
    PriceRaised,
    Settled,
    Stopped,
    Total,
)
from toolwire.errors import CatalogError

NOON = 1_793_966_400.0  # 2026-11-06 12:00 UTC


class Clock:
    """A clock that only changes when a test sets it."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=EVERY_KIND)
def ledgers(request, clock):
    with closing(LEDGERS[request.param](request, clock=clock)) as opened:
        yield opened


@pytest.fixture
def ledger(ledgers):
    return ledgers.ledger


FREE = Limits()
TOTAL = Limits(total=1_000)


def order(price=10, tool="search", session="s1", *, key="", id=None, name=None, **given):
    """Return an order for the entry `api:TOOL`, or `api:ID` if an id is given."""
    entry = f"api:{tool if id is None else id}"
    return Order(session, tool, entry, tool if name is None else name, price, key, "digest", **given)


def sent(ledger, price=10, limits=FREE, **given):
    """Book a call, which is in flight from then on, and return its id."""
    return ledger.begin(order(price, **given), limits).id


def confirm(ledger, price=10, **given):
    """Settle a first call, without limits, so that its reply confirms the price."""
    ledger.settle(sent(ledger, price, **given), 0)


def money(ledger):
    """Return the money that counts against limits. All groupings, and the rows, must have the same sum."""
    sums = {sum(each.money for each in ledger.totals(by)) for by in ("tool", "day", "session", "state")}
    sums.add(sum(row.money for row in ledger.rows()))
    assert len(sums) == 1
    return sums.pop()


def test_a_call_is_booked_as_sent_and_settled(ledger):
    """Money counts as soon as the call is booked, and at the true cost once it is settled."""
    booking = ledger.begin(order(10, key="k", variant="deep"), FREE)
    assert (booking.reserved, booking.price, booking.exclusive) == (10, 10, False)
    (row,) = ledger.rows()
    assert (row.id, row.state, row.reserved, row.price, row.actual, row.owner, row.day) == (
        (booking.id, "sent", 10, 10, None, "me", "2026-11-06")
    )
    assert (row.session, row.tool, row.entry_id, row.variant, row.key, row.digest) == (
        ("s1", "search", "api:search", "deep", "k", "digest")
    )
    assert money(ledger) == 10
    assert ledger.settle(booking.id, 7) == Settled(booking.id, 10, 7, over=False)
    assert (ledger.rows()[0].state, ledger.rows()[0].actual, money(ledger)) == ("settled", 7, 7)


def test_a_reply_without_a_cost_is_booked_with_what_was_asked(ledger):
    """The listed price counts, even if the agreed price, which was reserved, is higher."""
    confirm(ledger, 10)
    booking = ledger.begin(order(8), FREE)
    assert (booking.reserved, booking.price) == (10, 8)
    assert ledger.settle(booking.id, None) == Settled(booking.id, 10, 8, over=False)


def test_what_was_agreed_to_is_reserved_if_it_fits(ledger):
    """A reply may cost the agreed price. If the limits do not allow that, the listed price is reserved."""
    confirm(ledger, 10)
    assert ledger.begin(order(5), Limits(total=10)).reserved == 10
    assert ledger.begin(order(5), Limits(total=19)).reserved == 5
    with pytest.raises(OverBudget, match=r"costs \$0\.000005"):
        ledger.begin(order(5), Limits(total=19))
    assert ledger.begin(order(5), Limits(per_call=7)).reserved == 5


def test_released_money_is_free_again(ledger):
    """A call that is released does not count against the budget."""
    for _ in range(3):
        ledger.release(sent(ledger, 10, Limits(total=10)))
    assert (money(ledger), ledger.totals("tool")) == (0, [Total("search", 3, 0, 0, 0)])


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(per_session=25), "session"),
        (Limits(per_day=25), "day"),
        (Limits(total=25), "total"),
        (Limits(per_tool={"api:search": 25}), "tool"),
    ],
)
def test_a_limit_counts_settled_reserved_and_unknown_money(ledger, limits, name):
    """Settled, reserved and unknown amounts all reduce what is left, and the refusal says how much that is."""
    for price in (10, 3, 5, 4):
        confirm(ledger, price, variant=str(price))
    ledger.settle(sent(ledger, 10, limits, variant="10"), 8)
    ledger.unknown(sent(ledger, 10, limits, variant="10"), "lost")
    sent(ledger, 3, limits, variant="3")
    with pytest.raises(OverBudget) as refused:
        sent(ledger, 5, limits, variant="5")
    assert (refused.value.limit, refused.value.left, refused.value.cost) == (name, 4, 5)
    assert "search costs $0.000005" in str(refused.value)
    assert "$0.000004 is left" in str(refused.value)
    assert money(ledger) == 21
    sent(ledger, 4, limits, variant="4")


def test_limits_are_of_their_session_tool_and_call(ledger):
    """Calls of another session, of another tool or with a lower price are not refused."""
    limits = Limits(per_call=20, per_session=30, per_tool={"api:search": 10})
    for tool, price in (("search", 10), ("draw", 20), ("paint", 21), ("sing", 1)):
        confirm(ledger, price, tool=tool)
    sent(ledger, 10, limits)
    with pytest.raises(OverBudget, match="the budget of this tool"):
        sent(ledger, 1, limits)
    with pytest.raises(OverBudget, match="the limit for one call is"):
        sent(ledger, 21, limits, tool="paint")
    sent(ledger, 20, limits, tool="draw")
    with pytest.raises(OverBudget, match="the budget of this session"):
        sent(ledger, 1, limits, tool="sing")
    sent(ledger, 10, limits, session="s2")
    assert [(each.name, each.money) for each in ledger.totals("session")] == [("s1", 30), ("s2", 10)]


def test_a_free_call_is_never_over_budget(ledger):
    """A call that costs nothing is allowed even when nothing is left."""
    ledger.settle(sent(ledger, 10, tool="draw"), None)
    sent(ledger, 0, Limits(total=10, per_call=0, per_tool={"api:search": 0}))


def test_the_day_turns_at_midnight_utc(ledger, clock):
    """Money of the previous day does not count against the limit of today."""
    clock.now = NOON + 12 * 3600 - 0.001
    limits = Limits(per_day=10, total=15)
    for price in (10, 5, 1):
        confirm(ledger, price, variant=str(price))
    late = sent(ledger, 10, limits, variant="10")
    with pytest.raises(OverBudget, match=r"the budget of this day \(UTC\)"):
        sent(ledger, 1, limits, variant="1")
    clock.now += 0.001
    sent(ledger, 5, limits, variant="5")
    with pytest.raises(OverBudget, match="whole"):
        sent(ledger, 1, limits, variant="1")
    ledger.settle(late, 9)  # counts for the day on which it was booked
    assert ledger.totals("day") == [Total("2026-11-06", 4, 9, 0, 0), Total("2026-11-07", 1, 0, 5, 0)]
    assert ledger.totals("day", since=clock.now) == [Total("2026-11-07", 1, 0, 5, 0)]


def test_a_clock_that_is_set_back_opens_no_day_again(ledger, clock):
    """No call counts for a day before one that has calls already, and the refusal says which day that is."""
    confirm(ledger)
    clock.now += 86_400
    limits = Limits(per_day=20)
    sent(ledger, 10, limits)
    clock.now -= 2 * 86_400
    assert ledger.today() == "2026-11-07"
    sent(ledger, 10, limits)
    assert [row.day for row in ledger.rows()] == ["2026-11-07", "2026-11-07", "2026-11-06"]
    with pytest.raises(
        OverBudget, match="2026-11-07, because calls were already booked on it.*clock says 2026-11-05"
    ):
        sent(ledger, 10, limits)
    clock.now += 3 * 86_400
    sent(ledger, 10, limits)
    assert ledger.rows()[0].day == ledger.today() == "2026-11-08"


@pytest.mark.parametrize("amount", [-1, 1.5, True, "1"])
def test_amounts_are_whole_micros(ledger, amount):
    """Amounts that are not whole micro-dollars, such as floats, are refused and not rounded."""
    with pytest.raises(ValueError, match="price must be whole micro-dollars"):
        order(amount)
    with pytest.raises(ValueError, match="default_price must be whole micro-dollars"):
        order(None, default_price=amount)
    for name in ("per_call", "per_session", "per_day", "total"):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: amount})
    with pytest.raises(ValueError, match="search"):
        Limits(per_tool={"api:search": amount})
    call = sent(ledger)
    with pytest.raises(ValueError, match="whole micro-dollars"):
        ledger.settle(call, amount)
    assert ledger.rows()[0].state == "sent"


ENDS = {
    "settle": lambda ledger, call: ledger.settle(call, 3),
    "release": lambda ledger, call: ledger.release(call),
    "unknown": lambda ledger, call: ledger.unknown(call, "x"),
    "resolve": lambda ledger, call: ledger.resolve(call, charged=True),
    "check_again": lambda ledger, call: ledger.check_again(call, FREE),
}


@pytest.mark.parametrize(
    ("first", "then"),
    [(first, then) for first in ("settle", "release") for then in ENDS]
    + [("unknown", then) for then in ("release", "unknown", "check_again")]
    + [("", "resolve")],
)
def test_a_call_ends_once(ledger, first, then):
    """To end a call a second time is an error that changes nothing."""
    call = sent(ledger)
    if first:
        ENDS[first](ledger, call)
    before = ledger.rows()
    with pytest.raises(CatalogError, match=f"call {call} .*is {before[0].state}"):
        ENDS[then](ledger, call)
    assert ledger.rows() == before


@pytest.mark.parametrize("then", ENDS)
def test_an_id_that_nobody_gave_out_is_refused(ledger, then):
    """An unknown call id is an error that changes nothing."""
    with pytest.raises(CatalogError, match="there is no call nope"):
        ENDS[then](ledger, "nope")
    assert ledger.rows() == []


@pytest.mark.parametrize(
    ("charged", "amount", "state", "counts"),
    [(True, None, "settled", 10), (True, 12, "settled", 12), (False, None, "released", 0)],
)
def test_an_unknown_call_is_resolved(ledger, charged, amount, state, counts):
    """A user decides whether a lost reply was charged; the row keeps the reason why it was unknown."""
    call = sent(ledger)
    ledger.unknown(call, "read time-out")
    assert (ledger.rows(states=["unknown"])[0].why, money(ledger)) == ("read time-out", 10)
    ledger.resolve(call, charged, amount)
    (row,) = ledger.rows()
    assert (row.state, row.why, money(ledger), ledger.stopped("entry-search")) == (
        state,
        "read time-out",
        counts,
        None,
    )


def test_a_late_answer_settles_an_unknown_call(ledger):
    """A reply that arrives after its call was marked as unknown still settles it."""
    call = sent(ledger)
    ledger.unknown(call, "time-out")
    assert ledger.settle(call, 9).actual == 9
    assert money(ledger) == 9


def test_an_amount_for_what_was_not_charged_makes_no_sense(ledger):
    """To resolve a call as not charged, but with an amount, is refused, and the call stays unknown."""
    call = sent(ledger)
    ledger.unknown(call, "time-out")
    with pytest.raises(CatalogError, match="cannot be booked with"):
        ledger.resolve(call, charged=False, amount=5)
    assert ledger.rows()[0].state == "unknown"


def test_a_reply_over_what_was_reserved_stops_the_tool(ledger):
    """The true cost is booked and flagged, and the tool is stopped until a user accepts it."""
    settled = ledger.settle(sent(ledger), 25)
    assert (settled.over, settled.stopped) == (True, "a call cost $0.000025, but $0.000010 was reserved")
    assert (ledger.rows()[0].over, money(ledger)) == (True, 25)
    assert ledger.stopped("api:search") == settled.stopped
    with pytest.raises(Stopped, match="toolwire catalog accept search"):
        sent(ledger, 0)
    sent(ledger, tool="draw")
    assert [(each.tool, each.at) for each in ledger.stops()] == [("search", NOON)]
    assert [(each.price, each.offered) for each in ledger.prices()] == [(10, 10), (10, 25)]
    ledger.accept("api:search")
    assert (ledger.stopped("api:search"), ledger.stops()) == (None, [])
    sent(ledger)


def test_a_charge_that_was_too_high_makes_a_price_uncertain_again(ledger):
    """After the tool is accepted, it is called one call at a time until a reply confirms the price."""
    confirm(ledger)
    ledger.settle(sent(ledger), 25)
    ledger.accept("api:search")
    assert ledger.begin(order(), TOTAL).exclusive
    with pytest.raises(Busy):
        sent(ledger, 10, TOTAL)


def test_a_tool_can_be_stopped_by_hand(ledger):
    """`stop` and `accept` work for a tool that has no calls, and may be repeated."""
    for why in ("changed", "changed again"):
        ledger.stop("api:search", "search", why)
        assert ledger.stopped("api:search") == why
    ledger.accept("api:search")
    ledger.accept("api:search")
    assert ledger.stopped("api:search") is None


def test_a_cost_beyond_all_sense_is_booked_as_the_most_there_is(ledger):
    """An absurd cost cannot break the sums: $1,000,000 is booked and the tool stopped; such a price is refused."""
    settled = ledger.settle(sent(ledger), 10**30)
    assert (settled.actual, settled.over) == (10**12, True)
    assert money(ledger) == 10**12
    for given in ({"price": 10**12 + 1}, {"price": None, "default_price": 10**30}):
        with pytest.raises(OverBudget, match="the maximum for a single call"):
            sent(ledger, tool="draw", **given)
    assert [each.tool for each in ledger.prices()] == ["search"]


@pytest.mark.parametrize("text", ['"5 EUR"', "1e308", "x" * 5000, "\x1b[2J\n\ud800"])
def test_a_cost_that_cannot_be_read_stops_the_tool(ledger, text):
    """The reserved amount is booked, and the reason quotes the cost, shortened and printable."""
    confirm(ledger)
    settled = ledger.settle(sent(ledger, 8), None, unreadable=text)
    assert (settled.reserved, settled.actual, settled.over, settled.unpriced) == (10, 10, False, False)
    assert settled.stopped.startswith("the cost in a reply cannot be read: ")
    assert settled.stopped.isprintable()
    assert len(settled.stopped) < 130
    with pytest.raises(Stopped, match="cannot be read"):
        sent(ledger)
    with pytest.raises(ValueError, match="cannot both be set"):
        ledger.settle("x", 5, unreadable=text)


def test_a_cost_that_cannot_be_read_is_no_price(ledger):
    """A tool without a known price is stopped by it. Once accepted, it still needs a price if there is a limit."""
    settled = ledger.settle(sent(ledger, None), None, unreadable="?")
    assert (settled.actual, settled.unpriced) == (0, True)
    ledger.accept("api:search")
    with pytest.raises(Stopped, match="no known price"):
        sent(ledger, None, TOTAL)


def test_a_price_is_agreed_to_when_first_asked(ledger):
    """A lower price later does not change the agreed one; a higher one is refused until it is accepted."""
    assert ledger.price("api:search") is None
    for price in (10, 8):
        assert ledger.begin(order(price), FREE).reserved == 10
    with pytest.raises(PriceRaised, match="toolwire catalog accept search") as refused:
        sent(ledger, 11)
    assert (refused.value.pinned, refused.value.offered) == (10, 11)
    assert "the price of search rose from $0.000010 to $0.000011; nothing was bought" in str(refused.value)
    assert (ledger.price("api:search"), ledger.prices()[0].offered, len(ledger.rows())) == (10, 11, 2)
    ledger.accept_price("api:search", 11)
    assert ledger.begin(order(11), FREE).reserved == 11
    assert (ledger.price("api:search"), ledger.prices()[0].offered) == (11, 11)
    ledger.accept_price("api:new", 5)
    assert ledger.price("api:new") == 5
    with pytest.raises(CatalogError):
        ledger.accept_price("api:search", 10**13)


def test_an_order_that_is_refused_agrees_to_nothing(ledger):
    """The price of an order over the budget is not recorded as agreed."""
    with pytest.raises(OverBudget):
        sent(ledger, 11, Limits(per_call=10))
    assert ledger.prices() == []
    sent(ledger, 5)
    assert ledger.price("api:search") == 5


def test_what_is_asked_now_is_what_waits_to_be_accepted(ledger):
    """`offered` is the latest listed price, not an earlier peak; or what a reply has charged, if that is higher."""
    sent(ledger, 10)
    for price in (5_000, 20):
        with pytest.raises(PriceRaised):
            sent(ledger, price)
    assert ledger.prices()[0].offered == 20
    ledger.settle(sent(ledger, 10), 25)
    assert ledger.prices()[0].offered == 25
    ledger.accept_price("api:search", 25)
    assert [(each.tool, each.price, each.offered) for each in ledger.prices()] == [("search", 25, 25)]


def test_each_action_has_its_own_price(ledger):
    """A raised price of one action has to be accepted, while the other action can still be called."""
    for action, price in (("quick", 10), ("deep", 50)):
        confirm(ledger, price, variant=action)
    with pytest.raises(PriceRaised, match=r"search \(quick\) rose"):
        sent(ledger, 11, variant="quick")
    sent(ledger, 50, variant="deep")
    assert [(each.variant, each.price, each.offered) for each in ledger.prices()] == [
        ("deep", 50, 50),
        ("quick", 10, 11),
    ]
    assert (ledger.price("api:search", "deep"), ledger.price("api:search")) == (50, None)


@pytest.mark.parametrize(("before", "after"), [([("", 10)], "deep"), ([("quick", 5), ("deep", 10)], "")])
def test_one_price_and_a_price_by_action_bound_each_other(ledger, before, after):
    """When a list changes from one price to prices by action, or back, the agreed maximum still applies."""
    for variant, price in before:
        confirm(ledger, price, variant=variant)
    with pytest.raises(PriceRaised, match=r"from \$0\.000010 to \$0\.000020"):
        sent(ledger, 20, variant=after)
    sent(ledger, 7, variant=after)
    ledger.accept_price("api:search", 20, "search", after)
    sent(ledger, 20, variant=after)


def test_a_price_that_nobody_tells_holds_back_what_is_limited(ledger):
    """Without a limit, a tool of unknown price can be called again; with one, only once a price is set."""
    free, limited = Limits(per_tool={"api:draw": 1}), Limits(per_tool={"api:search": 10})
    assert ledger.settle(sent(ledger, None, limited), None).unpriced
    assert [(each.entry_id, each.tool, each.variant) for each in ledger.unpriced()] == [
        ("api:search", "search", "")
    ]
    assert ledger.settle(sent(ledger, None, free), None).unpriced
    for limits in (limited, Limits(per_call=10), Limits(per_day=10)):
        with pytest.raises(Stopped, match="toolwire catalog accept search --price"):
            sent(ledger, None, limits)
    ledger.release(sent(ledger, None, Limits(per_day=10), variant="deep"))
    ledger.accept_price("api:search", 5, "search")
    assert (ledger.unpriced(), ledger.prices()[0].tool) == ([], "search")
    assert ledger.begin(order(None), limited).reserved == 5


def test_a_cost_that_is_told_becomes_the_price(ledger):
    """Without an agreed price, the cost in a reply becomes a confirmed price, even after a default price."""
    for tool, default in (("search", None), ("draw", 30)):
        booking = ledger.begin(order(None, tool=tool, default_price=default), TOTAL)
        assert (booking.reserved, booking.price, booking.exclusive) == (default or 0, default, True)
        assert not ledger.settle(booking.id, 20).over
        booking = ledger.begin(order(None, tool=tool, default_price=default), TOTAL)
        assert (booking.reserved, booking.price, booking.exclusive) == (20, 20, False)


def test_a_default_price_is_a_limit_for_the_first_cost(ledger):
    """A first cost above the default price stops the tool."""
    settled = ledger.settle(sent(ledger, None, TOTAL, default_price=30), 40)
    assert (settled.over, settled.unpriced) == (True, False)
    assert [(each.price, each.offered, each.confirmed) for each in ledger.prices()] == [(30, 40, False)]


def test_a_default_price_counts_if_no_reply_ever_tells(ledger):
    """After one reply without a cost, calls at the default price need no longer go out one at a time."""
    booking = ledger.begin(order(None, default_price=30), TOTAL)
    settled = ledger.settle(booking.id, None)
    assert (settled.actual, settled.unpriced, booking.exclusive) == (30, False, True)
    for _ in range(2):
        assert not ledger.begin(order(None, default_price=30), TOTAL).exclusive
    assert ledger.prices() == []
    with pytest.raises(Stopped, match="no known price"):
        sent(ledger, None, TOTAL)


def test_a_name_stands_for_its_entries(ledger):
    """`find` accepts a tool's name, an entry's id, or the part of the id without the API."""
    one, three = (Order("s", "search", f"{api}:1", "search", 10, "", "d") for api in ("one", "three"))
    ledger.begin(one, FREE)
    ledger.stop("two:1", "search", "by hand")
    ledger.accept_price("two:2", 1, "draw")
    both = {"one:1": "search", "two:1": "search"}
    assert (ledger.find("search"), ledger.find("1"), ledger.find("nope")) == (both, both, {})
    assert (ledger.find("two:1"), ledger.find("2")) == ({"two:1": "search"}, {"two:2": "draw"})
    ledger.begin(one, FREE)
    ledger.begin(three, FREE)
    sums = [(each.name, each.money) for each in ledger.totals("tool")]
    assert sums == [("search (one:1)", 20), ("search (three:1)", 10)]


def test_a_tool_of_unknown_price_runs_one_call_at_a_time(ledger):
    """A second call is refused while one is in flight; the first cost does not stop the tool, whatever it is."""
    call = sent(ledger, None)
    with pytest.raises(Busy, match="one at a time") as refused:
        sent(ledger, None, session="s2")
    assert refused.value.retryable
    sent(ledger, None, tool="draw")
    assert not ledger.settle(call, 30).over
    assert ledger.stopped("api:search") is None
    for _ in range(2):
        assert ledger.begin(order(None), FREE).reserved == 30


ENTRY = ("api:search", "s1")
REACH = {
    "per_call": (Limits(per_call=100), {"session"}),
    "per_session": (Limits(per_session=100), {"entry"}),
    "per_tool": (Limits(per_tool={"api:search": 100, "api:draw": 100}), set()),
    "per_day": (Limits(per_day=100), {"entry", "session", "both"}),
    "total": (Limits(total=100), {"entry", "session", "both"}),
    "session and tool": (Limits(per_session=100, per_tool={"api:search": 100}), {"entry"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "blocked"), REACH.values(), ids=REACH)
@pytest.mark.parametrize("price", [None, 10], ids=["unpriced", "unconfirmed"])
def test_calls_of_uncertain_cost_go_out_one_at_a_time_for_a_limit(ledger, limits, blocked, price):
    """Otherwise 25 tools of unknown price could be called at once and spend 25 times what a limit allows."""
    call = sent(ledger, price, limits)
    with pytest.raises(Busy, match="one at a time"):
        sent(ledger, price, limits)
    others = {
        "entry": {"tool": "draw"},
        "session": {"session": "s2"},
        "both": {"tool": "draw", "session": "s2"},
    }
    if price is None:
        blocked = blocked | {"session"}  # calls of one entry without a price never go out together
    for name, given in others.items():
        if name in blocked:
            with pytest.raises(Busy):
                sent(ledger, price, limits, **given)
        else:
            ledger.release(sent(ledger, price, limits, **given))
    ledger.settle(call, 5)
    assert not ledger.begin(order(price), limits).exclusive
    sent(ledger, price, limits, tool="draw")


def test_a_confirmed_price_waits_for_nobody(ledger):
    """Calls with a confirmed price, or under no limit, are not exclusive."""
    confirm(ledger)
    sent(ledger, 10, TOTAL, tool="draw")
    for _ in range(3):
        assert not ledger.begin(order(), TOTAL).exclusive
        assert not ledger.begin(order(tool="sing"), FREE).exclusive
        assert not ledger.begin(order(tool="sing"), Limits(per_tool={"api:draw": 5})).exclusive


@pytest.mark.parametrize(("cost", "confirmed"), [(None, True), (10, True), (3, True), (11, False)])
def test_a_reply_confirms_a_price_that_it_keeps_to(ledger, cost, confirmed):
    """A reply confirms the price if its cost is no higher, or if it has no cost."""
    ledger.settle(sent(ledger, 10, TOTAL), cost)
    assert [each.confirmed for each in ledger.prices()] == [confirmed]


@pytest.mark.parametrize("end", ["release", "unknown"])
def test_what_brought_no_reply_confirms_nothing(ledger, end):
    """A call that is released or unknown leaves the price unconfirmed, so the next call is exclusive too."""
    call = sent(ledger, 10, TOTAL)
    ENDS[end](ledger, call)
    assert ledger.begin(order(), TOTAL).exclusive


def test_a_new_price_is_to_be_confirmed_again(ledger):
    """To accept another price makes it unconfirmed; to accept the same price again does not."""
    confirm(ledger)
    ledger.accept_price("api:search", 10)
    assert ledger.prices()[0].confirmed
    ledger.accept_price("api:search", 20)
    assert not ledger.prices()[0].confirmed


def test_a_lost_reply_of_unknown_price_holds_uncertain_calls_back(ledger):
    """Otherwise lost replies could spend without end. A user who resolves such a call has to give the amount."""
    call = sent(ledger, None, TOTAL)
    ledger.unknown(call, "time-out")
    for given in ({"price": None}, {"price": None, "tool": "draw"}, {"price": 10, "tool": "draw"}):
        with pytest.raises(Busy, match=f"reconcile {call}") as refused:
            sent(ledger, limits=TOTAL, **given)
        assert not refused.value.retryable
    sent(ledger, None, tool="draw")  # without a limit only its own entry is held back
    with pytest.raises(Busy, match=f"reconcile {call}"):
        sent(ledger, None)
    with pytest.raises(CatalogError, match="give the amount that it cost"):
        ledger.resolve(call, charged=True)
    ledger.resolve(call, charged=True, amount=40)
    assert money(ledger) == 40
    sent(ledger, None)


def test_a_lost_reply_of_known_price_holds_nobody_back(ledger):
    """The money of such a call stays reserved, so the limits already count it."""
    ledger.unknown(sent(ledger, 10, TOTAL), "time-out")
    sent(ledger, 10, TOTAL)


def test_a_call_of_a_dead_owner_is_not_waited_for(ledger, ledgers):
    """A call in flight whose owner is dead counts as a lost reply."""
    with ledgers.acting_as("another") as other:
        priced = sent(other, 10, TOTAL)
    with pytest.raises(Busy):
        sent(ledger, 10, TOTAL, tool="draw")
    ledgers.end("another")
    ledger.settle(sent(ledger, 10, TOTAL, tool="draw"), None)
    ledger.settle(priced, None)
    with ledgers.acting_as("a third") as other:
        lost = sent(other, None, TOTAL, tool="sing")
    ledgers.end("a third")
    with pytest.raises(Busy, match=f"reconcile {lost}") as refused:
        sent(ledger, 10, TOTAL, tool="paint")
    assert not refused.value.retryable


def test_a_tool_of_unknown_price_needs_something_left(ledger):
    """If nothing is left of a budget, a call without a known price is refused."""
    sent(ledger, 10, tool="paint")
    ledger.release(sent(ledger, None, Limits(total=11)))
    with pytest.raises(OverBudget, match="has no known price"):
        sent(ledger, None, Limits(total=10), tool="draw")


def test_a_second_attempt_is_checked_again(ledger):
    """A retry is refused after a stop or if a limit was exceeded meanwhile; the check books nothing."""
    confirm(ledger)
    call = sent(ledger, 10, TOTAL)
    before = ledger.rows()
    ledger.check_again(call, TOTAL)
    ledger.check_again(call, Limits(total=10, per_call=5))  # it fits with its own money
    for limits in (
        Limits(total=9),
        Limits(per_day=9),
        Limits(per_session=9),
        Limits(per_tool={"api:search": 9}),
    ):
        with pytest.raises(OverBudget, match="search is not sent again"):
            ledger.check_again(call, limits)
    ledger.settle(sent(ledger, 10, tool="draw"), 2_000)
    with pytest.raises(OverBudget, match="the whole budget"):
        ledger.check_again(call, TOTAL)
    ledger.stop("api:search", "search", "by hand")
    with pytest.raises(Stopped, match="by hand"):
        ledger.check_again(call, FREE)
    assert before[0] in ledger.rows()


def test_a_key_is_good_for_one_call_of_a_session(ledger):
    """A session cannot use a key twice, unless the first call was released; another session can use it."""
    first = sent(ledger, key="k")
    for state in ("sent", "settled"):
        with pytest.raises(Duplicate, match=f"is {state}"):
            sent(ledger, key="k")
        if state == "sent":
            ledger.settle(first, None)
    ledger.release(sent(ledger, key="k", session="s2"))
    sent(ledger, key="k", session="s2")
    assert money(ledger) == 20


def test_the_same_tool_under_a_new_id_keeps_its_price(ledger):
    """A new id inherits the lowest price agreed on for its name; a higher price is refused until it is accepted."""
    ledger.note_entries({"api:1": "search", "api:2": "search"})
    confirm(ledger, 10, id=1, name="search")
    confirm(ledger, 8, id=2, name="search")  # listed together: another product
    assert ledger.price("api:2") == 8
    with pytest.raises(PriceRaised, match=r"from \$0\.000008 to \$10\.0000.*accept api:3"):
        sent(ledger, 10_000_000, id=3, name="search")
    assert (ledger.price("api:3"), ledger.price("api:1")) == (8, 10)
    assert [each.offered for each in ledger.prices() if each.entry_id == "api:3"] == [10_000_000]
    booking = ledger.begin(order(8, id=3, name="search"), TOTAL)
    assert (booking.reserved, booking.exclusive) == (8, True)  # no price of the new id was confirmed


def test_the_same_tool_under_a_new_id_stays_stopped(ledger):
    """The reason says from which id the stop was inherited; each id is accepted on its own."""
    ledger.settle(sent(ledger, 10, id=1, name="search"), 99)
    for number in (2, 3):
        with pytest.raises(
            Stopped, match=r"a call cost .* \(inherited from api:1, which had the same name\)"
        ):
            sent(ledger, 10, id=number, name="search")
    ledger.note_entries({"api:2": "search"})
    ledger.note_entries({"api:4": "search"})
    assert {each.entry_id: each.why.count("inherited") for each in ledger.stops()} == {
        "api:1": 0,
        "api:2": 1,
        "api:4": 1,
    }
    ledger.accept("api:2")
    sent(ledger, 10, id=2, name="search")


def test_the_same_tool_under_a_new_id_stays_unpriced(ledger):
    """That a reply had no cost also counts for a new id of the same name."""
    ledger.settle(sent(ledger, None, id=1, name="search", variant="deep"), None)
    ledger.note_entries({"api:2": "search"})
    with pytest.raises(Stopped, match="no known price"):
        sent(ledger, None, TOTAL, id=2, name="search", variant="deep")
    sent(ledger, None, TOTAL, id=2, name="search")


def test_a_known_id_that_takes_another_name_inherits_too(ledger):
    """Otherwise an id listed in advance could evade this. What is already decided for the id itself stays."""
    confirm(ledger, 10, id=1, name="search")
    ledger.note_entries({"api:2": "decoy", "api:3": "dear"})
    confirm(ledger, 50, id=3, name="dear")
    ledger.note_entries({"api:1": "old", "api:2": "search", "api:3": "search"})
    assert [ledger.price(f"api:{number}") for number in (1, 2, 3)] == [10, 10, 50]
    ledger.note_entries({"api:4": "search"})  # inherits by a name that api:1 no longer has
    assert ledger.price("api:4") == 10


def test_names_of_other_apis_and_empty_names_inherit_nothing(ledger):
    """Ids that were listed before anything was decided inherit nothing either."""
    ledger.note_entries({"api:1": "search", "api:2": "search"})
    ledger.note_entries({"api:5": "", "api:6": ""})
    ledger.settle(sent(ledger, 10, id=1, name="search"), 99)
    ledger.settle(sent(ledger, 10, id=5, name=""), 99)
    ledger.note_entries({"api:2": "search", "other:3": "search", "api:7": "", "api:8": "draw"})
    assert {each.entry_id for each in ledger.stops()} == {"api:1", "api:5"}
    assert {each.entry_id for each in ledger.prices()} == {"api:1", "api:5"}


def test_each_action_is_inherited(ledger):
    """For each action, the lowest price is inherited."""
    for number, action, price in ((1, "quick", 10), (1, "deep", 30), (2, "deep", 20)):
        ledger.note_entries({f"api:{number}": "search", "api:9": "other"})
        ledger.accept_price(f"api:{number}", price, "search", action)
    ledger.note_entries({"api:3": "search"})
    assert [(each.variant, each.price) for each in ledger.prices() if each.entry_id == "api:3"] == [
        ("deep", 20),
        ("quick", 10),
    ]


def test_ten_thousand_new_ids_of_one_name_are_noted(ledger):
    """All of them inherit the price, and to note them again changes nothing."""
    confirm(ledger, 10, id="first", name="search")
    names = {f"api:{number}": "search" for number in range(10_000)}
    ledger.note_entries(names)
    assert len(ledger.prices()) == 10_001
    before = [*ledger.prices(), *ledger.find("search").items()]
    ledger.note_entries(names)
    ledger.note_entries({})
    assert [*ledger.prices(), *ledger.find("search").items()] == before


def test_calls_are_booked_together(ledger):
    """In a group, a refused order is undone alone, but the raised price that it was refused for is recorded."""
    confirm(ledger)
    with ledger.together():
        first = sent(ledger, 10, Limits(total=20))
        second = sent(ledger, 10, Limits(total=20))
        with pytest.raises(OverBudget):
            sent(ledger, 10, Limits(total=20))
        with pytest.raises(PriceRaised):
            sent(ledger, 30)
        ledger.settle(first, 4)
        with pytest.raises(CatalogError, match="there is no call"):
            ledger.release("nope")
        ledger.stop("api:draw", "draw", "by hand")
        assert [row.state for row in ledger.rows(limit=2)] == ["sent", "settled"]
    assert ledger.prices()[0].offered == 30
    assert {row.id: row.state for row in ledger.rows(limit=2)} == {first: "settled", second: "sent"}
    assert (money(ledger), ledger.stopped("api:draw")) == (14, "by hand")


def test_what_gets_out_of_a_group_undoes_it(ledger):
    """An exception that leaves a group rolls it back, and the ledger can be used afterwards."""
    with pytest.raises(ZeroDivisionError), ledger.together():
        sent(ledger)
        sent(ledger, tool="draw")
        1 / 0  # noqa: B018
    assert (ledger.rows(), ledger.prices()) == ([], [])
    with pytest.raises(CatalogError, match="cannot be nested"), ledger.together(), ledger.together():
        pass
    with ledger.together():
        pass
    sent(ledger)


def test_recovery_books_what_the_dead_left(ledger, ledgers):
    """Calls in flight of dead owners become unknown; ended calls, and those of living owners, stay."""
    kept = sent(ledger, tool="mine")
    done = sent(ledger, tool="done")
    ledger.settle(done, 5)
    with ledgers.acting_as("dead") as other:
        lost = sent(other, tool="b")
    with ledgers.acting_as("alive") as other:
        busy = sent(other, tool="c")
    assert ledger.recover() == []
    ledgers.end("dead")
    changed = ledger.recover()
    assert [(row.id, row.state, row.owner) for row in changed] == [(lost, "unknown", "dead")]
    assert "ended before" in changed[0].why
    states = {row.id: row.state for row in ledger.rows()}
    assert (states[kept], states[done], states[busy]) == ("sent", "settled", "sent")
    assert money(ledger) == 10 + 5 + 10 + 10
    ledgers.end("alive")
    assert [row.id for row in ledger.recover()] == [busy]
    assert ledger.recover() == []


def test_what_nobody_touched_for_a_day_is_recovered_too(ledger, clock):
    """No call takes a day, so a call older than that becomes unknown even if its owner is alive."""
    sent(ledger)
    clock.now += 86_400
    assert ledger.recover() == []
    clock.now += 1
    assert [row.state for row in ledger.recover()] == ["unknown"]


def test_rows_are_picked_and_the_newest_come_first(ledger, clock):
    """Rows can be selected by time and state, and limited in number."""
    ids = []
    for _ in range(4):
        ids.append(sent(ledger))
        clock.now += 1
    ledger.settle(ids[1], 1)
    assert [row.id for row in ledger.rows()] == ids[::-1]
    assert [row.id for row in ledger.rows(limit=2)] == ids[:1:-1]
    assert [row.id for row in ledger.rows(since=NOON + 2)] == ids[:1:-1]
    assert [row.id for row in ledger.rows(states={"settled"})] == [ids[1]]
    assert ledger.rows(states=[]) == []
    with pytest.raises(ValueError, match="got 'colour'"):
        ledger.totals("colour")


def test_a_reason_is_cut_and_made_proper_text(ledger):
    """A reason that is too long or not valid Unicode is corrected; a name that is not valid Unicode is refused."""
    call = sent(ledger)
    ledger.unknown(call, "\ud800" + "x" * 5000)
    assert ledger.rows()[0].why == "?" + "x" * 499
    with pytest.raises(CatalogError, match="is not valid text"):
        sent(ledger, tool="\ud800")
    with pytest.raises(CatalogError, match="is not valid text"):
        ledger.note_entries({"api:1": "\ud800", "api:2": "x"})


def test_a_rate_is_shared_by_all_who_use_the_ledger(ledger, ledgers, clock):
    """All owners get turns in the order of their requests; a turn that is too far ahead is not taken."""
    with ledgers.acting_as("another") as other:
        assert [each.take_turn("api", 2.0, 2.0, 60) for each in (ledger, other, ledger, other)] == [
            0,
            0,
            2,
            4,
        ]
        assert other.take_turn("other api", 2.0, 2.0, 60) == 0
        assert ledger.take_turn("api", 2.0, 2.0, 5) is None
        assert ledger.take_turn("api", 2.0, 2.0, 6) == 6
        other.return_turn("api", 2.0)
        assert ledger.take_turn("api", 2.0, 2.0, 6) == 6
    clock.now += 100
    assert [ledger.take_turn("api", 2.0, 2.0, 60) for _ in range(3)] == [0, 0, 2]


def test_a_clock_that_is_set_back_does_not_hold_up_a_rate(ledger, clock):
    """Otherwise nobody would get a turn until the clock had caught up."""
    ledger.take_turn("api", 2.0, 0.0, 60)
    clock.now -= 7_200
    assert ledger.take_turn("api", 2.0, 0.0, 60) == 0
    assert ledger.take_turn("api", 10_000.0, 0.0, 20_000) == 2
    assert ledger.take_turn("api", 10_000.0, 0.0, 20_000) == 10_002


def test_threads_get_a_place_each(ledger):
    """No two threads get the same turn."""
    got = []
    run(lambda: got.append(ledger.take_turn("api", 1.0, 0.0, 1000)), 20)
    assert sorted(got) == list(range(20))


def test_a_document_is_shared_and_has_a_version(ledger, ledgers):
    """A document is replaced as a whole; its version only increases if the content differs."""
    assert (ledger.document("pins"), ledger.document_version("pins")) == (None, 0)
    assert ledger.change_document("pins", lambda before: f"{before} a") == Document(1, "None a")
    with ledgers.acting_as("another") as other:
        assert other.change_document("pins", lambda before: f"{before} b").content == "None a b"
        assert other.change_document("pins", lambda before: before).version == 2
    assert ledger.document("pins") == Document(2, "None a b")
    assert ledger.document_version("pins") == 2
    with pytest.raises(ZeroDivisionError):
        ledger.change_document("pins", lambda _: 1 / 0)
    assert ledger.document_version("pins") == 2


def test_threads_lose_no_change_of_a_document(ledger):
    """Each thread's change is applied to the result of the one before."""
    run(lambda: ledger.change_document("count", lambda before: str(int(before or 0) + 1)), 20)
    assert ledger.document("count") == Document(20, "20")


def test_an_owner_says_that_it_lives(ledger):
    """`beat` returns the length of the lease."""
    assert ledger.beat() == ledger.lease


def run(work, count):
    """Call `work` in `count` threads that start together."""
    start = threading.Barrier(count)

    def begin():
        start.wait(timeout=30)
        work()

    threads = [threading.Thread(target=begin, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.parametrize("grouped", [False, True])
def test_threads_cannot_overrun_a_budget(ledger, grouped):
    """Of 200 concurrent calls under a budget for 50, exactly 50 are booked, grouped or not."""
    confirm(ledger)
    got, refused = [], []

    def work():
        with ledger.together() if grouped else contextlib.nullcontext():
            for _ in range(5):
                try:
                    got.append(sent(ledger, 10, Limits(total=500)))
                except OverBudget:
                    refused.append(1)

    run(work, 40)
    assert (len(got), len(set(got)), len(refused), money(ledger)) == (50, 50, 150, 500)


@pytest.mark.parametrize("price", [None, 10])
def test_threads_send_one_call_of_uncertain_cost(ledger, price):
    """Of 25 tools called at once under one limit, only one call is booked, and its cost counts for the next."""
    got, refused, number = [], [], iter(range(1000))

    def work():
        try:
            got.append(sent(ledger, price, Limits(total=100), tool=f"tool{next(number)}"))
        except Busy:
            refused.append(1)

    run(work, 25)
    assert (len(got), len(refused)) == (1, 24)
    ledger.settle(got[0], 500)
    with pytest.raises(OverBudget):
        sent(ledger, price, Limits(total=100), tool="next")


def vouched(key, price=10):
    """Return an order whose price the buyer itself sets, such as a run of a batch."""
    return Order("s", "batch b", "batch:b", "", price, key, "d", vouched=True)


def test_any_number_of_vouched_calls_may_be_out(ledger):
    """Several may be in flight without a confirmed price, and limits and keys still apply."""
    limits = Limits(per_session=30)
    ids = [ledger.begin(vouched(key), limits).id for key in "abc"]
    with pytest.raises(OverBudget):
        ledger.begin(vouched("d"), limits)
    ledger.settle(ids[0], 4)
    ledger.release(ids[1])
    ledger.begin(vouched("d"), limits)
    with pytest.raises(Duplicate):
        ledger.begin(vouched("a"), limits)


def test_vouched_calls_leave_no_price_behind(ledger):
    """A higher price is no raise. Lost replies stop nothing, nor does a higher cost with `stop_if_over=False`."""
    first = ledger.begin(vouched("a"), FREE)
    assert ledger.settle(first.id, 14, stop_if_over=False) == Settled(first.id, 10, 14, over=True)
    for number in range(8):
        ledger.unknown(ledger.begin(vouched(f"k{number}", 20), FREE).id, "lost")
    assert (ledger.prices(), ledger.stops()) == ([], [])
    ledger.begin(vouched("b", 30), Limits(per_session=1000))


def test_what_is_vouched_for_has_a_price():
    """The price is needed because it is the amount that is reserved."""
    with pytest.raises(ValueError, match="vouched=True needs a price"):
        vouched("a", None)
