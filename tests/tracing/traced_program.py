"""A user's program under a tracing library: one turn of a client with a tool, then one `query()`.

python traced_program.py LIBRARY MODULE SCENARIO OUT OPTIONS

It is the same program for the official package and for toolwire. MODULE is `claude_agent_sdk`, or `toolwire` for
the changed import. In the SCENARIO `failing` the tool and the model fail, and the program has hooks. What the
library recorded is written to OUT as JSON. Only loopback can be reached.
"""

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path

import loopback
from libraries import LIBRARIES


async def run(sdk, options, traced, scenario):
    """Run a turn and a query, as the documentation of the official package shows them."""

    @sdk.tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(args):
        if scenario == "failing":
            return {"content": [{"type": "text", "text": "no sums today"}], "is_error": True}
        return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}

    shared = {
        "allowed_tools": ["mcp__calc__add"],
        "system_prompt": "You are a calculator.",
        "setting_sources": [],
        "model": "claude-sonnet-4-5",
        **options,
    }
    if scenario == "failing":
        shared["hooks"] = {
            event: [sdk.HookMatcher(hooks=[allow])] for event in ("PreToolUse", "UserPromptSubmit")
        }
    server = sdk.create_sdk_mcp_server("calc", "1.0.0", [add])
    seen = []
    async with traced.client(sdk, sdk.ClaudeAgentOptions(mcp_servers={"calc": server}, **shared)) as client:
        await client.query("What is 15 + 27?")
        async for message in client.receive_response():
            seen.append(type(message).__name__)
    try:
        async for message in traced.query(sdk, prompt="Say hello", options=sdk.ClaudeAgentOptions(**shared)):
            seen.append(type(message).__name__)
    except sdk.ResultError as error:
        seen.append(str(error))
    return seen


async def allow(hook_input, tool_use_id, context):
    """Decide nothing: the CLI goes on."""
    return {}


def main() -> None:
    """Set the library up, run the program, and write what was recorded."""
    library, module, scenario, out, options = sys.argv[1:]
    traced = LIBRARIES[library](module)
    sdk = importlib.import_module(module)
    seen = asyncio.run(run(sdk, json.loads(options), traced, scenario))
    found = {
        "sdk": Path(sys.modules[sdk.ClaudeAgentOptions.__module__.partition(".")[0]].__file__).parent.name,
        "messages": seen,
        "spans": traced.collect(),
        "refused": loopback.refused,
    }
    Path(out).write_text(json.dumps(found, default=repr), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # libraries that flush their queues at exit would wait for a server that is not there


main()
