"""The API behind a catalogue: reading its list, and buying.

Owns the rule of sending: **an order is sent twice only if it is certain that the first was not charged**, or if the
API promises to charge once for the same key. It decides nothing about money: it says what is known, as an `Answer`.
"""

import logging
import random
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import anyio
import httpx2
import orjson
import stamina

from toolwire._log import logger_for
from toolwire.catalog.http.addresses import Resolver, resolve
from toolwire.catalog.http.answers import (
    Answer,
    Attempt,
    decoded,
    is_success,
    judge,
    refusal,
    said,
    seconds_of,
)
from toolwire.catalog.http.connection import Connections, Halted, OnSend, Order, check_value
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.streams import Progress, Unreadable, collect, follow, is_stream
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.secrets import Scrubber
from toolwire.catalog.tools.definitions import Entry
from toolwire.errors import CatalogError, UsageError

__all__ = ["Answer", "Api", "Attempt", "Retry"]

_log = logger_for("catalog.http")
logging.getLogger("stamina").addHandler(
    logging.NullHandler()
)  # or its warnings would go to stderr by themselves

CONNECT_TIMEOUT: Final = 10.0
MOST_PAGES: Final = 1_000
MOST_LIST_BYTES: Final = 256 * 1024 * 1024
_REFUSAL_BYTES: Final = 64 * 1024  # as much of an error's body as is worth reading
_BUSY: Final = frozenset({429, 503})
_PASSING: Final = _BUSY | {500, 502, 504}
_PAST_THE_END: Final = frozenset({400, 404, 416, 422})  # what APIs answer for a page that they do not have


@dataclass(frozen=True)
class Retry:
    """How often and how soon to try again what is safe to try again. Seconds."""

    attempts: int = 3
    wait: float = 0.2
    """Before the second attempt; doubled for each further one."""
    longest_wait: float = 5.0
    jitter: float = 0.2
    longest_retry_after: float = 30.0
    """However long the API asks us to wait."""

    def pause(self, tries: int, retry_after: float | None) -> float:
        """How long to wait after that many tries."""
        jitter = random.uniform(0, self.jitter)  # noqa: S311 - spreads callers, keeps no secret
        if retry_after is not None:
            return min(retry_after, self.longest_retry_after) + jitter
        return min(self.wait * 2.0 ** (tries - 1), self.longest_wait) + jitter


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


