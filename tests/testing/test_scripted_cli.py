"""The scripted CLI: whole conversations in memory, faults, and assertions about them."""

import base64
import json
import logging
import re
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    McpError,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ProcessError,
    ResultError,
    ToolServer,
    UserMessage,
    query,
    run,
)
from toolwire.errors import CLIConnectionError, CLITimeoutError
from toolwire.testing import (
    ScriptedCLI,
    answer,
    call,
    drop,
    exit_early,
    fail,
    garbage,
    hang,
    say,
    silence,
    think,
    turn,
)
from toolwire.tools.elicitation import ElicitationResult

pytestmark = pytest.mark.anyio

LIMIT = 10


def calculator():
    calc = ToolServer("calc")

    @calc.tool
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    return calc


def options(cli, server=None, **given):
    rules = {} if "can_use_tool" in given else {"allowed_tools": ["mcp__calc"]}
    servers = {"calc": server or calculator()}
    return ClaudeAgentOptions(spawn_claude_code_process=cli, mcp_servers=servers, **{**rules, **given})


async def talk(cli, prompt="hello", **given):
    with anyio.fail_after(LIMIT):
        return [message async for message in query(prompt=prompt, options=options(cli, **given))]


async def test_what_is_15_plus_27():
    """The tool is called, the script gets its result, and the call is recorded."""
    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), lambda request: say(request.tool_results[0].text)])
    with anyio.fail_after(LIMIT):
        reply = await run("What is 15 + 27?", options=options(cli))
    assert reply.text == "42"
    assert cli.prompts == ["What is 15 + 27?"]
    made = cli.assert_called("add", a=15)
    assert (made.name, made.input, made.result, made.is_error) == (
        "mcp__calc__add",
        {"a": 15, "b": 27},
        "42",
        False,
    )
    assert cli.assert_called("mcp__calc__add") is made
    cli.assert_finished()


async def test_wrong_expectations_are_explained():
    """The error lists the calls that were made, and the most similar name."""
    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("done")])
    await talk(cli)
    shown = r"other arguments\nexpected: add\(a=3\)\ncalled:   mcp__calc__add\(a=1, b=2\)"
    with pytest.raises(AssertionError, match=shown):
        cli.assert_called("add", a=3)
    with pytest.raises(AssertionError, match="did you mean 'add'"):
        cli.assert_called("ad")
    with pytest.raises(AssertionError, match="no tool was called"):
        ScriptedCLI().assert_called("add")


async def test_a_script_not_followed_is_told():
    """`assert_finished` fails if turns are left over or were missing."""
    cli = ScriptedCLI([say("one"), say("two")])
    await talk(cli)
    with pytest.raises(AssertionError, match=r"not played: say\('two'\)"):
        cli.assert_finished()
    cli = ScriptedCLI()
    with pytest.raises(ResultError, match="the script has run out: prompt 'hello'"):
        await talk(cli)
    with pytest.raises(AssertionError, match="not expected: the script has run out"):
        cli.assert_finished()


async def test_a_step_that_raises_is_the_cause():
    """An exception in a function of the script ends the run and is the cause of the assertion."""

    def broken(request):
        raise KeyError(request.prompt)

    cli = ScriptedCLI([broken])
    with pytest.raises(ResultError, match="KeyError"):
        await talk(cli)
    with pytest.raises(AssertionError) as failure:
        cli.assert_finished()
    assert isinstance(failure.value.__cause__, KeyError)


async def test_what_is_no_answer_is_refused():
    """A wrong entry is refused when the script is given, a wrong return value when its turn comes."""
    with pytest.raises(TypeError, match="got 'hello'"):
        ScriptedCLI(["hello"])
    cli = ScriptedCLI([lambda request: None])
    with pytest.raises(ResultError, match="returned None, which is not an answer"):
        await talk(cli)


async def test_an_end_of_input_in_a_call_loses_its_result():
    """If the host ends its input during a call, the model gets an error as the result, and the turn still ends."""
    server = ToolServer("calc")
    started = anyio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await anyio.sleep_forever()

    cli = ScriptedCLI([call("mcp__calc__wait"), say("too bad")])

    def spawn(command):
        spawn.transport = cli(command)
        return spawn.transport

    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(spawn, server)) as client:
            await client.query("go")
            await started.wait()
            await spawn.transport.end_input()
            seen = [message async for message in client.receive_messages()]
    assert seen[-1].result == "too bad"
    assert "interrupted before a result was received" in cli.calls[0].result


