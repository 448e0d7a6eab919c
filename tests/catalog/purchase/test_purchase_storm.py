"""Random mixes of everything that can go wrong at once ("storms"), after which three records must agree.

The API's books say what was charged, the ledger what counts against the limits, the clients what they were told.
With R a row of the ledger and A the order at the API with its key, this holds after every storm:

- A is charged once at most, and has one row that is not released; a call (by its number) is charged once at most.
- R counts what the API took, or at least what was reserved if the API took more and its reply was lost. Only a
  call of unknown price, which reserves nothing, counts nothing when its reply was lost; then no other is sent.
- When R was booked, everything that counted then, plus R's reserved amount, was within every limit.
- After the first row of an entry that cost more than was reserved, no row of that entry was booked. At most
  `max_in_flight` rows per process cost more.
- R costs no more than its entry did at first, nor than an entry with the same tool name that was bought before R's
  entry was first seen. If that other entry was stopped by then, R does not exist.
- Rows of entries whose price no reply had confirmed yet were never in flight at the same time.
- If A was answered in full, R is settled and its client has the result, unless it was cancelled or its process was
  killed (a cost within the reserved amount does not wait for the disk: the client may have the result while R is
  unknown).
- If R is unknown, its client was told so, with R's id, unless it was cancelled or killed. A client that was told
  anything but that or the result has not been charged.

A seed always makes the same storm, but not the same timing. `-s` prints a line for each,
`TOOLWIRE_STORMS=100` runs more of them.
"""

import json
import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf

import anyio
import pytest

from shared import storm
from shared.shark import Shark
from shared.till import ledger_in
from shared.waiting import eventually
from toolwire.catalog.ledger.opening import recover

pytestmark = [pytest.mark.anyio, pytest.mark.process]

SEEDS = range(int(os.environ.get("TOOLWIRE_STORMS", "6")))
TIMEOUT = 2.0
UNPRICED = 15_000
ORDER_FAULTS = [
    *("before", "after", "half", "cut 0", "cut 9", "garbage", "html", "huge"),
    *("429", "400", "500", "503", "409", "302", "charged 500", "charged 503"),
]
CONNECTION_FAULTS = ["unread", "head", "close"]
LIMITS = ["per_session", "per_day", "total"]


