"""A user's own transport: frames in memory, and everything that its code may do wrong."""

import asyncio
import gc
import json
import logging
from collections import deque

import anyio
import pytest
from anyio.lowlevel import checkpoint

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    CLITimeoutError,
    PermissionResultAllow,
    ProcessError,
    ResultError,
    ResultMessage,
    SystemMessage,
    ToolServer,
    Transport,
    UnknownMessage,
    query,
    run,
)

pytestmark = pytest.mark.anyio

LIMIT = 15


class Memory(Transport):
    """A CLI in memory: responds to control requests and prompts, and records calls of its methods in `diary`."""

    def __init__(self, *, on_prompt=None):
        self.diary = []
        self.frames = []
        self._on_prompt = on_prompt or (lambda frame: [assistant("hi"), result(), idle()])
        self._queue = deque()
        self._moved = anyio.Event()
        self._over = False

    async def connect(self):
        self.diary.append("connect")

    async def write(self, data):
        assert isinstance(data, str)
        assert data.endswith("\n")
        assert data.count("\n") == 1
        frame = json.loads(data)
        self.frames.append(frame)
        for answer in self.answers(frame):
            self.push(answer)
        await checkpoint()

    def answers(self, frame):
        if frame["type"] == "user":
            return self._on_prompt(frame)
        if frame["type"] == "control_request":
            return [accepted(frame["request_id"])]
        return []

    def push(self, frame):
        self._queue.append(frame)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def finish(self):
        self._over = True
        self._moved.set()

    async def read_messages(self):
        while True:
            while self._queue:
                frame = self._queue.popleft()
                if isinstance(frame, BaseException):
                    raise frame
                yield frame
            if self._over:
                return
            await self._moved.wait()

    async def close(self):
        self.diary.append("close")
        self.finish()

    def is_ready(self):
        return True

    async def end_input(self):
        self.diary.append("end_input")
        self.finish()


def accepted(request_id, **response):
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return {"type": "control_response", "response": body}


def assistant(text):
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "model": "m", "content": content}}


