"""What the rows of a connection's table share: checks of a request's parts, and errors as JSON-RPC has them.

Owns the way from what a user's function raises, or returns, to the answer. It knows no method.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from toolwire._protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Id,
    RpcError,
    make_error,
)
from toolwire._support.log import logger_for
from toolwire._support.tasks import cancelled_from_inside
from toolwire.errors import ResourceNotFoundError, ToolError, message_of
from toolwire.tools.dispatch.failures import is_failure, named
from toolwire.tools.paging import Page
from toolwire.tools.results.to_json import BadResult, clean, sendable
from toolwire.tools.schema.arguments import InvalidArguments

if TYPE_CHECKING:
    from toolwire.tools.dispatch.connection import DirectConnection
    from toolwire.tools.exposed_function import Served
    from toolwire.tools.toolset import Toolset

logger = logger_for("server")

_MOST: Final = 50  # violations in an error's data
_SHOWN: Final = 100  # characters of a cursor that we never gave


class Registry(Protocol):
    """A table that may never have had anything in it."""

    ever: bool


R = TypeVar("R", bound=Registry)


def refused(request_id: Id, error: RpcError) -> dict[str, Any]:
    """An error reply that any wire can carry, whatever text and data a function gave it."""
    data = None if error.data is None else sendable(error.data)
    return make_error(request_id, RpcError(error.code, clean(str(error.message)), data))


def invalid(error: InvalidArguments, data: dict[str, Any]) -> RpcError:
    """Arguments that break the schema, as a JSON-RPC error."""
    violations = [{"path": each.path, "message": each.message} for each in error.violations[:_MOST]]
    return RpcError(INVALID_PARAMS, str(error), {"violations": violations, **data})


def listed(read: Callable[[Any], Page], params: dict[str, Any], encoded: bool) -> Any:
    """One page of a list."""
    cursor = params.get("cursor")
    try:
        plain, fragment = read(cursor)
    except KeyError:
        raise RpcError(INVALID_PARAMS, f"Unknown cursor: {repr(cursor)[:_SHOWN]}") from None
    return fragment if encoded else plain


async def answered(
    connection: "DirectConnection",
    subject: "Served",
    work: Awaitable[Any],
    convert: Callable[[Any], dict[str, Any]],
    about: dict[str, Any],
) -> dict[str, Any]:
    """The result; what a function raises, and what it returns that cannot be a result, as JSON-RPC errors."""
    try:
        return convert(await work)
    except RpcError:
        raise
    except InvalidArguments as error:
        raise invalid(error, about) from None
    except ToolError as error:
        raise RpcError(INTERNAL_ERROR, message_of(error), about) from error
    except BadResult as error:
        logger.warning("%s returned what cannot be a result: %s", subject.label, error)
        data = {**about, "type": error.type_name}
        raise RpcError(INTERNAL_ERROR, f"{subject.label}: {error}", data) from error
    except (Exception, SystemExit) as error:  # the boundary of a user's function: the client hears of it
        raise _failed(connection, subject, error, about) from error
    except (KeyboardInterrupt, BaseExceptionGroup) as error:
        if not is_failure(error):
            raise
        raise _failed(connection, subject, error, about) from error
    except asyncio.CancelledError as error:
        if not cancelled_from_inside():
            raise
        raise _failed(connection, subject, error, about) from error  # it lost a task of its own


def _failed(
    connection: "DirectConnection", subject: "Served", error: BaseException, about: dict[str, Any]
) -> RpcError:
    text = message_of(error)
    if isinstance(error, ResourceNotFoundError) and "uri" in about:
        return RpcError(RESOURCE_NOT_FOUND, text or f"Resource not found: {about['uri']}", about)
    logger.warning("%s failed", subject.label, exc_info=error)
    if connection.server.debug:
        about = {**about, "toolwire/traceback": "".join(traceback.format_exception(error))}
    return RpcError(INTERNAL_ERROR, named(error), about)


def offered(server: "Toolset", registry: R, method: str) -> R:
    """The registry, if the server has ever had anything in it: else it does not know the method."""
    if not registry.ever:
        raise unknown_method(server, method)
    return registry


def unknown_method(server: "Toolset", method: str) -> RpcError:
    """What to say of a method that is not answered."""
    return RpcError(
        METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method, "server": server.name}
    )


def naming(connection: "DirectConnection", **what: str) -> dict[str, Any]:
    """The data of an error: what it is about, and of which server."""
    return {**what, "server": connection.server.name}


def text_of(params: dict[str, Any], key: str, where: str = "") -> str:
    """A part of a request that must be a string."""
    value = params.get(key)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"Invalid params: {where}{key} must be a string, got {kind_of(value)}")
    return value


def object_of(params: dict[str, Any], key: str, default: Any = None) -> dict[str, Any]:
    """A part of a request that must be an object."""
    value = params.get(key, default)
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"Invalid params: {key} must be an object, got {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """How to call what came instead."""
    return "nothing" if value is None else type(value).__name__
