"""`toolwire demo` in a process, as a new user runs it."""

import ast
import os
from functools import partial

import anyio
import pytest

from shared.programs import run_python
from toolwire import ClaudeAgentOptions, ToolServer, query
from toolwire._transport.find_cli import VARIABLE, bundled_cli
from toolwire.cli.demo import CODE, PROMPT, calculator, script
from toolwire.testing import ScriptedCLI


def toolwire(*arguments, env=None, home):
    """Run the command with a nearly empty environment."""
    given = {"PATH": os.defpath, "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200", **(env or {})}
    return run_python("-m", "toolwire", *arguments, env=given, cwd=home)


@pytest.mark.parametrize("peer", ["scripted", pytest.param("real", marks=pytest.mark.real)])
def test_the_demo_shows_a_conversation(peer, tmp_path):
    """It says what is real and what is scripted, and shows code, calls, results, turns and what to do next."""
    arguments = ["demo", "--scripted"] if peer == "scripted" else ["demo"]
    done = toolwire(*arguments, env={VARIABLE: bundled_cli()}, home=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = {"scripted": "a scripted CLI", "real": "the real Claude Code CLI. Claude's part is scripted"}[
        peer
    ]
    assert expected in " ".join(done.stdout.split())
    assert all(line in done.stdout for line in CODE.splitlines())
    assert "$" not in done.stdout  # a script costs nothing
    for part in (
        "calls mcp__calc__add",
        "gets 42.0",
        "error ZeroDivisionError",
        "Claude: 15 + 27 is 42",
        "3 turns",
    ):
        assert part in done.stdout
    assert "toolwire demo --live" in done.stdout
    assert done.stderr == ""


def test_wrong_use_is_a_one_line_error_and_exit_code_2(tmp_path):
    """No traceback for a user's mistake."""
    done = toolwire("demo", "--live", "--scripted", home=tmp_path)
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_cli_is_a_one_line_error_and_exit_code_1(tmp_path):
    """This happens with --live if the path of the CLI does not exist."""
    done = toolwire("demo", "--live", env={VARIABLE: str(tmp_path / "gone")}, home=tmp_path)
    assert done.returncode == 1
    assert "Claude Code not found" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_version(tmp_path):
    """--help lists the commands; --version prints the version."""
    assert "demo" in toolwire("--help", home=tmp_path).stdout
    assert toolwire("--version", home=tmp_path).stdout.startswith("toolwire 0.")


@pytest.mark.asyncio_only
@pytest.mark.anyio
async def test_the_code_that_is_shown_is_the_code_that_runs(capsys):
    """The program that the demo prints runs unchanged, and its tools are those of the demo."""
    options = partial(ClaudeAgentOptions, spawn_claude_code_process=ScriptedCLI(script()))
    names = {"PROMPT": PROMPT, "ClaudeAgentOptions": options, "ToolServer": ToolServer, "query": query}
    with anyio.fail_after(30):
        await eval(compile(CODE, "demo", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307 - it is ours
    assert "15 + 27 is 42" in capsys.readouterr().out
    shown = {name: tool.definition for name, tool in names["calc"].tools.items()}
    assert shown == {name: tool.definition for name, tool in calculator().tools.items()}