def result(text="done", **more):
    base = {"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    return {"type": "result", "session_id": "s", "result": text, **base, **more}


def idle():
    return {"type": "system", "subtype": "session_state_changed", "state": "idle", "sdk_host_only": True}


async def read_all(transport, prompt="hello", **options):
    with anyio.fail_after(LIMIT):
        stream = query(prompt=prompt, options=ClaudeAgentOptions(**options), transport=transport)
        return [message async for message in stream]


class TestPlain:
    async def test_a_query(self):
        """Connected once, input ended once, closed once, in this order."""
        transport = Memory()
        messages = await read_all(transport)
        assert [type(message) for message in messages] == [AssistantMessage, ResultMessage]
        assert transport.diary == ["connect", "end_input", "close"]
        assert [frame["type"] for frame in transport.frames] == ["control_request", "user"]

    async def test_a_client(self):
        """Several turns and a control request; a client does not end the input by itself."""
        transport = Memory(on_prompt=lambda frame: [result(frame["message"]["content"]), idle()])
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=transport) as client:
                for text in ("one", "two"):
                    await client.query(text)
                    assert [m.result async for m in client.receive_response()] == [text]
                await client.interrupt()
        assert transport.diary == ["connect", "close"]

    async def test_a_streamed_prompt_ends_the_input_once(self):
        """`connect(stream)` ends the input when all is answered, and disconnecting does not end it again."""

        async def prompts():
            for text in ("one", "two"):
                yield {"type": "user", "message": {"role": "user", "content": text}}

        transport = Memory(on_prompt=lambda frame: [result(frame["message"]["content"]), idle()])
        with anyio.fail_after(LIMIT):
            client = ClaudeSDKClient(transport=transport)
            await client.connect(prompts())
            assert [m.result async for m in client.receive_messages()] == ["one", "two"]
            await client.disconnect()
            await client.disconnect()
        assert transport.diary == ["connect", "end_input", "close"]

    async def test_a_stream_of_prompts_that_is_given_up_is_closed(self):
        """Clean-up in the user's generator has run when the query is over; the garbage collector is not needed."""
        cleaned = []

        async def prompts(first):
            try:
                yield first
                await anyio.sleep_forever()
            finally:
                cleaned.append(first)

        with pytest.raises(TypeError, match="must yield message dicts"):
            await read_all(Memory(), refused := prompts("text"))
        assert cleaned == ["text"]
        message = {"type": "user", "message": {"role": "user", "content": "x"}}
        with anyio.fail_after(LIMIT):
            stream = query(prompt=(broken_off := prompts(message)), transport=Memory())
            async for _ in stream:
                break
            await stream.aclose()
        assert cleaned == ["text", message]
        del refused, broken_off

    async def test_an_official_subclass(self):
        """A transport written for the official SDK works unchanged."""
        official = pytest.importorskip("claude_agent_sdk")

        class Official(official.Transport):
            pass

        for name in ("connect", "write", "read_messages", "close", "is_ready", "end_input"):
            setattr(Official, name, getattr(Memory, name))
        Official.answers, Official.push, Official.finish = Memory.answers, Memory.push, Memory.finish
        Official.__init__ = Memory.__init__
        Official.__abstractmethods__ = frozenset()
        transport = Official()
        messages = await read_all(transport)
        assert isinstance(messages[-1], ResultMessage)
        assert transport.diary == ["connect", "end_input", "close"]

    async def test_a_callback_is_answered(self):
        """Requests of the CLI go through the user's transport too."""

        async def allow(*_):
            return PermissionResultAllow()

        ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"a": 1}}

        class Asking(Memory):
            def answers(self, frame):
                if frame["type"] == "control_response":
                    return [assistant(json.dumps(frame["response"]["response"])), result(), idle()]
                return super().answers(frame)

        transport = Asking(
            on_prompt=lambda _: [{"type": "control_request", "request_id": "q", "request": ask}]
        )
        messages = await read_all(transport, can_use_tool=allow)
        assert json.loads(messages[0].text) == {"behavior": "allow", "updatedInput": {"a": 1}}

    async def test_writes_never_overlap(self):
        """write() is never called while another write() runs, whoever calls."""

        class Slow(Memory):
            writing = False

            async def write(self, data):
                assert not self.writing
                self.writing = True
                for _ in range(3):
                    await checkpoint()
                self.writing = False
                await super().write(data)

        transport = Slow(on_prompt=lambda _: [])
        with anyio.fail_after(LIMIT):
            async with (
                ClaudeSDKClient(transport=transport) as client,
                anyio.create_task_group() as group,
            ):
                for number in range(10):
                    group.start_soon(client.query, str(number))
                    group.start_soon(client.set_model, str(number))
        prompts = [f["message"]["content"] for f in transport.frames if f["type"] == "user"]
        assert sorted(prompts, key=int) == [str(number) for number in range(10)]
        assert len(transport.frames) == 21

    async def test_a_slow_write_does_not_hold_up_reading(self):
        """Messages arrive while a write is under way."""
        release = anyio.Event()

        class Slow(Memory):
            async def write(self, data):
                await super().write(data)
                if '"user"' in data:
                    await release.wait()

        transport = Slow()
        with anyio.fail_after(LIMIT):
            async with (
                ClaudeSDKClient(transport=transport) as client,
                anyio.create_task_group() as group,
            ):
                group.start_soon(client.query, "hello")
                assert [type(m) async for m in client.receive_response()] == [AssistantMessage, ResultMessage]
                release.set()

    async def test_used_again(self):
        """A client connects its transport anew after a disconnect."""
        transport = Memory()
        with anyio.fail_after(LIMIT):
            client = ClaudeSDKClient(transport=transport)
            for _ in range(2):
                transport._over = False
                await client.connect()
                await client.disconnect()
        assert transport.diary == ["connect", "close"] * 2


