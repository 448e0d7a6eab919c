"""A form for a JSON schema: the fields that a page draws, the values that the user enters, and the arguments.

The state is the arguments themselves, plus two notes: text that could not be parsed, and the variant that the user
has chosen. So arguments from elsewhere are kept unchanged, even where they do not match the schema. Nested fields
are computed only on request. Also decides which field a validation error belongs to. Must not know how a page is
drawn or which tool is called with the arguments.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.words import plain, plain_line
from toolwire.studio.shapes import (
    MAX_TITLE,
    MISSING,
    Document,
    Kind,
    Shape,
    as_shown,
    as_table,
    clean_line,
    describe_limits,
    is_same,
    prefix_items,
    read_text,
    text_names,
)
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

__all__ = ["MISSING", "Field", "Form", "Kind", "Path"]

Path: TypeAlias = tuple[str | int, ...]
_MAX_DEPTH: Final = 32  # length of a path
_MAX_MATCHES: Final = 300  # steps of the search for the field of one error
_MAX_DESCRIPTION: Final = 4_000
_MAX_EXAMPLES: Final = 10
_MAX_ERROR_TEXT: Final = 20_000
_VALIDATION_FAILED: Final = "Validation failed: "
_NOT_AN_OBJECT: Final = "The arguments must be an object, with a name for each value"


@dataclass(frozen=True)
class Field:
    """One field of a form. All texts except `name` and the values are safe to show."""

    path: Path
    kind: Kind
    title: str
    description: str = ""
    required: bool = False
    nullable: bool = False
    default: Any = MISSING
    examples: tuple[Any, ...] = ()
    limits: tuple[str, ...] = ()
    """The constraints on the value, in words."""
    choices: tuple[Any, ...] = ()
    """The values of a choice, of any type."""
    labels: tuple[str, ...] = ()
    """The texts of the choices, or of the variants. All are different."""
    is_open: bool = False
    """True if entries with any name may be added to the object or map."""
    is_fixed: bool = False
    """True if the list has a fixed number of items, so that none can be added or removed."""

    @property
    def name(self) -> str:
        """The last step of the path, unchanged from the schema. It may contain any characters."""
        return str(self.path[-1]) if self.path else ""


class Form:
    """The values that a user has entered into the form of a schema.

    A path identifies a field: `("address", "street")`, `("tags", 0)`, or `()` for the whole form. A field with
    variants and its chosen variant have the same path (see `shape`). Methods raise KeyError for an unknown path.
    """

    def __init__(self, schema: Any, values: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._document = Document(schema if isinstance(schema, Mapping) else {})
        self._values: Any = {}
        self._unread: dict[Path, tuple[str, str]] = {}  # text that cannot be parsed, and its error
        self._chosen: dict[Path, int] = {}
        if values is not None:
            self.set_arguments(values)

    # The fields.

    @property
    def root(self) -> Field:
        """The field of the whole form. Its kind is usually "object", otherwise "map", "variant" or "json"."""
        return self.field(())

    def field(self, path: Path) -> Field:
        """Return the field at a path. Its kind is one that can show the current value."""
        return self._field(path, self._outer(path), required=self._is_required(path))

    def shape(self, path: Path) -> Field | None:
        """Return the field of the chosen variant, at the same path; the field itself if it has no variants.

        Returns None if no variant is chosen. A value that fits no variant is shown as JSON.
        """
        outer = self._outer(path)
        if outer.kind != "variant":
            return self.field(path)
        inner = self._inner(path, outer)
        return None if inner is None else self._field(path, inner, required=self._is_required(path))

    def fields(self, path: Path = ()) -> list[Field]:
        """Return the fields inside an object, map, list or chosen variant. Properties of the schema come first."""
        shape = self._shape(path)
        required = text_names(shape.schema.get("required"))
        return [
            self._field((*path, step), self._document.read(shape.child(step)), required=step in required)
            for step in self._steps(path, shape)
        ]

    def chosen(self, path: Path) -> int | None:
        """Return the index of the chosen variant, or else of the one that the value fits; None if there is none."""
        return self._choice(path, self._outer(path))

    def _choice(self, path: Path, outer: Shape) -> int | None:
        value = self.value(path)
        if path in self._chosen:
            return self._chosen[path]
        if value is MISSING or (value is None and outer.nullable):
            return None
        for score_variant in (self._document.fit, self._document.resemble):
            scores = [score_variant(each, value) for each in outer.variants]
            best = max((score for score in scores if score is not None), default=None)
            if best is not None:
                return scores.index(best)
        return None

    def _outer(self, path: Path) -> Shape:
        if not path:
            return as_shown(self._document.read(self._schema, is_root=True), self._values)
        if len(path) > _MAX_DEPTH:
            return Shape("json")
        parent, step = self._shape(path[:-1]), path[-1]
        if parent.kind not in ("object", "map", "list") or isinstance(step, int) != (parent.kind == "list"):
            raise KeyError(path)
        shape = Shape("json") if len(path) == _MAX_DEPTH else self._document.read(parent.child(step))
        return as_shown(shape, self.value(path))

    def _shape(self, path: Path) -> Shape:
        """Return the shape at a path; for a field with variants, that of the chosen variant."""
        outer = self._outer(path)
        if outer.kind != "variant":
            return outer
        return self._inner(path, outer) or Shape("json")

    def _inner(self, path: Path, outer: Shape) -> Shape | None:
        chosen, value = self._choice(path, outer), self.value(path)
        if chosen is None:
            return None if value is MISSING or (value is None and outer.nullable) else Shape("json")
        shape = self._document.read(outer.variants[chosen], is_root=not path)
        return as_shown(replace(shape, is_union=True), value)

    def _steps(self, path: Path, shape: Shape) -> list[str | int]:
        value = self.value(path)
        if shape.kind == "list":
            return list(range(len(value))) if isinstance(value, list) else []
        given = list(value) if isinstance(value, dict) else []
        if shape.kind == "object":
            return list(dict.fromkeys([*as_table(shape.schema.get("properties")), *given]))
        return given if shape.kind == "map" else []

    def _is_required(self, path: Path) -> bool:
        return bool(path) and path[-1] in text_names(self._shape(path[:-1]).schema.get("required"))

    def _field(self, path: Path, shape: Shape, *, required: bool) -> Field:
        shape = as_shown(shape, self.value(path))
        about = shape.about
        own = f"#{path[-1] + 1}" if path and isinstance(path[-1], int) else str(path[-1]) if path else ""
        examples = about.get("examples")
        return Field(
            path,
            "json" if len(path) >= _MAX_DEPTH else shape.kind,
            clean_line(about.get("title")) or clean_line(own) or ("(no name)" if path else ""),
            clip(plain(about["description"]), _MAX_DESCRIPTION)
            if isinstance(about.get("description"), str)
            else "",
            required,
            shape.nullable,
            about.get("default", MISSING),
            tuple(examples[:_MAX_EXAMPLES]) if isinstance(examples, list) else (),
            describe_limits(shape),
            shape.choices,
            shape.labels,
            shape.is_open if shape.kind in ("object", "map") else False,
            shape.is_fixed if shape.kind == "list" else False,
        )

    # The values.

    def value(self, path: Path) -> Any:
        """Return the value at a path; `MISSING` if there is none."""
        here: Any = self._values
        for step in path:
            if isinstance(step, int):
                here = here[step] if isinstance(here, list) and 0 <= step < len(here) else MISSING
            else:
                here = here.get(step, MISSING) if isinstance(here, dict) else MISSING
        return MISSING if path in self._unread else here

    def is_given(self, path: Path) -> bool:
        """True if there is a value at the path, which may be null or an empty text."""
        return self.value(path) is not MISSING

    def text(self, path: Path) -> str:
        """Return the text to show in the input: the typed text if it cannot be parsed, otherwise the value."""
        if path in self._unread:
            return self._unread[path][0]
        value, shape = self.value(path), self._shape(path)
        if value is MISSING or (value is None and shape.nullable and shape.kind != "json"):
            return ""
        if shape.kind == "choice":
            return shape.labels[self.picked(path)[0]]
        if isinstance(value, str) and shape.kind != "json":
            return value
        return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)

    def picked(self, path: Path) -> list[int]:
        """Return the indexes of the selected choices; at most one unless the field allows several."""
        shape, value = self._shape(path), self.value(path)
        values = value if shape.kind == "choices" and isinstance(value, list) else [value]
        return [at for at, each in enumerate(shape.choices) if any(is_same(each, one) for one in values)]

    def set_text(self, path: Path, text: str) -> None:
        """Set the text that the user typed. Text that cannot be parsed is kept, as an error of the field.

        An empty text is a value if the field expects text; in other fields it removes the value.
        """
        shape = self._shape(path)
        if not text.strip() and shape.kind not in ("text", "long_text"):
            self.clear(path)
            return
        try:
            value = read_text(shape, text)
        except ValueError as error:
            self._set_unread(path, text, str(error))
        else:
            self._put(path, value)

    def set_value(self, path: Path, value: Any) -> None:
        """Set a JSON value; None is null. Raises `InvalidArguments` if it is not JSON."""
        self._outer(path)
        value = loads(to_json({"": value}))[""]
        chosen = self._chosen.pop(path, None)
        self._put(path, value)
        if chosen is not None:
            outer = self._outer(path)
            if chosen < len(outer.variants) and self._document.fit(outer.variants[chosen], value) is not None:
                self._chosen[path] = chosen

    def set_file(self, path: Path, content: bytes) -> None:
        """Set the value to the bytes of a file, encoded as base64."""
        schema = self._shape(path).schema
        url = "base64url" in (str(schema.get("contentEncoding")).lower(), schema.get("format"))
        self._put(path, (base64.urlsafe_b64encode if url else base64.b64encode)(content).decode())

    def clear(self, path: Path) -> None:
        """Remove the value of a field. An item of a list stays, and has to be filled in."""
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
        """Set a field to its default, or to an empty value. If it has neither, it waits to be filled in."""
        self._give(path, self._shape(path))

    def choose(self, path: Path, variant: int) -> None:
        """Choose a variant by its index. Resets the value unless it fits the variant."""
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
            self._give(path, replace(self._document.read(schema), is_union=True))
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
        """Add an entry to a map, or to an object that allows additional properties. Returns its path."""
        if self._shape(path).kind not in ("map", "object"):
            raise KeyError(path)
        added = (*path, name)
        if self.is_given(added) or added in self._unread:
            raise ValueError(f"There is already an entry named {show_value(name)}; choose another name")
        shape = self._outer(added)
        self._give(added, shape)
        if not self.is_given(added):
            self._set_unread(added, "", REQUIRED)
        return added

    def remove(self, path: Path) -> None:
        """Remove an item of a list or an entry of a map."""
        if not path or not isinstance(at := path[-1], int):
            self.clear(path)
            return
        items = self._items(path)
        self._forget(path)
        items.pop(at)
        self._move_notes(path[:-1], lambda step: step - 1 if isinstance(step, int) and step > at else step)

    def move_item(self, path: Path, to: int) -> Path:
        """Move an item to another index in its list. Returns its new path."""
        items, at = self._items(path), path[-1]
        order = list(range(len(items)))
        to = max(0, min(to, len(items) - 1))
        order.insert(to, order.pop(int(at)))
        items[:] = [items[each] for each in order]
        self._move_notes(path[:-1], lambda step: order.index(step) if isinstance(step, int) else step)
        return (*path[:-1], to)

    def _items(self, path: Path) -> list[Any]:
        """Return the list that contains an item."""
        items = self.value(path[:-1])
        if not path or not isinstance(items, list) or not isinstance(path[-1], int) or path[-1] >= len(items):
            raise KeyError(path)
        return items

    def _give(self, path: Path, shape: Shape) -> None:
        value = self._initial(shape)
        if value is not MISSING:
            self._put(path, value)
            if shape.kind == "list" and shape.is_fixed and not value:
                for _ in prefix_items(shape.schema):
                    self.add_item(path)
        elif path and isinstance(path[-1], int):
            self._set_unread(path, "", REQUIRED)

    def _initial(self, shape: Shape) -> Any:
        with suppress(KeyError, TypeError, ValueError):  # without a default, or with one that is not JSON
            return loads(dumps(shape.about["default"]))
        if shape.kind == "object":
            return dict(self._constants(shape))
        if shape.is_constant:
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

    def _constants(self, shape: Shape) -> Iterator[tuple[str, Any]]:
        """Yield the properties with only one possible value, such as the tag of a variant. They are filled in."""
        required = text_names(shape.schema.get("required"))
        for name, schema in as_table(shape.schema.get("properties")).items():
            if isinstance(schema, Mapping) and ("const" in schema or "enum" in schema or "$ref" in schema):
                inner = self._document.read(schema)
                if inner.is_constant and (name in required or shape.is_union):
                    yield name, inner.choices[0]

    def _put(self, path: Path, value: Any) -> None:
        """Set a value, and create the objects around it."""
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
            self._put(path, None)  # a placeholder, so that the other items keep their indexes
        else:
            if not isinstance(self.value(path[:-1]), dict):
                self._put(path[:-1], {})
            self.clear(path)
            self.value(path[:-1])[path[-1]] = None
        self._unread[path] = (text, message)
        if chosen is not None:
            self._chosen[path] = chosen

    def _forget(self, path: Path) -> None:
        """Delete the notes about a field and all fields inside it."""
        notes: tuple[dict[Path, Any], ...] = (self._unread, self._chosen)
        for each in notes:
            for found in [known for known in each if known[: len(path)] == path]:
                del each[found]

    def _move_notes(self, parent: Path, rename: Callable[[str | int], str | int]) -> None:
        """Update the paths of the notes after items of a list have moved."""
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
        """Return a copy of the arguments. Raises `InvalidArguments` if a typed text cannot be parsed.

        Does not validate them against the schema; `check` does.
        """
        if self._unread:
            raise InvalidArguments(
                Violation(format_path(path), message) for path, (_, message) in self._unread.items()
            )
        if not isinstance(self._values, dict):
            raise InvalidArguments([Violation("", _NOT_AN_OBJECT)])
        values: dict[str, Any] = loads(to_json(self._values))
        return values

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Replace all values. Raises `InvalidArguments`, and changes nothing, if the arguments are not JSON."""
        values = loads(to_json(dict(arguments)))
        self._forget(())
        self._values = values

    # The errors, by field.

    def errors(self) -> dict[Path, list[str]]:
        """Return the errors of typed texts that cannot be parsed, by field."""
        return {path: [message] for path, (_, message) in self._unread.items()}

    def check(self) -> dict[Path, list[str]]:
        """Validate all values against the schema. Returns the errors by field, empty if the arguments are valid."""
        found = self.errors()
        parameters = self._parameters
        if isinstance(parameters, str):
            return found
        if not isinstance(self._values, dict):
            found.setdefault((), []).append(_NOT_AN_OBJECT)
            return found
        try:
            parameters.validate(self._values)
        except InvalidArguments as error:
            for path, messages in self._assign(error.violations).items():
                if not any(path and unread[: len(path)] == path for unread in self._unread):
                    found.setdefault(path, []).extend(messages)
        return found

    @property
    def schema_error(self) -> str | None:
        """Why `check` cannot use the schema, so that only the server validates arguments; None if it can."""
        return self._parameters if isinstance(self._parameters, str) else None

    @cached_property
    def _parameters(self) -> RawParameters | str:
        try:
            return compile_schema(self._schema)
        except (DefinitionError, RecursionError) as error:
            return clip(plain_line(str(error)), MAX_TITLE)

    def _assign(self, violations: Iterable[Violation], variant: Path | None = None) -> dict[Path, list[str]]:
        """Return errors by field. With `variant`, they are about the `value` that is at this path."""
        found: dict[Path, list[str]] = {}
        for violation in violations:
            steps = _as_steps(violation.path) if variant is None else violation.path.removeprefix("value")
            path, rest = self._descend(variant or (), steps)
            if rest or path == variant:
                self._add(found, path, rest, violation)
            else:
                for inner, messages in self._explain(path, [violation.message]).items():
                    found.setdefault(inner, []).extend(messages)
        return found

    def _explain(self, path: Path, messages: list[str]) -> dict[Path, list[str]]:
        """Replace the error that no variant fits by the errors within the chosen variant."""
        shape, value = self._shape(path), self.value(path)
        if not shape.is_union or shape.kind not in ("object", "map", "list") or not value:
            return {path: messages}
        root = self._document.root
        tables = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
        schema = {**tables, "type": "object", "properties": {"value": shape.schema}}
        try:
            compile_schema(schema).validate({"value": value})
        except (DefinitionError, RecursionError):  # it refers to other parts of the document
            return {path: messages}
        except InvalidArguments as error:
            return self._assign(error.violations, path)
        return {path: messages}

    def locate(self, violations: Iterable[Violation] | str) -> dict[Path, list[str]]:
        """Assign errors to fields: `InvalidArguments.violations`, or the text of a server's error result.

        An error inside a field without nested fields belongs to that field; an error without a field, to `()`.
        """
        found: dict[Path, list[str]] = {}
        for violation in self._parse(violations) if isinstance(violations, str) else violations:
            path, rest = self._descend((), _as_steps(violation.path))
            self._add(found, path, rest, violation)
        return found

    def _add(self, found: dict[Path, list[str]], path: Path, rest: str, violation: Violation) -> None:
        """Add an error to `found`. `rest` is the part of its path for which there is no field."""
        found.setdefault(path, []).append(str(Violation(rest.removeprefix("."), violation.message)))

    def _parse(self, text: str) -> list[Violation]:
        """Parse the violations in the text of an `InvalidArguments`. Any other text is one error of the form."""
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
            else:  # the previous message contains a semicolon
                found[-1] = Violation(found[-1].path, f"{found[-1].message}; {part}")
        return found

    def _descend(self, start: Path, steps: str) -> tuple[Path, str]:
        """Follow steps such as `.items[2].price` from a field. Returns the last field found and the rest.

        A name may contain dots and brackets, so all ways to split the steps are tried; the one that leads furthest
        is used.
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
