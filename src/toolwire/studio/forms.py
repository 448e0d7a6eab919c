"""The form of a JSON schema: the fields that a page draws, what the user has put in, and the arguments it makes.

Owns which kind of field a schema becomes, how typed text becomes a value, and where an error of validation belongs.
The state is the arguments themselves, with two notes beside them: text that could not be read, and which variant
the user has chosen. So arguments from elsewhere stay as they are, also where the schema does not foresee them.

A schema comes from a server and may be anything: nothing here raises because of it, fields below a field are made
only when they are asked for, and what would be too much for a page is a field of raw JSON. Must not know how a page
is drawn, nor who is called with the arguments.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support import dialogs
from toolwire._support.schema_structure import REFERENCES, resolve
from toolwire._support.words import plain, plain_line
from toolwire.tools.schema.arguments import (
    REQUIRED,
    DefinitionError,
    InvalidArguments,
    Violation,
    clip,
    format_path,
    show_value,
    to_json,
)
from toolwire.tools.schema.json_schema import RawParameters, compile_schema

Path: TypeAlias = tuple[str | int, ...]
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
"""Stands for a value that is not given, since None is one: null."""

_MAX_FIELDS: Final = 300  # of one object, map or list; more are one field of JSON
_MAX_CHOICES: Final = 1_000
_MAX_VARIANTS: Final = 50
_MAX_DEPTH: Final = 32  # steps of a path
_MAX_STEPS: Final = 1_000  # references followed and branches looked at to read one schema
_MAX_MATCHES: Final = 300  # steps to find the field of one error
_MAX_TITLE: Final = 200
_MAX_DESCRIPTION: Final = 4_000
_MAX_EXAMPLES: Final = 10
_MAX_ERROR_TEXT: Final = 20_000
_LONG: Final = 200  # characters that may be typed, from which on a field has several lines
_FITTING_DEPTH: Final = 4
_FITTING_ITEMS: Final = 20
_VALIDATION_FAILED: Final = "Validation failed: "
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
class Field:
    """One field of a form. All texts but `name` and the values are safe to show."""

    path: Path
    kind: Kind
    title: str
    description: str = ""
    required: bool = False
    nullable: bool = False
    default: Any = MISSING
    examples: tuple[Any, ...] = ()
    limits: tuple[str, ...] = ()
    """What the schema demands of the value, in words."""
    choices: tuple[Any, ...] = ()
    """The values of a choice, of any type."""
    labels: tuple[str, ...] = ()
    """The texts of the choices, or of the variants: no two are alike."""
    is_open: bool = False
    """Entries of any name may be added to the object or map."""
    is_fixed: bool = False
    """The list has as many items as it must have: none is added or removed."""
    media_type: str = ""
    """Of a file, if it is known."""

    @property
    def name(self) -> str:
        """The last step of the path, as the schema has it: it may contain anything."""
        return str(self.path[-1]) if self.path else ""


@dataclass(frozen=True)
class _Shape:
    """What a schema is read as, apart from where it stands. `schema` has neither references nor alternatives."""

    kind: Kind
    schema: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    nullable: bool = False
    choices: tuple[Any, ...] = ()
    labels: tuple[str, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ()
    is_union: bool = False

    def child(self, step: str | int) -> Any:
        """The schema of what is inside, by its name or index."""
        schema = self.schema
        if isinstance(step, int):
            first = _prefix(schema)
            if step < len(first):
                return first[step]
            items = schema.get("additionalItems" if isinstance(schema.get("items"), list) else "items")
            return items if isinstance(items, Mapping) else {}
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and step in properties:
            return properties[step]
        # No pattern is tried on a name: it is the server's, and may take for ever.
        patterns = _table(schema.get("patternProperties"))
        additional = schema.get("additionalProperties")
        if len(patterns) == 1 and additional in (None, False):
            return next(iter(patterns.values()))
        return additional if isinstance(additional, Mapping) and not patterns else {}

    @property
    def is_open(self) -> bool:
        additional = self.schema.get("additionalProperties")
        return additional not in (None, False) or bool(_table(self.schema.get("patternProperties")))

    @property
    def is_fixed(self) -> bool:
        schema, count = self.schema, len(_prefix(self.schema))
        closed = schema.get("items") is False or schema.get("maxItems") == count
        return bool(count) and closed and schema.get("minItems") == count


class _TooMuch(Exception):  # noqa: N818 - it is no error of anyone's
    """A schema takes too many steps to read, or makes no sense."""


class _Document:
    """A whole schema, in which the references of its parts are looked up."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._targets: dict[str, Any] = {}

    def read(self, schema: Any, *, is_root: bool = False) -> _Shape:
        """Decide what kind of field a schema is."""
        try:
            left = [_MAX_STEPS]
            about = self._flatten(schema, left)
            options = self._alternatives(about, left)
        except _TooMuch:
            return _Shape("json", about=_table(schema))
        schema = _table(schema)
        # The title of what a schema refers to is that of a model, and not of the field.
        about.pop("title", None)
        if "title" in schema:
            about["title"] = schema["title"]
        found = [each for each in options if each.get("type") != "null"]
        nullable = len(found) < len(options)
        is_union = len(options) > 1
        if not found:
            return _Shape("choice", about=about, choices=(None,), labels=("null",))
        if len(found) > 1:
            listed = [_listed(each) for each in found]
            if all(listed) and sum(map(len, listed)) <= _MAX_CHOICES:
                return _with_choices(about, [pair for pairs in listed for pair in pairs], nullable=nullable)
            labels = _distinct(_variant_label(each) for each in found)
            return _Shape(
                "variant", about, about, nullable, labels=labels, variants=tuple(found), is_union=True
            )
        return replace(self._read_one(found[0], about, nullable=nullable, is_root=is_root), is_union=is_union)

    def _read_one(
        self, schema: Mapping[str, Any], about: Mapping[str, Any], *, nullable: bool, is_root: bool
    ) -> _Shape:
        title = about.get("title")
        about = {**schema, **about, "title": title}
        if pairs := _listed(schema):
            if len(pairs) <= _MAX_CHOICES:
                return _with_choices(about, pairs, nullable=nullable)
            is_text = all(isinstance(value, str) for value, _ in pairs)
            return _Shape("text" if is_text else "json", schema, about, nullable)
        kind = _kind(schema, is_root=is_root)
        if kind == "list" and not _prefix(schema):
            items = self.read(schema.get("items"))
            if items.kind == "choice" and not items.nullable:
                return _Shape("choices", schema, about, nullable, items.choices, items.labels)
        return _Shape(kind, schema, about, nullable)

    def _flatten(self, schema: Any, left: list[int]) -> dict[str, Any]:
        """Follow the references of a schema and merge its `allOf`."""
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, Mapping):
            raise _TooMuch
        found = dict(schema)
        while True:
            _count(left)
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
            raise _TooMuch
        if reference not in self._targets:
            self._targets[reference] = resolve(reference, self.root)
        target = self._targets[reference]
        if not isinstance(target, Mapping):
            raise _TooMuch
        return target

    def _alternatives(self, schema: dict[str, Any], left: list[int]) -> list[dict[str, Any]]:
        """List the schemas of which a value fits one, none of them with alternatives of its own."""
        found: list[dict[str, Any]] = []
        stack = [schema]
        while stack:
            _count(left)
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
                else:  # says only which properties go together: that is validated, and is no other form
                    stack.append(base)
            elif isinstance(kind, list):
                stack += [{**each, "type": one} for one in reversed(kind) if isinstance(one, str)]
            else:
                found.append(each)
            if len(found) + len(stack) > _MAX_VARIANTS * 2:
                raise _TooMuch
        if len(found) > _MAX_VARIANTS and not all(map(_listed, found)):
            raise _TooMuch
        return found

    def fit(
        self, schema: Any, value: Any, depth: int = _FITTING_DEPTH, left: list[int] | None = None
    ) -> int | None:
        """Say how well a value fits a schema; None if it does not. Looks at the shape only, and not at limits."""
        left = [_MAX_STEPS] if left is None else left
        left[0] -= 1
        if left[0] < 0:
            return 0
        shape = self.read(schema)
        if value is None and shape.nullable:
            return 1
        if shape.kind == "variant":
            scores = [self.fit(each, value, depth, left) for each in shape.variants]
            return max((score for score in scores if score is not None), default=None)
        if not _shows(shape, value):
            return None
        score = {"json": 0, "text": 1, "long_text": 1, "number": 1}.get(shape.kind, 2)
        if not isinstance(value, dict | list) or depth == 0 or shape.kind == "json":
            return score
        if isinstance(value, list):
            scores = [
                self.fit(shape.child(at), one, depth - 1, left)
                for at, one in enumerate(value[:_FITTING_ITEMS])
            ]
            return None if None in scores else score
        declared = _table(shape.schema.get("properties"))
        if any(name not in value for name in _names(shape.schema.get("required"))):
            return None
        if shape.schema.get("additionalProperties") is False and not value.keys() <= declared.keys():
            return None
        for name in list(value)[:_FITTING_ITEMS]:
            inner = self.fit(shape.child(name), value[name], depth - 1, left)
            if inner is None:
                return None
            score += 1 + min(inner, 2) if name in declared else 0
        return score

    def resemble(self, schema: Any, value: Any) -> int | None:
        """Say how much a wrong value looks as if it was meant for a schema; None if it does not at all."""
        shape = self.read(schema)
        if shape.kind == "list":
            return 0 if isinstance(value, list) else None
        if shape.kind != "object" or not isinstance(value, dict):
            return None
        named = [name for name in _table(shape.schema.get("properties")) if name in value]
        for name in named:
            inner = self.read(shape.child(name))
            if (
                inner.kind == "choice"
                and len(inner.choices) == 1
                and not _same(inner.choices[0], value[name])
            ):
                return None
        return len(named) or None


