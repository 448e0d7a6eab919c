"""The frames and tool results of a scripted CLI, with the same fields and texts as those of the real CLI.

Owns the fields, the totals in a result, and the conversion of an MCP result into the content for the model. Pure
except for new uuids and the time. No files are saved: where the real CLI names a saved file, the text is
`<not saved>`.
"""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from toolwire._transport.find_cli import TESTED
from toolwire.sessions.entries import list_blocks, list_texts
from toolwire.testing.script import Failure, Turn, bare_name, build_message
from toolwire.testing.scripted_cli.host import Settings, Tool, to_title

_INPUT_PRICE: Final = 4e-6  # dollars per token, the real CLI's price for its default model
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
REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
    "the new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how "
    "to proceed."
)
STOPPED: Final = (
    f"{REJECTED} Correction to the text above: this call was stopped while running, not refused before it ran. "
    "It may have run in part or in full, and its changes may have been written. No permission prompt was "
    "involved. Work it started elsewhere (a remote command, a background process) may still be running, so check "
    "before starting the same work again. The instruction to stop and wait still stands."
)

Frame = dict[str, Any]


@dataclass
class TurnTotals:
    """The totals of one turn, for its result."""

    began: float = field(default_factory=time.monotonic)
    user_frames: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    stop_reason: str | None = None
    structured: Any = None
    denials: list[dict[str, Any]] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        """Count one response of the model."""
        self.requests += 1
        self.input_tokens += turn.input_tokens
        self.output_tokens += turn.output_tokens


class Frames:
    """Builds the frames of one session."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._input_tokens = self._output_tokens = 0  # of all turns

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Add the tokens that a resumed conversation has already used."""
        for each in usage.values():
            self._input_tokens += each.get("inputTokens", 0)
            self._output_tokens += each.get("outputTokens", 0)

    def system(self, subtype: str, **fields: Any) -> Frame:
        return {"type": "system", "subtype": subtype, **fields, **self._ids()}

    def state(self, state: str) -> Frame:
        return self.system("session_state_changed", state=state, sdk_host_only=True)

    def init(self, tools: list[str], servers: list[dict[str, Any]]) -> Frame:
        settings = self._settings
        return self.system(
            "init",
            cwd=settings.cwd,
            tools=tools,
            mcp_servers=servers,
            model=settings.model,
            permissionMode=settings.mode,
            slash_commands=[],
            apiKeySource="none",
            claude_code_version=TESTED,
            output_style="default",
            agents=[],
            skills=[],
            plugins=[],
            capabilities=["sdk_mcp_tools_list_changed"],
        )

    def assistant(self, message: Mapping[str, Any], block: dict[str, Any], **extra: Any) -> Frame:
        whole = {**message, "content": [block], "context_management": None}
        return self._message("assistant", whole, extra)

    def user(self, content: list[dict[str, Any]], **extra: Any) -> Frame:
        return self._message("user", {"role": "user", "content": content}, extra)

    def event(self, event: dict[str, Any], message_id: str) -> Frame:
        frame = {"type": "stream_event", "event": event, "parent_tool_use_id": None}
        return {**frame, **self._ids(), "api_message_id": message_id}

    def api_error(self, failure: Failure) -> Frame:
        nothing = Turn((), input_tokens=0, output_tokens=0, stop_reason="stop_sequence")
        message = build_message(nothing, id=str(uuid4()), model="<synthetic>", call_ids=[])
        return self.assistant(
            {**message, "stop_sequence": ""},
            {"type": "text", "text": api_error_text(failure)},
            error=error_kind(failure),
            is_api_error_message=True,
            api_error_status=failure.status,
            api_error_type=failure.type,
        )

    def result(self, totals: TurnTotals, subtype: str, reason: str, is_error: bool, **fields: Any) -> Frame:
        elapsed = round((time.monotonic() - totals.began) * 1000)
        usage = {
            "input_tokens": totals.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": totals.output_tokens,
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
        }
        self._input_tokens += totals.input_tokens
        self._output_tokens += totals.output_tokens
        cost = self._input_tokens * _INPUT_PRICE + self._output_tokens * _OUTPUT_PRICE
        model = {  # totals of the session, like the cost; `usage` is for the turn
            "inputTokens": self._input_tokens,
            "outputTokens": self._output_tokens,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "webSearchRequests": 0,
            "costUSD": cost,
            "contextWindow": 1_000_000,
        }
        return {
            "type": "result",
            "subtype": subtype,
            "is_error": is_error,
            "duration_ms": elapsed,
            "duration_api_ms": elapsed if totals.requests else 0,
            "num_turns": 1 + totals.user_frames,
            "stop_reason": totals.stop_reason,
            "total_cost_usd": cost,
            "usage": usage,
            "modelUsage": {self._settings.model: model} if self._output_tokens else {},
            "permission_denials": totals.denials,
            "terminal_reason": reason,
            **fields,
            **self._ids(),
        }

    def _message(self, kind: str, message: dict[str, Any], extra: dict[str, Any]) -> Frame:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        frame = {"type": kind, "message": message, "parent_tool_use_id": None}
        return {**frame, **self._ids(), "timestamp": now, **extra}

    def _ids(self) -> Frame:
        return {"session_id": self._settings.session_id, "uuid": str(uuid4())}


