"""Serves the tools with `mcp` alone, by its low-level server: `serve_mcp.py CASE`, a JSON object.

The least that can be written with it: no schema is checked, and the list is made once.
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


def made(count: int) -> Any:
    names = [f"look_up_{number}" for number in range(count - 1)]
    others = [types.Tool(name=name, description=look_up.__doc__, input_schema=_LOOK_UP) for name in names]
    first = types.Tool(name="add", description=add.__doc__, input_schema=_ADD)
    tools = types.ListToolsResult(tools=[first, *others])

    async def give(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return tools

    async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        function = add if params.name == "add" else look_up
        value = await function(**params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(value))])

    return Server("bench", on_list_tools=give, on_call_tool=call)


async def over_stdio(server: Any) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main(case: dict[str, Any]) -> None:
    server = made(case["tools"])
    if case["carrier"] == "stdio":
        anyio.run(over_stdio, server)
        return
    app = server.streamable_http_app(json_response=case.get("json", False))
    uvicorn.run(
        app, host="127.0.0.1", port=case["port"], log_level="warning", access_log=False, loop="asyncio"
    )


main(json.loads(sys.argv[1]))
