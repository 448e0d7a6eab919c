"""The fault matrix: each stage of a call x what goes wrong there x whether the API charges only once per key.

Every row states how often the API charged (by its own books) and the state in the ledger. From these follows what
the model must have been told: the result, UNKNOWN with the id of the call, or that nothing was bought. Then another
call is made, to check that nothing is stuck.
"""

import asyncio
import os
import sqlite3
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from shared.shark import FAULTS, Shark
from shared.till import Watched, ledger_in, opened, states, till_command
from shared.waiting import eventually
from toolwire.catalog.http import transport
from toolwire.catalog.purchase.limits import Breaker
from toolwire.errors import CatalogError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PRICE = 10_000
LONG, SHORT = 5.0, 0.15


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(30):
        yield


@pytest.fixture(params=[False, True], ids=["plain", "idempotent"])
def idempotent(request):
    """True if the API promises to charge once per key, and does so."""
    return request.param


@pytest.fixture
def api(idempotent):
    with Shark(idempotent=idempotent) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    with Watched(tmp_path / "ledger.db", patience=0.1) as made:
        yield made


def settings_for(api, **profile):
    """Return settings of a catalogue for that API. The circuit breaker is practically disabled."""
    header = {"idempotent": True, "idempotency_header": "Idempotency-Key"} if api.idempotent else {}
    return {
        "profile": {"timeout": LONG, "max_reply_bytes": 100_000, **header, **profile},
        "breaker": Breaker(failures=1_000),
        "audit": False,
    }


def check(api, folder, result, state, charged):
    """Check the API's books, the ledger (its first call) and the result. With `state` None there is no row."""
    assert len(api.sold) == charged
    with ledger_in(folder) as looked_at:
        rows = looked_at.rows()
    assert [row.state for row in rows] == ([] if state is None else [state])
    if state in ("unknown", "sent"):
        assert rows[0].money == PRICE
    assert result.is_error is (state not in ("settled", "sent"))
    assert ("UNKNOWN whether weather was bought" in result.text) is (state == "unknown")
    assert (f"$0.0100 stays reserved (call {rows[0].id})" in result.text if rows else False) is (
        state == "unknown"
    )
    if state in ("settled", "sent"):
        assert "done" in result.text
    else:
        assert result.text.startswith("Tool execution failed: ")


# --- connecting ---


async def test_nobody_listens(api, tmp_path):
    """A refused connection is tried again; then the call fails, with nothing booked or bought."""
    async with opened(api, tmp_path, **settings_for(api)) as (_, client):
        with api.away():
            result = await client.call("weather")
        check(api, tmp_path, result, None, 0)
        assert result.text.endswith("Nothing was bought.")
        assert not (await client.call("weather")).is_error


async def test_the_connection_is_never_made(api, tmp_path, monkeypatch):
    """A connection attempt that hangs ends at its own timeout, with nothing booked or bought."""

    async def hang(*_):
        await anyio.sleep_forever()

    async with opened(api, tmp_path, **settings_for(api)) as (catalog, client):
        with monkeypatch.context() as patched:
            patched.setattr(transport, "connect", hang)
            patched.setattr(catalog._buyer.api._connections, "_connect_timeout", 0.02)
            result = await client.call("weather")
        check(api, tmp_path, result, None, 0)
        assert "no connection within 0.02 s" in result.text
        assert result.text.endswith("Nothing was bought.")
        assert not (await client.call("weather")).is_error


async def test_the_connection_dies_while_the_order_is_booked(api, ledger, tmp_path):
    """Nothing is sent on it. Another connection is tried, and then the money is released."""
    async with opened(api, tmp_path, ledger=ledger, **settings_for(api)) as (_, client):
        api.refuse = lambda _: "close"
        ledger.before["begin"] = ledger.before["check_again"] = lambda *_: api.refused.acquire(timeout=10)
        result = await client.call("weather")
        check(api, tmp_path, result, "released", 0)
        assert api.orders == 0
        assert result.text.endswith("Nothing was bought.")
        api.refuse = lambda _: ""
        ledger.before.clear()
        assert not (await client.call("weather")).is_error


# --- booking ---


def fail(*_):
    raise CatalogError("the ledger is out of order")


@contextmanager
def failing(ledger, act):
    ledger.before[act] = fail
    yield
    del ledger.before[act]


@contextmanager
def locked(ledger, _act):
    with ledger_in(Path(ledger.path).parent) as other, other._database.writing():
        yield


