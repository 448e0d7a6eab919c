"""Small wrappers around servers: prefix, rename, filter, combine, search, chains.

Each takes a `ToolServer`, an MCP server of another library, or the result of another wrapper, so they nest:

    mcp_servers={"all": combine("all", prefix(github, "gh_"), only(calc, "add", "sub*"))}
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolwire.errors import ToolDefinitionError
from toolwire.mcp.foreign import as_server
from toolwire.tools.chain import Chain
from toolwire.tools.chained import Chained, ChainedToolset
from toolwire.tools.dispatch.interface import Server
from toolwire.tools.search import tags_of
from toolwire.tools.searchable import MOST_SHOWN, Searchable, SearchableToolset
from toolwire.tools.toolset import Combined, CombinedToolset, Naming, Renamed, RenamedToolset, Toolset

__all__ = ["combine", "group", "only", "prefix", "rename", "searchable", "with_chains", "without"]


def prefix(server: object, text: str) -> Renamed:
    """Show all tools with `text` in front of their names."""
    naming = Naming(
        lambda name: text + name,
        lambda shown: [shown.removeprefix(text)] if shown.startswith(text) else [],
    )
    return _rename(server, naming)


def rename(server: object, names: Mapping[str, str]) -> Renamed:
    """Show some tools under other names: old -> new.

    `ToolDefinitionError` if two tools would have the same name. If the server's tools are not known yet,
    `tools/list` returns that error later.
    """

    def inner(shown: str) -> list[str]:
        renamed = [old for old, new in names.items() if new == shown]
        return renamed if shown in names else [*renamed, shown]

    return _rename(server, Naming(lambda name: names.get(name, name), inner))


def only(server: object, *patterns: str) -> Renamed:
    """Show only the tools that match a pattern (`add`, `get_*`)."""
    return _filter(server, lambda name: matches_any(name, patterns))


def without(server: object, *patterns: str) -> Renamed:
    """Show all tools except those that match a pattern."""
    return _filter(server, lambda name: not matches_any(name, patterns))


def combine(name: str, *servers: object) -> Combined:
    """Show several servers as one. If two tools have the same name, the first counts; prefix one to keep both."""
    found = [_as_inner(server) for server in servers]
    toolsets = [server for server in found if isinstance(server, Toolset)]
    if toolsets and len(toolsets) == len(found):
        return CombinedToolset(name, toolsets)
    return Combined(name, found)


def group(server: object, *names: str) -> Renamed:
    """Show only the tools with one of these tags (patterns, in any case). A catalogue's categories are tags too.

    `ToolDefinitionError` for a server of another library, whose tools are not known before they are listed.
    """
    found = as_server(server)
    if not isinstance(found, Toolset):
        raise ToolDefinitionError(
            "group: the tags of another library's tools are not known here; choose tools by name with only()"
        )
    wanted = tuple(name.casefold() for name in names)
    tools = found.tools

    def keep(name: str) -> bool:
        tool = tools.get(name)
        tags = [] if tool is None else tags_of(tool.definition)
        return any(matches_any(tag.casefold(), wanted) for tag in tags)

    return _filter(found, keep)


def searchable(
    server: object, *, always: Sequence[str] = (), most: int = MOST_SHOWN, name: str = "find_tools"
) -> Searchable:
    """Show a search instead of very many tools: the tools that a client finds are added to its list.

    `always` are patterns of tools that are always listed; tools with `always_load` are too. A client has at most
    `most` found tools in its list; beyond that, the oldest are dropped. `name` is the name of the search. All tools
    can be called by their names, listed or not. This must be the outermost wrapper.
    """
    found = as_server(server)
    settings: dict[str, Any] = {"always": always, "most": most, "name": name}
    if isinstance(found, Searchable):
        raise ToolDefinitionError("searchable: the server is searchable already")
    return (
        SearchableToolset(found, **settings) if isinstance(found, Toolset) else Searchable(found, **settings)
    )


def with_chains(server: object, *chains: Chain) -> Chained:
    """Show declared chains as tools beside the tools of a server, which their steps call.

    `ToolDefinitionError` for a chain that cannot run: an unknown tool, a missing argument, a chain that calls
    itself. If the server's tools are not known yet, such a chain is not listed later, and a call of it returns the
    reason.
    """
    found = _as_inner(server)
    return ChainedToolset(found, chains) if isinstance(found, Toolset) else Chained(found, chains)


def _as_inner(server: object) -> Server:
    found = as_server(server)
    if isinstance(found, Searchable):
        raise ToolDefinitionError(
            "searchable() must be the outermost wrapper: the tools that it finds keep the names that it knows"
        )
    return found


def _rename(server: object, naming: Naming) -> Renamed:
    found = _as_inner(server)
    if not isinstance(found, Toolset):
        return Renamed(found, naming)
    if (conflict := naming.find_conflict(list(found.tools))) is not None:
        raise ToolDefinitionError(conflict)
    return RenamedToolset(found, naming)


def _filter(server: object, keep: Callable[[str], bool]) -> Renamed:
    naming = Naming(lambda name: name if keep(name) else None, lambda shown: [shown] if keep(shown) else [])
    return _rename(server, naming)


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """True if a name matches one of the globs."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
