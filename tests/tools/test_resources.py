"""Resources of a `ToolServer`: lists, reading, subscriptions, and the errors for mistakes."""

import asyncio
import base64
import logging
import threading
import time
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Literal

import anyio
import mcp.types
import orjson
import pytest
from pydantic import BaseModel, Field

from shared.doubles import RecordingChannel, connected
from toolwire import (
    Context,
    Image,
    McpError,
    Resource,
    ResourceLink,
    ResourceNotFoundError,
    ToolDefinitionError,
    ToolError,
    ToolServer,
)
from toolwire._protocol.jsonrpc import Interrupted
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def library():
    """Return a server with a resource and a template."""
    server = ToolServer("library", state={"shelf": 3})

    @server.resource("config://app", title="Settings", mime_type="text/toml", size=12, meta={"m": 1})
    def config() -> str:
        """The settings."""
        return "depth = 3"

    @server.resource(
        "book://{id}{?page}",
        annotations={"audience": ["user"], "priority": 0.5},
        icons=[{"src": "https://x/i"}],
    )
    async def book(id: int, context: Context[dict[str, int]], page: int = 1) -> dict[str, object]:
        """One book.

        Args:
            id: Its number.
        """
        return {"id": id, "page": page, "shelf": context.state["shelf"], "name": context.tool}

    return server


async def read(client, uri):
    """Return the contents of a resource, or the error."""
    answer = await client.request("resources/read", {"uri": uri})
    return answer["result"]["contents"] if "result" in answer else answer["error"]


# Lists.


async def test_what_is_listed():
    """Resources and templates have a list each, with all their settings."""
    async with connected(library()) as client:
        assert (await client.request("resources/list"))["result"] == {
            "resources": [
                {
                    "uri": "config://app",
                    "name": "config",
                    "title": "Settings",
                    "description": "The settings.",
                    "mimeType": "text/toml",
                    "size": 12,
                    "_meta": {"m": 1},
                }
            ]
        }
        assert (await client.request("resources/templates/list"))["result"] == {
            "resourceTemplates": [
                {
                    "uriTemplate": "book://{id}{?page}",
                    "name": "book",
                    "description": "One book.",
                    "annotations": {"audience": ["user"], "priority": 0.5},
                    "icons": [{"src": "https://x/i"}],
                }
            ]
        }


@pytest.mark.slow
async def test_lists_come_in_pages():
    """1,500 resources come in two pages, each once; an unknown cursor is refused."""
    server = ToolServer("many")
    for n in range(1_500):
        server.add_resource(f"n://{n}", lambda: "", name=f"r{n}")
    async with connected(server) as client:
        first = (await client.request("resources/list"))["result"]
        second = (await client.request("resources/list", {"cursor": first["nextCursor"]}))["result"]
        assert "nextCursor" not in second
        uris = [each["uri"] for each in first["resources"] + second["resources"]]
        assert uris == [f"n://{n}" for n in range(1_500)]
        for method in ("resources/list", "resources/templates/list"):
            error = (await client.request(method, {"cursor": "7"}))["error"]
            assert (error["code"], error["message"]) == (-32602, "Unknown cursor: '7'")


@pytest.mark.parametrize(
    ("method", "key", "uri"),
    [
        ("resources/list", "resources", "config://app"),
        ("resources/templates/list", "resourceTemplates", "book://{id}{?page}"),
    ],
    ids=["resources", "templates"],
)
async def test_a_list_is_encoded_once(method, key, uri):
    """The encoded bytes of a list are reused until it changes."""
    server = library()
    connection = server.connect(RecordingChannel())
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    first, second = (connection.begin(message, encoded=True)["result"] for _ in range(2))
    assert first is second
    server.remove_resource(uri)
    assert orjson.loads(orjson.dumps(connection.begin(message, encoded=True)["result"])) == {key: []}
    await connection.aclose()


