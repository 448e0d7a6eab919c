"""Options in odd forms, over a whole conversation with a scripted CLI."""

import warnings

import anyio
import pytest

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ToolwireWarning,
    create_sdk_mcp_server,
    query,
    run,
    tool,
)
from toolwire.testing import ScriptedCLI, answer, call, say

pytestmark = pytest.mark.anyio


async def test_odd_options_are_warned_of_once_and_run():
    """Building the options emits the warnings; the runs that use them emit no more."""
    seen = []

    async def watch(event, tool_use_id, context):
        seen.append(event["tool_name"])
        return {}

    @tool("add", "Add", {"a": float, "b": float})
    async def add(args):
        return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}

    with pytest.warns(ToolwireWarning) as caught:
        options = ClaudeAgentOptions(
            allowed_tools="mcp__calc__add",
            env=None,
            extra_args=None,
            hooks={"PreToolUse": [watch]},
            mcp_servers={"calc": create_sdk_mcp_server("", tools=[add]), "gone": None},
            system_prompt={"type": "text", "text": "Add."},
        )
    assert {each.filename for each in caught} == {__file__}
    assert len(caught) == 4
    with anyio.fail_after(30), warnings.catch_warnings():
        warnings.simplefilter("error")
        options.spawn_claude_code_process = ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("3")])
        assert [getattr(message, "result", None) async for message in query(prompt="1 + 2", options=options)][
            -1:
        ] == ["3"]
        options.spawn_claude_code_process = ScriptedCLI([answer({"n": 3})])
        assert (await run("1 + 2", options=options, output_type=dict[str, int])).output == {"n": 3}
    assert seen == ["mcp__calc__add"]
    assert options.allowed_tools == "mcp__calc__add"


async def test_servers_can_be_added_where_there_were_none():
    """`mcp_servers=None` is an empty table, also for the control requests."""
    options = ClaudeAgentOptions(mcp_servers=None, spawn_claude_code_process=ScriptedCLI([say("hi")]))
    with anyio.fail_after(30):
        async with ClaudeSDKClient(options) as client:
            await client.add_mcp_server("calc", create_sdk_mcp_server("calc"))
            await client.reinitialize()
