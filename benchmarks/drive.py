"""Drives one SDK through its public API, with the peer in place of the CLI. One process, one SDK, one case.

The same code for both: what differs is the module that is imported, and how each lets a tool be written.
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


def main(case: dict[str, Any]) -> None:
    if "core" in case:
        os.sched_setaffinity(0, {case["core"]})
    sdk = importlib.import_module(case["sdk"])
    made = getattr(tools, case.get("tools", "none"))
    made(sdk, *(1 for _ in case.get("arguments", ())))  # loads what is loaded once
    begun = time.process_time_ns()
    servers = made(sdk, *case.get("arguments", ()))
    defining = time.process_time_ns() - begun
    options = sdk.ClaudeAgentOptions(cli_path=case["peer"], mcp_servers=servers, **case.get("options", {}))

    async def conversation() -> dict[str, Any]:
        count, last, cpu, latest = 0, 0, 0, None
        async for message in sdk.query(prompt="go", options=options):
            if type(message).__name__ != "ResultMessage":
                count += 1
                last = time.monotonic_ns()
                latest = message
            elif not message.is_error:
                cpu = time.process_time_ns()
        if not cpu:
            raise RuntimeError(f"no result came, after {count} messages")
        return {"messages": count, "last": last, "cpu": cpu, "size": _size(latest)}

    async def many(sessions: int) -> dict[str, Any]:
        """One to begin with, so that what is loaded once is; then all the others at the same time."""
        await conversation()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*(conversation() for _ in range(sessions)))
        return {"wall": time.perf_counter_ns() - wall, "cpu": time.process_time_ns() - cpu}

    work = many(case["sessions"]) if "sessions" in case else conversation()
    if case.get("loop") == "uvloop":
        import uvloop  # noqa: PLC0415 - only where it is measured

        seen = uvloop.run(work)
    else:
        seen = asyncio.run(work)
    sys.stdout.write(json.dumps({**seen, "defining": defining, **_peak()}))


def _peak() -> dict[str, int]:
    """The peak of this process's memory in kilobytes, where the kernel tells it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    return {"peak": int(status.read_text().partition("VmHWM:")[2].split()[0])}


def _size(message: Any) -> int:
    """How many characters of text a message has."""
    if message is None:
        return 0
    if hasattr(message, "event"):
        return len(message.event["delta"]["text"])
    return sum(len(block.text) for block in message.content)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
