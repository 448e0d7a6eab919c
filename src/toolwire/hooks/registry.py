"""From a user's hooks to what the CLI is told of them, and from a hook's output to the CLI's spelling.

Pure: it hands out ids, and leaves it to others to call the callbacks. `HookMatcher` and the callback's type
are here because they are what is registered.
"""

import functools
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from toolwire._support.record import Record
from toolwire.hooks.inputs import HookInput
from toolwire.hooks.outputs import HookJSONOutput


class HookContext(TypedDict):
    """The third argument of a callback. `signal` is always None; it is there as in the official SDK."""

    signal: Any | None


HookCallback = Callable[[HookInput, str | None, HookContext], Awaitable[HookJSONOutput]]
"""Called with the input, the id of the tool call if there is one, and a context."""


@dataclass(repr=False, eq=False)
class HookMatcher(Record):
    """Callbacks for an event, and when they are to be called."""

    matcher: str | None = None
    """For tool events a pattern of tool names, `Bash` or `Write|Edit`; None for all."""
    hooks: list[HookCallback] = field(default_factory=list)
    timeout: float | None = None
    """Seconds that each callback has. None or 0: the CLI's own limit, 600."""
    on_failure: Literal["continue", "block"] | None = None
    """What becomes of the action when a callback raises, hangs or returns nonsense: it goes on, or is stopped.

    None leaves it to the CLI, which lets it go on after an exception and stops it after a time-out. `{}` is no
    failure; it says: no opinion.
    """


class Registered(NamedTuple):
    """One callback, with what is needed to call it and to speak of it."""

    event: str
    callback: HookCallback
    matcher: str | None
    timeout: float | None
    on_failure: str | None

    def __str__(self) -> str:
        where = "" if self.matcher is None else f" (matcher {self.matcher!r})"
        return f"the {self.event} hook {qualified_name(self.callback)}{where}"


def qualified_name(callback: object) -> str:
    """What to call a callback in a log: its module and name, or those of what it wraps."""
    while isinstance(callback, functools.partial) or hasattr(callback, "__wrapped__"):
        callback = callback.func if isinstance(callback, functools.partial) else callback.__wrapped__
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}.{named.__qualname__}"


def register(
    hooks: Mapping[Any, Sequence[HookMatcher]],
) -> tuple[dict[str, list[dict[str, Any]]] | None, dict[str, HookCallback]]:
    """The `hooks` field of the initialize request, None if there are none, and the callback of each id."""
    config: dict[str, list[dict[str, Any]]] = {}
    callbacks: dict[str, HookCallback] = {}
    for event, matcher, ids in _numbered(hooks):
        config.setdefault(event, []).append(_matcher_to_wire(matcher, ids))
        callbacks |= ids
    return config or None, callbacks


def registered(hooks: Mapping[Any, Sequence[HookMatcher]]) -> dict[str, Registered]:
    """The same callbacks by the same ids, each with its event and matcher."""
    return {
        callback_id: Registered(event, callback, matcher.matcher, matcher.timeout, matcher.on_failure)
        for event, matcher, ids in _numbered(hooks)
        for callback_id, callback in ids.items()
    }


def _numbered(
    hooks: Mapping[Any, Sequence[HookMatcher]],
) -> Iterator[tuple[str, HookMatcher, dict[str, HookCallback]]]:
    """Each matcher with its callbacks by id; the ids count up over all of them."""
    count = itertools.count()
    for event, matchers in hooks.items():
        for matcher in matchers:
            yield event, matcher, {f"hook_{next(count)}": callback for callback in matcher.hooks}


def _matcher_to_wire(matcher: HookMatcher, ids: Mapping[str, HookCallback]) -> dict[str, Any]:
    wire: dict[str, Any] = {"matcher": matcher.matcher, "hookCallbackIds": [*ids]}
    if matcher.timeout is not None:
        wire["timeout"] = matcher.timeout
    if matcher.on_failure is not None:
        wire["onFailure"] = matcher.on_failure
    return wire


def blocks_on_failure(config: Mapping[str, Sequence[Mapping[str, Any]]] | None) -> bool:
    """Whether a failing hook is to stop anything: then a CLI that cannot promise that must be refused."""
    matchers = (matcher for entries in (config or {}).values() for matcher in entries)
    # Like the CLI, which takes any value that it does not know for "block".
    return any(matcher.get("onFailure", "continue") != "continue" for matcher in matchers)


_SPELLING = {"async_": "async", "continue_": "continue"}


def output_to_wire(output: object) -> dict[str, Any]:
    """What a callback returned, with the CLI's keys; TypeError if it is not a dict."""
    if not isinstance(output, Mapping):
        kind = type(output)
        hint = " (return {} for no opinion)" if output is None else ""
        raise TypeError(f"a hook must return a dict, not {kind.__module__}.{kind.__qualname__}{hint}")
    fields: Mapping[str, Any] = output
    return {_SPELLING.get(key, key): value for key, value in fields.items()}
