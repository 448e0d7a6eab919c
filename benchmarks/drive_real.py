"""Runs one conversation with the real CLI and times it in this process: from before the import to the result.

The same code for both SDKs. `way` says which CLI gets the prompt: with `query` one that is started for it, with
`warm` one that was started before.
"""

import time

BEGUN = time.monotonic_ns()

import asyncio  # noqa: E402 - the imports are part of what is timed
import importlib  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

SETTLED = 0.5  # seconds between starting a warm CLI and sending the prompt


async def run_cold(sdk: Any, options: Any) -> dict[str, int]:
    """Send a prompt for which a CLI has to be started."""
    seen = {"asked": time.monotonic_ns()}
    async for message in sdk.query(prompt="add", options=options):
        record(seen, message)
    return seen


async def run_warm(sdk: Any, options: Any) -> dict[str, int]:
    """Send a prompt to a running CLI: started by `startup()`, or by a client that has connected."""
    if hasattr(sdk, "startup"):
        client = await sdk.startup(options)
    else:
        client = sdk.ClaudeSDKClient(options)
        await client.connect()
    await asyncio.sleep(SETTLED)
    seen = {"asked": time.monotonic_ns()}
    await client.query("add")
    async for message in client.receive_response():
        record(seen, message)
    await client.disconnect()
    return seen


def record(seen: dict[str, int], message: Any) -> None:
    """Record when the first message, the first message of the model, and the result arrived."""
    kind, now = type(message).__name__, time.monotonic_ns()
    seen.setdefault("first", now)
    if kind == "AssistantMessage":
        seen.setdefault("said", now)
    elif kind == "ResultMessage":
        if message.is_error:
            raise RuntimeError(message.result)
        seen["result"] = now


def main(case: dict[str, Any]) -> None:
    """Run one conversation and print the recorded times as JSON."""
    sdk = importlib.import_module(case["sdk"])
    make_typed = importlib.import_module("benchmarks.tools").make_typed
    options = sdk.ClaudeAgentOptions(
        mcp_servers=make_typed(sdk),
        allowed_tools=["mcp__calc__add"],
        setting_sources=[],
        strict_mcp_config=True,
        cwd=case["cwd"],
        cli_path=case["cli"],
    )
    seen = asyncio.run({"query": run_cold, "warm": run_warm}[case["way"]](sdk, options))
    sys.stdout.write(json.dumps({"inside": BEGUN, **seen}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
