"""A server with very many tools that lists only a few: `find_tools`, those always shown, and those a client found.

Owns the tool `find_tools` and the record of what each client has found. A tool that a client finds is added to its
list, and the client is notified, so that each call keeps the tool's own name for permissions and budgets. A tool
that is not listed can be called all the same: the result of `find_tools` has its schema, and a client without a
session has no list of its own. Must not know transports.
"""

import fnmatch
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio

from toolwire._protocol.json_codec import dumps
from toolwire._protocol.jsonrpc import ClientChannel, RpcError, make_error
from toolwire._support.log import logger_for
from toolwire.errors import ToolDefinitionError
from toolwire.tools.dispatch.interface import Connection, Pending, Reply, Server
from toolwire.tools.names import find_name_problem
from toolwire.tools.paging import Page, find_page, make_pages
from toolwire.tools.search import LONGEST_QUERY, ToolIndex
from toolwire.tools.server import ToolServer
from toolwire.tools.tool import Tool
from toolwire.tools.toolset import (
    CombinedTools,
    Definitions,
    ExtendedConnection,
    ListedTools,
    ServerWrapper,
    Toolset,
    WrappedToolset,
    listed_tools,
    reply_page,
)

logger = logger_for("server")

MOST_SHOWN: Final = 40
"""The most found tools in a client's list; beyond that, the oldest are dropped."""
_MOST_FOUND: Final = 20  # by one search
_USUAL: Final = 5
_LONGEST_DESCRIPTION: Final = 1_000  # characters, in a result
_LARGEST_SCHEMA: Final = 16_384  # bytes, in a result
_MOST_SCOPES: Final = 16
_LIST_TIMEOUT: Final = 0.5  # seconds to wait for a client to request its list again
_ALWAYS: Final = "anthropic/alwaysLoad"
_DESCRIPTION: Final = (
    "Find tools by what they do. Of {count} tools only a few are in your list: describe what you want to do, in a "
    "few words. The best matches are returned with their input schemas and can be called by their names at once."
)
_INPUT: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, in a few words."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "default": _USUAL,
            "description": f"How many to return, at most {_MOST_FOUND}.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
_OUTPUT: Final = {
    "type": "object",
    "properties": {"tools": {"type": "array", "items": {"type": "object"}}, "hint": {"type": "string"}},
}
_HINT: Final = "Call a tool by its name. If none of these fits, search again with other words."
_NOTHING: Final = "No tool matches. Search again with other words: what it does, or what it is about."


class Revealed:
    """The tools that one client has found, the oldest first."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.pages: tuple[Any, list[Page]] | None = None
        """The pages of this client's list, with the values that they were made from."""
        self.lists_again = True
        """False once the client was notified that its list has changed, and did not request it in time."""
        self.listed: anyio.Event | None = None
        """Set when the client next requests its list, for the searches that wait for that."""


