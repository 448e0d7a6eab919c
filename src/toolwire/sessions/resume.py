"""Fetches a conversation from a session store, so that the CLI can resume it on this machine.

The transcript is put where the CLI itself would keep it, so the user's settings, login, agents and skills stay as
they are, and the local history goes on in the same file. What is on this machine is never overwritten: missing
entries are appended, and a conversation that went on in two places is an error.

A CLI that cannot write its own folder saves nothing, and then reports nothing to the store either. There the
transcript is put into a temporary folder, and resumed by its path; what cannot be kept that way is refused before
the CLI is started.
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
from toolwire.sessions.spool import Spool, find_place
from toolwire.sessions.store_calls import StoreTimeoutError, call_store
from toolwire.sessions.store_functions import add_missing, find_missing
from toolwire.sessions.types import SessionStore, SessionStoreEntry, implements

if TYPE_CHECKING:
    from toolwire.options.agent_options import ClaudeAgentOptions

logger = logger_for("sessions")

_MESSAGES: Final = frozenset({"user", "assistant", "attachment", "system"})
"""Types of entries that make up the conversation. Titles, tags and costs may be added anywhere."""
_BY_PATH_SINCE: Final = (2, 1, 187)
"""The first CLI that goes on in the file whose path it gets; older ones go on in their own folder."""
_VERSION_TIMEOUT: Final = 30.0


@dataclass
class Fetched:
    """What is needed to start the CLI with a conversation."""

    options: "ClaudeAgentOptions"
    project_keys: dict[str, str] = field(default_factory=dict)
    """The store's key of the project if it is another one than here, by the key here."""
    folder: Path | None = None
    """A temporary folder that has the transcript; to be removed when the store has everything."""


async def fetch_session(
    options: "ClaudeAgentOptions", env: Mapping[str, str], *, is_local: bool = True
) -> Fetched:
    """Put the conversation that is to be resumed where the CLI looks for it. `env`: that of the CLI.

    Nothing happens for a conversation that the store does not have: the CLI then looks for it on the local disk.
    SessionStoreError if the CLI could save nothing of what is said, unless it is started by others (`is_local`).
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
    await fetch.store_what_only_this_machine_has(key)
    started = copy.copy(options)
    started.resume, started.continue_conversation = session_id, False
    folder = None
    try:
        await fetch.place_all(key, fetch.own_folder)
    except OSError as error:
        if is_local:
            await fetch.check_by_path(error)
        logger.warning(
            "the CLI's folder cannot be written, so the session is resumed from another: %s", error
        )
        await fetch.store_what_own_folder_has(key)
        folder = Path(tempfile.mkdtemp(prefix="toolwire-resume-"))
        try:
            _give_to(options.user, [folder])
            started.resume = os.fspath(await fetch.place_all(key, folder / fetch.local_key))
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
        """Return the session of this project that was written last; transcripts of subagents do not count."""
        listed = await self._call("list_sessions", self.local_key)
        for each in sorted(listed, key=lambda each: each["mtime"], reverse=True):
            name: str = each["session_id"]
            if entries.is_session_id(name):
                stored = await self._load({"project_key": self.local_key, "session_id": name})
                if stored and stored[0].get("isSidechain") is not True:
                    return name
        return None

    async def find_key(self, session_id: str) -> SessionKey | None:
        """Return the key of a session: in this project, or in the one that has it; None if the store has it not."""
        own: SessionKey = {"project_key": self.local_key, "session_id": session_id}
        if await self._load(own) or self._spool.find(own):
            return own
        if implements(self._store, "find_projects"):
            for project in await self._call("find_projects", session_id):
                key: SessionKey = {"project_key": project, "session_id": session_id}
                if await self._load(key):
                    return key
        return None

    async def store_what_only_this_machine_has(self, key: SessionKey) -> None:
        """Add what other copies on this machine have and the store lacks: of other folders, and of the spool."""
        name = f"{key['session_id']}.jsonl"
        found = await aio.run_in_thread(lambda: list(self._projects.glob(f"*/{name}")))
        for path in found:
            if path.parent != self.own_folder:
                await self._add_if_ahead(key, path)
        if spooled := self._spool.find(key):
            await self._add_if_ahead(key, spooled)
            self._spool.remove(key)

    async def store_what_own_folder_has(self, key: SessionKey) -> None:
        """Add what the CLI's folder has and the store lacks, where that folder can only be read, if at all."""
        path = self.own_folder / f"{key['session_id']}.jsonl"
        if await aio.run_in_thread(lambda: os.access(path, os.R_OK)):
            await self._add_if_ahead(key, path)

    async def check_own_folder(self) -> None:
        """Raise SessionStoreError if the CLI cannot write its folder, nor go on elsewhere."""
        try:
            await aio.run_in_thread(partial(_check_folder, self.own_folder))
        except OSError as error:
            resume = self._options.resume
            if resume and os.sep in resume:
                await self.check_by_path(error)
            else:
                raise self._refuse(error, "") from error

    async def check_by_path(self, reason: OSError) -> None:
        """Raise SessionStoreError unless the CLI goes on where it is told. `reason`: why its folder will not do."""
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
            return  # it cannot be started at all: that will say why
        wanted = ".".join(map(str, _BY_PATH_SINCE))
        raise self._refuse(reason, f"update Claude Code to {wanted} or newer, ") from reason

    def _refuse(self, reason: OSError, advice: str) -> SessionStoreError:
        return SessionStoreError(
            "Claude Code cannot write its folder, and so would neither save this conversation nor report it to the "
            f"session store: {reason}. Make {self._projects} writable, {advice}or name a folder that is: "
            "env={'CLAUDE_CONFIG_DIR': ...}"
        )

    async def _add_if_ahead(self, key: SessionKey, path: Path) -> None:
        stored = await self._load(key) or []
        local = await aio.run_in_thread(partial(_read, path))
        if _compare(path, local, stored):
            await self._add_missing(key, path)

    async def _add_missing(self, key: SessionKey, path: Path) -> None:
        logger.info("%s has entries that the session store lacks: they are added to it", path)
        await self._guard("append", add_missing(self._store, key, path))
        self._loaded.clear()

    async def place_all(self, key: SessionKey, folder: Path) -> Path:
        """Write the transcripts of a session into the folder of its project, and return the main one's path."""
        path = folder / f"{key['session_id']}.jsonl"
        await self._place(key, path)
        await aio.run_in_thread(partial(_check_writable, folder, path))
        for subpath in await self._list_subkeys(key):
            below = find_place(path.with_suffix(""), subpath)
            if below is None:
                logger.warning(
                    "skipped a transcript of session %s with an unsafe name: %r", key["session_id"], subpath
                )
            else:
                await self._place({**key, "subpath": subpath}, below)
        return path

    async def _place(self, key: SessionKey, path: Path) -> None:
        """Bring a local transcript up to the stored one; if it is ahead, the store up to it."""
        stored = await self._load(key) or []
        if await aio.run_in_thread(partial(_bring_up_to_date, path, stored, self._user)):
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


