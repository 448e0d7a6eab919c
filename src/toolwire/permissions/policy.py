"""What a policy is, and how several make one.

A policy is asked about a tool call and allows it, denies it, or has no opinion. Any function with the signature of
`can_use_tool` is one, sync or async, and may return None for no opinion. `Policy` adds a name, `|`, and the rule of
the house: what fails, or answers nonsense, denies.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import maybe_await
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

logger = logger_for("permissions")


@dataclass(frozen=True)
class Decision:
    """An opinion, and whose it is."""

    result: PermissionResult
    policy: str

    @property
    def reason(self) -> str | None:
        """Why, if it is a no."""
        return self.result.message if isinstance(self.result, PermissionResultDeny) else None


Opinion: TypeAlias = PermissionResult | Decision | None
Judge: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Opinion | Awaitable[Opinion]]
"""A function that can be a policy."""
Otherwise: TypeAlias = "Literal['allow', 'deny'] | Judge"


class Policy:
    """A function as a policy: `Policy(function)`. As `can_use_tool` it denies what it has no opinion on."""

    def __init__(self, judge: Judge, shown: str | None = None) -> None:
        self._judge = judge
        self._shown = shown or getattr(judge, "__qualname__", None) or repr(judge)

    async def decide(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> Decision | None:
        """The decision, None for no opinion. A failure is a no, and is logged with the policy's name."""
        try:
            opinion = await maybe_await(self._judge(name, given, context))
        except Exception:
            logger.exception("the policy %s failed on %s: denied", self, name)
            return self._no(f"{name} was refused because the check of its permission failed.")
        if opinion is None or isinstance(opinion, Decision):
            return opinion
        if isinstance(opinion, PermissionResultAllow | PermissionResultDeny):
            return Decision(opinion, self._shown)
        logger.error("the policy %s answered %s on %s: denied", self, type(opinion).__name__, name)
        return self._no(f"{name} was refused because the check of its permission gave no valid answer.")

    async def __call__(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """The answer to the CLI."""
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
        """This policy, and `answer` where it has no opinion: `"allow"`, `"deny"`, or another policy."""
        return first_of(self, fallback(answer, reason))

    def __repr__(self) -> str:
        return self._shown

    def _no(self, message: str) -> Decision:
        return Decision(PermissionResultDeny(message=message), self._shown)


class _Chain(Policy):
    """Several policies in a row; flat, however it was written."""

    def __init__(self, links: tuple[Policy, ...]) -> None:
        super().__init__(self._first, " | ".join(map(repr, links)))
        self.links = links

    async def _first(
        self, name: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> Decision | None:
        for link in self.links:
            decision = await link.decide(name, given, context)
            if decision is not None:
                return decision
        return None


def as_policy(judge: Judge) -> Policy:
    """`judge` itself if it is a `Policy`, or a policy of it."""
    return judge if isinstance(judge, Policy) else Policy(judge)


def first_of(*policies: Judge) -> Policy:
    """The first opinion counts: put what denies before what allows. `a | b` is the same."""
    if not policies:
        raise TypeError("first_of needs at least one policy")
    links: list[Policy] = []
    for policy in map(as_policy, policies):
        links += policy.links if isinstance(policy, _Chain) else (policy,)
    return _Chain(tuple(links))


def fallback(answer: Otherwise, reason: str | None = None) -> Policy:
    """A policy that says the same to everything; or the given one."""
    if callable(answer):
        return as_policy(answer)
    if answer == "allow":
        return Policy(lambda *_: PermissionResultAllow(), "allow all")
    if answer != "deny":
        raise ValueError(f"otherwise must be 'allow', 'deny' or a policy, not {answer!r}")

    def refuse(name: str, _given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult:
        return PermissionResultDeny(message=reason or f"{name} was refused: this program does not allow it.")

    return Policy(refuse, "deny all")


def with_timeout(policy: Judge, seconds: float, otherwise: Otherwise = "deny") -> Policy:
    """`policy`, given up after so many seconds."""
    inner = as_policy(policy)
    late = fallback(otherwise, f"The call was refused: nobody decided on it within {seconds:g} seconds.")

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        with anyio.move_on_after(seconds) as limit:
            decision = await inner.decide(name, given, context)
            if anyio.current_time() < limit.deadline:  # a sync function that took too long is late too
                return decision
        return await late.decide(name, given, context)

    return Policy(judge, f"with_timeout({inner!r}, {seconds:g})")
