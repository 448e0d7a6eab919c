"""`Context`: what a running tool, resource or prompt can know and do.

One that has a parameter annotated `Context` gets one for each call. Everything that goes out goes through the
connection's channel; this module does not know what is on the other side.
"""

import math
import numbers
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, overload

import anyio
from typing_extensions import TypeVar

from toolwire._protocol.jsonrpc import ClientChannel, make_notification
from toolwire.errors import ClaudeSDKError
from toolwire.tools.results.to_json import clean, sendable
from toolwire.tools.thread_bridge import Waits

S = TypeVar("S", default=Any)
T = TypeVar("T")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


_EXACT: Final = 1 << 53  # larger integers are no JSON numbers for everybody


class ToolCancelled(ClaudeSDKError):  # noqa: N818 - it says what happened
    """Raised by `Context.check_cancelled()` and `wait()` in a sync tool whose call was cancelled or timed out."""


@dataclass
class Elicited(Generic[T]):
    """The answer of a user to `Context.elicit()`."""

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None
    """The answer, when accepted: of the type asked for, or a dict."""

    @property
    def accepted(self) -> bool:
        """True if the user answered."""
        return self.action == "accept"


@dataclass
class Sampled:
    """The answer of a model to `Context.sample()`."""

    text: str
    model: str = ""
    stop_reason: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Root:
    """A place that the client works in."""

    uri: str
    name: str | None = None


