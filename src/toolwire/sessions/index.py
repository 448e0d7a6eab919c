"""An index of the transcripts in a SQLite file, so that listing and searching need not read them all again.

The transcripts are the source of truth. A changed transcript is read again, from the last known offset if lines
were only appended; a deleted one is removed from the index. An index that cannot be used (damaged, locked, not
writable) is rebuilt or bypassed, which is never an error for the user. The file is in the user's cache folder,
readable by its owner only: after the first search, it contains the texts of the conversations. Which text of an
entry is searched, and how a query is parsed, is in `sessions/search`.
"""

import hashlib
import itertools
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from platformdirs import user_cache_path

from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire.sessions import entries, paths, search, transcript
from toolwire.sessions.paths import SessionFile
from toolwire.sessions.search import SearchHit, TextIndex
from toolwire.sessions.types import SessionSummaryEntry

logger = logger_for("sessions")

SWITCH: Final = "TOOLWIRE_HISTORY_INDEX"
"""Environment variable: with `off`, no index is kept on disk."""

_FORMAT: Final = 1
"""Part of the file name, so that a toolwire with another format has its own file."""
_BUSY_TIMEOUT: Final = 5.0
_LOOKUP_CHUNK: Final = 200
_SAVE_CHUNK: Final = 500
_DELETION_CHECKS: Final = 100
_SAMPLE: Final = 1024
_ROUNDS: Final = 3
_HOUR: Final = 3600
_BATCH: Final = 4 * 1024 * 1024
"""Bytes of transcripts that are indexed in one transaction."""
_LARGEST: Final = 2**63 - 1
_NOT_SEARCHED: Final = b'{"type":"api-request'
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_SECURE_DELETE: Final = (3, 42, 0)
"""The first version of SQLite whose full-text search can delete words securely."""

OnProgress = Callable[[int, int], None]

# `version` and `place`: the version of the file when it was read for its summary, and the offset up to which it was
# read. `sample`: a hash of bytes before that offset, to distinguish a file that was rewritten from one that grew.
# `summary` is from complete lines only, `unfinished` includes a last line without a line break. `text_...`: the
# same for the search. `names`: the tool name of each call, to find the tool of a result.
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
    """Return the folder of the index for a CLI's config folder. It need not exist."""
    path = os.path.realpath(config_folder)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return user_cache_path("toolwire", appauthor=False) / "sessions" / name


def open_index(config_folder: Path, *, create: bool = True) -> "Index | None":
    """Open the index for a CLI's config folder, or create it. None if that fails or is switched off."""
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
        logger.info("the session index in %s cannot be used: %s", folder, error)
    return None


def open_temporary_index() -> "Index":
    """Create an index that disappears when it is closed."""
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    _make_tables(connection)
    return Index(connection)


def _find_file(folder: Path) -> Path | None:
    found = sorted(folder.glob(f"index-{_FORMAT}-*.db"))
    for each in found[1:]:  # two processes created one at the same time
        _remove(each)
    return found[0] if found else None


def _create(folder: Path, config_folder: Path) -> Path:
    """Create an empty index. It gets its name when it is complete, and no name is used twice."""
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
        if _is_damaged(error):
            _remove(path)
            raise Unavailable(error, is_damaged=True) from error
        raise
    if version != _FORMAT:
        connection.close()
        _remove(path)
        raise Unavailable(f"its format is {version}", is_damaged=True)
    return connection


