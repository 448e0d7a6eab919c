"""The load of a catalogue: purchases at a paid API that misbehaves, with little money.

A round opens a catalogue with a small budget, buys until the budget is used up, and closes it. Meanwhile the API
breaks connections off, hangs, and answers nonsense, before and after it takes the money. In the end the API's own
book, the ledger and what the callers were told are compared: nothing bought twice, nothing charged that is not in
the ledger, no limit exceeded, nobody told a lie.

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

from benchmarks.processes import HERE, environment
from benchmarks.soak.load import PATIENCE, Book, Expected, WrongError, begin, main
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
"""The share of orders with which something goes wrong."""
ACCEPT_PAUSE = 1.0
KEY_HEADER = "X-Request-Id"
TOOLS = {
    "weather": lambda number: {"city": f"city {number}"},
    "stock": lambda number: {"symbol": f"symbol {number}"},
    "translate": lambda number: {"text": f"text {number}", "to": "de"},
    "slow": lambda number: {"seconds": 0.05 + number / 1e9},
}
"""Arguments by tool: each order has a number of its own, and so can be found again in the API's book."""
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
    """The paid API as a process. It ends with its input, so it cannot outlive this one."""

    def __init__(self, folder: Path) -> None:
        self.book = folder / "api.jsonl"
        self.book.touch()
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "benchmarks.soak.api", str(self.book)],
            env=environment(folder),
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None  # noqa: S101
        self.url = self.process.stdout.readline().strip()

    def spoil(self, faults: list[dict[str, Any]]) -> None:
        """Have these things go wrong with the next requests."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.write(json.dumps(faults) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End it; from then on its book is complete."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None  # noqa: S101
            stream.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def catalogue_in(folder: Path, url: str, session: str) -> Catalog:
    """One with a budget of its own, on a ledger that all rounds share."""
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
    """The callers of a round, and what all callers were told, in a file."""

    def __init__(self, folder: Path, api: Api, book: Book, told: IO[str]) -> None:
        self.folder, self.api, self.book, self.told = folder, api, book, told
        self.numbers = itertools.count(1)
        self.chance = random.Random("catalogue")  # noqa: S311 - the same each time
        self.rounds = 0

    async def go(self, until: float) -> None:
        """Buy in rounds."""
        while time.monotonic() < until:
            self.rounds += 1
            catalog = catalogue_in(self.folder, self.api.url, f"round {self.rounds}")
            async with connect(catalog) as client:
                await catalog.loaded(PATIENCE)
                await asyncio.gather(*(self.buy(client, until) for _ in range(AT_ONCE)))

    async def buy(self, client: Any, until: float) -> None:
        """One caller: buy until there is no money left."""
        while time.monotonic() < until:
            how = ""
            with self.book.request("purchase"):
                async with asyncio.timeout(PATIENCE):
                    how = await self.order(client)
                if how != "bought":
                    raise Expected(how)
            if how in {NO_MONEY_LEFT, ""}:
                return
            await asyncio.sleep((BREAKER_PAUSE if how == HELD_BACK else PAUSE) * self.chance.random())

    async def order(self, client: Any) -> str:
        """Order something; in a word, how it ended."""
        number, name = next(self.numbers), self.chance.choice(list(TOOLS))
        if self.chance.random() < FAULTY:
            self.api.spoil([self.chance.choice(FAULTS)])
        result = await client.call(name, TOOLS[name](number))
        text = result.text
        if not result.is_error:
            how = "bought"
            if name != "slow" and str(number) not in text:
                raise WrongError(f"the answer to {name} {number} is {text[:200]!r}")
        else:
            how = outcome(text)
        self.told.write(json.dumps({"tool": name, "arguments": TOOLS[name](number), "how": how}) + "\n")
        return how


def outcome(text: str) -> str:
    """Sort a refusal by its words. An unknown one is a finding."""
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
"""How a call may end, by words in the text that the caller gets."""


async def accept(folder: Path, until: float) -> None:
    """Allow tools again that were stopped because too many replies were lost, as a person would."""
    with SqliteLedger(folder / "ledger.db", owner="somebody who accepts") as ledger:
        while time.monotonic() < until:
            for stop in await asyncio.to_thread(ledger.stops):
                await asyncio.to_thread(ledger.accept, stop.entry_id)
            await asyncio.sleep(ACCEPT_PAUSE)


async def work(book: Book, case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="soak-") as name, (Path(name) / "told.jsonl").open("w+") as told:
        folder = Path(name)
        api = Api(folder)
        try:
            until = begin(case)
            shopping = Shopping(folder, api, book, told)
            async with asyncio.TaskGroup() as group:
                group.create_task(accept(folder, until))
                group.create_task(shopping.go(until))
        finally:
            api.end()
        told.seek(0)
        figures = compare(book, lines(api.book.open()), lines(told), folder)
    return {"books": {"rounds": shopping.rounds, **figures}}


def lines(file: IO[str]) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines."""
    with file:
        return [json.loads(line) for line in file]


def compare(
    book: Book, sold: list[dict[str, Any]], told: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """Hold the API's book, the ledger and what callers were told against each other."""
    with SqliteLedger(folder / "ledger.db", owner="somebody who looks") as ledger:
        rows = ledger.rows()
    for problem in itertools.chain(disagreements(sold, rows), lies(sold, told), excesses(rows)):
        book.blame(problem)
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


def disagreements(sold: list[dict[str, Any]], rows: list[Row]) -> Iterator[str]:
    """Every charge stands once in the ledger, with the right money."""
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


def lies(sold: list[dict[str, Any]], told: list[dict[str, Any]]) -> Iterator[str]:
    """What callers were told is what happened, and no order was filled twice."""
    orders = [name_of(each["name"], each["parameters"]) for each in sold]
    charged = set(orders)
    if len(charged) != len(orders):
        yield f"{len(orders) - len(charged)} orders were bought twice"
    for each in told:
        name = name_of(each["tool"], each["arguments"])
        if each["how"] == "bought" and name not in charged:
            yield f"told that it was bought, and it was not: {each}"
        if each["how"] != "bought" and not each["how"].startswith("unknown") and name in charged:
            yield f"told that nothing was charged, and it was: {each}"


def name_of(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"


def excesses(rows: list[Row]) -> Iterator[str]:
    """No round spent more than its budget."""
    spent: dict[str, int] = defaultdict(int)
    for row in rows:
        spent[row.session] += row.money
    for session, money in spent.items():
        if money > BUDGET:
            yield f"{session} spent {money} of {BUDGET}"


if __name__ == "__main__":
    main(work, json.loads(sys.argv[1]))
