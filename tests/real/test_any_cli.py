"""What toolwire promises with every CLI that it supports, however old or new.

`make real` runs these with the CLI of the dev dependency, `make clis` with the oldest that is supported and with
the newest there is. So they look at what a user sees, and not at what differs from one version to the next: a
script may be asked for one more turn, and a message may have more fields.
"""

import subprocess

import anyio
import pytest

from real.cli_under_test import cli_under_test
from toolwire import (
    AssistantMessage,
    ClaudeSDKClient,
    ControlRequestError,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolServer,
    query,
)
from toolwire._transport.find_cli import OLDEST_SUPPORTED, parse_version
from toolwire.testing import ClaudeEnvironment, answer, call, fail, say, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]  # each test starts a CLI

LIMIT = 90
ADD = "mcp__calc__add"


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    """Fail a test that hangs."""
    with anyio.fail_after(LIMIT):
        yield


class Calc:
    """A server, and the arguments that its tools were called with."""

    def __init__(self):
        self.seen = []
        self.waiting, self.cancelled = anyio.Event(), anyio.Event()
        self.server = ToolServer("calc")
        for function in (self.add, self.broken, self.wait):
            self.server.tool(function)

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.seen.append((a, b))
        return a + b

    async def broken(self) -> str:
        """Fail."""
        raise ValueError("out of order")

    async def wait(self) -> str:
        """Wait until cancelled."""
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()

    def options(self, **more):
        return {"mcp_servers": {"calc": self.server}, "allowed_tools": ["mcp__calc"], **more}


async def asked(options, prompt="go"):
    """Return all messages of a run."""
    return [message async for message in query(prompt=prompt, options=options)]


async def received(client):
    """Return the result of a turn."""
    messages = [message async for message in client.receive_response()]
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1]


def results_of(model):
    """Return the tool results that the model got, each with its text and whether it is an error."""
    return [(each.text, each.is_error) for request in model.requests for each in request.tool_results]


