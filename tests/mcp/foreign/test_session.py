"""How the session of a server of another library starts, stops by itself, and is closed."""

import logging
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from shared.foreign_servers import (
    KINDS,
    Calls,
    RecordingChannel,
    Scene,
    connected,
    do,
    fastmcp,
    greet,
    high_level,
    initialize,
    low_level,
    note,
    request,
    running,
    text_of,
)
from toolwire.mcp.foreign import connection as bridge
from toolwire.mcp.foreign.connection import ForeignServer
from toolwire.mcp.streams import Inbox, Outbox

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
every_kind = pytest.mark.parametrize("kind", KINDS)


class Life:
    """A lifespan that records its start and stop, and fails or hangs there if it is told to."""

    def __init__(self, *, fails_at=(), hangs_at=()):
        self.diary = []
        self.open = 0
        self.reached = anyio.Event()
        self.release = anyio.Event()
        self._fails_at, self._hangs_at = list(fails_at), hangs_at

    async def _reach(self, point):
        self.diary.append(point)
        if point in self._hangs_at:
            self.reached.set()
            await self.release.wait()
        if point in self._fails_at:
            self._fails_at.remove(point)
            raise OSError(f"cannot {point}")

    @asynccontextmanager
    async def __call__(self, server):
        await self._reach("start")
        self.open += 1
        try:
            yield {}
        finally:
            self.open -= 1
            await anyio.lowlevel.checkpoint()
            await self._reach("stop")


def stops(records):
    """Return the warnings and errors that were logged about servers that stopped."""
    return [
        record for record in records if record.name == "toolwire.mcp" and record.levelno >= logging.WARNING
    ]


@every_kind
async def test_nothing_runs_before_the_first_message(kind):
    """The lifespan starts with the first message, and stops without an error when the connection is closed."""
    life = Life()
    async with connected(KINDS[kind](Scene(), lifespan=life), greeting=False) as connection:
        assert life.diary == []
        await greet(connection)
        assert life.diary == ["start"]
    assert life.diary == ["start", "stop"]


@every_kind
async def test_a_server_that_cannot_start_says_why(kind, caplog):
    """Every request is answered with the exception, until a new `initialize` starts the server again."""
    life = Life(fails_at=["start"])
    async with connected(KINDS[kind](Scene(), lifespan=life), greeting=False) as connection:
        refused = await connection.answer(initialize())
        later = await connection.answer(request(1, "tools/list"))
        assert await connection.answer(note("notifications/initialized")) is None
        assert await connection.answer(note("notifications/cancelled", requestId=1)) is None
        assert (await greet(connection))["serverInfo"]["name"] == kind
        assert "result" in await connection.answer(request(1, "tools/list"))
    for reply in (refused, later):
        assert reply["error"] == {
            "code": -32603,
            "message": f"the MCP server '{kind}' stopped: OSError: cannot start",
        }
    assert [record.exc_info[0] for record in stops(caplog.records)] == [OSError]


async def test_a_server_that_dies_answers_what_was_open(caplog):
    """When a task of the lifespan fails during a call, the call and later ones are answered with the reason."""
    scene = Scene()

    @asynccontextmanager
    async def lifespan(server):
        async with anyio.create_task_group() as group:
            group.start_soon(fuse)
            yield {}

    async def fuse():
        await scene.gate["fuse"].wait()
        raise ConnectionError

    async with (
        connected(low_level(scene, lifespan=lifespan)) as connection,
        anyio.create_task_group() as group,
    ):
        calls = Calls(connection, group)
        calls.start("it", do(2, "wait", "it"))
        await scene.entered["it"].wait()
        scene.gate["fuse"].set()
        dead = await calls.reply("it")
        late = await connection.answer(request(3, "ping"))
    assert dead["error"] == {"code": -32603, "message": "the MCP server 'low' stopped: ConnectionError"}
    assert (late["id"], late["error"]) == (3, dead["error"])
    assert len(stops(caplog.records)) == 1


async def test_a_tool_may_say_that_a_connection_was_closed():
    """Its error looks like that of a stopped server, but is passed on unchanged, since the server still runs."""
    server = low_level(Scene())

    async def gone(ctx, params):
        raise MCPError(-32000, "Connection closed", {"upstream": 1})

    server.add_request_handler("gone", types.RequestParams, gone)
    async with connected(server) as connection:
        reply = await connection.answer(request(2, "gone"))
        alive = await connection.answer(request(3, "ping"))
    assert reply["error"] == {"code": -32000, "message": "Connection closed", "data": {"upstream": 1}}
    assert alive["result"] == {}


