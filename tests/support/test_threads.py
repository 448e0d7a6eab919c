"""Worker threads: abandoned calls, the threads that are left for others, and the end of idle threads."""

import gc
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from shared.waiting import eventually
from toolwire import ToolServer
from toolwire._support.threads import TooManyAbandonedCalls, Workers
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

LIMIT = 30


class Blocked:
    """A sync function that blocks until `let_go` is set, and counts its calls."""

    def __init__(self):
        self.let_go = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most = self.begun = 0

    def __call__(self):
        with self.lock:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
        self.let_go.wait(LIMIT)
        with self.lock:
            self.running -= 1


@contextmanager
def blocked():
    calls = Blocked()
    try:
        with anyio.fail_after(LIMIT):
            yield calls
    finally:
        calls.let_go.set()


async def leave_behind(pool, calls, count, client):
    """Start this number of calls of a client, and cancel them while they run."""
    begun = calls.begun + count
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(pool.run, calls, client)
        await eventually(lambda: calls.begun == begun)
        tasks.cancel_scope.cancel()


async def test_calls_that_were_given_up_take_nobodys_place():
    """While all threads hang in abandoned calls of one client, calls of another are run."""
    pool = Workers(4, abandoned_limit=32)
    with blocked() as calls:
        await leave_behind(pool, calls, 4, "hung")
        assert [await pool.run(lambda: "done", "other") for _ in range(10)] == ["done"] * 10
        await leave_behind(pool, calls, 4, "other")
        assert await pool.run(lambda: "done", "third") == "done"


async def test_whoever_waits_gets_a_thread_when_a_call_is_given_up():
    """Waiting calls run as soon as others are abandoned."""
    pool, done = Workers(2, abandoned_limit=16), []
    with blocked() as calls:
        async with anyio.create_task_group() as hung, anyio.create_task_group() as tasks:
            for _ in range(2):
                hung.start_soon(pool.run, calls, "hung")
            await eventually(lambda: calls.begun == 2)
            for number in range(5):
                tasks.start_soon(pool.run, lambda number=number: done.append(number), "other")
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert done == []
            hung.cancel_scope.cancel()
            await eventually(lambda: len(done) == 5)


async def test_a_client_that_leaves_too_many_behind_is_refused():
    """It may abandon as many calls as the pool has threads, until one of them ends; other clients may go on."""
    pool = Workers(3, abandoned_limit=24)
    with blocked() as calls:
        await leave_behind(pool, calls, 2, "hung")
        assert await pool.run(lambda: "done", "hung") == "done"
        await leave_behind(pool, calls, 1, "hung")
        with pytest.raises(TooManyAbandonedCalls) as refused:
            await pool.run(lambda: "done", "hung")
        assert refused.value.count == 3
        assert await pool.run(lambda: "done", "other") == "done"
        assert await pool.run(lambda: "done") == "done", "nobody in particular"
        calls.let_go.set()
        await eventually(lambda: calls.running == 0)
        while True:
            try:
                assert await pool.run(lambda: "done", "hung") == "done"
                break
            except TooManyAbandonedCalls:  # the thread has not yet reported that it is free
                await anyio.sleep(0.005)


async def test_threads_do_not_pile_up_without_end():
    """Extra threads for abandoned calls are limited: beyond that, a call keeps its place until it ends."""
    pool = Workers(2, abandoned_limit=4)
    with blocked() as calls:
        for client in "abc":
            await leave_behind(pool, calls, 2, client)
        assert calls.running == 6
        with anyio.move_on_after(0.05) as waited:
            await pool.run(lambda: None, "other")
        assert waited.cancelled_caught
        assert calls.most == 6
        calls.let_go.set()
        assert await pool.run(lambda: "done", "other") == "done"


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_pool_with_nothing_beside_keeps_to_its_limit(limit):
    """Without extra threads, the place of an abandoned call is free only when its thread is."""
    pool = Workers(limit)
    with blocked() as calls:
        await leave_behind(pool, calls, limit, "hung")
        with anyio.move_on_after(0.05) as waited:
            await pool.run(calls, "other")
        assert waited.cancelled_caught
        calls.let_go.set()
        assert await pool.run(lambda: "done", "other") == "done"
    assert calls.most == limit
    assert calls.begun == limit, "what was given up in the queue has not run"


