"""Shapes: which kind of form field a JSON schema becomes, and how typed text is parsed for that kind.

Owns the kinds, the resolution of references, `allOf` and unions, the choice of the variant that a value fits, and
the parsing of typed text. A schema comes from a server and may be anything: it never causes an exception or an
endless loop here, and a schema that is too large for a page becomes a field of raw JSON. Must not know the values
that a user has entered.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support import dialogs
from toolwire._support.schema_structure import REFERENCES, resolve
from toolwire._support.words import plain_line
from toolwire.tools.schema.arguments import clip, show_value

Kind: TypeAlias = Literal[
    "text",
    "long_text",
    "integer",
    "number",
    "boolean",
    "choice",
    "choices",
    "list",
    "object",
    "map",
    "variant",
    "file",
    "date",
    "date-time",
    "json",
]


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""Stands for a missing value, because None means null."""
_MAX_FIELDS: Final = 300  # of one object, map or list; a larger one becomes a field of JSON
_MAX_CHOICES: Final = 1_000
_MAX_VARIANTS: Final = 50
_MAX_STEPS: Final = 1_000  # references and branches followed to read one schema
MAX_TITLE: Final = 200
_LONG: Final = 200  # a text that may be longer gets an input with several lines
_FITTING_DEPTH: Final = 4
_FITTING_ITEMS: Final = 20
_NOT_FOR_BRANCHES: Final = ("title", "description", "default", "examples", "discriminator")
_SHAPING: Final = {
    *("type", "properties", "additionalProperties", "patternProperties", "items", "prefixItems", "enum"),
    *("const", "allOf", "anyOf", "oneOf", *REFERENCES),
}
_TYPES: Final = {
    "text": (str,),
    "long_text": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "map": (dict,),
}
_WORDS: Final[dict[str, str]] = {
    "text": "Text",
    "long_text": "Text",
    "integer": "Integer",
    "number": "Number",
    "boolean": "Yes or no",
    "choice": "Choice",
    "choices": "Choices",
    "list": "List",
    "object": "Object",
    "map": "Entries",
    "file": "File",
    "date": "Date",
    "date-time": "Date and time",
}
_KINDS: Final[dict[str, Kind]] = {"boolean": "boolean", "integer": "integer", "number": "number"}
_HINTS: Final[tuple[tuple[str, tuple[Kind, ...], str], ...]] = (
    ("minimum", ("integer", "number"), "at least {}"),
    ("exclusiveMinimum", ("integer", "number"), "more than {}"),
    ("maximum", ("integer", "number"), "at most {}"),
    ("exclusiveMaximum", ("integer", "number"), "less than {}"),
    ("multipleOf", ("integer", "number"), "a multiple of {}"),
    ("minLength", ("text", "long_text"), "at least {} characters"),
    ("maxLength", ("text", "long_text"), "at most {} characters"),
    ("pattern", ("text", "long_text"), "must match {}"),
    ("format", ("text", "long_text"), "format {}"),
    ("minItems", ("list", "choices"), "at least {} items"),
    ("maxItems", ("list", "choices"), "at most {} items"),
    ("minProperties", ("map", "object"), "at least {} entries"),
    ("maxProperties", ("map", "object"), "at most {} entries"),
)


