"""Full-text search over transcripts on disk: brings the texts in the index up to date, and finds messages in them.

The index itself is `sessions/index`, what of an entry is searched is `sessions/search`.
"""

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolwire._support.log import logger_for
from toolwire.sessions import entries, paths, search, transcript
from toolwire.sessions.index import (
    SECURE_DELETE,
    Index,
    Key,
    Progress,
    Unavailable,
    forget_texts,
    has_texts,
    open_index,
    open_temporary_index,
    take_sample,
)
from toolwire.sessions.paths import SessionFile
from toolwire.sessions.search import SearchHit, TextIndex

logger = logger_for("sessions")

OnProgress = Callable[[int, int], None]

_BATCH: Final = 4 * 1024 * 1024
"""Bytes of transcripts that are made searchable in one transaction."""
_ROUNDS: Final = 3
_LARGEST: Final = 2**63 - 1
_NOT_SEARCHED: Final = b'{"type":"api-request'


@dataclass
class _Message:
    """A message as it is searched for."""

    uuid: str | None
    type: str
    timestamp: str | None
    time: int | None
    model: str | None
    branch: str | None
    tools: list[str]
    results_of: list[str]
    said: str
    output: str


@dataclass
class _Piece:
    """A part of a transcript on its way into the index."""

    key: Key
    before: Progress
    after: Progress
    is_new: bool
    """The transcript is read from its beginning."""
    messages: list[_Message] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    tag: str | None = None
    has_tag: bool = False


