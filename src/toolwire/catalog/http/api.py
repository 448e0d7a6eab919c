"""The API behind a catalogue: its connections, its list, and orders.

Sends an order once, unless it is certain that the first attempt was not charged. Owns the rule: **an order is sent
again only if it is certain that the previous attempt was not charged**, or if the API promises to charge once for
the same key. Decides nothing about money: returns what is known, as an `Answer`.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2

from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import (
    PASSING,
    REFUSAL_BYTES,
    Answer,
    Attempt,
    Progress,
    Unreadable,
    clean_headers,
    collect,
    describe_error,
    is_stream,
    is_success,
    judge,
    read_body,
    read_events,
)
from toolwire.catalog.http.connection import (
    CONNECT_TIMEOUT,
    Connections,
    Halted,
    OnSend,
    Order,
    Resolver,
    Retry,
    check_value,
    resolve,
)
from toolwire.catalog.http.fetch import ListReader
from toolwire.catalog.http.listing import Reading
from toolwire.catalog.http.requests import OutgoingRequest, order_request
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.secrets import Credentials
from toolwire.catalog.tools.definitions import Entry
from toolwire.errors import CatalogError

_log = logger_for("catalog.http")


class Api:
    """A catalogue's API, as its profile describes it. An async context manager that owns the connections."""

    def __init__(
        self,
        profile: Profile,
        credentials: Credentials,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        resolver: Resolver = resolve,
        ssl_context: ssl.SSLContext | None = None,
        retry: Retry | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        workers: Workers | None = None,
    ) -> None:
        self._profile = profile
        self._scrubber = Scrubber(credentials.values)
        self._retry = retry or Retry()
        self._workers = workers or Workers(2)
        self._connections = Connections(
            profile.base_url,
            credentials,
            profile.network,
            resolver=resolver,
            connect_timeout=connect_timeout,
            transport=transport,
            ssl_context=ssl_context,
        )
        self._reader = ListReader(profile, self._connections, self._scrubber, self._retry, self._workers)

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

    async def entries(self) -> Sequence[Entry]:
        """Return all entries, from all pages; the same object if nothing has changed.

        CatalogError if the list cannot be read.
        """
        return await self._reader.entries()

    async def read_list(self, most_pages: int | None = None) -> Reading:
        """Read the list, or only its first pages, and return the whole reading. For checking a profile."""
        return await self._reader.read(most_pages)

    async def balance(self) -> int:
        """Return the balance in micro-dollars. CatalogError if the profile has no such request, or it fails."""
        return await self._reader.balance()

    async def buy(
        self,
        entry_id: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        timeout: float | None = None,  # noqa: ASYNC109 - a timeout is part of the answer
        on_progress: Progress | None = None,
        on_send: OnSend | None = None,
        attempt: Attempt | None = None,
    ) -> Answer:
        """Buy once. Failures are returned as answers; only cancellations and exceptions of `on_send` are raised.

        If `on_send` refuses a retry after an attempt whose outcome is unknown, that is not raised: the answer stays
        unknown.

        `on_send` is awaited each time before the first byte is sent, on an open connection: it books the order.
        `timeout` is the number of seconds that the API has from then on, retries included. `attempt` can be read at
        any time, in particular after a cancellation.
        """
        attempt = Attempt() if attempt is None else attempt
        call = self._profile.call
        limit = timeout or call.timeouts.get(entry_id) or call.timeout
        check_value("the key of the call", key)
        try:
            number = self._reader.numbers.get(entry_id, entry_id)
            request = order_request(self._profile, number, arguments, key)
        except CatalogError as error:
            return Answer("not_sent", error=str(error))
        with anyio.CancelScope() as scope:
            time = _ApiTime(scope, limit)

            async def book() -> None:
                if on_send is not None:
                    await on_send()
                time.start()

            order = Order(request.content, attempt, book)
            return await self._try_repeatedly(request, order, time, on_progress)
        if attempt.answer is not None and not attempt.sent:
            return attempt.answer  # it was refused, and the time ran out while waiting for the next attempt
        attempt.answer = Answer(_state(attempt), error=f"there was no response within {limit:g} s")
        return attempt.answer

    async def _try_repeatedly(
        self, request: OutgoingRequest, order: Order, time: "_ApiTime", on_progress: Progress | None
    ) -> Answer:
        """Send the order until there is a final answer, or until a retry would not be safe."""
        attempt, doubt = order.attempt, False
        while True:
            attempt.tries += 1
            order.ready = False
            try:
                answer = await self._try(request, order, time, on_progress)
            except Halted as halted:
                if not doubt or attempt.answer is None or not isinstance(halted.error, CatalogError):
                    raise halted.error from None
                lost = attempt.answer  # refusing the retry says nothing about the order that was sent
                attempt.answer = replace(lost, error=f"{lost.error}; it was not sent again: {halted.error}")
                return attempt.answer
            if doubt and not answer.ok:
                answer = replace(answer, state="unknown")  # because an earlier attempt may have been bought
            doubt = answer.state == "unknown"
            attempt.sent, attempt.answer = doubt or answer.ok, answer
            if attempt.tries >= self._retry.attempts or not self._may_repeat(answer):
                return answer
            pause = self._retry.pause(attempt.tries, answer.retry_after)
            if anyio.current_time() + pause >= time.ends:
                return answer
            time.resume()
            await anyio.sleep(pause)

    def _may_repeat(self, answer: Answer) -> bool:
        """Return whether an order may be sent again. Not done with `stamina`, which a global switch can disable."""
        call = self._profile.call
        if answer.state == "unknown":
            passing = PASSING | call.retry_statuses
            return call.idempotent and (answer.status is None or answer.status in passing)
        # A refusal that is "answered" has a status for which the API does not charge.
        return answer.state == "not_sent" or answer.status in call.retry_statuses

    async def _try(
        self, request: OutgoingRequest, order: Order, time: "_ApiTime", on_progress: Progress | None
    ) -> Answer:
        opening = self._connections.open(request, time.limit, order)
        status = None
        try:
            async with opening as response:
                status = response.status_code
                return await self._read(response, time, on_progress)
        except Halted:
            raise
        except Exception as error:  # noqa: BLE001 - whatever failed, it only matters whether the order may have been sent
            if not isinstance(error, (httpx2.HTTPError, OSError, CatalogError)):
                _log.error("A purchase failed unexpectedly: %s", describe_error(error, self._scrubber.text))
            # A complete reply that cannot be used would not be better after a retry: its status is kept.
            return Answer(
                _state(order.attempt),
                status if isinstance(error, Unreadable) else None,
                error=describe_error(error, self._scrubber.text),
            )

    async def _read(
        self, response: httpx2.Response, time: "_ApiTime", on_progress: Progress | None
    ) -> Answer:
        call, status = self._profile.call, response.status_code
        good = is_success(status)
        headers = clean_headers(response.headers, self._scrubber)
        if good and is_stream(response):
            events = await read_events(response, call.max_reply_bytes, on_progress, self._scrubber.text)
            return Answer("answered", status, events, headers=headers)
        most = call.max_reply_bytes if good else REFUSAL_BYTES
        content = await collect(response, most, lenient=not good)
        time.stop()
        kind = self._profile.reply.kind if good else "json"
        body = await read_body(headers, content, self._scrubber, self._workers, kind)
        answer = judge(status, headers, content, body, call.uncharged_statuses)
        return replace(answer, size=len(content))


class _ApiTime:
    """The time that the API has for an order: from its first byte to the last byte of the reply, retries included.

    Our own work before and after does not count: a complete reply is not discarded while it is being decoded.
    """

    def __init__(self, scope: anyio.CancelScope, limit: float) -> None:
        self.limit = limit
        self.ends = inf
        self._scope = scope

    def start(self) -> None:
        """Start the clock, or resume it for a retry: the order is sent now."""
        if self.ends == inf:
            self.ends = anyio.current_time() + self.limit
        self.resume()

    def resume(self) -> None:
        """Run the clock: the next step must end in time."""
        self._scope.deadline = self.ends

    def stop(self) -> None:
        """Stop the clock: the reply is complete."""
        self._scope.deadline = inf


def _state(attempt: Attempt) -> Any:
    return "unknown" if attempt.sent else "not_sent"
