"""`ToolServer`: a registry of tools, resources and prompts that any number of clients can be connected to.

Owns the tools, the connections that are notified of a change, and the lifespan; resources and prompts have
registries of their own. Messages are answered in `dispatch`. Must not know what kind of client is connected.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Unpack, overload

from typing_extensions import TypeVar

from toolwire._protocol.jsonrpc import ClientChannel
from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, shield, spawn
from toolwire._support.threads import DEFAULT_LIMIT, Workers
from toolwire._support.user_code import warn_at_user_line
from toolwire._support.waiting import Future
from toolwire.errors import ToolDefinitionError, ToolwireWarning
from toolwire.tools.context import LogLevel
from toolwire.tools.dispatch.errors import describe, is_failure
from toolwire.tools.names import find_name_problem, wire_name
from toolwire.tools.paging import Page, Pages
from toolwire.tools.prompts import Prompts, PromptSettings, ServedPrompt, make_prompt
from toolwire.tools.resources import Resources, ResourceSettings, ServedResource, make_resource
from toolwire.tools.tool import Tool, ToolSettings, from_function
from toolwire.tools.toolset import Toolset

if TYPE_CHECKING:
    from toolwire.tools.dispatch.connection import DirectConnection

logger = logger_for("server")

_CLOSE_TIMEOUT: Final = 10.0  # seconds


class Lifespan:
    """One run of a server's lifespan, shared by all connections that are open at that time.

    The context manager is entered and exited in one task of its own, because cancel scopes inside it require that.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Any], fallback: Any) -> None:
        self._manager = manager
        self._ready: Future[None] = Future()
        self._stop: Future[None] = Future()
        self._closed: Future[None] = Future()
        self._task: Task | None = None
        self.state: Any = fallback
        self.error: Exception | None = None

    @property
    def open(self) -> bool:
        """True while the context manager is entered."""
        return self._ready.is_set and self.error is None

    def start(self) -> None:
        """Start entering the context manager, in a task."""
        self._task = spawn(self._run)

    async def wait(self) -> Any:
        """Wait until it is entered, and return the state. Raises the exception of entering it, if there was one."""
        await self._ready.wait()
        if self.error is not None:
            raise self.error
        return self.state

    async def aclose(self) -> None:
        """Exit the context manager, in bounded time. If it is still being entered, that is cancelled."""
        self._stop.set(None)
        if not self._ready.is_set and self._task is not None:
            self._task.cancel()
        with shield():
            await self._closed.wait(_CLOSE_TIMEOUT)
        if not self._closed.is_set and self._task is not None:
            logger.error("the lifespan did not end within %g s and is cancelled", _CLOSE_TIMEOUT)
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with self._manager as state:
                if state is not None:
                    self.state = state
                self._ready.set(None)
                await self._stop.wait()
        except BaseException as error:
            if not is_failure(error):
                self.error = self.error or RuntimeError("its start was cancelled")
                raise
            if self._ready.is_set:
                logger.exception("closing the lifespan failed")
            else:
                self.error = error if isinstance(error, Exception) else RuntimeError(describe(error))
                logger.exception("opening the lifespan failed")
        finally:
            self._ready.set(None)
            self._closed.set(None)


S = TypeVar("S", default=Any)
F = TypeVar("F", bound=Callable[..., Any])

_ABANDONED_FACTOR = 8  # times the limit: threads that may still run after their calls were abandoned


