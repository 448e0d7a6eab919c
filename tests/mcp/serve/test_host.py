"""A server in a `ServerHost`, used by the client of the `mcp` package in memory, in both eras of the protocol."""

import asyncio
import logging
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace

import anyio
import mcp_types as types
import pytest
from mcp.server import MCPServer

from mcp import Client, MCPError
from toolwire import ClaudeSDKError, Context, McpError, ToolServer
from toolwire._protocol.jsonrpc import Interrupted
from toolwire.mcp.foreign import as_server
from toolwire.mcp.serve.channel import RequestChannel
from toolwire.mcp.serve.host import ServerHost
from toolwire.mcp.serve.start import host_for
from toolwire.wrap import combine, prefix

pytestmark = pytest.mark.anyio

ERAS = ["legacy", "auto"]
REMOVED = "ignore:resources/(un)?subscribe is removed"
FORM = {"type": "object", "properties": {"x": {"type": "string"}}}


@asynccontextmanager
async def client_of(serving, mode="legacy", **settings):
    """Give a connected client, and fail if that takes longer than a test may."""
    with anyio.fail_after(20):
        async with Client(serving.mcp_server, mode=mode, **settings) as client:
            yield client


async def text_of(client, tool, arguments=None):
    return (await client.call_tool(tool, arguments or {})).content[0].text


def accepting(asked):
    """Return a callback that accepts every form and records its message."""

    async def answer(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"x": params.message})

    return answer


# Elicitation with a stateless client.


async def test_questions_side_by_side_keep_their_answers():
    """If one of two concurrent tasks elicits again, the responses still match: no question is asked twice."""
    server, asked = ToolServer("s"), []

    @server.tool
    async def branches(context: Context) -> str:
        async def first() -> None:
            await context.elicit("q1", FORM)
            await context.elicit("q3", FORM)

        async with anyio.create_task_group() as both:
            both.start_soon(first)
            both.start_soon(context.elicit, "q2", FORM)
        return "all"

    async with client_of(host_for(server), "auto", elicitation_callback=accepting(asked)) as client:
        assert await text_of(client, "branches") == "all"
    assert sorted(asked) == ["q1", "q2", "q3"]


async def test_the_same_question_in_a_loop_is_asked_each_time():
    """Elicitations with the same content are told apart by their number."""
    server, asked = ToolServer("s"), []

    @server.tool
    async def thrice(context: Context) -> str:
        return str([(await context.elicit("q", FORM)).content["x"] for _ in range(3)])

    async with client_of(host_for(server), "auto", elicitation_callback=accepting(asked)) as client:
        assert await text_of(client, "thrice") == "['q', 'q', 'q']"
    assert asked == ["q", "q", "q"]


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_tool_that_swallows_everything_is_ended_by_its_question(threaded):
    """The client gets the elicitation and the call ends, even if the tool catches that and elicits again."""
    server, asked = ToolServer("s"), []

    @server.tool(name="stubborn")
    async def on_loop(context: Context) -> str:
        while True:
            try:
                return str((await context.elicit("q", FORM)).action)
            except BaseException:  # noqa: BLE001 - what the test is about
                await anyio.lowlevel.checkpoint()

    @server.tool
    def stubborn_in_a_thread(context: Context) -> str:
        while not context.cancelled:
            try:
                return str(context.wait(context.elicit("q", FORM)).action)
            except BaseException:  # noqa: BLE001, S112
                continue
        return "gave up"

    name = "stubborn_in_a_thread" if threaded else "stubborn"
    async with client_of(host_for(server), "auto", elicitation_callback=accepting(asked)) as client:
        assert await text_of(client, name) == "accept"
    assert asked == ["q"]


async def test_a_tool_that_asked_may_tidy_up():
    """What a tool awaits in its `finally` block is not cancelled when the call ends for "input required"."""
    server, tidied = ToolServer("s"), []

    @server.tool
    async def careful(context: Context) -> str:
        try:
            return str((await context.elicit("q", FORM)).action)
        finally:
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            tidied.append(True)

    async with client_of(host_for(server), "auto", elicitation_callback=accepting([])) as client:
        assert await text_of(client, "careful") == "accept"
    assert tidied == [True, True]


