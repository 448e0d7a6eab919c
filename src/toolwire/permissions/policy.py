"""Defines policies and how they are combined. The ready-made ones are in `policies`.

A policy is called with a tool call and allows it, denies it, or has no opinion. Any function with the signature of
`can_use_tool` can be one, sync or async, and may return None for no opinion. `Policy` adds a name, `|`, and a
rule: a policy that fails or returns anything else denies. Must not know any particular tool.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import maybe_await
from toolwire.hooks import HookJSONOutput
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

logger = logger_for("permissions")


@dataclass(frozen=True)
class Decision:
    """A result, and the name of the policy that decided."""

    result: PermissionResult
    policy: str

    @property
    def reason(self) -> str | None:
        """The message of a denial."""
        return self.result.message if isinstance(self.result, PermissionResultDeny) else None


Opinion: TypeAlias = PermissionResult | Decision | None
Judge: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Opinion | Awaitable[Opinion]]
"""A function that can be a policy: called with the tool's name, its input and the context."""
Otherwise: TypeAlias = "Literal['allow', 'deny'] | Judge"
Answer: TypeAlias = bool | Literal["always"] | PermissionResult | None
Asker: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Answer | Awaitable[Answer]]
"""Asks for permission for a call. Returns True, False, `"always"`, a whole result, or None for no opinion."""


