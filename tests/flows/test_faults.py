"""What happens when the CLI misbehaves: typed errors, in bounded time, and nothing left behind."""

import anyio
import pytest

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    CLINotFoundError,
    CLITimeoutError,
    ControlRequestError,
    LineDroppedMessage,
    ProcessError,
    ResultError,
    ResultMessage,
    UnsupportedRequestError,
    query,
    run,
    typed,
)

pytestmark = pytest.mark.anyio


async def read_all(options, prompt="hello"):
    with anyio.fail_after(20):
        return [message async for message in query(prompt=prompt, options=options)]


async def test_an_early_exit_is_an_error_with_code_and_stderr(play):
    """The error has the exit code and the stderr of a CLI that exits before it responds."""
    with pytest.raises(ProcessError, match="flux capacitor") as caught:
        await read_all(play("exits at once"))
    assert caught.value.exit_code == 3
    assert "first line" in caught.value.stderr


async def test_initialize_unanswered_ends_in_the_configured_time(play):
    """A CLI that never answers initialize is given up after the time that was set."""
    with anyio.fail_after(20), pytest.raises(CLITimeoutError, match="initialize.*within 0.3 s") as caught:
        await read_all(play("never initializes", initialize_timeout=0.3))
    assert "thinking about it" in str(caught.value)


async def test_garbage_is_survived_and_counted(play):
    """Lines that are no JSON are skipped, and the conversation goes on."""
    client = ClaudeSDKClient(play("garbage"))
    with anyio.fail_after(20):
        async with client:
            await client.query("hello")
            messages = [message async for message in client.receive_response()]
            assert client.skipped_lines == 5
    assert [message.text for message in messages if isinstance(message, AssistantMessage)] == ["survived"]


async def test_a_death_in_mid_run_gives_what_came_and_then_the_error(play):
    """Messages from before the end arrive; then comes an error with the exit code and the end of stderr."""
    seen = []
    with anyio.fail_after(20), pytest.raises(ProcessError, match="the last words") as caught:
        async for message in query(prompt="hello", options=play("dies")):
            seen.append(message)
    assert [message.text for message in seen] == ["so far"]
    assert caught.value.exit_code == 7
    assert len(caught.value.stderr) <= 20 * 400


async def test_a_killed_cli_is_an_error(play):
    """SIGKILL shows as exit code -9."""
    with pytest.raises(ProcessError) as caught:
        await read_all(play("is killed"))
    assert caught.value.exit_code == -9


async def test_leaving_with_code_0_before_the_answer_is_an_error(play):
    """An exit code of 0 does not make a missing answer a success."""
    with pytest.raises(ProcessError, match="before it answered") as caught:
        await read_all(play("leaves early"))
    assert caught.value.exit_code == 0


async def test_a_failed_result_is_yielded_and_then_raised(play):
    """The result message comes first, then a ResultError with its facts and the exit code."""
    seen = []
    with anyio.fail_after(20), pytest.raises(ResultError, match="529 overloaded") as caught:
        async for message in query(prompt="hello", options=play("fails")):
            seen.append(message)
    assert isinstance(seen[-1], ResultMessage)
    error = caught.value
    assert (error.exit_code, error.api_error_status, error.terminal_reason) == (1, 529, "api_error")
    assert error.stderr == "a detail"


async def test_run_raises_a_failed_result_with_the_reply(play):
    """`run()` raises for a failed run and hands over what it had."""
    with anyio.fail_after(20), pytest.raises(ResultError) as caught:
        await run("hello", options=play("fails"))
    assert caught.value.reply.result.api_error_status == 529


async def test_a_missing_cwd_is_named(play, tmp_path):
    """The error is about the missing working directory, not about a missing CLI."""
    missing = tmp_path / "nowhere"
    with pytest.raises(CLIConnectionError, match="nowhere"):
        await read_all(play("echo", cwd=missing))


async def test_a_cli_path_that_is_not_there_is_named(tmp_path):
    """A CLI that was named and is not there is never replaced by another."""
    with pytest.raises(CLINotFoundError, match="given by the option cli_path.*gone"):
        await read_all(ClaudeAgentOptions(cli_path=tmp_path / "gone"))


async def test_a_cli_that_may_not_be_executed_is_named(tmp_path):
    """A file without the executable bit gives a clear error."""
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    with pytest.raises(CLIConnectionError, match="No permission to execute"):
        await read_all(ClaudeAgentOptions(cli_path=tmp_path / "claude"))