class TestItsExceptions:
    async def test_connect_raises(self):
        """The transport's own exception comes out of query() and connect() unchanged."""

        class Bad(Memory):
            async def connect(self):
                raise LookupError("no route")

        with pytest.raises(LookupError, match="no route"):
            await read_all(Bad())
        client = ClaudeSDKClient(transport=Bad())
        with anyio.fail_after(LIMIT), pytest.raises(LookupError, match="no route"):
            await client.connect()
        assert not client.connected

    async def test_connect_that_hangs_can_be_cancelled(self):
        """A timeout around connect() works, and the transport is closed."""

        class Hanging(Memory):
            async def connect(self):
                await anyio.sleep_forever()

        transport = Hanging()
        with anyio.fail_after(LIMIT):
            with anyio.move_on_after(0.05) as scope:
                await ClaudeSDKClient(transport=transport).connect()
            assert scope.cancelled_caught

    async def test_the_first_write_raises(self):
        """A transport that cannot write fails the connect at once, with its own exception."""

        class Bad(Memory):
            async def write(self, data):
                raise OSError("broken pipe")

        transport = Bad()
        with anyio.fail_after(LIMIT), pytest.raises(OSError, match="broken pipe"):
            await ClaudeSDKClient(transport=transport).connect()
        assert transport.diary == ["connect", "close"]

    async def test_a_later_write_raises_to_the_reader(self):
        """When a prompt cannot be written, query() raises the transport's exception instead of waiting for ever."""

        class Bad(Memory):
            async def write(self, data):
                if '"user"' in data:
                    raise OSError("broken pipe")
                await super().write(data)

        transport = Bad()
        with pytest.raises(OSError, match="broken pipe"):
            await read_all(transport)
        assert transport.diary == ["connect", "close"]

    async def test_a_later_write_raises_to_the_writer(self):
        """As in the official SDK, `await client.query()` raises what its own write raised."""

        class Bad(Memory):
            async def write(self, data):
                if '"user"' in data:
                    raise OSError("broken pipe")
                await super().write(data)

        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=Bad()) as client:
                with pytest.raises(OSError, match="broken pipe"):
                    await client.query("hello")

    async def test_reading_raises(self):
        """Messages from before the failure arrive; then the reader gets the transport's exception."""
        transport = Memory(on_prompt=lambda _: [assistant("so far"), LookupError("lost")])
        seen = []
        with anyio.fail_after(LIMIT), pytest.raises(LookupError, match="lost"):
            async for message in query(prompt="x", transport=transport):
                seen.append(message)
        assert [message.text for message in seen] == ["so far"]
        assert transport.diary == ["connect", "end_input", "close"]

    async def test_reading_raises_before_initialize_is_answered(self):
        """A transport that breaks at once fails the connect with its exception, not with a timeout."""

        class Bad(Memory):
            def answers(self, frame):
                return [LookupError("lost")]

        with anyio.fail_after(LIMIT), pytest.raises(LookupError, match="lost"):
            await ClaudeSDKClient(transport=Bad()).connect()

    async def test_a_process_error_after_a_failed_result_is_a_result_error(self):
        """A transport that raises ProcessError, as the official one does, gets the official treatment."""
        failed = result("API Error: 529", is_error=True, api_error_status=529)
        transport = Memory(on_prompt=lambda _: [failed, idle(), ProcessError("exit", exit_code=1)])
        with pytest.raises(ResultError, match="529") as caught:
            await read_all(transport)
        assert (caught.value.exit_code, caught.value.api_error_status) == (1, 529)

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_reading_is_cancelled_by_something_of_its_own(self, anyio_backend):
        """A cancellation inside the transport ends the conversation: nobody waits for ever."""
        transport = Memory(on_prompt=lambda _: [assistant("so far"), asyncio.CancelledError()])
        with anyio.fail_after(LIMIT):
            client = ClaudeSDKClient(transport=transport)
            await client.connect()
            seen = []

            async def read():
                messages = client.receive_messages()
                try:
                    await client.query("x")
                except Exception:  # noqa: BLE001 - it may have ended already
                    assert not client.connected
                try:
                    async for message in messages:
                        seen.append(message)
                except Exception as error:  # noqa: BLE001 - an error is as good as an end here
                    seen.append(error)

            with anyio.move_on_after(2) as scope:
                await read()
            await client.disconnect()
        assert not scope.cancelled_caught, "still waiting"
        assert seen[0].text == "so far"

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_writing_is_cancelled_by_something_of_its_own(self, anyio_backend):
        """The same for write(): the conversation ends with an error, and no caller waits for ever."""

        class Bad(Memory):
            async def write(self, data):
                if '"user"' in data:
                    inner = asyncio.get_running_loop().create_future()
                    inner.cancel()
                    await inner
                await super().write(data)

        with anyio.fail_after(LIMIT):
            client = ClaudeSDKClient(transport=Bad())
            await client.connect()
            problem = None
            with anyio.move_on_after(2) as scope:
                try:
                    await client.query("x")
                    async for _ in client.receive_messages():
                        pass
                except Exception as error:  # noqa: BLE001 - which one is not the point
                    problem = error
            await client.disconnect()
        assert not scope.cancelled_caught, "still waiting"
        assert problem is not None

    async def test_reading_ends_before_the_answer(self, caplog):
        """As in the official SDK this is no error, since a replay may have no result; a warning is logged."""
        transport = Memory(on_prompt=lambda _: transport.finish() or [assistant("so far")])
        with caplog.at_level(logging.WARNING, "toolwire"):
            assert [message.text for message in await read_all(transport)] == ["so far"]
        assert "ended before the result of a prompt" in caplog.text

    async def test_what_was_asked_before_the_end_of_reading_is_answered(self):
        """A replay may end with a request; its handler goes on, and the response is written before close()."""
        ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}

        async def slowly(*_):
            for _ in range(5):
                await checkpoint()
            return PermissionResultAllow()

        async def prompts():
            yield {"type": "user", "message": {"role": "user", "content": "x"}}

        asked = {"type": "control_request", "request_id": "q", "request": ask}
        transport = Memory(on_prompt=lambda _: transport.finish() or [result(), asked])
        await read_all(transport, prompts(), can_use_tool=slowly)
        assert transport.frames[-1]["response"]["request_id"] == "q"
        assert transport.diary == ["connect", "end_input", "close"]

    async def test_a_handler_that_never_ends_does_not_hold_up_a_transport_that_has(self):
        """The handler gets a few turns of the event loop and is then cancelled."""
        ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}

        async def never(*_):
            await anyio.sleep_forever()

        async def prompts():
            yield {"type": "user", "message": {"role": "user", "content": "x"}}
            await anyio.sleep_forever()

        asked = {"type": "control_request", "request_id": "q", "request": ask}
        transport = Memory(on_prompt=lambda _: transport.finish() or [result(), asked])
        assert len(await read_all(transport, prompts(), can_use_tool=never)) == 1
        assert transport.diary == ["connect", "close"]

    async def test_a_spawned_cli_ends_before_the_answer(self):
        """The transport of `spawn_claude_code_process` has a CLI behind it: a missing answer is an error."""
        transport = Memory(on_prompt=lambda _: transport.finish() or [])
        with pytest.raises(ProcessError, match="before it answered"):
            await read_all(None, spawn_claude_code_process=lambda command: transport)

    async def test_reading_ends_while_connecting(self):
        """An end before initialize is answered is a connection error."""

        class Short(Memory):
            def answers(self, frame):
                self.finish()
                return []

        with anyio.fail_after(LIMIT), pytest.raises(CLIConnectionError, match="initialize"):
            await ClaudeSDKClient(transport=Short()).connect()

    async def test_initialize_is_never_answered(self):
        """connect() waits for the response no longer than `initialize_timeout`."""

        class Mute(Memory):
            def answers(self, frame):
                return []

        transport = Mute()
        options = ClaudeAgentOptions(initialize_timeout=0.05)
        with anyio.fail_after(LIMIT), pytest.raises(CLITimeoutError):
            await ClaudeSDKClient(options, transport).connect()
        assert transport.diary == ["connect", "close"]

    async def test_close_raises(self, caplog):
        """An exception in close() is logged; disconnecting is done all the same."""

        class Bad(Memory):
            async def close(self):
                await super().close()
                raise OSError("cannot close")

        with anyio.fail_after(LIMIT), caplog.at_level(logging.ERROR):
            async with ClaudeSDKClient(transport=Bad()) as client:
                pass
            assert not client.connected
        assert "cannot close" in caplog.text

    async def test_close_never_returns(self, monkeypatch, caplog):
        """A close() that hangs is cancelled after a bounded time."""
        monkeypatch.setattr("toolwire._transport.custom._CLOSE_TIMEOUT", 0.1)

        class Bad(Memory):
            async def close(self):
                await anyio.sleep_forever()

        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=Bad()):
                pass
        assert "did not close" in caplog.text

    async def test_close_runs_to_its_end_when_we_are_cancelled(self):
        """Cancelling the task around it does not cut close() short."""
        finished = []

        class Slow(Memory):
            async def close(self):
                for _ in range(5):
                    await checkpoint()
                finished.append(True)

        with anyio.fail_after(LIMIT):
            with anyio.move_on_after(0.05):
                async with ClaudeSDKClient(transport=Slow()):
                    await anyio.sleep_forever()
        assert finished == [True]

    async def test_end_input_raises(self):
        """An exception in end_input() ends the conversation with it; the result was read before."""

        class Bad(Memory):
            async def end_input(self):
                raise OSError("cannot end")

        seen = []
        with anyio.fail_after(LIMIT), pytest.raises(OSError, match="cannot end"):
            async for message in query(prompt="x", transport=Bad()):
                seen.append(message)
        assert isinstance(seen[-1], ResultMessage)

    async def test_reading_has_ended_before_close_is_called(self):
        """As in the official SDK, read_messages() has wound down when close() is called."""

        class Careful(Memory):
            async def read_messages(self):
                try:
                    async for frame in super().read_messages():
                        yield frame
                finally:
                    self.diary.append("read ended")

        transport = Careful(on_prompt=lambda _: [assistant("working")])
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=transport) as client:
                await client.query("x")
                messages = client.receive_messages()
                await anext(messages)
                await messages.aclose()
        assert transport.diary == ["connect", "read ended", "close"]


