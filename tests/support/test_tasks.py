"""Work that belongs to no block of code: what it raises is seen once, in the log."""

import asyncio
import functools

import anyio
import pytest

from toolwire._support.tasks import is_async, spawn

pytestmark = pytest.mark.anyio


async def ended(work):
    done = anyio.Event()
    spawn(work, on_done=done.set)
    with anyio.fail_after(10):
        await done.wait()


async def test_a_failure_is_logged_once(caplog):
    """With its trace, for nobody else sees it."""

    async def failing():
        raise ValueError("no luck")

    await ended(failing)
    assert [str(each.exc_info[1]) for each in caplog.records] == ["no luck"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failure_beside_a_cancellation_is_logged_too(anyio_backend, caplog):
    """A group of both loses neither in silence; one of cancellations alone is no failure."""

    async def both():
        raise BaseExceptionGroup("both", [asyncio.CancelledError(), ValueError("no luck")])

    async def cancelled():
        raise BaseExceptionGroup("only", [asyncio.CancelledError()])

    await ended(both)
    await ended(cancelled)
    (record,) = caplog.records
    assert [str(each) for each in record.exc_info[1].exceptions] == ["no luck"]


def test_what_is_async_is_seen_without_a_call():
    """An async function, method or `__call__`, also in a partial. What a plain function returns is not known."""

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
