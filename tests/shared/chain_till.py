"""A chain of paid steps on the sample paid API; as a program, it runs the chain once, and can wait to be killed.

python -m shared.chain_till URL FOLDER [WHERE]

Between its first and its second paid step it prints "here", and waits to be killed if WHERE is "between".
"""

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import anyio

from shared.till import catalog_for, say
from toolwire.testing import connect
from toolwire.tools.chain import chain, step
from toolwire.tools.tool import Tool
from toolwire.wrap import with_chains

TRIP = chain(
    "trip",
    "The weather, in French, and a share.",
    [
        step("weather", {"city": "${input/city}"}),
        step("translate", {"text": "${weather/result/sky}", "to": "fr"}),
        step("stock", {"symbol": "${input/symbol}"}),
    ],
)
PRICES = [10_000, 5_000, 20_000]
ARGUMENTS = {"city": "Ulm", "symbol": "TW"}


@asynccontextmanager
async def opened_chain(shop, folder, *chains, **settings):
    """Open a catalogue with chains, wait until it has loaded, and yield it with a client of it."""
    catalog = catalog_for(shop, folder, **settings)
    async with connect(with_chains(catalog, *(chains or (TRIP,)))) as client:
        await catalog.loaded(10)
        yield catalog, client


PAUSED = chain("paused", "The same with a pause.", [TRIP.steps[0], step("pause"), *TRIP.steps[1:]])


async def main(url, folder, where=""):
    """Run the chain once."""

    async def pause(_arguments):
        say("here")
        await anyio.sleep(60 if where == "between" else 0)

    catalog = catalog_for(SimpleNamespace(url=url), Path(folder), budget="1")
    catalog.add(Tool("pause", "", {}, pause))
    async with connect(with_chains(catalog, PAUSED)) as client:
        await catalog.loaded(10)
        await client.call("paused", ARGUMENTS)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
