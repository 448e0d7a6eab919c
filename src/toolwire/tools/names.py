"""Names: which are legal, and what the CLI makes of them."""

import re
from typing import Final

_NOT_WIRE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LEGAL: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
LONGEST: Final = 128


def wire_name(name: str) -> str:
    """As the CLI spells a server's or a tool's name in `mcp__<server>__<tool>`."""
    return _NOT_WIRE.sub("_", name)


def full_name(server: str, tool: str) -> str:
    """The name by which the model calls a tool, and by which rules allow it."""
    return f"mcp__{wire_name(server)}__{wire_name(tool)}"


def problem_with(name: object) -> str | None:
    """Why something cannot be a name, None if it can."""
    if not isinstance(name, str):
        return f"a name must be a string, got {type(name).__name__}"
    if not name.strip():
        return "a name must not be empty"
    if len(name) > LONGEST:
        return f"a name may have {LONGEST} characters, {name[:40]!r}... has {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has control characters"
    if not wire_name(name).strip("_"):
        return f"{name!r} has no letter or digit that the model could call it by"
    return None