@dataclass
class Weather:
    """The settings of the API, the processes and the limits that follow from a seed."""

    seed: str
    backend: str
    chance: random.Random = field(init=False)

    def __post_init__(self):
        self.chance = chance = random.Random(self.seed)  # noqa: S311
        self.processes = chance.choice([1, 2, 2])
        self.kills = self.processes == 2 and chance.random() < 0.5
        self.calls = chance.randint(30, 150)
        self.prices = {
            f"tool{n}": chance.choice([0.01, 0.01, 0.02, 0.05, None]) for n in range(chance.randint(2, 5))
        }
        self.base = {
            name: UNPRICED if each is None else round(each * 1e6) for name, each in self.prices.items()
        }
        self.names = {str(number): name for number, name in enumerate(self.prices)}  # by id
        self.faulty = chance.choice([0.0, 0.1, 0.3])
        self.hangs = chance.choice([0, 0, 2])
        self.idempotent = chance.random() < 0.5
        self.cancelled = chance.choice([0.0, 0.0, 0.2])
        self.max_in_flight = chance.choice([2, 5, 12, 32])
        self.delay = chance.choice([0.0, 0.02, 0.1])
        # A tool that charges more than its price from some order on, or None.
        self.liar = chance.choice([None, *self.prices]) if chance.random() < 0.5 else None
        self.lies_from = chance.randint(1, 30)
        self.changes_at = chance.choice([0, chance.randint(3, 15)])
        self.killed_at = chance.randint(3, 25)
        self.one_session = chance.random() < 0.5
        worth = sum(self.base.values()) // len(self.base) * self.calls
        kinds = chance.sample(LIMITS, chance.randint(1, 3))
        self.limits = {kind: round(worth * chance.uniform(0.2, 1.2)) for kind in kinds}

    @property
    def honest(self):
        return self.liar is None

    @property
    def nobody_leaves(self):
        """True if every call waits until the API has answered."""
        return not (self.cancelled or self.hangs or self.kills)

    def api(self):
        api = Shark(
            items=[(entry, name, self.prices[name]) for entry, name in self.names.items()],
            charge=self.charge,
            delay=self.delay,
            idempotent=self.idempotent,
            spoil=self.spoil,
        )
        api.refuse = lambda number: (
            self.fault(f"connection {number}", CONNECTION_FAULTS) if api.orders else ""
        )
        return api

    def plan(self, number):
        profile = {
            "timeout": TIMEOUT,
            "max_reply_bytes": 100_000,
            "idempotency_header": "Idempotency-Key",
            "idempotent": self.idempotent,
        }
        if self.chance.random() < 0.3:
            profile |= {"retry_statuses": [429]}
        share = self.calls // self.processes
        return storm.Plan(
            seed=f"{self.seed} {number}",
            first=number * 1_000,
            calls=share,
            names=list(self.prices),
            max_in_flight=self.max_in_flight,
            queue_timeout=self.chance.choice([0.5, 15.0, 15.0]),
            limits=self.limits,
            profile=profile,
            session="storm" if self.one_session else f"storm {number}",
            backend=self.backend,
            cancelled=self.cancelled,
            twice=self.chance.choice([0.0, 0.1]),
            refused=self.chance.choice([0.0, 0.0, 0.05]),
            locks=self.chance.choice([0, 3]),
            spread=1.0 if self.changes_at else self.chance.choice([0.0, 0.0, 0.5]),
            refreshes=10 if self.changes_at else 0,
            failures=self.chance.choice([5, 1_000, 1_000]),
        )

    # Called by the API, in its thread.

    def charge(self, id, number):
        """Return what an order costs: the first price, or less if the price fell; ten times that for the liar."""
        name = self.names[id]
        lies = name == self.liar and number >= self.lies_from
        return self.base[name] * (10 if lies else 1)

    def fault(self, what, kinds):
        chance = random.Random(f"{self.seed} {what}")  # noqa: S311
        return chance.choice(kinds) if chance.random() < self.faulty else ""

    def spoil(self, number):
        if number == self.changes_at:
            self.change()
        if number == self.killed_at and self.kills:
            self.process.kill()
        if self.hangs and number % 7 == 3:
            self.hangs -= 1
            return "hang after" if self.hangs else "hang"
        return self.fault(f"order {number}", ORDER_FAULTS)

    def change(self):
        """Give some tools new ids and other prices. Lower prices are charged from then on, higher ones are not."""
        chance = random.Random(f"{self.seed} change")  # noqa: S311
        items = []
        for old, name, price in self.shark.items:
            new = f"{old}-new" if chance.random() < 0.5 else old
            self.names[new] = name
            factor = chance.choice([0.5, 1, 3, 3])
            if price is not None:
                price *= factor  # noqa: PLW2901
                self.base[name] = min(self.base[name], round(price * 1e6))
            elif chance.random() < 0.5:
                price = 0.2  # noqa: PLW2901
            items.append((new, name, price))
        self.shark.items = items


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(90):
        yield


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_a_storm_the_books_agree(tmp_path, anyio_backend_name, seed):
    """Nothing is bought twice, over the limits or lost, and every client is told the truth."""
    before = ledger_threads()
    weather = Weather(f"{seed} {anyio_backend_name}", anyio_backend_name)
    outcomes, killed = [], set()
    ledger_in(tmp_path).close()
    with weather.api() as api:
        weather.shark = api
        plans = [weather.plan(number) for number in range(weather.processes)]
        others = []
        if weather.processes == 2:
            command = storm.storm_command(api, tmp_path, plans[1])
            weather.process = subprocess.Popen(**command, stdout=subprocess.PIPE, text=True)
            others = [threading.Thread(target=read_lines, args=(weather.process, outcomes))]
            others[0].start()
            await eventually(lambda: api.lists, 30)
        await storm.run(api, tmp_path, plans[0], outcomes.append)
        for each in others:
            await anyio.to_thread.run_sync(each.join, 60)
            assert not each.is_alive(), "the other process hangs"
            code = weather.process.wait(10)
            assert code == 0 or (weather.kills and code == -9), f"the other process ended with {code}"
            if code:
                killed = {plans[1].first + number for number in range(plans[1].calls)}
        await eventually(lambda: api.connected == 0)
    with ledger_in(tmp_path) as ledger:
        if not killed:
            assert not ledger.rows(states=["sent"])
        compare(weather, api, recover(ledger), outcomes, killed)
    await eventually(lambda: not ledger_threads() - before)


