"""The cases that the design documents name: malformed messages over both routes, servers in options."""

import json

import anyio
import mcp.types as t
import orjson
import pytest
from mcp.server import Server

from toolwire import ClaudeAgentOptions, ClaudeSDKClient, Tool, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel, Unanswerable
from toolwire.mcp.foreign.connection import ForeignServer
from toolwire.options.mcp_servers import split_servers
from toolwire.tools.schema.arguments import InvalidArguments

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


async def add(arguments):
    return str(arguments["a"] + arguments["b"])


async def broken(arguments):
    raise RuntimeError("tool execution failed")


async def wrong(arguments):
    return object()


def direct():
    tools = {"add": add, "broken": broken, "wrong": wrong}
    return ToolServer("test", tools=[Tool(name, "", SCHEMA, handler) for name, handler in tools.items()])


def foreign():
    """Return a server that handles the same tools, made with the `mcp` package."""

    async def list_tools(context, params):
        return t.ListToolsResult(tools=[t.Tool(name="add", input_schema=SCHEMA)])

    async def call_tool(context, params):
        if params.name == "broken":
            raise RuntimeError("tool execution failed")
        if params.name == "wrong":
            return "wrong type"
        return t.CallToolResult(content=[])

    return ForeignServer(Server("test", on_list_tools=list_tools, on_call_tool=call_tool))


def nothing_registered():
    return ForeignServer(Server("empty"))


async def ask(server, message):
    connection = server.connect(ClientChannel())
    with anyio.fail_after(20):
        await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        await connection.answer({"jsonrpc": "2.0", "method": "notifications/initialized"})
        try:
            return await connection.answer(message)
        finally:
            await connection.aclose()


def call(name, arguments=None):
    params = {"name": name, "arguments": arguments or {"a": 1, "b": 2}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


ROUTES = pytest.mark.parametrize("server", [direct, foreign], ids=["direct", "bridged"])


async def test_invalid_json():
    """Document 000, 1: bytes that are no JSON get a parse error with details."""
    connection = direct().connect(ClientChannel())
    error = orjson.loads(await connection.answer_bytes(b"{invalid json"))["error"]
    assert error["code"] == -32700
    assert error["data"]["details"]
    await connection.aclose()


@ROUTES
async def test_unknown_method(server):
    """Document 000, 2: an unknown method gets the error "method not found"."""
    answer = await ask(server(), {"jsonrpc": "2.0", "id": 1, "method": "unknown/method"})
    assert answer["error"]["code"] == -32601


@ROUTES
async def test_missing_tool_name(server):
    """Document 000, 3: a `tools/call` without a name gets the error "invalid params"."""
    answer = await ask(server(), {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})
    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("server", "method"),
    [(direct, "prompts/list"), (nothing_registered, "tools/list")],
    ids=["direct", "bridged"],
)
async def test_handler_not_registered(server, method):
    """Document 000, 4: a method that the server has no handler for gets the error "method not found"."""
    answer = await ask(server(), {"jsonrpc": "2.0", "id": 1, "method": method})
    assert answer["error"]["code"] == -32601


@ROUTES
async def test_handler_returns_error(server):
    """Document 000, 5: a tool's failure is reported as an error result or an error response."""
    answer = await ask(server(), call("broken"))
    told = answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]
    assert "tool execution failed" in told or answer["error"]["code"] == -32603


@ROUTES
async def test_invalid_handler_result_type(server):
    """Document 000, 6: a result of a wrong type is an internal error."""
    answer = await ask(server(), call("wrong"))
    assert answer["error"]["code"] == -32603


@ROUTES
@pytest.mark.parametrize("message", [[], "x", {"jsonrpc": "2.0", "id": None, "method": "ping"}])
async def test_what_no_reply_fits(server, message):
    """R21: a message that is no object, or that has an id no response can carry, raises Unanswerable."""
    with pytest.raises(Unanswerable):
        await ask(server(), message)


def test_schema_validation_success():
    """Document 003: valid input passes."""
    assert Tool("add", "Add numbers", SCHEMA, add).parameters.validate({"a": 5, "b": 3}) == {"a": 5, "b": 3}


@pytest.mark.parametrize("arguments", [{}, {"a": "text", "b": 1}])
def test_schema_validation_failure(arguments):
    """Document 003: a missing field and a wrong type are refused."""
    with pytest.raises(InvalidArguments, match="Validation failed"):
        Tool("add", "Add numbers", SCHEMA, add).parameters.validate(arguments)


async def test_validation_error():
    """Document 003: invalid arguments get an error response, and the handler never runs."""
    answer = await ask(direct(), call("broken", {"a": 1}))
    assert answer["error"]["code"] == -32602
    assert "Validation failed" in answer["error"]["message"]


def test_sdk_server_in_options_and_extracted():
    """Document 003: the options keep the server object, and split_servers() finds it in them."""
    server = ToolServer("test")
    options = ClaudeAgentOptions(mcp_servers={"test": server, "other": {"command": "x"}})
    instances, configs = split_servers(options.mcp_servers)
    assert instances == {"test": server}
    assert configs == {"test": {"type": "sdk", "name": "test"}, "other": {"command": "x"}}


async def test_captured_argv_and_initialize(play):
    """Documents 002 and 003: the CLI gets type and name, never the object, and no --mcp-config without servers."""
    servers = {
        "calc": ToolServer("calc", always_load=True),
        "web": {"type": "http", "url": "http://localhost:1"},
    }
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo", mcp_servers=servers)) as client:
            info = await client.get_server_info()
        async with ClaudeSDKClient(play("echo")) as client:
            without = await client.get_server_info()
    argv = info["argv"]
    config = json.loads(argv[argv.index("--mcp-config") + 1])["mcpServers"]
    assert config == {"calc": {"type": "sdk", "name": "calc", "alwaysLoad": True}, "web": servers["web"]}
    assert info["seen"] == {"subtype": "initialize", "hooks": None}
    assert "--mcp-config" not in without["argv"]


async def test_captured_policies(play):
    """R18: tools with a policy are announced in the initialize request."""
    server = ToolServer("s")
    server.tool(lambda: 1, name="t", policy="always_ask")
    with anyio.fail_after(20):
        async with ClaudeSDKClient(play("echo", mcp_servers={"s": server})) as client:
            seen = (await client.get_server_info())["seen"]
    assert seen["sdkMcpServers"] == ["s"]
    assert seen["sdkMcpServerConfigs"] == {"s": {"tools": [{"name": "t", "permission_policy": "always_ask"}]}}