class Api:
    """A catalogue's API, as its profile describes it. An async context: it owns connections."""

    def __init__(
        self,
        profile: Profile,
        secrets: Mapping[str, str],
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        resolver: Resolver = resolve,
        ssl_context: ssl.SSLContext | None = None,
        retry: Retry | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        allowed = {header.lower() for header in profile.secrets}
        if strange := [header for header in secrets if header.lower() not in allowed]:
            raise UsageError(f"profile {profile.name} has no header {strange[0]!r} under `secrets`")
        self._profile = profile
        self._scrubber = Scrubber.of(profile, secrets)
        self._retry = retry or Retry()
        self._numbers: dict[str, int] = {}  # the ids that the list has as numbers
        self._told = False
        self._connections = Connections(
            profile.base_url,
            secrets,
            resolver=resolver,
            connect_timeout=connect_timeout,
            transport=transport,
            ssl_context=ssl_context,
        )

    async def __aenter__(self) -> Self:
        await self._connections.transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._connections.closed = True
        await self._connections.transport.__aexit__(kind, error, trace)

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
        self._numbers = reading.numbers
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

    async def buy(
        self,
        entry_id: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        timeout: float | None = None,  # noqa: ASYNC109 - how it ends is part of the answer
        on_progress: Progress | None = None,
        on_send: OnSend | None = None,
        attempt: Attempt | None = None,
    ) -> Answer:
        """Buy once. Failures are answers; only a cancellation, and what `on_send` raises, come out as exceptions.

        `timeout` is for all of it, repeats included. `on_send` is awaited once, before the first byte goes out: the
        place to write that down. `attempt` can be read at any time, above all after a cancellation.
        """
        attempt = Attempt() if attempt is None else attempt
        limit = timeout or self._profile.timeouts.get(entry_id) or self._profile.timeout
        check_value("the key of the call", key)
        try:
            content = self._content(entry_id, arguments, key)
        except TypeError as error:
            return Answer("not_sent", error=f"the arguments cannot be written as JSON: {error}")
        order = Order(content, attempt, on_send)
        with anyio.move_on_after(limit):
            return await self._series(order, key, limit, on_progress)
        if attempt.answer is not None and not attempt.sent:
            return attempt.answer  # it was refused, and this is the wait before the next try
        attempt.answer = Answer(_state(attempt), error=f"there was no answer within {limit:g} s")
        return attempt.answer

    async def _series(self, order: Order, key: str, limit: float, on_progress: Progress | None) -> Answer:
        """Try until there is an answer, or until it would not be safe to try again."""
        attempt, doubt = order.attempt, False
        ends = anyio.current_time() + limit
        while True:
            attempt.tries += 1
            answer = await self._try(order, key, limit, on_progress)
            if doubt and not answer.ok:
                answer = replace(answer, state="unknown")  # for an earlier one may have been bought
            doubt = answer.state == "unknown"
            attempt.sent, attempt.answer = doubt or answer.ok, answer
            pause = self._retry.pause(attempt.tries, answer.retry_after)
            late = anyio.current_time() + pause >= ends
            if late or attempt.tries >= self._retry.attempts or not self._may_repeat(answer):
                return answer
            await anyio.sleep(pause)

    def _may_repeat(self, answer: Answer) -> bool:
        """The rule. Not by `stamina`, whose global switches must not decide how often money is spent."""
        if answer.state == "unknown":
            return self._profile.idempotent and (answer.status is None or answer.status in _PASSING)
        # A refusal that is "answered" has a status on which the API does not charge.
        return answer.state == "not_sent" or answer.status in _BUSY

    async def _try(self, order: Order, key: str, limit: float, on_progress: Progress | None) -> Answer:
        profile = self._profile
        path = f"{profile.call_path}?stream=true" if profile.streams else profile.call_path
        accept = "text/event-stream, application/json" if profile.streams else "application/json"
        headers = {"Content-Type": "application/json", "Accept": accept}
        if profile.idempotency_header:
            headers[profile.idempotency_header] = key
        status = None
        try:
            async with self._connections.open(profile.call_method, path, headers, limit, order) as response:
                status = response.status_code
                if is_success(status) and is_stream(response):
                    return Answer(
                        "answered",
                        status,
                        await follow(response, profile.max_reply_bytes, on_progress, self._scrubber.text),
                    )
                lenient = not is_success(status)
                most = _REFUSAL_BYTES if lenient else profile.max_reply_bytes
                content = await collect(response, most, lenient=lenient)
                body = self._scrubber.data(decoded(response.headers, content))
                headers = self._clean(response.headers)
                return judge(status, headers, content, body, profile.uncharged_statuses)
        except Halted as halted:
            raise halted.error from None
        except Exception as error:  # noqa: BLE001 - whatever broke, what counts is whether the order may be out
            if not isinstance(error, (httpx2.HTTPError, OSError, CatalogError)):
                _log.error("A purchase broke in an unexpected way: %s", said(error, self._scrubber.text))
            # A reply that came whole and cannot be used will be no better when it is asked for again.
            return Answer(
                _state(order.attempt),
                status if isinstance(error, Unreadable) else None,
                error=said(error, self._scrubber.text),
            )

    def _clean(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without secrets, their names in small letters: an API may echo ours in any of them."""
        return {name.lower(): self._scrubber.text(value) for name, value in headers.items()}

    def _content(self, entry_id: str, arguments: Mapping[str, Any], key: str) -> bytes:
        profile = self._profile
        identity = self._numbers.get(entry_id, entry_id)
        body = {**profile.extra_body, profile.id_field: identity, profile.arguments_field: dict(arguments)}
        if profile.request_id_field:
            body[profile.request_id_field] = key
        return orjson.dumps(body)


def _state(attempt: Attempt) -> Any:
    return "unknown" if attempt.sent else "not_sent"
