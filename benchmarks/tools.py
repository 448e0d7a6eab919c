"""The tools that the drivers offer, written as a user of each SDK would write them.

Each `make_NAME` function takes the module of an SDK and returns servers by name; a case selects one by NAME.
"""

from typing import Any, Literal

Servers = dict[str, Any]

NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "country": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"enum": ["metric", "imperial"]},
        "detail": {"type": "boolean"},
    },
    "required": ["city", "country", "days", "units", "detail"],
}
FIELDS = {f"field_{number}": (str, int, float, bool)[number % 4] for number in range(100)}
FORM = {
    "type": "object",
    "properties": {
        name: {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[kind]}
        for name, kind in FIELDS.items()
    },
    "required": list(FIELDS),
}
FILLED = {name: {str: "text", int: 7, float: 1.5, bool: True}[kind] for name, kind in FIELDS.items()}
FORECAST = {"city": "Ulm", "country": "Germany", "days": 3, "units": "metric", "detail": True}


def _is_official(sdk: Any) -> bool:
    return bool(sdk.__name__ == "claude_agent_sdk")


def _make_text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def make_none(_sdk: Any) -> Servers:
    """Return no servers, for a conversation without tools."""
    return {}


def make_typed(sdk: Any) -> Servers:
    """Return a server with a typed async tool that adds two numbers."""
    if _is_official(sdk):

        @sdk.tool("add", "Add two numbers.", {"a": float, "b": float})
        async def add(args: dict[str, Any]) -> dict[str, Any]:
            return _make_text(str(args["a"] + args["b"]))

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[add])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    return {"calc": server}


def make_sync(sdk: Any) -> Servers:
    """Return a server with sync tools: one in a worker thread, one on the event loop.

    The official SDK has no such tools.
    """
    server = sdk.ToolServer("calc")

    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    server.tool(name="thread")(add)
    server.tool(name="inline", inline=True)(add)
    return {"calc": server}


def make_schemas(sdk: Any) -> Servers:
    """Return a server with raw schemas, the same for both SDKs, and typed tools with 5 and 100 properties."""

    @sdk.tool("raw_2", "Add two numbers.", NUMBERS)
    async def raw_2(args: dict[str, Any]) -> dict[str, Any]:
        return _make_text(str(args["a"] + args["b"]))

    @sdk.tool("raw_5", "Tell the weather.", WEATHER)
    async def raw_5(args: dict[str, Any]) -> dict[str, Any]:
        return _make_text("{city}, {country}: fine for {days} days ({units}, {detail})".format(**args))

    @sdk.tool("raw_100", "Fill in a form.", FORM)
    async def raw_100(args: dict[str, Any]) -> dict[str, Any]:
        return _make_text(f"{len(args)} fields")

    given = [raw_2, raw_5, raw_100]
    if _is_official(sdk):
        words = {"city": str, "country": str, "days": int, "units": str, "detail": bool}
        given.append(sdk.tool("typed_5", "Tell the weather.", words)(raw_5.handler))
        given.append(sdk.tool("typed_100", "Fill in a form.", FIELDS)(raw_100.handler))
        return {"calc": sdk.create_sdk_mcp_server("calc", tools=given)}
    server = sdk.ToolServer("calc", tools=given)

    @server.tool
    async def typed_5(
        city: str, country: str, days: int, units: Literal["metric", "imperial"], detail: bool
    ) -> str:
        """Tell the weather."""
        return f"{city}, {country}: fine for {days} days ({units}, {detail})"

    parameters = ", ".join(f"{name}: {kind.__name__}" for name, kind in FIELDS.items())
    written: dict[str, Any] = {}
    exec(f"async def typed_100({parameters}) -> str: return f'{{len(locals())}} fields'", written)  # noqa: S102
    server.tool(description="Fill in a form.")(written["typed_100"])
    return {"calc": server}


def make_bridged(_sdk: Any) -> Servers:
    """Return a low-level server of the `mcp` package, the same for both SDKs."""
    from mcp.server import Server  # noqa: PLC0415 - heavy, and only here
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool  # noqa: PLC0415

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="add", description="Add two numbers.", input_schema=NUMBERS)])

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        total = params.arguments["a"] + params.arguments["b"]
        return CallToolResult(content=[TextContent(type="text", text=str(total))])

    server = Server("calc", on_list_tools=list_tools, on_call_tool=call_tool)
    return {"calc": {"type": "sdk", "name": "calc", "instance": server}}


def make_mcpserver(_sdk: Any) -> Servers:
    """Return an `MCPServer` of the `mcp` package. The official SDK accepts only its low-level server."""
    from mcp.server import MCPServer  # noqa: PLC0415 - heavy, and only here

    server = MCPServer("calc")

    @server.tool()
    async def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    return {"calc": server}


def make_echo(sdk: Any) -> Servers:
    """Return a server with a tool that returns the text it gets."""
    if _is_official(sdk):

        @sdk.tool("echo", "Say it again.", {"text": str})
        async def echo(args: dict[str, Any]) -> dict[str, Any]:
            return _make_text(args["text"])

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[echo])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    return {"calc": server}


def make_many(sdk: Any, count: int) -> Servers:
    """Return a server with `count` tools that have a raw schema, the same for both SDKs."""

    async def handler(args: dict[str, Any]) -> dict[str, Any]:
        return _make_text(str(args["a"] + args["b"]))

    given = [sdk.tool(f"add_{number}", "Add two numbers.", dict(NUMBERS))(handler) for number in range(count)]
    return {"calc": sdk.create_sdk_mcp_server("calc", tools=given)}


def make_functions(sdk: Any, count: int) -> Servers:
    """Return a server with `count` typed functions as tools."""
    server = sdk.ToolServer("calc")

    def make_function() -> Any:
        async def add(a: float, b: float) -> float:
            """Add two numbers."""
            return a + b

        return add

    for number in range(count):
        server.tool(name=f"add_{number}")(make_function())
    return {"calc": server}


def make_wrong(sdk: Any) -> Servers:
    """Return a server whose tool `add` gives wrong results, which a run must detect."""
    if _is_official(sdk):

        @sdk.tool("add", "Add two numbers.", {"a": float, "b": float})
        async def add(args: dict[str, Any]) -> dict[str, Any]:
            return _make_text(str(args["a"] - args["b"]))

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[add])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a - b

    return {"calc": server}
