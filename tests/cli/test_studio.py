"""`toolwire studio` on the command line: what it refuses, what it prints, and how it ends."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from shared.programs import run_python
from shared.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

LIMIT = 60
APP = "from toolwire import ToolServer\ncalc = ToolServer('calc')\n"
WITHOUT = """
import sys
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *more: None if name == "nicegui" else found(name, *more)
sys.modules["nicegui"] = None
sys.argv = ["toolwire", "studio", "app.py"]
from toolwire.cli.main import app
app()
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a file of tools."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def environment(folder):
    """Return the environment of a user without keys or settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(folder), "BROWSER": "true", "COLUMNS": "200"}


def run(folder, *arguments, program=("-m", "toolwire", "studio")):
    """Run the command until it ends."""
    return run_python(*program, *arguments, env=environment(folder), cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nothing.py"], "nothing.py"),
        (["app.py", "--budget", "5"], "--budget only applies to catalog: targets"),
        (["app.py", "--script", "gone.py"], "The script gone.py does not exist"),
        (["gone.jsonl"], "gone.jsonl is not a recording that can be shown"),
        (["session:abc"], "abc"),
        (["app.py", "--allow", "shop"], "--allow shop matches no tool"),
    ],
)
def test_what_cannot_be_shown_is_a_one_line_error(folder, arguments, why):
    """With exit code 2, and no traceback."""
    ended = run(folder, *arguments, "--no-open")
    assert ended.returncode == 2, ended.stderr
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_an_error(folder):
    """It says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run(folder, "app.py", "--port", str(taken.getsockname()[1]), "--no-open")
    assert ended.returncode == 2
    assert "choose another with --port, or 0" in ended.stderr


def test_without_the_extra_it_says_what_to_install(folder):
    """NiceGUI is an optional dependency."""
    ended = run(folder, program=("-c", WITHOUT))
    assert ended.returncode == 2
    assert "pip install 'toolwire[studio]'" in ended.stderr


def test_importing_toolwire_and_its_command_loads_no_page(folder):
    """Nor do the modules of the studio's state, which a test may use without NiceGUI."""
    code = (
        "import sys, toolwire, toolwire.cli.main, toolwire.studio.conversation, toolwire.studio.forms, "
        "toolwire.studio.timeline\n"
        "print([each for each in ('nicegui', 'fastapi', 'socketio') if each in sys.modules])"
    )
    assert run(folder, program=("-c", code)).stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_exits_with_0_when_it_is_stopped(folder, number):
    """No traceback is printed."""
    command = [sys.executable, "-m", "toolwire", "studio", "app.py", "--no-open"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert "http://127.0.0.1:" in process.stderr.readline()
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(LIMIT) == 0
    assert "Traceback" not in rest


def test_enter_makes_another_link_on_a_terminal(folder):
    """Each link is a new one."""
    command = [sys.executable, "-m", "toolwire", "studio", "app.py", "--no-open"]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(sys.executable, command, environment(folder))  # noqa: S606 - on a terminal of its own
    try:
        shown = read_until(terminal, "", "Enter makes another link")
        os.write(terminal, b"\n")
        shown = read_until(terminal, shown, r"(?s)token=.*token=\S+\s")
        links = re.findall(r"token=(\S+)", shown)
        assert len(set(links)) == 2
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    finally:
        os.close(terminal)


def read_until(terminal, shown, pattern):
    """Read the output of a program until the pattern is in it."""
    end = time.monotonic() + LIMIT
    while not re.search(pattern, shown):
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, shown
        shown += os.read(terminal, 4096).decode()
    return shown


def test_the_browser_is_opened_without_the_token_on_its_command_line(folder):
    """Every user of the machine can read the command line; the private file that is opened has its own link."""
    browser = folder / "browser"
    browser.write_text('#!/bin/sh\necho "$@" > seen.new\ncp "${1#file://}" page.html\nmv seen.new seen\n')
    browser.chmod(0o700)
    command = [sys.executable, "-m", "toolwire", "studio", "app.py"]
    env = {**environment(folder), "BROWSER": f"{browser} %s", "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, cwd=folder, env=env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        [shown] = re.findall(r"token=(\S+)", process.stderr.readline())
        wait_until((folder / "seen").exists, LIMIT)
        process.terminate()
        process.stderr.read()
        assert process.wait(LIMIT) == 0
    assert "token" not in (folder / "seen").read_text()
    [opened] = re.findall(r"token=([\w-]+)", (folder / "page.html").read_text())
    assert opened != shown
    assert not list(folder.glob("toolwire-studio-*"))
