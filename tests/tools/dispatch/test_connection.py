"""`ToolServer`: the response to each message, and what tools can do."""

import contextvars
import logging
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.doubles import Client, RecordingChannel, connected
from toolwire import (
    Context,
    Image,
    McpError,
    Tool,
    ToolDefinitionError,
    ToolError,
    ToolServer,
    ToolwireWarning,
    create_sdk_mcp_server,
    tool,
)
from toolwire._protocol.jsonrpc import Interrupted, Unanswerable
from toolwire._protocol.lines import encode
from toolwire._support.tasks import on_trio

pytestmark = pytest.mark.anyio

calc = ToolServer("calc", "2.1.0", instructions="Exact.", title="Calculator")


@calc.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@calc.tool
async def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


@pytest.fixture
async def client():
    connection = calc.connect(RecordingChannel())
    yield Client(connection)
    await connection.aclose()


def text(answer):
    return answer["result"]["content"][0]["text"]


# The handshake and the list of tools.


async def test_initialize(client):
    """The handshake returns name, version, capabilities and instructions, in the requested protocol version."""
    answer = await client.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert answer["result"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "calc", "version": "2.1.0", "title": "Calculator"},
        "instructions": "Exact.",
    }


@pytest.mark.parametrize(
    ("asked", "given"), [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), (None, "2025-11-25")]
)
async def test_protocol_versions(client, asked, given):
    """A version that we know is accepted; any other is answered with our newest."""
    answer = await client.request("initialize", {"protocolVersion": asked})
    assert answer["result"]["protocolVersion"] == given


async def test_initialize_again_on_a_live_connection(client):
    """The CLI initializes again in mid-session; the server goes on."""
    for _ in range(3):
        assert "result" in await client.request("initialize", {"protocolVersion": "2025-11-25"}, id=0)
        assert text(await client.call("add", a=1, b=2)) == "3.0"


async def test_ping_and_notifications(client):
    """A ping is answered; notifications of any kind get no response."""
    assert (await client.request("ping"))["result"] == {}
    await client.notify("notifications/initialized")
    await client.notify("notifications/unheard/of")
    assert await client.connection.answer({"jsonrpc": "2.0"}) is None


async def test_tools_list(client):
    """The list holds name, description and schema, in the order of definition."""
    tools = (await client.request("tools/list"))["result"]["tools"]
    assert [each["name"] for each in tools] == ["add", "divide"]
    assert tools[0]["description"] == "Add two numbers."
    assert tools[0]["inputSchema"] == {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


async def test_a_long_list_comes_in_pages():
    """2,500 tools come in three pages, all of them, once."""

    async def handler(arguments):
        return None

    server = ToolServer("many", tools=[Tool(f"t{n}", "", {"type": "object"}, handler) for n in range(2_500)])
    async with connected(server) as client:
        names, cursor = [], None
        for _ in range(3):
            result = (await client.request("tools/list", {"cursor": cursor} if cursor else None))["result"]
            names += [each["name"] for each in result["tools"]]
            cursor = result.get("nextCursor")
        assert cursor is None
        assert names == [f"t{n}" for n in range(2_500)]
        for bad in ("99", "x", 7):
            assert (await client.request("tools/list", {"cursor": bad}))["error"]["code"] == -32602


async def test_an_empty_server_has_an_empty_list():
    """Without tools, the list is empty."""
    async with connected(ToolServer("empty")) as client:
        assert (await client.request("tools/list"))["result"] == {"tools": []}


async def test_the_list_is_encoded_once():
    """The bytes of a list are made once and reused until something changes."""
    server = ToolServer("s", tools=[add])
    connection = server.connect(RecordingChannel())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    first, second = (connection.begin(message, encoded=True)["result"] for _ in range(2))
    assert first is second
    assert orjson.loads(orjson.dumps(first))["tools"][0]["name"] == "add"
    server.remove("add")
    assert connection.begin(message, encoded=True)["result"] is not first
    await connection.aclose()


# Errors, by code.


@pytest.mark.parametrize("message", [[], "text", 5, None, True])
async def test_not_an_object_is_unanswerable(client, message):
    """No JSON-RPC response fits a message that is not an object."""
    with pytest.raises(Unanswerable):
        await client.connection.answer(message)


@pytest.mark.parametrize("message_id", [None, [], {}, True])
async def test_an_unusable_id_is_unanswerable(client, message_id):
    """A response with an id of null would hang the CLI."""
    with pytest.raises(Unanswerable):
        await client.connection.answer({"jsonrpc": "2.0", "id": message_id, "method": "ping"})


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "nope"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}}, -32602),
        (
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": []}},
            -32602,
        ),
        ({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "loud"}}, -32602),
    ],
)
async def test_error_codes(client, message, code):
    """Each kind of invalid request has its error code, and the response has the request's id."""
    answer = await client.connection.answer(message)
    assert answer["id"] == 1
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


