"""What an HTTP session can come back for."""

import gc

import anyio
import anyio.lowlevel
import pytest
from mcp_types import JSONRPCNotification

from toolwire.mcp.events import MOST, Events

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    """The HTTP server is asyncio's."""
    return "asyncio"


def notice(number):
    """A message."""
    return JSONRPCNotification(jsonrpc="2.0", method=f"n/{number}")


async def within(events, session, work, *, opening=False):
    """Run something as a request of a session would."""
    outcome = []

    async def app(_scope, _receive, send):
        headers = [(b"mcp-session-id", session.encode())] if opening else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        outcome.append(await work())

    async def send(_message):
        pass

    headers = [] if opening else [(b"mcp-session-id", session.encode())]
    await events.answering(app, {"headers": headers}, None, send)
    return outcome[0]


async def opened(events, session):
    """A session: its memory lives as long as a task of its own does."""
    ready, over = anyio.Event(), anyio.Event()

    async def live():
        ready.set()
        await over.wait()

    import asyncio  # noqa: PLC0415 - as the session manager does

    async def open_it():
        return asyncio.get_running_loop().create_task(live())

    task = await within(events, session, open_it, opening=True)
    await ready.wait()
    return over, task


async def replayed(events, session, last):
    """The methods of what a session gets after an event, and the stream."""
    got = []

    async def collect(event):
        got.append(event.message.method)

    stream = await within(events, session, lambda: events.replay_events_after(last, collect))
    return stream, got


async def test_a_session_gets_what_it_missed_on_that_stream():
    """Later events of the same stream, in order, and no others."""
    events = Events()
    over, task = await opened(events, "a")
    first = await within(events, "a", lambda: events.store_event("1", None))
    for stream, number in (("1", 1), ("2", 2), ("1", 3)):
        await within(
            events, "a", lambda stream=stream, number=number: events.store_event(stream, notice(number))
        )
    assert await replayed(events, "a", first) == ("1", ["n/1", "n/3"])
    over.set()
    await task


async def test_another_session_gets_nothing_of_it():
    """Two sessions use the same request ids; neither can read the other's events, nor guess at them."""
    events = Events()
    (over_a, task_a), (over_b, task_b) = await opened(events, "a"), await opened(events, "b")
    first = await within(events, "a", lambda: events.store_event("1", None))
    await within(events, "a", lambda: events.store_event("1", notice("secret")))
    await within(events, "b", lambda: events.store_event("1", None))
    assert await replayed(events, "b", first) == (None, [])
    assert await replayed(events, "made-up", first) == (None, [])
    assert (await replayed(events, "a", first))[1] == ["n/secret"]
    for over, task in ((over_a, task_a), (over_b, task_b)):
        over.set()
        await task


async def test_memory_is_bounded_and_goes_with_the_session():
    """The oldest events go first, and all of them when the session has ended."""
    events = Events()
    over, task = await opened(events, "a")
    first = await within(events, "a", lambda: events.store_event("1", None))
    for number in range(MOST):
        await within(events, "a", lambda number=number: events.store_event("1", notice(number)))
    assert await replayed(events, "a", first) == (None, [])
    over.set()
    await task
    del task, over
    await anyio.lowlevel.checkpoint()  # the event loop itself holds the last thing that it ran
    gc.collect()
    assert list(events._memories) == []
