"""Starts what is measured: a driver in a fresh process, with the peer in place of the CLI.

The environment is built from scratch, so that nothing of the caller's reaches an SDK.
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
LIMIT = 180.0  # seconds that one process may take


def environment(home: Path) -> dict[str, str]:
    """What a driver gets: a search path, a home of its own, and this project to import from."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE.parent),
        "PYTHONHASHSEED": "0",
    }


def python(arguments: list[str], home: Path, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Run this Python with those arguments, in that environment."""
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        **more,
    )


def peer_program(plan: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """An executable that plays the plan, and the file that its report will be in."""
    program, report, planned = folder / "peer", folder / "report.json", folder / "plan.json"
    planned.write_text(json.dumps(plan))
    source = (HERE / "peer.py").read_text()
    head = f"#!{sys.executable} -IS\nPLAN = {str(planned)!r}\nREPORT = {str(report)!r}\n"
    program.write_text(head + source)
    program.chmod(0o755)
    return program, report


def driven(sdk: str, plan: dict[str, Any], **case: Any) -> dict[str, Any]:
    """The report of the peer after one SDK went through a plan, with what its driver saw as `driver`.

    `sdk` is a key of `SDKS`, `typescript` or `floor`. `case` goes to the driver of that one.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        program, report = peer_program({"bare": sdk == "floor", **plan}, folder)
        if sdk == "floor":
            done = python([str(HERE / "floor.py"), str(program), json.dumps(case)], folder)
        elif sdk == "typescript":
            done = typescript.run({"peer": str(program), **case}, environment(folder), folder)
        else:
            what = {"sdk": SDKS[sdk], "peer": str(program), **case}
            done = python(["-m", "benchmarks.drive", json.dumps(what)], folder)
        told = json.loads(report.read_text()) if report.exists() else {"error": "the peer wrote no report"}
        if "error" in told or done.returncode:
            problem = told.get("error", f"exit code {done.returncode}")
            raise RuntimeError(f"{sdk}: {problem}\n{done.stderr[-2000:]}")
        told["driver"] = json.loads(done.stdout) if done.stdout else {}
        return dict(told)


def percentile(times: list[float], share: float) -> float:
    """The value that this share of them does not exceed; between two of them where it falls there."""
    ordered = sorted(times)
    below, part = divmod((len(ordered) - 1) * share, 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + (high - low) * part
