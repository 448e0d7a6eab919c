"""A session over an in-memory pipe: matching of responses, handlers, messages, and the end."""

import asyncio
import contextvars
import gc
import json
import logging
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint

from toolwire import (
    CLIConnectionError,
    CLITimeoutError,
    ControlRequestError,
    ProcessError,
    ResultError,
    UnsupportedRequestError,
)
from toolwire._conversation.session import Session

pytestmark = pytest.mark.anyio

ASYNCIO_ONLY = pytest.mark.parametrize("anyio_backend", ["asyncio"])


class FakePipe:
    """Records what is written, and lets a test play the CLI."""

    def __init__(self):
        self.written = []
        self.calls = []
        self._wrote = anyio.Event()

    async def open(self, listener):
        self.listener = listener

    def write(self, line):
        assert line.endswith(b"\n")
        self.written.append(json.loads(line))
        wrote, self._wrote = self._wrote, anyio.Event()
        wrote.set()

    async def drain(self):
        await checkpoint()

    def end_input(self):
        self.calls.append("end_input")

    async def stop(self):
        self.calls.append("stop")
        await checkpoint()
        self.listener.ended(None)

    def kill(self):
        self.calls.append("kill")

    # For the tests.

    def say(self, *frames):
        """Send all frames in one chunk."""
        self.listener.data_received(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    async def has_written(self, count):
        """Return the lines written, once there are `count`."""
        while len(self.written) < count:
            await self._wrote.wait()
        return self.written

    @property
    def replies(self):
        """The responses that were written, by the id of their request."""
        bodies = [frame["response"] for frame in self.written if frame["type"] == "control_response"]
        assert len({body["request_id"] for body in bodies}) == len(bodies), "a request was answered twice"
        return {body["request_id"]: body for body in bodies}


class Clock:
    """Takes the place of the module `time`."""

    now = 0.0

    def monotonic(self):
        return self.now


@asynccontextmanager
async def opened(handlers=None, **more):
    """Open a session over a fake pipe, and close it at the end, all within bounded time."""
    with anyio.fail_after(10):
        pipe = FakePipe()
        session = Session(pipe, handlers or {}, **more)
        await session.open()
        try:
            yield session, pipe
        finally:
            await session.aclose()


def request(request_id="r1", subtype="ping", **body):
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **body}}


def cancel_request(request_id="r1"):
    return {"type": "control_cancel_request", "request_id": request_id}


def response(request_id, **response):
    return {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request_id, "response": response},
    }


def error_response(request_id, error, **more):
    return {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": error, **more},
    }


def said(text):
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}


def result(text="done", **more):
    return {"type": "result", "subtype": "success", "result": text, "is_error": False, **more}


def state(name):
    return {"type": "system", "subtype": "session_state_changed", "state": name, "sdk_host_only": True}


def prompt(text="hi"):
    return {"type": "user", "message": {"role": "user", "content": text}}


async def collect(into, session, subtype, seconds=5.0, **body):
    """Send a request, and record the response or the exception."""
    try:
        into[subtype] = await session.request({"subtype": subtype, **body}, seconds)
    except Exception as error:  # noqa: BLE001 - whatever it was is what the test looks at
        into[subtype] = error


