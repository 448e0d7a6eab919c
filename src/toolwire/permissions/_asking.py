"""Policies that ask somebody, and that remember what was said. Who is asked, and where, is passed in."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from toolwire._support.tasks import is_async, maybe_await
from toolwire._support.threads import Workers
from toolwire.permissions.policy import Decision, Judge, Otherwise, Policy, as_policy, with_timeout
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolPermissionContext,
)

_THREADS = Workers()

Answer: TypeAlias = bool | Literal["always"] | PermissionResult | None
Asker: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Answer | Awaitable[Answer]]
"""Asks whether a call may run: True, False, `"always"`, a whole result, or None for no opinion."""


def ask(asker: Asker | None = None, *, timeout: float | None = None, otherwise: Otherwise = "deny") -> Policy:
    """Ask somebody: by default the user on the terminal. `"always"` allows with a rule for the rest of the session.

    With `timeout`, `otherwise` is the answer when nobody has answered after so many seconds.
    """
    if asker is None:
        from toolwire.permissions.terminal import ask_on_terminal  # noqa: PLC0415 - it imports this

        asker = ask_on_terminal()
    question: Asker = asker

    waits = is_async(asker)

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Any:
        # A sync one may take its time: beside the event loop, so that the question can be given up.
        told = (
            question(name, given, context)
            if waits
            else await _THREADS.run(partial(question, name, given, context))
        )
        answer = await maybe_await(told)
        if answer == "always":
            return PermissionResultAllow(updated_permissions=session_rules(name, context))
        if isinstance(answer, bool):
            no = PermissionResultDeny(message="The user does not allow this call.")
            return PermissionResultAllow() if answer else no
        return answer

    policy = Policy(judge, f"ask({getattr(asker, '__qualname__', repr(asker))})")
    return policy if timeout is None else with_timeout(policy, timeout, otherwise)


def session_rules(name: str, context: ToolPermissionContext) -> list[PermissionUpdate] | None:
    """What settles the question for this session: the rules that the CLI offers, or one for the tool; or None.

    Offers to change the mode or the directories are left: they would grant more than was asked.
    """
    if context.suppress_always_allow_rule:
        return None
    offered = [replace(each, destination="session") for each in context.suggestions if _allows(each)]
    return offered or [
        PermissionUpdate("addRules", [PermissionRuleValue(name)], "allow", destination="session")
    ]


def remember(policy: Judge) -> Policy:
    """`policy`, asked no more about what it has allowed with a rule, for the life of this object.

    The rule stays here and does not go to the CLI: policies before this one are still asked, and a record still
    written. A rule for a whole tool covers all its calls, any other only the very same call.
    """
    inner = as_policy(policy)
    known: set[tuple[str, str | None]] = set()

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        same = _digest(given)
        if (name, None) in known or (name, same) in known:
            return Decision(PermissionResultAllow(), f"remember({inner!r})")
        decision = await inner.decide(name, given, context)
        if decision is None or not isinstance(decision.result, PermissionResultAllow):
            return decision
        if decision.result.updated_input is not None:
            return decision  # what was allowed is another call than the one that was asked about
        updates = decision.result.updated_permissions or []
        for update in filter(_allows, updates):
            whole = PermissionRuleValue(name) in (update.rules or ())
            known.add((name, None if whole else same))
        rest = [update for update in updates if not _allows(update)] or None
        return replace(decision, result=replace(decision.result, updated_permissions=rest))

    return Policy(judge, f"remember({inner!r})")


def _allows(update: PermissionUpdate) -> bool:
    return update.type == "addRules" and update.behavior == "allow"


def _digest(given: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=repr).encode()).hexdigest()
