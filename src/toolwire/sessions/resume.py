"""Fetches a conversation from a session store, so that the CLI can resume it on this machine.

The transcript is written where the CLI itself would keep it, so the user's settings, login, agents and skills stay
in effect, and the local history continues in the same file. Local data is never overwritten: missing entries are
appended, and a conversation that was continued in two places is an error.

A CLI that cannot write to its own folder saves nothing, and then reports nothing to the store either. In that case
the transcript is written to a temporary folder, and resumed by its path; what cannot be saved that way is refused
before the CLI is started.
"""

import copy
import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire._support.files import replace_file
from toolwire._support.log import logger_for
from toolwire._transport.find_cli import find_cli, parse_version
from toolwire._transport.live_guard import refuse_live_start
from toolwire.errors import SessionStoreError
from toolwire.messages.system import SessionKey
from toolwire.sessions import aio, entries, paths, transcript
from toolwire.sessions.spool import Spool, find_transcript_path
from toolwire.sessions.store_calls import StoreTimeoutError, call_store
from toolwire.sessions.store_functions import add_missing, find_missing
from toolwire.sessions.types import SessionStore, SessionStoreEntry, implements

if TYPE_CHECKING:
    from toolwire.options.agent_options import ClaudeAgentOptions

logger = logger_for("sessions")

_MESSAGES: Final = frozenset({"user", "assistant", "attachment", "system"})
"""Types of entries that make up the conversation. Others (titles, tags, costs) may be added on either side."""
_BY_PATH_SINCE: Final = (2, 1, 187)
"""The first CLI version that continues in the file it is given; older ones continue in their own folder."""
_VERSION_TIMEOUT: Final = 30.0


@dataclass
class Fetched:
    """The data needed to start the CLI with a conversation."""

    options: "ClaudeAgentOptions"
    project_keys: dict[str, str] = field(default_factory=dict)
    """Maps the project key on this machine to the one in the store, if they differ."""
    folder: Path | None = None
    """A temporary folder with the transcript, to be removed when the store has everything."""


async def fetch_session(
    options: "ClaudeAgentOptions", env: Mapping[str, str], *, is_local: bool = True
) -> Fetched:
    """Write the conversation to be resumed to where the CLI looks for it. `env` is the environment of the CLI.

    If the store does not have the conversation nothing is written: the CLI then looks for it on the local disk.
    Raises SessionStoreError if the CLI could not save the conversation. This is only checked if `is_local`: the
    CLI runs on this machine.
    """
    fetch = _Fetch(options, env)
    session_id = options.resume
    if session_id and not entries.is_session_id(session_id):
        session_id = None  # a title or a path, which only the CLI understands
    elif not session_id and options.continue_conversation:
        session_id = await fetch.find_newest()
    key = await fetch.find_key(session_id) if session_id else None
    if not session_id or key is None:
        if is_local:
            await fetch.check_own_folder()
        return Fetched(options)
    await fetch.store_other_local_copies(key)
    started = copy.copy(options)
    started.resume, started.continue_conversation = session_id, False
    folder = None
    try:
        await fetch.write_transcripts(key, fetch.own_folder)
    except OSError as error:
        if is_local:
            await fetch.check_by_path(error)
        logger.warning(
            "the CLI's folder is not writable, so the session is resumed from a temporary one: %s", error
        )
        await fetch.store_copy_in_own_folder(key)
        folder = Path(tempfile.mkdtemp(prefix="toolwire-resume-"))
        try:
            _change_owner(options.user, [folder])
            started.resume = os.fspath(await fetch.write_transcripts(key, folder / fetch.local_key))
        except BaseException:
            remove_folder(folder)
            raise
    moved = key["project_key"] != fetch.local_key
    return Fetched(started, {fetch.local_key: key["project_key"]} if moved else {}, folder)


def remove_folder(folder: Path) -> None:
    """Remove the temporary folder of a conversation."""
    shutil.rmtree(folder, ignore_errors=True)


