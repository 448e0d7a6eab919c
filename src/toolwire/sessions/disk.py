"""The history of past conversations on this machine: list, read, rename, tag, fork and delete sessions.

The functions are those of the official package; `config_dir` selects another folder than the CLI's default. They
read and write files and so block; `toolwire.sessions.aio` has async versions.
"""

import errno
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from toolwire._support.log import logger_for
from toolwire.errors import NotSupportedError, SessionRunningError
from toolwire.sessions import entries, paths, transcript, tree
from toolwire.sessions.paths import Directory, SessionFile
from toolwire.sessions.search import SearchHit, make_match
from toolwire.sessions.types import ForkSessionResult, SDKSessionInfo, SessionMessage, SessionSummaryEntry

logger = logger_for("sessions")


def list_sessions(
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    config_dir: Directory | None = None,
) -> list[SDKSessionInfo]:
    """Return the sessions of a directory and its git worktrees, newest first; with None, of all directories.

    Only the files of the page are read.
    """
    folders = paths.find_project_folders(directory, config_dir, include_worktrees=include_worktrees)
    start = min(max(offset, 0), sys.maxsize)
    end = min(start + limit, sys.maxsize) if limit is not None and limit > 0 else None
    with closing(_describe(paths.list_session_files(folders), directory, config_dir)) as rows:
        return list(itertools.islice(rows, start, end))


def _describe(
    files: Iterable[SessionFile], directory: Directory | None, config_dir: Directory | None
) -> Generator[SDKSessionInfo]:
    cwd = None if directory is None else os.path.realpath(directory)
    with closing(summarise_files(files, config_dir)) as found:
        for file, summary in found:
            if row := entries.describe_session(summary, file_size=file.size, cwd=cwd):
                yield row


def summarise_files(
    files: Iterable[SessionFile], config_dir: Directory | None
) -> Generator[tuple[SessionFile, SessionSummaryEntry]]:
    """Yield transcripts with their summaries, from the index if there is one. Unreadable ones are left out."""
    if index := _find_index():
        yield from index.summarise_files(paths.find_config_folder(config_dir), files)
        return
    for file in files:
        try:
            yield file, transcript.summarise(file)
        except OSError as error:
            logger.warning("cannot read the session %s: %s", file.path, error)


def _find_index() -> ModuleType | None:
    """Return the index module; None if this Python has no SQLite."""
    try:
        from toolwire.sessions import index  # noqa: PLC0415 - not every Python has SQLite
    except ImportError:
        return None
    return index


def get_session_info(
    session_id: str, directory: Directory | None = None, *, config_dir: Directory | None = None
) -> SDKSessionInfo | None:
    """Return the list entry of one session. None if there is no such session, or nothing to show."""
    file = paths.find_session(session_id, directory, config_dir)
    if file is None:
        return None
    with closing(_describe([file], directory, config_dir)) as rows:
        return next(rows, None)


def get_session_messages(
    session_id: str,
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    whole_history: bool = False,
    config_dir: Directory | None = None,
) -> list[SessionMessage]:
    """Return the messages of a session in order; an empty list if there is no such session.

    After a compaction the conversation begins with its summary; `whole_history` includes the messages before it.
    """
    file = paths.find_session(session_id, directory, config_dir)
    if file is None:
        return []
    found = transcript.read_messages(file.path, session_id, limit, offset, whole_history=whole_history)
    return _collect(found, file.path)


def iter_session_messages(
    session_id: str,
    directory: Directory | None = None,
    *,
    whole_history: bool = False,
    config_dir: Directory | None = None,
) -> Iterator[SessionMessage]:
    """Yield the messages of a session in order, reading each when needed; nothing if there is no such session.

    For sessions that are too large for a list: memory holds one message, and a small node for each of the others.
    """
    file = paths.find_session(session_id, directory, config_dir)
    if file is not None:
        yield from transcript.read_messages(file.path, session_id, whole_history=whole_history)


