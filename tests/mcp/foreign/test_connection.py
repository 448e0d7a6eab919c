"""Servers of other libraries (`mcp`, FastMCP) keep all their features behind a `ForeignServer`."""

import subprocess
import sys

import anyio
import claude_agent_sdk
import mcp_types as types
import pytest

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
    text_of,
)
from toolwire._protocol.jsonrpc import RpcError, Unanswerable
from toolwire.mcp.foreign.connection import ForeignServer
from toolwire.mcp.foreign.detect import find_low_level_server

pytestmark = [
    pytest.mark.anyio,
    # Logging, sampling and roots: deprecated in mcp for versions of the protocol that the CLI does not speak.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.slow
@every_kind
async def test_tools_are_listed_and_called(kind):
    """`tools/list` and `tools/call` return what the server has, for each kind of server."""
    async with connected(KINDS[kind](Scene())) as connection:
        listed = await connection.answer(request(1, "tools/list"))
        called = await connection.answer(request(2, "tools/call", name="add", arguments={"a": 15, "b": 27}))
    assert {tool["name"] for tool in listed["result"]["tools"]} == {"add", "do"}
    assert (called["id"], text_of(called)) == (2, "42")


@every_kind
async def test_resources_and_templates_are_served(kind):
    """Both can be listed and read."""
    async with connected(KINDS[kind](Scene())) as connection:
        listed = await connection.answer(request(1, "resources/list"))
        templates = await connection.answer(request(2, "resources/templates/list"))
        one = await connection.answer(request(3, "resources/read", uri="res://one"))
        named = await connection.answer(request(4, "resources/read", uri="res://x/text"))
    assert [each["uri"] for each in listed["result"]["resources"]] == ["res://one"]
    assert [each["uriTemplate"] for each in templates["result"]["resourceTemplates"]] == ["res://{name}/text"]
    assert one["result"]["contents"][0]["text"] == "first"
    assert named["result"]["contents"][0]["text"] == "text of x"


@every_kind
async def test_prompts_and_completions_are_served(kind):
    """A prompt is listed and rendered, and its argument completed."""
    ask = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "Bo"}}
    async with connected(KINDS[kind](Scene())) as connection:
        listed = await connection.answer(request(1, "prompts/list"))
        filled = await connection.answer(request(2, "prompts/get", name="greet", arguments={"name": "Bob"}))
        completed = await connection.answer(request(3, "completion/complete", **ask))
    assert [each["name"] for each in listed["result"]["prompts"]] == ["greet"]
    assert filled["result"]["messages"][0]["content"]["text"] == "Greet Bob"
    assert completed["result"]["completion"]["values"] == ["Bob"]


@every_kind
async def test_a_log_line_reaches_the_client(kind):
    """`notifications/message` is passed on unchanged."""
    channel = RecordingChannel()
    async with connected(KINDS[kind](Scene()), channel) as connection:
        assert text_of(await connection.answer(do(2, "log", "careful"))) == "logged"
    assert await channel.noticed("notifications/message") == {
        "level": "warning",
        "data": "careful",
        "logger": "a",
    }


async def test_the_log_level_is_set_where_the_server_knows_it():
    """`logging/setLevel` reaches the handler; mcp's high-level server has none and says so."""
    scene = Scene()
    replies = {}
    for kind, make in KINDS.items():
        async with connected(make(scene)) as connection:
            replies[kind] = await connection.answer(request(1, "logging/setLevel", level="error"))
    assert replies["low"]["result"] == replies["fast"]["result"] == {}
    assert replies["high"]["error"]["code"] == -32601
    assert scene.finished == ["error"]


@every_kind
async def test_changes_reach_the_client(kind):
    """Notifications that need no handling in between are passed on to the client."""
    channel = RecordingChannel()
    async with connected(KINDS[kind](Scene()), channel) as connection:
        await connection.answer(do(2, "changed"))
    assert [each["method"] for each in channel.notices] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert channel.notices[1]["params"] == {"uri": "res://one"}


@every_kind
async def test_a_server_asks_its_client(kind):
    """Requests for elicitation, sampling, roots and ping are answered by the channel."""
    said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    answers = {
        "elicitation/create": {"action": "accept", "content": {"name": "Bob"}},
        "sampling/createMessage": said,
        "roots/list": {"roots": [{"uri": "file:///src"}]},
        "ping": {},
    }
    channel = RecordingChannel({"elicitation": {}, "sampling": {}, "roots": {}}, answers)
    async with connected(KINDS[kind](Scene()), channel) as connection:
        heard = [
            text_of(await connection.answer(do(2, what))) for what in ("elicit", "sample", "roots", "ping")
        ]
    assert heard == ["accept {'name': 'Bob'}", "hi", "file:///src", "alive"]
    assert [method for method, _ in channel.asked] == list(answers)
    assert channel.asked[0][1]["message"] == "Who are you?"
    assert channel.asked[1][1]["maxTokens"] == 5


