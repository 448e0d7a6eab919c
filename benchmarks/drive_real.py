"""One conversation with the real CLI, timed from inside: from before the import to the result.

The same code for both SDKs. `way` is how the prompt gets to the CLI: `query` starts one for it, `warm` has one that
was started before.
"""

import time

BEGUN = time.monotonic_ns()

import asyncio  # noqa: E402 - part of what is timed
import importlib  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

SETTLED = 0.5  # seconds that a warm CLI is left alone: the prompt comes when it comes


async def cold(sdk: Any, options: Any) -> dict[str, int]:
    """A prompt for which a CLI has to be started."""
    seen = {"asked": time.monotonic_ns()}
    async for message in sdk.query(prompt="add", options=options):
        note(seen, message)
    return seen


async def warm(sdk: Any, options: Any) -> dict[str, int]:
    """A prompt for a CLI that is there: by `startup()`, or by a client that has connected."""
    if hasattr(sdk, "startup"):
        client = await sdk.startup(options)
    else:
        client = sdk.ClaudeSDKClient(options)
        await client.connect()
    await asyncio.sleep(SETTLED)
    seen = {"asked": time.monotonic_ns()}
    await client.query("add")
    async for message in client.receive_response():
        note(seen, message)
    await client.disconnect()
    return seen


def note(seen: dict[str, int], message: Any) -> None:
    """When the first message came, the first of the model, and the result."""
    kind, now = type(message).__name__, time.monotonic_ns()
    seen.setdefault("first", now)
    if kind == "AssistantMessage":
        seen.setdefault("said", now)
    elif kind == "ResultMessage":
        if message.is_error:
            raise RuntimeError(message.result)
        seen["result"] = now


def main(case: dict[str, Any]) -> None:
    sdk = importlib.import_module(case["sdk"])
    typed = importlib.import_module("benchmarks.tools").typed
    options = sdk.ClaudeAgentOptions(
        mcp_servers=typed(sdk),
        allowed_tools=["mcp__calc__add"],
        setting_sources=[],
        strict_mcp_config=True,
        cwd=case["cwd"],
        cli_path=case["cli"],
    )
    seen = asyncio.run({"query": cold, "warm": warm}[case["way"]](sdk, options))
    sys.stdout.write(json.dumps({"inside": BEGUN, **seen}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
