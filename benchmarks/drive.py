"""Drives one SDK through its public API, with the peer in place of the CLI. One process, one SDK, one case.

The same code for both SDKs: only the imported module differs, and how tools are defined.
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
    """Run one case and print what was measured as JSON."""
    if "core" in case:
        os.sched_setaffinity(0, {case["core"]})
    sdk = importlib.import_module(case["sdk"])
    make_servers = getattr(tools, f"make_{case.get('tools', 'none')}")
    make_servers(sdk, *(1 for _ in case.get("arguments", ())))  # modules that are loaded once are loaded now
    begun = time.process_time_ns()
    servers = make_servers(sdk, *case.get("arguments", ()))
    defining = time.process_time_ns() - begun
    options = sdk.ClaudeAgentOptions(cli_path=case["peer"], mcp_servers=servers, **case.get("options", {}))

    async def converse() -> dict[str, Any]:
        count, last, cpu, latest = 0, 0, 0, None
        async for message in sdk.query(prompt="go", options=options):
            if type(message).__name__ != "ResultMessage":
                count += 1
                last = time.monotonic_ns()
                latest = message
            elif not message.is_error:
                cpu = time.process_time_ns()
        if not cpu:
            raise RuntimeError(f"no successful result arrived, after {count} messages")
        return {"messages": count, "last": last, "cpu": cpu, "size": count_characters(latest)}

    async def converse_at_once(sessions: int) -> dict[str, Any]:
        """Run one conversation as a warm-up, then `sessions` at the same time."""
        await converse()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*(converse() for _ in range(sessions)))
        return {"wall": time.perf_counter_ns() - wall, "cpu": time.process_time_ns() - cpu}

    work = converse_at_once(case["sessions"]) if "sessions" in case else converse()
    if case.get("loop") == "uvloop":
        import uvloop  # noqa: PLC0415 - only where it is measured

        seen = uvloop.run(work)
    else:
        seen = asyncio.run(work)
    sys.stdout.write(json.dumps({**seen, "defining": defining, **read_peak()}))


def read_peak() -> dict[str, int]:
    """Return the peak memory of this process in kilobytes; empty where the kernel does not provide it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    return {"peak": int(status.read_text().partition("VmHWM:")[2].split()[0])}


def count_characters(message: Any) -> int:
    """Return the number of characters of text in a message."""
    if message is None:
        return 0
    if hasattr(message, "event"):
        return len(message.event["delta"]["text"])
    return sum(len(block.text) for block in message.content)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
