"""Turns an OpenAPI document into tools with toolwire or FastMCP, lists and calls them, and prints times as JSON.

python -m benchmarks.openapi_tools '{"who": "toolwire", "document": "spec.json", "url": "http://127.0.0.1:1", ...}'

Each turn is a separate process. `tool` and `arguments` say what to call `count` times; without them nothing is
called. With the argument `serve` the program is the API instead: it prints its port, and responds to every request
at once, until its input ends.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

LISTS = 5
"""How often the list is requested again after the first time."""
ENOUGH = 20.0
"""Seconds after which the list is not requested again."""


async def measure_toolwire(case: dict[str, Any]) -> dict[str, Any]:
    """Measure toolwire."""
    from toolwire import OpenAPI  # noqa: PLC0415 - part of what is measured
    from toolwire.testing import connect  # noqa: PLC0415

    document = case["document"]
    begun = time.perf_counter()
    server = OpenAPI(document, base_url=case["url"], headers={"X-Api-Key": "benchmark"}, environ={})
    async with connect(server) as client:
        await server.loaded(600)
        loaded = time.perf_counter() - begun
        lists, tools = await _time_lists(client.list_tools)
        size = sum(len(json.dumps(tool.raw, separators=(",", ":"))) for tool in tools)
        calls = await _time_calls(
            case, lambda name, arguments: client.call(name, **arguments), lambda done: done.is_error
        )
    return {"load": loaded, "lists": lists, "tools": len(tools), "bytes": size, "calls": calls}


async def measure_fastmcp(case: dict[str, Any]) -> dict[str, Any]:
    """Measure FastMCP, with its own client in the same process."""
    import httpx2  # noqa: PLC0415 - as above
    from fastmcp import Client, FastMCP  # noqa: PLC0415

    document = case["document"]
    begun = time.perf_counter()
    web = httpx2.AsyncClient(base_url=case["url"], headers={"X-Api-Key": "benchmark"})
    server = FastMCP.from_openapi(openapi_spec=document, client=web)
    async with web, Client(server) as client:
        loaded = time.perf_counter() - begun
        lists, tools = await _time_lists(client.list_tools)
        size = sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools)
        calls = await _time_calls(case, client.call_tool, lambda done: done.is_error)
    return {"load": loaded, "lists": lists, "tools": len(tools), "bytes": size, "calls": calls}


async def _time_lists(list_tools: Any) -> tuple[list[float], Any]:
    """List the tools several times. Returns the seconds of each request, and the last list."""
    times, tools = [], None
    for _ in range(LISTS + 1):
        begun = time.perf_counter()
        tools = await list_tools()
        times.append(time.perf_counter() - begun)
        if sum(times) > ENOUGH:
            break
    return times, tools


async def _time_calls(case: dict[str, Any], call: Any, failed: Any) -> list[float]:
    """Call the tool of the case `count` times. Returns the seconds of each call."""
    times = []
    for _ in range(case.get("count", 0)):
        begun = time.perf_counter()
        done = await call(case["tool"], case["arguments"])
        times.append(time.perf_counter() - begun)
        if failed(done):
            raise RuntimeError(f"the call failed: {done}")
    return times


REPLY = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n{"id":"1","status":"open"}'


async def serve() -> None:
    """Respond to requests until the input ends. The requests of the benchmarks have no body."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Measure the case and print the result as JSON, or serve the API."""
    if sys.argv[1] == "serve":
        asyncio.run(serve())
        return
    case = json.loads(sys.argv[1])
    case["document"] = json.loads(Path(case["document"]).read_bytes())
    found = asyncio.run({"toolwire": measure_toolwire, "FastMCP": measure_fastmcp}[case["who"]](case))
    with Path("/proc/self/status").open() as status:
        found["peak"] = int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
