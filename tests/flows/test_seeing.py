"""What can be observed of a session: its frames, and the context variables in its handlers."""

import contextvars
import logging

import pytest

from toolwire import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, ToolServer, run
from toolwire._conversation.observe import LONGEST_TEXT
from toolwire.testing import ScriptedCLI, call, say

pytestmark = pytest.mark.anyio

REQUEST = contextvars.ContextVar("REQUEST", default="none")


async def test_frames_can_be_looked_at():
    """`on_frame` gets the frames of both directions, in order, with long texts cut."""
    frames = []
    long = "x" * (LONGEST_TEXT + 100)
    options = ClaudeAgentOptions(
        on_frame=lambda way, frame: frames.append((way, frame)),
        spawn_claude_code_process=ScriptedCLI([say(long)]),
    )
    reply = await run("hi", options=options)
    assert reply.text == long
    kinds = [(way, frame["type"]) for way, frame in frames]
    assert kinds[:2] == [("out", "control_request"), ("in", "control_response")]
    assert ("out", "user") in kinds
    assert ("in", "result") in kinds
    said = next(frame for way, frame in frames if frame["type"] == "assistant")
    assert said["message"]["content"][0]["text"] == "x" * LONGEST_TEXT + "… (100 more characters)"


async def test_a_tap_that_fails_is_taken_off(caplog):
    """An observer that raises is logged and not called again; the run goes on."""
    seen = []

    def tap(_way, frame):
        seen.append(frame)
        raise ValueError("oops")

    with caplog.at_level(logging.ERROR, "toolwire"):
        options = ClaudeAgentOptions(on_frame=tap, spawn_claude_code_process=ScriptedCLI([say("hi")]))
        assert (await run("hi", options=options)).text == "hi"
    assert len(seen) == 1
    assert "the observer on_frame failed in frame()" in caplog.text


async def test_handlers_see_the_context_of_the_program():
    """Context variables that were set before the run are there in tools, hooks and permission requests."""
    seen = []
    calc = ToolServer("calc")

    @calc.tool
    async def look() -> str:
        """Look."""
        seen.append(REQUEST.get())
        return "ok"

    @calc.tool
    def look_in_a_thread() -> str:
        """Look."""
        seen.append(REQUEST.get())
        return "ok"

    async def hook(_event, _tool_use_id, _context):
        seen.append(REQUEST.get())
        return {}

    async def decide(_tool, _given, _context):
        seen.append(REQUEST.get())
        return PermissionResultAllow()

    cli = ScriptedCLI([call("mcp__calc__look"), call("mcp__calc__look_in_a_thread"), say("done")])
    options = ClaudeAgentOptions(
        mcp_servers={"calc": calc},
        can_use_tool=decide,
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        spawn_claude_code_process=cli,
    )
    REQUEST.set("r1")
    await run("hi", options=options)
    assert seen == ["r1"] * 6
