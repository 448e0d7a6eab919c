"""A set of tools that can be listed and called, and the wrappers around one: rename, filter, combine.

`Toolset` is the part of a toolwire server that a carrier may use directly, without messages: its tools by name, and
its list in pages. A wrapper around toolsets is a toolset too, so it is served as fast as the server itself. Servers
of other libraries can only be reached by messages; their wrappers translate the names in the messages that pass
through. No wrapper keeps a table of names: each name is translated when it is used. Must not know other libraries.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio

from toolwire._protocol.jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ClientChannel,
    Id,
    Notification,
    Request,
    RpcError,
    classify,
    make_error,
    make_response,
)
from toolwire._support.words import did_you_mean
from toolwire.errors import ToolDefinitionError
from toolwire.tools.dispatch.interface import Connection, Pending, Reply, Server
from toolwire.tools.names import find_name_problem
from toolwire.tools.paging import Page, find_page, list_page, make_pages

if TYPE_CHECKING:
    from toolwire.tools.dispatch.interface import Reserver
    from toolwire.tools.prompts import Prompts, ServedPrompt
    from toolwire.tools.resources import Resources, ServedResource
    from toolwire.tools.server import ToolServer
    from toolwire.tools.tool import Tool

T = TypeVar("T")


class Toolset(ABC):
    """Tools by name, with the resources and prompts beside them, that any number of clients can be connected to."""

    name: str
    version: str
    title: str | None
    instructions: str | None
    if TYPE_CHECKING:  # an annotation that cannot be resolved would break get_type_hints() for every server
        registered_resources: Resources
        """For connections: the resources, and the lookup of the resource of a URI."""
        registered_prompts: Prompts
        """For connections: the prompts."""

    lists_per_client: bool = False
    """True if a client with a session has a list of its own, which only its connection knows."""

    @property
    @abstractmethod
    def tools(self) -> "Mapping[str, Tool[Any]]":
        """The tools by the names that clients use; a read-only view."""

    @abstractmethod
    def page(self, cursor: Any) -> Page:
        """Return one page of the tool list, as a dict and as bytes made once.

        `KeyError` for an unknown cursor, `RpcError` if no valid list can be made.
        """

    @abstractmethod
    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> Connection:
        """Open a connection for one client. On an event loop.

        With `notify_all_updates` it sends updates of all resources: the carrier has the subscriptions itself.
        """

    @abstractmethod
    async def wait_until_ready(self) -> None:
        """Wait for the lifespan of a connected server to start. Raises the exception of its start, if it fails."""

    def before_list(self) -> Callable[[], Awaitable[None]] | None:
        """Return a function that waits until the tools are loaded; None if they are known already."""
        return None

    @property
    def metrics_registry(self) -> Any:
        """The Prometheus registry of the service behind the tools; None if there is none."""
        return None

    def find_reserver(self, tool: str) -> "tuple[Reserver, str] | None":
        """Return the `Reserver` that pays for a tool, and its name for the tool; None if the tool is free."""
        del tool
        return None

    def unknown(self, name: str) -> str:
        """Return the error text for a call of an unknown tool."""
        return f"Unknown tool: {name[:200]!r}.{did_you_mean(name, self.tools)}"

    @property
    def resources(self) -> "Mapping[str, ServedResource]":
        """The resources by URI; a read-only view."""
        return self.registered_resources.fixed

    @property
    def resource_templates(self) -> "Mapping[str, ServedResource]":
        """The resources with a URI template, by template; a read-only view."""
        return self.registered_resources.templates

    @property
    def prompts(self) -> "Mapping[str, ServedPrompt]":
        """The prompts by name; a read-only view."""
        return self.registered_prompts.by_name

    def capabilities(self) -> dict[str, Any]:
        """Return the MCP server capabilities. Resources and prompts are among them if the server has any now."""
        have: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if self.resources or self.resource_templates:
            have["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            have["prompts"] = {"listChanged": True}
        # Copies: another thread may add one meanwhile.
        if any(each.completer for each in [*self.resource_templates.values(), *self.prompts.values()]):
            have["completions"] = {}
        return have

    @abstractmethod
    def cli_config(self) -> dict[str, Any]:
        """Return the CLI's configuration of this server, without its type and name."""

    @abstractmethod
    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the permission policies of the tools that have one of their own."""


class WrappedToolset(Toolset):
    """A toolset around another one. Passes everything on except the names and lists of tools."""

    def wrap(self, inner: Toolset) -> None:
        """Set the inner toolset, and copy its attributes."""
        self._inner = inner
        self.name, self.version = inner.name, inner.version
        self.title, self.instructions = inner.title, inner.instructions
        self.registered_resources = inner.registered_resources
        self.registered_prompts = inner.registered_prompts

    @property
    def metrics_registry(self) -> Any:
        return self._inner.metrics_registry

    def find_reserver(self, tool: str) -> "tuple[Reserver, str] | None":
        return self._inner.find_reserver(tool)

    def before_list(self) -> Callable[[], Awaitable[None]] | None:
        return self._inner.before_list()

    async def wait_until_ready(self) -> None:
        await self._inner.wait_until_ready()


Definitions: TypeAlias = Mapping[str, dict[str, Any]]
"""Definitions of tools by name, as `tools/list` has them."""


class ListedTools:
    """The definitions in the lists of toolsets, read again when one of them has changed."""

    def __init__(self, *toolsets: Toolset) -> None:
        self._toolsets = toolsets
        self._marks: list[Any] = []  # the bytes of the pages that were read
        self._definitions: dict[str, dict[str, Any]] = {}

    def read(self) -> Definitions:
        """Return the definitions: the same object until something has changed.

        If two tools have the same name, the first counts. `RpcError` if no valid list can be made.
        """
        pages = [page for toolset in self._toolsets for page in _pages_of(toolset)]
        marks = [mark for _, mark in pages]
        if len(marks) != len(self._marks) or any(map(is_not, marks, self._marks)):
            found: dict[str, dict[str, Any]] = {}
            for plain, _ in pages:
                for tool in plain["tools"]:
                    found.setdefault(tool["name"], tool)
            self._definitions, self._marks = found, marks
        return self._definitions


def _pages_of(toolset: Toolset) -> Iterator[Page]:
    cursor = None
    while True:
        page = toolset.page(cursor)
        yield page
        cursor = page[0].get("nextCursor")
        if cursor is None:
            return


class DerivedPages:
    """The list of a wrapper, derived from the lists of toolsets, and made again when one of those has changed."""

    def __init__(
        self, listed: ListedTools, derive: Callable[[Definitions], Iterable[dict[str, Any]]]
    ) -> None:
        """`derive` makes the definitions of this list from those of the toolsets."""
        self._listed = listed
        self._derive = derive
        self._made_of: Definitions | None = None
        self._pages: list[Page] = []

    def page(self, cursor: Any) -> Page:
        """Return one page. KeyError for an unknown cursor, `RpcError` if no valid list can be made."""
        definitions = self._listed.read()
        if definitions is not self._made_of:
            self._pages = make_pages("tools", list(self._derive(definitions)))
            self._made_of = definitions
        return find_page(self._pages, cursor)


@dataclass(frozen=True)
class Naming:
    """The names of tools in a wrapper, in both directions."""

    show: Callable[[str], str | None]
    """Gives the name that clients see for an inner name; None hides the tool."""
    inner: Callable[[str], Sequence[str]]
    """Gives the inner names that a shown name may stand for, the most likely one first."""

    def find_conflict(self, names: Iterable[str]) -> str | None:
        """Describe two tools that would be shown under one name; None if there are none."""
        return _find_conflict((self.show(name), name) for name in names)

    def show_tools(self, tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Translate the tools of a list. `RpcError` if two of them would be shown under one name."""
        shown = [(self.show(tool["name"]), tool) for tool in tools]
        if (conflict := _find_conflict((name, tool["name"]) for name, tool in shown)) is not None:
            raise RpcError(INTERNAL_ERROR, conflict)
        return [
            tool if name == tool["name"] else {**tool, "name": name}
            for name, tool in shown
            if name is not None
        ]