def api_error_text(failure: Failure) -> str:
    """Return the CLI's text for an API error."""
    before = "Failed to authenticate. " if error_kind(failure) == "authentication_failed" else ""
    return f"{before}API Error: {failure.status} {failure.message}"


def error_kind(failure: Failure) -> str:
    """Return the CLI's name for a kind of API error."""
    return _KINDS.get(failure.status, "server_error" if failure.status >= _SERVER_ERROR else "unknown")


def tool_use_meta(name: str, call_id: str, tool: Tool | None) -> dict[str, Any]:
    """Return the field with the display names of an MCP tool; empty for other tools."""
    if not name.startswith("mcp__"):
        return {}
    names = {"id": call_id, "display_name": to_title(bare_name(name))}
    if tool is not None:
        names["display_name"] = tool.display_name
        names |= {"server_display_name": tool.server.name, "tool_name": tool.definition["name"]}
    return {"tool_use_meta": [names]}


@dataclass
class ToolOutcome:
    """The outcome of a call: `content` for the model, and `kept` for the host (`tool_use_result`)."""

    content: Any
    kept: Any
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @classmethod
    def failed(cls, text: str, meta: dict[str, Any] | None = None) -> "ToolOutcome":
        """Return the outcome of a failed call."""
        return cls(text, f"Error: {text}", is_error=True, meta=meta)

    @property
    def text(self) -> str:
        """The text that the model receives."""
        return "\n".join(list_texts(list_blocks(self.content)))

    def to_block(self, call_id: str) -> dict[str, Any]:
        """Return the `tool_result` block for the model."""
        block = {"type": "tool_result", "content": self.content, "tool_use_id": call_id}
        return {**block, "is_error": True} if self.is_error else block


def convert_response(response: Any, name: str, server: str) -> ToolOutcome | None:
    """Convert a JSON-RPC response to `tools/call`. Returns None for an invalid one, which the CLI ignores."""
    if response.get("jsonrpc") != "2.0" or ("result" in response) == ("error" in response):
        return None
    if "error" in response:
        match response["error"]:
            case {"code": int(), "message": str(message)}:
                return ToolOutcome.failed(message)
        return None
    result = response["result"]
    return _convert_result(result, name, server) if isinstance(result, dict) else None


def _convert_result(result: dict[str, Any], name: str, server: str) -> ToolOutcome:
    content = result.get("content") or []
    if result.get("isError") is True:
        texts = [block.get("text", "") for block in content if block.get("type") == "text"]
        return ToolOutcome.failed("\n".join(texts) or "Unknown error")
    structured = result.get("structuredContent")
    images = [block for block in content if block.get("type") == "image"]
    blocks = [
        shown
        for block in (content if structured is None else images)
        for shown in _convert_block(block, server)
    ]
    if structured is not None:
        text = json.dumps(structured, separators=(",", ":"), ensure_ascii=False)
        seen: Any = [*blocks, _text(text)] if blocks else text
        return ToolOutcome(seen, {"content": seen, "structuredContent": structured})
    if not blocks:
        return ToolOutcome(f"({name} completed with no output)", [])
    links = [
        {key: value for key, value in block.items() if key != "type"}
        for block in content
        if block.get("type") == "resource_link"
    ]
    return ToolOutcome(blocks, {"content": blocks, "resourceLinks": links} if links else blocks)


def _convert_block(block: dict[str, Any], server: str) -> list[dict[str, Any]]:
    match block.get("type"):
        case "text":
            return [_text(block.get("text", ""))]
        case "image":
            source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
            return [{"type": "image", "source": source}, _text("[Image: source: <not saved>]")]
        case "audio":
            return [_text(f"[Audio from {server}] {_describe(block.get('mimeType'), block.get('data'))}")]
        case "resource_link":
            about = f" ({block['description']})" if block.get("description") else ""
            return [_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")]
        case "resource":
            resource = block.get("resource", {})
            text = resource.get("text")
            if text is None:
                text = _describe(resource.get("mimeType"), resource.get("blob"))
            return [_text(f"[Resource from {server} at {resource.get('uri')}] {text}")]
        case _:
            return [_text(json.dumps(block))]


def _describe(mime_type: Any, data: Any) -> str:
    size = len(base64.b64decode(data or ""))
    return f"Binary content ({mime_type}, {size} bytes) saved to <not saved>"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
