"""Requests from a server to its client that the application answers: elicitation, sampling, roots.

Owns their Python classes, the callbacks that answer them, and the conversion of the answers to MCP. Must not know
how the requests arrived.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from toolwire._protocol.jsonrpc import METHOD_NOT_FOUND, ClientChannel, RpcError
from toolwire._support.log import logger_for
from toolwire._support.record import Record, record
from toolwire._support.tasks import maybe_await

logger = logger_for("elicitation")


@record
class ElicitationRequest(Record):
    """A server's request for input from the user."""

    server: str
    message: str
    mode: str = "form"
    """`form`: fill in `schema`. `url`: open `url`."""
    schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


@record
class ElicitationResult(Record):
    """The user's answer. If the action is `accept`, `content` fits the request's schema."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@record
class SamplingRequest(Record):
    """A server's request to a model, which the application answers."""

    server: str
    params: dict[str, Any]
    """The params of MCP's `sampling/createMessage`: `messages`, `maxTokens`, `systemPrompt`, ..."""


async def answer_elicitation(
    callback: Callable[[ElicitationRequest], Any] | None, request: ElicitationRequest
) -> dict[str, Any]:
    """Return the response of `on_elicitation` to a request; without a callback the request is declined."""
    if callback is None:
        logger.warning(
            "MCP server %r requested input from the user; declined, because on_elicitation is not set",
            request.server,
        )
        return {"action": "decline"}
    return elicitation_to_wire(await maybe_await(callback(request)))


def elicitation_to_wire(answer: object) -> dict[str, Any]:
    """Convert the return value of `on_elicitation` to the form that MCP and the CLI use."""
    if isinstance(answer, ElicitationResult):
        wire: dict[str, Any] = {"action": answer.action}
        return wire if answer.content is None else {**wire, "content": answer.content}
    if isinstance(answer, Mapping) and answer.get("action") in ("accept", "decline", "cancel"):
        return dict(answer)
    raise TypeError(
        "on_elicitation must return an ElicitationResult, or a dict with an action of accept, decline or cancel; "
        f"got {type(answer).__name__}"
    )


def sampling_to_wire(answer: object) -> dict[str, Any]:
    """Convert the return value of `on_sampling` to an MCP result. A string is the text of the answer."""
    if isinstance(answer, str):
        content = {"type": "text", "text": answer}
        return {"role": "assistant", "content": content, "model": "unknown", "stopReason": "endTurn"}
    if isinstance(answer, Mapping) and "content" in answer:
        return {"role": "assistant", "model": "unknown", **answer}
    raise TypeError(
        f"on_sampling must return a string or an MCP result with content, got {type(answer).__name__}"
    )


@record
class ClientCallbacks(Record):
    """The application's callbacks for requests from servers to their client."""

    on_elicitation: Callable[[ElicitationRequest], Any] | None = None
    on_sampling: Callable[[SamplingRequest], Any] | None = None
    roots: list[Any] | None = None


class CallbackChannel(ClientChannel):
    """A channel on which the application's callbacks answer the requests of a server. Subclasses add `notify`."""

    def __init__(self, server: str, callbacks: ClientCallbacks) -> None:
        self._server = server
        self._callbacks = callbacks

    @property
    def capabilities(self) -> dict[str, Any]:
        have: dict[str, Any] = {}
        if self._callbacks.on_elicitation is not None:
            have["elicitation"] = {"form": {}, "url": {}}
        if self._callbacks.on_sampling is not None:
            have["sampling"] = {}
        if self._callbacks.roots is not None:
            have["roots"] = {}
        return have

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        del key, repeatable  # a call that waits for its result here is never run again
        route = _REQUESTS.get(method)
        if route is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        return await route(self, params)

    async def _elicit(self, params: dict[str, Any]) -> dict[str, Any]:
        request = ElicitationRequest(
            server=self._server,
            message=str(params.get("message", "")),
            mode=params.get("mode", "form"),
            schema=params.get("requestedSchema"),
            url=params.get("url"),
            elicitation_id=params.get("elicitationId"),
            raw=params,
        )
        return await answer_elicitation(self._callbacks.on_elicitation, request)

    async def _sample(self, params: dict[str, Any]) -> dict[str, Any]:
        callback = self._callbacks.on_sampling
        if callback is None:
            text = (
                f"The application has set no on_sampling callback for the request of server {self._server!r}"
            )
            raise RpcError(METHOD_NOT_FOUND, text, {"option": "on_sampling", "server": self._server})
        return sampling_to_wire(await maybe_await(callback(SamplingRequest(self._server, params))))

    async def _roots(self, _params: dict[str, Any]) -> dict[str, Any]:
        if self._callbacks.roots is None:
            raise RpcError(METHOD_NOT_FOUND, "roots/list: the option roots is not set")
        return {"roots": [_root(each) for each in self._callbacks.roots]}

    async def _ping(self, _params: dict[str, Any]) -> dict[str, Any]:
        return {}


_REQUESTS: Mapping[str, Callable[[CallbackChannel, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "elicitation/create": CallbackChannel._elicit,  # noqa: SLF001 - the table of this class
    "sampling/createMessage": CallbackChannel._sample,  # noqa: SLF001
    "roots/list": CallbackChannel._roots,  # noqa: SLF001
    "ping": CallbackChannel._ping,  # noqa: SLF001
}


def _root(root: Any) -> dict[str, Any]:
    if isinstance(root, Mapping):
        return dict(root)
    text = os.fspath(root)
    return {"uri": text if "://" in text else Path(text).absolute().as_uri()}
