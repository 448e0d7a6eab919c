"""Completion, as a connection answers it: a row for its table.

Owns the reading of the request, and the running of a function that finds values. Which of them go out is decided
in `completion`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from toolwire._protocol.jsonrpc import INVALID_PARAMS, Request, RpcError
from toolwire._support.tasks import is_async
from toolwire.errors import ToolError
from toolwire.tools.completion import gathered
from toolwire.tools.dispatch.errors import answered, kind_of, naming, object_of, text_of, unknown_method
from toolwire.tools.dispatch.interface import Pending

if TYPE_CHECKING:
    from toolwire.tools.dispatch.calls import Call
    from toolwire.tools.dispatch.connection import DirectConnection
    from toolwire.tools.exposed_function import Served


def complete(connection: "DirectConnection", request: Request) -> Pending:
    """Check a `completion/complete`, and say what to start for it."""
    server, params = connection.server, request.params
    if not (server.registered_resources.ever or server.registered_prompts.ever):
        raise unknown_method(server, request.method)
    argument, subject = object_of(params, "argument"), _referred(connection, object_of(params, "ref"))
    name, value = text_of(argument, "name", "argument."), text_of(argument, "value", "argument.")
    others = object_of(params, "context", {}).get("arguments") or {}
    if not isinstance(others, dict):
        kind = kind_of(others)
        raise RpcError(INVALID_PARAMS, f"Invalid params: context.arguments must be an object, got {kind}")
    known = {key: each for key, each in others.items() if isinstance(each, str)}
    seek = partial(_offers, connection=connection, name=name, value=value)
    return connection.defer(request, seek, subject, known)


def _referred(connection: "DirectConnection", ref: dict[str, Any]) -> "Served":
    """The prompt or resource whose argument it is."""
    server = connection.server
    kind = ref.get("type")
    if kind == "ref/prompt":
        name = text_of(ref, "name", "ref.")
        prompt = server.prompts.get(name)
        if prompt is None:
            text = server.registered_prompts.unknown(name)
            raise RpcError(INVALID_PARAMS, text, naming(connection, prompt=name))
        return prompt
    if kind == "ref/resource":
        uri = text_of(ref, "uri", "ref.")
        resource = server.resource_templates.get(uri) or server.resources.get(uri)
        if resource is None:
            text = f"Unknown resource template: {uri}{server.registered_resources.hint(uri)}"
            raise RpcError(INVALID_PARAMS, text, naming(connection, uri=uri))
        return resource
    raise RpcError(INVALID_PARAMS, f"Unknown reference: {kind!r}. One of ref/prompt, ref/resource")


async def _offers(
    subject: "Served",
    arguments: dict[str, str],
    _meta: dict[str, Any],
    _call: "Call",
    *,
    connection: "DirectConnection",
    name: str,
    value: str,
) -> dict[str, Any]:
    about = naming(connection, argument=name)
    work = _sought(connection, subject, subject.completer.source(name, value, arguments))
    return await answered(connection, subject, work, lambda result: result, about)


async def _sought(
    connection: "DirectConnection", subject: "Served", source: list[str] | Callable[[], Any]
) -> dict[str, Any]:
    if isinstance(source, list):
        return gathered(source)

    def seek() -> Any:
        found = source()
        # Gathered in the same thread: a generator's own code runs while its items are taken.
        return found if inspect.isawaitable(found) else gathered(found)

    server = connection.server
    seconds = server.timeout if subject.timeout is None else subject.timeout
    with anyio.move_on_after(seconds):
        found: Any = seek() if is_async(source) else await connection.in_thread(subject, seek)
        return gathered(await found) if inspect.isawaitable(found) else found
    raise ToolError(f"{subject.label}: completion timed out after {seconds:g} s")
