"""`toolwire doctor` reports what is installed and what is missing."""

import json
import stat
import sys

import pytest
from typer.testing import CliRunner

from toolwire._transport import find_cli
from toolwire._transport.find_cli import VARIABLE
from toolwire.cli.main import app
from toolwire.mcp import versions

SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK")
posix = pytest.mark.skipif(sys.platform == "win32", reason="a stand-in that is a shell script")


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """Return a function that runs the command with a script in place of the CLI, and no keys but those given."""
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)

    def run(*words, script=None, **env):
        cli = tmp_path / "claude"
        if script is not None:
            cli.write_text(f"#!/bin/sh\n{script}\n")
            cli.chmod(cli.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(VARIABLE, str(cli))
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return CliRunner().invoke(app, ["doctor", *words])

    return run


def finding(done, what):
    """Return the finding of this name."""
    return next(each for each in json.loads(done.stdout)["findings"] if each["what"] == what)


@posix
def test_a_cli_is_found_with_its_version(doctor):
    """The report says how it was found, and whether it is the tested version."""
    done = doctor("--json", script="echo '2.1.325 (Claude Code)'")
    assert done.exit_code == 0
    assert finding(done, "CLI")["said"].startswith("2.1.325, ")
    assert f"named by {VARIABLE}" in finding(done, "CLI")["said"]
    assert finding(done, "CLI version")["said"] == "the version that toolwire is tested with"


@posix
def test_another_version_is_a_note(doctor):
    """It is not a problem, so the exit code is 0."""
    done = doctor("--json", script="echo '3.0.0 (Claude Code)'")
    assert done.exit_code == 0
    assert finding(done, "CLI version")["level"] == "note"


@posix
def test_the_cli_is_started_in_an_environment_of_its_own(doctor):
    """So it does not get the user's keys."""
    key = "sesame-open"
    done = doctor("--json", script='echo "v:$CLAUDE_CODE_OAUTH_TOKEN:$HOME"', CLAUDE_CODE_OAUTH_TOKEN=key)
    assert finding(done, "CLI")["said"].startswith("v::/")
    assert key not in done.stdout
    assert finding(done, "key")["said"] == "CLAUDE_CODE_OAUTH_TOKEN set (the value was not read)"


@posix
@pytest.mark.parametrize("script", ["exit 3", "true"])
def test_a_cli_that_fails_is_a_note_with_a_fix(doctor, script):
    """It is not a problem, because serving and scripted runs work without a CLI."""
    done = doctor("--json", script=script)
    assert done.exit_code == 0
    assert finding(done, "CLI")["level"] == "note"
    assert finding(done, "CLI")["fix"]
    assert finding(done, "run")["said"].startswith("only toolwire run --scripted")


def test_no_cli_is_a_note_with_a_fix(doctor):
    """Without --json, each finding is a readable line."""
    done = doctor()
    assert done.exit_code == 0
    assert "Claude Code not found" in done.stdout
    assert "npm install -g @anthropic-ai/claude-code" in done.stdout
    assert "no key or provider in the environment" in done.stdout


def test_the_places_without_a_cli_are_named(monkeypatch, tmp_path):
    """The report lists all places that were searched, so that the user sees why no CLI was found."""
    monkeypatch.setattr(find_cli, "find_official_folder", lambda: None)
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = CliRunner().invoke(app, ["doctor", "--json"], env={**env, VARIABLE: ""})
    said = finding(done, "CLI")["said"]
    assert said.startswith("Claude Code not found. Looked in: PATH, ~/.local/bin/")
    assert said.endswith("the Python package claude-agent-sdk")


def test_python_and_packages_are_named(doctor):
    """With their versions."""
    done = doctor("--json")
    assert sys.executable in finding(done, "Python")["said"]
    for name in ("toolwire 0.", "mcp 2.", "pydantic 2.", "anyio 4."):
        assert name in finding(done, "packages")["said"]


def test_a_missing_package_is_a_problem(doctor, monkeypatch):
    """It is the only missing part that makes the command fail."""
    import importlib.metadata  # noqa: PLC0415 - changed here only

    real = importlib.metadata.version

    def version(name):
        if name == "mcp":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = doctor("--json")
    assert (done.exit_code, json.loads(done.stdout)["ok"]) == (1, False)
    assert any(each["said"] == "missing: mcp" for each in json.loads(done.stdout)["findings"])


@pytest.mark.parametrize(
    ("installed", "level", "exit_code"),
    [((1, 30), "problem", 1), ((2, 1), "note", 0), ((3, 0), "problem", 1)],
)
def test_a_version_of_mcp_that_serve_refuses_is_reported(doctor, monkeypatch, installed, level, exit_code):
    """A version that is too old or too new is a problem; one between that serves over stdio only is a note."""
    monkeypatch.setattr(versions, "installed", lambda: installed)
    done = doctor("--json")
    assert done.exit_code == exit_code
    assert finding(done, "mcp")["level"] == level
    assert "'mcp>=2.2,<3'" in finding(done, "mcp")["fix"]
