"""The ledger in Postgres: several processes, leases, lost connections, and servers in a bad state."""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import psycopg
import pytest

from shared.cut_line import CutLine
from shared.servers import PostgresServer, find_postgres, require
from shared.waiting import wait_until
from toolwire.catalog.ledger.opening import default_address, is_url, open_ledger
from toolwire.catalog.ledger.postgres import PostgresLedger
from toolwire.catalog.ledger.schema import VERSION
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.types import (
    LeaseLost,
    Limits,
    Order,
    OverBudget,
    PriceRaised,
    Unavailable,
)
from toolwire.errors import CatalogError, UsageError

pytestmark = pytest.mark.process

START = """
import os, sys
from toolwire.catalog.ledger.postgres import PostgresLedger
from toolwire.catalog.ledger.types import *
from toolwire.errors import CatalogError
url, schema, told = sys.argv[1], sys.argv[2], sys.argv[3:]
def order(number, price=10):
    return Order("s", "search", "api:e", "search", price, f"{os.getpid()}-{number}", "d")
def say(*words):
    print(*words, flush=True)
"""
FREE = Limits()


def order(price=10, tool="search", key="", **given):
    """Return an order."""
    return Order(
        "s", tool, given.pop("entry_id", f"api:{tool}"), given.pop("name", tool), price, key, "d", **given
    )


def started(code, url, schema, *arguments):
    """Start a Python process that runs `code` after `START`."""
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(code), url, schema, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(*processes):
    """End processes that may still be running, even if they are suspended."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate(timeout=10)


def go(process):
    """Send the line that a process waits for."""
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.fixture
def schema():
    return f"ledger_{secrets.token_hex(6)}"


@pytest.fixture
def ledger(ledger_url, schema):
    with PostgresLedger(ledger_url, schema=schema) as opened:
        yield opened


@pytest.fixture
def run(ledger_url, schema):
    """Return a function that executes a statement in the ledger's schema, over another connection."""

    def execute(query, *values):
        with psycopg.connect(ledger_url, autocommit=True) as db:
            db.execute(f"SET search_path = {schema}")
            found = db.execute(query, values or None)
            return found.fetchall() if found.description else []

    return execute


@pytest.fixture
def server():
    """A Postgres server for this test only, which may be killed."""
    require(find_postgres(), "postgresql")
    with PostgresServer() as opened:
        yield opened


def test_it_is_a_ledger(ledger):
    """The class is a `Ledger`, for the type checker and at run time; other machines can use it too."""
    fits: Ledger = ledger
    assert (fits.rows(), fits.remote) == ([], True)


# Several processes.


@pytest.mark.slow
def test_eight_processes_cannot_overrun_a_budget(ledger_url, schema):
    """They create the tables at once and try 1,600 calls under a budget for 50: 50 are booked, and never more."""
    code = """
        say("ready")
        sys.stdin.readline()
        got = refused = 0
        with PostgresLedger(url, schema=schema) as ledger:
            for number in range(200):
                try:
                    ledger.settle(ledger.begin(order(number), Limits(total=500)).id, None)
                    got += 1
                except OverBudget:
                    refused += 1
                except Busy:  # before the first reply has confirmed the price
                    pass
        say(got, refused)
    """
    processes = [started(code, ledger_url, schema) for _ in range(8)]
    most = []
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            go(process)
        with PostgresLedger(ledger_url, schema=schema) as ledger:
            while any(process.poll() is None for process in processes):
                most.append(sum(each.money for each in ledger.totals("session")))
            counts = [tuple(map(int, process.communicate(timeout=60)[0].split())) for process in processes]
            assert sum(got for got, _ in counts) == 50, counts
            assert [(each.calls, each.settled) for each in ledger.totals("tool")] == [(50, 500)]
            assert sum(each.money for each in ledger.totals("day")) == 500
    finally:
        stopped(*processes)
    assert max(most) <= 500


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_killed_server_forgets_nothing_that_it_acknowledged(server):
    """After three kills under load, all acknowledged bookings are there, and the sums match the rows."""
    url = server.create_database()
    told, errors, stop = {}, [], threading.Event()

    def buy(number):
        with PostgresLedger(url, patience=5.0) as ledger:
            for count in range(100_000):
                if stop.is_set():
                    return
                try:
                    id = ledger.begin(order(key=f"{number}-{count}"), FREE).id  # noqa: A001
                    told[id] = 10
                    ledger.settle(id, 7)
                    told[id] = 7
                except CatalogError as error:
                    errors.append(str(error))
                    stop.wait(0.05)

    buyers = [threading.Thread(target=buy, args=(number,), daemon=True) for number in range(3)]
    for each in buyers:
        each.start()
    try:
        for turn in range(3):
            before = len(told)
            wait_until(lambda seen=before: len(told) > seen + 20, 60)
            server.kill()
            server.start()
            after = len(told)
            wait_until(lambda seen=after: len(told) > seen, 60)  # the buyers continue by themselves
            assert turn or errors
    finally:
        stop.set()
        for each in buyers:
            each.join(60)
    assert not any(each.is_alive() for each in buyers)
    with PostgresLedger(url) as ledger:
        rows = {row.id: row for row in ledger.rows()}
        assert told.keys() <= rows.keys()
        assert all(rows[call].money == 7 for call, amount in told.items() if amount == 7)
        keys = [row.key for row in rows.values() if row.state != "released"]
        assert len(keys) == len(set(keys))
        total = sum(row.money for row in rows.values())
        for by in ("session", "day", "tool", "state"):
            assert sum(each.money for each in ledger.totals(by)) == total
        ledger.recover()
        assert not ledger.rows(states=["sent"])


