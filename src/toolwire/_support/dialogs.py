"""Dialogs with a user, without I/O: permission for a tool call, and the form of an elicitation.

A dialog is a generator. It yields a prompt, is sent the line that was typed (None at the end of input), and returns
the outcome. This module owns the wording and the meaning of typed lines. The caller reads and writes, and must
remove control characters from all text before showing it, since the text comes from servers and models.
"""

import json
import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from toolwire._support.schema_structure import resolve

Role: TypeAlias = Literal["request", "detail", "url", "note", "error"]

DECLINE: Final = "/decline"
_LONGEST_ARGUMENTS: Final = 4_000  # characters
_DEEPEST_REFERENCE: Final = 20


@dataclass(frozen=True)
class Prompt:
    """A prompt for one typed line, and the lines to show above it, each with its role."""

    text: str
    lines: tuple[tuple[str, Role], ...] = ()


@dataclass(frozen=True)
class Permission:
    """The user's decision about a call. `reason` is the reason that the user gave for a refusal."""

    allowed: bool
    always: bool = False
    reason: str = ""

    @property
    def denial(self) -> str:
        """The message for the model when the call is not allowed."""
        more = f" They say: {self.reason}" if self.reason else ""
        return f"The user does not allow this call.{more}"


def ask_permission(
    tool: str, arguments: str, why: str | None, *, always: str = "", ask_reason: bool = False
) -> Generator[Prompt, str | None, Permission]:
    """Ask whether a tool may be called: yes, always, or no with a reason for the model.

    `always` describes how long the answer "always" applies; if it is empty, that answer is not offered. With
    `ask_reason`, a user who refuses without a reason is prompted for one.
    """
    hidden = len(arguments) - _LONGEST_ARGUMENTS
    cut = f" ... {hidden} more characters" if hidden > 0 else ""
    shown: list[tuple[str, Role]] = [
        (f"May it call {tool}?", "request"),
        (f"  {arguments[:_LONGEST_ARGUMENTS]}{cut}", "detail"),
    ]
    if why:
        shown.append((f"  {why}", "note"))
    choices = f"[y]es, [a]lways {always}, [n]o: " if always else "[y]es, [n]o: "
    prompt = Prompt(choices, tuple(shown))
    while True:
        line = yield prompt
        if line is None:
            return Permission(allowed=False)
        word, _, reason = line.strip().partition(" ")
        match word.lower():
            case "y" | "yes":
                return Permission(allowed=True)
            case "a" | "always" if always:
                return Permission(allowed=True, always=True)
            case "n" | "no":
                if ask_reason and not reason.strip():
                    reason = (yield Prompt("Why not? The model reads it (enter: no reason): ")) or ""
                return Permission(allowed=False, reason=reason.strip())
        prompt = Prompt(choices)


class Elicitation(Protocol):
    """The attributes of an `ElicitationRequest` that the dialog reads."""

    @property
    def server(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any] | None: ...
    @property
    def url(self) -> str | None: ...


def elicit(request: Elicitation) -> Generator[Prompt, str | None, dict[str, Any]]:
    """Ask the user for the fields that a server requests. Returns the result of `elicitation/create`."""
    shown: list[tuple[str, Role]] = [(f"{request.server} asks: {request.message}", "request")]
    schema = request.schema or {}
    properties = schema.get("properties") or {}
    if request.mode == "url":
        shown.append((f"  {request.url or ''}", "url"))
        line = yield Prompt(f"Open it; enter when done, {DECLINE} to decline: ", tuple(shown))
        return {"action": "decline" if _declines(line) else "accept"}
    if not properties:
        line = yield Prompt(f"Enter to accept, {DECLINE} to decline: ", tuple(shown))
        return {"action": "decline"} if _declines(line) else {"action": "accept", "content": {}}
    shown.append((f"  (enter: accept the value in brackets; {DECLINE} or Ctrl-D: decline)", "note"))
    content: dict[str, Any] = {}
    for name, given in properties.items():
        field = Field(name, given, schema)
        if field.description:
            shown.append((f"  {field.description}", "note"))
        while True:
            line = yield Prompt(field.prompt, tuple(shown))
            if line is None or line.strip() == DECLINE:
                return {"action": "decline"}
            try:
                value = field.read(line.strip())
            except ValueError as error:
                shown = [(f"  {error}", "error")]
            else:
                break
        shown = []
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