class Context(Generic[S]):
    """One call of one tool.

    `progress()` and `log()` never wait, so they may be awaited or not, in async tools and in sync ones. The others
    are coroutines; a sync tool runs them with `context.wait(context.elicit(...))`.
    """

    _waits: Waits | None = None  # made for the first `wait()`: most calls have none

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
        """Stands for the client, to tell one from another: good as a key, and nothing more.

        The same object for all calls of one client, in process and where the client has a session (up to
        2025-11-25, over stdio and over HTTP with sessions). Elsewhere each request has one of its own."""
        self.request_key = request_key
        """Identifies the request: equal for the same request of the same client only; None if that is not known.

        There is one over stdio and over HTTP with sessions. In process there is none: the CLI uses request ids
        again,
        and tells calls apart by their `tool_use_id`."""
        self.meta: Mapping[str, Any] = meta or {}
        """The request's `_meta`."""
        self._cancelled = False
        self._channel = channel
        self._repeatable = repeatable
        self._log_level = log_level
        self._post = post

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled. Async tools are cancelled anyway; sync ones look here."""
        # On the event loop a cancellation from outside shows in the scope before anybody could tell us.
        return self._cancelled or (self._post is None and anyio.current_effective_deadline() == -math.inf)

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._cancelled = value
        if value and self._waits is not None:
            self._waits.release()

    @property
    def tool_use_id(self) -> str | None:
        """The id of the model's tool use, where the client tells it."""
        value = self.meta.get("claudecode/toolUseId")
        return value if isinstance(value, str) else None

    def check_cancelled(self) -> None:
        """For sync tools: raise `ToolCancelled` if the call was cancelled."""
        if self.cancelled:
            raise self._over()

    def _over(self) -> ToolCancelled:
        return ToolCancelled(f"the call of {self.tool} was cancelled")

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> "Done":
        """Say how far it is. TypeError and ValueError for what is no finite number."""
        token = self.meta.get("progressToken")
        params: dict[str, Any] = {"progressToken": token, "progress": _number("progress", progress)}
        if total is not None:
            params["total"] = _number("total", total)
        if message is not None:
            if not isinstance(message, str):
                raise TypeError(f"the message of progress must be a string, got {type(message).__name__}")
            params["message"] = clean(message)
        if token is not None:
            self._notify("notifications/progress", self._marked(params))
        return Done()

    def log(self, data: Any, level: LogLevel = "info", logger: str | None = None) -> "Done":
        """Send a log message, if the client wants that level. Data that is no JSON goes as Python shows it."""
        check_level(level)
        if reaches(level, self._log_level()):
            said = clean(str(logger)) if logger else self.server
            params = {"level": level, "logger": said, "data": sendable(data)}
            self._notify("notifications/message", self._marked(params))
        return Done()

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The requests that the client answers: `elicitation`, `sampling`, `roots`."""
        return self._channel.capabilities

    def client_supports(self, capability: str) -> bool:
        """Return whether the client answers such requests (`elicitation`, `sampling`, `roots`)."""
        return capability in self._channel.capabilities

    def close_stream(self) -> "Done":
        """Over HTTP, end the stream that the answer would come on; a client that can comes back for it later.

        For calls that take long, so that no connection is held. Elsewhere it does nothing.
        """
        self._on_loop(self._channel.close_stream)
        return Done()

    # Questions. A client of MCP 2026-07-28 answers by running the call again, with the answers: everything before a
    # question then runs once more. `key` names a question in such a round; without it, its content does.

    @overload
    async def elicit(
        self, message: str, schema: dict[str, Any] | None = None, *, key: str | None = None
    ) -> "Elicited[dict[str, Any]]": ...
    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> "Elicited[T]": ...
    async def elicit(
        self, message: str, schema: type[Any] | dict[str, Any] | None = None, *, key: str | None = None
    ) -> "Elicited[Any]":
        """Ask the user. `schema` is a type or a JSON schema; a type's answer is validated and an instance of it."""
        adapter, wire = _answer_schema(schema)
        answer = await self._ask("elicitation/create", {"message": message, "requestedSchema": wire}, key)
        content = answer.get("content")
        if answer.get("action") == "accept" and adapter is not None:
            content = adapter.validate_python(content)
        return Elicited(answer.get("action", "cancel"), content)

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, *, key: str | None = None
    ) -> "Elicited[None]":
        """Ask the user to open an address, to sign in for instance."""
        params = {"mode": "url", "message": message, "url": url, "elicitationId": elicitation_id}
        answer = await self._ask("elicitation/create", params, key)
        return Elicited(answer.get("action", "cancel"))

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        key: str | None = None,
        **params: Any,
    ) -> Sampled:
        """Ask a model. `messages` is a prompt or MCP sampling messages; other parameters go out as they are."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        raw = await self._ask(
            "sampling/createMessage", {"messages": list(messages), "maxTokens": max_tokens, **params}, key
        )
        content = raw.get("content")
        blocks = content if isinstance(content, list) else [content]
        text = "".join(block.get("text", "") for block in blocks if isinstance(block, dict))
        return Sampled(text, raw.get("model", ""), raw.get("stopReason"), raw)

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """The places that the client works in."""
        answer = await self._ask("roots/list", {}, key)
        return [Root(root["uri"], root.get("name")) for root in answer.get("roots", [])]

    def wait(self, awaitable: Awaitable[T]) -> T:
        """In a sync tool: run something on the event loop and wait for it.

        `ToolCancelled` if the call is cancelled or timed out meanwhile.
        """
        if self._post is None:
            raise RuntimeError("wait() is for sync tools: in an async one, await it")
        outcome: Future[T] = Future()
        self._post(lambda: self._begin(awaitable, outcome))
        return outcome.result()

    def _begin(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        if self._waits is None:
            self._waits = Waits(self._over)
            if self._cancelled:
                self._waits.release()
        self._waits.begin(awaitable, outcome)

    def _marked(self, params: dict[str, Any]) -> dict[str, Any]:
        """With the tool use it belongs to: tokens and ids are used again, this is not."""
        used = self.tool_use_id
        return params if used is None else {**params, "_meta": {"claudecode/toolUseId": used}}

    async def _ask(self, method: str, params: dict[str, Any], key: str | None) -> dict[str, Any]:
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
    """The result of something that is done already: may be awaited, need not be."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def reaches(level: object, threshold: object) -> bool:
    """True if a message of this level goes to a client that wants `threshold` and above; False for unknown ones."""
    return level in LEVELS and threshold in LEVELS and LEVELS.index(level) >= LEVELS.index(threshold)


def check_level(level: object) -> None:
    """ValueError for what is no log level."""
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: one of {', '.join(LEVELS)}")


def _number(what: str, value: Any) -> float:
    """A number that JSON has."""
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
