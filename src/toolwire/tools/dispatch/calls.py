"""A call while it runs: what is run, the ways to stop it, and the way in which its carrier ends it."""

from typing import Any, Protocol

import anyio

from toolwire._protocol.jsonrpc import Id, Interrupted
from toolwire.tools.context import Context


class Subject(Protocol):
    """What is run: a tool, a resource, a prompt."""

    name: str
    timeout: float | None

    @property
    def repeatable(self) -> bool:
        """Whether it may run again for the same call, as a stateless client's answers require."""
        ...

    @property
    def threaded(self) -> bool:
        """Whether a worker thread runs it."""
        ...

    @property
    def label(self) -> str:
        """How it is called in errors."""
        ...

    def invoke(self, values: dict[str, Any], context: Context[Any] | None) -> Any:
        """Call the function with validated values. Gives its result, or an awaitable of it."""
        ...


class Call:
    """A call that runs, and the two ways to stop it: its scope, and the flag that a sync tool can see."""

    def __init__(self, scope: anyio.CancelScope, request_id: Id) -> None:
        self.request_id = request_id
        self._scope = scope
        self.context: Context[Any] | None = None

    def cancel(self) -> None:
        """Stop it, whatever it is."""
        self.mark()
        self._scope.cancel()

    def mark(self) -> None:
        """Set the flag."""
        if self.context is not None:
            self.context.cancelled = True


def interruption(error: BaseException) -> Interrupted | None:
    """The interruption that an exception is, or has in it: task groups in a function wrap what they raise."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := interruption(each)) is not None), None)
    return error if isinstance(error, Interrupted) else None
