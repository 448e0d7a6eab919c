"""Permissions: from the CLI's request to a callback and back."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.permissions import (
    MatchedAskRule,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolPermissionContext,
)
from toolwire.permissions.types import context_from_wire, result_to_wire

RULE = {"toolName": "mcp__calc__add", "ruleContent": None}
SUGGESTION = {"type": "addRules", "rules": [RULE], "behavior": "allow", "destination": "localSettings"}
BODY = {
    "subtype": "can_use_tool",
    "tool_name": "mcp__calc__add",
    "mcp_server": {"name": "calc", "source": "sdk"},
    "display_name": "Add",
    "title": "Claude wants to add",
    "description": "Adds two numbers",
    "input": {"a": 1, "b": 2},
    "permission_suggestions": [SUGGESTION],
    "blocked_path": "/etc",
    "decision_reason": "outside",
    "decision_reason_type": "workingDir",
    "tool_use_id": "toolu_0007",
    "agent_id": "a1",
    "decision_reason_code": "outside_reads_blocked",
    "decision_reason_rule_source": "userSettings",
    "decision_reason_hook_event": "PreToolUse",
    "decision_reason_hook_source": "settings",
    "decision_reason_hook_plugin_id": "p@m",
    "matched_ask_rule": {"source": "userSettings", "tool_name": "Bash", "rule_content": "ls"},
    "server_policy_ask_only": True,
    "classifier_approvable": False,
    "requires_user_interaction": True,
    "default_to_no": True,
    "suppress_always_allow_rule": True,
    "tool_kind": "mcp",
    "plugin": "p",
    "server_prompt": "May I?",
    "provenance_prompt_line": "from a page",
    "request_id": "r1",
}
INPUT = {"a": 1}


def test_the_context_has_everything_that_the_cli_sent():
    """It has the official fields, our further fields, and the request itself."""
    context = context_from_wire(BODY)
    rules = [PermissionRuleValue("mcp__calc__add")]
    assert context == ToolPermissionContext(
        signal=None,
        suggestions=[
            PermissionUpdate("addRules", rules=rules, behavior="allow", destination="localSettings")
        ],
        tool_use_id="toolu_0007",
        agent_id="a1",
        blocked_path="/etc",
        decision_reason="outside",
        title="Claude wants to add",
        display_name="Add",
        description="Adds two numbers",
    )
    assert context.mcp_server == {"name": "calc", "source": "sdk"}
    assert context.decision_reason_type == "workingDir"
    assert context.raw is BODY
    assert context.matched_ask_rule == MatchedAskRule("userSettings", "Bash", "ls")
    elsewhere = {"subtype", "tool_name", "input", "permission_suggestions", "matched_ask_rule"}
    for name in BODY.keys() - elsewhere:
        assert getattr(context, name) == BODY[name]


@pytest.mark.parametrize("rule", [None, "x", {}, {"source": "s"}])
def test_an_ask_rule_that_cannot_be_read_is_none(rule):
    """The request is processed without it."""
    assert context_from_wire({"matched_ask_rule": rule}).matched_ask_rule is None


def test_a_bare_request_has_an_empty_context():
    """Nothing but the tool's name is needed."""
    assert context_from_wire({"permission_suggestions": None}) == ToolPermissionContext()


def test_a_suggestion_that_cannot_be_read_is_left_out():
    """One odd suggestion affects neither the others nor the request."""
    odd = [{"behavior": "allow"}, {"type": "addRules", "rules": [{}]}, {"type": "x", "rules": 3}, "odd", None]
    context = context_from_wire({"permission_suggestions": [*odd, SUGGESTION]})
    assert [update.to_dict() for update in context.suggestions] == [SUGGESTION]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a loaded machine is no failure
@given(st.dictionaries(st.sampled_from(sorted(BODY)), st.none() | st.integers() | st.lists(st.integers())))
def test_no_request_is_fatal(body):
    """The context never raises, whatever the CLI sent."""
    assert context_from_wire(body).raw is body


