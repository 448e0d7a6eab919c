"""The records of a batch: only one process gets a run, and every change is idempotent."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from toolwire.batch.records import CONNECTION, VERSION, Records, call_with_retries, make_engine
from toolwire.batch.states import Outcome
from toolwire.errors import BatchError

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.process)]


@pytest.fixture(params=DATABASES)
def url(request, tmp_path):
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def records(url):
    """Return the records of a batch with two runs and a worker."""
    made = Records(make_engine(url))
    made.prepare()
    made.create("b", {"budget": 5})
    assert made.add([("x", '"1"'), ("y", '"2"')]) == ["x", "y"]
    made.add_worker("w", "e", "process", "machine")
    yield made
    made.close()


def claim(records, key="x", worker="w", token="t"):  # noqa: S107 - not that kind of token
    return records.claim(key, worker, token)


def test_the_same_name_is_the_same_batch(records, url):
    """The last start's settings count, and those before are returned."""
    other = Records(make_engine(url))
    other.prepare()
    assert other.create("b", {"budget": 6}) == {"budget": 5}
    assert other.uid == records.uid
    assert other.find("b") == {"budget": 6}
    assert other.find("c") is None
    assert other.create("c", {}) == {}
    assert (other.names(), other.uid == records.uid) == (["b", "c"], False)
    other.close()


def test_tables_of_a_newer_version_are_refused(records):
    """This version cannot know what they mean."""
    with records._engine.begin() as db:
        db.exec_driver_sql("UPDATE toolwire_batch_version SET version = 99")
    with pytest.raises(BatchError, match=f"have version 99, but this toolwire needs version {VERSION}"):
        records.prepare()


@pytest.mark.parametrize("again", [False, True])
def test_an_error_in_any_words_is_kept(records, again):
    """An API may respond with characters that no database can store: the run still ends, with its cost."""
    first = claim(records)
    records.start(first, "booking", 5, "s", "machine")
    words = "API Error: \0 and \ud800"
    if again:
        assert records.put_back(first, cost=3, error=words, resumes=False, lost=False) == 2
    else:
        assert records.finish("x", first.attempt, "w", Outcome("failed", 3, "{}", words))
    row = records.get("x")
    assert (row.error, row.cost) == ("API Error: ? and ?", 3)


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_every_text_is_refused(postgres_url, encoding):
    """SQL_ASCII is what Postgres chooses in an environment without a locale."""
    other = f"{postgres_url.rpartition('/')[2]}_other"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {other} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    made = Records(make_engine(f"{postgres_url}_other"))
    with pytest.raises(BatchError, match=f"the encoding of this database is {encoding}.*ENCODING 'UTF8'"):
        made.prepare()
    made.close()


@pytest.mark.process
def test_the_encoding_of_a_role_does_not_matter(postgres_url):
    """Its setting applies to programs that do not choose."""
    role = f"role_{postgres_url.rpartition('_')[2]}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET client_encoding = 'LATIN1'")
    made = Records(make_engine(postgres_url.replace("toolwire@", f"{role}@")))
    made.prepare()
    made.create("b \N{CLOUD}", {})
    assert made.add([("\N{CLOUD}", '"1"')]) == ["\N{CLOUD}"]
    made.close()


def test_known_keys_are_skipped(records):
    """Keys are skipped in any state; the new ones keep their order."""
    assert records.add([("z", "3"), ("x", "4"), ("w", "5")]) == ["z", "w"]
    assert [row.key for _, row in records.in_state("waiting")] == ["x", "y", "z", "w"]
    assert claim(records).item == '"1"'


def test_one_worker_gets_a_run(records):
    """The second gets nothing; the first may claim again if the reply was lost, until it has started the run."""
    records.add_worker("v", "e2", "process", "machine")
    first = claim(records)
    assert (first.attempt, first.session, first.resumes) == (1, "", False)
    assert claim(records, worker="v") is None
    assert claim(records, token="another delivery to the same worker") is None  # noqa: S106
    assert claim(records) == first
    assert records.start(first, "booking", 5, "s", "machine") is True
    assert claim(records) is None


def test_a_worker_without_a_lease_gets_nothing(records):
    """It can neither claim a run nor start one that it has claimed."""
    held = claim(records)
    assert records.revoke_lease("w", 7) is False  # it has sent another heartbeat since
    assert records.revoke_lease("w", 0) is True
    assert records.heartbeat("w") is False
    assert claim(records, "y") is None
    assert records.start(held, "booking", 5, "s", "machine") is False


def test_results_come_in_the_order_in_which_they_ended(records):
    """They come page by page, each once."""
    for key in ("y", "x"):
        held = claim(records, key)
        assert records.finish(key, held.attempt, "w", Outcome("done", 7, '{"text": "t"}')) is True
        assert records.finish(key, held.attempt, "w", Outcome("done", 7)) is False
    first = records.ended_after(0, 1)
    assert [(row.key, row.cost, row.state) for row in first] == [("y", 7, "done")]
    assert [row.key for row in records.ended_after(first[-1].finished)] == ["x"]
    assert records.has_open() is False


