"""What a hook decides, without the CLI's spelling: `deny("reason")`, `allow()`, `add_context("...")` and so on.

Each function gives a `HookOutcome`, which becomes the right dict for the event when the hook has returned it, or
with `as_output(event)`. Pure. What an event cannot do is refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolwire._support.record import Record
from toolwire.hooks.outputs import HookSpecificOutput


@dataclass(repr=False, eq=False)
class HookOutcome(Record):
    """A decision; made by the functions of this module."""

    verb: str
    reason: str | None = None
    value: Any = None
    context: str | None = None

    def as_output(self, event: str) -> dict[str, Any]:
        """What a hook of this event returns for it; ValueError if the event has no such thing."""
        output: dict[str, Any] = {}
        if self.verb == "block":
            output = _given(decision="block", reason=self.reason)
        elif self.verb == "stop":
            output = _given(continue_=False, stopReason=self.reason)
        specific = self._specific(event)
        if specific:
            output["hookSpecificOutput"] = {"hookEventName": event, **specific}
        return output

    def _specific(self, event: str) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.verb not in ("block", "stop", "add_context"):
            make = _DECISIONS.get((event, self.verb))
            if make is None:
                able = ", ".join(known for known, verb in _DECISIONS if verb == self.verb)
                raise ValueError(f"{self.verb}() means nothing to a {event} hook; it is for {able}")
            if self.value is not None and (event, self.verb) in _WITHOUT_INPUT:
                raise ValueError(
                    f"{self.verb}(updated_input=...) means nothing to a {event} hook: it has no input"
                )
            fields = make(self)
        if self.context is not None:
            if event not in TAKES_CONTEXT:
                raise ValueError(f"a {event} hook cannot add context; it is for {', '.join(TAKES_CONTEXT)}")
            fields["additionalContext"] = self.context
        return fields


class NoReasonError(TypeError):
    """A decision without a proper reason; it has the decision, which must not be lost with it."""

    def __init__(self, outcome: HookOutcome) -> None:
        super().__init__(f"{outcome.verb}() needs a reason, a str that is not empty, not {outcome.reason!r}")
        self.outcome = HookOutcome(outcome.verb, None, outcome.value, outcome.context)


def allow(
    *, updated_input: dict[str, Any] | None = None, reason: str | None = None, context: str | None = None
) -> HookOutcome:
    """Let the tool run without further questions, with another input if one is given."""
    return HookOutcome("allow", reason, updated_input, context)


def deny(reason: str, *, context: str | None = None) -> HookOutcome:
    """Do not let the tool run; the model reads the reason."""
    return _reasoned(HookOutcome("deny", reason, None, context))


def ask(
    reason: str, *, updated_input: dict[str, Any] | None = None, context: str | None = None
) -> HookOutcome:
    """Have somebody asked (`can_use_tool`) even if a rule allows the tool."""
    return _reasoned(HookOutcome("ask", reason, updated_input, context))


def change_input(updated_input: dict[str, Any], *, context: str | None = None) -> HookOutcome:
    """Give the tool another input, and leave it to the rules whether it may run."""
    return HookOutcome("change_input", None, updated_input, context)


def replace_output(output: Any, *, context: str | None = None) -> HookOutcome:
    """Let the model see another result of the tool than the tool gave."""
    return HookOutcome("replace_output", None, output, context)


def add_context(text: str) -> HookOutcome:
    """Tell the model something; after a Stop it goes on because of it."""
    return HookOutcome("add_context", context=text)


def block(reason: str, *, context: str | None = None) -> HookOutcome:
    """Stop what was about to happen, with a reason: a prompt is not sent, a model that wants to stop goes on."""
    return _reasoned(HookOutcome("block", reason, None, context))


def stop(reason: str) -> HookOutcome:
    """End the whole run."""
    return _reasoned(HookOutcome("stop", reason))


def _reasoned(outcome: HookOutcome) -> HookOutcome:
    reason: object = outcome.reason
    if not isinstance(reason, str) or not reason:
        raise NoReasonError(outcome)
    return outcome


def _given(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _decided(outcome: HookOutcome) -> dict[str, Any]:
    return _given(
        permissionDecision=outcome.verb, permissionDecisionReason=outcome.reason, updatedInput=outcome.value
    )


_DECISIONS: dict[tuple[str, str], Callable[[HookOutcome], dict[str, Any]]] = {
    ("PreToolUse", "allow"): _decided,
    ("PreToolUse", "deny"): _decided,
    ("PreToolUse", "ask"): _decided,
    ("PreToolUse", "change_input"): lambda outcome: {"updatedInput": outcome.value},
    ("PostToolUse", "replace_output"): lambda outcome: {"updatedToolOutput": outcome.value},
    ("PreModelSwitch", "allow"): _decided,
    ("PreModelSwitch", "deny"): _decided,
    ("PreModelSwitch", "ask"): _decided,
    ("PermissionRequest", "allow"): lambda outcome: {
        "decision": _given(behavior="allow", updatedInput=outcome.value)
    },
    ("PermissionRequest", "deny"): lambda outcome: {
        "decision": _given(behavior="deny", message=outcome.reason)
    },
}

_WITHOUT_INPUT = {("PreModelSwitch", "allow"), ("PreModelSwitch", "ask")}

SPECIFIC: dict[str, Any] = {
    kind.__name__.removesuffix("HookSpecificOutput"): kind for kind in HookSpecificOutput.__args__
}
"""Event -> the TypedDict of its `hookSpecificOutput`."""

TAKES_CONTEXT = [event for event, kind in SPECIFIC.items() if "additionalContext" in kind.__annotations__]
