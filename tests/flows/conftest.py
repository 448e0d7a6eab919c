"""Fixtures: a stand-in CLI for faults that the real one cannot be made to show; a check for leftover processes."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from shared.waiting import wait_until
from toolwire import ClaudeAgentOptions

PLAYER = Path(__file__).with_name("player.py")


@pytest.fixture
def play(tmp_path):
    """Return a function that makes options which start `player.py` in place of the CLI, with the named scene."""
    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable} -SE\n" + PLAYER.read_text())
    program.chmod(0o755)

    def options(scene, **more):
        env = {"SCENE": scene, "PATH": os.defpath, **more.pop("env", {})}
        return ClaudeAgentOptions(cli_path=program, env=env, inherit_env=False, **more)

    return options


def children():
    """Return the pid and the start of the command line of each child process that still runs."""
    own = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if stat[1] == own and stat[0] != "Z":
                found.append((int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")[:2]))
    return found


@pytest.fixture(autouse=True)
def nothing_left():
    """No test may leave a process behind."""
    before = children()
    yield
    with suppress(TimeoutError):
        wait_until(lambda: all(child in before for child in children()), 5)
    assert [child for child in children() if child not in before] == []
