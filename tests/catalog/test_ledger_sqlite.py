"""The ledger's file: several processes, kills, and everything that can be wrong with a file."""

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
import time
from pathlib import Path

import pytest

from toolwire.catalog.ledger.sqlite import (
    Ledger,
    Limits,
    OverBudget,
    Spend,
    SqliteLedger,
    default_path,
    owner_alive,
    this_process,
)
from toolwire.errors import CatalogError

START = """
import os, sys
from toolwire.catalog.ledger.sqlite import *
from toolwire.errors import CatalogError
path, told = sys.argv[1], sys.argv[2:]
def spend(number, amount=10):
    return Spend("s", "search", "e", amount, f"{os.getpid()}-{number}", "d")
"""


def started(code, *arguments):
    """A Python process that runs `code` after `START`."""
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, text=None):
    """What it printed. It has to end well, and in time."""
    try:
        out, err = process.communicate(text, timeout=60)
    finally:
        process.kill()
        process.wait(timeout=10)
    assert process.returncode == 0, err
    return out


def booking(path, amount=10, **given):
    """A call in the ledger of this test."""
    with SqliteLedger(path, **given) as ledger:
        return ledger.reserve(Spend("s", "search", "e", amount, "", "d"), Limits())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def test_it_is_a_ledger(path):
    """The class fits the interface, for the type checker and at run time."""
    with SqliteLedger(path) as ledger:
        fits: Ledger = ledger
        assert fits.rows() == []


def test_processes_cannot_overrun_a_budget(path):
    """Four processes make the file at once and want 200 places in a budget for 50: exactly 50 are given."""
    code = """
        print("ready", flush=True)
        sys.stdin.readline()
        got = 0
        with SqliteLedger(path) as ledger:
            for number in range(50):
                try:
                    ledger.settle(ledger.reserve(spend(number), Limits(total=500)), None)
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
        assert [(each.calls, each.settled) for each in ledger.totals("tool")] == [(50, 500)]


@pytest.mark.parametrize(
    ("steps", "state", "money"),
    [
        ("", "released", 0),
        ("ledger.sent(id)", "unknown", 10),
        ("ledger.sent(id); ledger.settle(id, 7)", "settled", 7),
    ],
)
def test_a_killed_process_leaves_a_ledger_that_recovers(path, steps, state, money):
    """SIGKILL between the steps: what was not sent is released, what was is unknown, what is settled stays."""
    code = f"""
        ledger = SqliteLedger(path)
        id = ledger.reserve(spend(1), Limits())
        {steps or "pass"}
        print(id, flush=True)
        sys.stdin.readline()
    """
    process = started(code, path)
    try:
        id = process.stdout.readline().strip()  # noqa: A001
        with SqliteLedger(path) as ledger:
            assert ledger.recover(owner_alive) == []  # it still lives
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
            changed = ledger.recover(owner_alive)
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert [row.id for row in changed] == ([id] if state != "settled" else [])
    with SqliteLedger(path) as ledger:
        assert [(row.id, row.state, row.money) for row in ledger.rows()] == [(id, state, money)]
        assert [each.money for each in ledger.totals("day")] == [money]
        left = Limits(total=20)
        ledger.reserve(Spend("s", "search", "e", 20 - money, "", "d"), left)
        with pytest.raises(OverBudget):
            ledger.reserve(Spend("s", "search", "e", 1, "", "d"), left)


def test_kills_at_any_moment_lose_no_money(path):
    """A process that books without a pause is killed again and again: the sums fit the rows each time."""
    code = """
        with SqliteLedger(path) as ledger:
            for number in range(100_000):
                id = ledger.reserve(spend(number), Limits())
                ledger.sent(id)
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
            ledger.recover(owner_alive)
            rows = {row.id: row for row in ledger.rows()}
            assert {row.state for row in rows.values()} <= {"settled", "unknown", "released"}
            assert seen <= rows.keys()
            assert all(rows[each].money in (7, 10) for each in seen)
            total = sum(row.money for row in rows.values())
            assert sum(each.money for each in ledger.totals("session")) == total
            free = Limits(total=total + 1)
            ledger.release(ledger.reserve(Spend("t", "free", "e", 1, "", "d"), free))
            with pytest.raises(OverBudget):
                ledger.reserve(Spend("t", "free", "e", 2, "", "d"), free)


