"""The direct way to a `ToolServer`: JSON-RPC answered by a table, no streams, nothing parsed twice.

Owns what is particular to one client: its log level, the calls that run for it, cancellation. One rule above all:
every request gets exactly one reply that carries its id.
"""

import asyncio
import inspect
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Id,
    Notification,
    Outlet,
    Request,
    RpcError,
    Unanswerable,
    notification,
    refusal,
    reply,
    sort,
)
from toolwire._log import logger_for
from toolwire._tasks import nobody_asked
from toolwire._threads import from_threads
from toolwire._wire.lines import decode, encode
from toolwire.errors import ToolError
from toolwire.tools.context import LEVELS, Context
from toolwire.tools.parameters import InvalidArguments
from toolwire.tools.results import BadResult, error_result, loses_text, to_result

if TYPE_CHECKING:
    from toolwire.tools.server import ToolServer
    from toolwire.tools.tool import Tool

logger = logger_for("server")

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Protocol versions that are answered as asked; any other gets the first."""
_CLOSING: Final = 5.0
_MOST: Final = 50  # violations in an error's data


class DirectConnection:
    """One client of a `ToolServer`.

    `violations_as_results`: arguments that break the schema come back as an error result, as MCP wants it over
    stdio and HTTP, instead of a JSON-RPC error, which the CLI shows to the model just as well.
    """

    def __init__(
        self, server: "ToolServer[Any]", outlet: Outlet, *, violations_as_results: bool = False
    ) -> None:
        self.server = server
        self._outlet = outlet
        self._violations_as_results = violations_as_results
        self._post = from_threads()
        self._log_level = LEVELS[0]
        self._calls: defaultdict[Id, list[_Call]] = defaultdict(list)
        self._idle: anyio.Event | None = None  # somebody waits for the last call to end
        self._announced = True
        self._closed = False

    # Messages in.

    async def answer(self, message: Any) -> dict[str, Any] | None:
        """The reply to a request, None for anything else. `Unanswerable` when there can be no reply."""
        begun = self.begin(message)
        answer: dict[str, Any] | None = await begun() if callable(begun) else begun
        return answer

    async def answer_bytes(self, data: bytes | str) -> bytes | None:
        """The same for text off a wire, a line for a line. What is no JSON is answered with a parse error."""
        try:
            message = decode(data.encode() if isinstance(data, str) else data)
        except ValueError as error:
            return encode(refusal(None, RpcError(PARSE_ERROR, "Parse error", {"details": str(error)})))
        try:
            answer = await self.answer(message)
        except Unanswerable as error:
            return encode(refusal(None, RpcError(INVALID_REQUEST, str(error))))
        return None if answer is None else encode(answer)

    def begin(self, message: Any, *, encoded: bool = False) -> Any:
        """Answer at once what needs no waiting; a function that starts the rest for what does.

        With `encoded`, a list may hold an `orjson.Fragment` made once, for a caller that writes with orjson.
        """
        try:
            event = sort(message)
            if isinstance(event, Request):
                return self._request(event, encoded)
        except RpcError as error:
            return refusal(message["id"], error)
        if isinstance(event, Notification) and event.method == "notifications/cancelled":
            self._cancel(event.params.get("requestId"))
        return None

    def _request(self, request: Request, encoded: bool) -> Any:
        if request.method == "tools/call":
            return self._call(request)
        method = _METHODS.get(request.method)
        if method is None:
            data = {"method": request.method, "server": self.server.name}
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}", data)
        return reply(request.id, method(self, request.params, encoded))

    # The table.

    def _initialize(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        server = self.server
        info = {"name": server.name, "version": server.version}
        result: dict[str, Any] = {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {**info, "title": server.title} if server.title else info,
        }
        return {**result, "instructions": server.instructions} if server.instructions else result

    def _ping(self, _params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        return {}

    def _list_tools(self, params: dict[str, Any], encoded: bool) -> Any:
        cursor = params.get("cursor")
        try:
            plain, fragment = self.server.page(cursor)
        except KeyError:
            raise RpcError(INVALID_PARAMS, f"Unknown cursor: {cursor!r}") from None
        return fragment if encoded else plain

    def _set_level(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        level = params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}. One of {', '.join(LEVELS)}")
        self._log_level = level
        return {}

    # Calls.

    def _call(self, request: Request) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Check all that can be checked at once; the rest can be started."""
        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "Invalid params: no tool name")
        tool = self.server.tools.get(name)
        if tool is None:
            data = {"tool": name, "server": self.server.name}
            raise RpcError(INVALID_PARAMS, self.server.unknown(name), data)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            kind = type(arguments).__name__
            raise RpcError(INVALID_PARAMS, f"Invalid params: arguments must be an object, got {kind}")
        meta = request.params.get("_meta")
        return partial(self._run, request.id, tool, arguments, meta if isinstance(meta, dict) else {})

    async def _run(
        self, request_id: Id, tool: "Tool[Any]", arguments: dict[str, Any], meta: dict[str, Any]
    ) -> Any:
        with anyio.CancelScope() as scope:
            call = _Call(scope)
            calls = self._calls[request_id]
            calls.append(call)
            try:
                return reply(request_id, await self._result(tool, arguments, meta, call))
            except RpcError as error:
                return refusal(request_id, error)
            finally:
                calls.remove(call)
                if not calls:
                    del self._calls[request_id]
                if self._idle is not None and not self._calls:
                    self._idle.set()
        return refusal(request_id, RpcError(CANCELLED, "Request cancelled"))

    async def _result(
        self, tool: "Tool[Any]", arguments: dict[str, Any], meta: dict[str, Any], call: "_Call"
    ) -> dict[str, Any]:
        threaded = not tool.is_async and not tool.inline
        try:
            values = self._checked(tool, arguments)
            call.context = context = Context(
                server=self.server.name,
                tool=tool.name,
                outlet=self._outlet,
                state=await self._state(),
                session=self,
                meta=meta,
                log_level=lambda: self._log_level,
                post=self._post if threaded else None,
            )
            value = await self._limited(tool, values, context, threaded)
        except ToolError as error:
            return error_result(str(error))
        except RpcError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary of a tool: the model hears of it
            return self._failed(tool, error)
        except asyncio.CancelledError as error:
            if not nobody_asked():
                raise
            return self._failed(tool, error)  # the tool lost a task of its own
        return self._converted(tool, value)

    def _checked(self, tool: "Tool[Any]", arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return tool.parameters.validate(arguments)
        except InvalidArguments as error:
            if self._violations_as_results:
                raise ToolError(str(error)) from None
            violations = [{"path": each.path, "message": each.message} for each in error.violations[:_MOST]]
            raise RpcError(
                INVALID_PARAMS, str(error), {"violations": violations, "tool": tool.name}
            ) from None

    async def _limited(
        self, tool: "Tool[Any]", values: dict[str, Any], context: Context[Any], threaded: bool
    ) -> Any:
        seconds = self.server.timeout if tool.timeout is None else tool.timeout
        if seconds is None:
            return await self._perform(tool, values, context, threaded)
        with anyio.move_on_after(seconds):
            return await self._perform(tool, values, context, threaded)
        context.cancelled = True
        raise ToolError(f"Tool {tool.name!r} timed out after {seconds:g} s")

    async def _perform(
        self, tool: "Tool[Any]", values: dict[str, Any], context: Context[Any], threaded: bool
    ) -> Any:
        if threaded:
            value = await self.server.workers.run(partial(tool.invoke, values, context))
        else:
            value = tool.invoke(values, context)
        return await value if inspect.isawaitable(value) else value

    def _converted(self, tool: "Tool[Any]", value: Any) -> dict[str, Any]:
        try:
            result = to_result(value, output=tool.output)
        except BadResult as error:
            logger.warning("tool %r returned what cannot be a result: %s", tool.name, error)
            data = {"tool": tool.name, "server": self.server.name, "type": error.type_name}
            raise RpcError(INTERNAL_ERROR, f"Tool {tool.name!r}: {error}", data) from error
        if loses_text(result):
            logger.warning(
                "tool %r returned text and other structured content: the CLI shows the model only the latter",
                tool.name,
            )
        return result

    def _failed(self, tool: "Tool[Any]", error: BaseException) -> dict[str, Any]:
        logger.warning("tool %r failed", tool.name, exc_info=error)
        text = str(error)
        result = error_result(f"{type(error).__name__}: {text}" if text else type(error).__name__)
        if self.server.debug:
            result["_meta"] = {"toolwire/traceback": "".join(traceback.format_exception(error))}
        return result

    async def _state(self) -> Any:
        lifespan = self.server.lifespan
        if lifespan is None or lifespan.open:
            return self.server.state
        try:
            return await lifespan.wait()
        except Exception as error:
            text = f"Server {self.server.name!r} could not start: {type(error).__name__}: {error}"
            raise RpcError(INTERNAL_ERROR, text, {"server": self.server.name}) from error

    def _cancel(self, request_id: Any) -> None:
        """The newest open call with that id: the CLI uses ids again while older ones are open."""
        calls = self._calls.get(request_id) if isinstance(request_id, int | float | str) else None
        if calls:
            calls[-1].cancel()

    # Messages out, and the end.

    def tools_changed(self) -> None:
        """Tell the client, once for all changes of this turn of the event loop. Any thread may call it."""
        if self._announced and not self._closed:
            self._announced = False
            self._post(self._announce)

    def _announce(self) -> None:
        self._announced = True
        if not self._closed:
            self._outlet.notify(notification("notifications/tools/list_changed"))

    async def aclose(self) -> None:
        """Cancel what runs and let go of the server; bounded, and may be called again."""
        if self._closed:
            return
        self._closed = True
        for calls in list(self._calls.values()):
            for call in calls:
                call.cancel()
        if self._calls:
            self._idle = anyio.Event()
            with anyio.move_on_after(_CLOSING, shield=True) as limit:
                await self._idle.wait()
            if limit.cancelled_caught:
                logger.error("server %r: %d calls did not stop", self.server.name, len(self._calls))
        await self.server.released(self)


_METHODS: Final[dict[str, Callable[[DirectConnection, dict[str, Any], bool], Any]]] = {
    "initialize": DirectConnection._initialize,  # noqa: SLF001 - the table of this class
    "ping": DirectConnection._ping,  # noqa: SLF001
    "tools/list": DirectConnection._list_tools,  # noqa: SLF001
    "logging/setLevel": DirectConnection._set_level,  # noqa: SLF001
}


class _Call:
    """A call that runs, and the two ways to stop it: its scope, and the flag that a sync tool can see."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self.context: Context[Any] | None = None

    def cancel(self) -> None:
        if self.context is not None:
            self.context.cancelled = True
        self._scope.cancel()
