"""Starts a driver with the real CLI, which talks to a scripted model on loopback.

The environment is that of `toolwire.testing`, without any variable of the caller's. The driver runs in it too,
because the official SDK passes its own environment on to the CLI.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.processes import HERE, LIMIT, SDKS
from toolwire.testing import ClaudeEnvironment, ScriptedModel, Step, call, say

NUMBERS = {"a": 40.5, "b": 1.5}


def run_tool_call(driver: str, sdk: str, **case: Any) -> dict[str, Any]:
    """Run a driver through a conversation with one tool call. Returns what it measured, and when it was started."""
    results: list[Any] = []
    script: list[Step] = [call("mcp__calc__add", NUMBERS), say("done")]
    seen = run_script(driver, sdk, script, results, **case)
    if not any("42" in str(result) for result in results):
        raise RuntimeError(f"{sdk}: the tool's result never reached the model")
    return seen


def run_script(
    driver: str, sdk: str, script: Sequence[Step], results: list[Any] | None = None, **case: Any
) -> dict[str, Any]:
    """Run a driver through a scripted conversation. Returns what it measured, and when it was started.

    The texts of tool results, as the model received them, are appended to `results`.
    """
    with ScriptedModel(script) as model, ClaudeEnvironment(model) as environment:
        what = {"sdk": SDKS[sdk], "cwd": str(environment.cwd), **case}
        begun = time.monotonic_ns()
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", f"benchmarks.{driver}", json.dumps(what)],
            env={**environment.env, "PYTHONPATH": str(HERE.parent), "PYTHONHASHSEED": "0"},
            cwd=environment.cwd,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{sdk}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        model.assert_finished()
        if results is not None:
            results += [result for request in model.requests for result in request.tool_results]
    return {**json.loads(done.stdout), "begun": begun}
