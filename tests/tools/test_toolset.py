"""Wrappers change only names and which tools are listed; they can be nested, and wrap any server."""

import anyio
import pytest
from mcp.server import MCPServer

from toolwire import Tool, ToolDefinitionError, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.mcp.serve.fast_path import ToolLists
from toolwire.mcp.serve.start import host_for
from toolwire.wrap import combine, only, prefix, rename, without

pytestmark = pytest.mark.anyio


def ours(name="ours"):
    server = ToolServer(name, instructions=f"I am {name}.")
    server.tool(lambda: f"add of {name}", name="add", policy="always_ask")
    server.tool(lambda: f"sub of {name}", name="sub")
    return server


def foreign():
    server = MCPServer("foreign")

    @server.tool()
    async def find(title: str) -> str:
        """Find."""
        return f"found {title}"

    return server


async def ask(connection, method, params=None, id=1):
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return await connection.answer(message)


async def names(connection):
    return [each["name"] for each in (await ask(connection, "tools/list"))["result"]["tools"]]


async def call(connection, name, **arguments):
    return await ask(connection, "tools/call", {"name": name, "arguments": arguments})


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.mark.parametrize(
    ("wrapped", "shown", "answer"),
    [
        (lambda: prefix(ours(), "x_"), ["x_add", "x_sub"], ("x_add", "add of ours")),
        (lambda: rename(ours(), {"add": "plus"}), ["plus", "sub"], ("plus", "add of ours")),
        (lambda: only(ours(), "a*"), ["add"], ("add", "add of ours")),
        (lambda: without(ours(), "a*"), ["sub"], ("sub", "sub of ours")),
        (lambda: prefix(only(ours(), "sub"), "y_"), ["y_sub"], ("y_sub", "sub of ours")),
        (
            lambda: combine("both", prefix(ours("a"), "a_"), ours("b")),
            ["a_add", "a_sub", "add", "sub"],
            ("add", "add of b"),
        ),
        (lambda: combine("both", ours("a"), ours("b")), ["add", "sub"], ("add", "add of a")),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
async def test_names_and_calls(wrapped, shown, answer, listed):
    """Each tool is called by its shown name, listed before or not; an unknown name is an error."""
    connection = wrapped().connect(ClientChannel())
    with anyio.fail_after(10):
        if listed:
            assert await names(connection) == shown
        assert (await call(connection, answer[0]))["result"]["content"][0]["text"] == answer[1]
        assert (await call(connection, "no_such"))["error"]["code"] == -32602
        assert (await ask(connection, "tools/call", {"name": 5}))["error"]["code"] == -32602
        await connection.aclose()


async def test_a_hidden_tool_cannot_be_called():
    """Filters also apply to calls, not only to the list."""
    connection = only(ours(), "add").connect(ClientChannel())
    assert (await call(connection, "sub"))["error"]["code"] == -32602
    await connection.aclose()


async def test_a_foreign_server_can_be_wrapped_and_combined():
    """A server of the `mcp` package can be prefixed, and combined with a `ToolServer`."""
    connection = combine("all", prefix(foreign(), "book_"), ours()).connect(ClientChannel())
    with anyio.fail_after(10):
        told = (await ask(connection, "initialize", INITIALIZE))["result"]
        assert told["serverInfo"]["name"] == "all"
        assert told["instructions"] == "I am ours."
        await connection.answer({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert await names(connection) == ["book_find", "add", "sub"]
        assert (await call(connection, "book_find", title="Emma"))["result"]["content"][0][
            "text"
        ] == "found Emma"
        await connection.aclose()


async def test_malformed_messages_get_the_same_answers():
    """They get the same error codes as without a wrapper."""
    for wrapped in (prefix(ours(), "x"), combine("c", ours())):
        connection = wrapped.connect(ClientChannel())
        assert (await connection.answer({"id": 1, "method": "ping"}))["error"]["code"] == -32600
        assert (await ask(connection, "no/such"))["error"]["code"] == -32601
        assert await connection.answer({"jsonrpc": "2.0", "method": "notifications/x"}) is None
        await connection.aclose()


async def test_cancel_goes_to_the_server_of_the_newest_call():
    """Of two calls with one id in two combined servers, the newest is cancelled."""
    release, running, cancelled = anyio.Event(), [], []

    def slow(name):
        server = ToolServer(name)

        @server.tool(name=f"slow_{name}")
        async def work() -> str:
            running.append(name)
            try:
                await release.wait()
            except BaseException:
                cancelled.append(name)
                raise
            return name

        return server

    connection = combine("c", slow("a"), slow("b")).connect(ClientChannel())
    answers = {}
    with anyio.fail_after(10):
        await names(connection)
        async with anyio.create_task_group() as group:

            async def run(name):
                answers[name] = await ask(connection, "tools/call", {"name": f"slow_{name}"}, id=4)

            for count, name in enumerate("ab", start=1):
                group.start_soon(run, name)
                while len(running) < count:
                    await anyio.lowlevel.checkpoint()
            params = {"requestId": 4}
            await connection.answer({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            release.set()
    assert cancelled == ["b"]
    assert answers["a"]["result"]["content"][0]["text"] == "a"
    await connection.aclose()


def test_policies_follow_the_names():
    """The policy of a tool applies to its new name."""
    assert prefix(ours(), "x_").cli_policies() == [{"name": "x_add", "permission_policy": "always_ask"}]
    assert without(ours(), "add").cli_policies() == []


@pytest.mark.parametrize("bad", [lambda: combine("c"), lambda: combine("", ours())])
def test_nothing_to_combine(bad):
    """A combination needs a name and a server."""
    with pytest.raises(ToolDefinitionError):
        bad()


@pytest.mark.parametrize("mapping", [{"add": "sub"}, {"add": "x", "sub": "x"}])
def test_two_tools_of_one_name_are_refused(mapping):
    """The error is raised when the wrapper is made, and has both names."""
    with pytest.raises(ToolDefinitionError, match="two tools would be called '(sub|x)': 'add' and 'sub'"):
        rename(ours(), mapping)


def test_names_can_change_places():
    """A name is free if its tool is renamed itself, left out, or does not exist."""
    assert list(rename(ours(), {"add": "sub", "sub": "add"}).tools) == ["sub", "add"]
    assert list(rename(without(ours(), "sub"), {"add": "sub"}).tools) == ["sub"]
    assert list(rename(ours(), {"add": "x", "other": "x"}).tools) == ["x", "sub"]


@pytest.mark.parametrize("kind", ["later", "foreign", "served"])
async def test_two_tools_of_one_name_are_not_listed(kind):
    """If the clash only shows later (a new tool, a foreign server), `tools/list` is an error with both names."""
    with anyio.fail_after(60):
        if kind == "foreign":
            server = foreign()
            server.tool(name="search")(lambda: "")
            renamed, pair = rename(server, {"find": "search"}), "'find' and 'search'"
        else:
            inner = ours()
            renamed, pair = rename(inner, {"add": "plus"}), "'add' and 'plus'"
            inner.tool(lambda: "", name="plus")
        if kind == "served":
            host = host_for(renamed)
            async with host.open():
                assert ToolLists(host).page("2025-11-25", None) is None
        connection = renamed.connect(ClientChannel())
        try:
            await ask(connection, "initialize", INITIALIZE)
            answer = await ask(connection, "tools/list")
            assert pair in answer["error"]["message"]
        finally:
            await connection.aclose()


def numbered(name, count):
    return ToolServer(name, tools=[Tool(f"{name}_{each}", "", {}, lambda _: None) for each in range(count)])


async def list_pages(connection):
    pages, cursor = [], None
    while True:
        reply = await ask(connection, "tools/list", {} if cursor is None else {"cursor": cursor})
        pages.append([each["name"] for each in reply["result"]["tools"]])
        if (cursor := reply["result"].get("nextCursor")) is None:
            return pages


@pytest.mark.parametrize(
    ("wrap", "count"),
    [
        (lambda server: combine("all", server, numbered("b", 700)), 3_200),
        (lambda server: prefix(server, "x_"), 2_500),
        (lambda server: combine("all", prefix(server, "x_")), 2_500),
    ],
)
async def test_a_wrapped_list_has_pages_too(wrap, count):
    """A page has at most a thousand tools, and is encoded once."""
    connection = wrap(numbered("a", 2_500)).connect(ClientChannel())
    pages = await list_pages(connection)
    assert sum(map(len, pages)) == len({name for page in pages for name in page}) == count
    assert max(map(len, pages)) == 1_000
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "1"}}
    first, again = (connection.begin(message, encoded=True) for _ in range(2))
    assert first["result"] is again["result"]
    assert (await ask(connection, "tools/list", {"cursor": "99"}))["error"][
        "message"
    ] == "Unknown cursor: '99'"
