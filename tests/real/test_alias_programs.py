"""Programs for the official SDK, unchanged: on the official package, and on toolwire in alias mode."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from shared.programs import run_python
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, say

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parents[1] / "official" / "programs"
SCRIPTS = {
    "adapter": [
        call("mcp__framework__add", a=15, b=27),
        call("mcp__framework__divide", a=1, b=0),
        say("42"),
    ],
    "bot": [
        say("hello to you"),
        call("Write", {"file_path": "/nowhere/x", "content": "x"}),
        say("I may not"),
        say("bye"),
    ],
    "evaluate": [say("Paris, I think"), say("Lisbon")],
    "with_agno": [call("mcp__calc__add", a=15, b=27), say("42"), say("42 again")],
    "with_langchain": [say("hello"), say("hello again")],
}
NEEDS = {"with_agno": "agno", "with_langchain": "langchain_claude_agent_sdk"}
"""Frameworks that are not installed for the tests: `pip install` them to run theirs."""


def run(program, *command):
    """Run a program with the real CLI and its script; return the lines that it prints."""
    with ScriptedModel(SCRIPTS[program]) as model, ClaudeEnvironment(model) as env:
        done = run_python(*command, PROGRAMS / f"{program}.py", "go", env=env.env, cwd=env.cwd)
        model.assert_finished()
    assert done.returncode == 0, done.stderr
    return re.sub(r"toolu_\w+", "ID", done.stdout).splitlines()


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_program_does_the_same_on_both(program):
    """The program itself is not changed: `python app.py` becomes `python -m toolwire.official app.py`."""
    if program in NEEDS and find_spec(NEEDS[program]) is None:
        pytest.skip(f"{NEEDS[program]} is not installed")
    official = run(program)
    assert len(official) > 1
    assert run(program, "-m", "toolwire.official") == official