class Searchable(ServerWrapper):
    """A server that lists `find_tools`, the tools that are always shown, and those that the client has found."""

    def __init__(
        self, server: Server, *, name: str = "find_tools", always: Sequence[str] = (), most: int = MOST_SHOWN
    ) -> None:
        if (problem := find_name_problem(name)) is not None:
            raise ToolDefinitionError(f"searchable: {problem}")
        if type(most) is not int or most < 1:
            raise ToolDefinitionError(f"searchable: most must be a whole number, 1 or more, got {most!r}")
        if isinstance(always, str):
            raise ToolDefinitionError(f"searchable: always must be a list of patterns, got {always!r}")
        super().__init__(server)
        self.find_name = name
        self._always = tuple(always)
        self._most = most
        self._lock = threading.Lock()
        self._index = ToolIndex()
        self._definitions: Definitions = {}
        self._indexed: Mapping[str, Any] | None = None
        self._warned = False
        self._of_sessions: WeakKeyDictionary[Any, Revealed] = WeakKeyDictionary()
        self._of_scopes: OrderedDict[str, Revealed] = OrderedDict()
        self.own = self._make_own_server()

    def _make_own_server(self) -> ToolServer[Any]:
        def find_tools(arguments: dict[str, Any]) -> dict[str, Any]:
            limit = int(arguments.get("limit", _USUAL))  # in JSON Schema, 2.0 is an integer too
            return self.find(arguments["query"], limit)

        own: ToolServer[Any] = ToolServer("search")
        own.add(
            Tool(
                self.find_name,
                _DESCRIPTION.format(count="all"),
                _INPUT,
                find_tools,
                {"readOnlyHint": True, "openWorldHint": False},
                output_schema=_OUTPUT,
                always_load=True,
            )
        )
        return own

    def connect(self, channel: ClientChannel) -> "SearchableConnection":
        """Open a connection for one client."""
        return SearchableConnection(self, self._server.connect(channel), channel)

    def revealed_to(self, channel: ClientChannel, *, create: bool) -> Revealed | None:
        """Return what a client has found so far, by its session, or by its request scope over stdio.

        None for any other client: its connection keeps the record. With `create`, a missing record is made.
        """
        session, scope = channel.session, channel.request_scope
        if session is not None:
            if create:
                return self._of_sessions.setdefault(session, Revealed())
            return self._of_sessions.get(session)
        if scope is None:
            return None
        if scope not in self._of_scopes and create:
            self._of_scopes[scope] = Revealed()
            while len(self._of_scopes) > _MOST_SCOPES:
                self._of_scopes.popitem(last=False)
        return self._of_scopes.get(scope)

    def reveal(self, revealed: Revealed, names: Iterable[str]) -> bool:
        """Add tools to what a client has found, and drop the oldest ones. Returns True if its list changes."""
        before = set(revealed.names)
        for name in islice(names, self._most):  # the best come first
            revealed.names.pop(name, None)
            revealed.names[name] = None
        while len(revealed.names) > self._most:
            del revealed.names[next(iter(revealed.names))]
        return revealed.names.keys() != before

    def use(self, definitions: Definitions) -> None:
        """Search these definitions from now on: those of all tools, by name."""
        if self.find_name in definitions and not self._warned:
            self._warned = True
            logger.warning(
                "the search %r hides a tool of the same name; rename it with searchable(name=...)",
                self.find_name,
            )
        with self._lock:
            self._definitions = definitions

    def refresh(self) -> None:
        """Use the current definitions, if they can be read without a request to the server."""

    def find(self, query: str, limit: int) -> dict[str, Any]:
        """Search, and return the result of `find_tools`. Runs in a thread: the first search builds the index."""
        self.refresh()
        with self._lock:
            definitions = self._definitions
            if self._indexed is not definitions:
                self._index.update(
                    {name: each for name, each in definitions.items() if name != self.find_name}
                )
                self._indexed = definitions
            names = self._index.search(query[:LONGEST_QUERY], min(limit, _MOST_FOUND))
        found = [_show(definitions[name]) for name in names]
        return {"tools": found, "hint": _HINT if found else _NOTHING}

    def make_list(self, revealed: Revealed | None, definitions: Definitions) -> list[dict[str, Any]]:
        """Return the tools in a client's list: the search, those always shown, and those it has found."""
        tool = self.own.tools[self.find_name].definition
        first = {**tool, "description": _DESCRIPTION.format(count=f"{len(definitions):,}")}
        names = dict.fromkeys(name for name, each in definitions.items() if self._is_always_shown(name, each))
        names.update(revealed.names if revealed is not None else {})
        names.pop(self.find_name, None)
        return [first, *(definitions[name] for name in names if name in definitions)]

    def _is_always_shown(self, name: str, definition: Mapping[str, Any]) -> bool:
        meta = definition.get("_meta")
        if isinstance(meta, Mapping) and meta.get(_ALWAYS) is True:
            return True
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._always)


