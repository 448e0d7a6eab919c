"""The help of all commands."""

import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from toolwire.cli.main import app


def all_commands(command, words=()):
    """Yield the words of every command and group."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*words, name))


@pytest.mark.parametrize("words", [*all_commands(get_command(app))], ids=" ".join)
def test_help_shows_flags_as_flags(words):
    """A flag takes no value, so the help must not show `--json <bool>`."""
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "Usage: toolwire" in done.stdout.replace("root", "toolwire")
    assert "<bool>" not in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["config", "nope.py", "--for", "cursor"],
        ["tools", "nope.py"],
        ["call", "nope.py", "add"],
        ["check", "nope.py"],
        ["run", "-t", "nope.py", "--scripted", "add"],
        ["catalog", "check", "nope"],
        ["catalog", "spend", "--ledger", "nowhere/ledger.db"],
        ["sessions", "show", "nope"],
        ["sessions", "list", "--store", "sqlite:nowhere/store.db"],
        ["batch", "show", "nope", "--at", "nowhere"],
    ],
    ids=" ".join,
)
def test_an_error_with_json_is_one_line_of_json_on_stdout(words, tmp_path, monkeypatch):
    """A script always finds JSON on stdout; one line, since some commands print JSON lines."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--json"], env={"HOME": str(tmp_path)})
    assert done.exit_code in (1, 2), done.output
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["error"]


def test_every_json_flag_is_known_to_the_report_of_errors():
    """Errors are printed as JSON if the parameter of `--json` is named `json`."""
    named = {
        parameter.name
        for words in all_commands(get_command(app))
        for parameter in find_command(words).params
        if "--json" in parameter.opts
    }
    assert named == {"json"}


def find_command(words):
    """Return the command with these words."""
    command = get_command(app)
    for word in words:
        command = command.commands[word]
    return command
