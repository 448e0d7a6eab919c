"""An operation given to the asynchronous ledger runs once, whoever waits for it and whatever it raises."""

import asyncio
import sqlite3
import threading
from contextlib import closing, contextmanager

import anyio
import pytest

from shared.waiting import eventually
from toolwire.catalog.ledger import async_ledger
from toolwire.catalog.ledger.async_ledger import AsyncLedger
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.ledger.types import Limits, Order, Unavailable
from toolwire.errors import CatalogError

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


class Batches:
    """A ledger that counts its groups (`together`); with `broken`, each commit fails."""

    def __init__(self, broken=False):
        self.batches = 0
        self.broken = broken

    @contextmanager
    def together(self):
        self.batches += 1
        yield
        if self.broken:
            raise CatalogError("the disk is full")


class Acts:
    """Operations that count their calls and undos."""

    def __init__(self, gate=None):
        self.done = 0
        self.undone = []
        self._gate = gate

    def work(self):
        self.done += 1
        if self._gate is not None:
            self._gate.wait(10)
        return "booked"

    def quit(self):
        self.done += 1
        raise SystemExit("the ledger wants to go home")


@pytest.fixture
async def books():
    made = AsyncLedger(Batches())
    yield made
    await made.aclose()


async def test_an_act_that_wants_an_end_is_not_repeated(books):
    """A SystemExit of an operation is raised in the caller, like any error, and the operation ran once."""
    acts = Acts()
    with pytest.raises(SystemExit):
        await books.commit(acts.quit, undo=acts.undone.append)
    await books.query(int)  # operations run in their order
    await books.query(int)
    assert (acts.done, acts.undone) == (1, [])


async def test_an_act_that_wants_an_end_when_nobody_waits_ends_nothing(caplog):
    """A SystemExit of an operation that nobody waits for any more is logged, and the event loop continues."""
    gate, acts = threading.Event(), Acts()
    books = AsyncLedger(Batches(), patience=0.01)

    def late():
        gate.wait(10)
        acts.quit()

    with pytest.raises(CatalogError, match="did not respond"):
        await books.commit(late, undo=acts.undone.append)
    gate.set()
    await books.query(int)
    await books.query(int)
    assert "go home" in caplog.text
    assert (acts.done, acts.undone) == (1, [])


