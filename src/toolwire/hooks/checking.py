"""Looks over what a hook returned before the CLI gets it: keys, values and types that the CLI would not understand.

Pure. The CLI skips a key that it does not know without a word, and drops a whole answer for one value of the wrong
type, so that a misspelt `deny` denies nothing, nor does one whose reason is a number: hence this. Whether a problem
counts is decided by whoever calls the hook.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, get_args, get_origin, get_type_hints

from toolwire._support.words import closest
from toolwire.hooks.inputs import HookEvent
from toolwire.hooks.outcomes import SPECIFIC
from toolwire.hooks.outputs import SyncHookJSONOutput

Gravity = Literal["unknown", "mended", "misspelt", "wrong", "malformed"]
"""An unknown key may be one of tomorrow's; a misspelt one is a mistake; what is mended goes out without the fault.

What is wrong or malformed the CLI would refuse: a value that does not exist, or one of another type.
"""


class _Decision(TypedDict):
    """The `decision` of a PermissionRequest hook: keys of an allowing and of a denying one."""

    behavior: Literal["allow", "deny"]
    updatedInput: NotRequired[dict[str, Any]]
    updatedPermissions: NotRequired[list[Any]]
    message: NotRequired[str]
    interrupt: NotRequired[bool]


_EVENTS = frozenset(get_args(HookEvent))
_TOP: dict[str, Any] = {
    **{key.removesuffix("_"): kind for key, kind in get_type_hints(SyncHookJSONOutput).items()},
    "async": bool,
    "asyncTimeout": float,
    "decision": Literal["block", "approve"],
    "hookSpecificOutput": Any,  # looked into by itself
}
_NAMED = "hookEventName"
_DATA = ("updatedInput", "content")  # without these something else would happen than what the hook meant


class Problem(NamedTuple):
    """Something odd about an output."""

    gravity: Gravity
    text: str


@dataclass(slots=True)
class _Part:
    """What a dict has without its Nones, what of that is sound, and what was found."""

    kept: dict[str, Any] = field(default_factory=dict)
    sound: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def put(self, key: str, part: "_Part") -> None:
        """Take what was found in the dict under the key, and the dict as it is to be."""
        self.kept[key] = part.kept
        self.sound[key] = part.sound
        self.problems += part.problems

    def refuse(self, key: str, problem: Problem) -> None:
        """What is under the key is not sound."""
        self.sound.pop(key, None)
        self.problems.append(problem)


def nearest_event(event: str) -> str | None:
    """The event that was probably meant by a name that is none; None if it is one, or like none."""
    return None if event in _EVENTS else closest(event, _EVENTS, cutoff=0.8)


def checked(event: str, output: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The output as the CLI should get it, and its problems.

    The event's name is put in where it is missing, and optional values that are None are left out. A clear denial
    is never lost: it goes out without whatever the CLI would refuse the answer for.
    """
    if event not in _EVENTS:
        return output, []
    part = _looked_over(output, _TOP, elsewhere=_fields(event))
    if "hookSpecificOutput" in part.kept:
        _look_into_specific(event, part)
    refused = [problem for problem in part.problems if problem.gravity in ("wrong", "malformed")]
    if not refused or not _denies(part.sound):
        return part.kept, part.problems
    return part.sound, [
        Problem("mended", f"{problem.text}; its denial counts all the same")
        if problem in refused
        else problem
        for problem in part.problems
    ]


def _denies(output: Mapping[str, Any]) -> bool:
    specific = output.get("hookSpecificOutput", {})
    decision = specific.get("decision")
    return (
        output.get("decision") == "block"
        or output.get("continue") is False
        or specific.get("permissionDecision") == "deny"
        or (isinstance(decision, Mapping) and decision.get("behavior") == "deny")
    )