@contextmanager
def full(ledger, act):
    """Let SQLite report a full disk. A disk that really is full is tested in ledger/test_sqlite."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    ledger.before[act] = lambda *_: ledger._database.refuse(error)
    yield
    del ledger.before[act]


TROUBLES = [(failing, "out of order"), (locked, "locked"), (full, "disk is full")]


@pytest.mark.parametrize(("trouble", "words"), TROUBLES, ids=["fails", "locked", "full"])
async def test_an_order_that_cannot_be_booked_is_not_sent(api, ledger, tmp_path, trouble, words):
    """The order is not sent, the ledger has no row, and the model is told why."""
    async with opened(api, tmp_path, ledger=ledger, **settings_for(api)) as (_, client):
        with trouble(ledger, "begin"):
            result = await client.call("weather")
            assert api.orders == 0
        check(api, tmp_path, result, None, 0)
        assert words in result.text
        assert not (await client.call("weather")).is_error


async def test_a_ledger_that_takes_too_long_sends_nothing(api, ledger, tmp_path):
    """A booking that succeeds after the timeout is released."""
    go = threading.Event()
    async with opened(api, tmp_path, ledger=ledger, **settings_for(api)) as (catalog, client):
        catalog._buyer.ledger._patience = 0.05
        ledger.before["begin"] = lambda *_: go.wait(10)
        result = await client.call("weather")
        catalog._buyer.ledger._patience = 10
        go.set()
        await eventually(lambda: states(tmp_path) == [("released", 0)])
        check(api, tmp_path, result, "released", 0)
        assert "the ledger did not respond within 0.05 s" in result.text
        assert api.orders == 0
        assert not (await client.call("weather")).is_error


# --- the order and the reply ---

FAULTS_OF_THE_API = [
    # fault, timeout; then the state in the ledger and the number of charges: for a plain API, for an idempotent one
    ("unread", LONG, ("unknown", 0), ("settled", 1)),
    ("head", LONG, ("unknown", 0), ("settled", 1)),
    ("before", LONG, ("unknown", 0), ("settled", 1)),
    ("after", LONG, ("unknown", 1), ("settled", 1)),
    ("hang", SHORT, ("unknown", 0), ("unknown", 0)),
    ("hang after", SHORT, ("unknown", 1), ("unknown", 1)),
    ("429", LONG, ("released", 0), ("released", 0)),
    ("400", LONG, ("released", 0), ("released", 0)),
    ("402", LONG, ("released", 0), ("released", 0)),
    ("409", LONG, ("unknown", 0), ("unknown", 0)),
    ("500", LONG, ("unknown", 0), ("settled", 1)),
    ("503", LONG, ("unknown", 0), ("settled", 1)),
    ("302", LONG, ("unknown", 0), ("unknown", 0)),
    ("charged 500", LONG, ("unknown", 1), ("settled", 1)),
    ("charged 503", LONG, ("unknown", 1), ("settled", 1)),
    ("charged 409", LONG, ("unknown", 1), ("unknown", 1)),
    ("charged 302", LONG, ("unknown", 1), ("unknown", 1)),
    ("half", LONG, ("unknown", 1), ("settled", 1)),
    ("garbage", LONG, ("unknown", 1), ("unknown", 1)),
    ("html", LONG, ("unknown", 1), ("unknown", 1)),
    ("huge", LONG, ("unknown", 1), ("unknown", 1)),
    ("drip", SHORT, ("unknown", 1), ("unknown", 1)),
]


def strike(api, fault):
    """Let this fault happen to the next order only."""
    if fault in ("unread", "head"):
        struck = api.connections + 1
        api.refuse = lambda number: fault if number == struck else ""
    else:
        struck = api.orders + 1
        api.spoil = lambda number: fault if number == struck else ""


@pytest.mark.parametrize("case", FAULTS_OF_THE_API, ids=lambda case: case[0])
async def test_no_fault_of_the_api_costs_twice_or_lies(api, tmp_path, case):
    """There is at most one purchase, the state is right, and the text tells the truth."""
    fault, timeout, plain, once = case
    state, charged = once if api.idempotent else plain
    async with opened(api, tmp_path, **settings_for(api, timeout=timeout)) as (_, client):
        strike(api, fault)
        result = await client.call("weather")
        await eventually(lambda: [each for each, _ in states(tmp_path)] == [state])
        check(api, tmp_path, result, state, charged)
        assert ("Nothing was bought" in result.text) is (state == "released")
        assert not (await client.call("weather")).is_error
    assert len(api.sold) == charged + 1


def test_every_fault_is_in_the_matrix():
    """Every fault that the fake API supports has a row in the matrix."""
    assert FAULTS.keys() - {fault for fault, *_ in FAULTS_OF_THE_API} == {"cut 3"}  # has its own test


async def test_a_reply_cut_anywhere_is_not_taken_for_one(api, tmp_path):
    """Cut at any tenth, the call is unknown, or a retry gets the result; each call is charged once."""
    async with opened(api, tmp_path, **settings_for(api)) as (catalog, client):
        for tenth in range(10):
            strike(api, f"cut {tenth}")
            result = await client.call("weather", tenth=tenth)
            assert ("UNKNOWN" in result.text) is not api.idempotent
            with ledger_in(tmp_path) as ledger:  # otherwise the tool would be stopped after some of them
                ledger.accept(catalog.entry_id("1"))
        assert not (await client.call("weather")).is_error
    assert [each.arguments for each in api.sold] == [*({"tenth": tenth} for tenth in range(10)), {}]
    assert states(tmp_path) == [
        *[("settled" if api.idempotent else "unknown", PRICE)] * 10,
        ("settled", PRICE),
    ]


@pytest.mark.parametrize(
    ("reply", "cost", "words"),
    [
        ({}, 30_000, "a call cost $0.0300, but $0.0100 was reserved"),
        ({"cost": "5 EUR"}, PRICE, 'the cost in a reply cannot be read: "5 EUR"'),
    ],
    ids=["dearer", "unreadable"],
)
async def test_a_cost_that_was_not_agreed_is_booked_and_stops_the_tool(api, tmp_path, reply, cost, words):
    """The model gets the result; the next call is refused."""
    api.charge, api.reply = (lambda *_: cost), reply
    async with opened(api, tmp_path, **settings_for(api)) as (_, client):
        check(api, tmp_path, await client.call("weather"), "settled", 1)
        refused = await client.call("weather", again=True)
    assert f"weather is stopped ({words})" in refused.text
    assert states(tmp_path) == [("settled", cost)]
    assert api.orders == 1


# --- booking the end ---

ENDS = [
    # how the call ends, the ledger's method that books it, number of charges, final booking
    ("", "settle", 1, ("settled", PRICE)),
    ("dearer", "settle", 1, ("settled", 3 * PRICE)),
    ("429", "release", 0, ("released", 0)),
    ("after", "unknown", 1, ("unknown", PRICE)),
]


@pytest.mark.parametrize("case", ENDS, ids=lambda case: f"{case[0]} {case[1]}".strip())
async def test_an_end_that_cannot_be_booked_keeps_its_money(ledger, tmp_path, caplog, case):
    """The model gets its response and the money stays reserved, until the end can be booked."""
    fault, act, charged, booked = case
    with Shark() as api:
        if fault == "dearer":
            api.charge = lambda *_: 3 * PRICE
        else:
            strike(api, fault)
        async with opened(api, tmp_path, ledger=ledger, **settings_for(api)) as (_, client):
            with failing(ledger, act):
                result = await client.call("weather")
                await eventually(lambda: "could not book" in caplog.text)
                assert states(tmp_path) == [("sent", PRICE)]
            if fault == "dearer":
                assert "could not book that: nothing was sent" in (await client.call("weather")).text
    assert states(tmp_path) == [booked]
    assert (api.orders, len(api.sold)) == (1, charged)
    assert result.is_error is (fault not in ("", "dearer"))
    assert ("UNKNOWN" in result.text) is (fault == "after")


# --- killed ---


KILLED = [
    # when it is killed, states in the ledger, states after a restart, number of charges, calls still possible
    ("before begin", [], [], 0, 2),
    ("after begin", ["sent"], ["unknown"], 0, 1),
    ("waiting", ["sent"], ["unknown"], 1, 1),
    ("before settle", ["sent"], ["unknown"], 1, 1),
    ("after settle", ["settled"], ["settled"], 1, 0),
]


@pytest.mark.process
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", KILLED, ids=lambda case: case[0])
async def test_a_process_that_is_killed_loses_no_money(anyio_backend, tmp_path, case):
    """After a restart, calls that may have been sent are unknown and reserved, and nothing is bought twice."""
    scene, left, after, charged, room = case
    with Shark() as api:
        if scene == "after settle":  # costs more than reserved, so that it is committed at once, and alone
            api.charge = lambda *_: 3 * PRICE
        if scene == "waiting":
            api.spoil = lambda number: "hang after" if number == 1 else ""
        env = {**os.environ, "TOOLWIRE_SESSION": "s"}
        command = till_command(api, tmp_path, scene)
        with subprocess.Popen(**command, env=env, stdout=subprocess.PIPE, text=True) as process:
            if scene == "waiting":
                await eventually(lambda: api.sold, 20.0)
            else:
                assert await anyio.to_thread.run_sync(process.stdout.readline) == "here\n"
            process.kill()
        assert [state for state, _ in states(tmp_path)] == left
        assert len(api.sold) == charged
        assert await restart(api, tmp_path, after) == room
    with ledger_in(tmp_path) as ledger:
        for row in ledger.rows(states=["unknown"]):
            assert "the process that made this call ended" in row.why
            ledger.resolve(row.id, charged=bool(charged))
        assert sum(row.money for row in ledger.rows()) == api.taken


async def restart(api, folder, after):
    """Open the ledger of a dead process, and return how many calls its session's budget still allows."""
    settings = {"variables": {"TOOLWIRE_SESSION": "s"}, "budget": 2 * PRICE / 1_000_000}
    async with opened(api, folder, **settings) as (_, client):
        assert [state for state, _ in states(folder)] == after
        return sum([not (await client.call("weather", number=number)).is_error for number in range(3)])


