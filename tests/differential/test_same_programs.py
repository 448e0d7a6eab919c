"""Programs in the style of the official examples print the same on both packages, with the real CLI."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, fail, say, think, turn

pytestmark = [pytest.mark.real, pytest.mark.slow]

PROGRAMS = {
    "quick_start": [say("4")],
    "by_class_name": [turn(say("Hello!"), chunk_size=3)],
    "by_match": [turn(think("hm"), say("so"))],
    "several_turns": [say("Hello Ada."), say("Ada.")],
    "reader_in_the_background": [say("1"), say("2")],
    "streamed_prompts": [say("Hi")],
    "calculator": [call("mcp__calc__add", a=1, b=2), call("mcp__calc__divide", a=1, b=0), say("done")],
    "hooks": [
        call("Bash", command="echo forbidden", description="no"),
        call("Bash", command="echo fine", description="yes"),
        say("done"),
    ],
    "permissions": [
        call("Write", file_path="note.txt", content="original"),
        call("Bash", command="rm -r /nowhere", description="no"),
        say("done"),
    ],
    "agents_and_budget": [say("gone")],
    "failing": [fail(401, "authentication_error", "bad key")],
    "left_early": [say("bye")],
}


def run(package, names):
    """Run programs with a package; return the lines that they print."""
    script = [step for name in names for step in PROGRAMS[name]]
    with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        given = json.dumps({"cli_path": bundled_cli(), "cwd": str(env.cwd)})
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("programs.py"), package, given, *names],
            env=env.env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.replace(str(env.home.parent), "PLACE").splitlines()]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("names", [list(PROGRAMS)[start::4] for start in range(4)], ids="-".join)
def test_the_same(names):
    """Both packages print the same lines, and some for each program."""
    official, ours = (run(package, names) for package in ("claude_agent_sdk", "toolwire"))
    assert ours == official
    heads = [number for number, line in enumerate(ours) if line[0] == "program"]
    assert [ours[number][1] for number in heads] == names
    assert all(after - before > 1 for before, after in zip(heads, [*heads[1:], len(ours)], strict=True))