@dataclass(frozen=True)
class Shape:
    """The form field for a schema, independent of its path. `schema` has no references or alternatives."""

    kind: Kind
    schema: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    nullable: bool = False
    choices: tuple[Any, ...] = ()
    labels: tuple[str, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ()
    is_union: bool = False

    def child(self, step: str | int) -> Any:
        """Return the schema of a property or item, by name or index."""
        schema = self.schema
        if isinstance(step, int):
            first = prefix_items(schema)
            if step < len(first):
                return first[step]
            items = schema.get("additionalItems" if isinstance(schema.get("items"), list) else "items")
            return items if isinstance(items, Mapping) else {}
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and step in properties:
            return properties[step]
        # Patterns are not matched against names: a pattern comes from the server and may take forever.
        patterns = as_table(schema.get("patternProperties"))
        additional = schema.get("additionalProperties")
        if len(patterns) == 1 and additional in (None, False):
            return next(iter(patterns.values()))
        return additional if isinstance(additional, Mapping) and not patterns else {}

    @property
    def is_constant(self) -> bool:
        """True if only one value is possible, such as the tag of a variant."""
        return self.kind == "choice" and len(self.choices) == 1

    @property
    def is_open(self) -> bool:
        additional = self.schema.get("additionalProperties")
        return additional not in (None, False) or bool(as_table(self.schema.get("patternProperties")))

    @property
    def is_fixed(self) -> bool:
        schema, count = self.schema, len(prefix_items(self.schema))
        closed = schema.get("items") is False or schema.get("maxItems") == count
        return bool(count) and closed and schema.get("minItems") == count


class _TooComplex(Exception):  # noqa: N818 - not an error: the field is shown as JSON
    """A schema takes too many steps to read, or is invalid."""


class Document:
    """A complete schema, in which references are resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._targets: dict[str, Any] = {}

    def read(self, schema: Any, *, is_root: bool = False, is_item: bool = False) -> Shape:
        """Return the shape of a schema. With `is_item`, the items of a list are not examined."""
        try:
            left = [_MAX_STEPS]
            about = self._flatten(schema, left)
            options = self._alternatives(about, left)
        except _TooComplex:
            return Shape("json", about=as_table(schema))
        schema = as_table(schema)
        # The title of a referenced schema is that of a model, not of the field.
        about.pop("title", None)
        if "title" in schema:
            about["title"] = schema["title"]
        found = [each for each in options if each.get("type") != "null"]
        nullable = len(found) < len(options)
        is_union = len(options) > 1
        if not found:
            return Shape("choice", about=about, choices=(None,), labels=("null",))
        if len(found) > 1:
            listed = [_read_enum(each) for each in found]
            if all(listed) and sum(map(len, listed)) <= _MAX_CHOICES:
                return _with_choices(about, [pair for pairs in listed for pair in pairs], nullable=nullable)
            labels = _distinct(_variant_label(each) for each in found)
            return Shape(
                "variant", about, about, nullable, labels=labels, variants=tuple(found), is_union=True
            )
        shape = self._read_one(found[0], about, nullable=nullable, is_root=is_root)
        if shape.kind == "list" and not is_item and not prefix_items(shape.schema):
            items = self.read(shape.schema.get("items"), is_item=True)
            if items.kind == "choice" and not items.nullable:
                shape = replace(shape, kind="choices", choices=items.choices, labels=items.labels)
        return replace(shape, is_union=is_union)

    def _read_one(
        self, schema: Mapping[str, Any], about: Mapping[str, Any], *, nullable: bool, is_root: bool
    ) -> Shape:
        title = about.get("title")
        about = {**schema, **about, "title": title}
        if pairs := _read_enum(schema):
            if len(pairs) <= _MAX_CHOICES:
                return _with_choices(about, pairs, nullable=nullable)
            is_text = all(isinstance(value, str) for value, _ in pairs)
            return Shape("text" if is_text else "json", schema, about, nullable)
        return Shape(_kind(schema, is_root=is_root), schema, about, nullable)

    def _flatten(self, schema: Any, left: list[int]) -> dict[str, Any]:
        """Follow the references of a schema and merge its `allOf`."""
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, Mapping):
            raise _TooComplex
        found = dict(schema)
        while True:
            _use_step(left)
            keyword = next((each for each in REFERENCES if each in found), None)
            if keyword is not None:
                reference = found.pop(keyword)
                target = self._resolve(reference)
                found = _merge(target, found)
                found.setdefault("title", str(reference).rsplit("/", 1)[-1])
            elif "allOf" in found:
                parts = found.pop("allOf")
                for part in parts if isinstance(parts, list) else ():
                    found = _merge(self._flatten(part, left), found)
            else:
                return found

    def _resolve(self, reference: Any) -> Mapping[str, Any]:
        if not isinstance(reference, str):
            raise _TooComplex
        if reference not in self._targets:
            self._targets[reference] = resolve(reference, self.root)
        target = self._targets[reference]
        if not isinstance(target, Mapping):
            raise _TooComplex
        return target

    def _alternatives(self, schema: dict[str, Any], left: list[int]) -> list[dict[str, Any]]:
        """Return the alternatives of a schema, none of which has alternatives of its own."""
        found: list[dict[str, Any]] = []
        stack = [schema]
        while stack:
            _use_step(left)
            each = stack.pop()
            union = next((key for key in ("anyOf", "oneOf") if isinstance(each.get(key), list)), None)
            kind = each.get("type")
            if "enum" in each or "const" in each:
                found.append(each)
            elif union is not None:
                branches = [branch for branch in each[union] if branch is not False]
                base = {key: value for key, value in each.items() if key != union}
                if any(isinstance(branch, Mapping) and _SHAPING & branch.keys() for branch in branches):
                    base = {key: value for key, value in base.items() if key not in _NOT_FOR_BRANCHES}
                    merged = [_merge(base, self._flatten(branch, left)) for branch in branches]
                    stack += reversed(merged)
                else:  # the branches only constrain which properties go together; validation checks that
                    stack.append(base)
            elif isinstance(kind, list):
                stack += [{**each, "type": one} for one in reversed(kind) if isinstance(one, str)]
            else:
                found.append(each)
            if len(found) + len(stack) > _MAX_VARIANTS * 2:
                raise _TooComplex
        if len(found) > _MAX_VARIANTS and not all(map(_read_enum, found)):
            raise _TooComplex
        return found

    def fit(
        self, schema: Any, value: Any, depth: int = _FITTING_DEPTH, left: list[int] | None = None
    ) -> int | None:
        """Return how well a value fits a schema; None if it does not. Compares shapes only, not limits."""
        left = [_MAX_STEPS] if left is None else left
        left[0] -= 1
        if left[0] < 0:
            return 0
        shape = self.read(schema)
        if shape.kind == "variant":
            scores = [self.fit(each, value, depth, left) for each in shape.variants]
            return max((score for score in scores if score is not None), default=None)
        if not _shows(shape, value) and not (value is None and shape.nullable):
            return None
        score = {"json": 0, "text": 1, "long_text": 1, "number": 1}.get(shape.kind, 2)
        inside = shape.kind in ("object", "map", "list") and isinstance(value, dict | list) and depth > 0
        more = self._fit_inside(shape, value, depth - 1, left) if inside else 0
        return None if more is None else score + more

    def _fit_inside(self, shape: Shape, value: Any, depth: int, left: list[int]) -> int | None:
        """Return a score for the declared values inside an object or list; None if one does not fit."""
        declared = as_table(shape.schema.get("properties"))
        if isinstance(value, dict):
            closed = shape.schema.get("additionalProperties") is False
            if closed and not value.keys() <= declared.keys():
                return None
            if not text_names(shape.schema.get("required")) <= value.keys():
                return None
        steps = list(value) if isinstance(value, dict) else range(len(value))
        scores = [
            (step, self.fit(shape.child(step), value[step], depth, left)) for step in steps[:_FITTING_ITEMS]
        ]
        if any(score is None for _, score in scores):
            return None
        return sum(1 + min(score or 0, 2) for step, score in scores if step in declared)

    def resemble(self, schema: Any, value: Any) -> int | None:
        """Return how much an invalid value resembles values of a schema; None if it does not at all."""
        shape = self.read(schema)
        if shape.kind == "list":
            return 0 if isinstance(value, list) else None
        if shape.kind != "object" or not isinstance(value, dict):
            return None
        named = [name for name in as_table(shape.schema.get("properties")) if name in value]
        for name in named:
            inner = self.read(shape.child(name))
            if inner.is_constant and not is_same(inner.choices[0], value[name]):
                return None
        return len(named) or None


def _use_step(left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise _TooComplex


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Combine two schemas that must both hold. Where a form cannot show both, `over` wins."""
    merged = {**base, **over}
    if "properties" in base and "properties" in over:
        first, second = as_table(base["properties"]), as_table(over["properties"])
        merged["properties"] = {**first, **second}
        for name in first.keys() & second.keys():
            if isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
                merged["properties"][name] = _merge(first[name], second[name])
    if "required" in base and "required" in over:
        merged["required"] = sorted(text_names(base["required"]) | text_names(over["required"]))
    if isinstance(base.get("allOf"), list) and isinstance(over.get("allOf"), list):
        merged["allOf"] = [*base["allOf"], *over["allOf"]]
    return merged


def _kind(schema: Mapping[str, Any], *, is_root: bool) -> Kind:
    """Return the kind of a schema without choices and alternatives."""
    type_name = schema.get("type", _guess_type(schema, is_root=is_root))
    if type_name == "string":
        return _text_kind(schema)
    if type_name == "object":
        return _object_kind(schema, is_root=is_root)
    if type_name == "array":
        first = prefix_items(schema)
        known = isinstance(schema.get("items"), Mapping) or first
        return "list" if known and len(first) <= _MAX_FIELDS else "json"
    return _KINDS.get(type_name, "json") if isinstance(type_name, str) else "json"


def _object_kind(schema: Mapping[str, Any], *, is_root: bool) -> Kind:
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
        return "json"
    if properties:
        return "object"
    if (isinstance(additional, Mapping) and additional) or as_table(schema.get("patternProperties")):
        return "map"
    return "object" if is_root or additional is False else "json"


def _guess_type(schema: Mapping[str, Any], *, is_root: bool) -> str:
    if is_root or "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    texts = ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType")
    if any(each in schema for each in texts):
        return "string"
    return "number" if "minimum" in schema or "maximum" in schema else ""