# --- cancelled ---

CANCELLED = [
    # where it is cancelled, final state in the ledger, number of charges
    ("connecting", None, 0),
    ("before begin", "released", 0),
    ("after begin", "released", 0),
    ("hang", "unknown", 0),
    ("hang after", "unknown", 1),
    ("drip", "unknown", 1),
    ("before settle", "settled", 1),
    ("after settle", "settled", 1),
]


def hold(api, ledger, point, monkeypatch):
    """Make a call block at a point. Returns a function that tells whether it got there, and one that resumes it."""
    reached, go = threading.Event(), threading.Event()
    if point == "connecting":

        async def hang(*_):
            reached.set()
            await anyio.sleep_forever()

        monkeypatch.setattr(transport, "connect", hang)
    elif point in FAULTS:
        strike(api, point)
        return lambda: len(api.arrived if point == "hang" else api.sold), lambda: None
    else:
        api.charge = lambda *_: 3 * PRICE  # a cost within the reserve is settled in the background
        when, _, act = point.partition(" ")
        getattr(ledger, when)[act] = lambda *_: reached.set() or go.wait(10)
    return reached.is_set, go.set


async def cancel_scope(client, reached, go):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, "weather")
        await eventually(reached)
        tasks.cancel_scope.cancel()
        go()