async def test_threads_beside_end_and_the_others_are_kept():
    """After many abandoned calls there are no more threads than the limit."""
    pool, before = Workers(3, abandoned_limit=24), set(threading.enumerate())
    with blocked() as calls:
        for client in range(4):
            await leave_behind(pool, calls, 3, client)
        assert await pool.run(lambda: "done", "other") == "done"
        calls.let_go.set()
        # the thread of the last call is kept
        await eventually(lambda: len(set(threading.enumerate()) - before) <= 1)
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(pool.run, lambda: None, number)
        assert len(set(threading.enumerate()) - before) <= 3


async def test_calls_that_are_given_up_at_any_moment_lose_no_thread():
    """They are cancelled before they run, while they do, and as they end: afterwards the whole pool is there."""
    pool = Workers(3, abandoned_limit=24)
    with anyio.fail_after(LIMIT):
        for turns in range(60):
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(pool.run, lambda: None, (turns, number))
                for _ in range(turns % 7):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
    with blocked() as calls:
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(pool.run, calls, number)
            await eventually(lambda: calls.begun == 3)
            calls.let_go.set()


def own_threads():
    return {each for each in threading.enumerate() if each.name == "toolwire worker"}


async def gone(threads):
    """Wait until these threads have ended."""
    with anyio.fail_after(LIMIT):
        await eventually(lambda: not threads & own_threads())


async def test_idle_threads_end():
    """All of them end, and the pool still works afterwards."""
    before, workers, meet = own_threads(), Workers(4, idle_timeout=0.05), threading.Barrier(4)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(workers.run, lambda: meet.wait(LIMIT))
    await gone(own_threads() - before)
    assert await workers.run(lambda: 42) == 42


@pytest.mark.slow
async def test_a_server_for_each_conversation_leaves_no_threads():
    """A sync tool takes a thread of its server; with the server that goes too."""
    before = own_threads()
    for _ in range(5):
        server = ToolServer("short")
        server.workers.idle_timeout = 0.05

        @server.tool
        def thread() -> str:
            """Tell which thread this is."""
            return threading.current_thread().name

        async with connect(server) as client:
            assert (await client.call("thread")).text == "toolwire worker"
    await gone(own_threads() - before)


async def test_no_call_is_lost_when_threads_end():
    """Calls come just when the threads have rested long enough: each is run once."""
    workers, ran = Workers(3, idle_timeout=0.001), []

    async def call(number):
        for turn in range(60):
            assert await workers.run(lambda: ran.append((number, turn)) or turn) == turn  # noqa: B023 - run at once
            await anyio.sleep(0.001 * (turn % 3))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(call, number)
    assert len(ran) == len(set(ran)) == 6 * 60


@pytest.mark.slow
async def test_a_result_is_let_go_of_while_the_thread_rests():
    """A thread that waits for its next call holds nothing of the last one."""

    class Large:
        pass

    workers = Workers(1, idle_timeout=10 * LIMIT)
    seen = weakref.ref(await workers.run(Large))
    await eventually(lambda: gc.collect() >= 0 and seen() is None)


FORKED = """
import asyncio, os
from toolwire._support.threads import Workers
pool = Workers(1)
assert asyncio.run(pool.run(lambda: 1)) == 1
child = os.fork()
if child == 0:
    os._exit(asyncio.run(pool.run(lambda: 7)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert asyncio.run(pool.run(lambda: 2)) == 2
"""


@pytest.mark.process
def test_a_pool_works_in_a_forked_child():
    """The threads that were idle before belong to the parent."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
