"""Reads the pages of a list: the entries on them, and where the next page is.

Pure: it sees decoded pages, never the network. Normally the API says whether another page follows. If numbered
pages do not say it, the next page is requested on a guess, until a page has nothing new: a page that is not full
need not be the last one. Whatever the API says, a list that repeats itself ends.

A path of the profile that does not exist in the list is always reported: see `problems`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire.catalog.hidden_text import remove_hidden
from toolwire.catalog.http.requests import Position, next_link
from toolwire.catalog.profile.extract import quote_value, read_item
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.values import convert, get_path, has_path, is_denied, is_true
from toolwire.errors import CatalogError

_log = logger_for("catalog.listing")

_MAX_PAGES_WITHOUT_NEW: Final = 3  # in a row
_LONGEST_ID: Final = 18  # digits: more may not fit into 64 bits
_LONGEST_CURSOR: Final = 8_000
_LONGEST_ERROR: Final = 300
_LONGEST_LINKS: Final = 16_000
_PARAMETERS: Final = re.compile(r';\s*([\w*-]+)(?:\s*=\s*("[^"]*"|[^\s",;]+))?', re.ASCII)
_LINK: Final = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+(?:\s*=\s*(?:"[^"]*"|[^\s",;]+))?)*)', re.ASCII)
# Fields with which APIs announce another page. They show that a list continues although the profile has no paging.
_SIGNS: Final = (
    *("has_more", "has_next", "has_next_page", "hasMore", "hasNext", "next", "next_page", "next_cursor"),
    *("nextCursor", "next_page_token", "nextPageToken", "next_url", "nextToken"),
)
_SIGN_TABLES: Final = (
    *("", "meta.", "details.", "pagination.", "paging.", "page.", "links.", "data.", "page_info."),
)
_REASONS: Final = (
    *("message", "msg", "detail", "reason", "error_message", "error_description", "status_message"),
)
_TOTALS: Final = ("total", "total_items", "total_count", "totalCount", "count", "total_qualified_tools")
_OUTLINE_DEPTH: Final = 3
_OUTLINE_FIELDS: Final = 14
_LONGEST_NAME: Final = 40


@dataclass(frozen=True)
class Problem:
    """A setting of the profile that does not match the list."""

    text: str
    essential: bool = False
    """True if entries or their prices are lost because of it."""
    example: str = ""
    """The value that was read, for `toolwire catalog check`. It may contain anything, so it is not logged."""


class Reading:
    """A list that is being read: the entries so far, and the position of the next page."""

    def __init__(self, profile: Profile) -> None:
        paging = profile.list.paging
        numbered = paging.kind in ("page", "offset")
        self.position: Position | None = Position(1, paging.start if numbered else None)
        """The page to request next; None at the end."""
        self.guessed = False
        """True if the API did not say that there is another page."""
        self.items = 0
        """The number of items on the pages."""
        self.without_id = 0
        self.unreadable_prices = 0
        """The number of entries with a price that is not an amount."""
        self.unreadable_price: Any = None
        """The first such price."""
        self.found: dict[str, int] = {}
        """Setting of `[entry]` -> the number of items in which its path exists."""
        self.numbers: dict[str, int] = {}
        """The ids that the API writes as numbers, by their text."""
        self.first_item: Any = None
        self.first_page: Any = None
        self._profile = profile
        self._entries: dict[str, list[Entry]] = {}
        self._last_ids: list[str] = []
        self._cursors: set[str] = set()
        self._pages_without_new = self._pages = self._pages_with_more = self._pages_with_cursor = 0
        self._more_signs = ""
        self._first_page_items = 0
        self._ended_early = True  # until a page after the first has something new
        self._page_2_repeats = False

    @property
    def entries(self) -> list[Entry]:
        """All entries so far, in the order of the list."""
        return [entry for same in self._entries.values() for entry in same]

    def take(self, page: Any, headers: Mapping[str, str] | None = None, target: str = "") -> None:
        """Add a page and set `position` to the next one. CatalogError if it is not a page.

        `headers` are those of the reply, with lower-case names; `target` is that of the request.
        """
        position = self.position
        if position is None:
            raise AssertionError("the list has ended")
        self._pages += 1
        items = self._items_of(page, position.number)
        if self._pages == 1:
            self.first_page = page
            self._first_page_items = len(items)
            self._more_signs = describe_signs_of_more(page, len(items), headers or {})
        before = len(self._entries)
        ids = self._add(items)
        fresh = len(self._entries) > before
        self._pages_without_new = 0 if fresh else self._pages_without_new + 1
        if self._pages > 1 and fresh:
            self._ended_early = False
        repeated = bool(ids) and ids == self._last_ids
        self._page_2_repeats |= repeated and self._pages == 2  # noqa: PLR2004 - the second page
        self._last_ids = ids
        self.position = self._next(page, items, headers or {}, target, position)
        if self.position is None:
            return
        if self.guessed and (not items or (ids and not fresh)):
            self.position = None
        elif repeated or self._pages_without_new >= _MAX_PAGES_WITHOUT_NEW:
            _log.warning("Page %d of the list has nothing new, so the list ends there", position.number)
            self.position = None

    def end(self) -> None:
        """End the list: the API says there is no such page."""
        self.position = None

    # The next page.

    def _next(
        self, page: Any, items: list[Any], headers: Mapping[str, str], target: str, position: Position
    ) -> Position | None:
        paging = self._profile.list.paging
        number = position.number + 1
        if paging.kind == "cursor":
            return self._next_cursor(page, number)
        if paging.kind == "link":
            found = get_path(page, paging.cursor) if paging.cursor else find_next_link(headers)
            self._pages_with_cursor += bool(paging.cursor) and has_path(page, paging.cursor)
            if not isinstance(found, str) or not found.strip():
                return None
            link = next_link(self._profile, found, target)
            return Position(number, target=link) if self._is_new(link, number) else None
        if paging.kind == "none" or not isinstance(position.value, int):
            return None
        says_more = self._says_more(page, len(items), position.value)
        if says_more is False:
            return None
        self.guessed = says_more is None
        step = 1 if paging.kind == "page" else len(items) or paging.size
        return Position(number, position.value + step)

    def _says_more(self, page: Any, count: int, value: int) -> bool | None:
        """Return whether the API says that another page follows; None if it does not say."""
        paging = self._profile.list.paging
        if (flag := self._flag(page)) is not None:
            return flag
        if paging.kind == "page":
            known, total = convert(get_path(page, paging.total_pages), ("integer",))
            if known:
                return bool(self._pages < total)
        known, total = convert(get_path(page, paging.total_items), ("integer",))
        if not known:
            return None
        return bool((self.items if paging.kind == "page" else value + count) < total)

    def _flag(self, page: Any) -> bool | None:
        """Read the profile's flag for another page; None if the page has no such flag."""
        path = self._profile.list.paging.more
        if not has_path(page, path):
            return None
        self._pages_with_more += 1
        return is_true(get_path(page, path))

    def _next_cursor(self, page: Any, number: int) -> Position | None:
        cursor = get_path(page, self._profile.list.paging.cursor)
        self._pages_with_cursor += cursor is not None
        if self._flag(page) is False or cursor is None or cursor is False or cursor == "":
            return None
        if (
            isinstance(cursor, bool)
            or not isinstance(cursor, (str, int))
            or len(str(cursor)) > _LONGEST_CURSOR
        ):
            path = self._profile.list.paging.cursor
            raise CatalogError(
                f"page {number - 1} of the list has a value at {path!r} that is not a cursor "
                f"({type(cursor).__name__}): check list.paging.cursor in the profile"
            )
        return Position(number, cursor) if self._is_new(str(cursor), number) else None

    def _is_new(self, place: str, number: int) -> bool:
        if place in self._cursors:
            _log.warning(
                "Page %d of the list leads back to an earlier one, so the list ends there", number - 1
            )
            return False
        self._cursors.add(place)
        return True

    # The items of a page.

    def _items_of(self, page: Any, number: int) -> list[Any]:
        path = self._profile.list.items
        items = get_path(page, path) if path else page
        error = page.get("error") if isinstance(page, dict) else None
        # A page that was only guessed may be refused with an error: that is the end of the list, not a failure.
        failed = isinstance(page, dict) and is_denied(page.get("success"))
        if failed or (error and not items and not self.guessed):
            reason = get_path(page, self._profile.reply.error) or error or "no reason given"
            raise CatalogError(f"the API could not return the list: {str(reason)[:_LONGEST_ERROR]}")
        if items is None and self.guessed:
            return []
        if not isinstance(items, list):
            has = f"the page {'has' if isinstance(page, dict) else 'is a'} {outline(page)}"
            reason = self._reason_of(page)
            message = f", and says {reason[:_LONGEST_ERROR]!r}" if reason else ""
            raise CatalogError(
                f"page {number} has no list at {path!r}: {has}{message}. Check list.items in the profile"
            )
        return items

    def _reason_of(self, page: Any) -> str:
        """Find the reason that a page without a list gives; "" if it gives none."""
        for path in (self._profile.reply.error, *_REASONS):
            if isinstance(reason := get_path(page, path), str) and reason:
                return reason
        return ""

    def _add(self, items: list[Any]) -> list[str]:
        """Add the items of a page, and return the ids of those that have one."""
        paths, ids = self._profile.entry, []
        for item in items:
            if self.items == 0:
                self.first_item = item
            self.items += 1
            read = read_item(paths, item)
            for setting in read.found:
                self.found[setting] = self.found.get(setting, 0) + 1
            if read.unreadable_prices:
                if not self.unreadable_prices:
                    self.unreadable_price = read.unreadable_prices[0]
                self.unreadable_prices += 1
            entry = read.entry
            if entry is None:
                self.without_id += 1
                continue
            ids.append(entry.id)
            identity = get_path(item, paths.id)
            if isinstance(identity, int) and len(entry.id) <= _LONGEST_ID:
                self.numbers[entry.id] = identity
            # All entries with the same id are kept: `define` decides which one to use.
            same = self._entries.setdefault(entry.id, [])
            if not _is_among(entry, same):
                same.append(entry)
        return ids

    # Problems.

    def problems(self) -> Iterator[Problem]:
        """Yield everything that looks wrong, one sentence each."""
        profile = self._profile
        if self.without_id and self.without_id == self.items:
            has = outline(self.first_item)
            path = profile.entry.id
            text = (
                f"none of the {self.items} items has an id at entry.id = {path!r}: the first item has {has}"
            )
            yield Problem(text, essential=True)
        elif self.without_id:
            yield Problem(
                f"{self.without_id} entries of the list have no {profile.entry.id} and are left out"
            )
        for text in self._missing_settings():
            yield Problem(text)
        if self.unreadable_prices:
            price = profile.entry.price
            place = " or ".join(filter(None, (price.path, price.by_value)))
            text = (
                f"{self.unreadable_prices} entries of the list have a price at {place} that cannot be read as "
                f"{_describe_unit(profile)}, so it counts as unknown"
            )
            yield Problem(text, essential=True, example=quote_value(self.unreadable_price))
        for text in self.paging_problems():
            yield Problem(text)

    def paging_problems(self) -> Iterator[str]:
        """Yield everything that looks wrong in the paging, one sentence each."""
        paging = self._profile.list.paging
        if not self._pages:
            return
        page = self.first_page
        has = f"it has {outline(page)}" if isinstance(page, dict) else "it has no fields"
        ended_early = self.position is None and self._ended_early and bool(self._more_signs)
        if paging.more and not self._pages_with_more:
            yield f"list.paging.more = {paging.more!r} is not in the first page: {has}"
        if paging.cursor and not self._pages_with_cursor and ended_early:
            yield f"list.paging.cursor = {paging.cursor!r} is not in the first page: {has}"
        for name in ("total_pages", "total_items"):
            path = getattr(paging, name)
            if name not in paging.model_fields_set or not path or self._pages_with_more:
                continue
            if not has_path(page, path):
                yield f"list.paging.{name} = {path!r} is not in the first page: {has}"
            elif not convert(get_path(page, path), ("integer",))[0]:
                found = quote_value(get_path(page, path))
                yield f"list.paging.{name} = {path!r} is {found}, which is not a number: {has}"
        if ended_early:
            why = (
                "set list.paging" if paging.kind == "none" else f"check list.paging (kind = {paging.kind!r})"
            )
            signs = f"the list seems to continue ({self._more_signs})"
            yield f"{signs}, but only its first {self._first_page_items} items are read: {why}"
        elif self._page_2_repeats:
            how = "" if paging.kind == "link" else f", parameter = {paging.parameter_name!r}"
            yield (
                f"page 2 of the list is the same as page 1: if there are more than these {self._first_page_items} "
                f"items, check list.paging (kind = {paging.kind!r}{how})"
            )

    def _missing_settings(self) -> Iterator[str]:
        """Yield the paths of `[entry]` that exist in no item. Defaults are not reported, except for the schema."""
        paths = self._profile.entry
        if not self.items or self.without_id == self.items:
            return
        settings = {
            "name": paths.name if "name" in paths.model_fields_set else "",
            "description": paths.description if "description" in paths.model_fields_set else "",
            "schema": paths.schema_,
            "category": paths.category,
            "price": paths.price.path,
            "price.by_value": paths.price.by_value,
            # With a unit in the profile, items need not name theirs.
            "price.unit_path": "" if "unit" in paths.price.model_fields_set else paths.price.unit_path,
        }
        for setting, path in settings.items():
            if path and setting not in self.found and not self._is_optional(setting):
                shown = "price.path" if setting == "price" else setting
                yield f"entry.{shown} = {path!r} is in no item: the first item has {outline(self.first_item)}"

    def _is_optional(self, setting: str) -> bool:
        """True if a path may be missing: one of two price paths if the other exists, or a guessed category."""
        if setting == "category":
            return "|" in self._profile.entry.category
        other = {"price": "price.by_value", "price.by_value": "price"}.get(setting)
        return other is not None and other in self.found


