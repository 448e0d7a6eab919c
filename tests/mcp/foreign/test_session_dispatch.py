"""Direct dispatch to a server's handlers keeps order, context variables, requests to the client and cancellation
as they are with the streams of `mcp`.
"""

import math
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio
import mcp_types as types
import pytest
from mcp.server import Server
from mcp.shared.exceptions import MCPError, NoBackChannelError

from shared.foreign_servers import (
    Calls,
    RecordingChannel,
    Scene,
    connected,
    do,
    greet,
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
whose = ContextVar("whose", default="nobody")


class Roundabout(Server):
    """A server that overrides `run`, so that it is served through its streams instead of by direct dispatch."""

    async def run(self, *args, **more):
        await super().run(*args, **more)


def asking(handler, kind=Server):
    """Return a server with a handler for the method "own"."""
    server = kind("own")
    server.add_request_handler("own", types.RequestParams, handler)
    return server


@pytest.mark.parametrize("kind", [Server, Roundabout])
async def test_handlers_have_the_context_of_the_server(kind):
    """They see context variables that the lifespan set, not those that the caller set."""

    @asynccontextmanager
    async def lifespan(server):
        whose.set("the server's")
        yield {}

    async def own(ctx, params):
        return {"whose": whose.get()}

    server = asking(own, kind)
    server.lifespan = lifespan
    whose.set("the caller's")
    async with connected(server) as connection:
        assert (await connection.answer(request(1, "own")))["result"] == {"whose": "the server's"}


@pytest.mark.parametrize("kind", [Server, Roundabout])
async def test_a_request_does_not_overtake_the_handshake(kind):
    """It waits until the server has answered `initialize`, however long that takes."""
    heard, gate = [], anyio.Event()

    async def own(ctx, params):
        return {}

    async def slowly(ctx, call_next):
        heard.append(ctx.method)
        if ctx.method == "initialize":
            await gate.wait()
        return await call_next(ctx)

    server = asking(own, kind)
    server.middleware.append(slowly)
    async with connected(server, greeting=False) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("hello", initialize())
        await anyio.wait_all_tasks_blocked()
        calls.start("own", request(1, "own"))
        await anyio.wait_all_tasks_blocked()
        assert heard == ["initialize"]
        gate.set()
        assert "result" in await calls.reply("own")
        assert "result" in await calls.reply("hello")
    assert heard == ["initialize", "own"]


async def test_a_handler_can_see_that_it_was_cancelled():
    """`cancel_requested` is set, whether or not the handler read it before the cancellation."""
    seen, entered = [], anyio.Event()

    async def own(ctx, params):
        channel = ctx.session._request_outbound
        if params.meta and params.meta.get("early"):
            seen.append(channel.cancel_requested.is_set())
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(channel.cancel_requested.is_set())

    async with connected(asking(own)) as connection, anyio.create_task_group() as group:
        for early in (False, True):
            calls = Calls(connection, group)
            calls.start("it", request(1, "own", _meta={"early": early}))
            await entered.wait()
            entered = anyio.Event()
            await connection.answer(note("notifications/cancelled", requestId=1))
            assert (await calls.reply("it"))["error"]["code"] == -32800
            await anyio.wait_all_tasks_blocked()
    assert seen == [True, False, True]


async def test_the_back_channel_of_a_request_ends_with_it():
    """It carries requests and notifications; after the end, requests are refused and notifications dropped."""
    kept = []

    async def own(ctx, params):
        channel = ctx.session._request_outbound
        kept.append(channel)
        assert channel.transport.can_send_request
        await channel.notify("notifications/tools/list_changed", None)
        return await channel.send_raw_request("roots/list", None)

    channel = RecordingChannel({"roots": {}}, {"roots/list": {"roots": []}})
    async with connected(asking(own), channel) as connection:
        assert (await connection.answer(request(1, "own")))["result"] == {"roots": []}
        (back,) = kept
        await back.notify("notifications/tools/list_changed", None)
        with pytest.raises(NoBackChannelError):
            await back.send_raw_request("roots/list", None)
    assert [each["method"] for each in channel.notices] == ["notifications/tools/list_changed"]


async def test_a_second_way_round_still_works():
    """A server whose instance replaces `run` is served through its streams."""
    scene = Scene()
    server = low_level(scene)
    usual = server.run

    async def run(*args, **more):
        await usual(*args, **more)

    server.run = run
    async with connected(server, greeting=False) as connection:
        await greet(connection)
        called = await connection.answer(request(2, "tools/call", name="add", arguments={"a": 1, "b": 2}))
        failed = await connection.answer(do(3, "fail", "luck"))
    assert text_of(called) == "3"
    assert failed["error"] == {"code": -32603, "message": "no luck"}


async def test_what_a_handler_raises_unexpectedly_is_logged_with_its_trace(caplog):
    """The client gets the text of the exception; the log has its traceback."""

    async def broken(_context, _params):
        raise LookupError("no such drawer")

    async with connected(asking(broken)) as connection:
        answer = await connection.answer(request(1, "own"))
    assert "no such drawer" in answer["error"]["message"]
    assert "in broken" in caplog.text


@pytest.mark.parametrize("kind", [Server, Roundabout])
async def test_numbers_that_json_does_not_have_are_null(kind):
    """Infinity and NaN in a result or an error are sent as null, since JSON has no form for them."""

    async def own(ctx, params):
        if params.meta and params.meta.get("fail"):
            raise MCPError(code=7, message="no", data=[math.inf])
        return {"most": math.inf, "mean": [math.nan]}

    async with connected(asking(own, kind)) as connection:
        answer = await connection.answer(request(1, "own"))
        refused = await connection.answer(request(2, "own", _meta={"fail": True}))
    assert answer["result"] == {"most": None, "mean": [None]}
    assert refused["error"] == {"code": 7, "message": "no", "data": [None]}
