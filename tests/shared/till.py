"""A connected catalogue of the sample paid API, with its ledger; as a program, the same in another process.

python -m shared.till URL FOLDER SCENE

The scene "race" prints "ready", waits for a line, and makes 100 calls at once. Any other, such as "before settle",
is a moment of the ledger, at which it prints "here" and waits to be killed. "waiting" is no such moment: it makes
one call.
"""

import os
import sys
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import anyio

from shared.market import KEYS, QUICK, profile_for
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.server import Catalog
from toolwire.testing import connect

ULM = {"city": "Ulm"}


def environ(folder, **more):
    """Return the environment variables of a catalogue that keeps its files in this folder."""
    return {
        "AGENT_PAYMENT_API_KEY": KEYS["x-api-key"],
        "AGENT_PAYMENT_BUDGET_KEY": KEYS["x-budget-key"],
        "TOOLWIRE_LEDGER": str(folder / "ledger.db"),
        **{
            name: os.environ[name]
            for name in ("TOOLWIRE_SESSION", "AGENT_PAYMENT_BUDGET")
            if name in os.environ
        },
        **more,
    }


def catalog_for(shop, folder, *, variables=None, profile=None, **settings):
    """Make a catalogue; `profile` are settings of the profile, `variables` are further environment variables."""
    return Catalog(
        profile_for(shop.url, **(profile or {})),
        environ=environ(folder, **(variables or {})),
        **{"retry": QUICK, "refresh": None, "cache": folder / "cache" / "kept.json", **settings},
    )


@asynccontextmanager
async def opened(shop, folder, **settings):
    """Open a catalogue, wait until it has loaded, and yield it with a client of it."""
    catalog = catalog_for(shop, folder, **settings)
    async with connect(catalog) as client:
        await catalog.loaded(10)
        yield catalog, client


class Watched(SqliteLedger):
    """A ledger that calls `before[act](*args)` and `after[act](*args)`, if they are set."""

    def __init__(self, path, **settings):
        self.before, self.after = {}, {}
        super().__init__(path, **settings)

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name not in ("begin", "check_again", "settle", "release", "unknown"):
            return value

        def act(*args, **settings):
            self.before.get(name, lambda *_: None)(*args)
            result = value(*args, **settings)
            self.after.get(name, lambda *_: None)(*args)
            return result

        return act


def ledger_in(folder):
    """Open the ledger as another owner, who only reads, or accepts charges."""
    return SqliteLedger(folder / "ledger.db", owner="somebody else")


def states(folder):
    """Return the state and the money of every call in the ledger, the oldest first."""
    with ledger_in(folder) as ledger:
        return [(row.state, row.money) for row in reversed(ledger.rows())]


def till_command(shop, folder, scene):
    """Return the arguments for `Popen` that start this program."""
    command = [sys.executable, "-m", "shared.till", shop.url, str(folder), scene]
    return {"args": command, "cwd": Path(__file__).parents[1]}


def say(word):
    """Write a word to the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def race(shop, folder):
    """Make a hundred calls at once when told so, and report how many succeeded."""
    done = []

    async def call(client, number):
        done.append(not (await client.call("weather", city=f"{os.getpid()} {number}")).is_error)

    async with opened(shop, folder, audit=False) as (_, client), anyio.create_task_group() as tasks:
        say("ready")
        sys.stdin.readline()
        for number in range(100):
            tasks.start_soon(call, client, number)
    say(sum(done))


async def halt(shop, folder, scene):
    """Make one call that stops at a moment of the ledger, and never gets past it."""
    ledger = Watched(folder / "ledger.db")
    when, _, act = scene.partition(" ")
    if act:
        getattr(ledger, when)[act] = lambda *_: say("here") or threading.Event().wait(60)
    async with opened(shop, folder, ledger=ledger) as (_, client):
        await client.call("weather", ULM)


if __name__ == "__main__":
    url, place, *rest = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        if rest == ["race"]:
            anyio.run(race, SimpleNamespace(url=url), Path(place))
        else:
            anyio.run(halt, SimpleNamespace(url=url), Path(place), *rest)
