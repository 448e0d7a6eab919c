"""The session functions for conversations in a session store, instead of files on this machine.

They are those of the official package, and work with any store. A call of the store that takes longer than two
minutes raises a SessionStoreError that is also a TimeoutError; use `anyio.fail_after` or `asyncio.timeout` around a
function for a shorter limit.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import anyio

from toolwire._support.log import logger_for
from toolwire.messages.system import SessionKey
from toolwire.sessions import aio, entries, paths, transcript, tree
from toolwire.sessions.paths import Directory
from toolwire.sessions.store_calls import call_store
from toolwire.sessions.types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionMessage,
    SessionStore,
    SessionStoreEntry,
    SessionSummaryEntry,
    implements,
)

logger = logger_for("sessions")

_TIMEOUT: Final = 120.0
_LOADS_AT_ONCE: Final = 16
_BATCH: Final = 500
_SUBAGENT: Final = re.compile(r"subagents/(?:.*/)?agent-([^/]+)")


async def list_sessions_from_store(
    session_store: SessionStore,
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SDKSessionInfo]:
    """Return the sessions that a store has for a directory (None: the current one), newest first.

    If the store keeps summaries nothing is loaded; otherwise only the sessions up to the end of the page are.
    A session that cannot be loaded is listed with the reason as its summary.
    """
    project_key = paths.project_key_for_directory(directory)
    known = await _list_known(session_store, project_key)
    end = max(offset, 0) + limit if limit is not None and limit > 0 else None
    rows: list[SDKSessionInfo] = []
    for start in range(0, len(known), _LOADS_AT_ONCE):
        some = known[start : start + _LOADS_AT_ONCE]
        rows += await _describe(session_store, project_key, some, paths.find_directory(directory))
        if end is not None and len(rows) >= end:
            break
    return rows[max(offset, 0) : end]


async def _list_known(
    store: SessionStore, project_key: str
) -> list[tuple[str, int, SessionSummaryEntry | None]]:
    """Return id, time and summary of each session, newest first. A session without a summary must be loaded."""
    lists, summarises = implements(store, "list_sessions"), implements(store, "list_session_summaries")
    if not lists and not summarises:
        raise ValueError(
            f"{type(store).__name__} has neither list_session_summaries() nor list_sessions(), "
            "so its sessions cannot be listed: implement one of them"
        )
    summaries: dict[str, SessionSummaryEntry] = {}
    if summarises:
        try:
            found = await _call(store, "list_session_summaries", project_key)
            summaries = {each["session_id"]: each for each in found}
        except NotImplementedError:
            if not lists:
                raise
    times = {name: each["mtime"] for name, each in summaries.items()}
    if lists:
        listed = await _call(store, "list_sessions", project_key)
        times = {each["session_id"]: each["mtime"] for each in listed}
    fresh = {name: each for name, each in summaries.items() if each["mtime"] >= times.get(name, 0)}
    ids = sorted(
        (each for each in times if entries.is_session_id(each)), key=lambda each: (-times[each], each)
    )
    return [(each, times[each], fresh.get(each)) for each in ids]


async def _describe(
    store: SessionStore,
    project_key: str,
    known: list[tuple[str, int, SessionSummaryEntry | None]],
    cwd: str,
) -> list[SDKSessionInfo]:
    """Return the list entries of some sessions. Those without a summary are loaded concurrently."""
    rows: dict[str, SDKSessionInfo | None] = {}

    async def load(session_id: str, mtime: int) -> None:
        key: SessionKey = {"project_key": project_key, "session_id": session_id}
        try:
            found = await _call(store, "load", key) or []
        except Exception as error:  # noqa: BLE001 - one bad session must not hide the others
            logger.warning("cannot load session %s from the store: %r", session_id, error)
            reason = str(error) or type(error).__name__
            rows[session_id] = SDKSessionInfo(session_id, f"(cannot be loaded: {reason})", mtime)
        else:
            loaded = entries.fold_session_summary(None, key, found)
            rows[session_id] = entries.describe_session(loaded, last_modified=mtime, cwd=cwd)

    async with anyio.create_task_group() as group:
        for name, mtime, summary in known:
            if summary is None:
                group.start_soon(load, name, mtime)
            else:
                rows[name] = entries.describe_session(summary, last_modified=mtime, cwd=cwd)
    return [row for name, _, _ in known if (row := rows[name])]


async def get_session_info_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory | None = None,
) -> SDKSessionInfo | None:
    """Return the list entry of one session. None if the store has no such session, or there is nothing to show.

    `last_modified` is the latest timestamp of its entries.
    """
    found = await load_entries(session_store, session_id, directory)
    times = [when for entry in found if (when := entries.read_time(entry.get("timestamp"))) is not None]
    summary = entries.fold_session_summary(None, _make_key(session_id, directory), found)
    cwd = paths.find_directory(directory)
    return entries.describe_session(summary, last_modified=max(times, default=0), cwd=cwd)


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    whole_history: bool = False,
) -> list[SessionMessage]:
    """Return the messages of a session in order; an empty list if the store has no such session."""
    found = await load_entries(session_store, session_id, directory)
    return _read_messages(found, session_id, limit, offset, whole_history=whole_history)


async def list_subagents_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory | None = None,
) -> list[str]:
    """Return the ids of a session's subagents. ValueError for a store without `list_subkeys`."""
    if not entries.is_session_id(session_id):
        return []
    if not implements(session_store, "list_subkeys"):
        raise ValueError(
            f"{type(session_store).__name__} has no list_subkeys(), so subagents cannot be listed: implement it"
        )
    found = await _list_subagents(session_store, _make_key(session_id, directory))
    return [name for _, name in found]


