"""Calls that still run when the server shuts down are cancelled, and then their clients get an error."""

import os
import signal
import threading
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from shared.http_clients import HANDSHAKE, MODERN, Client, message_of
from shared.stdio_peer import Peer
from toolwire import Context, ToolServer, serve_http
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import bound_socket
from toolwire.mcp.serve.start import host_for, serve_over, serve_pipe

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LIMIT = 60
CLOSED = -32000


class Slow:
    """A server whose tools do not end by themselves, and a record of the order of events."""

    def __init__(self):
        self.happened = []
        self.running = 0
        self.begun, self.both_begun, self.let_go = anyio.Event(), anyio.Event(), anyio.Event()
        self.server = ToolServer("slow")
        for tool in (self.wait, self.stubborn, self.told):
            self.server.tool(tool)

    async def wait(self) -> None:
        """Wait for ever, and take a while to stop."""
        self.running += 1
        (self.both_begun if self.running > 1 else self.begun).set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            self.happened.append("stopped")

    async def told(self, context: Context) -> None:
        """The same, after a word: so `mcp` has it at once."""
        context.progress(1, 2)
        await self.wait()

    async def stubborn(self) -> None:
        """Do not heed a cancellation."""
        self.begun.set()
        with anyio.CancelScope(shield=True):
            await self.let_go.wait()


@pytest.fixture
def patient(monkeypatch):
    """Give tools enough time to stop, however slow the machine is."""
    for name in ("http.STOP_TIMEOUT", "http._FLUSH_TIMEOUT", "stdio._STOP_TIMEOUT", "stdio._FLUSH_TIMEOUT"):
        monkeypatch.setattr(f"toolwire.mcp.serve.{name}", LIMIT)


@asynccontextmanager
async def serving(slow, version, sessions=True):
    """Give a client of a server that a signal stops; on exit, wait until the server has stopped."""
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            httpx2.AsyncClient(base_url=base, timeout=LIMIT) as http,
            anyio.create_task_group() as tasks,
        ):

            async def serve() -> None:
                guard = guard_for("127.0.0.1", None)
                served = host_for(slow.server)
                await serve_over(served, listening, guard, sessions=sessions, drain=0.05)

            tasks.start_soon(serve)
            client = Client(http, version)
            yield await client.open() if sessions else client


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("accept", ["*/*", "application/json, text/event-stream"], ids=["mcp", "fast path"])
@pytest.mark.parametrize(
    ("version", "sessions"), [(HANDSHAKE, True), ("2025-06-18", True), (HANDSHAKE, False), (MODERN, True)]
)
@pytest.mark.parametrize("tool", ["wait", "told"])
@pytest.mark.usefixtures("patient")
async def test_a_call_that_is_not_done_is_cancelled_and_then_told(tool, version, sessions, accept):
    """Over HTTP, after SIGTERM and the drain time, each call gets an error with its id, and no tool runs on."""
    slow, replies = Slow(), []
    async with serving(slow, version, sessions) as client:
        params = {"name": tool, "_meta": {"progressToken": 1}} if version != MODERN else {"name": tool}

        async def ask(number) -> None:
            replies.append(await client.post("tools/call", params, number, accept=accept))
            slow.happened.append("told")

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask, 5)
            calls.start_soon(ask, 6)
            await slow.both_begun.wait()
            os.kill(os.getpid(), signal.SIGTERM)
    errors = [message_of(each) for each in replies]
    assert sorted(each["id"] for each in errors) == [5, 6], errors
    assert {each["error"]["code"] for each in errors} == {CLOSED}
    assert {each["error"]["message"].partition(":")[0] for each in errors} == {"the server is shutting down"}
    assert slow.happened[0] == "stopped"
    assert sorted(slow.happened) == ["stopped", "stopped", "told", "told"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_that_does_not_stop_is_told_too():
    """It gets an error within bounded time, although its tool ignores the cancellation."""
    slow, replies = Slow(), []
    async with serving(slow, HANDSHAKE) as client, anyio.create_task_group() as calls:

        async def ask() -> None:
            replies.append(await client.post("tools/call", {"name": "stubborn"}, 5, accept="*/*"))
            slow.let_go.set()

        calls.start_soon(ask)
        await slow.begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
    error = message_of(replies[0])
    assert (error["id"], error["error"]["code"]) == (5, CLOSED)


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.usefixtures("patient")
async def test_the_same_over_stdio(version):
    """At the end of input, calls that still run after the drain time are cancelled and answered with an error."""
    slow, peer = Slow(), Peer()
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:

            async def serve() -> None:
                await serve_pipe(host_for(slow.server), peer, 0.05)
                peer.ended.set()

            tasks.start_soon(serve)
            meta = Client(None, version).request("x", {})["json"]["params"]
            if version == HANDSHAKE:
                await peer.shake_hands()
            for number in (5, 6):
                peer.send("tools/call", {"name": "wait", "arguments": {}, **meta}, number)
            await slow.both_begun.wait()
            peer.leave()
            errors = []
            for _ in range(2):
                errors.append(await peer.receive())
                slow.happened.append("told")
            await peer.ended.wait()
    peer.close()
    assert sorted(each["id"] for each in errors) == [5, 6]
    assert {each["error"]["code"] for each in errors} == {CLOSED}
    assert {each["error"]["message"].partition(":")[0] for each in errors} == {"the server is shutting down"}
    assert slow.happened[0] == "stopped"
    assert sorted(slow.happened) == ["stopped", "stopped", "told", "told"]


@pytest.mark.usefixtures("patient")
async def test_a_thread_hears_that_its_call_is_over():
    """Python cannot stop a thread, but the tool sees that `context.cancelled` is set."""
    server, heard = ToolServer("s"), threading.Event()

    @server.tool
    def work(context: Context) -> None:
        context.log("begun")
        while not context.cancelled:
            threading.Event().wait(0.01)
        heard.set()

    peer = Peer()
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:

            async def serve() -> None:
                await serve_pipe(host_for(server), peer, 0.05)
                peer.ended.set()

            tasks.start_soon(serve)
            await peer.shake_hands()
            peer.send("tools/call", {"name": "work", "arguments": {}}, 5)
            assert (await peer.receive())["method"] == "notifications/message"
            peer.leave()
            assert (await peer.receive())["error"]["code"] == CLOSED
            assert await anyio.to_thread.run_sync(heard.wait, LIMIT)
            await peer.ended.wait()
    peer.close()


@pytest.mark.asyncio_only
async def test_a_signal_just_after_the_announcement_ends_the_server_regularly():
    """The signal handler is installed before the server announces that it listens."""
    with anyio.fail_after(30):
        await serve_http(
            ToolServer("calc"), port=0, on_listening=lambda _: os.kill(os.getpid(), signal.SIGTERM)
        )
