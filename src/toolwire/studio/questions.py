"""Questions of a tool or the CLI to the user, which are answered on the page.

The asker awaits the answer on the event loop. A question is answered once, from any open window. If the asker stops
waiting (interrupted, timed out), the question becomes "cancelled" and accepts no answer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolwire._support.dialogs import Permission
from toolwire.permissions.types import (
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult
from toolwire.tools.names import short_name

State: TypeAlias = Literal["open", "answered", "cancelled"]


@dataclass(eq=False)
class Question:
    """One question for the user."""

    kind: Literal["permission", "elicitation"]
    title: str
    tool_use_id: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    """Permission: the arguments of the tool call."""
    why: str | None = None
    """Permission: why the CLI asks."""
    tool: str = ""
    """Permission: the full name of the tool."""
    schema: dict[str, Any] | None = None
    """Elicitation: the schema of the form to fill in."""
    url: str | None = None
    """Elicitation: the URL to open instead of a form."""
    state: State = "open"
    answer_text: str = ""
    """The answer, in a few words."""
    _future: "asyncio.Future[Any] | None" = None
    _always: set[str] = field(default_factory=set)

    def allow(self, *, always: bool = False) -> bool:
        """Allow the call. With `always`, also allow all later calls of the tool in this conversation."""
        accepted = self._answer(PermissionResultAllow(), "always allowed" if always else "allowed")
        if accepted and always:
            self._always.add(self.tool)
        return accepted

    def deny(self, reason: str = "") -> bool:
        """Deny the call. The model receives the reason."""
        result = PermissionResultDeny(message=Permission(allowed=False, reason=reason).denial)
        return self._answer(result, f"denied: {reason}" if reason else "denied")

    def accept(self, content: dict[str, Any]) -> bool:
        """Send the values of the form."""
        return self._answer(ElicitationResult(action="accept", content=content), "sent")

    def decline(self) -> bool:
        """Refuse to answer."""
        return self._answer(ElicitationResult(action="decline"), "declined")

    def _answer(self, result: Any, text: str) -> bool:
        """Store the answer. Returns False if the question was no longer open."""
        if self._future is None or self._future.done():
            return False
        self.state, self.answer_text = "answered", text
        self._future.set_result(result)
        return True


class Questions:
    """The open questions of one conversation or call. `changed` is called whenever one is asked or answered."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.all: list[Question] = []
        self._always: set[str] = set()

    @property
    def open(self) -> list[Question]:
        """The questions that wait for an answer."""
        return [each for each in self.all if each.state == "open"]

    async def ask_permission(
        self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> Any:
        """Ask whether a tool may run. Serves as `can_use_tool`."""
        if tool in self._always:
            return PermissionResultAllow()
        question = Question(
            "permission",
            f"May Claude call {short_name(tool)}?",
            tool_use_id=context.tool_use_id,
            arguments=arguments,
            why=context.decision_reason,
            tool=tool,
            _always=self._always,
        )
        return await self._ask(question)

    async def ask_elicitation(self, request: ElicitationRequest) -> Any:
        """Ask for the input that a server requests. Serves as `on_elicitation`."""
        question = Question(
            "elicitation", f"{request.server} asks: {request.message}", schema=request.schema, url=request.url
        )
        return await self._ask(question)

    async def _ask(self, question: Question) -> Any:
        question._future = asyncio.get_running_loop().create_future()  # noqa: SLF001 - of this module
        self.all.append(question)
        self._changed()
        try:
            return await question._future  # noqa: SLF001 - as above
        finally:
            if question.state == "open":
                question.state = "cancelled"
            self._changed()
