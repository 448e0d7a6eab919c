"""`proxy`: a remote server used like one of this process. The remote is a real server, over HTTP on loopback."""

import socket
from contextlib import asynccontextmanager, closing

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from mcp import Client
from shared.foreign_servers import (
    KINDS,
    Calls,
    RecordingChannel,
    Scene,
    connected,
    do,
    low_level,
    note,
    request,
    text_of,
)
from toolwire.errors import McpError
from toolwire.mcp.remote import name_of, proxy
from toolwire.mcp.versions import installed
from toolwire.testing import connect

pytestmark = [
    pytest.mark.asyncio_only,  # uvicorn knows asyncio only
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.slow,
]


class Web(uvicorn.Server):
    """A uvicorn server that sets the event `up` when it has started."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def served(app, port=0):
    """Serve an ASGI app on loopback and give its address."""
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        web = Web(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1))
        web.up = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(web.serve, [listener])
            await web.up.wait()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                web.should_exit = True


def app_of(server):
    """Return the ASGI app of a server of any library."""
    made = server.http_app() if hasattr(server, "http_app") else server.streamable_http_app()
    return made  # noqa: RET504 - one of two spellings


@pytest.mark.parametrize("kind", KINDS)
async def test_everything_of_a_remote_server_is_there(kind):
    """Tools, resources, templates, prompts and completion work through the proxy, for each kind of server."""
    reference = {"type": "ref/prompt", "name": "greet"}
    async with served(app_of(KINDS[kind](Scene()))) as url, connect(proxy(url)) as client:
        assert {tool.name for tool in await client.list_tools()} == {"add", "do"}
        assert (await client.call("add", a=15, b=27)).text == "42"
        assert [each.uri for each in await client.list_resources()] == ["res://one"]
        assert (await client.read_resource("res://one"))[0].text == "first"
        templates = await client.request("resources/templates/list")
        assert templates["resourceTemplates"][0]["uriTemplate"] == "res://{name}/text"
        assert (await client.get_prompt("greet", name="Al")).text == "Greet Al"
        argument = {"name": "name", "value": "a"}
        completed = await client.request("completion/complete", {"ref": reference, "argument": argument})
        assert completed["completion"]["values"] == ["ab"]
        assert await client.request("ping") == {}


async def test_the_remote_introduces_itself():
    """The client gets the remote's own name, instructions and capabilities."""

    async def list_tools(ctx, params):
        return types.ListToolsResult(tools=[])

    remote = Server("far", version="7", instructions="Be brief.", on_list_tools=list_tools)
    async with served(app_of(remote)) as url, connect(proxy(url)) as client:
        assert client.server_info == {"name": "far", "version": "7"}
        assert client.instructions == "Be brief."
        assert client.capabilities["tools"] == {"listChanged": False}
        with pytest.raises(McpError) as refused:
            await client.list_resources()
    assert refused.value.code == types.METHOD_NOT_FOUND


async def test_all_pages_of_a_list_come_through():
    """All 298 tools on three pages are listed."""

    async def list_tools(ctx, params):
        start = int(params.cursor or 0)
        names = [f"tool_{number}" for number in range(start, min(start + 100, 298))]
        following = str(start + 100) if start + 100 < 298 else None
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        return types.ListToolsResult(tools=tools, next_cursor=following)

    async with served(app_of(Server("many", on_list_tools=list_tools))) as url, connect(proxy(url)) as client:
        assert len(await client.list_tools()) == 298


async def test_errors_keep_code_message_and_data():
    """The client gets the remote's error unchanged."""

    async def call_tool(ctx, params):
        raise MCPError(-32077, "not today", {"why": ["rain"]})

    async with served(app_of(Server("far", on_call_tool=call_tool))) as url, connect(proxy(url)) as client:
        with pytest.raises(McpError) as refused:
            await client.call("any")
        with pytest.raises(McpError) as unknown:
            await client.request("no/such")
    assert (refused.value.code, refused.value.message, refused.value.data) == (
        -32077,
        "not today",
        {"why": ["rain"]},
    )
    assert unknown.value.code == types.METHOD_NOT_FOUND


async def test_null_arguments_and_meta_arrive():
    """The remote gets the arguments, including nulls, and the `_meta` of a call unchanged."""
    seen = []

    async def call_tool(ctx, params):
        seen.append((params.arguments, ctx.meta.get("claudecode/toolUseId")))
        return types.CallToolResult(content=[])

    async with served(app_of(Server("far", on_call_tool=call_tool))) as url, connect(proxy(url)) as client:
        await client.call("any", {"a": None, "b": [None]})
    assert seen[0][0] == {"a": None, "b": [None]}
    assert seen[0][1].startswith("toolu_direct")


