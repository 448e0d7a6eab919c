"""What `deny()`, `add_context()` and the like become, event by event."""

import pytest

from toolwire.hooks import add_context, allow, ask, block, change_input, deny, replace_output, stop


def specific(event, **fields):
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


CASES = [
    (deny("no"), "PreToolUse", {"permissionDecision": "deny", "permissionDecisionReason": "no"}),
    (allow(), "PreToolUse", {"permissionDecision": "allow"}),
    (
        allow(updated_input={"a": 1}, reason="ok", context="c"),
        "PreToolUse",
        {
            "permissionDecision": "allow",
            "permissionDecisionReason": "ok",
            "updatedInput": {"a": 1},
            "additionalContext": "c",
        },
    ),
    (ask("sure?"), "PreToolUse", {"permissionDecision": "ask", "permissionDecisionReason": "sure?"}),
    (change_input({"a": 1}), "PreToolUse", {"updatedInput": {"a": 1}}),
    (replace_output("x"), "PostToolUse", {"updatedToolOutput": "x"}),
    (replace_output(None), "PostToolUse", {"updatedToolOutput": None}),
    (deny("no"), "PermissionRequest", {"decision": {"behavior": "deny", "message": "no"}}),
    (allow(), "PermissionRequest", {"decision": {"behavior": "allow"}}),
    (
        allow(updated_input={"a": 1}),
        "PermissionRequest",
        {"decision": {"behavior": "allow", "updatedInput": {"a": 1}}},
    ),
    (deny("no"), "PreModelSwitch", {"permissionDecision": "deny", "permissionDecisionReason": "no"}),
    (add_context("c"), "SessionStart", {"additionalContext": "c"}),
    (add_context("c"), "Stop", {"additionalContext": "c"}),
]


@pytest.mark.parametrize(("outcome", "event", "fields"), CASES)
def test_outcomes_that_are_specific(outcome, event, fields):
    """Each becomes the fields of its event."""
    assert outcome.as_output(event) == specific(event, **fields)


def test_outcomes_for_any_event():
    """Block and stop are at the top, where every event has them."""
    assert block("no").as_output("UserPromptSubmit") == {"decision": "block", "reason": "no"}
    assert stop("enough").as_output("SessionEnd") == {"continue_": False, "stopReason": "enough"}
    both = block("no", context="c").as_output("PostToolUse")
    assert both == {"decision": "block", "reason": "no", **specific("PostToolUse", additionalContext="c")}


@pytest.mark.parametrize(
    ("outcome", "event", "words"),
    [
        (
            deny("no"),
            "Stop",
            "a Stop hook cannot return deny(); hooks that can: PreToolUse, PreModelSwitch, Perm",
        ),
        (replace_output("x"), "PreToolUse", "hooks that can: PostToolUse"),
        (
            allow(updated_input={}),
            "PreModelSwitch",
            "a PreModelSwitch hook cannot return allow(updated_input=...)",
        ),
        (add_context("c"), "SessionEnd", "a SessionEnd hook cannot add context; hooks that can: PreToolUse"),
    ],
)
def test_outcomes_that_an_event_does_not_have(outcome, event, words):
    """They are refused, with the events that have them."""
    with pytest.raises(ValueError, match="hook") as caught:
        outcome.as_output(event)
    assert words in str(caught.value)


@pytest.mark.parametrize("make", [deny, block, ask, stop])
@pytest.mark.parametrize("reason", [42, None, "", ["no"]])
def test_decisions_need_a_reason(make, reason):
    """The reason must be a str that is not empty, or the call raises."""
    with pytest.raises(TypeError, match=rf"{make.__name__}\(\) needs a reason"):
        make(reason)
