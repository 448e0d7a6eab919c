"""The ledger in a Postgres database, for any number of processes on any number of machines.

Owns the lease of this process (`PostgresLedger`), connections and transactions (`PostgresDatabase`). The rules are
those of `sql_ledger`.

- An owner is not a process id, which means nothing on another machine, but a unique name. Its row in the database
  holds a lease; a thread renews it by the clock of the database as long as the ledger is open. A process that is
  paused for longer than its lease is dead to the others: they book its open calls as unknown, and orders that it
  had booked before must not be sent any more. It continues under a new name.
- Only one transaction writes at a time, across all processes: each takes the same advisory lock first. A limit
  applies to everything that was ever booked, so finer locks would conflict on the same rows anyway. The
  statements of a transaction see everything that was committed before it.
- Every transaction sets its own durability, timeouts and schema, in the same round trip that begins it. So nothing
  depends on a session, and a connection pooler may be used.
- A transaction writes a mark into the row of its owner. If the connection is lost during a commit, the mark shows,
  under the lock, whether the commit succeeded.
- Nothing waits forever: connections and statements have a time limit here and on the server. A process that is
  suspended while it holds the lock loses it.
"""

import contextlib
import hashlib
import math
import os
import re
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, NoReturn, TypeVar

from toolwire._support.log import logger_for
from toolwire._support.secrets import keep_secret
from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger import schema
from toolwire.catalog.ledger.pricing import Agreed
from toolwire.catalog.ledger.sql_ledger import Ledger, day_of
from toolwire.catalog.ledger.transactions import Database, Group
from toolwire.catalog.ledger.types import Booking, LeaseLost, Limits, Order, Row, Unavailable
from toolwire.errors import CatalogError, UsageError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.types.numeric import Int8Dumper
    from psycopg.waiting import Ready
except ModuleNotFoundError as missing:
    raise UsageError(
        f"a ledger in Postgres needs psycopg ({missing}): pip install 'toolwire[postgres]'"
    ) from missing

logger = logger_for("catalog")

LEASE: Final = 30.0
"""Seconds after which an owner without a heartbeat counts as dead."""
_HEARTBEATS: Final = 6  # per lease
_SHORTEST_LEASE: Final = 0.5
SCHEMA: Final = "toolwire_ledger"
"""The default schema of the tables: a database may contain tables of other programs."""
_OLDEST: Final = 120_000  # for generated columns
_MOST_CONNECTIONS: Final = 4
_MARKS: Final = re.compile(r"\?(\d*)")
_IDLE: Final = psycopg.pq.TransactionStatus.IDLE
_PAUSE: Final = 0.1
_MILLISECONDS: Final = 1000
_SAVEPOINT: Final = "SAVEPOINT step"
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true)"
    " WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
)

_RIGHTS: Final = (
    "may not be used by this role: it needs USAGE on the schema, and SELECT, INSERT, UPDATE, DELETE on its tables;"
    " to create them it needs CREATE on the database"
)
# SQLSTATE, or its class -> the middle of the error message.
_MESSAGES: Final = {
    "25006": "cannot be written: the database is read-only, or a standby",
    "42501": _RIGHTS,
    "3F": _RIGHTS,  # the schema exists, but this role cannot see it
    "28": "rejects this role: check user and password",
    "3D": "is in a database that does not exist",
    "53300": "accepts no more connections",
    "53": "is out of disk or memory",
    "55P03": "was locked by another process for too long",
    "57014": "took too long to respond",
    "57P": "is being shut down or started",
    "25P03": "has closed the connection: this process was suspended for too long inside a booking",
    "22021": "cannot store a text: it has a character that Postgres does not support",
    "54": "cannot store a value: it is too long",
}
_RESULT = TypeVar("_RESULT")


