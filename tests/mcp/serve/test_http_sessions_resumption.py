"""The log of an HTTP session: which events a client gets that resumes a stream."""

import gc
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

from toolwire.mcp.serve import http_sessions as module
from toolwire.mcp.serve.http_sessions import MAX_EVENTS, SessionLogs

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's
LIMIT = 20


def notice(number):
    """Return a notification."""
    return JSONRPCNotification(jsonrpc="2.0", method=f"n/{number}")


def answer(number, size=0):
    """Return a response with a text of this size."""
    return JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": "x" * size})


def _told(message):
    """Return a short text for a message."""
    if isinstance(message, JSONRPCNotification):
        return message.method
    return f"{'no ' if isinstance(message, JSONRPCError) else ''}answer {message.id}"


async def within(events, session, work, *, opening=False):
    """Run `work` as a request of a session would."""
    outcome = []

    async def app(_scope, _receive, send):
        headers = [(b"mcp-session-id", session.encode())] if opening else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        outcome.append(await work())

    async def send(_message):
        pass

    headers = [] if opening else [(b"mcp-session-id", session.encode())]
    await events.run(app, {"headers": headers}, None, send)
    return outcome[0]


async def opened(events, session):
    """Open a session, whose log lives as long as a task of its own does."""
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
    """Return the stream that is resumed after an event, and what the session gets of it."""
    got = []

    async def collect(event):
        got.append(_told(event.message))

    with anyio.fail_after(LIMIT):  # a stream of another session would otherwise wait for its response
        stream = await within(events, session, lambda: events.replay_events_after(last, collect))
    return stream, got


async def test_a_session_gets_what_it_missed_on_that_stream():
    """Later events of the same stream, in order. `mcp` itself continues the stream for notifications."""
    events = SessionLogs()
    over, task = await opened(events, "a")
    first = await within(events, "a", lambda: events.store_event(GET_STREAM_KEY, None))
    for stream, number in ((GET_STREAM_KEY, 1), ("2", 2), (GET_STREAM_KEY, 3)):
        await within(
            events, "a", lambda stream=stream, number=number: events.store_event(stream, notice(number))
        )
    assert await replayed(events, "a", first) == (GET_STREAM_KEY, ["n/1", "n/3"])
    over.set()
    await task


async def test_another_session_gets_nothing_of_it():
    """Two sessions use the same request ids; neither can read the other's events or guess their ids."""
    events = SessionLogs()
    (over_a, task_a), (over_b, task_b) = await opened(events, "a"), await opened(events, "b")
    first = await within(events, "a", lambda: events.store_event("1", None))
    await within(events, "a", lambda: events.store_event("1", notice("secret")))
    await within(events, "a", lambda: events.store_event("1", answer(1)))
    await within(events, "b", lambda: events.store_event("1", None))
    assert await replayed(events, "b", first) == (None, [])
    assert await replayed(events, "made-up", first) == (None, [])
    assert (await replayed(events, "a", first))[1] == ["n/secret", "answer 1"]
    for over, task in ((over_a, task_a), (over_b, task_b)):
        over.set()
        await task


@asynccontextmanager
async def coming_back(events, last, hold=None):
    """Resume a stream whose call still runs, and give the list of what comes. Each sending waits for `hold`."""
    got, begun = [], anyio.Event()

    async def collect(event):
        if hold is not None:
            begun.set()
            await hold.wait()
        got.append(_told(event.message))

    async def replay():
        assert await events.replay_events_after(last, collect) is None

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(within, events, "a", replay)
            if hold is None:
                stream = events._logs["a"].streams[int(last.split("-")[1])]
                while stream.changed is None:  # until the replay waits for more
                    await anyio.sleep(0)
            else:
                await begun.wait()
            yield got


@pytest.fixture
async def store():
    """Return the logs, and `keep(stream, message)`, which stores an event of session "a" and returns its id."""
    events = SessionLogs()
    over, task = await opened(events, "a")

    async def keep(stream, message):
        return await within(events, "a", lambda: events.store_event(stream, message))

    yield events, keep
    over.set()
    await task


async def test_a_late_client_gets_what_is_left_of_its_stream(store):
    """Even if the event that it names, and many after it, were dropped from the log."""
    events, keep = store
    first = await keep("1", None)
    for number in range(MAX_EVENTS):
        await keep("1", notice(number))
    await keep("1", answer(1))
    stream, got = await replayed(events, "a", first)
    assert got == [*(f"n/{number}" for number in range(1, MAX_EVENTS)), "answer 1"]
    assert stream is None, "nothing more can come"


