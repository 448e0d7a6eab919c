"""Conversations over a pipe, as a user sees them: order, prompts, callbacks, the end of a run."""

import json
import logging

import anyio
import pytest

from toolwire import (
    AssistantMessage,
    CanUseToolShadowedWarning,
    ClaudeSDKClient,
    CLIConnectionError,
    HookMatcher,
    OptionsError,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SessionStateChangedMessage,
    query,
    run,
    run_sync,
)

pytestmark = pytest.mark.anyio


async def read_all(options, prompt="hello"):
    with anyio.fail_after(20):
        return [message async for message in query(prompt=prompt, options=options)]


def said(messages):
    return [message.text for message in messages if isinstance(message, AssistantMessage)]


def user(text):
    return {"type": "user", "message": {"role": "user", "content": text}}


async def test_a_string_prompt_has_the_official_frame(play):
    """The frame of a plain prompt is the one that the official SDK writes."""
    frame = json.loads(said(await read_all(play("echo")))[0])
    assert frame == {
        "type": "user",
        "message": {"role": "user", "content": "hello"},
        "parent_tool_use_id": None,
        "session_id": "",
    }


async def test_verbatim_prompts_are_marked(play):
    """With `verbatim_prompts` every message is marked, streamed ones too."""

    async def prompts():
        yield {**user("two"), "client_composed": False}

    for prompt in ("one", prompts()):
        frame = json.loads(said(await read_all(play("echo", verbatim_prompts=True), prompt))[0])
        assert frame["client_composed"] is True


async def test_streamed_prompts_are_answered_in_order(play):
    """Each message of an async iterable is a prompt; the run ends when all are answered."""

    async def prompts():
        for number in range(3):
            yield user(f"number {number}")

    messages = await read_all(play("echo"), prompts())
    assert [m.result for m in messages if isinstance(m, ResultMessage)] == [
        "number 0",
        "number 1",
        "number 2",
    ]


async def test_an_empty_stream_of_prompts_ends_at_once(play):
    """Without prompts there are no messages, and nothing to wait for."""

    async def prompts():
        return
        yield {}

    assert await read_all(play("echo"), prompts()) == []


async def test_a_failing_stream_of_prompts_is_raised_to_the_reader(play):
    """An exception in the user's own generator reaches the reader, after the answers to earlier prompts."""

    async def prompts():
        yield user("one")
        raise LookupError("my own bug")

    seen = []
    with anyio.fail_after(20), pytest.raises(LookupError, match="my own bug"):
        async for message in query(prompt=prompts(), options=play("echo")):
            seen.append(message)
    assert isinstance(seen[-1], ResultMessage)


@pytest.mark.parametrize("prompt", [None, 5, ["list"], {"type": "user"}])
async def test_a_prompt_of_another_kind_is_refused_before_anything_starts(prompt):
    """Only text and async iterables are prompts."""
    with pytest.raises(TypeError, match="prompt must be a string or an async iterable"):
        await read_all(None, prompt)


async def test_a_stream_that_yields_no_dict_is_refused(play):
    """The error names the type that the stream yielded instead of a dict."""

    async def prompts():
        yield "text"

    with pytest.raises(TypeError, match="must yield message dicts, got str"):
        await read_all(play("echo"), prompts())


async def test_the_run_goes_on_until_idle(play):
    """A result that is followed by background work is not the end."""
    messages = await read_all(play("two runs"))
    assert [m.result for m in messages if isinstance(m, ResultMessage)] == ["first of two", "second of two"]


async def test_a_cli_without_state_reports_ends_at_its_result(play):
    """Older CLIs report no state: the result ends the run."""
    messages = await read_all(play("no state"))
    assert isinstance(messages[-1], ResultMessage)


async def test_state_frames_for_the_host_stay_hidden(play):
    """State frames, which toolwire requests for its own use, do not reach the user."""
    messages = await read_all(play("echo", include_all_messages=True))
    assert not any(isinstance(message, SessionStateChangedMessage) for message in messages)