def _find_conflict(names: Iterable[tuple[str | None, str]]) -> str | None:
    first: dict[str, str] = {}
    for shown, inner in names:
        if shown is not None and first.setdefault(shown, inner) != inner:
            return (
                f"two tools would be called {shown!r}: {first[shown]!r} and {inner!r}; give one another name"
            )
    return None


class ServerWrapper:
    """A server around another one, with the same configuration for the CLI."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def ledgers(self) -> Sequence[Any]:
        """The ledgers of the catalogues in the inner server, or their addresses."""
        return list(getattr(self._server, "ledgers", ()))

    def cli_config(self) -> dict[str, Any]:
        """Return the CLI's configuration of the inner server."""
        return dict(getattr(self._server, "cli_config", dict)())

    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the permission policies of the inner server."""
        return list(getattr(self._server, "cli_policies", list)())


class Renamed(ServerWrapper):
    """A server whose tools are shown under other names, or not at all. Everything else passes through."""

    def __init__(self, server: Server, naming: Naming) -> None:
        super().__init__(server)
        self.naming = naming

    def connect(self, channel: ClientChannel) -> "RenamedConnection":
        """Open a connection for one client."""
        return RenamedConnection(self, self._server.connect(channel))

    def find(self, shown: str) -> str | None:
        """Return the inner name of a tool; None if there is no such tool."""
        return next(iter(self.naming.inner(shown)), None)

    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the permission policies of the tools that are shown."""
        shown = [(self.naming.show(each["name"]), each) for each in super().cli_policies()]
        return [{**each, "name": name} for name, each in shown if name is not None]


