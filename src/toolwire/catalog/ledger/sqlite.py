"""The ledger in a SQLite file that any number of threads and processes of this machine book in.

Owns the file, its connection and its transactions, and that owners are processes of this machine (`process_owner`).
The rules are those of `sql_ledger`.

A durable transaction (`synchronous=FULL`) is on the disk before the next step. One that is not (NORMAL, in WAL
mode) survives a killed process, but not a power cut. So money must be durable when it is reserved, and whatever
takes more or forbids something must be too. What only gives money back may be lost: after the power cut its call is
still `sent`, becomes unknown, and its money stays reserved until a person says what became of it.
"""

import contextlib
import ctypes
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final, NoReturn

from toolwire.catalog.ledger import schema
from toolwire.catalog.ledger.process_owner import owner_alive, this_process
from toolwire.catalog.ledger.queries import Statement
from toolwire.catalog.ledger.sql_ledger import SqlLedger
from toolwire.catalog.ledger.transactions import Database, Group, Transaction
from toolwire.catalog.ledger.types import Row, Unavailable
from toolwire.errors import CatalogError

MEMORY: Final = ":memory:"
_OLDEST: Final = (3, 37, 0)  # STRICT tables
_PAUSE: Final = 0.005

# Primary result code -> what to say. The rest of the sentence is the same for all.
_SAYS: Final = {
    sqlite3.SQLITE_BUSY: "is locked by another process for too long",
    sqlite3.SQLITE_LOCKED: "is locked by another process for too long",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_READONLY: "cannot be written: the file or its folder is read-only",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or no ledger of toolwire",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk failed or is full",
    sqlite3.SQLITE_PERM: "may not be opened",
}