def test_a_process_knows_itself_and_the_dead():
    """This process lives; a process that was waited for, another start time and another boot do not."""
    me = this_process()
    assert owner_alive(me)
    assert me == this_process()
    process = started("from toolwire.catalog.ledger.sqlite import this_process; print(this_process())", "x")
    other = ended(process).strip()
    assert other != me
    assert not owner_alive(other)
    assert not owner_alive(f"{process.pid}:::{me.split(':')[3]}")  # by its number alone
    assert owner_alive(f"{os.getpid()}:::{me.split(':')[3]}")
    assert owner_alive("a name of somebody's own")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_number_that_was_given_out_again_is_another_process():
    """The start time and the boot tell; another container cannot be seen from here and is left alone."""
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
    """The file and those beside it are 0600, and its folder is made."""
    path = tmp_path / "a" / "b" / "ledger.db"
    before = os.umask(0)
    try:
        with SqliteLedger(path) as ledger:
            ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_commit_is_on_the_disk(path):
    """WAL with synchronous FULL, in STRICT tables."""
    with SqliteLedger(path) as ledger, ledger._database.reading() as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        tables = db.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'").fetchall()
    assert {name for name, strict in tables if strict} == {
        "spending",
        "days",
        "sessions",
        "stops",
        "prices",
        "untold",
    }


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
    """What no code should write cannot be written."""
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
        (3, r"a newer toolwire \(version 3 .* update toolwire, or use another"),
        (1, r"an older toolwire \(version 1 .* use another ledger"),
    ],
)
def test_a_file_of_another_version_is_left_alone(path, version, says):
    """It says what to do."""
    booking(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA user_version={version}")
    db.close()
    with pytest.raises(CatalogError, match=says):
        SqliteLedger(path)


def test_another_database_is_no_ledger(path):
    """It is not written to."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE mine (a)")
    with pytest.raises(CatalogError, match="is a database, but no ledger"):
        SqliteLedger(path)
    assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    db.close()


def test_what_is_no_database_is_refused(path):
    """A text file stays as it is."""
    path.write_text("my notes\n" * 100)
    with pytest.raises(CatalogError, match="is damaged, or no ledger of toolwire"):
        SqliteLedger(path)
    assert path.read_text() == "my notes\n" * 100


def test_a_damaged_file_spends_nothing(path):
    """A page that was overwritten is found when it is needed, and the call refused."""
    with SqliteLedger(path) as ledger:
        for _ in range(200):
            ledger.release(ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits()))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(CatalogError, match="is damaged.*no paid call goes out without it"):
        booking(path)


def test_a_folder_is_no_ledger(tmp_path):
    """Nor is what is not there, if it shall not be made."""
    with pytest.raises(CatalogError, match="there is no ledger at"):
        SqliteLedger(tmp_path)
    with pytest.raises(CatalogError, match="there is no ledger at"):
        SqliteLedger(tmp_path / "none.db", create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogError, match="cannot be used"):
        SqliteLedger(tmp_path / "file" / "ledger.db")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_lock_that_lasts_is_a_refusal(path):
    """Nothing is booked, nothing hangs, and the ledger works again when the lock is gone."""
    with SqliteLedger(path, patience=0.05) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogError, match="locked by another process for too long"):
            ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits())
        assert ledger.rows() == []  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits())


def test_a_file_that_another_process_makes_is_waited_for(path):
    """SQLite refuses to turn to WAL at once while another one writes; the ledger waits as long as it may."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(CatalogError, match="locked by another process for too long"):
        SqliteLedger(path, patience=0.1)
    assert 0.1 <= time.monotonic() - start < 30
    other.execute("ROLLBACK")
    other.close()
    SqliteLedger(path, patience=0.1).close()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be moved there")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_is_taken_away_spends_nothing(path, replaced):
    """Two processes with two files under one name would have two budgets."""
    with SqliteLedger(path) as ledger:
        call = ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits())
        path.rename(path.with_name("moved.db"))
        if replaced:
            SqliteLedger(path).close()
        for step in (
            lambda: ledger.sent(call),
            lambda: ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits()),
        ):
            with pytest.raises(CatalogError, match="was moved, deleted or replaced"):
                step()