def test_the_cost_of_all_attempts_counts_once_each(records):
    """Recording a cost again does not add it again."""
    held = claim(records)
    assert records.put_back(held, cost=5, error="e", resumes=False, lost=False) == 2
    assert records.put_back(held, cost=5, error="e", resumes=False, lost=False) is None
    second = claim(records)
    assert second.attempt == 2
    for _ in range(2):
        records.finish("x", 2, "w", Outcome("done", 6))
        records.charge("x", 1, 5)
    assert records.get("x").cost == 11


def test_a_late_result_counts_unless_a_new_attempt_began(records):
    """An unknown or waiting run becomes done; one that runs again only gets the cost."""
    held = claim(records)
    records.start(held, "booking", 5, "s", "machine")
    row = records.get("x")
    assert records.mark_lost(row, hold=True, resumes=False, error="lost") is None
    assert records.get("x").state == "unknown"
    assert records.finish("x", 1, "w", Outcome("done", 5)) is True
    assert records.get("x").state == "done"

    held = claim(records, "y")
    records.start(held, "booking", 5, "s", "machine")
    assert records.mark_lost(records.get("y"), hold=False, resumes=True, error="lost") == 2
    records.add_worker("v", "e2", "process", "machine")
    again = claim(records, "y", "v")
    assert (again.attempt, again.session, again.resumes, again.machine) == (2, "s", True, "machine")
    assert (
        records.mark_lost(records.get("y"), hold=False, resumes=True, error="") == 3
    )  # lost before it was started
    again = claim(records, "y", "v", "t2")
    assert (again.attempt, again.session, again.resumes, again.machine) == (3, "s", True, "machine")
    assert records.finish("y", 1, "w", Outcome("done", 5)) is False
    assert (records.get("y").state, records.get("y").cost) == ("running", 5)
    assert records.finish("y", 3, "v", Outcome("done", 6)) is True
    assert records.get("y").cost == 11


def test_a_held_run_whose_cost_arrives_late_has_failed(records):
    """Its worker would retry it, but others hold it as unknown: nothing is left for a person to decide."""
    held = claim(records)
    records.start(held, "booking", 5, "s", "machine")
    records.mark_lost(records.get("x"), hold=True, resumes=False, error="lost")
    assert (
        records.put_back(held, cost=0, error="stopped before it was asked", resumes=False, lost=False) is None
    )
    row = records.get("x")
    assert (row.state, row.cost, row.error) == ("failed", 0, "stopped before it was asked")


def test_a_waiting_run_that_was_lost_takes_its_late_result(records):
    """It is done, and need not be run again."""
    held = claim(records)
    records.start(held, "booking", 5, "s", "machine")
    records.mark_lost(records.get("x"), hold=False, resumes=False, error="lost")
    assert records.finish("x", 1, "w", Outcome("done", 5)) is True
    assert claim(records) is None


def test_nothing_begins_in_a_cancelled_batch(records):
    """Waiting runs are cancelled, claimed ones may not start, and `clear_cancelled` lets runs start again."""
    held = claim(records)
    assert records.cancel() == [("y", 1)]
    assert records.is_cancelled()
    assert records.start(held, "booking", 5, "s", "machine") is False
    assert [row.key for row in records.ended_after(0)] == ["y"]
    assert records.retry(["cancelled"]) == [("y", 2)]
    assert claim(records, "y") is None
    records.clear_cancelled()
    assert claim(records, "y").attempt == 1


def test_retry_takes_only_the_named_runs(records):
    """Only runs in the named states, and with the named keys, are put back."""
    for key in ("x", "y"):
        records.finish(key, claim(records, key).attempt, "w", Outcome("failed", 0, error="e"))
    assert records.retry(["done"]) == []
    assert records.retry(["failed"], ["y"]) == [("y", 2)]
    assert records.counts()["failed"] == records.counts()["waiting"] == 1


def test_a_run_that_would_wait_again_after_cancel_is_cancelled(records):
    """Its worker gives it back, or is lost, after `cancel`: waiting, it would never end, and the batch neither."""
    claims = [claim(records, key) for key in ("x", "y")]
    assert records.cancel() == []
    put_back = {"cost": 0, "error": "overloaded", "resumes": False, "lost": False}
    assert records.put_back(claims[0], **put_back) is None
    lost = records.get("y")
    assert records.mark_lost(lost, hold=False, resumes=False, error="") is None
    assert not records.has_open()
    ended = [(each.key, each.state, each.error) for each in records.ended_after(0)]
    assert ended == [("x", "cancelled", "overloaded"), ("y", "cancelled", "the batch was cancelled")]
    assert records.put_back(claims[0], **put_back) is None
    assert len(records.ended_after(0)) == 2


def test_a_delivery_is_replaced_once(records):
    """Only the first caller replaces it."""
    assert records.redeliver("x", 1) == 2
    assert records.redeliver("x", 1) is None


