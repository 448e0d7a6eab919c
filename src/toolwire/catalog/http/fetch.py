"""Fetching what is free: the list, page after page until its end, and the balance. What may pass is tried again."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx2
import stamina

from toolwire._log import logger_for
from toolwire.catalog.http.answers import decoded, is_success, refusal, said, seconds_of
from toolwire.catalog.http.connection import Connections
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.requests import OutgoingRequest, balance_request, page_request
from toolwire.catalog.http.retry import Retry
from toolwire.catalog.http.streams import collect
from toolwire.catalog.profile.amounts import read_balance
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.profile.tables import Request
from toolwire.catalog.secrets import Scrubber
from toolwire.catalog.tools.definitions import Entry
from toolwire.errors import CatalogError

_log = logger_for("catalog.http")
logging.getLogger("stamina").addHandler(
    logging.NullHandler()
)  # or its warnings would go to stderr by themselves

MOST_PAGES: Final = 1_000
MOST_LIST_BYTES: Final = 256 * 1024 * 1024
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_PAST_THE_END: Final = frozenset({400, 404, 416, 422})  # what APIs answer for a page that they do not have


class _Passing(CatalogError):  # noqa: N818 - what it is, not "error"
    """A failure that may be gone the next time."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class _Refused(CatalogError):  # noqa: N818 - what it is
    """A page that the API does not give."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


class ListReader:
    """Reads the list of one API."""

    def __init__(self, profile: Profile, connections: Connections, scrubber: Scrubber, retry: Retry) -> None:
        self.numbers: dict[str, int] = {}
        """The ids that the list has as numbers."""
        self._profile = profile
        self._connections = connections
        self._scrubber = scrubber
        self._retry = retry
        self._problems: set[str] = set()

    async def entries(self) -> list[Entry]:
        """Everything on offer, from all pages. CatalogError when that cannot be had."""
        reading = await self.read()
        self.numbers = reading.numbers
        problems = {problem.text for problem in reading.problems()}
        for problem in sorted(problems - self._problems):  # a list is read again and again: each is told once
            _log.warning("%s: %s", self._profile.name, problem)
        self._problems = problems
        return reading.entries

    async def read(self, most_pages: int | None = None) -> Reading:
        """Read the list to its end, or only some pages of it."""
        reading = Reading(self._profile)
        total = 0
        while (position := reading.position) is not None:
            if most_pages is not None and position.number > most_pages:
                return reading
            if position.number > MOST_PAGES:
                raise CatalogError(
                    f"the list does not end: {MOST_PAGES:,} pages were read. Check list.paging in the profile"
                )
            request = page_request(self._profile, position)
            try:
                what = f"page {position.number} of the list"
                page, headers, size = await self._fetch(request, self._profile.list, what)
            except _Refused as refused:
                if not reading.guessed or refused.status not in _PAST_THE_END:
                    raise
                reading.end()
                break
            total += size
            if total > MOST_LIST_BYTES:
                raise CatalogError(
                    f"the list is over {MOST_LIST_BYTES:,} bytes at page {position.number}: it was given up"
                )
            try:
                reading.take(page, headers, request.target)
            except CatalogError as error:  # it may quote a link as it came
                raise CatalogError(self._scrubber.text(str(error))) from None
        return reading

    async def balance(self) -> int:
        """The micro-dollars that are left, by the profile's `[balance]`. CatalogError if that cannot be told."""
        request, table = balance_request(self._profile), self._profile.balance
        if table is None:
            raise AssertionError("there is no request without the table")
        body, _, _ = await self._fetch(request, table, "the balance")
        return read_balance(body, table)

    async def _fetch(
        self, request: OutgoingRequest, table: Request, what: str
    ) -> tuple[Any, Mapping[str, str], int]:
        """The JSON, the headers and the size of a reply. Reading is free, so what may pass is tried again."""
        tries = 0

        def again(error: Exception) -> float | bool:
            return isinstance(error, _Passing) and self._retry.pause(tries, error.retry_after)

        async for attempt in stamina.retry_context(on=again, attempts=self._retry.attempts, timeout=None):
            with attempt:
                tries += 1
                return await self._fetch_once(request, table, what)
        raise AssertionError("the last attempt returns or raises")

    async def _fetch_once(
        self, request: OutgoingRequest, table: Request, what: str
    ) -> tuple[Any, Mapping[str, str], int]:
        try:
            with anyio.fail_after(table.timeout):
                async with self._connections.open(request, table.timeout) as response:
                    lenient = not is_success(response.status_code)
                    content = await collect(response, table.max_reply_bytes, lenient=lenient)
        except TimeoutError:
            raise _Passing(f"{what}: no answer within {table.timeout:g} s") from None
        except (httpx2.HTTPError, OSError) as error:
            raise _Passing(f"{what}: {said(error, self._scrubber.text)}") from error
        status, headers = response.status_code, self._clean(response.headers)
        body = self._scrubber.data(decoded(response.headers, content))
        if is_success(status):
            if body is None:
                raise _Passing(f"{what} is not JSON ({len(content):,} bytes). Check base_url")
            # The link as it came: our secrets may be in it, and are taken out by name (`page_request`).
            return body, {**headers, "link": response.headers.get("link", "")}, len(content)
        told = f"{what}: {refusal(status, headers, body)}"
        if status in _PASSING:
            raise _Passing(told, seconds_of(headers.get("retry-after")))
        raise _Refused(told, status)

    def _clean(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without secrets, their names in small letters: an API may echo ours in any of them."""
        return {name.lower(): self._scrubber.text(value) for name, value in headers.items()}