def test_a_ledger_stays_where_it_was_opened(tmp_path, monkeypatch):
    """A relative path does not follow the working directory."""
    monkeypatch.chdir(tmp_path)
    with SqliteLedger("ledger.db") as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.reserve(Spend("s", "t", "e", 1, "", "d"), Limits())
        assert ledger.path == str(tmp_path / "ledger.db")


def test_a_thread_that_holds_the_ledger_is_not_waited_for_without_end(path):
    """The other threads get a refusal."""
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
    first = ledger.reserve(spend(1), Limits())
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal"), resource.RLIM_INFINITY))
    said = []
    for step in (lambda: ledger.reserve(spend(2), Limits()), lambda: ledger.sent(first)):
        try:
            step()
        except CatalogError as error:
            said.append(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said.append([(row.id == first, row.state) for row in ledger.rows()])
    ledger.sent(first)
    said.append(ledger.rows()[0].state)
    print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_file_that_cannot_grow_spends_nothing(path):
    """A full disk refuses the reservation and the sending, and the ledger goes on when there is room again."""
    *errors, rows, after = json.loads(ended(started(LIMITED, path)))
    assert len(errors) == 2
    assert all("disk" in error and "no paid call goes out" in error for error in errors), errors
    assert (rows, after) == ([[True, "reserved"]], "sent")


READ_ONLY = """
    import json
    said = []
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write everywhere
    try:
        with SqliteLedger(path) as ledger:
            ledger.reserve(spend(1), Limits())
    except CatalogError as error:
        said.append(str(error))
    print(json.dumps(said))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_a_read_only_file_spends_nothing():
    """The refusal says so."""
    with (
        tempfile.TemporaryDirectory() as name
    ):  # a place of its own: tests' folders are closed to other users
        folder = Path(name)
        booking(folder / "ledger.db")
        (folder / "ledger.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            (error,) = json.loads(ended(started(READ_ONLY, folder / "ledger.db")))
        finally:
            folder.chmod(0o700)
    assert "read-only" in error
    assert "no paid call goes out" in error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_to_open_the_ledger_again(path):
    """SQLite's locks do not survive a fork, so the child is refused; the parent goes on."""
    code = """
        ledger = SqliteLedger(path)
        child = os.fork()
        if not child:
            try:
                ledger.reserve(spend(1), Limits())
            except CatalogError as error:
                os.write(1, f"{error}\\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        ledger.reserve(spend(1), Limits())
        print(len(ledger.rows()))
    """
    said, count = ended(started(code, path)).splitlines()
    assert "opened before a fork" in said
    assert count == "1"


def test_a_closed_ledger_says_so(path):
    """Closing twice is fine, booking afterwards is refused."""
    ledger = SqliteLedger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(CatalogError, match="closed"):
        ledger.rows()


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"TOOLWIRE_LEDGER": "~/x.db"}, "linux", "HOME/x.db"),
        ({"XDG_STATE_HOME": "/var/me"}, "linux", "/var/me/toolwire/ledger.db"),
        ({"XDG_STATE_HOME": "not/absolute"}, "linux", "HOME/.local/state/toolwire/ledger.db"),
        ({}, "linux", "HOME/.local/state/toolwire/ledger.db"),
        ({}, "darwin", "HOME/Library/Application Support/toolwire/ledger.db"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/toolwire/ledger.db"),
        ({}, "win32", "HOME/AppData/Local/toolwire/ledger.db"),
    ],
)
def test_the_ledger_has_a_place_on_every_system(environ, platform, expected):
    """The variable first, then what the system has for state."""
    assert default_path(environ, platform) == Path(expected.replace("HOME", str(Path.home())))
