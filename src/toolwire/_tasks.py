"""Tasks that belong to an object and not to a block of code.

`query()` is an async generator, so no task group may span its `yield`. Work that must go on between two `yield`s
lives here: an asyncio task, or a trio system task. Whoever spawns one keeps the handle and cancels it.
"""

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from toolwire._log import logger_for

logger = logger_for("tasks")


class Task(Protocol):
    """A running piece of work."""

    def cancel(self) -> object:
        """Ask it to stop; it may take a moment to wind down."""
        ...


def on_trio() -> bool:
    """Whether the caller runs under trio rather than asyncio. Never imports trio for the question."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def spawn(work: Callable[..., Awaitable[None]], *args: Any) -> Task:
    """Start `work(*args)` beside the caller, with the caller's context variables.

    An exception that it lets out is logged: nobody else is there to see it.
    """
    return _spawn_trio(work, *args) if on_trio() else _spawn_asyncio(work, *args)


_running: set["asyncio.Task[None]"] = set()  # asyncio itself keeps only weak references


def _spawn_asyncio(work: Callable[..., Awaitable[None]], *args: Any) -> Task:
    task = asyncio.get_running_loop().create_task(_logged(work, *args))
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def awaited(value: Any) -> Any:
    """What a callback that may be sync or async gave."""
    return await value if inspect.isawaitable(value) else value


async def _logged(work: Callable[..., Awaitable[None]], *args: Any) -> None:
    try:
        await work(*args)
    except Exception:  # the boundary of a detached task: no caller is left to raise to
        logger.exception("a background task failed")


def _spawn_trio(work: Callable[..., Awaitable[None]], *args: Any) -> Task:
    import trio  # noqa: PLC0415 - only where it already runs

    scope = trio.CancelScope()

    async def inside() -> None:
        with scope:
            await _logged(work, *args)

    trio.lowlevel.spawn_system_task(inside, context=contextvars.copy_context())
    return scope
