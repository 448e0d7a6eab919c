"""The ledger in a SQLite file: several processes, kills, and everything that can be wrong with a file."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from toolwire.catalog.ledger.opening import default_address
from toolwire.catalog.ledger.process_owner import owner_alive, this_process
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.ledger.types import Limits, Order, OverBudget
from toolwire.errors import CatalogError

START = """
import os, sys
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.catalog.ledger.types import *
from toolwire.errors import CatalogError
path, told = sys.argv[1], sys.argv[2:]
def order(number, price=10):
    return Order("s", "search", "api:e", "search", price, f"{os.getpid()}-{number}", "d")
def confirm(ledger):
    ledger.settle(ledger.begin(order("first"), Limits()).id, 0)
"""


def order(price=10, tool="search"):
    """Return an order."""
    return Order("s", tool, f"api:{tool}", tool, price, "", "d")


def started(code, *arguments):
    """Start a Python process that runs `code` after `START`."""
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, text=None):
    """Return what a process printed. It must exit successfully, within a minute."""
    try:
        out, err = process.communicate(text, timeout=60)
    finally:
        process.kill()
        process.wait(timeout=10)
    assert process.returncode == 0, err
    return out


def booking(path, amount=10, **given):
    """Open the ledger, book a call and return its id."""
    with SqliteLedger(path, **given) as ledger:
        return ledger.begin(order(amount), Limits()).id


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def test_it_is_a_ledger(path):
    """The class is a `Ledger`, for the type checker and at run time."""
    with SqliteLedger(path) as ledger:
        fits: Ledger = ledger
        assert fits.rows() == []


@pytest.mark.process
def test_processes_cannot_overrun_a_budget(path):
    """Four processes create the file at once and try 200 calls under a budget for 50: exactly 50 are booked."""
    code = """
        print("ready", flush=True)
        sys.stdin.readline()
        got = 0
        with SqliteLedger(path) as ledger:
            confirm(ledger)
            for number in range(50):
                try:
                    ledger.settle(ledger.begin(order(number), Limits(total=500)).id, None)
                    got += 1
                except OverBudget:
                    pass
        print(got)
    """
    processes = [started(code, path) for _ in range(4)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        counts = [int(ended(process)) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=10)
    assert sum(counts) == 50
    with SqliteLedger(path) as ledger:
        assert [(each.calls, each.settled) for each in ledger.totals("tool")] == [(54, 500)]


@pytest.mark.process
@pytest.mark.parametrize("price", [None, 10])
def test_processes_send_one_call_of_uncertain_cost(path, price):
    """Three processes try calls whose prices are unconfirmed, under one limit: only one call is booked."""
    code = """
        price = int(told[0]) if told[0] else None
        print("ready", flush=True)
        sys.stdin.readline()
        ledger = SqliteLedger(path)
        sent = []
        for number in range(20):
            try:
                tool = f"tool{os.getpid()}-{number}"
                sent.append(ledger.begin(Order("s", tool, f"api:{tool}", "", price, "", "d"), Limits(total=100)))
            except Busy as error:
                assert error.retryable
        print(len(sent), flush=True)
        sys.stdin.readline()  # a call of a dead process would no longer be waited for
    """
    processes = [started(code, path, "" if price is None else price) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        counts = [int(process.stdout.readline()) for process in processes]
        for process in processes:
            ended(process, "end\n")
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=10)
    assert sorted(counts) == [0, 0, 1]


@pytest.mark.process
@pytest.mark.parametrize(
    ("steps", "state", "money"),
    [("", "unknown", 10), ("ledger.settle(id, 7)", "settled", 7), ("ledger.release(id)", "released", 0)],
)
def test_a_killed_process_leaves_a_ledger_that_recovers(path, steps, state, money):
    """After SIGKILL a call in flight becomes unknown; later bookings are kept, whether or not synced to disk."""
    code = f"""
        ledger = SqliteLedger(path)
        id = ledger.begin(order(1), Limits()).id
        {steps or "pass"}
        print(id, flush=True)
        sys.stdin.readline()
    """
    process = started(code, path)
    try:
        id = process.stdout.readline().strip()  # noqa: A001
        with SqliteLedger(path) as ledger:
            assert ledger.recover() == []  # the process is still alive
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
            changed = ledger.recover()
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert [row.id for row in changed] == ([id] if state == "unknown" else [])
    with SqliteLedger(path) as ledger:
        assert [(row.id, row.state, row.money) for row in ledger.rows()] == [(id, state, money)]
        assert [each.money for each in ledger.totals("day")] == [money]
        left = Limits(total=20)
        ledger.settle(ledger.begin(order(20 - money, "draw"), left).id, None)
        with pytest.raises(OverBudget):
            ledger.begin(order(1, "sing"), left)


@pytest.mark.process
def test_kills_at_any_moment_lose_no_money(path):
    """A process that books without a pause is killed several times: afterwards the sums match the rows."""
    code = """
        with SqliteLedger(path) as ledger:
            for number in range(100_000):
                id = ledger.begin(order(number), Limits()).id
                print(id, flush=True)  # what a server would have seen
                ledger.settle(id, 7)
    """
    seen = set()
    for turn in range(4):
        process = started(code, path)
        try:
            for _ in range(3 + turn * 7):
                seen.add(process.stdout.readline().strip())
            process.kill()
            seen |= {line for line in process.communicate(timeout=10)[0].split("\n")[:-1] if line}
        finally:
            process.kill()
            process.wait(timeout=10)
        with SqliteLedger(path) as ledger:
            ledger.recover()
            rows = {row.id: row for row in ledger.rows()}
            assert {row.state for row in rows.values()} <= {"settled", "unknown", "released"}
            assert seen <= rows.keys()
            assert all(rows[each].money in (7, 10) for each in seen)
            total = sum(row.money for row in rows.values())
            assert sum(each.money for each in ledger.totals("session")) == total
            free = Limits(total=total + 1)
            ledger.release(ledger.begin(order(1, f"one{turn}"), free).id)
            with pytest.raises(OverBudget):
                ledger.begin(order(2, f"two{turn}"), free)


@pytest.mark.process
def test_a_process_knows_itself_and_the_dead():
    """This process is alive, one that was waited for is not, and an unknown form of owner name counts as alive."""
    me = this_process()
    assert owner_alive(me)
    assert me == this_process()
    process = started(
        "from toolwire.catalog.ledger.process_owner import this_process; print(this_process())", "x"
    )
    other = ended(process).strip()
    assert other != me
    assert not owner_alive(other)
    assert not owner_alive(f"{process.pid}:::{me.split(':')[3]}")  # by its PID alone
    assert owner_alive(f"{os.getpid()}:::{me.split(':')[3]}")
    assert owner_alive("a name of somebody's own")


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_number_that_was_given_out_again_is_another_process():
    """A reused PID is detected by start time and boot id. A process of another container is assumed to be alive."""
    number, start, boot, namespace = this_process().split(":")
    assert start
    assert boot
    assert namespace
    assert not owner_alive(f"{number}:{int(start) - 1}:{boot}:{namespace}")
    assert not owner_alive(f"{number}:{start}:00000000:{namespace}")
    assert owner_alive(f"4194000:{start}:{boot}:1")
    zombie = started("", "x")
    try:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert not owner_alive(f"{zombie.pid}:::{namespace}")
    finally:
        zombie.communicate(timeout=10)


def test_the_file_is_for_its_owner_only(tmp_path):
    """The file and those beside it have mode 0600, and its folder is created with 0700."""
    path = tmp_path / "a" / "b" / "ledger.db"
    before = os.umask(0)
    try:
        with SqliteLedger(path) as ledger:
            ledger.begin(order(), Limits())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_tables_are_strict(path):
    """All tables are STRICT, and the file is in WAL mode."""
    with SqliteLedger(path) as ledger, ledger._database.reading() as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        tables = db.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'").fetchall()
    names = {name for name, strict in tables if strict}
    assert names == {
        "spending",
        "days",
        "sessions",
        "entries",
        "stops",
        "prices",
        "unpriced",
        "rates",
        "documents",
    }


def test_no_booking_reads_all_calls(path):
    """All queries of a booking use an index."""
    limits = Limits(per_call=99, per_session=999, per_day=999, total=999, per_tool={"api:search": 99})
    with SqliteLedger(path) as ledger:
        db, ran = ledger._database._connection, []
        db.set_trace_callback(ran.append)
        for given in (Limits(), limits):
            for price in (10, None):
                call = ledger.begin(
                    Order("s", f"t{price}", f"api:{price}", "", price, f"k{price}", "d"), given
                ).id
                ledger.check_again(call, given)
                ledger.settle(call, 5) if given is limits else ledger.release(call)
        ledger.unknown(ledger.begin(order(), limits).id, "lost")
        ledger.recover()
        db.set_trace_callback(None)
        plans = {
            sql: db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            for sql in ran
            if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")
        }
    assert len(plans) > 20
    scans = [
        (sql, plan)
        for sql, rows in plans.items()
        for *_, plan in rows
        if plan.startswith(("SCAN spending", "SCAN sessions", "SCAN entries", "SCAN prices"))
    ]
    assert scans == []


def test_noting_the_same_entries_again_writes_nothing(path):
    """A list is fetched every few minutes, and seldom contains anything new."""
    names = {f"api:{number}": "search" for number in range(100)}
    with SqliteLedger(path) as ledger, SqliteLedger(path) as other:
        ledger.note_entries(names)
        with other._database.reading() as db:
            before = db.execute("PRAGMA data_version").fetchone()
        ledger.note_entries(names)
        ledger.note_entries({})
        with other._database.reading() as db:
            assert db.execute("PRAGMA data_version").fetchone() == before


FULL, NORMAL = 2, 1


@pytest.mark.parametrize(
    ("act", "level"),
    [
        (lambda ledger, call: ledger.begin(order(), Limits()), FULL),
        (lambda ledger, call: ledger.settle(call, 11), FULL),
        (lambda ledger, call: ledger.settle(call, None, unreadable="?"), FULL),
        (lambda ledger, call: ledger.unknown(call, "lost"), FULL),
        (lambda ledger, call: ledger.stop("api:search", "search", "why"), FULL),
        (lambda ledger, call: ledger.accept("api:search"), FULL),
        (lambda ledger, call: ledger.accept_price("api:search", 1), FULL),
        (lambda ledger, call: ledger.settle(call, 10), NORMAL),
        (lambda ledger, call: ledger.settle(call, None), NORMAL),
        (lambda ledger, call: ledger.release(call), NORMAL),
        (lambda ledger, call: ledger.note_entries({"api:new": "new"}), NORMAL),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_what_takes_money_or_forbids_waits_for_the_disk(path, act, level, grouped):
    """A commit that only gives money back does not: lost in a power cut, its money just stays reserved."""
    with SqliteLedger(path) as ledger:
        call = ledger.begin(order(), Limits()).id
        other = ledger.begin(order(tool="draw"), Limits()).id
        ran = []
        db = ledger._database._connection
        db.set_trace_callback(
            lambda sql: sql == "COMMIT" and ran.append(db.execute("PRAGMA synchronous").fetchone()[0])
        )
        if grouped:
            with ledger.together():
                ledger.release(other)  # first, so that the group's level has to be raised
                act(ledger, call)
        else:
            act(ledger, call)
        db.set_trace_callback(None)
    assert ran[-1] == level


@pytest.mark.parametrize(
    "change",
    [
        "state = 'lost'",
        "reserved = -1",
        "reserved = 'much'",
        "actual = 5",
        "state = 'settled'",
        "state = 'settled', actual = -1",
        "exclusive = 2",
    ],
)
def test_the_database_itself_refuses_nonsense(path, change):
    """Constraints of the database reject rows that make no sense."""
    booking(path)
    db = sqlite3.connect(path)
    try:
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(f"UPDATE spending SET {change}")  # noqa: S608
    finally:
        db.close()


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (5, r"a newer toolwire \(version 5 .* update toolwire, or use another"),
        (1, r"an early toolwire \(version 1 .* use another ledger"),
    ],
)
def test_a_file_of_another_version_is_left_alone(path, version, says):
    """The file is not changed, and the error says what to do."""
    booking(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA user_version={version}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(CatalogError, match=says):
        SqliteLedger(path)
    assert path.read_bytes() == before


V2 = """
INSERT INTO spending (id, at, day, session, tool, entry_id, key, digest, reserved, exclusive, owner, state, actual,
    over, why, changed) VALUES
    ('a', 1.0, '2026-11-06', 's', 'search', 'api:1', 'k', 'd', 10, 0, 'me', 'settled', 8, 0, '', 1.0),
    ('b', 2.0, '2026-11-06', 's', 'search', 'api:1', '', 'd', 10, 0, 'me', 'reserved', NULL, 0, '', 2.0),
    ('c', 3.0, '2026-11-07', 's', 'draw', 'api:2', '', 'd', 20, 0, 'me', 'sent', NULL, 0, '', 3.0),
    ('d', 4.0, '2026-11-07', 't', 'sing', 'api:3', '', 'd', 0, 1, 'me', 'unknown', NULL, 0, 'lost', 4.0),
    ('e', 5.0, '2026-11-07', 't', 'draw', 'api:2', '', 'd', 20, 0, 'me', 'settled', 90, 1, '', 5.0);

