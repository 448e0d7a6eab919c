"""Finds problems in a document that would confuse a model or make calls fail."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from toolwire.catalog.tools.definitions import slug
from toolwire.tools.lint import Finding

if TYPE_CHECKING:
    from toolwire.openapi.server import OpenAPI

_MOST_NAMED: Final = 5


def find_problems(server: "OpenAPI") -> list[Finding]:
    """Return the problems of a document that has been loaded."""
    return [*_skipped(server), *_names(server), *_descriptions(server), *_calls(server), *_notes(server)]


def _skipped(server: "OpenAPI") -> Iterator[Finding]:
    for each in server.status.skipped:
        yield Finding("warning", None, f"{each.name} is left out: {each.reason}", "correct it, or exclude it")


def _names(server: "OpenAPI") -> Iterator[Finding]:
    wanted = {name: slug(each.name) for name, each in server.operations.items()}
    shared = Counter(each.casefold() for each in wanted.values())
    for name, base in wanted.items():
        label = server.operations[name].label
        if shared[base.casefold()] > 1:
            what = f"several operations have the operationId {base}, so the tool of {label} has a suffix"
            yield Finding("warning", name, what, "give every operation a unique operationId")
        elif base != name and not name.startswith(base):
            what = f"the name {base} of {label} is too long ({len(base)} characters) and was shortened"
            yield Finding("hint", name, what, "shorten the operationId or the name of the server")


def _descriptions(server: "OpenAPI") -> Iterator[Finding]:
    bare = [
        name
        for name, each in server.operations.items()
        if each.description in (each.label, f"Deprecated. {each.label}")
    ]
    if bare:
        count = "1 tool has" if len(bare) == 1 else f"{len(bare)} tools have"
        what = f"{count} neither summary nor description: {_list(bare)}"
        yield Finding("warning", None, what, "describe what they do and when to use them")


def _calls(server: "OpenAPI") -> Iterator[Finding]:
    if server.base_url is None and server.base_problem:
        yield Finding("warning", None, f"no call can be made: {server.base_problem}", "set --base-url")
    missing: dict[str, list[str]] = {}
    for name, problem in server.missing_credentials().items():
        missing.setdefault(problem, []).append(name)
    for problem, names in missing.items():
        what = f"{len(names)} tools cannot be called ({_list(names)}): {problem}"
        yield Finding("warning", None, what, "set the variable, or leave them out with --exclude")


def _notes(server: "OpenAPI") -> Iterator[Finding]:
    for name, notes in server.notes.items():
        for each in notes:
            yield Finding("hint", name, f"{server.operations[name].label}: {each}", "see docs/openapi.md")


def _list(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
