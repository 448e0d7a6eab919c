"""The official TypeScript SDK as a contender: installs it with npm, and runs its driver with Node.

Nothing but `npm install` leaves the machine. Without npm, Node or a registry the SDK is left out, with a line that
says why.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "bench-typescript"
NODE = 18  # the oldest that the SDK takes
INSTALL_SECONDS, RUN_SECONDS = 300.0, 180.0


@functools.cache
def available() -> bool:
    """Install the SDK, unless this version of it is there. False if it cannot be; the error output says why."""
    problem = _install() or _judge_node()
    if problem is not None:
        sys.stderr.write(f"Without the TypeScript SDK: {problem}\n")
    return problem is None


def run(case: dict[str, Any], environment: dict[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run the driver with one case. A `core` of the case is the only one that it may use."""
    node = shutil.which("node") or "node"
    command = [node, str(BUILD / "drive.mjs"), json.dumps(case)]
    if "core" in case:  # Node cannot choose its own core
        pinned = (
            "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"
        )
        command = [sys.executable, "-c", pinned, str(case["core"]), *command]
    return subprocess.run(  # noqa: S603
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


def _install() -> str | None:
    wanted, stamp = (HERE / "package.json").read_text(), BUILD / "installed.json"
    if not stamp.is_file() or stamp.read_text() != wanted:
        npm = shutil.which("npm")
        if npm is None:
            return "npm was not found"
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        (BUILD / "package.json").write_text(wanted)
        # Without the optional packages, which are Claude Code itself: the peer takes its place.
        flags = ("--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock")
        try:
            done = subprocess.run(  # noqa: S603 - with the user's own environment: the way to a registry is there
                [npm, "install", *flags],
                cwd=BUILD,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npm install did not end within {INSTALL_SECONDS:g} s"
        if done.returncode:
            return f"npm install failed: {done.stderr.strip()[-300:]}"
        stamp.write_text(wanted)
    shutil.copy(HERE / "drive.mjs", BUILD)  # Node looks for packages beside the program
    return None


def _judge_node() -> str | None:
    node = shutil.which("node")
    if node is None:
        return "node was not found"
    told = subprocess.run(  # noqa: S603
        [node, "--version"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env=dict(os.environ),
    ).stdout
    version = re.match(r"v(\d+)\.", told)
    if version is None or int(version[1]) < NODE:
        return f"Node {NODE} or newer is needed, {node} is {told.strip() or 'none'}"
    return None