INSERT INTO stops VALUES ('api:2', 'draw', 'a call cost more', 5.0);

INSERT INTO untold VALUES ('api:4', 'paint', 5.0);

INSERT INTO prices VALUES ('api:1', 'search', 10, 12, 0), ('api:2', 'draw', 20, 20, 90), ('api:5', '', 7, 7, 0);
"""


def make_v2(path):
    """Create a ledger file as version 2 left it, and return the open connection."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(Path(__file__).with_name("ledger_v2.sql").read_text() + V2)
    return db


def test_a_file_of_version_2_is_migrated(path):
    """Calls, sums, prices, stops and names are kept; calls that were never sent are released."""
    make_v2(path).close()
    for _ in range(2):
        with SqliteLedger(path) as ledger:
            rows = {row.id: (row.state, row.money, row.price) for row in ledger.rows()}
            assert rows == {
                "a": ("settled", 8, 10),
                "b": ("released", 0, 10),
                "c": ("sent", 20, 20),
                "d": ("unknown", 0, None),
                "e": ("settled", 90, 20),
            }
            assert [(each.name, each.money) for each in ledger.totals("day")] == [
                ("2026-11-06", 8),
                ("2026-11-07", 110),
            ]
            with ledger._database.reading() as db:
                assert db.execute("SELECT * FROM days").fetchall() == [("2026-11-06", 8), ("2026-11-07", 110)]
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            prices = [(each.entry_id, each.price, each.offered, each.confirmed) for each in ledger.prices()]
            assert prices == [("api:1", 10, 12, True), ("api:2", 20, 90, False), ("api:5", 7, 7, False)]
            assert [(each.entry_id, each.why) for each in ledger.stops()] == [("api:2", "a call cost more")]
            assert [each.entry_id for each in ledger.unpriced()] == ["api:4"]
    with SqliteLedger(path) as ledger:
        with pytest.raises(OverBudget):
            ledger.begin(Order("s", "search", "api:1", "search", 10, "", "d"), Limits(total=127))
        ledger.begin(Order("s", "search", "api:1", "search", 10, "", "d"), Limits(total=128))
        ledger.note_entries({"api:9": "draw"})
        assert "inherited from api:2" in ledger.stopped("api:9")


