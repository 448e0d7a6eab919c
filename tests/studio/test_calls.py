"""Calls that are made on the page: their states, progress, logs, questions and tracebacks."""

import asyncio

import pytest

from toolwire import Context, ToolServer
from toolwire.studio.calls import MOST_LOGS, ToolBench, ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

LIMIT = 20


@pytest.fixture
async def bench():
    """Open a bench with tools that return, fail, wait, log and ask."""
    server = ToolServer("calc")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def fail() -> str:
        raise ValueError("broken")

    @server.tool
    async def wait(context: Context) -> str:
        context.progress(1, 4, "on the way")
        context.log({"x": 1})
        await asyncio.sleep(60)
        return "never"

    @server.tool
    async def talk(context: Context) -> str:
        for number in range(MOST_LOGS + 5):
            context.log(f"line {number}")
        return "talked"

    @server.tool
    async def ask(context: Context) -> str:
        answer = await context.elicit("Sure?", bool)
        return answer.action

    made = ToolBench(server, "calc")
    await made.open()
    yield made
    await made.aclose()


async def until(condition):
    """Wait for something that a task of the bench does."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


async def finish(call):
    """Wait for the end of a call."""
    await until(lambda: call.state != "running")
    return call


async def test_a_result_and_its_time(bench):
    """The content is as the server sent it, and the duration is recorded."""
    assert [tool.name for tool in bench.tools] == ["add", "fail", "wait", "talk", "ask"]
    call = await finish(bench.call("add", {"a": 1, "b": 2}))
    assert (call.state, call.content[0]["text"]) == ("done", "3")
    assert call.seconds is not None


async def test_a_failed_call_has_the_text_for_the_model_and_the_traceback_for_the_author(bench):
    """Two calls at once keep theirs apart."""
    failed, fine = bench.call("fail", {}), bench.call("add", {"a": 1, "b": 2})
    await finish(failed)
    await finish(fine)
    assert failed.state == "failed"
    assert "broken" in failed.content[0]["text"]
    assert 'raise ValueError("broken")' in failed.traceback
    assert fine.traceback == ""


@pytest.mark.parametrize(("tool", "arguments"), [("add", {"a": "x"}), ("nothing", {})])
async def test_a_refused_request_is_an_error_of_the_call(bench, tool, arguments):
    """Such as arguments that do not fit the schema: the page that made the call is notified."""
    failures = []
    call = bench.call(tool, arguments)
    call.on_failure = failures.append
    await finish(call)
    await until(lambda: failures)
    assert call.state == "failed"
    assert failures == [call.error]


async def test_progress_and_logs_come_while_it_runs_and_cancel_ends_it(bench):
    """Objects in a log are shown as JSON."""
    call = bench.call("wait", {})
    await until(lambda: call.logs)
    assert (call.progress, call.total, call.progress_text) == (1, 4, "on the way")
    assert call.logs[0].text == '{"x":1}'
    bench.cancel(call)
    await finish(call)
    assert call.state == "cancelled"


async def test_logs_are_bounded(bench):
    """The log messages beyond the limit are only counted."""
    call = await finish(bench.call("talk", {}))
    assert (len(call.logs), call.logs_left_out) == (MOST_LOGS, 5)


@pytest.mark.parametrize(
    "number",
    [pytest.param(10**400, id="huge"), float("inf"), float("nan"), True, "1", None],
)
def test_progress_that_is_no_usable_number_is_none(number):
    """A server of another library may send any values."""
    call = ToolCall("wait", {})
    call.note_progress(number, number, number)
    assert (call.progress, call.total) == (None, None)


async def test_a_question_is_answered_once(bench):
    """The second answer is refused."""
    call = bench.call("ask", {})
    await until(lambda: call.questions)
    [question] = call.questions
    assert question.decline()
    assert not question.accept({})
    await finish(call)
    assert call.content[0]["text"] == "decline"


async def test_a_question_of_a_cancelled_call_takes_no_answer(bench):
    """The question is cancelled with the call."""
    call = bench.call("ask", {})
    await until(lambda: call.questions)
    bench.cancel(call)
    await finish(call)
    assert call.questions[0].state == "cancelled"
    assert not call.questions[0].decline()


async def test_a_tool_that_is_added_is_listed_by_itself(bench):
    """The bench follows the server's `list_changed` notifications."""
    bench.server.tool(lambda: "new", name="late")
    await until(lambda: bench.find("late"))


async def test_another_server_takes_the_place_of_the_first(bench):
    """A call that is running continues with the old server."""
    running = bench.call("wait", {})
    await until(lambda: running.logs)
    other = ToolServer("calc")
    other.tool(lambda: "other", name="only")
    await bench.replace(other)
    assert [tool.name for tool in bench.tools] == ["only"]
    assert running.state == "running"
    assert (await finish(bench.call("only", {}))).content[0]["text"] == "other"


async def test_a_server_that_cannot_be_used_is_a_problem_on_the_page():
    """It does not raise an exception, which would end the studio."""

    class Broken(ToolServer):
        def connect(self, *_args, **_more):
            raise RuntimeError("out of order")

    bench = ToolBench(Broken("bad"), "bad")
    await bench.open()
    assert bench.problem == "RuntimeError: out of order"
    assert bench.tools == []
    call = await finish(bench.call("x", {}))
    assert call.error == "RuntimeError: out of order"
    await bench.aclose()


async def test_only_the_latest_calls_are_kept(bench):
    """A page that is open for days does not grow without end."""
    for _ in range(205):
        await finish(bench.call("add", {"a": 1, "b": 1}))
    assert len(bench.calls) == 200
