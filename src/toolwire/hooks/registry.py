"""Converts a user's hooks to the `hooks` field of the initialize request, and a hook's output to wire format.

Pure: it assigns the callback ids and calls nothing. Defines `HookMatcher` and the type of a callback.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, TypedDict

from toolwire._support.record import Record, record
from toolwire.hooks.events import HookInput, HookJSONOutput


class HookContext(TypedDict):
    """The third argument of a callback. `signal` is always None, as in the official SDK."""

    signal: Any | None


HookCallback = Callable[[HookInput, str | None, HookContext], Awaitable[HookJSONOutput]]
"""Called with the input, the id of the tool call if there is one, and a context."""


@record
class HookMatcher(Record):
    """Callbacks for an event, and the condition for calling them."""

    matcher: str | None = None
    """For tool events a pattern of tool names, `Bash` or `Write|Edit`; None for all."""
    hooks: list[HookCallback] = field(default_factory=list)
    timeout: float | None = None
    """Timeout of each callback in seconds. None or 0 means the CLI's default of 600."""
    on_failure: Literal["continue", "block"] | None = None
    """Continue or block the action when a callback raises, times out or returns an invalid output.

    None uses the CLI's default: continue after an exception, block after a timeout. `{}` is not a failure; it means
    no opinion.
    """


class RegisteredHook(NamedTuple):
    """One callback with its event and the settings of its matcher."""

    event: str
    callback: HookCallback
    matcher: str | None
    timeout: float | None
    on_failure: str | None

    def __str__(self) -> str:
        where = "" if self.matcher is None else f" (matcher {self.matcher!r})"
        return f"the {self.event} hook {describe_callback(self.callback)}{where}"


def describe_callback(callback: object) -> str:
    """Return a callback's module and name for messages; of a wrapper, those of the wrapped function."""
    while isinstance(callback, functools.partial) or hasattr(callback, "__wrapped__"):
        callback = callback.func if isinstance(callback, functools.partial) else callback.__wrapped__
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}.{named.__qualname__}"


def register(
    hooks: Mapping[Any, Sequence[HookMatcher]],
) -> tuple[dict[str, list[dict[str, Any]]] | None, dict[str, RegisteredHook]]:
    """Return the `hooks` field of the initialize request (None without hooks), and each hook by its id."""
    config: dict[str, list[dict[str, Any]]] = {}
    registered: dict[str, RegisteredHook] = {}
    for event, matchers in hooks.items():
        for matcher in matchers:
            ids = [f"hook_{len(registered) + index}" for index in range(len(matcher.hooks))]
            # An object of another class may have fewer fields.
            settings = [getattr(matcher, name, None) for name in ("matcher", "timeout", "on_failure")]
            for callback_id, callback in zip(ids, matcher.hooks, strict=True):
                registered[callback_id] = RegisteredHook(event, callback, *settings)
            config.setdefault(event, []).append(_matcher_to_wire(ids, *settings))
    return config or None, registered


def _matcher_to_wire(
    ids: list[str], matcher: str | None, timeout: float | None, on_failure: str | None
) -> dict[str, Any]:
    wire: dict[str, Any] = {"matcher": matcher, "hookCallbackIds": ids}
    if timeout is not None:
        wire["timeout"] = timeout
    if on_failure is not None:
        wire["onFailure"] = on_failure
    return wire


def blocks_on_failure(config: Mapping[str, Sequence[Mapping[str, Any]]] | None) -> bool:
    """Return True if a hook blocks on failure; then a CLI that does not support that must be rejected."""
    matchers = (matcher for entries in (config or {}).values() for matcher in entries)
    # Like the CLI, which treats any unknown value as "block".
    return any(matcher.get("onFailure", "continue") != "continue" for matcher in matchers)


_SPELLING = {"async_": "async", "continue_": "continue"}


def output_to_wire(output: object) -> dict[str, Any]:
    """Return a callback's output with the CLI's keys; raises TypeError if it is not a dict."""
    if not isinstance(output, Mapping):
        kind = type(output)
        hint = " (return {} for no opinion)" if output is None else ""
        raise TypeError(f"a hook must return a dict, not {kind.__module__}.{kind.__qualname__}{hint}")
    fields: Mapping[str, Any] = output
    return {_SPELLING.get(key, key): value for key, value in fields.items()}