def _declines(line: str | None) -> bool:
    return line is None or line.strip() == DECLINE


class Field:
    """One property of a form. `whole` is the schema of the form, with its definitions and required names."""

    def __init__(self, name: str, given: Any, whole: Mapping[str, Any]) -> None:
        self.name = name
        self._schema = _resolve(given, whole)
        self._definitions = {key: whole[key] for key in ("$defs", "definitions") if key in whole}
        self._required = name in (whole.get("required") or ())
        self._default = self._schema.get("default")

    @property
    def description(self) -> str:
        """The description in the schema, or an empty string."""
        return str(self._schema.get("description") or "")

    @property
    def prompt(self) -> str:
        """The name, the type or the choices, and the default in brackets."""
        kind = str(self._schema.get("type") or "text")
        listed = _choices(self._items() if kind == "array" else self._schema)
        words = {"boolean": "yes/no", "array": "several, with commas"}
        shown = " | ".join(map(_text, listed)) + ", with commas" * (kind == "array") if listed else ""
        known = f" [{_text(self._default)}]" if self._default is not None else "" if self._required else " []"
        return f"{self.name} ({shown or words.get(kind, kind)}){known}: "

    def read(self, line: str) -> Any:
        """Convert a typed line to a value of the field's type; None for no value, ValueError if it does not fit."""
        if not line and self._required and self._default is None:
            raise ValueError(f"{self.name} is required")
        if not line:
            return self._default
        if self._schema.get("type") == "array" and not line.startswith("["):
            items = self._items()
            value: Any = [_convert(part.strip(), items) for part in line.split(",") if part.strip()]
        else:
            value = _convert(line, self._schema)
        _check(value, {**self._definitions, **self._schema})
        return value

    def _items(self) -> dict[str, Any]:
        return _resolve(self._schema.get("items"), self._definitions)


def _resolve(schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the `$ref` of a property, and remove the null type of an optional one."""
    found: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(_DEEPEST_REFERENCE):
        if isinstance(found.get("$ref"), str):
            target = resolve(found.pop("$ref"), whole)
            found = {**(target if isinstance(target, Mapping) else {}), **found}
        elif len(kinds := _without_null(found.get("anyOf"))) == 1:
            found.pop("anyOf")
            found = {**kinds[0], **found}
        elif (
            isinstance(types := found.get("type"), list)
            and len(kinds := [t for t in types if t != "null"]) == 1
        ):
            found["type"] = kinds[0]
        else:
            break
    return found


def _without_null(schemas: Any) -> list[dict[str, Any]]:
    listed = schemas if isinstance(schemas, list) else []
    return [each for each in listed if isinstance(each, dict) and each.get("type") != "null"]


def _convert(text: str, schema: Mapping[str, Any]) -> Any:
    """Convert text to a value of the schema's type. Text that cannot be converted is returned unchanged."""
    kind = schema.get("type")
    if choices := _choices(schema):
        for choice in choices:
            if text == _text(choice):
                return choice
        raise ValueError(f"must be one of: {', '.join(map(_text, choices))}")
    if kind == "boolean":
        if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
            raise ValueError("must be yes or no")
        return text.lower()[0] in "yt"
    if kind == "string":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def _check(value: Any, schema: dict[str, Any]) -> None:
    """Raise ValueError if a value violates the schema. With an unusable schema, only the server can validate it."""
    import jsonschema_rs  # noqa: PLC0415 - heavy, and only forms need it here

    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=False, retriever=_fetch_nothing)
        errors: Iterable[Any] = list(validator.iter_errors(value))
    except (ValueError, TypeError):  # jsonschema_rs.ValidationError is a ValueError
        return
    if messages := [str(error.message) for error in errors]:
        raise ValueError("; ".join(messages))


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not inside the schema")


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that a schema lists as allowed."""
    if schema.get("enum"):
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    forms = [
        each for key in ("oneOf", "anyOf") for each in schema.get(key) or () if isinstance(each, Mapping)
    ]
    return [each["const"] for each in forms if "const" in each]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
