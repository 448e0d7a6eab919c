"""Concurrent calls, also with equal ids: no response is lost or goes to another call."""

import anyio
import mcp_types as types
import pytest

from shared.foreign_servers import (
    KINDS,
    Calls,
    RecordingChannel,
    Scene,
    connected,
    do,
    high_level,
    initialize,
    low_level,
    note,
    request,
    text_of,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
async def test_two_open_calls_with_one_id_are_not_crossed(kind):
    """Each gets its own result. The CLI counts from the start after a re-initialize, while old calls still run."""
    scene = Scene()
    async with connected(KINDS[kind](scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        for name in ("first", "second"):
            calls.start(name, do(2, "wait", name))
            await scene.entered[name].wait()
        for name in ("second", "first"):
            scene.gate[name].set()
            reply = await calls.reply(name)
            assert (reply["id"], text_of(reply)) == (2, f"{name} is done")


@every_kind
async def test_progress_of_equal_ids_is_not_crossed(kind):
    """Each call's progress carries the token of its own request, with the token's type."""
    scene, channel = Scene(), RecordingChannel()
    tokens = {"first": 2, "second": 2, "third": "2", "fourth": 2.5}
    async with connected(KINDS[kind](scene), channel) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        for name, token in tokens.items():
            message = do(2, "progress", name)
            message["params"]["_meta"]["progressToken"] = token
            calls.start(name, message)
            await scene.entered[name].wait()
            scene.gate[name].set()
        for name in tokens:
            await calls.reply(name)
    assert {each["params"]["message"]: each["params"]["progressToken"] for each in channel.notices} == tokens
    assert all(each["params"]["progress"] == 0.5 for each in channel.notices)


async def test_progress_without_a_token_stays_inside():
    """A call without a progress token causes no notifications, and no internal token reaches the client."""
    scene, channel = Scene(), RecordingChannel()
    async with connected(low_level(scene), channel) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        for name, meta in {"none": {}, "odd": {"progressToken": True}}.items():
            message = do(2, "progress", name)
            message["params"]["_meta"] = meta
            calls.start(name, message)
            scene.gate[name].set()
            await calls.reply(name)
    assert [each for each in channel.notices if each["params"]["message"] == "none"] == []
    assert all(each["params"]["progressToken"] is True for each in channel.notices)


async def test_progress_after_the_reply_stays_inside():
    """Progress is only passed on for a token of an open call: not for an old or an invented one."""
    channel = RecordingChannel()
    server = low_level(Scene())

    async def late(ctx, params):
        for token in (1, 99, "x", [1]):
            progress = {"progressToken": token, "progress": 1}
            await ctx.session._connection.notify("notifications/progress", progress)
        await ctx.session._connection.notify("notifications/progress", None)
        await ctx.session._connection.notify("notifications/cancelled", {"requestId": [1]})
        return {}

    server.add_request_handler("late", types.RequestParams, late)
    async with connected(server, channel) as connection:
        assert (await connection.answer(request(5, "late")))["result"] == {}
    assert channel.notices == []


@every_kind
async def test_cancelled_means_the_newest_call_with_that_id(kind):
    """It is cancelled in the server and answered at once; the older call goes on."""
    scene = Scene()
    async with connected(KINDS[kind](scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        for name in ("old", "new"):
            calls.start(name, do(2, "wait", name))
            await scene.entered[name].wait()
        assert await connection.answer(note("notifications/cancelled", requestId=2, reason="Abort")) is None
        cancelled = await calls.reply("new")
        await scene.left["new"].wait()
        scene.gate["old"].set()
        assert text_of(await calls.reply("old")) == "old is done"
    assert (cancelled["id"], cancelled["error"]["code"]) == (2, -32800)
    assert scene.finished == ["old"]


async def test_a_tool_that_ignores_its_cancellation_is_answered_for():
    """The client gets a "cancelled" error at once; what the tool returns later is dropped."""
    scene = Scene()
    async with connected(low_level(scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("it", do(2, "stubborn", "it"))
        await scene.entered["it"].wait()
        await connection.answer(note("notifications/cancelled", requestId=2))
        assert (await calls.reply("it"))["error"]["code"] == -32800
        scene.gate["it"].set()
        await scene.left["it"].wait()
        assert (await connection.answer(request(2, "ping")))["result"] == {}


@pytest.mark.parametrize(
    "params", [{}, {"requestId": 2}, {"requestId": True}, {"requestId": "1"}, {"requestId": [1]}]
)
async def test_a_cancellation_of_nothing_is_harmless(params):
    """An id that is not open cancels nothing, not even a call whose internal id is the same."""
    scene = Scene()
    async with connected(low_level(scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("it", do(1, "wait", "it"))
        await scene.entered["it"].wait()
        for _ in range(2):
            assert await connection.answer(note("notifications/cancelled", **params)) is None
        assert (await connection.answer(request(4, "ping")))["result"] == {}
        scene.gate["it"].set()
        assert text_of(await calls.reply("it")) == "it is done"


@every_kind
async def test_a_caller_that_goes_away_cancels_the_call(kind):
    """If the task that waits for the response is cancelled, the tool in the server is cancelled too."""
    scene = Scene()
    async with connected(KINDS[kind](scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("it", do(2, "wait", "it"))
        await scene.entered["it"].wait()
        calls.give_up("it")
        await scene.left["it"].wait()
    assert scene.finished == []


@every_kind
async def test_a_second_initialize_disturbs_nothing(kind):
    """It gets the first one's result, calls in flight go on, and the server gets `initialized` only once."""
    scene = Scene()
    server = KINDS[kind](scene)
    greeted = []

    async def on_initialized(ctx, params):
        greeted.append(True)

    core = getattr(server, "_lowlevel_server", getattr(server, "_mcp_server", server))
    core.add_notification_handler("notifications/initialized", types.NotificationParams, on_initialized)
    async with connected(server, greeting=False) as connection, anyio.create_task_group() as group:
        first = await connection.answer(initialize(0))
        await connection.answer(note("notifications/initialized"))
        calls = Calls(connection, group)
        calls.start("it", do(2, "wait", "it"))
        await scene.entered["it"].wait()
        second = await connection.answer(initialize(0))
        await connection.answer(note("notifications/initialized"))
        assert "result" in await connection.answer(request(1, "tools/list"))
        assert (
            text_of(await connection.answer(request(2, "tools/call", name="add", arguments={"a": 1, "b": 2})))
            == "3"
        )
        scene.gate["it"].set()
        assert text_of(await calls.reply("it")) == "it is done"
    assert second == first
    assert greeted == [True]


@every_kind
async def test_an_initialize_with_another_version_renegotiates_in_place(kind):
    """The server chooses the version, as for the first one; calls in flight go on."""
    scene = Scene()
    async with connected(KINDS[kind](scene)) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("it", do(2, "wait", "it"))
        await scene.entered["it"].wait()
        versions = []
        for asked in ("2025-06-18", "2025-06-18", "2025-11-25"):
            versions.append((await connection.answer(initialize(0, asked)))["result"]["protocolVersion"])
            await connection.answer(note("notifications/initialized"))
        scene.gate["it"].set()
        assert text_of(await calls.reply("it")) == "it is done"
    assert versions == ["2025-06-18", "2025-06-18", "2025-11-25"]


async def test_an_initialize_that_failed_is_not_remembered():
    """The next one is passed to the server again."""
    broken = initialize()
    broken["params"]["clientInfo"] = 5
    async with connected(low_level(Scene()), greeting=False) as connection:
        assert (await connection.answer(broken))["error"]["code"] == -32602
        broken["params"]["capabilities"] = 5
        assert (await connection.answer(broken))["error"]["code"] == -32602
        assert "result" in await connection.answer(initialize())


@pytest.mark.slow
@pytest.mark.parametrize("make", [low_level, high_level])
async def test_a_thousand_calls_at_once_in_any_order(make):
    """Each gets its own response, although two calls with each id are open at the same time."""
    scene, replies = Scene(), {}
    async with connected(make(scene), limit=60) as connection:

        async def call(number):
            message = request(
                number // 2, "tools/call", name="do", arguments={"what": "wait", "name": str(number)}
            )
            replies[number] = await connection.answer(message)

        async with anyio.create_task_group() as group:
            for number in range(1000):
                group.start_soon(call, number)
            for number in range(1000):
                await scene.entered[str(number)].wait()
            for number in sorted(range(1000), key=lambda number: number * 7919 % 1000):
                scene.gate[str(number)].set()
    assert all(reply["id"] == number // 2 for number, reply in replies.items())
    assert {number: text_of(reply) for number, reply in replies.items()} == {
        number: f"{number} is done" for number in range(1000)
    }


async def test_a_flood_of_notifications_lets_others_run():
    """A tool that sends notifications without a pause does not block the event loop."""
    channel, server, stopped = RecordingChannel(), low_level(Scene()), []

    async def flood(ctx, params):
        while not stopped:
            await ctx.session.send_tool_list_changed()
        return {}

    server.add_request_handler("flood", types.RequestParams, flood)
    async with connected(server, channel) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("flood", request(1, "flood"))
        await channel.noticed("notifications/tools/list_changed")
        assert (await connection.answer(request(2, "ping")))["result"] == {}
        stopped.append(True)
        assert (await calls.reply("flood"))["result"] == {}