async def get_subagent_messages_from_store(  # noqa: PLR0917 - the official signature
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: Directory | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a subagent in order; an empty list if there is no such session or subagent."""
    if not entries.is_session_id(session_id) or not agent_id:
        return []
    key = _make_key(session_id, directory)
    subpath = f"subagents/agent-{agent_id}"
    if implements(session_store, "list_subkeys"):
        known = await _list_subagents(session_store, key)
        subpath = next((each for each, name in known if name == agent_id), subpath)
    found = await _call(session_store, "load", {**key, "subpath": subpath}) or []
    lines, metadata = entries.split_metadata(found)
    return _read_messages(lines, session_id, limit, offset, metadata=metadata)


async def rename_session_via_store(
    session_store: SessionStore,
    session_id: str,
    title: str,
    directory: Directory | None = None,
) -> None:
    """Set the title of a session in a store. ValueError if it is empty."""
    entries.check_session_id(session_id)
    entry = _make_entry("custom-title", session_id, customTitle=entries.clean_title(title))
    await _append(session_store, _make_key(session_id, directory), [entry])


async def tag_session_via_store(
    session_store: SessionStore,
    session_id: str,
    tag: str | None,
    directory: Directory | None = None,
) -> None:
    """Set the tag of a session in a store; None removes it."""
    entries.check_session_id(session_id)
    entry = _make_entry("tag", session_id, tag="" if tag is None else entries.clean_tag(tag))
    await _append(session_store, _make_key(session_id, directory), [entry])


async def delete_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory | None = None,
) -> None:
    """Delete a session and its subagents from a store. A store without `delete` keeps them, with a warning."""
    entries.check_session_id(session_id)
    if not implements(session_store, "delete"):
        logger.warning(
            "%s has no delete(), so session %s is not deleted", type(session_store).__name__, session_id
        )
        return
    await _call(session_store, "delete", _make_key(session_id, directory))


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: Directory | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a session in a store, or its part up to a message, under a new id, with the subagents of that part."""
    entries.check_session_id(session_id)
    if up_to_message_id is not None:
        entries.check_session_id(up_to_message_id, "up_to_message_id")
    loaded = await load_all(session_store, session_id, directory)
    found = loaded.pop("")
    fork = tree.Fork(found, session_id, up_to_message_id)
    copy = _make_key(fork.session_id, directory)
    for subpath, lines in loaded.items():
        _, metadata = entries.split_metadata(lines)
        if up_to_message_id is None or metadata.get("toolUseId") in fork.tool_uses:
            moved = [_rename(each, fork.session_id) for each in lines]
            await _append(session_store, {**copy, "subpath": subpath}, moved)
    copied = fork.copy(found, title, datetime.now(UTC))
    await _append(session_store, copy, cast("Iterable[SessionStoreEntry]", copied))
    return ForkSessionResult(fork.session_id)


def _rename(entry: SessionStoreEntry, session_id: str) -> SessionStoreEntry:
    return cast(SessionStoreEntry, {**entry, "sessionId": session_id}) if "sessionId" in entry else entry


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: Directory | None = None,
    include_subagents: bool = True,
    batch_size: int = _BATCH,
    config_dir: Directory | None = None,
) -> None:
    """Copy a session from disk into a store, as the CLI would have sent it. Only missing entries are added.

    Lines that cannot be read are skipped, and their number is logged.
    """
    entries.check_session_id(session_id)
    file = await aio.run_in_thread(partial(paths.find_session, session_id, directory, config_dir))
    if file is None:
        raise FileNotFoundError(f"Session {session_id} not found in {paths.find_config_folder(config_dir)}")
    size = batch_size if batch_size > 0 else _BATCH
    key: SessionKey = {"project_key": file.path.parent.name, "session_id": file.session_id}
    await add_missing(store, key, file.path, batch_size=size)
    if include_subagents:
        for path in await aio.run_in_thread(partial(paths.list_subagent_files, file.folder)):
            subpath = path.relative_to(file.folder).with_suffix("").as_posix()
            await add_missing(store, {**key, "subpath": subpath}, path, batch_size=size)


