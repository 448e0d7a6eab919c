"""One request on its way to a server and back: the handshake of its connection, and replies as `mcp` wants them."""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types.methods import CACHEABLE_METHODS

from toolwire._protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    RpcError,
)
from toolwire.tools.dispatch.interface import Connection
from toolwire.tools.results.result import error_result

_RESERVED: Final = "io.modelcontextprotocol/"

# What results carry from 2026-07-28 on. Lists may change at any time, so a copy of one is stale at once.
_COMPLETE: Final = {"resultType": "complete"}
_ENVELOPES: Final = {
    method: {**_COMPLETE, "ttlMs": 0, "cacheScope": "private"} for method in CACHEABLE_METHODS
}


async def greeted(connection: Connection, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Shake hands, and give what the server said of itself."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": dict(capabilities),
        "clientInfo": {"name": "toolwire", "version": "1"},
    }
    reply = await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    await connection.answer({"jsonrpc": "2.0", "method": "notifications/initialized"})
    if reply is None or "error" in reply:
        error = (reply or {}).get("error", {})
        raise RpcError(
            error.get("code", INTERNAL_ERROR), str(error.get("message", "no answer")), error.get("data")
        )
    result: dict[str, Any] = reply["result"]
    return result


def without_envelope(message: dict[str, Any]) -> dict[str, Any]:
    """As a client with a session would have sent it."""
    params = message["params"]
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(_RESERVED)}
    return {**message, "params": {**params, "_meta": meta}}


def enveloped(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """A result with all that 2026-07-28 wants in it; older versions leave that out."""
    return {**_ENVELOPES.get(method, _COMPLETE), **result}


def result_of(reply: Mapping[str, Any], method: str, modern: bool) -> dict[str, Any]:
    """The result in a reply; its error raised as `mcp` wants it."""
    error = reply.get("error")
    if error is None:
        result: dict[str, Any] = reply["result"]
        return result
    data = error.get("data")
    if method == "tools/call" and isinstance(data, dict) and "violations" in data:
        # A model can mend its arguments only if it sees what was wrong: MCP wants them as a result.
        return error_result(error["message"])
    code = error["code"]
    if modern and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    raise MCPError(code=code, message=error["message"], data=data)
