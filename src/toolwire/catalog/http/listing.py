"""Reading the pages of a list: what is on them, and whether another one follows.

Pure: it sees decoded pages, never the network. A page follows where the API says so. Where it does not say, the
next one is only guessed, and the list goes on until a page has nothing new: an API may give less than it was asked
for.
"""

from typing import Any, Final

from toolwire._log import logger_for
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.values import at, converted, denied, leads, truth
from toolwire.errors import CatalogError

_log = logger_for("catalog.listing")

_TOTALS: Final = "details.total_pages|total_pages"
_MOST_BARREN: Final = 3  # pages in a row without anything new
_LONGEST_ID: Final = 18  # digits: more may not fit into 64 bits


class Reading:
    """What was read of a list so far."""

    def __init__(self, profile: Profile) -> None:
        self.guessed = False
        """Whether the API did not say that there is another page."""
        self.nameless = 0
        self.unpriced = 0
        """How many entries have a price that is no amount of dollars."""
        self.numbers: dict[str, int] = {}
        """The ids that are numbers."""
        self._profile = profile
        self._found: dict[str, list[Entry]] = {}
        self._last: list[str] = []
        self._barren = self._pages = 0

    @property
    def entries(self) -> list[Entry]:
        """All of them, in the order in which they came."""
        return [entry for same in self._found.values() for entry in same]

    def take(self, page: Any, number: int) -> bool:
        """Add a page. Whether to ask for the next. CatalogError for what is no page."""
        self._pages += 1
        items = self._items(page, number)
        before = len(self._found)
        ids = self._add(items)
        fresh = len(self._found) > before
        self._barren = 0 if fresh else self._barren + 1
        repeated = bool(ids) and ids == self._last
        self._last = ids
        said = self._said(page)
        if said is False or not self._profile.list_params.page:
            return False
        self.guessed = said is None
        if self.guessed and (not items or (ids and not fresh)):
            return False
        if repeated or self._barren >= _MOST_BARREN:
            _log.warning("Page %d of the list has nothing new, so the list ends there", number)
            return False
        return True

    def _items(self, page: Any, number: int) -> list[Any]:
        path = self._profile.items
        items = at(page, path) if path else page
        error = page.get("error") if isinstance(page, dict) else None
        # A page that was only guessed may be refused with words: that is the end, not a failure of the list.
        failed = isinstance(page, dict) and denied(page.get("success"))
        if failed or (error and not items and not self.guessed):
            raise CatalogError(f"the API could not list: {str(error or 'it gives no reason')[:300]}")
        if items is None and self.guessed:
            return []
        if not isinstance(items, list):
            raise CatalogError(f"page {number} has no list at {path!r}. Check items in the profile")
        return items

    def _said(self, page: Any) -> bool | None:
        """Whether the API says that another page follows; None when it does not say."""
        more = self._profile.more
        if leads(page, more):
            return truth(at(page, more))
        known, total = converted(at(page, _TOTALS), ("integer",))
        return self._pages < total if known else None

    def _add(self, items: list[Any]) -> list[str]:
        """The ids of the items that have one."""
        profile, ids = self._profile, []
        for item in items:
            entry = profile.entry(item)
            if entry is None:
                self.nameless += 1
                continue
            ids.append(entry.id)
            identity = at(item, profile.id)
            if isinstance(identity, int) and len(entry.id) <= _LONGEST_ID:
                self.numbers[entry.id] = identity
            if entry.price is None and at(item, profile.price) is not None:
                self.unpriced += 1
            # An id that comes twice, too: `define` knows which of them to take.
            same = self._found.setdefault(entry.id, [])
            if not _among(entry, same):
                same.append(entry)
        return ids


def _among(entry: Entry, others: list[Entry]) -> bool:
    try:
        return entry in others
    except RecursionError:  # too deep to be compared, and to be a tool
        return True
