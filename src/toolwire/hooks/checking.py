"""Looks over what a hook returned before the CLI gets it: keys and values that the CLI would not understand.

Pure. The CLI skips a key that it does not know without a word, so that a misspelt `deny` denies nothing: hence
this. Whether a problem counts is decided by whoever calls the hook.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from toolwire.hooks.inputs import HookEvent
from toolwire.hooks.outcomes import SPECIFIC
from toolwire.hooks.outputs import SyncHookJSONOutput

Gravity = Literal["unknown", "misspelt", "wrong"]
"""An unknown key may be one of tomorrow's; a misspelt one is a mistake; what is wrong the CLI would refuse."""

_EVENTS = frozenset(get_args(HookEvent))
_TOP = frozenset({"continue", "async", "asyncTimeout", *SyncHookJSONOutput.__annotations__} - {"continue_"})
_DECISIONS = ("block", "approve")


class Problem(NamedTuple):
    """Something odd about an output."""

    gravity: Gravity
    text: str


def nearest_event(event: str) -> str | None:
    """The event that was probably meant by a name that is none; None if it is one, or like none."""
    near = [] if event in _EVENTS else difflib.get_close_matches(event, _EVENTS, n=1, cutoff=0.8)
    return near[0] if near else None


def checked(event: str, output: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The output in the CLI's spelling, with the event's name put in where it is missing, and its problems."""
    if event not in _EVENTS:
        return output, []
    problems = [*_top(event, output)]
    specific = output.get("hookSpecificOutput")
    if isinstance(specific, Mapping) and event in SPECIFIC and "hookEventName" not in specific:
        output = {**output, "hookSpecificOutput": {"hookEventName": event, **specific}}
    return output, problems


def _top(event: str, output: Mapping[str, Any]) -> Iterator[Problem]:
    fields = _fields(event)
    for key in output:
        if key not in _TOP:
            if key in fields:
                yield Problem("misspelt", f"{key!r} belongs into 'hookSpecificOutput'")
            else:
                yield _unknown(key, _TOP | fields.keys(), "")
    if output.get("decision", "block") not in _DECISIONS:
        yield Problem("wrong", f"'decision' is {output['decision']!r}; it can only be 'block'")
    if "hookSpecificOutput" in output:
        yield from _specific(event, output["hookSpecificOutput"], fields)


def _specific(event: str, specific: object, fields: Mapping[str, Any]) -> Iterator[Problem]:
    if not isinstance(specific, Mapping):
        yield Problem("wrong", f"'hookSpecificOutput' is a {type(specific).__name__}, not a dict")
        return
    if not fields:
        yield Problem("unknown", f"the CLI reads no 'hookSpecificOutput' after {event}")
        return
    named = specific.get("hookEventName", event)
    if "hookEventName" not in specific:
        yield Problem("unknown", f"'hookSpecificOutput' has no 'hookEventName': taken for {event!r}")
    elif named != event:
        yield Problem("wrong", f"'hookEventName' is {named!r}, but the event is {event!r}")
        return
    for key, value in specific.items():
        if key not in fields:
            if key in _TOP:
                yield Problem("misspelt", f"{key!r} belongs beside 'hookSpecificOutput', not into it")
            else:
                yield _unknown(key, fields, " in 'hookSpecificOutput'")
        elif get_origin(fields[key]) is Literal and value not in get_args(fields[key]):
            able = ", ".join(map(repr, get_args(fields[key])))
            yield Problem("wrong", f"{key!r} is {value!r}; it can be {able}")


def _unknown(key: object, known: Mapping[str, Any] | frozenset[str], where: str) -> Problem:
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.7)
    if near:
        return Problem("misspelt", f"unknown key {key!r}{where}; did you mean {near[0]!r}?")
    return Problem("unknown", f"unknown key {key!r}{where}")


@cache
def _fields(event: str) -> dict[str, Any]:
    """The keys of the event's own part, with their types; none if the CLI reads no such part."""
    return get_type_hints(SPECIFIC[event]) if event in SPECIFIC else {}