def find_next_link(headers: Mapping[str, str]) -> str | None:
    """Find the link with `rel="next"` in a reply's `Link` header."""
    for link in _LINK.finditer(headers.get("link", "")[:_LONGEST_LINKS]):
        for name, value in _PARAMETERS.findall(link[2]):
            if name.lower() == "rel" and "next" in value.strip('"').lower().split():
                return link[1]
    return None


def describe_signs_of_more(page: Any, count: int, headers: Mapping[str, str]) -> str:
    """Describe the sign on a page that the list continues after its `count` items; "" if there is none."""
    if find_next_link(headers):
        return 'a Link header with rel="next"'
    if not isinstance(page, dict):
        return ""
    for table in _SIGN_TABLES:
        for name in _SIGNS:
            value = get_path(page, table + name)
            if value is not None and not isinstance(value, (dict, list)) and is_true(value):
                return f"{table}{name} is {repr(value[:60]) if isinstance(value, str) else value}"
        for name in _TOTALS:
            value = get_path(page, table + name)
            if type(value) is int and value > count > 0:
                return f"{table}{name} is {value}"
    return ""


def _describe_unit(profile: Profile) -> str:
    price = profile.entry.price
    if price.units:
        return f"{price.unit} or {', '.join(price.units)}"
    return price.unit if isinstance(price.unit, str) else f"units of ${price.unit:g}"