def _text_kind(schema: Mapping[str, Any]) -> Kind:
    form, media = schema.get("format"), schema.get("contentMediaType")
    encoding = str(schema.get("contentEncoding")).lower()
    if encoding in ("base64", "base64url") or form in ("binary", "byte", "base64", "base64url"):
        return "file"
    if isinstance(media, str) and "contentEncoding" not in schema:
        # Without an encoding, the text is the document itself, if it can be text.
        is_text = media.startswith("text/") or media.endswith(("json", "xml", "yaml", "javascript"))
        return "long_text" if is_text else "file"
    if form == "date":
        return "date"
    if form == "date-time":
        return "date-time"
    longest = schema.get("maxLength")
    return "long_text" if isinstance(longest, int) and longest > _LONG else "text"


def as_shown(shape: Shape, value: Any) -> Shape:
    """Return the shape, or a more general one if it cannot show the value."""
    if value is MISSING or (value is None and shape.nullable):
        return shape
    if shape.kind == "text" and isinstance(value, str) and "\n" in value:
        return replace(shape, kind="long_text")
    if _shows(shape, value):
        return shape
    if shape.kind == "choices" and isinstance(value, list) and len(value) <= _MAX_FIELDS:
        return replace(shape, kind="list")
    if isinstance(value, str) and shape.kind in ("choice", "file", "date", "date-time"):
        return replace(shape, kind="long_text" if "\n" in value else "text")
    return replace(shape, kind="json")