class Form:
    """What a user has put into the form of a schema.

    A path names a field: `("address", "street")`, `("tags", 0)`, `()` for all. A variant and the shape that is
    chosen for it have the same path (see `shape`). Methods raise KeyError for a path that leads nowhere.
    """

    def __init__(self, schema: Any, values: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._document = _Document(schema if isinstance(schema, Mapping) else {})
        self._values: Any = {}
        self._unread: dict[Path, tuple[str, str]] = {}  # the text, and what is wrong with it
        self._chosen: dict[Path, int] = {}
        self.schema_error: str | None = None
        """Why `check` cannot use the schema, once it has tried: then only the server checks."""
        if values is not None:
            self.set_arguments(values)

    # The fields.

    @property
    def root(self) -> Field:
        """The field of the whole: of kind "object" as a rule, else "map", "variant" or "json"."""
        return self.field(())

    def field(self, path: Path) -> Field:
        """Return the field at a path. Its kind is one that can show the value that is there."""
        return self._field(path, self._outer(path), required=self._is_required(path))

    def shape(self, path: Path) -> Field | None:
        """Return the field of the chosen variant, at the same path; the field itself if it is no variant.

        None if nothing is chosen. A value that fits no variant is shown as JSON.
        """
        outer = self._outer(path)
        if outer.kind != "variant":
            return self.field(path)
        inner = self._inner(path, outer)
        return None if inner is None else self._field(path, inner, required=self._is_required(path))

    def fields(self, path: Path = ()) -> list[Field]:
        """Return the fields inside an object, map, list or the chosen variant: first those that the schema names."""
        shape = self._shape(path)
        required = _names(shape.schema.get("required"))
        return [
            self._field((*path, step), self._document.read(shape.child(step)), required=step in required)
            for step in self._steps(path, shape)
        ]

    def chosen(self, path: Path) -> int | None:
        """Return the number of the variant that is chosen, or that the value fits; None if there is none."""
        return self._choice(path, self._outer(path))

    def _choice(self, path: Path, outer: _Shape) -> int | None:
        value = self.value(path)
        if path in self._chosen:
            return self._chosen[path]
        if value is MISSING or (value is None and outer.nullable):
            return None
        for judge in (self._document.fit, self._document.resemble):
            scores = [judge(each, value) for each in outer.variants]
            best = max((score for score in scores if score is not None), default=None)
            if best is not None:
                return scores.index(best)
        return None

    def _outer(self, path: Path) -> _Shape:
        if not path:
            return _as_shown(self._document.read(self._schema, is_root=True), self._values)
        if len(path) > _MAX_DEPTH:
            return _Shape("json")
        parent, step = self._shape(path[:-1]), path[-1]
        if parent.kind not in ("object", "map", "list") or isinstance(step, int) != (parent.kind == "list"):
            raise KeyError(path)
        shape = _Shape("json") if len(path) == _MAX_DEPTH else self._document.read(parent.child(step))
        return _as_shown(shape, self.value(path))

    def _shape(self, path: Path) -> _Shape:
        """The shape at a path, of a variant that of its choice."""
        outer = self._outer(path)
        if outer.kind != "variant":
            return outer
        return self._inner(path, outer) or _Shape("json")

    def _inner(self, path: Path, outer: _Shape) -> _Shape | None:
        chosen, value = self._choice(path, outer), self.value(path)
        if chosen is None:
            return None if value is MISSING or (value is None and outer.nullable) else _Shape("json")
        shape = self._document.read(outer.variants[chosen], is_root=not path)
        return _as_shown(replace(shape, is_union=True), value)

    def _steps(self, path: Path, shape: _Shape) -> list[str | int]:
        value = self.value(path)
        if shape.kind == "list":
            return list(range(len(value))) if isinstance(value, list) else []
        given = list(value) if isinstance(value, dict) else []
        if shape.kind == "object":
            return list(dict.fromkeys([*_table(shape.schema.get("properties")), *given]))
        return given if shape.kind == "map" else []

    def _is_required(self, path: Path) -> bool:
        return bool(path) and path[-1] in _names(self._shape(path[:-1]).schema.get("required"))

    def _field(self, path: Path, shape: _Shape, *, required: bool) -> Field:
        shape = _as_shown(shape, self.value(path))
        about = shape.about
        own = f"#{path[-1] + 1}" if path and isinstance(path[-1], int) else str(path[-1]) if path else ""
        examples = about.get("examples")
        return Field(
            path,
            "json" if len(path) >= _MAX_DEPTH else shape.kind,
            _line(about.get("title")) or _line(own) or ("(no name)" if path else ""),
            clip(plain(about["description"]), _MAX_DESCRIPTION)
            if isinstance(about.get("description"), str)
            else "",
            required,
            shape.nullable,
            about.get("default", MISSING),
            tuple(examples[:_MAX_EXAMPLES]) if isinstance(examples, list) else (),
            _limits(shape),
            shape.choices,
            shape.labels,
            shape.is_open if shape.kind in ("object", "map") else False,
            shape.is_fixed if shape.kind == "list" else False,
            _line(shape.schema.get("contentMediaType")) if shape.kind == "file" else "",
        )

    # What is in them.

    def value(self, path: Path) -> Any:
        """Return the value at a path; `MISSING` if none is given there."""
        here: Any = self._values
        for step in path:
            if isinstance(step, int):
                here = here[step] if isinstance(here, list) and 0 <= step < len(here) else MISSING
            else:
                here = here.get(step, MISSING) if isinstance(here, dict) else MISSING
        return MISSING if path in self._unread else here

    def is_given(self, path: Path) -> bool:
        """True if the arguments have a value there, which may be null or an empty text."""
        return self.value(path) is not MISSING

    def text(self, path: Path) -> str:
        """Return what stands in the input: what was typed if it cannot be read, else the value as text."""
        if path in self._unread:
            return self._unread[path][0]
        value, shape = self.value(path), self._shape(path)
        if value is MISSING or (value is None and shape.nullable and shape.kind != "json"):
            return ""
        if shape.kind == "choice":
            return next(
                label
                for choice, label in zip(shape.choices, shape.labels, strict=True)
                if _same(choice, value)
            )
        if isinstance(value, str) and shape.kind != "json":
            return value
        return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)

    def set_text(self, path: Path, text: str) -> None:
        """Put in what the user typed. Text that cannot be read is kept, and is an error of the field.

        An empty text is a value where text is expected; elsewhere it means that no value is given.
        """
        shape = self._shape(path)
        if not text.strip() and shape.kind not in ("text", "long_text"):
            self.clear(path)
            return
        try:
            value = _read_text(shape, text)
        except ValueError as error:
            self._set_unread(path, text, str(error))
        else:
            self._put(path, value)

    def set_json(self, path: Path, text: str) -> None:
        """Put in a value as JSON, whatever the kind of the field."""
        try:
            value = _read_json(text)
        except ValueError as error:
            self._set_unread(path, text, str(error))
        else:
            self.set_value(path, value)

    def set_value(self, path: Path, value: Any) -> None:
        """Put in a JSON value; None is null. `InvalidArguments` if it is not JSON."""
        self._outer(path)
        value = loads(to_json({"": value}))[""]
        chosen = self._chosen.pop(path, None)
        self._put(path, value)
        if chosen is not None:
            outer = self._outer(path)
            if chosen < len(outer.variants) and self._document.fit(outer.variants[chosen], value) is not None:
                self._chosen[path] = chosen

    def set_file(self, path: Path, content: bytes) -> None:
        """Put in the bytes of a file, as base64."""
        url = str(self._shape(path).schema.get("contentEncoding")).lower() == "base64url"
        self._put(path, (base64.urlsafe_b64encode if url else base64.b64encode)(content).decode())

    def clear(self, path: Path) -> None:
        """Take the value away: the field is not given. An item of a list stays, and has to be filled in."""
        if not path:
            self._forget(())
            self._values = {}
        elif isinstance(path[-1], int):
            self._set_unread(path, "", REQUIRED)
        else:
            self._outer(path)
            self._forget(path)
            parent = self.value(path[:-1])
            if isinstance(parent, dict):
                parent.pop(path[-1], None)

    def give(self, path: Path) -> None:
        """Give a field its default, or an empty value. One that has neither waits to be filled in."""
        self._give(path, self._shape(path))

    def choose(self, path: Path, variant: int) -> None:
        """Choose a variant by its number, and begin it anew unless the value that is there fits it."""
        outer = self._outer(path)
        if outer.kind != "variant" or not 0 <= variant < len(outer.variants):
            raise KeyError(path)
        value = self.value(path)
        schema = outer.variants[variant]
        if value is MISSING or (
            self._document.fit(schema, value) is None and self._document.resemble(schema, value) is None
        ):
            self.clear(path)
            self._chosen[path] = variant
            self._give(path, replace(self._document.read(outer.variants[variant]), is_union=True))
        self._chosen[path] = variant

    def add_item(self, path: Path) -> Path:
        """Append an item to a list. Returns its path."""
        if self._shape(path).kind != "list":
            raise KeyError(path)
        items = self.value(path)
        if not isinstance(items, list):
            self._put(path, items := [])
        items.append(None)
        added = (*path, len(items) - 1)
        self._set_unread(added, "", REQUIRED)
        self.give(added)
        return added

    def add_entry(self, path: Path, name: str) -> Path:
        """Add an entry to a map, or an object that takes others than its properties. Returns its path."""
        if self._shape(path).kind not in ("map", "object"):
            raise KeyError(path)
        added = (*path, name)
        if self.is_given(added) or added in self._unread:
            raise ValueError(f"There is already an entry called {show_value(name)}: choose another name")
        shape = self._outer(added)
        self._give(added, shape)
        if not self.is_given(added):
            self._set_unread(added, "", REQUIRED)
        return added

    def rename_entry(self, path: Path, name: str) -> Path:
        """Rename an entry of a map. It keeps its place. Returns its new path."""
        parent, old = self.value(path[:-1]), path[-1]
        if not isinstance(parent, dict) or old not in parent:
            raise KeyError(path)
        if name != old and name in parent:
            raise ValueError(f"There is already an entry called {show_value(name)}: choose another name")
        entries = [(name if key == old else key, value) for key, value in parent.items()]
        parent.clear()
        parent.update(entries)
        self._move_notes(path[:-1], lambda step: name if step == old else step)
        return (*path[:-1], name)

    def remove(self, path: Path) -> None:
        """Remove an item of a list or an entry of a map, with all that is in it."""
        if not path or not isinstance(at := path[-1], int):
            self.clear(path)
            return
        items = self._items(path)
        self._forget(path)
        items.pop(at)
        self._move_notes(path[:-1], lambda step: step - 1 if isinstance(step, int) and step > at else step)

    def move_item(self, path: Path, to: int) -> Path:
        """Move an item to another place in its list. Returns its new path."""
        items, at = self._items(path), path[-1]
        order = list(range(len(items)))
        to = max(0, min(to, len(items) - 1))
        order.insert(to, order.pop(int(at)))
        items[:] = [items[each] for each in order]
        self._move_notes(path[:-1], lambda step: order.index(step) if isinstance(step, int) else step)
        return (*path[:-1], to)

    def _items(self, path: Path) -> list[Any]:
        """The list in which an item is."""
        items = self.value(path[:-1])
        if not path or not isinstance(items, list) or not isinstance(path[-1], int) or path[-1] >= len(items):
            raise KeyError(path)
        return items

    def _give(self, path: Path, shape: _Shape) -> None:
        value = self._initial(shape)
        if value is not MISSING:
            self._put(path, value)
            if shape.kind == "list" and shape.is_fixed and not value:
                for _ in _prefix(shape.schema):
                    self.add_item(path)
        elif path and isinstance(path[-1], int):
            self._set_unread(path, "", REQUIRED)

    def _initial(self, shape: _Shape) -> Any:
        with suppress(KeyError, TypeError, ValueError):  # not given, or not JSON: an empty value will do
            return loads(dumps(shape.about["default"]))
        if shape.kind == "object":
            return dict(self._constants(shape))
        if shape.kind == "choice" and len(shape.choices) == 1:
            return shape.choices[0]
        empty: dict[str, Any] = {
            "text": "",
            "long_text": "",
            "boolean": False,
            "list": [],
            "map": {},
            "choices": [],
        }
        return empty.get(shape.kind, MISSING)

    def _constants(self, shape: _Shape) -> Iterator[tuple[str, Any]]:
        """Yield the properties that have one possible value: they tell variants apart, and nobody has to choose."""
        required = _names(shape.schema.get("required"))
        for name, schema in _table(shape.schema.get("properties")).items():
            if isinstance(schema, Mapping) and ("const" in schema or "enum" in schema or "$ref" in schema):
                inner = self._document.read(schema)
                if (
                    inner.kind == "choice"
                    and len(inner.choices) == 1
                    and (name in required or shape.is_union)
                ):
                    yield name, inner.choices[0]

    def _put(self, path: Path, value: Any) -> None:
        """Set a value, with the objects around it."""
        chosen = self._chosen.get(path)
        if not path:
            self._forget(())
            self._values = value
        else:
            parent = self.value(path[:-1])
            step = path[-1]
            if isinstance(step, int):
                if not isinstance(parent, list) or not 0 <= step < len(parent):
                    raise KeyError(path)
            elif not isinstance(parent, dict):
                self._put(path[:-1], parent := {})
            self._forget(path)
            parent[step] = value
        if chosen is not None:
            self._chosen[path] = chosen

    def _set_unread(self, path: Path, text: str, message: str) -> None:
        chosen = self._chosen.get(path)
        if not path:
            self.clear(())
        elif isinstance(path[-1], int):
            self._put(path, None)  # keeps its place
        else:
            if not isinstance(self.value(path[:-1]), dict):
                self._put(path[:-1], {})
            self.clear(path)
            self.value(path[:-1])[path[-1]] = None
        self._unread[path] = (text, message)
        if chosen is not None:
            self._chosen[path] = chosen

    def _forget(self, path: Path) -> None:
        """Drop the notes about a field and all inside it."""
        notes: tuple[dict[Path, Any], ...] = (self._unread, self._chosen)
        for each in notes:
            for found in [known for known in each if known[: len(path)] == path]:
                del each[found]

    def _move_notes(self, parent: Path, rename: Any) -> None:
        """Keep the notes with the items of a list or the entries of a map when these move."""
        at = len(parent)
        notes: tuple[dict[Path, Any], ...] = (self._unread, self._chosen)
        for each in notes:
            moved = {
                (*parent, rename(known[at]), *known[at + 1 :])
                if len(known) > at and known[:at] == parent
                else known: note
                for known, note in each.items()
            }
            each.clear()
            each.update(moved)

    # The arguments.

    def arguments(self) -> dict[str, Any]:
        """Return what was given, as a copy. `InvalidArguments` if something typed cannot be read.

        That they fit the schema is not checked here: see `check`.
        """
        if self._unread:
            raise InvalidArguments(
                Violation(format_path(path), message) for path, (_, message) in self._unread.items()
            )
        if not isinstance(self._values, dict):
            raise InvalidArguments(
                [Violation("", "The arguments must be an object, with a name for each value")]
            )
        values: dict[str, Any] = loads(to_json(self._values))
        return values

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Replace all that was put in. `InvalidArguments` if it is not JSON, and then nothing changes."""
        values = loads(to_json(dict(arguments)))
        self._forget(())
        self._values = values

    # Errors at their fields.

    def errors(self) -> dict[Path, list[str]]:
        """Return what was typed and cannot be read, by field."""
        return {path: [message] for path, (_, message) in self._unread.items()}

    def check(self) -> dict[Path, list[str]]:
        """Check all that was put in against the schema. Returns the errors by field: none, and it may be sent."""
        found = self.errors()
        parameters = self._parameters
        if parameters is None:
            return found
        if not isinstance(self._values, dict):
            found.setdefault((), []).append("The arguments must be an object, with a name for each value")
            return found
        for path, messages in self._violations(parameters, self._values).items():
            if not any(path and unread[: len(path)] == path for unread in self._unread):
                found.setdefault(path, []).extend(messages)
        return found

    @cached_property
    def _parameters(self) -> RawParameters | None:
        try:
            return compile_schema(self._schema)
        except (DefinitionError, RecursionError) as error:
            self.schema_error = clip(plain_line(str(error)), _MAX_TITLE)
            return None

    def _violations(self, parameters: RawParameters, values: dict[str, Any]) -> dict[Path, list[str]]:
        try:
            parameters.validate(values)
        except InvalidArguments as error:
            found: dict[Path, list[str]] = {}
            for violation in error.violations:
                path, rest = self._descend((), _as_steps(violation.path))
                if not rest:
                    for inner, messages in self._explain(path, [violation.message]).items():
                        found.setdefault(inner, []).extend(messages)
                else:
                    self._add(found, path, rest, violation)
            return found
        return {}

    def _explain(self, path: Path, messages: list[str]) -> dict[Path, list[str]]:
        """Say what is wrong in the variant that is chosen, instead of why all variants do not fit."""
        shape, value = self._shape(path), self.value(path)
        if not shape.is_union or shape.kind not in ("object", "map", "list") or not value:
            return {path: messages}
        root = self._document.root
        tables = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
        schema = {**tables, "type": "object", "properties": {"value": shape.schema}}
        try:
            compile_schema(schema).validate({"value": value})
        except (DefinitionError, RecursionError):  # refers to other parts of the document
            return {path: messages}
        except InvalidArguments as error:
            found: dict[Path, list[str]] = {}
            for violation in error.violations:
                inner, rest = self._descend(path, violation.path.removeprefix("value"))
                if not rest and inner != path:
                    for at, told in self._explain(inner, [violation.message]).items():
                        found.setdefault(at, []).extend(told)
                else:
                    self._add(found, inner, rest, violation)
            return found
        return {path: messages}

    def locate(self, violations: Iterable[Violation] | str) -> dict[Path, list[str]]:
        """Assign errors to fields: those of `InvalidArguments.violations`, or the text of a server's error result.

        An error inside a field that has no fields goes to that field; one that fits nowhere goes to `()`.
        """
        found: dict[Path, list[str]] = {}
        for violation in self._parse(violations) if isinstance(violations, str) else violations:
            path, rest = self._descend((), _as_steps(violation.path))
            self._add(found, path, rest, violation)
        return found

    def _add(self, found: dict[Path, list[str]], path: Path, rest: str, violation: Violation) -> None:
        """Add an error to those that are found; `rest` is the part of its path that is no field."""
        where = (violation.path if not path else rest.removeprefix(".")) if rest else ""
        found.setdefault(path, []).append(str(Violation(where, violation.message)))

    def _parse(self, text: str) -> list[Violation]:
        """Read the violations in a text as `InvalidArguments` writes it. Other texts are one error of the whole."""
        _, begins, listed = text[:_MAX_ERROR_TEXT].partition(_VALIDATION_FAILED)
        if not begins:
            return [Violation("", text)]
        found: list[Violation] = []
        for part in listed.split("; "):
            path, colon, message = part.partition(": ")
            if colon and not self._descend((), _as_steps(path))[1]:
                found.append(Violation(path, message))
            elif not found or part.startswith("... and "):
                found.append(Violation("", part))
            else:  # the message before had a semicolon
                found[-1] = Violation(found[-1].path, f"{found[-1].message}; {part}")
        return found

    def _descend(self, start: Path, steps: str) -> tuple[Path, str]:
        """Follow steps such as `.items[2].price` from a field. Returns the last field on the way, and what is left.

        A name may contain dots and brackets itself, so that all readings are tried, and the longest one counts.
        """
        best = (start, steps)
        stack = [best]
        for _ in range(_MAX_MATCHES):
            if not stack:
                break
            here, rest = stack.pop()
            if len(rest) < len(best[1]):
                best = (here, rest)
            if not rest:
                break
            matches = []
            for step in self._steps(here, self._shape(here)):
                shown = f"[{step}]" if isinstance(step, int) else f".{clip(step)}"
                if rest.startswith(shown) and rest[len(shown) : len(shown) + 1] in ("", ".", "["):
                    matches.append((shown, step))
            for shown, step in sorted(matches):
                stack.append(((*here, step), rest[len(shown) :]))
        return best


def _as_steps(path: str) -> str:
    return path if not path or path.startswith("[") else f".{path}"


def _count(left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise _TooMuch


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Combine two schemas that a value must both fit. Where one form cannot show both, `over` is shown."""
    merged = {**base, **over}
    if "properties" in base and "properties" in over:
        first, second = _table(base["properties"]), _table(over["properties"])
        merged["properties"] = {**first, **second}
        for name in first.keys() & second.keys():
            if isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
                merged["properties"][name] = _merge(first[name], second[name])
    if "required" in base and "required" in over:
        merged["required"] = sorted(_names(base["required"]) | _names(over["required"]))
    if isinstance(base.get("allOf"), list) and isinstance(over.get("allOf"), list):
        merged["allOf"] = [*base["allOf"], *over["allOf"]]
    return merged