def _is_among(entry: Entry, others: list[Entry]) -> bool:
    try:
        return entry in others
    except RecursionError:  # too deep to be compared; it cannot become a tool either
        return True


def outline(data: Any, most: int = _OUTLINE_FIELDS) -> str:
    """List the dotted paths in an object, in one line: `id, pricing.cents, tags (list of 3)`."""
    if not isinstance(data, Mapping):
        return _kind(data)
    found: list[str] = []
    for path in _paths(data, 0):
        if len(found) == most:
            return f"{', '.join(found)}, ..."
        found.append(path)
    return ", ".join(found) or "nothing"


def _paths(data: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for key, value in data.items():
        name = " ".join(remove_hidden(str(key)).split())[:_LONGEST_NAME]  # one line of a log
        if isinstance(value, Mapping) and value and depth + 1 < _OUTLINE_DEPTH and not _is_schema(value):
            yield from (f"{name}.{inner}" for inner in _paths(value, depth + 1))
        else:
            note = f" ({_kind(value)})" if isinstance(value, (list, Mapping)) or value is None else ""
            yield f"{name}{note}"


def _is_schema(value: Mapping[Any, Any]) -> bool:
    """True if a value looks like a JSON schema, which is shown as one value."""
    return "properties" in value or "type" in value


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {len(value)}"
    if isinstance(value, Mapping):
        return "object"
    return "null" if value is None else "text" if isinstance(value, str) else type(value).__name__