def test_two_who_recover_at_once_share_the_work(ledger_url, schema, ledger, run):
    """When four ledgers recover at once, each call of the dead owner is recovered by exactly one of them."""
    with PostgresLedger(ledger_url, schema=schema, owner="dead") as dead:
        calls = [dead.begin(order(key=str(number)), FREE).id for number in range(20)]
        dead._closing.set()
        run("UPDATE owners SET lease = '-1 s' WHERE owner = 'dead'")
        found, start = [], threading.Barrier(4)

        def recover():
            with PostgresLedger(ledger_url, schema=schema) as mine:
                start.wait(30)
                found.extend(row.id for row in mine.recover())

        threads = [threading.Thread(target=recover) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert sorted(found) == sorted(calls)
        assert {row.state for row in ledger.rows()} == {"unknown"}


# Leases.


def test_a_living_process_of_another_machine_is_left_alone(ledger, ledger_url, schema):
    """Its owner name means nothing on this machine, so its lease decides whether it is alive."""
    with PostgresLedger(ledger_url, schema=schema, owner="elsewhere:1:abc") as other:
        other.begin(order(), FREE)
        assert ledger.recover() == []
    assert [row.state for row in ledger.recover()] == ["unknown"]  # it was closed with a call in flight


def test_a_process_that_lost_its_lease_sends_nothing_that_it_had_booked(ledger, run, caplog):
    """Its next step is refused; then it continues under a new owner name. A late reply can still be settled."""
    call = ledger.begin(order(), FREE).id
    before = ledger.owner
    ledger.check_again(call, FREE)
    run("UPDATE owners SET lease = '-1 s'")
    with pytest.raises(LeaseLost, match=rf"^{re.escape(before)} was paused.*nothing was bought, try again"):
        ledger.begin(order(tool="draw"), FREE)
    assert "continues as" in caplog.text
    assert ledger.owner != before
    with pytest.raises(LeaseLost, match="nothing is sent$"):
        ledger.check_again(call, FREE)
    again = ledger.begin(order(tool="draw"), FREE).id
    ledger.check_again(again, FREE)
    assert [row.id for row in ledger.recover()] == [call]
    assert ledger.settle(call, 4).actual == 4
    assert {row.id: (row.state, row.owner) for row in ledger.rows()} == {
        call: ("settled", before),
        again: ("sent", ledger.owner),
    }


def test_a_beat_renews_a_lease_or_says_that_it_is_lost(ledger, run):
    """After `LeaseLost` the owner must not pay for any more calls; it continues under a new name."""
    assert ledger.beat() == ledger.lease == 30.0
    (before,) = run("SELECT beat FROM owners")
    assert ledger.beat() == 30.0
    assert run("SELECT beat FROM owners")[0] > before
    run("UPDATE owners SET lease = '-1 s'")
    with pytest.raises(LeaseLost, match="it counts as dead"):
        ledger.beat()
    assert ledger.beat() == 30.0
    assert [owner for (owner,) in run("SELECT owner FROM owners WHERE lease > '0'")] == [ledger.owner]


@pytest.mark.slow
def test_a_process_that_is_stopped_past_its_lease(ledger_url, schema):
    """Others mark its call as unknown. Once resumed it may not send it, and books under a new owner name."""
    code = """
        ledger = PostgresLedger(url, schema=schema, lease=1.0)
        id = ledger.begin(order(1), Limits()).id
        say(id)
        sys.stdin.readline()
        try:
            ledger.check_again(id, Limits())
            say("sent")
        except CatalogError as error:
            say("refused", error)
        while True:
            try:
                ledger.begin(order(2), Limits())
            except LeaseLost:
                continue
            break
        say(ledger.settle(id, 3).actual)
        sys.stdin.readline()
    """
    process = started(code, ledger_url, schema)
    try:
        call = process.stdout.readline().strip()
        with PostgresLedger(ledger_url, schema=schema) as ledger:
            (first,) = ledger.rows()
            assert ledger.recover() == []
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: [row.id for row in ledger.recover()] == [call], 30)
            process.send_signal(signal.SIGCONT)
            go(process)
            assert process.stdout.readline().startswith(f"refused call {call} of search is unknown")
            assert process.stdout.readline() == "3\n"
            newest, oldest = ledger.rows()
            assert (oldest.state, newest.state, oldest.owner) == ("settled", "sent", first.owner)
            assert newest.owner != first.owner
    finally:
        stopped(process)


