"""Functions for the decisions of hooks, independent of the CLI's format: `deny("reason")`, `allow()` and so on.

Each function returns a `HookOutcome`. When a hook returns one, or with `as_output(event)`, it becomes the right
dict for the event; a decision that the event does not support raises ValueError. Pure.
"""

from collections.abc import Callable
from typing import Any

from toolwire._support.record import Record, record
from toolwire.hooks.events import SPECIFIC_OUTPUTS


@record
class HookOutcome(Record):
    """The decision of a hook. Created by the functions of this module."""

    verb: str
    reason: str | None = None
    value: Any = None
    context: str | None = None

    def as_output(self, event: str) -> dict[str, Any]:
        """Return the output of a hook of this event; raises ValueError if the event does not support it."""
        output: dict[str, Any] = {}
        if self.verb == "block":
            output = _omit_none(decision="block", reason=self.reason)
        elif self.verb == "stop":
            output = _omit_none(continue_=False, stopReason=self.reason)
        specific = self._build_specific(event)
        if specific:
            output["hookSpecificOutput"] = {"hookEventName": event, **specific}
        return output

    def _build_specific(self, event: str) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.verb not in ("block", "stop", "add_context"):
            make = _DECISIONS.get((event, self.verb))
            if make is None:
                able = ", ".join(known for known, verb in _DECISIONS if verb == self.verb)
                raise ValueError(f"a {event} hook cannot return {self.verb}(); hooks that can: {able}")
            if self.value is not None and (event, self.verb) in _WITHOUT_INPUT:
                raise ValueError(
                    f"a {event} hook cannot return {self.verb}(updated_input=...): the event has no input to change"
                )
            fields = make(self)
        if self.context is not None:
            if event not in _TAKES_CONTEXT:
                raise ValueError(
                    f"a {event} hook cannot add context; hooks that can: {', '.join(_TAKES_CONTEXT)}"
                )
            fields["additionalContext"] = self.context
        return fields


class NoReasonError(TypeError):
    """Raised for a decision without a reason. It has the decision as `outcome`, so that a denial is not lost."""

    def __init__(self, outcome: HookOutcome) -> None:
        super().__init__(f"{outcome.verb}() needs a reason, a str that is not empty, not {outcome.reason!r}")
        self.outcome = HookOutcome(outcome.verb, None, outcome.value, outcome.context)


def allow(
    *, updated_input: dict[str, Any] | None = None, reason: str | None = None, context: str | None = None
) -> HookOutcome:
    """Allow the tool call without a permission request; with `updated_input`, replace its input."""
    return HookOutcome("allow", reason, updated_input, context)


def deny(reason: str, *, context: str | None = None) -> HookOutcome:
    """Deny the tool call. The model sees the reason."""
    return _require_reason(HookOutcome("deny", reason, None, context))


def ask(
    reason: str, *, updated_input: dict[str, Any] | None = None, context: str | None = None
) -> HookOutcome:
    """Have `can_use_tool` decide, even if a rule allows the tool."""
    return _require_reason(HookOutcome("ask", reason, updated_input, context))


def change_input(updated_input: dict[str, Any], *, context: str | None = None) -> HookOutcome:
    """Replace the tool's input. The permission rules still decide on the call."""
    return HookOutcome("change_input", None, updated_input, context)


def replace_output(output: Any, *, context: str | None = None) -> HookOutcome:
    """Replace the tool's result that the model sees."""
    return HookOutcome("replace_output", None, output, context)


def add_context(text: str) -> HookOutcome:
    """Add context for the model. After a Stop it makes the model continue."""
    return HookOutcome("add_context", context=text)


def block(reason: str, *, context: str | None = None) -> HookOutcome:
    """Block the action, with a reason: a prompt is not sent, a model that wants to stop continues."""
    return _require_reason(HookOutcome("block", reason, None, context))


def stop(reason: str) -> HookOutcome:
    """End the run."""
    return _require_reason(HookOutcome("stop", reason))


def _require_reason(outcome: HookOutcome) -> HookOutcome:
    reason: object = outcome.reason
    if not isinstance(reason, str) or not reason:
        raise NoReasonError(outcome)
    return outcome


def _omit_none(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _to_decision(outcome: HookOutcome) -> dict[str, Any]:
    return _omit_none(
        permissionDecision=outcome.verb, permissionDecisionReason=outcome.reason, updatedInput=outcome.value
    )


_DECISIONS: dict[tuple[str, str], Callable[[HookOutcome], dict[str, Any]]] = {
    ("PreToolUse", "allow"): _to_decision,
    ("PreToolUse", "deny"): _to_decision,
    ("PreToolUse", "ask"): _to_decision,
    ("PreToolUse", "change_input"): lambda outcome: {"updatedInput": outcome.value},
    ("PostToolUse", "replace_output"): lambda outcome: {"updatedToolOutput": outcome.value},
    ("PreModelSwitch", "allow"): _to_decision,
    ("PreModelSwitch", "deny"): _to_decision,
    ("PreModelSwitch", "ask"): _to_decision,
    ("PermissionRequest", "allow"): lambda outcome: {
        "decision": _omit_none(behavior="allow", updatedInput=outcome.value)
    },
    ("PermissionRequest", "deny"): lambda outcome: {
        "decision": _omit_none(behavior="deny", message=outcome.reason)
    },
}

_WITHOUT_INPUT = {("PreModelSwitch", "allow"), ("PreModelSwitch", "ask")}

_TAKES_CONTEXT = [
    event for event, kind in SPECIFIC_OUTPUTS.items() if "additionalContext" in kind.__annotations__
]