async def test_20_mb_arrive_whole_with_default_options(play):
    """A message far over the official limit arrives whole."""
    messages = await read_all(play("big"))
    assert len(messages[0].text) == 20_000_000


async def test_a_line_over_the_limit_is_reported_in_the_stream(play):
    """Past `max_buffer_size` a line is dropped with a message, and the run goes on to its result."""
    messages = await read_all(play("big", max_buffer_size=1_000_000))
    dropped = typed(messages[0])
    assert isinstance(dropped, LineDroppedMessage)
    assert dropped.bytes > 20_000_000
    assert dropped.limit == 1_000_000
    assert isinstance(messages[-1], ResultMessage)


async def test_interrupt_answers_behind_10000_unread_messages(play):
    """The response to a control request does not wait until the consumer has read the messages."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("flood")) as client:
            await client.query("go")
            await client.interrupt()
            assert client.unread >= 10_000
            texts = [
                message.text
                async for message in client.receive_response()
                if isinstance(message, AssistantMessage)
            ]
    assert texts == [str(number) for number in range(10_000)]


async def test_a_grandchild_that_holds_stdout_does_not_hold_us(play):
    """A run ends when the CLI exits, even if a child process of the CLI keeps its stdout open."""
    with anyio.fail_after(20):  # that child lives for 30 s
        messages = await read_all(play("leaves a child"))
    assert isinstance(messages[-1], ResultMessage)


async def test_a_deaf_cli_is_killed(play):
    """A CLI that ignores both the end of input and SIGTERM is gone in bounded time all the same."""
    with anyio.fail_after(12):
        async with ClaudeSDKClient(play("deaf")) as client:
            await client.query("hello")
            assert [message async for message in client.receive_response()]


async def test_odd_requests_get_error_replies_and_the_run_goes_on(play):
    """Unknown and malformed control requests are refused one by one; responses to no request are ignored."""
    messages = await read_all(play("odd requests"))
    replies = [message.text for message in messages if isinstance(message, AssistantMessage)]
    assert "Unsupported control request subtype: no_such_thing" in replies[0]
    assert "without a request_id" in replies[1]
    assert "without a request object" in replies[2]
    assert "without a subtype" in replies[3]
    assert isinstance(messages[-1], ResultMessage)


async def test_a_refused_control_request_is_typed(play):
    """The CLI's error response and a request that it does not know raise errors of different classes."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo")) as client:
            with pytest.raises(ControlRequestError, match="no such model") as refused:
                await client.set_model("bad")
            with pytest.raises(UnsupportedRequestError) as unknown:
                await client.rewind_files("u1")
            assert (refused.value.subtype, refused.value.error_code) == ("set_model", None)
            assert unknown.value.error_code == "unsupported_request"
            await client.set_model("good")


async def test_an_unanswered_control_request_times_out(play):
    """A control request without a response raises CLITimeoutError, and the session goes on."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo", control_timeout=0.2)) as client:
            with pytest.raises(CLITimeoutError, match="stop_task.*within 0.2 s"):
                await client.stop_task("t")
            await client.set_model("good")


async def test_a_request_open_at_the_end_gets_the_reason(play):
    """A control request that is pending when the CLI dies raises the CLI's ProcessError."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("dies")) as client:
            await client.query("hello")
            with pytest.raises(ProcessError, match="exit code: 7"):
                await client.stop_task("t")


async def test_after_the_end_every_call_says_why(play):
    """Using a client whose CLI is gone raises the reason instead of hanging."""
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("is killed")) as client:
            await client.query("hello")
            with pytest.raises(ProcessError):
                async for _ in client.receive_messages():
                    pass
            with pytest.raises(ProcessError):
                await client.query("again")
            with pytest.raises(ProcessError):
                await client.interrupt()
            assert not client.connected


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cli_that_stays_after_its_run_is_ended(play, anyio_backend):
    """A finished run returns its reply in bounded time, even if the CLI ignores the end of its input."""
    with anyio.fail_after(40):
        reply = await run("hello", options=play("deaf"))
    assert reply.text == "hello"


async def test_disconnect_while_connecting(play):
    """Another task may abandon a connect() that takes too long."""
    client = ClaudeSDKClient(play("never initializes"))
    outcome = []

    async def connect():
        with pytest.raises(CLIConnectionError) as caught:
            await client.connect()
        outcome.append(caught.value)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(connect)
            await anyio.sleep(0.5)
            await client.disconnect()
    assert len(outcome) == 1
    assert not client.connected
