"""Turns the entries of a catalogue into definitions of tools.

Owns entries, definitions and skipped entries, the conversion between them, and the names of tools: which are legal,
how a readable one is made, and who gets it if several entries have the same. Pure: the same entries result in the
same definitions whatever their order, and one bad entry never affects the others.
"""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
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
# Letters that Unicode decomposition does not change, with their usual spelling.
_SPELLED: Final = str.maketrans("øØłŁđĐðÐ\u0131", "oOlLdDdDi") | str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th", "&": " and ", "+": " plus "}
)
# A database id or a UUID, which is not a readable name.
_ID: Final = re.compile(
    r"[0-9a-fA-F]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d+", re.ASCII
)
_LONGEST_READABLE: Final = 200
_LONGEST_NAMESPACE: Final = 32
# The number of hex digits of the id's hash in a name: none at first, then more while two names are the same.
_DIGITS: Final = (0, 8, 12, 20, 32)


def identity(name: str) -> str:
    """Return a name without case and punctuation, to recognize a tool under another id."""
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
    """Convert a text to legal characters, of any length; empty if nothing is left. A legal name is not changed."""
    if is_legal(text):
        return text
    plain = unicodedata.normalize("NFKD", remove_hidden(text).translate(_SPELLED))
    # Letters of other scripts, accents and soft hyphens are dropped; punctuation of any script separates words.
    kept = "".join(
        each if each.isascii() or not (each.isalnum() or _is_inside_word(each)) else "" for each in plain
    )
    return _GAP.sub("_", kept.lower()).strip("_")


def base_name(id: str, name: str, description: str, separator: str = " — ") -> str:
    """Return the name that an entry would get without conflicts. May be too long."""
    readable = readable_name(id, name, description, separator)
    legal = slug(readable)
    if legal and not (readable == id and _ID.fullmatch(readable)):
        return legal
    return f"tool_{slug(id) or _digest(id)[: _DIGITS[1]]}"


def assign(
    bases: Mapping[str, str],
    *,
    taken: Collection[str] = (),
    namespace: str = "",
    known: Mapping[str, str] | None = None,
    longest: int = LONGEST,
) -> dict[str, str | None]:
    """Return entry id -> legal name, unique even for clients that ignore case. None if no name is free.

    `bases` are the names that the entries would get without conflicts, by id. Entries with the same base name all
    get a suffix made from their id: none of them has precedence, and a model must not confuse them. But an entry
    that had a name in an earlier run (`known`) keeps it, and only the new one gets a suffix. A name that is too
    long (over `longest` characters) always gets a suffix, so that a later entry with the same name changes nothing.
    """
    prefix = prefix_of(namespace)
    reserved = {_key(name) for name in taken}
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
    """Return the prefix for a namespace. A long one is shortened, because it may be an API's category."""
    if not namespace:
        return ""
    if _NOT_LEGAL.search(namespace) or not _WORD.search(namespace):
        raise UsageError(
            f"the namespace {namespace!r} must consist of letters, digits, _ or -, such as 'shop'"
        )
    return f"{namespace[:_LONGEST_NAMESPACE].rstrip('_-') or 'x'}_"


def check_renames(rename: Mapping[str, Any]) -> None:
    """Reject new names that are not legal: a name that the user chose is never changed."""
    for old, new in rename.items():
        if not isinstance(new, str) or not is_legal(new):
            raise UsageError(
                f"{old!r} cannot be renamed to {new!r}: a name must have 1 to {LONGEST} letters, digits, _ or -"
            )


def parse_names(document: str | None) -> dict[str, str]:
    """Parse the names that machines have agreed on, by entry id; empty if the document is not valid."""
    try:
        found = json.loads(document or "{}")
    except ValueError:
        return {}
    whole = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if whole else {}


def merge_names(document: str | None, names: Mapping[str, str], listed: Collection[str]) -> str:
    """Return the document with our names added. Names already in it stay as long as their entry is `listed`.

    The name of an entry depends on which entries existed before: without a shared document, machines that were
    started at different times would use different names.
    """
    kept = {id: name for id, name in parse_names(document).items() if id in listed}  # noqa: A001
    taken = set(kept.values())
    kept |= {id: name for id, name in names.items() if id not in kept and name not in taken}  # noqa: A001
    return dumps(kept, sort_keys=True).decode()