def _shows(shape: Shape, value: Any) -> bool:
    """True if a field of this kind can show the value without loss: parsing the shown text gives the same value."""
    kind = shape.kind
    if kind in ("variant", "json"):
        return True
    if kind in ("choice", "choices"):
        return _shows_choices(shape.choices, [value] if kind == "choice" else value)
    if kind in ("file", "date", "date-time"):
        with suppress(ValueError):
            return isinstance(value, str) and bool(value) and read_text(shape, value) == value
        return False
    is_kind = isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")
    return is_kind and (not isinstance(value, dict | list) or len(value) <= _MAX_FIELDS)


def _shows_choices(choices: tuple[Any, ...], values: Any) -> bool:
    """True if the values are a subset of the choices, without duplicates."""
    if not isinstance(values, list) or len(values) > len(choices):
        return False
    places = [next((at for at, each in enumerate(choices) if is_same(each, one)), None) for one in values]
    return None not in places and len(set(places)) == len(places)


def read_text(shape: Shape, text: str) -> Any:
    """Parse text that was typed into a field. Raises ValueError with a text for the user."""
    if shape.kind == "choice":
        return _read_choice(shape, text)
    if shape.kind in ("integer", "number", "boolean"):
        return dialogs.Field("value", {"type": shape.kind}, {}).read(text.strip())
    return _READERS.get(shape.kind, read_json)(text)


def _read_choice(shape: Shape, text: str) -> Any:
    for choice, label in zip(shape.choices, shape.labels, strict=True):
        if text == label:
            return choice
    raise ValueError(f"{show_value(text)} is not one of the choices")


def _read_date(text: str) -> str:
    with suppress(ValueError):
        if date.fromisoformat(text).isoformat() == text:
            return text
    raise ValueError(f"{show_value(text)} is not a date such as 2026-01-31")


