"""Calls hooks for the CLI: within their timeout, sync functions in a thread, failures turned into error responses.

The CLI knows each hook's `onFailure` from its registration and applies it when the response is an error. After its
own timeout, however, the CLI blocks the action whatever `onFailure` says. So with `on_failure` set, our timeout is
a little shorter. Without it the CLI's timeout decides: the CLI cancels the request, which cancels the callback. Our
own timeout is then only a safeguard.

An output is checked before it is sent. The CLI silently ignores an unknown key and drops a whole output for one
value of the wrong type, so a denial with a misspelt key, or with a number as its reason, would deny nothing.
"""

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import cancelled_from_inside, is_async, is_cancellation, maybe_await
from toolwire._support.threads import Workers
from toolwire._support.words import closest
from toolwire.errors import message_of
from toolwire.hooks.events import SPECIFIC_OUTPUTS, HookEvent, SyncHookJSONOutput
from toolwire.hooks.outcomes import HookOutcome, NoReasonError
from toolwire.hooks.registry import RegisteredHook, output_to_wire

logger = logger_for("hooks")

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

_CLI_DEFAULT: Final = 600.0  # seconds; the CLI's timeout for a hook without one (measured)
_EARLY: Final = 0.5  # seconds by which ours is shorter than the CLI's; a tenth of that if it is less
_GRACE: Final = 5.0  # seconds that the CLI has to cancel a request that timed out

_FAILURES: Final = {"block": ("misspelt", "wrong", "malformed"), "continue": ("wrong", "malformed")}
"""`on_failure` -> the problems of an output that count as a failure of the hook."""

_workers = Workers()  # shared by all sessions, because it keeps its threads


def make_handler(hooks: Mapping[str, RegisteredHook]) -> Handler:
    """Return the handler of the CLI's `hook_callback` requests for these hooks."""
    warned: set[str] = set()
    for hook in hooks.values():
        if (near := find_similar_event(hook.event)) is not None:
            logger.warning("%s will never be called: did you mean %s?", hook, near)

    async def handle(body: dict[str, Any]) -> dict[str, Any]:
        hook = hooks.get(str(body.get("callback_id")))
        if hook is None:
            raise LookupError(f"No hook callback found for ID: {body.get('callback_id')}")
        began = anyio.current_time()
        try:
            returned = await _decide(hook, body)
            return _to_wire(hook, returned, warned)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the boundary of the user's code
            if is_cancellation(error) and not cancelled_from_inside():
                _log_cancellation(hook, anyio.current_time() - began)
                raise
            reason = message_of(error) or type(error).__name__
            logger.warning("%s failed, %s: %s", hook, _describe_consequence(hook), reason, exc_info=error)
            raise RuntimeError(reason) from None  # the trace has been logged

    return handle


