"""What every ledger must do. Another implementation runs these tests by adding itself to `LEDGERS`."""

import threading

import pytest

from toolwire.catalog.ledger.sqlite import (
    Busy,
    Duplicate,
    Limits,
    OverBudget,
    PriceCheck,
    Settled,
    Spend,
    SqliteLedger,
    Stopped,
    Total,
)
from toolwire.errors import CatalogError

NOON = 1_793_966_400.0  # 2026-11-06 12:00 UTC
LEDGERS = {
    "file": lambda folder, **given: SqliteLedger(folder / "state" / "ledger.db", **given),
    "memory": lambda folder, **given: SqliteLedger(":memory:", **given),
}


class Clock:
    """A clock that stands until somebody moves it."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=LEDGERS)
def ledger(request, tmp_path, clock):
    with LEDGERS[request.param](tmp_path, clock=clock, owner="me") as opened:
        yield opened


def spend(amount=10, tool="search", session="s1", key="", **given):
    """A call."""
    return Spend(session, tool, f"entry-{tool}", amount, key, "digest", **given)


def booked(ledger, amount=10, limits=Limits(), **given):  # noqa: B008 - frozen
    """The id of a call that is on its way."""
    call = ledger.reserve(spend(amount, **given), limits)
    ledger.sent(call)
    return call


def money(ledger):
    """All money that counts; by every grouping it is the same, and the same as the rows have it."""
    sums = {sum(each.money for each in ledger.totals(by)) for by in ("tool", "day", "session", "state")}
    sums.add(sum(row.money for row in ledger.rows()))
    assert len(sums) == 1
    return sums.pop()


def test_a_call_is_reserved_sent_and_settled(ledger):
    """Money counts from the reservation on, and with its true cost in the end."""
    call = ledger.reserve(spend(10, key="k"), Limits())
    (row,) = ledger.rows()
    assert (row.id, row.state, row.reserved, row.actual, row.owner, row.day) == (
        (call, "reserved", 10, None, "me", "2026-11-06")
    )
    assert (row.session, row.tool, row.entry_id, row.key, row.digest) == (
        ("s1", "search", "entry-search", "k", "digest")
    )
    ledger.sent(call)
    assert (ledger.rows()[0].state, money(ledger)) == ("sent", 10)
    assert ledger.settle(call, 7) == Settled(call, 10, 7, over=False)
    assert (ledger.rows()[0].state, ledger.rows()[0].actual, money(ledger)) == ("settled", 7, 7)


def test_none_settles_as_reserved(ledger):
    """A reply without a cost is booked with what was reserved."""
    assert ledger.settle(booked(ledger), None) == Settled(ledger.rows()[0].id, 10, 10, over=False)


@pytest.mark.parametrize("send", [True, False])
def test_released_money_is_free_again(ledger, send):
    """A call that cost nothing leaves the budget whole, sent or not."""
    limits = Limits(total=10)
    for _ in range(3):
        call = ledger.reserve(spend(10), limits)
        if send:
            ledger.sent(call)
        ledger.release(call)
    assert (money(ledger), ledger.totals("tool")) == (0, [Total("search", 3, 0, 0, 0)])


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(per_session=25), "session"),
        (Limits(per_day=25), "day"),
        (Limits(total=25), "total"),
        (Limits(per_tool={"entry-search": 25}), "tool"),
    ],
)
def test_a_limit_counts_settled_reserved_and_unknown_money(ledger, limits, name):
    """What is spent, under way or lost leaves less for the next call, and the refusal says how much."""
    ledger.settle(booked(ledger, 10, limits), 8)
    ledger.unknown(booked(ledger, 10, limits), "lost")
    ledger.reserve(spend(3), limits)
    with pytest.raises(OverBudget) as refused:
        ledger.reserve(spend(5), limits)
    assert (refused.value.limit, refused.value.left, refused.value.cost) == (name, 4, 5)
    assert "search costs $0.000005" in str(refused.value)
    assert "$0.000004 is left" in str(refused.value)
    assert money(ledger) == 21
    ledger.reserve(spend(4), limits)


def test_limits_are_of_their_session_tool_and_call(ledger):
    """Another session, another tool or a cheaper call is not held back."""
    limits = Limits(per_call=20, per_session=30, per_tool={"entry-search": 10})
    ledger.reserve(spend(10), limits)
    with pytest.raises(OverBudget, match="the budget of this tool"):
        ledger.reserve(spend(1), limits)
    with pytest.raises(OverBudget, match="the limit for one call is"):
        ledger.reserve(spend(21, tool="draw"), limits)
    ledger.reserve(spend(20, tool="draw"), limits)
    with pytest.raises(OverBudget, match="the budget of this session"):
        ledger.reserve(spend(1, tool="draw"), limits)
    ledger.reserve(spend(10, session="s2"), limits)
    assert ledger.totals("session") == [Total("s1", 2, 0, 30, 0), Total("s2", 1, 0, 10, 0)]


def test_a_free_call_is_never_over_budget(ledger):
    """What costs nothing passes when nothing is left."""
    ledger.reserve(spend(10), Limits(total=10))
    ledger.reserve(spend(0), Limits(total=10, per_call=0, per_tool={"entry-search": 0}))


def test_the_day_turns_at_midnight_utc(ledger, clock):
    """Yesterday's money does not count against today."""
    clock.now = NOON + 12 * 3600 - 0.001
    limits = Limits(per_day=10, total=15)
    late = ledger.reserve(spend(10), limits)
    with pytest.raises(OverBudget, match="day"):
        ledger.reserve(spend(1), limits)
    clock.now += 0.001
    ledger.reserve(spend(5), limits)
    with pytest.raises(OverBudget, match="whole"):
        ledger.reserve(spend(1), limits)
    ledger.settle(late, 9)  # stays with the day on which it was reserved
    assert ledger.totals("day") == [Total("2026-11-06", 1, 9, 0, 0), Total("2026-11-07", 1, 0, 5, 0)]
    assert ledger.totals("day", since=clock.now) == [Total("2026-11-07", 1, 0, 5, 0)]