@pytest.mark.slow
def test_a_process_that_is_stopped_inside_a_booking_holds_nobody_up(ledger_url, schema, run):
    """The server takes the lock away from it while others wait for it, and rolls back what was not committed."""
    code = """
        ledger = PostgresLedger(url, schema=schema, patience=4.0)
        with ledger.together():
            for number in range(2):
                ledger.begin(order(number), Limits())
                say("inside")
                sys.stdin.readline()
    """
    booked = []
    with PostgresLedger(ledger_url, schema=schema, patience=4.0) as ledger:
        process = started(code, ledger_url, schema)
        other = threading.Thread(target=lambda: booked.append(ledger.begin(order(), FREE).id))
        try:
            assert process.stdout.readline() == "inside\n"
            other.start()
            wait_until(lambda: run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            go(process)
            assert process.stdout.readline() == "inside\n"
            process.send_signal(signal.SIGSTOP)
            other.join(30)
            assert len(booked) == 1
            assert [row.id for row in ledger.rows()] == booked
            process.send_signal(signal.SIGCONT)
            go(process)
            assert "the ledger" in process.communicate(timeout=30)[1]
            assert len(ledger.rows()) == 1
        finally:
            stopped(process)


def test_the_time_for_which_the_server_was_away_does_not_count(server, caplog):
    """No lease could be renewed meanwhile, so all leases start anew after a restart of the server."""
    url = server.create_database()
    with PostgresLedger(url) as one, PostgresLedger(url) as other:
        other.begin(order(), FREE)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("UPDATE toolwire_ledger.owners SET beat = beat - interval '1 day', lease = '10 min'")
        server.kill()
        server.start()
        assert one.recover() == []
        other.begin(order(tool="draw"), FREE)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("UPDATE toolwire_ledger.owners SET lease = '-1 s'")
        assert len(one.recover()) == 2


def test_the_name_of_an_owner_is_its_own(ledger, ledger_url, schema, run):
    """Two processes with one name would renew each other's lease. The name of a dead process can be taken."""
    with PostgresLedger(ledger_url, schema=schema, owner="mine") as first:
        first.begin(order(), FREE)
        with PostgresLedger(ledger_url, schema=schema, owner="mine") as second:
            with pytest.raises(CatalogError, match="another process already uses the owner name mine"):
                second.begin(order(tool="draw"), FREE)
            first._closing.set()
            run("UPDATE owners SET lease = '-1 s'")
            second.begin(order(tool="draw"), FREE)
    with PostgresLedger(ledger_url, schema=schema) as other:
        assert other.owner != ledger.owner
    for lease in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="a lease must be 0.5 seconds or more"):
            PostgresLedger(ledger_url, lease=lease)


