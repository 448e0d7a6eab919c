"""The connection of one client to a `ToolServer`: answers JSON-RPC messages by a table of methods.

Owns the state of that client: its log level, the calls that run for it, cancellation. One rule above all:
every request gets exactly one reply that carries its id.
"""

import asyncio
import inspect
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from toolwire._protocol.jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    ClientChannel,
    Id,
    Interrupted,
    Notification,
    Request,
    RpcError,
    Unanswerable,
    classify,
    make_error,
    make_notification,
    make_response,
)
from toolwire._protocol.lines import decode, encode
from toolwire._support.log import logger_for
from toolwire._support.tasks import TaskScope, cancelled_from_inside, is_async, new_scope, shield
from toolwire._support.threads import TooManyAbandonedCalls, loop_caller
from toolwire._support.waiting import Future
from toolwire.errors import ResourceNotFoundError, ToolError, message_of
from toolwire.tools.context import LEVELS, Context, LogLevel, check_level, reaches
from toolwire.tools.dispatch.errors import (
    describe,
    describe_type,
    error_reply,
    invalid_params,
    is_failure,
    method_not_found,
    require_object,
    require_registry,
    require_text,
)
from toolwire.tools.dispatch.interface import Connection, Pending, Reply
from toolwire.tools.exposed_function import complete_result
from toolwire.tools.paging import list_page
from toolwire.tools.results.result import BadResult, error_result, loses_text, to_result
from toolwire.tools.results.to_json import clean, sendable
from toolwire.tools.schema.arguments import InvalidArguments

if TYPE_CHECKING:
    from toolwire.tools.exposed_function import ExposedFunction
    from toolwire.tools.prompts import Prompts, ServedPrompt
    from toolwire.tools.resources import Resources, ServedResource
    from toolwire.tools.server import ToolServer
    from toolwire.tools.tool import Tool
    from toolwire.tools.toolset import Toolset

