"""Small wrappers around anything with tools: prefix, rename, filter, combine.

They take a `ToolServer`, an MCP server of another library and each other's results alike, and they nest:

    mcp_servers={"all": combine("all", prefix(github, "gh_"), only(calc, "add", "sub*"))}
"""

import fnmatch
from collections.abc import Callable, Mapping

from toolwire.mcp.foreign import as_server
from toolwire.tools.toolset import Combined, CombinedToolset, Naming, Renamed, RenamedToolset, Toolset

__all__ = ["combine", "only", "prefix", "rename", "without"]


def prefix(server: object, text: str) -> Renamed:
    """Show all tools with `text` in front of their names."""
    naming = Naming(
        lambda name: text + name,
        lambda shown: [shown.removeprefix(text)] if shown.startswith(text) else [],
    )
    return _renamed(server, naming)


def rename(server: object, names: Mapping[str, str]) -> Renamed:
    """Show some tools under other names: old -> new."""

    def inner(shown: str) -> list[str]:
        renamed = [old for old, new in names.items() if new == shown]
        return renamed if shown in names else [*renamed, shown]

    return _renamed(server, Naming(lambda name: names.get(name, name), inner))


def only(server: object, *patterns: str) -> Renamed:
    """Show only the tools that match a pattern (`add`, `get_*`)."""
    return _filtered(server, lambda name: _matches(name, patterns))


def without(server: object, *patterns: str) -> Renamed:
    """Show all but the tools that match a pattern."""
    return _filtered(server, lambda name: not _matches(name, patterns))


def combine(name: str, *servers: object) -> Combined:
    """Show several servers as one. Of two tools with one name the first counts; prefix one to have both."""
    found = [as_server(server) for server in servers]
    toolsets = [server for server in found if isinstance(server, Toolset)]
    whole = toolsets and len(toolsets) == len(found)
    return CombinedToolset(name, toolsets) if whole else Combined(name, found)


def _renamed(server: object, naming: Naming) -> Renamed:
    found = as_server(server)
    return RenamedToolset(found, naming) if isinstance(found, Toolset) else Renamed(found, naming)


def _filtered(server: object, keep: Callable[[str], bool]) -> Renamed:
    naming = Naming(lambda name: name if keep(name) else None, lambda shown: [shown] if keep(shown) else [])
    return _renamed(server, naming)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