def _look_into_specific(event: str, top: _Part) -> None:
    key = "hookSpecificOutput"
    given, fields = top.kept[key], _fields(event)
    if not isinstance(given, Mapping):
        top.refuse(key, Problem("wrong", f"{key!r} is a {type(given).__name__}, not a dict"))
    elif not fields:
        top.problems.append(Problem("unknown", f"the CLI reads no {key!r} after {event}"))
    elif given.get(_NAMED, event) != event:
        top.refuse(key, Problem("wrong", f"{_NAMED!r} is {given[_NAMED]!r}, but the event is {event!r}"))
    else:
        if _NAMED not in given:
            top.problems.append(Problem("unknown", f"{key!r} has no {_NAMED!r}: taken for {event!r}"))
        part = _looked_over(
            {_NAMED: event, **given}, fields, f" in {key!r}", _required(SPECIFIC[event]), elsewhere=_TOP
        )
        if event == "PermissionRequest" and isinstance(decision := part.sound.get("decision"), Mapping):
            known = get_type_hints(_Decision)
            part.put("decision", _looked_over(decision, known, " in 'decision'", _required(_Decision)))
        top.put(key, part)


def _looked_over(
    given: Mapping[str, Any],
    fields: Mapping[str, Any],
    where: str = "",
    required: Collection[str] = (),
    *,
    elsewhere: Mapping[str, Any] | None = None,
) -> _Part:
    """Hold a dict against the fields it may have; `elsewhere` are those of the dict around it, or inside it."""
    part = _Part()
    for key, value in given.items():
        if value is None and _may_be_left_out(key, fields, required):
            part.problems.append(Problem("mended", f"{key!r}{where} is None: it is left out"))
            continue
        part.kept[key] = part.sound[key] = value
        if key not in fields:
            part.problems.append(_unknown(key, fields, where, elsewhere or {}))
        elif (problem := _fault(key, value, fields[key])) is not None:
            part.refuse(key, problem)
    missing = [key for key in required if key not in given]
    part.problems += [Problem("wrong", f"{key!r}{where} is missing") for key in missing]
    return part


def _may_be_left_out(key: str, fields: Mapping[str, Any], required: Collection[str]) -> bool:
    if key not in fields or key in required or key in _DATA:
        return False
    return fields[key] is not Any or key == "hookSpecificOutput"


def _fault(key: str, value: object, kind: Any) -> Problem | None:
    """What is wrong with a value, if anything."""
    if kind is Any:
        return None
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return None
        able = "it can only be 'block'" if kind is _TOP["decision"] else f"it can be {_listed(kind)}"
        return Problem("wrong", f"{key!r} is {value!r}; {able}")
    plain = get_origin(kind) or kind
    fits = isinstance(value, _ACCEPTED[plain]) and (plain is bool or not isinstance(value, bool))
    if not fits:
        return Problem("malformed", f"{key!r} is a {type(value).__name__}, not a {plain.__name__}")
    if kind == list[str] and isinstance(value, list | tuple):
        odd = [each for each in value if not isinstance(each, str)]
        if odd:
            return Problem("malformed", f"{key!r} has a {type(odd[0]).__name__} in it, not a str")
    return None


_ACCEPTED: dict[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    float: (int, float),
    dict: (dict,),
    list: (list, tuple),
}


def _listed(kind: Any) -> str:
    return ", ".join(map(repr, get_args(kind)))


def _unknown(key: object, known: Mapping[str, Any], where: str, elsewhere: Mapping[str, Any]) -> Problem:
    if key in elsewhere:
        place = "beside 'hookSpecificOutput', not into it" if where else "into 'hookSpecificOutput'"
        return Problem("misspelt", f"{key!r} belongs {place}")
    names = [*known] if where else [*known, *elsewhere]
    near = closest(str(key), names, cutoff=0.7)
    if near:
        return Problem("misspelt", f"unknown key {key!r}{where}; did you mean {near!r}?")
    return Problem("unknown", f"unknown key {key!r}{where}")


def _required(kind: Any) -> list[str]:
    """The keys that a part cannot do without, in their order."""
    return [key for key in get_type_hints(kind) if key in kind.__required_keys__]


@cache
def _fields(event: str) -> dict[str, Any]:
    """The keys of the event's own part, with their types; none if the CLI reads no such part."""
    return get_type_hints(SPECIFIC[event]) if event in SPECIFIC else {}
