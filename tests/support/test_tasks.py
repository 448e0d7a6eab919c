"""Background tasks: what they raise is logged once; and scopes that cancel the work inside them."""

import asyncio
import functools

import anyio
import pytest

from toolwire._support.tasks import TaskScope, is_async, is_cancellation, spawn

pytestmark = pytest.mark.anyio


async def ended(work):
    done = anyio.Event()
    spawn(work, on_done=done.set)
    with anyio.fail_after(10):
        await done.wait()


async def test_a_failure_is_logged_once(caplog):
    """It is logged with its traceback, since nobody else sees it."""

    async def failing():
        raise ValueError("no luck")

    await ended(failing)
    assert [str(each.exc_info[1]) for each in caplog.records] == ["no luck"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failure_beside_a_cancellation_is_logged_too(anyio_backend, caplog):
    """The failure in a group of both is logged; a group of cancellations alone is no failure."""

    async def both():
        raise BaseExceptionGroup("both", [asyncio.CancelledError(), ValueError("no luck")])

    async def cancelled():
        raise BaseExceptionGroup("only", [asyncio.CancelledError()])

    await ended(both)
    await ended(cancelled)
    (record,) = caplog.records
    assert [str(each) for each in record.exc_info[1].exceptions] == ["no luck"]


def test_what_is_async_is_seen_without_a_call():
    """An async function, method or `__call__` is recognised, also in a partial; nothing is called to find out."""

    async def plain():
        return 1

    class Caller:
        async def __call__(self):
            return 1

        async def method(self):
            return 1

    known = [plain, Caller(), Caller().method, functools.partial(plain), functools.partial(Caller())]
    assert [is_async(each) for each in known] == [True] * len(known)
    assert not any(map(is_async, [lambda _=1: plain(), Caller, print, "no callable"]))


on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


async def sleep_in(scope, seen):
    """Sleep in a scope; record whether that was cancelled, and the task's count of cancellations afterwards."""
    with scope:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as error:
            seen.append(is_cancellation(error))
            raise
    seen.append(asyncio.current_task().cancelling())


@on_asyncio
async def test_a_cancelled_task_scope_ends_what_is_inside_and_nothing_else(anyio_backend):
    """The task goes on after it, as if it had never been cancelled."""
    scope, seen = TaskScope(), []
    task = asyncio.create_task(sleep_in(scope, seen))
    await asyncio.sleep(0)
    scope.cancel()
    scope.cancel()
    await asyncio.wait_for(task, 10)
    assert seen == [True, 0]
    scope.cancel()  # no effect: the scope was left
    await asyncio.sleep(0)
    assert not task.cancelled()


@on_asyncio
async def test_a_task_scope_lets_the_cancellation_of_its_task_through(anyio_backend):
    """This holds also when the scope is cancelled at the same time."""
    for cancel_scope in (False, True):
        scope, seen = TaskScope(), []
        task = asyncio.create_task(sleep_in(scope, seen))
        await asyncio.sleep(0)
        if cancel_scope:
            scope.cancel()
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 10)
        assert seen == [True]


@on_asyncio
async def test_a_task_that_cancels_its_own_scope_is_cancelled_at_its_next_await(anyio_backend):
    """If it leaves the scope without an await, it is not cancelled at all."""
    seen = []
    with TaskScope() as scope:
        scope.cancel()
        seen.append("here")
        await asyncio.sleep(3600)
    with TaskScope() as scope:
        scope.cancel()
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="no luck"), TaskScope() as scope:  # other errors are not held back
        scope.cancel()
        raise ValueError("no luck")
    await asyncio.sleep(0)
    assert (seen, asyncio.current_task().cancelling()) == (["here"], 0)
