"""Messages as `mcp`'s own classes, which its sessions want in place of dicts.

The one place that imports `mcp`, and only when the first session starts. Nothing is validated here: requests were
sorted before, and what a method's params must be is for the server to say.
"""

from typing import TYPE_CHECKING, Any

from toolwire._jsonrpc import INTERNAL_ERROR, Id, RpcError

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


class Envelopes:
    """Makes what a server reads."""

    def __init__(self) -> None:
        import mcp_types  # noqa: PLC0415 - heavy; only whoever has a server of this library needs it
        from mcp.shared.message import SessionMessage  # noqa: PLC0415

        self._wrap = SessionMessage
        self._types = mcp_types

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
