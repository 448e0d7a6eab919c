"""Sends an order: once, unless it is certain that the first was not charged.

Owns the rule of sending: **an order is sent twice only if it is certain that the first was not charged**, or if the
API promises to charge once for the same key. It decides nothing about money: it says what is known, as an `Answer`.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

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
from toolwire.catalog.http.connection import Connections, Halted, OnSend, Order, Retry, check_value
from toolwire.catalog.http.requests import OutgoingRequest, order_request
from toolwire.catalog.profile.model import Profile
from toolwire.errors import CatalogError

_log = logger_for("catalog.http")


class OrderSender:
    """Sends the orders of one API."""

    def __init__(
        self, profile: Profile, connections: Connections, scrubber: Scrubber, retry: Retry, workers: Workers
    ) -> None:
        self._profile = profile
        self._connections = connections
        self._scrubber = scrubber
        self._retry = retry
        self._workers = workers

    async def buy(
        self,
        entry_id: str | int,
        arguments: Mapping[str, Any],
        *,
        key: str,
        timeout: float | None = None,  # noqa: ASYNC109 - how it ends is part of the answer
        on_progress: Progress | None = None,
        on_send: OnSend | None = None,
        attempt: Attempt | None = None,
    ) -> Answer:
        """Buy once. Failures are answers; only a cancellation, and what `on_send` raises, come out as exceptions.

        An order that may be out stays so when `on_send` refuses to have it repeated: that is an answer too.

        `on_send` is awaited each time before the first byte goes out, on an open connection: the place to book the
        order. `timeout` are the seconds that the API has from then on, repeats included. `attempt` can be read
        at any time, above all after a cancellation.
        """
        attempt = Attempt() if attempt is None else attempt
        call = self._profile.call
        limit = timeout or call.timeouts.get(str(entry_id)) or call.timeout
        check_value("the key of the call", key)
        try:
            request = order_request(self._profile, entry_id, arguments, key)
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
            return attempt.answer  # it was refused, and this is the wait before the next try
        attempt.answer = Answer(_state(attempt), error=f"there was no answer within {limit:g} s")
        return attempt.answer

    async def _try_repeatedly(
        self, request: OutgoingRequest, order: Order, time: "_ApiTime", on_progress: Progress | None
    ) -> Answer:
        """Try until there is an answer, or until it would not be safe to try again."""
        attempt, doubt = order.attempt, False
        while True:
            attempt.tries += 1
            order.begin_try()
            try:
                answer = await self._try(request, order, time, on_progress)
            except Halted as halted:
                if not doubt or attempt.answer is None or not isinstance(halted.error, CatalogError):
                    raise halted.error from None
                lost = attempt.answer  # refusing the repeat says nothing about the order that is out
                attempt.answer = replace(lost, error=f"{lost.error}; it was not repeated: {halted.error}")
                return attempt.answer
            if doubt and not answer.ok:
                answer = replace(answer, state="unknown")  # for an earlier one may have been bought
            doubt = answer.state == "unknown"
            attempt.sent, attempt.answer = doubt or answer.ok, answer
            pause = self._retry.pause(attempt.tries, answer.retry_after)
            late = anyio.current_time() + pause >= time.ends
            if late or attempt.tries >= self._retry.attempts or not self._may_repeat(answer):
                return answer
            time.resume()
            await anyio.sleep(pause)

    def _may_repeat(self, answer: Answer) -> bool:
        """Decide if an order may be repeated. Not by `stamina`: its global switch must not decide about money."""
        call = self._profile.call
        if answer.state == "unknown":
            passing = PASSING | call.retry_statuses
            return call.idempotent and (answer.status is None or answer.status in passing)
        # A refusal that is "answered" has a status on which the API does not charge.
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
        except Exception as error:  # noqa: BLE001 - whatever broke, what counts is whether the order may be out
            if not isinstance(error, (httpx2.HTTPError, OSError, CatalogError)):
                _log.error(
                    "A purchase broke in an unexpected way: %s", describe_error(error, self._scrubber.text)
                )
            # A reply that came whole and cannot be used will be no better when it is asked for again.
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
    """The time that the API has for an order: from its first byte to the last one of the reply, repeats included.

    What we do before and after is not its time: a reply that is there is not thrown away while it is read.
    """

    def __init__(self, scope: anyio.CancelScope, limit: float) -> None:
        self.limit = limit
        self.ends = inf
        self._scope = scope

    def start(self) -> None:
        """Start the clock: the order is sent now, for the first time or again."""
        if self.ends == inf:
            self.ends = anyio.current_time() + self.limit
        self.resume()

    def resume(self) -> None:
        """Run the clock: what comes next has to end in time."""
        self._scope.deadline = self.ends

    def stop(self) -> None:
        """Stop the clock: the reply is complete."""
        self._scope.deadline = inf


def _state(attempt: Attempt) -> Any:
    return "unknown" if attempt.sent else "not_sent"
