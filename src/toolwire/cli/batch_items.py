"""Reads the items of a batch from a file: JSON lines or CSV, line by line, so that memory stays flat.

The key of an item is in a field: `--key`, else `key`, else `id`. An item without one has a digest of itself as its
key, so that the same line is the same run. A line `{"key": ..., "item": ...}` has the item inside.
"""

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolwire.errors import UsageError

_KEYS: Final = ("key", "id")


def read_items(path: Path, key: str | None) -> Iterator[tuple[str, Any]]:
    """Yield keys and items. `UsageError` names the line that cannot be used."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist, or is no file")
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".ndjson", ".csv"):
        raise UsageError(f"{path}: items are read from a file that ends in .jsonl or .csv")
    return _read(path, key, table=kind == ".csv")


def _read(path: Path, key: str | None, *, table: bool) -> Iterator[tuple[str, Any]]:
    try:
        for place, item in _rows(path) if table else _lines(path):
            yield _key_of(place, item, key), _inner(item)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason}") from error
    except (OSError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield f"{path}, line {number}", json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path}, line {number} is not JSON: {error}") from error


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        for row in rows:
            place = f"{path}, line {rows.line_num}"
            if None in row or None in row.values():
                raise UsageError(f"{place} has another number of fields than the first line")
            yield place, row


def _key_of(place: str, item: Any, key: str | None) -> str:
    if key is not None:
        if not isinstance(item, dict) or key not in item:
            raise UsageError(f"{place} has no field {key!r} (--key)")
        return _text(place, item[key])
    if isinstance(item, dict):
        for name in _KEYS:
            if name in item:
                return _text(place, item[name])
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(place: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UsageError(f"{place}: a key must be a text or a whole number, got {value!r}")
    return str(value)


def _inner(item: Any) -> Any:
    return item["item"] if isinstance(item, dict) and item.keys() == {"key", "item"} else item
