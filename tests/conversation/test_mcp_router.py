"""The router to in-process servers: each `mcp_message` gets one response, and the CLI never waits in vain."""

import inspect
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.server import MCPServer

from toolwire import Context, ElicitationResult, McpLogMessage, McpProgressMessage, ToolServer
from toolwire._conversation.mcp_router import McpRouter
from toolwire._protocol.jsonrpc import Unanswerable
from toolwire._protocol.lines import encode
from toolwire.tools.elicitation import ClientCallbacks

pytestmark = pytest.mark.anyio


class Stream:
    """Records what is sent to the CLI and added to the conversation."""

    def __init__(self):
        self.told = []
        self.injected = []

    def send(self, body):
        self.told.append(body)

    def inject(self, message):
        self.injected.append(message)


def ours():
    server = ToolServer("ours")

    @server.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.tool
    async def report(context: Context) -> str:
        context.progress(1, 2)
        context.log("note")
        return "ok"

    @server.tool
    async def ask(context: Context) -> str:
        elicited = await context.elicit("who?")
        sampled = await context.sample("what?")
        return f"{elicited.action} {sampled.text} {[root.uri for root in await context.roots()]}"

    return server


def foreign():
    server = MCPServer("foreign")

    @server.tool()
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    return server


@pytest.fixture
async def servers():
    table = McpRouter(ClientCallbacks())
    table.add("ours", ours())
    table.add("foreign", foreign())
    with anyio.fail_after(60):
        yield table
        await table.aclose()


async def handle(table, body):
    answer = table.handle(body)
    return await answer if inspect.isawaitable(answer) else answer


def message(method, params=None, **more):
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more}


def call(name, arguments, id=1, **meta):
    return message("tools/call", {"name": name, "arguments": arguments, "_meta": meta}, id=id)


async def initialized(table, name):
    await handle(table, {"server_name": name, "message": message("initialize", INITIALIZE, id=0)})
    await handle(table, {"server_name": name, "message": message("notifications/initialized")})


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.mark.parametrize("name", ["ours", "foreign"])
async def test_both_routes_answer(servers, name):
    """Our own server and a foreign one are called in the same way."""
    await initialized(servers, name)
    answer = await handle(servers, {"server_name": name, "message": call("add", {"a": 15, "b": 27}, id=7)})
    assert answer["mcp_response"]["id"] == 7
    assert answer["mcp_response"]["result"]["content"][0]["text"] == "42.0"


@pytest.mark.parametrize("name", ["ours", "foreign"])
async def test_notifications_and_replies_are_acknowledged(servers, name):
    """Messages without a response are acknowledged, or the CLI would wait."""
    for each in (message("notifications/initialized"), {"jsonrpc": "2.0", "id": 5, "result": {}}):
        assert await handle(servers, {"server_name": name, "message": each}) == {
            "mcp_response": {"jsonrpc": "2.0", "result": {}}
        }


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"message": message("ping", id=1)}, "without a server_name"),
        ({"server_name": "", "message": message("ping", id=1)}, "without a server_name"),
        ({"server_name": 5, "message": message("ping", id=1)}, "without a server_name"),
        ({"server_name": "ours"}, "without a message"),
        ({"server_name": "ours", "message": []}, "must be an object"),
        ({"server_name": "ours", "message": message("ping", id=None)}, "id must be"),
        ({"server_name": "ghost", "message": message("notifications/initialized")}, "'ghost' not found"),
    ],
)
async def test_what_no_reply_fits_is_a_control_error(servers, body, error):
    """The exception becomes a control error, after which the CLI continues at once."""
    with pytest.raises(Exception, match=error):
        await handle(servers, body)


async def test_an_unknown_server_is_named(servers):
    """A request to an unknown server gets an error code, its name, and the names of the known servers."""
    answer = await handle(servers, {"server_name": "ghost", "message": message("tools/list", id=3)})
    error = answer["mcp_response"]["error"]
    assert (answer["mcp_response"]["id"], error["code"], error["data"]) == (3, -32601, {"server": "ghost"})
    assert "'ours', 'foreign'" in error["message"]