@pytest.mark.parametrize("amount", [-1, 1.5, True, "1"])
def test_amounts_are_whole_micros(ledger, amount):
    """Dollars where micros belong are refused, not rounded."""
    with pytest.raises(ValueError, match="whole micro-dollars"):
        spend(amount)
    for name in ("per_call", "per_session", "per_day", "total"):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: amount})
    with pytest.raises(ValueError, match="search"):
        Limits(per_tool={"entry-search": amount})
    call = booked(ledger)
    with pytest.raises(ValueError, match="whole micro-dollars"):
        ledger.settle(call, amount)
    assert ledger.rows()[0].state == "sent"


ENDS = {
    "settle": lambda ledger, call: ledger.settle(call, 3),
    "release": lambda ledger, call: ledger.release(call),
    "unknown": lambda ledger, call: ledger.unknown(call, "x"),
    "sent": lambda ledger, call: ledger.sent(call),
    "resolve": lambda ledger, call: ledger.resolve(call, charged=True),
}


@pytest.mark.parametrize(
    ("first", "then"),
    [(first, then) for first in ("settle", "release") for then in ENDS]
    + [("unknown", then) for then in ("release", "unknown", "sent")]
    + [("sent", "sent"), ("sent", "resolve")],
)
def test_a_call_ends_once(ledger, first, then):
    """Double booking is a clear error and changes nothing."""
    call = booked(ledger)
    if first != "sent":
        ENDS[first](ledger, call)
    before = ledger.rows()
    with pytest.raises(CatalogError, match=f"call {call} .*is {before[0].state}"):
        ENDS[then](ledger, call)
    assert ledger.rows() == before


