"""The runs whose timeline can be shown: the conversation on the page, recordings, and past sessions."""

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
    """A run that can be selected. `load` returns its timeline, which grows if the run is live."""

    key: str
    title: str
    load: Callable[[], Awaitable[Timeline]]
    is_live: bool = False
    is_paid: Callable[[], bool] = lambda: True
    """False if a scripted model answers, so that the cost is computed but not charged."""


class Runs:
    """All runs that can be selected: the live one, then those named on the command line, then past sessions."""

    def __init__(self, conversation: Conversation | None = None, cwd: Path | None = None) -> None:
        self.named: list[Run] = []
        self.sessions: list[Run] = []
        self._cwd = cwd
        if conversation is not None:

            async def load() -> Timeline:
                return conversation.timeline

            here = "This conversation"
            self.named.append(Run("live", here, load, is_live=True, is_paid=lambda: conversation.live))

    @property
    def all(self) -> list[Run]:
        """All runs known so far."""
        return [*self.named, *self.sessions]

    def find(self, key: str) -> Run | None:
        """Return the run with this key; None if there is none."""
        return next((each for each in self.all if each.key == key), None)

    def add_recording(self, path: Path) -> None:
        """Add each connection in a recording. Raises ValueError or OSError if the file cannot be read."""
        timelines = read_recording(path)
        for number, timeline in enumerate(timelines, 1):
            more = f", connection {number}" if len(timelines) > 1 else ""
            title = f"Recording {path.name}{more}"
            self.named.append(Run(f"{path}#{number}", title, _return(timeline)))

    def add_session(self, session_id: str) -> None:
        """Add a past session by its id. Raises ValueError or FileNotFoundError if there is none."""
        open_session(session_id)
        self.named.append(_past_run(session_id, f"Session {session_id}"))

    async def list_sessions(self) -> None:
        """Find the latest past sessions of this directory."""
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
