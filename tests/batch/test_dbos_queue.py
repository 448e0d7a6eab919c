"""What every engine of a batch must do (`Queue`), tested with DBOS on SQLite and Postgres."""

import asyncio
import logging
import sqlite3
import uuid

import psycopg
import pytest
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, error

from toolwire.batch.dbos_queue import DbosQueue
from toolwire.batch.queue import Delivery
from toolwire.errors import BatchError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    # SQLAlchemy's pools end with the process of a worker; DBOS leaves some for the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.process)]


@pytest.fixture(params=DATABASES)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'queue.db'}"
    return request.getfixturevalue("postgres_url")


class Seen:
    """Records deliveries, and lets the test wait for them."""

    def __init__(self):
        self.keys = []
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._changed = asyncio.Event()

    async def __call__(self, key):
        self.keys.append(key)
        self.running += 1
        self.most = max(self.most, self.running)
        self._changed.set()
        try:
            await self.gate.wait()
        finally:
            self.running -= 1

    async def wait_for(self, count):
        async with asyncio.timeout(30):
            while len(self.keys) < count:
                self._changed.clear()
                await self._changed.wait()


def queue(url, executor="w1", uid="u"):
    return DbosQueue(url, uid, executor, poll=0.05)


async def test_what_is_put_is_delivered_once_and_to_the_event_loop_of_the_worker(url):
    """Putting it again does nothing; a new number is a new delivery."""
    seen = Seen()
    worker = queue(url)
    await worker.open(seen, 4)
    try:
        many = [Delivery(f"k{number}", 1) for number in range(20)]
        await worker.put(many)
        await worker.put(many)
        await seen.wait_for(20)
        await worker.put([Delivery("k0", 2), Delivery("last", 1)])
        await seen.wait_for(22)
        assert sorted(seen.keys) == sorted([each.key for each in many] + ["k0", "last"])
        assert seen.most <= 4
    finally:
        await worker.close()


async def test_it_tells_where_a_delivery_is(url):
    """A delivery is in the queue, with a worker, or finished."""
    seen = Seen()
    seen.gate.clear()
    worker, driver = queue(url, "me"), queue(url, "")
    a, b = Delivery("a", 1), Delivery("b", 1)
    await driver.open(None, 0)
    await driver.put([a, b])
    assert await driver.locate([a, b, Delivery("c", 1)]) == {a: "", b: ""}
    await worker.open(seen, 1)
    try:
        await seen.wait_for(1)
        first = Delivery(seen.keys[0], 1)
        where = await driver.locate([a, b])
        assert where[first] == "me"
        assert set(where.values()) == {"me", ""}
        seen.gate.set()
        await seen.wait_for(2)
        async with asyncio.timeout(20):
            while await driver.locate([a, b]):
                await asyncio.sleep(0.05)
    finally:
        await worker.close()
        await driver.close()


async def test_what_is_cancelled_is_not_delivered(url):
    """A delivery can be cancelled as long as no worker has taken it."""
    seen = Seen()
    driver = queue(url, "")
    await driver.open(None, 0)
    await driver.put([Delivery("a", 1), Delivery("b", 1)])
    await driver.cancel([Delivery("a", 1), Delivery("none", 1)])
    worker = queue(url)
    await worker.open(seen, 4)
    try:
        await seen.wait_for(1)
        await driver.put([Delivery("c", 1)])
        await seen.wait_for(2)
        assert sorted(seen.keys) == ["b", "c"]
    finally:
        await worker.close()
        await driver.close()


async def test_who_stops_takes_no_more_and_ends_what_it_has(url):
    """The worker finishes its run, and takes no other; the rest is left for other workers."""
    seen = Seen()
    seen.gate.clear()
    worker = queue(url)
    await worker.open(seen, 1)
    await worker.put([Delivery(f"k{number}", 1) for number in range(3)])
    await seen.wait_for(1)
    stopping = asyncio.create_task(worker.stop(30))
    await asyncio.sleep(0.2)
    assert not stopping.done()
    seen.gate.set()
    async with asyncio.timeout(40):
        await stopping
    assert seen.running == 0
    taken = len(seen.keys)
    await worker.close()
    other = Seen()
    second = queue(url, "w2")
    await second.open(other, 4)
    try:
        await other.wait_for(3 - taken)
    finally:
        await second.close()


async def test_keys_travel_as_json(tmp_path):
    """Keys are never stored as pickle, which would let the contents of a database run code."""
    driver = queue(f"sqlite:///{tmp_path / 'queue.db'}", "")
    await driver.open(None, 0)
    await driver.put([Delivery("käse\n", 1)])
    await driver.close()
    text = "\n".join(sqlite3.connect(tmp_path / "queue.db").iterdump())
    assert '{"namedArgs":{},"positionalArgs":["toolwire-u","käse\\n"]}' in text
    assert "portable_json" in text
    assert "pickle" not in text


async def test_a_process_has_one_worker(tmp_path):
    """DBOS has one instance per process; the message says what cannot be opened."""
    first = queue(f"sqlite:///{tmp_path / 'a.db'}")
    await first.open(Seen(), 1)
    try:
        with pytest.raises(BatchError, match="already open in this process"):
            await queue(f"sqlite:///{tmp_path / 'a.db'}").open(Seen(), 1)
        with pytest.raises(BatchError, match="another batch executes runs in this process"):
            await queue(f"sqlite:///{tmp_path / 'b.db'}", uid="v").open(Seen(), 1)
    finally:
        await first.close()


