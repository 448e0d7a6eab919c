"""Messages as `mcp`'s own classes, which its sessions want in place of dicts, and back.

It imports `mcp` only when the first session starts. Nothing is validated here: requests were sorted before, and
what a method's params must be is for the server to say.
"""

from typing import TYPE_CHECKING, Any, Final

from toolwire._protocol.jsonrpc import INTERNAL_ERROR, Id, RpcError
from toolwire._support.log import logger_for

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


logger = logger_for("mcp")

GOING_DOWN: Final = -32000
"""What a server that goes down says to all that is open, before anybody knows why. A tool may also mean it."""


class Envelopes:
    """Makes what a server reads, and reads what its handlers gave."""

    def __init__(self) -> None:
        import mcp_types  # noqa: PLC0415 - heavy; only whoever has a server of this library needs it
        from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data  # noqa: PLC0415
        from mcp.shared.message import SessionMessage  # noqa: PLC0415
        from pydantic_core import to_jsonable_python  # noqa: PLC0415

        self._wrap = SessionMessage
        self._types = mcp_types
        self._error_of = handler_exception_to_error_data
        self._plain = to_jsonable_python

    def answer(self, request_id: Id, outcome: Any) -> dict[str, Any]:
        """The reply that a handler's result or exception makes. `ValueError` if it is not JSON."""
        if not isinstance(outcome, BaseException):
            return {"id": request_id, "result": self._plain(outcome, inf_nan_mode="null")}
        if not isinstance(outcome, Exception):  # the task of the handler was cancelled
            return {"id": request_id, "error": {"code": GOING_DOWN, "message": "Connection closed"}}
        error = self._error_of(outcome)
        if error is None:  # nothing that a handler raises to say something: its author wants to see where
            logger.error("a handler of an MCP server failed", exc_info=outcome)
            return {"id": request_id, "error": {"code": INTERNAL_ERROR, "message": str(outcome)}}
        return {"id": request_id, "error": error.model_dump(mode="json", by_alias=True, exclude_unset=True)}

    def request(self, request_id: Id, method: str, params: dict[str, Any]) -> "SessionMessage":
        """Wants an answer."""
        make = self._types.JSONRPCRequest.model_construct
        return self._wrap(make(jsonrpc="2.0", id=request_id, method=method, params=params or None))

    def notification(self, method: str, params: dict[str, Any]) -> "SessionMessage":
        """Wants none."""
        make = self._types.JSONRPCNotification.model_construct
        return self._wrap(make(jsonrpc="2.0", method=method, params=params or None))

    def result(self, request_id: Id, result: Any) -> "SessionMessage":
        """The answer to what the server asked."""
        if not isinstance(result, dict):
            problem = f"the answer must be an object, got {type(result).__name__}"
            return self.error(request_id, RpcError(INTERNAL_ERROR, problem))
        make = self._types.JSONRPCResponse.model_construct
        return self._wrap(make(jsonrpc="2.0", id=request_id, result=result))

    def error(self, request_id: Id, error: RpcError) -> "SessionMessage":
        """A no to what the server asked."""
        body = self._types.ErrorData.model_construct(code=error.code, message=error.message, data=error.data)
        make = self._types.JSONRPCError.model_construct
        return self._wrap(make(jsonrpc="2.0", id=request_id, error=body))
