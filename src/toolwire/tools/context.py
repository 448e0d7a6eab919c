"""`Context`: gives a running tool, resource or prompt access to its call and to the client.

A function with a parameter annotated `Context` gets one for each call. Owns the requests and notifications that a
function can send. They go through the connection's channel; this module must not know what is on the other side.
"""

import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from typing import Any, Final, Generic, Literal, overload

import anyio
from typing_extensions import TypeVar

from toolwire._protocol.jsonrpc import ClientChannel, make_notification
from toolwire._support.record import Record, record
from toolwire._support.tasks import Task, has_scopes, is_cancellation, spawn
from toolwire.errors import ClaudeSDKError
from toolwire.tools.results.to_json import clean, sendable

S = TypeVar("S", default=Any)
T = TypeVar("T")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_EXACT: Final = 1 << 53  # larger integers are not exact in every JSON parser


class ToolCancelled(ClaudeSDKError):  # noqa: N818 - an event
    """Raised by `Context.check_cancelled()` and `wait()` in a sync tool whose call was cancelled or timed out."""


@record
class Elicited(Record, Generic[T]):
    """The answer of a user to `Context.elicit()`."""

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None
    """The answer, if accepted: an instance of the requested type, or a dict."""

    @property
    def accepted(self) -> bool:
        """True if the user answered."""
        return self.action == "accept"


@record
class Sampled(Record):
    """The answer of a model to `Context.sample()`."""

    text: str
    model: str = ""
    stop_reason: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


@record
class Root(Record):
    """A directory or file that the client works in."""

    uri: str
    name: str | None = None


