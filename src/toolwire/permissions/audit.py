"""Records decisions, one line of JSON each, in a file or through a function."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

import anyio

from toolwire._support.files import append_line
from toolwire._support.tasks import maybe_await
from toolwire.permissions.policy import Decision, Judge, Policy, as_policy, logger
from toolwire.permissions.types import (
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
    """Return `policy` with each of its decisions appended to a file (created with mode 0600) or passed to a
    function.

    `input` says how much of the arguments is recorded: all (`full`), their names and a SHA-256 of the whole
    (`keys`), or only the SHA-256 (`digest`). If a line cannot be written, the call is denied, unless
    `on_error="allow"`.
    """
    if input not in get_args(Detail):
        raise ValueError(f"audit: input must be 'full', 'keys' or 'digest', got {input!r}")
    if on_error not in ("deny", "allow"):
        raise ValueError(f"audit: on_error must be 'deny' or 'allow', got {on_error!r}")
    inner = as_policy(policy)
    write: Sink = to if callable(to) else lambda line: append_line(to, line.encode())

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        began, decided = time.monotonic(), False
        decision: Decision | None = None
        # Before the policy decides, because its function may change the arguments.
        about = {"tool": name, "tool_use_id": context.tool_use_id, **_describe_input(given, input)}
        try:
            decision = await inner.decide(name, given, context)
            decided = True
        finally:
            word = "cancelled" if not decided else "none" if decision is None else decision.result.behavior
            # A reason may quote the arguments.
            reason = None if decision is None or input == "digest" else decision.reason
            took = time.monotonic() - began
            line = _build_line(word, decision, context, about, reason=reason, took=took)
            with anyio.CancelScope(shield=not decided):
                error = await _write(write, line)
        if error is None or on_error == "allow" or word == "deny":
            return decision
        message = f"{name} was refused because the decision on it could not be recorded ({error})."
        return Decision(PermissionResultDeny(message=message), "audit")

    return Policy(judge, f"audit({inner!r})")


def _build_line(
    word: str,
    decision: Decision | None,
    context: ToolPermissionContext,
    about: dict[str, Any],
    *,
    reason: str | None,
    took: float,
) -> str:
    result = decision and decision.result
    changed = isinstance(result, PermissionResultAllow) and result.updated_input is not None
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "session": (context.raw or {}).get("session_id"),
        "agent": context.agent_id,
        **about,
        "decision": word,
        "policy": decision and decision.policy,
        "reason": reason or None,
        "changed_input": changed or None,
        "seconds": round(took, 6),
    }
    shown = {key: value for key, value in entry.items() if value is not None}
    return json.dumps(shown, ensure_ascii=True, default=str)


def _describe_input(given: dict[str, Any], input: Detail) -> dict[str, Any]:
    text = json.dumps(given, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    detail: dict[str, Any] = {"digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}
    if input == "full":
        detail["input"] = json.loads(text)
    elif input == "keys":
        detail["keys"] = sorted(map(str, given))
    return detail


async def _write(write: Sink, line: str) -> str | None:
    """Write a line; returns the kind of error if that failed."""
    try:
        await maybe_await(write(line))
    except Exception as error:  # noqa: BLE001 - the boundary of the user's function: any error means no record
        logger.exception("a decision on a tool call could not be recorded")
        return type(error).__name__
    return None