async def add_missing(
    store: SessionStore,
    key: SessionKey,
    path: Path,
    more: Iterable[SessionStoreEntry] = (),
    *,
    batch_size: int = _BATCH,
) -> list[SessionStoreEntry]:
    """Add the entries of a file that a store lacks, then those of `more`. Return the entries that were added."""
    there = await _call(store, "load", key) or []
    lines = await aio.run_in_thread(partial(_read_for_store, path, is_subagent="subpath" in key))
    written = {_fingerprint(entry) for entry in lines if "uuid" not in entry}
    lines += [entry for entry in more if "uuid" in entry or _fingerprint(entry) not in written]
    missing = find_missing(lines, there)
    await _append(store, key, missing, batch_size)
    return missing


def find_missing(
    lines: Iterable[SessionStoreEntry], there: Iterable[Mapping[str, Any]]
) -> list[SessionStoreEntry]:
    """Return the entries that are not in `there`, in order. Those without a uuid are compared by content."""
    names: set[Any] = set()
    others: Counter[str] = Counter()
    for entry in there:
        if "uuid" in entry:
            names.add(entry["uuid"])
        else:
            others[_fingerprint(entry)] += 1
    missing: list[SessionStoreEntry] = []
    for line in lines:
        if "uuid" in line:
            if line["uuid"] in names:
                continue
            names.add(line["uuid"])
        elif others[mark := _fingerprint(line)] > 0:
            others[mark] -= 1
            continue
        missing.append(line)
    return missing


def _read_for_store(path: Path, *, is_subagent: bool) -> list[SessionStoreEntry]:
    """Read a transcript for a store: without copies of API requests, with the metadata of a subagent."""
    found: list[Any] = []
    if is_subagent and (metadata := paths.read_subagent_metadata(path)):
        found.append(entries.make_metadata(metadata))
    bad: list[int] = []
    found += transcript.read_mirrored(path, skipped=bad)
    if bad:
        logger.warning("%s: skipped %d lines that cannot be read, at offsets %s", path, len(bad), bad[:5])
    return found