def _collect(messages: Iterator[SessionMessage], path: Path) -> list[SessionMessage]:
    try:
        return list(messages)
    except FileNotFoundError:
        return []  # deleted meanwhile
    except OSError as error:
        logger.warning("cannot read the session %s: %s", path, error)
        return []


def search_sessions(
    query: str,
    directory: Directory | None = None,
    *,
    limit: int = 20,
    offset: int = 0,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    tool: str | None = None,
    model: str | None = None,
    branch: str | None = None,
    include_tool_output: bool = False,
    config_dir: Directory | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[SearchHit]:
    """Return the messages that contain all words of a query, best first.

    Searches a directory and its git worktrees; with None, all directories. The last word may be incomplete, unless
    a space follows it; text in quotes is a phrase. Subagents are searched too; the output of tools only with
    `include_tool_output`.

    - `tag`: only sessions with this tag. `branch`: only messages from this git branch.
    - `since`, `until`: only messages from `since` on, and before `until` (without a time zone: local time).
    - `tool`: only calls of this tool, and their results; `mcp__shop__*` matches several.
    - `model`: only responses of models with this in their name, such as `sonnet`.
    - `on_progress(done, total)`: called with bytes while new or longer transcripts are read.

    The first search reads all transcripts, later ones only what was added. NotSupportedError if this Python has no
    SQLite with full-text search.
    """
    match = make_match(query, include_output=include_tool_output)
    if match is None:
        return []
    index = _find_index()
    if index is None:
        raise NotSupportedError(
            "a search needs SQLite, which this Python was built without: use another Python"
        )
    folders = paths.find_project_folders(directory, config_dir)
    wanted = index.TextQuery(
        match,
        limit=limit if limit > 0 else -1,
        offset=max(offset, 0),
        projects=None if directory is None else [each.name for each in folders],
        tag=tag,
        since=since,
        until=until,
        tool=tool,
        model=model,
        branch=branch,
    )
    found: list[SearchHit] = index.search_files(
        paths.find_config_folder(config_dir), folders, wanted, on_progress
    )
    return found


def list_subagents(
    session_id: str, directory: Directory | None = None, *, config_dir: Directory | None = None
) -> list[str]:
    """Return the ids of a session's subagents; an empty list if there is no such session."""
    file = paths.find_session(session_id, directory, config_dir)
    found = [] if file is None else paths.list_subagent_files(file.folder)
    return [path.stem.removeprefix("agent-") for path in found]


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    config_dir: Directory | None = None,
) -> list[SessionMessage]:
    """Return the messages of a subagent in order; an empty list if there is no such session or subagent."""
    file = paths.find_session(session_id, directory, config_dir)
    for path in [] if file is None else paths.list_subagent_files(file.folder):
        if path.stem == f"agent-{agent_id}":
            metadata = paths.read_subagent_metadata(path)
            found = transcript.read_messages(path, session_id, limit, offset, metadata=metadata)
            return _collect(found, path)
    return []


def rename_session(
    session_id: str, title: str, directory: Directory | None = None, *, config_dir: Directory | None = None
) -> None:
    """Set the title of a session. ValueError if it is empty, FileNotFoundError if there is no such session.

    A CLI that has the session open does not notice; use `ClaudeSDKClient.rename_session` for that.
    """
    entries.check_session_id(session_id)
    _append(session_id, "custom-title", {"customTitle": entries.clean_title(title)}, directory, config_dir)


def tag_session(
    session_id: str,
    tag: str | None,
    directory: Directory | None = None,
    *,
    config_dir: Directory | None = None,
) -> None:
    """Set the tag of a session; None removes it. FileNotFoundError if there is no such session."""
    entries.check_session_id(session_id)
    cleaned = "" if tag is None else entries.clean_tag(tag)
    _append(session_id, "tag", {"tag": cleaned}, directory, config_dir)


