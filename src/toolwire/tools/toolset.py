"""Small wrappers around anything with tools: prefix, rename, filter, combine.

They work on messages, so they take a `ToolServer` and a foreign MCP server alike, and they nest. A wrapper changes
what `tools/list` shows and puts the name back before a `tools/call` goes on; everything else passes through.

    mcp_servers={"all": combine("all", prefix(github, "gh_"), only(calc, "add", "sub*"))}
"""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from toolwire._protocol.jsonrpc import (
    INVALID_PARAMS,
    ClientChannel,
    Notification,
    Request,
    RpcError,
    classify,
    make_error,
    make_response,
)
from toolwire.errors import ToolDefinitionError
from toolwire.tools.dispatch.interface import Connection, Pending, Reply, Server
from toolwire.tools.names import problem_with


class _Names(Protocol):
    """How a wrapper spells tools: the shown name of an own one, None to hide it."""

    def __call__(self, name: str, /) -> str | None: ...


def prefix(server: object, text: str) -> "Renamed":
    """All tools with `text` in front of their names."""
    return Renamed(server, lambda name: text + name)


def rename(server: object, names: Mapping[str, str]) -> "Renamed":
    """Some tools under other names: old -> new."""
    return Renamed(server, lambda name: names.get(name, name))


def only(server: object, *patterns: str) -> "Renamed":
    """Only the tools that match a pattern (`add`, `get_*`)."""
    return Renamed(server, lambda name: name if _matches(name, patterns) else None)


def without(server: object, *patterns: str) -> "Renamed":
    """All but the tools that match a pattern."""
    return Renamed(server, lambda name: None if _matches(name, patterns) else name)


def combine(name: str, *servers: object) -> "Combined":
    """Several servers as one. Two tools of one name: the first server's is shown; prefix one to have both."""
    return Combined(name, servers)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def as_server(instance: Any) -> Server:
    """Anything that can be connected to: ours as it is, a foreign one bridged."""
    if callable(getattr(instance, "connect", None)):
        ours: Server = instance
        return ours
    from toolwire.mcp.foreign.connection import bridged  # noqa: PLC0415 - loads mcp

    return bridged(instance)


class Renamed:
    """A server whose tools are shown under other names, or not at all."""

    def __init__(self, server: object, shown: _Names) -> None:
        self._server = as_server(server)
        self._shown = shown

    def connect(self, channel: ClientChannel) -> "RenamedConnection":
        """A connection for one client."""
        return RenamedConnection(self._server.connect(channel), self._shown)

    def cli_config(self) -> dict[str, Any]:
        """As the inner server has it."""
        return dict(getattr(self._server, "cli_config", dict)())

    def cli_policies(self) -> list[dict[str, Any]]:
        """Those of the inner server, for the tools that are shown."""
        policies: list[dict[str, Any]] = getattr(self._server, "cli_policies", list)()
        return [
            {**each, "name": name} for each in policies if (name := self._shown(each["name"])) is not None
        ]


class RenamedConnection(Connection):
    """Turns names on the way through."""

    def __init__(self, inner: Connection, shown: _Names) -> None:
        self._inner = inner
        self._shown = shown
        self._own: dict[str, str] = {}  # shown name -> own name, as far as lists have told

    def begin(self, message: Any, *, encoded: bool = False) -> Pending:  # noqa: ARG002 - replies are plain here
        """As the inner connection answers, with the names of this one."""
        return Pending(self._handle, message)

    async def _handle(self, message: Any) -> Reply | None:
        try:
            event = classify(message)
        except RpcError as error:
            return make_error(message["id"], error)
        if isinstance(event, Request) and event.method == "tools/call":
            name = await self._own_name(event.params.get("name"))
            if name is None:
                shown = event.params.get("name")
                return make_error(
                    event.id, RpcError(INVALID_PARAMS, f"Unknown tool: {shown!r}.", {"tool": shown})
                )
            message = {**message, "params": {**event.params, "name": name}}
        answer = await self._inner.answer(message)
        if isinstance(event, Request) and event.method == "tools/list" and answer and "result" in answer:
            answer = {**answer, "result": self._show(answer["result"])}
        return answer

    async def aclose(self) -> None:
        """End the inner connection."""
        await self._inner.aclose()

    def _show(self, result: dict[str, Any]) -> dict[str, Any]:
        tools = []
        for tool in result.get("tools", []):
            shown = self._shown(tool["name"])
            if shown is not None:
                self._own[shown] = tool["name"]
                tools.append(tool if shown == tool["name"] else {**tool, "name": shown})
        return {**result, "tools": tools}

    async def _own_name(self, shown: Any) -> str | None:
        if not isinstance(shown, str):
            return None
        if shown not in self._own:  # called before it was listed, or added since
            async for _page in pages(self.answer):
                pass
        return self._own.get(shown)


