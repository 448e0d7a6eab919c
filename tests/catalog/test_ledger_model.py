"""Any sequence of bookings: the ledger does what a few lines of plain Python do."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from toolwire.catalog.ledger.sqlite import Busy, Limits, OverBudget, Spend, SqliteLedger, Stopped
from toolwire.errors import CatalogError

TOOLS = st.sampled_from(["search", "draw"])
SESSIONS = st.sampled_from(["s1", "s2"])
AMOUNTS = st.integers(0, 30)
DAY = 86_400.0
MIDNIGHT = 1_793_923_200.0


class Booking(RuleBasedStateMachine):
    """A ledger beside a dict of calls."""

    calls = Bundle("calls")

    @initialize(
        limits=st.builds(
            Limits,
            per_call=st.none() | st.integers(5, 30),
            per_session=st.none() | st.integers(0, 80),
            per_day=st.none() | st.integers(0, 80),
            total=st.none() | st.integers(0, 120),
            per_tool=st.dictionaries(TOOLS.map("e-{}".format), st.integers(0, 60)),
        )
    )
    def open(self, limits):
        self.now = MIDNIGHT
        self.ledger = SqliteLedger(":memory:", clock=lambda: self.now, owner="me")
        self.limits = limits
        self.model = {}
        self.stopped, self.untold = set(), set()

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()

    def used(self, **wanted):
        """The money of the calls that fit."""
        return sum(
            self.money(call)
            for call in self.model.values()
            if all(call[key] == value for key, value in wanted.items())
        )

    @staticmethod
    def money(call):
        return {"settled": call["actual"], "released": 0}.get(call["state"], call["amount"])

    def fits(self, session, tool, amount, exclusive):
        limits = self.limits
        for most, used in (
            (limits.per_call, 0),
            (limits.per_session, self.used(session=session)),
            (limits.per_day, self.used(day=self.now // DAY)),
            (limits.total, self.used()),
            (limits.per_tool.get(f"e-{tool}"), self.used(session=session, tool=tool)),
        ):
            if most is not None:
                left = max(most - used, 0)
                if amount > left or (exclusive and not left):
                    return False
        return True

    @rule(
        target=calls,
        session=SESSIONS,
        tool=TOOLS,
        amount=AMOUNTS,
        exclusive=st.booleans(),
        dead=st.booleans(),
    )
    def reserve(self, session, tool, amount, exclusive, dead):
        amount = 0 if exclusive else amount
        busy = exclusive and any(
            call["exclusive"] and call["tool"] == tool and call["state"] in ("reserved", "sent", "unknown")
            for call in self.model.values()
        )
        spend = Spend(session, tool, f"e-{tool}", amount, "", "d", exclusive)
        expected = (
            Stopped
            if tool in self.stopped
            or (exclusive and tool in self.untold and self.limits.any_for(f"e-{tool}"))
            else Busy
            if busy
            else None
            if self.fits(session, tool, amount, exclusive)
            else OverBudget
        )
        if expected is not None:
            with pytest.raises(expected):
                self.ledger.reserve(spend, self.limits)
            return multiple()
        self.ledger.owner = "dead" if dead else "me"
        call = self.ledger.reserve(spend, self.limits)
        self.ledger.owner = "me"
        self.model[call] = {
            "state": "reserved",
            "session": session,
            "tool": tool,
            "amount": amount,
            "actual": None,
            "exclusive": exclusive,
            "day": self.now // DAY,
            "dead": dead,
        }
        return call

    def move(self, call, allowed, act, **after):
        """Do it if the model allows it; else it must be refused."""
        if self.model[call]["state"] in allowed:
            act()
            self.model[call].update(after)
            return True
        with pytest.raises(CatalogError):
            act()
        return False

    @rule(call=calls)
    def sent(self, call):
        self.move(call, {"reserved"}, lambda: self.ledger.sent(call), state="sent")

    @rule(call=calls, actual=st.none() | AMOUNTS)
    def settle(self, call, actual):
        was = self.model[call]
        cost = was["amount"] if actual is None else actual
        over = cost > was["amount"] and not was["exclusive"]
        told = []
        if self.move(
            call,
            {"reserved", "sent", "unknown"},
            lambda: told.append(self.ledger.settle(call, actual)),
            state="settled",
            actual=cost,
        ):
            untold = was["exclusive"] and actual is None
            assert (told[0].actual, told[0].over, told[0].untold) == (cost, over, untold)
            self.untold |= {was["tool"]} if untold else set()
            self.stopped |= {was["tool"]} if over else set()

    @rule(call=calls)
    def release(self, call):
        self.move(call, {"reserved", "sent"}, lambda: self.ledger.release(call), state="released")

    @rule(call=calls)
    def lose(self, call):
        self.move(call, {"reserved", "sent"}, lambda: self.ledger.unknown(call, "lost"), state="unknown")

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
        changed = {row.id: row.state for row in self.ledger.recover(lambda owner: owner != "dead")}
        expected = {
            call: "released" if each["state"] == "reserved" else "unknown"
            for call, each in self.model.items()
            if each["dead"] and each["state"] in ("reserved", "sent")
        }
        assert changed == expected
        for call, state in changed.items():
            self.model[call]["state"] = state

    @rule(tool=TOOLS)
    def accept(self, tool):
        self.ledger.accept(f"e-{tool}")
        self.stopped.discard(tool)

    @rule(tool=TOOLS)
    def price(self, tool):
        self.ledger.accept_price(f"e-{tool}", 10)
        self.untold.discard(tool)

    @rule(hours=st.integers(1, 5))
    def wait(self, hours):
        # Not as long as a call is given before it counts as forgotten, all in all: that has a test of its own.
        if self.now + hours * 3600 < MIDNIGHT + 1.9 * DAY and not any(
            call["state"] in ("reserved", "sent") for call in self.model.values()
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
                if by != "day":
                    assert {each.name: each.money for each in totals} == {
                        name: self.used(**{by: name}) for name in {each[by] for each in self.model.values()}
                    }
            assert {each.tool for each in self.ledger.stops()} == self.stopped
            assert set(self.ledger.untold().values()) == self.untold


TestBooking = Booking.TestCase
TestBooking.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
