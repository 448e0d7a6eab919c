"""Messages of types that the official SDK drops or cannot know; yielded with `include_all_messages=True` only.

Every field that comes from the CLI has a default, because the CLI promises none of them. A new message is a
`ParsedRecord` with its type, and a member of `AnyMessage`.
"""

from dataclasses import dataclass, field
from typing import Any

from toolwire._support.record import ParsedRecord, Record


@dataclass(repr=False, eq=False)
class ToolProgressMessage(ParsedRecord, type="tool_progress"):
    """A tool has been running for a while. In a heartbeat the call's own id is `parent_tool_use_id`."""

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0
    heartbeat: bool = False
    task_id: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class AuthStatusMessage(ParsedRecord, type="auth_status"):
    """The state of a login."""

    is_authenticating: bool = field(default=False, metadata={"key": "isAuthenticating"})
    output: list[str] = field(default_factory=list)
    error: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class ToolUseSummaryMessage(ParsedRecord, type="tool_use_summary"):
    """A sentence about a group of tool calls, for a user interface that folds them."""

    summary: str = ""
    preceding_tool_use_ids: list[str] = field(default_factory=list)
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class PromptSuggestionMessage(ParsedRecord, type="prompt_suggestion"):
    """A guess at the user's next prompt."""

    suggestion: str = ""
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class McpProgressMessage(Record):
    """A tool of an in-process server reports its progress. The CLI drops such reports; toolwire does not."""

    server: str
    tool_use_id: str | None = None
    progress: float = 0
    total: float | None = None
    message: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class McpLogMessage(Record):
    """A log record of an in-process server or of one of its tools."""

    server: str
    level: str = "info"
    data: Any = None
    logger: str | None = None
    tool_use_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(repr=False, eq=False)
class UnknownMessage(Record):
    """A frame of any other type. `raw` is all there is, so it counts for `==` and `repr`."""

    type: str
    raw: dict[str, Any] | None = None
