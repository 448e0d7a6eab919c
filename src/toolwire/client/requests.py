"""The one way to a control request: arguments checked, the question sent, a refusal that says what to do.

`_controls` and `_mcp_controls` are the methods made of it; what is newer than they are goes through
`control_request` itself.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolwire._conversation.wiring import Conversation
from toolwire.errors import CLIConnectionError, UnsupportedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolwire.options.agent_options import ClaudeAgentOptions


class Requests:
    """Whoever has a conversation and may ask the CLI."""

    options: "ClaudeAgentOptions"
    _conversation: Conversation | None = None

    async def control_request(
        self, subtype: str, /, *, control_timeout: float | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Send any control request and return the CLI's answer, for what is newer than toolwire.

        `fields` go out as they are. `control_timeout` is in seconds, None the option of that name.

        Raises `UnsupportedRequestError` if this CLI does not know the request, `ControlRequestError` with the
        CLI's own words if it refuses, `CLITimeoutError` if no answer comes, and `CLIConnectionError` or
        `ProcessError` if the connection is or gets closed.
        """
        checked_text("subtype", subtype)
        seconds = self.options.control_timeout if control_timeout is None else control_timeout
        checked_number("control_timeout", seconds)
        live = self._live
        with self._explained(live):
            return await live.session.request({**fields, "subtype": subtype}, seconds)

    @property
    def _live(self) -> Conversation:
        if self._conversation is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._conversation

    @contextmanager
    def _explained(self, live: Conversation) -> "Iterator[None]":
        """Say of a request that the CLI does not know which CLI that is, and what to do."""
        try:
            yield
        except UnsupportedRequestError as error:
            version = (live.info or {}).get("claude_code_version") or "of unknown version"
            asked = f"Claude Code {version} does not answer {error.subtype!r} in this kind of session"
            text = f"{error}. {asked}; if a newer one does, install that, or set cli_path to it."
            raise UnsupportedRequestError(text, subtype=error.subtype, error_code=error.error_code) from None


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are neither None nor False: what is left out means the CLI's default."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def checked_text(name: str, value: object) -> str:
    """A string with something in it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} must not be empty")
    return value


def checked_path(name: str, value: object) -> str:
    """A path, as text."""
    return checked_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def checked_number(name: str, value: object) -> None:
    """A number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"{name} must be above zero, got {value}")


def checked_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """One of a few values."""
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def checked_mapping(name: str, value: object) -> dict[str, Any]:
    """A dict with names as keys."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}")
    if wrong := [key for key in value if not isinstance(key, str)]:
        raise TypeError(f"the keys of {name} must be strings, got {wrong[0]!r}")
    return dict(value)
