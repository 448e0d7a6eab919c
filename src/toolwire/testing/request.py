"""One HTTP request to the model, as it was recorded, with helpers to read it.

Owns the reading of a Messages API request body: the prompt, the tool results, the tools, and whether the request
belongs to the conversation or is the CLI's own. Must not know of scripts, sockets or threads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_REMINDER = "<system-reminder>"
_SUGGESTION = "[SUGGESTION MODE:"


class ToolResult(NamedTuple):
    """The result of one tool call, as the CLI sent it to the model."""

    tool_use_id: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Request:
    """One request as it arrived. `headers` have lower-case names, and no credentials."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """The name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def system(self) -> str:
        """The system prompt, all its blocks joined."""
        return "\n".join(_texts(self.body.get("system")))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model may call."""
        return [str(tool.get("name", "")) for tool in _dicts(self.body.get("tools"))]

    @property
    def prompt(self) -> str:
        """The last text of a user, without tool results and the CLI's own reminders."""
        for content in self._user_contents():
            said = [text for text in _texts(content) if not text.lstrip().startswith(_REMINDER)]
            if said:
                return "\n".join(said)
        return ""

    @property
    def tool_results(self) -> list[ToolResult]:
        """The tool results in the last user message."""
        content = next(self._user_contents(), None)
        return [
            ToolResult(
                str(block.get("tool_use_id", "")),
                "\n".join(_texts(block.get("content"))),
                block.get("is_error") is True,
            )
            for block in _dicts(content)
            if block.get("type") == "tool_result"
        ]

    @property
    def session_id(self) -> str | None:
        """The id of the CLI session."""
        return self.headers.get("x-claude-code-session-id")

    @property
    def agent_id(self) -> str | None:
        """The id of the subagent; `None` for the main conversation."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def side(self) -> bool:
        """True for a request of the CLI's own, which takes no entry of the script.

        Seen with CLI 2.1.325, and recognised by features other than wording where possible:
        - at most one token: a warm-up or a quota check;
        - `output_config.format`: a helper that wants JSON, such as the session's title. The conversation's own
          structured output comes through a tool instead;
        - only tools that the API runs itself (they have a `type` and no schema): the search of the WebSearch tool;
        - a last user text that begins with the marker of prompt suggestions, if the host turned them on.
        """
        tools = _dicts(self.body.get("tools"))
        output = self.body.get("output_config")
        return (
            self.body.get("max_tokens") == 1
            or (isinstance(output, dict) and "format" in output)
            or (bool(tools) and all("type" in tool and "input_schema" not in tool for tool in tools))
            or self.prompt.startswith(_SUGGESTION)
        )

    def _user_contents(self) -> Iterator[Any]:
        # The CLI also puts messages of role "system" after the last user message.
        for message in reversed(_dicts(self.body.get("messages"))):
            if message.get("role") == "user":
                yield message.get("content")


def bare_name(tool: str) -> str:
    """Return the name of a tool without its server: `add` for `mcp__calc__add`."""
    return tool.split("__", 2)[-1] if tool.startswith("mcp__") else tool


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(content: Any) -> list[str]:
    """Return the texts of a content, which may be a string or a list of blocks."""
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in _dicts(content) if block.get("type") == "text"]
