"""Policies by the name of a tool and by what its arguments look like. Pure.

A denial looks for its pattern anywhere in an argument; a permission must fit the whole of it. Whoever forgets an
anchor then refuses too much, never too little.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from toolwire.permissions.policy import Policy
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

Fields = Mapping[str, "str | re.Pattern[str]"]


def allow(*tools: str, where: Fields | None = None, **fields: "str | re.Pattern[str]") -> Policy:
    """Allow tools: `allow("Read|Glob")`, `allow("mcp__calc__*")`, `allow("WebFetch", url=r"https://a\\.org/.*")`.

    Each field is a regular expression for the whole argument. `where` is for names with dots: `{"a.b": "..."}`
    is the argument `b` inside `a`. For shell commands use `commands`: a pattern cannot read a shell.
    """
    patterns = _compiled(where, fields)

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        fits = named(name, tools) and all(
            (texts := list(texts_at(given, path))) and all(pattern.fullmatch(text) for text in texts)
            for path, pattern in patterns.items()
        )
        return PermissionResultAllow() if fits else None

    return Policy(judge, _shown("allow", tools, patterns))


def deny(
    *tools: str, reason: str | None = None, where: Fields | None = None, **fields: "str | re.Pattern[str]"
) -> Policy:
    """Deny tools, or calls in whose arguments all the patterns are found: `deny("Bash", command=r"rm\\s+-rf")`.

    The model reads `reason`.
    """
    patterns = _compiled(where, fields)

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        if not named(name, tools, wide=True):
            return None
        for path, pattern in patterns.items():
            if not any(pattern.search(text) for text in texts_at(given, path)):
                return None
        about = f" with this {' and '.join(patterns)}" if patterns else ""
        return PermissionResultDeny(message=reason or f"{name}{about} is not allowed here.")

    return Policy(judge, _shown("deny", tools, patterns))


def named(name: str, patterns: tuple[str, ...], *, wide: bool = False) -> bool:
    """Whether one of the patterns means the tool. `mcp__calc` means all tools of that server, as in rules.

    A name with more underscores may be a server or a tool: with `wide` it is taken for both.
    """
    for pattern in (part.strip() for each in patterns for part in each.split("|")):
        if fnmatchcase(name, pattern):
            return True
        whole = wide or "__" not in pattern[5:]
        if pattern.startswith("mcp__") and whole and name.startswith(f"{pattern}__"):
            return True
    return False


def texts_at(value: Any, path: str) -> Iterator[str]:
    """All texts at a dotted path; a list stands for each of its items, a dict at the end for all in it."""
    if isinstance(value, list):
        for item in value:
            yield from texts_at(item, path)
    elif isinstance(value, Mapping):
        if not path:
            for key, item in value.items():
                yield str(key)
                yield from texts_at(item, "")
            return
        for key, item in value.items():
            if path == key:
                yield from texts_at(item, "")
            elif path.startswith(f"{key}."):
                yield from texts_at(item, path[len(key) + 1 :])
    elif not path:
        yield value if isinstance(value, str) else json.dumps(value, default=str)


def _compiled(where: Fields | None, fields: Fields) -> "dict[str, re.Pattern[str]]":
    return {path: re.compile(pattern) for path, pattern in {**(where or {}), **fields}.items()}


def _shown(word: str, tools: tuple[str, ...], patterns: "dict[str, re.Pattern[str]]") -> str:
    if not tools or not all(part.strip() for tool in tools for part in tool.split("|")):
        raise ValueError(f"{word}() needs the name or pattern of a tool; '*' means all")
    parts = [*map(repr, tools), *(f"{path}={pattern.pattern!r}" for path, pattern in patterns.items())]
    return f"{word}({', '.join(parts)})"