def test_a_database_that_stays_unreachable_is_an_error(tmp_path):
    """The error comes when the time for retries is over, and has the reason."""
    away = Records(make_engine("postgresql://nobody@127.0.0.1:1/none"), patience=0.1)
    with pytest.raises(BatchError, match=r"cannot be used, after \d+ seconds of retries: .*127.0.0.1"):
        away.prepare()
    away.close()


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@x:secret@host/db", "postgresql://u:secret@host:port/db", "postgresql://[::1/db"]
)
def test_an_address_that_cannot_be_read_is_refused(url):
    """The message says how it is written, and shows no part of the password."""
    with pytest.raises(BatchError, match="postgresql://user:password@host:port/database") as refused:
        make_engine(url)
    assert "secret" not in str(refused.value)


def test_a_server_that_never_responds_is_an_error(monkeypatch):
    """A firewall that drops packets, or another program on that port: neither `connect` nor Ctrl-C would end."""
    monkeypatch.setitem(CONNECTION, "connect_timeout", "2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db"
        end = threading.Timer(20, silent.shutdown, [socket.SHUT_RDWR])
        end.start()
        records = Records(make_engine(url), patience=0.1)
        try:
            with pytest.raises(BatchError, match="cannot be used, after .*timeout"):
                records.prepare()
        finally:
            end.cancel()
            end.join()
            records.close()


def test_a_damaged_file_is_named(tmp_path):
    """SQLite itself does not say which of its files it cannot read."""
    (tmp_path / "runs.db").write_text("damaged " * 20)
    records = Records(make_engine(f"sqlite:///{tmp_path / 'runs.db'}"))
    with pytest.raises(BatchError, match="runs.db: file is not a database"):
        records.prepare()
    records.close()


def test_a_full_disk_is_retried(tmp_path):
    """Somebody may make room, and a paid result would be lost if this worker ended."""
    engine = make_engine(f"sqlite:///{tmp_path / 'runs.db'}")
    Records(engine).prepare()
    engine.dispose()
    pages = 1

    @event.listens_for(engine, "connect")
    def fill(connection, _record):
        connection.execute(f"PRAGMA max_page_count = {pages}")

    full = Records(engine, patience=0.1)
    with pytest.raises(BatchError, match="after 0 seconds of retries: .*runs.db: database or disk is full"):
        full.create("b" * 100_000, {})
    engine.dispose()
    pages = 10_000
    full.create("b" * 100_000, {})
    full.close()


@pytest.mark.process
def test_a_worker_that_is_suspended_in_its_heartbeat_can_be_revoked(postgres_url):
    """It holds no lock between two messages to the server; in a transaction it would hold the lock of its row."""
    records, other = Records(make_engine(postgres_url)), make_engine(postgres_url)
    records.prepare()
    records.create("b", {})
    records.add_worker("w", "e", "process", "machine")
    locked = []

    @event.listens_for(records._engine, "after_cursor_execute")
    def suspend(_connection, _cursor, statement, *_rest):
        if "beat + 1" in statement:
            with other.begin() as db:
                db.execute(sa.text("SELECT 1 FROM toolwire_workers WHERE id = 'w' FOR UPDATE NOWAIT"))
                locked.append(True)

    assert records.heartbeat("w")
    assert locked == [True]
    with records._engine.connect() as db:
        assert db.execute(sa.text("SHOW idle_in_transaction_session_timeout")).scalar() == "15s"
    other.dispose()
    records.close()


@pytest.mark.process
def test_a_server_that_is_read_only_for_a_while_is_retried(postgres_url):
    """A server is read-only while another one takes over from it."""
    engine = make_engine(postgres_url)
    tries = []

    def act():
        tries.append(1)
        with engine.begin() as db:
            if len(tries) < 3:
                db.execute(sa.text("SET TRANSACTION READ ONLY"))
            db.execute(sa.text("CREATE TABLE written (x INTEGER)"))

    call_with_retries(act, threading.Event())
    assert len(tries) == 3
    engine.dispose()


@pytest.mark.process
def test_revoking_a_lease_waits_for_a_run_that_is_just_starting(postgres_url):
    """Whoever then reads the runs of that worker sees that this one was started."""
    records = Records(make_engine(postgres_url))
    records.prepare()
    records.create("b", {})
    records.add([("x", '"1"')])
    records.add_worker("w", "e", "process", "machine")
    held = claim(records)
    with records._engine.connect() as other, ThreadPoolExecutor(2) as threads:

        def wait_for_blocked(many):
            activity = "pg_stat_activity WHERE datname = current_database()"
            query = f"SELECT count(*) FROM {activity} AND wait_event_type = 'Lock'"  # noqa: S608 - ours
            until = time.monotonic() + 30
            with records._engine.connect() as looking:
                while looking.exec_driver_sql(query).scalar() < many:
                    assert time.monotonic() < until
                    looking.rollback()

        other.exec_driver_sql("SELECT 1 FROM toolwire_runs FOR UPDATE")  # so that the start has to wait
        started = threads.submit(records.start, held, "booking", 5, "s", "machine")
        wait_for_blocked(1)
        records.heartbeat("w")  # a starting run does not block heartbeats
        revoked = threads.submit(records.revoke_lease, "w", 1)
        wait_for_blocked(2)
        other.rollback()
        assert started.result(30) is True
        assert revoked.result(30) is True
    assert [row.booking for row in records.running_of_worker("w")] == ["booking"]
    records.close()
