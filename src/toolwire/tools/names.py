"""A server in this process as the CLI knows it: its entry in `mcp_servers`, and the spelling of names.

Imports nothing from toolwire.
"""

import re
from typing import Any, Final, Literal, NotRequired, TypedDict

_NOT_WIRE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LEGAL: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
LONGEST: Final = 128


class McpSdkServerConfig(TypedDict):
    """A server in this process. `instance` stays here; the CLI gets only the name and the other keys."""

    type: Literal["sdk"]
    name: str
    instance: Any
    timeout: NotRequired[int]
    alwaysLoad: NotRequired[bool]


def wire_name(name: str) -> str:
    """Spell the name of a server or tool as the CLI does in `mcp__<server>__<tool>`."""
    return _NOT_WIRE.sub("_", name)


def full_name(server: str, tool: str) -> str:
    """Return the name by which the model calls a tool, and by which permission rules allow it."""
    return f"mcp__{wire_name(server)}__{wire_name(tool)}"


def short_name(name: str) -> str:
    """Shorten the name by which the model calls a tool, for display: `mcp__calc__add` to `calc.add`."""
    server, _, tool = name.removeprefix("mcp__").partition("__")
    return f"{server}.{tool}" if name.startswith("mcp__") and tool else name


def find_name_problem(name: object) -> str | None:
    """Return why a value cannot be a name; None if it can."""
    if not isinstance(name, str):
        return f"a name must be a string, got {type(name).__name__}"
    if not name.strip():
        return "a name must not be empty"
    if len(name) > LONGEST:
        return f"a name may have at most {LONGEST} characters, {name[:40]!r}... has {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has control characters"
    if not wire_name(name).strip("_"):
        return f"{name!r} has no letter or digit, so the model could not call it"
    return None


def is_dropped_by_cli(name: object) -> bool:
    """True if the CLI leaves out a tool of this name. Every other name it converts to its own spelling."""
    return not isinstance(name, str) or len(name) > LONGEST