def test_who_only_looks_needs_no_lease(ledger_url, schema, ledger, run):
    """A ledger that is only read writes nothing and starts no thread."""
    with PostgresLedger(ledger_url, schema=schema, create=False) as reader:
        assert reader.totals("tool") == []
        assert reader._heartbeats is None
    assert run("SELECT owner FROM owners") == []
    ledger.begin(order(), FREE)
    assert run("SELECT owner FROM owners") == [(ledger.owner,)]
    ledger.close()
    ledger.close()
    assert run("SELECT owner FROM owners") == []


# Lost connections.


COMMIT = b"COMMIT\0"  # the whole statement


@pytest.fixture
def line(postgres_server):
    with CutLine(postgres_server.port) as opened:
        yield opened


@pytest.fixture
def through(line, ledger_url, schema):
    """A ledger whose connections go through a proxy that can cut them."""
    url = re.sub(r":\d+/", f":{line.port}/", ledger_url)
    with PostgresLedger(url, schema=schema, patience=2.0) as opened:
        opened.beat()
        yield opened


@pytest.mark.parametrize("grouped", [False, True])
def test_a_commit_whose_reply_is_lost_is_found_out(line, through, ledger, grouped):
    """The commit succeeded, so the booking is returned as usual, and exists only once."""
    line.cut(COMMIT, heard=True)
    if grouped:
        with through.together():
            booking = through.begin(order(key="k"), FREE)
    else:
        booking = through.begin(order(key="k"), FREE)
    assert line.cuts == 1
    assert [(row.id, row.state, row.money) for row in ledger.rows()] == [(booking.id, "sent", 10)]
    assert through.settle(booking.id, 5).actual == 5


def test_a_commit_that_never_arrived_is_an_error(line, through, ledger):
    """Nothing is booked, and the next order succeeds."""
    line.cut(COMMIT, heard=False)
    with pytest.raises(Unavailable, match="no paid call is sent without it"):
        through.begin(order(key="k"), FREE)
    assert ledger.rows() == []
    through.begin(order(key="k"), FREE)
    assert [row.state for row in ledger.rows()] == ["sent"]


@pytest.mark.parametrize(("heard", "states"), [(True, ["sent", "released"]), (False, ["sent"])])
def test_what_cannot_be_found_out_is_not_sent(line, through, ledger, heard, states):
    """Its money is released as soon as the server is back: nothing was sent for it, so nothing is booked twice."""
    line.cut(COMMIT, heard=heard, away=True)
    with pytest.raises(Unavailable, match="is not known yet"):
        through.begin(order(key="k"), FREE)
    with pytest.raises(Unavailable, match="cannot be reached"):
        through.begin(order(key="k"), FREE)
    line.mend()
    through.begin(order(key="k2"), Limits(total=10))
    assert [row.state for row in ledger.rows()] == states
    assert sum(each.money for each in ledger.totals("day")) == 10


def test_what_could_not_be_found_out_comes_back_even_if_the_next_order_is_refused(line, through, ledger):
    """The refused order rolls back its own changes, but not the release of the call that was never sent."""
    line.cut(COMMIT, heard=True, away=True)
    with pytest.raises(Unavailable, match="is not known yet"):
        through.begin(order(key="k"), FREE)
    line.mend()
    with pytest.raises(OverBudget):
        through.begin(order(price=30, tool="draw", key="k2"), Limits(total=20))
    assert [row.state for row in ledger.rows()] == ["released"]


def test_what_could_not_be_found_out_comes_back_even_after_others_took_its_owner_for_dead(
    line, through, ledger, run
):
    """Others mark the call as unknown; its own process knows that nothing was sent for it, and releases it."""
    line.cut(COMMIT, heard=True, away=True)
    with pytest.raises(Unavailable, match="is not known yet"):
        through.begin(order(key="k"), FREE)
    run("UPDATE owners SET lease = '-1 s' WHERE owner = %s", through.owner)
    assert [row.state for row in ledger.recover()] == ["unknown"]
    line.mend()
    with pytest.raises(CatalogError, match="no call nothing"):
        through.release("nothing")
    assert [row.state for row in ledger.rows()] == ["released"]


