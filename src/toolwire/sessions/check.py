"""Checks the sessions on disk for damaged files, missing parts, leftovers and open permissions.

Changes nothing. The other functions work around these problems, so no message is hidden by them.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from toolwire._support.record import Record, record
from toolwire.sessions import entries, paths, transcript, tree
from toolwire.sessions.paths import Directory, SessionFile

ProblemKind = Literal[
    "unreadable",
    "empty",
    "bad_line",
    "torn_line",
    "gap",
    "cycle",
    "duplicate_uuid",
    "duplicate_session",
    "orphan",
    "permissions",
]

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@record
class SessionProblem(Record):
    """A problem with the files of a session."""

    kind: ProblemKind
    path: str
    message: str
    """What is wrong, and what it means."""
    session_id: str | None = None


def check_sessions(
    directory: Directory | None = None,
    *,
    config_dir: Directory | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[SessionProblem]:
    """Return the problems with the sessions of a directory and its git worktrees; with None, of all directories.

    Reads every transcript, and meanwhile calls `on_progress(done, total)` with bytes.
    """
    folders = paths.find_project_folders(directory, config_dir)
    found: list[SessionProblem] = []
    waiting: list[tuple[SessionFile, str, bool]] = []
    copies: dict[str, list[Path]] = {}
    for folder in folders:
        unreadable: list[OSError] = []
        for path in paths.list_folder(folder, unreadable.append):
            name = path.name.removesuffix(".jsonl")
            if not entries.is_session_id(name):
                continue
            if path.suffix == ".jsonl":
                copies.setdefault(name, []).append(path)
                found += _stat_problems(path, name, waiting)
            elif path.is_dir():
                found += _check_folder(path, waiting)
        found += [_unreadable(error, folder) for error in unreadable]
    found += [
        SessionProblem(
            "duplicate_session",
            str(path),
            f"the same session is also in {others[0]}; the newest file is used",
            name,
        )
        for name, (path, *others) in copies.items()
        if others
    ]
    if directory is None:
        found += _find_remains(paths.find_config_folder(config_dir), set(copies))
    total, done = sum(file.size for file, _, _ in waiting), 0
    for file, session_id, of_subagent in waiting:
        found += _check_transcript(file, session_id, of_subagent=of_subagent)
        done += file.size
        if on_progress is not None:
            on_progress(done, total)
    return found


def _unreadable(error: OSError, path: Path, session_id: str | None = None) -> SessionProblem:
    reason = error.strerror or str(error)
    return SessionProblem("unreadable", str(path), f"it cannot be read: {reason}", session_id)


def _stat_problems(
    path: Path, session_id: str, waiting: list[tuple[SessionFile, str, bool]], *, of_subagent: bool = False
) -> Iterator[SessionProblem]:
    """Check a file without reading it. If it can be read, add it to `waiting`."""
    try:
        status = path.stat()
    except OSError as error:
        yield _unreadable(error, path, session_id)
        return
    if not stat.S_ISREG(status.st_mode):
        yield SessionProblem("unreadable", str(path), "it is not a plain file", session_id)
        return
    yield from _check_permissions(path, status, session_id)
    if not status.st_size:
        yield SessionProblem("empty", str(path), "it is empty and is ignored", session_id)
        return
    waiting.append((SessionFile(path, status.st_size, status.st_mtime_ns), session_id, of_subagent))


def _check_permissions(
    path: Path, status: os.stat_result, session_id: str | None
) -> Iterator[SessionProblem]:
    mode = stat.S_IMODE(status.st_mode)
    if os.name == "posix" and mode & _OTHERS:
        message = f"other users of this machine may open it (its mode is {mode:04o})"
        yield SessionProblem("permissions", str(path), message, session_id)


def _check_folder(folder: Path, waiting: list[tuple[SessionFile, str, bool]]) -> Iterator[SessionProblem]:
    """Check the folder beside a transcript."""
    session_id = folder.name
    if not os.path.lexists(folder.with_suffix(".jsonl")):
        message = "it has subagents or tool results without a transcript: their session was deleted"
        yield SessionProblem("orphan", str(folder), message, session_id)
    for path in paths.list_subagent_files(folder):
        yield from _stat_problems(path, session_id, waiting, of_subagent=True)
    for each in paths.walk(folder / "subagents"):
        of = Path(each.path.removesuffix(".meta.json") + ".jsonl")
        if each.name.endswith(".meta.json") and not of.exists():
            message = "it has the metadata of a subagent whose transcript is missing"
            yield SessionProblem("orphan", each.path, message, session_id)


def _find_remains(config_folder: Path, known: set[str]) -> Iterator[SessionProblem]:
    """Find files that the CLI keeps elsewhere for sessions that no longer exist."""
    for name, what in (("file-history", "copies of your files"), ("session-env", "an environment")):
        for path in paths.list_folder(config_folder / name):
            if entries.is_session_id(path.name) and path.name not in known:
                message = f"{what}, kept for a session that no longer exists"
                yield SessionProblem("orphan", str(path), message, path.name)


def _check_transcript(file: SessionFile, session_id: str, *, of_subagent: bool) -> Iterator[SessionProblem]:
    try:
        for kind, message in _find_faults(file, of_subagent=of_subagent):
            yield SessionProblem(kind, str(file.path), message, session_id)
    except OSError as error:
        yield _unreadable(error, file.path, session_id)


def _find_faults(file: SessionFile, *, of_subagent: bool) -> Iterator[tuple[ProblemKind, str]]:
    """Read a transcript, and yield the kind and the description of each problem."""
    bad: list[int] = []
    nodes: dict[str, tree.Node] = {}
    duplicates = 0
    for place, entry in transcript.read_entries(file.path, skipped=bad):
        node = tree.make_node(entry, place)
        if node is not None:
            duplicates += node.uuid in nodes
            nodes.setdefault(node.uuid, node)
    if bad and not transcript.ends_with_newline(file.path):
        yield "torn_line", f"the last line, at byte {bad.pop()}, is torn: it was not written completely"
    if bad:
        yield "bad_line", f"{len(bad)} lines cannot be read, the first at byte {bad[0]}; they are skipped"
    if duplicates:
        yield "duplicate_uuid", f"{duplicates} entries occur more than once"
    gaps = [node for node in nodes.values() if node.parent is not None and node.parent not in nodes]
    if gaps and not (of_subagent and len(gaps) == 1):  # a forked subagent begins with a message of its parent
        yield "gap", f"{len(gaps)} entries have a missing parent, the first at byte {gaps[0].position}"
    if cycles := tree.find_cycles(nodes):
        yield "cycle", f"entries are their own ancestors (a cycle), one of them at byte {cycles[0].position}"