def delete_session(
    session_id: str,
    directory: Directory | None = None,
    *,
    force: bool = False,
    config_dir: Directory | None = None,
) -> None:
    """Delete a session with everything that the CLI keeps for it: subagents, tool results, copies of files.

    FileNotFoundError if there is no such session; SessionRunningError while a CLI has it open, unless `force`.
    """
    entries.check_session_id(session_id)
    file = find_file(session_id, directory, config_dir)
    folders = paths.find_project_folders(directory, config_dir)
    copies = paths.find_copies(session_id, folders)  # otherwise an older copy would reappear
    for each in [*(each for each in copies if each.path != file.path), file]:
        delete_file(each, force=force)
    forget_files([*copies, file])


def forget_files(files: list[SessionFile]) -> None:
    """Remove deleted sessions from the index."""
    if files and (index := _find_index()):
        index.forget_files(files[0].config_folder, files)


def delete_file(file: SessionFile, *, force: bool = False) -> None:
    """Delete the session of a transcript, with everything that the CLI keeps for it. The index is not updated."""
    process = paths.find_running_process(file.session_id, file.config_folder)
    if process is not None and not force:
        raise SessionRunningError(
            f"Session {file.session_id} is open in process {process}, which would write its file again. "
            "Stop that process first, or pass force=True."
        )
    for path in paths.list_traces(file):
        if path.is_dir() and not path.is_symlink():
            _remove_folder(path)
        else:
            path.unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except RecursionError:
        raise OSError(errno.ELOOP, "folders are nested too deeply to delete them", str(path)) from None


def fork_session(
    session_id: str,
    directory: Directory | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
    *,
    config_dir: Directory | None = None,
) -> ForkSessionResult:
    """Copy a session, or its part up to a message, under a new id, with the subagents of the copied part.

    ValueError if there is no such message, or nothing to copy; FileNotFoundError if there is no such session.
    """
    entries.check_session_id(session_id)
    if up_to_message_id is not None:
        entries.check_session_id(up_to_message_id, "up_to_message_id")
    source = find_file(session_id, directory, config_dir)
    fork = tree.Fork(_entries_of(source.path), source.session_id, up_to_message_id)
    copy = SessionFile(source.path.with_name(f"{fork.session_id}.jsonl"), 0, 0)
    try:
        _write(copy.path, fork.copy(_entries_of(source.path), title, datetime.now(UTC)))
        for path in paths.list_subagent_files(source.folder):
            metadata = paths.read_subagent_metadata(path)
            if up_to_message_id is None or metadata.get("toolUseId") in fork.tool_uses:
                _copy_subagent(path, copy.folder / path.relative_to(source.folder), fork.session_id)
    except BaseException:
        copy.path.unlink(missing_ok=True)
        shutil.rmtree(copy.folder, ignore_errors=True)
        raise
    return ForkSessionResult(fork.session_id)


def _copy_subagent(source: Path, target: Path, session_id: str) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(target, ({**entry, "sessionId": session_id} for entry in _entries_of(source)))
    if (metadata := source.with_suffix(".meta.json")).exists():
        shutil.copyfile(metadata, target.with_suffix(".meta.json"))


def _entries_of(path: Path) -> Iterator[dict[str, Any]]:
    return (entry for _, entry in transcript.read_entries(path))


def _write(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(entries.write_line(each) for each in lines)


def _append(
    session_id: str,
    kind: str,
    fields: dict[str, Any],
    directory: Directory | None,
    config_dir: Directory | None,
) -> None:
    file = find_file(session_id, directory, config_dir)
    transcript.append_entries(file.path, [{"type": kind, **fields, "sessionId": file.session_id}])


def find_file(
    session_id: str, directory: Directory | None = None, config_dir: Directory | None = None
) -> SessionFile:
    """Find the transcript of a session. FileNotFoundError if there is no such session."""
    file = paths.find_session(session_id, directory, config_dir)
    if file is None:
        where = f" of {os.fspath(directory)}" if directory is not None else ""
        searched = paths.find_config_folder(config_dir) / "projects"
        raise FileNotFoundError(f"Session {session_id} not found among the sessions{where} in {searched}")
    return file