async def invoke(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may be sync or async; a sync one in a worker thread."""
    if is_async(function):
        return await function(*args)
    return await maybe_await(await _workers.run(functools.partial(function, *args)))


async def _decide(hook: RegisteredHook, body: Mapping[str, Any]) -> Any:
    try:
        return await _call_in_time(hook, body)
    except NoReasonError as error:
        if error.outcome.verb == "ask":
            raise
        logger.warning("%s failed, its denial still counts: %s", hook, error, exc_info=error)
        return error.outcome


async def _call_in_time(hook: RegisteredHook, body: Mapping[str, Any]) -> Any:
    limit = _compute_limit(hook)
    with anyio.move_on_after(limit):
        return await invoke(hook.callback, body.get("input"), body.get("tool_use_id"), {"signal": None})
    if hook.on_failure is None:
        await anyio.sleep(_GRACE)  # the CLI has the same timeout: it decides, and cancels the request
    raise TimeoutError(f"did not return within {hook.timeout or _CLI_DEFAULT:g} s")


def _compute_limit(hook: RegisteredHook) -> float | None:
    if hook.on_failure is None:
        return hook.timeout or None  # the CLI too treats 0 as no timeout
    seconds = hook.timeout or _CLI_DEFAULT
    return seconds - min(_EARLY, seconds / 10)


def _log_cancellation(hook: RegisteredHook, seconds: float) -> None:
    """Log why a hook was cancelled: after its timeout, by the CLI; earlier, because the session ended."""
    if seconds >= (hook.timeout or _CLI_DEFAULT) * 0.9:
        logger.warning("%s did not return within %g s, so the CLI cancelled it", hook, seconds)
    else:
        logger.debug("%s was cancelled after %g s", hook, seconds)


def _describe_consequence(hook: RegisteredHook) -> str:
    if hook.on_failure != "block":
        return "the action continues"
    race = " unless can_use_tool responds first" if hook.event == "PermissionRequest" else ""
    return f"which blocks the action{race}"


def _to_wire(hook: RegisteredHook, returned: object, warned: set[str]) -> dict[str, Any]:
    output = returned.as_output(hook.event) if isinstance(returned, HookOutcome) else returned
    wire, problems = check_output(hook.event, output_to_wire(output))
    for problem in problems:
        if problem.severity in _FAILURES.get(hook.on_failure or "", ("malformed",)):
            raise ValueError(f"returned an invalid output: {problem.text}")
        text = f"{hook} returned an unusual output: {problem.text}"
        if text not in warned:
            warned.add(text)
            logger.warning("%s", text)
    return wire


Severity = Literal["unknown", "repaired", "misspelt", "wrong", "malformed"]
"""The kind of a problem in an output:

- unknown: a key that may belong to a newer CLI
- repaired: the output is sent without the faulty part
- misspelt: a key that is similar to a known one
- wrong: a value that is not one of the allowed ones, or a missing key; the CLI would reject the output
- malformed: a value of the wrong type; the CLI would reject the output
"""


class _Decision(TypedDict):
    """The `decision` of a PermissionRequest hook: the keys for `allow` and for `deny`."""

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
    "hookSpecificOutput": Any,  # checked separately
}
_EVENT_NAME = "hookEventName"
_DATA = ("updatedInput", "content")  # keys whose removal would change the meaning of the output


class Problem(NamedTuple):
    """Something wrong or unusual in an output."""

    severity: Severity
    text: str


@dataclass(slots=True)
class _Part:
    """A dict that was checked, and its problems."""

    kept: dict[str, Any] = field(default_factory=dict)
    """The dict without optional values that are None."""
    sound: dict[str, Any] = field(default_factory=dict)
    """The part of `kept` that the CLI accepts."""
    problems: list[Problem] = field(default_factory=list)

    def put(self, key: str, part: "_Part") -> None:
        """Add the checked dict under the key, with its problems."""
        self.kept[key] = part.kept
        self.sound[key] = part.sound
        self.problems += part.problems

    def refuse(self, key: str, problem: Problem) -> None:
        """Add a problem with the value under the key, and remove the value from `sound`."""
        self.sound.pop(key, None)
        self.problems.append(problem)


def find_similar_event(event: str) -> str | None:
    """Return the event that an unknown name probably means; None if it is known or similar to no event."""
    return None if event in _EVENTS else closest(event, _EVENTS, cutoff=0.8)


def check_output(event: str, output: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the output to send, and its problems.

    A missing event name is added, and optional values that are None are removed. A clear denial is never lost: it
    is sent without the parts for which the CLI would reject it.
    """
    if event not in _EVENTS:
        return output, []
    part = _check_dict(output, _TOP, elsewhere=_get_specific_fields(event))
    if "hookSpecificOutput" in part.kept:
        _check_specific(event, part)
    refused = [problem for problem in part.problems if problem.severity in ("wrong", "malformed")]
    if not refused or not _denies(part.sound):
        return part.kept, part.problems
    return part.sound, [
        Problem("repaired", f"{problem.text}; its denial still counts") if problem in refused else problem
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


def _check_specific(event: str, top: _Part) -> None:
    key = "hookSpecificOutput"
    given, fields = top.kept[key], _get_specific_fields(event)
    if not isinstance(given, Mapping):
        top.refuse(key, Problem("wrong", f"{key!r} is a {type(given).__name__}, not a dict"))
    elif not fields:
        top.problems.append(Problem("unknown", f"the CLI reads no {key!r} after {event}"))
    elif given.get(_EVENT_NAME, event) != event:
        text = f"{_EVENT_NAME!r} is {given[_EVENT_NAME]!r}, but the event is {event!r}"
        top.refuse(key, Problem("wrong", text))
    else:
        if _EVENT_NAME not in given:
            top.problems.append(Problem("unknown", f"{key!r} has no {_EVENT_NAME!r}; {event!r} is assumed"))
        required = _list_required_keys(SPECIFIC_OUTPUTS[event])
        part = _check_dict({_EVENT_NAME: event, **given}, fields, f" in {key!r}", required, elsewhere=_TOP)
        if event == "PermissionRequest" and isinstance(decision := part.sound.get("decision"), Mapping):
            known = get_type_hints(_Decision)
            part.put(
                "decision", _check_dict(decision, known, " in 'decision'", _list_required_keys(_Decision))
            )
        top.put(key, part)


def _check_dict(
    given: Mapping[str, Any],
    fields: Mapping[str, Any],
    where: str = "",
    required: Collection[str] = (),
    *,
    elsewhere: Mapping[str, Any] | None = None,
) -> _Part:
    """Check a dict against its allowed fields; `elsewhere` has those of the dict around it or inside it."""
    part = _Part()
    for key, value in given.items():
        if value is None and _is_removable(key, fields, required):
            part.problems.append(Problem("repaired", f"{key!r}{where} is None and was removed"))
            continue
        part.kept[key] = part.sound[key] = value
        if key not in fields:
            part.problems.append(_describe_unknown(key, fields, where, elsewhere or {}))
        elif (problem := _check_value(key, value, fields[key])) is not None:
            part.refuse(key, problem)
    missing = [key for key in required if key not in given]
    part.problems += [Problem("wrong", f"{key!r}{where} is missing") for key in missing]
    return part


def _is_removable(key: str, fields: Mapping[str, Any], required: Collection[str]) -> bool:
    if key not in fields or key in required or key in _DATA:
        return False
    return fields[key] is not Any or key == "hookSpecificOutput"


def _check_value(key: str, value: object, kind: Any) -> Problem | None:
    """Return the problem with a value, if there is one."""
    if kind is Any:
        return None
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return None
        allowed = "'block'" if kind is _TOP["decision"] else ", ".join(map(repr, get_args(kind)))
        return Problem("wrong", f"{key!r} is {value!r}; allowed: {allowed}")
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
    int: (int,),
    float: (int, float),
    dict: (dict,),
    list: (list, tuple),
}
"""The type of a key in `events` -> the types of values that the CLI accepts for it."""


def _describe_unknown(
    key: object, known: Mapping[str, Any], where: str, elsewhere: Mapping[str, Any]
) -> Problem:
    if key in elsewhere:
        place = "beside 'hookSpecificOutput', not into it" if where else "into 'hookSpecificOutput'"
        return Problem("misspelt", f"{key!r} belongs {place}")
    names = [*known] if where else [*known, *elsewhere]
    near = closest(str(key), names, cutoff=0.7)
    if near:
        return Problem("misspelt", f"unknown key {key!r}{where}; did you mean {near!r}?")
    return Problem("unknown", f"unknown key {key!r}{where}")


def _list_required_keys(kind: Any) -> list[str]:
    """Return the required keys of a TypedDict, in order."""
    return [key for key in get_type_hints(kind) if key in kind.__required_keys__]


@cache
def _get_specific_fields(event: str) -> dict[str, Any]:
    """Return the keys of the event's `hookSpecificOutput` with their types; empty if the CLI reads none."""
    return get_type_hints(SPECIFIC_OUTPUTS[event]) if event in SPECIFIC_OUTPUTS else {}
