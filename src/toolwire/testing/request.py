"""What the scripted model was asked: one recorded HTTP request, with helpers to read it.

Owns the reading of a Messages API request body: the prompt, the tool results, the tools on offer,
and whether the CLI asked on its own account rather than for the conversation.
Must not know of scripts, sockets or threads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_REMINDER = "<system-reminder>"
_SUGGESTION = "[SUGGESTION MODE:"


class ToolResult(NamedTuple):
    """What the CLI told the model about one tool call."""

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
        """The model that the CLI asked for."""
        return str(self.body.get("model", ""))

    @property
    def system(self) -> str:
        """The system prompt, all its blocks joined."""
        return "\n".join(_texts(self.body.get("system")))

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [str(tool.get("name", "")) for tool in _dicts(self.body.get("tools"))]

    @property
    def prompt(self) -> str:
        """The last thing a user said, without tool results and without the CLI's own reminders."""
        for content in self._user_contents():
            said = [text for text in _texts(content) if not text.lstrip().startswith(_REMINDER)]
            if said:
                return "\n".join(said)
        return ""

    @property
    def tool_results(self) -> list[ToolResult]:
        """The results in the last user message; empty when it carries none."""
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
        """Which CLI session asks."""
        return self.headers.get("x-claude-code-session-id")

    @property
    def agent_id(self) -> str | None:
        """Which subagent asks; `None` for the main conversation."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def side(self) -> bool:
        """Whether the CLI asks for itself, so that no turn of the script is meant.

        Seen with CLI 2.1.325, by features that do not hang on wording wherever there is one:
        - one token at most: a warm-up or a quota check;
        - `output_config.format`: a helper that wants JSON, such as the session's title. The
          conversation's own structured output comes through a tool instead;
        - nothing but tools that the API runs itself (they have a `type` and no schema): the search
          behind the WebSearch tool;
        - a last user text that opens with the marker of the "what will the user type next" helper
          (only when the host asked for prompt suggestions): it is otherwise like any turn.
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
        # The CLI also puts messages of role "system" behind the last user message.
        for message in reversed(_dicts(self.body.get("messages"))):
            if message.get("role") == "user":
                yield message.get("content")


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(content: Any) -> list[str]:
    """The texts of a content that may be a string or a list of blocks."""
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in _dicts(content) if block.get("type") == "text"]
