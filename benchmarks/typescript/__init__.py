"""The official TypeScript SDK as a contender: installs it with npm, and runs its driver with Node.

Only `npm install` uses the network. Without npm, Node or a registry the SDK is left out, and a line says why.
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
NODE = 18  # the oldest version that the SDK supports
INSTALL_SECONDS, RUN_SECONDS = 300.0, 180.0


@functools.cache
def is_available() -> bool:
    """Install the SDK unless this version is installed. False if it cannot be used; a line on stderr says why."""
    problem = _install() or _check_node()
    if problem is not None:
        sys.stderr.write(f"Without the TypeScript SDK: {problem}\n")
    return problem is None


def run(case: dict[str, Any], environment: dict[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run the driver with one case. If the case has a `core`, the driver runs on that core only."""
    node = shutil.which("node") or "node"
    command = [node, str(BUILD / "drive.mjs"), json.dumps(case)]
    if "core" in case:  # Node cannot set its own CPU affinity
        pin_to_core = (
            "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"
        )
        command = [sys.executable, "-c", pin_to_core, str(case["core"]), *command]
    return subprocess.run(  # noqa: S603
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


def _install() -> str | None:
    """Install the SDK and copy the driver. Returns what went wrong, or None."""
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
            done = subprocess.run(  # noqa: S603 - with the user's environment, which says how to reach a registry
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


def _check_node() -> str | None:
    """Return what is wrong with the installed Node, or None."""
    node = shutil.which("node")
    if node is None:
        return "node was not found"
    output = subprocess.run(  # noqa: S603
        [node, "--version"],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env=dict(os.environ),
    ).stdout
    version = re.match(r"v(\d+)\.", output)
    if version is None or int(version[1]) < NODE:
        return f"Node {NODE} or newer is needed; {node} reports version {output.strip() or 'unknown'}"
    return None
