"""Turns the entries of a catalogue into definitions of tools.

Owns what an entry, a definition and a skipped entry are, and the way from one to the other. Pure: the same entries
give the same definitions in whatever order they come, and one bad entry never costs the others.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from toolwire._protocol.json_codec import dumps
from toolwire.catalog.schema_repair.bounds import Unrepairable, measure
from toolwire.catalog.schema_repair.repair import repair_schema
from toolwire.catalog.tools.names import Wish, assign, base_name, check_renames, prefix_of
from toolwire.catalog.values import tidy


@dataclass(frozen=True)
class Entry:
    """An entry of a catalogue, as its API describes it. Nothing is checked yet."""

    id: str
    """By which it is bought. Never shown to the model."""
    name: str
    description: str = ""
    schema: Any = None
    """The parameters: meant to be a JSON schema."""
    price: int | None = None
    """Of one call, in micro-dollars; None when the catalogue does not tell."""
    category: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry as it came."""
    prices: Mapping[str, int | None] = field(default_factory=dict)
    """Prices by the value of `price_argument`; None for one that cannot be read. `price` is then the highest."""
    price_argument: str = ""
    """The argument that decides the price."""


@dataclass(frozen=True)
class Definition:
    """A tool that can be registered: a legal and unique name, clean text, a schema that compiles."""

    id: str
    name: str
    description: str
    schema: dict[str, Any]
    price: int | None = None
    category: str | None = None
    repairs: tuple[str, ...] = ()
    """The repairs that were made, one sentence each."""
    prices: Mapping[str, int | None] = field(default_factory=dict)
    """Prices by the value of `price_argument`, as in `Entry`."""
    price_argument: str = ""
    base: str = ""
    """The name without a collision's suffix, namespace or new name: the same tool under another id has it too."""

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of name, description and schema. The price is pinned beside it, not inside."""
        return fingerprint(self.name, self.description, self.schema)


Repairs = dict[str, tuple[Any, tuple[dict[str, Any], tuple[str, ...]]]]
"""Entry id -> its schema, and what that was repaired to."""


@dataclass(frozen=True)
class Skipped:
    """An entry that cannot be a tool, and why."""

    id: str
    name: str
    reason: str


def price_for(tool: Entry | Definition, arguments: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the variant of a call ("" if there is only one) and its price, None if unknown.

    A value of the argument that has no price of its own, or none at all, costs the highest price.
    """
    value = arguments.get(tool.price_argument) if tool.prices else None
    variant = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return (variant, tool.prices[variant]) if variant in tool.prices else ("", tool.price)


def fingerprint(name: str, description: str, schema: Any) -> str:
    """Return the SHA-256, in hex, of what a model is told of a tool."""
    told = {"name": name, "description": description, "schema": schema}
    return hashlib.sha256(dumps(told, sort_keys=True)).hexdigest()


