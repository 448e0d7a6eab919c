"""Resources: typed functions that return the contents of a URI, or of all URIs that match a template.

Owns their entries in the list, the lookup of the resource of a URI, and the conversion of a function's result to
contents. Calls no function, and must not know connections.

Templates are the part of RFC 6570 that can be matched, in linear time for any URI. A value that could lead a
function out of its folder is refused.

    {name}          one or more characters other than / ? #
    {+name}, {name*}  the same, with slashes; only one in a template
    {?a,b}          query parameters at the end, in any order, each of them optional
"""

import re
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict
from urllib.parse import unquote

from toolwire._support.words import did_you_mean, late_pattern
from toolwire.errors import ToolDefinitionError
from toolwire.tools.exposed_function import ExposedFunction, Source, check_settings, function_name
from toolwire.tools.paging import Pages
from toolwire.tools.results.content import Audio, Image, Resource, Text
from toolwire.tools.results.result import check_block, to_block
from toolwire.tools.results.to_json import BadResult, clean, text
from toolwire.tools.schema.arguments import (
    DefinitionError,
    InvalidArguments,
    Violation,
    got,
    unknown_argument,
)

_BYTES = (bytes, bytearray, memoryview)


class ResourceSettings(TypedDict, total=False):
    """The settings of a resource."""

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    annotations: Any
    complete: Mapping[str, Source] | None
    icons: list[Any] | None
    meta: dict[str, Any] | None
    timeout: float | None
    inline: bool


@dataclass
class ServedResource(ExposedFunction):
    """A function that is served under a URI, or under a URI template such as `res://{id}`."""

    uri: str = ""
    mime_type: str | None = None
    size: int | None = None
    """Size in bytes, if known beforehand."""
    annotations: Any = None
    """MCP annotations: `audience`, `priority`, `lastModified`."""

    def __post_init__(self) -> None:
        self.label = f"Resource {self.uri!r}"
        try:
            self.name = self.name or function_name(self.function)
            check_uri(self.uri)
            self.template = UriTemplate(self.uri) if "{" in self.uri or "}" in self.uri else None
        except ToolDefinitionError as error:
            raise self.error(str(error)) from None
        self.inspect_function()
        self._check_parameters()
        self.definition = self._define()
        """Its entry in the list. Built once; do not change it."""

    def _check_parameters(self) -> None:
        """Check that template and function have the same parameters."""
        names = self.template.names if self.template is not None else ()
        for name in names:
            if name not in self.arguments:
                raise self.error(
                    f"the template names {name!r}, which the function does not take: "
                    f"add a parameter {name!r}, or take {{{name}}} out"
                )
        for name in self.arguments:
            if name not in names and name in self.required:
                raise self.error(
                    f"the function needs {name!r}, which the URI does not give: "
                    f"put {{{name}}} into the URI, or give the parameter a default"
                )

    def _define(self) -> dict[str, Any]:
        # A listed resource has the fields of a resource link, so the same checks apply.
        try:
            link = check_block(
                {
                    "type": "resource_link",
                    "uri": self.uri,
                    "name": self.name,
                    "title": self.title,
                    "description": self.description or None,
                    "mimeType": self.mime_type,
                    "size": self.size,
                    "annotations": _as_dict(self.annotations),
                },
                "the definition",
            )
        except BadResult as error:
            raise self.error(str(error)) from error
        del link["type"]
        if self.template is not None:
            if self.size is not None:
                raise self.error("size is for a single resource, not for a template")
            link = {"uriTemplate": link.pop("uri"), **link}
        return link | self.extras()

    def contents(self, uri: str, value: Any) -> dict[str, Any]:
        """Convert the function's result to a `ReadResourceResult`; `BadResult` if that is not possible."""
        if isinstance(value, list | tuple) and any(isinstance(each, Resource) for each in value):
            if not all(isinstance(each, Resource) for each in value):
                raise BadResult(
                    "a list must have only Resource objects or only data: make each part a Resource", list
                )
            return {"contents": [_make_content(uri, each, None) for each in value]}
        return {"contents": [_make_content(uri, value, self.mime_type)]}