@every_kind
async def test_a_refused_question_fails_in_the_tool(kind):
    """The tool gets the channel's `RpcError`, and the session goes on."""
    async with connected(KINDS[kind](Scene())) as connection:
        refused = await connection.answer(do(2, "elicit"))
        alive = await connection.answer(request(3, "ping"))
    assert "elicitation/create is not for me" in str(refused)
    assert refused["id"] == 2
    assert alive["result"] == {}


@pytest.mark.parametrize("answer", [ValueError("broken callback"), ["no", "object"], RpcError("x", None)])
async def test_a_failing_callback_fails_in_the_tool_only(answer):
    """Whatever the host's callback raises or returns, the server gets an error response and the session goes on."""
    channel = RecordingChannel(answers={"elicitation/create": answer})
    async with connected(low_level(Scene()), channel) as connection:
        refused = await connection.answer(do(2, "elicit"))
        alive = await connection.answer(request(3, "ping"))
    assert "error" in refused
    assert alive["result"] == {}


async def test_a_question_that_the_server_withdraws_is_cancelled():
    """When the server cancels its request to the client, the callback that answers it is cancelled too."""
    scene, cancelled = Scene(), []

    async def never():
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    channel = RecordingChannel(answers={"elicitation/create": never})
    async with connected(low_level(scene), channel) as connection, anyio.create_task_group() as group:
        calls = Calls(connection, group)
        calls.start("call", do(2, "impatient", "it"))
        await channel.was_asked()
        scene.gate["it"].set()
        assert text_of(await calls.reply("call")) == "gave up"
        assert cancelled == [True]


@every_kind
async def test_the_server_knows_what_it_may_ask(kind):
    """The CLI declares no capabilities, so the channel's are added; the rest of `initialize` is unchanged."""
    channel = RecordingChannel({"elicitation": {"form": {}}, "roots": {}})
    async with connected(KINDS[kind](Scene()), channel) as connection:
        assert text_of(await connection.answer(do(2, "able"))) == "elicitation,roots of claude-code"
    async with connected(KINDS[kind](Scene())) as connection:
        assert text_of(await connection.answer(do(2, "able"))) == " of claude-code"


@every_kind
@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("x", "2025-11-25"),
    ],
)
async def test_the_handshake_settles_on_a_version_that_the_cli_takes(kind, asked, given):
    """A version with a handshake is kept; any other is replaced by the newest that has one."""
    async with connected(KINDS[kind](Scene()), greeting=False) as connection:
        result = (await connection.answer(initialize(version=asked)))["result"]
    assert result["protocolVersion"] == given
    assert result["serverInfo"]["name"] == kind
    assert {"tools", "resources", "prompts", "completions"} <= set(result["capabilities"])


@every_kind
async def test_a_stateless_request_cannot_spoil_the_handshake(kind):
    """A request in the form of 2026-07-28 is refused even if it is the first; `initialize` still works after it."""
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    async with connected(KINDS[kind](Scene()), greeting=False) as connection:
        refused = await connection.answer(request(1, "tools/list", **meta))
        assert (await greet(connection))["protocolVersion"] == "2025-11-25"
    assert refused["error"]["code"] == -32600


@every_kind
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"id": 7, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 7}, -32600),
        ({"jsonrpc": "2.0", "id": 7, "method": 1}, -32600),
        ({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [1]}, -32602),
        ({"jsonrpc": "2.0", "id": 7, "method": "no/such"}, -32601),
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}, -32602),
    ],
)
async def test_a_bad_request_is_refused_with_its_id(kind, message, code):
    """Malformed requests are refused by our own checks, unknown or incomplete ones by the server."""
    async with connected(KINDS[kind](Scene())) as connection:
        refused = await connection.answer(message)
    assert (refused["id"], refused["error"]["code"]) == (7, code)
    assert isinstance(refused["error"]["message"], str)


async def test_what_no_reply_fits_is_left_to_the_carrier():
    """A message that is no object, or whose id no response can carry, raises `Unanswerable`."""
    async with connected(low_level(Scene()), greeting=False) as connection:
        for message in (None, [], "x", {"id": None, "method": "ping"}, {"id": True}, {"id": {}}):
            with pytest.raises(Unanswerable):
                await connection.answer(message)


async def test_responses_and_nameless_notifications_are_acknowledged():
    """They get no response, and a response to no request of the server is ignored."""
    async with connected(low_level(Scene())) as connection:
        for message in ({"id": 1, "result": {}}, {"id": 1, "error": {}}, {"jsonrpc": "2.0"}, {"method": 5}):
            assert await connection.answer(message) is None
        assert (await connection.answer(request(1, "ping")))["result"] == {}


@pytest.mark.slow
@every_kind
async def test_a_failing_tool_is_the_servers_own_business(kind):
    """Each library reports the failure in its own way; the call is answered and the session goes on."""
    async with connected(KINDS[kind](Scene())) as connection:
        failed = await connection.answer(do(2, "fail", "luck"))
        alive = await connection.answer(request(3, "ping"))
    assert failed["id"] == 2
    assert (failed["error"]["message"] == "no luck") if kind == "low" else failed["result"]["isError"]
    assert alive["result"] == {}


