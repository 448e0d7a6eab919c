"""Reads the items of a batch from a file: JSON lines or CSV.

A mistake is reported with the file and the line. `check_items` reads the whole file, so that a mistake in its last
line is found before the first run is paid for.
"""

import csv
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from toolwire._protocol.json_codec import dumps, loads
from toolwire.errors import BatchError, UsageError

TABLE: Final = ".csv"
LINES: Final = (".jsonl", ".ndjson")
_KEYS: Final = ("key", "id")
_OTHER_SEPARATORS: Final = (";", "\t", "|")
_ITEM: Final = {"key", "item"}


def check_items(path: Path, key: str | None, check: Callable[[str, Any], object]) -> None:
    """Read the whole file and call `check` with each key and item. `UsageError` names the line of a mistake."""
    for place, name, item in _read(path, key):
        try:
            check(name, item)
        except BatchError as error:
            raise UsageError(f"{place}: {error}. Nothing was added") from error


def read_items(path: Path, key: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the keys and items of a file, line by line. `UsageError` names the line of a mistake.

    The key is the field named `key` (`--key`), or else the field "key" or "id". An item without one gets a digest
    of its content as its key, so that the same line is the same run. A line `{"key": ..., "item": ...}` contains
    the item.
    """
    for _, name, item in _read(path, key):
        yield name, item


def _read(path: Path, key: str | None) -> Iterator[tuple[str, str, Any]]:
    """Yield the place, key and item of each line. A repeated line is skipped; a key with two items is an error."""
    kind = path.suffix.lower()
    seen: dict[str, tuple[int, bytes]] = {}
    try:
        if not path.is_file():
            raise UsageError(f"{path} does not exist, or is not a file")
        if kind not in (TABLE, *LINES):
            raise UsageError(f"{path}: items are read from a file that ends in .jsonl or .csv")
        for number, item in _read_rows(path) if kind == TABLE else _read_lines(path):
            place = f"{path}, line {number}"
            digest = _digest(place, item)
            name = _find_key(place, item, key) or digest.hex()[:16]
            first, known = seen.setdefault(name, (number, digest))
            if known != digest:
                raise UsageError(
                    f"{place} has the key {name!r} of line {first}, and another item: one of them would be lost"
                )
            if first == number:
                yield place, name, item["item"] if isinstance(item, dict) and item.keys() == _ITEM else item
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _digest(place: str, item: Any) -> bytes:
    try:
        return hashlib.sha256(dumps(item, sort_keys=True)).digest()
    except ValueError as error:  # nested more deeply than JSON is written here
        raise UsageError(f"{place}: {error}") from error


def _read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield number, loads(line.encode())
            except ValueError as error:
                raise UsageError(f"{path}, line {number} is not JSON: {error}") from error


def _read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(sys.maxsize)  # 128 KB by default, and a prompt may be longer
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            _check_header(path, rows.fieldnames or ())
            for row in rows:
                if None in row or None in row.values():
                    raise UsageError(
                        f"{path}, line {rows.line_num} does not have as many fields as the first line"
                    )
                yield rows.line_num, row
        except csv.Error as error:
            raise UsageError(f"{path}, line {rows.reader.line_num} is not CSV: {error}") from error


def _check_header(path: Path, names: Any) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: the first line has the field {name!r} twice")
    if len(names) == 1:
        for separator in _OTHER_SEPARATORS:
            if separator in names[0]:
                raise UsageError(
                    f"{path}: the fields must be separated by commas, and the first line has {separator!r}"
                )


def _find_key(place: str, item: Any, key: str | None) -> str | None:
    """Return the key that an item contains; None if it has none."""
    if key is not None:
        if not isinstance(item, dict) or key not in item:
            raise UsageError(f"{place} has no field {key!r} (--key)")
        return _check_key(place, item[key])
    if isinstance(item, dict):
        for name in _KEYS:
            if name in item:
                return _check_key(place, item[name])
    return None


def _check_key(place: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UsageError(f"{place}: a key must be a string or a whole number, not empty, got {value!r}")
    return str(value)
