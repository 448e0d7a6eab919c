"""From a user's hooks to what the CLI is told of them, and from a hook's output to the CLI's spelling.

Pure: it hands out ids, and leaves it to others to call the callbacks. `HookMatcher` and the callback's type
are here because they are what is registered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from toolwire._record import Record
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
    """Seconds that each callback has; the CLI's default is 60."""
    on_failure: Literal["continue", "block"] | None = None
    """With `block`, a callback that raises or returns no dict stops the action. `{}` says: no opinion."""


def register(
    hooks: Mapping[Any, Sequence[HookMatcher]],
) -> tuple[dict[str, list[dict[str, Any]]] | None, dict[str, HookCallback]]:
    """The `hooks` field of the initialize request, None if there are none, and the callback of each id."""
    callbacks: dict[str, HookCallback] = {}
    config: dict[str, list[dict[str, Any]]] = {}
    for event, matchers in hooks.items():
        if matchers:
            config[event] = [_matcher_to_wire(matcher, callbacks) for matcher in matchers]
    return config or None, callbacks


def _matcher_to_wire(matcher: HookMatcher, callbacks: dict[str, HookCallback]) -> dict[str, Any]:
    ids = []
    for callback in matcher.hooks:
        callback_id = f"hook_{len(callbacks)}"
        callbacks[callback_id] = callback
        ids.append(callback_id)
    wire: dict[str, Any] = {"matcher": matcher.matcher, "hookCallbackIds": ids}
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