async def test_an_unknown_method_is_named(client):
    """The error's data has the method and the server's name."""
    answer = await client.request("resources/list")
    assert answer["error"]["data"] == {"method": "resources/list", "server": "calc"}


async def test_an_unknown_tool_suggests_the_nearest(client):
    """The error for an unknown tool suggests the most similar name."""
    error = (await client.call("ad"))["error"]
    assert error["code"] == -32602
    assert error["message"] == "Unknown tool: 'ad'. Did you mean 'add'?"


async def test_every_violation_is_named(client):
    """Wrong arguments never reach the function, and the error names each of them."""
    error = (await client.call("add", a="x", c=1))["error"]
    assert error["code"] == -32602
    assert error["message"].startswith("Validation failed: ")
    assert {each["path"] for each in error["data"]["violations"]} == {"a", "b", "c"}


@pytest.mark.parametrize("data", [b"{", "not json", b"\xff"])
async def test_bytes_that_are_no_json(client, data):
    """They get a parse error with details."""
    error = orjson.loads(await client.connection.answer_bytes(data))["error"]
    assert error["code"] == -32700
    assert error["data"]["details"]


async def test_bytes_in_bytes_out(client):
    """`answer_bytes` gives the same responses for JSON bytes."""
    answer = await client.connection.answer_bytes(b'{"jsonrpc":"2.0","id":"x","method":"ping"}')
    assert orjson.loads(answer) == {"jsonrpc": "2.0", "id": "x", "result": {}}
    assert await client.connection.answer_bytes(b'{"jsonrpc":"2.0","method":"notifications/x"}') is None
    assert orjson.loads(await client.connection.answer_bytes(b"[]"))["error"]["code"] == -32600


async def test_a_wrong_result_type_is_an_internal_error(caplog):
    """A value that cannot be a result is an internal error that names its type."""
    server = ToolServer("s")
    server.tool(lambda: threading.Lock(), name="bad")  # noqa: PLW0108 - the class itself has no signature
    async with connected(server) as client:
        error = (await client.call("bad"))["error"]
    assert error["code"] == -32603
    assert "lock" in error["data"]["type"]


async def test_an_exception_is_an_error_result(client, caplog):
    """The model gets the exception as text; the log has its traceback."""
    with caplog.at_level(logging.WARNING, logger="toolwire.server"):
        answer = await client.call("divide", a=1, b=0)
    assert answer["result"]["isError"] is True
    assert text(answer) == "ZeroDivisionError: float division by zero"
    assert "Traceback" in caplog.text


async def test_a_tool_error_chooses_its_words(caplog):
    """The text of a `ToolError` reaches the model unchanged, and it is not logged as a failure."""
    server = ToolServer("s")

    @server.tool
    def refuse():
        raise ToolError("Come back tomorrow.")

    async with connected(server) as client:
        answer = await client.call("refuse")
    assert (text(answer), answer["result"]["isError"]) == ("Come back tomorrow.", True)
    assert caplog.text == ""


async def test_debug_mode_carries_the_trace():
    """With debug=True the traceback is in the result's `_meta`, otherwise not."""
    for debug in (True, False):
        server = ToolServer("s", debug=debug)
        server.tool(lambda: 1 / 0, name="fail")
        async with connected(server) as client:
            assert ("_meta" in (await client.call("fail"))["result"]) is debug


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("k"), AssertionError()])
async def test_odd_exceptions_are_error_results_too(error):
    """`SystemExit` and exceptions without text are error results, and the server goes on."""

    async def fail():
        raise error

    server = ToolServer("s", tools=[fail])
    async with connected(server) as client:
        answer = await client.call("fail")
        assert answer["result"]["isError"]
        assert type(error).__name__ in text(answer)
        assert (await client.request("ping"))["result"] == {}


