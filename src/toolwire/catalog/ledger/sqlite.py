"""The ledger in a SQLite file, for any number of threads and processes on this machine.

Owns the file, its connection and its transactions. Owners are processes on this machine (`process_owner`). The
rules are those of `sql_ledger`.

A durable transaction (`synchronous=FULL`) is on the disk before the next step. One that is not (NORMAL, in WAL
mode) survives a killed process, but not a power cut. So reserving money must be durable, and so must every change
that takes more money or forbids something. A change that only releases money may be lost: after the power cut its
call is still `sent`, becomes unknown, and its money stays reserved until a user reconciles it.
"""

import contextlib
import ctypes
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final, NoReturn

from toolwire.catalog.ledger import schema
from toolwire.catalog.ledger.process_owner import owner_alive, this_process
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.transactions import Database, Group, Transaction
from toolwire.catalog.ledger.types import Limits, Order, Row, Unavailable
from toolwire.errors import CatalogError

MEMORY: Final = ":memory:"
_OLDEST: Final = (3, 37, 0)  # STRICT tables
_PAUSE: Final = 0.005

# Primary result code -> the middle of the error message.
_MESSAGES: Final = {
    sqlite3.SQLITE_BUSY: "was locked by another process for too long",
    sqlite3.SQLITE_LOCKED: "was locked by another process for too long",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_READONLY: "cannot be written: the file or its folder is read-only",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or is not a toolwire ledger",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk failed or is full",
    sqlite3.SQLITE_PERM: "may not be opened",
}