async def test_a_server_that_returns_by_itself_has_stopped():
    """If `run` returns without an exception, requests are answered with an error that says so."""
    server = low_level(Scene())

    async def run(read_stream, write_stream, options):
        await read_stream.receive()

    server.run = run
    async with connected(server, greeting=False) as connection:
        reply = await connection.answer(initialize())
    assert reply["error"]["message"] == "the MCP server 'low' stopped: it ended by itself"


@every_kind
async def test_closing_cancels_and_answers_what_is_open(kind):
    """The tool and its request to the client are cancelled, and the callers get an error response."""
    scene = Scene()

    async def never():
        await anyio.sleep_forever()

    channel = RecordingChannel(answers={"elicitation/create": never})
    async with (
        connected(KINDS[kind](scene), channel) as connection,
        anyio.create_task_group() as group,
    ):
        calls = Calls(connection, group)
        calls.start("it", do(2, "wait", "it"))
        calls.start("asking", do(3, "elicit"))
        await scene.entered["it"].wait()
        await channel.was_asked()
        await connection.aclose()
        assert scene.left["it"].is_set()
        for key, request_id in (("it", 2), ("asking", 3)):
            reply = await calls.reply(key)
            assert (reply["id"], reply["error"]["code"]) == (request_id, -32800)


async def test_closing_gives_up_a_hung_tool(monkeypatch, caplog):
    """Closing is bounded and logs that the tool is abandoned; its task ends when the tool returns."""
    monkeypatch.setattr(bridge, "CLOSE_TIMEOUT", 0.1)
    scene = Scene()
    before = running()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            connection = ForeignServer(low_level(scene)).connect(RecordingChannel())
            await greet(connection)
            calls = Calls(connection, group)
            calls.start("it", do(2, "stubborn", "it"))
            await scene.entered["it"].wait()
            await connection.aclose()
            await connection.aclose()
            assert (await calls.reply("it"))["error"]["code"] == -32800
            assert [record.getMessage() for record in stops(caplog.records)] == [
                "the MCP server 'low' ignores its cancellation and is abandoned"
            ]
        scene.gate["it"].set()
        while running() - before:
            await anyio.lowlevel.checkpoint()


@every_kind
@pytest.mark.parametrize("point", ["start", "stop"])
async def test_closing_does_not_wait_for_a_hung_lifespan(kind, point, monkeypatch):
    """A start that hangs is cancelled at once, a stop that hangs after the timeout."""
    monkeypatch.setattr(bridge, "CLOSE_TIMEOUT", 0.2 if point == "stop" else 1000)
    life = Life(hangs_at=[point])
    with anyio.fail_after(20):
        before = running()
        async with anyio.create_task_group() as group:
            connection = ForeignServer(KINDS[kind](Scene(), lifespan=life)).connect(RecordingChannel())
            calls = Calls(connection, group)
            calls.start("it", initialize())
            await (life.reached.wait() if point == "start" else calls.reply("it"))
            await connection.aclose()
            if point == "start":
                assert (await calls.reply("it"))["error"]["code"] == -32800
        # FastMCP shields the end of its lifespan: under trio it is abandoned like a tool that ignores cancellation.
        assert kind == "fast" or not running() - before
        life.release.set()
        while running() - before:
            await anyio.lowlevel.checkpoint()


async def test_closing_in_the_same_breath_as_the_first_message():
    """A server whose task has not run yet is never started."""
    life = Life()
    async with connected(low_level(Scene(), lifespan=life), greeting=False) as connection:
        await connection.answer(note("notifications/initialized"))
        await connection.aclose()
    assert life.diary == []


async def test_closing_never_raises_what_the_server_raises(caplog):
    """An error while a lifespan stops is logged instead."""
    for make in KINDS.values():
        async with connected(make(Scene(), lifespan=Life(fails_at=["stop"]))):
            pass
    assert {record.exc_info[0] for record in stops(caplog.records)} == {OSError}
    assert len(stops(caplog.records)) == len(KINDS)


async def test_closing_when_cancelled_is_complete_all_the_same():
    """The lifespan stops properly even if the task that closes the connection was cancelled."""
    life = Life()
    async with connected(low_level(Scene(), lifespan=life)) as connection:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await connection.aclose()
        assert life.diary == ["start", "stop"]


