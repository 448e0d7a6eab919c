"""Turns the entries of a catalogue into definitions of tools.

Owns what an entry, a definition and a skipped entry are, the way from one to the other, and the names of tools:
what a legal one is, how a readable one is made, and who gets which when several want the same. Pure: the same
entries give the same definitions in whatever order they come, and one bad entry never costs the others.
"""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire.catalog.hidden_text import remove_hidden
from toolwire.catalog.schema_repair.bounds import Unrepairable, measure
from toolwire.catalog.schema_repair.repair import repair_schema
from toolwire.catalog.values import tidy
from toolwire.errors import UsageError
from toolwire.tools.names import wire_name

LONGEST: Final = 64
_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_WORD: Final = re.compile(r"[a-zA-Z0-9]", re.ASCII)
_NOT_LEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]", re.ASCII)
_GAP: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
# Letters that decomposition leaves alone, with their usual spelling.
_SPELLED: Final = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "œ": "oe", "Œ": "OE", "ł": "l", "Ł": "L"}
    | {
        "đ": "d",
        "Đ": "D",
        "ð": "d",
        "Ð": "D",
        "þ": "th",
        "Þ": "Th",
        "\u0131": "i",
        "&": " and ",
        "+": " plus ",
    }
)
# An id of a database or a UUID: nobody would call a tool that.
_ID: Final = re.compile(
    r"[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d+", re.ASCII
)
_LONGEST_READABLE: Final = 200
_LONGEST_NAMESPACE: Final = 32
# How many hex digits of the id's hash a name carries: none, then more for as long as two names are the same.
_DIGITS: Final = (0, 8, 12, 20, 32)


@dataclass(frozen=True)
class Wish:
    """The name that an entry would get if it were alone. `id` must be its own."""

    id: str
    base: str


def identity(name: str) -> str:
    """Return a name without case and punctuation: by it a tool is recognised under another id."""
    return "".join(each for each in name.casefold() if each.isalnum())


def is_legal(name: str) -> bool:
    """True if every client accepts it as the name of a tool."""
    return _LEGAL.fullmatch(name) is not None and _WORD.search(name) is not None


def readable_name(id: str, name: str, description: str, separator: str = " — ") -> str:
    """Return a readable name: the text before the separator in the description if the API's name is only an id."""
    name = remove_hidden(name[: 4 * _LONGEST_READABLE]).strip()
    if separator and (not name or name == id or _ID.fullmatch(name)):
        head, found, _ = remove_hidden(description[: 4 * _LONGEST_READABLE]).partition(separator)
        if found and 0 < len(head.strip()) <= _LONGEST_READABLE:
            return head.strip()
    return name


def slug(text: str) -> str:
    """Make a name of legal characters, of any length; empty if nothing is left. A legal name stays as it is."""
    if is_legal(text):
        return text
    plain = unicodedata.normalize("NFKD", remove_hidden(text).translate(_SPELLED))
    # Letters of other scripts, accents and soft hyphens go; punctuation of any script parts words.
    kept = "".join(
        each if each.isascii() or not (each.isalnum() or _is_no_gap(each)) else "" for each in plain
    )
    return _GAP.sub("_", kept.lower()).strip("_")


def base_name(id: str, name: str, description: str, separator: str = " — ") -> str:
    """Return the name that an entry would get if it were alone. May be too long."""
    said = readable_name(id, name, description, separator)
    made = slug(said)
    if made and not (said == id and _ID.fullmatch(said)):
        return made
    return f"tool_{slug(id) or _digest(id)[: _DIGITS[1]]}"


def assign(
    wishes: Collection[Wish],
    *,
    taken: Collection[str] = (),
    namespace: str = "",
    known: Mapping[str, str] | None = None,
    longest: int = LONGEST,
) -> dict[str, str | None]:
    """Entry id -> its legal name, no two alike even for clients that ignore case. None where none is free.

    The names do not depend on the order of the wishes. Those who want the same name all get a suffix made from
    their id, for no one of them has the better right, and a model must not take one for another. `known` (the names
    of an earlier run) is such a right: who had a name keeps it, and only the newcomer gets a suffix. A name that is
    too long (over `longest` characters) always gets one, so that a namesake that comes later changes nothing.
    """
    prefix = prefix_of(namespace)
    reserved = {_key(name) for name in taken}
    bases = {wish.id: wish.base for wish in wishes}
    kept = _keep_known_names(bases, prefix, known or {}, reserved, longest)
    levels = {who: int(len(prefix) + len(base) > longest) for who, base in bases.items()} | kept
    losers: set[str] = set()
    while True:
        claims: defaultdict[str, list[str]] = defaultdict(list)
        for who in levels.keys() - losers:
            claims[_key(_name(prefix, bases[who], who, levels[who], longest))].append(who)
        contested = [ids for key, ids in claims.items() if len(ids) > 1 or key in reserved]
        moving = {who for ids in contested for who in ids} - kept.keys()
        if not moving:
            break
        losers |= {who for who in moving if levels[who] + 1 == len(_DIGITS)}
        for who in moving - losers:
            levels[who] += 1
    return {
        who: None if who in losers else _name(prefix, bases[who], who, level, longest)
        for who, level in levels.items()
    }


