"""Pins: the definitions that a user has accepted, and how a catalogue differs from them.

Owns the pin file (JSON, readable by its owner only, replaced atomically) and the comparison. A malicious
catalogue may change a definition after the user has accepted it, so a pin file that cannot be read is an error,
never treated as empty.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from toolwire._protocol.json_codec import dumps
from toolwire._support.files import replace_file
from toolwire.catalog.money import dollars
from toolwire.catalog.tools.definitions import Definition
from toolwire.errors import UsageError
from toolwire.tools.schema.arguments import clip

Kind = Literal["added", "removed", "changed", "price_up", "price_down"]

_VERSION: Final = 2
_OLDER: Final = 1  # without prices by action
_LARGEST: Final = 256 * 1024 * 1024
_MOST_LINES: Final = 200
_WIDTH: Final = 70
_BEFORE: Final = 20
_MOST_DEPTH: Final = 200
# The fields of a pin besides its id, and their types.
_KINDS: Final = {
    "name": (str,),
    "description": (str,),
    "schema": (dict,),
    "price": (int, type(None)),
    "prices": (dict,),
    "price_argument": (str,),
}


@dataclass(frozen=True)
class Change:
    """One difference between a catalogue and its pins."""

    kind: Kind
    name: str
    diff: str
    """One line for each difference. Plain ASCII, so that text from an API cannot control a terminal."""
    id: str = ""


@dataclass(frozen=True)
class Pins:
    """The accepted definitions, by the id of their entry: only the fields in `_KINDS` are kept."""

    tools: Mapping[str, Definition] = field(default_factory=dict)

    @classmethod
    def of(cls, definitions: Iterable[Definition]) -> "Pins":
        """Pin all of these definitions."""
        return cls(
            {
                each.id: Definition(each.id, **{name: getattr(each, name) for name in _KINDS})
                for each in definitions
            }
        )

    def accept(self, definitions: Iterable[Definition]) -> "Pins":
        """Return pins in which these definitions replace those of the same entries."""
        return Pins({**self.tools, **Pins.of(definitions).tools})

    @property
    def names(self) -> dict[str, str]:
        """Entry id -> tool name, for `define(known=...)`, so that names do not change."""
        return {each.id: each.name for each in self.tools.values()}

    @classmethod
    def load(cls, path: str | Path) -> "Pins":
        """Load the pins from a file; empty pins if there is no file. UsageError if it cannot be read."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise UsageError(f"{path}: the pins cannot be read: {error.strerror}") from error
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: str | bytes, source: str) -> "Pins":
        """Parse the output of `dump`. Raises UsageError that names the source if it is not valid."""
        try:
            return cls._from_json(json.loads(content) if len(content) <= _LARGEST else None)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{source} does not contain valid pins: restore it from a copy, or delete it to review and pin all "
                "tools again"
            ) from error

    def save(self, path: str | Path) -> None:
        """Replace the file atomically, readable by its owner only."""
        path = Path(path)
        try:
            replace_file(path, [self.dump().encode()])
        except OSError as error:
            raise UsageError(f"{path}: the pins cannot be written: {error.strerror}") from error

    def dump(self) -> str:
        """Return the content of a pin file."""
        tools = {
            each.id: {**{name: getattr(each, name) for name in _KINDS}, "prices": dict(each.prices)}
            for each in self.tools.values()
        }
        return json.dumps({"version": _VERSION, "tools": tools}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def _from_json(cls, data: Any) -> "Pins":
        if data["version"] not in (_OLDER, _VERSION):
            raise ValueError("unsupported version")
        tools = {}
        for id, each in data["tools"].items():  # noqa: A001 - as the field is called
            if data["version"] == _OLDER:
                each |= {"prices": {}, "price_argument": ""}
            if each.keys() - _KINDS.keys():
                raise ValueError("a pin has an unknown field")
            pinned = Definition(id, **each)
            for name, kinds in _KINDS.items():
                if type(each.get(name)) not in kinds:
                    raise TypeError("a field of a pin has the wrong type")
            if not all(type(price) in (int, type(None)) for price in pinned.prices.values()):
                raise TypeError("a price of a pin has the wrong type")
            dumps(each)  # raises if it is too deep or not JSON
            tools[id] = pinned
        return cls(tools)


def compare(definitions: Iterable[Definition], pins: Pins) -> list[Change]:
    """Return the differences from the pins, sorted by name. A tool whose text and price changed has two.

    A price that becomes known, or unknown, counts as raised: either way more may be spent than was accepted.
    """
    changes = []
    current = {each.id: each for each in definitions}
    for new in current.values():
        old = pins.tools.get(new.id)
        if old is None:
            changes.append(Change("added", new.name, _summary("+", new), new.id))
            continue
        if old.fingerprint != new.fingerprint:
            changes.append(Change("changed", new.name, _diff(old, new), new.id))
        changes += _price_changes(old, new)
    gone = [old for old in pins.tools.values() if old.id not in current]
    changes += [Change("removed", old.name, _summary("-", old), old.id) for old in gone]
    return sorted(changes, key=lambda change: (change.name, change.kind, change.id))


def _price_changes(old: Definition, new: Definition) -> Iterator[Change]:
    """Yield the changes of prices: raised and lowered ones separately."""
    lines: dict[Kind, list[str]] = {"price_up": [], "price_down": []}
    if old.price_argument != new.price_argument:
        lines["price_up"].append(
            f"price by: {_json(old.price_argument or None)} -> {_json(new.price_argument or None)}"
        )
    pairs = [("price", old.price, new.price)]
    # An action without a price of its own costs the price of the tool.
    pairs += [
        (f"price[{_clip(_json(value))}]", old.prices.get(value, old.price), new.prices.get(value, new.price))
        for value in sorted({*old.prices, *new.prices})
    ]
    for name, before, after in pairs:
        if before != after:
            up = before is None or after is None or after > before
            lines["price_up" if up else "price_down"].append(f"{name}: {_price(before)} -> {_price(after)}")
    for kind, found in lines.items():
        if found:
            yield Change(kind, new.name, "\n".join(_few(found)), new.id)


def _summary(sign: str, tool: Definition) -> str:
    """Describe a tool that exists only in the catalogue or only in the pins."""
    lines = [f"{sign} description: {_json(tool.description)}", f"{sign} price: {_price(tool.price)}"]
    properties = tool.schema.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        lines.append(f"{sign} schema.{_step('properties', name)}: {_json(value)}")
    return "\n".join(_few(lines))


def _diff(old: Definition, new: Definition) -> str:
    lines = []
    for name in ("name", "description"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            lines.append(f"{name}: {_format_pair(before, after)}")
    lines += _differences("schema", old.schema, new.schema, 0)
    return "\n".join(_few(lines))


def _differences(path: str, old: Any, new: Any, depth: int) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict) and depth < _MOST_DEPTH:
        for key in sorted({*old, *new}):
            inner = _step(path, key)
            if key not in new:
                yield f"- {inner}: {_clip(_json(old[key]))}"
            elif key not in old:
                yield f"+ {inner}: {_clip(_json(new[key]))}"
            else:
                yield from _differences(inner, old[key], new[key], depth + 1)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and depth < _MOST_DEPTH:
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}[{index}]", before, after, depth + 1)
    elif _json(old) != _json(new):
        yield f"{path}: {_format_pair(old, new)}"


def _format_pair(old: Any, new: Any) -> str:
    """Format both values, shortened to the part that differs."""
    before, after = _json(old), _json(new)
    pairs = enumerate(zip(before, after, strict=False))
    same = next((index for index, (one, other) in pairs if one != other), min(len(before), len(after)))
    start = max(0, same - _BEFORE) if max(len(before), len(after)) > _WIDTH else 0
    lead = "..." if start else ""
    return f"{lead}{_clip(before[start:])} -> {lead}{_clip(after[start:])}"


def _step(path: str, key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").replace("$", "").isalnum()
    return f"{path}.{key}" if plain else f"{path}[{_clip(_json(key))}]"


def _clip(text: str) -> str:
    return clip(text, _WIDTH)


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"... and {more} more"] if more > 0 else lines


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _price(price: int | None) -> str:
    return "unknown" if price is None else dollars(price, 6)