async def test_closing_twice_at_once_is_closing_once():
    """The lifespan stops once, and both calls wait for that."""
    life = Life()
    async with (
        connected(low_level(Scene(), lifespan=life)) as connection,
        anyio.create_task_group() as group,
    ):
        group.start_soon(connection.aclose)
        await connection.aclose()
        assert life.diary == ["start", "stop"]


async def test_a_closed_connection_refuses():
    """Requests get an error response with their id; notifications are dropped."""
    async with connected(low_level(Scene())) as connection:
        await connection.aclose()
        refused = await connection.answer(request(4, "ping"))
        again = await connection.answer(initialize(5))
        assert await connection.answer(note("notifications/initialized")) is None
    for request_id, reply in ((4, refused), (5, again)):
        assert reply["id"] == request_id
        assert reply["error"] == {"code": -32603, "message": "the connection is closed"}


@every_kind
async def test_two_connections_of_one_server_do_not_meet(kind):
    """With equal ids, each gets its own notifications, and closing one leaves the other alone."""
    scene, server = Scene(), None
    channels = {"a": RecordingChannel(), "b": RecordingChannel()}
    server = KINDS[kind](scene)
    async with connected(server, channels["b"]) as other, anyio.create_task_group() as group:
        async with connected(server, channels["a"], alone=False) as connection:
            calls = {"a": Calls(connection, group), "b": Calls(other, group)}
            for name, each in calls.items():
                each.start(name, do(2, "progress", name))
                await scene.entered[name].wait()
            scene.gate["a"].set()
            assert text_of(await calls["a"].reply("a")) == "a is done"
        scene.gate["b"].set()
        assert text_of(await calls["b"].reply("b")) == "b is done"
        for name, channel in channels.items():
            assert [each["params"]["message"] for each in channel.notices] == [name]


@pytest.mark.parametrize("make", [low_level, high_level])
async def test_mcp_has_a_lifespan_for_each_session(make):
    """A server of `mcp` enters its lifespan for each connection, as with mcp's own transports."""
    life = Life()
    server = make(Scene(), lifespan=life)
    async with connected(server), connected(server):
        assert life.open == 2
    assert life.diary == ["start", "start", "stop", "stop"]


async def test_fastmcp_has_one_lifespan_for_all_sessions():
    """It runs from the first session to the last, whichever ends first."""
    life = Life()
    server = fastmcp(Scene(), lifespan=life)
    with anyio.fail_after(20):
        first, second = (ForeignServer(server).connect(RecordingChannel()) for _ in range(2))
        async with anyio.create_task_group() as group:
            group.start_soon(greet, first)
            group.start_soon(greet, second)
        assert (life.open, life.diary) == (1, ["start"])
        await first.aclose()
        assert "result" in await second.answer(request(1, "tools/list"))
        assert (life.open, life.diary) == (1, ["start"])
        await second.aclose()
    assert (life.open, life.diary) == (0, ["start", "stop"])


async def test_a_fastmcp_session_waits_for_the_end_of_the_lifespan_before_it():
    """A session that begins while the lifespan stops waits, and then starts a new one."""
    life = Life(hangs_at=["stop"])
    server = fastmcp(Scene(), lifespan=life)
    with anyio.fail_after(20):
        first, second = (ForeignServer(server).connect(RecordingChannel()) for _ in range(2))
        await greet(first)
        async with anyio.create_task_group() as group:
            group.start_soon(first.aclose)
            await life.reached.wait()
            group.start_soon(greet, second)
            await anyio.wait_all_tasks_blocked()
            assert life.diary == ["start", "stop"]
            life.release.set()
        assert (life.open, life.diary) == (1, ["start", "stop", "start"])
        await second.aclose()
    assert (life.open, life.diary[3:]) == (0, ["stop"])


async def test_the_streams_end_for_whoever_still_uses_them():
    """A reader gets what was queued and then the end of the stream; a writer gets `ClosedResourceError`."""
    inbox, heard = Inbox(), []
    outbox = Outbox(lambda item: heard.append(item) or True)
    with anyio.fail_after(20):
        async with inbox, outbox:
            inbox.put(1)
            await outbox.send(2)
        inbox.put(3)
        assert [item async for item in inbox] == [1]
        with pytest.raises(anyio.EndOfStream):
            await inbox.receive()
        with pytest.raises(anyio.ClosedResourceError):
            await outbox.send(4)
    assert heard == [2]
