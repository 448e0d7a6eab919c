"""Whole conversations with the real CLI, asserted on what a user sees."""

import dataclasses
import json
import signal
import subprocess
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TypedDict

import anyio
import pytest
from pydantic import BaseModel

from shared.waiting import eventually
from toolwire import (
    ApiRetryMessage,
    AssistantMessage,
    ClaudeSDKClient,
    HookMatcher,
    InitMessage,
    OutputValidationError,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
    WarmPool,
    query,
    run,
    startup,
    typed,
)
from toolwire.testing import answer, call, fail, hang, say, think, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 60


def texts(messages):
    return [message.text for message in messages if isinstance(message, AssistantMessage)]


def results(messages):
    return [message for message in messages if isinstance(message, ResultMessage)]


async def read_all(prompt, options):
    with anyio.fail_after(LIMIT):
        return [message async for message in query(prompt=prompt, options=options)]


async def test_one_shot(scripted):
    """A prompt, an answer, a result with cost, usage and turns."""
    async with scripted([turn(think("hm"), say("42"), input_tokens=11, output_tokens=7)]) as (model, options):
        messages = await read_all("What is 15 + 27?", options)
        assert model.requests[0].prompt == "What is 15 + 27?"
    assert type(messages[0]) is SystemMessage
    start = typed(messages[0])
    assert isinstance(start, InitMessage)
    assert start.claude_code_version == messages[0].data["claude_code_version"]
    blocks = [
        block for message in messages if isinstance(message, AssistantMessage) for block in message.content
    ]
    assert [type(block) for block in blocks] == [ThinkingBlock, TextBlock]
    result = messages[-1]
    assert isinstance(result, ResultMessage)
    assert (result.subtype, result.is_error, result.result, result.num_turns) == ("success", False, "42", 1)
    assert result.usage["output_tokens"] == 7
    assert result.total_cost_usd > 0
    assert result.terminal_reason == "completed"


async def test_multi_turn_remembers(scripted):
    """A client holds a conversation: the second request carries the first exchange."""
    async with scripted([say("Hello Ada."), say("Ada.")]) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("I am Ada.")
                assert texts([message async for message in client.receive_response()]) == ["Hello Ada."]
                await client.query("Who am I?")
                assert texts([message async for message in client.receive_response()]) == ["Ada."]
        assert "Hello Ada." in str(model.requests[1].body["messages"])


async def test_streamed_input(scripted):
    """Prompts from an async iterable are answered one by one, and the run ends after the last."""

    async def prompts():
        for text in ("one", "two"):
            yield {"type": "user", "message": {"role": "user", "content": text}}

    async with scripted([say("first"), say("second")]) as (_, options):
        messages = await read_all(prompts(), options)
    assert [result.result for result in results(messages)] == ["first", "second"]


async def test_partial_messages(scripted):
    """With partial messages the text arrives in pieces that add up."""
    async with scripted([turn(say("a piece at a time"), chunk_size=3)]) as (_, options):
        messages = await read_all("go", dataclasses.replace(options, include_partial_messages=True))
    deltas = [message.event for message in messages if isinstance(message, StreamEvent)]
    pieces = [event["delta"]["text"] for event in deltas if event["type"] == "content_block_delta"]
    assert len(pieces) > 3
    assert "".join(pieces) == "a piece at a time"
    assert texts(messages) == ["a piece at a time"]


async def test_interrupt_in_mid_turn(scripted):
    """An interrupt stops a turn that the model never ends; the session goes on."""
    async with scripted([hang(), say("still here")]) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("take your time")
                await eventually(lambda: model.requests)
                await client.interrupt()
                messages = [message async for message in client.receive_response()]
                assert messages[-1].terminal_reason == "aborted_streaming"
                assert "[Request interrupted by user]" in str(messages)
                await client.query("are you there?")
                assert texts([message async for message in client.receive_response()]) == ["still here"]