logger = logger_for("server")

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The supported protocol versions. A client that requests any other gets the first."""
_CLOSE_TIMEOUT: Final = 5.0  # seconds

Result = Callable[..., Awaitable[dict[str, Any]]]
"""Makes the result of a request: `(subject, arguments, meta, call)`."""


class Subject(Protocol):
    """A tool, resource or prompt: something with a function that can be called."""

    name: str
    timeout: float | None

    @property
    def repeatable(self) -> bool:
        """True if it may run again for the same call, as the responses of a stateless client require."""
        ...

    @property
    def threaded(self) -> bool:
        """True if a worker thread runs it."""
        ...

    @property
    def label(self) -> str:
        """Its kind and name, for errors."""
        ...

    def invoke(self, values: dict[str, Any], context: Context[Any] | None) -> Any:
        """Call the function with validated values. Returns its result, or an awaitable of it."""
        ...


class Call:
    """A running call, and the two ways to stop it: its scope, and the flag that a sync tool can see."""

    def __init__(self, scope: "anyio.CancelScope | TaskScope", request_id: Id) -> None:
        self.request_id = request_id
        self._scope = scope
        self.context: Context[Any] | None = None

    def cancel(self) -> None:
        """Cancel it, whether it runs on the event loop or in a thread."""
        self.mark_cancelled()
        self._scope.cancel()

    def mark_cancelled(self) -> None:
        """Set the flag that the function can see."""
        if self.context is not None:
            self.context.cancelled = True


def _find_interruption(error: BaseException) -> Interrupted | None:
    """Return the `Interrupted` that an exception is or contains: task groups in a function wrap what they raise."""
    if isinstance(error, BaseExceptionGroup):
        return next(
            (found for each in error.exceptions if (found := _find_interruption(each)) is not None), None
        )
    return error if isinstance(error, Interrupted) else None


class DirectConnection(Connection):
    """One client of a `ToolServer`. Without a `session` of the channel, `context.session` is this connection."""

    tags_progress = True

    def __init__(
        self, server: "ToolServer[Any]", channel: ClientChannel, *, notify_all_updates: bool = False
    ) -> None:
        self.server = server
        self.subscriptions: set[str] = set()
        """The URIs of the resources that the client has subscribed to."""
        self._channel = channel
        self._session = channel.session or self
        self._request_scope = channel.request_scope
        self._notify_all_updates = notify_all_updates
        self._post = loop_caller() if channel.server_wide else None
        self._log_level: str = LEVELS[0]
        self._calls: defaultdict[Id, list[Call]] = defaultdict(list)
        self._idle: Future[None] | None = None  # set by the last call that ends, for `aclose`
        self._unannounced: set[str] = set()
        self._closed = False

    @property
    def limits_time(self) -> bool:
        tools = list(self.server.tools.values())  # a copy: another thread may add one meanwhile
        return self.server.timeout is not None or any(tool.timeout is not None for tool in tools)

    # Messages in.

    async def answer_bytes(self, data: bytes | str) -> bytes | None:
        """Answer a line of JSON with a line of JSON. A line that is not JSON gets a parse error."""
        try:
            message = decode(data.encode() if isinstance(data, str) else data)
        except ValueError as error:
            return encode(make_error(None, RpcError(PARSE_ERROR, "Parse error", {"details": str(error)})))
        try:
            answer = await self.answer(message)
        except Unanswerable as error:
            return encode(make_error(None, RpcError(INVALID_REQUEST, str(error))))
        return None if answer is None else encode(answer)

    def begin(self, message: Any, *, encoded: bool = False) -> Reply | Pending | None:
        """Answer a message at once if nothing has to be waited for, or return the work that will answer it."""
        try:
            event = classify(message)
            if isinstance(event, Request):
                return self._request(event, encoded)
        except RpcError as error:
            return error_reply(message["id"], error)
        if isinstance(event, Notification) and event.method == "notifications/cancelled":
            self._cancel(event.params.get("requestId"))
        return None

    def _request(self, request: Request, encoded: bool) -> Reply | Pending:
        if request.method == "tools/call":
            return self._call(request)
        if request.method == "tools/list" and (ready := self.server.before_list()) is not None:
            return self._defer(request, self._list_when_ready, ready, request.params)
        method = _IMMEDIATE.get(request.method)
        if method is not None:
            return make_response(request.id, method(self, request.params, encoded))
        start = _DEFERRED.get(request.method)
        if start is None:
            raise method_not_found(self.server, request.method)
        return start(self, request)

    # The table.

    def _initialize(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        version = params.get("protocolVersion")
        server = self.server
        info = {"name": server.name, "version": server.version}
        result: dict[str, Any] = {
            "protocolVersion": version if version in VERSIONS else VERSIONS[0],
            "capabilities": server.capabilities(),
            "serverInfo": {**info, "title": server.title} if server.title else info,
        }
        if server.instructions:
            result["instructions"] = server.instructions
        encodable: dict[str, Any] = sendable(result)
        return encodable

    def _ping(self, _params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        return {}

    def _list_tools(self, params: dict[str, Any], encoded: bool) -> Any:
        return list_page(self.server.page, params, encoded)

    async def _list_when_ready(
        self, ready: Callable[[], Awaitable[None]], params: dict[str, Any], _meta: dict[str, Any], _call: Call
    ) -> dict[str, Any]:
        await ready()
        result: dict[str, Any] = self._list_tools(params, encoded=False)
        return result

    def _set_level(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        level = params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}. One of {', '.join(LEVELS)}")
        self._log_level = level
        return {}

    # Calls.

    def _call(self, request: Request) -> Pending:
        """Check what can be checked at once, and return the work of the call."""
        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "Invalid params: no tool name")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            kind = type(arguments).__name__
            raise RpcError(INVALID_PARAMS, f"Invalid params: arguments must be an object, got {kind}")
        tool = self.server.tools.get(name)
        if tool is None and (ready := self.server.before_list()) is not None:
            return self._defer(request, self._call_when_ready, (name, ready), arguments)
        if tool is None:
            raise self._unknown_tool(name)
        return self._defer(request, self._call_tool, tool, arguments)

    async def _call_when_ready(
        self,
        awaited: tuple[str, Callable[[], Awaitable[None]]],
        arguments: dict[str, Any],
        meta: dict[str, Any],
        call: Call,
    ) -> dict[str, Any]:
        """Call a tool once the server has loaded its tools. The call can be cancelled while it waits for that."""
        name, ready = awaited
        await ready()
        tool = self.server.tools.get(name)
        if tool is None:
            raise self._unknown_tool(name)
        return await self._call_tool(tool, arguments, meta, call)

    def _unknown_tool(self, name: str) -> RpcError:
        data = {"tool": name, "server": self.server.name}
        return RpcError(INVALID_PARAMS, self.server.unknown(name), data)

    def _defer(self, request: Request, result: Result, subject: Any, arguments: dict[str, Any]) -> Pending:
        """Return the work of a request that was checked; awaiting `result(...)` gives its result."""
        meta = request.params.get("_meta")
        return Pending(
            self._run, request.id, result, subject, arguments, meta if isinstance(meta, dict) else {}
        )

    async def _run(
        self, request_id: Id, result: Result, subject: Any, arguments: dict[str, Any], meta: dict[str, Any]
    ) -> Any:
        with new_scope() as scope:
            call = Call(scope, request_id)
            calls = self._calls[request_id]
            calls.append(call)
            try:
                return make_response(request_id, await result(subject, arguments, meta, call))
            except RpcError as error:
                return error_reply(request_id, error)
            except BaseException as error:
                call.mark_cancelled()  # an abandoned thread has no other way to notice
                if (interrupted := _find_interruption(error)) is not None:
                    raise interrupted from None
                raise
            finally:
                calls.remove(call)
                if not calls:
                    del self._calls[request_id]
                if self._idle is not None and not self._calls:
                    self._idle.set(None)
        return make_error(request_id, RpcError(CANCELLED, "Request cancelled"))

    async def _call_tool(
        self, tool: "Tool[Any]", arguments: dict[str, Any], meta: dict[str, Any], call: Call
    ) -> dict[str, Any]:
        try:
            values = self._validate(tool, arguments)
            if tool.takes_context or self.server.open_lifespan is not None:
                call.context = self._context(tool, await self._open_state(), meta, call)
            if tool.threaded or tool.timeout is not None or self.server.timeout is not None:
                value = await self._perform_in_time(tool, values, call)
            else:  # the same as `_perform`, inlined because most calls take this branch: it saves a coroutine
                value = tool.invoke(values, call.context)
                if tool.is_async or inspect.isawaitable(value):
                    value = await value
        except ToolError as error:
            return error_result(message_of(error))
        except RpcError:
            raise
        except BaseException as error:  # the boundary of a tool: the model gets the error
            if not _is_own_failure(error):
                raise
            return self._failure_result(tool, error)
        return self._convert(tool, value)

    def _validate(self, tool: "Tool[Any]", arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return tool.parameters.validate(arguments)
        except InvalidArguments as error:
            raise invalid_params(error, {"tool": tool.name}) from None

    def _context(self, subject: Subject, state: Any, meta: dict[str, Any], call: Call) -> Context[Any]:
        return Context(
            server=self.server.name,
            tool=subject.name,
            channel=self._channel,
            repeatable=subject.repeatable,
            state=state,
            session=self._session,
            request_key=f"{self._request_scope}:{call.request_id!r}" if self._request_scope else None,
            meta=meta,
            log_level=lambda: self._log_level,
            post=(self._post or loop_caller()) if subject.threaded else None,
        )

    async def _perform_in_time(self, subject: Subject, values: dict[str, Any], call: Call) -> Any:
        seconds = self.server.timeout if subject.timeout is None else subject.timeout
        if seconds is None:
            return await self._perform(subject, values, call.context)
        with anyio.move_on_after(seconds):
            return await self._perform(subject, values, call.context)
        call.mark_cancelled()
        raise ToolError(f"{subject.label} timed out after {seconds:g} s")

    async def _in_thread(self, subject: Subject, work: Callable[[], Any]) -> Any:
        """Run a sync function of a subject in a worker thread."""
        client = self._channel.client_key()
        if client is None:
            client = self._session
        try:
            return await self.server.workers.run(work, client)
        except TooManyAbandonedCalls as error:
            raise ToolError(
                f"{subject.label} was not run: {error.count} calls of this client were cancelled or timed out and "
                "still run in threads, which Python cannot stop; no more are started until one of them has ended"
            ) from None

    async def _perform(self, subject: Subject, values: dict[str, Any], context: Context[Any] | None) -> Any:
        if subject.threaded:
            value = await self._in_thread(subject, partial(subject.invoke, values, context))
        else:
            value = subject.invoke(values, context)
        return await value if inspect.isawaitable(value) else value

    def _convert(self, tool: "Tool[Any]", value: Any) -> dict[str, Any]:
        try:
            result = to_result(value, output=tool.output)
        except BadResult as error:
            logger.warning("tool %r returned a value that cannot be a result: %s", tool.name, error)
            data = {"tool": tool.name, "server": self.server.name, "type": error.type_name}
            raise RpcError(INTERNAL_ERROR, f"Tool {tool.name!r}: {error}", data) from error
        if "structuredContent" in result and not tool.text_mirrors_structured and loses_text(result):
            logger.warning(
                "tool %r returned text beside structured content: the CLI does not show the text to the model",
                tool.name,
            )
        return result

    def _failure_result(self, tool: "Tool[Any]", error: BaseException) -> dict[str, Any]:
        logger.warning("tool %r failed", tool.name, exc_info=error)
        result = error_result(describe(error))
        if self.server.debug:
            result["_meta"] = {"toolwire/traceback": clean("".join(traceback.format_exception(error)))}
        return result

    async def _open_state(self) -> Any:
        """Return the state for `context.state`, once the lifespan of the server is open."""
        lifespan = self.server.open_lifespan
        if lifespan is None or lifespan.open:
            return self.server.state
        try:
            return await lifespan.wait()
        except Exception as error:
            text = f"Server {self.server.name!r} could not start: {describe(error)}"
            raise RpcError(INTERNAL_ERROR, text, {"server": self.server.name}) from error

    def _cancel(self, request_id: Any) -> None:
        """Cancel the newest open call with that id: the CLI reuses ids while older calls are open."""
        calls = self._calls.get(request_id) if isinstance(request_id, int | float | str) else None
        if calls:
            calls[-1].cancel()

    # Resources.

    def _list_resources(self, params: dict[str, Any], encoded: bool) -> Any:
        return list_page(self._require_resources("resources/list").pages.page, params, encoded)

    def _list_templates(self, params: dict[str, Any], encoded: bool) -> Any:
        resources = self._require_resources("resources/templates/list")
        return list_page(resources.template_pages.page, params, encoded)

    def _subscribe(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        uri = require_text(params, "uri")
        find_resource(self.server, uri, "resources/subscribe")
        self.subscriptions.add(uri)
        return {}

    def _unsubscribe(self, params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
        self._require_resources("resources/unsubscribe")
        self.subscriptions.discard(require_text(params, "uri"))
        return {}

    def _require_resources(self, method: str) -> "Resources":
        return require_registry(self.server, self.server.registered_resources, method)

    def _read_resource(self, request: Request) -> Pending:
        uri = require_text(request.params, "uri")
        resource, texts = find_resource(self.server, uri, request.method)
        serve = partial(self._serve, convert=partial(resource.contents, uri), about=self._about(uri=uri))
        return self._defer(request, serve, resource, texts)

    # Prompts.

    def _list_prompts(self, params: dict[str, Any], encoded: bool) -> Any:
        return list_page(self._require_prompts("prompts/list").pages.page, params, encoded)

    def _require_prompts(self, method: str) -> "Prompts":
        return require_registry(self.server, self.server.registered_prompts, method)

    def _get_prompt(self, request: Request) -> Pending:
        name = require_text(request.params, "name")
        self._require_prompts(request.method)
        prompt = self._find_prompt(name)
        texts = request.params.get("arguments")
        if not isinstance(texts, dict | None):
            raise RpcError(
                INVALID_PARAMS, f"Invalid params: arguments must be an object, got {describe_type(texts)}"
            )
        serve = partial(self._serve, convert=prompt.messages, about=self._about(prompt=name))
        return self._defer(request, serve, prompt, texts or {})

    def _find_prompt(self, name: str) -> "ServedPrompt":
        prompt = self.server.prompts.get(name)
        if prompt is None:
            text = self.server.registered_prompts.unknown(name)
            raise RpcError(INVALID_PARAMS, text, self._about(prompt=name))
        return prompt

    # Completion.

    def _complete(self, request: Request) -> Pending:
        server, params = self.server, request.params
        if not (server.registered_resources.ever or server.registered_prompts.ever):
            raise method_not_found(server, request.method)
        argument = require_object(params, "argument")
        subject = self._completed_subject(require_object(params, "ref"))
        name, value = (require_text(argument, key, "argument.") for key in ("name", "value"))
        others = require_object(params, "context", {}).get("arguments") or {}
        if not isinstance(others, dict):
            kind = describe_type(others)
            raise RpcError(INVALID_PARAMS, f"Invalid params: context.arguments must be an object, got {kind}")
        known = {key: each for key, each in others.items() if isinstance(each, str)}
        return self._defer(request, partial(self._find_values, name=name, value=value), subject, known)

    def _completed_subject(self, ref: dict[str, Any]) -> "ExposedFunction":
        """Return the prompt or resource whose argument is completed."""
        server, kind = self.server, ref.get("type")
        if kind == "ref/prompt":
            return self._find_prompt(require_text(ref, "name", "ref."))
        if kind == "ref/resource":
            uri = require_text(ref, "uri", "ref.")
            resource = server.resource_templates.get(uri) or server.resources.get(uri)
            if resource is None:
                text = f"Unknown resource template: {uri}{server.registered_resources.hint(uri)}"
                raise RpcError(INVALID_PARAMS, text, self._about(uri=uri))
            return resource
        raise RpcError(INVALID_PARAMS, f"Unknown reference: {kind!r}. One of ref/prompt, ref/resource")

    async def _find_values(
        self,
        subject: "ExposedFunction",
        arguments: dict[str, str],
        _meta: dict[str, Any],
        _call: Call,
        *,
        name: str,
        value: str,
    ) -> dict[str, Any]:
        work = self._run_source(subject, subject.completer.find_source(name, value, arguments))
        return await self._await_result(subject, work, lambda result: result, self._about(argument=name))

    async def _run_source(
        self, subject: "ExposedFunction", source: list[str] | Callable[[], Any]
    ) -> dict[str, Any]:
        if isinstance(source, list):
            return complete_result(source)

        def run() -> Any:
            found = source()
            # In the same thread: the code of a generator runs while its items are read.
            return found if inspect.isawaitable(found) else complete_result(found)

        seconds = self.server.timeout if subject.timeout is None else subject.timeout
        with anyio.move_on_after(seconds):
            found: Any = run() if is_async(source) else await self._in_thread(subject, run)
            return complete_result(await found) if inspect.isawaitable(found) else found
        raise ToolError(f"{subject.label}: completion timed out after {seconds:g} s")

    # What resources, prompts and completion share.

    def _about(self, **about: str) -> dict[str, Any]:
        """Make the data of an error: the requested subject, and the server."""
        return {**about, "server": self.server.name}

    async def _serve(
        self,
        served: "ExposedFunction",
        texts: dict[str, Any],
        meta: dict[str, Any],
        call: Call,
        *,
        convert: Callable[[Any], dict[str, Any]],
        about: dict[str, Any],
    ) -> dict[str, Any]:
        """Run the function of a resource or prompt, and convert its result."""
        return await self._await_result(
            served, self._perform_served(served, texts, meta, call), convert, about
        )

    async def _perform_served(
        self, served: "ExposedFunction", texts: dict[str, Any], meta: dict[str, Any], call: Call
    ) -> Any:
        """Run the function of a resource or prompt. `InvalidArguments` if the texts do not fit its parameters."""
        values = served.values(texts)
        call.context = self._context(served, await self._open_state(), meta, call)
        return await self._perform_in_time(served, values, call)

    async def _await_result(
        self,
        subject: "ExposedFunction",
        work: Awaitable[Any],
        convert: Callable[[Any], dict[str, Any]],
        about: dict[str, Any],
    ) -> dict[str, Any]:
        """Await a user's function and convert its result. An exception becomes a JSON-RPC error."""
        try:
            return convert(await work)
        except RpcError:
            raise
        except InvalidArguments as error:
            raise invalid_params(error, about) from None
        except ToolError as error:
            raise RpcError(INTERNAL_ERROR, message_of(error), about) from error
        except BadResult as error:
            logger.warning("%s returned a value that cannot be a result: %s", subject.label, error)
            data = {**about, "type": error.type_name}
            raise RpcError(INTERNAL_ERROR, f"{subject.label}: {error}", data) from error
        except BaseException as error:  # the boundary of a user's function: the client gets the error
            if not _is_own_failure(error):
                raise
            raise self._failure(subject, error, about) from error

    def _failure(self, subject: "ExposedFunction", error: BaseException, about: dict[str, Any]) -> RpcError:
        text = message_of(error)
        if isinstance(error, ResourceNotFoundError) and "uri" in about:
            return RpcError(RESOURCE_NOT_FOUND, text or f"Resource not found: {about['uri']}", about)
        logger.warning("%s failed", subject.label, exc_info=error)
        if self.server.debug:
            about = {**about, "toolwire/traceback": "".join(traceback.format_exception(error))}
        return RpcError(INTERNAL_ERROR, describe(error), about)

    # Messages out, and the end.

    def _post_notification(self, send: Callable[[], None]) -> None:
        """Let the event loop call `send`, unless the client gets what belongs to no request on another channel."""
        if self._post is not None and not self._closed:
            self._post(send)

    def list_changed(self, kind: str) -> None:
        """Notify the client that its list of `tools`, `resources` or `prompts` has changed.

        Sends one notification for all changes in the same turn of the event loop. Any thread may call it.
        """
        if kind not in self._unannounced:
            self._unannounced.add(kind)
            self._post_notification(partial(self._send_list_changed, kind))

    def _send_list_changed(self, kind: str) -> None:
        self._unannounced.discard(kind)
        if not self._closed:
            self._channel.notify(make_notification(f"notifications/{kind}/list_changed"))

    def log(self, data: Any, level: LogLevel) -> None:
        """Send the client a log message that belongs to no call, if it wants that level. Any thread may call it."""
        check_level(level)
        self._post_notification(partial(self._send_log, sendable(data), level))

    def _send_log(self, data: Any, level: LogLevel) -> None:
        if not self._closed and reaches(level, self._log_level):
            params = {"level": level, "logger": self.server.name, "data": data}
            self._channel.notify(make_notification("notifications/message", params))

    def resource_updated(self, uri: str) -> None:
        """Notify the client that a resource has changed, if it has subscribed to it. Any thread may call it."""
        self._post_notification(partial(self._send_update, uri))

    def _send_update(self, uri: str) -> None:
        if not self._closed and (self._notify_all_updates or uri in self.subscriptions):
            self._channel.notify(make_notification("notifications/resources/updated", {"uri": uri}))

    async def aclose(self) -> None:
        """Cancel running calls and disconnect, in bounded time. May be called again."""
        if self._closed:
            return
        self._closed = True
        for calls in list(self._calls.values()):
            for call in calls:
                call.cancel()
        if self._calls:
            idle = self._idle = Future()
            with shield():
                await idle.wait(_CLOSE_TIMEOUT)
            if not idle.is_set:
                logger.error(
                    "server %r: %d calls did not stop within %g s",
                    self.server.name,
                    len(self._calls),
                    _CLOSE_TIMEOUT,
                )
        await self.server.release(self)


