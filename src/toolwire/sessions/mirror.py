"""Copies a conversation into a session store while it runs, from the transcript entries that the CLI reports.

The reader of the CLI's output only passes reports on (`add`) and never waits. A task (`run`) stores them, several
reports at once. While the store fails nothing is lost and memory stays bounded: the CLI's own file has everything,
and once the store responds again, missing entries are added from that file. If there is no such file, or it is
temporary, entries are kept in a `Spool`.
"""

import os
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.waiting import Signal
from toolwire.messages.system import SessionKey
from toolwire.sessions import aio
from toolwire.sessions.entries import is_session_id
from toolwire.sessions.spool import Spool, is_temporary
from toolwire.sessions.store_calls import StoreTimeoutError, call_store
from toolwire.sessions.store_functions import add_missing, identify
from toolwire.sessions.types import SessionStore, SessionStoreEntry, supports_writers

logger = logger_for("sessions")

_BATCH: Final = 500
_DELAY: Final = 1.0
"""Seconds that entries wait at most for others, in batched mode."""
_PAUSES: Final = (0.2, 0.8)
_CALL_TIMEOUT: Final = 60.0
_HELD: Final = 5_000
_HELD_SIZE: Final = 64_000_000
"""Limits of entries and (approximate) characters in memory. Beyond them, a store that does not respond later gets
the rest from the file."""
_RETRIES: Final = (1.0, 60.0)
"""Seconds between attempts to reach a store that failed: at first, and at most."""


@dataclass
class _Transcript:
    key: SessionKey
    path: Path
    waiting: list[SessionStoreEntry] = field(default_factory=list)
    size: int = 0
    """The approximate number of characters in `waiting`."""
    sending: list[SessionStoreEntry] = field(default_factory=list)
    """Entries that are being stored now."""
    is_behind: bool = False
    """True if the store lacks entries, which must be read from the file or the spool."""
    is_ours: bool = False
    """True if this conversation has added to it."""
    put_aside: Counter[str] = field(default_factory=Counter)
    """Entries that were reported, and will be read from the file later."""
    early: Counter[str] = field(default_factory=Counter)
    """Entries that were read from the file, and stored, before they were reported."""

    def take(self) -> list[SessionStoreEntry]:
        """Return the waiting entries, without those that the store already has."""
        entries, self.waiting, self.size = self.waiting, [], 0
        return [each for each in entries if not self._was_early(each)] if self.early else entries

    def _was_early(self, entry: SessionStoreEntry) -> bool:
        name = identify(entry)
        if not self.early[name]:
            return False
        self.early -= Counter([name])
        return True


def make_key(file_path: str) -> SessionKey | None:
    """Return the key of a transcript from its path: `<project>/<id>.jsonl` or `<project>/<id>/<subpath>.jsonl`."""
    parts = Path(file_path.removesuffix(".jsonl")).parts
    for index in range(len(parts) - 1, 0, -1):
        if is_session_id(parts[index]):
            key: SessionKey = {"project_key": parts[index - 1], "session_id": parts[index]}
            if below := "/".join(parts[index + 1 :]):
                key["subpath"] = below
            return key
    return None


