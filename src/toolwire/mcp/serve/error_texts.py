"""Keeps a server from sending a request's own data back in its errors, by any library that words them."""

from collections.abc import Iterator
from typing import Any, Final

from mcp.shared.exceptions import MCPError

_MESSAGE: Final = 2_000  # characters
_QUOTED: Final = 500  # characters of the request that an error's data may repeat


async def shorten_errors(ctx: Any, call_next: Any) -> Any:
    """Middleware of `mcp`: cut error messages that are long, and what error data quotes of the request."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        error.error.message = cut(error.error.message, _MESSAGE)
        if error.error.data is not None:
            sent = [each for each in (ctx.method, *_strings(ctx.params)) if len(each) > _QUOTED]
            if sent:
                error.error.data = _without(error.error.data, sent)
        raise


def cut(text: str, most: int) -> str:
    """A text of at most about so many characters, which says if there was more."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more characters)"


def _without(data: Any, sent: list[str]) -> Any:
    """Error data in which those texts are cut."""
    if isinstance(data, str):
        return cut(data, _QUOTED) if any(each in data for each in sent) else data
    if isinstance(data, dict):
        return {_without(key, sent): _without(value, sent) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without(each, sent) for each in data]
    return data


def _strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left += each.keys()
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