class Policy:
    """Makes a policy of a function: `Policy(function)`. As `can_use_tool` it denies calls without an opinion."""

    def __init__(self, judge: Judge, name: str | None = None) -> None:
        self._judge = judge
        self._name = name or getattr(judge, "__qualname__", None) or repr(judge)

    async def decide(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> Decision | None:
        """Return the decision, or None for no opinion. A failure denies, and is logged with the policy's name."""
        try:
            opinion = await maybe_await(self._judge(name, given, context))
        except Exception:
            logger.exception("the policy %s failed on %s: denied", self, name)
            return self._deny(f"{name} was refused because the permission check failed.")
        if opinion is None or isinstance(opinion, Decision):
            return opinion
        if isinstance(opinion, PermissionResultAllow | PermissionResultDeny):
            return Decision(opinion, self._name)
        logger.error("the policy %s returned %s for %s: denied", self, type(opinion).__name__, name)
        return self._deny(f"{name} was refused because the permission check returned no valid result.")

    async def __call__(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Decide as `can_use_tool`: no opinion denies."""
        decision = await self.decide(name, given, context)
        if decision is None:
            return PermissionResultDeny(
                message=f"{name} was refused: no rule of this program allows the call."
            )
        return decision.result

    def __or__(self, other: Judge) -> "Policy":
        return first_of(self, other)

    def __ror__(self, other: Judge) -> "Policy":
        return first_of(other, self)

    def otherwise(self, answer: Otherwise, reason: str | None = None) -> "Policy":
        """Return this policy with a fallback for no opinion: `"allow"`, `"deny"`, or another policy."""
        return first_of(self, make_fallback(answer, reason))

    def __repr__(self) -> str:
        return self._name

    def _deny(self, message: str) -> Decision:
        return Decision(PermissionResultDeny(message=message), self._name)


class _Chain(Policy):
    """Several policies in order. Chains inside a chain are flattened."""

    def __init__(self, links: tuple[Policy, ...]) -> None:
        super().__init__(self._decide_first, " | ".join(map(repr, links)))
        self.links = links

    async def _decide_first(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> Decision | None:
        for link in self.links:
            decision = await link.decide(name, given, context)
            if decision is not None:
                return decision
        return None


def as_policy(judge: Judge) -> Policy:
    """Return `judge` itself if it is a `Policy`, else a policy that calls it."""
    return judge if isinstance(judge, Policy) else Policy(judge)


def first_of(*policies: Judge) -> Policy:
    """Return a policy that uses the first opinion, so put policies that deny first. Same as `a | b`."""
    if not policies:
        raise TypeError("first_of() needs at least one policy")
    links: list[Policy] = []
    for policy in map(as_policy, policies):
        links += policy.links if isinstance(policy, _Chain) else (policy,)
    return _Chain(tuple(links))


def make_fallback(answer: Otherwise, reason: str | None = None) -> Policy:
    """Return a policy that allows or denies everything, or the given policy."""
    if callable(answer):
        return as_policy(answer)
    if answer == "allow":
        return Policy(lambda *_: PermissionResultAllow(), "allow all")
    if answer != "deny":
        raise ValueError(f"otherwise must be 'allow', 'deny' or a policy, got {answer!r}")

    def refuse(name: str, _given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult:
        return PermissionResultDeny(message=reason or f"{name} was refused: this program does not allow it.")

    return Policy(refuse, "deny all")


def with_timeout(policy: Judge, seconds: float, otherwise: Otherwise = "deny") -> Policy:
    """Return `policy` with a timeout in seconds, after which `otherwise` decides."""
    inner = as_policy(policy)
    late = make_fallback(otherwise, f"The call was refused: no decision was made within {seconds:g} seconds.")

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        with anyio.move_on_after(seconds) as limit:
            decision = await inner.decide(name, given, context)
            if anyio.current_time() < limit.deadline:  # a sync function cannot be cancelled, but may be late
                return decision
        return await late.decide(name, given, context)

    return Policy(judge, f"with_timeout({inner!r}, {seconds:g})")


def as_hook(policy: Judge) -> Callable[[Any, str | None, Any], Awaitable[HookJSONOutput]]:
    """Return a callback for `HookMatcher(hooks=[...])` under `PreToolUse`, which is also called if a rule allows.

    No opinion leaves the decision to the rules and the mode. If the policy allows, `can_use_tool` is not called, as
    with any such hook. Updates of permission rules are dropped.
    """
    inner = as_policy(policy)

    async def hook(hook_input: Any, tool_use_id: str | None, _context: Any) -> HookJSONOutput:
        if hook_input.get("hook_event_name") != "PreToolUse":
            raise TypeError("as_hook() returns a hook for PreToolUse only")
        context = ToolPermissionContext(
            tool_use_id=tool_use_id, agent_id=hook_input.get("agent_id"), raw=dict(hook_input)
        )
        given = hook_input.get("tool_input")
        tool_input = given if isinstance(given, dict) else {}
        decision = await inner.decide(str(hook_input.get("tool_name", "")), tool_input, context)
        if decision is None:
            return {}
        result = decision.result
        specific: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": result.behavior}
        output: dict[str, Any] = {"hookSpecificOutput": specific}
        if isinstance(result, PermissionResultDeny):
            specific["permissionDecisionReason"] = result.message
            if result.interrupt:
                output |= {"continue_": False, "stopReason": result.message}
            return output  # type: ignore[return-value]  # put together piece by piece
        specific["permissionDecisionReason"] = f"allowed by {decision.policy}"
        if result.updated_input is not None:
            specific["updatedInput"] = result.updated_input
        if result.updated_permissions:
            logger.debug("a hook cannot update permission rules: dropped")
        return output  # type: ignore[return-value]

    hook.__qualname__ = f"as_hook({inner!r})"
    return hook


def matches_tool(name: str, patterns: tuple[str, ...], *, wide: bool = False) -> bool:
    """Return True if a pattern matches the tool. `mcp__calc` matches all tools of that server, as in rules.

    A pattern such as `mcp__a__b` may mean a server `a__b` or a tool `b`: with `wide` it matches both.
    """
    for pattern in (part.strip() for each in patterns for part in each.split("|")):
        if fnmatchcase(name, pattern):
            return True
        whole = wide or "__" not in pattern[5:]
        if pattern.startswith("mcp__") and whole and name.startswith(f"{pattern}__"):
            return True
    return False