class TestOurQuestions:
    async def test_responses_out_of_order_find_their_callers(self):
        """Every caller gets the response to its own request, whatever the order."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(collect, answers, session, f"s{number}")
                ids = [
                    (frame["request_id"], frame["request"]["subtype"]) for frame in await pipe.has_written(5)
                ]
                for request_id, subtype in reversed(ids):
                    pipe.say(response(request_id, was=subtype))
            assert answers == {f"s{number}": {"was": f"s{number}"} for number in range(5)}

    async def test_an_interrupt_before_the_turn_is_sent_again_when_it_begins(self):
        """Once, and the message that begins the turn is there to be read; the second response is ignored."""
        async with opened() as (session, pipe):
            answers = {}
            session.prompt(prompt())
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "interrupt")
                pipe.say(response((await pipe.has_written(2))[1]["request_id"], still_queued=[]))
            assert answers == {"interrupt": {"still_queued": []}}
            init = {"type": "system", "subtype": "init"}
            pipe.say(state("running"), init, init)
            assert [frame["type"] for frame in pipe.written] == ["user", "control_request", "control_request"]
            assert pipe.written[2]["request"] == {"subtype": "interrupt"}
            pipe.say(response(pipe.written[2]["request_id"]), result())
            assert await session.next_frame() == init
            assert session.unread == 2

    async def test_a_second_answer_is_ignored(self):
        """The first response counts; a repeated one affects neither its caller nor the next."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "first")
                first = (await pipe.has_written(1))[0]["request_id"]
                pipe.say(response(first, n=1), response(first, n=2))
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "second")
                second = (await pipe.has_written(2))[1]["request_id"]
                pipe.say(response(first, n=3), response(second, n=4))
            assert answers == {"first": {"n": 1}, "second": {"n": 4}}
            assert session.unread == 0

    async def test_a_cancelled_caller_leaves_nothing_behind(self):
        """A response that arrives after its caller was cancelled is dropped, and the next request works."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "given up")
                late = (await pipe.has_written(1))[0]["request_id"]
                group.cancel_scope.cancel()
            pipe.say(response(late, n=1))
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "next")
                pipe.say(response((await pipe.has_written(2))[1]["request_id"], n=2))
            assert answers == {"next": {"n": 2}}

    async def test_a_request_that_timed_out_may_be_answered_late(self):
        """A timeout ends that request alone."""
        async with opened() as (session, pipe):
            answers = {}
            await collect(answers, session, "slow", 0.01)
            assert isinstance(answers["slow"], CLITimeoutError)
            pipe.say(response(pipe.written[0]["request_id"], n=1))
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "next")
                pipe.say(response((await pipe.has_written(2))[1]["request_id"], n=2))
            assert answers["next"] == {"n": 2}

    async def test_a_refusal_has_its_type_and_its_words(self):
        """The CLI's error text, its code and the subtype are in the exception."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                for subtype in ("a", "b", "c"):
                    group.start_soon(collect, answers, session, subtype)
                for frame in await pipe.has_written(3):
                    more = {"error_code": "unsupported_request"} if frame["request"]["subtype"] == "b" else {}
                    text = "" if frame["request"]["subtype"] == "c" else "no"
                    pipe.say(error_response(frame["request_id"], text, **more))
            assert [type(answers[name]) for name in "abc"] == [
                ControlRequestError,
                UnsupportedRequestError,
                ControlRequestError,
            ]
            assert [str(answers[name]) for name in "abc"] == ["no", "no", "no reason given"]
            assert answers["a"].subtype == "a"

    @pytest.mark.parametrize("body", [None, 5, "text", [1]])
    async def test_an_answer_without_an_object_is_an_empty_one(self, body):
        """`response` may be missing or of another kind; the caller gets an empty dict."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "x")
                request_id = (await pipe.has_written(1))[0]["request_id"]
                frame = response(request_id)
                frame["response"]["response"] = body
                pipe.say(frame)
            assert answers == {"x": {}}

    async def test_the_end_wakes_every_caller_with_the_reason(self):
        """Requests that are pending when the CLI dies raise the reason."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(collect, answers, session, str(number))
                await pipe.has_written(3)
                pipe.listener.stderr_received(b"the reason\n")
                pipe.listener.ended(9)
            assert [type(error) for error in answers.values()] == [ProcessError] * 3
            assert all(error.exit_code == 9 and error.stderr == "the reason" for error in answers.values())
            with pytest.raises(ProcessError):
                await session.request({"subtype": "late"}, 5)

    async def test_an_answer_that_comes_together_with_the_end_is_an_answer(self):
        """The CLI responds and exits before the caller has run: the response counts."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "x")
                pipe.say(response((await pipe.has_written(1))[0]["request_id"], n=1))
                pipe.listener.ended(0)
            assert answers == {"x": {"n": 1}}

    async def test_closing_wakes_every_caller(self):
        """A request that is pending when we close raises a connection error at once."""
        async with opened() as (session, pipe):
            answers = {}
            async with anyio.create_task_group() as group:
                group.start_soon(collect, answers, session, "x", 60)
                await pipe.has_written(1)
                await session.aclose()
            assert isinstance(answers["x"], CLIConnectionError)

    async def test_a_request_that_is_not_json_is_refused_to_its_maker(self):
        """A value that is not JSON raises TypeError, and nothing is written."""
        async with opened() as (session, pipe):
            with pytest.raises(TypeError):
                await session.request({"subtype": "x", "value": object()}, 5)
            assert pipe.written == []


class TestTheirQuestions:
    async def test_slow_and_quick_answers_do_not_wait_for_each_other(self):
        """Each request has its own task; responses are written as they are ready."""
        release = anyio.Event()

        async def ping(body):
            if body["n"] == 0:
                await release.wait()
            return {"n": body["n"]}

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(*(request(f"r{number}", n=number) for number in range(3)))
            await pipe.has_written(2)
            release.set()
            await pipe.has_written(3)
            assert [frame["response"]["request_id"] for frame in pipe.written][2] == "r0"
            assert {name: body["response"]["n"] for name, body in pipe.replies.items()} == {
                "r0": 0,
                "r1": 1,
                "r2": 2,
            }

    async def test_the_same_id_twice_is_one_request(self):
        """A request repeated while it is pending runs its handler once and gets one response."""
        runs = []
        release = anyio.Event()

        async def ping(body):
            runs.append(body["n"])
            await release.wait()
            return {}

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request("same", n=1), request("same", n=2))
            await anyio.wait_all_tasks_blocked()
            release.set()
            await pipe.has_written(1)
            await anyio.wait_all_tasks_blocked()
            assert runs == [1]
            assert list(pipe.replies) == ["same"]

    async def test_an_id_may_be_used_again_once_it_was_answered(self):
        """An id is in use only while its request is pending."""

        async def ping(body):
            return {"n": body["n"]}

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request("same", n=1))
            await pipe.has_written(1)
            pipe.say(request("same", n=2))
            await pipe.has_written(2)
            assert [frame["response"]["response"] for frame in pipe.written] == [{"n": 1}, {"n": 2}]

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (ValueError("broken"), "broken"),
            (ValueError(), "ValueError"),
            (ExceptionGroup("two", [OSError("a"), OSError("b")]), "two (2 sub-exceptions)"),
            (StopAsyncIteration("odd"), "odd"),
            (TimeoutError(), "TimeoutError"),
        ],
    )
    async def test_an_exception_in_a_handler_is_a_refusal(self, error, text):
        """The CLI is sent every failure, and the session continues."""

        async def ping(body):
            if body.get("fail"):
                raise error
            return {"fine": True}

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request("bad", fail=True))
            await pipe.has_written(1)
            pipe.say(request("good"))
            await pipe.has_written(2)
            assert pipe.replies["bad"] == {"subtype": "error", "request_id": "bad", "error": text}
            assert pipe.replies["good"]["response"] == {"fine": True}

    @pytest.mark.parametrize("answer", [{"x": object()}, {"x": {1, 2}}, {object(): 1}])
    async def test_an_answer_that_is_not_json_is_a_refusal(self, answer):
        """A handler that returns something that is not JSON does not leave the CLI waiting."""

        async def ping(_):
            return answer

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request())
            await pipe.has_written(1)
            assert pipe.replies["r1"]["subtype"] == "error"

    @ASYNCIO_ONLY
    async def test_a_cancellation_of_the_handlers_own_making_is_a_refusal(self, anyio_backend):
        """A handler that awaits a cancelled task fails; the CLI must not wait for it forever."""

        async def ping(_):
            inner = asyncio.ensure_future(asyncio.sleep(60))
            inner.cancel()
            await inner

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request())
            with anyio.fail_after(2):
                await pipe.has_written(1)
            assert pipe.replies["r1"]["subtype"] == "error"

    async def test_context_variables_of_the_opener_are_visible_in_handlers(self):
        """A handler sees the context in which the session was opened."""
        who = contextvars.ContextVar("who", default="nobody")
        seen = []

        async def ping(_):
            seen.append(who.get())
            who.set("the handler")
            return {}

        who.set("the opener")
        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request("a"))
            await pipe.has_written(1)
            pipe.say(request("b"))
            await pipe.has_written(2)
        assert seen == ["the opener", "the opener"]
        assert who.get() == "the opener"

    async def test_a_cancelled_request_stops_its_handler_and_gets_no_response(self):
        """The handler is cancelled, its clean-up runs, nothing is written."""
        started, cleaned = anyio.Event(), anyio.Event()

        async def ping(_):
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                cleaned.set()

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request())
            await started.wait()
            pipe.say(cancel_request())
            await cleaned.wait()
            await anyio.wait_all_tasks_blocked()
            assert pipe.written == []

    async def test_a_request_cancelled_before_its_handler_started_is_forgotten(self):
        """Requested and cancelled in one chunk: the id is free again."""

        async def ping(body):
            await checkpoint()
            return {"n": body["n"]}

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request("same", n=1), cancel_request("same"))
            await anyio.wait_all_tasks_blocked()
            pipe.say(request("same", n=2))
            with anyio.fail_after(2):
                await pipe.has_written(1)
            assert pipe.replies["same"]["response"] == {"n": 2}

    async def test_a_request_cancelled_before_its_handler_started_does_not_hold_up_the_end(self, caplog):
        """Closing does not wait for a handler that never ran."""

        async def ping(_):
            await anyio.sleep_forever()

        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request(), cancel_request())
            await anyio.wait_all_tasks_blocked()
            await session.aclose()
        assert "did not stop" not in caplog.text

    async def test_a_request_in_the_last_bytes_does_not_hold_up_the_end(self, caplog):
        """A request that arrives together with the end of the CLI is dropped with it."""

        async def ping(_):
            await anyio.sleep_forever()

        async with opened({"ping": ping}) as (session, pipe):
            pipe.listener.data_received(json.dumps(request()).encode())  # no newline: the end completes it
            pipe.listener.ended(0)
            await anyio.wait_all_tasks_blocked()
            await session.aclose()
        assert "did not stop" not in caplog.text

    async def test_the_end_of_the_cli_cancels_its_requests(self):
        """Handlers are cancelled when the CLI has ended, since nothing reads their responses."""
        started, cleaned = anyio.Event(), anyio.Event()

        async def ping(_):
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                cleaned.set()

        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request())
            await started.wait()
            pipe.listener.ended(0)
            await cleaned.wait()

    async def test_an_unknown_request_is_refused_and_handlers_go_on(self):
        """A subtype without a handler gets an error reply."""
        async with opened() as (_, pipe):
            pipe.say(request("a", "no_such"), {"type": "control_request", "request_id": "b"})
            assert pipe.replies["a"]["error"] == "Unsupported control request subtype: no_such"
            assert "without a request object" in pipe.replies["b"]["error"]

    async def test_a_handler_may_ask_back(self):
        """A handler can wait for a response of the CLI: the reader does not wait for the handler."""

        async def ping(_):
            return await session.request({"subtype": "back"}, 5)

        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request())
            back = (await pipe.has_written(1))[0]["request_id"]
            pipe.say(response(back, deep=True))
            await pipe.has_written(2)
            assert pipe.replies["r1"]["response"] == {"deep": True}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_handler_that_raises_no_exception_but_a_base_exception_is_refused(backend, caplog):
    """`pytest.fail()` and its like in a handler: the CLI gets an error, the event loop survives."""

    class Odd(BaseException):
        pass

    async def ping(_):
        raise Odd("not an Exception")

    async def main():
        async with opened({"ping": ping}) as (_, pipe):
            pipe.say(request())
            with anyio.fail_after(2):
                await pipe.has_written(1)
            return pipe.replies["r1"]["subtype"]

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        assert anyio.run(main, backend=backend) == "error"
        gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_cancelled_handler_with_a_nursery_is_no_failure(anyio_backend, caplog):
    """trio wraps several cancellations in a group: cancelling the request still does not count as a failure."""
    trio = pytest.importorskip("trio")
    started = anyio.Event()

    async def ping(_):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
            started.set()
            await trio.sleep_forever()

    async with opened({"ping": ping}) as (_, pipe):
        pipe.say(request())
        await started.wait()
        pipe.say(cancel_request())
        await anyio.wait_all_tasks_blocked()
        assert pipe.written == []
    assert caplog.text == ""


class TestReading:
    async def test_several_consumers_share_the_messages(self):
        """Each message reaches exactly one consumer, and the end reaches all."""
        async with opened() as (session, pipe):
            taken = {number: [] for number in range(4)}

            async def consume(number):
                while (frame := await session.next_frame()) is not None:
                    taken[number].append(frame["n"])
                    await checkpoint()

            async with anyio.create_task_group() as group:
                for number in taken:
                    group.start_soon(consume, number)
                await anyio.wait_all_tasks_blocked()
                for start in range(0, 100, 10):
                    pipe.say(*({"type": "note", "n": n} for n in range(start, start + 10)))
                    await checkpoint()
                pipe.listener.ended(0)
            assert sorted(n for numbers in taken.values() for n in numbers) == list(range(100))
            assert all(numbers == sorted(numbers) for numbers in taken.values())

    async def test_a_cancelled_consumer_loses_no_message(self):
        """A timeout around the wait takes nothing out of the queue."""
        async with opened() as (session, pipe):
            for number in range(3):
                with anyio.move_on_after(0.01):
                    await session.next_frame()
                pipe.say({"type": "note", "n": number})
                assert (await session.next_frame())["n"] == number
            assert session.unread == 0

    async def test_a_failed_end_comes_after_the_messages_and_to_every_consumer(self):
        """Messages that arrived are read first; then each reader gets the error."""
        async with opened() as (session, pipe):
            pipe.say(said("one"), said("two"))
            pipe.listener.ended(1)
            assert [(await session.next_frame())["type"] for _ in range(2)] == ["assistant"] * 2
            for _ in range(3):
                with pytest.raises(ProcessError, match="exit code: 1"):
                    await session.next_frame()

    async def test_a_last_line_without_newline_is_a_message(self):
        """The end of the bytes completes the last line."""
        async with opened() as (session, pipe):
            pipe.listener.data_received(json.dumps(result("cut")).encode())
            pipe.listener.ended(0)
            assert (await session.next_frame())["result"] == "cut"
            assert await session.next_frame() is None

    async def test_what_was_not_read_can_still_be_read_after_closing(self):
        """Closing discards no message."""
        async with opened() as (session, pipe):
            pipe.say(said("one"), said("two"))
            await session.aclose()
            assert session.unread == 2
            assert (await session.next_frame())["message"]["content"][0]["text"] == "one"
            assert session.unread == 1

    async def test_a_failed_result_is_the_reason_of_a_failed_exit(self):
        """The error has exit code, stderr and the result, unless a message arrived after the result."""
        for frames, kind in (
            ([result("bad", is_error=True)], ResultError),
            ([result("bad", is_error=True), state("idle")], ResultError),
            ([result("bad", is_error=True), said("more")], ProcessError),
            ([result("bad", is_error=True), result("good")], ProcessError),
        ):
            async with opened() as (session, pipe):
                session.prompt(prompt())
                pipe.say(*frames)
                pipe.listener.ended(1)
                with pytest.raises(ProcessError) as caught:
                    while await session.next_frame() is not None:
                        pass
                assert type(caught.value) is kind
                assert caught.value.exit_code == 1


class TestTheRun:
    async def test_nothing_asked_is_over_at_once(self):
        """Without a prompt the input ends without a wait."""
        async with opened() as (session, pipe):
            await session.end_input_when_over()
            assert pipe.calls == ["end_input"]

    async def test_the_input_ends_at_idle_and_not_at_the_result(self):
        """The result alone does not end the input while the CLI reports that it is running."""
        async with opened() as (session, pipe):
            session.prompt(prompt())
            async with anyio.create_task_group() as group:
                group.start_soon(session.end_input_when_over)
                pipe.say(state("running"), said("x"), result())
                await anyio.wait_all_tasks_blocked()
                assert pipe.calls == []
                pipe.say(state("idle"))
            assert pipe.calls == ["end_input"]

    async def test_the_end_of_the_cli_ends_the_wait(self):
        """A CLI that dies does not leave the feeder waiting."""
        async with opened() as (session, pipe):
            session.prompt(prompt())
            async with anyio.create_task_group() as group:
                group.start_soon(session.end_input_when_over)
                await anyio.wait_all_tasks_blocked()
                pipe.listener.ended(1)

    @pytest.mark.parametrize("frame", [{"type": "keep_alive"}, {"note": "no type at all"}])
    async def test_a_frame_that_is_no_prompt_owes_no_result(self, frame):
        """Streamed frames other than user messages get no result: waiting for one would never end."""
        async with opened() as (session, pipe):
            session.prompt(prompt())
            pipe.say(state("running"), said("x"), result(), state("idle"))
            session.prompt(frame)
            with anyio.fail_after(8):  # longer than the grace period of a merged prompt
                await session.end_input_when_over()
            assert "end_input" in pipe.calls


class TestWaitingForAResponse:
    async def test_background_work_may_still_give_one(self, monkeypatch):
        """A shell in the background starts a turn when it ends, long after the result of the prompt."""
        monkeypatch.setattr("toolwire._protocol.run.GRACE", 0.0)
        shell = {"type": "system", "task_id": "t1", "task_type": "local_bash"}
        read = []
        async with opened() as (session, pipe):

            async def reader():
                with pytest.raises(CLIConnectionError, match="no prompt is waiting"):
                    while (frame := await session.next_frame(of_response=True)) is not None:
                        read.append(frame.get("result") or frame.get("subtype"))

            session.prompt(prompt())
            pipe.say({**shell, "subtype": "task_started"}, result("first"), state("idle"))
            async with anyio.create_task_group() as group:
                group.start_soon(reader)
                await anyio.wait_all_tasks_blocked()
                assert read == ["task_started", "first"]
                pipe.say({**shell, "subtype": "task_notification"}, {"type": "system", "subtype": "init"})
                await anyio.wait_all_tasks_blocked()
                pipe.say(result("second", origin={"kind": "task-notification"}))
        assert read == ["task_started", "first", "task_notification", "init", "second"]

    async def test_a_slow_handler_is_no_silence_of_the_cli(self, monkeypatch):
        """A hook that runs longer than an idle CLI may be silent, before the turn has begun."""
        clock = Clock()
        monkeypatch.setattr("toolwire._conversation.session.time", clock)
        release, read = anyio.Event(), []

        async def hook(_body):
            await release.wait()
            return {}

        async with opened({"ping": hook}) as (session, pipe):

            async def reader():
                with pytest.raises(CLIConnectionError, match="no prompt is waiting"):
                    while (frame := await session.next_frame(of_response=True)) is not None:
                        read.append(frame["type"])

            pipe.say(state("idle"))
            session.prompt(prompt())
            pipe.say(request())
            async with anyio.create_task_group() as group:
                group.start_soon(reader)
                await anyio.wait_all_tasks_blocked()
                clock.now = 100.0
                pipe.say({"type": "note"})  # wakes the reader
                await anyio.wait_all_tasks_blocked()
                assert session.unread == 0
                release.set()
                await pipe.has_written(2)
                clock.now = 120.0
                pipe.say({"type": "note"})
                await anyio.wait_all_tasks_blocked()
                assert read == ["note", "note"]
                clock.now = 131.0  # 31 seconds after the response, and the CLI is still idle
                pipe.say({"type": "note"})
        assert read == ["note"] * 3

    async def test_a_slow_handler_does_not_end_the_input(self, monkeypatch):
        """Streamed prompts: the second one's hook takes longer than an idle CLI may be silent."""
        clock = Clock()
        monkeypatch.setattr("toolwire._conversation.session.time", clock)

        async with opened({"ping": lambda _body: anyio.sleep_forever()}) as (session, pipe):
            pipe.say(state("idle"))
            session.prompt(prompt())
            pipe.say(request())
            async with anyio.create_task_group() as group:
                group.start_soon(session.end_input_when_over)
                await anyio.wait_all_tasks_blocked()
                clock.now = 100.0
                pipe.say({"type": "note"})
                await anyio.wait_all_tasks_blocked()
                assert "end_input" not in pipe.calls
                pipe.say(state("running"), result(), state("idle"))
            assert "end_input" in pipe.calls

    async def test_a_response_that_never_comes_ends_with_the_session(self):
        """A task that waits for a response is woken when the session is closed."""
        async with opened() as (session, _pipe):
            session.prompt(prompt())
            async with anyio.create_task_group() as group:

                async def reader():
                    assert await session.next_frame(of_response=True) is None

                group.start_soon(reader)
                await anyio.wait_all_tasks_blocked()
                await session.aclose()