class Mirror:
    """Copies one conversation to a store.

    With `eager`, each report is stored as soon as the one before is, otherwise several together. `flush` waits at
    most `timeout` seconds, and `finish` at most `close_timeout`. `report` is called with the frame of a
    `MirrorErrorMessage` when the store fails. `project_keys` maps the project keys on this machine to those in the
    store, if they differ. `spool` keeps what would otherwise be lost. `is_local` means that the CLI runs on this
    machine, so that missing reports are an error.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        eager: bool,
        timeout: float,
        close_timeout: float | None = None,
        report: Callable[[dict[str, Any]], None],
        project_keys: Mapping[str, str] | None = None,
        spool: Spool | None = None,
        is_local: bool = False,
    ) -> None:
        self._store = store
        self._project_keys = project_keys or {}
        self._eager = eager
        self._timeout = timeout
        self._close_timeout = timeout if close_timeout is None else close_timeout
        self._report = report
        self._spool = spool or Spool()
        self._is_local = is_local
        self._known: set[str] = set()
        """Sessions for which the CLI has reported entries, or the user was notified that it has not."""
        self._writer = f"{socket.gethostname()}, process {os.getpid()}, conversation {uuid.uuid4()}"
        self._supports_writers = supports_writers(store)
        self._transcripts: dict[str, _Transcript] = {}
        self._changed = Signal()
        self._stored = Signal()
        self._is_flushing = False
        self._is_busy = False
        self._is_late = False  # the store did not respond in time, and has not responded since
        self._pause = _RETRIES[0]

    def add(self, frame: Mapping[str, Any]) -> None:
        """Add the entries of a `transcript_mirror` frame. Never waits."""
        path, entries = frame.get("filePath"), frame.get("entries")
        key = make_key(path) if isinstance(path, str) else None
        if key is None or not isinstance(path, str) or not isinstance(entries, list):
            self._fail(
                None, f"the CLI reported a transcript path that belongs to no session: {str(frame)[:200]}"
            )
            return
        self._known |= {"", key["session_id"]}
        key["project_key"] = self._project_keys.get(key["project_key"], key["project_key"])
        transcript = self._transcripts.setdefault(path, _Transcript(key, Path(path)))
        transcript.waiting += entries
        transcript.size += sum(map(_measure, entries))
        if len(transcript.waiting) > _HELD or transcript.size > _HELD_SIZE:
            self._put_aside(transcript, transcript.take())
        self._changed.notify()

    async def run(self) -> None:
        """Store reported entries, until cancelled."""
        while True:
            is_retry = await self._wait_for_work()
            self._is_flushing, self._is_busy = False, True
            for transcript in list(self._transcripts.values()):
                if transcript.waiting or transcript.is_behind:
                    await self._store_transcript(transcript, is_retry=is_retry)
            self._is_busy = False
            self._stored.notify()

    async def flush(self, session_id: str = "") -> bool:
        """Wait until everything added is stored. False if the store failed, or took longer than the limit.

        After a failure or timeout, later calls do not wait until the store responds again. `session_id` is that of
        the result that waits; if the CLI has reported nothing for it, it has not saved it either.
        """
        if self._is_local and session_id not in self._known:
            self._known.add(session_id)
            self._fail(
                None,
                "the CLI has reported no entries of this conversation, so it is not stored: check that its folder "
                "(CLAUDE_CONFIG_DIR, or ~/.claude) is writable and that the CLI is up to date",
            )
        return await self._wait_for_store(0 if self._is_late or self._is_behind() else self._timeout)

    async def _wait_for_store(self, seconds: float) -> bool:
        self._is_flushing = True
        self._changed.notify()
        if seconds:
            with anyio.move_on_after(seconds) as limit:
                await self._stored.wait_until(self._is_idle)
            self._is_late = limit.cancelled_caught
        return self._is_idle() and not self._is_behind()

    async def finish(self) -> bool:
        """Store the rest. False if that failed: the log then names the file that has everything."""
        if await self._wait_for_store(self._close_timeout):
            return True
        for transcript in self._transcripts.values():
            if transcript.waiting or transcript.sending or transcript.is_behind:
                await self._log_unstored(transcript)
        return False

    async def _wait_for_work(self) -> bool:
        """Wait for entries. Return True if there are none, and it is time to retry what failed."""
        with anyio.move_on_after(self._pause if self._is_behind() else None) as pause:
            await self._changed.wait_until(lambda: self._is_flushing or self._count_waiting())
        if pause.cancelled_caught:
            self._pause = min(self._pause * 2, _RETRIES[1])
            return True
        if not self._eager:
            with anyio.move_on_after(_DELAY):
                await self._changed.wait_until(lambda: self._is_flushing or self._count_waiting() >= _BATCH)
        return False

    def _count_waiting(self) -> int:
        return sum(len(each.waiting) for each in self._transcripts.values())

    def _is_idle(self) -> bool:
        return not self._is_flushing and not self._is_busy and not self._count_waiting()

    def _is_behind(self) -> bool:
        return any(each.is_behind for each in self._transcripts.values())

    async def _store_transcript(self, transcript: _Transcript, *, is_retry: bool) -> None:
        entries = transcript.sending = transcript.take()
        if not entries and not transcript.is_behind:
            return
        was_behind, transcript.is_behind = transcript.is_behind, False  # it may fall behind again meanwhile
        error = await self._try_to_store(transcript, entries, was_behind=was_behind)
        transcript.sending = []
        if error is None:
            self._is_late = False
            self._pause = _RETRIES[0]
            return
        transcript.is_behind = True
        if entries:
            self._put_aside(transcript, entries)
        if is_retry:
            logger.debug("the session store still fails: %s", error)
        else:
            self._fail(transcript.key, error)

    def _put_aside(self, transcript: _Transcript, entries: list[SessionStoreEntry]) -> None:
        """Leave entries to be read from the CLI's file later, or spool them if there is no such file."""
        transcript.is_behind = True
        transcript.put_aside.update(map(identify, entries))
        if transcript.path.exists():
            return
        try:
            self._spool.add(transcript.key, entries)
        except OSError as error:
            lost = f"{len(entries)} entries are lost: the session store failed, and so did the spool: {error}"
            self._fail(transcript.key, lost)

    async def _try_to_store(
        self, transcript: _Transcript, entries: list[SessionStoreEntry], *, was_behind: bool
    ) -> str | None:
        """Store entries, or everything that is missing. Retry errors, but not timeouts. Return why it failed."""
        error = ""
        for attempt, pause in enumerate((0.0, *_PAUSES)):
            await anyio.sleep(pause)
            try:
                # After an error some entries may be stored, so only the missing ones are sent again.
                if was_behind or (attempt and transcript.path.exists()):
                    with anyio.fail_after(_CALL_TIMEOUT):
                        await self._catch_up(transcript, entries)
                else:
                    await self._append(transcript, entries)
            except (StoreTimeoutError, TimeoutError) as reason:
                return str(reason) or f"the session store took longer than {_CALL_TIMEOUT:g} s"
            except Exception as reason:  # noqa: BLE001 - whatever a store raises, the conversation continues
                error = str(reason) or type(reason).__name__
            else:
                return None
        return error

    async def _append(self, transcript: _Transcript, entries: list[SessionStoreEntry]) -> None:
        if not self._supports_writers:
            await call_store(self._store, "append", transcript.key, entries, timeout=_CALL_TIMEOUT)
            return
        given = (transcript.key, entries, self._writer)
        other = await call_store(self._store, "append_from", *given, timeout=_CALL_TIMEOUT)
        if other is not None and transcript.is_ours:
            self._fail(
                transcript.key,
                f"another conversation has added to this session meanwhile ({other}). Both are stored, as two "
                "branches, but each sees only its own: end one of them, or continue it under its own id "
                "(fork_session)",
            )
        transcript.is_ours = True

    async def _catch_up(self, transcript: _Transcript, entries: list[SessionStoreEntry]) -> None:
        """Add everything that the store lacks, from the file and the spool."""
        spooled = self._spool.find(transcript.key)
        sources = [each for each in (transcript.path, spooled) if each and each.exists()]
        if not sources:
            raise FileNotFoundError(
                f"the missing entries cannot be stored, because {transcript.path} no longer exists"
            )
        added: list[SessionStoreEntry] = []
        for number, source in enumerate(sources, 1):
            more = entries if number == len(sources) else ()
            added += await add_missing(self._store, transcript.key, source, more)
        # The CLI writes to its file a little before it reports.
        transcript.early += (
            Counter(map(identify, added)) - Counter(map(identify, entries)) - transcript.put_aside
        )
        transcript.put_aside.clear()
        if spooled is not None:
            self._spool.remove(transcript.key)

    async def _log_unstored(self, transcript: _Transcript) -> None:
        """Log where to find the entries that the store may lack."""
        place = transcript.path
        try:
            if not transcript.path.exists():
                rest = transcript.sending + transcript.take()
                place = await aio.run_in_thread(partial(self._spool.add, transcript.key, rest))
            elif is_temporary(transcript.path):
                place = await aio.run_in_thread(partial(self._spool.copy, transcript.key, transcript.path))
        except OSError as error:
            logger.error("the spool of session stores failed: %s", error)  # noqa: TRY400 - not our error
        where = "" if place == transcript.path else f", config_dir={os.fspath(self._spool.folder)!r}"
        logger.error(
            "session %s may be incomplete in the session store; %s has everything. It is added when the session is "
            "resumed here with the store, or by import_session_to_store(%r, store%s)",
            transcript.key["session_id"],
            place,
            transcript.key["session_id"],
            where,
        )

    def _fail(self, key: SessionKey | None, error: str) -> None:
        logger.warning("the session store failed: %s", error)
        session_id = key["session_id"] if key else ""
        self._report(
            {
                "type": "system",
                "subtype": "mirror_error",
                "error": error,
                "key": key,
                "uuid": str(uuid.uuid4()),
                "session_id": session_id,
            }
        )


def _measure(value: object) -> int:
    """Return the approximate length of an entry as JSON."""
    todo, size = [value], 0
    while todo:
        each = todo.pop()
        size += 8
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, Mapping):
            size += sum(map(len, each))
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return size