async def test_progress_logs_and_changes_go_out():
    """Notifications reach the CLI; progress and logs the conversation too, with the id of the tool use."""
    table, stream, server = McpRouter(ClientCallbacks()), Stream(), ours()
    table.add("s", server)
    table.attach(stream)
    body = {
        "server_name": "s",
        "message": call("report", {}, **{"progressToken": 1, "claudecode/toolUseId": "toolu_9"}),
    }
    await handle(table, body)
    server.remove("add")
    await anyio.wait_all_tasks_blocked()
    assert [each["message"]["method"] for each in stream.told] == [
        "notifications/progress",
        "notifications/message",
        "notifications/tools/list_changed",
    ]
    assert all((each["subtype"], each["server_name"]) == ("mcp_message", "s") for each in stream.told)
    assert stream.injected == [
        McpProgressMessage("s", "toolu_9", 1, 2, None),
        McpLogMessage("s", "info", "note", "ours", "toolu_9"),
    ]
    await table.aclose()


async def test_callbacks_answer_what_servers_ask():
    """Callbacks may be sync or async, and return objects, dicts or plain text."""

    async def elicit(request):
        return ElicitationResult("decline")

    here = Path.cwd()
    table = McpRouter(
        ClientCallbacks(elicit, lambda request: "42", [here, "https://example.com/x", {"uri": "file:///z"}])
    )
    table.add("s", ours())
    answer = await handle(table, {"server_name": "s", "message": call("ask", {})})
    uris = [here.as_uri(), "https://example.com/x", "file:///z"]
    assert answer["mcp_response"]["result"]["content"][0]["text"] == f"decline 42 {uris}"
    await table.aclose()


async def test_without_a_callback_sampling_fails_and_elicitation_is_declined(caplog):
    """As with the CLI's own servers, elicitation is declined; the log names the option."""
    server, actions = ToolServer("s"), []

    @server.tool
    async def ask(context: Context) -> str:
        actions.append((await context.elicit("Which?", {"type": "object"})).action)
        actions.append((await context.elicit_url("Open it.", "https://example.com", "e1")).action)
        return str(await context.sample("How much?"))

    table = McpRouter(ClientCallbacks())
    table.add("s", server)
    answer = await handle(table, {"server_name": "s", "message": call("ask", {})})
    assert actions == ["decline", "decline"]
    assert "on_elicitation is not set" in caplog.text
    error = answer["mcp_response"]["error"]
    assert error["code"] == -32601
    assert "on_sampling" in error["message"]
    await table.aclose()


async def test_a_removed_server_finishes_its_calls():
    """A call that is running when its server is removed gets its response; then the connection ends."""
    release, started = anyio.Event(), anyio.Event()
    server = ToolServer("s")

    @server.tool
    async def slow() -> str:
        started.set()
        await release.wait()
        return "done"

    table = McpRouter(ClientCallbacks())
    table.add("s", server)
    answers = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:

            async def run():
                answers.append(await handle(table, {"server_name": "s", "message": call("slow", {})}))

            group.start_soon(run)
            await started.wait()
            table.remove("s")
            release.set()
    assert answers[0]["mcp_response"]["result"]["content"][0]["text"] == "done"
    await anyio.wait_all_tasks_blocked()
    assert not server._connections
    await table.aclose()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
methods = st.sampled_from(
    ["initialize", "ping", "tools/list", "tools/call", "notifications/cancelled", "resources/list"]
)
messages = json_values | st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": st.integers(0, 3) | json_values,
        "method": methods | json_values,
        "params": st.just({"name": "add", "arguments": {"a": 1, "b": 2}}) | st.just(INITIALIZE) | json_values,
        "result": json_values,
        "error": json_values,
    },
)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries(
        {},
        optional={
            "server_name": st.sampled_from(["ours", "foreign", "ghost"]) | json_values,
            "message": messages,
        },
    )
)
async def test_nothing_is_left_unanswered(servers, body, anyio_backend):
    """Arbitrary JSON as `mcp_message`: a reply with the request's id, an acknowledgement, or a control error."""
    try:
        with anyio.fail_after(5):
            answer = await handle(servers, body)
    except TimeoutError:
        raise AssertionError(f"no answer to {body}") from None
    except (ValueError, LookupError, Unanswerable) as error:
        assert str(error)  # noqa: PT017 - the text of the control error
        return
    encode(answer)
    reply = answer["mcp_response"]
    assert reply["jsonrpc"] == "2.0"
    if "id" not in reply:
        assert reply == {"jsonrpc": "2.0", "result": {}}
        return
    assert reply["id"] == body["message"]["id"]
    assert ("result" in reply) != ("error" in reply)
    if "error" in reply:
        assert isinstance(reply["error"]["code"], int)
        assert isinstance(reply["error"]["message"], str)
    else:
        assert reply["result"] is not None
