"""Arguments of a tool from the words of a command line.

Owns the reading of `name=value` by the tool's JSON schema: what the schema calls a number is read as one, and text
stays text. Whether the arguments are right is for the schema's own check.

    a=15   tags=x tags=y   note=@file   note=@-   note=@@literal   filter:='{"x": 1}'   '{"a": 15}'   -
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

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


def arguments(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """The arguments object. `UsageError` for a word that cannot be read."""
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        return _whole(_stdin() if words[0] == "-" else words[0])
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    given: dict[str, list[tuple[bool, str]]] = {}
    for word in words:
        name, forced, value = _split(word)
        given.setdefault(name, []).append((forced, value))
    return {name: _value(name, values, properties.get(name), schema) for name, values in given.items()}


def headers(lines: Sequence[str]) -> dict[str, str]:
    """`Name: value` lines as HTTP headers. The value is in no message: it may be a secret."""
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
        raise UsageError(f"{word!r} is no argument: write name=value, as in a=15, or one JSON object")
    return name, forced, value


def _whole(text: str) -> dict[str, Any]:
    try:
        value = _json(text)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"the arguments must be a JSON object, got {_TYPES[type(value)]}")
    return value


def _value(name: str, values: list[tuple[bool, str]], schema: Any, root: Schema) -> Any:
    kinds = kinds_of(schema, root)
    if len(values) > 1:
        if kinds is not None and "array" not in kinds:
            raise UsageError(f"{name} is given {len(values)} times, and the tool takes one")
        items = _items(schema, root)
        return [_one(name, forced, text, items, root) for forced, text in values]
    (forced, text) = values[0]
    value = _one(name, forced, text, schema, root)
    alone = not forced and kinds is not None and "array" in kinds and not kinds & {"string", "object"}
    if alone and value is not None and not isinstance(value, list):
        return [_one(name, forced, text, _items(schema, root), root)]
    return value


def _items(schema: Any, root: Schema) -> Any:
    """The schema of the items of an array, which may be one form of several."""
    schema = _resolved(schema, root)
    forms = [schema, *(_resolved(each, root) for key in ("anyOf", "oneOf") for each in schema.get(key) or [])]
    return next((form["items"] for form in forms if "items" in form), {})


def _one(name: str, forced: bool, text: str, schema: Any, root: Schema) -> Any:
    text = _text(name, text)
    if forced:
        try:
            return _json(text)
        except ValueError as error:
            raise UsageError(f"{name}:= takes JSON, and this is none: {error}") from error
    return read(text, kinds_of(schema, root))


def read(text: str, kinds: set[str] | None) -> Any:
    """A text as one of these JSON types (None: any). What fits none stays as it is, for the check to tell."""
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
    # 27 for a string is "27"; true for a number is wrong, and is shown to be so as what it looks like.
    return text if not fits and "string" in kinds else value


def kinds_of(schema: Any, root: Schema, depth: int = 0) -> set[str] | None:  # noqa: PLR0911 - one per form
    """The JSON types that a schema lets through; None if it does not say."""
    if depth > _DEEPEST:
        return None
    schema = _resolved(schema, root)
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
            inner = [kinds_of(each, root, depth + 1) for each in schema[key]]
            said = [each for each in inner if each is not None]
            if key == "allOf":
                return said[0] if said else None
            return set().union(*said) if len(said) == len(inner) and said else None
    return None


def _resolved(schema: Any, root: Schema) -> Schema:
    """The schema itself, behind references inside the document."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        target: Any = root
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        schema = target
    return schema if isinstance(schema, dict) else {}


def _text(name: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    if text == "@-":
        return _stdin()
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{name}={text}: cannot read the file ({reason}); a value that begins with @ is written @{text}"
        ) from error


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except ValueError as error:
        raise UsageError("what came on stdin is not UTF-8 text") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_json: Callable[[str], Any] = json.JSONDecoder(parse_constant=_no_constant).decode
