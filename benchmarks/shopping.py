"""Buys in the shop, one order after the other, in one of several ways, and times each. One process, one way.

python -m benchmarks.shopping '{"way": "catalogue", "port": 8000, "count": 100}'
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

ARGUMENTS = {"city": "Ulm"}
FREE, PAID = "product-0", "product-1"
EXPECTED = "clear"
WARM = 20

Act = Callable[[], Awaitable[str]]


def main(case: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(asyncio.run(timed(**case))))


async def timed(way: str, port: int, count: int, at_once: int = 1, **more: Any) -> dict[str, Any]:
    """The time of each act, in nanoseconds; those of the first are left out. With `at_once` acts a second."""
    async with AsyncExitStack() as stack:
        act = await WAYS[way](stack, port, **more)
        if at_once > 1:
            return {"rate": await together(act, count, at_once)}
        times = []
        for _ in range(min(WARM, count) + count):
            since = time.perf_counter_ns()
            said = await act()
            times.append(time.perf_counter_ns() - since)
            if EXPECTED not in said:
                raise ValueError(f"a wrong answer: {said[:300]}")
    return {"times": times[-count:]}


async def together(act: Act, count: int, at_once: int) -> float:
    """How many acts a second there are when so many are under way at any time."""

    async def several(times: int) -> None:
        for _ in range(times):
            said = await act()
            if EXPECTED not in said:
                raise ValueError(f"a wrong answer: {said[:300]}")

    await several(WARM)
    since = time.perf_counter()
    await asyncio.gather(*(several(count // at_once) for _ in range(at_once)))
    return count // at_once * at_once / (time.perf_counter() - since)


async def bare(stack: AsyncExitStack, port: int, *, kept: bool, entry: str = PAID) -> Act:
    """The same request by the same HTTP library: on a fresh connection each time, or on one that is kept."""
    import httpx2  # noqa: PLC0415 - each way has imports of its own

    limits = httpx2.Limits(max_keepalive_connections=10 if kept else 0)
    client = await stack.enter_async_context(httpx2.AsyncClient(limits=limits, trust_env=False))
    headers = {"x-api-key": "k" * 20} | ({} if kept else {"Connection": "close"})
    order = {"product_id": entry, "parameters": ARGUMENTS}

    async def buy() -> str:
        reply = await client.post(f"http://127.0.0.1:{port}/buy", json=order, headers=headers)
        reply.raise_for_status()
        return str(reply.json()["result"])

    return buy


async def catalogue(stack: AsyncExitStack, port: int, *, ledger: str, entry: str = PAID) -> Act:
    """A tool call of a catalogue, as a client of the server sees it."""
    catalog = _shop(port, ledger)
    from toolwire._protocol.jsonrpc import ClientChannel  # noqa: PLC0415

    connection = catalog.connect(ClientChannel())
    stack.push_async_callback(connection.aclose)
    await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
    status = await catalog.loaded()
    name = next((name for name, each in catalog.definitions.items() if each.id == entry), None)
    if name is None:
        raise LookupError(f"{entry} is not on offer: {status}")
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": ARGUMENTS},
    }

    async def buy() -> str:
        return str(await connection.answer(message))

    return buy


async def listing(stack: AsyncExitStack, port: int, *, ledger: str) -> Act:
    """The whole list: fetched, checked, and offered as tools."""
    catalog = _shop(port, ledger)
    from toolwire._protocol.jsonrpc import ClientChannel  # noqa: PLC0415

    stack.push_async_callback((connection := catalog.connect(ClientChannel())).aclose)
    await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})

    async def load() -> str:
        catalog.refresh()
        status = await catalog.loaded()
        return f"{EXPECTED} {status}" if status.registered == 300 else str(status)  # noqa: PLR2004

    return load


async def bare_listing(stack: AsyncExitStack, port: int, *, kept: bool) -> Act:
    """Its pages, and nothing done with them."""
    import httpx2  # noqa: PLC0415

    limits = httpx2.Limits(max_keepalive_connections=10 if kept else 0)
    client = await stack.enter_async_context(httpx2.AsyncClient(limits=limits, trust_env=False))
    headers = {} if kept else {"Connection": "close"}

    async def load() -> str:
        items: list[Any] = []
        for number in range(1, 7):
            reply = await client.get(
                f"http://127.0.0.1:{port}/list?page={number}&page_size=50", headers=headers
            )
            items += reply.json()["items"]
        return EXPECTED if len(items) == 300 else str(len(items))  # noqa: PLR2004

    return load


def _shop(port: int, ledger: str) -> Any:
    from toolwire.catalog import Catalog, Profile  # noqa: PLC0415

    profile = Profile.from_dict(
        {
            "name": "bench",
            "base_url": f"http://127.0.0.1:{port}",
            "list": {
                "path": "/list",
                "items": "items",
                "paging": {"kind": "page", "size_parameter": "page_size", "size": 50, "more": "more"},
            },
            "entry": {"price": {"path": "price"}},
            "call": {"path": "/buy", "id_field": "product_id", "arguments": "parameters"},
            "secrets": {"key": {"variable": "BENCH_KEY", "key": "x-api-key"}},
        }
    )
    audit = False if ledger == ":memory:" else None
    limit = {"budget": 1000, "refresh": None, "cache": False, "audit": audit}
    return Catalog(profile, ledger=ledger, environ={"BENCH_KEY": "k" * 20, "HOME": str(Path.home())}, **limit)


WAYS: dict[str, Callable[..., Awaitable[Act]]] = {
    "bare": bare,
    "catalogue": catalogue,
    "listing": listing,
    "bare listing": bare_listing,
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