async def test_interrupt_before_the_turn(scripted):
    """An interrupt that reaches the CLI together with the prompt stops the turn too; most others do not show it."""
    async with scripted([say("hello"), *[hang()] * 5], finished=False) as (_, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("hi")
                assert texts([message async for message in client.receive_response()]) == ["hello"]
                for _ in range(5):
                    await client.query("take your time")
                    await client.interrupt()
                    messages = [message async for message in client.receive_response()]
                    assert messages[-1].terminal_reason == "aborted_streaming"


async def test_model_change(scripted):
    """A change of model shows in the next request and the next message."""
    async with scripted([say("one"), say("two")]) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("a")
                first = [message async for message in client.receive_response()]
                await client.set_model("claude-haiku-4-5")
                await client.query("b")
                second = [message async for message in client.receive_response()]
        assert model.requests[1].model == "claude-haiku-4-5" != model.requests[0].model
    models = [message.model for message in (*first, *second) if isinstance(message, AssistantMessage)]
    assert models == [model.requests[0].model, "claude-haiku-4-5"]


class City(BaseModel):
    name: str
    population: int


@dataclasses.dataclass
class Point:
    x: float
    y: float


class Person(TypedDict, total=False):
    name: str
    home: City


@pytest.mark.parametrize(
    ("output_type", "given", "expected"),
    [
        (City, {"name": "Ulm", "population": 126_000}, City(name="Ulm", population=126_000)),
        (Point, {"x": 1, "y": 2.5}, Point(1.0, 2.5)),
        (Person, {"name": "Ada"}, {"name": "Ada"}),
        (list[Point], {"value": [{"x": 0, "y": 1}]}, [Point(0.0, 1.0)]),
        (int, {"value": 7}, 7),
    ],
    ids=["model", "dataclass", "TypedDict", "list", "int"],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_typed_output(scripted, output_type, given, expected, anyio_backend):
    """`output_type` gives an instance of it, whatever kind of type it is."""
    async with scripted([answer(given)]) as (_, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options, output_type=output_type)
    assert reply.output == expected
    assert type(reply.output) is type(expected)


async def test_an_answer_of_the_wrong_shape_is_corrected_by_the_model(scripted):
    """The CLI tells the model what is wrong, and the second answer counts."""
    script = [answer({"name": "Ulm", "population": "many"}), answer({"name": "Ulm", "population": 1})]
    async with scripted(script) as (_, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options, output_type=City)
    assert reply.output == City(name="Ulm", population=1)
    assert [call.is_error for call in reply.tool_calls] == [True, None]


async def test_no_structured_output_is_an_error_with_the_reply(scripted):
    """If the model only talks, the error carries what it said."""
    async with scripted([say("I would rather not."), say("No.")]) as (_, options):
        with (
            anyio.fail_after(LIMIT),
            pytest.raises(OutputValidationError, match="no structured output") as caught,
        ):
            await run("go", options=options, output_type=City)
    assert caught.value.reply.text == "No."


async def test_overloaded_then_success(scripted):
    """A 529 is retried by the CLI, and the user sees the retry and the answer."""
    async with scripted([fail(529), say("here you are")], include_all_messages=True) as (_, options):
        messages = await read_all("go", options)
    (retry,) = [message for message in messages if isinstance(message, ApiRetryMessage)]
    assert (retry.attempt, retry.error_status) == (1, 529)
    assert results(messages)[0].result == "here you are"


async def test_a_bad_key_is_a_typed_error(scripted):
    """A 401 gives a failed result, and then a ResultError that says so."""
    seen = []
    async with scripted([fail(401, "authentication_error", "bad key")]) as (_, options):
        with anyio.fail_after(LIMIT), pytest.raises(ResultError, match="401 bad key") as caught:
            async for message in query(prompt="go", options=options):
                seen.append(message)
    assert seen[-1].is_error
    assert (caught.value.api_error_status, caught.value.terminal_reason, caught.value.exit_code) == (
        401,
        "api_error",
        1,
    )
    assert [message.error for message in seen if isinstance(message, AssistantMessage)] == [
        "authentication_failed"
    ]


async def test_max_turns(scripted):
    """The turn limit ends the run with its own result."""
    async with scripted([call("Read", file_path="/nonexistent.txt")], max_turns=1) as (_, options):
        with anyio.fail_after(LIMIT), pytest.raises(ResultError, match="maximum number of turns") as caught:
            await run("go", options=options)
    assert caught.value.subtype == "error_max_turns"
    assert caught.value.reply.tool_calls[0].name == "Read"


async def test_resume(scripted):
    """A session resumes in a second process with the messages of the first."""
    async with scripted([say("Noted: 42."), say("42.")]) as (model, options):
        with anyio.fail_after(LIMIT):
            first = await run("Remember 42.", options=options)
            second = await run("Which number?", options=dataclasses.replace(options, resume=first.session_id))
        assert "Noted: 42." in str(model.requests[1].body["messages"])
    assert (first.text, second.text) == ("Noted: 42.", "42.")
    assert second.session_id == first.session_id


async def test_tools_permissions_and_hooks(scripted, tmp_path):
    """A call of a built-in tool reaches the hook and the permission callback, whose denial is the tool's result."""
    hooked, asked = [], []

    async def hook(hook_input, tool_use_id, context):
        hooked.append((hook_input["hook_event_name"], hook_input["tool_name"], tool_use_id))
        return {}

    async def decide(name, tool_input, context):
        asked.append((name, tool_input["file_path"].rpartition("/")[2], context.tool_use_id))
        if "secret" in tool_input["file_path"]:
            return PermissionResultDeny(message="hands off")
        return PermissionResultAllow()

    hooks = {"PreToolUse": [HookMatcher(matcher="Write", hooks=[hook])]}
    script = [
        call("Write", {"file_path": str(tmp_path / f"{name}.txt"), "content": "x"}, id=f"toolu_{name}")
        for name in ("ok", "secret")
    ]
    more = {"can_use_tool": decide, "hooks": hooks, "permission_mode": "default", "add_dirs": [tmp_path]}
    async with scripted([*script, say("done")], **more) as (_, options):
        with anyio.fail_after(LIMIT):
            reply = await run("write", options=options)
    assert [path.name for path in tmp_path.iterdir()] == ["ok.txt"]
    assert [name for _, name, _ in asked] == ["ok.txt", "secret.txt"]
    assert hooked == [("PreToolUse", "Write", "toolu_ok"), ("PreToolUse", "Write", "toolu_secret")]
    ok, secret = reply.tool_calls
    assert not ok.is_error
    assert (secret.is_error, secret.result) == (True, "hands off")


async def test_20_mb_arrive_whole(scripted):
    """A message of 20 MB from the real CLI arrives whole with default options."""
    async with scripted([say("x" * 20_000_000)]) as (_, options):
        messages = await read_all("go", options)
    assert len(texts(messages)[0]) == 20_000_000


async def test_long_texts_do_not_go_by_the_command_line(scripted):
    """A system prompt and a schema far over what an argv can hold reach the model."""
    schema = {
        "type": "object",
        "properties": {f"field_{n}": {"type": "string", "description": "d" * 200} for n in range(700)},
    }
    async with scripted(
        [answer({"field_0": "x"})],
        system_prompt="be brief " * 30_000 + "THE END",
        output_format={"type": "json_schema", "schema": schema},
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options)
        assert model.requests[0].system.rstrip().endswith("THE END")
        tool = next(tool for tool in model.requests[0].body["tools"] if tool["name"] == "StructuredOutput")
        assert "field_699" in tool["input_schema"]["properties"]
    assert reply.output == {"field_0": "x"}


async def test_startup_is_ready_before_the_prompt(scripted):
    """A client from `startup()` has initialized: entering it does not connect again."""
    async with scripted([say("warm")]) as (_, options):
        with anyio.fail_after(LIMIT):
            client = await startup(options)
            assert (await client.get_server_info())["claude_code_version"]
            async with client:
                await client.query("go")
                assert texts([message async for message in client.receive_response()]) == ["warm"]
            assert not client.connected


async def test_a_pool_gives_each_conversation_its_own_cli(scripted):
    """Two prompts on a pool are two sessions, each on a CLI that was started ahead."""
    async with scripted([say("one"), say("two")]) as (_, options):
        with anyio.fail_after(LIMIT):
            async with WarmPool(options, size=2) as pool:
                await pool.wait_ready()
                assert pool.ready == 2
                first, second = await pool.run("a"), await pool.run("b")
            assert pool.ready == 0
    assert (first.text, second.text) == ("one", "two")
    assert first.session_id != second.session_id


@pytest.mark.parametrize("way", ["break", "scope", "error"])
async def test_leaving_in_mid_turn_is_quick(scripted, way):
    """Leaving the loop while the model hangs ends the CLI at once, not when the model answers."""
    async with scripted([hang()]) as (model, options):
        with anyio.fail_after(LIMIT), suppress(LookupError), anyio.CancelScope() as scope:
            async with aclosing(query(prompt="go", options=options)) as stream:
                async for _ in stream:
                    await eventually(lambda: model.requests)
                    if way == "break":
                        break
                    if way == "error":
                        raise LookupError
                    scope.cancel()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_parent_takes_the_cli_along(scripted, how, anyio_backend):
    """The parent is killed while the model hangs: the CLI does not stay behind."""
    program = (
        "import asyncio, json, sys\n"
        "from toolwire import ClaudeAgentOptions, query\n"
        "async def main():\n"
        "    async for m in query(prompt='go', options=ClaudeAgentOptions(**json.loads(sys.argv[1]))):\n"
        "        print('started', flush=True)\n"
        "asyncio.run(main())\n"
    )
    async with scripted([hang()]) as (model, options):
        given = {
            "env": options.env,
            "inherit_env": False,
            "cwd": str(options.cwd),
            "cli_path": str(options.cli_path),
        }
        parent = subprocess.Popen([sys.executable, "-c", program, json.dumps(given)], stdout=subprocess.PIPE)
        try:
            assert parent.stdout.readline() == b"started\n"
            with anyio.fail_after(LIMIT):
                await eventually(lambda: model.requests)
            cli = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0]
            parent.send_signal(how)
            parent.wait(10)
            with anyio.fail_after(5):
                await eventually(lambda: not Path(f"/proc/{cli}").exists())
        finally:
            parent.kill()
            parent.stdout.close()
            parent.wait(10)


async def test_user_messages_keep_their_blocks(scripted):
    """Tool results come as blocks of a user message."""
    async with scripted([call("Read", {"file_path": "/nonexistent.txt"}, id="toolu_g"), say("none")]) as (
        _,
        options,
    ):
        messages = await read_all("go", options)
    uses = [
        b
        for m in messages
        if isinstance(m, AssistantMessage)
        for b in m.content
        if isinstance(b, ToolUseBlock)
    ]
    backs = [block for message in messages if isinstance(message, UserMessage) for block in message.content]
    assert [use.id for use in uses] == ["toolu_g"] == [back.tool_use_id for back in backs]