class Context(Generic[S]):
    """One call of one tool.

    `progress()` and `log()` never wait, so they may be awaited or not, in async tools and in sync ones. The others
    are coroutines; a sync tool runs them with `context.wait(context.elicit(...))`.
    """

    _waits: "Waits | None" = None  # made for the first `wait()`: most calls have none

    def __init__(
        self,
        *,
        server: str,
        tool: str,
        channel: ClientChannel,
        state: S,
        repeatable: bool = True,
        session: Any = None,
        request_key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        log_level: Callable[[], str] = lambda: "debug",
        post: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.server = server
        """Name of the server."""
        self.tool = tool
        """Name of the tool, resource or prompt."""
        self.state = state
        """The application's own object: `ToolServer(state=...)`, or what its lifespan yields."""
        self.session = session
        """Identifies the client: use it as a key, and for nothing else.

        The same object for all calls of one client, in process and where the client has a session (up to
        2025-11-25, over stdio and over HTTP with sessions). Otherwise each request has its own."""
        self.request_key = request_key
        """Identifies the request: equal only for the same request of the same client; None if that is not known.

        It is known over stdio and over HTTP with sessions. In process it is None: the CLI reuses request ids, and
        distinguishes calls by their `tool_use_id`."""
        self.meta: Mapping[str, Any] = meta or {}
        """The request's `_meta`."""
        self._cancelled = False
        self._channel = channel
        self._repeatable = repeatable
        self._log_level = log_level
        self._post = post

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled. For sync tools to check; async tools are cancelled anyway."""
        # On the event loop a cancellation from outside shows in the scope before the setter is called.
        if self._cancelled or self._post is not None or not has_scopes():
            return self._cancelled
        return anyio.current_effective_deadline() == -math.inf

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._cancelled = value
        if value and self._waits is not None:
            self._waits.cancel_all()

    @property
    def tool_use_id(self) -> str | None:
        """The id of the model's tool use, if the client sends it."""
        value = self.meta.get("claudecode/toolUseId")
        return value if isinstance(value, str) else None

    def check_cancelled(self) -> None:
        """Raise `ToolCancelled` if the call was cancelled. For sync tools."""
        if self.cancelled:
            raise self._cancelled_error()

    def _cancelled_error(self) -> ToolCancelled:
        return ToolCancelled(f"the call of {self.tool} was cancelled")

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> "Done":
        """Report progress, if the client wants it. TypeError or ValueError unless the numbers are finite."""
        token = self.meta.get("progressToken")
        params: dict[str, Any] = {"progressToken": token, "progress": _check_number("progress", progress)}
        if total is not None:
            params["total"] = _check_number("total", total)
        if message is not None:
            if not isinstance(message, str):
                raise TypeError(f"the message of progress must be a string, got {type(message).__name__}")
            params["message"] = clean(message)
        if token is not None:
            self._notify("notifications/progress", self._add_tool_use_id(params))
        return Done()

    def log(self, data: Any, level: LogLevel = "info", logger: str | None = None) -> "Done":
        """Send a log message, if the client wants that level. Data that is not JSON is sent as its `repr`."""
        check_level(level)
        if reaches(level, self._log_level()):
            name = clean(str(logger)) if logger else self.server
            params = {"level": level, "logger": name, "data": sendable(data)}
            self._notify("notifications/message", self._add_tool_use_id(params))
        return Done()

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The requests that the client supports: `elicitation`, `sampling`, `roots`."""
        return self._channel.capabilities

    def client_supports(self, capability: str) -> bool:
        """True if the client supports such requests (`elicitation`, `sampling`, `roots`)."""
        return capability in self._channel.capabilities

    def close_stream(self) -> "Done":
        """Close the HTTP stream that waits for the response; clients that can do so resume it later.

        For long calls, so that they hold no connection. Does nothing in other transports.
        """
        self._on_loop(self._channel.close_stream)
        return Done()

    # Requests to the client. A client of MCP 2026-07-28 sends its response by repeating the call, so everything
    # before the request runs again. `key` identifies the request in the repeated call; without a key, its content
    # does.

    @overload
    async def elicit(
        self, message: str, schema: dict[str, Any] | None = None, *, key: str | None = None
    ) -> "Elicited[dict[str, Any]]": ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> "Elicited[T]": ...
    async def elicit(
        self, message: str, schema: type[Any] | dict[str, Any] | None = None, *, key: str | None = None
    ) -> "Elicited[Any]":
        """Ask the user. `schema` is a JSON schema, or a type: then `content` is a validated instance of it."""
        adapter, wire = _answer_schema(schema)
        answer = await self._request("elicitation/create", {"message": message, "requestedSchema": wire}, key)
        content = answer.get("content")
        if answer.get("action") == "accept" and adapter is not None:
            content = adapter.validate_python(content)
        return Elicited(answer.get("action", "cancel"), content)

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, *, key: str | None = None
    ) -> "Elicited[None]":
        """Ask the user to open a URL, to sign in for instance."""
        params = {"mode": "url", "message": message, "url": url, "elicitationId": elicitation_id}
        answer = await self._request("elicitation/create", params, key)
        return Elicited(answer.get("action", "cancel"))

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        key: str | None = None,
        **params: Any,
    ) -> Sampled:
        """Ask the client's model. `messages` is a prompt or MCP sampling messages; `params` are sent unchanged."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        raw = await self._request(
            "sampling/createMessage", {"messages": list(messages), "maxTokens": max_tokens, **params}, key
        )
        content = raw.get("content")
        blocks = content if isinstance(content, list) else [content]
        text = "".join(block.get("text", "") for block in blocks if isinstance(block, dict))
        return Sampled(text, raw.get("model", ""), raw.get("stopReason"), raw)

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Return the directories and files that the client works in."""
        answer = await self._request("roots/list", {}, key)
        return [Root(root["uri"], root.get("name")) for root in answer.get("roots", [])]

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable, which runs on the event loop. For sync tools.

        `ToolCancelled` if the call is cancelled or timed out meanwhile.
        """
        if self._post is None:
            raise RuntimeError("wait() is for sync tools: use await in an async tool")
        outcome: Future[T] = Future()
        self._post(lambda: self._start_wait(awaitable, outcome))
        return outcome.result()

    def _start_wait(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        if self._waits is None:
            self._waits = Waits(self._cancelled_error)
            if self._cancelled:
                self._waits.cancel_all()
        self._waits.start(awaitable, outcome)

    def _add_tool_use_id(self, params: dict[str, Any]) -> dict[str, Any]:
        """Add the id of the tool use, which is unique; progress tokens and request ids are reused."""
        tool_use_id = self.tool_use_id
        return params if tool_use_id is None else {**params, "_meta": {"claudecode/toolUseId": tool_use_id}}

    async def _request(self, method: str, params: dict[str, Any], key: str | None) -> dict[str, Any]:
        return await self._channel.request(method, sendable(params), key=key, repeatable=self._repeatable)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        message = make_notification(method, params)
        self._on_loop(lambda: self._channel.notify(message))

    def _on_loop(self, act: Callable[[], None]) -> None:
        if self._post is None:
            act()
        else:
            self._post(act)


class Done:
    """The result of a call that is already complete: it may be awaited or not."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def reaches(level: object, threshold: object) -> bool:
    """True if a client that wants `threshold` and above gets a message of `level`. False for unknown levels."""
    return level in LEVELS and threshold in LEVELS and LEVELS.index(level) >= LEVELS.index(threshold)


def check_level(level: object) -> None:
    """Raise ValueError unless `level` is a log level."""
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: use one of {', '.join(LEVELS)}")


def _check_number(what: str, value: Any) -> float:
    """Return the value as a JSON number; TypeError or ValueError if it is not one."""
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{what} must be a finite number, got {str(value)[:50]}")
    return found


def _answer_schema(schema: Any) -> tuple[Any, dict[str, Any]]:
    if schema is None:
        return None, {"type": "object", "properties": {}}
    if isinstance(schema, dict):
        return None, schema
    from toolwire.tools.schema.pydantic_types import adapter_of, readable  # noqa: PLC0415 - loads Pydantic

    adapter = adapter_of(readable(schema))
    return adapter, adapter.json_schema()


class Waits:
    """The awaitables on the event loop that threads of one call wait for.

    Each wait ends with the result, with the exception that was raised, or, once the call has ended, with the
    exception that `cancelled` makes, so that no thread waits for ever. All methods are called on the event loop.
    """

    def __init__(self, cancelled: Callable[[], Exception]) -> None:
        self._cancelled = cancelled
        self._tasks: dict[Future[Any], Task] = {}
        self._ended = False

    def start(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        """Await it, and set the result or exception of `outcome`, which a thread waits for."""
        if self._ended:
            self._end(awaitable, outcome)
            return

        async def work() -> None:
            try:
                outcome.set_result(await awaitable)
            except BaseException as error:  # raised in the waiting thread
                if is_cancellation(error):
                    raise
                outcome.set_exception(error)

        self._tasks[outcome] = spawn(work, on_done=lambda: self._end(awaitable, outcome))

    def cancel_all(self) -> None:
        """Cancel all waits, including any that are started later, because the call has ended."""
        self._ended = True
        for task in list(self._tasks.values()):
            task.cancel()

    def _end(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        self._tasks.pop(outcome, None)
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # it may not have started
        if not outcome.done():
            outcome.set_exception(self._cancelled())
