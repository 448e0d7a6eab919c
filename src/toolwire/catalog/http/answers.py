"""Reads the reply to a request, up to a size limit, and decides what it means for a purchase.

Takes bytes and headers, and returns an `Answer`. A body is read as a whole, or as server-sent events with progress.
The rule: if a reply does not clearly say "bought" or "not bought", the outcome is unknown.
"""

import email.utils
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import httpx2

from toolwire._protocol.json_codec import loads
from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire._support.words import plain_line
from toolwire.errors import CatalogError

_JSON: Final = ("application/json", "text/json", "")
_LONGEST_REASON: Final = 300
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}")
_CHARSET: Final = re.compile(r';\s*charset="?([\w.:-]{1,40})"?', re.IGNORECASE | re.ASCII)
_log = logger_for("catalog.streams")

Progress = Callable[[str], object]
T = TypeVar("T")

PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Statuses of temporary failures, which a retry may overcome."""
REFUSAL_BYTES: Final = 64 * 1024
"""The number of bytes that are read of the body of an error."""
LARGE: Final = 64 * 1024
"""A body with more bytes is decoded in a thread."""

_LONGEST_PROGRESS: Final = 1_000
_NO_TEXT: Final = ("", "[DONE]", "{}", "null")
# Keys that make an object in `done` the reply, and those of them that only describe the result.
_ABOUT: Final = {"success", "error", "errors", "cost", "balance", "purchase_details", "purchase_result"}
_REPLY: Final = {"output", "result", "data", "response", *_ABOUT}


@dataclass(frozen=True)
class Answer:
    """The outcome of a purchase, as far as it is known from the API's reply.

    - `answered`: a success (2xx) with a readable body, or a refusal with a status for which the API does not charge
    - `not_sent`: no part of the order was sent, so nothing was bought
    - `unknown`: it may have been bought. `status` and `body` are set if there was a reply
    """

    state: Literal["answered", "not_sent", "unknown"]
    status: int | None = None
    """The status of a reply that was read to its end."""
    body: Any = field(default=None, repr=False)
    error: str | None = None
    """One sentence for users and models; None for a success. May quote the API: scrub it."""
    retry_after: float | None = None
    """The seconds in the `Retry-After` header."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers of the reply, without our secrets and with lower-case names."""
    size: int = 0
    """The length of the body in bytes."""

    @property
    def ok(self) -> bool:
        """True if the API accepted the order, whatever the body says."""
        return self.state == "answered" and self.error is None


@dataclass
class Attempt:
    """The state of a purchase in progress. May be read at any time, also after a cancellation."""

    sent: bool = False
    """True from just before the first byte is sent, until a reply proves that nothing was bought."""
    tries: int = 0
    answer: Answer | None = None
    """The last answer, if there was one."""


def judge(
    status: int, headers: Mapping[str, str], content: bytes, body: Any, uncharged: Collection[int]
) -> Answer:
    """Decide what a complete HTTP reply to an order means. `body` comes from `decode_reply`."""
    if is_success(status):
        if body is None:
            return Answer(
                "unknown",
                status,
                error=f"the API replied with {describe_body(headers, content)}, which is not JSON",
            )
        return Answer("answered", status, body, headers=headers)
    retry_after = parse_retry_after(headers.get("retry-after"))
    error = describe_status(status, headers, body)
    return Answer("answered" if status in uncharged else "unknown", status, body, error, retry_after)


@dataclass(frozen=True)
class RawBody:
    """The body of a reply that is not JSON, if the profile allows that."""

    media_type: str
    content: str | bytes = field(repr=False)


def decode_reply(kind: Literal["json", "text", "binary"], headers: Mapping[str, str], content: bytes) -> Any:
    """Decode a reply: JSON, or text or bytes if `kind` says so. None if it is not of that kind."""
    media = media_type(headers)
    body = _decode_json(content) if media in _JSON or media.endswith("+json") else None
    if body is not None or kind == "json":
        return body
    media = media if _MEDIA_TYPE.fullmatch(media) else ""
    if kind == "text" or media.startswith("text/"):
        return RawBody(media or "text/plain", _as_text(headers, content))
    return RawBody(media or "application/octet-stream", content)


