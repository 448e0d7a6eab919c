"""Many sessions in one process: opened together, used once each, looked at, and closed together.

The same code for both SDKs. Each session is one task from beginning to end, as the official client wants it.
"""

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import tools


async def session(client: Any, meet: asyncio.Barrier) -> None:
    """Connect, ask once, wait until all have been looked at, and go."""
    await client.connect()
    await meet.wait()  # all are open
    await client.query("go")
    results = [each async for each in client.receive_response() if type(each).__name__ == "ResultMessage"]
    if not results or results[-1].is_error:
        raise RuntimeError(f"no good result: {results}")
    await meet.wait()  # all have been used
    await meet.wait()  # all have been looked at
    await client.disconnect()


def own() -> dict[str, int]:
    """What this process has now: kilobytes in memory, threads, open files, processes that it started."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    children = [each.read_text().split() for each in Path("/proc/self/task").glob("*/children")]
    return {
        "rss": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a Path has no use for numbers
        "children": sum(map(len, children)),
    }


async def many(sdk: Any, options: Any, count: int) -> dict[str, Any]:
    """All sessions at once."""
    meet = asyncio.Barrier(count + 1)
    before, cpu = own(), time.process_time()
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(session(sdk.ClaudeSDKClient(options), meet))
        await meet.wait()
        opened = time.perf_counter() - begun
        await meet.wait()
        during = own()
        begun = time.perf_counter()
        await meet.wait()
    closed = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    return {"before": before, "during": during, "open": opened, "close": closed, "cpu": cpu}


async def measured(sdk: Any, options: Any, case: dict[str, Any]) -> dict[str, Any]:
    """What they cost; after one to begin with, so that what is loaded once is."""
    if case.get("warm"):
        await many(sdk, options, 1)
    return await many(sdk, options, case["sessions"])


def main(case: dict[str, Any]) -> None:
    sdk = importlib.import_module(case["sdk"])
    given = {"setting_sources": [], "strict_mcp_config": True, "allowed_tools": ["mcp__calc__add"]}
    options = sdk.ClaudeAgentOptions(
        mcp_servers=tools.typed(sdk), cli_path=case["cli"], cwd=case["cwd"], **given
    )
    sys.stdout.write(json.dumps(asyncio.run(measured(sdk, options, case))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