def _kind(schema: Mapping[str, Any], *, is_root: bool) -> Kind:
    """The kind of a schema that has neither choices nor alternatives."""
    told = schema.get("type", _guess_type(schema, is_root=is_root))
    if told == "string":
        return _text_kind(schema)
    if told == "array":
        many = len(_prefix(schema)) > _MAX_FIELDS
        return (
            "list" if not many and (_prefix(schema) or isinstance(schema.get("items"), Mapping)) else "json"
        )
    if told == "object":
        properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
        if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
            return "json"
        if properties:
            return "object"
        if (isinstance(additional, Mapping) and additional) or _table(schema.get("patternProperties")):
            return "map"
        return "object" if is_root or additional is False else "json"
    return _KINDS.get(told, "json") if isinstance(told, str) else "json"


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
    if str(schema.get("contentEncoding")).lower() in ("base64", "base64url") or form in ("binary", "byte"):
        return "file"
    if isinstance(media, str) and "contentEncoding" not in schema:
        # Without an encoding the text is the document itself, as far as text can be one.
        is_text = media.startswith("text/") or media.endswith(("json", "xml", "yaml", "javascript"))
        return "long_text" if is_text else "file"
    if form == "date":
        return "date"
    if form == "date-time":
        return "date-time"
    longest = schema.get("maxLength")
    return "long_text" if isinstance(longest, int) and longest > _LONG else "text"


