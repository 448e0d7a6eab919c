"""Permissions and hooks compared with the official SDK: the same request gets the same response."""

import asyncio
import dataclasses
import json
from contextlib import contextmanager

import claude_agent_sdk.types as official
import pytest
from claude_agent_sdk._internal.query import Query

from toolwire import hooks, permissions
from toolwire.hooks.registry import output_to_wire, register
from toolwire.permissions.types import context_from_wire, result_to_wire

BODY = {
    "subtype": "can_use_tool",
    "tool_name": "Bash",
    "input": {"command": "ls"},
    "permission_suggestions": [
        {
            "type": "addRules",
            "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}, {"toolName": "Read"}],
            "behavior": "allow",
            "destination": "localSettings",
        },
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        {"type": "addDirectories", "directories": ["/srv"], "destination": "session"},
    ],
    "blocked_path": "/etc/passwd",
    "decision_reason": "outside of the workspace",
    "title": "Claude wants to run ls",
    "display_name": "Run command",
    "description": "ls",
    "tool_use_id": "toolu_01",
    "agent_id": "a1",
}


class Recorder:
    """A transport that keeps what is written to it."""

    def __init__(self):
        self.written = []

    async def write(self, data):
        self.written.append(json.loads(data))


@contextmanager
def official_query(transport, **kwargs):
    """Make the official SDK's session, without a CLI behind it."""
    query = Query(transport=transport, is_streaming_mode=True, **kwargs)
    try:
        yield query
    finally:
        query._message_send.close()
        query._message_receive.close()


def official_answer(request, **callbacks):
    """Return the official SDK's response to a control request."""
    recorder = Recorder()
    frame = {"type": "control_request", "request_id": "r", "request": request}
    with official_query(recorder) as query:
        for name, value in callbacks.items():
            setattr(query, name, value)
        asyncio.run(query._handle_control_request(frame))
    [frame] = recorder.written
    return frame["response"]


def answers(types):
    """Return every sort of permission result, made of one package's classes."""
    allow, deny, update = types.PermissionResultAllow, types.PermissionResultDeny, types.PermissionUpdate
    rules = [types.PermissionRuleValue("Bash", "ls:*"), types.PermissionRuleValue("Read")]
    updates = [
        update("replaceRules", rules=rules, behavior="deny", destination="session"),
        update("removeRules", behavior="ask"),
        update("setMode", mode="plan", directories=["/x"]),
        update("removeDirectories", directories=["/x"], destination="userSettings"),
    ]
    return [
        allow(),
        allow(updated_input={}),
        allow(updated_input={"command": "pwd"}, updated_permissions=updates),
        allow(updated_permissions=[]),
        deny(),
        deny(message="no", interrupt=True),
    ]


def _without_nulls(value):
    """Remove nulls: for `ruleContent: null`, which only the official SDK sends, the CLI drops an update."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", range(6))
def test_permission_answers(number):
    """The callback gets the same context, and its result is sent in the same form."""
    seen = []

    async def decide(name, given, context):
        seen.append(context)
        return answers(official)[number]

    response = official_answer(BODY, can_use_tool=decide)
    sent = result_to_wire(answers(permissions)[number], BODY["input"])
    expected = _without_nulls(response["response"])
    for each in expected.get("updatedPermissions", ()):
        each.setdefault("destination", "session")  # without one, the CLI ignores all of them
    assert expected == sent
    ours = dataclasses.asdict(context_from_wire(BODY))
    assert dataclasses.asdict(seen[0]).items() <= ours.items()


@pytest.mark.parametrize(
    "output",
    [{}, {"continue_": False, "stopReason": "x"}, {"async_": True, "asyncTimeout": 5}, {"continue": True}],
)
def test_hook_answers(output):
    """A hook's output is sent with the same keys."""

    async def hook(data, tool_use_id, context):
        return output

    request = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {}, "tool_use_id": None}
    response = official_answer(request, hook_callbacks={"hook_0": hook})
    assert response["response"] == output_to_wire(output)


async def hook_a(data, tool_use_id, context):
    return {}


async def hook_b(data, tool_use_id, context):
    return {}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Stop": []},
        {"PreToolUse": [("Bash", [hook_a, hook_b], 5.0, None), (None, [], None, "continue")], "Stop": []},
        {"PostToolUse": [("Edit|Write", [hook_b], 0, "continue")], "Stop": [(None, [hook_a], None, None)]},
    ],
)
def test_hook_registration(given):
    """The initialize request names the same hooks by the same ids."""
    sent = []

    async def send(request, **_):
        sent.append(request)
        return {}

    def made_of(types):
        return {event: [types.HookMatcher(*row) for row in rows] for event, rows in given.items()}

    theirs = official._hooks_to_internal_format(made_of(official))
    with official_query(Recorder(), hooks=theirs) as query:
        query._send_control_request = send
        asyncio.run(query.initialize())
    config, registered = register(made_of(hooks))
    assert json.dumps(config) == json.dumps(sent[0]["hooks"])
    assert {name: hook.callback for name, hook in registered.items()} == query.hook_callbacks
