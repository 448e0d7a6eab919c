"""The load of a catalogue: purchases with small budgets at a paid API that misbehaves.

A round opens a catalogue with a small budget, buys until the budget is used up, and closes it. Meanwhile the API
breaks connections, hangs, and sends invalid replies, before and after it charges. In the end the API's book, the
ledger and the results that callers got are compared: nothing is bought twice, nothing is charged that is not in the
ledger, no limit is exceeded, and no caller got a false result.

python -m benchmarks.soak.catalogue '{"name": "catalogue", "seconds": 60}'
"""

import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from benchmarks.processes import HERE, make_environment
from benchmarks.soak.load import PATIENCE, Book, ExpectedEnd, WrongError, begin, main
from toolwire.catalog import Breaker, Catalog, Limits, Retry, SqliteLedger
from toolwire.catalog.ledger.types import Row
from toolwire.catalog.profile.model import BUILTIN
from toolwire.testing import connect

MICROS = 1_000_000
BUDGET = 500_000
"""Micro-dollars that one round may spend."""
AT_ONCE = 6
TIMEOUT = 5.0
PAUSE, BREAKER_PAUSE = 0.1, 0.5
FAULTY = 0.12
"""The share of orders for which a fault is produced."""
ACCEPT_PAUSE = 1.0
KEY_HEADER = "X-Request-Id"
TOOLS = {
    "weather": lambda number: {"city": f"city {number}"},
    "stock": lambda number: {"symbol": f"symbol {number}"},
    "translate": lambda number: {"text": f"text {number}", "to": "de"},
    "slow": lambda number: {"seconds": 0.05 + number / 1e9},
}
"""The arguments of each tool. Each order has its own number, so that it can be found in the API's book."""
FAULTS: list[dict[str, Any]] = [
    {"kind": "reset_on_connect"},
    {"kind": "reset_before_buying"},
    {"kind": "reset_after_buying"},
    {"kind": "hang_before_buying", "seconds": TIMEOUT * 1.5},
    {"kind": "hang_after_buying", "seconds": TIMEOUT * 1.5},
    {"kind": "status_before_buying", "status": 429},
    {"kind": "status_before_buying", "status": 503},
    {"kind": "status_after_buying", "status": 500},
    {"kind": "redirect"},
    {"kind": "half_reply"},
    {"kind": "garbage"},
    {"kind": "wrong_type"},
    {"kind": "oversized", "size": 300_000},
    {"kind": "drip", "seconds": 0.05},
    {"kind": "close_idle"},
    {"kind": "half_reply", "path": "/products/fetch"},
    {"kind": "status_after_buying", "status": 500, "path": "/products/fetch"},
]
NO_MONEY_LEFT = "the budget is used up"
HELD_BACK = "held back by the circuit breaker"


class Api:
    """The paid API as a process. It exits when its input ends, so it cannot outlive this process."""

    def __init__(self, folder: Path) -> None:
        self.book = folder / "api.jsonl"
        self.book.touch()
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "benchmarks.soak.api", str(self.book)],
            env=make_environment(folder),
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None  # noqa: S101
        self.url = self.process.stdout.readline().strip()

    def add_faults(self, faults: list[dict[str, Any]]) -> None:
        """Have the API produce these faults for the next requests."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.write(json.dumps(faults) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Stop the API; from then on its book is complete."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None  # noqa: S101
            stream.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def make_catalogue(folder: Path, url: str, session: str) -> Catalog:
    """Return a catalogue with its own budget, on a ledger that all rounds share."""
    profile = BUILTIN["agentpmt-keys"].changed(
        base_url=url,
        entry={"price": {"path": "price"}, "category": "category"},
        call={"timeout": TIMEOUT, "max_reply_bytes": 100_000, "idempotency_header": KEY_HEADER},
        list={"timeout": TIMEOUT},
    )
    return Catalog(
        profile,
        environ={
            "AGENT_PAYMENT_API_KEY": "key-of-a-soak",
            "AGENT_PAYMENT_BUDGET_KEY": "budget-of-a-soak",
            "TOOLWIRE_LEDGER": str(folder / "ledger.db"),
            "TOOLWIRE_SESSION": session,
        },
        budget=Limits(per_session=BUDGET),
        retry=Retry(attempts=3, wait=0.05, longest_wait=0.2, jitter=0.0, longest_retry_after=0.2),
        breaker=Breaker(failures=5, reset_after=0.5),
        refresh=None,
        audit=folder / "audit.jsonl",
        cache=folder / "cache" / "kept.json",
    )


class Shopping:
    """Runs the callers of all rounds, and writes the results that they got to a file."""

    def __init__(self, folder: Path, api: Api, book: Book, reported: IO[str]) -> None:
        self.folder, self.api, self.book, self.reported = folder, api, book, reported
        self.numbers = itertools.count(1)
        self.chance = random.Random("catalogue")  # noqa: S311 - the same sequence in every run
        self.rounds = 0

    async def run(self, until: float) -> None:
        """Buy in rounds until the time is over."""
        while time.monotonic() < until:
            self.rounds += 1
            catalog = make_catalogue(self.folder, self.api.url, f"round {self.rounds}")
            async with connect(catalog) as client:
                await catalog.loaded(PATIENCE)
                await asyncio.gather(*(self.buy(client, until) for _ in range(AT_ONCE)))

    async def buy(self, client: Any, until: float) -> None:
        """Buy, as one caller, until the budget or the time is used up."""
        while time.monotonic() < until:
            how = ""
            with self.book.track("purchase"):
                async with asyncio.timeout(PATIENCE):
                    how = await self.order(client)
                if how != "bought":
                    raise ExpectedEnd(how)
            if how in {NO_MONEY_LEFT, ""}:
                return
            await asyncio.sleep((BREAKER_PAUSE if how == HELD_BACK else PAUSE) * self.chance.random())

    async def order(self, client: Any) -> str:
        """Order something. Returns how that ended: "bought" or a value of `OUTCOMES`."""
        number, name = next(self.numbers), self.chance.choice(list(TOOLS))
        if self.chance.random() < FAULTY:
            self.api.add_faults([self.chance.choice(FAULTS)])
        result = await client.call(name, TOOLS[name](number))
        text = result.text
        if not result.is_error:
            how = "bought"
            if name != "slow" and str(number) not in text:
                raise WrongError(f"the result of {name} {number} is {text[:200]!r}")
        else:
            how = classify_refusal(text)
        self.reported.write(json.dumps({"tool": name, "arguments": TOOLS[name](number), "how": how}) + "\n")
        return how


def classify_refusal(text: str) -> str:
    """Return the kind of a failed call, by words in its text. An unknown text is a finding."""
    for words, how in OUTCOMES.items():
        if words in text:
            return how
    raise WrongError(f"a refusal that nobody expected: {text[:300]!r}")


OUTCOMES = {
    "UNKNOWN": "unknown: the reply was lost",
    "the budget of this session": NO_MONEY_LEFT,
    "HTTP 429": "refused by the API",
    "is stopped": "stopped until somebody accepts it",
    "the API keeps failing, so nothing was sent": HELD_BACK,
    "Nothing was bought": "not bought",
}
"""How a call may fail, by words in the text that the caller gets."""


async def accept_stops(folder: Path, until: float) -> None:
    """Allow stopped tools again, as a person would; they are stopped when too many replies were lost."""
    with SqliteLedger(folder / "ledger.db", owner="soak: accepts stops") as ledger:
        while time.monotonic() < until:
            for stop in await asyncio.to_thread(ledger.stops):
                await asyncio.to_thread(ledger.accept, stop.entry_id)
            await asyncio.sleep(ACCEPT_PAUSE)


async def work(book: Book, case: dict[str, Any]) -> dict[str, Any]:
    """Run the load, then compare the books."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        (Path(name) / "results.jsonl").open("w+") as reported,
    ):
        folder = Path(name)
        api = Api(folder)
        try:
            until = begin(case)
            shopping = Shopping(folder, api, book, reported)
            async with asyncio.TaskGroup() as group:
                group.create_task(accept_stops(folder, until))
                group.create_task(shopping.run(until))
        finally:
            api.end()
        reported.seek(0)
        figures = compare(book, read_lines(api.book.open()), read_lines(reported), folder)
    return {"books": {"rounds": shopping.rounds, **figures}}


