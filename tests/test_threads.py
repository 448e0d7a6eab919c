"""The pool of worker threads: threads that rest too long end, and no call is lost when they do."""

import threading
import time

import anyio
import pytest

from toolwire import ToolServer
from toolwire._threads import Workers
from toolwire.testing import connect

pytestmark = pytest.mark.anyio
LIMIT = 60


def own_threads():
    return {each for each in threading.enumerate() if each.name == "toolwire worker"}


async def gone(threads):
    """Wait until these threads have ended."""
    with anyio.fail_after(LIMIT):
        while threads & own_threads():
            await anyio.sleep(0.01)


async def test_idle_threads_end():
    """All of them, and the pool still works afterwards."""
    before, workers, meet = own_threads(), Workers(4, rest=0.05), threading.Barrier(4)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(workers.run, lambda: meet.wait(LIMIT))
    await gone(own_threads() - before)
    assert await workers.run(lambda: 42) == 42


async def test_a_server_for_each_conversation_leaves_no_threads():
    """A sync tool takes a thread of its server; with the server that goes too."""
    before = own_threads()
    for _ in range(5):
        server = ToolServer("short")
        server.workers.rest = 0.05

        @server.tool
        def thread() -> str:
            """Tell which thread this is."""
            return threading.current_thread().name

        async with connect(server) as client:
            assert (await client.call("thread")).text == "toolwire worker"
    await gone(own_threads() - before)


async def test_no_call_is_lost_when_threads_end():
    """Calls come just when the threads have rested long enough: each is run once."""
    workers, ran = Workers(3, rest=0.001), []

    async def call(number):
        for turn in range(60):
            assert await workers.run(lambda: ran.append((number, turn)) or turn) == turn  # noqa: B023 - run at once
            await anyio.sleep(0.001 * (turn % 3))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(call, number)
    assert len(ran) == len(set(ran)) == 6 * 60


async def test_a_result_is_let_go_of_while_the_thread_rests():
    """A thread that waits for its next call holds nothing of the last one."""

    class Large:
        pass

    import gc  # noqa: PLC0415
    import weakref  # noqa: PLC0415

    workers = Workers(1, rest=10 * LIMIT)
    seen = weakref.ref(await workers.run(Large))
    until = time.monotonic() + LIMIT
    while seen() is not None and time.monotonic() < until:
        gc.collect()
        await anyio.sleep(0.01)
    assert seen() is None
