"""Starts what is measured: a driver in a fresh process, with the peer in place of the CLI.

The environment is made from scratch, so that no variable of the caller's reaches an SDK.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import typescript

HERE = Path(__file__).parent
SDKS = {"toolwire": "toolwire", "official": "claude_agent_sdk"}
LIMIT = 180.0  # seconds after which a process is aborted


def make_environment(home: Path) -> dict[str, str]:
    """Return the environment of a driver: a search path, its own home, and the path to import this project."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE.parent),
        "PYTHONHASHSEED": "0",
    }


def run_python(arguments: list[str], home: Path, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Run this Python with the given arguments, in the environment of a driver."""
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        env=make_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        **more,
    )


def write_peer(plan: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write the peer as an executable that follows the plan. Returns it and the file for its report."""
    program, report, planned = folder / "peer", folder / "report.json", folder / "plan.json"
    planned.write_text(json.dumps(plan))
    source = (HERE / "peer.py").read_text()
    head = f"#!{sys.executable} -IS\nPLAN = {str(planned)!r}\nREPORT = {str(report)!r}\n"
    program.write_text(head + source)
    program.chmod(0o755)
    return program, report


def drive(sdk: str, plan: dict[str, Any], **case: Any) -> dict[str, Any]:
    """Have one SDK go through a plan. Returns the report of the peer, with what the driver measured as `driver`.

    `sdk` is a key of `SDKS`, `typescript` or `floor`. `case` is passed to its driver.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        program, report = write_peer({"bare": sdk == "floor", **plan}, folder)
        if sdk == "floor":
            done = run_python([str(HERE / "floor.py"), str(program), json.dumps(case)], folder)
        elif sdk == "typescript":
            done = typescript.run({"peer": str(program), **case}, make_environment(folder), folder)
        else:
            what = {"sdk": SDKS[sdk], "peer": str(program), **case}
            done = run_python(["-m", "benchmarks.drive", json.dumps(what)], folder)
        found = json.loads(report.read_text()) if report.exists() else {"error": "the peer wrote no report"}
        if "error" in found or done.returncode:
            problem = found.get("error", f"exit code {done.returncode}")
            raise RuntimeError(f"{sdk}: {problem}\n{done.stderr[-2000:]}")
        found["driver"] = json.loads(done.stdout) if done.stdout else {}
        return dict(found)


def compute_percentile(times: list[float], share: float) -> float:
    """Return the value that this share of the times does not exceed, interpolated between two of them."""
    ordered = sorted(times)
    below, part = divmod((len(ordered) - 1) * share, 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + (high - low) * part