# Functions as handlers.


async def test_sync_tools_run_in_threads_and_async_ones_on_the_loop():
    """A blocking function does not block the loop; inline=True keeps a quick one on it."""
    server = ToolServer("s")
    here = threading.get_ident()

    @server.tool
    def in_thread() -> bool:
        return threading.get_ident() != here

    @server.tool(inline=True)
    def on_loop() -> bool:
        return threading.get_ident() == here

    @server.tool
    async def async_tool() -> bool:
        return threading.get_ident() == here

    async with connected(server) as client:
        for name in ("in_thread", "on_loop", "async_tool"):
            assert text(await client.call(name)) == "true"


async def test_context_variables_reach_sync_and_async_tools():
    """A tool sees the context variables of the task that calls it."""
    who = contextvars.ContextVar("who")
    server = ToolServer("s")
    server.tool(lambda: who.get(), name="threaded")  # noqa: PLW0108 - as above

    @server.tool
    async def on_loop():
        return who.get()

    who.set("Ada")
    async with connected(server) as client:
        assert text(await client.call("threaded")) == "Ada"
        assert text(await client.call("on_loop")) == "Ada"


async def test_official_handlers_get_a_dict_and_may_take_the_context():
    """Handlers of the official form may be sync or async, with or without a context."""

    @tool("one", "", {"a": int})
    async def one(args):
        return {"content": [{"type": "text", "text": str(args)}]}

    @tool("two", "", {"a": int})
    def two(args: dict[str, Any], context: Context) -> str:
        return f"{args} {context.tool}"

    server = create_sdk_mcp_server("s", tools=[one, two])["instance"]
    async with connected(server) as client:
        assert text(await client.call("one", a=1)) == "{'a': 1}"
        assert text(await client.call("two", a=1)) == "{'a': 1} two"


async def test_results_of_many_kinds():
    """None, data, images and whole results become the right content blocks."""
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 20
    server = ToolServer("s")
    server.tool(lambda: None, name="nothing")
    server.tool(lambda: {"a": [1]}, name="data")
    server.tool(lambda: ["see", Image(png)], name="picture")
    server.tool(
        lambda: {"content": [], "structuredContent": {"x": 1}, "_meta": {"m": 2}, "isError": False},
        name="whole",
    )
    async with connected(server) as client:
        assert (await client.call("nothing"))["result"] == {"content": []}
        assert orjson.loads(text(await client.call("data"))) == {"a": [1]}
        blocks = (await client.call("picture"))["result"]["content"]
        assert [(each["type"], each.get("mimeType")) for each in blocks] == [
            ("text", None),
            ("image", "image/png"),
        ]
        whole = (await client.call("whole"))["result"]
        assert (whole["structuredContent"], whole["_meta"]) == ({"x": 1}, {"m": 2})