async def test_several_connections_share_a_script():
    """A scripted CLI can serve several conversations, one after another and concurrently."""
    cli = ScriptedCLI([say("one"), say("two"), say("three")])
    first = await talk(cli, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(talk, cli, "b")
        group.start_soon(talk, cli, "c")
    assert first[-1].result == "one"
    assert sorted(cli.prompts) == ["a", "b", "c"]
    cli.assert_finished()


async def test_as_a_transport():
    """As a transport it has no command line, so `argv` says which servers there are."""
    servers = json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}})
    cli = ScriptedCLI(
        [call("mcp__calc__add", a=1, b=2), say("done")], allow=True, argv=["--mcp-config", servers]
    )
    given = ClaudeAgentOptions(mcp_servers={"calc": calculator()})
    with anyio.fail_after(LIMIT):
        seen = [message async for message in query(prompt="hi", options=given, transport=cli)]
    assert seen[-1].result == "done"
    cli.assert_called("add", a=1)
    with pytest.raises(CLIConnectionError, match="not connected"):
        await cli.write("{}\n")


async def test_read_only_calls_run_side_by_side():
    """Two read-only calls of a turn run concurrently; another call waits for both."""
    server = ToolServer("calc")
    running, most = 0, []
    both = anyio.Event()

    @server.tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        """Look."""
        nonlocal running
        running += 1
        most.append(running)
        if running == 2:
            both.set()
        await both.wait()
        running -= 1
        return "seen"

    @server.tool
    async def write() -> str:
        """Write."""
        most.append(running)
        return "written"

    look_call, write_call = call("mcp__calc__look"), call("mcp__calc__write")
    cli = ScriptedCLI([turn(look_call, look_call, write_call), say("done")])
    await talk(cli, server=server)
    assert most == [1, 2, 0]
    assert [each.bare_name for each in cli.calls] == ["look", "look", "write"]


async def test_permission_is_asked_and_honoured():
    """The callback gets the call, and may change its input or deny it."""
    asked = []

    async def decide(name, given, context):
        asked.append((name, given))
        if given["a"] == 1:
            return PermissionResultAllow(updated_input={"a": 10, "b": 10})
        return PermissionResultDeny(message="not that")

    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), call("mcp__calc__add", a=2, b=2), say("done")])
    seen = await talk(cli, can_use_tool=decide)
    assert asked == [("mcp__calc__add", {"a": 1, "b": 2}), ("mcp__calc__add", {"a": 2, "b": 2})]
    assert [(each.result, each.is_error) for each in cli.calls] == [("20", False), ("not that", True)]
    assert seen[-1].permission_denials == [
        {"tool_name": "mcp__calc__add", "tool_use_id": "toolu_0002", "tool_input": {"a": 2, "b": 2}}
    ]


async def test_permissions_that_the_callback_updates_hold_for_the_next_call():
    """A rule or a mode in the callback's response allows the next call without another request."""
    for update in (
        PermissionUpdate(type="addRules", rules=[PermissionRuleValue("mcp__calc__add")], behavior="allow"),
        PermissionUpdate(type="setMode", mode="bypassPermissions"),
    ):
        asked = []

        async def decide(name, given, context, asked=asked, update=update):
            asked.append(name)
            return PermissionResultAllow(updated_permissions=[update])

        cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), call("mcp__calc__add", a=2, b=2), say("done")])
        await talk(cli, can_use_tool=decide)
        assert [each.result for each in cli.calls] == ["3", "4"]
        assert asked == ["mcp__calc__add"]


async def test_a_denial_that_interrupts_ends_the_turn():
    """With `interrupt`, the model gets no further request, and the run fails."""

    async def decide(name, given, context):
        return PermissionResultDeny(message="stop", interrupt=True)

    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2)])
    with pytest.raises(ResultError, match="stop_reason=tool_use"):
        await talk(cli, can_use_tool=decide)
    cli.assert_finished()


async def test_hooks_are_called_in_order():
    """Hooks get the events of a run, and their decisions are followed."""
    received = []

    async def note(given, tool_use_id, context):
        received.append((given["hook_event_name"], given.get("tool_name")))
        if given["hook_event_name"] == "PreToolUse":
            said = {"permissionDecision": "allow", "updatedInput": {"a": 5, "b": 5}}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}
        if given["hook_event_name"] == "Stop" and not given["stop_hook_active"]:
            return {"decision": "block", "reason": "go on"}
        return {}

    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("done"), lambda request: say(request.prompt)])
    hooks = {event: [HookMatcher(hooks=[note])] for event in events}
    seen = await talk(cli, hooks=hooks, allowed_tools=[])
    assert received == [
        ("UserPromptSubmit", None),
        ("PreToolUse", "mcp__calc__add"),
        ("PostToolUse", "mcp__calc__add"),
        ("Stop", None),
        ("Stop", None),
    ]
    assert cli.calls[0].result == "10"
    assert seen[-1].result == "Stop hook feedback:\ngo on"


