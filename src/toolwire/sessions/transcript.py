"""Reads the file of one transcript line by line: its summary, and its messages a page at a time.

Memory is bounded by the longest line and by a small node for each entry, never by the size of the file.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolwire.sessions import entries, tree
from toolwire.sessions.paths import SessionFile
from toolwire.sessions.types import SessionMessage, SessionSummaryEntry

_CAREFULLY: Final = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))
_PIECE: Final = 1024 * 1024
_LONGEST: Final = 64 * 1024 * 1024
"""Bytes of the longest line that is read. The model's API accepts no message of even half that size."""


def open_transcript(path: Path) -> BinaryIO:
    """Open a transcript for reading. OSError for anything but a regular file: a pipe would never end."""
    descriptor = os.open(path, os.O_RDONLY | _CAREFULLY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", os.fspath(path))
    return os.fdopen(descriptor, "rb", _PIECE // 4)


def read_lines(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines of a transcript, each as (start offset, end offset, line).

    A very long line that cannot be an entry is yielded without its content, to save memory.
    """
    file.seek(start)
    place = start
    while line := file.readline(_PIECE):
        end = place + len(line)
        if len(line) == _PIECE and not line.endswith(b"\n"):
            line, end = _read_long_line(file, line, end)
        yield place, end, line
        place = end


def _read_long_line(file: BinaryIO, line: bytes, end: int) -> tuple[bytes, int]:
    if line.lstrip()[:1] == b"{":
        more = file.readline(_LONGEST)
        line, end = line + more, end + len(more)
        if line.endswith(b"\n") or len(more) < _LONGEST:
            return line, end
    while line and not line.endswith(b"\n"):
        line = file.readline(_PIECE)
        end += len(line)
    return b"\0\n" if line else b"\0", end


def read_entries(path: Path, *, skipped: list[int] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the entries of a transcript, each with its offset in the file.

    Lines that are not entries are left out, and their offsets are added to `skipped`.
    """
    with open_transcript(path) as file:
        yield from _read_entries(file, skipped)


def _read_entries(file: BinaryIO, skipped: list[int] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, _, line in read_lines(file):
        if (entry := entries.read_line(line)) is not None:
            yield place, entry
        elif skipped is not None and not line.isspace():
            skipped.append(place)


def read_mirrored(path: Path, *, skipped: list[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the entries that belong into a session store: all but copies of requests to the API."""
    for _, entry in read_entries(path, skipped=skipped):
        if entry.get("type") not in entries.NOT_MIRRORED:
            yield entry


def read_entry(file: BinaryIO, place: int) -> dict[str, Any]:
    """Return the entry at an offset; an empty dict if the file was replaced meanwhile."""
    _, _, line = next(read_lines(file, place), (0, 0, b""))
    return entries.read_line(line) or {}


def copy_lines(path: Path) -> Iterator[bytes]:
    """Yield the exact bytes of a transcript in pieces, without a last line that was not written completely."""
    with open_transcript(path) as file:
        end = _find_end_of_lines(file)
        file.seek(0)
        place = 0
        while place < end and (piece := file.read(min(_PIECE, end - place))):
            place += len(piece)
            yield piece
        file.seek(end)
        last = file.read(_LONGEST)
        if entries.read_line(last) is not None:
            yield last if last.endswith(b"\n") else last + b"\n"


def _find_end_of_lines(file: BinaryIO) -> int:
    """Return the offset after the last line break."""
    place = file.seek(0, os.SEEK_END)
    while place > 0:
        start = max(place - _PIECE, 0)
        file.seek(start)
        found = file.read(place - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        place = start
    return 0


def ends_with_newline(path: Path) -> bool:
    """Return True if the last line of a transcript was written completely."""
    with open_transcript(path) as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def append_entries(path: Path, new: Iterable[Mapping[str, Any]]) -> None:
    """Append entries in one write, so that they never mix with those of a running CLI. Never creates the file."""
    lines = b"".join(entries.write_line(entry) for entry in new)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # a killed CLI left a torn line, which must not swallow the next one
        if os.write(descriptor, lines) != len(lines):
            raise OSError(errno.ENOSPC, "the entries could only be written in part", str(path))
    finally:
        os.close(descriptor)


def summarise(file: SessionFile) -> SessionSummaryEntry:
    """Read a transcript and return its summary, for lists of sessions."""
    with open_transcript(file.path) as opened:
        _, data = fold_lines(opened, {})
    return make_summary(file, data)


def make_summary(file: SessionFile, data: dict[str, Any]) -> SessionSummaryEntry:
    """Return the summary of a transcript from the data that `fold_lines` collected."""
    return {"session_id": file.session_id, "mtime": file.mtime, "data": data}


def fold_lines(file: BinaryIO, data: dict[str, Any], start: int = 0) -> tuple[int, dict[str, Any]]:
    """Add the lines from offset `start` on to the data of a summary.

    Return the offset after the last complete line, and the data including a last line without a line break, which
    may be torn or still being written. `data` itself only gets the complete lines, so that reading can continue
    from that offset later.
    """
    place = start
    for _, end, line in read_lines(file, start):
        entry = entries.read_line(line)
        if not line.endswith(b"\n"):
            if entry is None:
                return place, data
            unfinished = dict(data)
            entries.fold_entry(unfinished, entry)
            return place, unfinished
        if entry is not None:
            entries.fold_entry(data, entry)
        place = end
    return place, data


def read_conversation(
    path: Path,
    limit: int | None = None,
    offset: int = 0,
    *,
    of_subagent: bool = False,
    whole_history: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a page of the conversation in order; from a large file, each is read when needed.

    The file is read once to find the order, before the first entry is yielded.
    """
    with open_transcript(path) as file:
        if os.fstat(file.fileno()).st_size <= _PIECE:
            lines = file.read().split(b"\n")
            found = [entry for line in lines if line and (entry := entries.read_line(line)) is not None]
            yield from tree.choose_messages(
                found, limit, offset, of_subagent=of_subagent, whole_history=whole_history
            )
            return
        ordered = tree.order_messages(
            _read_entries(file), of_subagent=of_subagent, whole_history=whole_history
        )
        for node in tree.take_page(ordered, limit, offset):
            entry = read_entry(file, node.position)
            if entry.get("uuid") == node.uuid:  # else the file was replaced meanwhile
                yield entry


def read_messages(
    path: Path,
    session_id: str,
    limit: int | None = None,
    offset: int = 0,
    *,
    metadata: Mapping[str, Any] | None = None,
    whole_history: bool = False,
) -> Iterator[SessionMessage]:
    """Yield a page of a transcript's messages in order. `metadata` is that of a subagent; None for a main one."""
    found = read_conversation(
        path, limit, offset, of_subagent=metadata is not None, whole_history=whole_history
    )
    return (tree.make_message(entry, session_id, metadata) for entry in found)
