"""Parses the arguments of a tool, and HTTP headers, from a command line.

A value is read by its type in the tool's JSON schema: `15` is a number for an integer and text for a string.
Whether the arguments are valid is not checked here.

    a=15   tags=x tags=y   note=@file   note=@-   note=@@literal   filter:='{"x": 1}'   '{"a": 15}'   -
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from toolwire._support.schema_structure import resolve
from toolwire.errors import UsageError

Schema = dict[str, Any]

_TYPES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
_PYTHON: Final = {"True": True, "False": False, "None": None}
_DEEPEST: Final = 20
_UNREAD: Final = object()


def refuse_constant(name: str) -> Any:
    """Raise ValueError for NaN and the like, which Python reads as JSON: for `parse_constant`."""
    raise ValueError(f"{name} is not JSON")


def parse_arguments(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Build the arguments object of a call. `UsageError` for a word that cannot be parsed."""
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        return _parse_object(_read_stdin() if words[0] == "-" else words[0])
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    given: dict[str, list[tuple[bool, str]]] = {}
    for word in words:
        name, forced, value = _split(word)
        given.setdefault(name, []).append((forced, value))
    return {name: _parse_values(name, values, properties.get(name), schema) for name, values in given.items()}


def parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """Parse `Name: value` lines. Error messages never contain a value: it may be a secret."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not value.strip() or not (name + value).isprintable():
            raise UsageError('--header takes "Name: value", as in --header "Authorization: Bearer ..."')
        found[name.strip()] = value.strip()
    return found


def _split(word: str) -> tuple[str, bool, str]:
    name, equals, value = word.partition("=")
    forced = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise UsageError(f"{word!r} is not an argument: write name=value, as in a=15, or one JSON object")
    return name, forced, value


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = _json(text)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"the arguments must be a JSON object, got {_TYPES[type(value)]}")
    return value


def _parse_values(name: str, values: list[tuple[bool, str]], schema: Any, root: Schema) -> Any:
    kinds = find_types(schema, root)
    if len(values) > 1:
        if kinds is not None and "array" not in kinds:
            raise UsageError(f"{name} is given {len(values)} times, but the tool takes one value")
        items = _items(schema, root)
        return [_parse_value(name, forced, text, items, root) for forced, text in values]
    (forced, text) = values[0]
    value = _parse_value(name, forced, text, schema, root)
    alone = not forced and kinds is not None and "array" in kinds and not kinds & {"string", "object"}
    if alone and value is not None and not isinstance(value, list):
        return [_parse_value(name, forced, text, _items(schema, root), root)]
    return value


def _items(schema: Any, root: Schema) -> Any:
    """Return the schema of an array's items; the array may be one branch of a union."""
    schema = _resolve(schema, root)
    forms = [schema, *(_resolve(each, root) for key in ("anyOf", "oneOf") for each in schema.get(key) or [])]
    return next((form["items"] for form in forms if "items" in form), {})


def _parse_value(name: str, forced: bool, text: str, schema: Any, root: Schema) -> Any:
    text = _read_text(name, text)
    if forced:
        try:
            return _json(text)
        except ValueError as error:
            raise UsageError(f"{name}:= takes JSON, and the value is not JSON: {error}") from error
    return convert(text, find_types(schema, root))


def convert(text: str, kinds: set[str] | None) -> Any:
    """Convert text to one of these JSON types (None: any). Text that fits none is left for validation to reject."""
    if kinds == {"string"}:
        return text
    value = _PYTHON.get(text, _UNREAD)
    if value is _UNREAD:
        try:
            value = _json(text)
        except ValueError:
            return text
    if kinds is None:
        return value
    kind = _TYPES[type(value)]
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    # For a string, 27 means "27". For a number, true stays a boolean, so that validation reports it as one.
    return text if not fits and "string" in kinds else value


def find_types(schema: Any, root: Schema, depth: int = 0) -> set[str] | None:  # noqa: PLR0911 - one per form
    """Return the JSON types that a schema allows; None if it does not say."""
    if depth > _DEEPEST:
        return None
    schema = _resolve(schema, root)
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {each for each in kind if isinstance(each, str)}
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return {_TYPES[type(each)] for each in values if type(each) in _TYPES}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            inner = [find_types(each, root, depth + 1) for each in schema[key]]
            known = [each for each in inner if each is not None]
            if key == "allOf":
                return known[0] if known else None
            return set().union(*known) if len(known) == len(inner) and known else None
    return None


def _resolve(schema: Any, root: Schema) -> Schema:
    """Follow references inside the document."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            break
        schema = resolve(reference, root)
    return schema if isinstance(schema, dict) else {}


def _read_text(name: str, text: str) -> str:
    """Return the value, or the content of the file or stdin that it names with @."""
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    if text == "@-":
        return _read_stdin()
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{name}={text}: cannot read the file ({reason}); write a value that begins with @ as @{text}"
        ) from error


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except ValueError as error:
        raise UsageError("the input on stdin is not UTF-8 text") from error


_json: Callable[[str], Any] = json.JSONDecoder(parse_constant=refuse_constant).decode
