"""Addresses of resources, and templates of addresses: the part of RFC 6570 that can be matched.

    {name}          one or more characters other than / ? #
    {+name}, {name*}  the same, with slashes; only one in a template
    {?a,b}          query parameters at the end, in any order, each of them optional

Owns the parsing of templates, the matching, and the check for values that could lead a function out of its folder.
Matching takes linear time for any address. It must not know functions, types or servers.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from toolwire.tools.schema.arguments import (
    DefinitionError,
    InvalidArguments,
    Violation,
    got,
    unknown_argument,
)

LONGEST: Final = 8_192
"""Characters of an address that is matched against templates, at most."""
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*:"
_BLANK: Final = r"[\s\x00-\x1f\x7f]"
_PIECES: Final = r"\{([^{}]*)\}"
_VARIABLE: Final = r"(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)"
_QUERY: Final = r"\?([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)"
_ABSOLUTE: Final = re.compile(r"[\\/]|[A-Za-z]:[\\/]")
_SEPARATORS: Final = re.compile(r"[\\/]")
_FORMS: Final = "a template may have {name}, one {+name} or {name*}, and {?a,b} at its end"


class _Variable(NamedTuple):
    name: str
    wide: bool
    """True if its value may have slashes."""

    def accepts(self, raw: str) -> bool:
        ends = "?#" if self.wide else "/?#"
        return raw != "" and not any(end in raw for end in ends)


class UriTemplate:
    """A parsed template. `DefinitionError` if it is not valid, or not supported."""

    def __init__(self, text: str) -> None:
        check_uri(text)
        self.text = text
        self._literals: list[str] = []  # one more than there are variables: before, between and after them
        self._variables: list[_Variable] = []
        self.query: tuple[str, ...] = ()
        """The names of query parameters."""
        self._parse(text)
        self.names: tuple[str, ...] = (*(each.name for each in self._variables), *self.query)
        """All names in it."""
        self.literal = sum(map(len, self._literals))
        """The number of characters outside of variables. Of templates that match, the largest number wins."""
        self.wide = any(each.wide for each in self._variables)
        """True if one of the values may have slashes."""
        self.shape = (
            "".join(
                f"{literal}{{{'+' if each.wide else ''}}}"
                for literal, each in zip(self._literals, self._variables, strict=False)
            )
            + f"{self._literals[-1]}{{?{','.join(sorted(self.query))}}}"
        )
        """Identifies the addresses that it matches: equal for two templates that match the same ones."""
        if len(set(self.names)) != len(self.names):
            raise DefinitionError(f"{text!r} names a variable twice: each needs a name of its own")

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values in an address, decoded; None if the template does not match it.

        `InvalidArguments` if it matches, with a value that could be harmful.
        """
        path, mark, query = uri.partition("?") if self.query else (uri, "", "")
        raw = self._split(path)
        if raw is None or "#" in query:
            return None
        wrong: list[Violation] = []
        values: dict[str, str] = {}
        for variable, part in zip(self._variables, raw, strict=True):
            values[variable.name] = _decode(part, variable.name, wrong)
            _check_path(variable, values[variable.name], wrong)
        if mark and query:
            self._take_query(query, values, wrong)
        if wrong:
            raise InvalidArguments(wrong)
        return values

    # Parsing.

    def _parse(self, text: str) -> None:
        end = 0
        for piece in re.finditer(_PIECES, text):
            self._add_literal(text[end : piece.start()])
            end = piece.end()
            if (query := re.fullmatch(_QUERY, piece[1])) is not None:
                if end != len(text):
                    raise DefinitionError(f"{text!r}: {piece[0]} must be the end of the template")
                self.query = tuple(query[1].split(","))
                if "?" in "".join(self._literals):
                    raise DefinitionError(f"{text!r}: {piece[0]} after a '?': name all parameters in it")
                return
            self._add_variable(piece[0], piece[1])
        self._add_literal(text[end:])

    def _add_literal(self, literal: str) -> None:
        if "{" in literal or "}" in literal:
            raise DefinitionError(f"{self.text!r} has an unmatched brace: {_FORMS}")
        self._literals.append(literal)

    def _add_variable(self, shown: str, inner: str) -> None:
        parts = re.fullmatch(_VARIABLE, inner)
        if parts is None or (parts[1] and parts[3]):
            raise DefinitionError(f"{self.text!r}: {shown} is not supported: {_FORMS}")
        wide = bool(parts[1] or parts[3])
        if wide and any(each.wide for each in self._variables):
            raise DefinitionError(f"{self.text!r}: {shown} is the second with slashes: {_FORMS}")
        if self._variables and not self._literals[-1]:
            raise DefinitionError(f"{self.text!r}: {shown} needs some text between it and the one before")
        self._variables.append(_Variable(parts[2], wide))

    # Matching.

    def _split(self, path: str) -> list[str] | None:
        """Return the raw values: from the start up to the wide variable, and from the end back to it.

        No backtracking is needed: a value that ends at the first (from the end: starts after the last) occurrence
        of the literal beside it is the shortest possible, which leaves the most for its neighbour.
        """
        first, last = self._literals[0], self._literals[-1]
        if not self._variables:
            return [] if path == first else None
        start, end = len(first), len(path) - len(last)
        if not path.startswith(first) or not path.endswith(last):
            return None
        front: list[str] = []
        back: list[str] = []
        wide = next((at for at, each in enumerate(self._variables) if each.wide), 0)
        for literal in self._literals[1 : wide + 1]:
            at = path.find(literal, start + 1, end)
            if at < 0:
                return None
            front.append(path[start:at])
            start = at + len(literal)
        for literal in reversed(self._literals[wide + 1 : -1]):
            at = path.rfind(literal, start, end - 1)
            if at < 0:
                return None
            back.append(path[at + len(literal) : end])
            end = at
        raw = [*front, path[start:end], *reversed(back)]
        return (
            raw if all(each.accepts(part) for each, part in zip(self._variables, raw, strict=True)) else None
        )

    def _take_query(self, query: str, values: dict[str, str], wrong: list[Violation]) -> None:
        for pair in query.split("&"):
            name, _, part = pair.partition("=")
            if name not in self.query:
                wrong.append(Violation(name, unknown_argument(self.query)))
            elif name in values:
                wrong.append(Violation(name, "Given twice"))
            else:
                values[name] = _decode(part, name, wrong)
                _check_any(name, values[name], wrong)