def prefix_of(namespace: str) -> str:
    """Return the prefix of a namespace. A long one is cut, since it may be an API's category."""
    if not namespace:
        return ""
    if _NOT_LEGAL.search(namespace) or not _WORD.search(namespace):
        raise UsageError(f"the namespace {namespace!r} must be letters, digits, _ or -, such as 'shop'")
    return f"{namespace[:_LONGEST_NAMESPACE].rstrip('_-') or 'x'}_"


def check_renames(rename: Mapping[str, Any]) -> None:
    """Reject new names that are not legal: a name that the user chose is not changed."""
    for old, new in rename.items():
        if not isinstance(new, str) or not is_legal(new):
            raise UsageError(
                f"{old!r} cannot be renamed to {new!r}: a name has 1 to {LONGEST} letters, digits, _ or -"
            )


def parse_names(document: str | None) -> dict[str, str]:
    """Read the names that machines have agreed on, by id of the entry; none from a document that is not ours."""
    try:
        found = json.loads(document or "{}")
    except ValueError:
        return {}
    whole = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if whole else {}


def merge_names(document: str | None, names: Mapping[str, str], listed: Collection[str]) -> str:
    """Return the document with our names added. Names that are there stay, as long as their entry is `listed`.

    Which name an entry gets depends on which entries were there before: without such a document, machines that
    were started at different times would name them differently.
    """
    kept = {id: name for id, name in parse_names(document).items() if id in listed}  # noqa: A001
    taken = set(kept.values())
    kept |= {id: name for id, name in names.items() if id not in kept and name not in taken}  # noqa: A001
    return dumps(kept, sort_keys=True).decode()


def _keep_known_names(
    bases: Mapping[str, str], prefix: str, known: Mapping[str, str], reserved: Collection[str], longest: int
) -> dict[str, int]:
    """Return the ids whose known name still fits and is not contested, each with the level of its name."""
    kept: dict[str, int] = {}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for who in bases.keys() & known.keys():
        had = known[who]
        forms = [_name(prefix, bases[who], who, level, longest) for level in range(len(_DIGITS))]
        if had in forms and _key(had) not in reserved:
            kept[who] = forms.index(had)
            holders[_key(had)].append(who)
    return {ids[0]: kept[ids[0]] for ids in holders.values() if len(ids) == 1}


def _name(prefix: str, base: str, id: str, level: int, longest: int) -> str:
    suffix = f"_{_digest(id)[: _DIGITS[level]]}" if level else ""
    return f"{prefix}{base}"[: longest - len(suffix)].rstrip("_-" if suffix else "") + suffix


def _key(name: str) -> str:
    """Return the key that no two names may share: the CLI's spelling, whatever the case."""
    return wire_name(name).casefold()


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def _is_no_gap(character: str) -> bool:
    """True for a character that stands inside a word: a mark, a joiner, a soft hyphen."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")


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
    `assign` for who keeps a name. UsageError only for an illegal new name or namespace. `repairs` keeps the
    repaired schemas for the next time: to repair one takes longer than all the rest.
    """
    rename = rename or {}
    check_renames(rename)
    prefix = prefix_of(namespace)
    single, skipped = _deduplicate(entries)
    usable: dict[str, tuple[Entry, dict[str, Any], tuple[str, ...]]] = {}
    repairs = {} if repairs is None else repairs
    for entry in single:
        try:
            kept = repairs.get(entry.id)
            if kept is None or kept[0] != entry.schema:
                kept = repairs[entry.id] = entry.schema, repair_schema(entry.schema)
            usable[entry.id] = (entry, *kept[1])
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