async def test_several_turns_with_one_client(play):
    """A connected client answers several prompts, one after the other."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            for text in ("one", "two"):
                await client.query(text)
                messages = [message async for message in client.receive_response()]
                assert messages[-1].result == text
                assert json.loads(messages[0].text)["session_id"] == "default"


async def test_a_client_sends_streams_with_its_session_id(play):
    """Streamed messages get the session id where they have none."""

    async def prompts():
        yield user("one")
        yield {**user("two"), "session_id": "mine"}

    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            await client.query(prompts(), session_id="s7")
            ids = []
            for _ in range(2):
                ids += [
                    json.loads(text)["session_id"]
                    for text in said([m async for m in client.receive_response()])
                ]
    assert ids == ["s7", "mine"]


async def test_connect_with_a_prompt(play):
    """`connect(prompt)` sends it; a stream ends the input when it is answered."""

    async def prompts():
        yield user("streamed")

    with anyio.fail_after(20):
        client = ClaudeSDKClient(play("echo"))
        await client.connect("plain")
        assert [m async for m in client.receive_response()][-1].result == "plain"
        await client.disconnect()
        await client.connect(prompts())
        assert [m async for m in client.receive_messages()][-1].result == "streamed"
        await client.disconnect()


class TestNoResultDue:
    """`receive_response()` waits while a result is due, and raises an error when none is."""

    @pytest.fixture
    def no_patience(self, monkeypatch):
        """Set the grace period for a prompt that another task might still send to zero."""
        monkeypatch.setattr("toolwire._protocol.run.GRACE", 0.0)

    async def test_with_nothing_asked_it_is_an_error(self, play, no_patience):
        """Before the first prompt and after the last response; the connection stays good."""
        with anyio.fail_after(20):
            async with ClaudeSDKClient(play("echo")) as client:
                with pytest.raises(CLIConnectionError, match=r"no prompt is waiting .* query\(\) first"):
                    await anext(client.receive_response())
                for text in ("one", "two"):
                    await client.query(text)
                    assert [m async for m in client.receive_response()][-1].result == text
                    with pytest.raises(CLIConnectionError, match="no prompt is waiting"):
                        await anext(client.receive_response())

    async def test_queued_prompts_are_each_due_a_result(self, play, no_patience):
        """Each of several queued prompts gets a response of its own."""
        with anyio.fail_after(20):
            async with ClaudeSDKClient(play("echo")) as client:
                for text in ("one", "two", "three"):
                    await client.query(text)
                for text in ("one", "two", "three"):
                    assert [m async for m in client.receive_response()][-1].result == text

    async def test_a_stream_of_prompts_may_take_its_time(self, play, no_patience):
        """While a stream of prompts goes on, receive_response() waits for its next prompt."""
        asked_for = anyio.Event()

        async def prompts():
            await asked_for.wait()
            yield user("late")

        with anyio.fail_after(20):
            async with ClaudeSDKClient(play("echo")) as client, anyio.create_task_group() as group:
                group.start_soon(client.query, prompts())
                await anyio.wait_all_tasks_blocked()
                results = []

                async def read():
                    results.extend(
                        [m.result async for m in client.receive_response() if hasattr(m, "result")]
                    )

                group.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                asked_for.set()
        assert results == ["late"]

    async def test_a_reader_may_start_just_before_the_prompt(self, play):
        """Programs that read in one task and write in another do this."""
        results = []
        with anyio.fail_after(20):
            async with ClaudeSDKClient(play("echo")) as client, anyio.create_task_group() as group:

                async def read():
                    results.extend(
                        [m.result async for m in client.receive_response() if hasattr(m, "result")]
                    )

                group.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await client.query("soon")
        assert results == ["soon"]


async def test_not_connected_says_so(play):
    """Every call before connect and after disconnect raises one clear error; disconnect is always allowed."""
    client = ClaudeSDKClient(play("echo"))
    await client.disconnect()
    for call in (client.interrupt, client.get_mcp_status, client.get_server_info, lambda: client.query("x")):
        with pytest.raises(CLIConnectionError, match="Not connected"):
            await call()
    for receive in (client.receive_messages, client.receive_response):
        messages = receive()
        with pytest.raises(CLIConnectionError, match="Not connected"):
            await anext(messages)


async def test_connecting_again_before_the_first_prompt_does_nothing(play):
    """Programs call connect() inside of `async with`, which has connected already."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            info = await client.get_server_info()
            await client.connect()
            assert await client.get_server_info() is info
            await client.query("hello")
            assert [type(each).__name__ async for each in client.receive_response()][-1] == "ResultMessage"


async def test_connecting_again_in_a_conversation_is_refused(play):
    """A second connect would lose the first CLI, and the conversation with it."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            with pytest.raises(CLIConnectionError, match="Already connected"):
                await client.connect("hello")
            await client.query("hello")
            with pytest.raises(CLIConnectionError, match="Already connected"):
                await client.connect()
            assert [each async for each in client.receive_response()]
            with pytest.raises(CLIConnectionError, match="Already connected"):
                await client.connect()


async def test_server_info_is_the_initialize_answer(play):
    """get_server_info() returns the CLI's response to initialize."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            info = await client.get_server_info()
    assert info["claude_code_version"] == "9.9.9"
    assert info["seen"] == {"subtype": "initialize", "hooks": None}


async def test_inherit_env_false_gives_the_cli_only_what_was_set(play, monkeypatch):
    """Nothing of this process's environment reaches the CLI."""
    monkeypatch.setenv("SECRET_OF_MINE", "1")
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo", env={"GIVEN": "x"})) as client:
            env = (await client.get_server_info())["env"]
    assert env["GIVEN"] == "x"
    assert "SECRET_OF_MINE" not in env
    assert "HOME" not in env


async def test_permission_is_asked_and_answered(play):
    """`can_use_tool` gets name, input and context, and its verdict goes back."""
    asked = []

    async def allow(name, tool_input, context):
        asked.append((name, tool_input, context.tool_use_id))
        return PermissionResultAllow(updated_input={"command": "pwd"})

    reply = json.loads(said(await read_all(play("permission", can_use_tool=allow)))[0])
    assert asked == [("Bash", {"command": "ls"}, "t1")]
    assert reply["response"] == {"behavior": "allow", "updatedInput": {"command": "pwd"}}