async def test_structured_output():
    """The declared output is listed as a schema, and results have structured content with the same JSON as text."""
    server = ToolServer("s")

    @server.tool(structured=True)
    def count(text: str) -> dict[str, int]:
        return {"characters": len(text)}

    @server.tool(
        output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    def wrong() -> dict[str, str]:
        return {"n": "many"}

    async with connected(server) as client:
        (first, _) = (await client.request("tools/list"))["result"]["tools"]
        assert first["outputSchema"]["type"] == "object"
        result = (await client.call("count", text="abc"))["result"]
        assert result["structuredContent"] == {"characters": 3} == orjson.loads(result["content"][0]["text"])
        assert (await client.call("wrong"))["error"]["code"] == -32603


async def test_text_that_the_cli_would_hide_is_warned_about(caplog):
    """The CLI drops text beside differing structured content: a warning says so."""
    server = ToolServer("s")
    server.tool(
        lambda: {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": 1}}, name="both"
    )
    async with connected(server) as client:
        await client.call("both")
    assert "the CLI does not show the text to the model" in caplog.text


async def test_definition_has_all_that_was_set():
    """Title, annotations and `_meta` are in the definition under their names in MCP."""
    server = ToolServer("s")
    server.tool(
        lambda: 1,
        name="t",
        title="T",
        description="D",
        read_only=True,
        destructive=False,
        always_load=True,
        search_hint="zebra",
        max_result_size_chars=100_000,
        meta={"mine": 1},
    )
    definition = server.tools["t"].definition
    assert definition["title"] == "T"
    assert definition["annotations"] == {"readOnlyHint": True, "destructiveHint": False}
    assert definition["_meta"] == {
        "mine": 1,
        "anthropic/alwaysLoad": True,
        "anthropic/searchHint": "zebra",
        "anthropic/maxResultSizeChars": 100_000,
    }


# The context.


async def test_context_knows_the_call():
    """The context has ids, names, state and session."""
    seen = []
    server = ToolServer("s", state={"n": 1})

    @server.tool
    def look(context: Context[dict[str, int]]) -> None:
        seen.append((context.server, context.tool, context.tool_use_id, context.state, context.session))

    async with connected(server) as client:
        await client.call("look", _meta={"claudecode/toolUseId": "toolu_1"})
        assert seen == [("s", "look", "toolu_1", {"n": 1}, client.connection)]


async def test_progress_and_logs_go_out_from_threads_and_from_the_loop():
    """Sync and async tools can report progress and log, and may await it or not."""
    server, channel = ToolServer("s"), RecordingChannel()

    @server.tool
    def threaded(context: Context) -> None:
        context.progress(1, 2, "half")
        context.log({"a": 1}, "warning")

    @server.tool
    async def on_loop(context: Context) -> None:
        await context.progress(2)
        await context.log("text", logger="mine")

    async with connected(server, channel) as client:
        await client.call("threaded", _meta={"progressToken": 7, "claudecode/toolUseId": "t"})
        await client.call("on_loop", _meta={"progressToken": "x"})
    assert [message["params"] for message in channel.told] == [
        {
            "progressToken": 7,
            "progress": 1,
            "total": 2,
            "message": "half",
            "_meta": {"claudecode/toolUseId": "t"},
        },
        {"level": "warning", "logger": "s", "data": {"a": 1}, "_meta": {"claudecode/toolUseId": "t"}},
        {"progressToken": "x", "progress": 2},
        {"level": "info", "logger": "mine", "data": "text"},
    ]


async def test_no_token_no_progress_and_no_level_no_log():
    """Progress is sent only with a token, log messages only from the client's level on."""
    server, channel = ToolServer("s"), RecordingChannel()

    @server.tool
    async def report(context: Context) -> None:
        context.progress(1)
        context.log("quiet", "info")
        context.log("loud", "error")

    async with connected(server, channel) as client:
        await client.request("logging/setLevel", {"level": "error"})
        await client.call("report")
    assert [message["params"]["data"] for message in channel.told] == ["loud"]


async def test_asking_the_client():
    """A tool can request elicitation, sampling and roots, with typed arguments and results; sync tools too."""
    answers = {
        "elicitation/create": {"action": "accept", "content": {"name": "Ada", "age": "36"}},
        "sampling/createMessage": {
            "role": "assistant",
            "content": {"type": "text", "text": "42"},
            "model": "m",
        },
        "roots/list": {"roots": [{"uri": "file:///a", "name": "A"}]},
    }
    server, channel = ToolServer("s"), RecordingChannel(answers)

    @dataclass
    class Person:
        name: str
        age: int

    @server.tool
    async def ask(context: Context) -> str:
        person = await context.elicit("Who?", Person)
        said = await context.sample("What?", temperature=0)
        (root,) = await context.roots()
        return f"{person.content} {said.text} {root.uri}"

    @server.tool
    def ask_in_thread(context: Context) -> str:
        return context.wait(context.sample("What?")).text

    async with connected(server, channel) as client:
        assert text(await client.call("ask")).endswith("Person(name='Ada', age=36) 42 file:///a")
        assert text(await client.call("ask_in_thread")) == "42"
    assert channel.asked[0][1]["requestedSchema"]["properties"].keys() == {"name", "age"}
    assert channel.asked[1][1]["temperature"] == 0


class Name(TypedDict):
    name: str


async def test_an_answer_of_a_standard_typed_dict():
    """`elicit` accepts the TypedDict of the standard library on every Python."""
    server = ToolServer("s")

    @server.tool
    async def ask(context: Context) -> str:
        return (await context.elicit("Who?", Name)).content["name"]

    channel = RecordingChannel({"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}})
    async with connected(server, channel) as client:
        assert text(await client.call("ask")) == "Ada"


async def test_a_client_that_cannot_be_asked():
    """A request that the client refuses raises `McpError` in the tool."""
    server = ToolServer("s")

    @server.tool
    async def ask(context: Context) -> str:
        try:
            await context.roots()
        except McpError as error:
            return f"refused: {error.code}"

    async with connected(server) as client:
        assert text(await client.call("ask")) == "refused: -32601"


# Cancellation and timeouts.


@pytest.fixture(params=["scopes of anyio", "tasks alone"])
def scopes(request, monkeypatch):
    """Start calls with anyio's cancel scopes, and with bare tasks as before anyio was used."""
    if request.param == "tasks alone":
        monkeypatch.setattr("toolwire._support.tasks.has_scopes", on_trio)


@pytest.mark.usefixtures("scopes")
async def test_cancel_reaches_an_async_tool():
    """The newest open call with the id is cancelled, and its response is the error "cancelled"."""
    server = ToolServer("s")
    started, ended = anyio.Event(), []

    @server.tool
    async def hang() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    answers = []
    async with connected(server) as client, anyio.create_task_group() as group:

        async def call():
            answers.append(await client.call("hang", _id=5))

        group.start_soon(call)
        await started.wait()
        await client.notify("notifications/cancelled", requestId=99)
        await client.notify("notifications/cancelled", requestId=[])
        await client.notify("notifications/cancelled", requestId=5)
    assert ended == ["cancelled"]
    assert answers[0]["error"]["code"] == -32800


async def test_an_async_tool_sees_in_its_cleanup_that_it_was_cancelled():
    """Also if the task that awaits the response was cancelled, as when serving over HTTP."""
    server = ToolServer("s")
    started, seen = anyio.Event(), []

    @server.tool
    async def hang(context: Context) -> None:
        seen.append(context.cancelled)
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(context.cancelled)

    async with connected(server) as client, anyio.create_task_group() as group:
        group.start_soon(partial(client.call, "hang", _id=5))
        await started.wait()
        group.cancel_scope.cancel()
    assert seen == [False, True]


@pytest.mark.usefixtures("scopes")
async def test_cancel_is_visible_to_a_sync_tool_and_waits_for_nothing():
    """A sync tool sees `context.cancelled`; the response does not wait for the tool."""
    server = ToolServer("s")
    started, told = threading.Event(), threading.Event()

    @server.tool
    def busy(context: Context) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        told.set()
        context.check_cancelled()

    async with connected(server) as client, anyio.create_task_group() as group:

        async def call():
            assert (await client.call("busy", _id=1))["error"]["code"] == -32800

        group.start_soon(call)
        while not started.is_set():
            await anyio.lowlevel.checkpoint()
        await client.notify("notifications/cancelled", requestId=1)
    assert told.wait(5)


@pytest.mark.usefixtures("scopes")
async def test_of_two_calls_with_one_id_the_newest_is_cancelled():
    """The CLI uses ids again while older calls are open."""
    server = ToolServer("s")
    running, release = [], anyio.Event()

    @server.tool
    async def work(n: int) -> int:
        running.append(n)
        await release.wait()
        return n

    answers = {}
    async with connected(server) as client, anyio.create_task_group() as group:

        async def call(n):
            answers[n] = await client.call("work", _id=2, n=n)

        for n in (1, 2):
            group.start_soon(call, n)
            while len(running) < n:
                await anyio.lowlevel.checkpoint()
        await client.notify("notifications/cancelled", requestId=2)
        release.set()
    assert text(answers[1]) == "1"
    assert answers[2]["error"]["code"] == -32800


@pytest.mark.parametrize("own", [True, False])
async def test_time_out(own):
    """The timeout of a tool, or else of its server, ends a call with an error result."""
    server = ToolServer("s", timeout=None if own else 0.05)

    @server.tool(timeout=0.05 if own else None)
    async def slow() -> None:
        await anyio.sleep_forever()

    @server.tool(timeout=0.05)
    def blocked(context: Context) -> None:
        while not context.cancelled:
            time.sleep(0.001)

    async with connected(server) as client:
        assert text(await client.call("slow")) == "Tool 'slow' timed out after 0.05 s"
        assert (await client.call("blocked"))["result"]["isError"]


async def test_a_time_out_inside_a_tool_is_its_own():
    """A `TimeoutError` that the tool raises is not taken for the timeout of the call."""
    server = ToolServer("s", timeout=10)

    @server.tool
    async def inner() -> None:
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()

    async with connected(server) as client:
        assert text(await client.call("inner")).startswith("TimeoutError")


async def test_closing_cancels_what_runs():
    """`aclose` answers open calls, and the server can be connected to again."""
    server = ToolServer("s")
    started = anyio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        await anyio.sleep_forever()

    connection = server.connect(RecordingChannel())
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:

            async def call():
                assert (await Client(connection).call("hang"))["error"]["code"] == -32800

            group.start_soon(call)
            await started.wait()
            await connection.aclose()
            await connection.aclose()
    async with connected(server) as client:
        assert (await client.request("ping"))["result"] == {}


async def test_1000_calls_at_once_none_lost_or_crossed():
    """Calls that end out of order and share ids in pairs each get their own response."""
    server = ToolServer("s")
    gates = [anyio.Event() for _ in range(1_000)]

    @server.tool
    async def echo(n: int) -> int:
        await gates[n].wait()
        return n

    answers = {}
    async with connected(server) as client, anyio.create_task_group() as group:

        async def call(n):
            answers[n] = await client.call("echo", _id=n // 2, n=n)

        for n in range(1_000):
            group.start_soon(call, n)
        await anyio.wait_all_tasks_blocked()
        for gate in reversed(gates):
            gate.set()
    assert {n: text(answer) for n, answer in answers.items()} == {n: str(n) for n in range(1_000)}


async def test_a_thread_sees_that_its_caller_is_gone():
    """If the task that awaits the response is cancelled, a sync tool sees it."""
    server, started, told = ToolServer("s"), threading.Event(), threading.Event()

    @server.tool
    def busy(context: Context) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        told.set()

    async with connected(server) as client, anyio.create_task_group() as group:
        group.start_soon(client.call, "busy")
        while not started.is_set():
            await anyio.lowlevel.checkpoint()
        assert not told.is_set()
        group.cancel_scope.cancel()
    assert told.wait(5)


# What the channel to a client may do besides.


@pytest.mark.parametrize("name", ["threaded", "on_loop", "grouped"])
async def test_an_interruption_passes_through(caplog, name):
    """`Interrupted` from the channel passes `except Exception` in the tool and leaves `answer`, without a log."""

    def interrupt(params):
        raise Interrupted

    server, channel = ToolServer("s"), RecordingChannel({"roots/list": interrupt})

    @server.tool
    def threaded(context: Context) -> str:
        try:
            return str(context.wait(context.roots()))
        except Exception:  # noqa: BLE001 - as users do
            return "swallowed"

    @server.tool
    async def on_loop(context: Context) -> str:
        try:
            return str(await context.roots())
        except Exception:  # noqa: BLE001 - as users do
            return "swallowed"

    @server.tool(timeout=10)
    async def grouped(context: Context) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(context.roots)
            await anyio.sleep_forever()

    async with connected(server, channel) as client:
        with pytest.raises(Interrupted):
            await client.call(name)
        await anyio.wait_all_tasks_blocked()
        assert (await client.request("ping"))["result"] == {}
    assert caplog.text == ""


async def test_a_channel_learns_whether_a_call_may_be_repeated():
    """A request to the client carries `repeatable` of the tool that sends it."""
    server = ToolServer("s")
    seen = []

    class Listening(RecordingChannel):
        async def request(self, method, params, *, key=None, repeatable=True):
            seen.append((key, repeatable))
            return {"roots": []}

    @server.tool(repeatable=False)
    async def pay(context: Context) -> None:
        await context.roots(key="mine")

    @server.tool
    async def look(context: Context) -> None:
        await context.roots()

    async with connected(server, Listening()) as client:
        assert "result" in await client.call("pay")
        assert "result" in await client.call("look")
    assert seen == [("mine", False), (None, True)]
    assert "repeatable" not in str(server.tools["pay"].definition)
    assert server.add(add).repeatable


# Changed lists of tools.


async def test_changes_are_announced_once_per_batch():
    """Ten changes at once cause one notification to each connection."""
    server = ToolServer("s")
    channels = [RecordingChannel(), RecordingChannel()]
    connections = [server.connect(channel) for channel in channels]
    for n in range(10):
        server.tool(lambda: 1, name=f"t{n}")
    server.remove("t3")
    await anyio.wait_all_tasks_blocked()
    for channel in channels:
        assert channel.told == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    server.add(Tool("t0", "new", {"type": "object"}, lambda arguments: 2), replace=True)
    await anyio.wait_all_tasks_blocked()
    assert len(channels[0].told) == 2
    for connection in connections:
        await connection.aclose()
    server.remove("t0")
    await anyio.wait_all_tasks_blocked()
    assert len(channels[0].told) == 2


async def test_a_change_from_another_thread():
    """A tool that is added in another thread is announced and can be called."""
    server, channel = ToolServer("s"), RecordingChannel()
    async with connected(server, channel) as client:
        await anyio.to_thread.run_sync(lambda: server.tool(lambda: "x", name="late"))
        while not channel.told:
            await anyio.lowlevel.checkpoint()
        assert text(await client.call("late")) == "x"


@pytest.mark.parametrize("name", ["", "  ", "a" * 129, "tab\t", 5, None, "::"])
def test_illegal_names_of_servers_are_refused(name):
    """A name that the CLI could not use is refused when it is given."""
    with pytest.raises(ToolDefinitionError):
        ToolServer(name)


@pytest.mark.parametrize("name", ["a" * 129, 5, None])
def test_illegal_names_of_tools_are_refused(name):
    """The CLI leaves out a tool with such a name."""
    with pytest.raises(ToolDefinitionError):
        Tool(name, "", {"type": "object"}, print)


@pytest.mark.parametrize(
    ("name", "spelt"), [("", "''"), ("  ", "'__'"), ("tab\t", "'tab_'"), ("天気", "'__'")]
)
def test_odd_names_of_tools_are_warned_about(name, spelt):
    """The CLI replaces such a name by another, which the warning shows; the tool works."""
    with pytest.warns(ToolwireWarning, match=f"The CLI calls it {spelt}"):
        Tool(name, "", {"type": "object"}, print)


def test_names_that_the_cli_would_merge_are_refused():
    """The CLI would take `a.b` and `a_b` for the same tool."""
    server = ToolServer("s")
    server.tool(lambda: 1, name="a.b")
    with pytest.raises(ToolDefinitionError, match="spells the same"):
        server.tool(lambda: 1, name="a_b")
    with pytest.raises(ToolDefinitionError, match="replace=True"):
        server.tool(lambda: 1, name="a.b")


def test_removing_what_is_not_there():
    """The error suggests the most similar name."""
    with pytest.raises(KeyError, match="Did you mean 'add'"):
        ToolServer("s", tools=[add]).remove("ad")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "properties": {}},
        {"type": "string", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "nope"}}},
        {"type": "object", "properties": {"a": str}},
        {1: str},
    ],
)
def test_a_schema_that_the_cli_could_not_take_is_refused(schema):
    """One tool with an invalid schema would make the CLI drop all tools of the server."""
    with pytest.raises(ToolDefinitionError):
        Tool("t", "", schema, print)


