"""Serves the tools with the low-level server of `mcp`: `serve_mcp.py CASE`, where CASE is a JSON object.

The minimal program for that server: no schema is checked, and the list is made once.
"""

import json
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import create_model

from benchmarks.served_tools import add, look_up

_ADD = create_model("Add", a=(float, ...), b=(float, ...)).model_json_schema()
_LOOK_UP = create_model(
    "LookUp", city=(str, ...), country=(str, ""), days=(int, 3), units=(str, "metric"), detail=(bool, False)
).model_json_schema()


def make_server(count: int) -> Any:
    """Return a server with `count` tools."""
    names = [f"look_up_{number}" for number in range(count - 1)]
    others = [types.Tool(name=name, description=look_up.__doc__, input_schema=_LOOK_UP) for name in names]
    first = types.Tool(name="add", description=add.__doc__, input_schema=_ADD)
    tools = types.ListToolsResult(tools=[first, *others])

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return tools

    async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        function = add if params.name == "add" else look_up
        value = await function(**params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(value))])

    return Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Any) -> None:
    """Serve over stdin and stdout."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main(case: dict[str, Any]) -> None:
    """Serve until the process is terminated or its input ends."""
    server = make_server(case["tools"])
    if case["carrier"] == "stdio":
        anyio.run(serve_stdio, server)
        return
    app = server.streamable_http_app(json_response=case.get("json", False))
    uvicorn.run(
        app, host="127.0.0.1", port=case["port"], log_level="warning", access_log=False, loop="asyncio"
    )


main(json.loads(sys.argv[1]))