async def cancel_task(client, reached, go):
    """Cancel an asyncio task natively, which ignores shields, and do so twice."""
    task = asyncio.create_task(client.call("weather"))
    await eventually(reached)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    go()
    await asyncio.wait([task])
    assert task.cancelled()


async def check_cancelled(api, ledger, case, cancel, monkeypatch):
    """Cancel a call at a point, check API and ledger, and that the next call is bought."""
    point, state, charged = case
    folder = Path(ledger.path).parent
    async with opened(api, folder, ledger=ledger, **settings_for(api)) as (_, client):
        with monkeypatch.context() as patched:
            await cancel(client, *hold(api, ledger, point, patched))
        expected = [] if state is None else [state]
        await eventually(lambda: [each for each, _ in states(folder)] == expected)
        assert len(api.sold) == charged
        ledger.before.clear()
        ledger.after.clear()
        if state == "settled":  # it cost more than reserved, so its tool is stopped
            with ledger_in(folder) as other:
                other.accept(other.stops()[0].entry_id)
        api.charge = lambda *_: PRICE
        assert not (await client.call("weather")).is_error
        await eventually(lambda: api.connected == 0)
    if state == "unknown":
        with ledger_in(folder) as other:
            first = other.rows()[-1]
        assert "abandoned after the order was sent" in first.why
        assert first.money == PRICE


@pytest.mark.parametrize("case", CANCELLED, ids=lambda case: case[0])
async def test_a_cancelled_call_is_booked_right(api, ledger, case, monkeypatch):
    """Wherever it is cancelled, the call gets the right state, and the next one is bought."""
    await check_cancelled(api, ledger, case, cancel_scope, monkeypatch)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", CANCELLED, ids=lambda case: case[0])
async def test_a_cancellation_of_asyncio_itself_is_no_worse(anyio_backend, api, ledger, case, monkeypatch):
    """The ledger books the end of a natively cancelled call in the same way."""
    await check_cancelled(api, ledger, case, cancel_task, monkeypatch)
