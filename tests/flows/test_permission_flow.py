"""Permissions through the public API: a policy as `can_use_tool`, and the response that the CLI gets."""

import json

import anyio
import pytest

from shared.waiting import eventually
from toolwire import AssistantMessage, CanUseToolShadowedWarning, ClaudeSDKClient, query
from toolwire.permissions.policies import allow, audit, commands, deny

pytestmark = pytest.mark.anyio


async def answered(options):
    """Return the response that the stand-in CLI got to its permission request for `ls`."""
    with anyio.fail_after(20):
        messages = [message async for message in query(prompt="go", options=options)]
    told = next(message.text for message in messages if isinstance(message, AssistantMessage))
    return json.loads(told)["response"]


async def test_a_policy_answers_the_cli(play):
    """An allowed call keeps its input, a denied one gets the reason, and a policy without an opinion denies."""
    yes = await answered(play("permission", can_use_tool=commands(allow=["ls"])))
    assert yes == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    no = await answered(play("permission", can_use_tool=deny("Bash", reason="no shell")))
    assert no == {"behavior": "deny", "message": "no shell"}
    none = await answered(play("permission", can_use_tool=allow("Read")))
    assert none == {
        "behavior": "deny",
        "message": "Bash was refused: no rule of this program allows the call.",
    }


async def test_a_cancelled_request_is_on_record(play, tmp_path):
    """The policy is cancelled with the request, and the audit record says so."""
    started = anyio.Event()

    async def slow(*_):
        started.set()
        await anyio.sleep_forever()

    record = tmp_path / "audit.jsonl"
    options = play("permission cancelled", can_use_tool=audit(slow, record))
    with anyio.fail_after(20):
        async with ClaudeSDKClient(options) as client:
            await client.query("go")
            await started.wait()
            await client.interrupt()
            await eventually(record.exists)
    assert json.loads(record.read_text())["decision"] == "cancelled"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"allowed_tools": ["Bash", "Read(x)"]}, "not called for Bash:"),
        ({"permission_mode": "bypassPermissions"}, "never called"),
        ({"permission_prompts": "none"}, "never called"),
    ],
)
async def test_a_policy_that_will_not_be_called_is_warned_about(play, more, words):
    """The warning names the rules or modes that hide calls from `can_use_tool`, and a hook as the alternative."""
    with pytest.warns(CanUseToolShadowedWarning, match=f"{words}.*PreToolUse hook"):
        await answered(play("permission", can_use_tool=allow("Bash"), **more))
