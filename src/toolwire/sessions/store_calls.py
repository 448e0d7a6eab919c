"""Calls a session store with a time limit, and checks the type of the value it returns.

Stores may be user code: their mistakes become errors that name the method.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final

import anyio

from toolwire.errors import SessionStoreError

_SHOWN: Final = 100


class StoreTimeoutError(SessionStoreError, TimeoutError):
    """A session store did not respond in time."""


async def call_store(store: object, method: str, *arguments: Any, timeout: float) -> Any:  # noqa: ASYNC109 - the error names it
    """Call a method of a store. StoreTimeoutError after the limit, SessionStoreError for an invalid result."""
    limit = None
    try:
        with anyio.fail_after(timeout) as limit:
            pending = getattr(store, method)(*arguments)
            if not inspect.isawaitable(pending):
                raise SessionStoreError(
                    f"{type(store).__name__}.{method}() must be async, but it returned {_describe(pending)}"
                )
            found = await pending
    except TimeoutError as error:
        if limit is None or not limit.cancelled_caught:
            raise  # raised by the store itself
        raise StoreTimeoutError(f"the session store's {method}() took longer than {timeout:g} s") from error
    if (expected := _find_mistake(method, found)) is not None:
        raise SessionStoreError(
            f"{type(store).__name__}.{method}() must return {expected}, but returned {_describe(found)}"
        )
    return found


def _find_mistake(method: str, found: object) -> str | None:
    """Return a description of what a method should have returned; None if the value is valid."""
    match method:
        case "load":
            right = found is None or _is_list(found, _is_entry)
            return None if right else "a list of entries (dicts with a type), or None"
        case "list_sessions":
            return None if _is_list(found, _is_listed) else "a list of dicts with session_id and mtime"
        case "list_session_summaries":
            right = _is_list(found, lambda each: _is_listed(each) and isinstance(each.get("data"), Mapping))
            return None if right else "a list of dicts with session_id, mtime and data"
        case "list_subkeys" | "find_projects":
            return None if _is_list(found, lambda each: isinstance(each, str)) else "a list of strings"
        case _:
            return None


def _is_list(found: object, is_right: Any) -> bool:
    return isinstance(found, list | tuple) and all(map(is_right, found))


def _is_entry(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_listed(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("session_id"), str)
        and isinstance(value.get("mtime"), int | float)
    )


def _describe(value: object) -> str:
    if isinstance(value, list | tuple):
        odd = next((each for each in value if not isinstance(each, Mapping)), value[0] if value else None)
        return f"a {type(value).__name__} with {type(odd).__name__} {repr(odd)[:_SHOWN]}"
    return f"{type(value).__name__} {repr(value)[:_SHOWN]}"
