"""Makes names of tools from the names of entries.

Owns what a legal name is, how a readable one is made, and who gets which when several want the same. Pure; knows
nothing of schemas or prices.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire.catalog.hidden_text import remove_hidden
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
) -> dict[str, str | None]:
    """Entry id -> its legal name, no two alike even for clients that ignore case. None where none is free.

    The names do not depend on the order of the wishes. Those who want the same name all get a suffix made from
    their id, for no one of them has the better right, and a model must not take one for another. `known` (the names
    of an earlier run) is such a right: who had a name keeps it, and only the newcomer gets a suffix. A name that is
    too long always gets one, so that a namesake that comes later changes nothing.
    """
    prefix = prefix_of(namespace)
    reserved = {_key(name) for name in taken}
    bases = {wish.id: wish.base for wish in wishes}
    kept = _keep_known_names(bases, prefix, known or {}, reserved)
    levels = {who: int(len(prefix) + len(base) > LONGEST) for who, base in bases.items()} | kept
    losers: set[str] = set()
    while True:
        claims: defaultdict[str, list[str]] = defaultdict(list)
        for who in levels.keys() - losers:
            claims[_key(_name(prefix, bases[who], who, levels[who]))].append(who)
        contested = [ids for key, ids in claims.items() if len(ids) > 1 or key in reserved]
        moving = {who for ids in contested for who in ids} - kept.keys()
        if not moving:
            break
        losers |= {who for who in moving if levels[who] + 1 == len(_DIGITS)}
        for who in moving - losers:
            levels[who] += 1
    return {
        who: None if who in losers else _name(prefix, bases[who], who, level) for who, level in levels.items()
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


def _keep_known_names(
    bases: Mapping[str, str], prefix: str, known: Mapping[str, str], reserved: Collection[str]
) -> dict[str, int]:
    """Return the ids whose known name still fits and is not contested, each with the level of its name."""
    kept: dict[str, int] = {}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for who in bases.keys() & known.keys():
        had = known[who]
        forms = [_name(prefix, bases[who], who, level) for level in range(len(_DIGITS))]
        if had in forms and _key(had) not in reserved:
            kept[who] = forms.index(had)
            holders[_key(had)].append(who)
    return {ids[0]: kept[ids[0]] for ids in holders.values() if len(ids) == 1}


def _name(prefix: str, base: str, id: str, level: int) -> str:
    suffix = f"_{_digest(id)[: _DIGITS[level]]}" if level else ""
    return f"{prefix}{base}"[: LONGEST - len(suffix)].rstrip("_-" if suffix else "") + suffix


def _key(name: str) -> str:
    """Return the key that no two names may share: the CLI's spelling, whatever the case."""
    return wire_name(name).casefold()


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def _is_no_gap(character: str) -> bool:
    """True for a character that stands inside a word: a mark, a joiner, a soft hyphen."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")