async def test_a_hook_can_refuse_the_prompt():
    """A blocked prompt uses no turn of the script."""

    async def refuse(given, tool_use_id, context):
        return {"decision": "block", "reason": "rude"}

    cli = ScriptedCLI([])
    seen = await talk(cli, hooks={"UserPromptSubmit": [HookMatcher(hooks=[refuse])]})
    assert "blocked by hook:\nrude" in seen[-1].result
    assert seen[-1].num_turns == 0
    cli.assert_finished()


@pytest.mark.parametrize(
    ("action", "result", "calls"),
    [("accept", "welcome", 2), ("decline", r"URL elicitation was declined by the user\..*", 1)],
)
async def test_an_elicitation_is_passed_on(action, result, calls):
    """A tool that needs a URL to be opened is called again only after the host's callback has accepted."""
    server = ToolServer("calc")
    tries, asked = [], []

    @server.tool
    def gated() -> str:
        """Wants a visit first."""
        tries.append(1)
        if len(tries) == 1:
            visit = {"mode": "url", "elicitationId": "e1", "url": "https://example.com", "message": "open it"}
            raise McpError(-32042, "URL elicitation", {"elicitations": [visit]})
        return "welcome"

    async def answer(request):
        asked.append(request.url)
        return ElicitationResult(action)

    cli = ScriptedCLI([call("mcp__calc__gated"), say("done")])
    await talk(cli, server=server, on_elicitation=answer)
    assert (asked, len(tries)) == (["https://example.com"], calls)
    assert re.fullmatch(result, cli.calls[0].result, re.DOTALL)


async def test_content_that_is_not_text():
    """Images reach the model unchanged; audio and binary resources become a note, since no file is saved."""
    server = ToolServer("calc")
    data = base64.b64encode(b"12345").decode()

    @server.tool
    def show() -> dict[str, Any]:
        """Show all kinds."""
        kinds = [
            {"type": "image", "mimeType": "image/png", "data": data},
            {"type": "audio", "mimeType": "audio/wav", "data": data},
            {"type": "resource", "resource": {"uri": "res://x", "mimeType": "a/b", "blob": data}},
        ]
        return {"content": kinds}

    cli = ScriptedCLI([call("mcp__calc__show"), say("done")])
    seen = await talk(cli, server=server)
    blocks = next(each for each in seen if isinstance(each, UserMessage)).content[0].content
    assert blocks[0]["source"] == {"type": "base64", "media_type": "image/png", "data": data}
    assert [block["text"] for block in blocks[1:]] == [
        "[Image: source: <not saved>]",
        "[Audio from calc] Binary content (audio/wav, 5 bytes) saved to <not saved>",
        "[Resource from calc at res://x] Binary content (a/b, 5 bytes) saved to <not saved>",
    ]


async def test_structured_output_is_checked():
    """An output that does not fit the schema is refused; one that does ends the run."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    cli = ScriptedCLI([answer({"x": "one"}), answer({"x": 1})])
    seen = await talk(cli, output_format={"type": "json_schema", "schema": schema})
    assert seen[-1].structured_output == {"x": 1}
    assert cli.calls[0].is_error
    cli.assert_finished()


async def test_partial_messages():
    """Stream events come for each block, on request."""
    cli = ScriptedCLI([turn(think("hm"), say("hello"), chunk_size=3)])
    seen = await talk(cli, include_partial_messages=True)
    deltas = [message.event.get("delta", {}) for message in seen if hasattr(message, "event")]
    assert [delta["text"] for delta in deltas if delta.get("type") == "text_delta"] == ["hel", "lo"]


async def test_stand_ins_for_built_in_tools():
    """The script's call of a built-in tool runs the function that was given for it."""
    cli = ScriptedCLI(
        [call("Bash", command="ls"), say("done")], tools={"Bash": lambda command: f"ran {command}"}
    )
    await talk(cli, allowed_tools=["Bash"])
    assert cli.assert_called("Bash", command="ls").result == "ran ls"


async def test_an_interrupt_cancels_the_tool():
    """The running tool is cancelled, the turn ends, and the next prompt works."""
    server = ToolServer("calc")
    started, stopped = anyio.Event(), anyio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    cli = ScriptedCLI([call("mcp__calc__wait"), say("again")])
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(cli, server)) as client:
            await client.query("go")
            await started.wait()
            await client.interrupt()
            first = [message async for message in client.receive_response()]
            await stopped.wait()
            await client.query("more")
            second = [message async for message in client.receive_response()]
    assert first[-1].terminal_reason == "aborted_tools"
    assert second[-1].result == "again"
    cli.assert_finished()


async def test_a_hanging_model_can_be_interrupted():
    """Control requests are answered while the model hangs."""
    cli = ScriptedCLI([hang()])
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(cli)) as client:
            await client.query("go")
            await client.interrupt()
            seen = [message async for message in client.receive_response()]
    assert seen[-1].terminal_reason == "aborted_streaming"
    assert seen[-1].is_error