class Combined:
    """Several servers under one name."""

    def __init__(self, name: str, servers: tuple[object, ...]) -> None:
        if (problem := problem_with(name)) is not None:
            raise ToolDefinitionError(f"combine: {problem}")
        if not servers:
            raise ToolDefinitionError("combine: no servers given")
        self.name = name
        self._servers = [as_server(server) for server in servers]

    def connect(self, channel: ClientChannel) -> "CombinedConnection":
        """A connection for one client, with one to each server behind it."""
        return CombinedConnection(self.name, [server.connect(channel) for server in self._servers])

    def cli_config(self) -> dict[str, Any]:
        """Loaded at once if one of them is."""
        merged: dict[str, Any] = {}
        for server in self._servers:
            merged |= getattr(server, "cli_config", dict)()
        return merged

    def cli_policies(self) -> list[dict[str, Any]]:
        """Those of all."""
        return [each for server in self._servers for each in getattr(server, "cli_policies", list)()]


class CombinedConnection(Connection):
    """Lists the tools of all, and sends each call where its tool is."""

    def __init__(self, name: str, inner: list[Connection]) -> None:
        self._name = name
        self._inner = inner
        self._home: dict[str, Connection] = {}
        self._open: list[tuple[Any, Connection]] = []  # calls that run, oldest first

    def begin(self, message: Any, *, encoded: bool = False) -> Pending:  # noqa: ARG002 - replies are plain here
        """The first server answers what is not about tools; notifications go to all."""
        return Pending(self._handle, message)

    async def _handle(self, message: Any) -> Reply | None:
        try:
            event = classify(message)
        except RpcError as error:
            return make_error(message["id"], error)
        if isinstance(event, Notification):
            for connection in self._concerned(event):
                await connection.answer(message)
        if not isinstance(event, Request):
            return None
        route = _ROUTES.get(event.method)
        return await self._inner[0].answer(message) if route is None else await route(self, event, message)

    def _concerned(self, event: Notification) -> list[Connection]:
        """Who must hear a notification: all, but a cancellation only the server of the newest call of that id."""
        if event.method != "notifications/cancelled":
            return self._inner
        calls = [connection for each, connection in self._open if each == event.params.get("requestId")]
        return calls[-1:]

    async def aclose(self) -> None:
        """End all connections."""
        for connection in self._inner:
            await connection.aclose()

    async def _initialize(self, request: Request, message: Any) -> dict[str, Any] | None:
        answers = [await connection.answer(message) or {} for connection in self._inner]
        failed = next((answer for answer in answers if "error" in answer), None)
        if failed is not None:
            return failed
        results = [answer["result"] for answer in answers]
        told = [result["instructions"] for result in results if result.get("instructions")]
        merged = {**results[0], "serverInfo": {**results[0]["serverInfo"], "name": self._name}}
        merged["capabilities"] = {"tools": {"listChanged": True}, **results[0].get("capabilities", {})}
        return make_response(request.id, {**merged, "instructions": "\n\n".join(told)} if told else merged)

    async def _list(self, request: Request, _message: Any) -> dict[str, Any]:
        tools: dict[str, Any] = {}
        self._home.clear()
        for connection in self._inner:
            async for page in pages(connection.answer):
                for tool in page:
                    if tools.setdefault(tool["name"], tool) is tool:
                        self._home[tool["name"]] = connection
        return make_response(request.id, {"tools": list(tools.values())})

    async def _call(self, request: Request, message: Any) -> dict[str, Any] | None:
        name = request.params.get("name")
        if isinstance(name, str) and name not in self._home:
            await self._list(request, message)
        home = self._home.get(name) if isinstance(name, str) else None
        if home is None:
            return make_error(
                request.id, RpcError(INVALID_PARAMS, f"Unknown tool: {name!r}.", {"tool": name})
            )
        entry = (request.id, home)
        self._open.append(entry)
        try:
            return await home.answer(message)
        finally:
            self._open.remove(entry)


_ROUTES: Mapping[str, Callable[[CombinedConnection, Request, Any], Any]] = {
    "initialize": CombinedConnection._initialize,  # noqa: SLF001 - the table of this class
    "tools/list": CombinedConnection._list,  # noqa: SLF001
    "tools/call": CombinedConnection._call,  # noqa: SLF001
}


async def pages(answer: Callable[[Any], Any]) -> Any:
    """The tools of a server, page by page; McpError if it refuses."""
    cursor: str | None = None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        reply_to = await answer(
            {"jsonrpc": "2.0", "id": "toolwire-list", "method": "tools/list", "params": params}
        )
        if "error" in reply_to:
            error = reply_to["error"]
            raise RpcError(error.get("code", 0), error.get("message", ""), error.get("data"))
        yield reply_to["result"].get("tools", [])
        cursor = reply_to["result"].get("nextCursor")
        if cursor is None:
            return