class RenamedToolset(Renamed, WrappedToolset):
    """A toolset whose tools are shown under other names, or not at all."""

    def __init__(self, inner: Toolset, naming: Naming) -> None:
        super().__init__(inner, naming)
        self.wrap(inner)
        self._pages = DerivedPages(ListedTools(inner), lambda tools: naming.show_tools(tools.values()))

    @property
    def tools(self) -> "Mapping[str, Tool[Any]]":
        return _RenamedTools(self._inner.tools, self.naming)

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> "RenamedConnection":
        return RenamedConnection(self, self._inner.connect(channel, notify_all_updates=notify_all_updates))

    def find_reserver(self, tool: str) -> "tuple[Reserver, str] | None":
        inner = self.find(tool)
        return None if inner is None else self._inner.find_reserver(inner)

    def find(self, shown: str) -> str | None:
        names, known = self.naming.inner(shown), self._inner.tools
        found = next((name for name in names if name in known), None)
        return super().find(shown) if found is None and self.before_list() is not None else found

    def page(self, cursor: Any) -> Page:
        return self._pages.page(cursor)


class _RenamedTools(Mapping[str, "Tool[Any]"]):
    """The tools of a toolset by their shown names."""

    def __init__(self, tools: "Mapping[str, Tool[Any]]", naming: Naming) -> None:
        self._tools = tools
        self._naming = naming

    def __getitem__(self, name: str) -> "Tool[Any]":
        for inner in self._naming.inner(name):
            if inner in self._tools:
                return self._tools[inner]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        # A copy: another thread may add a tool meanwhile.
        return (name for inner in list(self._tools) if (name := self._naming.show(inner)) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RenamedConnection(Connection):
    """Translates the names of tools in messages. Everything else, including errors, is left to the inner one."""

    def __init__(self, server: Renamed, inner: Connection) -> None:
        self._server = server
        self._inner = inner
        self.tags_progress = inner.tags_progress

    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        method = message.get("method") if isinstance(message, dict) else None
        if method == "tools/list":
            if (reply := _list_at_once(self._server, message, encoded)) is not None:
                return reply
            begun = self._inner.begin(message)
            return Pending(self._list, begun) if isinstance(begun, Pending) else self._show(begun)
        if method == "tools/call":
            params = message.get("params")
            name = params.get("name") if isinstance(params, dict) else None
            if isinstance(name, str):
                inner = self._server.find(name)
                if inner is None:
                    return _refuse_unknown(message, _describe_unknown(self._server, name))
                message = {**message, "params": {**message["params"], "name": inner}}
        return self._inner.begin(message, encoded=encoded)

    async def _list(self, pending: Pending) -> Reply | None:
        return self._show(await pending())

    def _show(self, reply: Reply | None) -> Reply | None:
        if reply is None or "result" not in reply:
            return reply
        result = reply["result"]
        try:
            tools = self._server.naming.show_tools(result.get("tools", []))
        except RpcError as error:
            return make_error(reply["id"], error)
        return {**reply, "result": {**result, "tools": tools}}

    async def aclose(self) -> None:
        await self._inner.aclose()


class LoadingCalls:
    """Calls that wait until the tools of a server are known, and can be cancelled meanwhile."""

    def __init__(self) -> None:
        self._scopes: list[tuple[Id | None, anyio.CancelScope]] = []  # oldest first

    async def run(self, request_id: Id | None, load: Callable[[], Awaitable[T]]) -> T:
        """Await `load()` and return its result. `RpcError` if the call is cancelled meanwhile."""
        with anyio.CancelScope() as scope:
            entry = (request_id, scope)
            self._scopes.append(entry)
            try:
                result = await load()
            finally:
                self._scopes.remove(entry)
            if not scope.cancel_called:
                return result
        raise RpcError(CANCELLED, "Request cancelled")

    def cancel(self, request_id: Any) -> bool:
        """Cancel the newest of these calls with that id. Returns False if there is none."""
        scopes = [scope for call, scope in self._scopes if call == request_id]
        if scopes:
            scopes[-1].cancel()
        return bool(scopes)

    def cancel_all(self) -> None:
        """Cancel all of these calls, at the end of their connection: none may start a tool after it."""
        for _, scope in self._scopes:
            scope.cancel()


class ExtendedConnection(Connection):
    """A connection of a wrapper that has its own tools and list. Everything else goes to the inner connection."""

    def __init__(self, own: "ToolServer[Any]", inner: Connection, channel: ClientChannel) -> None:
        self._inner = inner
        self._channel = channel
        self._own_server = own
        self._own: Connection | None = None  # to `_own_server`, opened by its first call
        self._loading = LoadingCalls()
        self.tags_progress = inner.tags_progress

    @abstractmethod
    def is_own(self, tool: object) -> bool:
        """True for the name of one of the wrapper's own tools."""

    @abstractmethod
    def list_tools(self, message: dict[str, Any], encoded: bool) -> Reply | Pending:
        """Answer `tools/list`."""

    @abstractmethod
    async def load_tools(self) -> object:
        """Wait until the tools of the inner server are known. `RpcError` if it returns an error."""

    @abstractmethod
    async def call_own(self, message: dict[str, Any]) -> Reply | None:
        """Answer a call of one of the wrapper's own tools, once `load_tools` is done."""

    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        method = message.get("method") if isinstance(message, dict) else None
        params = message.get("params") if isinstance(message, dict) else None
        if method == "tools/list" and isinstance(params, dict | None) and "id" in message:
            return self.list_tools(message, encoded)
        if method == "tools/call" and isinstance(params, dict) and self.is_own(params.get("name")):
            return Pending(self._load_and_call, message)
        if method == "notifications/cancelled" and isinstance(params, dict):
            if self._loading.cancel(params.get("requestId")):
                return None
            if self._own is not None:
                self._own.begin(message)
        return self._inner.begin(message, encoded=encoded)

    async def _load_and_call(self, message: dict[str, Any]) -> Reply | None:
        try:
            await self._loading.run(message.get("id"), self.load_tools)
        except RpcError as error:
            return make_error(message["id"], error) if "id" in message else None
        return await self.call_own(message)

    async def send_own(self, message: dict[str, Any]) -> Reply | None:
        """Send a message to the wrapper's own server, and return its reply."""
        if self._own is None:
            self._own = self._own_server.connect(self._channel)
        return await self._own.answer(message)

    async def aclose(self) -> None:
        self._loading.cancel_all()
        if self._own is not None:
            await self._own.aclose()
        await self._inner.aclose()


def reply_page(message: dict[str, Any], read: Callable[[Any], Page], encoded: bool = False) -> Reply:
    """Reply to `tools/list` with the requested page."""
    try:
        return make_response(message["id"], list_page(read, message.get("params") or {}, encoded))
    except RpcError as error:
        return make_error(message["id"], error)


class Combined:
    """Several servers under one name. The first one answers everything that is not about tools."""

    def __init__(self, name: str, servers: Sequence[Server]) -> None:
        if (problem := find_name_problem(name)) is not None:
            raise ToolDefinitionError(f"combine: {problem}")
        if not servers:
            raise ToolDefinitionError("combine: no servers given")
        self.name = name
        self._servers = servers

    def connect(self, channel: ClientChannel) -> "CombinedConnection":
        """Open a connection for one client, with one to each server behind it."""
        return CombinedConnection(self, [_Part(server, server.connect(channel)) for server in self._servers])

    @property
    def ledgers(self) -> Sequence[Any]:
        """The ledgers of the catalogues in all servers, or their addresses."""
        return [ledger for each in self._servers for ledger in getattr(each, "ledgers", ())]

    def cli_config(self) -> dict[str, Any]:
        """Return the merged configurations of the servers for the CLI."""
        merged: dict[str, Any] = {}
        for server in self._servers:
            merged |= getattr(server, "cli_config", dict)()
        return merged

    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the permission policies of all servers."""
        return [each for server in self._servers for each in getattr(server, "cli_policies", list)()]


class CombinedToolset(Combined, Toolset):
    """Several toolsets under one name."""

    def __init__(self, name: str, toolsets: Sequence[Toolset]) -> None:
        super().__init__(name, toolsets)
        self._toolsets = toolsets
        first = toolsets[0]
        self.version, self.title = first.version, first.title
        self.instructions = "\n\n".join(each.instructions for each in toolsets if each.instructions) or None
        self.registered_resources = first.registered_resources
        self.registered_prompts = first.registered_prompts
        self._pages = DerivedPages(ListedTools(*toolsets), lambda tools: tools.values())

    @property
    def tools(self) -> "Mapping[str, Tool[Any]]":
        return CombinedTools([each.tools for each in self._toolsets])

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> "CombinedConnection":
        first, *rest = self._toolsets  # clients can only read the resources of the first
        parts = [
            _Part(first, first.connect(channel, notify_all_updates=notify_all_updates)),
            *(_Part(each, each.connect(channel)) for each in rest),
        ]
        return CombinedConnection(self, parts)

    def find_reserver(self, tool: str) -> "tuple[Reserver, str] | None":
        home = next((each for each in self._toolsets if tool in each.tools), None)
        return None if home is None else home.find_reserver(tool)

    def page(self, cursor: Any) -> Page:
        return self._pages.page(cursor)

    def before_list(self) -> Callable[[], Awaitable[None]] | None:
        waits = [wait for each in self._toolsets if (wait := each.before_list()) is not None]
        return partial(_await_each, waits) if waits else None

    async def wait_until_ready(self) -> None:
        for each in self._toolsets:
            await each.wait_until_ready()


async def _await_each(calls: "Sequence[Callable[[], Awaitable[Any]]]") -> None:
    for call in calls:
        await call()


class CombinedTools(Mapping[str, "Tool[Any]"]):
    """The tools of several toolsets. If two have the same name, the first counts."""

    def __init__(self, parts: "list[Mapping[str, Tool[Any]]]") -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> "Tool[Any]":
        for part in self._parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for part in self._parts for name in list(part)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Part:
    """One of the combined servers, as a connection sees it."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self.connection = connection
        self._toolset = server if isinstance(server, Toolset) else None
        self.listed: frozenset[str] | None = None  # names in the last list; not needed for a toolset

    def has(self, tool: str) -> bool | None:
        """Return whether the server has a tool; None if that is only known after a `tools/list`."""
        if self._toolset is not None:
            return tool in self._toolset.tools or (None if self._toolset.before_list() is not None else False)
        return None if self.listed is None else tool in self.listed

    @property
    def may_change(self) -> bool:
        """True if a list can show tools that `has` does not know."""
        return self._toolset is None or self._toolset.before_list() is not None


class CombinedConnection(Connection):
    """Lists the tools of all servers, and sends each call to the server that has the tool."""

    def __init__(self, server: Combined, parts: list[_Part]) -> None:
        self._server = server
        self._parts = parts
        self.tags_progress = all(part.connection.tags_progress for part in parts)
        self._running: list[tuple[Id, Connection]] = []  # calls, oldest first
        self._loading = LoadingCalls()

    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        try:
            event = classify(message)
        except RpcError as error:
            return make_error(message["id"], error)
        if isinstance(event, Request):
            return self._request(event, message, encoded)
        return self._notify(event, message) if isinstance(event, Notification) else None

    def _request(self, request: Request, message: Any, encoded: bool) -> Reply | Pending | None:
        name = request.params.get("name")
        if request.method == "initialize":
            return Pending(self._initialize, request, message)
        if request.method == "tools/list":
            return _list_at_once(self._server, message, encoded) or Pending(self._list, request)
        if request.method == "tools/call" and isinstance(name, str):
            return self._call(request, message, name, encoded)
        return self._parts[0].connection.begin(message, encoded=encoded)

    def _notify(self, event: Notification, message: Any) -> Pending | None:
        cancels = event.method == "notifications/cancelled"
        if cancels and self._loading.cancel(event.params.get("requestId")):
            return None
        begun = [connection.begin(message) for connection in self._receivers(event)]
        pending = [each for each in begun if isinstance(each, Pending)]
        return Pending(_await_each, pending) if pending else None

    def _receivers(self, event: Notification) -> list[Connection]:
        """Return the connections that get a notification: all, or the one with the newest call that it cancels."""
        if event.method != "notifications/cancelled":
            return [part.connection for part in self._parts]
        calls = [home for call, home in self._running if call == event.params.get("requestId")]
        return calls[-1:]

    async def _initialize(self, request: Request, message: Any) -> Reply:
        answers = [await part.connection.answer(message) or {} for part in self._parts]
        failed = next((answer for answer in answers if "error" in answer), None)
        if failed is not None:
            return failed
        results = [answer["result"] for answer in answers]
        texts = [result["instructions"] for result in results if result.get("instructions")]
        merged = {**results[0], "serverInfo": {**results[0]["serverInfo"], "name": self._server.name}}
        merged["capabilities"] = {"tools": {"listChanged": True}, **results[0].get("capabilities", {})}
        return make_response(request.id, {**merged, "instructions": "\n\n".join(texts)} if texts else merged)

    async def _list(self, request: Request) -> Reply:
        tools: dict[str, Any] = {}
        try:
            for part in self._parts:
                found = [tool async for tool in listed_tools(part.connection)]
                part.listed = frozenset(tool["name"] for tool in found)
                for tool in found:
                    tools.setdefault(tool["name"], tool)
        except RpcError as error:
            return make_error(request.id, error)
        return make_response(request.id, {"tools": list(tools.values())})

    def _call(self, request: Request, message: Any, name: str, encoded: bool) -> Reply | Pending | None:
        for part in self._parts:
            has = part.has(name)
            if has is None:  # a part before the one that is known to have it may have it as well
                break
            if has:
                return self._send(part.connection, request, message, encoded)
        if any(part.may_change for part in self._parts):
            return Pending(self._call_when_listed, request, message, name)
        return make_error(request.id, self._unknown(name))

    async def _call_when_listed(self, request: Request, message: Any, name: str) -> Reply | None:
        try:
            listed = await self._loading.run(request.id, partial(self._list, request))
        except RpcError as error:
            return make_error(request.id, error)
        if "error" in listed:
            return listed
        home = next((part.connection for part in self._parts if part.listed and name in part.listed), None)
        if home is None:
            return make_error(request.id, self._unknown(name))
        begun = self._send(home, request, message, False)
        return await begun() if isinstance(begun, Pending) else begun

    def _send(
        self, home: Connection, request: Request, message: Any, encoded: bool
    ) -> Reply | Pending | None:
        begun = home.begin(message, encoded=encoded)
        return Pending(self._run, request.id, home, begun) if isinstance(begun, Pending) else begun

    async def _run(self, request_id: Id, home: Connection, pending: Pending) -> Reply | None:
        entry = (request_id, home)
        self._running.append(entry)
        try:
            return await pending()
        finally:
            self._running.remove(entry)

    def _unknown(self, name: str) -> RpcError:
        data = {"tool": name, "server": self._server.name}
        return RpcError(INVALID_PARAMS, _describe_unknown(self._server, name), data)

    async def aclose(self) -> None:
        self._loading.cancel_all()
        for part in self._parts:
            await part.connection.aclose()


def _list_at_once(server: object, message: dict[str, Any], encoded: bool) -> Reply | None:
    """Answer `tools/list` from the pages of a toolset; None if its tools are not known yet."""
    if not isinstance(server, Toolset) or server.before_list() is not None:
        return None
    try:
        event = classify(message)
        if not isinstance(event, Request):
            return None
        return make_response(event.id, list_page(server.page, event.params, encoded))
    except RpcError as error:
        return make_error(message["id"], error)


def _describe_unknown(server: object, name: str) -> str:
    """Return the error text for a call of a tool that a wrapper does not have."""
    return server.unknown(name) if isinstance(server, Toolset) else f"Unknown tool: {name[:200]!r}."


def _refuse_unknown(message: dict[str, Any], text: str) -> Reply | None:
    """Make the error reply for a call of an unknown tool, or for a message that is invalid anyway."""
    try:
        event = classify(message)
    except RpcError as error:
        return make_error(message["id"], error)
    if not isinstance(event, Request):
        return None
    return make_error(event.id, RpcError(INVALID_PARAMS, text, {"tool": event.params["name"]}))


async def listed_tools(connection: Connection) -> AsyncIterator[dict[str, Any]]:
    """Yield the tools on all pages of a server's list; `RpcError` if it returns an error."""
    cursor: str | None = None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        message = {"jsonrpc": "2.0", "id": "toolwire-list", "method": "tools/list", "params": params}
        reply = await connection.answer(message) or {}
        if "error" in reply:
            error = reply["error"]
            raise RpcError(error.get("code", 0), error.get("message", ""), error.get("data"))
        for tool in reply["result"].get("tools", []):
            yield tool
        cursor = reply["result"].get("nextCursor")
        if cursor is None:
            return