@pytest.mark.parametrize(
    "settings", [{"readonly": True}, {"policy": "sometimes"}, {"timeout": 0}, {"structured": True}]
)
def test_settings_that_cannot_work_are_refused(settings):
    """Misspelt and impossible settings raise an error."""
    with pytest.raises(ToolDefinitionError):
        ToolServer("s").tool(lambda: 1, name="t", **settings)


def test_generators_are_refused():
    """A generator has no single result."""

    def numbers():
        yield 1

    with pytest.raises(ToolDefinitionError, match="generator"):
        ToolServer("s").tool(numbers)


def test_the_decorated_function_stays_a_function():
    """`@server.tool` returns the function itself; bare `@tool` returns a Tool that can still be called."""
    assert add(1, 2) == 3
    wrapped = tool(add)
    assert isinstance(wrapped, Tool)
    assert wrapped(1, 2) == 3
    assert wrapped.name == "add"


# Lifespans.


async def test_lifespan_opens_with_the_first_connection_and_closes_after_the_last():
    """Two connections share one lifespan; a later one starts a new one."""
    events = []

    @asynccontextmanager
    async def lifespan(server):
        events.append(f"open {server.name}")
        yield len(events)
        events.append("close")

    server = ToolServer("s", lifespan=lifespan)

    @server.tool
    def state(context: Context) -> int:
        return context.state

    async with connected(server) as one:
        async with connected(server) as two:
            assert text(await one.call("state")) == text(await two.call("state")) == "1"
        assert text(await one.call("state")) == "1"
    assert events == ["open s", "close"]
    async with connected(server) as three:
        assert text(await three.call("state")) == "3"
    assert events == ["open s", "close", "open s", "close"]