async def test_what_comes_too_late_is_undone_once():
    """After the caller's timeout the result is undone, because only the caller could have used it."""
    gate = threading.Event()
    acts, books = Acts(gate), AsyncLedger(Batches(), patience=0.01)
    with pytest.raises(CatalogError, match="did not respond"):
        await books.commit(acts.work, undo=acts.undone.append)
    gate.set()
    await books.query(int)
    await books.query(int)
    assert (acts.done, acts.undone) == (1, ["booked"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has no cancellation that ignores shields
async def test_a_caller_that_is_cancelled_natively_gives_back_what_it_booked(books, anyio_backend):
    """asyncio's `Task.cancel()` ignores shields: the operation finishes, and its result is undone."""
    gate = threading.Event()
    acts = Acts(gate)
    task = asyncio.create_task(books.commit(acts.work, undo=acts.undone.append))
    while not acts.done:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await books.query(int)
    await books.query(int)
    assert (acts.done, acts.undone) == (1, ["booked"])


async def test_a_cancelled_caller_waits_for_its_commit(books):
    """A cancel scope ends only after the operation, so nothing is half booked."""
    gate, acts, ended = threading.Event(), None, []
    acts = Acts(gate)
    async with anyio.create_task_group() as tasks:

        async def commit():
            try:
                ended.append(await books.commit(acts.work, undo=acts.undone.append))
            finally:
                ended.append("left")

        tasks.start_soon(commit)
        while not acts.done:
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
        gate.set()
    assert ended == ["booked", "left"]
    assert acts.undone == []


async def test_what_waits_is_committed_together():
    """Operations that arrive while the ledger is busy are committed in one group, which waits for the disk once."""
    gate, ledger = threading.Event(), Batches()
    books, results = AsyncLedger(ledger), []

    async def commit(number):
        results.append(await books.commit(lambda: number))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(books.commit, gate.wait, 10)
        await anyio.wait_all_tasks_blocked()
        for number in range(10):
            tasks.start_soon(commit, number)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    await books.aclose()
    assert sorted(results) == list(range(10))
    assert ledger.batches == 1


async def test_a_commit_that_fails_fails_all_of_it():
    """All callers of a group get the error: none is told that an operation succeeded which was rolled back."""
    gate, ledger, errors = threading.Event(), Batches(broken=True), []
    books = AsyncLedger(ledger)

    async def commit():
        with pytest.raises(CatalogError, match="disk is full"):
            await books.commit(int)
        errors.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(books.query, gate.wait, 10)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            tasks.start_soon(commit)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert len(errors) == 3


async def test_what_was_posted_is_done_before_the_end():
    """Closing waits for posted operations."""
    gate, acts, books = threading.Event(), Acts(), AsyncLedger(Batches())
    books.post(gate.wait, 10)
    books.post(acts.work)
    threading.Timer(0.05, gate.set).start()
    await books.aclose()
    assert acts.done == 1
    with pytest.raises(CatalogError, match="closed"):
        await books.commit(acts.work)


async def test_what_finds_the_ledger_away_is_booked_when_it_is_back(books, monkeypatch, caplog):
    """It is retried until it succeeds, more often than a refused one is, and logged once."""
    monkeypatch.setattr(async_ledger, "_RETRY_PAUSE", 0.001)
    tries, booked = [], threading.Event()

    def settle():
        tries.append(1)
        if len(tries) < 50:
            raise Unavailable("the server is away")
        booked.set()

    books.post(settle)
    await anyio.to_thread.run_sync(booked.wait, 15)
    await books.query(int)
    assert len(tries) == 50
    assert caplog.text.count("the server is away") == 1


async def test_a_group_that_finds_the_ledger_away_is_booked_when_it_is_back(tmp_path, monkeypatch):
    """All operations of a group that a locked file refuses are retried as often as a single one is."""
    monkeypatch.setattr(async_ledger, "_RETRY_PAUSE", 0.001)
    path, groups = tmp_path / "ledger.db", []
    with SqliteLedger(path, patience=0.01) as ledger, closing(sqlite3.connect(path)) as other:
        orders = [Order("s", "search", "api:search", "search", 10, str(number), "d") for number in range(3)]
        calls = [ledger.begin(each, Limits()).id for each in orders]
        together = ledger.together
        monkeypatch.setattr(ledger, "together", lambda: groups.append(1) or together())
        books = AsyncLedger(ledger)
        other.execute("BEGIN IMMEDIATE")
        for call in calls:
            books.post(ledger.settle, call, 7)
        await eventually(lambda: len(groups) >= 30, 10)
        other.execute("ROLLBACK")
        await eventually(lambda: not ledger.rows(states=["sent"]), 10)
        await books.aclose()
        assert sum(row.money for row in ledger.rows()) == 21


async def test_an_undo_that_finds_the_ledger_away_is_retried(monkeypatch):
    """Otherwise the money of a caller that is gone would stay reserved as long as this process runs."""
    monkeypatch.setattr(async_ledger, "_RETRY_PAUSE", 0.001)
    gate, tries, undone = threading.Event(), [], []
    books = AsyncLedger(Batches(), patience=0.01)

    def undo(result):
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable("the server is away")
        undone.append(result)

    with pytest.raises(CatalogError, match="did not respond"):
        await books.commit(Acts(gate).work, undo=undo)
    gate.set()
    await eventually(lambda: undone == ["booked"], 10)
    await books.query(int)
    assert len(tries) == 3


async def test_what_is_refused_is_not_tried_for_ever(books, monkeypatch):
    """An operation that keeps failing is given up after 20 tries."""
    monkeypatch.setattr(async_ledger, "_RETRY_PAUSE", 0.001)
    tries = []

    def settle():
        tries.append(1)
        raise CatalogError("this call is settled")

    books.post(settle)
    await eventually(lambda: len(tries) == 20)
    await books.query(int)
    await books.query(int)
    assert len(tries) == 20
