"""Fetching the list: page after page until its end. Reading is free, so what may pass is tried again."""

import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import httpx2
import stamina

from toolwire._log import logger_for
from toolwire.catalog.http.answers import decoded, is_success, refusal, said, seconds_of
from toolwire.catalog.http.connection import Connections
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.retry import Retry
from toolwire.catalog.http.streams import collect
from toolwire.catalog.profile.model import Profile
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
        self._told = False

    async def entries(self) -> list[Entry]:
        """Everything on offer, from all pages. CatalogError when that cannot be had."""
        first = self._profile.list_params.first_page
        reading = Reading(self._profile)
        total = 0
        for number in range(first, first + MOST_PAGES):
            try:
                page, size = await self._page(number)
            except _Refused as refused:
                if not reading.guessed or refused.status not in _PAST_THE_END:
                    raise
                return self._ended(reading)
            total += size
            if total > MOST_LIST_BYTES:
                raise CatalogError(
                    f"the list is over {MOST_LIST_BYTES:,} bytes at page {number}: it was given up"
                )
            if not reading.take(page, number):
                return self._ended(reading)
        raise CatalogError(
            f"the list does not end: {MOST_PAGES:,} pages were read. Check list_params in the profile"
        )

    def _ended(self, reading: Reading) -> list[Entry]:
        """What was read, when that is all."""
        self.numbers = reading.numbers
        if reading.nameless:
            _log.warning(
                "%d entries of the list have no %s and were left out", reading.nameless, self._profile.id
            )
        if reading.unpriced and not self._told:
            self._told = True
            _log.warning(
                "%d entries of the list have a price at %s that cannot be read as dollars, so it counts as unknown",
                reading.unpriced,
                self._profile.price,
            )
        return reading.entries

    async def _page(self, number: int) -> tuple[Any, int]:
        """One page and its size. Reading is free, so what may pass is tried again."""
        tries = 0

        def again(error: Exception) -> float | bool:
            return isinstance(error, _Passing) and self._retry.pause(tries, error.retry_after)

        async for attempt in stamina.retry_context(on=again, attempts=self._retry.attempts, timeout=None):
            with attempt:
                tries += 1
                return await self._page_once(number)
        raise AssertionError("the last attempt returns or raises")

    async def _page_once(self, number: int) -> tuple[Any, int]:
        profile, params = self._profile, self._profile.list_params
        pairs = {params.page: number, params.size: params.page_size}
        path = f"{profile.list_path}?{urlencode({name: value for name, value in pairs.items() if name})}"
        accept = {"Accept": "application/json"}
        try:
            with anyio.fail_after(profile.timeout):
                async with self._connections.open("GET", path, accept, profile.timeout) as response:
                    lenient = not is_success(response.status_code)
                    content = await collect(response, profile.max_reply_bytes, lenient=lenient)
        except TimeoutError:
            raise _Passing(f"page {number} of the list: no answer within {profile.timeout:g} s") from None
        except (httpx2.HTTPError, OSError) as error:
            raise _Passing(f"page {number} of the list: {said(error, self._scrubber.text)}") from error
        status, headers = response.status_code, self._clean(response.headers)
        body = self._scrubber.data(decoded(response.headers, content))
        if is_success(status):
            if body is None:
                raise _Passing(
                    f"page {number} of the list is not JSON ({len(content):,} bytes). Check base_url"
                )
            return body, len(content)
        told = f"page {number} of the list: {refusal(status, headers, body)}"
        if status in _PASSING:
            raise _Passing(told, seconds_of(headers.get("retry-after")))
        raise _Refused(told, status)

    def _clean(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without secrets, their names in small letters: an API may echo ours in any of them."""
        return {name.lower(): self._scrubber.text(value) for name, value in headers.items()}