def _as_text(headers: Mapping[str, str], content: bytes) -> str:
    charset = _CHARSET.search(headers.get("content-type", ""))
    try:
        return content.decode(charset[1] if charset else "utf-8", "replace")
    except (LookupError, UnicodeError):  # no such charset, or one that does not support the error handler
        return content.decode("utf-8", "replace")


def _decode_json(content: bytes) -> Any:
    """Decode JSON, also with values that Python cannot represent: a reply that was paid for must not be lost.

    Halves of surrogate pairs are replaced, and numbers that are too large stay text. None if it is not JSON.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    with suppress(ValueError):
        return loads(content)
    try:
        read = json.loads(content, parse_float=_float_or_text, parse_int=_int_or_text, parse_constant=str)
        return loads(json.dumps(read, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _float_or_text(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


def _int_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return text


def clean_headers(headers: Mapping[str, str], scrubber: Scrubber) -> dict[str, str]:
    """Scrub response headers and lower-case their names: an API may echo our secrets in any of them."""
    return {name.lower(): scrubber.text(value) for name, value in headers.items()}


def media_type(headers: Mapping[str, str]) -> str:
    """Return the content type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_success(status: int) -> bool:
    """True for a 2xx status."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def describe_status(status: int, headers: Mapping[str, str], body: Any) -> str:
    """Describe a status other than 2xx for an error message."""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        to = _host_in(headers.get("location", ""))
        return (
            f"HTTP {status}: the API redirects to {to}. Redirects are not followed; if it moved, set base_url"
        )
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "no such status"
    reason = _reason(body)
    return f"HTTP {status} ({phrase}): {reason}" if reason else f"HTTP {status} ({phrase})"


def parse_retry_after(retry_after: str | None) -> float | None:
    """Parse the `Retry-After` header into seconds from now; a date in the past is 0."""
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):  # a date may contain numbers of any length
            return None
        seconds = (date - email.utils.localtime()).total_seconds() if date.tzinfo else math.nan
    return max(0.0, seconds) if math.isfinite(seconds) else None


def describe_error(error: Exception, clean: Callable[[str], str] = str) -> str:
    """Describe an exception by its text or, if that is empty, by the OSError that caused it."""
    found: BaseException | None = error
    while found is not None and not (str(found) and (found is error or isinstance(found, OSError))):
        found = found.__cause__ or found.__context__
    # Cleaned before it is shortened: half a secret is not recognized.
    text = clean(" ".join(str(found or "").split()))
    if isinstance(error, CatalogError):
        return text
    kind = type(error).__name__
    return f"{kind}: {text[:_LONGEST_REASON]}" if text else kind


def _reason(body: Any) -> str:
    """Find the message with which an API explains a refusal."""
    found = body
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
            if isinstance(found, dict):
                found = found.get("message") or found.get("detail")
            break
    text = " ".join(found.split()) if isinstance(found, str) else ""
    return plain_line(text)[:_LONGEST_REASON]


def _host_in(location: str) -> str:
    try:
        return (urlsplit(location).hostname or "another path")[:_LONGEST_REASON]
    except ValueError:
        return "an invalid address"


def describe_body(headers: Mapping[str, str], content: bytes) -> str:
    """Describe a body by its length and content type."""
    kind = media_type(headers)
    named = kind if kind and kind.isprintable() else "something"
    return f"{len(content):,} bytes of {named[:80]}" if content else "an empty body"


class Unreadable(CatalogError):  # noqa: N818 - describes the body
    """The body is too long or compressed. A retry would not help."""


async def collect(response: httpx2.Response, most: int, *, lenient: bool = False) -> bytes:
    """Read the whole body. `lenient`: return the part that can be read, for the body of an error."""
    parts: list[bytes] = []

    def take(part: bytes) -> bool:
        parts.append(part)
        return True

    try:
        await _read_parts(response, most, take)
    except (httpx2.HTTPError, Unreadable):
        if not lenient:
            raise
    return b"".join(parts)


async def read_body(
    headers: Mapping[str, str],
    content: bytes,
    scrubber: Scrubber,
    workers: Workers,
    kind: Literal["json", "text", "binary"] = "json",
) -> Any:
    """Decode a body and scrub it; None if it is not of that kind. Long ones are decoded in a thread."""

    def read() -> Any:
        body = decode_reply(kind, headers, content)
        if isinstance(body, RawBody):
            return replace(body, content=scrubber.data(body.content))
        return scrubber.data(body) if body is not None and scrubber.may_be_in(content) else body

    return await run_off_loop(read, len(content), workers)


async def run_off_loop(work: Callable[[], T], size: int, workers: Workers) -> T:
    """Run work on `size` bytes: directly if they are few, else in a thread, so that other calls continue."""
    return work() if size <= LARGE else await workers.run(work)


def is_stream(response: httpx2.Response) -> bool:
    """True if the body is a stream of server-sent events."""
    return media_type(response.headers) == "text/event-stream"


async def read_events(
    response: httpx2.Response, most: int, on_progress: Progress | None, clean: Callable[[str], str] = str
) -> Any:
    """Read a stream of `data`, `error` and `done` events, and combine them into the body of a reply.

    The whole reply may be in `done` or in the last `data`; otherwise the pieces of text make up the output, with
    the cost and balance from `done`. A stream that ends without `done` or `error` is an incomplete reply.
    """
    events = Events()
    pieces: list[str] = []
    replies: list[Any] = []

    def take(part: bytes) -> bool:
        for event, raw in events.feed(part):
            data = clean(raw)
            if event == "error":
                replies.append({"success": False, "error": data})
            elif event == "done":
                replies.append(_combine_events(pieces, data))
            elif event in ("data", "message") and data:
                pieces.append(data)
                if on_progress is not None:
                    _report_progress(on_progress, data)
            if replies:
                return False
        return True

    await _read_parts(response, most, take)
    if not replies:
        raise CatalogError("the stream of events ended before it was complete")
    return replies[0]


class Events:
    """Parses server-sent events from bytes in pieces of any size. The caller limits the number of bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []

    def feed(self, part: bytes) -> list[tuple[str, str]]:
        """Return the events that are complete now: name (`message` if it has none) and data."""
        text = self._rest + part
        # A carriage return at the end may be the first half of a line break.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        found = []
        for line in lines:
            name, _, value = line.decode(errors="replace").partition(":")
            value = value.removeprefix(" ")
            if not line:
                if self._data or self._event:
                    found.append((self._event or "message", "\n".join(self._data)))
                self._event, self._data = "", []
            elif name == "event":
                self._event = value
            elif name == "data":
                self._data.append(value)
        return found


