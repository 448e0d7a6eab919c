"""Puts one deliberate bug into a copy of the sources.

A mutant names a class or function and a snippet of its text, never a file, so that it survives a move. It must
apply in exactly one place; if it does not, that is an error, and the bug must be rewritten.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """A bug, and the tests that must catch it."""

    name: str
    symbol: str
    """Where it is: `Class.method` or `function`, as defined in one place of the sources."""
    find: str
    """A text inside of that definition, which is there once."""
    put: str
    tests: tuple[str, ...]
    """Names of test functions, each defined once in the tests; `name[part]` for the cases with that in their id."""


class NoLongerAppliesError(Exception):
    """Raised if a mutant, or a test that it names, is not where it was. The text says which and why."""


@dataclass(frozen=True)
class Definition:
    """A class or function in a file."""

    file: Path
    symbol: str
    first: int
    last: int


class Definitions:
    """The classes and functions below a folder, by qualified name. Only files that may have one are parsed."""

    def __init__(self, folder: Path, pattern: str = "*.py") -> None:
        self.folder = folder
        self._texts = {file: file.read_text() for file in sorted(folder.rglob(pattern))}
        self._parsed: dict[Path, list[Definition]] = {}

    def one(self, symbol: str) -> Definition:
        """Return the only definition with that name; an error if there is none, or more than one."""
        found = [each for each in self._named(symbol.rsplit(".", maxsplit=1)[-1]) if each.symbol == symbol]
        if len(found) != 1:
            places = ", ".join(f"{each.file.name}:{each.first}" for each in found) or "nowhere"
            raise NoLongerAppliesError(f"{symbol} is defined {len(found)} times ({places}), and must be once")
        return found[0]

    def test(self, name: str) -> str:
        """Return the pytest id of a test function, which may be in a class."""
        found = [each for each in self._named(name) if each.symbol.split(".")[-1] == name]
        if len(found) != 1:
            raise NoLongerAppliesError(f"the test {name} is defined {len(found)} times, and must be once")
        return "::".join([str(found[0].file), *found[0].symbol.split(".")])

    def _named(self, name: str) -> list[Definition]:
        defined = re.compile(rf"(def|class) +{re.escape(name)}\b")
        files = [file for file, text in self._texts.items() if defined.search(text)]
        for file in files:
            if file not in self._parsed:
                self._parsed[file] = list(_definitions(file))
        return [each for file in files for each in self._parsed[file]]


def apply(mutant: Mutant, definitions: Definitions) -> tuple[Path, str]:
    """Return the file that the mutant changes, and its new text."""
    place = definitions.one(mutant.symbol)
    lines = place.file.read_text().splitlines(keepends=True)
    inside = "".join(lines[place.first - 1 : place.last])
    if inside.count(mutant.find) != 1:
        raise NoLongerAppliesError(
            f"mutant {mutant.name} no longer applies: {mutant.symbol} in {place.file.name} has"
            f" {inside.count(mutant.find)} times {mutant.find!r}, and must have it once"
        )
    changed = inside.replace(mutant.find, mutant.put)
    text = "".join([*lines[: place.first - 1], changed, *lines[place.last :]])
    ast.parse(text)
    return place.file, text


def _definitions(file: Path) -> Iterator[Definition]:
    stack: list[tuple[str, ast.AST]] = [("", ast.parse(file.read_text()))]
    while stack:
        prefix, node = stack.pop()
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                symbol = f"{prefix}{each.name}"
                yield Definition(file, symbol, each.lineno, each.end_lineno or each.lineno)
                stack.append((f"{symbol}.", each))
            elif isinstance(each, ast.If | ast.Try | ast.With):
                stack.append((prefix, each))