class SqliteLedger(Ledger):
    """A `Ledger` in a SQLite file, or in memory with the path `:memory:`.

    `owner` is the name under which this process books (default: derived from the process). `alive` returns
    whether an owner still runs. `clock` returns seconds since 1970. Waits at most `patience` seconds for a lock
    of another process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        owner: str | None = None,
        alive: Callable[[str], bool] = owner_alive,
        patience: float = 10.0,
        create: bool = True,
    ) -> None:
        super().__init__(SqliteDatabase(path, patience, create))
        self.lease, self.remote = math.inf, False
        self.owner = this_process() if owner is None else owner
        self._clock = clock
        self._alive = alive

    def beat(self) -> float:
        """Return infinity: processes on this machine are observed directly, so no heartbeat is needed."""
        return math.inf

    def _expect(self, _db: Transaction, _order: Order, _limits: Limits) -> None:
        """Do nothing: there are no round trips to save."""

    def _now(self, _db: Transaction) -> float:
        return self._clock()

    def _is_alive(self, _db: Transaction, owner: str) -> bool:
        return self._alive(owner)

    def _check_owner(self, _db: Transaction, _row: Row | None = None) -> None:
        """Do nothing: the process that runs this is alive."""


class _Files:
    """The files that a database has open, by device and inode; the first one is the database itself.

    Connections of one process to the same file share the index of the log inside SQLite, even if the files on disk
    were replaced. So they share the identities found when the first one was opened, and a later one detects a
    replacement too.
    """

    _of_process: ClassVar[dict[tuple[int, int], "_Files"]] = {}
    _lock: ClassVar = threading.Lock()

    def __init__(self, opened: dict[str, tuple[int, int]]) -> None:
        self.opened = opened
        self.users = 0

    @classmethod
    def join(cls, found: dict[str, tuple[int, int]]) -> "_Files":
        """Return the files that this process already has open; these, if it has none."""
        with cls._lock:
            files = cls._of_process.setdefault(next(iter(found.values())), cls(found))
            files.users += 1
            return files

    def leave(self) -> None:
        """Forget the files once the last connection to them is closed."""
        with self._lock:
            self.users -= 1
            if self.users == 0 and self.opened:
                del self._of_process[next(iter(self.opened.values()))]


class SqliteDatabase(Database):
    """One connection, which the threads of a process use one at a time."""

    failure = sqlite3.Error

    def __init__(self, path: str | os.PathLike[str], patience: float, create: bool) -> None:
        super().__init__(MEMORY if os.fspath(path) == MEMORY else str(Path(path).absolute()), patience)
        self._durable: bool | None = None
        self._files = _Files({})
        if sqlite3.sqlite_version_info < _OLDEST:
            raise CatalogError(
                f"a ledger needs SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}"
            )
        # SQLite puts its other files beside the target of symbolic links.
        self._log, self._index = (os.path.realpath(self.path) + end for end in ("-wal", "-shm"))
        if self.path != MEMORY:
            self._make_file(create)
            self._check_log()
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            self.refuse(error)
        try:
            self._prepare()
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._turn():
            if self._others_have_another_log():
                # The last connection to close a file copies the log into it: here the wrong log, which would
                # overwrite what others booked. So this one stays open until the process ends, when nothing is
                # copied.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            else:
                self._disconnect()

    @contextlib.contextmanager
    def writing(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a transaction during which nobody else can write. Rolled back if anything is raised in it."""
        if (group := self._own_group()) is not None:
            with self._step(group, durable) as connection:
                yield connection
            return
        with self._turn():
            try:
                self._start(durable)
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._roll_back()

    @contextlib.contextmanager
    def reading(self, *, current: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction that sees one state of the ledger; `current`: raise if the files were replaced."""
        if (group := self._own_group()) is not None and self._connection.in_transaction:
            with self._failures():
                yield self._connection
            return
        with self._failures() if group is not None else self._turn():
            try:
                self._connection.execute("BEGIN")
                if current:
                    self._check_files()
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._roll_back()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Commit everything that this thread writes inside at the end, with one wait for the disk.

        A transaction inside that raises is rolled back alone. If the commit fails, or an exception leaves the
        block, nothing is booked, except changes that need not be durable and precede the first durable one: they
        were committed when that began. Other threads wait.
        """
        self._check_not_grouped()
        with self._locked():
            self._group = group = Group(self._connection)
            try:
                yield  # the caller's own exceptions are left alone
                group.check()
                if self._connection.in_transaction:
                    with self._failures():
                        self._connection.execute("COMMIT")
            finally:
                self._group = None
                with self._failures():
                    self._roll_back()

    def refuse(self, error: sqlite3.Error | OSError) -> NoReturn:
        """Raise a `CatalogError` for a failure of the file."""
        # The low byte is the kind of failure. Errors of the module itself ("closed database") have no code.
        code = getattr(error, "sqlite_errorcode", None)
        reason = getattr(error, "strerror", None) or str(error)
        problem = _MESSAGES.get(code & 0xFF, "cannot be used") if isinstance(code, int) else "cannot be used"
        raise Unavailable(
            f"the ledger {self.path} {problem} ({reason}); no paid call is sent without it"
        ) from error

    def _disconnect(self) -> None:
        self._connection.close()
        files, self._files = self._files, _Files({})
        files.leave()

    @contextlib.contextmanager
    def _step(self, group: Group, durable: bool) -> Iterator[sqlite3.Connection]:
        """Run one transaction of a group."""
        group.check()
        connection = self._connection
        try:
            with self._failures():
                if durable and not group.durable and connection.in_transaction:
                    # Durability can only be set before a transaction begins.
                    connection.execute("COMMIT")
                if not connection.in_transaction:
                    self._start(durable)
                    group.durable = durable
                connection.execute("SAVEPOINT step")
        except CatalogError as error:
            group.error = error
            raise
        try:
            with self._failures():
                try:
                    yield connection
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK TO step")
                    raise
                finally:
                    if connection.in_transaction:
                        connection.execute("RELEASE step")
        except CatalogError as error:
            if not connection.in_transaction:  # a full disk, for example, rolls all of it back
                group.error = error
            raise

    def _start(self, durable: bool) -> None:
        """Begin a transaction during which nobody else can write."""
        if durable is not self._durable and self.path != MEMORY:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._check_files()
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _check_files(self) -> None:
        """Raise if the files are not those that were opened.

        SQLite would continue in files that no other process can find, with a separate budget.
        """
        for path, opened in self._files.opened.items():
            if self._identify(path) != opened:
                raise CatalogError(
                    f"{path}, a file of the ledger, was moved, deleted or replaced while the ledger was in use, so"
                    " others may spend the same money: nothing is bought. Stop everything that uses this ledger,"
                    " check it with toolwire catalog spend, and start again"
                )

    def _identify(self, path: str) -> tuple[int, int]:
        """Return device and inode of the file at a path; zeros if there is no file."""
        try:
            found = os.stat(path)  # noqa: PTH116 - faster; called three times per transaction
        except FileNotFoundError:
            return (0, 0)
        except OSError as error:
            self.refuse(error)
        return found.st_dev, found.st_ino

    def _make_file(self, create: bool) -> None:
        """Create the file, readable by its owner only. SQLite gives the files beside it the same mode."""
        place = Path(self.path)
        try:
            if create:
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            if not place.is_file():
                raise CatalogError(f"there is no ledger at {self.path}")
        except OSError as error:
            self.refuse(error)

    def _prepare(self) -> None:
        with self._failures():
            if self.path != MEMORY:
                self._use_wal()
            with self.writing() as connection:
                if self.path != MEMORY:  # SQLite has all its files open now
                    found = {path: self._identify(path) for path in (self.path, self._log, self._index)}
                    self._files = _Files.join(found)
                    self._check_files()
                schema.prepare_sqlite(connection, self.path)

    def _check_log(self) -> None:
        """Raise if the log beside the file was deleted while another process uses the ledger.

        The bookings in the log are not in the file yet, so their money could be spent again. Only a file that
        nobody has open has no log; a file that is just being opened gets one soon.
        """
        deadline = time.monotonic() + self._patience
        with self._failures():
            while not os.path.exists(self._log):  # noqa: PTH110
                with contextlib.closing(sqlite3.connect(self.path, timeout=0.0)) as alone:
                    alone.execute("PRAGMA locking_mode=EXCLUSIVE")
                    try:
                        alone.execute("PRAGMA user_version").fetchone()
                    except sqlite3.Error as error:
                        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                            return  # opening it reports what is wrong
                    else:
                        return
                if time.monotonic() > deadline:
                    raise CatalogError(
                        f"the ledger {self.path} is used by another process, but {self._log} is missing: it was"
                        " deleted while in use, and contains the latest calls. Stop everything that uses this"
                        " ledger, which saves them if that is still possible, and start again"
                    )
                time.sleep(_PAUSE)

    def _others_have_another_log(self) -> bool:
        """True if the log or its index was replaced, so that other processes may use other files than this one."""
        paths = self._files.opened
        return (
            self.path in paths
            and self._identify(self.path) == paths[self.path]
            and os.path.exists(self._log)  # noqa: PTH110 - if it was only deleted, this process has the latest calls
            and any(self._identify(path) != opened for path, opened in paths.items())
        )

    def _use_wal(self) -> None:
        """Switch to WAL mode. SQLite does not wait if two processes do so at once, so this retries."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return
