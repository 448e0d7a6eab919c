"""Signals, mailboxes, groups of work and futures, on asyncio and trio."""

import math

import anyio
import pytest

from toolwire._support.waiting import Future, Mailbox, Signal, WaitGroup

pytestmark = pytest.mark.anyio


async def test_a_signal_wakes_all_who_wait_and_nobody_later():
    """It does not stay set: a task that waits after it waits for the next."""
    signal, woken = Signal(), []
    signal.notify()  # nobody waits

    async def wait(name):
        await signal.wait()
        woken.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(wait, "a")
        group.start_soon(wait, "b")
        await anyio.wait_all_tasks_blocked()
        assert woken == []
        signal.notify()
        await anyio.wait_all_tasks_blocked()
        assert sorted(woken) == ["a", "b"]
        group.start_soon(wait, "c")
        await anyio.wait_all_tasks_blocked()
        assert len(woken) == 2
        signal.notify()


async def test_waiting_until_something_is_so():
    """The condition is checked before the first wait, and after each signal."""
    signal, values = Signal(), []
    await signal.wait_until(lambda: True)
    async with anyio.create_task_group() as group:
        group.start_soon(signal.wait_until, lambda: len(values) == 2)
        for value in range(2):
            await anyio.wait_all_tasks_blocked()
            values.append(value)
            signal.notify()


async def test_a_cancelled_waiter_leaves_the_others():
    """The others are woken all the same."""
    signal = Signal()
    with anyio.move_on_after(0):
        await signal.wait()
    async with anyio.create_task_group() as group:
        group.start_soon(signal.wait)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0):
            await signal.wait()
        signal.notify()


async def test_a_wait_ends_when_its_time_is_over():
    """It returns without a cancellation, and leaves no waiter behind that would be woken later."""
    signal, future = Signal(), Future()
    with anyio.fail_after(10):
        await signal.wait(0.01)
        await signal.wait(-1)
        await signal.wait_until(lambda: False, 0.01)
        await future.wait(0.01)
    assert (future.is_set, signal._waiting) == (False, [])


async def test_what_comes_in_time_ends_the_wait():
    """The length of the timeout does not matter."""
    signal, future = Signal(), Future()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(signal.wait, math.inf)
            group.start_soon(signal.wait, 3600)
            group.start_soon(signal.wait_until, lambda: future.is_set, 3600)
            group.start_soon(future.wait, 3600)
            await anyio.wait_all_tasks_blocked()
            future.set(1)
            signal.notify()
        assert await future.wait(0) == 1


async def test_a_wait_with_a_limit_can_be_cancelled():
    """A scope around it cancels it before its timeout."""
    signal = Signal()
    with anyio.fail_after(10):
        with anyio.move_on_after(0) as scope:
            await signal.wait(3600)
    assert (scope.cancelled_caught, signal._waiting) == (True, [])


async def test_a_mailbox_keeps_the_order_and_ends_when_it_is_closed():
    """What was put before the end is still read, what comes later is dropped."""
    box = Mailbox()
    box.put(1)
    assert await box.get() == 1
    read = []

    async def reader():
        async for item in box:
            read.append(item)

    async with anyio.create_task_group() as group:
        group.start_soon(reader)
        await anyio.wait_all_tasks_blocked()
        for item in (2, None, 3):
            box.put(item)
        assert len(box) == 3
        box.close()
        box.put(4)
    assert read == [2, None, 3]
    with pytest.raises(anyio.EndOfStream):
        await box.get()


async def test_each_item_goes_to_one_reader():
    """This holds however many readers wait."""
    box, read = Mailbox(), []

    async def reader():
        read.append(await box.get())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(reader)
        await anyio.wait_all_tasks_blocked()
        for item in range(3):
            box.put(item)
    assert sorted(read) == [0, 1, 2]


async def test_a_group_of_work_is_waited_for_until_the_last_is_done():
    """Work that is added meanwhile counts too; without any work, wait() returns at once."""
    group_of_work = WaitGroup()
    await group_of_work.wait()
    group_of_work.add()
    ended = []

    async def wait():
        await group_of_work.wait()
        ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        group_of_work.add()
        group_of_work.done()
        await anyio.wait_all_tasks_blocked()
        assert not ended
        group_of_work.done()


async def test_the_first_value_of_a_future_counts():
    """All waiting tasks get it."""
    future, got = Future(), []

    async def wait():
        got.append(await future.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not future.is_set
        future.set(None)
        future.set(2)
    assert got == [None, None]
    assert future.is_set
    assert future.value is None
