"""The tools that are called, as a user of each SDK would write them. Each function gives servers by name."""

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


def _official(sdk: Any) -> bool:
    return bool(sdk.__name__ == "claude_agent_sdk")


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def none(_sdk: Any) -> Servers:
    """A conversation without tools."""
    return {}


def typed(sdk: Any) -> Servers:
    """Two numbers, async."""
    if _official(sdk):

        @sdk.tool("add", "Add two numbers.", {"a": float, "b": float})
        async def add(args: dict[str, Any]) -> dict[str, Any]:
            return _text(str(args["a"] + args["b"]))

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[add])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    return {"calc": server}


def sync(sdk: Any) -> Servers:
    """Sync: in a worker thread, and on the event loop. The official SDK has no such tools."""
    server = sdk.ToolServer("calc")

    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    server.tool(name="thread")(add)
    server.tool(name="inline", inline=True)(add)
    return {"calc": server}


def schemas(sdk: Any) -> Servers:
    """Raw schemas, which both take in the same words; and typed tools with 5 and 100 properties."""

    @sdk.tool("raw_2", "Add two numbers.", NUMBERS)
    async def raw_2(args: dict[str, Any]) -> dict[str, Any]:
        return _text(str(args["a"] + args["b"]))

    @sdk.tool("raw_5", "Tell the weather.", WEATHER)
    async def raw_5(args: dict[str, Any]) -> dict[str, Any]:
        return _text("{city}, {country}: fine for {days} days ({units}, {detail})".format(**args))

    @sdk.tool("raw_100", "Fill in a form.", FORM)
    async def raw_100(args: dict[str, Any]) -> dict[str, Any]:
        return _text(f"{len(args)} fields")

    given = [raw_2, raw_5, raw_100]
    if _official(sdk):
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


def bridged(_sdk: Any) -> Servers:
    """A low-level server of the `mcp` package, the same object in both."""
    from mcp.server import Server  # noqa: PLC0415 - heavy, and only here
    from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool  # noqa: PLC0415

    async def listed(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="add", description="Add two numbers.", input_schema=NUMBERS)])

    async def called(_context: Any, params: Any) -> CallToolResult:
        total = params.arguments["a"] + params.arguments["b"]
        return CallToolResult(content=[TextContent(type="text", text=str(total))])

    server = Server("calc", on_list_tools=listed, on_call_tool=called)
    return {"calc": {"type": "sdk", "name": "calc", "instance": server}}


def mcpserver(_sdk: Any) -> Servers:
    """The `mcp` package's own decorators. The official SDK takes no such server, only the low-level one."""
    from mcp.server import MCPServer  # noqa: PLC0415 - heavy, and only here

    server = MCPServer("calc")

    @server.tool()
    async def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    return {"calc": server}


def echo(sdk: Any) -> Servers:
    """Gives back the text that it gets."""
    if _official(sdk):

        @sdk.tool("echo", "Say it again.", {"text": str})
        async def echo(args: dict[str, Any]) -> dict[str, Any]:
            return _text(args["text"])

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[echo])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    return {"calc": server}


def many(sdk: Any, count: int) -> Servers:
    """That many tools with a raw schema each, written in the same words for both."""

    async def handler(args: dict[str, Any]) -> dict[str, Any]:
        return _text(str(args["a"] + args["b"]))

    given = [sdk.tool(f"add_{number}", "Add two numbers.", dict(NUMBERS))(handler) for number in range(count)]
    return {"calc": sdk.create_sdk_mcp_server("calc", tools=given)}


def functions(sdk: Any, count: int) -> Servers:
    """That many typed functions."""
    server = sdk.ToolServer("calc")

    def made() -> Any:
        async def add(a: float, b: float) -> float:
            """Add two numbers."""
            return a + b

        return add

    for number in range(count):
        server.tool(name=f"add_{number}")(made())
    return {"calc": server}


def wrong(sdk: Any) -> Servers:
    """Cannot add: what a run must not let through."""
    if _official(sdk):

        @sdk.tool("add", "Add two numbers.", {"a": float, "b": float})
        async def add(args: dict[str, Any]) -> dict[str, Any]:
            return _text(str(args["a"] - args["b"]))

        return {"calc": sdk.create_sdk_mcp_server("calc", tools=[add])}
    server = sdk.ToolServer("calc")

    @server.tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a - b

    return {"calc": server}
