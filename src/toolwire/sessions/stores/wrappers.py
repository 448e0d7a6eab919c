"""Wrappers around a session store, which change its project keys or remove secrets.

A wrapper has exactly those optional methods that the wrapped store has.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from toolwire._support.scrubber import Scrubber
from toolwire.messages.system import SessionKey
from toolwire.sessions.types import SessionStore, SessionStoreEntry, implements, supports_writers

_BY_PROJECT: Final = frozenset({"list_sessions", "list_session_summaries"})
_BY_KEY: Final = frozenset({"delete", "list_subkeys"})
_OTHERS: Final = frozenset({"append_from", "find_projects"})
_KEPT: Final = frozenset(
    {
        *("type", "subtype", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "agentId", "timestamp"),
        *("id", "tool_use_id", "toolUseId", "requestId", "message_id", "sourceToolAssistantUUID", "role"),
        *("signature", "model", "version"),
    }
)
"""Fields that are not redacted, since they link entries. The API rejects conversations with changed signatures."""


class _Wrapper:
    def __init__(self, store: SessionStore) -> None:
        self._inner = store

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript."""
        await self._inner.append(self._map_key(key), self._map_entries(entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return a transcript's entries, or None if there never were any."""
        return await self._inner.load(self._map_key(key))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an optional method, if the wrapped store has it."""
        if name in _OTHERS and implements(self._inner, name):
            method = self._append_from if name == "append_from" else self._find_projects
            return cast(Callable[..., Any], method)
        if name in _BY_PROJECT | _BY_KEY and implements(self._inner, name):
            method = getattr(self._inner, name)
            if name in _BY_PROJECT:
                return lambda project_key: method(self._map_project(project_key))
            return lambda key: method(self._map_key(key))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def _append_from(
        self, key: SessionKey, entries: list[SessionStoreEntry], writer: str | None
    ) -> str | None:
        if not supports_writers(self._inner):
            await self._inner.append(self._map_key(key), self._map_entries(entries))
            return None
        inner: Any = self._inner
        previous: str | None = await inner.append_from(self._map_key(key), self._map_entries(entries), writer)
        return previous

    async def _find_projects(self, session_id: str) -> list[str]:
        inner: Any = self._inner
        found = await inner.find_projects(session_id)
        return [name for each in found if (name := self._unmap_project(each)) is not None]

    def _map_entries(self, entries: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
        return entries

    def _map_project(self, project_key: str) -> str:
        return project_key

    def _unmap_project(self, project_key: str) -> str | None:
        """Undo `_map_project`; None if the key belongs to another scope."""
        return project_key

    def _map_key(self, key: SessionKey) -> SessionKey:
        return {**key, "project_key": self._map_project(key["project_key"])}


class ScopedSessionStore(_Wrapper):
    """Separates the sessions of one tenant or project in a shared store.

    `tenant` is put before each project key. `project_key` replaces the one derived from the directory, so that
    machines with different folders see the same sessions.
    """

    def __init__(
        self, store: SessionStore, *, tenant: str | None = None, project_key: str | None = None
    ) -> None:
        super().__init__(store)
        if tenant is None and project_key is None:
            raise ValueError("ScopedSessionStore needs a tenant, a project_key, or both")
        if tenant is not None and (not tenant or "/" in tenant):
            raise ValueError(f"a tenant must be a non-empty string without '/', got {tenant!r}")
        self._tenant = tenant
        self._project_key = project_key

    def _map_project(self, project_key: str) -> str:
        chosen = project_key if self._project_key is None else self._project_key
        return chosen if self._tenant is None else f"{self._tenant}/{chosen}"

    def _unmap_project(self, project_key: str) -> str | None:
        tenant = "" if self._tenant is None else f"{self._tenant}/"
        own = project_key.removeprefix(tenant)
        if not project_key.startswith(tenant) or self._project_key not in {None, own}:
            return None
        return own


class RedactingSessionStore(_Wrapper):
    """Removes secrets before entries are stored: known values in every encoding, and whatever matches a pattern.

    Fields that link entries stay unchanged: ids, types, times, and the signatures of thinking. The local files of
    the CLI still contain the secrets.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        secrets: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
    ) -> None:
        super().__init__(store)
        self._scrubber = Scrubber(secrets)
        self._patterns = [re.compile(each) for each in patterns]

    def _map_entries(self, entries: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
        return [cast(SessionStoreEntry, self._clean(entry)) for entry in entries]

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            text = self._scrubber.text(value)
            for pattern in self._patterns:
                text = pattern.sub(lambda _: self._scrubber.mask, text)
            return text
        if isinstance(value, Mapping):
            if value.get("type") == "redacted_thinking":
                return value
            return {
                name: each if name in _KEPT and isinstance(each, str) else self._clean(each)
                for name, each in value.items()
            }
        return [self._clean(each) for each in value] if isinstance(value, list) else value