@pytest.mark.parametrize("level", [None, "debug"])
@pytest.mark.parametrize(
    ("declared", "mode", "needed"),
    [
        ({}, "form", None),
        ({"form": {}}, "form", None),
        ({"form": {}, "url": {}}, "url", None),
        ({"url": {}}, "form", {"elicitation": {"form": {}}}),
        ({"form": {}}, "url", {"elicitation": {"url": {}}}),
        ({}, "url", {"elicitation": {"url": {}}}),
        (None, "form", {"elicitation": {}}),
        (None, "url", {"elicitation": {"url": {}}}),
    ],
)
async def test_a_client_is_asked_only_what_it_declares(declared, mode, needed, level):
    """A client that declares only URLs gets no form, and the other way round; `{}` means forms."""
    capabilities = types.ClientCapabilities.model_validate(
        {} if declared is None else {"elicitation": declared}
    )

    class Session:
        client_capabilities = capabilities

        async def send_request(self, *_args, **_settings):
            return types.ElicitResult(action="decline")

    ctx = SimpleNamespace(session=Session(), meta=None, request_id=1)
    form = {"message": "m", "requestedSchema": FORM}
    url = {"mode": "url", "message": "m", "url": "https://example.com", "elicitationId": "1"}
    channel = RequestChannel(ctx, {}, level)
    expected = McpError if needed is not None else Interrupted if level is None else None
    with anyio.fail_after(5), channel.scope, pytest.raises(expected) if expected else nullcontext() as raised:
        await channel.request("elicitation/create", form if mode == "form" else url)
    if needed is not None:
        assert raised.value.data == {"requiredCapabilities": needed}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_after_a_request_to_the_client_is_not_swallowed():
    """The task of a call that cleans up after "input required" can be cancelled from outside."""
    server, cleaning = ToolServer("s"), anyio.Event()

    @server.tool
    async def ask(context: Context) -> None:
        try:
            await context.elicit("Who?")
        finally:
            cleaning.set()
            await anyio.sleep_forever()

    class Session:
        client_capabilities = types.ClientCapabilities(elicitation=types.ElicitationCapability())

    channel = RequestChannel(SimpleNamespace(session=Session(), meta=None, request_id=1), {}, None)
    params = {"name": "ask", "arguments": {}}
    with anyio.fail_after(5):
        call = asyncio.create_task(host_for(server).handle("tools/call", 1, params, channel, modern=True))
        await cleaning.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# Notifications.


async def test_a_notice_that_cannot_be_sent_takes_no_other_along(caplog):
    """A notification that cannot be sent is logged; those after it are sent."""
    sent = []

    class Session:
        client_capabilities = None

        async def send_notification(self, notice, **_settings):
            if notice.params.data == "bad":
                raise ValueError("cannot be written")
            if notice.params.data == "gone":
                raise anyio.BrokenResourceError
            sent.append(notice.params.data)

    channel = RequestChannel(SimpleNamespace(session=Session(), meta=None, request_id=1), {}, "debug")
    with caplog.at_level(logging.WARNING), anyio.fail_after(5):
        for data in ("bad", "gone", "after"):
            channel.notify({"method": "notifications/message", "params": {"level": "info", "data": data}})
        channel.notify({"method": "notifications/message", "params": {"level": "loud", "data": "x"}})
        channel.notify({"method": "notifications/progress", "params": {"progressToken": 1, "progress": "x"}})
        channel.notify({"method": "notifications/message", "params": {"level": "info", "data": "last"}})
        await channel.flush()
    assert sent == ["after", "last"]
    assert len(caplog.records) == 3


# Subscriptions.


def watched_server():
    server = ToolServer("watched")

    @server.resource("config://app")
    def config() -> str:
        return "dark"

    return server


