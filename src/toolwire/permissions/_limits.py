"""A policy that counts."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from toolwire.permissions._matching import named
from toolwire.permissions.policy import Policy
from toolwire.permissions.types import PermissionResult, PermissionResultDeny, ToolPermissionContext


def budget(
    calls: int | None = None,
    per_tool: int | Mapping[str, int] | None = None,
    seconds: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Policy:
    """Deny after so many calls, of all tools or of one, or so long after the first; else no opinion.

    `per_tool` is a number for each tool, or a table of patterns: `{"WebFetch": 5, "mcp__mail__*": 1}`. What is
    counted are the questions that come this far, for the life of this object.
    """
    counted: Counter[str] = Counter()
    began: list[float] = []
    limits = per_tool if isinstance(per_tool, Mapping) else {}

    def judge(name: str, _given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        now = clock()
        began[:] = began or [now]
        if seconds is not None and now - began[0] > seconds:
            return _over(f"the {seconds:g} seconds for tool calls are over")
        if calls is not None and counted.total() >= calls:
            return _over(f"all {calls} tool calls are used up")
        if isinstance(per_tool, int) and counted[name] >= per_tool:
            return _over(f"all {per_tool} calls of {name} are used up")
        for pattern, limit in limits.items():
            if named(name, (pattern,)) and _used(counted, pattern) >= limit:
                return _over(f"all {limit} calls of {pattern} are used up")
        counted[name] += 1
        return None

    given = {"calls": calls, "per_tool": per_tool, "seconds": seconds}
    shown = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)
    if not shown:
        raise ValueError("budget() needs calls, per_tool or seconds")
    return Policy(judge, f"budget({shown})")


def _used(counted: Counter[str], pattern: str) -> int:
    return sum(count for name, count in counted.items() if named(name, (pattern,)))


def _over(what: str) -> PermissionResult:
    return PermissionResultDeny(message=f"No more: {what}. Finish with what you have.")
