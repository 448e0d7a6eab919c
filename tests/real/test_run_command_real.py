"""`toolwire run` with the real CLI, always aimed at a scripted model on loopback."""

import json
import sys

import pytest

from real.cli_under_test import cli_under_test
from shared.programs import run_program
from shared.terminal import Terminal
from toolwire import ClaudeAgentOptions, run
from toolwire.cli.shared.target import resolve
from toolwire.testing import ClaudeEnvironment, Replay, ScriptedModel, call, fail, say

pytestmark = pytest.mark.real

APP = '''
import anyio
from toolwire import ToolServer

calc = ToolServer("calc")


@calc.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@calc.tool
async def forever() -> str:
    """Never end."""
    await anyio.sleep_forever()
'''


def command(*arguments):
    return [sys.executable, "-m", "toolwire", "run", "-t", "app.py", *arguments]


@pytest.fixture
def folder(tmp_path):
    """Return the folder in which the user runs the command."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def in_pipe(folder, env, *arguments):
    env = {**env, "TOOLWIRE_CLI": cli_under_test(), "COLUMNS": "200"}
    return run_program(command(*arguments), env=env, cwd=folder)


def scripted_env(folder):
    """Return an environment for --scripted, which makes the CLI's own environment itself."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TOOLWIRE_CLI": cli_under_test()}


def test_a_conversation_with_questions_and_an_interrupt(folder):
    """The same as with the scripted CLI: ask, allow, call, interrupt a call, go on, leave."""
    asks = "[n]o: "
    with Terminal(command("--scripted"), folder, scripted_env(folder), timeout=60) as terminal:
        terminal.expect("the real Claude Code CLI and a scripted model")
        terminal.expect("> ")
        terminal.send("add a=15 b=27\n")
        terminal.expect("→ calc.add(a=15, b=27)\nMay it call calc.add?")
        terminal.expect(asks)
        terminal.send("y\n")
        terminal.expect("add returned: 42.0")
        terminal.expect("as computed by the CLI")
        terminal.expect("> ")
        terminal.send("forever\n")
        terminal.expect(asks)
        terminal.send("y\n")
        terminal.expect("y\n")
        terminal.send("\x03")
        terminal.expect("Interrupted.")
        terminal.expect("> ")
        terminal.send("add a=1 b=2\n")
        terminal.expect(asks)
        terminal.send("n too small\n")
        terminal.expect("add failed: The user does not allow this call. They say: too small")
        terminal.expect("> ")
        terminal.send("/exit\n")
        assert terminal.wait() == 0


def test_live_offers_the_targets_tools_and_nothing_else(folder):
    """The user's own environment reaches the CLI; its built-in tools do not reach the model."""
    script = [call("mcp__calc__add", a=15, b=27), say("It is 42.")]
    with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        done = in_pipe(folder, env.env, "--live", "--yes", "--system", "Be brief.", "What is 15 + 27?")
        model.assert_finished()
        request = model.requests[0]
    assert done.returncode == 0, done.stderr
    assert "It is 42." in done.stdout
    assert done.stderr == ""
    assert sorted(request.tools) == ["mcp__calc__add", "mcp__calc__forever"]
    assert "Be brief." in request.system


def test_live_without_a_good_key_names_the_way_out(folder):
    """The error is one line that mentions --scripted, and the exit code is 1."""
    with ScriptedModel([fail(401)]) as model, ClaudeEnvironment(model) as env:
        done = in_pipe(folder, env.env, "hi")
    assert done.returncode == 1
    error = done.stderr.strip()
    assert error.startswith("Error: ")
    assert "\n" not in error
    assert "--scripted" in error


@pytest.mark.anyio
async def test_a_recorded_run_can_be_replayed(folder):
    """Replay plays the file that --record writes."""
    done = in_pipe(folder, scripted_env(folder), "--scripted", "--record", "run.jsonl", "--json", "hello")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "result"
    replay = Replay(folder / "run.jsonl")
    servers = {"calc": resolve(str(folder / "app.py")).server}
    options = ClaudeAgentOptions(spawn_claude_code_process=replay, mcp_servers=servers)
    reply = await run("hello", options=options)
    assert "a scripted model, not Claude" in reply.text