async def test_progress_logs_and_changes_reach_the_client():
    """Notifications of the remote reach the client; progress carries the client's own token."""
    scene, channel = Scene(), RecordingChannel()
    async with served(app_of(low_level(scene))) as url, connected(proxy(url), channel, alone=False) as client:
        await client.answer(do(1, "log", name="look out"))
        assert (await channel.noticed("notifications/message"))["data"] == "look out"
        await client.answer(do(2, "changed"))
        await channel.noticed("notifications/tools/list_changed")
        assert (await channel.noticed("notifications/resources/updated"))["uri"] == "res://one"
        scene.gate["p"].set()
        await client.answer(do(3, "progress", name="p"))
        heard = await channel.noticed("notifications/progress")
    assert (heard["progressToken"], heard["progress"], heard["message"]) == (3, 0.5, "p")


async def test_a_cancellation_reaches_the_remote():
    """If the client cancels a call, the tool at the remote is cancelled too."""
    scene = Scene()
    async with (
        served(app_of(low_level(scene))) as url,
        connected(proxy(url), alone=False) as client,
        anyio.create_task_group() as group,
    ):
        calls = Calls(client, group)
        calls.start(1, do(1, "wait", name="long"))
        await scene.entered["long"].wait()
        await client.answer(note("notifications/cancelled", requestId=1))
        await scene.left["long"].wait()
    assert scene.finished == []


@pytest.mark.parametrize(
    ("what", "capability", "method", "answer", "expected"),
    [
        ("elicit", "elicitation", "elicitation/create", {"action": "decline"}, "decline None"),
        (
            "sample",
            "sampling",
            "sampling/createMessage",
            {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}},
            "hi",
        ),
        ("roots", "roots", "roots/list", {"roots": [{"uri": "file:///x"}]}, "file:///x"),
    ],
)
async def test_what_the_remote_asks_is_asked_of_the_client(what, capability, method, answer, expected):
    """Requests for elicitation, sampling and roots reach the client, and its response the remote."""
    channel = RecordingChannel({capability: {}}, {method: answer})
    async with (
        served(app_of(low_level(Scene()))) as url,
        connected(proxy(url), channel, alone=False) as client,
    ):
        assert text_of(await client.answer(do(1, what))) == expected
    assert channel.asked[0][0] == method


async def test_the_client_offers_the_remote_what_it_can_be_asked_and_no_more():
    """The remote gets the client's own capabilities and name."""
    channel = RecordingChannel({"roots": {}})
    async with (
        served(app_of(low_level(Scene()))) as url,
        connected(proxy(url), channel, alone=False) as client,
    ):
        assert text_of(await client.answer(do(1, "able"))) == "roots of claude-code"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_both_eras_are_served(mode):
    """With a handshake, and without one."""
    async with served(app_of(low_level(Scene()))) as url, Client(proxy(url), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "do"]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
        assert client.server_capabilities.prompts is not None


async def test_a_proxy_can_be_served_over_http_itself():
    """Several clients, with and without a session, can use the same proxy over HTTP."""
    async with served(app_of(low_level(Scene()))) as far, served(app_of(proxy(far))) as near:
        async with Client(near, mode="legacy") as one, Client(near, mode="legacy") as two:
            assert (await one.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
            assert (await two.call_tool("add", {"a": 2, "b": 2})).content[0].text == "4"
        async with Client(near) as modern:
            assert (await modern.call_tool("add", {"a": 3, "b": 2})).content[0].text == "5"


async def test_a_remote_without_the_handshake_is_spoken_to_in_the_newer_protocol():
    """If the remote refuses `initialize` and names newer versions, those are used; list changes still arrive."""
    remote = MCPServer("far", log_level="CRITICAL")

    @remote.tool()
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.notify_tools_changed()
        return a + b

    inner, channel = app_of(remote), RecordingChannel()

    async def newer(scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            await inner(scope, receive, send)
            return
        whole = await receive()
        if b'"initialize"' in whole["body"]:
            versions = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
            error = {"code": types.UNSUPPORTED_PROTOCOL_VERSION, "message": "too old", "data": versions}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
            return
        waiting = iter([whole])

        async def replayed():
            return next(waiting, None) or await receive()

        await inner(scope, replayed, send)

    called = request(1, "tools/call", name="add", arguments={"a": 1, "b": 2})
    async with served(newer) as url, connected(proxy(url), channel, alone=False) as client:
        assert text_of(await client.answer(called)) == "3"
        await channel.noticed("notifications/tools/list_changed")
    assert len(channel.notices) == 1


async def test_headers_go_with_every_request():
    """They are sent with each request, and do not show when the proxy's attributes are printed."""
    seen = []
    inner = app_of(low_level(Scene()))

    async def guarded(scope, receive, send):
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"authorization"))
        await inner(scope, receive, send)

    async with served(guarded) as url:
        made = proxy(url, {"Authorization": "Bearer sesame"})
        async with connect(made) as client:
            await client.list_tools()
    assert len(seen) >= 3
    assert set(seen) == {b"Bearer sesame"}
    assert "sesame" not in repr(vars(made))


