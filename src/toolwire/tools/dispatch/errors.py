"""Errors of a connection: checks of a request's params, JSON-RPC errors, and the classification of exceptions.

Decides whether an exception is the function's own failure or must propagate. Must not know methods.
"""

import signal
import threading
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from toolwire._protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Id, RpcError, make_error
from toolwire._support.threads import Workers
from toolwire.errors import message_of
from toolwire.tools.results.to_json import clean, sendable
from toolwire.tools.schema.arguments import InvalidArguments

if TYPE_CHECKING:
    from toolwire.tools.toolset import Toolset

_MOST: Final = 50  # violations in an error's data


class Registry(Protocol):
    """The resources or prompts of a server."""

    ever: bool
    """True once there was an entry."""


R = TypeVar("R", bound=Registry)


def error_reply(request_id: Id, error: RpcError) -> dict[str, Any]:
    """Make an error reply that can be encoded, whatever text and data a function gave it."""
    data = None if error.data is None else sendable(error.data)
    return make_error(request_id, RpcError(error.code, clean(str(error.message)), data))


def invalid_params(error: InvalidArguments, data: dict[str, Any]) -> RpcError:
    """Make the JSON-RPC error for arguments that violate the schema."""
    violations = [{"path": each.path, "message": each.message} for each in error.violations[:_MOST]]
    return RpcError(INVALID_PARAMS, str(error), {"violations": violations, **data})


def require_registry(server: "Toolset", registry: R, method: str) -> R:
    """Return the registry. `RpcError` if it never had an entry: then the method is unknown."""
    if not registry.ever:
        raise method_not_found(server, method)
    return registry


def method_not_found(server: "Toolset", method: str) -> RpcError:
    """Make the error for a method that the server does not know."""
    return RpcError(
        METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method, "server": server.name}
    )


def require_text(params: dict[str, Any], key: str, where: str = "") -> str:
    """Return a value of the params that must be a string. `RpcError` if it is not."""
    value = params.get(key)
    if not isinstance(value, str):
        raise RpcError(
            INVALID_PARAMS, f"Invalid params: {where}{key} must be a string, got {describe_type(value)}"
        )
    return value


def require_object(params: dict[str, Any], key: str, default: Any = None) -> dict[str, Any]:
    """Return a value of the params that must be an object. `RpcError` if it is not."""
    value = params.get(key, default)
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"Invalid params: {key} must be an object, got {describe_type(value)}")
    return value


def describe_type(value: Any) -> str:
    """Name the type of a value in an error."""
    return "nothing" if value is None else type(value).__name__


# --- classification of exceptions ---


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is the function's own failure, rather than a cancellation or a Ctrl-C.

    `SystemExit` and `KeyboardInterrupt` that a function raises itself end nothing but its call.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_failure(each) for each in error.exceptions)
    if isinstance(error, KeyboardInterrupt):
        return not is_ctrl_c(error)
    return isinstance(error, Exception | SystemExit)


def is_ctrl_c(error: KeyboardInterrupt) -> bool:
    """Return whether a Ctrl-C of the user may have raised this exception on the event loop; True when in doubt.

    A real Ctrl-C must never be swallowed. It is recognised by the signal handler that raised it.
    """
    if threading.current_thread() is not threading.main_thread():
        return False  # signals are handled in the main thread
    handler = signal.getsignal(signal.SIGINT)
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    if handler is signal.default_int_handler:
        # It leaves no frame in the traceback. Only in a worker thread it was certainly not a signal.
        return Workers.run.__code__ not in codes
    return bool(codes) and codes[-1] is _code(handler)


def _code(handler: Any) -> Any:
    """Return the code of a handler written in Python, behind partials and methods."""
    handler = getattr(handler, "func", handler)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def describe(error: BaseException) -> str:
    """Return the name of an exception's class, and its text."""
    text, name = message_of(error), type(error).__name__
    return f"{name}: {text}" if text else name