def test_an_old_process_cannot_book_in_a_migrated_file(path):
    """A process of version 2 that is still running gets an error, and so sends nothing."""
    old = make_v2(path)
    SqliteLedger(path).close()
    insert = (
        "INSERT INTO spending (id, at, day, session, tool, entry_id, key, digest, reserved, exclusive, owner,"
        " state, changed) VALUES ('x', 1.0, 'd', 's', 't', 'e', '', 'd', 1, 0, 'o', 'reserved', 1.0)"
    )
    for statement in (
        insert,
        "UPDATE spending SET state = 'reserved' WHERE id = 'b'",
        "INSERT INTO prices VALUES ('e', 't', 1, 1, 0)",
        "INSERT OR REPLACE INTO untold VALUES ('e', 't', 1.0)",
    ):
        with pytest.raises(sqlite3.Error):
            old.execute(statement)
    assert old.execute("SELECT state FROM spending WHERE id = 'b'").fetchone() == ("released",)
    old.close()


@pytest.mark.process
def test_processes_migrate_a_file_once(path):
    """Three processes that open the file at once can all use it afterwards."""
    make_v2(path).close()
    code = """
        print("ready", flush=True)
        sys.stdin.readline()
        with SqliteLedger(path) as ledger:
            ledger.begin(order(1), Limits())
            print(len(ledger.rows()) > 5)
    """
    processes = [started(code, path) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [ended(process) for process in processes] == ["True\n"] * 3
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=10)
    with SqliteLedger(path) as ledger:
        assert len(ledger.rows()) == 5 + 3


