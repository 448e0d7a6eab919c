"""The frames that a scripted CLI says in a turn, in the shapes of the real one.

Owns their fields and the sums that a result carries. Pure but for new uuids and the time of day.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from toolwire.testing.script import Call, Failure, Turn
from toolwire.testing.scripted_cli.links import VERSION, Tool, pretty
from toolwire.testing.scripted_cli.setup import Setup
from toolwire.testing.scripted_cli.tool_results import Outcome

_INPUT_PRICE: Final = 4e-6  # dollars per token, as the real CLI counts for its default model
_OUTPUT_PRICE: Final = 20e-6
_KINDS: Final = {
    400: "invalid_request",
    401: "authentication_failed",
    403: "authentication_failed",
    402: "billing_error",
    429: "rate_limit",
    529: "overloaded",
}
_SERVER_ERROR: Final = 500

Frame = dict[str, Any]


@dataclass
class Tally:
    """What one turn adds up to."""

    began: float = field(default_factory=time.monotonic)
    user_frames: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    stop_reason: str | None = None
    text: str = ""
    structured: Any = None
    denials: list[dict[str, Any]] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        """One answer of the model."""
        self.requests += 1
        self.input_tokens += turn.input_tokens
        self.output_tokens += turn.output_tokens

    @property
    def cost(self) -> float:
        return self.input_tokens * _INPUT_PRICE + self.output_tokens * _OUTPUT_PRICE


class Frames:
    """Frames of one session."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def system(self, subtype: str, **fields: Any) -> Frame:
        return {"type": "system", "subtype": subtype, **fields, **self._ids()}

    def state(self, state: str) -> Frame:
        return self.system("session_state_changed", state=state, sdk_host_only=True)

    def init(self, tools: list[str], servers: list[dict[str, Any]]) -> Frame:
        setup = self._setup
        return self.system(
            "init",
            cwd=setup.cwd,
            tools=tools,
            mcp_servers=servers,
            model=setup.model,
            permissionMode=setup.mode,
            slash_commands=[],
            apiKeySource="none",
            claude_code_version=VERSION,
            output_style="default",
            agents=[],
            skills=[],
            plugins=[],
            capabilities=["sdk_mcp_tools_list_changed"],
        )

    def assistant(self, message: Mapping[str, Any], block: dict[str, Any], **extra: Any) -> Frame:
        whole = {**message, "content": [block], "context_management": None}
        return self._said("assistant", whole, extra)

    def user(self, content: list[dict[str, Any]], **extra: Any) -> Frame:
        return self._said("user", {"role": "user", "content": content}, extra)

    def event(self, event: dict[str, Any], message_id: str) -> Frame:
        frame = {"type": "stream_event", "event": event, "parent_tool_use_id": None}
        return {**frame, **self._ids(), "api_message_id": message_id}

    def api_error(self, failure: Failure) -> Frame:
        usage = {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
        message = {
            "id": str(uuid4()),
            "type": "message",
            "role": "assistant",
            "model": "<synthetic>",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "usage": usage,
        }
        return self.assistant(
            message,
            {"type": "text", "text": api_error_text(failure)},
            error=error_kind(failure),
            is_api_error_message=True,
            api_error_status=failure.status,
            api_error_type=failure.type,
        )

    def result(self, tally: Tally, subtype: str, reason: str, is_error: bool, **fields: Any) -> Frame:
        elapsed = round((time.monotonic() - tally.began) * 1000)
        usage = {
            "input_tokens": tally.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": tally.output_tokens,
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
        }
        model = {
            "inputTokens": tally.input_tokens,
            "outputTokens": tally.output_tokens,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "webSearchRequests": 0,
            "costUSD": tally.cost,
            "contextWindow": 1_000_000,
        }
        return {
            "type": "result",
            "subtype": subtype,
            "is_error": is_error,
            "duration_ms": elapsed,
            "duration_api_ms": elapsed if tally.requests else 0,
            "num_turns": 1 + tally.user_frames,
            "stop_reason": tally.stop_reason,
            "total_cost_usd": tally.cost,
            "usage": usage,
            "modelUsage": {self._setup.model: model} if tally.requests else {},
            "permission_denials": tally.denials,
            "terminal_reason": reason,
            **fields,
            **self._ids(),
        }

    def _said(self, kind: str, message: dict[str, Any], extra: dict[str, Any]) -> Frame:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        frame = {"type": kind, "message": message, "parent_tool_use_id": None}
        return {**frame, **self._ids(), "timestamp": now, **extra}

    def _ids(self) -> Frame:
        return {"session_id": self._setup.session_id, "uuid": str(uuid4())}


def api_error_text(failure: Failure) -> str:
    """An API error as the CLI says it."""
    before = "Failed to authenticate. " if error_kind(failure) == "authentication_failed" else ""
    return f"{before}API Error: {failure.status} {failure.message}"


def error_kind(failure: Failure) -> str:
    """The CLI's word for an API error."""
    return _KINDS.get(failure.status, "server_error" if failure.status >= _SERVER_ERROR else "unknown")


def tool_result(call_id: str, outcome: Outcome) -> dict[str, Any]:
    """The block that the model reads."""
    block = {"type": "tool_result", "content": outcome.content, "tool_use_id": call_id}
    return {**block, "is_error": True} if outcome.is_error else block


def tool_use_meta(call: Call, call_id: str, tool: Tool | None) -> dict[str, Any]:
    """How a call of an MCP tool is shown to people; nothing for other tools."""
    if not call.name.startswith("mcp__"):
        return {}
    about = {"id": call_id, "display_name": pretty(call.name.split("__", 2)[-1])}
    if tool is not None:
        about["display_name"] = tool.display_name
        about |= {"server_display_name": tool.link.name, "tool_name": tool.definition["name"]}
    return {"tool_use_meta": [about]}