async def test_the_users_own_instance_is_used_and_left_alone(tmp_path):
    """The instance must be passed to the batch, and still runs when the batch is closed."""
    DBOS(
        config=DBOSConfig(
            name="theirs", system_database_url=f"sqlite:///{tmp_path / 'theirs.db'}", log_level="ERROR"
        )
    )
    DBOS.launch()
    try:
        with pytest.raises(BatchError, match="already has a DBOS instance: .* pass it to the batch"):
            await queue(f"sqlite:///{tmp_path / 'a.db'}").open(Seen(), 1)
        seen = Seen()
        worker = DbosQueue("unused", "u", "w", poll=0.05, dbos=DBOS)
        await worker.open(seen, 2)
        await worker.put([Delivery("a", 1), Delivery("b", 1)])
        await seen.wait_for(2)
        await worker.close()
        assert [each.name for each in await DBOS.list_queues_async()] == ["toolwire-u"]
    finally:
        DBOS.destroy()


@pytest.mark.parametrize("created", [False, True])
async def test_an_instance_that_is_not_launched_is_refused(tmp_path, created):
    """The message says what to call first."""
    if created:
        DBOS(config=DBOSConfig(name="theirs", system_database_url=f"sqlite:///{tmp_path / 'theirs.db'}"))
    try:
        with pytest.raises(BatchError, match=r"in dbos= cannot be used: .* Call DBOS.launch\(\) before"):
            await DbosQueue("unused", "u", "w", dbos=DBOS).open(Seen(), 1)
        assert not DbosQueue.open_queues
        if created:
            with pytest.raises(BatchError, match="already has a DBOS instance: launch it, and pass it"):
                await queue(f"sqlite:///{tmp_path / 'a.db'}").open(Seen(), 1)
            DBOS.launch()  # it is as it was
            assert await DBOS.list_queues_async() == []
    finally:
        DBOS.destroy()


async def test_a_stopped_queue_lets_dbos_retry_no_more(tmp_path):
    """DBOS has no documented way to end its retries, which would keep the process alive if the database is gone."""
    worker = queue(f"sqlite:///{tmp_path / 'a.db'}")
    await worker.open(Seen(), 1)
    database = worker._database
    assert database._retry_connection_errors is True
    await worker.close()
    assert database._retry_connection_errors is False


@pytest.mark.process
async def test_errors_of_dbos_take_one_line_while_the_queue_is_open(tmp_path):
    """Its tracebacks help no user; a cancelled delivery is no error. Afterwards its log is as before."""
    log, handler, records = logging.getLogger("dbos"), logging.Handler(), []
    handler.emit = records.append
    log.addHandler(handler)

    def report(failure):
        log.error("Exception in a workflow:", exc_info=failure)

    try:
        opened = queue(f"sqlite:///{tmp_path / 'queue.db'}")
        await opened.open(Seen(), 1)
        report(ValueError("the server\nis away"))
        report(error.DBOSAwaitedWorkflowCancelledError("w"))
        await opened.close()
        report(ValueError("later"))
    finally:
        log.removeHandler(handler)
    shortened, plain = [each for each in records if "Exception" in each.getMessage()]
    assert (shortened.getMessage(), shortened.exc_info) == (
        "Exception in a workflow: ValueError: the server is away",
        None,
    )
    assert plain.exc_info is not None


async def test_the_encoding_of_a_role_does_not_matter(postgres_url):
    """Keys may have any character; DBOS stores them as they are."""
    role = f"role_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET client_encoding = 'LATIN1'")
    seen = Seen()
    worker = queue(postgres_url.replace("toolwire@", f"{role}@"))
    await worker.open(seen, 1)
    try:
        await worker.put([Delivery("\N{CLOUD}", 1)])
        await seen.wait_for(1)
    finally:
        await worker.close()
    assert seen.keys == ["\N{CLOUD}"]


@pytest.mark.process
async def test_a_database_that_fails_while_a_queue_is_opened_is_an_error_in_words(postgres_url):
    """A role without the right to create the tables of DBOS, for example."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        role = f"role_{uuid.uuid4().hex}"
        db.execute(f"CREATE ROLE {role} LOGIN")
    worker = queue(postgres_url.replace("toolwire@", f"{role}@"))
    with pytest.raises(BatchError, match="the database of the batch failed: permission denied for database"):
        await worker.open(Seen(), 1)
    assert not DbosQueue.open_queues


async def test_a_damaged_file_is_an_error_in_words(tmp_path):
    """The error of SQLite does not name the file."""
    (tmp_path / "queue.db").write_text("damaged " * 20)
    with pytest.raises(BatchError, match="queue.db: file is not a database"):
        await queue(f"sqlite:///{tmp_path / 'queue.db'}").open(Seen(), 1)
    assert not DbosQueue.open_queues


async def test_a_connection_that_is_lost_while_a_queue_is_opened_is_replaced(url, monkeypatch):
    """DBOS itself does not try again to register a queue."""
    register = DBOSClient.register_queue
    failures = [
        sa.exc.OperationalError("SELECT", {}, psycopg.errors.AdminShutdown("the server is restarted"))
    ]

    def fail_first(self, *given, **settings):
        if failures:
            raise failures.pop()
        return register(self, *given, **settings)

    monkeypatch.setattr(DBOSClient, "register_queue", fail_first)
    seen = Seen()
    worker = queue(url)
    await worker.open(seen, 1)
    try:
        await worker.put([Delivery("k", 1)])
        await seen.wait_for(1)
    finally:
        await worker.close()
    assert not failures