def test_a_migration_that_fails_leaves_the_file_as_it_was(path):
    """If a table of the new version already exists, the migration is rolled back completely."""
    db = make_v2(path)
    db.execute("CREATE TABLE unpriced (a)")
    with pytest.raises(CatalogError, match="unpriced"):
        SqliteLedger(path)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert db.execute("SELECT count(*) FROM spending WHERE state = 'reserved'").fetchone() == (1,)
    db.close()


def test_another_database_is_no_ledger(path):
    """A SQLite file with other tables is refused, and not changed."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE mine (a)")
    with pytest.raises(CatalogError, match="is a database, but not a toolwire ledger"):
        SqliteLedger(path)
    assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    db.close()


def test_what_is_no_database_is_refused(path):
    """A text file is refused, and not changed."""
    path.write_text("my notes\n" * 100)
    with pytest.raises(CatalogError, match="is damaged, or is not a toolwire ledger"):
        SqliteLedger(path)
    assert path.read_text() == "my notes\n" * 100


def test_a_damaged_file_spends_nothing(path):
    """Overwritten pages are detected when they are read, and the call is refused."""
    with SqliteLedger(path) as ledger:
        for _ in range(200):
            ledger.release(ledger.begin(order(), Limits()).id)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(CatalogError, match="is damaged.*no paid call is sent without it"):
        booking(path)


def test_a_folder_is_no_ledger(tmp_path):
    """A folder is refused, and so is a missing file with `create=False`, and a path below a file."""
    with pytest.raises(CatalogError, match="there is no ledger at"):
        SqliteLedger(tmp_path)
    with pytest.raises(CatalogError, match="there is no ledger at"):
        SqliteLedger(tmp_path / "none.db", create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogError, match="cannot be used"):
        SqliteLedger(tmp_path / "file" / "ledger.db")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_lock_that_lasts_is_a_refusal(path):
    """After a timeout the order is refused and nothing booked; the ledger works again once the lock is released."""
    with SqliteLedger(path, patience=0.05) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogError, match="locked by another process for too long"):
            ledger.begin(order(), Limits())
        assert ledger.rows() == []  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        ledger.begin(order(), Limits())


def test_a_group_waits_for_a_lock_once(path):
    """After the first refusal, the other orders of the group are refused at once, and so is the group."""
    with SqliteLedger(path, patience=0.05) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        refused = []
        with pytest.raises(CatalogError, match="locked by another process"), ledger.together():
            for number in range(3):
                with pytest.raises(CatalogError, match="locked by another process"):
                    ledger.begin(order(), Limits())
                if number == 0:
                    other.execute("ROLLBACK")  # too late for this group
                refused.append(number)
        other.close()
        assert (refused, ledger.rows()) == ([0, 1, 2], [])
        ledger.begin(order(), Limits())


def test_a_file_that_another_process_makes_is_waited_for(path):
    """SQLite cannot switch to WAL while another process writes; the ledger retries within its patience."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogError, match="locked by another process for too long"):
        SqliteLedger(path, patience=0.1)
    soon = threading.Timer(0.1, other.execute, ["ROLLBACK"])
    soon.start()
    SqliteLedger(path, patience=60).close()
    soon.join()
    other.close()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be moved there")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_is_taken_away_spends_nothing(path, replaced):
    """Otherwise two processes with two files under one path would have two budgets."""
    with SqliteLedger(path) as ledger:
        call = ledger.begin(order(), Limits()).id
        path.rename(path.with_name("moved.db"))
        if replaced:
            for end in ("-wal", "-shm"):
                Path(f"{path}{end}").unlink()
            SqliteLedger(path).close()
        for step in (
            lambda: ledger.settle(call, 11),
            lambda: ledger.begin(order(), Limits()),
            lambda: ledger.check_again(call, Limits()),
        ):
            with pytest.raises(CatalogError, match="was moved, deleted or replaced"):
                step()