def ledger_threads():
    """Return the threads of ledgers; other tests may have left some."""
    return {each for each in threading.enumerate() if each.name == "toolwire ledger"}


def read_lines(process, outcomes):
    with process.stdout as lines:
        outcomes += map(json.loads, lines)


def compare(weather, api, ledger, outcomes, killed):
    """Compare the API's books, the ledger, and what the clients were told."""
    rows = ledger.rows()[::-1]
    with ledger._database.reading() as db:
        first_seen = dict(db.execute("SELECT entry_id, min(first_seen) FROM entries GROUP BY entry_id"))
    heard = defaultdict(list)
    for each in outcomes:
        heard[each["number"]].append(each)
    excused = killed | {
        number for number, each in heard.items() if any(one["how"] == "cancelled" for one in each)
    }
    report(weather, api, rows, outcomes, len(killed - heard.keys()))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    live = {key: [row for row in each if row.state != "released"] for key, each in by_key.items()}

    check_once(api, by_key, live)
    check_money(api, live)
    check_limits(weather, api, rows, live)
    check_stops(weather, api, rows, live)
    check_inheritance(rows, first_seen)
    check_alone(weather, rows, killed)
    check_answers(api, rows, live, heard, excused)
    if weather.nobody_leaves:
        assert api.most_open <= weather.max_in_flight * weather.processes


def report(weather, api, rows, outcomes, killed):
    """Print a line about a storm."""
    ends = dict(Counter(each["how"] for each in outcomes)) | ({"killed": killed} if killed else {})
    sys.stdout.write(
        f"\nstorm {weather.seed}: {weather.processes} process(es), {len(outcomes) + killed} calls {ends}, API: "
        f"{api.orders} orders, {len(api.sold)} charged, {api.taken} taken, "
        f"{'honest' if weather.honest else f'{weather.liar} lies'}, ledger: "
        f"{dict(Counter(row.state for row in rows))}, limits {weather.limits}"
    )


def check_once(api, by_key, live):
    """Check that nothing is charged twice, and that every order that arrived was booked."""
    assert {each.key for each in api.arrived} <= by_key.keys()
    assert all(len(each) <= 1 for each in live.values())
    for what in ("key", "number"):
        times = Counter(each.key if what == "key" else each.arguments["number"] for each in api.sold)
        assert not [each for each, count in times.items() if count > 1], f"bought twice, by {what}"


def check_money(api, live):
    """Check that what the API took is in the ledger."""
    for sold in api.sold:
        assert live[sold.key], f"charged, and released: {sold}"
        (row,) = live[sold.key]
        assert row.money >= min(sold.micros, row.reserved), (sold, row)
        if row.state == "settled":
            assert row.money == sold.micros, (sold, row)
            assert row.over == (sold.micros > row.reserved and row.price is not None)


def check_limits(weather, api, rows, live):
    """Check that every booking fitted the limits, and all charges too, except what exceeded a reserve."""
    for kind, most in weather.limits.items():
        for session in {row.session for row in rows} if kind == "per_session" else [None]:
            counted = [row for row in rows if session in (None, row.session)]
            for row in counted:
                used = sum(
                    money_at(other, row.at) for other in counted if other is not row and other.at <= row.at
                )
                assert used + max(row.reserved, row.price is None) <= most, (
                    f"{kind}: {used} of {most} used, {row}"
                )
            keys = {row.key for row in counted}
            orders = [(each, live[each.key][0]) for each in api.sold if each.key in keys]
            taken = sum(sold.micros for sold, _ in orders)
            over = [sold.micros - row.reserved for sold, row in orders if sold.micros > row.reserved]
            if weather.honest:
                unpriced = any(each is None for each in weather.prices.values())
                assert taken <= most + (UNPRICED if unpriced else 0), f"{kind}: {taken} of {most} taken"
            assert taken <= most + sum(over)
    if weather.honest:
        assert not [row for row in rows if row.over]