def _as_shown(shape: _Shape, value: Any) -> _Shape:
    """The shape, or one that can show a value that it cannot."""
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


def _shows(shape: _Shape, value: Any) -> bool:
    """True if a field of this kind can show the value, so that reading what it shows gives the same again."""
    kind = shape.kind
    if kind in ("variant", "json"):
        return True
    if kind == "choice":
        return any(_same(value, each) for each in shape.choices)
    if kind == "choices":
        if not isinstance(value, list) or len(value) > len(shape.choices):
            return False
        places = [
            next((at for at, each in enumerate(shape.choices) if _same(each, one)), None) for one in value
        ]
        return None not in places and len(set(places)) == len(places)
    if kind in ("file", "date", "date-time"):
        with suppress(ValueError):
            return isinstance(value, str) and bool(value) and _read_text(shape, value) == value
        return False
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, _TYPES[kind]):
        return False
    return not isinstance(value, dict | list) or len(value) <= _MAX_FIELDS


def _read_text(shape: _Shape, text: str) -> Any:
    """Read what was typed into a field. ValueError says what would be right."""
    kind = shape.kind
    if kind in ("text", "long_text"):
        return text
    if kind == "choice":
        for choice, label in zip(shape.choices, shape.labels, strict=True):
            if text == label:
                return choice
        raise ValueError(f"{show_value(text)} is none of the choices")
    if kind in ("integer", "number", "boolean"):
        return dialogs.Field("value", {"type": kind}, {}).read(text.strip())
    if kind == "date":
        with suppress(ValueError):
            if date.fromisoformat(text).isoformat() == text:
                return text
        raise ValueError(f"{show_value(text)} is not a date such as 2026-01-31")
    if kind == "date-time":
        with suppress(ValueError):
            datetime.fromisoformat(text)
            return text
        raise ValueError(f"{show_value(text)} is not a date and time such as 2026-01-31T12:30:00Z")
    if kind == "file":
        padded = text + "=" * (-len(text) % 4)
        try:
            base64.b64decode(padded, altchars=b"-_" if "-" in text or "_" in text else None, validate=True)
        except ValueError:  # binascii.Error is one, and so is what it says of other characters than ASCII
            raise ValueError("This is not base64: choose a file, or paste its contents in base64") from None
        return text
    return _read_json(text)


