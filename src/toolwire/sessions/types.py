"""The types that session functions return, and the protocol of session stores.

The names, fields and methods are those of the official package, because users keep data in these shapes.
"""

from typing import Any, Literal, Protocol, Required

from typing_extensions import TypedDict, is_protocol

from toolwire._support.record import Record, record
from toolwire.messages.system import SessionKey


@record
class SDKSessionInfo(Record):
    """One session in a list. Times are milliseconds since 1970."""

    session_id: str
    summary: str
    """The text to show in a list: the title, else the last prompt, else the first one."""
    last_modified: int
    file_size: int | None = None
    """Bytes of the transcript on disk; None for a session in a store."""
    custom_title: str | None = None
    """The title that a user gave, else the one that the model made."""
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    """The directory in which the session began."""
    tag: str | None = None
    created_at: int | None = None


@record
class SessionMessage(Record):
    """One message of a past conversation. `message` is the message as the model's API sent or received it."""

    type: Literal["user", "assistant"]
    uuid: str
    session_id: str
    message: Any
    parent_tool_use_id: str | None = None
    """The call that started the subagent which wrote this; None outside subagents."""
    parent_agent_id: str | None = None
    """The subagent that started the one which wrote this; None for subagents of the main conversation."""


@record
class ForkSessionResult(Record):
    """The id of a session that was copied from another one."""

    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript. All other fields belong to the CLI; a store keeps them unchanged."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """A session that a store has. `mtime`: milliseconds since 1970 at which it was last written."""

    session_id: str
    mtime: int


class SessionSummaryEntry(TypedDict):
    """The facts that `fold_session_summary` gathered from a session so far. Stores keep `data` as it is."""

    session_id: str
    mtime: int
    data: dict[str, Any]


class SessionListSubkeysKey(TypedDict):
    """Names a session whose subagents' transcripts are to be listed."""

    project_key: str
    session_id: str


class SessionStore(Protocol):
    """Stores transcripts in another place than the local disk. Only `append` and `load` are required.

    Any object with these methods will do. `toolwire.testing.run_session_store_conformance` checks one.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to a transcript, in order. An entry whose `uuid` the transcript already has is ignored."""
        raise NotImplementedError

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript in order, or None if there never were any."""
        raise NotImplementedError

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, in any order. Transcripts of subagents are not sessions."""
        raise NotImplementedError

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, as `fold_session_summary` made them."""
        raise NotImplementedError

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; for a session, those of its subagents too. An unknown key is not an error."""
        raise NotImplementedError

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts, such as `subagents/agent-a1`."""
        raise NotImplementedError


def supports_writers(store: object) -> bool:
    """Return True if a store has `append_from(key, entries, writer)`, which also returns the previous writer.

    False if a subclass or an instance overrides `append` but not `append_from`: then `append` must be called.
    """
    if not implements(store, "append_from") or "append" in getattr(store, "__dict__", {}):
        return False
    for each in type(store).__mro__:
        if "append_from" in vars(each):
            return True
        if "append" in vars(each):
            return not hasattr(type(store), "append_from")
    return True


def implements(store: object, method: str) -> bool:
    """Return True if a store implements a method, rather than inheriting it from a protocol class."""
    if not callable(getattr(store, method, None)):
        return False
    owner = next((each for each in type(store).__mro__ if method in vars(each)), None)
    return owner is None or not is_protocol(owner)