class _Fetch:
    """Brings one conversation from a store to this machine."""

    def __init__(self, options: "ClaudeAgentOptions", env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        self._store: SessionStore = options.session_store
        self._timeout = options.load_timeout_ms / 1000
        self._spool = Spool(options.session_store_spool)
        self._user = options.user
        self._loaded: dict[tuple[str, ...], list[SessionStoreEntry] | None] = {}
        home = env.get("HOME") or Path.home()
        folder = env.get("CLAUDE_CONFIG_DIR") or Path(home, ".claude")
        self._projects = Path(options.cwd or os.curdir, folder, "projects").absolute()
        self.local_key = paths.project_key_for_directory(options.cwd)
        self.own_folder = self._projects / self.local_key

    async def find_newest(self) -> str | None:
        """Return the session of this project that was written last; transcripts of subagents are ignored."""
        listed = await self._call("list_sessions", self.local_key)
        for each in sorted(listed, key=lambda each: each["mtime"], reverse=True):
            name: str = each["session_id"]
            if entries.is_session_id(name):
                stored = await self._load({"project_key": self.local_key, "session_id": name})
                if stored and stored[0].get("isSidechain") is not True:
                    return name
        return None

    async def find_key(self, session_id: str) -> SessionKey | None:
        """Return the key of a session, in this project or another; None if the store does not have it."""
        own: SessionKey = {"project_key": self.local_key, "session_id": session_id}
        if await self._load(own) or self._spool.find(own):
            return own
        if implements(self._store, "find_projects"):
            for project in await self._call("find_projects", session_id):
                key: SessionKey = {"project_key": project, "session_id": session_id}
                if await self._load(key):
                    return key
        return None

    async def store_other_local_copies(self, key: SessionKey) -> None:
        """Add entries to the store that only other local copies have: in other folders, and in the spool."""
        name = f"{key['session_id']}.jsonl"
        found = await aio.run_in_thread(lambda: list(self._projects.glob(f"*/{name}")))
        for path in found:
            if path.parent != self.own_folder:
                await self._add_if_ahead(key, path)
        if spooled := self._spool.find(key):
            await self._add_if_ahead(key, spooled)
            self._spool.remove(key)

    async def store_copy_in_own_folder(self, key: SessionKey) -> None:
        """Add entries to the store that only the CLI's folder has, which is at most readable here."""
        path = self.own_folder / f"{key['session_id']}.jsonl"
        if await aio.run_in_thread(lambda: os.access(path, os.R_OK)):
            await self._add_if_ahead(key, path)

    async def check_own_folder(self) -> None:
        """Raise SessionStoreError if the CLI can write neither to its folder nor elsewhere."""
        try:
            await aio.run_in_thread(partial(_check_folder, self.own_folder))
        except OSError as error:
            resume = self._options.resume
            if resume and os.sep in resume:
                await self.check_by_path(error)
            else:
                raise self._refuse(error, "") from error

    async def check_by_path(self, reason: OSError) -> None:
        """Raise SessionStoreError unless the CLI can continue in a given file. `reason`: why not in its folder."""
        if self._options.fork_session:  # every CLI writes a fork to its own folder
            raise self._refuse(reason, "") from reason
        refuse_live_start(self._env)
        command = [find_cli(self._options.cli_path), "--version"]
        how: dict[str, Any] = {"env": dict(self._env), "user": self._user, "check": False}
        try:
            with anyio.move_on_after(_VERSION_TIMEOUT):
                done = await anyio.run_process(command, **how, stdin=DEVNULL, stderr=DEVNULL)
                if (parse_version(done.stdout.decode(errors="replace")) or ()) >= _BY_PATH_SINCE:
                    return
        except OSError:
            return  # the CLI cannot be started at all; starting it will report why
        wanted = ".".join(map(str, _BY_PATH_SINCE))
        raise self._refuse(reason, f"update Claude Code to {wanted} or newer, ") from reason

    def _refuse(self, reason: OSError, advice: str) -> SessionStoreError:
        return SessionStoreError(
            "Claude Code cannot write to its folder, so it would neither save this conversation nor report it to "
            f"the session store: {reason}. Make {self._projects} writable, {advice}or set another folder with "
            "env={'CLAUDE_CONFIG_DIR': ...}"
        )

    async def _add_if_ahead(self, key: SessionKey, path: Path) -> None:
        stored = await self._load(key) or []
        local = await aio.run_in_thread(partial(_read, path))
        if _compare(path, local, stored):
            await self._add_missing(key, path)

    async def _add_missing(self, key: SessionKey, path: Path) -> None:
        logger.info("%s has entries that the session store lacks; adding them to the store", path)
        await self._guard("append", add_missing(self._store, key, path))
        self._loaded.clear()

    async def write_transcripts(self, key: SessionKey, folder: Path) -> Path:
        """Write the transcripts of a session to the folder of its project, and return the path of the main one."""
        path = folder / f"{key['session_id']}.jsonl"
        await self._update_both(key, path)
        await aio.run_in_thread(partial(_check_writable, folder, path))
        for subpath in await self._list_subkeys(key):
            below = find_transcript_path(path.with_suffix(""), subpath)
            if below is None:
                logger.warning(
                    "skipped a transcript of session %s with an unsafe name: %r", key["session_id"], subpath
                )
            else:
                await self._update_both({**key, "subpath": subpath}, below)
        return path

    async def _update_both(self, key: SessionKey, path: Path) -> None:
        """Add missing entries to a local transcript; if it has more than the store, add them to the store."""
        stored = await self._load(key) or []
        if await aio.run_in_thread(partial(_append_to_local, path, stored, self._user)):
            await self._add_missing(key, path)

    async def _list_subkeys(self, key: SessionKey) -> list[str]:
        if not implements(self._store, "list_subkeys"):
            return []
        wanted = {"project_key": key["project_key"], "session_id": key["session_id"]}
        found: list[str] = await self._call("list_subkeys", wanted)
        return found

    async def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        place = key["project_key"], key["session_id"], key.get("subpath", "")
        if place not in self._loaded:
            self._loaded[place] = await self._call("load", key)
        return self._loaded[place]

    async def _call(self, method: str, *arguments: Any) -> Any:
        return await self._guard(method, call_store(self._store, method, *arguments, timeout=self._timeout))

    async def _guard(self, method: str, call: Any) -> Any:
        try:
            return await call
        except StoreTimeoutError as error:
            raise SessionStoreError(f"cannot resume: {error} (load_timeout_ms)") from error
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise SessionStoreError(
                f"cannot resume: the session store's {method}() failed: {reason}"
            ) from error


def _append_to_local(path: Path, stored: list[SessionStoreEntry], user: str | int | None) -> bool:
    """Append the entries that a local transcript lacks. Return True if it has some that are not stored."""
    lines, metadata = entries.split_metadata(stored)
    local = _read(path)
    is_ahead = _compare(path, local, lines)
    made = _make_folder(path.parent)
    if metadata:
        replace_file(path.with_suffix(".meta.json"), [json.dumps(metadata).encode()])
        made.append(path.with_suffix(".meta.json"))
    if not local and not (path.exists() and path.stat().st_size):
        replace_file(path, (entries.write_line(entry) for entry in lines))
        made.append(path)
    elif missing := find_missing(lines, local):
        transcript.append_entries(path, missing)
    _change_owner(user, made)
    return is_ahead


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a local transcript, without copies of API requests; an empty list if it is missing."""
    try:
        return list(transcript.read_mirrored(path))
    except FileNotFoundError:
        return []


def _compare(path: Path, local: Iterable[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if a local transcript has messages that are not stored. SessionStoreError if both have some."""
    here, there = (
        {each.get("uuid") for each in side if each.get("type") in _MESSAGES} for side in (local, stored)
    )
    if here and here - there and there - here:
        raise SessionStoreError(
            f"the conversation was continued in two places: {path} and the session store each have messages that "
            "the other lacks. import_session_to_store() joins both in the store; delete_session() deletes the file."
        )
    return bool(here - there)


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder that only its owner can read, and return the folders that were created."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return missing


def _check_folder(folder: Path) -> None:
    """Raise OSError if a folder is not writable, or cannot be created."""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", os.fspath(there))
    _check_writable(there)


def _check_writable(*places: Path) -> None:
    """Raise OSError if one of these files and folders is not writable."""
    for place in places:
        if not os.access(place, os.W_OK | os.X_OK if place.is_dir() else os.W_OK):
            raise PermissionError(errno.EACCES, "it is not writable", os.fspath(place))


def _change_owner(user: str | int | None, made: Iterable[Path]) -> None:
    """Make the user that the CLI runs as the owner of the files created for it."""
    if user is None or sys.platform == "win32":
        return
    import pwd  # noqa: PLC0415 - not on Windows

    with suppress(KeyError):  # no such user: starting the CLI will report it
        number = user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
        for each in made:
            os.chown(each, number, -1, follow_symlinks=False)