class _Texts:
    """The part of an index that is searched."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def refresh(self, folders: list[Path], on_progress: OnProgress | None, *, everything: bool) -> None:
        """Make searchable what was written since, and forget what is gone. NotSupportedError without FTS5.

        `everything`: these are all folders that there are.
        """
        with self._index.guard() as db:
            is_there = has_texts(db)
        if not is_there:
            with self._index.write() as db:
                if not has_texts(db):  # another process may have been quicker
                    _create_texts(db)
        for _ in range(_ROUNDS):
            reader = _TextReader(self._find_changed(folders, everything=everything), on_progress)
            while batch := reader.read_batch():
                done = self._keep(batch)
                reader.skip({piece.key for piece in batch} - done)
            if not reader.skipped:
                return  # else another process was quicker with some, and may not be done

    def _find_changed(
        self, folders: list[Path], *, everything: bool
    ) -> list[tuple[Key, SessionFile, Progress]]:
        there: dict[Key, SessionFile] = {}
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

    def _keep(self, pieces: list[_Piece]) -> set[Key]:
        """Add parts of transcripts in one transaction. Returns the keys of those that were still missing."""
        done: set[Key] = set()
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
                    forget_texts(db, transcript_id)
                _keep_piece(db, texts, transcript_id, piece, numbers)
                done.add(piece.key)
        return done

    def find(self, query: "TextQuery") -> list[SearchHit]:
        """Return the messages that have all words of a query, best first."""
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
    if sqlite3.sqlite_version_info >= SECURE_DELETE:
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
        about = (message.uuid, message.type, message.timestamp, message.time, message.model, message.branch)
        rows.append((number, transcript_id, *about))
        said.append((number, message.said, message.output))
    db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.executemany("INSERT INTO calls VALUES (?, ?)", calls)
    texts.add(said)
    now = piece.after
    update = "UPDATE transcripts SET text_version = ?, text_place = ?, text_sample = ? WHERE id = ?"
    db.execute(update, (now.version, now.place, now.sample, transcript_id))
    if piece.has_tag:
        db.execute("UPDATE transcripts SET tag = ? WHERE id = ?", (piece.tag, transcript_id))


class _TextReader:
    """Reads the texts of changed transcripts, a batch at a time."""

    def __init__(
        self, changed: list[tuple[Key, SessionFile, Progress]], on_progress: OnProgress | None
    ) -> None:
        self._report = on_progress
        self._total = sum(max(file.size - before.place, 0) for _, file, before in changed)
        self._read = 0
        self.skipped: set[Key] = set()
        """Transcripts with which somebody else was quicker."""
        self._pieces = self._read_all(changed)

    def read_batch(self) -> list[_Piece]:
        """Return the next parts of transcripts, none at the end."""
        batch: list[_Piece] = []
        before = self._read
        for piece in self._pieces:
            batch.append(piece)
            if self._read - before >= _BATCH:
                break
        if self._report is not None and self._total:
            self._report(min(self._read, self._total) if batch else self._total, self._total)
        return batch

    def skip(self, keys: set[Key]) -> None:
        """Do not go on with these transcripts."""
        self.skipped |= keys

    def _read_all(self, changed: list[tuple[Key, SessionFile, Progress]]) -> Iterator[_Piece]:
        for key, file, before in changed:
            try:
                with transcript.open_transcript(file.path) as opened:
                    yield from self._read_file(opened, key, file, before)
            except OSError as error:
                logger.warning("cannot read the session %s: %s", file.path, error)

    def _read_file(self, opened: BinaryIO, key: Key, file: SessionFile, before: Progress) -> Iterator[_Piece]:
        start = place = before.find_start(opened)
        piece = _Piece(key, before, before, is_new=not start)
        for begin, end, line in transcript.read_lines(opened, start):
            entry = None if line.startswith(_NOT_SEARCHED) else entries.read_line(line)
            if entry is None and not line.endswith(b"\n"):
                break  # still being written, or torn
            if entry is not None:
                _add_entry(piece, entry)
            place = end
            self._read += end - begin
            if place - start >= _BATCH:
                piece.after = Progress("", place, take_sample(opened, place))
                yield piece
                if key in self.skipped:
                    return
                piece, start = _Piece(key, piece.after, piece.after, is_new=False), place
                opened.seek(place)
        piece.after = Progress(file.version, place, take_sample(opened, place))
        yield piece


def _add_entry(piece: _Piece, entry: Mapping[str, Any]) -> None:
    if entry.get("type") == "tag":
        piece.has_tag, piece.tag = True, _clean(entry.get("tag")) or None
    said, output = search.extract_text(entry)
    if not said and not output:
        return
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
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
    piece.messages.append(
        _Message(
            uuid=_clean(entry.get("uuid")),
            type=str(entry["type"]),
            timestamp=timestamp,
            time=entries.read_time(timestamp),
            model=_clean(message.get("model")) if isinstance(message, dict) else None,
            branch=_clean(entry.get("gitBranch")),
            tools=list(calls.values()),
            results_of=[each for each in results if each],
            said=said,
            output=output,
        )
    )


def _clean(value: object) -> str | None:
    return search.clean_text(value) if isinstance(value, str) else None


@dataclass
class TextQuery:
    """What is searched for, and where."""

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
        conditions: list[tuple[str, list[Any]]] = [("1", [])]
        if self.projects is not None:
            marks = ", ".join("?" * len(self.projects))
            conditions.append((f"project IN ({marks})", [os.fsencode(each) for each in self.projects]))
        if self.tag is not None:
            same = "main.project = transcripts.project AND main.session = transcripts.session"
            of_tag = f"SELECT 1 FROM transcripts AS main WHERE {same} AND main.subpath = x'' AND main.tag = ?"  # noqa: S608 - constants
            conditions.append((f"EXISTS ({of_tag})", [search.clean_text(self.tag)]))
        if self.since is not None:
            conditions.append(("messages.time >= ?", [_milliseconds(self.since)]))
        if self.until is not None:
            conditions.append(("messages.time < ?", [_milliseconds(self.until)]))
        if self.tool is not None:
            of_tool = "SELECT 1 FROM calls WHERE message = messages.number AND tool GLOB ?"
            conditions.append((f"EXISTS ({of_tool})", [search.clean_text(self.tool)]))
        if self.model is not None:
            conditions.append(("instr(lower(messages.model), lower(?)) > 0", [search.clean_text(self.model)]))
        if self.branch is not None:
            conditions.append(("messages.branch = ?", [search.clean_text(self.branch)]))
        values = tuple(value for _, given in conditions for value in given)
        return " AND ".join(condition for condition, _ in conditions), values


def _milliseconds(when: datetime) -> int:
    if not isinstance(when, datetime):
        raise TypeError(f"since and until must be a datetime, not {when!r}")
    return int(when.timestamp() * 1000)


def search_files(
    config_folder: Path, folders: list[Path], query: TextQuery, on_progress: OnProgress | None = None
) -> list[SearchHit]:
    """Bring the index up to date and search in it. One that cannot be used is replaced for this once."""
    for _ in range(2):
        index = open_index(config_folder)
        if index is None:
            break
        with suppress(Unavailable):
            return _search(index, folders, query, on_progress)
    logger.warning("the index of sessions cannot be kept on disk: all transcripts are read for this search")
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
            logger.warning(
                "the index of sessions is in use: the newest messages may not be found (%s)", error
            )
        return texts.find(query)
    finally:
        index.close()
