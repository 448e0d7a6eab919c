"""Every console example in the documents runs, and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shared.console import matches
from toolwire._transport.find_cli import VARIABLE, bundled_cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.real


def steps():
    """Each command of the page with the lines that it should print."""
    for block in BLOCK.findall(PAGE.read_text()):
        for each in block.split("$ ")[1:]:
            command, _, output = each.partition("\n")
            yield command, output.splitlines()


@pytest.fixture
def environment(tmp_path):
    """A newcomer's: a home that is empty, and this toolwire on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    return {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "200", VARIABLE: bundled_cli()}


def test_the_page_on_the_command_runs(tmp_path, environment):
    """From an empty folder to a served project, command by command."""
    folder, background = tmp_path, []
    try:
        for command, expected in steps():
            if command.startswith("cd "):
                folder = folder / command.removeprefix("cd ")
                continue
            program = command.removesuffix(" &")
            process = subprocess.Popen(  # the words of the page, as a shell reads them
                ["/bin/sh", "-c", f"exec {program}"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if program != command:
                background.append(process)
                shown = process.stdout.readline()
            else:
                shown, _ = process.communicate(timeout=60)
            assert matches(expected, shown), f"$ {command}\n{shown}"
    finally:
        for process in background:
            process.terminate()
            process.communicate(timeout=20)
    assert [process.returncode for process in background] == [0]
    assert (folder / ".mcp.json").exists()


def test_the_page_shows_every_command():
    """A command that is not on the page is not documented."""
    from toolwire.cli.main import app  # noqa: PLC0415

    page = PAGE.read_text()
    names = {each.callback.__name__ for each in app.registered_commands if each.callback} - {"demo"}
    assert [name for name in sorted(names) if f"toolwire {name}" not in page] == []


def test_the_matching_itself_can_fail():
    """What is not on the page does not match."""
    assert matches(["a ...", "...", "z"], "a b\nc\nd\nz\n")
    assert not matches(["a ...", "z"], "a b\nc\nz\n")