def _read_json(text: str) -> Any:
    try:
        value = loads(text.encode())
        dumps(value)  # not too deep to be sent
    except (ValueError, RecursionError) as error:
        raise ValueError(f"This is not JSON: {clip(str(error), _MAX_TITLE)}") from error
    return value


def _listed(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values that a schema lists as allowed, with their titles."""
    if "const" in schema:
        return [(schema["const"], _line(schema.get("title")))]
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return []
    names = schema.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(listed) else [""] * len(listed)
    return [(value, _line(title)) for value, title in zip(listed, titles, strict=True)]


def _with_choices(about: Mapping[str, Any], pairs: list[tuple[Any, str]], *, nullable: bool) -> _Shape:
    """The shape of a choice. A null beside other values is what the form offers as null."""
    single = len(pairs) == 1
    kept = [pair for pair in pairs if pair[0] is not None] or pairs
    seen: dict[bytes | str, tuple[Any, str]] = {}
    for value, title in kept:
        # The title of a single constant is that of the field.
        seen.setdefault(_identity(value), (value, "" if single else title))
    labels = _distinct(title or _show_choice(value) for value, title in seen.values())
    choices = tuple(value for value, _ in seen.values())
    nullable = nullable or len(kept) < len(pairs)
    return _Shape("choice", about, about, nullable, choices, labels)


def _show_choice(value: Any) -> str:
    shown = isinstance(value, str) and value.strip()
    return _line(value) if shown else clip(_as_json(value), _MAX_TITLE)


def _distinct(labels: Iterable[str]) -> tuple[str, ...]:
    """Number the labels that are alike."""
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
    return _line(schema.get("title")) or ("Choice" if _listed(schema) else word)


def _limits(shape: _Shape) -> tuple[str, ...]:
    schema = shape.schema
    hints = [
        text.format(_line(schema[key]) if isinstance(schema[key], str) else show_value(schema[key]))
        for key, kinds, text in _HINTS
        if key in schema and shape.kind in kinds and not isinstance(schema[key], bool)
    ]
    if schema.get("uniqueItems") is True and shape.kind == "list":
        hints.append("no two alike")
    if shape.kind in ("text", "json") and len(pairs := _listed(schema)) > _MAX_CHOICES:
        hints.append(f"one of {len(pairs)} values")
    return tuple(hints)


def _prefix(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas of the first items of a list, one for each."""
    for keyword in ("prefixItems", "items"):
        if isinstance(found := schema.get(keyword), list):
            return found
    return []


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _line(value: Any) -> str:
    return clip(plain_line(value[: _MAX_TITLE + 1]), _MAX_TITLE) if isinstance(value, str) else ""


def _same(one: Any, other: Any) -> bool:
    """True if two values are the same JSON: True is not 1, as it is in Python."""
    return one == other and _identity(one) == _identity(other)


def _identity(value: Any) -> str:
    return (
        repr(value) if isinstance(value, bool | int | float) else f"{type(value).__name__}{_as_json(value)}"
    )


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (ValueError, RecursionError, TypeError):
        return object.__repr__(value)