async def test_control_requests():
    """Model, permission mode and servers can be read and changed during the conversation."""
    cli = ScriptedCLI([say("hi"), call("mcp__more__add", a=1, b=1), say("bye")], allow=True)
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(cli)) as client:
            await client.set_model("claude-test")
            await client.set_permission_mode("plan")
            await client.query("go")
            seen = [message async for message in client.receive_response()]
            init = next(each for each in seen if getattr(each, "subtype", "") == "init")
            assert (init.data["model"], init.data["permissionMode"]) == ("claude-test", "plan")
            status = await client.get_mcp_status()
            assert [each["name"] for each in status["mcpServers"]] == ["calc"]
            assert status["mcpServers"][0]["tools"] == [{"name": "add", "annotations": {}}]
            await client.set_mcp_servers({"more": calculator()})
            await client.query("go")
            async for _ in client.receive_response():
                pass
    assert cli.assert_called("mcp__more__add").result == "2"


async def test_an_unknown_control_request_is_refused():
    """The error has the code by which hosts recognise an older CLI."""
    cli = ScriptedCLI()
    seen = []
    with anyio.fail_after(LIMIT):
        await cli.connect()
        await cli.write('{"type":"control_request","request_id":"r1","request":{"subtype":"fly"}}\n')
        await cli.end_input()
        seen = [frame async for frame in cli.read_messages()]
        await cli.close()
    assert seen[0]["response"]["error_code"] == "unsupported_request"


async def test_a_changed_list_of_tools_is_taken_anew():
    """A tool that is added during a call can be called in the same turn."""
    server = ToolServer("calc")

    @server.tool
    async def grow() -> str:
        """Grow."""

        @server.tool
        def grown() -> str:
            """Be new."""
            return "here"

        return "grew"

    cli = ScriptedCLI([call("mcp__calc__grow"), call("mcp__calc__grown"), say("done")])
    await talk(cli, server=server)
    assert cli.assert_called("grown").result == "here"


async def test_errors_of_the_api():
    """An error that must not be retried ends the run; after one that may be retried, the next entry is used."""
    cli = ScriptedCLI([fail(529), drop(), say("at last")])
    assert (await talk(cli))[-1].result == "at last"
    with pytest.raises(ResultError, match="API Error: 400 bad") as failure:
        await talk(ScriptedCLI([fail(400, message="bad")]))
    assert failure.value.exit_code == 1


async def test_garbage_is_survived(caplog):
    """Frames that are not valid are skipped with a warning, and the run continues."""
    caplog.set_level(logging.WARNING)
    cli = ScriptedCLI([garbage("oops"), garbage({"type": "who knows"}), say("fine")])
    assert (await talk(cli))[-1].result == "fine"
    assert "frames must be dicts" in caplog.text


async def test_an_early_exit_is_an_error():
    """If the CLI exits during a turn, the error has its exit code, and the turn stays pending."""
    cli = ScriptedCLI([exit_early(3)])
    with pytest.raises(ProcessError) as failure:
        await talk(cli)
    assert failure.value.exit_code == 3
    with pytest.raises(AssertionError, match="the turn for 'hello' has no result"):
        cli.assert_no_pending()
    with pytest.raises(ProcessError, match="before it answered"):
        await talk(ScriptedCLI([exit_early(0)]))


async def test_silence_answers_nothing():
    """Control requests get no response from a silent CLI, and it can still be closed."""
    cli = ScriptedCLI([silence()])
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(cli, control_timeout=0.05)) as client:
            await client.query("go")
            async with aclosing(client.receive_messages()) as messages:
                await anext(messages)
            with pytest.raises(CLITimeoutError):
                await client.interrupt()


async def test_a_line_that_is_no_json_ends_it():
    """Like the real CLI, it ends with exit code 1."""
    cli = ScriptedCLI()
    with anyio.fail_after(LIMIT):
        await cli.connect()
        await cli.write("what?\n")
        with pytest.raises(ProcessError, match="parsing"):
            async for _ in cli.read_messages():
                pass
        await cli.close()


async def test_tokens_are_of_the_turn_and_costs_of_the_session():
    """As with the real CLI, each result has the cost of the whole session so far, so costs must not be added up."""
    script = [
        turn(say("one"), input_tokens=10, output_tokens=1),
        turn(say("two"), input_tokens=20, output_tokens=2),
    ]
    options = ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI(script))
    results = []
    async with ClaudeSDKClient(options) as client:
        for _ in script:
            await client.query("hi")
            results.append([message async for message in client.receive_response()][-1])
    first, second = results
    assert [each.usage["input_tokens"] for each in results] == [10, 20]
    assert second.total_cost_usd == pytest.approx(first.total_cost_usd * 3)
    assert [each["inputTokens"] for each in second.model_usage.values()] == [30]