def _is_damaged(error: sqlite3.Error) -> bool:
    """Return True if an error means that the file is not a valid index."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGED


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()


def _clean_up(folder: Path) -> None:
    """Remove indexes of folders that no longer exist, and incomplete files."""
    for each in folder.glob("*/of"):
        with suppress(OSError):
            if not Path(os.fsdecode(each.read_bytes())).exists():
                shutil.rmtree(each.parent)
    for each in folder.glob("*/.index-*.part"):
        with suppress(OSError):
            if each.stat().st_mtime < time.time() - _HOUR:
                _remove(each)


# --- the content ---


@dataclass
class Progress:
    """How far a transcript was read, and a sample to detect that it was rewritten since."""

    version: str = ""
    place: int = 0
    sample: bytes = b""

    def find_start(self, file: BinaryIO) -> int:
        """Return the offset at which to continue reading; 0 if the file was rewritten."""
        return self.place if self.place and _take_sample(file, self.place) == self.sample else 0


def _take_sample(file: BinaryIO, place: int) -> bytes:
    """Return a hash of the beginning of a file and of the bytes before an offset."""
    file.seek(0)
    head = file.read(min(_SAMPLE, place))
    file.seek(max(place - _SAMPLE, 0))
    return hashlib.blake2b(head + file.read(min(_SAMPLE, place)), digest_size=16).digest()


_Key = tuple[bytes, str, bytes]
"""Project, session and subpath of a transcript; the subpath of a main one is empty."""


def _make_key(file: SessionFile) -> _Key:
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
        """Use the connection. SQLite errors become `Unavailable`, and a damaged file is removed."""
        try:
            yield self._connection
        except sqlite3.Error as error:
            damaged = _is_damaged(error)
            logger.info("the session index %s cannot be used: %s", self._path, error)
            if damaged and self._path is not None:
                self.close()
                _remove(self._path)  # the next caller creates a new one
            raise Unavailable(error, is_damaged=damaged) from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Use the connection for one transaction."""
        with self.guard() as db, search.transaction(db):
            yield db

    # --- summaries ---

    def find_summaries(
        self, files: list[SessionFile]
    ) -> tuple[dict[Path, SessionSummaryEntry], dict[Path, tuple[Progress, dict[str, Any]]]]:
        """Return the summaries of unchanged transcripts, and for the others how far they were read."""
        fresh: dict[Path, SessionSummaryEntry] = {}
        known: dict[Path, tuple[Progress, dict[str, Any]]] = {}
        by_key = {_make_key(file): file for file in files}
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
            with suppress(ValueError):  # damaged: read the transcript instead
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
                db.execute(update, (*_make_key(each.file), *row))
            gone = self._find_gone(db)
        self.forget(gone)

    def _find_gone(self, db: sqlite3.Connection) -> list[int]:
        """Check a random part of the transcripts, and return the numbers of those that no longer exist.

        The CLI deletes old sessions. A search notices that at once; this is for users who only list sessions.
        """
        if self._projects is None:
            return []
        [highest] = db.execute("SELECT coalesce(max(id), 0) FROM transcripts").fetchone()
        select = "SELECT id, project, session FROM transcripts WHERE id >= ? ORDER BY id LIMIT ?"
        begin = secrets.randbelow(max(highest - _DELETION_CHECKS, 0) + 1)  # 0 if all can be checked
        rows = db.execute(select, (begin, _DELETION_CHECKS)).fetchall()
        projects = os.fsencode(self._projects)
        return [
            number
            for number, project, session in rows
            if not os.path.lexists(b"/".join((projects, project, session.encode() + b".jsonl")))
        ]

    def forget(self, numbers: list[int]) -> None:
        """Remove transcripts by their numbers."""
        if not numbers:
            return
        with self.write() as db:
            for number in numbers:
                _forget_texts(db, number)
                db.execute("DELETE FROM transcripts WHERE id = ?", (number,))

    def forget_files(self, files: Iterable[SessionFile]) -> None:
        """Remove deleted sessions and their subagents. Nothing of them stays in the file."""
        select = "SELECT id FROM transcripts WHERE project = ? AND session = ?"
        with self.guard() as db:
            keys = [_make_key(file)[:2] for file in files]
            rows = [number for key in keys for (number,) in db.execute(select, key)]
        if not rows:
            return
        self.forget(rows)
        with self.guard() as db:
            if _has_texts(db) and sqlite3.sqlite_version_info < _SECURE_DELETE:
                db.execute("INSERT INTO texts (texts) VALUES ('optimize')")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _has_texts(db: sqlite3.Connection) -> bool:
    """Return True if this index has a full-text table, which the first search creates."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchone() is not None


def _forget_texts(db: sqlite3.Connection, transcript_id: int) -> None:
    """Remove the messages of a transcript from the full-text table."""
    these = "SELECT number FROM messages WHERE transcript = ?"
    if _has_texts(db):
        db.execute(f"DELETE FROM texts WHERE rowid IN ({these})", (transcript_id,))  # noqa: S608 - a constant
    db.execute(f"DELETE FROM calls WHERE message IN ({these})", (transcript_id,))  # noqa: S608 - a constant
    db.execute("DELETE FROM messages WHERE transcript = ?", (transcript_id,))
    db.execute("DELETE FROM names WHERE transcript = ?", (transcript_id,))
    db.execute("UPDATE transcripts SET tag = NULL WHERE id = ?", (transcript_id,))


# --- summaries of transcripts ---


@dataclass
class _ReadSummary:
    """The summary of a transcript that was read. `whole` is from complete lines only, `data` from all lines."""

    file: SessionFile
    progress: Progress
    whole: dict[str, Any]
    data: dict[str, Any]


def summarise_files(
    config_folder: Path, files: Iterable[SessionFile]
) -> Iterator[tuple[SessionFile, SessionSummaryEntry]]:
    """Yield transcripts with their summaries: from the index if they are unchanged, else by reading them.

    A transcript that cannot be read is logged and left out. The result does not depend on the index.
    """
    remaining = iter(files)
    index: Index | None = None
    is_open = False
    read: list[_ReadSummary] = []
    try:
        while chunk := list(itertools.islice(remaining, _LOOKUP_CHUNK)):
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
            if len(read) >= _SAVE_CHUNK:
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
        now = Progress(file.version, place, _take_sample(opened, place))
    return _ReadSummary(file, now, whole, all_of_it)


def forget_files(config_folder: Path, files: Iterable[SessionFile]) -> None:
    """Remove deleted sessions from the index."""
    index = open_index(config_folder, create=False)
    if index is None:
        return
    try:
        index.forget_files(files)
    except Unavailable as error:
        logger.warning("the session index still contains deleted sessions until the next search: %s", error)
    finally:
        index.close()


# --- the search ---


@dataclass
class _Message:
    """A message with the fields that can be searched."""

    columns: tuple[Any, ...]
    """In the order of the table of messages, from `uuid` on."""
    tools: list[str]
    results_of: list[str]
    texts: tuple[str, str]


@dataclass
class _Piece:
    """A part of a transcript to be added to the index."""

    key: _Key
    before: Progress
    after: Progress
    is_new: bool
    """True if the transcript is read from its beginning."""
    size: int = 0
    """The number of bytes that were read for it."""
    messages: list[_Message] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    tag: str | None = None
    has_tag: bool = False


class _Texts:
    """The full-text part of an index."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def refresh(self, folders: list[Path], on_progress: OnProgress | None, *, everything: bool) -> None:
        """Index what was written since the last search, and remove deleted transcripts. Needs FTS5.

        `everything` means that `folders` are all folders there are.
        """
        with self._index.guard() as db:
            is_there = _has_texts(db)
        if not is_there:
            with self._index.write() as db:
                if not _has_texts(db):  # another process may have been faster
                    _create_texts(db)
        for _ in range(_ROUNDS):
            changed = self._find_changed(folders, everything=everything)
            total, read = sum(max(file.size - before.place, 0) for _, file, before in changed), 0
            skipped: set[_Key] = set()
            pieces = _read_pieces(changed, skipped)
            while batch := _take_batch(pieces):
                read += sum(piece.size for piece in batch)
                if on_progress is not None and total:
                    on_progress(min(read, total), total)
                skipped |= {piece.key for piece in batch} - self._keep(batch)
            if on_progress is not None and total:
                on_progress(total, total)
            if not skipped:
                return  # otherwise another process has added some parts, and may not be finished

    def _find_changed(
        self, folders: list[Path], *, everything: bool
    ) -> list[tuple[_Key, SessionFile, Progress]]:
        there: dict[_Key, SessionFile] = {}
        for folder in folders:
            project = os.fsencode(folder.name)
            for session_id, subpath, file in paths.list_transcripts(folder):
                there[project, session_id, os.fsencode(subpath)] = file
        projects = {os.fsencode(folder.name) for folder in folders}
        with self._index.guard() as db:
            rows = db.execute(
                "SELECT project, session, subpath, text_version, text_place, text_sample, id FROM transcripts"
            ).fetchall()
        known = {tuple(row[:3]): row[3:] for row in rows if everything or row[0] in projects}
        self._index.forget([row[3] for key, row in known.items() if key not in there])
        changed = []
        for key, file in there.items():
            progress = Progress(*known[key][:3]) if key in known else Progress()
            if progress.version != file.version:
                changed.append((key, file, progress))
        return sorted(changed, key=lambda each: -each[1].mtime_ns)

    def _keep(self, pieces: list[_Piece]) -> set[_Key]:
        """Add parts of transcripts in one transaction. Return the keys of those that were still missing."""
        done: set[_Key] = set()
        with self._index.write() as db:
            texts = TextIndex(db)
            [highest] = db.execute("SELECT coalesce(max(number), 0) FROM messages").fetchone()
            numbers = itertools.count(highest + 1)
            for piece in pieces:
                db.execute(
                    "INSERT OR IGNORE INTO transcripts (project, session, subpath) VALUES (?, ?, ?)",
                    piece.key,
                )
                select = """
                    SELECT id, text_version, text_place, text_sample FROM transcripts
                    WHERE project = ? AND session = ? AND subpath = ?
                """
                transcript_id, *progress = db.execute(select, piece.key).fetchone()
                if Progress(*progress) != piece.before:
                    continue
                if piece.is_new:
                    _forget_texts(db, transcript_id)
                _keep_piece(db, texts, transcript_id, piece, numbers)
                done.add(piece.key)
        return done

    def find(self, query: "TextQuery") -> list[SearchHit]:
        """Return the messages that contain all words of a query, best first."""
        where, parameters = query.make_conditions()
        select = f"""
            rank, messages.uuid, messages.type, messages.timestamp, project, session, subpath
            FROM texts JOIN messages ON messages.number = texts.rowid
            JOIN transcripts ON transcripts.id = messages.transcript WHERE {where}
        """
        with self._index.guard() as db:
            limits = min(query.limit, _LARGEST), min(query.offset, _LARGEST)
            rows = list(TextIndex(db).find(query.match, select, parameters, *limits))
        return [
            SearchHit(
                session_id=session,
                project_key=os.fsdecode(project),
                snippet=search.mark_snippet(snippet),
                uuid=uuid,
                type=kind,
                timestamp=timestamp,
                subpath=os.fsdecode(subpath) or None,
                score=-rank,
            )
            for snippet, rank, uuid, kind, timestamp, project, session, subpath in rows
        ]