@pytest.mark.parametrize("gone", [False, True])
def test_held_money_that_could_not_be_found_out_is_dropped(line, through, ledger, gone):
    """Nobody got its id, so nobody else could give it back. It may have been dropped by others meanwhile."""
    line.cut(COMMIT, heard=True, away=True)
    with pytest.raises(Unavailable, match="is not known yet"):
        through.hold([(order(), FREE), (order(tool="draw"), FREE)])
    assert [row.money for row in ledger.rows()] == [10, 10]
    if gone:
        ledger.drop_held([row.id for row in ledger.rows()])
    line.mend()
    through.begin(order(key="k"), Limits(total=10))
    assert [(row.key, row.state) for row in ledger.rows()] == [("k", "sent")]


def test_a_connection_that_the_server_has_closed_is_replaced(ledger, run):
    """Callers do not notice a restart of the server between two calls."""
    ledger.begin(order(), FREE)
    run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwire'"
        " AND datname = current_database()"
    )
    ledger.begin(order(tool="draw"), FREE)
    assert len(ledger.rows()) == 2


def test_a_connection_survives_a_refusal(ledger, run, schema):
    """While the tables are away every booking is refused, on the same connection, which works again afterwards."""
    ledger.begin(order(), FREE)
    before = list(ledger._database._idle)
    run(f"ALTER SCHEMA {schema} RENAME TO {schema}_away")
    with pytest.raises(Unavailable, match="does not exist"):
        ledger.begin(order(tool="draw"), FREE)
    run(f"ALTER SCHEMA {schema}_away RENAME TO {schema}")
    ledger.begin(order(tool="draw"), FREE)
    assert ledger._database._idle == before


def test_nothing_is_prepared_on_a_connection(ledger):
    """A pooler gives each transaction another connection, without the statements prepared on the last one."""
    for number in range(10):
        ledger.settle(ledger.begin(order(key=str(number)), FREE).id, 10)
    with ledger._database.reading() as db:
        assert db.execute("SELECT name FROM pg_prepared_statements").fetchone() is None


def test_a_server_that_does_not_answer_is_given_up(server):
    """A suspended server blocks a caller for a few seconds at most; once it is resumed, the ledger works again."""
    with PostgresLedger(server.create_database(), patience=1.0) as ledger:
        ledger.begin(order(), FREE)
        with ledger._database.reading() as db:
            backend = db.execute("SELECT pg_backend_pid()").fetchone()[0]
        stop = [server.process.pid, backend]
        for pid in stop:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable, match=r"connection timeout expired|no answer within"):
                ledger.begin(order(tool="draw"), FREE)
        finally:
            for pid in stop:
                os.kill(pid, signal.SIGCONT)
        wait_until(lambda: can(lambda: ledger.begin(order(tool="sing"), FREE)), 30)


def can(act):
    """Return True if a function does not raise `CatalogError`."""
    try:
        act()
    except CatalogError:
        return False
    return True


def test_all_connections_in_use_is_an_error_after_a_while(ledger_url, schema):
    """A caller waits for a free connection only as long as the ledger's patience."""
    with PostgresLedger(ledger_url, schema=schema, patience=0.3) as ledger:
        places = ledger._database._places
        for _ in range(4):
            places.acquire()
        try:
            with pytest.raises(Unavailable, match="all 4 connections of this process .* were in use"):
                ledger.rows()
        finally:
            places.release(4)
        assert ledger.rows() == []


# Servers in a bad state.


def test_a_server_that_is_not_there_says_so(tmp_path):
    """The error comes at once, and names the address, but never the password."""
    secret = f"secret-{secrets.token_hex(8)}"
    with pytest.raises(
        CatalogError, match=r"postgresql://me@127\.0\.0\.1:1/shop cannot be reached"
    ) as refused:
        PostgresLedger(f"postgresql://me:{secret}@127.0.0.1:1/shop?application_name={secret}x")
    assert secret not in "".join(traceback.format_exception(refused.value))


