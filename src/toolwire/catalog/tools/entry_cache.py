"""Saves the entries of a catalogue on disk, for a start while the API cannot be reached.

Owns the file format. The file is replaced atomically, and a file that cannot be read is treated as missing.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from toolwire._protocol.json_codec import dumps, loads
from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire.catalog.tools.definitions import Entry

logger = logger_for("catalog")

_FORM: Final = 3
_FIELDS: Final = tuple(each.name for each in fields(Entry) if each.name != "raw")


@dataclass(frozen=True)
class SavedEntries:
    """Entries, when they were fetched (seconds since 1970), and the names of their tools by id."""

    at: float
    entries: tuple[Entry, ...]
    names: Mapping[str, str] = field(default_factory=dict)


def save_entries(path: Path, entries: Iterable[Entry], base_url: str, names: Mapping[str, str]) -> None:
    """Save entries, and the names of their tools by id.

    If the disk is full or read-only, only the cache is lost: the tools still work.
    """
    about = {"form": _FORM, "base_url": base_url, "at": time.time(), "names": dict(names)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _encode(about, entries))
    except (OSError, TypeError, ValueError) as error:
        logger.warning("the definitions cannot be saved in %s: %s", path, error)


def _encode(about: Mapping[str, Any], entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the JSON entry by entry: encoding all of them at once would block other threads."""
    yield dumps(about)[:-1] + b',"entries":['
    for number, entry in enumerate(entries):
        yield (b"," if number else b"") + dumps({name: getattr(entry, name) for name in _FIELDS})
    yield b"]}"


def load_entries(path: Path, base_url: str) -> SavedEntries | None:
    """Load the saved entries of this API; None if there is no usable file."""
    try:
        data = loads(path.read_bytes())
        if data["form"] != _FORM or data["base_url"] != base_url:
            return None
        names = {_text(who): _text(name) for who, name in data["names"].items()}
        return SavedEntries(float(data["at"]), tuple(_entry(each) for each in data["entries"]), names)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        logger.warning("the saved definitions in %s cannot be read (%s): they are fetched again", path, error)
        return None


def _entry(data: Mapping[str, Any]) -> Entry:
    category = data["category"]
    texts = all(isinstance(data[name], str) for name in ("id", "name", "description", "price_argument"))
    prices = [data["price"], *data["prices"].values()]
    if (
        not texts
        or not all(price is None or (type(price) is int and price >= 0) for price in prices)
        or not (category is None or isinstance(category, str))
    ):
        raise ValueError("an entry is damaged")
    return Entry(**{name: data[name] for name in _FIELDS})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is damaged")
    return value