@pytest.mark.parametrize("then", ENDS)
def test_an_id_that_nobody_gave_out_is_refused(ledger, then):
    """A call that is not in the ledger cannot be booked."""
    with pytest.raises(CatalogError, match="there is no call nope"):
        ENDS[then](ledger, "nope")
    assert ledger.rows() == []


@pytest.mark.parametrize(
    ("charged", "amount", "state", "counts"),
    [(True, None, "settled", 10), (True, 12, "settled", 12), (False, None, "released", 0)],
)
def test_an_unknown_call_is_resolved(ledger, charged, amount, state, counts):
    """A person says what became of a lost answer; the reason for the doubt stays in the row."""
    call = booked(ledger)
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
    """An answer is an answer, also when it was thought lost."""
    call = booked(ledger)
    ledger.unknown(call, "time-out")
    assert ledger.settle(call, 9).actual == 9
    assert money(ledger) == 9


def test_an_amount_for_what_was_not_charged_makes_no_sense(ledger):
    """A contradiction is refused, and the call stays unknown."""
    call = booked(ledger)
    ledger.unknown(call, "time-out")
    with pytest.raises(CatalogError, match="cannot be booked with"):
        ledger.resolve(call, charged=False, amount=5)
    assert ledger.rows()[0].state == "unknown"


def test_a_reply_over_what_was_reserved_stops_the_tool(ledger):
    """It is booked with what it cost, flagged, and the tool is stopped until somebody accepts it."""
    ledger.pin_price("entry-search", "search", 10)
    assert ledger.settle(booked(ledger), 25).over
    assert (ledger.rows()[0].over, money(ledger)) == (True, 25)
    assert "cost $0.000025" in ledger.stopped("entry-search")
    with pytest.raises(Stopped, match="toolwire catalog accept search"):
        ledger.reserve(spend(0), Limits())
    ledger.reserve(spend(tool="draw"), Limits())
    assert [(each.tool, each.at) for each in ledger.stops()] == [("search", NOON)]
    assert ledger.pin_price("entry-search", "search", 10).accepted  # what the list says is not what it costs
    assert [(each.price, each.offered) for each in ledger.prices()] == [(10, 25)]
    ledger.accept("entry-search")
    assert (ledger.stopped("entry-search"), ledger.stops()) == (None, [])
    ledger.reserve(spend(), Limits())


def test_a_tool_can_be_stopped_by_hand(ledger):
    """Stop and accept work without a bill, and twice."""
    for why in ("changed", "changed again"):
        ledger.stop("entry-search", "search", why)
        assert ledger.stopped("entry-search") == why
    ledger.accept("entry-search")
    ledger.accept("entry-search")
    assert ledger.stopped("entry-search") is None


def test_a_cost_beyond_all_sense_is_booked_as_the_most_there_is(ledger):
    """A hostile reply cannot break the sums: one million dollars is booked, and the tool stopped."""
    assert ledger.settle(booked(ledger), 10**30) == Settled(ledger.rows()[0].id, 10, 10**12, over=True)
    assert money(ledger) == 10**12
    with pytest.raises(OverBudget, match="one call"):
        ledger.reserve(spend(10**12 + 1, tool="draw"), Limits())


def test_a_price_is_pinned_when_first_seen(ledger):
    """Lower is fine and moves nothing, higher is refused until it is accepted."""
    assert ledger.price("e") is None
    assert ledger.pin_price("e", "search", 10) == PriceCheck(accepted=True, pinned=10, offered=10, first=True)
    assert ledger.pin_price("e", "search", 8) == PriceCheck(accepted=True, pinned=10, offered=8)
    assert ledger.pin_price("e", "search", 11) == PriceCheck(accepted=False, pinned=10, offered=11)
    assert (ledger.price("e"), ledger.prices()[0].offered) == (10, 11)
    ledger.accept_price("e", 11)
    assert ledger.pin_price("e", "search", 11).accepted
    assert (ledger.price("e"), ledger.prices()[0].offered) == (11, 11)
    ledger.accept_price("new", 5)
    assert ledger.price("new") == 5
    with pytest.raises(CatalogError):
        ledger.accept_price("e", 10**13)


