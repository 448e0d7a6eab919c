"""The fault matrix: each point of a call x what goes wrong there x an API that charges once for a key, or not.

Every row says three things: how often the API charged (its own books), what the ledger says, and so what the model
must have been told: the result, UNKNOWN with the id of the call, or that nothing was bought. Then another call is
made, to see that nothing is stuck.
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
    """Whether the API promises to charge once for a key, and keeps that."""
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
    """Settings of a catalogue on that API; no number of failures opens the circuit breaker."""
    header = {"idempotent": True, "idempotency_header": "Idempotency-Key"} if api.idempotent else {}
    return {
        "profile": {"timeout": LONG, "max_reply_bytes": 100_000, **header, **profile},
        "breaker": Breaker(failures=1_000),
        "audit": False,
    }


def check(api, folder, result, state, charged):
    """The three books of one call that went wrong, the first one of the ledger. `state` None is no row at all."""
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
    """A connection that is refused is tried again, and then nothing was booked or bought."""
    async with opened(api, tmp_path, **settings_for(api)) as (_, client):
        with api.away():
            result = await client.call("weather")
        check(api, tmp_path, result, None, 0)
        assert result.text.endswith("Nothing was bought.")
        assert not (await client.call("weather")).is_error


async def test_the_connection_is_never_made(api, tmp_path, monkeypatch):
    """A connect that hangs ends at its own time limit, and nothing was booked or bought."""

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
    """Nothing goes out on it: it is tried again, and then the money is free."""
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
    """The disk is full, by the word of SQLite; what a disk that really is does is seen in ledger/test_sqlite."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    ledger.before[act] = lambda *_: ledger._database.refuse(error)
    yield
    del ledger.before[act]


TROUBLES = [(failing, "out of order"), (locked, "locked"), (full, "disk is full")]


@pytest.mark.parametrize(("trouble", "words"), TROUBLES, ids=["fails", "locked", "full"])
async def test_an_order_that_cannot_be_booked_is_not_sent(api, ledger, tmp_path, trouble, words):
    """No booking, no order; the ledger has nothing, and the model is told why."""
    async with opened(api, tmp_path, ledger=ledger, **settings_for(api)) as (_, client):
        with trouble(ledger, "begin"):
            result = await client.call("weather")
            assert api.orders == 0
        check(api, tmp_path, result, None, 0)
        assert words in result.text
        assert not (await client.call("weather")).is_error


async def test_a_ledger_that_takes_too_long_sends_nothing(api, ledger, tmp_path):
    """A booking that comes after all is given back."""
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
    # fault, time-out; then for a plain API, and for one that charges once for a key: the ledger, how often charged
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
    """Let that fault meet the next order, and no other."""
    if fault in ("unread", "head"):
        struck = api.connections + 1
        api.refuse = lambda number: fault if number == struck else ""
    else:
        struck = api.orders + 1
        api.spoil = lambda number: fault if number == struck else ""


@pytest.mark.parametrize("case", FAULTS_OF_THE_API, ids=lambda case: case[0])
async def test_no_fault_of_the_api_costs_twice_or_lies(api, tmp_path, case):
    """At most one purchase, a state that fits, and a text that tells the truth."""
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
    """A fault that the API knows and that no row has would be forgotten."""
    assert FAULTS.keys() - {fault for fault, *_ in FAULTS_OF_THE_API} == {"cut 3"}  # has a test of its own


async def test_a_reply_cut_anywhere_is_not_taken_for_one(api, tmp_path):
    """At every tenth byte: unknown, or had by asking again; each call is charged once."""
    async with opened(api, tmp_path, **settings_for(api)) as (catalog, client):
        for tenth in range(10):
            strike(api, f"cut {tenth}")
            result = await client.call("weather", tenth=tenth)
            assert ("UNKNOWN" in result.text) is not api.idempotent
            with ledger_in(tmp_path) as ledger:  # or the tool would be stopped after some of them
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
    """The model has its result; the next call is refused."""
    api.charge, api.reply = (lambda *_: cost), reply
    async with opened(api, tmp_path, **settings_for(api)) as (_, client):
        check(api, tmp_path, await client.call("weather"), "settled", 1)
        refused = await client.call("weather", again=True)
    assert f"weather is stopped ({words})" in refused.text
    assert states(tmp_path) == [("settled", cost)]
    assert api.orders == 1


# --- booking the end ---

ENDS = [
    # how the call ends, the act of the ledger that books it, how often charged, how it is booked in the end
    ("", "settle", 1, ("settled", PRICE)),
    ("dearer", "settle", 1, ("settled", 3 * PRICE)),
    ("429", "release", 0, ("released", 0)),
    ("after", "unknown", 1, ("unknown", PRICE)),
]


@pytest.mark.parametrize("case", ENDS, ids=lambda case: f"{case[0]} {case[1]}".strip())
async def test_an_end_that_cannot_be_booked_keeps_its_money(ledger, tmp_path, caplog, case):
    """The model has its answer, the money stays reserved, what must stop stops; it is booked once that can be."""
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
    # when, then in the ledger, the same after a restart, how often charged, for how many calls there is money left
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
    """After a restart what may be out is unknown and reserved, the rest is free; nothing is bought twice."""
    scene, left, after, charged, room = case
    with Shark() as api:
        if scene == "after settle":  # dearer, so that it is booked at once, and alone
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
    """Open the ledger of a dead process again; how many calls its session's budget has room for."""
    settings = {"variables": {"TOOLWIRE_SESSION": "s"}, "budget": 2 * PRICE / 1_000_000}
    async with opened(api, folder, **settings) as (_, client):
        assert [state for state, _ in states(folder)] == after
        return sum([not (await client.call("weather", number=number)).is_error for number in range(3)])


# --- cancelled ---

CANCELLED = [
    # where, how it ends in the ledger, charged
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
    """Make a call stop there: a function that tells whether it is there, and one that lets it go on."""
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
        api.charge = lambda *_: 3 * PRICE  # nobody waits for a settlement that is within what was reserved
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
    """Cancel a task of asyncio itself, which knows no shield, and do so twice."""
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
    """Cancel a call at some point; the three books of it, and that the next one is bought."""
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
        if state == "settled":  # it was dearer than agreed, and its tool is stopped
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
    """Cancelled anywhere, the call ends as it must, and the next one is bought."""
    await check_cancelled(api, ledger, case, cancel_scope, monkeypatch)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", CANCELLED, ids=lambda case: case[0])
async def test_a_cancellation_of_asyncio_itself_is_no_worse(anyio_backend, api, ledger, case, monkeypatch):
    """The ledger hears of the end all the same."""
    await check_cancelled(api, ledger, case, cancel_task, monkeypatch)
