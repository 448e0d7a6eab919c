"""One process of a load test: many calls at once, some cancelled, some made twice, while the list is reloaded.

python -m shared.storm URL FOLDER PLAN   makes the calls of a plan (JSON), and prints a line of JSON for each
"""

import asyncio
import json
import random
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace

import anyio

from shared.till import Watched, opened
from toolwire._support.tasks import on_trio
from toolwire.catalog.ledger.types import Limits
from toolwire.catalog.purchase.limits import Breaker
from toolwire.errors import CatalogError, McpError

__all__ = ["Plan", "run"]


@dataclass(frozen=True)
class Plan:
    """What one process does. The same plan makes the same calls, but for the timing."""

    seed: str
    first: int
    """The number of the first call: each has one of its own, over all processes."""
    calls: int
    names: list[str]
    max_in_flight: int
    queue_timeout: float
    limits: dict[str, int]
    profile: dict = field(default_factory=dict)
    session: str = "storm"
    backend: str = "asyncio"
    spread: float = 0.0
    """Seconds in which the calls begin; 0 is all at once."""
    cancelled: float = 0.0
    """The share of calls that are cancelled, at any time."""
    twice: float = 0.0
    """The share of calls that come twice at once, with the same id of the model's tool use."""
    refused: float = 0.0
    """The share of bookings that the ledger fails to make."""
    locks: int = 0
    """How often somebody else locks the ledger for a moment."""
    refreshes: int = 0
    failures: int = 1_000
    """After how many failures in a row the circuit breaker opens."""


async def run(api, folder, plan, say):
    """Make all calls of a plan, and report through `say` how each ended."""
    chance = random.Random(plan.seed)  # noqa: S311 - must be the same every time
    ledger = Watched(folder / "ledger.db")
    unlucky = random.Random(plan.seed + " ledger")  # noqa: S311

    def fail_by_chance(*_):
        if unlucky.random() < plan.refused:
            raise CatalogError("the disk is full, by chance")

    ledger.before["begin"] = fail_by_chance
    settings = {
        "ledger": ledger,
        "audit": False,
        "cache": False,
        "budget": Limits(**plan.limits),
        "max_in_flight": plan.max_in_flight,
        "queue_timeout": plan.queue_timeout,
        "breaker": Breaker(failures=plan.failures),
        "profile": plan.profile,
        "variables": {"TOOLWIRE_SESSION": plan.session},
    }
    try:
        async with opened(api, folder, **settings) as (catalog, client), anyio.create_task_group() as tasks:
            tasks.start_soon(_disturb, catalog, folder, plan)
            for number in range(plan.first, plan.first + plan.calls):
                name = chance.choice(plan.names)
                after = chance.uniform(0, plan.spread)
                within = chance.uniform(0, 0.4) if chance.random() < plan.cancelled else None
                for _ in range(2 if chance.random() < plan.twice else 1):
                    tasks.start_soon(_call_later, after, client, name, number, within, say)
    finally:
        ledger.close()


async def _call_later(after, *call):
    await anyio.sleep(after)
    await _call(*call)


async def _call(client, name, number, within, say):
    """Make one call, for `within` seconds at most, and report how it ended."""
    use = {"claudecode/toolUseId": f"toolu_{number}"}
    request = {"name": name, "arguments": {"number": number}, "_meta": use}
    ended = []

    async def ask():
        ended.append(await _ask(client, request))

    if within is not None and number % 2 and not on_trio():
        await _cancel_natively(asyncio.create_task(ask()), within)
    else:
        with anyio.move_on_after(within):
            await ask()
    how, text = ended[0] if ended else ("cancelled", "")
    say({"number": number, "how": how, "text": text})


async def _ask(client, request):
    try:
        result = await client.request("tools/call", request)
    except McpError as error:  # the list does not have the tool at this moment
        return "refused", error.message
    text = "\n".join(each["text"] for each in result["content"])
    if not result.get("isError"):
        return "bought", text
    return "unknown" if "UNKNOWN" in text else "refused", text


async def _cancel_natively(task, within):
    """Cancel with `Task.cancel()` of asyncio, which ignores shields, and again if the task goes on."""
    for seconds in (within, 0.01, None):
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
    if not task.cancelled():
        task.result()


async def _disturb(catalog, folder, plan):
    """Reload the list now and then, and lock the ledger for a moment, as another program might."""
    for number in range(max(plan.refreshes, plan.locks)):
        if number < plan.locks:
            await anyio.to_thread.run_sync(_lock, folder)
        if number < plan.refreshes:
            catalog.refresh()
            await catalog.loaded(10)
        await anyio.sleep(plan.spread / 10)


def _lock(folder):
    """Hold the ledger's file for a twentieth of a second."""
    with Watched(folder / "ledger.db") as other, other._database.writing():
        threading.Event().wait(0.05)


def _say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def storm_command(api, folder, plan):
    """Return the arguments for `Popen` that start this program with a plan."""
    command = [sys.executable, "-m", "shared.storm", api.url, str(folder), json.dumps(asdict(plan))]
    return {"args": command, "cwd": Path(__file__).parents[1]}


if __name__ == "__main__":
    url, place, given = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        made = Plan(**json.loads(given))
        anyio.run(run, SimpleNamespace(url=url), Path(place), made, _say, backend=made.backend)