async def test_capabilities_tell_of_what_is_there():
    """The capability is declared only while there are resources; the methods stay once there was one."""
    server = ToolServer("s")
    plain = {"tools": {"listChanged": True}, "logging": {}}
    assert server.capabilities() == plain
    async with connected(server) as client:
        assert (await client.request("resources/list"))["error"]["code"] == -32601
        assert (await client.request("resources/read", {"uri": "a://b"}))["error"]["code"] == -32601
        server.add_resource("a://{b}", lambda b: b, name="r")
        both = {**plain, "resources": {"subscribe": True, "listChanged": True}}
        assert (await client.request("initialize"))["result"]["capabilities"] == both
        server.add_resource("a://c", lambda: "", name="c")
        server.remove_resource("a://{b}")
        assert server.capabilities() == both
        server.remove_resource("a://c")
        assert server.capabilities() == plain
        assert (await client.request("resources/list"))["result"] == {"resources": []}
        assert (await read(client, "a://b"))["code"] == -32002


# Reading.


async def test_values_in_the_address_are_typed():
    """The function gets a template's values converted to its types, and the context."""
    async with connected(library()) as client:
        (content,) = await read(client, "book://7?page=2")
        assert (content["uri"], content["mimeType"]) == ("book://7?page=2", "application/json")
        assert orjson.loads(content["text"]) == {"id": 7, "page": 2, "shelf": 3, "name": "book"}
        (content,) = await read(client, "book://7")
        assert orjson.loads(content["text"])["page"] == 1


async def test_values_that_do_not_fit_the_types():
    """The error lists every violation, and the function is not called."""
    async with connected(library()) as client:
        error = await read(client, "book://seven?page=x")
    assert error["code"] == -32602
    assert {each["path"] for each in error["data"]["violations"]} == {"id", "page"}
    assert (error["data"]["uri"], error["data"]["server"]) == ("book://seven?page=x", "library")


async def test_a_way_out_of_the_folder_is_refused():
    """A value that would leave a folder (`..`) never reaches the function."""
    seen = []
    server = ToolServer("s")
    server.add_resource("f:///{+path}", lambda path: seen.append(path), name="file")  # noqa: PLW0108 - for the name
    async with connected(server) as client:
        error = await read(client, "f:///a/%2e%2e/b")
        assert (error["code"], error["data"]["violations"][0]["path"]) == (-32602, "path")
        await read(client, "f:///a/b")
    assert seen == ["a/b"]


@dataclass
class Point:
    x: int
    y: int


class Model(BaseModel):
    day: date


class Color(str, Enum):  # noqa: UP042 - the older way, whose str() differs
    RED = "red"


OCTETS = "application/octet-stream"