def _create_texts(db: sqlite3.Connection) -> None:
    TextIndex(db).create()
    if sqlite3.sqlite_version_info >= _SECURE_DELETE:
        db.execute("INSERT INTO texts (texts, rank) VALUES ('secure-delete', 1)")
    for table in ("messages", "calls", "names"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
    db.execute("UPDATE transcripts SET text_version = '', text_place = 0, text_sample = x'', tag = NULL")


def _keep_piece(
    db: sqlite3.Connection, texts: TextIndex, transcript_id: int, piece: _Piece, numbers: Iterator[int]
) -> None:
    names = "INSERT OR REPLACE INTO names VALUES (?, ?, ?)"
    db.executemany(names, [(transcript_id, call, tool) for call, tool in piece.calls.items()])
    rows, said, calls = [], [], []
    for message, number in zip(piece.messages, numbers, strict=False):
        tools = set(message.tools)
        for call in message.results_of:
            select = "SELECT tool FROM names WHERE transcript = ? AND call = ?"
            tools.update(tool for (tool,) in db.execute(select, (transcript_id, call)))
        calls += [(number, tool) for tool in tools]
        rows.append((number, transcript_id, *message.columns))
        said.append((number, *message.texts))
    db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.executemany("INSERT INTO calls VALUES (?, ?)", calls)
    texts.add(said)
    now = piece.after
    update = "UPDATE transcripts SET text_version = ?, text_place = ?, text_sample = ? WHERE id = ?"
    db.execute(update, (now.version, now.place, now.sample, transcript_id))
    if piece.has_tag:
        db.execute("UPDATE transcripts SET tag = ? WHERE id = ?", (piece.tag, transcript_id))


def _take_batch(pieces: Iterator[_Piece]) -> list[_Piece]:
    """Return the next parts of transcripts, to be added in one transaction; an empty list at the end."""
    batch: list[_Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += piece.size
        if size >= _BATCH:
            break
    return batch


def _read_pieces(changed: list[tuple[_Key, SessionFile, Progress]], skipped: set[_Key]) -> Iterator[_Piece]:
    """Yield the texts of changed transcripts, those of a long one in parts, until it is in `skipped`."""
    for key, file, before in changed:
        try:
            with transcript.open_transcript(file.path) as opened:
                for piece in _read_file(opened, key, file, before):
                    yield piece
                    if key in skipped:  # another process has added it first
                        break
        except OSError as error:
            logger.warning("cannot read the session %s: %s", file.path, error)


def _read_file(opened: BinaryIO, key: _Key, file: SessionFile, before: Progress) -> Iterator[_Piece]:
    start = place = before.find_start(opened)
    piece = _Piece(key, before, before, is_new=not start)
    for _, end, line in transcript.read_lines(opened, start):
        entry = None if line.startswith(_NOT_SEARCHED) else entries.read_line(line)
        if entry is None and not line.endswith(b"\n"):
            break  # still being written, or torn
        if entry is not None:
            _add_entry(piece, entry)
        place = end
        if place - start >= _BATCH:
            piece.after, piece.size = Progress("", place, _take_sample(opened, place)), place - start
            yield piece
            piece, start = _Piece(key, piece.after, piece.after, is_new=False), place
            opened.seek(place)
    piece.after, piece.size = Progress(file.version, place, _take_sample(opened, place)), place - start
    yield piece


def _add_entry(piece: _Piece, entry: Mapping[str, Any]) -> None:
    if entry.get("type") == "tag":
        piece.has_tag, piece.tag = True, _clean(entry.get("tag")) or None
    said, output = search.extract_text(entry)
    if not said and not output:
        return
    message, blocks = entry.get("message"), entries.read_blocks(entry)
    calls = {
        call: tool
        for each in blocks
        if each.get("type") == "tool_use"
        and (call := _clean(each.get("id")))
        and (tool := _clean(each.get("name")))
    }
    piece.calls |= calls
    results = [_clean(each.get("tool_use_id")) for each in blocks if each.get("type") == "tool_result"]
    timestamp = _clean(entry.get("timestamp"))
    columns = (
        _clean(entry.get("uuid")),
        str(entry["type"]),
        timestamp,
        entries.read_time(timestamp),
        _clean(message.get("model")) if isinstance(message, dict) else None,
        _clean(entry.get("gitBranch")),
    )
    piece.messages.append(
        _Message(columns, list(calls.values()), list(filter(None, results)), (said, output))
    )


def _clean(value: object) -> str | None:
    return search.clean_text(value) if isinstance(value, str) else None


@dataclass
class TextQuery:
    """A full-text query with its filters."""

    match: str
    limit: int = 20
    offset: int = 0
    projects: list[str] | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tool: str | None = None
    model: str | None = None
    branch: str | None = None

    def make_conditions(self) -> tuple[str, tuple[Any, ...]]:
        """Return the conditions in SQL, and their parameters."""
        same = "main.project = transcripts.project AND main.session = transcripts.session"
        of_tag = f"SELECT 1 FROM transcripts AS main WHERE {same} AND main.subpath = x'' AND main.tag = ?"  # noqa: S608 - constants
        of_tool = "SELECT 1 FROM calls WHERE message = messages.number AND tool GLOB ?"
        filters: tuple[tuple[Any, Callable[[Any], Any], str], ...] = (
            (self.tag, search.clean_text, f"EXISTS ({of_tag})"),
            (self.since, _milliseconds, "messages.time >= ?"),
            (self.until, _milliseconds, "messages.time < ?"),
            (self.tool, search.clean_text, f"EXISTS ({of_tool})"),
            (self.model, search.clean_text, "instr(lower(messages.model), lower(?)) > 0"),
            (self.branch, search.clean_text, "messages.branch = ?"),
        )
        given = [(condition, convert(value)) for value, convert, condition in filters if value is not None]
        if self.projects is None:
            conditions, values = ["1"], []
        else:
            conditions = [f"project IN ({', '.join('?' * len(self.projects))})"]
            values = [os.fsencode(each) for each in self.projects]
        conditions += [condition for condition, _ in given]
        return " AND ".join(conditions), (*values, *(value for _, value in given))


def _milliseconds(when: datetime) -> int:
    if not isinstance(when, datetime):
        raise TypeError(f"since and until must be a datetime, not {when!r}")
    return int(when.timestamp() * 1000)


def search_files(
    config_folder: Path, folders: list[Path], query: TextQuery, on_progress: OnProgress | None = None
) -> list[SearchHit]:
    """Update the index and search it. If it cannot be used, use a temporary one for this search."""
    for _ in range(2):
        index = open_index(config_folder)
        if index is None:
            break
        with suppress(Unavailable):
            return _search(index, folders, query, on_progress)
    logger.warning("the session index cannot be kept on disk, so all transcripts are read for this search")
    return _search(open_temporary_index(), folders, query, on_progress)


def _search(
    index: Index, folders: list[Path], query: TextQuery, on_progress: OnProgress | None
) -> list[SearchHit]:
    texts = _Texts(index)
    try:
        try:
            texts.refresh(folders, on_progress, everything=query.projects is None)
        except Unavailable as error:
            if error.is_damaged:
                raise
            logger.warning("the session index is in use, so the newest messages may not be found (%s)", error)
        return texts.find(query)
    finally:
        index.close()