async def test_a_call_that_still_runs_is_found_after_everything_of_it_is_forgotten(store):
    """Events of other calls may have pushed its own out of the log; its response is still delivered."""
    events, keep = store
    first = await keep("1", None)
    for number in range(3 * MAX_EVENTS):
        await keep(f"other {number}", None)
        await keep(f"other {number}", answer(number))
    async with coming_back(events, first) as got:
        await keep("1", answer(1))
    assert got == ["answer 1"]
    assert await replayed(events, "a", first) == (None, ["answer 1"])
    log = events._logs["a"]
    assert len(log.streams) <= 2 * MAX_EVENTS + 1


async def test_whoever_waits_gets_all_up_to_the_answer(store):
    """In order, as it comes, including what comes while a message is being sent."""
    events, keep = store
    first, hold = await keep("1", None), anyio.Event()
    await keep("1", notice(1))
    async with coming_back(events, first) as one, coming_back(events, first, hold) as other:
        await keep("2", answer(2))
        await keep("1", notice(2))
        await keep("1", answer(1))
        hold.set()
    assert one == other == ["n/1", "n/2", "answer 1"]


async def test_an_id_that_is_used_again_waits_for_its_own_answer(store):
    """It does not get the response to the earlier request with the same id."""
    events, keep = store
    await keep("1", None)
    await keep("1", answer(1))
    again = await keep("1", None)
    async with coming_back(events, again) as got:
        await keep("1", answer(1))
    assert got == ["answer 1"]


async def test_a_stream_that_is_forgotten_ends(store):
    """If so many streams are open that it is dropped, a client that waits for it gets the end of the stream."""
    events, keep = store
    first = await keep("1", None)
    async with coming_back(events, first) as got:
        for number in range(3 * MAX_EVENTS):
            await keep(f"other {number}", None)
    assert got == []


async def test_an_answer_that_is_forgotten_is_an_error_for_its_client(store):
    """The response was too large to keep, or others pushed it out: the client gets an error at once."""
    events, keep = store
    first = await keep("1", None)
    await keep("1", answer(1, module.MAX_BYTES + 1))
    second = await keep("2", None)
    await keep("2", answer(2))
    assert await replayed(events, "a", first) == (None, ["no answer 1"])
    assert await replayed(events, "a", second) == (None, ["answer 2"])
    for number in range(MAX_EVENTS):
        await keep("_GET_stream", notice(number))
    assert await replayed(events, "a", second) == (None, ["no answer 2"])


@pytest.mark.parametrize(
    "made_up", ["", "x", "{mark}", "{mark}-1-999", "{mark}-99-1", "{mark}-1-" + "9" * 5000]
)
async def test_ids_that_are_none_find_nothing(store, made_up):
    """An invalid or unknown event id resumes nothing."""
    events, keep = store
    mark = (await keep("1", None)).partition("-")[0]
    assert await replayed(events, "a", made_up.replace("{mark}", mark)) == (None, [])


async def test_what_a_session_keeps_is_bounded_in_bytes(store):
    """Large responses push out the older ones."""
    events, keep = store
    for number in range(40):
        await keep(str(number), answer(number, 1 << 20))
    log = events._logs["a"]
    assert 15 <= len(log.events) <= 16
    assert log.size <= module.MAX_BYTES


async def test_what_all_sessions_keep_is_bounded_in_bytes(monkeypatch):
    """If the total is too large, the session that holds most drops its events first."""
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 100_000)
    events = SessionLogs()
    sessions = {name: await opened(events, name) for name in "abc"}
    for name, size in (("a", 10_000), ("b", 60_000), ("c", 50_000)):
        await within(events, name, lambda size=size: events.store_event("1", answer(1, size)))
    assert [events._logs[name].size > 0 for name in "abc"] == [True, False, True]
    for over, task in sessions.values():
        over.set()
        await task


async def test_a_notice_that_json_cannot_hold_is_mended(store):
    """Otherwise it would end the stream that it is sent on."""
    _, keep = store
    bad = JSONRPCNotification(jsonrpc="2.0", method="n", params={"data": ["\ud800", {1}], "level": "info"})
    await keep("1", bad)
    assert bad.params == {"data": ["?", "{1}"], "level": "info"}


@pytest.mark.slow
async def test_memory_goes_with_the_session():
    """The log is freed when the session has ended."""
    events = SessionLogs()
    over, task = await opened(events, "a")
    await within(events, "a", lambda: events.store_event("1", None))
    over.set()
    await task
    del task, over
    await anyio.lowlevel.checkpoint()  # the event loop itself holds the last thing that it ran
    gc.collect()
    assert list(events._logs) == []
