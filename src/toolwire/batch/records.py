"""The records of a batch: its runs, their states, and its workers. SQLite or Postgres, with the same SQL.

Owns the tables and every change of a run's state. Each change is one conditional transaction: if two processes want
the same run, exactly one gets it, and a change that was already made is not made twice. So after a lost connection
every method can be called again. Money is booked by `booking`; here it is only recorded.

Every method blocks, so `worker` and `opened` call them in threads.
"""

import functools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from toolwire._support.log import logger_for
from toolwire._support.words import storable
from toolwire.batch.states import Claim, Outcome, RunRow, State
from toolwire.errors import BatchError

logger = logger_for("batch")
T = TypeVar("T")

VERSION: Final = 1
_PATIENCE: Final = 300.0  # seconds to keep retrying while the database is unreachable
OPENING: Final = 10.0  # the same when a batch is opened: its address may be wrong
_REPEAT: Final = 30.0  # seconds between two warnings about it
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_LOCK: Final = 0x74776274  # id of the Postgres advisory lock held while the tables are created
_CHUNK: Final = 500
_SQLITE_TRANSIENT: Final = ("locked", "busy", "disk is full")
_POSTGRES_TRANSIENT: Final = ("08", "57", "40", "53")
"""Error classes: connection, operator intervention (shutdown), serialization or deadlock, resources (disk full)."""
_TRANSIENT_CODES: Final = ("25006", "25P03")
"""The server is read-only, as during a failover; it ended a transaction of this process, which was suspended."""
_IDLE_SECONDS: Final = 15  # after which Postgres ends a transaction in which nothing happens

CONNECTION: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Settings of libpq, so that no connection waits forever for a server that does not respond. Those of a URL win."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS toolwire_batch_version (version INTEGER NOT NULL);

