"""`ToolServer`: a registry of tools that any number of clients can be connected to.

Owns the tools, the list as it goes out, and who must hear of a change. How a message is answered is in
`connection`; who is on the other side nobody here knows.
"""

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, overload

import orjson

from toolwire._jsonrpc import Outlet
from toolwire._threads import Workers
from toolwire.errors import ToolDefinitionError
from toolwire.tools.connection import DirectConnection
from toolwire.tools.lifespan import Lifespan
from toolwire.tools.names import problem_with, wire_name
from toolwire.tools.tool import Tool, from_function

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

PAGE: Final = 1_000
"""Tools on one page of a list."""


class ToolServer(Generic[S]):
    """Tools under one name.

        calc = ToolServer("calc")

        @calc.tool
        def add(a: float, b: float) -> float:
            \"\"\"Add two numbers.\"\"\"
            return a + b

    Give it to `ClaudeAgentOptions(mcp_servers={"calc": calc})`. Tools may be added and removed at any time, from
    any thread: connected clients hear of it once per batch of changes.
    """

    def __init__(
        self,
        name: str,
        version: str = "1.0.0",
        tools: Iterable["Tool[Any] | Callable[..., Any]"] = (),
        *,
        title: str | None = None,
        instructions: str | None = None,
        state: S | None = None,
        lifespan: "Callable[[ToolServer[S]], AbstractAsyncContextManager[S]] | None" = None,
        always_load: bool = False,
        timeout: float | None = None,
        workers: int | None = None,
        debug: bool = False,
    ) -> None:
        """Make a server.

        `instructions` tell the model what the server is for. `state` is handed to every tool as `context.state`;
        `lifespan(server)` makes it when the first client connects and puts it away after the last. `always_load`
        shows all tools to the model at once, where the CLI would let it search. `timeout` (seconds) is for tools
        that have none of their own. `workers` limits how many sync tools run at once. `debug` puts the trace of a
        failed tool into the result's `_meta`.
        """
        if (problem := problem_with(name)) is not None:
            raise ToolDefinitionError(f"server: {problem}")
        if timeout is not None and not timeout > 0:
            raise ToolDefinitionError(f"server {name!r}: timeout must be over 0 seconds, got {timeout!r}")
        self.name = name
        self.version = version
        self.title = title
        self.instructions = instructions
        self.always_load = always_load
        self.timeout = timeout
        self.debug = debug
        self.workers = Workers() if workers is None else Workers(workers)
        self._state = state
        self._make_lifespan = lifespan
        self._lifespan: Lifespan | None = None
        self._lock = threading.Lock()
        self._tools: dict[str, Tool[Any]] = {}
        self._wire_names: dict[str, str] = {}
        self._pages: list[tuple[dict[str, Any], orjson.Fragment]] | None = None
        self._connections: set[DirectConnection] = set()
        for each in tools:
            self.add(each)

    def __repr__(self) -> str:
        return f"ToolServer({self.name!r}, version={self.version!r}, tools={list(self._tools)})"

    # The registry.

    @property
    def tools(self) -> Mapping[str, "Tool[Any]"]:
        """The tools by name; a view that cannot be written to."""
        return MappingProxyType(self._tools)

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, *, name: str | None = None, **settings: Any) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **settings: Any) -> Any:
        """Add a typed function as a tool, bare or with settings; the function itself stays as it is.

        Settings: `name`, `title`, `description`, `read_only`, `destructive`, `idempotent`, `open_world`,
        `structured`, `output_schema`, `always_load`, `search_hint`, `max_result_size_chars`, `timeout`, `inline`,
        `policy`, `requires_user_interaction`, `annotations`, `meta`.
        """
        if function is not None:
            self.add(from_function(function, **settings))
            return function

        def decorate(each: F) -> F:
            self.add(from_function(each, **settings))
            return each

        return decorate

    def add(self, tool: "Tool[Any] | Callable[..., Any]", *, replace: bool = False) -> "Tool[Any]":
        """Add a tool, or a typed function as one. A name that is taken is refused unless `replace` is set."""
        added = tool if isinstance(tool, Tool) else from_function(tool)
        spelt = wire_name(added.name)
        with self._lock:
            holder = self._wire_names.get(spelt)
            if holder is not None and not (replace and holder == added.name):
                clash = "" if holder == added.name else f", which the CLI spells the same ({spelt})"
                hint = "; replace=True replaces it" if holder == added.name else ""
                raise ToolDefinitionError(f"server {self.name!r} already has a tool {holder!r}{clash}{hint}")
            self._tools[added.name] = added
            self._wire_names[spelt] = added.name
            self._pages = None
        self._changed()
        return added

    def remove(self, name: str) -> "Tool[Any]":
        """Take a tool away; calls of it that run go on. KeyError if there is none of that name."""
        with self._lock:
            if name not in self._tools:
                raise KeyError(self.unknown(name))
            removed = self._tools.pop(name)
            del self._wire_names[wire_name(name)]
            self._pages = None
        self._changed()
        return removed

    def unknown(self, name: str) -> str:
        """What to say of a tool that is not there."""
        near = difflib.get_close_matches(name, self._tools, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"Unknown tool: {name!r}.{hint}"

    # For connections.

    def connect(self, outlet: Outlet) -> DirectConnection:
        """A connection for one client. Must be called on an event loop."""
        connection = DirectConnection(self, outlet)
        self._connections.add(connection)
        if self._make_lifespan is not None and self._lifespan is None:
            self._lifespan = Lifespan(self._make_lifespan(self), self._state)
            self._lifespan.start()
        return connection

    def page(self, cursor: Any) -> tuple[dict[str, Any], orjson.Fragment]:
        """One page of the tool list, as a dict and as bytes made once. KeyError for a cursor that we never gave."""
        with self._lock:
            if self._pages is None:
                self._pages = _pages([tool.definition for tool in self._tools.values()])
            pages = self._pages
        number = (
            0 if cursor is None else int(cursor) if isinstance(cursor, str) and cursor.isdecimal() else -1
        )
        if not 0 <= number < len(pages):
            raise KeyError(cursor)
        return pages[number]

    @property
    def lifespan(self) -> Lifespan | None:
        """What is open for the connections of now."""
        return self._lifespan

    @property
    def state(self) -> S | None:
        """What tools see as `context.state`."""
        return self._state if self._lifespan is None else self._lifespan.state

    async def released(self, connection: DirectConnection) -> None:
        """A connection has ended; with the last one the lifespan does too."""
        self._connections.discard(connection)
        if not self._connections and self._lifespan is not None:
            lifespan, self._lifespan = self._lifespan, None
            await lifespan.aclose()

    # For the CLI.

    def cli_config(self) -> dict[str, Any]:
        """What the CLI's configuration of this server says beside its type and name."""
        return {"alwaysLoad": True} if self.always_load else {}

    def cli_policies(self) -> list[dict[str, Any]]:
        """The tools with a permission policy of their own."""
        return [
            {"name": tool.name, "permission_policy": tool.policy}
            for tool in self._tools.values()
            if tool.policy
        ]

    def _changed(self) -> None:
        for connection in list(self._connections):
            connection.tools_changed()


def _pages(definitions: list[dict[str, Any]]) -> list[tuple[dict[str, Any], orjson.Fragment]]:
    starts = range(0, len(definitions), PAGE) or range(1)
    pages = []
    for number, start in enumerate(starts):
        page: dict[str, Any] = {"tools": definitions[start : start + PAGE]}
        if start + PAGE < len(definitions):
            page["nextCursor"] = str(number + 1)
        pages.append((page, orjson.Fragment(orjson.dumps(page))))
    return pages


def create_sdk_mcp_server(
    name: str, version: str = "1.0.0", tools: "list[Tool[Any]] | None" = None, **settings: Any
) -> dict[str, Any]:
    """The official way to make a server: a config dict for `mcp_servers`. `settings` are those of `ToolServer`."""
    return {"type": "sdk", "name": name, "instance": ToolServer[Any](name, version, tools or (), **settings)}