class TestCancelling:
    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_cancelled_again_while_the_prompts_wind_down(self, anyio_backend):
        """A second `cancel()` while the user's generator cleans up does not leave the connection open."""
        started, winding, release = anyio.Event(), anyio.Event(), anyio.Event()

        async def prompts():
            try:
                yield {"type": "user", "message": {"role": "user", "content": "x"}}
                await anyio.sleep_forever()
            finally:
                winding.set()
                await release.wait()

        async def read():
            async for _ in query(prompt=prompts(), transport=transport):
                started.set()

        transport = Memory(on_prompt=lambda _: [assistant("working")])
        with anyio.fail_after(LIMIT):
            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            await winding.wait()
            task.cancel()
            await asyncio.wait([task])
            release.set()
            with anyio.move_on_after(2):
                while "close" not in transport.diary:
                    await asyncio.sleep(0.01)
        assert transport.diary == ["connect", "close"]

    async def test_a_tool_call_cancelled_before_it_began_leaves_nothing_behind(self):
        """Requested and cancelled in one moment: no coroutine is left that nobody ever awaited."""

        def ask(request_id, **message):
            body = {"subtype": "mcp_message", "server_name": "calc", "message": {"jsonrpc": "2.0", **message}}
            return {"type": "control_request", "request_id": request_id, "request": body}

        server = ToolServer("calc")

        @server.tool
        async def slow(a: int) -> int:
            """Take long."""
            await anyio.sleep_forever()
            return a

        info = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        params = {"name": "slow", "arguments": {"a": 1}, "_meta": {"progressToken": 2}}
        frames = [
            ask("i", id=0, method="initialize", params=info),
            ask("n", method="notifications/initialized"),
            ask("c", id=1, method="tools/call", params=params),
            {"type": "control_cancel_request", "request_id": "c"},
            result(),
            idle(),
        ]
        transport = Memory(on_prompt=lambda _: frames)
        await read_all(transport, mcp_servers={"calc": server})
        gc.collect()  # a coroutine that was never awaited warns now, and warnings are errors
        assert "c" not in [f["response"]["request_id"] for f in transport.frames if "response" in f]