SPEND_ALL = """
    def spend_all():
        got = 0
        try:
            for number in range(100):
                ledger.begin(order(number), Limits(total=500))
                got += 1
        except OverBudget:
            return got, "over"
        except CatalogError as error:
            return got, str(error)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted there")
@pytest.mark.parametrize("ends", [["-wal", "-shm"], ["-wal"], ["-shm"]])
def test_files_deleted_beside_a_ledger_do_not_double_a_budget(path, ends):
    """Two processes, with files of one deleted while in use, together spend the total and no more."""
    first = started(
        SPEND_ALL
        + """
    import json
    ledger = SqliteLedger(path)
    confirm(ledger)
    for number in range(20):
        ledger.begin(order(f"a{number}"), Limits(total=500))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(spend_all()), flush=True)
    sys.stdin.readline()
    ledger.close()
    """,
        path,
    )
    second = (
        SPEND_ALL
        + """
    import json
    try:
        ledger = SqliteLedger(path, patience=0.5)
    except CatalogError as error:
        print(json.dumps([0, str(error)]))
    else:
        print(json.dumps(spend_all()))
        ledger.close()
    """
    )
    try:
        assert first.stdout.readline() == "ready\n"
        for end in ends:
            Path(f"{path}{end}").unlink()
        booked, said = json.loads(ended(started(second, path)))
        if "-wal" in ends:  # the WAL had the calls of the first process, which is still alive
            assert (booked, "is missing: it was deleted while in use" in said) == (0, True), said
        else:
            assert (booked, said) == (30, "over")
        first.stdin.write("go\n")
        first.stdin.flush()
        more, said = json.loads(first.stdout.readline())
        assert more == 0
        assert "was moved, deleted or replaced while the ledger was in use" in said
        ended(first, "end\n")
    finally:
        first.kill()
        first.wait(timeout=10)
    again, _ = json.loads(ended(started(second, path)))
    assert 20 + booked + again == 50
    with SqliteLedger(path) as ledger:
        assert sum(row.money for row in ledger.rows()) == 500
        with ledger._database.reading() as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted there")
def test_files_replaced_beside_a_ledger_are_not_written_over(path):
    """Closing a ledger that has the old files open keeps what others booked in the new ones."""
    old = """
        ledger = SqliteLedger(path)
        ledger.begin(order(1), Limits())
        ledger._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        print("ready", flush=True)
        sys.stdin.readline()
        ledger.close()
        try:
            SqliteLedger(path)  # in this process SQLite would take the old ones again
        except CatalogError as error:
            print(error)
    """
    new = """
        with SqliteLedger(path) as ledger:
            for number in range(50):
                ledger.begin(order(number), Limits())
            print(len(ledger.rows()))
    """
    first = started(old, path)
    try:
        assert first.stdout.readline() == "ready\n"
        for end in ("-wal", "-shm"):
            Path(f"{path}{end}").unlink()
            Path(f"{path}{end}").touch()
        assert ended(started(new, path)) == "51\n"
        assert "was moved, deleted or replaced" in ended(first, "end\n")
    finally:
        first.kill()
        first.wait(timeout=10)
    assert ended(started(new, path)) == "101\n"


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted there")
def test_a_ledger_can_be_opened_twice_in_a_process(path):
    """It can be opened again after both are closed. Both detect files replaced since the first was opened."""
    with SqliteLedger(path) as first, SqliteLedger(path) as second:
        for ledger in (first, second):
            ledger.begin(order(), Limits())
        assert len(first.rows()) == 2
    first = SqliteLedger(path)
    try:
        kept = Path(f"{path}-shm").rename(f"{path}-kept")
        Path(f"{path}-shm").touch()
        for step in (lambda: SqliteLedger(path), lambda: first.begin(order(), Limits())):
            with pytest.raises(CatalogError, match="was moved, deleted or replaced"):
                step()
        kept.rename(f"{path}-shm")
        first.begin(order(), Limits())
    finally:
        first.close()
    with SqliteLedger(path) as ledger:
        assert len(ledger.rows()) == 3


def test_a_ledger_behind_a_link_is_checked_too(path):
    """SQLite puts its files beside the target of a symbolic link, so those are checked."""
    (path.parent / "real").mkdir()
    path.symlink_to(path.parent / "real" / "ledger.db")
    (path.parent / "real" / "ledger.db").touch()
    with SqliteLedger(path) as ledger:
        ledger.begin(order(), Limits())
        (path.parent / "real" / "ledger.db-shm").unlink()
        with pytest.raises(
            CatalogError, match=r"real/ledger\.db-shm, a file of the ledger, was moved, deleted"
        ):
            ledger.begin(order(), Limits())


def test_a_ledger_stays_where_it_was_opened(tmp_path, monkeypatch):
    """A relative path is not affected by later changes of the working directory."""
    monkeypatch.chdir(tmp_path)
    with SqliteLedger("ledger.db") as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.begin(order(), Limits())
        assert ledger.path == str(tmp_path / "ledger.db")


def test_a_thread_that_holds_the_ledger_is_not_waited_for_without_end(path):
    """Other threads get an error after a timeout."""
    with SqliteLedger(path, patience=0.02) as ledger:
        refused = []

        def work():
            with pytest.raises(CatalogError, match="another thread"):
                ledger.rows()
            refused.append(1)

        with ledger._database.reading():
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(timeout=10)
        assert refused == [1]


LIMITED = """
    import json, resource
    ledger = SqliteLedger(path)
    first = ledger.begin(order(1), Limits()).id
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal"), resource.RLIM_INFINITY))
    said = []
    def group():
        with ledger.together():
            for number in (3, 4):
                try:
                    ledger.begin(order(number), Limits())
                except CatalogError:
                    pass
    for step in (lambda: ledger.begin(order(2), Limits()), lambda: ledger.settle(first, 5), group):
        try:
            step()
        except CatalogError as error:
            said.append(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said.append([(row.id == first, row.state) for row in ledger.rows()])
    ledger.settle(first, 5)
    said.append(ledger.rows()[0].state)
    print(json.dumps(said))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_file_that_cannot_grow_spends_nothing(path):
    """A full disk refuses all bookings, also in a group. The ledger works again once there is space."""
    *errors, rows, after = json.loads(ended(started(LIMITED, path)))
    assert len(errors) == 3
    assert all("disk" in error and "no paid call is sent" in error for error in errors), errors
    assert (rows, after) == ([[True, "sent"]], "settled")


READ_ONLY = """
    import json
    said = []
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write everywhere
    try:
        with SqliteLedger(path) as ledger:
            ledger.begin(order(1), Limits())
    except CatalogError as error:
        said.append(str(error))
    print(json.dumps(said))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_a_read_only_file_spends_nothing():
    """The booking is refused with an error that names the reason."""
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which other users cannot enter
        folder = Path(name)
        booking(folder / "ledger.db")
        (folder / "ledger.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            (error,) = json.loads(ended(started(READ_ONLY, folder / "ledger.db")))
        finally:
            folder.chmod(0o700)
    assert "read-only" in error
    assert "no paid call is sent" in error


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_to_open_the_ledger_again(path):
    """SQLite's locks do not survive a fork, so the child gets an error; the parent can continue."""
    code = """
        ledger = SqliteLedger(path)
        child = os.fork()
        if not child:
            try:
                ledger.begin(order(1), Limits())
            except CatalogError as error:
                os.write(1, f"{error}\\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        ledger.begin(order(1), Limits())
        print(len(ledger.rows()))
    """
    said, count = ended(started(code, path)).splitlines()
    assert "opened before a fork" in said
    assert count == "1"


def test_a_closed_ledger_says_so(path):
    """Closing twice is allowed; any use afterwards is an error."""
    ledger = SqliteLedger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(CatalogError, match="closed"):
        ledger.rows()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TOOLWIRE_LEDGER": "~/x.db"}, "HOME/x.db"),
        ({"XDG_STATE_HOME": "/var/me"}, "/var/me/toolwire/ledger.db"),
        ({"XDG_STATE_HOME": "not/absolute"}, "HOME/.local/state/toolwire/ledger.db"),
        ({}, "HOME/.local/state/toolwire/ledger.db"),
    ],
)
def test_the_usual_path_of_the_ledger(monkeypatch, environ, expected):
    """`TOOLWIRE_LEDGER` comes first, then the user's state folder. As XDG specifies, a relative one is ignored."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert default_address() == Path(expected.replace("HOME", str(Path.home())))


def test_the_ledger_is_the_users_whatever_environment_a_catalogue_gets(monkeypatch):
    """An `environ` given for a catalogue, with keys and little else, does not lead to another ledger."""
    monkeypatch.setenv("XDG_STATE_HOME", "/var/me")
    assert default_address({"AGENT_PAYMENT_API_KEY": "key"}) == Path("/var/me/toolwire/ledger.db")


def test_an_exception_of_the_caller_inside_a_group_stays_as_it_is(tmp_path):
    """It is no failure of the ledger."""
    ledger = SqliteLedger(tmp_path / "l.db")
    with pytest.raises(UnicodeEncodeError), ledger.together():
        "\ud83d".encode()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"), ledger.together():
        sqlite3.connect(tmp_path / "none" / "x.db")
    ledger.close()
