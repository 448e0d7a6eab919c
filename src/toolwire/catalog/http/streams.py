"""Reads the body of a reply, never more than allowed: whole, or as server-sent events with progress."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeVar

import httpx2

from toolwire._protocol.json_codec import loads
from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.answers import RawBody, decode_reply, media_type
from toolwire.errors import CatalogError

_log = logger_for("catalog.streams")

Progress = Callable[[str], None]
T = TypeVar("T")

LARGE: Final = 64 * 1024
"""A body of more bytes is read in a thread."""

_LONGEST_NEWS: Final = 1_000
_NO_TEXT: Final = ("", "[DONE]", "{}", "null")
# Keys that make an object in `done` the reply, and those of them that are only about the result.
_ABOUT: Final = {"success", "error", "errors", "cost", "balance", "purchase_details", "purchase_result"}
_REPLY: Final = {"output", "result", "data", "response", *_ABOUT}


class Unreadable(CatalogError):  # noqa: N818 - what it is
    """A body that is too long or compressed. A retry would not help."""


async def collect(response: httpx2.Response, most: int, *, lenient: bool = False) -> bytes:
    """Read the whole body. `lenient`: return what there is of it, for the body of an error."""
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
    """Read and decode a body, and scrub it; None if it is not of that kind. Long ones are read in a thread."""
    read = partial(_read_body, headers, content, scrubber, kind)
    return await run_off_loop(read, len(content), workers)


async def run_off_loop(work: Callable[[], T], size: int, workers: Workers) -> T:
    """Run work on so many bytes: here if they are few, else in a thread, so that other calls continue."""
    return work() if size <= LARGE else await workers.run(work)


def _read_body(
    headers: Mapping[str, str], content: bytes, scrubber: Scrubber, kind: Literal["json", "text", "binary"]
) -> Any:
    body = decode_reply(kind, headers, content)
    if isinstance(body, RawBody):
        return replace(body, content=scrubber.data(body.content))
    return scrubber.data(body) if body is not None and scrubber.may_be_in(content) else body


def is_stream(response: httpx2.Response) -> bool:
    """True if the body is a stream of server-sent events."""
    return media_type(response.headers) == "text/event-stream"


async def read_events(
    response: httpx2.Response, most: int, on_progress: Progress | None, clean: Callable[[str], str] = str
) -> Any:
    """Read a stream of `data`, `error` and `done` events, and combine them into the body of a reply.

    `done` may carry the whole reply, or the last `data` may; otherwise the pieces of text make up the output, with
    what `done` says of the money.
    A stream that ends without `done` or `error` is half a reply.
    """
    events = Events()
    pieces: list[str] = []
    replies: list[Any] = []

    def take(part: bytes) -> bool:
        for event, told in events.feed(part):
            data = clean(told)
            if event == "error":
                replies.append({"success": False, "error": data})
            elif event == "done":
                replies.append(_combine_events(pieces, data))
            elif event in ("data", "message") and data:
                pieces.append(data)
                if on_progress is not None:
                    _tell(on_progress, data)
            if replies:
                return False
        return True

    await _read_parts(response, most, take)
    if not replies:
        raise CatalogError("the stream of events ended before it was done")
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
        # A carriage return at the end may be half of a line's end.
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

    httpx2 reads through a chain of generators that do not close each other, and one that is left in the middle is
    a warning on trio. So none is left: hanging up makes the next read fail, and that ends the whole chain.
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
        raise _too_long(most)


def _too_long(most: int) -> Unreadable:
    return Unreadable(f"the reply is over {most:,} bytes (max_reply_bytes) and was not read to its end")


def _check_head(response: httpx2.Response, most: int) -> None:
    """Reject a body by its headers: too long, or compressed although we did not accept that."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in (
        "",
        "identity",
    ):
        raise Unreadable("the reply is compressed (Content-Encoding), although that was not requested")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > most:  # noqa: PLR2004 - digits of a 64 bit number
        raise Unreadable(f"the reply has {int(length):,} bytes, {most:,} are allowed (max_reply_bytes)")


def _combine_events(pieces: list[str], last: str) -> dict[str, Any]:
    """Combine the pieces and the data of `done` into a reply."""
    end = _object(last)
    text = "".join(pieces)
    if end is None or not end.keys() & _REPLY:
        end, text = {}, text if last.strip() in _NO_TEXT else text + last
    elif not pieces or not end.keys() <= _ABOUT:
        return end
    whole = [each for each in map(_object, pieces[-1:]) if each and "success" in each]
    told = whole[0] if whole else {"success": True, "output": text}
    if end.get("error"):
        told.pop("success")  # the last word counts
    return {**told, **end}


def _tell(on_progress: Progress, data: str) -> None:
    told = _object(data)
    news = told.get("message") if told else None
    try:
        on_progress((news if isinstance(news, str) else data)[:_LONGEST_NEWS])
    except Exception:  # noqa: BLE001 - a listener's mistake must not lose the answer to a purchase
        _log.exception("The listener for progress failed")


def _object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = loads(text.encode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