def _is_own_failure(error: BaseException) -> bool:
    """Return whether an exception is the function's own failure, rather than a cancellation from outside."""
    # A CancelledError without a cancellation of this task is from a task that the function awaited.
    return cancelled_from_inside() if isinstance(error, asyncio.CancelledError) else is_failure(error)


_IMMEDIATE: Final[dict[str, Callable[[DirectConnection, dict[str, Any], bool], Any]]] = {
    "initialize": DirectConnection._initialize,  # noqa: SLF001 - the table of this class
    "ping": DirectConnection._ping,  # noqa: SLF001
    "tools/list": DirectConnection._list_tools,  # noqa: SLF001
    "logging/setLevel": DirectConnection._set_level,  # noqa: SLF001
    "resources/list": DirectConnection._list_resources,  # noqa: SLF001
    "resources/templates/list": DirectConnection._list_templates,  # noqa: SLF001
    "resources/subscribe": DirectConnection._subscribe,  # noqa: SLF001
    "resources/unsubscribe": DirectConnection._unsubscribe,  # noqa: SLF001
    "prompts/list": DirectConnection._list_prompts,  # noqa: SLF001
}
"""Methods that are answered without waiting."""

_DEFERRED: Final[dict[str, Callable[[DirectConnection, Request], Pending]]] = {
    "resources/read": DirectConnection._read_resource,  # noqa: SLF001
    "prompts/get": DirectConnection._get_prompt,  # noqa: SLF001
    "completion/complete": DirectConnection._complete,  # noqa: SLF001
}
"""Methods that are checked at once, and then take time."""


def find_resource(server: "Toolset", uri: str, method: str) -> "tuple[ServedResource, dict[str, str]]":
    """Return the resource of a URI, and the values in the URI. `RpcError` if there is none."""
    resources = require_registry(server, server.registered_resources, method)
    data = {"uri": uri, "server": server.name}
    try:
        match = resources.find(uri)
    except InvalidArguments as error:
        raise invalid_params(error, data) from None
    if match is None:
        raise RpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}{resources.hint(uri)}", data)
    return match