async def test_what_is_not_json_becomes_an_error():
    """A result or request to the client that JSON cannot hold becomes an error; such a notification is dropped."""
    server = low_level(Scene())

    async def odd(ctx, params):
        return {"when": object()}

    async def even(ctx, params):
        await ctx.session.send_notification(Odd())
        return {"when": b"bytes"}

    async def asking(ctx, params):
        await ctx.session._connection.send_raw_request("elicitation/create", {"value": object()})

    server.add_request_handler("asking", types.RequestParams, asking)
    server.add_request_handler("odd", types.RequestParams, odd)
    server.add_request_handler("even", types.RequestParams, even)
    channel = RecordingChannel()
    async with connected(server, channel) as connection:
        refused = await connection.answer(request(2, "odd"))
        fine = await connection.answer(request(3, "even"))
        unasked = await connection.answer(request(4, "asking"))
    for reply in (refused, unasked):
        assert reply["error"]["code"] == -32603
        assert "not JSON" in reply["error"]["message"]
    assert fine["result"] == {"when": "bytes"}
    assert channel.notices == []


class Odd:
    """A notification with a value that JSON cannot hold."""

    def model_dump(self, **_):
        return {"method": "notifications/odd", "params": {"value": object()}}


async def test_a_channel_that_fails_does_not_fail_the_tool():
    """If a notification cannot be delivered, it is lost, but the call succeeds."""

    class Broken(RecordingChannel):
        def notify(self, message):
            raise OSError("gone")

    async with connected(low_level(Scene()), Broken()) as connection:
        assert text_of(await connection.answer(do(2, "changed"))) == "told"


async def test_a_server_of_the_official_sdk_is_served():
    """The server that claude_agent_sdk's `create_sdk_mcp_server` returns is an `mcp` server, so it works too."""

    @claude_agent_sdk.tool("add", "Adds", {"a": int, "b": int})
    async def add(args):
        return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}

    server = claude_agent_sdk.create_sdk_mcp_server("calc", tools=[add])["instance"]
    async with connected(server) as connection:
        called = await connection.answer(request(2, "tools/call", name="add", arguments={"a": 15, "b": 27}))
    assert text_of(called) == "42"


async def test_the_core_of_a_fastmcp_server_is_served():
    """The low-level server inside a FastMCP object works like the object itself."""
    whole = fastmcp(Scene())
    async with connected(whole._mcp_server) as connection:
        called = await connection.answer(request(2, "tools/call", name="add", arguments={"a": 15, "b": 27}))
    assert text_of(called) == "42"


def one_x(module, inner=None):
    """Return an object with the shape of a server of mcp 1.x."""

    class Server:
        def __init__(self):
            self.request_handlers = {}
            self.notification_handlers = {}

        def create_initialization_options(self): ...

        async def run(self, read_stream, write_stream, options): ...

        def list_tools(self): ...

    class FastMCP:
        def __init__(self):
            self._mcp_server = Server()

        def run(self): ...

    Server.__module__ = "mcp.server.lowlevel.server"
    FastMCP.__module__ = module
    return Server() if inner is None else FastMCP()


@pytest.mark.parametrize(
    "server",
    [
        one_x("mcp.server.lowlevel.server"),
        one_x("mcp.server.fastmcp.server", "inner"),
        one_x("fastmcp.server.server", "inner"),
    ],
    ids=["low-level", "mcp's FastMCP", "FastMCP 2"],
)
def test_a_server_of_mcp_1_is_recognised(server):
    """It is found by its shape: the low-level server inside a high-level one, or the object itself."""
    assert find_low_level_server(server) is getattr(server, "_mcp_server", server)


@pytest.mark.parametrize("thing", [None, 1, "server", {}, object(), type("Odd", (), {"run": print})()])
def test_anything_else_is_refused_with_what_is_accepted(thing):
    """The error names the three kinds of server that are accepted."""
    with pytest.raises(TypeError, match=r"mcp\.server\.Server.*MCPServer.*FastMCP"):
        ForeignServer(thing)


def test_a_class_is_refused_as_one():
    """Passing the class instead of an instance is the most likely mistake, so its error says just that."""
    with pytest.raises(TypeError, match="MCPServer is a class"):
        ForeignServer(type(high_level(Scene())))


@pytest.mark.process
def test_the_bridge_loads_no_mcp():
    """Importing `mcp.foreign.detect` loads neither `mcp` nor FastMCP."""
    code = "import sys, toolwire.mcp.foreign.detect as d; print({'mcp', 'mcp_types', 'fastmcp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


async def test_a_notification_is_not_waited_for():
    """`answer` returns without suspending, before the server has even started."""
    async with connected(low_level(Scene()), greeting=False) as connection:
        coroutine = connection.answer(note("notifications/initialized"))
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        assert ended.value.value is None
