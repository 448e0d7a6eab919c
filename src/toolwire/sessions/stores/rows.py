"""What the session stores do alike: how a key, an entry, a summary and a hit are kept and read back.

Every entry comes back exactly as it was: it is kept as the bytes of its line, whatever the database makes of text.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable
from typing import Any, Final, cast

from toolwire.errors import SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions import entries as lines
from toolwire.sessions.search import SearchHit, mark_snippet
from toolwire.sessions.types import SessionStoreEntry, SessionSummaryEntry

Place = tuple[str, str, str]
"""Project, session and subpath, which is empty for the main transcript."""

_COMPRESS_FROM: Final = 512
_LONGEST_UUID: Final = 64


def read_place(key: SessionKey) -> Place:
    """Return what a key names. SessionStoreError if a database could not hold it as text."""
    given: Any = key
    place: Place = given["project_key"], given["session_id"], given.get("subpath") or ""
    for each in place:
        if not _is_text(each):
            raise SessionStoreError(
                f"the key of a transcript must be text without NUL or half characters: {key!r}"
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
    """Write an entry as its line, compressed if that is worth it."""
    line = lines.write_line(entry)
    return b"z" + zlib.compress(line) if len(line) >= _COMPRESS_FROM else b"=" + line


def decode_entry(line: bytes) -> SessionStoreEntry:
    """Read what `encode_entry` wrote."""
    try:
        entry: Any = lines.read_line(zlib.decompress(line[1:]) if line[:1] == b"z" else line[1:])
    except zlib.error:
        entry = None
    if entry is None:
        raise SessionStoreError("a line of the session store is damaged")
    return cast(SessionStoreEntry, entry)


def encode_uuid(entry: SessionStoreEntry) -> bytes | None:
    """Return what tells whether a transcript already has an entry; None for one that is new each time."""
    name: Any = entry.get("uuid")
    if not isinstance(name, str):
        return None
    raw = name.encode("utf-8", "surrogatepass")
    return raw if len(raw) <= _LONGEST_UUID else hashlib.sha256(raw).digest()


def fold_data(data: str | None, key: SessionKey, new: Iterable[SessionStoreEntry]) -> str:
    """Add new entries to the data of a summary, which is kept as JSON."""
    previous: SessionSummaryEntry | None = None
    if data is not None:
        previous = {"session_id": key["session_id"], "mtime": 0, "data": json.loads(data)}
    return json.dumps(lines.fold_session_summary(previous, key, new)["data"])


def make_hit(entry: SessionStoreEntry, snippet: str, place: Place) -> SearchHit:
    """Describe an entry that a search has found."""
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