class SqliteLedger(SqlLedger):
    """A `Ledger` in a SQLite file, or in memory with the path `:memory:`.

    `owner` tells whose a reservation is (default: this process), `alive` whether an owner still runs; `clock` gives
    seconds since 1970. What is locked by another process is waited for, `patience` seconds at most.
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
        """Do nothing: a process of this machine is seen to live. Returns infinity."""
        return math.inf

    def _expect(self, _db: Transaction, _statements: Sequence[Statement]) -> None:
        """Do nothing: each question is answered by this process itself."""

    def _now(self, _db: Transaction) -> float:
        return self._clock()

    def _is_alive(self, _db: Transaction, owner: str) -> bool:
        return self._alive(owner)

    def _check_owner(self, _db: Transaction, _row: Row | None = None) -> None:
        """Allow all: who runs this lives."""


class _Files:
    """The files that a database has open, by device and inode; the first one is the database itself.

    Connections of one process to the same file share the log's index inside SQLite, whatever is on the disk since.
    So they share what was found when the first one was opened, and one that comes later finds a change too.
    """

    _of_process: ClassVar[dict[tuple[int, int], "_Files"]] = {}
    _lock: ClassVar = threading.Lock()

    def __init__(self, opened: dict[str, tuple[int, int]]) -> None:
        self.opened = opened
        self.users = 0

    @classmethod
    def join(cls, found: dict[str, tuple[int, int]]) -> "_Files":
        """Return the files that this process has open already, or these if it has none."""
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
    """One connection, for all threads of a process, one at a time."""

    def __init__(self, path: str | os.PathLike[str], patience: float, create: bool) -> None:
        super().__init__(MEMORY if os.fspath(path) == MEMORY else str(Path(path).absolute()), patience)
        self._durable: bool | None = None
        self._files = _Files({})
        if sqlite3.sqlite_version_info < _OLDEST:
            raise CatalogError(
                f"a ledger needs SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}"
            )
        # SQLite puts its other files beside the one that links lead to.
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
        """Close the file. Twice is fine."""
        with self._turn():
            if self._others_have_another_log():
                # The last one to close a file copies the log into it: here the wrong one, over what others booked.
                # So the connection stays open until the process ends, and then nothing is copied.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            else:
                self._disconnect()

    @contextlib.contextmanager
    def writing(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a transaction that nobody else can write beside. Undone if anything is raised in it."""
        if (group := self._own_group()) is not None:
            with self._step(group, durable) as connection:
                yield connection
            return
        with self._turn(), self._failures():
            try:
                self._start(durable)
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._roll_back()

    @contextlib.contextmanager
    def reading(self, *, current: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction that sees one state of the ledger; `current`: of the files that are in place now."""
        if (group := self._own_group()) is not None and self._connection.in_transaction:
            with self._failures():
                yield self._connection
            return
        with contextlib.nullcontext() if group is not None else self._turn(), self._failures():
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
        """Commit what this thread writes inside at once, at the end, with one wait for the disk.

        Each transaction inside that raises is undone alone. If the commit fails, or anything gets out of the block,
        nothing is booked, but for what need not be durable and came before the first that must: it was committed
        when that began. Other threads wait.
        """
        self._check_not_grouped()
        with self._turn():
            self._group = group = Group(self._connection)
            try:
                yield
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
        says = _SAYS.get(code & 0xFF, "cannot be used") if isinstance(code, int) else "cannot be used"
        raise Unavailable(
            f"the ledger {self.path} {says} ({reason}); no paid call goes out without it"
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
                    # How durable a transaction is can only be said before it begins.
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
            if not connection.in_transaction:  # a full disk, for one, undoes all of it
                group.error = error
            raise

    def _start(self, durable: bool) -> None:
        """Begin a transaction that nobody else can write beside."""
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

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn failures of the database into `CatalogError`."""
        try:
            yield
        except sqlite3.Error as error:
            self.refuse(error)
        except UnicodeEncodeError as error:  # half a surrogate pair, which JSON lets through
            raise CatalogError(f"a value to be booked is not valid text: {error.object!r}") from error

    def _check_files(self) -> None:
        """Raise unless the files are those that were opened.

        SQLite would go on in files that no other process finds any more, each with a budget of its own.
        """
        for path, opened in self._files.opened.items():
            if self._identify(path) != opened:
                raise CatalogError(
                    f"{path}, a file of the ledger, was moved, deleted or replaced while the ledger was in use, so"
                    " others may spend the same money: nothing is bought. Stop all that uses this ledger, check it"
                    " with toolwire catalog spend, and start again"
                )

    def _identify(self, path: str) -> tuple[int, int]:
        """Return which file is at a path now; zeros if there is none."""
        try:
            found = os.stat(path)  # noqa: PTH116 - in every transaction, three times
        except FileNotFoundError:
            return (0, 0)
        except OSError as error:
            self.refuse(error)
        return found.st_dev, found.st_ino

    def _make_file(self, create: bool) -> None:
        """Make the file before SQLite does: for its owner only. SQLite gives the files beside it the same mode."""
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
        """Raise if the log beside the file was deleted while another process books in it.

        Those bookings are not in the file yet, so a budget would have their money again. Only a file that nobody
        has open is without a log; one that is just being opened gets it soon.
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
                            return  # opening it says what is wrong
                    else:
                        return
                if time.monotonic() > deadline:
                    raise CatalogError(
                        f"the ledger {self.path} is used by another process, but {self._log} is missing: it was"
                        " deleted while in use, and has the last calls in it. Stop all that uses this ledger, which"
                        " saves them if it still can, and start again"
                    )
                time.sleep(_PAUSE)

    def _others_have_another_log(self) -> bool:
        """True if the log or its index was replaced: other processes may then book in files that are not ours."""
        paths = self._files.opened
        return (
            self.path in paths
            and self._identify(self.path) == paths[self.path]
            and os.path.exists(self._log)  # noqa: PTH110 - if it is only gone, this process has the last calls
            and any(self._identify(path) != opened for path, opened in paths.items())
        )

    def _use_wal(self) -> None:
        """Turn to WAL. Two processes that do so at once are not made to wait by SQLite, so this waits."""
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
