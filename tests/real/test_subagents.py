"""Subagents in the background, with the real CLI: what reaches the host after the first result, and the end."""

import anyio
import pytest

from toolwire import (
    AgentDefinition,
    AssistantMessage,
    HookMatcher,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TextBlock,
    ToolServer,
    UserMessage,
    query,
)
from toolwire.testing import call, say

pytestmark = [pytest.mark.real, pytest.mark.anyio]


def conductor(request):
    """Play the main agent, which starts a helper in the background, and the helper, which calls a tool."""
    text = str(request.body["messages"])
    if "You are the helper" in str(request.body.get("system")):
        return say("helper done") if "slow result" in text else call("mcp__calc__slow")
    if "launched" in text or "tool_result" in text:
        return say("noted")
    return call(
        "Agent", description="do it", prompt="Use slow", subagent_type="helper", run_in_background=True
    )


async def test_a_background_agent_reaches_the_host_after_the_first_result(scripted):
    """The agent's tool call, hooks and text come through, and the run ends with it: not before, not long after."""
    calc = ToolServer("calc")
    first_result = anyio.Event()
    seen = []

    @calc.tool
    async def slow() -> str:
        """Take longer than the first turn."""
        await first_result.wait()
        seen.append("tool after the first result")
        return "slow result"

    async def hook(event, _tool_use_id, _context):
        seen.append((event["hook_event_name"], event.get("agent_type")))
        return {}

    events = ("PreToolUse", "PostToolUse", "SubagentStart", "SubagentStop")
    messages = []
    async with scripted(
        [conductor] * 5,
        mcp_servers={"calc": calc},
        allowed_tools=["mcp__calc", "Agent"],
        agents={
            "helper": AgentDefinition(
                description="helps", prompt="You are the helper", tools=["mcp__calc__slow"]
            )
        },
        hooks={event: [HookMatcher(hooks=[hook])] for event in events},
        forward_subagent_text=True,
    ) as (model, options):
        with anyio.fail_after(60) as limit:
            async for message in query(prompt="go", options=options):
                messages.append(message)
                if isinstance(message, ResultMessage):
                    if first_result.is_set():
                        limit.deadline = (
                            anyio.current_time() + 10
                        )  # nothing is waited for once the run is over
                    first_result.set()
    assert seen.index("tool after the first result") > seen.index(("SubagentStart", "helper"))
    assert ("PreToolUse", "helper") in seen
    assert seen.index(("PostToolUse", "helper")) > seen.index("tool after the first result")
    assert seen[-1] == ("SubagentStop", "helper")
    results = [index for index, message in enumerate(messages) if isinstance(message, ResultMessage)]
    assert len(results) == 2, "the helper's end wakes the main agent for another turn"
    (notified,) = [i for i, message in enumerate(messages) if isinstance(message, TaskNotificationMessage)]
    assert results[0] < notified < results[1]
    (started,) = [message for message in messages if isinstance(message, TaskStartedMessage)]
    assert started.task_id == messages[notified].task_id
    parents = [
        message.parent_tool_use_id
        for message in messages
        if isinstance(message, AssistantMessage | UserMessage)
    ]
    assert started.tool_use_id in parents
    said = [
        block.text
        for message in messages
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    assert said == ["helper done"]
    assert len(model.requests) == 5