UPDATES = [
    (PermissionUpdate("addRules"), {"type": "addRules"}),
    (
        PermissionUpdate(
            "replaceRules", [PermissionRuleValue("Bash", "ls:*")], "deny", destination="session"
        ),
        {
            "type": "replaceRules",
            "destination": "session",
            "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}],
            "behavior": "deny",
        },
    ),
    (PermissionUpdate("removeRules", []), {"type": "removeRules", "rules": []}),
    (PermissionUpdate("setMode", mode="plan"), {"type": "setMode", "mode": "plan"}),
    (
        PermissionUpdate("addDirectories", directories=["/a"], destination="userSettings"),
        {"type": "addDirectories", "destination": "userSettings", "directories": ["/a"]},
    ),
    (
        PermissionUpdate("removeDirectories", directories=["/a"]),
        {"type": "removeDirectories", "directories": ["/a"]},
    ),
]


@pytest.mark.parametrize(("update", "wire"), UPDATES)
def test_updates_to_the_wire_and_back(update, wire):
    """Each kind has its own fields, and comes back as it was."""
    assert update.to_dict() == wire
    assert PermissionUpdate.from_dict(wire) == update


def test_an_update_sends_only_the_fields_of_its_kind():
    """A field that the kind does not use is not sent."""
    update = PermissionUpdate("setMode", [PermissionRuleValue("Bash")], "allow", "plan", ["/a"])
    assert update.to_dict() == {"type": "setMode", "mode": "plan"}
    assert PermissionUpdate("brandNew", directories=["/a"]).to_dict() == {"type": "brandNew"}


def test_allow_sends_the_input_it_was_asked_about():
    """The CLI requires an input with every allow; without a new one it is the original."""
    assert result_to_wire(PermissionResultAllow(), INPUT) == {"behavior": "allow", "updatedInput": INPUT}


def test_allow_with_another_input_and_with_rules():
    """An empty input is an input; an empty list of updates is sent as one."""
    allow = PermissionResultAllow(
        updated_input={}, updated_permissions=[PermissionUpdate("setMode", mode="plan")]
    )
    assert result_to_wire(allow, INPUT) == {
        "behavior": "allow",
        "updatedInput": {},
        "updatedPermissions": [{"type": "setMode", "destination": "session", "mode": "plan"}],
    }
    assert result_to_wire(PermissionResultAllow(updated_permissions=[]), INPUT)["updatedPermissions"] == []


def test_a_rule_for_a_whole_tool_goes_without_a_null():
    """The CLI drops an update whose rule says `ruleContent: null`, silently."""
    rules = [PermissionRuleValue("Read"), PermissionRuleValue("Bash", "ls:*")]
    allow = PermissionResultAllow(
        updated_permissions=[PermissionUpdate("addRules", rules, "allow", destination="session")]
    )
    (update,) = result_to_wire(allow, INPUT)["updatedPermissions"]
    assert update["rules"] == [{"toolName": "Read"}, {"toolName": "Bash", "ruleContent": "ls:*"}]


def test_an_update_without_a_destination_is_for_the_session():
    """The CLI ignores all updates of a response, silently, if one has no destination."""
    update = PermissionUpdate("addRules", [PermissionRuleValue("Bash")], "allow")
    (sent,) = result_to_wire(PermissionResultAllow(updated_permissions=[update]), INPUT)["updatedPermissions"]
    assert sent["destination"] == "session"
    assert update.destination is None
    update.destination = "userSettings"
    (sent,) = result_to_wire(PermissionResultAllow(updated_permissions=[update]), INPUT)["updatedPermissions"]
    assert sent["destination"] == "userSettings"


def test_deny():
    """The message is always sent, the interrupt only if it is set."""
    assert result_to_wire(PermissionResultDeny(), INPUT) == {"behavior": "deny", "message": ""}
    deny = PermissionResultDeny(message="no way", interrupt=True)
    assert result_to_wire(deny, INPUT) == {"behavior": "deny", "message": "no way", "interrupt": True}


@pytest.mark.parametrize(
    ("returned", "name"), [(None, "builtins.NoneType"), (True, "builtins.bool"), ({}, "builtins.dict")]
)
def test_any_other_result_is_named(returned, name):
    """The error names the type that the callback returned."""
    with pytest.raises(TypeError, match=f"PermissionResultAllow or PermissionResultDeny, not {name}"):
        result_to_wire(returned, INPUT)
