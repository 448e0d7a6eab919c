"""For random sequences of bookings, the ledger does the same as a model in a few lines of plain Python."""

from contextlib import nullcontext
from copy import deepcopy
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from shared.ledgers import PostgresLedgers, SqliteLedgers
from toolwire.catalog.ledger.types import Busy, Limits, Order, OverBudget, PriceRaised, Stopped
from toolwire.errors import CatalogError

ENTRIES = st.sampled_from(["api:1", "api:2", "api:3", "other:1"])
NAMES = st.sampled_from(["search", "draw", ""])
VARIANTS = st.sampled_from(["", "", "deep", "quick"])
SESSIONS = st.sampled_from(["s1", "s2"])
AMOUNTS = st.integers(0, 30)
DAY = 86_400.0
MIDNIGHT = 1_793_923_200.0


class Decided:
    """The model's names, prices and stops of entries."""

    def __init__(self):
        self.names = set()
        self.prices = {}  # (entry, variant) -> {"price", "waits", "confirmed"}
        self.unpriced = set()  # (entry, variant)
        self.stopped = set()

    def note(self, names):
        """Record names; entries that are new inherit by name."""
        new = names.items() - self.names
        before = deepcopy(self)
        for entry, name in new:
            same = {
                other
                for other, its in before.names
                if name and its == name and other.split(":")[0] == entry.split(":")[0]
            }
            for variant in ("", "deep", "quick"):
                prices = [
                    before.prices[other, variant]["price"]
                    for other in same
                    if (other, variant) in before.prices
                ]
                if prices and (entry, variant) not in self.prices:
                    self.agree(entry, variant, min(prices), keep_mark=True)
                if (entry, variant) not in self.prices and any(
                    (other, variant) in before.unpriced for other in same
                ):
                    self.unpriced.add((entry, variant))
            if same & before.stopped:
                self.stopped.add(entry)
        self.names |= new

    def agree(self, entry, variant, price, confirmed=False, keep_mark=False):
        self.prices[entry, variant] = {"price": price, "offered": price, "charged": 0, "confirmed": confirmed}
        if not keep_mark:
            self.unpriced.discard((entry, variant))

    def price_of(self, entry, variant, asked):
        """Return the agreed price; without one, agree on `asked`, up to what the entry's other variants cost."""
        if (entry, variant) not in self.prices:
            mine = {its: each["price"] for (other, its), each in self.prices.items() if other == entry}
            bound = mine.get("") if variant else max(mine.values(), default=None)
            known = [each for each in (asked, bound) if each is not None]
            if known:
                self.agree(entry, variant, min(known))
        found = self.prices.get((entry, variant))
        if found is not None and asked is not None:
            found["offered"] = asked
        return found


