"""A record of decisions, one line of JSON for each. Where the lines go is passed in: a function, or a path."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import anyio

from toolwire._support.files import append_line
from toolwire._support.tasks import maybe_await
from toolwire.permissions.policy import Decision, Judge, Policy, as_policy, logger
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

Detail: TypeAlias = Literal["full", "keys", "digest"]
Sink: TypeAlias = Callable[[str], object]


def audit(
    policy: Judge,
    to: "str | os.PathLike[str] | Sink",
    *,
    input: Detail = "keys",
    on_error: Literal["deny", "allow"] = "deny",
) -> Policy:
    """`policy`, with each of its decisions appended to a file (made with mode 0600) or given to a function.

    `input` says how much of the arguments is kept: all (`full`), their names and a SHA-256 of the whole (`keys`),
    or that alone (`digest`). If a line cannot be written the call is denied, unless `on_error="allow"`.
    """
    if input not in ("full", "keys", "digest") or on_error not in ("deny", "allow"):
        raise ValueError("audit: input is 'full', 'keys' or 'digest', on_error is 'deny' or 'allow'")
    inner = as_policy(policy)
    write: Sink = to if callable(to) else lambda line: append_line(to, line.encode())

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        began, decided = time.monotonic(), False
        decision: Decision | None = None
        # Before the policy is asked: a function may change what it is given.
        about = {"tool": name, "tool_use_id": context.tool_use_id, **_detail(given, input)}
        try:
            decision = await inner.decide(name, given, context)
            decided = True
        finally:
            word = _word(decision) if decided else "withdrawn"
            reasoned = (
                replace(decision, result=_untold(decision)) if decision and input == "digest" else decision
            )
            line = _line(word, reasoned, context, about, time.monotonic() - began)
            with anyio.CancelScope(shield=not decided):
                failed = await _failure(write, line)
        if failed is None or on_error == "allow" or word == "deny":
            return decision
        message = f"{name} was refused because the decision on it could not be recorded ({failed})."
        return Decision(PermissionResultDeny(message=message), "audit")

    return Policy(judge, f"audit({inner!r})")


def _line(
    word: str, decision: Decision | None, context: ToolPermissionContext, about: dict[str, Any], took: float
) -> str:
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "session": (context.raw or {}).get("session_id"),
        "agent": context.agent_id,
        **about,
        "decision": word,
        "policy": decision and decision.policy,
        "reason": (decision and decision.reason) or None,
        "changed_input": _changed(decision),
        "seconds": round(took, 6),
    }
    shown = {key: value for key, value in entry.items() if value is not None}
    return json.dumps(shown, ensure_ascii=True, default=str)


def _word(decision: Decision | None) -> str:
    return "none" if decision is None else decision.result.behavior


def _changed(decision: Decision | None) -> bool | None:
    result = decision and decision.result
    return True if isinstance(result, PermissionResultAllow) and result.updated_input is not None else None


def _detail(given: dict[str, Any], input: Detail) -> dict[str, Any]:
    text = json.dumps(given, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    detail: dict[str, Any] = {"digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}
    if input == "full":
        detail["input"] = json.loads(text)
    elif input == "keys":
        detail["keys"] = sorted(map(str, given))
    return detail


def _untold(decision: Decision) -> PermissionResult:
    """The result without its words, which may quote the arguments."""
    result = decision.result
    return replace(result, message="") if isinstance(result, PermissionResultDeny) else result


async def _failure(write: Sink, line: str) -> str | None:
    try:
        await maybe_await(write(line))
    except Exception as error:  # noqa: BLE001 - the boundary of the sink: whatever it was, there is no record
        logger.exception("a decision on a tool call could not be recorded")
        return type(error).__name__
    return None
