"""Buys or lists products of the shop in one of several ways, and times each act. One process measures one way.

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
"""Buys or lists once, and returns a text that must contain `EXPECTED`."""


def main(case: dict[str, Any]) -> None:
    """Run one case and print the times as JSON."""
    sys.stdout.write(json.dumps(asyncio.run(time_acts(**case))))


async def time_acts(way: str, port: int, count: int, at_once: int = 1, **more: Any) -> dict[str, Any]:
    """Return the time of each act in nanoseconds, or with `at_once` the acts per second, after a warm-up."""
    async with AsyncExitStack() as stack:
        act = await WAYS[way](stack, port, **more)
        if at_once > 1:
            return {"rate": await measure_rate(act, count, at_once)}
        times = []
        for _ in range(min(WARM, count) + count):
            since = time.perf_counter_ns()
            text = await act()
            times.append(time.perf_counter_ns() - since)
            if EXPECTED not in text:
                raise ValueError(f"wrong response, without {EXPECTED!r}: {text[:300]}")
    return {"times": times[-count:]}


async def measure_rate(act: Act, count: int, at_once: int) -> float:
    """Return the number of acts per second with `at_once` in flight."""

    async def several(times: int) -> None:
        for _ in range(times):
            text = await act()
            if EXPECTED not in text:
                raise ValueError(f"wrong response, without {EXPECTED!r}: {text[:300]}")

    await several(WARM)
    since = time.perf_counter()
    await asyncio.gather(*(several(count // at_once) for _ in range(at_once)))
    return count // at_once * at_once / (time.perf_counter() - since)


async def make_bare_buyer(stack: AsyncExitStack, port: int, *, kept: bool, entry: str = PAID) -> Act:
    """Return an act that buys with the HTTP library alone, on a fresh connection each time or on a kept one."""
    import httpx2  # noqa: PLC0415 - each way imports only what it needs

    limits = httpx2.Limits(max_keepalive_connections=10 if kept else 0)
    client = await stack.enter_async_context(httpx2.AsyncClient(limits=limits, trust_env=False))
    headers = {"x-api-key": "k" * 20} | ({} if kept else {"Connection": "close"})
    order = {"product_id": entry, "parameters": ARGUMENTS}

    async def buy() -> str:
        reply = await client.post(f"http://127.0.0.1:{port}/buy", json=order, headers=headers)
        reply.raise_for_status()
        return str(reply.json()["result"])

    return buy


async def make_catalogue_buyer(stack: AsyncExitStack, port: int, *, ledger: str, entry: str = PAID) -> Act:
    """Return an act that buys by a tool call, as sent by a client of the catalogue."""
    catalog = _make_catalog(port, ledger)
    from toolwire._protocol.jsonrpc import ClientChannel  # noqa: PLC0415

    connection = catalog.connect(ClientChannel())
    stack.push_async_callback(connection.aclose)
    await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
    status = await catalog.loaded()
    name = next((name for name, each in catalog.definitions.items() if each.id == entry), None)
    if name is None:
        raise LookupError(f"the catalogue has no tool for {entry}: {status}")
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": ARGUMENTS},
    }

    async def buy() -> str:
        return str(await connection.answer(message))

    return buy


async def make_catalogue_loader(stack: AsyncExitStack, port: int, *, ledger: str) -> Act:
    """Return an act that loads the whole list into a catalogue: fetched, checked, and offered as tools."""
    catalog = _make_catalog(port, ledger)
    from toolwire._protocol.jsonrpc import ClientChannel  # noqa: PLC0415

    stack.push_async_callback((connection := catalog.connect(ClientChannel())).aclose)
    await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})

    async def load() -> str:
        catalog.refresh()
        status = await catalog.loaded()
        return f"{EXPECTED} {status}" if status.registered == 300 else str(status)  # noqa: PLR2004

    return load


async def make_bare_loader(stack: AsyncExitStack, port: int, *, kept: bool) -> Act:
    """Return an act that only fetches the pages of the list."""
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


def _make_catalog(port: int, ledger: str) -> Any:
    """Return a catalogue of the shop."""
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
    "bare": make_bare_buyer,
    "catalogue": make_catalogue_buyer,
    "listing": make_catalogue_loader,
    "bare listing": make_bare_loader,
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