def _keep_known_names(
    bases: Mapping[str, str], prefix: str, known: Mapping[str, str], reserved: Collection[str], longest: int
) -> dict[str, int]:
    """Return the ids whose known name is still valid and wanted by no other, each with the level of its name."""
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
    """Return the key that no two names may share: the CLI's spelling, ignoring case."""
    return wire_name(name).casefold()


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def _is_inside_word(character: str) -> bool:
    """True for a character that does not separate words: a mark, a joiner, a soft hyphen."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")


@dataclass(frozen=True)
class Entry:
    """An entry of a catalogue, as its API describes it; not validated yet."""

    id: str
    """The id with which it is bought. Never shown to the model."""
    name: str
    description: str = ""
    schema: Any = None
    """The parameters: should be a JSON schema."""
    price: int | None = None
    """The price of one call, in micro-dollars; None if the catalogue does not have it."""
    category: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry as the API sent it."""
    prices: Mapping[str, int | None] = field(default_factory=dict)
    """Prices by the value of `price_argument`; None for an unreadable price. `price` is then the highest."""
    price_argument: str = ""
    """The argument that determines the price."""


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
    """Notes on the repairs, one sentence each."""
    prices: Mapping[str, int | None] = field(default_factory=dict)
    """Prices by the value of `price_argument`, as in `Entry`."""
    price_argument: str = ""
    base: str = ""
    """The name without suffix, namespace and renaming: the same tool under another id has the same."""

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256, in hex, of everything that a model sees of it. The price is pinned separately."""
        visible = {"name": self.name, "description": self.description, "schema": self.schema}
        return hashlib.sha256(dumps(visible, sort_keys=True)).hexdigest()


Repairs = dict[str, tuple[Any, tuple[dict[str, Any], tuple[str, ...]]]]
"""Entry id -> its schema, and the repaired schema with the notes."""


@dataclass(frozen=True)
class Skipped:
    """An entry that cannot become a tool, and why."""

    id: str
    name: str
    reason: str


def price_for(tool: Entry | Definition, arguments: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the variant of a call ("" if there is only one) and its price, None if unknown.

    If the argument is missing, or its value has no price of its own, the call costs the highest price.
    """
    value = arguments.get(tool.price_argument) if tool.prices else None
    variant = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return (variant, tool.prices[variant]) if variant in tool.prices else ("", tool.price)


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
    """Define a tool for every entry if possible. Returns the tools, and the skipped entries, sorted by name.

    `taken` are names that must not be used. `rename` has new names by an entry's id or by the name that it would
    get; `namespace` is a prefix of every name. `known` is id -> name of an earlier run (`Pins.names`): see
    `assign` for who keeps a name. Raises UsageError only for an illegal new name or namespace. `repairs` caches
    the repaired schemas for the next time: repairing one takes longer than everything else.
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
            skipped.append(_skip(entry, str(reason)))
        except Exception as error:  # noqa: BLE001 - a bug of ours with one schema must not affect the others
            skipped.append(_skip(entry, f"its schema cannot be read: {type(error).__name__}"))
    known, bases, wanted = dict(known or {}), dict[str, str](), dict[str, str]()
    for entry, _, _ in usable.values():
        base = bases[entry.id] = base_name(entry.id, _text(entry.name), _text(entry.description), separator)
        new = rename.get(entry.id) or rename.get(base) or rename.get(_text(entry.name))
        wanted[entry.id] = new or base
        if new:  # a name that the user chose has precedence over earlier names
            own = f"{prefix}{new}"
            known = {who: had for who, had in known.items() if had != own} | {entry.id: own}
    names = assign(wanted, taken=taken, namespace=namespace, known=known)
    definitions = []
    for entry, schema, notes in usable.values():
        if (name := names[entry.id]) is None:
            skipped.append(_skip(entry, "no free name was found"))
        else:
            definitions.append(_define_one(entry, name, bases[entry.id], schema, notes))
    return sorted(definitions, key=attrgetter("name")), sorted(
        skipped, key=attrgetter("name", "id", "reason")
    )


def _deduplicate(entries: Iterable[Entry]) -> tuple[list[Entry], list[Skipped]]:
    """Keep one entry per id: of several, the most expensive one, so that enough money is reserved."""
    groups: dict[str, list[Entry]] = {}
    skipped = []
    for entry in entries:
        if _text(entry.id) and entry.id.isprintable():
            groups.setdefault(entry.id, []).append(entry)
        else:
            unusable = _skip(entry, "it has no id with which it could be bought")
            skipped.append(replace(unusable, id=tidy(entry.id, 200)))
    single = []
    for group in groups.values():
        different = {_identity(entry): entry for entry in group}
        first, *others = [different[key] for key in sorted(different)]
        single.append(first)
        reason = "the catalogue has its id more than once, with different definitions"
        skipped += [_skip(other, reason) for other in others]
    return single, skipped


def _define_one(
    entry: Entry, name: str, base: str, schema: dict[str, Any], repairs: tuple[str, ...]
) -> Definition:
    description = tidy(entry.description)
    if description != _text(entry.description).strip():
        repairs = ("the description had invisible characters or was too long, and was cleaned", *repairs)
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
    """Return a sort key for entries with the same id; the most expensive one sorts first."""
    price = entry.price if type(entry.price) is int else -1
    other = (_text(entry.name), _text(entry.description), entry.category, sorted(entry.prices.items()))
    try:
        measure(entry.schema)
        schema = dumps(entry.schema, sort_keys=True).decode()
    except Unrepairable as reason:
        schema = f"~{reason}"  # sorts after usable schemas
    return -price, f"{schema} {other!r}"


def _skip(entry: Entry, reason: str) -> Skipped:
    return Skipped(entry.id, tidy(entry.name, 80) or tidy(entry.id, 80), reason)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