def read_lines(file: IO[str]) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines, and close it."""
    with file:
        return [json.loads(line) for line in file]


def compare(
    book: Book, sold: list[dict[str, Any]], reported: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """Compare the API's book, the ledger and the results that callers got. Returns totals for the report."""
    with SqliteLedger(folder / "ledger.db", owner="soak: compares") as ledger:
        rows = ledger.rows()
    for problem in itertools.chain(
        find_disagreements(sold, rows), find_false_outcomes(sold, reported), find_overspending(rows)
    ):
        book.add_finding(problem)
    states: dict[str, int] = defaultdict(int)
    for row in rows:
        states[row.state] += 1
    taken = round(sum(each["cost"] for each in sold) * MICROS)
    counted = sum(row.money for row in rows)
    return {
        "bought": len(sold),
        "taken": taken / MICROS,
        "in the ledger": counted / MICROS,
        **{f"ledger: {state}": count for state, count in sorted(states.items())},
    }


def find_disagreements(sold: list[dict[str, Any]], rows: list[Row]) -> Iterator[str]:
    """Yield each charge that is not exactly once in the ledger with the right amount."""
    live: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.state == "sent":
            yield f"a call is neither settled nor unknown: {row}"
        if row.state != "released":
            live[row.key].append(row)
    seen: set[str] = set()
    for each in sold:
        key, cost = each["request_id"], round(each["cost"] * MICROS)
        if key in seen:
            yield f"charged twice for one order: {each}"
        seen.add(key)
        own = live[key]
        if len(own) != 1:
            yield f"charged, and {len(own)} times in the ledger: {each}"
        elif own[0].money != cost:
            yield f"charged {cost}, and {own[0].money} in the ledger: {own[0]}"
    for key, own in live.items():
        if key not in seen and any(row.state == "settled" for row in own):
            yield f"settled in the ledger, and never charged: {own}"


def find_false_outcomes(sold: list[dict[str, Any]], reported: list[dict[str, Any]]) -> Iterator[str]:
    """Yield each result that does not match what the API charged, and orders that were bought twice."""
    orders = [format_order(each["name"], each["parameters"]) for each in sold]
    charged = set(orders)
    if len(charged) != len(orders):
        yield f"{len(orders) - len(charged)} orders were bought twice"
    for each in reported:
        name = format_order(each["tool"], each["arguments"])
        if each["how"] == "bought" and name not in charged:
            yield f"told that it was bought, and it was not: {each}"
        if each["how"] != "bought" and not each["how"].startswith("unknown") and name in charged:
            yield f"told that nothing was charged, and it was: {each}"


def format_order(tool: str, arguments: dict[str, Any]) -> str:
    """Return a text that identifies an order."""
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"


def find_overspending(rows: list[Row]) -> Iterator[str]:
    """Yield each round that spent more than its budget."""
    spent: dict[str, int] = defaultdict(int)
    for row in rows:
        spent[row.session] += row.money
    for session, money in spent.items():
        if money > BUDGET:
            yield f"{session} spent {money} of {BUDGET}"


if __name__ == "__main__":
    main(work, json.loads(sys.argv[1]))