class PostgresLedger(Ledger):
    """A `Ledger` in a Postgres database (`toolwire[postgres]`).

        ledger = PostgresLedger("postgresql://toolwire@db.example/shop")

    The tables are in a `schema` of their own, which is created if it does not exist, unless `create` is False.
    Each step waits at most `patience` seconds. A process without a heartbeat for `lease` seconds counts as dead.
    `owner` is a name that no living process uses (default: a new one). `clock` returns seconds since 1970
    (default: the clock of the database).
    """

    _database: "PostgresDatabase"

    def __init__(
        self,
        url: str,
        *,
        owner: str | None = None,
        lease: float = LEASE,
        patience: float = 10.0,
        create: bool = True,
        schema: str = SCHEMA,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not (math.isfinite(lease) and lease >= _SHORTEST_LEASE):
            raise UsageError(f"a lease must be {_SHORTEST_LEASE:g} seconds or more, got {lease!r}")
        self._clock = clock
        self.lease, self.remote = lease, True
        self.owner = _new_owner() if owner is None else owner
        self._lock = threading.Lock()
        self._registered = False
        self._closing = threading.Event()
        self._heartbeats: threading.Thread | None = None
        super().__init__(
            PostgresDatabase(
                url, schema_name=schema, patience=patience, create=create, owner=self._find_owner
            )
        )

    def close(self) -> None:
        """End the lease and close the connections. May be called twice."""
        self._closing.set()
        if self._registered:
            self._registered = False
            try:
                self._database.unregister(self.owner)
            except CatalogError as error:  # it expires by itself
                logger.warning("the lease of %s could not be ended: %s", self.owner, error)
        super().close()

    def beat(self) -> float:
        """Renew the lease, or begin it. Returns its seconds. Raises `LeaseLost` if it had expired."""
        owner = self.owner
        if self._ensure_lease() or self._database.renew(owner):
            return self.lease
        self._lose(owner)
        raise LeaseLost(_describe_loss(owner))

    def _find_owner(self, writes: bool) -> str:
        """Return the owner name for a transaction. One that writes needs a lease, which is begun if necessary."""
        if writes:
            self._ensure_lease()
        return self.owner

    def _ensure_lease(self) -> bool:
        """Begin the lease of this owner, and renew it from now on. Returns True if it was begun just now."""
        with self._lock:
            if self._registered:
                return False
            if not self._database.register(self.owner, self.lease):
                raise CatalogError(
                    f"another process already uses the owner name {self.owner}: each process needs its own"
                )
            self._registered = True
            if self._heartbeats is None:
                self._heartbeats = threading.Thread(
                    target=self._renew_regularly, name="toolwire lease", daemon=True
                )
                self._heartbeats.start()
            return True

    def _lose(self, owner: str) -> None:
        """Take a new name: others have declared this owner dead."""
        with self._lock:
            if self.owner == owner:
                self.owner = _new_owner()
                self._registered = False
                logger.warning("%s. It continues as %s", _describe_loss(owner), self.owner)

    def _renew_regularly(self) -> None:
        """Renew the lease until the ledger is closed. A failure is retried with the next heartbeat."""
        while not self._closing.wait(self.lease / _HEARTBEATS):
            try:
                self.beat()
            except LeaseLost:
                continue  # it was logged, and the next heartbeat begins a new lease
            except CatalogError as error:
                logger.warning("the lease of %s could not be renewed: %s", self.owner, error)

    def _book(self, db: Any, order: Order, agreed: Agreed, limits: Limits) -> Booking:
        booking = super()._book(db, order, agreed, limits)
        db.on_lost.append(partial(self._release_unsent, booking.id))
        return booking

    def _hold(self, db: Any, order: Order, agreed: Agreed, limits: Limits) -> Booking:
        held = super()._hold(db, order, agreed, limits)
        db.on_lost.append(lambda later: self._drop_held(later, held.id))
        return held

    def _release_unsent(self, id: str, db: "PostgresTransaction") -> None:
        """Release a booked call that was not sent, because its commit was confirmed too late."""
        row = query.row(db, id)
        if row.state in ("sent", "unknown"):  # unknown, if others declared this process dead meanwhile
            self._move(db, row, "released")

    def _expect(self, db: Any, order: Order, limits: Limits) -> None:
        db.prefetch(query.expect_for_begin(order, limits, day_of(self._now(db))))

    def _now(self, db: Any) -> float:
        return float(db.now) if self._clock is None else self._clock()

    def _is_alive(self, db: Any, owner: str) -> bool:
        return owner == self.owner or bool(query.one(db, f"SELECT EXISTS ({_alive('?')})", owner))

    def _check_owner(self, db: Any, row: Row | None = None) -> None:
        owner = self.owner
        if not db.lease:
            self._lose(owner)
        if not db.lease or (row is not None and row.owner != owner):
            # A call that was booked may have been sent before: nobody is told to repeat it.
            end = "nothing was bought, try again" if row is None else "nothing is sent"
            raise LeaseLost(f"{_describe_loss(owner if row is None else row.owner)}: {end}")


def _new_owner() -> str:
    """Return a unique owner name: host and process id, which users recognize, and random digits."""
    host = "".join(each for each in socket.gethostname() if each.isalnum() or each in "-.")
    return f"{host}:{os.getpid()}:{secrets.token_hex(6)}"


def _describe_loss(owner: str) -> str:
    return (
        f"{owner} was paused or disconnected from the ledger for longer than its lease, so it counts as dead"
    )


class _Connection(psycopg.Connection[Any]):
    """A connection on which no statement waits forever."""

    patience: float = 30.0

    def wait(self, gen: Generator[Any, Any, _RESULT], *_: Any, **__: Any) -> _RESULT:
        """Run an operation of psycopg. Closes the connection if the server does not respond in time."""
        deadline = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no response within {self.patience:g} s")
                wanted = gen.send(_wait_for(self.pgconn.socket, wanted, left))
        except StopIteration as end:
            result: _RESULT = end.value
            return result


def _wait_for(descriptor: int, wanted: int, seconds: float) -> Any:
    """Wait until a socket can be read or written, as wanted. Returns which of the two is possible."""
    poll = select.poll()
    poll.register(descriptor, (select.POLLIN * (wanted & 1)) | (select.POLLOUT * (wanted >> 1)))
    found = 0
    for _, events in poll.poll(seconds * _MILLISECONDS):
        found |= Ready.R if events & ~select.POLLOUT and wanted & 1 else 0
        found |= Ready.W if events & ~select.POLLIN and wanted & 2 else 0
    return Ready(found) if found else Ready.NONE


@lru_cache(maxsize=1_000)
def _number_marks(query: str) -> str:
    """Replace the placeholders with those of Postgres: `$1`, `$2`, ..."""
    numbers = count(1)
    return _MARKS.sub(lambda mark: f"${mark[1] or next(numbers)}", query)


@lru_cache(maxsize=1_000)
def _name_marks(query: str) -> str:
    """Replace the placeholders with named ones, which psycopg uses where it quotes values itself."""
    numbers = count(1)
    return _MARKS.sub(lambda mark: f"%(v{mark[1] or next(numbers)})s", query.replace("%", "%%"))


class _Rows:
    """Rows that were already received. `status` is the command tag of their statement, such as `COMMIT`."""

    def __init__(self, rows: Sequence[Any] = (), status: str | None = None) -> None:
        self._rows = iter(rows)
        self.status = status

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        return next(self._rows, None)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class PostgresTransaction:
    """An open transaction. `now` is the server's time when it began.

    While it is open all others wait for the lock, so round trips are saved: statements that change something are
    queued, and sent together with the next query or the commit.
    """

    def __init__(self, connection: _Connection, now: float, lease: bool) -> None:
        self.connection = connection
        self.now = now
        self.lease = lease
        """True if the owner has a lease that has not expired."""
        self.on_lost: list[Callable[[PostgresTransaction], None]] = []
        """Called in a later transaction if this one was committed although its caller was told that it failed."""
        self._queued: list[tuple[str, Sequence[Any]]] = []
        self._known: dict[tuple[str, tuple[Any, ...]], list[Any]] = {}

    def execute(self, query: str, values: Sequence[Any] = (), /) -> Any:
        """Run a statement: a query at once, any other statement together with the next query or the commit."""
        if not query.startswith("SELECT"):
            self._known.clear()
            self._queued.append((query, values))
            return _Rows()
        if (rows := self._known.get((query, tuple(values)))) is not None:
            return _Rows(rows)
        return self.send((query, values))[-1]

    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each row of values, without waiting for each one."""
        self._known.clear()
        self.send()
        self.connection.cursor().executemany(_number_marks(query), [_plain(row) for row in rows])

    def prefetch(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Run several queries in one round trip; the results are kept until something is changed."""
        found = self.send(*queries)
        self._known = {
            (query, tuple(values)): list(rows)
            for (query, values), rows in zip(queries, found[-len(queries) :], strict=True)
        }

    def send(self, *statements: tuple[str, Sequence[Any]]) -> list[_Rows]:
        """Send the queued and these statements in one round trip. Returns the rows of each.

        Several statements are sent as one text with quoted values. (A pipeline of psycopg takes one round trip too,
        but after it the server does not end an idle transaction: a suspended process would keep the lock.)
        """
        sent = [*self._queued, *statements]
        if not sent:
            return []
        if len(sent) == 1:
            ((query, values),) = sent
            self._queued.clear()
            cursor = self.connection.execute(_number_marks(query), _plain(values) or None)
        else:
            quoting = psycopg.ClientCursor(self.connection)
            texts = [_quote_values(quoting, *each) for each in sent]  # raises for a text that cannot be sent
            self._queued.clear()
            cursor = self.connection.execute("; ".join(texts))
        found = []
        for _ in sent:
            found.append(_Rows(cursor.fetchall() if cursor.description else (), cursor.statusmessage))
            cursor.nextset()
        return found

    def is_queued(self, statement: str) -> bool:
        """True if a statement was not sent yet."""
        return any(query == statement for query, _ in self._queued)

    def forget(self) -> None:
        """Drop the queued statements and prefetched results, because of a rollback."""
        self._queued.clear()
        self._known.clear()


def _quote_values(quoting: psycopg.ClientCursor[Any], query: str, values: Sequence[Any]) -> str:
    """Return a statement with quoted values instead of placeholders."""
    return quoting.mogrify(_name_marks(query), {f"v{at}": each for at, each in enumerate(_plain(values), 1)})


def _plain(values: Sequence[Any]) -> list[Any]:
    """Convert booleans to numbers, which the tables contain."""
    return [int(value) if isinstance(value, bool) else value for value in values]


@dataclass(frozen=True)
class _Doubt:
    """A transaction for which it is not known yet whether it was committed."""

    owner: str
    mark: str
    on_lost: Sequence[Callable[[PostgresTransaction], None]]


class PostgresDatabase(Database):
    """Connections to one database, for all threads of a process. Only one of them writes at a time.

    `owner` returns the name of the row in `owners` that a transaction marks. It gets True for a transaction that
    writes, and then registers the row first.
    """

    failure = psycopg.Error

    def __init__(
        self, url: str, *, schema_name: str, patience: float, create: bool, owner: Callable[[bool], str]
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema_name):
            raise UsageError(f"the schema of a ledger must be a plain lower-case name, got {schema_name!r}")
        self._settings, path = _read_url(url, patience)
        super().__init__(path, patience)
        self._schema = schema_name
        digest = hashlib.sha256(f"toolwire {schema_name}".encode()).digest()
        self._take_lock = f"SELECT pg_advisory_xact_lock({int.from_bytes(digest[:8], signed=True)})"
        self._owner = owner
        self._idle: list[_Connection] = []
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._closed = False
        self._doubt: _Doubt | None = None
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # Transactions.

    @contextlib.contextmanager
    def writing(self, durable: bool = True) -> Iterator[PostgresTransaction]:  # noqa: ARG002 - always durable
        """Run a transaction during which no process can write. Rolled back if anything is raised in it."""
        if (group := self._own_group()) is not None:
            with self._step(group):
                yield group.db
            return
        with self._turn(), self._transaction() as db:
            yield db

    @contextlib.contextmanager
    def reading(self, *, current: bool = False) -> Iterator[PostgresTransaction]:  # noqa: ARG002 - always current
        """Run a transaction that sees one state of the ledger: the one that others write to now."""
        if (group := self._own_group()) is not None:
            with self._step(group):
                yield group.db
            return
        with self._failures(), self._connected(self._begin_reading) as db:
            yield db
            db.connection.execute("COMMIT")

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Commit everything that this thread writes inside at the end.

        A transaction inside that raises is rolled back alone. If the commit fails, or an exception leaves the
        block, nothing is booked. Other threads, and other processes that write, wait.
        """
        self._check_not_grouped()
        with self._turn(), self._transaction() as db:
            self._group = group = Group(db)
            try:
                yield
                group.check()
            finally:
                self._group = None

    @contextlib.contextmanager
    def _step(self, group: Group) -> Iterator[None]:
        """Run one transaction of a group."""
        group.check()
        db: PostgresTransaction = group.db
        try:
            with self._failures():
                db.execute(_SAVEPOINT)
                try:
                    yield
                    db.send(("RELEASE step", ()))
                except BaseException:
                    begun = not db.is_queued(_SAVEPOINT)  # otherwise nothing was sent yet
                    db.forget()
                    if begun and not db.connection.closed:
                        db.connection.execute("ROLLBACK TO step; RELEASE step")
                    raise
        except CatalogError as error:
            if db.connection.closed:
                group.error = error
            raise

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[PostgresTransaction]:
        """Run a transaction under the lock, and commit it."""
        self._settle_doubt()
        mark, owner = secrets.token_hex(8), self._owner(True)
        # The lock is taken before the first statement that reads: each statement has its own snapshot, and so sees
        # everything that the last holder of the lock has committed.
        leave_mark = f"UPDATE owners SET mark = {_quote(mark)} WHERE owner = {_quote(owner)}"  # noqa: S608
        begin = partial(self._begin, first=(self._take_lock, leave_mark), owner=owner)
        with self._connected(begin) as db:
            yield db
            try:
                done = db.send(("COMMIT", ()))[-1].status
            except psycopg.Error:
                if not db.connection.closed:
                    raise  # the server refused it
                if not self._was_committed(_Doubt(owner, mark, db.on_lost)):
                    raise
            else:
                if done != "COMMIT":
                    raise CatalogError(
                        f"the ledger {self.path} rolled a booking back because of an error in it"
                    )

    def _begin_reading(self, connection: _Connection) -> PostgresTransaction:
        return self._begin(connection, isolation="REPEATABLE READ READ ONLY", owner=self._owner(False))

    def _begin_locked(self, connection: _Connection) -> PostgresTransaction:
        return self._begin(connection, first=(self._take_lock,))

    def _begin(
        self,
        connection: _Connection,
        *,
        first: Sequence[str] = (),
        isolation: str = "READ COMMITTED",
        owner: str | None = None,
    ) -> PostgresTransaction:
        """Begin a transaction with all its settings in one round trip; `owner` is asked about its lease."""
        lease = "false" if owner is None else f"EXISTS ({_alive(_quote(owner))})"
        limit = int(self._patience * _MILLISECONDS)
        found = connection.execute(
            "; ".join(
                (
                    f"BEGIN ISOLATION LEVEL {isolation}",
                    f"SET LOCAL search_path = {self._schema}",
                    f"SET LOCAL lock_timeout = {limit}",
                    f"SET LOCAL statement_timeout = {limit}",
                    # Less than others wait for the lock: they get it from a process that is suspended.
                    f"SET LOCAL idle_in_transaction_session_timeout = {limit // 2}",
                    _DURABLE,
                    *first,
                    f"SELECT extract(epoch FROM clock_timestamp())::float8, {lease}",  # noqa: S608
                )
            ),
        )
        while found.nextset():
            pass
        return PostgresTransaction(connection, *(found.fetchone() or (0.0, False)))

    def _was_committed(self, doubt: _Doubt) -> bool:
        """Find out whether a transaction was committed whose connection was lost; if that fails, do it later."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with self._connected(self._begin_locked) as db:
                    return _has_mark(db, doubt)
            except psycopg.Error as error:
                if time.monotonic() > deadline:
                    self._doubt = doubt
                    raise Unavailable(
                        f"the connection to the ledger {self.path} was lost during a booking, and it is not known"
                        f" yet whether that succeeded ({self._reason(error)}): nothing is sent for it"
                    ) from error
                time.sleep(_PAUSE)

    def _settle_doubt(self) -> None:
        """Find out whether a transaction in doubt was committed; if so, undo what its caller could not use.

        Uses a transaction of its own: the next one may be refused, and then everything in it is rolled back.
        """
        doubt = self._doubt
        if doubt is None:
            return
        with self._connected(self._begin_locked) as db:
            if _has_mark(db, doubt):
                for act in doubt.on_lost:
                    act(db)
            db.send(("COMMIT", ()))
        self._doubt = None

    # The row of this process.

    def register(self, owner: str, lease: float) -> bool:
        """Insert the row of an owner; False if a living one has that name. Deletes rows that expired a day ago."""
        insert = (
            "INSERT INTO owners (owner, beat, lease)"  # noqa: S608 - a constant
            " VALUES (?1, clock_timestamp(), make_interval(secs => ?2))"
            " ON CONFLICT (owner) DO UPDATE SET beat = clock_timestamp(), lease = excluded.lease"
            f" WHERE NOT EXISTS ({_alive('?1')}) RETURNING 1"
        )
        clean_up = "DELETE FROM owners WHERE beat + lease < clock_timestamp() - interval '1 day'"
        return self._change_owners((clean_up, ()), (insert, (owner, float(lease)))).fetchone() is not None

    def renew(self, owner: str) -> bool:
        """Renew the lease of an owner; False if it has expired."""
        renew = (
            "UPDATE owners SET beat = clock_timestamp()"  # noqa: S608 - a constant
            f" WHERE owner = ?1 AND EXISTS ({_alive('?1')}) RETURNING 1"
        )
        return self._change_owners((renew, (owner,))).fetchone() is not None

    def unregister(self, owner: str) -> None:
        """Delete the row of an owner."""
        self._change_owners(("DELETE FROM owners WHERE owner = ?", (owner,)))

    def _change_owners(self, *statements: tuple[str, Sequence[Any]]) -> Any:
        """Change the rows of owners, which needs no lock. Returns the rows of the last statement."""
        with self._failures(), self._connected(self._begin) as db:
            return db.send(*statements, ("COMMIT", ()))[-2]

    # Connections.

    @contextlib.contextmanager
    def _connected(
        self, begin: Callable[[_Connection], PostgresTransaction]
    ) -> Iterator[PostgresTransaction]:
        """Begin a transaction on a connection that nobody else uses. Rolled back if it is not committed."""
        self._check_process()
        if not self._places.acquire(timeout=self._patience):
            raise Unavailable(
                f"all {_MOST_CONNECTIONS} connections of this process to the ledger {self.path} were in use for too"
                " long; no paid call is sent without it"
            )
        connection = None
        try:
            db = self._begin_on_some(begin)
            connection = db.connection
            yield db
        finally:
            self._places.release()
            if connection is not None:
                self._put_back(connection)

    def _begin_on_some(self, begin: Callable[[_Connection], PostgresTransaction]) -> PostgresTransaction:
        """Begin on an idle connection, or on a new one if the server has closed those."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took it
                connection = self._idle.pop()
                try:
                    return begin(connection)
                except psycopg.Error:
                    if not connection.closed:
                        self._put_back(connection)
                        raise
        connection = self._connect()
        try:
            return begin(connection)
        except BaseException:
            connection.close()
            raise

    def _put_back(self, connection: _Connection) -> None:
        """Return a connection to the idle ones, after ending its transaction."""
        try:
            if not connection.closed and connection.info.transaction_status != _IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:  # the connection is lost, and its transaction with it
            connection.close()
        if self._closed:
            connection.close()
        elif not connection.closed:
            self._idle.append(connection)

    def _connect(self) -> _Connection:
        if self._closed:
            raise CatalogError(f"the ledger {self.path} is closed")
        connection = _Connection.connect(
            **self._settings,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            prepare_threshold=None,  # a pooler gives each transaction another connection, without what was prepared
        )
        connection.patience = 1.5 * self._patience
        connection.adapters.register_dumper(int, Int8Dumper)
        return connection

    def _prepare(self, create: bool) -> None:
        """Create or migrate the tables, under the lock: two processes may start at once."""
        with self._failures(), self._connected(self._begin_locked) as db:
            if db.connection.info.server_version < _OLDEST:
                raise CatalogError(
                    f"a ledger needs Postgres 12 or newer, but {self.path} is {db.connection.info.server_version}"
                )
            encoding = db.execute("SELECT current_setting('server_encoding')").fetchone()[0]
            # The outcome of a call that was sent could not be booked. What exists can be read and reconciled.
            if create and encoding != "UTF8":
                raise CatalogError(
                    f"the encoding of {self.path} is {encoding}, which cannot store every text: a ledger needs a"
                    " database created with ENCODING 'UTF8' (and TEMPLATE template0)"
                )
            exists = db.execute("SELECT to_regnamespace(?)", (self._schema,)).fetchone()[0] is not None
            if not exists and not create:
                raise CatalogError(f"there is no ledger at {self.path}")
            if not exists:
                db.execute(f"CREATE SCHEMA {self._schema}")
            schema.prepare_postgres(db, self.path)
            db.send(("COMMIT", ()))

    # Failures.

    def refuse(self, error: psycopg.Error) -> NoReturn:
        """Raise a `CatalogError` for a failure of the database."""
        state = error.sqlstate or ""
        if isinstance(error, psycopg.DataError) and not state:  # psycopg itself rejects the NUL character
            raise CatalogError(f"a value to be booked is not valid text: {error}") from error
        problem = next((_MESSAGES[state[:size]] for size in (5, 3, 2) if state[:size] in _MESSAGES), "")
        if not problem:
            lost = isinstance(error, psycopg.OperationalError) and not state
            problem = "cannot be reached" if lost else "cannot be used"
        raise Unavailable(
            f"the ledger {self.path} {problem} ({self._reason(error)}); no paid call is sent without it"
        ) from error

    def _reason(self, error: psycopg.Error) -> str:
        """Return the first line of an error, without the password."""
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        password = str(self._settings.get("password") or "")
        return text.replace(password, "***") if password else text


def _has_mark(db: PostgresTransaction, doubt: _Doubt) -> bool:
    """Return whether the last transaction of an owner has this mark. Needs the lock, so that it is over."""
    found = db.execute("SELECT mark FROM owners WHERE owner = ?", (doubt.owner,)).fetchone()
    return found is not None and found[0] == doubt.mark


def _alive(owner: str) -> str:
    """Return a query that finds a row if an owner is alive. Time while the server was down does not count."""
    return (
        f"SELECT 1 FROM owners AS living WHERE living.owner = {owner}"  # noqa: S608 - a mark, or quoted
        " AND greatest(living.beat, pg_postmaster_start_time()) + living.lease > clock_timestamp()"
    )


def _quote(text: str) -> str:
    """Quote a text for the statements that begin a transaction, which have no placeholders."""
    if "\\" in text or "\0" in text:
        raise UsageError(f"the name of an owner must not contain a backslash or NUL, got {text!r}")
    return "'" + text.replace("'", "''") + "'"


def _read_url(url: str, patience: float) -> tuple[dict[str, Any], str]:
    """Return the settings of a connection, and the address for messages, without password and options."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # which may quote the password
        raise UsageError(
            "the address of the ledger is not valid: it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with"
            " special characters in the password as %XX"
        ) from None
    keep_secret([str(given["password"])] if given.get("password") else [])
    settings = {
        "connect_timeout": max(2, int(patience)),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": int(patience * _MILLISECONDS),
        "fallback_application_name": "toolwire",
        **given,
        "client_encoding": "utf8",  # whatever the settings of the role are
    }
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return settings, f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"