class TestConnecting:
    async def test_a_connect_that_fails_at_its_prompt_leaves_the_client_unconnected(self):
        """The connection ended before the prompt could be sent: connect() raises and may be called again."""

        class Short(Memory):
            def answers(self, frame):
                self.finish()
                return super().answers(frame)

        transport = Short()
        with anyio.fail_after(LIMIT):
            client = ClaudeSDKClient(ClaudeAgentOptions(spawn_claude_code_process=lambda command: transport))
            for _ in range(2):
                transport._over = False
                with pytest.raises(CLIConnectionError, match="has ended"):
                    await client.connect("hello")
                assert not client.connected
        assert transport.diary == ["connect", "close"] * 2

    async def test_two_tasks_connect_one_client(self):
        """The second is refused while the first is still connecting: nothing is started twice."""
        transport = Memory()
        client = ClaudeSDKClient(transport=transport)
        outcomes = []

        async def connect():
            try:
                await client.connect()
                outcomes.append("connected")
            except CLIConnectionError as error:
                outcomes.append(str(error))

        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as group:
                group.start_soon(connect)
                group.start_soon(connect)
            await client.disconnect()
        assert transport.diary == ["connect", "close"]
        assert sorted(text[:9] for text in outcomes) == ["Already c", "connected"]

    async def test_a_refused_second_connect_does_not_harm_the_first(self):
        """After "Already connected" the first connection keeps working."""
        transport = Memory()
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=transport) as client:
                with pytest.raises(CLIConnectionError, match="Already connected"):
                    await client.connect("y")
                await client.query("x")
                assert [m async for m in client.receive_response()]