def watched_foreign_server():
    server = MCPServer("watched")

    @server.resource("config://app")
    def config() -> str:
        return "dark"

    return server


@pytest.mark.filterwarnings(REMOVED)
async def test_an_unknown_resource_cannot_be_subscribed_to():
    """It is refused with the same error as in process."""
    async with client_of(host_for(watched_server())) as client:
        await client.session.subscribe_resource("config://app")
        with pytest.raises(MCPError, match="not found") as refused:
            await client.session.subscribe_resource("config://other")
    assert refused.value.error.code == -32002


@pytest.mark.filterwarnings(REMOVED)
async def test_a_server_without_resources_takes_no_subscriptions():
    """The method does not exist there."""
    async with client_of(host_for(ToolServer("bare"))) as client:
        with pytest.raises(MCPError) as refused:
            await client.session.subscribe_resource("config://app")
    assert refused.value.error.code == -32601


@pytest.mark.filterwarnings(REMOVED)
async def test_what_cannot_be_kept_is_not_declared():
    """A server of another library declares its resources without subscriptions, and refuses them."""
    serving = host_for(prefix(watched_foreign_server(), "w_"))
    async with client_of(serving) as client:
        assert client.server_capabilities.resources is not None
        assert not client.server_capabilities.resources.subscribe
        for ask in (client.session.subscribe_resource, client.session.unsubscribe_resource):
            with pytest.raises(MCPError) as refused:
                await ask("config://app")
            assert refused.value.error.code == -32601


@pytest.mark.parametrize(
    ("make", "hears"),
    [
        (watched_server, True),
        (lambda: prefix(watched_server(), "w_"), True),
        (lambda: combine("c", watched_server(), ToolServer("other")), True),
        (watched_foreign_server, False),
        (lambda: prefix(watched_foreign_server(), "w_"), False),
    ],
    ids=["ours", "wrapped", "combined", "foreign", "wrapped foreign"],
)
async def test_listeners_are_promised_only_what_they_will_hear(make, hears):
    """Subscriptions to resources are acknowledged only if the server can send updates."""
    serving = host_for(make())
    wanted = {"tools_list_changed": True, "resource_subscriptions": ["config://app"]}
    async with serving.open(), client_of(serving, "auto") as client, client.listen(**wanted) as heard:
        assert heard.honored.tools_list_changed
        assert bool(heard.honored.resource_subscriptions) is hears


@pytest.mark.filterwarnings(REMOVED)
async def test_a_wrapped_server_tells_of_updates():
    """A subscription is to the resource of the first wrapped server that has it: only its updates are sent."""
    server, other, heard, last = watched_server(), watched_server(), [], anyio.Event()

    async def hear(message):
        heard.append(message)
        if "tools/list_changed" in str(message):
            last.set()

    serving = host_for(combine("c", prefix(server, "w_"), other))
    async with serving.open(), client_of(serving, message_handler=hear) as client:
        await client.session.subscribe_resource("config://app")
        other.resource_updated("config://app")
        server.resource_updated("config://app")
        server.tool(lambda: "", name="new")
        await last.wait()
    assert sum("resources/updated" in str(each) for each in heard) == 1


# Name, version and sessions.


@pytest.mark.parametrize("mode", ERAS)
async def test_a_foreign_server_says_what_it_is(mode):
    """Its instructions, name, version and title reach the client unchanged."""
    foreign = MCPServer("fancy", instructions="Read me first", version="7.1", title="Fancy")
    serving = host_for(foreign, name="file")
    async with client_of(serving, mode) as client:
        assert client.instructions == "Read me first"
        info = client.server_info
        assert (info.name, info.version, info.title) == ("fancy", "7.1", "Fancy")


