"""The scripted CLI compared with the real one: the same scenario on both gives the user the same messages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    ToolServer,
    query,
)
from toolwire.testing import ScriptedCLI, answer, call, fail, say, think, turn

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # each scenario starts a real CLI

LIMIT = 60

# Where the scripted CLI differs, and why it stays so. Frames and fields named here are not compared.
DIFFERENCES = {
    "system/thinking_tokens": "estimates of the real CLI's own counter; the script says nothing of them",
    "system/init: built-in tools, agents, skills, commands, plugins, paths": "there is nothing behind them here",
    "order of a call's result and the next block of the same message": "the real CLI starts tools while the "
    "model still streams, so it varies from run to run",
    "assistant: timestamp, thinking_duration_ms, thinking_display": "times, and a display setting of the account",
    "system/notification after a Stop hook that blocks": "a line for the terminal",
    "initialize of MCP: description and websiteUrl in clientInfo": "texts that servers show to people",
    "result: times, cache and service fields of usage, subagent and speed fields": "not made up by the script",
}
UNCOMPARED = {"thinking_tokens"}
RESULT_FIELDS = (
    *("subtype", "is_error", "terminal_reason", "num_turns", "result", "structured_output", "errors"),
    *("stop_reason", "permission_denials", "api_error_status", "api_error_type"),
)


def server():
    calc = ToolServer("calc")

    @calc.tool
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    @calc.tool
    def broken() -> str:
        """Fail."""
        raise ValueError("out of order")

    @calc.tool
    def nothing() -> None:
        """Give nothing."""

    @calc.tool
    def data() -> dict[str, Any]:
        """Structured content beside a text."""
        return {"content": [{"type": "text", "text": "lost"}], "structuredContent": {"a": 1, "b": [2, "ü"]}}

    @calc.tool
    def linked() -> dict[str, Any]:
        """A link and an embedded resource."""
        link = {"type": "resource_link", "name": "a.txt", "uri": "file:///a.txt"}
        return {"content": [link, {"type": "resource", "resource": {"uri": "res://x", "text": "inside"}}]}

    return calc


ADD = call("mcp__calc__add", a=1, b=2)
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


async def allow(name, given, context):
    return PermissionResultAllow(updated_input={**given, "b": 40})


async def deny(name, given, context):
    return PermissionResultDeny(message="not today")


async def forbid(given, tool_use_id, context):
    decision = {"permissionDecision": "deny", "permissionDecisionReason": "not this one"}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


@dataclass
class Scenario:
    """A script, and the options that are given beside the server."""

    script: Callable[[], list[Any]]
    options: dict[str, Any] = field(default_factory=dict)
    allowed: bool = True


SCENARIOS = {
    "text": Scenario(lambda: [say("hello")]),
    "thinking": Scenario(lambda: [turn(think("hm"), say("hello"))]),
    "one call": Scenario(
        lambda: [turn(say("I add."), ADD), lambda request: say(request.tool_results[0].text)]
    ),
    "two calls": Scenario(lambda: [turn(ADD, call("mcp__calc__linked")), say("done")]),
    "tool error": Scenario(
        lambda: [turn(call("mcp__calc__broken"), call("mcp__calc__nothing")), say("done")]
    ),
    "invalid arguments": Scenario(lambda: [call("mcp__calc__add", a="x"), say("done")]),
    "unknown tool": Scenario(lambda: [call("mcp__calc__nope"), say("done")]),
    "allowed by the callback": Scenario(lambda: [ADD, say("done")], {"can_use_tool": allow}, allowed=False),
    "denied by the callback": Scenario(lambda: [ADD, say("done")], {"can_use_tool": deny}, allowed=False),
    "nobody to ask": Scenario(lambda: [ADD, say("done")], allowed=False),
    "denied by a hook": Scenario(
        lambda: [ADD, say("done")],
        {"hooks": {"PreToolUse": [HookMatcher(matcher="mcp__calc__add", hooks=[forbid])]}},
    ),
    "structured result": Scenario(lambda: [call("mcp__calc__data"), say("done")]),
    "structured output": Scenario(
        lambda: [say("later"), answer({"x": 1})], {"output_format": {"type": "json_schema", "schema": SCHEMA}}
    ),
    "too many turns": Scenario(lambda: [ADD], {"max_turns": 1}),
    "API error": Scenario(lambda: [fail(401)]),
}


def common(scenario):
    rules = {"allowed_tools": ["mcp__calc"]} if scenario.allowed else {}
    given = {"mcp_servers": {"calc": server()}, "include_all_messages": True}
    return {**given, **rules, **scenario.options}


def imitated(cli, options):
    return ClaudeAgentOptions(spawn_claude_code_process=cli, **options)


async def messages(options):
    """Return what a user gets of a run, including the exception at its end."""
    seen = []
    with anyio.fail_after(LIMIT):
        try:
            async for message in query(prompt="hello", options=options):
                seen.append(message)
        except ResultError as error:
            seen.append(error)
    return normal(seen)


def normal(seen):
    """Return the messages without what differs from run to run, and without what `DIFFERENCES` names."""
    frames = [("raised", str(each)) if isinstance(each, Exception) else shown(each) for each in seen]
    return together([frame for frame in frames if frame is not None])


def shown(message):
    frame = getattr(message, "raw", None) or message.data
    match frame["type"]:
        case "assistant":
            said = frame["message"]
            return {
                "type": "assistant",
                "id": said["id"] if said["id"].startswith("msg_") else "made up",
                "model": said["model"],
                "content": said["content"],
                "tokens": (said["usage"]["input_tokens"], said["usage"]["output_tokens"]),
                "error": frame.get("error"),
                "meta": frame.get("tool_use_meta"),
            }
        case "user":
            kept = {key: frame.get(key) for key in ("tool_use_result", "tool_result_meta", "isSynthetic")}
            return {"type": "user", "content": frame["message"]["content"], **kept}
        case "result":
            usage = (frame["usage"]["input_tokens"], frame["usage"]["output_tokens"])
            cost = round(frame["total_cost_usd"], 9)
            kept = {key: frame.get(key) for key in RESULT_FIELDS}
            return {"type": "result", "tokens": usage, "cost": cost, **kept}
        case "system" if frame["subtype"] in UNCOMPARED:
            return None
        case "system" if frame["subtype"] == "init":
            own = [name for name in frame["tools"] if name.startswith("mcp__") or name == "StructuredOutput"]
            same = {key: frame[key] for key in ("mcp_servers", "model", "permissionMode")}
            return {"type": "init", "tools": sorted(own), **same}
        case _:
            return {key: value for key, value in frame.items() if key not in ("uuid", "session_id")}


def together(frames):
    """Put the blocks of one message side by side, no matter when the results of its calls came."""
    ordered = []
    for frame in frames:
        at = [
            place
            for place, other in enumerate(ordered)
            if "id" in frame and "id" in other and other["id"] == frame["id"]
        ]
        ordered.insert(at[-1] + 1 if at else len(ordered), frame)
    return ordered


@pytest.mark.real
@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_say_the_same(scripted, name):
    """A scenario on the real CLI and on the scripted one gives the same messages."""
    scenario = SCENARIOS[name]
    async with scripted(scenario.script(), **common(scenario)) as (_, options):
        real = await messages(options)
    cli = ScriptedCLI(scenario.script())
    ours = await messages(imitated(cli, common(scenario)))
    assert ours == real
    cli.assert_finished()


def waiting_server():
    calc = ToolServer("calc")
    started = anyio.Event()

    @calc.tool
    async def wait() -> str:
        """Wait for ever."""
        started.set()
        await anyio.sleep_forever()

    return calc, started


async def interrupted(options, started):
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options) as client:
            await client.query("hello")
            await started.wait()
            await client.interrupt()
            return normal([message async for message in client.receive_response()])


@pytest.mark.real
async def test_both_are_interrupted_alike(scripted):
    """An interrupt in a tool call cancels the tool and ends the turn with the same messages."""
    given = {"allowed_tools": ["mcp__calc"], "include_all_messages": True}
    script = [call("mcp__calc__wait")]
    calc, started = waiting_server()
    async with scripted(script, mcp_servers={"calc": calc}, **given) as (_, options):
        real = await interrupted(options, started)
    calc, started = waiting_server()
    cli = ScriptedCLI(script)
    ours = await interrupted(imitated(cli, {"mcp_servers": {"calc": calc}, **given}), started)
    assert ours == real
    cli.assert_finished()


@pytest.mark.real
async def test_both_are_interrupted_alike_in_a_permission_request(scripted):
    """An interrupt while the host is asked for permission cancels the request and rejects the call."""
    script = [ADD]

    def asking():
        started = anyio.Event()

        async def wait(name, given, context):
            started.set()
            await anyio.sleep_forever()

        return started, {
            "can_use_tool": wait,
            "mcp_servers": {"calc": server()},
            "include_all_messages": True,
        }

    started, given = asking()
    async with scripted(script, **given) as (_, options):
        real = await interrupted(options, started)
    started, given = asking()
    cli = ScriptedCLI(script)
    ours = await interrupted(imitated(cli, given), started)
    assert ours == real
    cli.assert_finished()


def flip_error(frame):
    if frame["type"] == "user":
        frame["message"]["content"][0]["is_error"] = False


def count_wrong(frame):
    if frame["type"] == "result":
        frame["num_turns"] += 1


def other_words(frame):
    if frame["type"] == "user":
        frame["message"]["content"][0]["content"] += "!"


@pytest.mark.parametrize("bug", [flip_error, count_wrong, other_words])
async def test_a_bug_in_the_scripted_cli_would_be_caught(bug):
    """The comparison sees a wrong flag, a wrong number and a wrong text."""
    scenario = SCENARIOS["tool error"]

    def buggy(command):
        transport = ScriptedCLI(scenario.script())(command)
        read = transport.read_messages

        async def altered():
            async for frame in read():
                bug(frame)
                yield frame

        transport.read_messages = altered
        return transport

    right = await messages(imitated(ScriptedCLI(scenario.script()), common(scenario)))
    assert right == await messages(imitated(ScriptedCLI(scenario.script()), common(scenario)))
    assert right != await messages(imitated(buggy, common(scenario)))