class TestOddFrames:
    @pytest.mark.parametrize(
        "frame",
        [
            {},
            {"type": None},
            {"type": ["list"]},
            {"type": "from the future", "x": 1},
            {"type": "system"},
            {"type": "system", "subtype": {"a": 1}},
            {"type": "system", "subtype": "task_started", "task_id": 7, "task_type": []},
            {"type": "assistant"},
            {"type": "assistant", "message": None},
            {
                "type": "assistant",
                "message": {"content": [None, 5, {"type": 3}, {"type": "text", "text": None}]},
            },
            {"type": "user", "message": "text"},
            {"type": "control_response"},
            {"type": "control_response", "response": {"request_id": ["x"]}},
            {"type": "control_request", "request_id": 5, "request": None},
            {"type": "control_cancel_request", "request_id": {}},
            {"type": "stream_event", "event": None},
            {"type": "rate_limit_event", "rate_limit_info": "soon"},
            {"type": "result", "origin": "text", "is_error": "yes?", "errors": 5, "result": None},
        ],
        ids=lambda frame: json.dumps(frame)[:40],
    )
    async def test_no_frame_ends_a_conversation(self, frame):
        """Whatever a frame holds: the run goes on to its result."""
        transport = Memory(on_prompt=lambda _: [frame, assistant("after"), result(), idle()])
        messages = await read_all(transport, include_all_messages=True)
        assert [m.text for m in messages if isinstance(m, AssistantMessage)][-1] == "after"
        assert messages[-1].result == "done"

    async def test_unknown_frames_are_kept_for_who_wants_them(self):
        """A frame of an unknown type is an UnknownMessage, which only include_all_messages shows."""
        odd = {"type": "from the future", "x": 1}
        for wanted in (True, False):
            transport = Memory(on_prompt=lambda _: [odd, result(), idle()])
            messages = await read_all(transport, include_all_messages=wanted)
            assert [m.raw for m in messages if isinstance(m, UnknownMessage)] == [odd] * wanted

    @pytest.mark.parametrize("frame", [None, "text", 5, ["a"], b"{}"])
    async def test_what_is_no_frame_at_all(self, frame):
        """If a transport yields something other than dicts, the run raises an error or goes on; it never hangs."""
        transport = Memory(on_prompt=lambda _: [frame, result(), idle()])
        messages, problem = [], None
        try:
            messages = await read_all(transport)
        except Exception as error:  # noqa: BLE001 - which one is not the point
            problem = error
        assert not isinstance(problem, TimeoutError)
        assert problem is not None or isinstance(messages[-1], ResultMessage)

    async def test_values_that_json_does_not_have(self):
        """Frames come decoded: bytes, sets, huge numbers and lone surrogates in them reach the user as they are."""
        odd = {"type": "system", "subtype": "odd", "b": b"\xff", "s": {1}, "n": 10**400, "u": "\ud83d"}
        messages = await read_all(Memory(on_prompt=lambda _: [odd, result(), idle()]))
        assert isinstance(messages[0], SystemMessage)
        assert messages[0].data == odd

    async def test_prompts_with_odd_text(self):
        """Lone surrogates, NUL, U+2028 and newlines in a prompt arrive as one line each."""
        texts = ["\ud83d half", "a\0b", "a\u2028b", "a\nb\r\nc", "\U0001f600", ""]
        transport = Memory(on_prompt=lambda _: [result(), idle()])
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(transport=transport) as client:
                for text in texts:
                    await client.query(text)
                    assert [m async for m in client.receive_response()]
        assert [f["message"]["content"] for f in transport.frames[1:]] == texts

    async def test_run_over_a_transport(self):
        """`run()` takes a transport too."""
        with anyio.fail_after(LIMIT):
            reply = await run("x", transport=Memory())
        assert reply.text == "done"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_query_left_unfinished_at_the_end_of_the_event_loop(backend, caplog):
    """A generator that is still referred to when the loop ends is closed by it, without an error."""
    kept = []

    async def main():
        transport = Memory(on_prompt=lambda _: [assistant("working")])
        stream = query(prompt="x", transport=transport)
        kept.append(stream)
        with anyio.fail_after(LIMIT):
            assert (await anext(stream)).text == "working"
        return transport

    transport = anyio.run(main, backend=backend)
    assert transport.diary == ["connect", "close"]
    assert caplog.text == ""


class TestSpawning:
    async def test_the_command_is_handed_over_in_place_of_being_started(self, tmp_path):
        """The caller's function gets argv, environment and folder, and returns the transport."""
        commands, transport = [], Memory()

        def spawn(command):
            commands.append(command)
            return transport

        options = ClaudeAgentOptions(
            spawn_claude_code_process=spawn,
            model="m",
            env={"A": "1"},
            inherit_env=False,
            cwd=tmp_path / "remote",
        )
        with anyio.fail_after(LIMIT):
            reply = await run("x", options=options)
        assert reply.text == "done"
        (command,) = commands
        assert command.argv[0] == "claude"
        assert command.argv[command.argv.index("--model") + 1] == "m"
        assert (command.env["A"], command.cwd) == ("1", str(tmp_path / "remote"))
        assert transport.diary == ["connect", "end_input", "close"]

    async def test_what_is_no_transport_is_refused(self):
        """The error names the type of what the function returned."""
        with pytest.raises(TypeError, match="must return a Transport, got int"):
            await run("x", options=ClaudeAgentOptions(spawn_claude_code_process=lambda command: 5))
