"""The database file of a ledger: opened, made, checked, and every failure of it a clear `CatalogError`.

Owns the connection, the schema and its version, and transactions. What is booked is not known here.

`synchronous=FULL`: each commit is on the disk before the next step. With WAL and NORMAL a killed process loses
nothing, but after a power cut the last calls that were paid for would be missing, and the budget would have their
money again. Measured on a virtual SSD: reserve, sent and settle together take 1.0 to 1.4 ms with FULL, 0.3 to 0.6
with NORMAL. Next to a purchase over the network that is little.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from toolwire.catalog.ledger.types import MOST
from toolwire.errors import CatalogError

MEMORY: Final = ":memory:"
_VERSION: Final = 2
_MARK: Final = 0x74776C67  # "twlg": this SQLite file is a ledger of ours
_OLDEST: Final = (3, 37, 0)  # STRICT tables
_PAUSE: Final = 0.005

# `days` and `sessions` are the sums that the limits need, kept by the database itself: to add up 100,000 calls
# would cost every reservation 5 ms. `entry_id` is what money is kept by: a tool's name is the API's to change, and
# stands there for people. `untold` has the entries whose price nobody tells. A blank line ends a statement.
_SCHEMA: Final = f"""
CREATE TABLE spending (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    day TEXT NOT NULL,
    session TEXT NOT NULL,
    tool TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    reserved INTEGER NOT NULL CHECK (reserved BETWEEN 0 AND {MOST}),
    exclusive INTEGER NOT NULL CHECK (exclusive IN (0, 1)),
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'sent', 'settled', 'released', 'unknown')),
    actual INTEGER CHECK (actual BETWEEN 0 AND {MOST}),
    over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1)),
    why TEXT NOT NULL DEFAULT '',
    changed REAL NOT NULL,
    money INTEGER NOT NULL GENERATED ALWAYS AS
        (CASE state WHEN 'settled' THEN actual WHEN 'released' THEN 0 ELSE reserved END) STORED,
    CHECK ((state = 'settled') = (actual IS NOT NULL))
) STRICT;

CREATE INDEX by_time ON spending (at);

CREATE INDEX open_ones ON spending (state, entry_id) WHERE state IN ('reserved', 'sent', 'unknown');

CREATE UNIQUE INDEX one_call_a_key ON spending (session, key) WHERE state <> 'released' AND key <> '';

CREATE TABLE days (day TEXT PRIMARY KEY, money INTEGER NOT NULL CHECK (money >= 0)) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    session TEXT NOT NULL, entry_id TEXT NOT NULL, money INTEGER NOT NULL CHECK (money >= 0),
    PRIMARY KEY (session, entry_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER booked AFTER INSERT ON spending BEGIN
    INSERT INTO days VALUES (new.day, new.money) ON CONFLICT DO UPDATE SET money = money + excluded.money;
    INSERT INTO sessions VALUES (new.session, new.entry_id, new.money)
        ON CONFLICT DO UPDATE SET money = money + excluded.money; END;

CREATE TRIGGER changed AFTER UPDATE ON spending WHEN new.money <> old.money BEGIN
    UPDATE days SET money = money + new.money - old.money WHERE day = new.day;
    UPDATE sessions SET money = money + new.money - old.money
        WHERE session = new.session AND entry_id = new.entry_id; END;

CREATE TABLE stops (
    entry_id TEXT PRIMARY KEY, tool TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL
) STRICT;

CREATE TABLE untold (entry_id TEXT PRIMARY KEY, tool TEXT NOT NULL, at REAL NOT NULL) STRICT;

CREATE TABLE prices (
    entry_id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND {MOST}),
    offered INTEGER NOT NULL CHECK (offered BETWEEN 0 AND {MOST}),
    charged INTEGER NOT NULL DEFAULT 0 CHECK (charged BETWEEN 0 AND {MOST})
) STRICT;
"""  # noqa: S608 - a constant

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


class Database:
    """One connection, for all threads of a process, one at a time."""

    def __init__(self, path: str | os.PathLike[str], patience: float, create: bool) -> None:
        self.path = os.fspath(path) if os.fspath(path) == MEMORY else str(Path(path).absolute())
        self._patience = patience
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None
        if sqlite3.sqlite_version_info < _OLDEST:
            raise CatalogError(
                f"a ledger needs SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}"
            )
        if self.path != MEMORY:
            self._make_file(create)
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            self.refuse(error)
        try:
            self._prepare()
            self._file = self._identity()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file. Twice is fine."""
        with self._turn():
            self._connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else can write beside. Undone if anything is raised in it."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            if self._file is not None and self._identity() != self._file:
                # SQLite would go on in a file that no other process finds any more, each with a budget of its own.
                raise CatalogError(
                    f"the ledger {self.path} was moved, deleted or replaced while it was in use: start again"
                )
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the ledger."""
        with self._transaction("BEGIN") as connection:
            yield connection

    def refuse(self, error: sqlite3.Error | OSError) -> NoReturn:
        """A failure of the file, as ours."""
        # The low byte is the kind of failure. Errors of the module itself ("closed database") have no code.
        code = getattr(error, "sqlite_errorcode", None)
        reason = getattr(error, "strerror", None) or str(error)
        says = _SAYS.get(code & 0xFF, "cannot be used") if isinstance(code, int) else "cannot be used"
        raise CatalogError(
            f"the ledger {self.path} {says} ({reason}); no paid call goes out without it"
        ) from error

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._turn():
            try:
                self._connection.execute(begin)
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                self.refuse(error)
            except UnicodeEncodeError as error:  # half a surrogate pair, which JSON lets through
                raise CatalogError(f"what shall be booked is no proper text: {error.object!r}") from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if os.getpid() != self._pid:  # SQLite's locks do not survive a fork
            raise CatalogError(
                f"the ledger {self.path} was opened before a fork: open it again in the new process"
            )
        if not self._lock.acquire(timeout=2 * self._patience):
            raise CatalogError(
                f"the ledger {self.path} is held by another thread for too long; no paid call goes out without it"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _identity(self) -> tuple[int, int] | None:
        """Which file is at the path now; None for a ledger in memory."""
        if self.path == MEMORY:
            return None
        try:
            found = Path(self.path).stat()
        except FileNotFoundError:
            return (0, 0)
        except OSError as error:
            self.refuse(error)
        return found.st_dev, found.st_ino

    def _make_file(self, create: bool) -> None:
        """The file before SQLite makes it: for its owner only. SQLite gives the files beside it the same mode."""
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
        try:
            if self.path != MEMORY:
                self._use_wal()
            self._connection.execute("PRAGMA synchronous=FULL")
            with self.writing() as connection:
                self._make_schema(connection)
        except sqlite3.Error as error:
            self.refuse(error)

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

    def _make_schema(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        if mark == _MARK and version == _VERSION:
            return
        if mark == _MARK:
            other, advice = (
                ("a newer", "update toolwire, or use") if version > _VERSION else ("an older", "use")
            )
            raise CatalogError(
                f"the ledger {self.path} was written by {other} toolwire (version {version} of the file, this one"
                f" knows {_VERSION}): {advice} another ledger"
            )
        if mark or version or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            raise CatalogError(f"{self.path} is a database, but no ledger of toolwire")
        # Not executescript: it would commit first, and two processes may make the file at once.
        for statement in _SCHEMA.split("\n\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_MARK}")
        connection.execute(f"PRAGMA user_version={_VERSION}")