class Booking(RuleBasedStateMachine):
    """Random operations on a ledger, each compared with a dict of calls."""

    calls = Bundle("calls")

    def __init__(self, open_ledgers):
        super().__init__()
        self.open_ledgers = open_ledgers

    @initialize(
        limits=st.builds(
            Limits,
            per_call=st.none() | st.integers(5, 30),
            per_session=st.none() | st.integers(0, 80),
            per_day=st.none() | st.integers(0, 80),
            total=st.none() | st.integers(0, 120),
            per_tool=st.dictionaries(ENTRIES, st.integers(0, 60)),
        )
        | st.just(Limits())
    )
    def open(self, limits):
        self.now = MIDNIGHT
        self.ledgers = self.open_ledgers(clock=lambda: self.now)
        self.ledger = self.ledgers.ledger
        self.deaths = 0
        self.limits = limits
        self.model = {}
        self.decided = Decided()

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledgers.close()

    @property
    def doomed(self):
        """The owner that will be dead at the next recovery."""
        return f"doomed {self.deaths}"

    def used(self, **wanted):
        """Return the sum of the money of the calls with these values."""
        return sum(
            self.money(call)
            for call in self.model.values()
            if all(call[key] == value for key, value in wanted.items())
        )

    @staticmethod
    def money(call):
        return {"settled": call["actual"], "released": 0}.get(call["state"], call["reserved"])

    def day(self):
        return max([self.now // DAY, *(call["day"] for call in self.model.values())])

    def fits(self, order, amount):
        """Return True if an amount fits all limits. None is an unknown amount."""
        limits = self.limits
        for most, used in (
            (limits.per_call, 0),
            (limits.per_session, self.used(session=order.session)),
            (limits.per_day, self.used(day=self.day())),
            (limits.total, self.used()),
            (limits.per_tool.get(order.entry_id), self.used(session=order.session, entry=order.entry_id)),
        ):
            if most is not None and max(most - used, 0) < (1 if amount is None else amount):
                return False
        return True

    def busy(self, order, unpriced):
        """Return True if a call of uncertain cost blocks this order."""
        limits, entry = self.limits, order.entry_id
        for call in self.model.values():
            lost = call["state"] == "unknown" and call["price"] is None
            if not call["exclusive"] or not (call["state"] == "sent" or lost):
                continue
            same_session, same_entry = call["session"] == order.session, call["entry"] == entry
            if (
                limits.per_day is not None
                or limits.total is not None
                or (limits.per_session is not None and same_session)
                or (entry in limits.per_tool and same_session and same_entry)
                or ((limits.per_call is not None or unpriced) and same_entry)
            ):
                return True
        return False

    def expect(self, order):
        """Return the error that an order must cause, or how it is booked. Also records what is decided by it."""
        decided, entry, variant = deepcopy(self.decided), order.entry_id, order.variant
        decided.note({entry: order.name})
        if entry in decided.stopped:
            return Stopped
        agreed = decided.price_of(entry, variant, order.price)
        if agreed is not None and order.price is not None and order.price > agreed["price"]:
            self.decided = decided
            return PriceRaised
        marked = (entry, variant) in decided.unpriced
        guessed = agreed is None and order.default_price is not None
        if agreed is not None:
            most, confirmed = agreed["price"], agreed["confirmed"]
            price = most if order.price is None else order.price
        else:
            price, most, confirmed = order.default_price, order.default_price, guessed and marked
        limited = self.limits.any_for(entry)
        if price is None and marked and limited:
            return Stopped
        exclusive = price is None or (not confirmed and limited)
        if exclusive and self.busy(order, price is None):
            return Busy
        if not self.fits(order, price):
            return OverBudget
        reserved = (most if self.fits(order, most) else price) or 0
        self.decided = decided
        return {
            "state": "sent",
            "session": order.session,
            "entry": entry,
            "variant": variant,
            "price": price,
            "guessed": guessed,
            "reserved": reserved,
            "actual": None,
            "exclusive": exclusive,
            "day": self.day(),
        }

    @rule(
        target=calls,
        order=st.builds(
            Order,
            session=SESSIONS,
            tool=st.just("tool"),
            entry_id=ENTRIES,
            name=NAMES,
            price=st.none() | AMOUNTS,
            key=st.just(""),
            digest=st.just("d"),
            variant=VARIANTS,
            default_price=st.none() | st.just(7),
        ),
        dead=st.booleans(),
    )
    def begin(self, order, dead):
        expected = self.expect(order)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.ledger.begin(order, self.limits)
            return multiple()
        with self.ledgers.acting_as(self.doomed) if dead else nullcontext(self.ledger) as ledger:
            booking = ledger.begin(order, self.limits)
        assert vars(booking) == {
            "id": booking.id,
            **{name: expected[name] for name in ("reserved", "price", "exclusive")},
        }
        self.model[booking.id] = expected | {"dead": dead, "owner": self.doomed if dead else None}
        return booking.id

    @rule(names=st.dictionaries(ENTRIES, NAMES))
    def note_entries(self, names):
        self.ledger.note_entries(names)
        self.decided.note(names)

    def move(self, call, allowed, act, **after):
        """Apply an operation that the model allows; in any other state it must be refused."""
        if self.model[call]["state"] in allowed:
            act()
            self.model[call].update(after)
            return True
        with pytest.raises(CatalogError):
            act()
        return False

    @rule(call=calls, actual=st.none() | AMOUNTS | st.just("5 EUR"))
    def settle(self, call, actual):
        was, decided = self.model[call], self.decided
        unreadable = actual if isinstance(actual, str) else ""
        told = None if unreadable else actual
        cost = was["reserved"] if unreadable else (was["price"] or 0) if told is None else told
        over = cost > was["reserved"] and was["price"] is not None
        results = []
        if not self.move(
            call,
            {"sent", "unknown"},
            lambda: results.append(self.ledger.settle(call, told, unreadable=unreadable)),
            state="settled",
            actual=cost,
        ):
            return
        unpriced = was["price"] is None and told is None
        assert (results[0].actual, results[0].over, results[0].unpriced) == (cost, over, unpriced)
        assert bool(results[0].stopped) == (over or bool(unreadable))
        entry, variant = which = was["entry"], was["variant"]
        open_price = was["price"] is None or was["guessed"]
        if over or unreadable:
            decided.stopped.add(entry)
        if over:
            if which not in decided.prices:
                decided.agree(*which, was["reserved"], keep_mark=True)
            found = decided.prices[which]
            found.update(charged=max(found["charged"], cost), confirmed=False)
        elif unreadable:
            pass
        elif told is not None and open_price and which not in decided.prices:
            decided.agree(entry, variant, cost, confirmed=True)
        elif which in decided.prices:
            if told is not None and open_price:
                decided.prices[which]["offered"] = cost
            decided.prices[which]["confirmed"] |= cost <= decided.prices[which]["price"]
        if told is None and open_price:
            decided.unpriced.add(which)

    @rule(call=calls)
    def release(self, call):
        self.move(call, {"sent"}, lambda: self.ledger.release(call), state="released")

    @rule(call=calls)
    def lose(self, call):
        self.move(call, {"sent"}, lambda: self.ledger.unknown(call, "lost"), state="unknown")

    @rule(call=calls)
    def check_again(self, call):
        was = self.model[call]
        limits, session, entry = self.limits, was["session"], was["entry"]
        overrun = any(
            most is not None and used > most
            for most, used in (
                (limits.per_session, self.used(session=session)),
                (limits.per_day, self.used(day=was["day"])),
                (limits.total, self.used()),
                (limits.per_tool.get(entry), self.used(session=session, entry=entry)),
            )
        )
        expected = (
            CatalogError
            if was["state"] != "sent"
            else Stopped
            if entry in self.decided.stopped
            else OverBudget
            if overrun
            else None
        )
        owner = self.model[call]["owner"]
        with self.ledgers.acting_as(owner) if owner else nullcontext(self.ledger) as ledger:
            if expected is None:
                ledger.check_again(call, self.limits)
            else:
                with pytest.raises(expected):
                    ledger.check_again(call, self.limits)

    @rule(call=calls, charged=st.booleans(), amount=AMOUNTS)
    def resolve(self, call, charged, amount):
        after = {"state": "settled", "actual": amount} if charged else {"state": "released"}
        self.move(
            call,
            {"unknown"},
            lambda: self.ledger.resolve(call, charged, amount if charged else None),
            **after,
        )

    @rule()
    def recover(self):
        self.ledgers.end(self.doomed)
        self.deaths += 1
        changed = {row.id: row.state for row in self.ledger.recover()}
        assert changed == {
            call: "unknown" for call, each in self.model.items() if each["dead"] and each["state"] == "sent"
        }
        for call, state in changed.items():
            self.model[call]["state"] = state

    @rule(entry=ENTRIES)
    def accept(self, entry):
        self.ledger.accept(entry)
        self.decided.stopped.discard(entry)

    @rule(entry=ENTRIES, variant=VARIANTS, price=AMOUNTS)
    def accept_price(self, entry, variant, price):
        self.ledger.accept_price(entry, price, variant=variant)
        known = self.decided.prices.get((entry, variant), {"price": None, "confirmed": False})
        self.decided.agree(entry, variant, price, confirmed=known["confirmed"] and known["price"] == price)

    @rule(hours=st.integers(-5, 5))
    def wait(self, hours):
        # In total less than the time after which a call counts as abandoned, which has its own test.
        if abs(self.now + hours * 3600 - MIDNIGHT) < 1.9 * DAY and not any(
            call["state"] == "sent" for call in self.model.values()
        ):
            self.now += hours * 3600

    @invariant()
    def the_rows_are_those_of_the_model(self):
        if hasattr(self, "ledger"):
            rows = {row.id: (row.state, row.actual, row.money) for row in self.ledger.rows()}
            assert rows == {
                call: (
                    each["state"],
                    each["actual"] if each["state"] == "settled" else None,
                    self.money(each),
                )
                for call, each in self.model.items()
            }

    @invariant()
    def totals_are_the_sums_of_the_rows(self):
        if hasattr(self, "ledger"):
            for by in ("tool", "session", "state", "day"):
                totals = self.ledger.totals(by)
                assert sum(each.calls for each in totals) == len(self.model)
                assert sum(each.money for each in totals) == self.used()
            for by in ("session", "state"):
                assert {each.name: each.money for each in self.ledger.totals(by)} == {
                    name: self.used(**{by: name}) for name in {each[by] for each in self.model.values()}
                }

    @invariant()
    def what_was_decided_is_kept(self):
        if hasattr(self, "ledger"):
            decided = self.decided
            assert {each.entry_id for each in self.ledger.stops()} == decided.stopped
            assert {(each.entry_id, each.variant) for each in self.ledger.unpriced()} == decided.unpriced
            assert {
                (each.entry_id, each.variant): (each.price, each.offered, each.confirmed)
                for each in self.ledger.prices()
            } == {
                which: (each["price"], max(each["offered"], each["charged"]), each["confirmed"])
                for which, each in decided.prices.items()
            }


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "examples", "steps"), [("memory", 60, 30), ("postgres", 6, 20)])
def test_any_sequence_of_bookings(kind, examples, steps, request):
    """The ledger does what the model does, in SQLite and in Postgres."""
    if kind == "memory":
        open_ledgers = partial(SqliteLedgers, ":memory:")
    else:
        open_ledgers = partial(PostgresLedgers, request.getfixturevalue("ledger_url"))
    run_state_machine_as_test(
        lambda: Booking(open_ledgers),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