def money_at(row, at):
    """Return what a row counted at a time; at the time of its change, what it counts since then."""
    return row.money if row.changed <= at else row.reserved


def check_stops(weather, api, rows, live):
    """Check that once a call has cost more than was reserved, its entry is not booked any more."""
    most = weather.max_in_flight * weather.processes
    for entry in {row.entry_id for row in rows}:
        own = [row for row in rows if row.entry_id == entry]
        over = [row for row in own if row.over]
        if over:
            stopped = min(row.changed for row in over)
            assert not [row for row in own if row.at > stopped], "booked after the stop"
            keys = {row.key for row in own}
            assert sum(each.key in keys and each.at > stopped for each in api.arrived) <= most
            assert len(over) <= most
            # Beside calls that were booked while the price was confirmed, only one starts after a reply was lost.
            assert sum(row.exclusive for row in over) <= 1


def check_inheritance(rows, first_seen):
    """Check that no entry costs more than at first, and a new one no more than its tool did before."""
    for tool in {row.tool for row in rows}:
        of_tool = [row for row in rows if row.tool == tool]
        firsts = {row.entry_id: row for row in reversed(of_tool)}
        for row in of_tool:
            seen = first_seen[row.entry_id]
            for entry, first in firsts.items():
                if first.price is not None and (entry == row.entry_id or first.at < seen):
                    agreed = max(
                        first.price, first.reserved
                    )  # what was agreed is reserved, if a limit has room
                    assert (row.price or 0) <= agreed, f"dearer than agreed: {row}, before: {first}"
            stops = [other for other in of_tool if other.over and other.changed < seen]
            assert not stops, f"stopped under another id: {row}, {stops[0]}"


def check_alone(weather, rows, killed):
    """Check that calls whose price no reply had confirmed were in flight one at a time, if they share a limit."""
    confirmed = defaultdict(lambda: inf)
    for row in rows:
        if row.state == "settled" and not row.over:
            confirmed[row.entry_id] = min(confirmed[row.entry_id], row.changed)
    uncertain = [row for row in rows if row.at <= confirmed[row.entry_id]]
    apart = weather.limits.keys() == {"per_session"}
    for row in uncertain:
        for other in uncertain:
            out = other.at < row.at < other.changed and not (apart and row.session != other.session)
            # A dead process's call is no longer in flight, but is only marked as unknown by the next recovery.
            assert not out or (killed and other.state == "unknown"), (other, row)


def check_answers(api, rows, live, heard, excused):
    """Check that clients whose order was answered have the result, and that the others were told the truth."""
    charged = {each.arguments["number"]: each for each in api.sold}
    for number, sold in charged.items():
        how = {each["how"] for each in heard[number]}
        (row,) = live[sold.key]
        if number in excused:
            assert row.state in ("settled", "unknown")
        elif sold.answered:
            assert (row.state, "bought" in how) == ("settled", True), (row, heard[number])
        else:
            assert (row.state, "unknown" in how) == ("unknown", True), (row, heard[number])
    numbers = {each.key: each.arguments["number"] for each in api.arrived}
    texts = " ".join(each["text"] for one in heard.values() for each in one if each["how"] == "unknown")
    told = set(re.findall(r"\(call ([0-9a-f]+)\)", texts))
    lost = [row for row in rows if row.state == "unknown" and row.id not in told]
    assert {numbers[row.key] for row in lost if row.key in numbers} <= excused
    assert len(lost) <= len(excused)
    assert told <= {row.id for row in rows if row.state == "unknown"}
    for number, each in heard.items():
        how = [one["how"] for one in each]
        assert how.count("bought") <= 1
        if "bought" in how:
            assert charged[number].answered
        assert number in excused or set(how) != {"refused"} or number not in charged, each
