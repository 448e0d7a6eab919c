"""Splits a list into pages, each encoded once. Must not know what is listed."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import orjson

from toolwire._protocol.jsonrpc import INVALID_PARAMS, RpcError
from toolwire.tools.results.to_json import plain

SIZE: Final = 1_000
"""Entries on one page."""
_DIGITS: Final = 9  # of a cursor
_SHOWN: Final = 100  # characters of an unknown cursor in an error

Page = tuple[dict[str, Any], orjson.Fragment]
"""A page as a dict, and as bytes."""


class Listable(Protocol):
    """An item that can be listed."""

    @property
    def definition(self) -> dict[str, Any]:
        """Its entry in the list."""
        ...


class Pages:
    """The pages of one list, made when one is first requested, and again after a change."""

    def __init__(self, key: str, items: Mapping[str, Listable], lock: threading.Lock) -> None:
        self._key = key
        self._items = items
        self._lock = lock
        self._pages: list[Page] | None = None

    def drop(self) -> None:
        """Drop the pages, because the items have changed. The caller holds the lock."""
        self._pages = None

    def make(self, items: Iterable[Listable]) -> list[Page]:
        """Make the pages of other items, for `install`. Needs no lock."""
        return make_pages(self._key, [each.definition for each in items])

    def install(self, pages: list[Page]) -> None:
        """Use pages that were made from the present items. The caller holds the lock."""
        self._pages = pages

    def page(self, cursor: Any) -> Page:
        """Return one page. KeyError for an unknown cursor."""
        with self._lock:
            if self._pages is None:
                self._pages = make_pages(self._key, [each.definition for each in self._items.values()])
            pages = self._pages
        return find_page(pages, cursor)


def find_page(pages: list[Page], cursor: Any) -> Page:
    """Return the page of a cursor, which is None for the first page. KeyError for an unknown cursor."""
    if cursor is None:
        return pages[0]
    if not isinstance(cursor, str) or not cursor.isdecimal() or len(cursor) > _DIGITS:
        raise KeyError(cursor)
    number = int(cursor)
    if number >= len(pages):
        raise KeyError(cursor)
    return pages[number]


def list_page(read: Callable[[Any], Page], params: dict[str, Any], encoded: bool) -> Any:
    """Return the page that the params of a list request name. `RpcError` for an unknown cursor."""
    cursor = params.get("cursor")
    try:
        plain, fragment = read(cursor)
    except KeyError:
        raise RpcError(INVALID_PARAMS, f"Unknown cursor: {repr(cursor)[:_SHOWN]}") from None
    return fragment if encoded else plain


def make_pages(key: str, definitions: list[dict[str, Any]]) -> list[Page]:
    """Split a list into pages and encode them."""
    starts = range(0, len(definitions), SIZE) or range(1)
    pages = []
    for number, start in enumerate(starts):
        page: dict[str, Any] = {key: definitions[start : start + SIZE]}
        if start + SIZE < len(definitions):
            page["nextCursor"] = str(number + 1)
        pages.append(make_page(page))
    return pages


def make_page(page: dict[str, Any]) -> Page:
    """Encode a page. Works for any text and any number."""
    try:
        return page, orjson.Fragment(orjson.dumps(page))
    except TypeError:  # a string that is not valid UTF-8, or an integer over 64 bits
        clean, text = plain(page)
        return clean, orjson.Fragment(text.encode())