async def test_permission_denied(play):
    """A denial carries its message."""

    async def deny(*_):
        return PermissionResultDeny(message="no way", interrupt=True)

    reply = json.loads(said(await read_all(play("permission", can_use_tool=deny)))[0])
    assert reply["response"] == {"behavior": "deny", "message": "no way", "interrupt": True}


@pytest.mark.parametrize("answer", ["raise", "nonsense"])
async def test_a_failing_permission_callback_is_an_error_reply(play, answer, caplog):
    """A callback that raises or returns nonsense is answered with an error response, and the run goes on."""

    async def bad(*_):
        if answer == "raise":
            raise RuntimeError("callback broke")
        return {"behavior": "allow"}

    with caplog.at_level(logging.WARNING, logger="toolwire.session"):
        messages = await read_all(play("permission", can_use_tool=bad))
    reply = json.loads(said(messages)[0])
    assert reply["subtype"] == "error"
    assert ("callback broke" if answer == "raise" else "must return PermissionResultAllow") in reply["error"]
    assert isinstance(messages[-1], ResultMessage)


async def test_a_cancelled_request_cancels_its_callback(play):
    """When the CLI cancels a request, the callback is cancelled and nothing is answered."""
    started, cancelled = anyio.Event(), anyio.Event()

    async def slow(*_):
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("permission cancelled", can_use_tool=slow)) as client:
            await client.query("go")
            await started.wait()
            await client.interrupt()
            await cancelled.wait()


async def test_a_time_out_inside_a_callback_works(play):
    """Callbacks run in real tasks: cancel scopes in them work."""

    async def impatient(*_):
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()
        return PermissionResultAllow()

    reply = json.loads(said(await read_all(play("permission", can_use_tool=impatient)))[0])
    assert reply["response"]["behavior"] == "allow"


async def test_hooks_are_called_and_their_spelling_is_turned(play):
    """A hook gets its input, and `continue_` becomes `continue`."""
    seen = []

    async def hook(hook_input, tool_use_id, context):
        seen.append((hook_input, tool_use_id, context))
        return {"continue_": False}

    options = play("hook", hooks={"Stop": [HookMatcher(hooks=[hook])]})
    reply = json.loads(said(await read_all(options))[0])
    assert seen == [({"hook_event_name": "Stop"}, None, {"signal": None})]
    assert reply["response"] == {"continue": False}


async def test_a_guarding_hook_needs_a_cli_that_honours_it(play):
    """`on_failure="block"` with a CLI that does not know it is refused: it would block nothing."""

    async def hook(*_):
        return {}

    options = play("hook", hooks={"Stop": [HookMatcher(hooks=[hook], on_failure="block")]})
    with pytest.raises(CLIConnectionError, match="does not support on_failure"):
        await read_all(options)


async def test_a_shadowed_callback_is_warned_about(play):
    """An allow rule that hides tools from `can_use_tool` gives the official warning."""

    async def allow(*_):
        return PermissionResultAllow()

    with pytest.warns(CanUseToolShadowedWarning, match="Bash"):
        await read_all(play("echo", can_use_tool=allow, allowed_tools=["Bash"]))


async def test_stderr_comes_by_line_and_a_failing_callback_does_no_harm(play, caplog):
    """Each line of stderr is one call; an exception there is logged, not fatal."""
    lines = []

    def take(line):
        lines.append(line)
        raise RuntimeError("callback broke")

    with pytest.raises(Exception, match="exit code: 3"):
        await read_all(play("exits at once", stderr=take))
    assert lines == ["first line", "cannot find the flux capacitor"]
    assert "the stderr callback failed" in caplog.text


async def test_run_gives_a_reply(play):
    """run() returns one object with the text, the messages, the tool calls and the numbers of the result."""
    with anyio.fail_after(20):
        reply = await run("hello", options=play("echo"))
    assert (reply.text, str(reply), reply.num_turns, reply.session_id) == ("hello", "hello", 1, "s")
    assert [type(message) for message in reply.messages] == [AssistantMessage, ResultMessage]
    assert reply.tool_calls == []


async def test_run_takes_one_output_format(play):
    """An output type and a schema in the options contradict each other."""
    options = play("echo", output_format={"type": "json_schema", "schema": {"type": "object"}})
    with pytest.raises(OptionsError, match="output_type and options.output_format"):
        await run("hello", options=options, output_type=int)


def test_run_sync_needs_no_event_loop(play):
    """`run_sync()` works in code without an event loop."""
    assert run_sync("hello", options=play("echo")).text == "hello"


async def test_run_sync_inside_a_loop_is_refused(play):
    """The error says what to write inside an event loop instead."""
    with pytest.raises(RuntimeError, match=r"write `await run\(\.\.\.\)` there"):
        run_sync("hello", options=play("echo"))