@pytest.mark.parametrize(
    ("value", "mime_type", "expected"),
    [
        ("é", "text/plain", {"text": "é"}),
        ("", "text/plain", {"text": ""}),
        (None, "text/plain", {"text": ""}),
        (Color.RED, "text/plain", {"text": "red"}),
        (b"\x00\xff", OCTETS, {"blob": "AP8="}),
        (bytearray(b"a"), OCTETS, {"blob": "YQ=="}),
        (b"", OCTETS, {"blob": ""}),
        ({"a": [1]}, "application/json", {"text": '{"a":[1]}'}),
        ([1, "b"], "application/json", {"text": '[1,"b"]'}),
        ([], "application/json", {"text": "[]"}),
        (1.5, "application/json", {"text": "1.5"}),
        (False, "application/json", {"text": "false"}),
        (Point(1, 2), "application/json", {"text": '{"x":1,"y":2}'}),
        (Model(day=date(2025, 1, 2)), "application/json", {"text": '{"day":"2025-01-02"}'}),
        (Image(PNG), "image/png", {"blob": base64.b64encode(PNG).decode()}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_results(value, mime_type, expected):
    """Strings become text, bytes a blob, all else JSON; a `mime_type` that was set overrides the derived one."""
    server = ToolServer("s")
    server.add_resource("a://plain", lambda: value, name="plain")
    server.add_resource("a://typed", lambda: value, name="typed", mime_type="x/y")
    async with connected(server) as client:
        assert await read(client, "a://plain") == [{"uri": "a://plain", "mimeType": mime_type, **expected}]
        assert await read(client, "a://typed") == [{"uri": "a://typed", "mimeType": "x/y", **expected}]


async def test_results_that_are_resources_already():
    """A returned `Resource`, or several of them, are sent with their own URIs."""
    one = Resource("a://1", text="one", meta={"k": 1})
    two = Resource("a://2", blob=b"two", mime_type="x/y")
    server = ToolServer("s")
    server.add_resource("a://one", lambda: one, name="one", mime_type="not/used")
    server.add_resource("a://both", lambda: (one, two), name="both")
    first = {"uri": "a://1", "text": "one", "_meta": {"k": 1}}
    async with connected(server) as client:
        assert await read(client, "a://one") == [first]
        assert await read(client, "a://both") == [first, {"uri": "a://2", "mimeType": "x/y", "blob": "dHdv"}]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (threading.Lock(), "lock"),
        ([Resource("a://1", text="x"), "y"], "only Resource objects or only data"),
        (ResourceLink("a://1", "x"), "content cannot be part of data"),
    ],
    ids=["lock", "mixture", "link"],
)
async def test_results_that_cannot_be(value, what):
    """A value that cannot be sent is an internal error that names it."""
    server = ToolServer("s")
    server.add_resource("a://b", lambda: value, name="b")
    async with connected(server) as client:
        error = await read(client, "a://b")
    assert error["code"] == -32603
    assert error["message"].startswith("Resource 'a://b': ")
    assert what in error["message"]
    assert error["data"]["type"]


async def test_sync_functions_run_in_threads():
    """A blocking function does not block the event loop; inline=True keeps a quick one on it."""
    server, here = ToolServer("s"), threading.get_ident()
    for inline in (True, False):
        server.add_resource(f"a://{inline}", lambda: threading.get_ident() == here, name="r", inline=inline)
    async with connected(server) as client:
        assert [(await read(client, f"a://{inline}"))[0]["text"] for inline in (True, False)] == [
            "true",
            "false",
        ]


async def test_the_context_reports_and_asks():
    """Progress, log messages and elicitation work as in tools, also from threads."""
    channel = RecordingChannel({"elicitation/create": {"action": "accept", "content": {}}})
    server = ToolServer("s")

    @server.resource("a://b")
    def ask(context: Context) -> str:
        context.progress(1)
        context.log("x")
        return context.wait(context.elicit("Sure?")).action

    async with connected(server, channel) as client:
        answer = await client.request("resources/read", {"uri": "a://b", "_meta": {"progressToken": 9}})
    assert answer["result"]["contents"][0]["text"] == "accept"
    assert [each["method"] for each in channel.told] == ["notifications/progress", "notifications/message"]
    assert channel.told[0]["params"]["progressToken"] == 9


# Which resource or template a URI selects.


async def test_the_closest_wins():
    """A resource comes before templates, more literal characters before fewer, no slashes before slashes."""
    server = ToolServer("s")
    for uri in ("a://{+x}", "a://{x}", "a://b/{x}", "a://{x}/d", "a://b/c"):
        server.add_resource(uri, lambda x="", uri=uri: uri, name=uri)
    server.add_resource("c://{x}/{y}", lambda x, y: "narrow", name="narrow")
    server.add_resource("c://d/{+x}", lambda x: "wide", name="wide")
    cases = {"c://e/f": "narrow", "c://d/f": "wide"}
    cases |= {"a://b/c": "a://b/c", "a://b/z": "a://b/{x}", "a://z": "a://{x}", "a://y/z": "a://{+x}"}
    async with connected(server) as client:
        for uri, owner in cases.items():
            assert (await read(client, uri))[0]["text"] == owner
        # Refused by the closer template, accepted by the other.
        assert (await read(client, "a://y%2Fz"))[0]["text"] == "a://{+x}"


async def test_an_unknown_address():
    """The error has its own code, the URI, and the most similar known one."""
    async with connected(library()) as client:
        error = await read(client, "confg://app")
        assert error == {
            "code": -32002,
            "message": "Resource not found: confg://app. Did you mean 'config://app'?",
            "data": {"uri": "confg://app", "server": "library"},
        }
        assert (await read(client, "zzz"))["message"] == "Resource not found: zzz"


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "resources/unsubscribe"])
@pytest.mark.parametrize("params", [{}, {"uri": 5}], ids=["none", "number"])
async def test_a_request_without_an_address(method, params):
    """The error says what is missing."""
    async with connected(library()) as client:
        error = (await client.request(method, params))["error"]
    assert error["code"] == -32602
    assert "uri must be a string" in error["message"]


# Failures.


