"""Requests on a terminal: what is shown, what an answer means, and what happens without one."""

import os
import pty
import subprocess
import sys

import anyio
import pytest

from toolwire import ElicitationRequest
from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import ask, ask_on_terminal, terminal_elicitation
from toolwire.tools.elicitation import elicitation_to_wire

pytestmark = pytest.mark.anyio


class Typed:
    """A terminal whose user types these lines."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.shown = ""

    async def __call__(self, prompt):
        self.shown += prompt
        return self.lines.pop(0) if self.lines else None


async def asked(*lines, **context):
    typed = Typed(*lines)
    policy = ask(ask_on_terminal(typed))
    result = await policy("mcp__x__y", {"a": "b\x1b[31m"}, ToolPermissionContext(**context))
    return result, typed.shown


async def test_yes_no_always():
    """Words and letters are understood, anything else is asked again, and the end of input means no."""
    assert (await asked("y"))[0].behavior == "allow"
    assert (await asked("what", "", " YES "))[0].behavior == "allow"
    assert (await asked("a"))[0].updated_permissions[0].destination == "session"
    assert (await asked("n"))[0].message == "The user does not allow this call."
    assert (await asked("no use b.txt"))[0].message.endswith("They say: use b.txt")
    assert (await asked())[0].behavior == "deny"


async def test_the_prompt_shows_the_call_without_control_characters():
    """Arguments and reason are shown, without control characters, and cut when they are long."""
    _, shown = await asked("y", decision_reason="outside\x07")
    assert "mcp__x__y" in shown
    assert "outside" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    typed = Typed("n")
    await ask(ask_on_terminal(typed))("Write", {"content": "x" * 9_000}, ToolPermissionContext())
    assert "more characters" in typed.shown


async def test_always_is_not_offered_if_the_cli_forbids_it():
    """Then the word "always" has no effect."""
    result, shown = await asked("a", "n", suppress_always_allow_rule=True)
    assert result.behavior == "deny"
    assert "lways" not in shown


async def test_without_a_terminal_the_answer_is_no(monkeypatch):
    """The model sees that there was no terminal; an elicitation is declined."""
    monkeypatch.setattr(sys, "stdin", None)
    result = await ask()("Read", {}, ToolPermissionContext())
    assert "no terminal" in result.message
    assert await terminal_elicitation()(ElicitationRequest("s", "?")) == {"action": "decline"}


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Who?"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "sure": {"type": "boolean"},
        "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
        "tags": {"type": "array", "items": {"oneOf": [{"const": "a"}, {"const": "b"}]}},
        "note": {"type": "string"},
    },
    "required": ["name", "age", "sure", "tags"],
}


async def test_a_form():
    """It is asked field by field, again where a value does not fit."""
    typed = Typed("Ada", "x", "200", "36", "maybe", "yes", "", "a,c", "a, b", "")
    answer = await terminal_elicitation(typed)(ElicitationRequest("s", "Hello\x1b", schema=SCHEMA))
    content = {"name": "Ada", "age": 36, "sure": True, "size": "m", "tags": ["a", "b"]}
    assert elicitation_to_wire(answer) == {"action": "accept", "content": content}
    assert "s asks: Hello" in typed.shown
    assert "must be one of: a, b" in typed.shown
    assert "\x1b" not in typed.shown


async def test_declining():
    """`/decline` or the end of input declines a form, a page and a request without fields."""
    page = ElicitationRequest("s", "Sign in", mode="url", url="https://a.org")
    bare = ElicitationRequest("s", "Fine?", schema={"type": "object"})
    for lines in ((), ("/decline",)):
        for request in (page, bare, ElicitationRequest("s", "?", schema=SCHEMA)):
            assert (await terminal_elicitation(Typed(*lines))(request))["action"] == "decline"
    assert await terminal_elicitation(Typed(""))(page) == {"action": "accept"}
    assert await terminal_elicitation(Typed(""))(bare) == {"action": "accept", "content": {}}


PROGRAM = """
import sys, anyio
from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import ask

ticks = 0

async def tick():
    global ticks
    while True:
        ticks += 1
        await anyio.sleep(0)

async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        late = await ask(timeout=0.2)("Read", {}, ToolPermissionContext())
        print("late:", late.message, flush=True)
        result = await ask()("Write", {"a": 1}, ToolPermissionContext())
        print("then:", result.behavior, ticks > 10, flush=True)
        group.cancel_scope.cancel()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.process
def test_a_real_terminal(anyio_backend_name):
    """The event loop is not blocked while the user thinks, and a cancelled prompt accepts no later answer."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, anyio_backend_name],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    try:
        assert "no decision was made within 0.2 seconds" in child.stdout.readline()
        seen = b""
        while b"Write" not in seen or not seen.endswith(b"[n]o: "):
            seen += os.read(ours, 1024)
        os.write(ours, b"y\n")
        assert child.stdout.readline() == "then: allow True\n"
        assert child.wait(10) == 0
        assert b"the request was cancelled" in seen
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()
        os.close(ours)


async def test_a_cancelled_call_cancels_its_prompt():
    """The asker is cancelled with the call."""
    ended = anyio.Event()

    async def forever(prompt):
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.move_on_after(0.01):
        await ask(ask_on_terminal(forever))("Read", {}, ToolPermissionContext())
    assert ended.is_set()