CREATE TABLE IF NOT EXISTS toolwire_batches (
    name TEXT PRIMARY KEY, uid TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, settings TEXT NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0, added BIGINT NOT NULL DEFAULT 0, finished BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS toolwire_runs (
    uid TEXT NOT NULL, key TEXT NOT NULL, number BIGINT NOT NULL, item TEXT NOT NULL, state TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0, delivery INTEGER NOT NULL DEFAULT 1, lost INTEGER NOT NULL DEFAULT 0,
    given_up INTEGER NOT NULL DEFAULT 0,
    worker TEXT NOT NULL DEFAULT '', token TEXT NOT NULL DEFAULT '',
    machine TEXT NOT NULL DEFAULT '', booking TEXT NOT NULL DEFAULT '',
    session TEXT NOT NULL DEFAULT '', resumes INTEGER NOT NULL DEFAULT 0,
    costs TEXT NOT NULL DEFAULT '{}', cost BIGINT NOT NULL DEFAULT 0, reserved BIGINT NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', finished BIGINT NOT NULL DEFAULT 0,
    changed DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (uid, key)
);

CREATE INDEX IF NOT EXISTS toolwire_runs_by_state ON toolwire_runs (uid, state, number);

CREATE INDEX IF NOT EXISTS toolwire_runs_by_end ON toolwire_runs (uid, finished);

CREATE TABLE IF NOT EXISTS toolwire_workers (
    id TEXT PRIMARY KEY, uid TEXT NOT NULL, executor TEXT NOT NULL, process TEXT NOT NULL, machine TEXT NOT NULL,
    beat BIGINT NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0, started DOUBLE PRECISION NOT NULL
)
"""
_COLUMNS: Final = ", ".join(RunRow.__dataclass_fields__)  # the fields of RunRow are named like the columns
_CANCELLED: Final = "the batch was cancelled"
_IS_CANCELLED: Final = "SELECT cancelled FROM toolwire_batches WHERE name = :name"
_CLEAR_CANCELLED: Final = "UPDATE toolwire_batches SET cancelled = 0 WHERE name = :name AND cancelled = 1"
_NOT_CANCELLED: Final = "NOT EXISTS (SELECT 1 FROM toolwire_batches WHERE name = :name AND cancelled = 1)"
"""SQL condition: the batch is not cancelled. It needs no lock: a claim made concurrently with `cancel` is refused
by `start`, and one that has already started is found by the caller of `cancel` as a running run."""


class Records:
    """The records of one batch, in the database of `engine`. `clock` is Unix time, for information only."""

    def __init__(
        self, engine: sa.Engine, *, patience: float = _PATIENCE, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._patience = patience
        self._clock = clock
        self._closing = threading.Event()
        self._is_postgres = engine.dialect.name == "postgresql"
        self._file = None if self._is_postgres else engine.url.database
        # SQLite allows one writer at a time, and waiters sleep in growing steps. Queuing in this process is faster.
        self._write_lock: AbstractContextManager[object] = (
            nullcontext() if self._is_postgres else threading.Lock()
        )
        self.uid = ""
        self.name = ""
        # In Postgres a single statement is its own transaction: a process suspended in between holds no locks.
        self._autocommit = (
            engine.execution_options(isolation_level="AUTOCOMMIT") if self._is_postgres else engine
        )
        # Locked against `revoke_lease`, so that after a lease is revoked all runs its worker started are visible.
        lock = " FOR KEY SHARE" if self._is_postgres else ""
        self._alive = f"alive AS (SELECT 1 FROM toolwire_workers WHERE id = :worker AND gone = 0{lock})"  # noqa: S608

    def stop_retrying(self) -> None:
        """Let every call fail at once if the database is unreachable, also those that are being retried."""
        self._closing.set()

    def close(self) -> None:
        """Close the connections. Retries of an unreachable database end at once."""
        self.stop_retrying()
        self._engine.dispose()

    # --- the batch itself ---

    def prepare(self) -> None:
        """Create the tables if they do not exist. Refuse those of another version."""

        def work(db: sa.Connection) -> None:
            if self._is_postgres:
                encoding = db.execute(sa.text("SHOW server_encoding")).scalar_one()
                if encoding != "UTF8":
                    raise BatchError(
                        f"the encoding of this database is {encoding}, which cannot store every text: a batch needs"
                        " one that was created with ENCODING 'UTF8' (and TEMPLATE template0)"
                    )
                db.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            for statement in _SCHEMA.split(";"):
                db.execute(sa.text(statement))
            found = db.execute(sa.text("SELECT version FROM toolwire_batch_version")).scalar()
            if found is None:
                db.execute(sa.text("INSERT INTO toolwire_batch_version VALUES (:v)"), {"v": VERSION})
            elif found != VERSION:
                raise BatchError(
                    f"the batch tables in this database have version {found}, but this toolwire needs version"
                    f" {VERSION}: use the toolwire that created them, or another database"
                )

        self._transact(work, patience=min(OPENING, self._patience))

    def create(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Create the batch `name`, or find it. Return the settings that it had before this call."""

        def work(db: sa.Connection) -> tuple[str, str]:
            now = self._clock()
            db.execute(
                sa.text(
                    "INSERT INTO toolwire_batches (name, uid, created, settings) VALUES (:name, :uid, :now, :kept)"
                    " ON CONFLICT (name) DO NOTHING"
                ),
                {"name": name, "uid": uuid.uuid4().hex, "now": now, "kept": json.dumps(settings)},
            )
            row = db.execute(
                sa.text("SELECT uid, settings FROM toolwire_batches WHERE name = :name"), {"name": name}
            ).one()
            db.execute(
                sa.text("UPDATE toolwire_batches SET settings = :kept WHERE name = :name"),
                {"name": name, "kept": json.dumps(settings)},
            )
            return row.uid, row.settings

        self.uid, before = self._transact(work)
        self.name = name
        return dict(json.loads(before))

    def find(self, name: str) -> dict[str, Any] | None:
        """Select the batch `name` and return its settings; None if it does not exist."""
        row = self._transact(
            lambda db: db.execute(
                sa.text("SELECT uid, settings FROM toolwire_batches WHERE name = :name"), {"name": name}
            ).one_or_none()
        )
        if row is None:
            return None
        self.uid, self.name = row.uid, name
        return dict(json.loads(row.settings))

    def names(self) -> list[str]:
        """List the names of the batches in this database."""
        query = sa.text("SELECT name FROM toolwire_batches ORDER BY created")
        return self._transact(lambda db: [str(each) for each in db.execute(query).scalars()])

    # --- adding runs ---

    def add(self, items: Sequence[tuple[str, str]], *, more: bool = False) -> list[str]:
        """Add runs as pairs of key and JSON item. Return the keys that are new; existing runs stay unchanged.

        New runs continue a batch that was cancelled, unless they are `more` of those whose adding was cancelled.
        """

        def work(db: sa.Connection) -> list[str]:
            keys = [key for key, _ in items]
            known = set(
                db.execute(
                    sa.text("SELECT key FROM toolwire_runs WHERE uid = :uid AND key IN :keys").bindparams(
                        sa.bindparam("keys", expanding=True)
                    ),
                    {"uid": self.uid, "keys": keys},
                ).scalars()
            )
            new = [(key, item) for key, item in items if key not in known]
            if not new:
                return []
            last, now = self._advance_counter(db, "added", len(new)), self._clock()
            if not more:
                db.execute(self._text(_CLEAR_CANCELLED), {"name": self.name})
            elif db.execute(self._text(_IS_CANCELLED), {"name": self.name}).scalar():
                raise BatchError("the batch was cancelled while runs were added: the rest was not added")
            rows = [
                {"uid": self.uid, "key": key, "number": number, "item": item, "now": now}
                for number, (key, item) in enumerate(new, last - len(new) + 1)
            ]
            # Another process may add the same keys concurrently: the first one wins, and both report them as new.
            db.execute(
                sa.text(
                    "INSERT INTO toolwire_runs (uid, key, number, item, state, changed)"
                    " VALUES (:uid, :key, :number, :item, 'waiting', :now)"
                    " ON CONFLICT (uid, key) DO NOTHING"
                ),
                rows,
            )
            return [key for key, _ in new]

        return self._transact(work)

    # --- executing runs ---

    def claim(self, key: str, worker: str, token: str) -> Claim | None:
        """Claim a waiting run for a worker with a valid lease. None if the run cannot be claimed.

        `token` is unique to the caller: claiming again with it, because the reply was lost, returns the same claim.
        Until `start`, the recorded session and machine are those of the previous attempt.
        """
        ours = (
            "state = 'running' AND worker = :worker AND token = :token AND booking = ''"  # the reply was lost
        )
        query = self._text(
            f"WITH {self._alive}"  # noqa: S608 - constants only, as in all of these
            " UPDATE toolwire_runs SET attempt = CASE WHEN state = 'waiting' THEN attempt + 1 ELSE attempt END,"
            " state = 'running', worker = :worker, booking = '', token = :token, given_up = 0, changed = :now"
            " WHERE uid = :uid AND key = :key AND ((state = 'waiting' AND EXISTS (SELECT 1 FROM alive)"
            f" AND {_NOT_CANCELLED}) OR ({ours})) RETURNING item, attempt, session, resumes, machine"
        )
        values = {"worker": worker, "token": token, "name": self.name, **self._run_values(key)}
        # Not durable here: `start` is, which makes everything before it durable too.
        row = self._transact(
            lambda db: db.execute(query, values).one_or_none(), durable=False, autocommit=True
        )
        if row is None:
            return None
        return Claim(key, row.item, row.attempt, row.session, bool(row.resumes), worker, row.machine, token)

    def start(self, claim: Claim, booking: str, reserved: int, session: str, machine: str) -> bool:
        """Record that a claimed run is booked, so that its CLI may be started. If False, it must not be."""
        query = self._text(
            f"WITH {self._alive}"  # noqa: S608
            " UPDATE toolwire_runs SET booking = :booking, reserved = :reserved, session = :session,"
            " machine = :machine, changed = :now WHERE uid = :uid AND key = :key AND attempt = :attempt"
            " AND token = :token AND state = 'running' AND booking IN ('', :booking)"
            f" AND EXISTS (SELECT 1 FROM alive) AND {_NOT_CANCELLED} RETURNING 1"
        )
        values = {
            "booking": booking, "reserved": reserved, "session": session, "machine": machine,
            "worker": claim.worker, "name": self.name, **self._attempt_values(claim),
        }  # fmt: skip
        return self._transact(lambda db: db.execute(query, values).first() is not None, autocommit=True)

    def note_session(self, claim: Claim, session: str) -> None:
        """Record the session id of a running run whose id was not known before it started."""
        where = "attempt = :attempt AND token = :token AND state = 'running'"
        self._transact(
            lambda db: self._update_run(
                db, "session = :session", where, **self._attempt_values(claim), session=session
            ),
            durable=False,
        )

    def finish(self, key: str, attempt: int, worker: str, outcome: Outcome) -> bool:
        """Record how an attempt ended and its cost. False if a later one has started, or its end is already known.

        The attempt may have been declared lost meanwhile: a late result counts as long as no new attempt started.
        """

        def work(db: sa.Connection) -> bool:
            row = self._lock_run(db, key)
            if row is None:
                return False
            self._set_cost(db, row, attempt, outcome.cost)
            if row.attempt != attempt or row.state not in ("running", "unknown", "waiting"):
                return False
            if row.state == "running" and row.worker != worker:
                return False
            if (
                row.state == "waiting" and not row.given_up
            ):  # this attempt's end is recorded, the next one is due
                return False
            if (row.state, outcome.state) == ("unknown", "unknown"):
                return False
            self._end_run(db, key, outcome.state, outcome.result, outcome.error)
            return True

        return self._finish_first(key, attempt, worker, outcome) or self._transact(work)

    def _finish_first(self, key: str, attempt: int, worker: str, outcome: Outcome) -> bool:
        """Record the end in one step if no earlier attempt has cost anything, which is usual; otherwise False."""
        if outcome.cost is None:
            return False
        # `mark_lost` locks in the opposite order. On deadlock the database aborts one, and `_transact` retries it.
        count = "UPDATE toolwire_batches SET finished = finished + 1 WHERE name = :name"
        first, last = (
            (f"WITH last AS ({count} RETURNING finished) ", "last")
            if self._is_postgres
            else ("", "toolwire_batches WHERE name = :name")
        )
        query = self._text(
            f"{first}UPDATE toolwire_runs SET state = :state, result = :result, error = :error, costs = :costs,"  # noqa: S608
            f" cost = :cost, finished = (SELECT finished FROM {last}), changed = :now WHERE uid = :uid"
            " AND key = :key AND attempt = :attempt AND state = 'running' AND worker = :worker AND costs = '{}'"
        )
        values = {
            "state": outcome.state, "result": outcome.result, "error": storable(outcome.error),
            "costs": json.dumps({str(attempt): outcome.cost}), "cost": outcome.cost, "attempt": attempt,
            "worker": worker, "name": self.name, **self._run_values(key),
        }  # fmt: skip

        def work(db: sa.Connection) -> bool:
            if not self._is_postgres:
                db.execute(self._text(count), values)
            return db.execute(query, values).rowcount == 1

        return self._transact(work, autocommit=True)

    def charge(self, key: str, attempt: int, cost: int) -> None:
        """Record the cost of an attempt, and nothing else."""

        def work(db: sa.Connection) -> None:
            row = self._lock_run(db, key)
            if row is not None:
                self._set_cost(db, row, attempt, cost)

        self._transact(work)

    def put_back(
        self, claim: Claim, *, cost: int | None, error: str, resumes: bool, lost: bool
    ) -> int | None:
        """Put a run back to waiting for its next attempt. Return its next delivery; None if the claim is outdated.

        If others have marked the run unknown meanwhile and its cost is known, it fails: nothing is left to decide.
        """

        def work(db: sa.Connection) -> int | None:
            row = self._lock_run(db, claim.key)
            if row is None:
                return None
            self._set_cost(db, row, claim.attempt, cost)
            if cost is not None and (row.state, row.attempt) == ("unknown", claim.attempt):
                self._end_run(db, claim.key, "failed", "", error)
                return None
            if (row.state, row.attempt, row.worker) != ("running", claim.attempt, claim.worker):
                return None
            return self._release(db, claim.key, resumes=resumes, error=error, lost=lost, given_up=False)

        return self._transact(work)

    # --- lost workers ---

    def mark_lost(self, row: RunRow, *, hold: bool, resumes: bool, error: str) -> int | None:
        """Record that the worker of a running run was lost. Return the next delivery; None if the run is held."""

        def work(db: sa.Connection) -> int | None:
            current = self._lock_run(db, row.key)
            if current is None or (current.state, current.attempt, current.worker) != (
                "running",
                row.attempt,
                row.worker,
            ):
                return None
            if hold:
                self._end_run(db, row.key, "unknown", "", error)
                return None
            lost = bool(row.booking)
            return self._release(db, row.key, resumes=resumes, error=error, lost=lost, given_up=True)

        return self._transact(work)

    def redeliver(self, key: str, delivery: int) -> int | None:
        """Give a waiting run a new delivery to replace a lost one. None if it was replaced already."""

        def work(db: sa.Connection) -> int | None:
            changed = self._update_run(
                db,
                "delivery = delivery + 1",
                "state = 'waiting' AND delivery = :delivery",
                **self._run_values(key),
                delivery=delivery,
            )
            return delivery + 1 if changed else None

        return self._transact(work)

    # --- leases ---

    def add_worker(self, worker: str, executor: str, process: str, machine: str) -> None:
        """Record a new worker."""
        self._transact(
            lambda db: db.execute(
                sa.text(
                    "INSERT INTO toolwire_workers (id, uid, executor, process, machine, started)"
                    " VALUES (:id, :uid, :executor, :process, :machine, :now) ON CONFLICT (id) DO NOTHING"
                ),
                {
                    "id": worker,
                    "uid": self.uid,
                    "executor": executor,
                    "process": process,
                    "machine": machine,
                    "now": self._clock(),
                },
            )
        )

    def heartbeat(self, worker: str) -> bool:
        """Renew the lease of a worker. False if it was revoked. Does not retry if the database is unreachable."""
        query = sa.text("UPDATE toolwire_workers SET beat = beat + 1 WHERE id = :id AND gone = 0")
        # No transaction in Postgres: while a worker is suspended in one, its own lock keeps it from being revoked.
        with self._autocommit.begin() as db:
            return db.execute(query, {"id": worker}).rowcount == 1

    def workers(self) -> list[dict[str, Any]]:
        """List the workers, including those whose lease was revoked."""
        query = sa.text(
            "SELECT id, executor, process, machine, beat, gone FROM toolwire_workers WHERE uid = :uid"
        )
        return self._transact(
            lambda db: [dict(each) for each in db.execute(query, {"uid": self.uid}).mappings()]
        )

    def revoke_lease(self, worker: str, beat: int) -> bool:
        """Revoke the lease of a worker whose last heartbeat is number `beat`. False if it has sent another one."""
        lock = sa.text("SELECT 1 FROM toolwire_workers WHERE id = :id FOR UPDATE")
        query = sa.text("UPDATE toolwire_workers SET gone = 1 WHERE id = :id AND beat = :beat")

        def work(db: sa.Connection) -> bool:
            if self._is_postgres:  # waits for a run the worker is just starting; the UPDATE alone would not
                db.execute(lock, {"id": worker})
            return db.execute(query, {"id": worker, "beat": beat}).rowcount == 1

        return self._transact(work)

    def remove_worker(self, worker: str) -> None:
        """Remove a worker that has no runs left."""
        query = sa.text("DELETE FROM toolwire_workers WHERE id = :id")
        self._transact(lambda db: db.execute(query, {"id": worker}))

    # --- decisions of the user ---

    def cancel(self) -> list[tuple[str, int]]:
        """Cancel the batch, so that no run starts. Return the runs that were waiting, with their deliveries."""

        def work(db: sa.Connection) -> list[tuple[str, int]]:
            # This comes first: a worker that starts a run concurrently checks it again before it starts the CLI.
            db.execute(
                sa.text("UPDATE toolwire_batches SET cancelled = 1 WHERE name = :name"), {"name": self.name}
            )
            query = sa.text("SELECT key, delivery FROM toolwire_runs WHERE uid = :uid AND state = 'waiting'")
            waiting = [(row.key, row.delivery) for row in db.execute(query, {"uid": self.uid})]
            if waiting:
                last = self._advance_counter(db, "finished", len(waiting))
                db.execute(
                    sa.text(
                        f"UPDATE toolwire_runs SET state = 'cancelled', error = '{_CANCELLED}',"  # noqa: S608
                        " finished = :finished, changed = :now"
                        " WHERE uid = :uid AND key = :key AND state = 'waiting'"
                    ),
                    [
                        {"finished": finished, **self._run_values(key)}
                        for finished, (key, _) in enumerate(waiting, last - len(waiting) + 1)
                    ],
                )
            return waiting

        return self._transact(work)

    def is_cancelled(self) -> bool:
        """True if the batch was cancelled, and nothing has been added or retried since."""
        query, values = self._text(_IS_CANCELLED), {"name": self.name}
        return self._transact(lambda db: bool(db.execute(query, values).scalar()), autocommit=True)

    def clear_cancelled(self) -> None:
        """Let runs start again after the batch was cancelled."""
        self._transact(lambda db: db.execute(self._text(_CLEAR_CANCELLED), {"name": self.name}))

    def retry(self, states: Sequence[State], keys: Sequence[str] | None = None) -> list[tuple[str, int]]:
        """Set ended runs to waiting again. Return their keys and new deliveries."""

        def work(db: sa.Connection) -> list[tuple[str, int]]:
            query = "SELECT key, delivery FROM toolwire_runs WHERE uid = :uid AND state IN :states"
            binds: list[sa.BindParameter[Any]] = [sa.bindparam("states", expanding=True)]
            values: dict[str, Any] = {"uid": self.uid, "states": list(states)}
            if keys is not None:
                query += " AND key IN :keys"
                binds.append(sa.bindparam("keys", expanding=True))
                values["keys"] = list(keys)
            found = [(row.key, row.delivery) for row in db.execute(sa.text(query).bindparams(*binds), values)]
            if found:
                db.execute(
                    sa.text(
                        "UPDATE toolwire_runs SET state = 'waiting', delivery = delivery + 1, resumes = 0,"
                        " lost = 0, error = '', result = '', finished = 0, changed = :now"
                        " WHERE uid = :uid AND key = :key"
                    ),
                    [self._run_values(key) for key, _ in found],
                )
            return [(key, delivery + 1) for key, delivery in found]

        return self._transact(work)

    def resolve(self, key: str, costs: dict[int, int], error: str) -> bool:
        """Record the costs that a person gives for the attempts of an unknown run. False if it is not unknown."""

        def work(db: sa.Connection) -> bool:
            row = self._lock_run(db, key)
            if row is None:
                return False
            known = {**json.loads(row.costs), **{str(attempt): cost for attempt, cost in costs.items()}}
            self._write_costs(db, key, known)
            if row.state != "unknown":
                return False
            self._end_run(db, key, "failed", "", error)
            return True

        return self._transact(work)

    # --- reading ---

    def get(self, key: str) -> RunRow | None:
        """Return one run; None if it does not exist."""
        found = self._transact(lambda db: self._rows(db, "key = :key", key=key))
        return found[0] if found else None

    def costs_of(self, key: str) -> dict[int, int]:
        """Return the recorded costs of the attempts of a run, by the number of the attempt."""
        query = self._text("SELECT costs FROM toolwire_runs WHERE uid = :uid AND key = :key")
        values = {"uid": self.uid, "key": key}
        text = self._transact(lambda db: db.execute(query, values).scalar(), autocommit=True)
        return {int(attempt): cost for attempt, cost in json.loads(text or "{}").items()}

    def running_of_worker(self, worker: str) -> list[RunRow]:
        """List the running runs of a worker."""
        return self._transact(
            lambda db: self._rows(db, "state = 'running' AND worker = :worker", worker=worker)
        )

    def in_state(self, state: State, after: int = 0, limit: int = _CHUNK) -> list[tuple[int, RunRow]]:
        """List a page of the runs in a state, with their numbers, in the order in which they were added."""

        def work(db: sa.Connection) -> list[tuple[int, RunRow]]:
            return self._rows(
                db, "state = :state AND number > :after ORDER BY number LIMIT :limit", numbered=True,
                state=state, after=after, limit=limit,
            )  # fmt: skip

        return self._transact(work)

    def ended_after(self, finished: int, limit: int = _CHUNK) -> list[RunRow]:
        """List a page of the runs that ended after number `finished`, in the order in which they ended."""
        where = "finished > :finished ORDER BY finished LIMIT :limit"
        return self._transact(lambda db: self._rows(db, where, finished=finished, limit=limit))

    def has_open(self) -> bool:
        """True if any run is waiting or running."""
        query = sa.text(
            "SELECT 1 FROM toolwire_runs WHERE uid = :uid AND state IN ('waiting', 'running') LIMIT 1"
        )
        return self._transact(lambda db: db.execute(query, {"uid": self.uid}).first() is not None)

    def counts(self) -> dict[str, Any]:
        """Return the number of runs by state, and the number of workers."""

        def work(db: sa.Connection) -> dict[str, Any]:
            query = sa.text(
                "SELECT state, count(*) AS many FROM toolwire_runs WHERE uid = :uid GROUP BY state"
            )
            found: dict[str, Any] = {row.state: row.many for row in db.execute(query, {"uid": self.uid})}
            alive = sa.text("SELECT count(*) FROM toolwire_workers WHERE uid = :uid AND gone = 0")
            found["workers"] = db.execute(alive, {"uid": self.uid}).scalar_one()
            return found

        return self._transact(work)

    # --- inside a transaction ---

    def _lock_run(self, db: sa.Connection, key: str) -> Any:
        lock = " FOR UPDATE" if self._is_postgres else ""
        query = sa.text(f"SELECT * FROM toolwire_runs WHERE uid = :uid AND key = :key{lock}")  # noqa: S608
        return db.execute(query, {"uid": self.uid, "key": key}).one_or_none()

    def _advance_counter(self, db: sa.Connection, column: str, many: int) -> int:
        """Advance a counter of the batch. Its row stays locked, so that numbers become visible in order."""
        query = sa.text(
            f"UPDATE toolwire_batches SET {column} = {column} + :many WHERE name = :name RETURNING {column}"  # noqa: S608
        )
        return int(db.execute(query, {"name": self.name, "many": many}).scalar_one())

    def _end_run(self, db: sa.Connection, key: str, state: State, result: str, error: str) -> None:
        db.execute(
            sa.text(
                "UPDATE toolwire_runs SET state = :state, result = :result, error = :error, finished = :finished,"
                " changed = :now WHERE uid = :uid AND key = :key"
            ),
            {
                "state": state,
                "result": result,
                "error": storable(error),
                "finished": self._advance_counter(db, "finished", 1),
                **self._run_values(key),
            },
        )

    def _set_cost(self, db: sa.Connection, row: Any, attempt: int, cost: int | None) -> None:
        """Record the cost of an attempt. Idempotent."""
        costs = json.loads(row.costs)
        if cost is not None and costs.get(str(attempt)) != cost:
            self._write_costs(db, row.key, {**costs, str(attempt): cost})

    def _write_costs(self, db: sa.Connection, key: str, costs: dict[str, int]) -> None:
        self._update_run(
            db, "costs = :costs, cost = :cost", "1 = 1",
            **self._run_values(key), costs=json.dumps(costs), cost=sum(costs.values()),
        )  # fmt: skip

    def _release(
        self, db: sa.Connection, key: str, *, resumes: bool, error: str, lost: bool, given_up: bool
    ) -> int | None:
        """Set a running run, whose row is locked, to waiting; return its next delivery. Ends it after `cancel`."""
        # A concurrent `cancel` waits for this lock, and then finds the run waiting.
        lock = " FOR UPDATE" if self._is_postgres else ""
        if db.execute(self._text(_IS_CANCELLED + lock), {"name": self.name}).scalar():
            self._end_run(db, key, "cancelled", "", error or _CANCELLED)
            return None
        query = sa.text(
            "UPDATE toolwire_runs SET state = 'waiting', delivery = delivery + 1, lost = lost + :lost,"
            " booking = '', resumes = :resumes, error = :error, given_up = :given_up, changed = :now"
            " WHERE uid = :uid AND key = :key RETURNING delivery"
        )
        values: dict[str, Any] = {"lost": int(lost), "resumes": int(resumes), "given_up": int(given_up)}
        values |= {"error": storable(error), **self._run_values(key)}
        return int(db.execute(query, values).scalar_one())

    def _update_run(self, db: sa.Connection, what: str, condition: str, **values: Any) -> bool:
        query = (
            f"UPDATE toolwire_runs SET {what}, changed = :now WHERE uid = :uid AND key = :key AND {condition}"  # noqa: S608
        )
        return db.execute(sa.text(query), values).rowcount == 1

    def _rows(self, db: sa.Connection, where: str, *, numbered: bool = False, **values: Any) -> list[Any]:
        query = sa.text(f"SELECT number, {_COLUMNS} FROM toolwire_runs WHERE uid = :uid AND {where}")  # noqa: S608
        found = db.execute(query, {"uid": self.uid, **values}).all()
        return [(row[0], RunRow(*row[1:])) if numbered else RunRow(*row[1:]) for row in found]

    def _run_values(self, key: str) -> dict[str, Any]:
        return {"uid": self.uid, "key": key, "now": self._clock()}

    def _attempt_values(self, claim: Claim) -> dict[str, Any]:
        return {**self._run_values(claim.key), "attempt": claim.attempt, "token": claim.token}

    @staticmethod
    @functools.cache
    def _text(query: str) -> sa.TextClause:
        """Return a cached statement, for those used in every run: parsing takes longer than executing."""
        return sa.text(query)

    def _transact(
        self,
        work: Callable[[sa.Connection], T],
        *,
        durable: bool = True,
        autocommit: bool = False,
        patience: float | None = None,
    ) -> T:
        """Run a transaction, and retry it if the database is unreachable or busy; `work` must be repeatable.

        Without `durable` the change survives a killed process, but may be undone by a power cut.
        With `autocommit`, for a `work` of a single statement, Postgres needs no round trips for BEGIN and COMMIT.
        """

        def attempt() -> T:
            with self._write_lock, (self._autocommit if autocommit else self._engine).connect() as db:
                if not self._is_postgres:
                    mode = "FULL" if durable else "NORMAL"
                    db.connection.driver_connection.execute(f"PRAGMA synchronous={mode}")  # type: ignore[union-attr]
                with db.begin():
                    return work(db)

        patience = self._patience if patience is None else patience
        return call_with_retries(attempt, self._closing, patience, self._file)


def call_with_retries(
    act: Callable[[], T], closing: threading.Event, patience: float = _PATIENCE, file: str | None = None
) -> T:
    """Call `act`, and retry while its database is unreachable or busy, until `closing` is set.

    `file` is the database in messages, if it is one of SQLite, which does not name it.
    """
    began = time.monotonic()
    warned: float | None = None
    for pause in _pauses():
        try:
            return act()
        except DBAPIError as error:
            if not _is_transient(error):
                raise BatchError(f"the database of the batch failed: {_summarize(error, file)}") from error
            now = time.monotonic()
            if now > began + patience or closing.wait(pause):
                raise BatchError(
                    f"the database of the batch cannot be used, after {now - began:.0f} seconds of retries:"
                    f" {_summarize(error, file)}"
                ) from error
            if warned is None or now > warned + _REPEAT:
                logger.warning(
                    "the database of the batch cannot be used, retrying: %s", _summarize(error, file)
                )
                warned = now
    raise AssertionError("pauses have no end")


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _is_transient(error: DBAPIError) -> bool:
    """True if the same call may succeed later: the server is down, its disk is full, or others hold a lock."""
    code = getattr(error.orig, "sqlstate", None)
    if isinstance(error, OperationalError | InterfaceError) and code is None:
        text = str(error.orig)
        return "sqlite" not in type(error.orig).__module__ or any(each in text for each in _SQLITE_TRANSIENT)
    return (
        str(code) in _TRANSIENT_CODES or str(code)[:2] in _POSTGRES_TRANSIENT or error.connection_invalidated
    )


def _summarize(error: DBAPIError, file: str | None) -> str:
    text = " ".join(str(error.orig).split())[:300]
    return text if file is None else f"{file}: {text}"


def make_engine(url: str) -> sa.Engine:
    """Return an SQLAlchemy engine for a SQLite or Postgres URL."""
    if url.startswith("sqlite"):
        engine = sa.create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # transactions begin below, with the write lock
            for pragma in ("busy_timeout=30000", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}").close()
            _use_wal(connection)

        @event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine
    # No ping before each use: a lost connection fails when used, and `call_with_retries` takes another one.
    # The pool holds as many connections as a worker uses at once; more are opened each time, which is slow.
    address = complete_address(url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(address, pool_size=16, max_overflow=30, pool_timeout=60)

    @event.listens_for(engine, "connect")
    def limit(connection: Any, _record: Any) -> None:
        # A process that is suspended or cut off in a transaction must not keep its locks.
        connection.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_SECONDS * 1000}")
        connection.commit()

    return engine


def complete_address(url: str) -> sa.URL:
    """Return the address of a Postgres database, with time limits, and UTF-8 whatever the role has set."""
    try:
        address = sa.make_url(url)
    except (ValueError, sa.exc.ArgumentError):
        # Its text shows what follows the last colon, which may be a part of the password.
        raise BatchError(
            "the postgresql:// address cannot be read: it must be postgresql://user:password@host:port/database,"
            " with a number as the port, and %40, %3A and %2F for @, : and / in the password"
        ) from None
    return address.set(query={**CONNECTION, **address.query, "client_encoding": "utf8"})


def _use_wal(connection: Any) -> None:
    """Switch a SQLite file to WAL mode, so that others can read during a write. The file keeps the setting."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode=WAL").close()


def chunks(items: Iterable[T], size: int = _CHUNK) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    chunk: list[T] = []
    for item in items:
        chunk.append(item)
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
