"""Common parts of session stores: encoding of keys, entries, summaries and hits; base classes for databases.

Every entry is returned exactly as it was stored: it is kept as the bytes of its line, so that the text handling of
a database does not matter.
"""

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar, cast

from toolwire.errors import SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions import entries as lines
from toolwire.sessions.search import SearchHit, mark_snippet
from toolwire.sessions.types import (
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

T = TypeVar("T")

Place = tuple[str, str, str]
"""Project, session and subpath, which is empty for the main transcript."""

_COMPRESS_FROM: Final = 512
_LONGEST_UUID: Final = 64


def read_place(key: SessionKey) -> Place:
    """Return the parts of a key. SessionStoreError if a database could not store them as text."""
    given: Any = key
    place: Place = given["project_key"], given["session_id"], given.get("subpath") or ""
    for each in place:
        if not _is_text(each):
            raise SessionStoreError(
                f"the key of a transcript must be strings without NUL or lone surrogates, got {key!r}"
            )
    return place


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_entry(entry: SessionStoreEntry) -> bytes:
    """Encode an entry as its line, compressed if it is long."""
    line = lines.write_line(entry)
    return b"z" + zlib.compress(line) if len(line) >= _COMPRESS_FROM else b"=" + line


def decode_entry(line: bytes) -> SessionStoreEntry:
    """Decode an entry that `encode_entry` encoded."""
    try:
        entry: Any = lines.read_line(zlib.decompress(line[1:]) if line[:1] == b"z" else line[1:])
    except zlib.error:
        entry = None
    if entry is None:
        raise SessionStoreError("a line of the session store is damaged")
    return cast(SessionStoreEntry, entry)


def encode_uuid(entry: SessionStoreEntry) -> bytes | None:
    """Return the key by which duplicates of an entry are found; None for an entry that is always new."""
    name: Any = entry.get("uuid")
    if not isinstance(name, str):
        return None
    raw = name.encode("utf-8", "surrogatepass")
    return raw if len(raw) <= _LONGEST_UUID else hashlib.sha256(raw).digest()


def fold_data(data: str | None, key: SessionKey, new: Iterable[SessionStoreEntry]) -> str:
    """Add new entries to the data of a summary, which is stored as JSON."""
    previous: SessionSummaryEntry | None = None
    if data is not None:
        previous = {"session_id": key["session_id"], "mtime": 0, "data": json.loads(data)}
    return json.dumps(lines.fold_session_summary(previous, key, new)["data"])


def make_hit(entry: SessionStoreEntry, snippet: str, place: Place) -> SearchHit:
    """Return the search hit for an entry."""
    project, session, subpath = place
    return SearchHit(
        session_id=session,
        project_key=project,
        snippet=mark_snippet(snippet),
        uuid=entry.get("uuid"),
        type=entry.get("type", ""),
        timestamp=entry.get("timestamp"),
        subpath=subpath or None,
    )


class DatabaseStore(ABC):
    """A store that records the last writer of each transcript, and must be closed. It works in threads."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript in one transaction, except those whose uuid it already has."""
        await self.append_from(key, entries, None)

    async def append_from(
        self, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        """Add entries, and return the previous writer if that was another one."""
        return await self._run(lambda db: self._append(db, key, entries, writer)) if entries else None

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return a transcript's entries, or None if there never were any."""
        place = read_place(key)
        return await self._run(lambda db: self._load(db, place))

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; for a session, those of its subagents too."""
        place = read_place(key)
        await self._run(lambda db: self._delete(db, place))

    @abstractmethod
    async def _run(self, work: Callable[[Any], T]) -> T:
        """Call `work` with a connection, in a thread."""

    @abstractmethod
    def _append(
        self, db: Any, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None: ...

    @abstractmethod
    def _load(self, db: Any, place: Place) -> list[SessionStoreEntry] | None: ...

    @abstractmethod
    def _delete(self, db: Any, place: Place) -> None: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections. They are opened again when the store is used again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class SqlStore(DatabaseStore):
    """A store whose transcripts are rows of a table."""

    @abstractmethod
    async def _select(self, columns: str, where: str, *parameters: str) -> list[tuple[Any, ...]]:
        """Select columns from the table of transcripts. `where` has conditions with `?`, and an order."""

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, newest first."""
        main = "project = ? AND subpath = '' ORDER BY mtime DESC"
        rows = await self._select("session, mtime", main, project_key)
        return [{"session_id": session, "mtime": mtime} for session, mtime in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, newest first."""
        main = "project = ? AND subpath = '' ORDER BY mtime DESC"
        rows = await self._select("session, mtime, summary", main, project_key)
        return [{"session_id": name, "mtime": mtime, "data": json.loads(data)} for name, mtime, data in rows]

    async def list_projects(self) -> list[str]:
        """Return the keys of the projects that have sessions."""
        return [project for (project,) in await self._select("DISTINCT project", "1 = 1 ORDER BY project")]

    async def find_projects(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session, the one written last first."""
        main = "session = ? AND subpath = '' ORDER BY mtime DESC"
        return [project for (project,) in await self._select("project", main, session_id)]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts."""
        others = "project = ? AND session = ? AND subpath != '' ORDER BY id"
        rows = await self._select("subpath", others, key["project_key"], key["session_id"])
        return [subpath for (subpath,) in rows]