def test_the_version_is_one_that_is_supported():
    """The CLI that these tests run is a supported version, so that `make clis` runs what it says it does."""
    with ClaudeEnvironment("http://127.0.0.1:9") as clean:
        done = subprocess.run(
            [cli_under_test(), "--version"],
            env=clean.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert parse_version(done.stdout) >= parse_version(OLDEST_SUPPORTED)


async def test_a_text(scripted):
    """A run has the start of a session, the model's text and the result."""
    async with scripted([say("hello")]) as (_, options):
        messages = await asked(options)
    start = next(each for each in messages if isinstance(each, SystemMessage) and each.subtype == "init")
    assert parse_version(start.data["claude_code_version"])
    texts = [block.text for each in messages if isinstance(each, AssistantMessage) for block in each.content]
    assert texts == ["hello"]
    result = messages[-1]
    assert (result.subtype, result.is_error, result.result) == ("success", False, "hello")
    assert result.session_id == start.data["session_id"]


async def test_tools(scripted):
    """Calls run in this process, and their results and failures reach the model."""
    calc = Calc()
    calls = [call(ADD, a=15, b=27), call("mcp__calc__broken"), call(ADD, a="x", b=1)]
    async with scripted([turn(*calls), say("done")], **calc.options()) as (model, options):
        messages = await asked(options)
    assert messages[-1].result == "done"
    (sum_, failed), (broken, also), (wrong, too) = results_of(model)
    assert (sum_, failed, calc.seen) == ("42", False, [(15, 27)])
    assert "out of order" in broken
    assert "a" in wrong
    assert (also, too) == (True, True)


async def test_permissions(scripted):
    """A callback changes the input of one call and denies the other, and the model gets the reason."""
    calc = Calc()

    async def decide(name, given, context):
        if given["a"] == 1:
            return PermissionResultAllow(updated_input={**given, "b": 41})
        return PermissionResultDeny(message="not today")

    script = [call(ADD, a=1, b=2), call(ADD, a=2, b=2), say("done")]
    more = {"mcp_servers": {"calc": calc.server}, "can_use_tool": decide}
    async with scripted(script, **more) as (model, options):
        assert (await asked(options))[-1].result == "done"
    allowed, denied = results_of(model)
    assert allowed == ("42", False)
    assert "not today" in denied[0]
    assert denied[1]
    assert calc.seen == [(1, 41)]


async def test_hooks(scripted):
    """A hook sees a call and its result, and denies the next call."""
    calc, seen = Calc(), []

    async def note(given, tool_use_id, context):
        seen.append((given["hook_event_name"], given["tool_name"], given["tool_input"]["a"]))
        if given["hook_event_name"] == "PreToolUse" and given["tool_input"]["a"] == 2:
            decision = {"permissionDecision": "deny", "permissionDecisionReason": "no twos"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}
        return {}

    hooks = {name: [HookMatcher(matcher=ADD, hooks=[note])] for name in ("PreToolUse", "PostToolUse")}
    script = [call(ADD, a=1, b=2), call(ADD, a=2, b=2), say("done")]
    async with scripted(script, **calc.options(hooks=hooks)) as (model, options):
        assert (await asked(options))[-1].result == "done"
    assert seen == [("PreToolUse", ADD, 1), ("PostToolUse", ADD, 1), ("PreToolUse", ADD, 2)]
    assert results_of(model)[0] == ("3", False)
    assert "no twos" in results_of(model)[1][0]


async def test_several_prompts(scripted):
    """The second request to the model has the first prompt and the first answer."""
    async with (
        scripted([say("first"), say("second")]) as (model, options),
        ClaudeSDKClient(options) as client,
    ):
        for prompt, expected in (("one", "first"), ("two", "second")):
            await client.query(prompt)
            assert (await received(client)).result == expected
        said = str(model.requests[1].body["messages"])
    assert "one" in said
    assert "first" in said


async def test_interrupt_and_go_on(scripted):
    """A running tool is cancelled, and the session takes the next prompt."""
    calc = Calc()
    script = [call("mcp__calc__wait"), say("still here")]
    async with scripted(script, **calc.options()) as (_, options), ClaudeSDKClient(options) as client:
        await client.query("wait")
        await calc.waiting.wait()
        await client.interrupt()
        await calc.cancelled.wait()
        await received(client)
        await client.query("and now?")
        assert (await received(client)).result == "still here"


async def test_leaving_in_mid_call(scripted):
    """The tool is cancelled and the CLI ends."""
    calc = Calc()
    async with scripted([call("mcp__calc__wait")], **calc.options()) as (_, options):
        async with ClaudeSDKClient(options) as client:
            await client.query("wait")
            await calc.waiting.wait()
        await calc.cancelled.wait()


async def test_structured_output(scripted):
    """The answer is in the result. Older CLIs then ask the model once more."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    more = {"output_format": {"type": "json_schema", "schema": schema}}
    async with scripted([answer({"x": 1}), say("done")], finished=False, **more) as (_, options):
        assert (await asked(options))[-1].structured_output == {"x": 1}


async def test_partial_messages(scripted):
    """The pieces of a text arrive as stream events."""
    async with scripted([say("hello")], include_partial_messages=True) as (_, options):
        messages = await asked(options)
    events = [each.event for each in messages if isinstance(each, StreamEvent)]
    pieces = [each["delta"]["text"] for each in events if each["type"] == "content_block_delta"]
    assert "".join(pieces) == "hello"


async def test_errors_are_typed(scripted):
    """Too many turns and an error of the API each raise ResultError."""
    calc = Calc()
    async with scripted([call(ADD, a=1, b=1)], finished=False, **calc.options(max_turns=1)) as (_, options):
        with pytest.raises(ResultError, match="turns"):
            await asked(options)
    # Some CLIs repeat a request after a 400 in a plainer form before they give up.
    async with scripted([fail(400, message="no such luck")] * 3, finished=False) as (_, options):
        with pytest.raises(ResultError, match="no such luck"):
            await asked(options)


async def test_control_requests(scripted):
    """The usual ones work; one that no CLI knows is refused with a typed error, and the session goes on."""
    async with (
        scripted([say("one")], **Calc().options()) as (_, options),
        ClaudeSDKClient(options) as client,
    ):
        await client.set_permission_mode("acceptEdits")
        await client.set_model("claude-haiku-4-5")
        with pytest.raises(ControlRequestError):
            await client.control_request("no_such_request")
        await client.query("go")
        assert (await received(client)).result == "one"
        status = await client.get_mcp_status()
        assert [each["name"] for each in status["mcpServers"]] == ["calc"]


async def test_unknown_messages_pass_through(scripted):
    """A run with every message of the CLI in the stream ends with the same result."""
    async with scripted([say("hello")], include_all_messages=True) as (_, options):
        assert (await asked(options))[-1].result == "hello"