def define(
    entries: Iterable[Entry],
    *,
    taken: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    namespace: str = "",
    known: Mapping[str, str] | None = None,
    separator: str = " — ",
    repairs: Repairs | None = None,
) -> tuple[list[Definition], list[Skipped]]:
    """Define tools for all entries that can be one; return them and the others with the reason, by name.

    `taken` are names that must not be used. `rename` gives new names by an entry's id or by the name that it would
    get; `namespace` goes before every name. `known` is id -> name of an earlier run (`Pins.names`): see
    `names.assign` for who keeps a name. UsageError only for an illegal new name or namespace. `repairs` keeps the
    repaired schemas for the next time: to repair one takes longer than all the rest.
    """
    rename = rename or {}
    check_renames(rename)
    prefix = prefix_of(namespace)
    single, skipped = _deduplicate(entries)
    usable: dict[str, tuple[Entry, dict[str, Any], tuple[str, ...]]] = {}
    before = {} if repairs is None else dict(repairs)
    if repairs is not None:
        repairs.clear()  # what is no longer in the list is forgotten
    for entry in single:
        try:
            kept = before.get(entry.id)
            result = kept[1] if kept is not None and kept[0] == entry.schema else repair_schema(entry.schema)
            usable[entry.id] = (entry, *result)
            if repairs is not None:
                repairs[entry.id] = (entry.schema, result)
        except Unrepairable as reason:
            skipped.append(Skipped(entry.id, _label(entry), str(reason)))
        except Exception as error:  # noqa: BLE001 - a mistake of ours with one schema must not cost the others
            skipped.append(
                Skipped(entry.id, _label(entry), f"its schema cannot be read: {type(error).__name__}")
            )
    rights, wishes, bases = dict(known or {}), [], dict[str, str]()
    for entry, _, _ in usable.values():
        base = bases[entry.id] = base_name(entry.id, _text(entry.name), _text(entry.description), separator)
        new = rename.get(entry.id) or rename.get(base) or rename.get(_text(entry.name))
        wishes.append(Wish(entry.id, new or base))
        if new:  # the user's word goes before an older right
            own = f"{prefix}{new}"
            rights = {who: had for who, had in rights.items() if had != own} | {entry.id: own}
    names = assign(wishes, taken=taken, namespace=namespace, known=rights)
    definitions = []
    for entry, schema, notes in usable.values():
        if (name := names[entry.id]) is None:
            skipped.append(Skipped(entry.id, _label(entry), "no name is free for it"))
        else:
            definitions.append(_define_one(entry, name, bases[entry.id], schema, notes))
    return sorted(definitions, key=lambda each: each.name), sorted(skipped, key=_order)


def _deduplicate(entries: Iterable[Entry]) -> tuple[list[Entry], list[Skipped]]:
    """Keep each id once: of several entries with one id the dearest, so that enough money is reserved."""
    groups: dict[str, list[Entry]] = {}
    skipped = []
    for entry in entries:
        if _text(entry.id) and entry.id.isprintable():
            groups.setdefault(entry.id, []).append(entry)
        else:
            skipped.append(
                Skipped(tidy(entry.id, 200), _label(entry), "it has no id by which it could be bought")
            )
    single = []
    for group in groups.values():
        different = {_identity(entry): entry for entry in group}
        first, *others = [different[key] for key in sorted(different)]
        single.append(first)
        skipped += [
            Skipped(first.id, _label(other), "the catalogue has its id more than once, with different words")
            for other in others
        ]
    return single, skipped


def _define_one(
    entry: Entry, name: str, base: str, schema: dict[str, Any], repairs: tuple[str, ...]
) -> Definition:
    description = tidy(entry.description)
    if description != _text(entry.description).strip():
        repairs = ("the description was cleaned of what cannot be seen, or cut", *repairs)
    price = entry.price if type(entry.price) is int and entry.price >= 0 else None
    return Definition(
        id=entry.id,
        name=name,
        description=description,
        schema=schema,
        price=price,
        category=tidy(entry.category, 100) or None,
        repairs=repairs,
        prices=entry.prices,
        price_argument=entry.price_argument,
        base=base,
    )


def _identity(entry: Entry) -> tuple[int, str]:
    """Return a key by which entries with one id are compared; the dearest sorts first."""
    price = entry.price if type(entry.price) is int else -1
    told = (_text(entry.name), _text(entry.description), entry.category, sorted(entry.prices.items()))
    try:
        measure(entry.schema)
        schema = dumps(entry.schema, sort_keys=True).decode()
    except Unrepairable as reason:
        schema = f"~{reason}"  # after any that can be used
    return -price, f"{schema} {told!r}"


def _order(skipped: Skipped) -> tuple[str, str, str]:
    return skipped.name, skipped.id, skipped.reason


def _label(entry: Entry) -> str:
    """Return the name of a skipped entry for a warning."""
    return tidy(entry.name, 80) or tidy(entry.id, 80)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
