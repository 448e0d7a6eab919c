"""Resources and prompts, as a connection answers them: rows for its table.

A row either gives its result at once, or checks all that can be checked and says what to start. How a function is
run, and how it is cancelled, is the business of `connection`.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolwire._protocol.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, Request, RpcError
from toolwire.tools.dispatch.completions import complete
from toolwire.tools.dispatch.errors import answered, invalid, kind_of, listed, naming, offered, text_of
from toolwire.tools.dispatch.interface import Pending
from toolwire.tools.schema.arguments import InvalidArguments

if TYPE_CHECKING:
    from toolwire.tools.dispatch.calls import Call
    from toolwire.tools.dispatch.connection import DirectConnection
    from toolwire.tools.prompts import Prompts, ServedPrompt
    from toolwire.tools.resources import Resources, ServedResource
    from toolwire.tools.toolset import Toolset


# --- resources ---


def _list_resources(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    return listed(_resources(connection.server, "resources/list").pages.page, params, encoded)


def _list_templates(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    resources = _resources(connection.server, "resources/templates/list")
    return listed(resources.template_pages.page, params, encoded)


def _subscribe(connection: "DirectConnection", params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
    uri = text_of(params, "uri")
    found(connection.server, uri, "resources/subscribe")
    connection.subscriptions.add(uri)
    return {}


def _unsubscribe(connection: "DirectConnection", params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
    _resources(connection.server, "resources/unsubscribe")
    connection.subscriptions.discard(text_of(params, "uri"))
    return {}


def _read(connection: "DirectConnection", request: Request) -> Pending:
    uri = text_of(request.params, "uri")
    resource, texts = found(connection.server, uri, request.method)
    return connection.defer(request, partial(_contents, connection=connection, uri=uri), resource, texts)


async def _contents(
    resource: "ServedResource",
    texts: dict[str, Any],
    meta: dict[str, Any],
    call: "Call",
    *,
    connection: "DirectConnection",
    uri: str,
) -> dict[str, Any]:
    about = naming(connection, uri=uri)
    work = connection.performed(resource, texts, meta, call)
    return await answered(connection, resource, work, partial(resource.contents, uri), about)


def found(server: "Toolset", uri: str, method: str) -> "tuple[ServedResource, dict[str, str]]":
    """Whose an address is, and the values in it; `RpcError` if nobody's."""
    resources = _resources(server, method)
    data = {"uri": uri, "server": server.name}
    try:
        holder = resources.find(uri)
    except InvalidArguments as error:
        raise invalid(error, data) from None
    if holder is None:
        raise RpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}{resources.hint(uri)}", data)
    return holder


def _resources(server: "Toolset", method: str) -> "Resources":
    return offered(server, server.registered_resources, method)


# --- prompts ---


def _list_prompts(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    return listed(_prompts(connection.server, "prompts/list").pages.page, params, encoded)


def _get(connection: "DirectConnection", request: Request) -> Pending:
    prompt = _prompt(connection, text_of(request.params, "name"), request.method)
    texts = request.params.get("arguments")
    if not isinstance(texts, dict | None):
        raise RpcError(INVALID_PARAMS, f"Invalid params: arguments must be an object, got {kind_of(texts)}")
    return connection.defer(request, partial(_written, connection), prompt, texts or {})


async def _written(
    connection: "DirectConnection",
    prompt: "ServedPrompt",
    texts: dict[str, Any],
    meta: dict[str, Any],
    call: "Call",
) -> dict[str, Any]:
    about = naming(connection, prompt=prompt.name)
    work = connection.performed(prompt, texts, meta, call)
    return await answered(connection, prompt, work, prompt.messages, about)


def _prompt(connection: "DirectConnection", name: str, method: str) -> "ServedPrompt":
    prompts = _prompts(connection.server, method)
    prompt = prompts.by_name.get(name)
    if prompt is None:
        raise RpcError(INVALID_PARAMS, prompts.unknown(name), naming(connection, prompt=name))
    return prompt


def _prompts(server: "Toolset", method: str) -> "Prompts":
    return offered(server, server.registered_prompts, method)


AT_ONCE: Final[dict[str, Callable[["DirectConnection", dict[str, Any], bool], Any]]] = {
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "prompts/list": _list_prompts,
}
"""Answered without waiting."""

STARTED: Final[dict[str, Callable[["DirectConnection", Request], Pending]]] = {
    "resources/read": _read,
    "prompts/get": _get,
    "completion/complete": complete,
}
"""Checked at once; gives what is to be started."""