def test_what_is_asked_now_is_what_waits_to_be_accepted(ledger):
    """A spike that went by is not accepted with it; what was charged is, whatever the list says."""
    for price in (10, 5_000, 20):
        check = ledger.pin_price("entry-search", "search", price)
    assert (check.accepted, ledger.prices()[0].offered) == (False, 20)
    ledger.settle(booked(ledger), 25)
    ledger.pin_price("entry-search", "search", 10)
    assert ledger.prices()[0].offered == 25
    ledger.accept_price("entry-search", 25)
    assert [(each.tool, each.price, each.offered) for each in ledger.prices()] == [("search", 25, 25)]


def test_a_price_that_nobody_tells_holds_back_what_is_limited(ledger):
    """Without a limit it goes on; with one it does not, until a price is pinned."""
    free, limited = Limits(per_tool={"entry-draw": 1}), Limits(per_tool={"entry-search": 10})
    assert ledger.settle(booked(ledger, 0, limited, exclusive=True), None).untold
    assert ledger.untold() == {"entry-search": "search"}
    assert ledger.settle(booked(ledger, 0, free, exclusive=True), None).untold
    for limits in (limited, Limits(per_call=10), Limits(per_day=10)):
        with pytest.raises(Stopped, match="toolwire catalog accept search --price"):
            ledger.reserve(spend(0, exclusive=True), limits)
    ledger.accept_price("entry-search", 5, "search")
    assert (ledger.untold(), ledger.prices()[0].tool) == ({}, "search")


def test_a_name_stands_for_its_entries(ledger):
    """A tool's name, an entry's id, or the part of it that the API knows."""
    ledger.reserve(Spend("s", "search", "one:1", 10, "", "d"), Limits())
    ledger.stop("two:1", "search", "by hand")
    ledger.pin_price("two:2", "draw", 1)
    both = {"one:1": "search", "two:1": "search"}
    assert (ledger.named("search"), ledger.named("1"), ledger.named("nope")) == (both, both, {})
    assert (ledger.named("two:1"), ledger.named("2")) == ({"two:1": "search"}, {"two:2": "draw"})
    ledger.reserve(Spend("s", "search", "one:1", 10, "", "d"), Limits())
    ledger.reserve(Spend("s", "search", "three:1", 5, "", "d"), Limits())
    sums = [(each.name, each.money) for each in ledger.totals("tool")]
    assert sums == [("search (one:1)", 20), ("search (three:1)", 5)]


def test_a_tool_of_unknown_price_runs_one_call_at_a_time(ledger):
    """The next one is refused while one is under way, and its first cost is no broken promise."""
    call = booked(ledger, 0, exclusive=True)
    with pytest.raises(Busy, match="one at a time"):
        ledger.reserve(spend(0, exclusive=True, session="s2"), Limits())
    ledger.reserve(spend(0, exclusive=True, tool="draw"), Limits())
    assert not ledger.settle(call, 30).over
    assert ledger.stopped("entry-search") is None
    ledger.reserve(spend(0, exclusive=True), Limits())


def test_a_lost_answer_of_unknown_price_holds_the_tool_back(ledger):
    """Else lost answers could spend without end. The person who resolves it has to say the amount."""
    call = booked(ledger, 0, exclusive=True)
    ledger.unknown(call, "time-out")
    with pytest.raises(Busy, match=f"reconcile {call}"):
        ledger.reserve(spend(0, exclusive=True), Limits())
    with pytest.raises(CatalogError, match="say what it cost"):
        ledger.resolve(call, charged=True)
    ledger.resolve(call, charged=True, amount=40)
    assert money(ledger) == 40
    ledger.reserve(spend(0, exclusive=True), Limits())