def _bring_up_to_date(path: Path, stored: list[SessionStoreEntry], user: str | int | None) -> bool:
    """Append the entries that a local transcript lacks. Returns True if it has some that are not stored."""
    lines, noted = entries.split_metadata(stored)
    local = _read(path)
    is_ahead = _compare(path, local, lines)
    made = _make_folder(path.parent)
    if noted:
        replace_file(path.with_suffix(".meta.json"), [json.dumps(noted).encode()])
        made.append(path.with_suffix(".meta.json"))
    if not local and not (path.exists() and path.stat().st_size):
        replace_file(path, (entries.write_line(entry) for entry in lines))
        made.append(path)
    elif missing := find_missing(lines, local):
        transcript.append_entries(path, missing)
    _give_to(user, made)
    return is_ahead


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a local transcript, without copies of API requests; none if there is none."""
    try:
        found = (entry for _, entry in transcript.read_entries(path))
        return [entry for entry in found if entry.get("type") not in entries.NOT_MIRRORED]
    except FileNotFoundError:
        return []


def _compare(path: Path, local: Iterable[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if a local transcript has messages that are not stored. SessionStoreError if both have some."""
    here, there = (
        {each.get("uuid") for each in side if each.get("type") in _MESSAGES} for side in (local, stored)
    )
    if here and here - there and there - here:
        raise SessionStoreError(
            f"the conversation went on in two places: {path} and the session store each have messages that the "
            "other lacks. import_session_to_store() joins both in the store; delete_session() drops the local one."
        )
    return bool(here - there)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, which only its owner may read, and return those that were not there before."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return missing


def _check_folder(folder: Path) -> None:
    """Raise OSError if a folder cannot be written, nor made if it is not there."""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", os.fspath(there))
    _check_writable(there)


def _check_writable(*places: Path) -> None:
    """Raise OSError if one of these cannot be written."""
    for place in places:
        if not os.access(place, os.W_OK | os.X_OK if place.is_dir() else os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", os.fspath(place))


def _give_to(user: str | int | None, made: Iterable[Path]) -> None:
    """Let the user as whom the CLI runs read and write what was made for it."""
    if user is None or sys.platform == "win32":
        return
    import pwd  # noqa: PLC0415 - not on Windows

    with suppress(KeyError):  # no such user: starting the CLI will report it
        number = user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
        for each in made:
            os.chown(each, number, -1, follow_symlinks=False)