async def test_a_server_that_replaces_another_says_what_it_is():
    """Clients that connect later see the name, version and instructions of the new one."""
    serving = host_for(ToolServer("old", "1.0"))
    async with serving.open():
        await serving.replace(ToolServer("new", "2.0", instructions="Mind the gap"))
        async with client_of(serving) as client:
            assert (client.server_info.name, client.server_info.version) == ("new", "2.0")
            assert client.instructions == "Mind the gap"


@pytest.mark.parametrize("mode", ERAS)
async def test_the_session_is_the_same_for_all_calls_of_a_client(mode):
    """Each client has its own session; without sessions, each request has its own."""
    server, seen = ToolServer("s"), []

    @server.tool
    async def who(context: Context) -> None:
        seen.append(context.session)

    serving = host_for(server)
    async with serving.open():
        for _ in range(2):
            async with client_of(serving, mode) as client:
                await client.call_tool("who", {})
                await client.call_tool("who", {})
    assert len(set(seen)) == (2 if mode == "legacy" else 4)
    assert (seen[0] is seen[1]) == (mode == "legacy")


# Starting.


class Failing:
    async def __aenter__(self):
        raise RuntimeError("no database")

    async def __aexit__(self, *_):
        return None


class Hanging(Failing):
    async def __aenter__(self):
        await anyio.sleep_forever()


def starting(lifespan):
    return ToolServer("live", lifespan=lambda _server: lifespan())


def foreign(lifespan):
    return MCPServer("live", lifespan=lambda _server: lifespan())


@pytest.mark.parametrize("make", [starting, foreign])
@pytest.mark.parametrize(
    ("lifespan", "said"), [(Failing, "could not start"), (Hanging, "did not start within")]
)
async def test_a_server_that_cannot_start_is_not_served(make, lifespan, said):
    """`open()` raises an error within the start timeout, for servers of every kind."""
    serving = ServerHost(
        as_server(make(lifespan)), name="live", start_timeout=0.1 if lifespan is Hanging else 10
    )
    with anyio.fail_after(20), pytest.raises(ClaudeSDKError, match=f"server 'live' {said}"):
        async with serving.open():
            pass


@pytest.mark.parametrize("lifespan", [Failing, Hanging])
async def test_a_server_that_cannot_start_replaces_none(lifespan):
    """The old one is still served, under its own name."""
    server = ToolServer("old")

    @server.tool
    def add(a: int) -> int:
        return a + 1

    serving = ServerHost(server, name="old", start_timeout=0.1 if lifespan is Hanging else 10)
    async with serving.open(), client_of(serving) as client:
        with pytest.raises(ClaudeSDKError):
            await serving.replace(starting(lifespan))
        assert await text_of(client, "add", {"a": 1}) == "2"
        assert serving.server is server
        assert serving.mcp_server.name == "old"


async def test_a_server_replaced_before_it_was_opened_is_never_started():
    """`open()` starts the new one only."""
    serving = host_for(starting(Failing))
    await serving.replace(ToolServer("new"))
    async with serving.open(), client_of(serving) as client:
        assert client.server_info.name == "new"


# Stopping.


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("kind", ["ours", "wrapped", "foreign"])
async def test_stop_cancels_what_runs_and_refuses_what_comes(kind, mode):
    """Each call gets an error that says why, and no tool runs on."""
    server = MCPServer("s") if kind == "foreign" else ToolServer("s")
    begun, told = anyio.Event(), []

    async def slow() -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            told.append("stopped")

    server.add_tool(slow) if kind == "foreign" else server.tool(slow)
    serving = host_for(prefix(server, "w_") if kind == "wrapped" else server)
    name = "w_slow" if kind == "wrapped" else "slow"

    async def call():
        with pytest.raises(MCPError, match="the server is shutting down: the request was cancelled"):
            await client.call_tool(name, {})
        told.append("answered")

    async with client_of(serving, mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await begun.wait()
            assert await serving.stop(20)
        assert told == ["stopped", "answered"]
        with pytest.raises(MCPError, match="the server is shutting down"):
            await client.call_tool(name, {})
    assert told == ["stopped", "answered"]