async def _read_parts(response: httpx2.Response, most: int, take: Callable[[bytes], bool]) -> None:
    """Pass the body to `take`, part by part, until it has enough. Raises Unreadable past `most` bytes.

    httpx2 reads through a chain of generators that do not close each other, and trio warns about a generator that
    is not run to its end. So all are run to their end: closing the response makes the next read fail, which ends
    them.
    """
    _check_head(response, most)
    size, enough = 0, False
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if not enough and (size > most or not take(part)):
                enough = True
                await response.aclose()
    except httpx2.HTTPError:
        if not enough:
            raise
    if size > most:
        raise Unreadable(f"the reply is over {most:,} bytes (max_reply_bytes) and was not read to its end")


def _check_head(response: httpx2.Response, most: int) -> None:
    """Reject a body by its headers: too long, or compressed although we did not accept that."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Unreadable("the reply is compressed (Content-Encoding), although that was not requested")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > most:  # noqa: PLR2004 - digits of a 64 bit number
        raise Unreadable(
            f"the reply has {int(length):,} bytes, at most {most:,} are allowed (max_reply_bytes)"
        )


def _combine_events(pieces: list[str], last: str) -> dict[str, Any]:
    """Combine the pieces and the data of `done` into a reply."""
    end = _object(last)
    text = "".join(pieces)
    if end is None or not end.keys() & _REPLY:
        end, text = {}, text if last.strip() in _NO_TEXT else text + last
    elif not pieces or not end.keys() <= _ABOUT:
        return end
    whole = [each for each in map(_object, pieces[-1:]) if each and "success" in each]
    reply = whole[0] if whole else {"success": True, "output": text}
    if end.get("error"):
        reply.pop("success")  # `done` has the last word
    return {**reply, **end}


def _report_progress(on_progress: Progress, data: str) -> None:
    event = _object(data)
    message = event.get("message") if event else None
    try:
        on_progress((message if isinstance(message, str) else data)[:_LONGEST_PROGRESS])
    except Exception:  # noqa: BLE001 - an error in the callback must not lose the reply to a purchase
        _log.exception("The callback for progress failed")


def _object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = loads(text.encode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
