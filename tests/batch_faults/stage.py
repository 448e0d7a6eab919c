"""The stage of the fault tests: a journal that is never killed, processes to kill, and what must hold after."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from shared.journal import Journal
from toolwire.batch.place import find_place
from toolwire.batch.records import Records, make_engine
from toolwire.catalog.ledger.opening import open_ledger

PROGRAM = Path(__file__).with_name("program.py")
NAME = "faults"


class Stage:
    """Starts the processes of a batch, and checks what they leave behind."""

    def __init__(self, at, folder, **settings):
        self.at = str(at)
        self.folder = folder
        self.journal = Journal()
        self.settings = {
            "at": self.at,
            "journal": self.journal.port,
            "name": NAME,
            "tasks": 200,
            "delay": 0.2,
            "concurrency": 8,
            "on_lost": "hold",
            "budget": None,
            "per_run": "0.01",
            "poll": 0.1,
            "beat": 0.5,
            "stale": 10.0,
            "pause": 0.0,
            "long_steps": 0,
            **settings,
        }
        self.processes = []
        self._records = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes:
            process.wait(10)
        self.journal.close()
        if self._records is not None:
            self._records.close()

    def start(self, role, **settings):
        """Start a driver or a worker."""
        log = (self.folder / f"{role}-{len(self.processes)}.log").open("wb")
        env = {
            **os.environ,
            "BATCH_SETTINGS": json.dumps({**self.settings, **settings}),
            "TOOLWIRE_BATCHES": str(self.folder / "state"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        with log:
            process = subprocess.Popen([sys.executable, PROGRAM, role], env=env, stdout=log, stderr=log)
        process.role = role
        self.processes.append(process)
        return process

    def start_all(self, workers=3, **settings):
        """Start a driver and, once it has created the tables, workers with these settings."""
        driver = self.start("driver")
        self.wait(lambda: self.journal.of("driver"))
        return driver, [self.start("worker", **settings) for _ in range(workers)]

    def wait(self, condition, seconds=180.0):
        """Wait until a condition is true; fails with the logs of the processes."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"not in {seconds} s; {self.describe()}")
            time.sleep(0.01)

    def pause(self, process):
        """Suspend a process while it holds no SQLite lock, which others need to declare it lost."""

        def stopped():
            process.send_signal(signal.SIGSTOP)
            self.wait(lambda: _is_stopped(process.pid))  # a thread may be in a call that takes a lock
            if all(_can_write(file) for file in Path(self.at).glob("*.db")):
                return True
            process.send_signal(signal.SIGCONT)
            return False

        self.wait(stopped)

    @contextmanager
    def locked(self):
        """Hold the lock that every worker needs for its heartbeats."""
        engine = make_engine(self.place.records)
        with closing(engine.connect()) as db, db.begin():  # in SQLite, this takes the lock
            if engine.dialect.name == "postgresql":
                db.execute(sa.text("LOCK TABLE toolwire_workers IN ACCESS EXCLUSIVE MODE"))
            yield
        engine.dispose()

    def wait_over(self, seconds=240.0, times=1):
        """Wait until a driver has seen every result."""
        self.wait(lambda: len(self.journal.of("over")) >= times, seconds)

    def stop_workers(self):
        """Stop the running processes with SIGTERM, as an operator would."""
        running = [each for each in self.processes if each.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(90)

    def describe(self):
        """Return what is known when a test waits in vain: the records, and the stacks of the processes."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGUSR1)
        time.sleep(2)  # for them to write it; only a test that has failed gets here
        logs = [
            f"{path.name}: {path.read_text(errors='replace')[-6000:]}"
            for path in sorted(self.folder.glob("*.log"))
        ]
        asked = self.journal.asked()
        return (
            f"asked {len(asked)}, steps {len(self.journal.of('step'))}, {self.records.counts()}\n"
            + "\n".join(logs)
        )

    # --- the databases ---

    @property
    def place(self):
        return find_place(self.at, NAME)

    @property
    def records(self):
        if self._records is None:
            self._records = Records(make_engine(self.place.records), patience=20)
            self._records.find(NAME)
        return self._records

    def ledger(self):
        return open_ledger(self.place.ledger)

    def report(self, figures):
        """Append the figures to the file that `BATCH_FIGURES` names, if it is set."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition(" ")[0]
        if os.environ.get("BATCH_FIGURES"):
            with Path(os.environ["BATCH_FIGURES"]).open("a") as file:
                file.write(json.dumps({"test": test, **figures}) + "\n")

    def check(self, *, hold=True, states=("done", "unknown")):
        """Check what must hold after every fault, and return the figures."""
        runs, after = [], 0
        while page := self.records.ended_after(after):
            runs += page
            after = page[-1].finished
        asked = self.journal.asked()
        with self.ledger() as ledger:
            rows = [row for row in ledger.rows() if row.session == f"batch:{self.records.uid}"]
        by_state = Counter(row.state for row in rows)
        settled = sum(row.actual for row in rows if row.state == "settled")
        states_seen = Counter(run.state for run in runs)
        figures = {
            "runs": dict(states_seen),
            "ledger": dict(by_state),
            "asked": sum(asked.values()),
            "twice": sum(count > 1 for count in asked.values()),
            "settled": settled,
            "errors": sorted({run.error for run in runs if run.state not in states and run.error}),
        }
        total = self.settings["tasks"]
        assert self.records.counts().get("waiting", 0) + self.records.counts().get("running", 0) == 0, figures
        assert len({run.key for run in runs}) == len(runs) == total, figures  # none is lost
        assert sum(states_seen[state] for state in states) == total, figures
        assert sum(run.cost for run in runs) == settled, figures
        assert by_state["sent"] == 0, figures
        if hold:
            assert figures["twice"] == 0, figures
            assert by_state["unknown"] == states_seen["unknown"], figures
        assert all(asked[run.key] for run in runs if run.state == "done"), figures
        assert not list(self.place.outbox.glob("*.json")), figures
        return figures


def _is_stopped(pid):
    """True if all threads of a process have stopped."""
    states = [
        stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def _can_write(file):
    """True if a SQLite database can be locked for writing within 2 s."""
    with closing(sqlite3.connect(file, timeout=2)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True
