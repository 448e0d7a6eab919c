"""The methods for resources, prompts and completion: rows for a connection's table.

A row either returns its result, or checks the request and returns the work that answers it. How a function is run
and cancelled is the business of `connection`; which values complete an argument is that of `exposed_function`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._protocol.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, Request, RpcError
from toolwire._support.tasks import is_async
from toolwire.errors import ToolError
from toolwire.tools.dispatch.errors import (
    await_result,
    error_data,
    invalid_params,
    method_not_found,
    require_object,
    require_registry,
    require_text,
    type_name,
)
from toolwire.tools.dispatch.interface import Pending
from toolwire.tools.exposed_function import complete_result
from toolwire.tools.paging import list_page
from toolwire.tools.schema.arguments import InvalidArguments

if TYPE_CHECKING:
    from toolwire.tools.dispatch.connection import Call, DirectConnection
    from toolwire.tools.exposed_function import ExposedFunction
    from toolwire.tools.prompts import Prompts, ServedPrompt
    from toolwire.tools.resources import Resources, ServedResource
    from toolwire.tools.toolset import Toolset


# --- resources ---


def _list_resources(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    return list_page(_resources(connection.server, "resources/list").pages.page, params, encoded)


def _list_templates(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    resources = _resources(connection.server, "resources/templates/list")
    return list_page(resources.template_pages.page, params, encoded)


def _subscribe(connection: "DirectConnection", params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
    uri = require_text(params, "uri")
    find_resource(connection.server, uri, "resources/subscribe")
    connection.subscriptions.add(uri)
    return {}


def _unsubscribe(connection: "DirectConnection", params: dict[str, Any], _encoded: bool) -> dict[str, Any]:
    _resources(connection.server, "resources/unsubscribe")
    connection.subscriptions.discard(require_text(params, "uri"))
    return {}


def _read_resource(connection: "DirectConnection", request: Request) -> Pending:
    uri = require_text(request.params, "uri")
    resource, texts = find_resource(connection.server, uri, request.method)
    return connection.defer(
        request, partial(_resource_contents, connection=connection, uri=uri), resource, texts
    )


async def _resource_contents(
    resource: "ServedResource",
    texts: dict[str, Any],
    meta: dict[str, Any],
    call: "Call",
    *,
    connection: "DirectConnection",
    uri: str,
) -> dict[str, Any]:
    about = error_data(connection, uri=uri)
    work = connection.perform(resource, texts, meta, call)
    return await await_result(connection, resource, work, partial(resource.contents, uri), about)


def find_resource(server: "Toolset", uri: str, method: str) -> "tuple[ServedResource, dict[str, str]]":
    """Return the resource of an address, and the values in the address. `RpcError` if there is none."""
    resources = _resources(server, method)
    data = {"uri": uri, "server": server.name}
    try:
        match = resources.find(uri)
    except InvalidArguments as error:
        raise invalid_params(error, data) from None
    if match is None:
        raise RpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}{resources.hint(uri)}", data)
    return match


def _resources(server: "Toolset", method: str) -> "Resources":
    return require_registry(server, server.registered_resources, method)


# --- prompts ---


def _list_prompts(connection: "DirectConnection", params: dict[str, Any], encoded: bool) -> Any:
    return list_page(_prompts(connection.server, "prompts/list").pages.page, params, encoded)


def _get_prompt(connection: "DirectConnection", request: Request) -> Pending:
    prompt = _prompt(connection, require_text(request.params, "name"), request.method)
    texts = request.params.get("arguments")
    if not isinstance(texts, dict | None):
        raise RpcError(INVALID_PARAMS, f"Invalid params: arguments must be an object, got {type_name(texts)}")
    return connection.defer(request, partial(_fill_prompt, connection), prompt, texts or {})


async def _fill_prompt(
    connection: "DirectConnection",
    prompt: "ServedPrompt",
    texts: dict[str, Any],
    meta: dict[str, Any],
    call: "Call",
) -> dict[str, Any]:
    about = error_data(connection, prompt=prompt.name)
    work = connection.perform(prompt, texts, meta, call)
    return await await_result(connection, prompt, work, prompt.messages, about)


def _prompt(connection: "DirectConnection", name: str, method: str) -> "ServedPrompt":
    prompts = _prompts(connection.server, method)
    prompt = prompts.by_name.get(name)
    if prompt is None:
        raise RpcError(INVALID_PARAMS, prompts.unknown(name), error_data(connection, prompt=name))
    return prompt


def _prompts(server: "Toolset", method: str) -> "Prompts":
    return require_registry(server, server.registered_prompts, method)


# --- completion ---


def _complete(connection: "DirectConnection", request: Request) -> Pending:
    """Check a `completion/complete`."""
    server, params = connection.server, request.params
    if not (server.registered_resources.ever or server.registered_prompts.ever):
        raise method_not_found(server, request.method)
    argument = require_object(params, "argument")
    subject = _completed_subject(connection, require_object(params, "ref"))
    name, value = require_text(argument, "name", "argument."), require_text(argument, "value", "argument.")
    others = require_object(params, "context", {}).get("arguments") or {}
    if not isinstance(others, dict):
        kind = type_name(others)
        raise RpcError(INVALID_PARAMS, f"Invalid params: context.arguments must be an object, got {kind}")
    known = {key: each for key, each in others.items() if isinstance(each, str)}
    find = partial(_find_values, connection=connection, name=name, value=value)
    return connection.defer(request, find, subject, known)


def _completed_subject(connection: "DirectConnection", ref: dict[str, Any]) -> "ExposedFunction":
    """Return the prompt or resource whose argument is completed."""
    server = connection.server
    kind = ref.get("type")
    if kind == "ref/prompt":
        name = require_text(ref, "name", "ref.")
        prompt = server.prompts.get(name)
        if prompt is None:
            text = server.registered_prompts.unknown(name)
            raise RpcError(INVALID_PARAMS, text, error_data(connection, prompt=name))
        return prompt
    if kind == "ref/resource":
        uri = require_text(ref, "uri", "ref.")
        resource = server.resource_templates.get(uri) or server.resources.get(uri)
        if resource is None:
            text = f"Unknown resource template: {uri}{server.registered_resources.hint(uri)}"
            raise RpcError(INVALID_PARAMS, text, error_data(connection, uri=uri))
        return resource
    raise RpcError(INVALID_PARAMS, f"Unknown reference: {kind!r}. One of ref/prompt, ref/resource")


async def _find_values(
    subject: "ExposedFunction",
    arguments: dict[str, str],
    _meta: dict[str, Any],
    _call: "Call",
    *,
    connection: "DirectConnection",
    name: str,
    value: str,
) -> dict[str, Any]:
    about = error_data(connection, argument=name)
    work = _run_source(connection, subject, subject.completer.find_source(name, value, arguments))
    return await await_result(connection, subject, work, lambda result: result, about)


async def _run_source(
    connection: "DirectConnection", subject: "ExposedFunction", source: list[str] | Callable[[], Any]
) -> dict[str, Any]:
    if isinstance(source, list):
        return complete_result(source)

    def run() -> Any:
        found = source()
        # Gathered in the same thread: a generator's own code runs while its items are taken.
        return found if inspect.isawaitable(found) else complete_result(found)

    server = connection.server
    seconds = server.timeout if subject.timeout is None else subject.timeout
    with anyio.move_on_after(seconds):
        found: Any = run() if is_async(source) else await connection.in_thread(subject, run)
        return complete_result(await found) if inspect.isawaitable(found) else found
    raise ToolError(f"{subject.label}: completion timed out after {seconds:g} s")


IMMEDIATE: Final[dict[str, Callable[["DirectConnection", dict[str, Any], bool], Any]]] = {
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "prompts/list": _list_prompts,
}
"""Methods that are answered without waiting."""

DEFERRED: Final[dict[str, Callable[["DirectConnection", Request], Pending]]] = {
    "resources/read": _read_resource,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
"""Methods that are checked at once, and return the work that answers them."""
