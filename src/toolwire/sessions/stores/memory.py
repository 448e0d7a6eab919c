"""A session store in memory, for tests and for programs that need no persistence."""

import copy
import time

from toolwire.messages.system import SessionKey
from toolwire.sessions.entries import fold_session_summary
from toolwire.sessions.stores.base import Place, encode_uuid, read_place
from toolwire.sessions.types import (
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)


class InMemorySessionStore:
    """Keeps transcripts until the process ends. It returns copies."""

    def __init__(self) -> None:
        self._transcripts: dict[Place, list[SessionStoreEntry]] = {}
        self._uuids: dict[Place, set[bytes]] = {}
        self._writers: dict[Place, str | None] = {}
        self._summaries: dict[Place, SessionSummaryEntry] = {}
        self._clock = 0

    @property
    def size(self) -> int:
        """The number of sessions; transcripts of subagents do not count."""
        return sum(not subpath for _, _, subpath in self._transcripts)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript, except those whose uuid it already has."""
        await self.append_from(key, entries, None)

    async def append_from(
        self, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        """Add entries, and return the previous writer if that was another one."""
        place = read_place(key)
        known = self._uuids.setdefault(place, set())
        new = []
        for entry in entries:
            name = encode_uuid(entry)
            if name is None or name not in known:
                new.append(copy.deepcopy(entry))
                if name is not None:
                    known.add(name)
        last = self._writers.get(place)
        if new:
            self._transcripts.setdefault(place, []).extend(new)
            self._writers[place] = writer
            if not place[2]:
                self._clock = max(self._clock + 1, time.time_ns() // 1_000_000)
                summary = fold_session_summary(self._summaries.get(place), key, new)
                self._summaries[place] = {**summary, "mtime": self._clock}
        return last if last != writer else None

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return a transcript's entries, or None if there never were any."""
        found = self._transcripts.get(read_place(key))
        return None if found is None else copy.deepcopy(found)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project."""
        found = [summary for place, summary in self._summaries.items() if place[0] == project_key]
        return [{"session_id": each["session_id"], "mtime": each["mtime"]} for each in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions."""
        return [copy.deepcopy(each) for place, each in self._summaries.items() if place[0] == project_key]

    async def find_projects(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session, the one written last first."""
        found = [
            (each["mtime"], place[0]) for place, each in self._summaries.items() if place[1] == session_id
        ]
        return [project for _, project in sorted(found, reverse=True)]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; for a session, those of its subagents too."""
        gone = read_place(key)
        for place in [
            each for each in self._transcripts if each == gone or (not gone[2] and each[:2] == gone[:2])
        ]:
            del self._transcripts[place], self._uuids[place]
            self._summaries.pop(place, None)
            self._writers.pop(place, None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts."""
        wanted = (key["project_key"], key["session_id"])
        return [subpath for *session, subpath in self._transcripts if subpath and tuple(session) == wanted]

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """Return a transcript's entries, or an empty list. For assertions in tests."""
        return copy.deepcopy(self._transcripts.get(read_place(key), []))

    def clear(self) -> None:
        """Delete everything."""
        self._transcripts.clear()
        self._uuids.clear()
        self._writers.clear()
        self._summaries.clear()
