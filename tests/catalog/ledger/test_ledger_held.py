"""Money that is held for several orders: for all or none of them, until each order is booked in its place."""

from contextlib import closing

import pytest

from shared.ledgers import EVERY_KIND, LEDGERS
from toolwire.catalog.ledger.types import HELD, Limits, Order, OverBudget, PriceRaised, Stopped, Unpriceable

LIMITS = Limits(per_session=100)


@pytest.fixture
def clock():
    """A clock that only changes when a test sets it."""
    return [1_793_966_400.0]


@pytest.fixture(params=EVERY_KIND)
def ledgers(request, clock):
    with closing(LEDGERS[request.param](request, clock=lambda: clock[0])) as opened:
        yield opened


@pytest.fixture
def ledger(ledgers):
    return ledgers.ledger


def order(entry, price, key="", **more):
    return Order("s", entry, f"api:{entry}", entry, price, key, "d", **more)


def used(ledger):
    """Return the sum that counts against the session's limit."""
    return sum(total.money for total in ledger.totals("session"))


def fits(ledger, price):
    """Return True if the limits leave room for an order at this price."""
    try:
        (held,) = ledger.hold([(order(f"probe{price}", price), LIMITS)])
    except OverBudget:
        return False
    ledger.drop_held([held.id])
    return True


def test_all_or_none(ledger):
    """If one order does not fit, no money is held for any of them."""
    with pytest.raises(OverBudget, match="is left"):
        ledger.hold([(order("a", 60), LIMITS), (order("b", 60), LIMITS)])
    assert ledger.rows() == []
    assert fits(ledger, 100)
    held = ledger.hold([(order("a", 60), LIMITS), (order("b", 40), LIMITS)])
    assert [each.reserved for each in held] == [60, 40]
    assert [row.why for row in ledger.rows()] == [HELD, HELD]
    assert used(ledger) == 100
    assert not fits(ledger, 1)


def test_an_order_takes_the_place_of_what_is_held(ledger):
    """Both happen in one step: no other call can take the money between, and it is not counted twice."""
    one, two = ledger.hold([(order("a", 60), LIMITS), (order("b", 40), LIMITS)])
    booking = ledger.begin(order("a", 60, key="k"), LIMITS, held=one.id)
    assert (booking.reserved, used(ledger)) == (60, 100)
    ledger.settle(booking.id, 50)
    assert fits(ledger, 10)
    assert not fits(ledger, 11)
    ledger.drop_held([one.id, two.id])
    ledger.drop_held([one.id, two.id, "nothing", booking.id])
    assert [(row.state, row.money) for row in ledger.rows()] == [("settled", 50)]
    assert fits(ledger, 50)


def test_an_order_that_is_refused_leaves_what_is_held(ledger):
    """The money stays held, so the order can be tried again."""
    (held,) = ledger.hold([(order("a", 60), LIMITS)])
    ledger.stop("api:a", "a", "a test")
    with pytest.raises(Stopped):
        ledger.begin(order("a", 60), LIMITS, held=held.id)
    assert [row.id for row in ledger.rows()] == [held.id]
    ledger.accept("api:a")
    assert ledger.begin(order("a", 60), LIMITS, held=held.id).reserved == 60


def test_an_order_whose_hold_is_gone_is_checked_like_any_other(ledger):
    """The order must fit the limits itself."""
    (held,) = ledger.hold([(order("a", 60), LIMITS)])
    ledger.drop_held([held.id])
    ledger.hold([(order("b", 60), LIMITS)])
    with pytest.raises(OverBudget):
        ledger.begin(order("a", 60), LIMITS, held=held.id)


def test_a_raised_price_is_remembered_and_nothing_held(ledger):
    """As with `begin`, the raised price is recorded, so that a user can accept it."""
    ledger.accept_price("api:b", 10, "b")
    with pytest.raises(PriceRaised):
        ledger.hold([(order("a", 5), LIMITS), (order("b", 20), LIMITS)])
    assert ledger.rows() == []
    assert {each.tool: each.offered for each in ledger.prices()} == {"a": 5, "b": 20}


def test_a_price_that_nobody_knows_cannot_be_held(ledger):
    """Without a listed or default price, the order is refused."""
    with pytest.raises(Unpriceable, match="max_price"):
        ledger.hold([(order("a", None), LIMITS)])
    (held,) = ledger.hold([(order("a", None, default_price=30), LIMITS)])
    assert held.reserved == 30


def test_what_the_dead_held_is_released(ledgers, ledger):
    """A dead owner's calls become unknown and its held money is dropped; a living owner's stays held."""
    with ledgers.acting_as("dead") as dead:
        one, _ = dead.hold([(order("a", 10), LIMITS), (order("b", 20), LIMITS)])
        dead.begin(order("a", 10, key="k"), LIMITS, held=one.id)
    with ledgers.acting_as("alive") as alive:
        kept = alive.hold([(order("c", 30), LIMITS)])
    ledgers.end("dead")
    left = ledger.recover()
    assert [(row.tool, row.state) for row in left] == [("a", "unknown")]
    assert {row.tool for row in ledger.rows()} == {"a", "c"}
    assert used(ledger) == 40
    ledger.drop_held([each.id for each in kept])
    assert used(ledger) == 10


def test_what_is_held_for_a_day_is_forgotten(ledger, clock):
    """After a day held money is dropped, even if its owner is alive."""
    ledger.hold([(order("a", 10), LIMITS)])
    clock[0] += 90_000
    assert ledger.recover() == []
    assert ledger.rows() == []


def test_held_money_is_no_call_that_is_out(ledger):
    """Held money does not block a first call of another tool whose price is unconfirmed."""
    ledger.hold([(order("a", 10), LIMITS), (order("b", 10), LIMITS)])
    assert ledger.begin(order("c", 10), LIMITS).exclusive