async def test_a_lifespan_that_fails_is_told_to_every_call(caplog):
    """The handshake works, but each call gets the lifespan's error."""

    @asynccontextmanager
    async def lifespan(server):
        raise RuntimeError("no database")
        yield

    server = ToolServer("s", lifespan=lifespan, tools=[add])
    async with connected(server) as client:
        assert "result" in await client.request("initialize")
        error = (await client.call("add", a=1, b=2))["error"]
    assert error["code"] == -32603
    assert "no database" in error["message"]


# Any message at all.


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
rpc_like = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": st.integers() | st.text(max_size=3) | json_values,
        "method": st.sampled_from(
            [
                *(
                    "initialize",
                    "ping",
                    "tools/list",
                    "tools/call",
                    "logging/setLevel",
                    "notifications/cancelled",
                ),
                *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe"),
                *("resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete"),
            ]
        )
        | json_values,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["add", "divide", "write"]) | json_values,
                "uri": st.sampled_from(["file:///a", "file:///%2e%2e", "no://where"]) | json_values,
                "ref": st.sampled_from([{"type": "ref/prompt", "name": "write"}]) | json_values,
                "argument": st.sampled_from([{"name": "a", "value": "t"}]) | json_values,
                "context": json_values | st.fixed_dictionaries({"arguments": json_values}),
                "arguments": json_values | st.fixed_dictionaries({"a": json_values, "b": json_values}),
                "_meta": json_values,
                "cursor": json_values,
                "level": json_values,
                "requestId": json_values,
            },
        )
        | json_values,
        "result": json_values,
        "error": json_values,
    },
)