def _read_time(text: str) -> str:
    with suppress(ValueError):
        datetime.fromisoformat(text)
        return text
    raise ValueError(f"{show_value(text)} is not a date and time such as 2026-01-31T12:30:00Z")


def _read_base64(text: str) -> str:
    padded = text + "=" * (-len(text) % 4)
    try:
        base64.b64decode(padded, altchars=b"-_" if "-" in text or "_" in text else None, validate=True)
    except ValueError:  # binascii.Error, or the ValueError for characters that are not ASCII
        raise ValueError("This is not base64; choose a file, or paste its contents as base64") from None
    return text


def read_json(text: str) -> Any:
    """Parse JSON that was typed. Raises ValueError with a text for the user."""
    try:
        value = loads(text.encode())
        dumps(value)  # raises if it is nested too deeply to be sent
    except (ValueError, RecursionError) as error:
        raise ValueError(f"This is not JSON: {clip(str(error), MAX_TITLE)}") from error
    return value


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "long_text": str,
    "date": _read_date,
    "date-time": _read_time,
    "file": _read_base64,
}


def _read_enum(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values that `const` or `enum` allow, with their titles."""
    if "const" in schema:
        return [(schema["const"], clean_line(schema.get("title")))]
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return []
    names = schema.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(listed) else [""] * len(listed)
    return [(value, clean_line(title)) for value, title in zip(listed, titles, strict=True)]


def _with_choices(about: Mapping[str, Any], pairs: list[tuple[Any, str]], *, nullable: bool) -> Shape:
    """Return the shape of a choice. A null among other values makes the field nullable instead."""
    single = len(pairs) == 1
    kept = [pair for pair in pairs if pair[0] is not None] or pairs
    seen: dict[bytes | str, tuple[Any, str]] = {}
    for value, title in kept:
        # The title of a single constant is the title of the field.
        seen.setdefault(_identity(value), (value, "" if single else title))
    labels = _distinct(title or _show_choice(value) for value, title in seen.values())
    choices = tuple(value for value, _ in seen.values())
    nullable = nullable or len(kept) < len(pairs)
    return Shape("choice", about, about, nullable, choices, labels)


def _show_choice(value: Any) -> str:
    shown = isinstance(value, str) and value.strip()
    return clean_line(value) if shown else clip(_as_json(value), MAX_TITLE)


def _distinct(labels: Iterable[str]) -> tuple[str, ...]:
    """Make labels distinct by numbering equal ones."""
    used: dict[str, None] = {}
    for label in labels:
        number, own = 1, label
        while own in used:
            number += 1
            own = f"{label} ({number})"
        used[own] = None
    return tuple(used)


def _variant_label(schema: Mapping[str, Any]) -> str:
    word = _WORDS.get(_kind(schema, is_root=False), "JSON")
    return clean_line(schema.get("title")) or ("Choice" if _read_enum(schema) else word)


def describe_limits(shape: Shape) -> tuple[str, ...]:
    """Return the constraints on a value, such as "at least 1"."""
    schema = shape.schema
    hints = [
        text.format(clean_line(schema[key]) if isinstance(schema[key], str) else show_value(schema[key]))
        for key, kinds, text in _HINTS
        if key in schema and shape.kind in kinds and not isinstance(schema[key], bool)
    ]
    if schema.get("uniqueItems") is True and shape.kind == "list":
        hints.append("no duplicates")
    if shape.kind in ("text", "json") and len(pairs := _read_enum(schema)) > _MAX_CHOICES:
        hints.append(f"one of {len(pairs)} values")
    return tuple(hints)


def prefix_items(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of the first items of a list, one for each item."""
    for keyword in ("prefixItems", "items"):
        if isinstance(found := schema.get(keyword), list):
            return found
    return []


def as_table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text_names(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def clean_line(value: Any) -> str:
    return clip(plain_line(value[: MAX_TITLE + 1]), MAX_TITLE) if isinstance(value, str) else ""


def is_same(one: Any, other: Any) -> bool:
    """True if two values are the same JSON. Unlike in Python, true is not 1."""
    return one == other and _identity(one) == _identity(other)


def _identity(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return repr(value)
    return f"{type(value).__name__}{_as_json(value)}"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (ValueError, RecursionError, TypeError):
        return object.__repr__(value)