def test_a_tool_of_unknown_price_needs_something_left(ledger):
    """With nothing left of a budget there is nothing that an unknown price could fit in."""
    ledger.reserve(spend(10), Limits())
    ledger.reserve(spend(0, exclusive=True), Limits(total=11))
    with pytest.raises(OverBudget, match="has no known price"):
        ledger.reserve(spend(0, exclusive=True, tool="draw"), Limits(total=10))


def test_a_key_is_good_for_one_call_of_a_session(ledger):
    """The same call is not booked twice, unless nothing came of the first; another session is another matter."""
    first = booked(ledger, key="k")
    for state in ("sent", "settled"):
        with pytest.raises(Duplicate, match=f"is {state}"):
            ledger.reserve(spend(key="k"), Limits())
        if state == "sent":
            ledger.settle(first, None)
    other = ledger.reserve(spend(key="k", session="s2"), Limits())
    ledger.release(other)
    ledger.reserve(spend(key="k", session="s2"), Limits())
    assert money(ledger) == 20


def test_recovery_books_what_the_dead_left(ledger, clock):
    """Not sent is released, sent is unknown; rows that are over, and those of the living, stay."""
    kept = ledger.reserve(spend(tool="mine"), Limits())
    done = booked(ledger, tool="done")
    ledger.settle(done, 5)
    ledger.owner = "dead"
    reserved, sent = ledger.reserve(spend(tool="a"), Limits()), booked(ledger, tool="b")
    ledger.owner = "alive"
    busy = booked(ledger, tool="c")
    ledger.owner = "me"
    asked = []
    changed = ledger.recover(lambda owner: asked.append(owner) or owner == "alive")
    assert sorted(asked) == ["alive", "dead"]
    assert [(row.id, row.state) for row in changed] == [(reserved, "released"), (sent, "unknown")]
    assert "ended before" in changed[1].why
    states = {row.id: row.state for row in ledger.rows()}
    assert (states[kept], states[done], states[busy]) == ("reserved", "settled", "sent")
    assert money(ledger) == 10 + 5 + 10 + 10
    assert ledger.recover(lambda _: False) != []  # only "alive" was left
    assert ledger.recover(lambda _: False) == []


def test_what_nobody_touched_for_a_day_is_recovered_too(ledger, clock):
    """No call lives that long: whoever owns it has forgotten it."""
    booked(ledger)
    clock.now += 86_400
    assert ledger.recover(lambda _: True) == []
    clock.now += 1
    assert [row.state for row in ledger.recover(lambda _: True)] == ["unknown"]


def test_rows_are_picked_and_the_newest_come_first(ledger, clock):
    """By time, state and number."""
    ids = []
    for _ in range(4):
        ids.append(booked(ledger))
        clock.now += 1
    ledger.settle(ids[1], 1)
    assert [row.id for row in ledger.rows()] == ids[::-1]
    assert [row.id for row in ledger.rows(limit=2)] == ids[:1:-1]
    assert [row.id for row in ledger.rows(since=NOON + 2)] == ids[:1:-1]
    assert [row.id for row in ledger.rows(states={"settled"})] == [ids[1]]
    assert ledger.rows(states=[]) == []
    with pytest.raises(ValueError, match="by 'colour'"):
        ledger.totals("colour")


def test_a_reason_is_cut_and_made_proper_text(ledger):
    """The words of others may be long and broken."""
    call = booked(ledger)
    ledger.unknown(call, "\ud800" + "x" * 5000)
    assert ledger.rows()[0].why == "?" + "x" * 499
    with pytest.raises(CatalogError, match="no proper text"):
        ledger.reserve(spend(tool="\ud800"), Limits())


def test_threads_cannot_overrun_a_budget(ledger):
    """Of 200 threads that want a place in a budget for 50, exactly 50 get one."""
    start, got, refused = threading.Barrier(200), [], []

    def work():
        start.wait(timeout=30)
        try:
            got.append(ledger.reserve(spend(10), Limits(total=500)))
        except OverBudget:
            refused.append(1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert (len(got), len(set(got)), len(refused), money(ledger)) == (50, 50, 150, 500)