def test_a_password_is_shown_nowhere(server, caplog):
    """It is not in the path, the repr, an error or the log."""
    secret = f"secret-{secrets.token_hex(8)}"
    url = server.create_database().replace("toolwire@", f"toolwire:{secret}@")
    with PostgresLedger(url, patience=0.5) as ledger:
        assert secret not in f"{ledger.path} {ledger!r} {ledger._database!r} {ledger.owner}"
        ledger.beat()
        server.kill()
        with pytest.raises(CatalogError, match="cannot be reached") as refused:
            ledger.begin(order(), FREE)
        assert secret not in "".join(traceback.format_exception(refused.value))
    assert secret not in caplog.text


@pytest.mark.parametrize("url", ["postgresql://me:pa%zzword@h/d", "postgresql://h/d?x=word"])
def test_an_address_that_cannot_be_read_is_not_repeated(url):
    """An invalid address is not in the error, because it may contain a password."""
    with pytest.raises(UsageError, match="the address of the ledger is not valid") as refused:
        PostgresLedger(url)
    assert "word" not in "".join(traceback.format_exception(refused.value)).replace("PASSWORD", "").replace(
        "password", ""
    )


def test_a_role_that_may_not_make_tables(ledger_url, schema, run):
    """The error says which right is missing; if the tables exist, the usual rights on them are enough to book."""
    role = f"role_{secrets.token_hex(4)}"
    with psycopg.connect(ledger_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
    url = ledger_url.replace("toolwire@", f"{role}@")
    with pytest.raises(CatalogError, match="to create them it needs CREATE on the database"):
        PostgresLedger(url, schema=schema)
    PostgresLedger(ledger_url, schema=schema).close()
    with pytest.raises(CatalogError, match="may not be used by this role"):
        PostgresLedger(url, schema=schema)
    run(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with PostgresLedger(url, schema=schema) as ledger:
        ledger.settle(ledger.begin(order(), FREE).id, 5)
        assert [row.state for row in ledger.rows()] == ["settled"]


def test_a_database_that_is_read_only(postgres_server):
    """It can be read, and a booking is refused with the reason."""
    url = postgres_server.create_database()
    PostgresLedger(url).close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with PostgresLedger(url) as ledger:
        assert ledger.rows() == []
        with pytest.raises(Unavailable, match="cannot be written: the database is read-only, or a standby"):
            ledger.begin(order(), FREE)


def test_settings_of_a_database_that_would_break_the_books_are_overruled(postgres_server):
    """A commit waits for the disk, and a booking sees what was committed while it waited for the lock."""
    url = postgres_server.create_database()
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as db:
        for setting in (
            "synchronous_commit = off",
            "default_transaction_isolation = 'repeatable read'",
            "search_path = nowhere",
            "standard_conforming_strings = off",
            "lc_messages = 'C'",
        ):
            db.execute(f"ALTER DATABASE {name} SET {setting}")
    with PostgresLedger(url, owner="it's\tme") as ledger:
        with ledger._database.writing() as db:
            assert db.execute("SELECT current_setting('synchronous_commit')").fetchone() == ("on",)
            assert db.execute("SELECT current_setting('transaction_isolation')").fetchone() == (
                "read committed",
            )
        ledger.settle(ledger.begin(order(), FREE).id, 0)
        got, start = [], threading.Barrier(10)

        def buy():
            with PostgresLedger(url) as mine:
                start.wait(30)
                with contextlib.suppress(OverBudget):
                    got.append(mine.begin(order(), Limits(total=40)))

        threads = [threading.Thread(target=buy) for _ in range(10)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert len(got) == 4


def test_tables_of_another_version(ledger, ledger_url, schema, run):
    """A newer version is refused. In a schema with tables of others, none of ours are left after the error."""
    ledger.close()
    run("UPDATE ledger_version SET version = %s", VERSION + 1)
    with pytest.raises(
        CatalogError, match=rf"a newer toolwire \(version {VERSION + 1} of its tables.*update toolwire"
    ):
        PostgresLedger(ledger_url, schema=schema)
    with pytest.raises(CatalogError, match="there is no ledger at postgresql://"):
        PostgresLedger(ledger_url, schema=f"{schema}_2", create=False)
    with pytest.raises(UsageError, match="plain lower-case name"):
        PostgresLedger(ledger_url, schema='x"; DROP SCHEMA public; --')
    other = f"{schema}_3"
    run(f"CREATE SCHEMA {other}")
    run(f"CREATE TABLE {other}.days (mine text)")
    with pytest.raises(CatalogError, match="already exists"):
        PostgresLedger(ledger_url, schema=other)
    assert run("SELECT count(*) FROM information_schema.tables WHERE table_schema = %s", other) == [(1,)]


def test_a_server_with_no_connection_left(ledger_url, schema, ledger):
    """The error says that there are too many connections."""
    role = f"role_{secrets.token_hex(4)}"
    with psycopg.connect(ledger_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    with pytest.raises(CatalogError, match="too many connections"):
        PostgresLedger(ledger_url.replace("toolwire@", f"{role}@"), schema=schema)


@pytest.mark.parametrize(
    "change",
    [
        "state = 'lost'",
        "reserved = -1",
        "actual = 5",
        "state = 'settled'",
        "state = 'settled', actual = -1",
        "exclusive = 2",
    ],
)
def test_the_database_itself_refuses_nonsense(ledger, run, change):
    """Constraints of the database reject rows that make no sense."""
    ledger.begin(order(), FREE)
    with pytest.raises(psycopg.IntegrityError):
        run(f"UPDATE spending SET {change}")  # noqa: S608


SCANS = "SELECT idx_scan, seq_scan FROM pg_stat_user_tables WHERE relname = 'spending' AND schemaname = %s"


def test_no_booking_reads_all_calls(ledger_url, schema, run):
    """With 20,000 calls in the ledger, all queries of a booking use an index."""
    with PostgresLedger(
        ledger_url, schema=schema
    ) as first:  # with so few calls the server scans the table, and counts that
        first.settle(first.begin(order(), FREE).id, None)
    run(
        "INSERT INTO spending (id, at, day, session, tool, entry_id, variant, key, digest, price, guessed,"
        " reserved, exclusive, owner, state, actual, changed)"
        " SELECT 'x' || n, n, '2026-01-01', 's' || n % 100, 'search',"
        " 'api:search', '', 'k' || n, 'd', 10, 0, 10, 0, 'me', 'settled', 10, n FROM generate_series(1, 20000) AS n"
    )
    run("ANALYZE")
    wait_until(lambda: run(SCANS, schema)[0][1], 30)  # the statistics of the first connection have arrived
    run("SELECT pg_stat_reset()")
    ledger = PostgresLedger(ledger_url, schema=schema)
    limits = Limits(
        per_call=99, per_session=10**9, per_day=10**9, total=10**9, per_tool={"api:search": 10**9}
    )
    for number in range(3):
        call = ledger.begin(order(key=f"new {number}"), limits).id
        ledger.check_again(call, limits)
        ledger.settle(call, 5)
    ledger.unknown(ledger.begin(order(), limits).id, "lost")
    ledger.recover()
    ledger.close()  # the server adds a connection's statistics when it ends
    wait_until(lambda: run(SCANS, schema)[0][0], 30)
    assert run(SCANS, schema)[0][1] == 0


# Hostile values.

NASTY = [
    "E'\\\\'; DROP TABLE spending; --",
    "$body$; %(v1)s ?1",
    "'; DROP TABLE spending; --",
    "$1 ? %s %(x)s :name",
    "\\'; SELECT 1",
    'a"b',
    "ö😀\u202e",
    "x" * 2_000,
]


@pytest.mark.parametrize("text", NASTY)
def test_names_are_values_never_statements(ledger, text):
    """Whatever an API calls its products, the text is stored unchanged."""
    entry = f"api:{text}"
    ledger.note_entries({entry: text})
    call = ledger.begin(
        Order(text, text, entry, text, 10, text, text, variant=text),
        Limits(per_tool={entry: 100}, per_session=100),
    ).id
    ledger.unknown(call, text)
    (row,) = ledger.rows()
    assert (row.session, row.tool, row.entry_id, row.variant, row.key) == (text, text, entry, text, text)
    ledger.stop(entry, text, text)
    assert list(ledger.find(text)) == [entry]
    ledger.accept(entry)
    with pytest.raises(PriceRaised):
        ledger.begin(Order(text, text, entry, text, 11, "", "", variant=text), FREE)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_text_that_postgres_cannot_keep_is_refused(ledger, text):
    """A clear error is raised, also in a group, and the ledger can be used afterwards."""
    with pytest.raises(CatalogError, match="is not valid text"):
        ledger.begin(order(tool=text), FREE)
    with pytest.raises(CatalogError, match="is not valid text"):
        ledger.note_entries({f"api:{text}": "x", "api:y": "y"})
    with ledger.together():
        with pytest.raises(CatalogError, match="is not valid text"):
            ledger.begin(order(tool=text), FREE)
        ledger.begin(order(), FREE)
    call = ledger.rows()[0].id
    ledger.unknown(call, f"it said {text}")
    assert ledger.rows()[0].why == "it said " + text.replace("\0", "?").replace("\ud800", "?")


def test_an_id_too_long_for_an_index_is_refused(ledger):
    """A clear error is raised, and the ledger can be used afterwards."""
    long = secrets.token_hex(20_000)
    with pytest.raises(CatalogError, match="cannot store a value: it is too long"):
        ledger.begin(order(entry_id=f"api:{long}"), FREE)
    ledger.begin(order(), FREE)


def test_ten_thousand_entries_are_noted_and_one_is_bought(ledger):
    """It is bought at the largest amount that is possible."""
    names = {f"api:{number}": f"product {number}" for number in range(10_000)}
    ledger.note_entries(names)
    ledger.note_entries(names | {"api:new": "product 1"})
    most = 10**12
    booking = ledger.begin(order(most, tool="1"), Limits(total=10**18))
    assert ledger.settle(booking.id, most).actual == most
    for number in range(3):
        ledger.settle(ledger.begin(order(most, tool=str(number)), Limits(total=10**18)).id, 10**30)
    assert sum(each.money for each in ledger.totals("day")) == 4 * most


def test_a_clock_of_this_machine_does_not_matter(ledger, monkeypatch):
    """Times and days come from the clock of the database."""
    monkeypatch.setattr("time.time", lambda: 0.0)
    ledger.begin(order(), FREE)
    (row,) = ledger.rows()
    assert row.at > 1_700_000_000
    assert ledger.today() == row.day > "2023"


# Addresses of ledgers.


def test_an_address_is_a_url_or_a_file(tmp_path, ledger_url, monkeypatch):
    """`TOOLWIRE_LEDGER` may be either; a URL of another kind is refused, by its scheme."""
    assert default_address({"TOOLWIRE_LEDGER": ledger_url}) == ledger_url
    assert default_address({"TOOLWIRE_LEDGER": str(tmp_path)}) == tmp_path
    assert is_url("postgres://h/d")
    assert not is_url("ledger.db")
    assert not is_url(tmp_path)
    with pytest.raises(UsageError, match=r"a file or a postgresql:// URL, got redis://"):
        is_url("redis://h/0")
    with open_ledger(ledger_url) as opened:
        assert isinstance(opened, PostgresLedger)


def test_without_the_extra_it_says_what_to_install():
    """The catalogue itself does not import psycopg."""
    code = """
        import sys
        sys.modules["psycopg"] = None
        from toolwire.catalog import Catalog, SqliteLedger
        from toolwire.errors import UsageError
        try:
            from toolwire.catalog import PostgresLedger
        except UsageError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'toolwire[postgres]'" in done.stdout
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, toolwire.catalog.server; print('psycopg' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert loaded.stdout == "False\n"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_every_text_is_refused(postgres_url, encoding):
    """An order was booked and sent there, and its outcome could not be booked."""
    other = f"{postgres_url.rpartition('/')[2]}_other"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {other} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(CatalogError, match=f"the encoding of .*_other is {encoding}, .*ENCODING 'UTF8'"):
        PostgresLedger(f"{postgres_url}_other")


def test_the_encoding_of_a_role_does_not_matter(postgres_url):
    """Its setting applies to programs that do not choose."""
    role = f"role_{postgres_url.rpartition('_')[2]}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET client_encoding = 'LATIN1'")
    with PostgresLedger(postgres_url.replace("toolwire@", f"{role}@")) as ledger:
        ledger.unknown(ledger.begin(order(key="\N{CLOUD}"), FREE).id, "\N{CLOUD}")
        (row,) = ledger.rows()
    assert (row.key, row.state, row.why) == ("\N{CLOUD}", "unknown", "\N{CLOUD}")
