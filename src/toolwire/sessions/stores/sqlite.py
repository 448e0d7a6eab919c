"""A session store in one SQLite file, for any number of processes on one machine.

Every line is stored exactly. An append and its summary are one transaction: stored completely or not at all.
Blocking work runs in a thread, which finishes its work even if the caller is cancelled.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from toolwire._support.threads import Workers
from toolwire.errors import SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions.search import SearchHit, TextIndex, extract_text, make_match, transaction
from toolwire.sessions.stores.base import (
    Place,
    SqlStore,
    decode_entry,
    encode_entry,
    encode_uuid,
    fold_data,
    make_hit,
    read_place,
)
from toolwire.sessions.types import SessionStoreEntry

T = TypeVar("T")

_APPLICATION: Final = 0x746F6F73  # identifies the file as ours ("toos")
_BUSY_TIMEOUT: Final = 30.0
_INDEX_BATCH: Final = 500

_MIGRATIONS: Final = (
    """
    CREATE TABLE transcripts (
        id INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        session TEXT NOT NULL,
        subpath TEXT NOT NULL,
        mtime INTEGER NOT NULL,
        summary TEXT,
        UNIQUE (project, session, subpath)
    ) STRICT;
    CREATE TABLE lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        transcript INTEGER NOT NULL REFERENCES transcripts ON DELETE CASCADE,
        uuid BLOB,
        line BLOB NOT NULL
    ) STRICT;
    CREATE INDEX lines_of_transcript ON lines (transcript, number);
    CREATE UNIQUE INDEX lines_by_uuid ON lines (transcript, uuid) WHERE uuid IS NOT NULL;
    CREATE TABLE searchable (up_to INTEGER NOT NULL) STRICT;
    INSERT INTO searchable VALUES (0);
    """,
    "ALTER TABLE transcripts ADD COLUMN writer TEXT",
)
"""The statements that lead from each version of the file to the next."""


class SQLiteSessionStore(SqlStore):
    """Keeps transcripts in a SQLite file, which is created on first use.

    `path` may be `:memory:`. Use it in any number of conversations and processes at once; `aclose()` is optional.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._workers = Workers(1)
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"SQLiteSessionStore({self._path!r})"

    async def search(
        self,
        query: str,
        *,
        project_key: str | None = None,
        session_id: str | None = None,
        include_output: bool = False,
        limit: int = 20,
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best first. Text in quotes is a phrase.

        `include_output`: also search the output of tools.
        """
        match = make_match(query, include_output=include_output)
        if match is None:
            return []
        return await self._run(lambda db: _search(db, match, project_key, session_id, limit))

    async def aclose(self) -> None:
        """Close the file. It is opened again when the store is used again."""
        await self._workers.run(self._disconnect)

    def _append(
        self, db: sqlite3.Connection, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        place = read_place(key)
        written = [(encode_uuid(entry), encode_entry(entry)) for entry in entries]
        with transaction(db):
            now = time.time_ns() // 1_000_000
            db.execute(
                "INSERT OR IGNORE INTO transcripts (project, session, subpath, mtime) VALUES (?, ?, ?, 0)",
                place,
            )
            number, mtime, data, last = db.execute(_FIND, place).fetchone()
            new = []
            for entry, (name, line) in zip(entries, written, strict=True):
                insert = "INSERT OR IGNORE INTO lines (transcript, uuid, line) VALUES (?, ?, ?)"
                if db.execute(insert, (number, name, line)).rowcount:
                    new.append(entry)
            if new:
                summary = None if place[2] else fold_data(data, key, new)
                update = "UPDATE transcripts SET mtime = ?, summary = ?, writer = ? WHERE id = ?"
                db.execute(update, (max(now, mtime + 1), summary, writer, number))
        return last if last != writer else None

    def _load(self, db: sqlite3.Connection, place: Place) -> list[SessionStoreEntry] | None:
        found = db.execute(_FIND, place).fetchone()
        if found is None:
            return None
        rows = db.execute("SELECT line FROM lines WHERE transcript = ? ORDER BY number", found[:1])
        return [decode_entry(line) for (line,) in rows]

    def _delete(self, db: sqlite3.Connection, place: Place) -> None:
        these = (*place, place[2])
        with transaction(db):
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchone():
                db.execute(_FORGET_TEXTS, these)
            db.execute(_FORGET, these)

    async def _select(self, columns: str, where: str, *parameters: str) -> list[tuple[Any, ...]]:
        statement = f"SELECT {columns} FROM transcripts WHERE {where}"  # noqa: S608 - constants only
        return await self._run(lambda db: db.execute(statement, parameters).fetchall())

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._workers.run(lambda: self._work(work))

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None or self._process != os.getpid():
                self._connection, self._process = self._connect(), os.getpid()
            return work(self._connection)
        except sqlite3.Error as error:
            raise SessionStoreError(f"the session store {self._path}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            [version], [application] = (
                connection.execute(f"PRAGMA {each}").fetchone() for each in ("user_version", "application_id")
            )
            [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application != _APPLICATION and tables:
                raise SessionStoreError(f"{self._path} is the database of another program; use another file")
            if version > len(_MIGRATIONS):
                raise SessionStoreError(
                    f"{self._path} was written by a newer version of toolwire (its format is {version}, "
                    f"this one supports {len(_MIGRATIONS)}); update toolwire, or use another file"
                )
            for statements in _MIGRATIONS[version:]:
                for statement in statements.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    def _disconnect(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None


_FIND: Final = (
    "SELECT id, mtime, summary, writer FROM transcripts WHERE project = ? AND session = ? AND subpath = ?"
)
_FORGET: Final = "DELETE FROM transcripts WHERE project = ? AND session = ? AND (? = '' OR subpath = ?)"
_FORGET_TEXTS: Final = """
    DELETE FROM texts WHERE rowid IN (
        SELECT number FROM lines JOIN transcripts ON transcripts.id = lines.transcript
        WHERE project = ? AND session = ? AND (? = '' OR subpath = ?)
    )
"""
_SEARCH: Final = """
    line, project, session, subpath
    FROM texts JOIN lines ON lines.number = texts.rowid JOIN transcripts ON transcripts.id = lines.transcript
    WHERE (? IS NULL OR project = ?) AND (? IS NULL OR session = ?)
"""


def _search(
    db: sqlite3.Connection, match: str, project_key: str | None, session_id: str | None, limit: int
) -> list[SearchHit]:
    index = TextIndex(db)
    index.create()
    while _index_some(db, index):
        pass
    rows = index.find(match, _SEARCH, (project_key, project_key, session_id, session_id), limit)
    return [
        make_hit(decode_entry(line), snippet, (project, session, subpath))
        for snippet, line, project, session, subpath in rows
    ]


def _index_some(db: sqlite3.Connection, index: TextIndex) -> bool:
    """Index some more lines. Return False when all are indexed."""
    with transaction(db):
        [up_to] = db.execute("SELECT up_to FROM searchable").fetchone()
        rows = db.execute(
            "SELECT number, line FROM lines WHERE number > ? ORDER BY number LIMIT ?", (up_to, _INDEX_BATCH)
        ).fetchall()
        if not rows:
            return False
        texts = [(number, *extract_text(decode_entry(line))) for number, line in rows]
        index.add(each for each in texts if each[1] or each[2])
        db.execute("UPDATE searchable SET up_to = ?", (rows[-1][0],))
    return True
