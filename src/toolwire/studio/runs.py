"""The runs whose timeline can be shown: the conversation on the page, recordings, and sessions of the past."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from toolwire.sessions.disk import list_sessions
from toolwire.sessions.recorded import open_session
from toolwire.studio.conversation import Conversation
from toolwire.studio.timeline import Timeline, read_recording, read_session

_MOST_SESSIONS: Final = 100


@dataclass(frozen=True, eq=False)
class Run:
    """A run that can be looked at. `load` returns its timeline; that of a live one grows."""

    key: str
    title: str
    load: Callable[[], Awaitable[Timeline]]
    is_live: bool = False
    is_paid: Callable[[], bool] = lambda: True
    """False if a scripted model answers, so that the cost is only computed."""


class Runs:
    """All runs that can be chosen, the live one first, then those that were named, then the past ones."""

    def __init__(self, conversation: Conversation | None = None, cwd: Path | None = None) -> None:
        self.named: list[Run] = []
        self.sessions: list[Run] = []
        self._cwd = cwd
        if conversation is not None:

            async def load() -> Timeline:
                return conversation.timeline

            here = "The conversation here"
            self.named.append(Run("live", here, load, is_live=True, is_paid=lambda: conversation.live))

    @property
    def all(self) -> list[Run]:
        """Those that are known so far."""
        return [*self.named, *self.sessions]

    def find(self, key: str) -> Run | None:
        """Return the run of this key."""
        return next((each for each in self.all if each.key == key), None)

    def add_recording(self, path: Path) -> None:
        """Add the connections of a recording. ValueError or OSError if it cannot be read."""
        timelines = read_recording(path)
        for number, timeline in enumerate(timelines, 1):
            more = f", connection {number}" if len(timelines) > 1 else ""
            title = f"Recording {path.name}{more}"
            self.named.append(Run(f"{path}#{number}", title, _return(timeline)))

    def add_session(self, session_id: str) -> None:
        """Add a session of the past by its id. ValueError or FileNotFoundError if there is none."""
        open_session(session_id)
        self.named.append(_past_run(session_id, f"Session {session_id}"))

    async def list_sessions(self) -> None:
        """Look for the latest sessions of the past in this directory."""
        found = await anyio.to_thread.run_sync(lambda: list_sessions(self._cwd or Path.cwd(), _MOST_SESSIONS))
        self.sessions = [_past_run(each.session_id, f"Session: {each.summary[:80]}") for each in found]


def _past_run(session_id: str, title: str) -> Run:
    async def load() -> Timeline:
        return await anyio.to_thread.run_sync(lambda: read_session(open_session(session_id)))

    return Run(session_id, title, load)


def _return(timeline: Timeline) -> Callable[[], Awaitable[Timeline]]:
    async def load() -> Timeline:
        return timeline

    return load
