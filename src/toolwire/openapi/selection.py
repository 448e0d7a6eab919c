"""Chooses operations by name, path, method and tag. Pure."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolwire.errors import UsageError
from toolwire.openapi.operations import METHODS, Listed

_KINDS: Final = ("tag", "path", "method", "id")


@dataclass(frozen=True)
class Selection:
    """The operations that are wanted: those of `include` (all without one) that are not of `exclude`.

    A pattern is a glob, whatever the case: `tag:pets`, `path:/users/*` or just `/users/*`, `method:GET` or just
    `GET`, `GET /users/*`, `id:list*`, and anything else is the name of a tool or an operation id.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            if not pattern.strip():
                raise UsageError(
                    f"include and exclude take globs such as 'GET /users/*' or 'tag:pets', got {pattern!r}"
                )

    def wants(self, operation: Listed, name: str) -> bool:
        """True if an operation is wanted; `name` is that of its tool."""
        if any(_fits(pattern, operation, name) for pattern in self.exclude):
            return False
        return not self.include or any(_fits(pattern, operation, name) for pattern in self.include)

    def unused(self, listed: Sequence[tuple[Listed, str]]) -> list[str]:
        """Return the patterns that fit no operation: they may be misspelt."""
        patterns = (*self.include, *self.exclude)
        return [each for each in patterns if not any(_fits(each, *operation) for operation in listed)]


def _fits(pattern: str, operation: Listed, name: str) -> bool:
    kind, mark, rest = pattern.partition(":")
    if mark and kind.lower() in _KINDS:
        values = {
            "tag": operation.tags,
            "path": (operation.path,),
            "method": (operation.method,),
            "id": (operation.name,),
        }[kind.lower()]
        return any(_match(each, rest) for each in values)
    if pattern.startswith("/"):
        return _match(operation.path, pattern)
    if pattern.lower() in METHODS:
        return pattern.lower() == operation.method
    if " /" in pattern:
        return _match(operation.label, pattern)
    return _match(name, pattern) or _match(operation.name, pattern)


def _match(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold().strip())