def check_uri(text: object) -> None:
    """Raise `DefinitionError` unless a value can be an address or a template."""
    if not isinstance(text, str):
        raise DefinitionError(f"an address must be a string, got {type(text).__name__}")
    if not re.match(_SCHEME, text) or re.fullmatch(_SCHEME, text):
        raise DefinitionError(f"{text!r} is not an address: it needs a scheme, as in config://app")
    if re.search(_BLANK, text):
        raise DefinitionError(f"{text!r} has blanks or control characters: write them as %20 and so on")


def _decode(raw: str, name: str, wrong: list[Violation]) -> str:
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError:
        wrong.append(Violation(name, got("Must be percent-encoded UTF-8", raw)))
        return ""


def _check_path(variable: _Variable, value: str, wrong: list[Violation]) -> None:
    if not variable.wide and "/" in value:
        wrong.append(Violation(variable.name, got("Must not contain slashes", value)))
    else:
        _check_any(variable.name, value, wrong)


def _check_any(name: str, value: str, wrong: list[Violation]) -> None:
    if "\0" in value:
        wrong.append(Violation(name, got("Must not contain a NUL character", value)))
    elif _ABSOLUTE.match(value):
        wrong.append(Violation(name, got("Must not be an absolute path", value)))
    elif any(part.strip() == ".." for part in _SEPARATORS.split(value)):
        wrong.append(Violation(name, got("Must not contain '..' as a part of a path", value)))
