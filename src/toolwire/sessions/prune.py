"""Deletes old sessions from disk by age, number, size or tag, after showing which.

The CLI itself deletes transcripts silently, after `cleanupPeriodDays` (30) days. Here nothing is deleted unless
`dry_run=False`, a session that a CLI has open is kept, and each deletion is logged.
"""

import shutil
import time
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire._support.record import Record, record
from toolwire.errors import SessionRunningError
from toolwire.sessions import disk, entries, paths, transcript
from toolwire.sessions.paths import Directory, SessionFile

logger = logger_for("sessions")

_PIECE: Final = 1024 * 1024


@record
class PrunedSession(Record):
    """A session that `prune_sessions` deleted, or would delete."""

    session_id: str
    project_key: str
    path: str
    last_modified: int
    """When it was last written, in milliseconds since 1970."""
    size: int
    """Bytes of its transcript and of everything else that the CLI keeps for it."""
    summary: str = ""
    tag: str | None = None
    reason: str = ""
    """Which limit it exceeds, as text."""
    deleted: bool = False
    error: str | None = None
    """Why it could not be deleted."""


def prune_sessions(
    *,
    older_than: timedelta | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    tag: str | None = None,
    directory: Directory | None = None,
    keep_tags: Collection[str] = (),
    dry_run: bool = True,
    export_to: Directory | None = None,
    config_dir: Directory | None = None,
) -> list[PrunedSession]:
    """Delete sessions that exceed any of the limits, and return them, newest first; with `dry_run`, delete nothing.

    - `older_than`: delete those last written longer ago. `keep`: delete all but this many of the newest.
      `max_bytes`: delete the oldest ones until the rest fits into this size.
    - `directory`: only sessions of it and its git worktrees. `tag`: only sessions with this tag; without a limit,
      all of them. `keep_tags`: sessions with one of these tags are always kept.
    - `export_to`: a folder into which each session is copied before it is deleted.

    Sessions that a CLI has open, or that are written meanwhile, are kept. If deleting one fails, it has an `error`.
    """
    limits = _Limits(older_than, keep, max_bytes, tag, keep_tags)
    _check_limits(limits)
    limits = replace(limits, keep_tags=frozenset(keep_tags))  # it is asked once for each session
    found = _find_excess(limits, directory, config_dir)
    if not dry_run:
        for file, each in found:
            _delete(file, each, None if export_to is None else Path(export_to))
        disk.forget_files([file for file, each in found if each.deleted])
    return [each for _, each in found]


@dataclass(frozen=True)
class _Limits:
    older_than: timedelta | None
    keep: int | None
    max_bytes: int | None
    tag: str | None
    keep_tags: Collection[str]


def _check_limits(limits: _Limits) -> None:
    age = limits.older_than
    if age is None and limits.keep is None and limits.max_bytes is None and limits.tag is None:
        raise ValueError("prune_sessions() needs a limit: older_than, keep, max_bytes or tag")
    if age is not None and not isinstance(age, timedelta):
        raise TypeError(f"older_than must be a timedelta, such as timedelta(days=30), not {age!r}")
    for name, value in (("keep", limits.keep), ("max_bytes", limits.max_bytes)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    if isinstance(limits.keep_tags, str):
        raise TypeError(
            f"keep_tags must be a collection of tags, such as [{limits.keep_tags!r}], not a string"
        )


def _find_excess(
    limits: _Limits, directory: Directory | None, config_dir: Directory | None
) -> list[tuple[SessionFile, PrunedSession]]:
    folders = paths.find_project_folders(directory, config_dir)
    running = paths.list_running_sessions(config_dir)
    oldest = None if limits.older_than is None else time.time() - limits.older_than.total_seconds()
    found: list[tuple[SessionFile, PrunedSession]] = []
    number = total = 0
    with closing(disk.summarise_files(paths.list_session_files(folders), config_dir)) as summaries:
        for file, summary in summaries:
            data = summary["data"]
            tag = data.get("tag")
            if limits.tag is not None and tag != limits.tag:
                continue
            number += 1
            size = 0 if limits.max_bytes is None else _measure(file)
            total += size
            reason = _judge(limits, file, number, total, oldest)
            if reason is None or tag in limits.keep_tags or file.session_id in running:
                continue
            total -= size
            row = PrunedSession(
                file.session_id,
                file.path.parent.name,
                str(file.path),
                file.mtime,
                size or _measure(file),
                summary=entries.choose_title(data),
                tag=tag,
                reason=reason,
            )
            found.append((file, row))
    return found


def _judge(limits: _Limits, file: SessionFile, number: int, total: int, oldest: float | None) -> str | None:
    """Return the limit that a session exceeds, or None. `number` and `total` include all newer sessions."""
    if oldest is not None and file.mtime_ns / 1e9 < oldest:
        return f"not used for more than {limits.older_than}"
    if limits.keep is not None and number > limits.keep:
        return f"not among the newest {limits.keep}"
    if limits.max_bytes is not None and total > limits.max_bytes:
        return f"the newer ones need {limits.max_bytes:,} bytes"
    if limits.older_than is None and limits.keep is None and limits.max_bytes is None:
        return f"tagged {limits.tag}"
    return None


def _measure(file: SessionFile) -> int:
    """Return the size of a session with everything that belongs to it, in bytes."""
    total = file.size
    for trace in paths.list_traces(file)[:-1]:
        for each in paths.walk(trace):
            with suppress(OSError):  # deleted meanwhile
                total += each.stat(follow_symlinks=False).st_size
    return total


def _delete(file: SessionFile, row: PrunedSession, export_to: Path | None) -> None:
    try:
        now = paths.stat_session(file.path)
        if now is None or now.version != file.version:
            row.error = "it was written or deleted meanwhile"
            return
        if export_to is not None:
            _export(file, export_to)
        disk.delete_file(file)
    except (
        OSError,
        SessionRunningError,
        RecursionError,
    ) as error:  # RecursionError: folders nested too deeply
        row.error = str(error)
        logger.warning("cannot delete session %s (%s): %s", row.session_id, row.path, error)
        return
    row.deleted = True
    logger.info("deleted session %s (%s), %d bytes: %s", row.session_id, row.path, row.size, row.reason)


def _export(file: SessionFile, folder: Path) -> None:
    """Copy a transcript with its subagents and large results, readable by their owner only."""
    target = folder / file.path.parent.name / file.path.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with transcript.open_transcript(file.path) as source:
        replace_file(target, iter(lambda: source.read(_PIECE), b""))
    if file.folder.is_dir():
        shutil.copytree(file.folder, target.with_suffix(""), symlinks=True, dirs_exist_ok=True)
