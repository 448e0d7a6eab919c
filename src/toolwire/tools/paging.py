"""A list in pages, each encoded once. It knows nothing of the things that are listed."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import orjson

from toolwire.tools.results.to_json import plain

SIZE: Final = 1_000
"""Entries on one page."""
_DIGITS: Final = 9  # of a cursor

Page = tuple[dict[str, Any], orjson.Fragment]
"""A page as a dict, and as bytes."""


class Listed(Protocol):
    """Something that can be listed."""

    @property
    def definition(self) -> dict[str, Any]:
        """Its entry in the list."""
        ...


class Pages:
    """The pages of one list, made when first asked for, and again after a change."""

    def __init__(self, key: str, items: Mapping[str, Listed], lock: threading.Lock) -> None:
        self._key = key
        self._items = items
        self._lock = lock
        self._made: list[Page] | None = None

    def forget(self) -> None:
        """The items have changed. Whoever changes them holds the lock."""
        self._made = None

    def make(self, items: Iterable[Listed]) -> list[Page]:
        """Make the pages of other items, for `install`. Needs no lock."""
        return _pages(self._key, [each.definition for each in items])

    def install(self, pages: list[Page]) -> None:
        """The items have changed to those of the pages. Whoever changes them holds the lock."""
        self._made = pages

    def page(self, cursor: Any) -> Page:
        """One page. KeyError for a cursor that we never gave."""
        with self._lock:
            if self._made is None:
                self._made = _pages(self._key, [each.definition for each in self._items.values()])
            pages = self._made
        if cursor is None:
            return pages[0]
        if not isinstance(cursor, str) or not cursor.isdecimal() or len(cursor) > _DIGITS:
            raise KeyError(cursor)
        number = int(cursor)
        if number >= len(pages):
            raise KeyError(cursor)
        return pages[number]


def _pages(key: str, definitions: list[dict[str, Any]]) -> list[Page]:
    starts = range(0, len(definitions), SIZE) or range(1)
    pages = []
    for number, start in enumerate(starts):
        page: dict[str, Any] = {key: definitions[start : start + SIZE]}
        if start + SIZE < len(definitions):
            page["nextCursor"] = str(number + 1)
        pages.append(make_page(page))
    return pages


def make_page(page: dict[str, Any]) -> Page:
    """Encode a page, whatever its texts and numbers are."""
    try:
        return page, orjson.Fragment(orjson.dumps(page))
    except TypeError:  # a text that UTF-8 cannot carry, a number over 64 bits
        clean, text = plain(page)
        return clean, orjson.Fragment(text.encode())
