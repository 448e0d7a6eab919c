"""Opens many sessions in one process, uses each once, measures the process, and closes them together.

The same code for both SDKs. Each session runs in one task from beginning to end, as the official client requires.
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


async def run_session(client: Any, barrier: asyncio.Barrier) -> None:
    """Connect, send one prompt, wait until the process has been measured, and disconnect."""
    await client.connect()
    await barrier.wait()  # all are open
    await client.query("go")
    results = [each async for each in client.receive_response() if type(each).__name__ == "ResultMessage"]
    if not results or results[-1].is_error:
        raise RuntimeError(f"no successful result: {results}")
    await barrier.wait()  # all have been used
    await barrier.wait()  # the process has been measured
    await client.disconnect()


def read_usage() -> dict[str, int]:
    """Return what this process uses now: kilobytes of memory, threads, open files and child processes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    children = [each.read_text().split() for each in Path("/proc/self/task").glob("*/children")]
    return {
        "rss": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only their number is needed
        "children": sum(map(len, children)),
    }


async def run_sessions(sdk: Any, options: Any, count: int) -> dict[str, Any]:
    """Run `count` sessions at once, and measure them."""
    barrier = asyncio.Barrier(count + 1)
    before, cpu = read_usage(), time.process_time()
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(run_session(sdk.ClaudeSDKClient(options), barrier))
        await barrier.wait()
        opened = time.perf_counter() - begun
        await barrier.wait()
        during = read_usage()
        begun = time.perf_counter()
        await barrier.wait()
    closed = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    return {"before": before, "during": during, "open": opened, "close": closed, "cpu": cpu}


async def measure(sdk: Any, options: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Measure the sessions. With `warm`, one session runs first, so that modules are loaded."""
    if case.get("warm"):
        await run_sessions(sdk, options, 1)
    return await run_sessions(sdk, options, case["sessions"])


def main(case: dict[str, Any]) -> None:
    """Run one case and print what was measured as JSON."""
    sdk = importlib.import_module(case["sdk"])
    given = {"setting_sources": [], "strict_mcp_config": True, "allowed_tools": ["mcp__calc__add"]}
    options = sdk.ClaudeAgentOptions(
        mcp_servers=tools.make_typed(sdk), cli_path=case["cli"], cwd=case["cwd"], **given
    )
    sys.stdout.write(json.dumps(asyncio.run(measure(sdk, options, case))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
