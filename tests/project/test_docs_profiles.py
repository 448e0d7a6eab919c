"""The page on profiles: its transcript runs and prints what it says, and its tables are those of the models."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.console import matches
from shared.market import PaidApi
from toolwire.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "profiles.md"
PORT = "8402"
BLOCK = re.compile(r"```(toml|console)\n(.*?)```", re.DOTALL)


def steps(text):
    """The page from top to bottom: files to write, and commands with the lines that they should print."""
    for kind, block in BLOCK.findall(text):
        if kind == "toml":
            name, _, content = block.partition("\n")
            yield "file", name.removeprefix("# "), content
            continue
        for each in block.split("$ ")[1:]:
            command, _, output = each.partition("\n")
            yield "command", command, output.splitlines()


def run(command, folder):
    """What a command of the page prints."""
    words = shlex.split(command)
    env = {"TOOLWIRE_LEDGER": str(folder / "ledger.db"), "XDG_CACHE_HOME": str(folder / "cache")}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    assert words.pop(0) == "toolwire"
    return CliRunner().invoke(app, words, env=env)


def test_the_way_to_a_first_profile_is_as_the_page_says(tmp_path, monkeypatch):
    """From a wrong one to a right one, command by command; only the last buys."""
    monkeypatch.chdir(tmp_path)
    codes = []
    with PaidApi(entries=120) as api:
        port = api.url.rpartition(":")[2]
        for kind, name, content in steps(PAGE.read_text().replace(PORT, port)):
            if kind == "file":
                Path(name).write_text(content)
                continue
            result = run(name, tmp_path)
            assert matches(content, result.output), f"$ {name}\n{result.output}"
            codes.append((result.exit_code, len(api.purchases)))
    assert codes == [(1, 0), (1, 0), (0, 0), (0, 0), (0, 1)]


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "examples" / "profiles").glob("*.toml"))
)
def test_every_example_is_on_the_page(name):
    """With what it shows."""
    assert f"[{name}](../examples/profiles/{name})" in PAGE.read_text()
