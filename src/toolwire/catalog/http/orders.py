"""Sending an order: once, unless it is certain that the first was not charged.

Owns the rule of sending: **an order is sent twice only if it is certain that the first was not charged**, or if the
API promises to charge once for the same key. It decides nothing about money: it says what is known, as an `Answer`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2

from toolwire._log import logger_for
from toolwire._wire.json_codec import dumps
from toolwire.catalog.http.answers import Answer, Attempt, decoded, is_success, judge, said
from toolwire.catalog.http.connection import Connections, Halted, OnSend, Order, check_value
from toolwire.catalog.http.retry import Retry
from toolwire.catalog.http.streams import Progress, Unreadable, collect, follow, is_stream
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.secrets import Scrubber
from toolwire.errors import CatalogError

_log = logger_for("catalog.http")

_REFUSAL_BYTES: Final = 64 * 1024  # as much of an error's body as is worth reading
_BUSY: Final = frozenset({429, 503})
_PASSING: Final = _BUSY | {500, 502, 504}


class OrderSender:
    """Sends the orders of one API."""

    def __init__(self, profile: Profile, connections: Connections, scrubber: Scrubber, retry: Retry) -> None:
        self._profile = profile
        self._connections = connections
        self._scrubber = scrubber
        self._retry = retry

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

        `timeout` is for all of it, repeats included. `on_send` is awaited once, before the first byte goes out: the
        place to write that down. `attempt` can be read at any time, above all after a cancellation.
        """
        attempt = Attempt() if attempt is None else attempt
        limit = timeout or self._profile.timeouts.get(str(entry_id)) or self._profile.timeout
        check_value("the key of the call", key)
        try:
            content = self._content(entry_id, arguments, key)
        except (TypeError, ValueError) as error:
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

    def _content(self, entry_id: str | int, arguments: Mapping[str, Any], key: str) -> bytes:
        profile = self._profile
        identity = entry_id
        body = {**profile.extra_body, profile.id_field: identity, profile.arguments_field: dict(arguments)}
        if profile.request_id_field:
            body[profile.request_id_field] = key
        return dumps(body)


def _state(attempt: Attempt) -> Any:
    return "unknown" if attempt.sent else "not_sent"
