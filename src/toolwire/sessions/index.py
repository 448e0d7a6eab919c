"""A SQLite file beside the transcripts, so that listing and searching need not read them all again.

Never the truth: the files are. A transcript that was changed is read again, from where it was read up to if lines
were only appended; one that is gone disappears. An index that cannot be used (damaged, locked, not writable) is
made anew or done without, and that is never an error for the user. It is in the user's cache folder, for its owner
only: once somebody has searched, it has the texts of the conversations.
"""

import hashlib
import itertools
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from platformdirs import user_cache_path

from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire.sessions import transcript
from toolwire.sessions.paths import SessionFile
from toolwire.sessions.types import SessionSummaryEntry

logger = logger_for("sessions")

SWITCH: Final = "TOOLWIRE_HISTORY_INDEX"
"""Environment variable: `off` keeps no index on disk."""

_FORMAT: Final = 1
"""Part of the file's name: another version of toolwire has a file of its own."""
_BUSY_TIMEOUT: Final = 5.0
_LOOKED_UP_AT_ONCE: Final = 200
_KEPT_AT_ONCE: Final = 500
_LOOKED_AFTER_AT_ONCE: Final = 100
_SAMPLE: Final = 1024
_ROUNDS: Final = 3
_AN_HOUR: Final = 3600
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
SECURE_DELETE: Final = (3, 42, 0)
"""The version of SQLite from which on its full-text search can delete words for good."""

# `version` and `place`: the file as it was when it was read for its summary, and up to where. `sample`: a hash of
# what is before that place, by which a file that was written anew is told from one that grew. `summary` has the
# whole lines, `unfinished` also the last one if that has no end yet. `text_...`: the same for the search. `names`:
# the tools of calls, by which their results are found.
_TABLES: Final = """
    CREATE TABLE transcripts (
        id INTEGER PRIMARY KEY,
        project BLOB NOT NULL,
        session TEXT NOT NULL,
        subpath BLOB NOT NULL,
        version TEXT NOT NULL DEFAULT '',
        place INTEGER NOT NULL DEFAULT 0,
        sample BLOB NOT NULL DEFAULT x'',
        summary TEXT NOT NULL DEFAULT '{}',
        unfinished TEXT,
        tag TEXT,
        text_version TEXT NOT NULL DEFAULT '',
        text_place INTEGER NOT NULL DEFAULT 0,
        text_sample BLOB NOT NULL DEFAULT x'',
        UNIQUE (project, session, subpath)
    ) STRICT;
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY,
        transcript INTEGER NOT NULL,
        uuid TEXT,
        type TEXT NOT NULL,
        timestamp TEXT,
        time INTEGER,
        model TEXT,
        branch TEXT
    ) STRICT;
    CREATE INDEX messages_of_transcript ON messages (transcript);
    CREATE TABLE calls (
        message INTEGER NOT NULL,
        tool TEXT NOT NULL,
        PRIMARY KEY (message, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE names (
        transcript INTEGER NOT NULL,
        call TEXT NOT NULL,
        tool TEXT NOT NULL,
        PRIMARY KEY (transcript, call)
    ) STRICT, WITHOUT ROWID
"""


class Unavailable(Exception):  # noqa: N818 - it says what is wrong, and never reaches a user
    """The index cannot be used now: it is locked, damaged, or cannot be written."""

    def __init__(self, reason: object = "", *, is_damaged: bool = False) -> None:
        super().__init__(str(reason))
        self.is_damaged = is_damaged


# --- the file ---


def find_index_folder(config_folder: Path) -> Path:
    """Return the folder of the index of one of the CLI's folders. It need not exist."""
    place = os.path.realpath(config_folder)
    name = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    return user_cache_path("toolwire", appauthor=False) / "sessions" / name


def open_index(config_folder: Path, *, create: bool = True) -> "Index | None":
    """Open the index of one of the CLI's folders, or make it. None if that cannot be done, or is not to be."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}:
        return None
    folder = find_index_folder(config_folder)
    try:
        for _ in range(_ROUNDS):
            path = _find_file(folder) or (_create(folder, config_folder) if create else None)
            if path is None:
                return None
            with suppress(Unavailable):
                return Index(_connect(path), path, config_folder / "projects")
    except (OSError, sqlite3.Error) as error:
        logger.info("the index of sessions in %s cannot be used: %s", folder, error)
    return None


def open_temporary_index() -> "Index":
    """Make an index that is gone when it is closed."""
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    _make_tables(connection)
    return Index(connection)


def _find_file(folder: Path) -> Path | None:
    found = sorted(folder.glob(f"index-{_FORMAT}-*.db"))
    for each in found[1:]:  # two processes made one at the same time
        _remove(each)
    return found[0] if found else None


def _create(folder: Path, config_folder: Path) -> Path:
    """Make an empty index. It gets its name when it is whole, and no name is ever used again."""
    _clean_up(folder.parent)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(folder / "of", [os.fsencode(os.path.realpath(config_folder))])
    name = f"index-{_FORMAT}-{secrets.token_hex(4)}.db"
    path, part = folder / name, folder / f".{name}.part"
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(part, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        _make_tables(connection)
    finally:
        connection.close()
    part.rename(path)
    return path


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_FORMAT}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        [version] = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("SELECT count(*) FROM transcripts WHERE id = 0")
    except sqlite3.Error as error:
        connection.close()
        if is_damaged(error):
            _remove(path)
            raise Unavailable(error, is_damaged=True) from error
        raise
    if version != _FORMAT:
        connection.close()
        _remove(path)
        raise Unavailable(f"its format is {version}", is_damaged=True)
    return connection


def is_damaged(error: sqlite3.Error) -> bool:
    """Return True if an error says that the file is not, or no longer, an index."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGED


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()