class Resources:
    """The resources of one server, found by URI."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._fixed: dict[str, ServedResource] = {}
        self._templates: dict[str, ServedResource] = {}
        self._by_priority: tuple[tuple[UriTemplate, ServedResource], ...] = ()
        self.fixed: Mapping[str, ServedResource] = MappingProxyType(self._fixed)
        self.templates: Mapping[str, ServedResource] = MappingProxyType(self._templates)
        self.pages = Pages("resources", self._fixed, lock)
        self.template_pages = Pages("resourceTemplates", self._templates, lock)
        self.ever = False
        """True once there was a resource. Until then, requests for resources are unknown methods."""

    def add(self, resource: ServedResource, *, replace: bool) -> None:
        """Add a resource; `ToolDefinitionError` if its URI or an equivalent template is taken."""
        with self._lock:
            holder = self._find_holder(resource)
            if holder is not None and not (replace and holder == resource.uri):
                if holder == resource.uri:
                    raise resource.error("the server already has it; replace=True replaces it")
                raise resource.error(f"the server already has {holder!r}, which matches the same URIs")
            table = self._fixed if resource.template is None else self._templates
            table[resource.uri] = resource
            self._update()
            self.ever = True

    def remove(self, uri: str) -> ServedResource:
        """Remove a resource, by its URI or template. KeyError if there is no such resource."""
        with self._lock:
            for table in (self._fixed, self._templates):
                if uri in table:
                    removed = table.pop(uri)
                    self._update()
                    return removed
        raise KeyError(f"Resource not found: {uri}{self.hint(uri)}")

    def find(self, uri: str) -> tuple[ServedResource, dict[str, str]] | None:
        """Return the resource of a URI, and the values in the URI; None if there is no such resource.

        A resource with exactly that URI comes first, then the template with the most literal characters.
        `InvalidArguments` if the URI is too long, or all templates that match it refuse a value in it.
        """
        fixed = self._fixed.get(uri)
        if fixed is not None:
            return fixed, {}
        if len(uri) > LONGEST:
            raise InvalidArguments([Violation("uri", f"Must have at most {LONGEST} characters")])
        refused: InvalidArguments | None = None
        for template, resource in self._by_priority:
            try:
                values = template.match(uri)
            except InvalidArguments as error:
                refused = refused or error
                continue
            if values is not None:
                return resource, values
        if refused is not None:
            raise refused
        return None

    def hint(self, uri: str) -> str:
        """Suggest the most similar URI, for an error about an unknown one."""
        hint = did_you_mean(uri, [*self._fixed, *self._templates])
        return f".{hint}" if hint else ""

    def _find_holder(self, resource: ServedResource) -> str | None:
        if resource.template is None:
            return resource.uri if resource.uri in self._fixed else None
        shape = resource.template.shape
        return next((each.uri for template, each in self._by_priority if template.shape == shape), None)

    def _update(self) -> None:
        templates = [(each.template, each) for each in self._templates.values() if each.template is not None]
        self._by_priority = tuple(sorted(templates, key=lambda pair: (-pair[0].literal, pair[0].wide)))
        self.pages.drop()
        self.template_pages.drop()


def make_resource(uri: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> ServedResource:
    """Make a resource from a URI and a function."""
    return ServedResource(function, uri=uri, **check_settings(ServedResource, settings))


def _make_content(uri: str, value: Any, mime_type: str | None) -> dict[str, Any]:
    uri = clean(uri)
    if isinstance(value, Resource):
        block = to_block(value) or {}
        meta = {"_meta": block["_meta"]} if "_meta" in block else {}
        inner: dict[str, Any] = block["resource"]
        return {**inner, **meta}
    if value is None or isinstance(value, str | Text):
        content = value.text if isinstance(value, Text) else str.__str__(value or "")
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": clean(content)}
    if isinstance(value, Image | Audio):
        mime_type, value = mime_type or value.mime_type, value.data
    if isinstance(value, _BYTES):
        blob = b64encode(value).decode()
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}
    return {"uri": uri, "mimeType": mime_type or "application/json", "text": text(value)}


def _as_dict(given: Any) -> Any:
    """Return annotations as a dict, from a Pydantic model or a dict."""
    return given.model_dump(by_alias=True, exclude_none=True) if hasattr(given, "model_dump") else given


LONGEST: Final = 8_192
"""The most characters of a URI that is matched against templates."""
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*:"
_BLANK: Final = r"[\s\x00-\x1f\x7f]"
_PIECES: Final = r"\{([^{}]*)\}"
_VARIABLE: Final = r"(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)"
_QUERY: Final = r"\?([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)"
_ABSOLUTE: Final = late_pattern(r"[\\/]|[A-Za-z]:[\\/]")
_SEPARATORS: Final = late_pattern(r"[\\/]")
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
        """The number of characters outside of variables. Of templates that match, the one with the most wins."""
        self.wide = any(each.wide for each in self._variables)
        """True if one of the values may have slashes."""
        self.shape = (
            "".join(
                f"{literal}{{{'+' if each.wide else ''}}}"
                for literal, each in zip(self._literals, self._variables, strict=False)
            )
            + f"{self._literals[-1]}{{?{','.join(sorted(self.query))}}}"
        )
        """Identifies the URIs that it matches: equal for two templates that match the same ones."""
        if len(set(self.names)) != len(self.names):
            raise DefinitionError(f"{text!r} names a variable twice: each needs a name of its own")

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values in a URI; None if the template does not match it.

        `InvalidArguments` if it matches, but a value could be harmful.
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
                    raise DefinitionError(f"{text!r}: {piece[0]} must be at the end of the template")
                self.query = tuple(query[1].split(","))
                if "?" in "".join(self._literals):
                    raise DefinitionError(
                        f"{text!r}: {piece[0]} must not follow a '?': put all query parameters into it"
                    )
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
            raise DefinitionError(
                f"{self.text!r}: {shown} is the second variable that may have slashes: {_FORMS}"
            )
        if self._variables and not self._literals[-1]:
            raise DefinitionError(
                f"{self.text!r}: {shown} needs some text between it and the variable before it"
            )
        self._variables.append(_Variable(parts[2], wide))

    # Matching.

    def _split(self, path: str) -> list[str] | None:
        """Return the values, still encoded: from the start up to the wide variable, and from the end back to it.

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
    """Raise `DefinitionError` unless a value can be a URI or a template."""
    if not isinstance(text, str):
        raise DefinitionError(f"a URI must be a string, got {type(text).__name__}")
    if not re.match(_SCHEME, text) or re.fullmatch(_SCHEME, text):
        raise DefinitionError(f"{text!r} is not a URI: it needs a scheme, as in config://app")
    if re.search(_BLANK, text):
        raise DefinitionError(
            f"{text!r} has whitespace or control characters: percent-encode them, such as %20 for a space"
        )


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