async def test_a_remote_that_was_started_anew_is_connected_to_anew():
    """After a restart of the remote, the next call opens a new session and succeeds."""
    async with served(app_of(low_level(Scene()))) as url:
        port = int(url.split(":")[2].split("/")[0])
        stack = connect(proxy(url))
        client = await stack.__aenter__()
        assert (await client.call("add", a=1, b=2)).text == "3"
    with pytest.raises(McpError, match=rf"{url}: cannot connect"):
        await client.call("add", a=1, b=2)
    async with served(app_of(low_level(Scene())), port):
        assert (await client.call("add", a=2, b=2)).text == "4"
        await stack.__aexit__(None, None, None)


async def test_a_remote_that_forgot_the_session_is_asked_again():
    """HTTP 404 for a session means that the call did not run: it is sent once more, in a new session."""
    inner = app_of(low_level(Scene()))
    forgets = []

    async def forgetful(scope, receive, send):
        known = scope["type"] == "http" and b"mcp-session-id" in dict(scope["headers"])
        if forgets and known and scope["method"] == "POST":
            forgets.pop()
            await PlainTextResponse("who?", 404)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    async with served(forgetful) as url, connect(proxy(url)) as client:
        forgets.append(True)
        assert (await client.call("add", a=1, b=2)).text == "3"
    assert forgets == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "the server requires authentication .HTTP 401.; use --header"),
        (403, "the server refuses access .HTTP 403."),
        (404, "there is nothing at this path .HTTP 404.; most servers are at /mcp"),
        (500, "the server responded with HTTP 500, not with MCP"),
        (200, "this is not an MCP server, or it failed: Unexpected content type"),
    ],
)
async def test_an_address_that_refuses_is_named_with_its_reason(status, words):
    """For each HTTP status, the error has the URL, the reason and what to do."""

    async def answer(_request):
        return PlainTextResponse("<p>hello", status)

    app = Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET"])])
    async with served(app) as url:
        with pytest.raises(McpError, match=f"{url}: {words}"):
            async with connect(proxy(url)):
                pass


async def test_a_dead_port_is_told_at_once():
    """The error says that there is no connection, and has the URL without its query."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        with anyio.fail_after(5), pytest.raises(McpError, match=f"{url}: cannot connect"):
            async with connect(proxy(f"{url}?key=secret")):
                pass


async def test_a_server_that_never_answers_is_given_up():
    """After the timeout, whose length is in the error."""
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        with anyio.fail_after(5), pytest.raises(McpError, match=f"{url}: no response within 0.2 seconds"):
            async with connect(proxy(url, timeout=0.2)):
                pass


@pytest.mark.skipif(installed() < (2, 3), reason="httpx2 limits events to 1 MiB there")
async def test_a_large_result_comes_through():
    """The result is larger than mcp's default limit for an event."""
    remote = MCPServer("far", log_level="CRITICAL")

    @remote.tool(structured_output=False)
    async def much() -> str:
        return "x" * 3_000_000

    async with served(app_of(remote)) as url, connect(proxy(url)) as client:
        assert len((await client.call("much")).text) == 3_000_000


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://mcp.linear.app/mcp", "linear"),
        ("https://example.com", "example"),
        ("http://127.0.0.1:8000/mcp", "local_8000"),
        ("http://localhost/mcp", "local"),
        ("http://[::1]:9/mcp", "local_9"),
    ],
)
def test_the_name_of_a_server_comes_from_its_host(url, name):
    """The most specific part of the host becomes the name; a local server's has its port."""
    assert name_of(url) == name
