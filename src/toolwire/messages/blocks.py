"""Content blocks: the pieces that a message is made of.

The first six classes and their fields are those of `claude_agent_sdk`. The others are blocks that the CLI
also sends and the official SDK drops. A block of any other type becomes an `UnknownBlock`, so that nothing
is lost. A new block is a `ParsedRecord` with its type, and a member of `ContentBlock`.

`raw` is the block as the CLI sent it (the same dict, not a copy), or None for a block made by hand. `==` and
`repr` ignore it, and also `citations`: the official class lacks it, and comparisons written for that class must
still hold.
"""

from dataclasses import field
from typing import Any, Literal

from toolwire._support.record import ParsedRecord, Record, record


@record
class TextBlock(Record):
    """Text that the model or the user wrote."""

    text: str
    citations: list[dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    """The sources of this piece of text, when the model was given some to cite."""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ThinkingBlock(Record):
    """Thinking of the model before its answer; the signature proves its origin to the API in later turns."""

    thinking: str
    signature: str
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ToolUseBlock(Record):
    """A tool call of the model: to a tool of Claude Code or of an MCP server."""

    id: str
    name: str
    input: dict[str, Any]
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ToolResultBlock(Record):
    """The result of a tool call. Content given as a list stays a list of plain dicts."""

    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


ServerToolName = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]
"""The tools that the API runs by itself. The field is not checked, so there may be newer ones."""


@record
class ServerToolUseBlock(Record):
    """The model called a tool that the API runs by itself; nothing here has to respond."""

    id: str
    name: ServerToolName
    input: dict[str, Any]
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ServerToolResultBlock(Record):
    """The result of a tool that the API runs; `type` says which. A dict for most, a list for a web search."""

    tool_use_id: str
    content: Any
    type: str = "advisor_tool_result"
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ImageBlock(ParsedRecord, type="image"):
    """A picture; `source` holds it as base64, or names a URL or an uploaded file."""

    source: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class DocumentBlock(ParsedRecord, type="document"):
    """A PDF or text document, mostly one that was attached to a prompt or read by a tool."""

    source: dict[str, Any] = field(default_factory=dict)
    title: str | None = None
    context: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class RedactedThinkingBlock(ParsedRecord, type="redacted_thinking"):
    """Thinking that the API sends encrypted."""

    data: str = ""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class SearchResultBlock(ParsedRecord, type="search_result"):
    """A passage that the model may cite, with its source."""

    source: str = ""
    title: str = ""
    content: list[dict[str, Any]] = field(default_factory=list)
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ContainerUploadBlock(ParsedRecord, type="container_upload"):
    """A file that was put into the API's code container."""

    file_id: str = ""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class McpToolUseBlock(ParsedRecord, type="mcp_tool_use"):
    """A tool of an MCP server that the API itself is connected to (not one of Claude Code's servers)."""

    id: str = ""
    name: str = ""
    server_name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class McpToolResultBlock(ParsedRecord, type="mcp_tool_result"):
    """The result of an `McpToolUseBlock`."""

    tool_use_id: str = ""
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class UnknownBlock(Record):
    """A block of any other type. `raw` is its only content, so `==` and `repr` include it."""

    type: str
    raw: Any = None


ContentBlock = (
    TextBlock
    | ThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | ServerToolResultBlock
    | ImageBlock
    | DocumentBlock
    | RedactedThinkingBlock
    | SearchResultBlock
    | ContainerUploadBlock
    | McpToolUseBlock
    | McpToolResultBlock
    | UnknownBlock
)