class TestClosing:
    async def test_several_tasks_close_at_once(self):
        """All of them return, and the pipe is stopped once."""
        async with opened() as (session, pipe):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(session.aclose)
            await session.aclose()
            assert pipe.calls.count("stop") == 1
            assert not session.alive

    async def test_closing_in_a_cancelled_scope_still_closes(self):
        """Cancellation does not cut the closing short."""
        async with opened() as (session, pipe):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await session.aclose()
            assert pipe.calls == ["stop"]

    @ASYNCIO_ONLY
    async def test_a_cancelled_task_that_closes_still_closes(self, anyio_backend):
        """`task.cancel()` twice, while closing: the pipe is stopped all the same."""
        async with opened() as (session, pipe):
            task = asyncio.create_task(session.aclose())
            for _ in range(2):
                await asyncio.sleep(0)
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await session.aclose()
            assert pipe.calls == ["stop"]

    async def test_handlers_are_cancelled_before_the_pipe_is_stopped(self):
        """Clean-up in a handler runs while the pipe is still open, and no new handler starts."""
        order = []
        started = anyio.Event()

        async def ping(_):
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                order.append(list(pipe.calls))

        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request("a"))
            await started.wait()
            await session.aclose()
            pipe.say(request("b"))
            await anyio.wait_all_tasks_blocked()
        assert order == [[]]
        assert pipe.calls == ["stop"]
        assert pipe.replies == {}

    @pytest.mark.slow
    async def test_a_handler_that_ignores_cancellation_is_given_up(self, caplog):
        """Closing waits a bounded time for it, logs a warning, and stops the pipe."""
        started, release, ended = anyio.Event(), anyio.Event(), anyio.Event()

        async def ping(_):
            started.set()
            while not release.is_set():
                with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                    await release.wait()
            ended.set()
            return {}

        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request())
            await started.wait()
            await session.aclose()
            assert not ended.is_set()
            assert pipe.calls == ["stop"]
            release.set()
            await ended.wait()
            await anyio.wait_all_tasks_blocked()
        assert "1 handlers did not stop" in caplog.text

    async def test_a_handler_may_close_the_session(self):
        """Closing from inside a handler ends in bounded time."""

        async def ping(_):
            await session.aclose()
            return {}

        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request())
            with anyio.fail_after(5):
                assert await session.next_frame() is None
                await session.aclose()
            assert pipe.calls == ["stop"]

    @ASYNCIO_ONLY
    async def test_the_pipe_is_stopped_even_if_the_loop_goes_down_while_handlers_wind_down(
        self, anyio_backend
    ):
        """asyncio cancels every task at its end: that must not leave a CLI behind."""
        started, winding, release = anyio.Event(), anyio.Event(), anyio.Event()

        async def ping(_):
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                winding.set()
                with suppress(asyncio.CancelledError):
                    await release.wait()

        before = asyncio.all_tasks()
        async with opened({"ping": ping}) as (session, pipe):
            pipe.say(request())
            await started.wait()
            closing = asyncio.create_task(session.aclose())
            await winding.wait()
            cancel_all_but(before)
            await asyncio.wait([closing])
            await anyio.wait_all_tasks_blocked()
            assert pipe.calls, "neither stopped nor killed"

    @ASYNCIO_ONLY
    async def test_the_pipe_is_stopped_even_if_the_loop_goes_down_at_once(self, anyio_backend):
        """asyncio cancels every task at the moment in which closing begins: the CLI is still ended."""
        before = asyncio.all_tasks()
        pipe = FakePipe()
        session = Session(pipe, {})
        await session.open()
        closing = asyncio.create_task(session.aclose())
        while session.alive:  # until closing has begun
            await asyncio.sleep(0)
        cancel_all_but(before)
        await asyncio.wait([closing])
        await anyio.wait_all_tasks_blocked()
        assert pipe.calls, "neither stopped nor killed"
        with anyio.fail_after(2):
            await asyncio.wait_for(session.aclose(), 1)

    async def test_a_busy_cli_is_interrupted_first(self):
        """Without an interrupt the CLI would finish its turn before reacting to the end of its input."""
        async with opened() as (session, pipe):
            session.prompt(prompt())
            pipe.say(state("running"), said("working"))
            await session.aclose()
            assert pipe.written[-1]["request"] == {"subtype": "interrupt"}

    async def test_an_idle_cli_is_not_interrupted(self):
        """After the end of a run there is nothing to interrupt."""
        async with opened() as (session, pipe):
            session.prompt(prompt())
            pipe.say(state("running"), said("x"), result(), state("idle"))
            await session.aclose()
            assert [frame["type"] for frame in pipe.written] == ["user"]

    async def test_after_closing_every_call_says_so(self):
        """Prompts and requests raise; closing again does nothing."""
        async with opened() as (session, pipe):
            await session.aclose()
            with pytest.raises(CLIConnectionError, match="has ended"):
                session.prompt(prompt())
            with pytest.raises(CLIConnectionError, match="has ended"):
                await session.request({"subtype": "x"}, 5)
            assert await session.next_frame() is None
            assert pipe.written == []

    async def test_a_pipe_that_fails_to_stop_does_not_hold_us(self, caplog):
        """An exception while stopping is logged, and closing completes."""

        class Broken(FakePipe):
            async def stop(self):
                raise OSError("cannot stop")

        with anyio.fail_after(5):
            session = Session(Broken(), {})
            await session.open()
            await session.aclose()
        assert "cannot stop" in caplog.text


def cancel_all_but(before):
    """Cancel all other new tasks, as asyncio.run does at the end of its main task."""
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