@pytest.mark.parametrize(
    ("error", "code", "message", "logged"),
    [
        (ToolError("Closed on Sundays."), -32603, "Closed on Sundays.", False),
        (ResourceNotFoundError("No book 7."), -32002, "No book 7.", False),
        (ResourceNotFoundError(), -32002, "Resource not found: a://b", False),
        (KeyError("k"), -32603, "KeyError: 'k'", True),
        (FileNotFoundError("gone"), -32603, "FileNotFoundError: gone", True),
        (SystemExit(3), -32603, "SystemExit: 3", True),
        (AssertionError(), -32603, "AssertionError", True),
        (McpError(-1, "own", {"x": 1}), -1, "own", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_what_a_function_raises(caplog, error, code, message, logged):
    """Each kind of exception has its error code; an unexpected one is logged with its traceback."""

    def fail():
        raise error

    server = ToolServer("s")
    server.add_resource("a://b", fail)
    async with connected(server) as client:
        with caplog.at_level(logging.WARNING, logger="toolwire.server"):
            answer = await read(client, "a://b")
        assert (answer["code"], answer["message"]) == (code, message)
        assert ("Traceback" in caplog.text) is logged
        assert (await client.request("ping"))["result"] == {}
    assert answer["data"] == ({"x": 1} if code == -1 else {"uri": "a://b", "server": "s"})


async def test_debug_mode_carries_the_trace():
    """With debug=True the traceback is in the error's data."""
    server = ToolServer("s", debug=True)
    server.add_resource("a://b", lambda: 1 / 0, name="b")
    async with connected(server) as client:
        assert "ZeroDivisionError" in (await read(client, "a://b"))["data"]["toolwire/traceback"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_function_that_loses_a_task_of_its_own(anyio_backend):
    """A CancelledError from inside the function is the function's failure, and the client gets an error."""
    server = ToolServer("s")

    @server.resource("a://b")
    async def lose() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    async with connected(server) as client:
        assert (await read(client, "a://b"))["message"] == "CancelledError"


async def test_time_out():
    """A function that takes too long causes an error that says so."""
    server = ToolServer("s")

    @server.resource("a://b", timeout=0.05)
    async def slow() -> None:
        await anyio.sleep_forever()

    async with connected(server) as client:
        error = await read(client, "a://b")
    assert (error["code"], error["message"]) == (-32603, "Resource 'a://b' timed out after 0.05 s")


async def test_cancellation():
    """A cancelled read is answered with the error "cancelled"."""
    server, started = ToolServer("s"), anyio.Event()

    @server.resource("a://b")
    async def hang() -> None:
        started.set()
        await anyio.sleep_forever()

    async with connected(server) as client, anyio.create_task_group() as group:

        async def ask():
            answer = await client.request("resources/read", {"uri": "a://b"}, id=5)
            assert answer["error"]["code"] == -32800

        group.start_soon(ask)
        await started.wait()
        await client.notify("notifications/cancelled", requestId=5)


async def test_a_thread_sees_that_its_caller_is_gone():
    """If the task that awaits the response is cancelled, `context.cancelled` is set."""
    server, started, told = ToolServer("s"), threading.Event(), threading.Event()

    @server.resource("a://b")
    def busy(context: Context) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        told.set()

    async with connected(server) as client, anyio.create_task_group() as group:
        group.start_soon(read, client, "a://b")
        while not started.is_set():
            await anyio.lowlevel.checkpoint()
        assert not told.is_set()
        group.cancel_scope.cancel()
    assert told.wait(5)


@pytest.mark.parametrize("threaded", [True, False])
async def test_an_interruption_passes_through(caplog, threaded):
    """`Interrupted` from the channel passes `except Exception` in the function and leaves `answer`, unlogged."""

    def interrupt(params):
        raise Interrupted

    server, channel = ToolServer("s"), RecordingChannel({"roots/list": interrupt})

    @server.resource("a://True")
    def waits(context: Context) -> str:
        try:
            return str(context.wait(context.roots()))
        except Exception:  # noqa: BLE001 - as users do
            return "swallowed"

    @server.resource("a://False")
    async def awaits(context: Context) -> str:
        try:
            return str(await context.roots())
        except Exception:  # noqa: BLE001 - as users do
            return "swallowed"

    async with connected(server, channel) as client:
        with pytest.raises(Interrupted):
            await read(client, f"a://{threaded}")
        await anyio.wait_all_tasks_blocked()
    assert caplog.text == ""


# Changes and updates.


async def test_changes_are_announced_once_per_batch():
    """Ten changes of resources and templates at once cause one notification."""
    server, channel = ToolServer("s"), RecordingChannel()
    async with connected(server, channel):
        for n in range(5):
            server.add_resource(f"a://{n}", lambda: "", name="r")
            server.add_resource(f"a{n}://{{x}}", lambda x: x, name="t")
        server.remove_resource("a://3")
        await anyio.wait_all_tasks_blocked()
        assert channel.told == [{"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}]
        await anyio.to_thread.run_sync(server.remove_resource, "a2://{x}")
        while len(channel.told) < 2:
            await anyio.lowlevel.checkpoint()
    assert set(server.resources) == {"a://0", "a://1", "a://2", "a://4"}
    assert set(server.resource_templates) == {"a0://{x}", "a1://{x}", "a3://{x}", "a4://{x}"}


async def test_updates_reach_who_asked_for_them():
    """Updates go only to subscribers of that URI, and to connections with notify_all_updates=True."""
    server = library()
    watching, idle, every = RecordingChannel(), RecordingChannel(), RecordingChannel()
    everything = server.connect(every, notify_all_updates=True)
    async with connected(server, watching) as client, connected(server, idle):
        for uri in ("config://app", "book://1"):
            assert (await client.request("resources/subscribe", {"uri": uri}))["result"] == {}
        for uri in ("config://app", "book://1", "book://2"):
            server.resource_updated(uri)
        await anyio.wait_all_tasks_blocked()
        method = "notifications/resources/updated"
        assert watching.told == [
            {"jsonrpc": "2.0", "method": method, "params": {"uri": uri}}
            for uri in ("config://app", "book://1")
        ]
        assert (await client.request("resources/unsubscribe", {"uri": "book://1"}))["result"] == {}
        await anyio.to_thread.run_sync(server.resource_updated, "book://1")
        server.resource_updated("config://app")
        await anyio.wait_all_tasks_blocked()
        assert [each["params"]["uri"] for each in watching.told[2:]] == ["config://app"]
        assert (await client.request("resources/subscribe", {"uri": "no://where"}))["error"]["code"] == -32002
        while len(every.told) < 5:
            await anyio.lowlevel.checkpoint()
    assert idle.told == []
    server.resource_updated("book://1")  # too late: the connection is closed before the notification is sent
    await everything.aclose()
    server.resource_updated("book://1")
    await anyio.wait_all_tasks_blocked()
    assert len(every.told) == 5


# Definitions.


def needs_id(id: int) -> str:
    return ""


def takes_many(*parts: str) -> str:
    return ""


def yields():
    yield 1


@pytest.mark.parametrize(
    ("uri", "function", "settings", "what"),
    [
        ("a://{x", needs_id, {}, "resource 'a://{x': 'a://{x' has an unmatched brace"),
        ("nowhere", needs_id, {}, "scheme"),
        ("a://{other}", needs_id, {}, "names 'other', which the function does not take: add a parameter"),
        ("a://b", needs_id, {}, "needs 'id', which the URI does not give: put {id}"),
        ("a://b", takes_many, {}, "resource 'a://b': parameter '*parts': use one parameter"),
        ("a://b", yields, {}, "generator"),
        ("a://b", "text", {}, "resource 'a://b': expected a function, got 'text'"),
        ("a://b", lambda: 1, {"meta": 5}, "meta must be a dict, got 5"),
        ("a://b", lambda: 1, {"description": 5}, "description must be a string"),
        ("a://b", lambda: 1, {"timeout": 0}, "timeout"),
        ("a://b", lambda: 1, {"size": "big"}, "size"),
        ("a://{id}", needs_id, {"size": 5}, "size is for a single resource"),
        ("a://b", lambda: 1, {"annotations": {"priority": 7}}, "priority"),
        ("a://b", lambda: 1, {"icons": ["https://x/i"]}, "icon"),
        ("a://b", lambda: 1, {"tittle": "x"}, "a resource has no setting tittle: it has annotations"),
        ("a://{id}", needs_id, {"complete": {"ids": []}}, "complete names 'ids'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_definitions_that_cannot_work(uri, function, settings, what):
    """The error is raised by the definition, and says what is wrong, where, and what to do."""
    server = ToolServer("s")
    with pytest.raises(ToolDefinitionError) as caught:
        server.add_resource(uri, function, **settings)
    assert what in str(caught.value)
    assert not server.resources
    assert not server.resource_templates


def test_a_decorator_without_an_address():
    """The error of bare `@server.resource` says that it needs a URI."""
    with pytest.raises(ToolDefinitionError, match="needs its URI"):
        ToolServer("s").resource(needs_id)


def test_addresses_that_are_taken():
    """The same URI, or a template that matches the same URIs, is refused; replace=True replaces."""
    server = ToolServer("s")
    server.add_resource("a://b", lambda: 1, name="r")
    server.add_resource("a://{x}", lambda x: 1, name="t")
    with pytest.raises(ToolDefinitionError, match="already has it; replace=True"):
        server.add_resource("a://b", lambda: 2, name="r")
    with pytest.raises(ToolDefinitionError, match="already has 'a://{x}', which matches the same URIs"):
        server.add_resource("a://{y}", lambda y: 2, name="t", replace=True)
    new = server.add_resource("a://{x}", lambda x: 2, name="new", replace=True)
    assert server.resource_templates == {"a://{x}": new}
    with pytest.raises(KeyError, match="Did you mean 'a://b'"):
        server.remove_resource("a://bb")


def test_the_decorated_function_stays_a_function():
    """The decorator returns the function, and the mappings of a server are read-only."""
    server = ToolServer("s")
    assert server.resource("a://{id}")(needs_id) is needs_id
    with pytest.raises(TypeError):
        server.resource_templates["x"] = None


# Read by the classes of `mcp`.


@pytest.mark.parametrize(
    ("method", "params", "model"),
    [
        ("initialize", {}, mcp.types.InitializeResult),
        ("resources/list", {}, mcp.types.ListResourcesResult),
        ("resources/templates/list", {}, mcp.types.ListResourceTemplatesResult),
        ("resources/read", {"uri": "config://app"}, mcp.types.ReadResourceResult),
        ("resources/read", {"uri": "bytes://"}, mcp.types.ReadResourceResult),
        ("prompts/list", {}, mcp.types.ListPromptsResult),
        ("prompts/get", {"name": "write", "arguments": {"style": "full"}}, mcp.types.GetPromptResult),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "write"}, "argument": {"name": "style", "value": ""}},
            mcp.types.CompleteResult,
        ),
    ],
    ids=["initialize", "list", "templates", "text", "blob", "prompts", "prompt", "complete"],
)
async def test_the_official_classes_take_all_of_it(method, params, model):
    """The classes of `mcp` read every result, and know every field in it."""
    server = library()
    server.add_resource("bytes://", lambda: b"x", name="bytes")

    @server.prompt(title="Write", icons=[{"src": "https://x/i"}], meta={"m": 1})
    def write(
        style: Annotated[Literal["brief", "full"], Field(title="Style", description="How.")],
    ) -> list[object]:
        """Write."""
        return [style, ("assistant", Image(PNG)), Resource("a://b", text="t")]

    async with connected(server) as client:
        result = (await client.request(method, params))["result"]
    known = model.model_validate(result).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert known == result


# Through the public test client.


async def test_the_test_client_reads_a_tool_server():
    """The client of `connect()` lists, reads and subscribes to the resources of a `ToolServer`."""
    server = library()
    with anyio.fail_after(20):
        async with connect(server) as client:
            (listed,) = await client.list_resources()
            assert (listed.uri, listed.name, listed.mime_type) == ("config://app", "config", "text/toml")
            (template,) = await client.list_resource_templates()
            assert (template.uri_template, template.description) == ("book://{id}{?page}", "One book.")
            (content,) = await client.read_resource("config://app")
            assert (content.text, content.mime_type) == ("depth = 3", "text/toml")
            await client.subscribe("config://app")
            server.resource_updated("config://app")
            await anyio.wait_all_tasks_blocked()
            assert [each.params for each in client.notifications] == [{"uri": "config://app"}]
            await client.unsubscribe("config://app")
            server.resource_updated("config://app")
            await anyio.wait_all_tasks_blocked()
            assert len(client.notifications) == 1
