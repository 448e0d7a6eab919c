"""Wrappers change names, and nothing else; they nest, and take any server."""

import anyio
import pytest
from mcp.server import MCPServer

from toolwire import ToolDefinitionError, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
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
    """What is listed can be called by its shown name, listed before or not; the inner name cannot."""
    connection = wrapped().connect(ClientChannel())
    with anyio.fail_after(10):
        if listed:
            assert await names(connection) == shown
        assert (await call(connection, answer[0]))["result"]["content"][0]["text"] == answer[1]
        assert (await call(connection, "no_such"))["error"]["code"] == -32602
        assert (await ask(connection, "tools/call", {"name": 5}))["error"]["code"] == -32602
        await connection.aclose()


async def test_a_hidden_tool_cannot_be_called():
    """Filtering is not only for show."""
    connection = only(ours(), "add").connect(ClientChannel())
    assert (await call(connection, "sub"))["error"]["code"] == -32602
    await connection.aclose()


async def test_a_foreign_server_can_be_wrapped_and_combined():
    """A server of the `mcp` package beside ours."""
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
    """Codes are as without a wrapper."""
    for wrapped in (prefix(ours(), "x"), combine("c", ours())):
        connection = wrapped.connect(ClientChannel())
        assert (await connection.answer({"id": 1, "method": "ping"}))["error"]["code"] == -32600
        assert (await ask(connection, "no/such"))["error"]["code"] == -32601
        assert await connection.answer({"jsonrpc": "2.0", "method": "notifications/x"}) is None
        await connection.aclose()


async def test_cancel_goes_to_the_server_of_the_newest_call():
    """Two servers behind one name, two calls with one id: the newest is cancelled, wherever it runs."""
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
    """A tool that must be asked about is so under its new name."""
    assert prefix(ours(), "x_").cli_policies() == [{"name": "x_add", "permission_policy": "always_ask"}]
    assert without(ours(), "add").cli_policies() == []


@pytest.mark.parametrize("bad", [lambda: combine("c"), lambda: combine("", ours())])
def test_nothing_to_combine(bad):
    """A combination needs a name and a server."""
    with pytest.raises(ToolDefinitionError):
        bad()