def _show(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition as the result of a search shows it: long descriptions and large schemas are cut."""
    shown = {"name": definition["name"]}
    if definition.get("title"):
        shown["title"] = definition["title"]
    about = str(definition.get("description") or "")
    cut = len(about) > _LONGEST_DESCRIPTION
    shown["description"] = f"{about[:_LONGEST_DESCRIPTION]}..." if cut else about
    schema = definition.get("inputSchema") or {}
    if len(dumps(schema)) <= _LARGEST_SCHEMA:
        shown["inputSchema"] = schema
    else:
        properties = schema.get("properties")
        names = list(properties)[:100] if isinstance(properties, Mapping) else []
        shown["arguments"] = {"names": names, "required": list(schema.get("required") or [])[:100]}
        shown["note"] = "The schema is too large to show here; it is in the tool list."
    return shown


class SearchableToolset(Searchable, WrappedToolset):
    """A toolset that lists few of its tools. `page_for` adds those that a client has found."""

    def __init__(self, inner: Toolset, **settings: Any) -> None:
        super().__init__(inner, **settings)
        self.wrap(inner)
        if self.find_name in inner.tools:
            raise ToolDefinitionError(
                f"searchable: {inner.name!r} has a tool {self.find_name!r}; rename the search with name=..."
            )
        self._listed = ListedTools(inner)
        self._nothing = Revealed()  # of clients that have found nothing yet

    lists_per_client = True

    @property
    def tools(self) -> Mapping[str, Tool[Any]]:
        """All tools, whether they are listed or not: each can be called."""
        return CombinedTools([self.own.tools, self._inner.tools])

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> "SearchableConnection":
        inner = self._inner.connect(channel, notify_all_updates=notify_all_updates)
        return SearchableConnection(self, inner, channel)

    def refresh(self) -> None:
        definitions = self._listed.read()
        if definitions is not self._definitions:
            self.use(definitions)

    def page(self, cursor: Any) -> Page:
        """Return a page of the list of a client that has found nothing yet."""
        return self.page_for(None, cursor)

    def page_for(self, revealed: Revealed | None, cursor: Any) -> Page:
        """Return a page of the list of one client. The pages are kept until the tools in them change."""
        self.refresh()
        revealed = self._nothing if revealed is None else revealed
        made_of = (self._definitions, tuple(revealed.names))
        pages = revealed.pages
        if pages is None or pages[0][0] is not made_of[0] or pages[0][1] != made_of[1]:
            pages = (made_of, make_pages("tools", self.make_list(revealed, self._definitions)))
            revealed.pages = pages
        return find_page(pages[1], cursor)

    def unknown(self, name: str) -> str:
        return self._inner.unknown(name)


class SearchableConnection(ExtendedConnection):
    """Answers `tools/list` and `find_tools` for one client."""

    def __init__(self, server: Searchable, inner: Connection, channel: ClientChannel) -> None:
        super().__init__(server.own, inner, channel)
        self._server = server
        self._revealed: Revealed | None = None  # for a client that `revealed_to` keeps no record of

    def is_own(self, tool: object) -> bool:
        return tool == self._server.find_name

    def _found(self, *, create: bool = False) -> Revealed | None:
        shared = self._server.revealed_to(self._channel, create=create)
        if shared is not None:
            return shared
        if create and self._revealed is None:
            self._revealed = Revealed()
        return self._revealed

    # The list.

    def list_tools(self, message: dict[str, Any], encoded: bool) -> Reply | Pending:
        server, revealed = self._server, self._found()
        if revealed is not None and revealed.listed is not None:
            revealed.listed.set()
            revealed.listed = None  # what is found from now on is not in this list
        if not isinstance(server, SearchableToolset):
            return Pending(self._list_fetched, message)
        if (ready := server.before_list()) is not None:
            return Pending(self._list_when_ready, message, server, ready)
        return reply_page(message, partial(server.page_for, revealed), encoded)

    async def _list_when_ready(
        self, message: dict[str, Any], server: SearchableToolset, ready: Callable[[], Awaitable[None]]
    ) -> Reply:
        await ready()
        return reply_page(message, partial(server.page_for, self._found()))

    async def _list_fetched(self, message: dict[str, Any]) -> Reply:
        try:
            definitions = await self._fetch_definitions()
        except RpcError as error:
            return make_error(message["id"], error)
        pages = make_pages("tools", self._server.make_list(self._found(), definitions))
        return reply_page(message, partial(find_page, pages))

    async def _fetch_definitions(self) -> dict[str, dict[str, Any]]:
        """List the tools of a server that can only be reached by messages."""
        definitions = {tool["name"]: tool async for tool in listed_tools(self._inner)}
        self._server.use(definitions)
        return definitions

    # The search.

    async def load_tools(self) -> None:
        if not isinstance(self._server, SearchableToolset):
            await self._fetch_definitions()
        elif (ready := self._server.before_list()) is not None:
            await ready()

    async def call_own(self, message: dict[str, Any]) -> Reply | None:
        reply = await self.send_own(message)
        result = reply.get("result") if reply is not None else None
        found = result.get("structuredContent") if isinstance(result, dict) else None
        if isinstance(found, dict) and found.get("tools"):
            revealed = self._found(create=True)
            names = [each["name"] for each in found["tools"]]
            if revealed is not None and self._server.reveal(revealed, names):
                await self._notify_list_changed(revealed)
        return reply

    async def _notify_list_changed(self, revealed: Revealed) -> None:
        """Notify the client that its list has changed, and wait briefly until it has requested the new one.

        The Claude CLI requests it, and then offers the found tools to its model in the next request.
        """
        if not self._channel.own_list_changed() or not revealed.lists_again:
            return
        listed = revealed.listed = revealed.listed or anyio.Event()  # one for all searches that wait
        with anyio.move_on_after(_LIST_TIMEOUT) as limit:
            await listed.wait()
        if limit.cancelled_caught:
            revealed.lists_again = False
