"""How the CLI turns what an MCP server answered into what the model reads.

Pure. Follows the CLI in texts, structured content, errors, links, resources and images; it saves no files, so the
notes with their paths say `<not saved>`.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

NO_PERMISSION: Final = "Claude requested permissions to use {name}, but you haven't granted it yet."
NO_TOOL: Final = "Error: No such tool available: {name}"
LOST: Final = (
    "The tool call was interrupted before a result was received. It may or may not have completed on the server "
    "— verify before assuming it succeeded, and retry if needed."
)
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
_UNSAVED: Final = "<not saved>"


@dataclass
class Outcome:
    """One finished call: `content` for the model, `kept` for the host (`tool_use_result`)."""

    content: Any
    kept: Any
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The texts that the model reads."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


def failed(text: str, meta: dict[str, Any] | None = None) -> Outcome:
    """A call that the model reads as an error."""
    return Outcome(text, f"Error: {text}", is_error=True, meta=meta)


def from_answer(answer: Any, name: str, server: str) -> Outcome | None:
    """What a JSON-RPC answer becomes; None for one that the CLI drops without a word."""
    if (
        not isinstance(answer, dict)
        or answer.get("jsonrpc") != "2.0"
        or ("result" in answer) == ("error" in answer)
    ):
        return None
    error = answer.get("error")
    if error is not None:
        known = isinstance(error, dict) and isinstance(error.get("code"), int)
        return failed(str(error["message"])) if known and isinstance(error.get("message"), str) else None
    result = answer.get("result")
    return from_result(result, name, server) if isinstance(result, dict) else None


def from_result(result: dict[str, Any], name: str, server: str) -> Outcome:
    """What the result of `tools/call` becomes."""
    content = result.get("content") or []
    if result.get("isError") is True:
        texts = [block.get("text", "") for block in content if block.get("type") == "text"]
        return failed("\n".join(texts) or "Unknown error")
    structured = result.get("structuredContent")
    images = [block for block in content if block.get("type") == "image"]
    blocks = [
        shown for block in (content if structured is None else images) for shown in _shown(block, server)
    ]
    if structured is not None:
        text = json.dumps(structured, separators=(",", ":"), ensure_ascii=False)
        seen: Any = [*blocks, {"type": "text", "text": text}] if blocks else text
        return Outcome(seen, {"content": seen, "structuredContent": structured})
    if not blocks:
        return Outcome(f"({name} completed with no output)", [])
    links = [
        {key: value for key, value in block.items() if key != "type"}
        for block in content
        if block.get("type") == "resource_link"
    ]
    return Outcome(blocks, {"content": blocks, "resourceLinks": links} if links else blocks)


def _shown(block: dict[str, Any], server: str) -> list[dict[str, Any]]:
    match block.get("type"):
        case "text":
            return [_text(block.get("text", ""))]
        case "image":
            source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
            return [{"type": "image", "source": source}, _text(f"[Image: source: {_UNSAVED}]")]
        case "audio":
            return [_text(f"[Audio from {server}] {_binary(block.get('mimeType'), block.get('data'))}")]
        case "resource_link":
            about = f" ({block['description']})" if block.get("description") else ""
            return [_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")]
        case "resource":
            resource = block.get("resource", {})
            told = resource.get("text")
            if told is None:
                told = _binary(resource.get("mimeType"), resource.get("blob"))
            return [_text(f"[Resource from {server} at {resource.get('uri')}] {told}")]
        case _:
            return [_text(json.dumps(block))]


def _binary(kind: Any, data: Any) -> str:
    size = len(base64.b64decode(data or ""))
    return f"Binary content ({kind}, {size} bytes) saved to {_UNSAVED}"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
