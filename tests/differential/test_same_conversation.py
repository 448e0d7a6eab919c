"""One changed import: the same program on the official SDK and on ours sees the same messages of the real CLI."""

import json
import re
import subprocess
import sys

import pytest

from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel, answer, call, fail, say, think, turn

pytestmark = pytest.mark.real

PROGRAM = """
import asyncio, dataclasses, importlib, json, sys

sdk = importlib.import_module(sys.argv[1])
official = importlib.import_module("claude_agent_sdk")


@sdk.tool("add", "Add two numbers", {"a": float, "b": float})
async def add(args):
    if args["b"] == 0:
        return {"content": [{"type": "text", "text": "no zero"}], "is_error": True}
    return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}


async def hook(hook_input, tool_use_id, context):
    print(json.dumps(["hook", hook_input["tool_name"], hook_input["tool_input"]]))
    return {}


async def decide(name, tool_input, context):
    print(json.dumps(["asked", name, tool_input, context.display_name]))
    if name == "Write":
        return sdk.PermissionResultDeny(message="not here")
    return sdk.PermissionResultAllow()


def plain(value):
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    name = type(value).__name__
    known = [field.name for field in dataclasses.fields(getattr(official, name))]
    fields = {field: plain(getattr(value, field)) for field in known}
    return {"class": name, "order": list(vars(value))[: len(known)], **fields}


async def main():
    options = sdk.ClaudeAgentOptions(
        mcp_servers={"calc": sdk.create_sdk_mcp_server("calc", "1.0.0", [add])},
        hooks={"PreToolUse": [sdk.HookMatcher(matcher="mcp__calc__add", hooks=[hook])]},
        can_use_tool=decide,
        setting_sources=[],
        strict_mcp_config=True,
        **json.loads(sys.argv[2]),
    )
    try:
        async for message in sdk.query(prompt=prompts(), options=options):
            print(json.dumps(plain(message), sort_keys=True))
    except sdk.ClaudeSDKError as error:
        print(json.dumps([type(error).__name__, getattr(error, "exit_code", None), str(error).splitlines()[0]]))


async def prompts():
    yield {"type": "user", "message": {"role": "user", "content": "go"}, "parent_tool_use_id": None}


asyncio.run(main())
"""

SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}}
SCENARIOS = {
    "text and thinking": ([turn(think("hm"), say("Grüße 🙂"))], {}),
    "tools": ([call("mcp__calc__add", a=15, b=27), call("mcp__calc__add", a=1, b=0), say("42")], {}),
    "denied": ([call("Write", {"file_path": "/nowhere/x", "content": "x"}), say("pity")], {}),
    "partial": ([turn(say("in pieces"), chunk_size=2)], {"include_partial_messages": True}),
    "structured": (
        [answer({"n": 1})],
        {
            "output_format": {
                "type": "json_schema",
                "schema": {"type": "object", "properties": {"n": {"type": "number"}}},
            }
        },
    ),
    "bad key": ([fail(401, "authentication_error", "bad key")], {}),
    "max turns": ([call("mcp__calc__add", a=1, b=2)], {"max_turns": 1}),
}

# What is different in every run, whoever runs it.
MOVING = re.compile(
    r'"(uuid|session_id|duration_ms|duration_api_ms|ttft_ms|total_cost_usd|costUSD|message_id|id|request_id'
    r"|memory_paths|cwd|messageId|capabilities|timestamp|signature|ttft_stream_ms|time_to_request_ms"
    r'|messaging_socket_path)": '
    r'("[^"]*"|[0-9.e-]+|\{[^}]*\}|\[[^\]]*\])'
)


def conversation(package, script, options):
    """Return the lines that the program prints with one package."""
    with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        given = json.dumps({**options, "cli_path": bundled_cli(), "cwd": str(env.cwd)})
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, package, given],
            env=env.env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.replace(str(env.home.parent), "PLACE").splitlines()
    return [json.loads(MOVING.sub(r'"\1": "…"', line)) for line in lines]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_messages(name):
    """Each message has the same class and official fields; callbacks and the error at the end are the same too."""
    script, options = SCENARIOS[name]
    ours, official = (conversation(package, script, options) for package in ("toolwire", "claude_agent_sdk"))
    assert ours == official
    assert len(ours) > 1