class ToolServer(Toolset, Generic[S]):
    """Tools, resources and prompts under one name.

        calc = ToolServer("calc")

        @calc.tool
        def add(a: float, b: float) -> float:
            \"\"\"Add two numbers.\"\"\"
            return a + b

    Give it to `ClaudeAgentOptions(mcp_servers={"calc": calc})`. Tools, resources and prompts may be added and
    removed at any time, from any thread: connected clients are notified once per batch of changes.
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

        `instructions` tell the model what the server is for. Every tool gets `state` as `context.state`;
        `lifespan(server)` creates it when the first client connects, and cleans up after the last one.
        `always_load` shows all tools to the model at once, even if the CLI would have it search for tools.
        `timeout` (seconds) is for tools without their own. `workers` limits how many sync tools run at once.
        `debug` adds the traceback of a failed tool to the result's `_meta`.
        """
        if (problem := find_name_problem(name)) is not None:
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
        limit = DEFAULT_LIMIT if workers is None else workers
        # With a limit of one, an abandoned call blocks the others: the tools rely on running one at a time.
        self.workers = Workers(limit, abandoned_limit=0 if limit == 1 else _ABANDONED_FACTOR * limit)
        self._state = state
        self._make_lifespan = lifespan
        self.open_lifespan: Lifespan | None = None
        """The lifespan of the current connections; None if there is none."""
        self._lock = threading.Lock()
        self._version = 0  # counts the changes of the tools
        self._tools: dict[str, Tool[Any]] = {}
        self._tools_view = MappingProxyType(self._tools)
        self._wire_names: dict[str, str] = {}
        self._pages = Pages("tools", self._tools, self._lock)
        self.registered_resources = Resources(self._lock)
        self.registered_prompts = Prompts(self._lock)
        self._connections: set[DirectConnection] = set()
        for each in tools:
            self.add(each)

    def __repr__(self) -> str:
        return f"ToolServer({self.name!r}, version={self.version!r}, tools={list(self._tools)})"

    # The registry.

    @property
    def tools(self) -> Mapping[str, "Tool[Any]"]:
        """The tools by name; a read-only view."""
        return self._tools_view

    @overload
    def tool(self, function: F, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> F: ...
    @overload
    def tool(self, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **settings: Any) -> Any:
        """Decorate a typed function to add it as a tool, with or without settings. Returns the function unchanged.

        Settings: `name`, `title`, `description`, `read_only`, `destructive`, `idempotent`, `open_world`,
        `structured`, `output_schema`, `always_load`, `search_hint`, `max_result_size_chars`, `timeout`, `inline`,
        `policy`, `requires_user_interaction`, `annotations`, `meta`, `repeatable`, `tags`.
        """
        if isinstance(function, str):
            raise ToolDefinitionError(f"to name the tool, write @server.tool(name={function!r})")
        if function is not None:
            self.add(from_function(function, **settings))
            return function

        def decorate(each: F) -> F:
            self.add(from_function(each, **settings))
            return each

        return decorate

    def add(self, tool: "Tool[Any] | Callable[..., Any]", *, replace: bool = False) -> "Tool[Any]":
        """Add a tool, or a typed function as one. A name that is taken is an error unless `replace` is set."""
        added = _as_tool(tool)
        spelt = wire_name(added.name)
        with self._lock:
            holder = self._wire_names.get(spelt)
            if holder is not None and not (replace and holder == added.name):
                clash = "" if holder == added.name else f", which the CLI spells the same ({spelt})"
                hint = "; replace=True replaces it" if holder == added.name else ""
                raise ToolDefinitionError(f"server {self.name!r} already has a tool {holder!r}{clash}{hint}")
            self._version += 1
            self._tools[added.name] = added
            self._wire_names[spelt] = added.name
            self._pages.drop()
        self._notify_changed("tools")
        return added

    def remove(self, name: str) -> "Tool[Any]":
        """Remove a tool; its running calls continue. KeyError if there is no tool of that name."""
        with self._lock:
            if name not in self._tools:
                raise KeyError(self.unknown(name))
            self._version += 1
            removed = self._tools.pop(name)
            del self._wire_names[wire_name(name)]
            self._pages.drop()
        self._notify_changed("tools")
        return removed

    def swap(self, remove: Collection[str], add: Iterable["Tool[Any]"]) -> None:
        """Remove many tools and add or replace others, in one step. Any thread may call it.

        The list that clients get is made before anything changes, so that the event loop does not have to.
        `ToolDefinitionError` for two tools that the CLI spells the same; then nothing changes.
        """
        added = {tool.name: tool for tool in add}
        while True:
            with self._lock:
                version, now = self._version, dict(self._tools)
            removed = {name for name in remove if name in now and name not in added}
            tools = {name: tool for name, tool in now.items() if name not in removed} | added
            spelt = {wire_name(name): name for name in tools}
            if len(spelt) < len(tools):
                clash = next(name for name in tools if spelt[wire_name(name)] != name)
                raise ToolDefinitionError(
                    f"server {self.name!r}: the CLI spells {clash!r} and {spelt[wire_name(clash)]!r} the same"
                )
            pages = self._pages.make(tools.values())
            with self._lock:
                if self._version != version:
                    continue  # another thread has added or removed a tool meanwhile
                self._version += 1
                # The tools that stay are never missing, because calls look them up without the lock.
                self._tools.update(added)
                for name in removed:
                    del self._tools[name]
                self._wire_names = spelt
                self._pages.install(pages)
            break
        self._notify_changed("tools")

    # Resources.

    def resource(self, uri: str, /, **settings: Unpack[ResourceSettings]) -> Callable[[F], F]:
        """Decorate a typed function to serve its result under a URI. Returns the function unchanged.

            @server.resource("config://app")
            def config() -> dict: ...

            @server.resource("users://{id}/notes{?since}")
            def notes(id: int, since: date | None = None) -> list[str]: ...

        Names in braces are parameters of the function: `{name}` is one part of a path, `{+name}` may have slashes,
        `{?a,b}` are query parameters. Settings: `name`, `title`, `description`, `mime_type`, `size`,
        `annotations`, `complete` (values to suggest for parameters: a list, or a function that returns them),
        `icons`, `meta`, `timeout`, `inline`.
        """
        if not isinstance(uri, str):
            raise ToolDefinitionError(
                f"a resource needs its URI, as in @server.resource('config://app'), got {uri!r}"
            )

        def decorate(function: F) -> F:
            self.add_resource(uri, function, **settings)
            return function

        return decorate

    def add_resource(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        replace: bool = False,
        **settings: Unpack[ResourceSettings],
    ) -> ServedResource:
        """Serve a function under a URI, as `resource` does. A taken URI is an error unless `replace` is set."""
        added = make_resource(uri, function, settings)
        self.registered_resources.add(added, replace=replace)
        self._notify_changed("resources")
        return added

    def remove_resource(self, uri: str) -> ServedResource:
        """Remove a resource, by its URI or template. KeyError if there is no such resource."""
        removed = self.registered_resources.remove(uri)
        self._notify_changed("resources")
        return removed

    def resource_updated(self, uri: str) -> None:
        """Notify subscribed clients that a resource has changed. Any thread may call it."""
        for connection in list(self._connections):
            connection.resource_updated(uri)

    def log(self, data: Any, level: LogLevel = "info") -> None:
        """Send a log message to every connected client that wants that level. Any thread may call it."""
        for connection in list(self._connections):
            connection.log(data, level)

    # Prompts.

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **settings: Unpack[PromptSettings]) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **settings: Any) -> Any:
        """Decorate a typed function to serve it as a prompt, with or without settings. Returns it unchanged.

        Settings: `name`, `title`, `description`, `complete` (values to suggest for arguments: a list, or a
        function that returns them), `icons`, `meta`, `timeout`, `inline`.
        """
        if function is not None:
            self.add_prompt(function, **settings)
            return function

        def decorate(each: F) -> F:
            self.add_prompt(each, **settings)
            return each

        return decorate

    def add_prompt(
        self, function: Callable[..., Any], *, replace: bool = False, **settings: Unpack[PromptSettings]
    ) -> ServedPrompt:
        """Serve a function as a prompt, as `prompt` does. A taken name is an error unless `replace` is set."""
        added = make_prompt(function, settings)
        self.registered_prompts.add(added, replace=replace)
        self._notify_changed("prompts")
        return added

    def remove_prompt(self, name: str) -> ServedPrompt:
        """Remove a prompt. KeyError if there is no prompt of that name."""
        removed = self.registered_prompts.remove(name)
        self._notify_changed("prompts")
        return removed

    # For connections.

    def connect(self, channel: ClientChannel, *, notify_all_updates: bool = False) -> "DirectConnection":
        """Open a connection for one client. On an event loop.

        With `notify_all_updates` it sends updates of all resources: the carrier has the subscriptions itself.
        """
        from toolwire.tools.dispatch.connection import DirectConnection  # noqa: PLC0415 - only needed with a client

        connection = DirectConnection(self, channel, notify_all_updates=notify_all_updates)
        self._connections.add(connection)
        if self._make_lifespan is not None and self.open_lifespan is None:
            self.open_lifespan = Lifespan(self._make_lifespan(self), self._state)
            self.open_lifespan.start()
        return connection

    def page(self, cursor: Any) -> Page:
        """Return one page of the tool list, as a dict and as bytes made once. KeyError for an unknown cursor."""
        return self._pages.page(cursor)

    @property
    def state(self) -> S | None:
        """The state that tools see as `context.state`."""
        return self._state if self.open_lifespan is None else self.open_lifespan.state

    async def wait_until_ready(self) -> None:
        """Wait for the lifespan to start, if there is one. Raises the exception of its start, if that fails."""
        if self.open_lifespan is not None:
            await self.open_lifespan.wait()

    async def release(self, connection: "DirectConnection") -> None:
        """Forget a connection that was closed. With the last one, the lifespan ends too."""
        self._connections.discard(connection)
        if not self._connections and self.open_lifespan is not None:
            lifespan, self.open_lifespan = self.open_lifespan, None
            await lifespan.aclose()

    # For the CLI.

    def cli_config(self) -> dict[str, Any]:
        """Return the CLI's configuration of this server, without its type and name."""
        return {"alwaysLoad": True} if self.always_load else {}

    def cli_policies(self) -> list[dict[str, Any]]:
        """Return the permission policies of the tools that have one of their own."""
        return [
            {"name": tool.name, "permission_policy": tool.policy}
            for tool in list(self._tools.values())  # a copy: another thread may add one meanwhile
            if tool.policy
        ]

    def _notify_changed(self, kind: str) -> None:
        for connection in list(self._connections):
            connection.list_changed(kind)


def choose_tools(tools: Iterable[Any]) -> list["Tool[Any]"]:
    """Keep one of the tools that have the same name for the CLI, with a warning.

    Of tools with equal names that is the last; of different names that the CLI spells the same, the first.
    """
    chosen: dict[str, Tool[Any]] = {}
    for tool in map(_as_tool, tools):
        spelt = wire_name(tool.name)
        other = chosen.get(spelt)
        if other is not None:
            which = "the last" if other.name == tool.name else "the first"
            text = (
                f"two tools are called {spelt!r} by the CLI, {other.name!r} and {tool.name!r}: {which} counts"
            )
            warn_at_user_line(f"{text}. Rename one.", ToolwireWarning)
        if other is None or other.name == tool.name:
            chosen[spelt] = tool
    return list(chosen.values())


def _as_tool(given: Any) -> "Tool[Any]":
    """Return a `Tool`: the given one, or one made from a function or from a tool of the official SDK."""
    if isinstance(given, Tool):
        return given.refresh()
    if all(hasattr(given, name) for name in ("name", "description", "input_schema", "handler")):
        annotations = getattr(given, "annotations", None)
        return Tool(given.name, given.description, given.input_schema, given.handler, annotations)
    return from_function(given)
