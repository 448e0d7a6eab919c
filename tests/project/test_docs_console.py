"""Every console example in the documents runs, and prints what the page says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared.console import matches
from shared.transcripts import harbour
from toolwire._transport.find_cli import VARIABLE, bundled_cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.real


def steps(page):
    """Each command of a page with the lines that it should print."""
    for block in BLOCK.findall(page.read_text()):
        for each in block.split("$ ")[1:]:
            command, _, output = each.partition("\n")
            yield command, output.splitlines()


@pytest.fixture
def environment(tmp_path):
    """A newcomer's: a home with nothing but a past conversation, and this toolwire on the path."""
    harbour(tmp_path / ".claude")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    return {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "200", VARIABLE: bundled_cli()}


def follow(page, folder, environment):
    """Run the commands of a page as a reader would. Returns the folder where they ended.

    One with `&` goes on, and so does a studio, which waits for a browser: of both the first line is looked at, and
    they must end well when they are told to.
    """
    background = []
    try:
        for command, expected in steps(page):
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
                continue
            program = command.removesuffix(" &")
            waits = program != command
            if program.startswith("toolwire studio "):
                program, waits = f"{program.partition(' # ')[0]} --no-open", True
            process = subprocess.Popen(  # the words of the page, as a shell reads them
                ["/bin/sh", "-c", f"exec {program}"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if waits:
                background.append(process)
                shown = process.stdout.readline()
            else:
                shown, _ = process.communicate(timeout=60)
            assert matches(expected, shown), f"$ {command}\n{shown}"
    finally:
        for process in background:
            process.terminate()
            process.communicate(timeout=20)
    assert {process.returncode for process in background} == {0}
    return folder


def test_the_page_on_the_command_runs(tmp_path, environment):
    """From an empty folder to a served project, command by command."""
    folder = follow(PAGE, tmp_path, environment)
    assert (folder / ".mcp.json").exists()


def test_the_page_on_the_studio_runs(tmp_path, environment):
    """In a clone, where the examples are; the link of each studio is seen."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    follow(ROOT / "docs" / "studio.md", tmp_path, environment)


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


def test_the_way_of_the_readme_from_nothing_to_a_tool_of_ones_own(tmp_path, environment):
    """Line by line as it stands there; the server at the end is seen to start, and stopped."""
    (block,) = [each for each in BLOCK.findall((ROOT / "README.md").read_text()) if "toolwire new" in each]
    commands = [line.removeprefix("$ ") for line in block.splitlines()]
    assert len(commands) <= 5
    *first, last = commands
    shown = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(first)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert 'find returned: ["tea"]' in shown.stdout
    server = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {last.partition('#')[0]} --port 0"],
        cwd=tmp_path / "shop",
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        assert "shop: 3 tools, 1 resource at http://127.0.0.1:" in server.stderr.readline()
        server.terminate()
