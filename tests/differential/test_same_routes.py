"""The direct route and `mcp`'s own server give the same answers to the same frames, except for `REASONS`."""

from typing import Any

import anyio
import mcp.types as t
import pytest
from mcp.server import Server

from toolwire import Tool, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.mcp.foreign.connection import ForeignServer

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


def direct():
    async def handler(arguments):
        if arguments["b"] == 0:
            return {"content": [{"type": "text", "text": "division by zero"}], "isError": True}
        return {
            "content": [{"type": "text", "text": str(arguments["a"] / arguments["b"])}],
            "_meta": {"x": 1},
        }

    hints = {"readOnlyHint": True}
    return ToolServer(
        "calc", "1.2.3", [Tool("divide", "Divide.", SCHEMA, handler, hints)], instructions="Exact."
    )


def foreign():
    """Return the same server, made with nothing but the `mcp` package."""

    async def list_tools(context, params):
        hints = t.ToolAnnotations(read_only_hint=True)
        tool = t.Tool(name="divide", description="Divide.", input_schema=SCHEMA, annotations=hints)
        return t.ListToolsResult(tools=[tool])

    async def call_tool(context, params):
        given = params.arguments or {}
        if given["b"] == 0:
            return t.CallToolResult(
                content=[t.TextContent(type="text", text="division by zero")], is_error=True
            )
        quotient = str(given["a"] / given["b"])
        return t.CallToolResult(content=[t.TextContent(type="text", text=quotient)], _meta={"x": 1})

    server = Server(
        "calc", version="1.2.3", instructions="Exact.", on_list_tools=list_tools, on_call_tool=call_tool
    )
    return ForeignServer(server)


def request(method, params=None, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


# What mcp's own server words differently, or does not check. Each with its reason.
REASONS = {
    "capabilities": "ours can have tools added at any time and says so; mcp's has what its handlers are",
    "isError": "mcp writes isError: false, which is the default, in full",
    "error.message": "each library has its own words; ours name what is wrong",
    "error.data": "ours says which method or tool, and of which server",
}


def comparable(answer):
    """Return an answer without what `REASONS` excuses."""
    if answer is None or "error" in answer:
        return answer and {**answer, "error": answer["error"]["code"]}
    result = {key: value for key, value in answer["result"].items() if key != "capabilities"}
    if result.get("isError") is False:
        del result["isError"]
    result.pop("resultType", None)
    return {**answer, "result": result}


FRAMES = [
    request("initialize", INITIALIZE, 0),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    request("tools/list"),
    request("tools/list", {}),
    request("tools/call", {"name": "divide", "arguments": {"a": 6, "b": 3}}, "text id"),
    request("tools/call", {"name": "divide", "arguments": {"a": 6, "b": 0}}, 2.5),
    request("ping"),
    request("no/such/method"),
    request("resources/list"),
    request("tools/call", {"arguments": {}}),
    request("ping", [1]),
    {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": 1, "method": 5},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "method": "notifications/nobody/knows"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
]


async def test_the_same_answers():
    """Frame by frame, on one connection of each kind."""
    ours, theirs = direct().connect(ClientChannel()), foreign().connect(ClientChannel())
    with anyio.fail_after(30):
        for frame in FRAMES:
            expected, given = await theirs.answer(frame), await ours.answer(frame)
            assert comparable(given) == comparable(expected), frame
        await theirs.aclose()
    await ours.aclose()


async def test_capabilities_differ_as_said():
    """Both offer tools; ours also announces changes and takes logging levels."""
    ours, theirs = direct().connect(ClientChannel()), foreign().connect(ClientChannel())
    with anyio.fail_after(30):
        (own, other) = [
            (await each.answer(request("initialize", INITIALIZE)))["result"]["capabilities"]
            for each in (ours, theirs)
        ]
        await theirs.aclose()
    await ours.aclose()
    assert own == {"tools": {"listChanged": True}, "logging": {}}
    assert "tools" in other
