"""The command as a whole: its help."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from toolwire.cli.main import app


def all_commands(command, words=()):
    """The words of every command and group."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*words, name))


@pytest.mark.parametrize("words", [*all_commands(get_command(app))], ids=" ".join)
def test_help_shows_flags_as_flags(words):
    """No `--json <bool>`: a flag takes no value."""
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "Usage: toolwire" in done.stdout.replace("root", "toolwire")
    assert "<bool>" not in done.stdout
