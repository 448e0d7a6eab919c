"""Tasks that belong to an object and not to a block of code.

`query()` is an async generator, so no task group may span its `yield`. Work that must continue between two `yield`s
runs in an asyncio task or a trio system task. The object that spawns a task keeps the handle and cancels it.
"""

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, Self

import anyio

from toolwire._support.log import logger_for

logger = logger_for("tasks")

Work = Callable[..., Coroutine[Any, Any, Any]]


class Task(Protocol):
    """A running piece of work."""

    def cancel(self) -> object:
        """Ask it to stop; it may take a moment to wind down."""
        ...


def on_trio() -> bool:
    """Return True if the caller runs under trio rather than asyncio. Never imports trio."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def spawn(
    work: Work,
    *args: Any,
    on_done: Callable[[], None] | None = None,
    context: contextvars.Context | None = None,
) -> Task:
    """Start `work(*args)` as a task of its own, with a copy of the caller's context variables, or of `context`.

    An exception is logged, since nobody awaits the task. `on_done` is called when it has ended, also when it was
    cancelled before its first step, in which case nothing of `work` itself ever runs.
    """
    copied = contextvars.copy_context() if context is None else context.copy()
    return (_spawn_trio if on_trio() else _spawn_asyncio)(work, args, on_done, copied)


def is_async(function: Any) -> bool:
    """Return True if calling it is known to return an awaitable: an async function, method or `__call__`."""
    while isinstance(function, partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


async def maybe_await(value: Any) -> Any:
    """Await a value if it is awaitable: the result of a callback that may be sync or async."""
    return await value if inspect.isawaitable(value) else value


def has_scopes() -> bool:
    """Return True if the caller may be inside cancel scopes: on trio, or if anyio was used on asyncio.

    Otherwise there are none, and anyio's backend, which is slow to load, need not be loaded.
    """
    return "anyio._backends._asyncio" in sys.modules or on_trio()


def new_scope() -> "anyio.CancelScope | TaskScope":  # in quotes, or anyio would be loaded at import
    """Return a new cancel scope: one of anyio where that was used before, since the body may rely on it."""
    return new_anyio_scope() if has_scopes() else TaskScope()


def new_anyio_scope() -> "anyio.CancelScope":
    """Return a new cancel scope of anyio."""
    trio = on_trio()
    if trio not in _scope_types:
        _scope_types[trio] = type(anyio.CancelScope())
    return _scope_types[trio]()


_scope_types: "dict[bool, type[anyio.CancelScope]]" = {}  # `anyio.CancelScope()` looks the type up each time


def shield() -> AbstractContextManager[object]:
    """Return a context manager that shields its body from cancelled scopes, though not from `Task.cancel()`."""
    return anyio.CancelScope(shield=True) if has_scopes() else nullcontext()


class TaskScope:
    """A cancel scope on asyncio where anyio was never used (see `has_scopes`).

    Cancelling it cancels its task once, as `Task.cancel()` does.
    """

    __slots__ = ("_cancelled", "_entered", "_loop", "_requests", "_task")

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a scope can only be entered in a task")
        self._task = task
        self._requests = task.cancelling()
        self._loop = task.get_loop()
        self._entered = True
        self._cancelled = False
        return self

    def cancel(self) -> None:
        """Cancel the body of the scope. If its own task calls this, it is cancelled at its next `await`."""
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._entered and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Suppress the cancellation that this scope caused, unless the task was also cancelled from elsewhere."""
        self._entered = False
        if not self._cancelled:
            return False
        return self._task.uncancel() <= self._requests and isinstance(error, asyncio.CancelledError)


def is_cancellation(error: BaseException) -> bool:
    """Return True for a cancellation, and for a group with one in it, as trio's nurseries raise."""
    return _holds(error, sys.modules["trio"].Cancelled if on_trio() else asyncio.CancelledError)


def _holds(error: BaseException, cancelled: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(cancelled) is not None
    return isinstance(error, cancelled)


def cancelled_from_inside() -> bool:
    """Return True if a caught CancelledError came from inside the task rather than from `Task.cancel()`."""
    task = None if on_trio() else asyncio.current_task()
    return task is not None and not task.cancelling()


_running: set["asyncio.Task[None]"] = set()  # asyncio itself keeps only weak references


def _spawn_asyncio(
    work: Work, args: tuple[Any, ...], on_done: Callable[[], None] | None, context: contextvars.Context
) -> Task:
    # Not wrapped: one more coroutine would slow down every tool call. Its exception is read when it has ended.
    task = asyncio.get_running_loop().create_task(work(*args), context=context)
    _running.add(task)
    task.add_done_callback(partial(_ended, on_done))
    return task


def _ended(on_done: Callable[[], None] | None, task: "asyncio.Task[None]") -> None:
    _running.discard(task)
    error = None if task.cancelled() else task.exception()
    if isinstance(error, BaseExceptionGroup):
        error = error.split(asyncio.CancelledError)[1]  # the other exceptions are still a failure
    if error is not None:
        _log(error, asyncio.CancelledError)
    if on_done is not None:
        on_done()


def _log(error: BaseException, cancelled: type[BaseException]) -> bool:
    """Log the failure of a task that nobody awaits. Returns False for a cancellation or an exit."""
    if isinstance(error, KeyboardInterrupt | SystemExit) or _holds(error, cancelled):
        return False
    logger.error("a background task failed", exc_info=error)
    return True


def _spawn_trio(
    work: Work, args: tuple[Any, ...], on_done: Callable[[], None] | None, context: contextvars.Context
) -> Task:
    import trio  # noqa: PLC0415 - only where it already runs

    scope = trio.CancelScope()

    async def inside() -> None:
        try:
            with scope:
                await work(*args)
        except BaseException as error:
            if not _log(error, trio.Cancelled):
                raise
        finally:
            if on_done is not None:
                on_done()

    trio.lowlevel.spawn_system_task(inside, context=context)
    return scope