def _clean_up(folder: Path) -> None:
    """Remove indexes of folders that are gone, and what was left half made."""
    for each in folder.glob("*/of"):
        with suppress(OSError):
            if not Path(os.fsdecode(each.read_bytes())).exists():
                shutil.rmtree(each.parent)
    for each in folder.glob("*/.index-*.part"):
        with suppress(OSError):
            if each.stat().st_mtime < time.time() - _AN_HOUR:
                _remove(each)


# --- what is in it ---


@dataclass
class Progress:
    """Up to where a transcript was read, and by what a file is known that was written anew since."""

    version: str = ""
    place: int = 0
    sample: bytes = b""

    def find_start(self, file: BinaryIO) -> int:
        """Return the place from which to read on: the beginning if the file is not the same any more."""
        return self.place if self.place and take_sample(file, self.place) == self.sample else 0


def take_sample(file: BinaryIO, place: int) -> bytes:
    """Return a hash of the beginning of a file and of what is before a place."""
    file.seek(0)
    head = file.read(min(_SAMPLE, place))
    file.seek(max(place - _SAMPLE, 0))
    return hashlib.blake2b(head + file.read(min(_SAMPLE, place)), digest_size=16).digest()


Key = tuple[bytes, str, bytes]
"""Project, session and subpath of a transcript; the subpath of a main one is empty."""


def make_key(file: SessionFile) -> Key:
    """Return the key of a main transcript."""
    return os.fsencode(file.path.parent.name), file.session_id, b""