@pytest.fixture
async def full_client():
    """Give a client of a server that has tools, resources, prompts and completion."""
    server = ToolServer("full", tools=[add, divide])
    server.add_resource("file:///{path}", lambda path: path, name="file")
    server.add_prompt(lambda a, b: f"{a} {b}", name="write", complete={"a": ["this", "that"]})
    connection = server.connect(RecordingChannel())
    yield Client(connection)
    await connection.aclose()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=rpc_like | json_values)
async def test_every_message_gets_exactly_one_answer(full_client, message, anyio_backend):
    """Any JSON gets a response with its id, nothing if it needs none, or raises `Unanswerable`."""
    try:
        answer = await full_client.connection.answer(message)
    except Unanswerable:
        assert not isinstance(message, dict) or isinstance(message.get("id"), bool | list | dict | None)
        return
    wants_reply = (
        isinstance(message, dict)
        and "id" in message
        and not ("method" not in message and ("result" in message or "error" in message))
    )
    if not wants_reply:
        assert answer is None
        return
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == message["id"]
    if "error" in answer:
        assert isinstance(answer["error"]["code"], int)
        assert isinstance(answer["error"]["message"], str)
        assert "result" not in answer
    else:
        assert isinstance(answer["result"], dict)
    encode(answer)


@pytest.mark.process
def test_a_hung_sync_tool_does_not_block_the_exit(tmp_path):
    """Python exits even if the thread of a sync tool never returns."""
    program = (
        "import anyio, threading\n"
        "from toolwire._support.threads import Workers\n"
        "async def main():\n"
        "    with anyio.move_on_after(0.1):\n"
        "        await Workers().run(threading.Event().wait)\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
