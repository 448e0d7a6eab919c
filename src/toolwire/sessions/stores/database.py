"""What stores in databases have in common: who adds entries, the end of a store, and the questions put in SQL."""

import json
from abc import ABC, abstractmethod
from typing import Any, Self

from toolwire.messages.system import SessionKey
from toolwire.sessions.types import (
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)


class DatabaseStore(ABC):
    """A store that knows who added to a transcript, and has something to close."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript in one transaction, but for those whose uuid it already has."""
        await self.append_from(key, entries, None)

    @abstractmethod
    async def append_from(
        self, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        """Add entries, and return who added some before if that was another writer."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what is open. It is opened again when the store is used again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class SqlStore(DatabaseStore):
    """A store whose transcripts are rows of a table."""

    @abstractmethod
    async def _select(self, columns: str, where: str, *parameters: str) -> list[tuple[Any, ...]]:
        """Read columns of the table of transcripts. `where`: conditions with `?`, and an order."""

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, newest first."""
        main = "project = ? AND subpath = '' ORDER BY mtime DESC"
        rows = await self._select("session, mtime", main, project_key)
        return [{"session_id": session, "mtime": mtime} for session, mtime in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, newest first."""
        main = "project = ? AND subpath = '' ORDER BY mtime DESC"
        rows = await self._select("session, mtime, summary", main, project_key)
        return [{"session_id": name, "mtime": mtime, "data": json.loads(data)} for name, mtime, data in rows]

    async def list_projects(self) -> list[str]:
        """Return the keys of the projects that have sessions."""
        return [project for (project,) in await self._select("DISTINCT project", "1 = 1 ORDER BY project")]

    async def find_projects(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session, the one written last first."""
        main = "session = ? AND subpath = '' ORDER BY mtime DESC"
        return [project for (project,) in await self._select("project", main, session_id)]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts."""
        others = "project = ? AND session = ? AND subpath != '' ORDER BY id"
        rows = await self._select("subpath", others, key["project_key"], key["session_id"])
        return [subpath for (subpath,) in rows]