class Index:
    """An open index. Every method raises `Unavailable` when it cannot be used."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None = None, projects: Path | None = None
    ) -> None:
        self._connection = connection
        self._path = path
        self._projects = projects

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def guard(self) -> Iterator[sqlite3.Connection]:
        """Use the connection. What SQLite raises becomes `Unavailable`, and a damaged file is removed."""
        try:
            yield self._connection
        except sqlite3.Error as error:
            damaged = is_damaged(error)
            logger.info("the index of sessions %s cannot be used: %s", self._path, error)
            if damaged and self._path is not None:
                self.close()
                _remove(self._path)  # the next one who needs it makes it anew
            raise Unavailable(error, is_damaged=damaged) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Use the connection for one transaction."""
        with self.guard() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    # --- summaries ---

    def find_summaries(
        self, files: list[SessionFile]
    ) -> tuple[dict[Path, SessionSummaryEntry], dict[Path, tuple[Progress, dict[str, Any]]]]:
        """Return the summaries of transcripts that did not change; and up to where the others were read."""
        fresh: dict[Path, SessionSummaryEntry] = {}
        known: dict[Path, tuple[Progress, dict[str, Any]]] = {}
        by_key = {make_key(file): file for file in files}
        marks = ", ".join("?" * len(by_key))
        select = f"""
            SELECT project, session, version, place, sample, summary, unfinished FROM transcripts
            WHERE session IN ({marks}) AND subpath = x''
        """  # noqa: S608 - only question marks
        with self.guard() as db:
            rows = db.execute(select, [session for _, session, _ in by_key]).fetchall()
        for project, session, version, place, sample, summary, unfinished in rows:
            file = by_key.get((project, session, b""))
            if file is None:
                continue
            with suppress(ValueError):  # damaged: it is read from the file
                if version == file.version:
                    fresh[file.path] = transcript.make_summary(file, json.loads(unfinished or summary))
                else:
                    known[file.path] = Progress(version, place, sample), json.loads(summary)
        return fresh, known

    def keep_summaries(self, read: "Iterable[_ReadSummary]") -> None:
        """Keep the summaries of transcripts that were read."""
        update = """
            INSERT INTO transcripts (project, session, subpath, version, place, sample, summary, unfinished)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (project, session, subpath) DO UPDATE SET version = excluded.version,
                place = excluded.place, sample = excluded.sample, summary = excluded.summary,
                unfinished = excluded.unfinished
        """
        with self.write() as db:
            for each in read:
                unfinished = None if each.data is each.whole else json.dumps(each.data)
                now = each.progress
                row = (now.version, now.place, now.sample, json.dumps(each.whole), unfinished)
                db.execute(update, (*make_key(each.file), *row))
            gone = self._find_gone(db)
        self.forget(gone)

    def _find_gone(self, db: sqlite3.Connection) -> list[int]:
        """Look at some transcripts, others each time, and return the numbers of those that are no longer there.

        The CLI deletes old sessions. A search notices it at once; this is for those who only ever list.
        """
        if self._projects is None:
            return []
        [highest] = db.execute("SELECT coalesce(max(id), 0) FROM transcripts").fetchone()
        select = "SELECT id, project, session FROM transcripts WHERE id >= ? ORDER BY id LIMIT ?"
        rows = db.execute(select, (secrets.randbelow(highest + 1), _LOOKED_AFTER_AT_ONCE)).fetchall()
        projects = os.fsencode(self._projects)
        return [
            number
            for number, project, session in rows
            if not os.path.lexists(b"/".join((projects, project, session.encode() + b".jsonl")))
        ]

    def forget(self, numbers: list[int]) -> None:
        """Forget transcripts by their numbers."""
        if not numbers:
            return
        with self.write() as db:
            for number in numbers:
                forget_texts(db, number)
                db.execute("DELETE FROM transcripts WHERE id = ?", (number,))

    def forget_files(self, files: Iterable[SessionFile]) -> None:
        """Forget sessions with their subagents, after they were deleted. Nothing of them stays in the file."""
        select = "SELECT id FROM transcripts WHERE project = ? AND session = ?"
        with self.guard() as db:
            keys = [make_key(file)[:2] for file in files]
            rows = [number for key in keys for (number,) in db.execute(select, key)]
        if not rows:
            return
        self.forget(rows)
        with self.guard() as db:
            if has_texts(db) and sqlite3.sqlite_version_info < SECURE_DELETE:
                db.execute("INSERT INTO texts (texts) VALUES ('optimize')")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def has_texts(db: sqlite3.Connection) -> bool:
    """Return True if somebody has searched in this index."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchone() is not None


def forget_texts(db: sqlite3.Connection, transcript_id: int) -> None:
    """Take the messages of a transcript out of the search."""
    these = "SELECT number FROM messages WHERE transcript = ?"
    if has_texts(db):
        db.execute(f"DELETE FROM texts WHERE rowid IN ({these})", (transcript_id,))  # noqa: S608 - a constant
    db.execute(f"DELETE FROM calls WHERE message IN ({these})", (transcript_id,))  # noqa: S608 - a constant
    db.execute("DELETE FROM messages WHERE transcript = ?", (transcript_id,))
    db.execute("DELETE FROM names WHERE transcript = ?", (transcript_id,))
    db.execute("UPDATE transcripts SET tag = NULL WHERE id = ?", (transcript_id,))


# --- reading transcripts ---


@dataclass
class _ReadSummary:
    """The summary of a transcript that was read. `whole`: from lines that have an end; `data`: from all."""

    file: SessionFile
    progress: Progress
    whole: dict[str, Any]
    data: dict[str, Any]


def summarise_files(
    config_folder: Path, files: Iterable[SessionFile]
) -> Iterator[tuple[SessionFile, SessionSummaryEntry]]:
    """Yield transcripts with their summaries: from the index if they did not change, else by reading them.

    A transcript that cannot be read is left out, and named in the log. The result does not depend on the index.
    """
    remaining = iter(files)
    index: Index | None = None
    is_open = False
    read: list[_ReadSummary] = []
    try:
        while chunk := list(itertools.islice(remaining, _LOOKED_UP_AT_ONCE)):
            if not is_open:
                index, is_open = open_index(config_folder), True
            fresh: dict[Path, SessionSummaryEntry] = {}
            known: dict[Path, tuple[Progress, dict[str, Any]]] = {}
            if index is not None:
                try:
                    fresh, known = index.find_summaries(chunk)
                except Unavailable:
                    index = None
            for file in chunk:
                summary = fresh.get(file.path)
                if summary is None:
                    try:
                        new = _read_summary(file, *known.get(file.path, (Progress(), {})))
                    except OSError as error:
                        logger.warning("cannot read the session %s: %s", file.path, error)
                        continue
                    read.append(new)
                    summary = transcript.make_summary(file, new.data)
                yield file, summary
            if len(read) >= _KEPT_AT_ONCE:
                _keep(index, read)
                read = []
    finally:
        _keep(index, read)
        if index is not None:
            index.close()


def _keep(index: Index | None, read: list[_ReadSummary]) -> None:
    if index is not None and read:
        with suppress(Unavailable):
            index.keep_summaries(read)


def _read_summary(file: SessionFile, progress: Progress, data: dict[str, Any]) -> _ReadSummary:
    with transcript.open_transcript(file.path) as opened:
        start = progress.find_start(opened)
        whole = dict(data) if start else {}
        place, all_of_it = transcript.fold_lines(opened, whole, start)
        now = Progress(file.version, place, take_sample(opened, place))
    return _ReadSummary(file, now, whole, all_of_it)


def forget_files(config_folder: Path, files: Iterable[SessionFile]) -> None:
    """Take deleted sessions out of the index."""
    index = open_index(config_folder, create=False)
    if index is None:
        return
    try:
        index.forget_files(files)
    except Unavailable as error:
        logger.warning("the index of sessions has what was deleted until the next search: %s", error)
    finally:
        index.close()