def identify(entry: Mapping[str, Any]) -> str:
    """Return a string that identifies an entry: its uuid, or its whole content."""
    return str(entry["uuid"]) if "uuid" in entry else _fingerprint(entry)


def _fingerprint(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


async def _list_subagents(store: SessionStore, key: SessionKey) -> list[tuple[str, str]]:
    """Return subpath and id of each subagent."""
    wanted = {"project_key": key["project_key"], "session_id": key["session_id"]}
    found = await _call(store, "list_subkeys", wanted)
    matches = [(each, _SUBAGENT.fullmatch(each)) for each in sorted(found)]
    return [(subpath, match[1]) for subpath, match in matches if match]


def _read_messages(
    found: list[SessionStoreEntry],
    session_id: str,
    limit: int | None,
    offset: int,
    *,
    metadata: Any = None,
    whole_history: bool = False,
) -> list[SessionMessage]:
    chosen = tree.choose_messages(
        found, limit, offset, of_subagent=metadata is not None, whole_history=whole_history
    )
    return [tree.make_message(entry, session_id, metadata) for entry in chosen]


async def load_entries(
    store: SessionStore, session_id: str, directory: Directory | None
) -> list[SessionStoreEntry]:
    """Return the entries of a session's main transcript; an empty list if the store has no such session."""
    if not entries.is_session_id(session_id):
        return []
    return await _call(store, "load", _make_key(session_id, directory)) or []


async def load_all(
    store: SessionStore, session_id: str, directory: Directory | None
) -> dict[str, list[SessionStoreEntry]]:
    """Return all transcripts of a session by subpath, which is empty for the main one.

    FileNotFoundError if the store has no such session.
    """
    key = _make_key(session_id, directory)
    if not (main := await load_entries(store, session_id, directory)):
        raise FileNotFoundError(f"Session {session_id} not found in the store, under {key['project_key']}")
    found = {"": main}
    if implements(store, "list_subkeys"):
        for subpath, _ in await _list_subagents(store, key):
            lines = await _call(store, "load", {**key, "subpath": subpath})
            found[subpath] = lines or []
    return found


async def list_projects_of(store: SessionStore, session_id: str) -> list[str]:
    """Return the keys of the projects in which a store has a session; an empty list if it cannot look that up."""
    found: list[str] = []
    if implements(store, "find_projects"):
        found += await _call(store, "find_projects", session_id)
    return found


async def find_project(store: SessionStore, session_id: str, directory: Directory | None) -> str | None:
    """Return the key of the project in which a store has a session that can be resumed, or None."""
    keys = [paths.project_key_for_directory(directory), *await list_projects_of(store, session_id)]
    for each in dict.fromkeys(keys):
        found = await _call(store, "load", {"project_key": each, "session_id": session_id}) or []
        if tree.has_conversation(found):
            return each
    return None


async def _append(
    store: SessionStore, key: SessionKey, lines: Iterable[SessionStoreEntry], batch_size: int = _BATCH
) -> None:
    remaining = iter(lines)
    while batch := list(itertools.islice(remaining, batch_size)):
        await _call(store, "append", key, batch)


async def _call(store: SessionStore, method: str, *arguments: Any) -> Any:
    return await call_store(store, method, *arguments, timeout=_TIMEOUT)


def _make_key(session_id: str, directory: Directory | None) -> SessionKey:
    return {"project_key": paths.project_key_for_directory(directory), "session_id": session_id}


def _make_entry(kind: str, session_id: str, **fields: Any) -> SessionStoreEntry:
    entry = {"type": kind, **fields, "sessionId": session_id, "uuid": str(uuid4())}
    return cast(SessionStoreEntry, {**entry, "timestamp": entries.write_time(datetime.now(UTC))})
