"""Fetches the list, page by page, and the balance. Both are free, so temporary failures are retried."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import anyio
import httpx2
import stamina

from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import (
    PASSING,
    clean_headers,
    collect,
    describe_body,
    describe_error,
    describe_status,
    is_success,
    parse_retry_after,
    read_body,
    run_off_loop,
)
from toolwire.catalog.http.connection import Connections, Retry
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.requests import OutgoingRequest, Position, balance_request, page_request
from toolwire.catalog.profile.extract import read_balance
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.profile.tables import Request
from toolwire.catalog.tools.definitions import Entry
from toolwire.errors import CatalogError

_log = logger_for("catalog.http")
logging.getLogger("stamina").addHandler(logging.NullHandler())  # otherwise its warnings go to stderr

MOST_PAGES: Final = 1_000
MOST_LIST_BYTES: Final = 256 * 1024 * 1024
_PAST_THE_END: Final = frozenset(
    {400, 404, 416, 422}
)  # statuses with which APIs refuse a page that does not exist


class _Temporary(CatalogError):  # noqa: N818 - an internal signal to retry
    """A failure that a retry may overcome."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class _Refused(CatalogError):  # noqa: N818 - may be the end of the list, not an error
    """The API refused the request with a status for which a retry does not help."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class _Page:
    """One page as received. `body` is its JSON; None for a page that has not changed, which is not decoded."""

    request: OutgoingRequest
    content: bytes
    headers: Mapping[str, str]
    digest: bytes
    body: Any = None


@dataclass(frozen=True)
class _Known:
    """A page of the list as it was read last time, and the position after it."""

    request: OutgoingRequest
    digest: bytes
    next: Position | None


class ListReader:
    """Reads the list of one API repeatedly. Pages that have not changed are not decoded again."""

    def __init__(
        self, profile: Profile, connections: Connections, scrubber: Scrubber, retry: Retry, workers: Workers
    ) -> None:
        self.numbers: dict[str, int] = {}
        """The ids that the list has as numbers, by their text."""
        self._profile = profile
        self._connections = connections
        self._scrubber = scrubber
        self._retry = retry
        self._workers = workers
        self._problems: set[str] = set()
        self._last: tuple[list[_Known], Reading] | None = None
        """The pages and the reading of the list that was last read to its end."""
        self._entries: Sequence[Entry] = ()

    async def entries(self) -> Sequence[Entry]:
        """Return all entries, from all pages; the same object as last time if nothing has changed."""
        before = self._last
        reading = await self.read()
        if before is not None and reading is before[1]:
            return self._entries
        self.numbers, self._entries = reading.numbers, reading.entries
        problems = {problem.text for problem in reading.problems()}
        for problem in sorted(problems - self._problems):  # each once, although the list is read repeatedly
            _log.warning("%s: %s", self._profile.name, problem)
        self._problems = problems
        return self._entries

    async def read(self, most_pages: int | None = None) -> Reading:
        """Read the list to its end, or only its first pages. CatalogError if it cannot be read."""
        reading = Reading(self._profile)
        known, unchanged = (self._last if most_pages is None else None) or ([], None)
        position, read, total = reading.position, list[_Known](), 0
        pending = list[_Page]()  # not added to the reading yet: unchanged pages need not be decoded
        while position is not None and (most_pages is None or position.number <= most_pages):
            if position.number > MOST_PAGES:
                raise CatalogError(
                    f"the list does not end: {MOST_PAGES:,} pages were read. Check list.paging in the profile"
                )
            request = page_request(self._profile, position)
            before = known[len(read)] if len(read) < len(known) else None
            expected = before.digest if before is not None and before.request == request else None
            try:
                what = f"page {position.number} of the list"
                page = await self._fetch(request, self._profile.list, what, expected)
            except _Refused as refused:
                await self._take(reading, pending)
                if not reading.guessed or refused.status not in _PAST_THE_END:
                    raise
                reading.end()
                break
            total += len(page.content)
            if total > MOST_LIST_BYTES:
                raise CatalogError(
                    f"the list is too large: over {MOST_LIST_BYTES:,} bytes at page {position.number}"
                )
            pending.append(page)
            if before is not None and page.body is None:
                position = before.next
            else:
                known = []
                await self._take(reading, pending)
                position = reading.position
            read.append(_Known(request, page.digest, position))
        if unchanged is not None and known and len(read) == len(known):
            return unchanged
        await self._take(reading, pending)
        if most_pages is None:
            self._last = read, reading
        return reading

    async def _take(self, reading: Reading, pages: list[_Page]) -> None:
        """Decode pages and add them to the reading, long ones in a thread. Empties `pages`."""
        for page in pages:
            body = page.body
            if body is None:
                body = await read_body(page.headers, page.content, self._scrubber, self._workers)
            take = partial(reading.take, body, page.headers, page.request.target)
            try:
                await run_off_loop(take, len(page.content), self._workers)
            except CatalogError as error:  # it may quote a link from the API, with our secrets
                raise CatalogError(self._scrubber.text(str(error))) from None
        pages.clear()

    async def balance(self) -> int:
        """Fetch the balance in micro-dollars, by the profile's `[balance]`. CatalogError if it cannot be read."""
        request, table = balance_request(self._profile), self._profile.balance
        if table is None:
            raise AssertionError("balance_request raises if there is no [balance]")
        return read_balance((await self._fetch(request, table, "the balance")).body, table)

    async def _fetch(
        self, request: OutgoingRequest, table: Request, what: str, expected: bytes | None = None
    ) -> _Page:
        """Fetch JSON, with retries for temporary failures. A body with the expected digest is not decoded."""
        tries = 0

        def retry_pause(error: Exception) -> float | bool:
            return isinstance(error, _Temporary) and self._retry.pause(tries, error.retry_after)

        async for attempt in stamina.retry_context(
            on=retry_pause, attempts=self._retry.attempts, timeout=None
        ):
            with attempt:
                tries += 1
                return await self._fetch_once(request, table, what, expected)
        raise AssertionError("the last attempt returns or raises")

    async def _fetch_once(
        self, request: OutgoingRequest, table: Request, what: str, expected: bytes | None
    ) -> _Page:
        try:
            with anyio.fail_after(table.timeout):
                async with self._connections.open(request, table.timeout) as response:
                    lenient = not is_success(response.status_code)
                    content = await collect(response, table.max_reply_bytes, lenient=lenient)
        except TimeoutError:
            raise _Temporary(f"{what}: no response within {table.timeout:g} s") from None
        except (httpx2.HTTPError, OSError) as error:
            raise _Temporary(f"{what}: {describe_error(error, self._scrubber.text)}") from error
        status, headers = response.status_code, clean_headers(response.headers, self._scrubber)
        # The link is not scrubbed: `page_request` removes the parameters with our secrets by name.
        link = response.headers.get("link", "")
        digest = hashlib.sha256(content + b"\0" + link.encode()).digest()
        page = _Page(request, content, {**headers, "link": link}, digest)
        if is_success(status) and digest == expected:
            return page
        body = await read_body(headers, content, self._scrubber, self._workers)
        if is_success(status):
            if body is None:
                received = describe_body(headers, content)
                raise _Temporary(f"{what} is not JSON ({received}). Check base_url and the path")
            return replace(page, body=body)
        message = f"{what}: {describe_status(status, headers, body)}"
        if status in PASSING:
            raise _Temporary(message, parse_retry_after(headers.get("retry-after")))
        raise _Refused(message, status)
