"""Where the commands of `toolwire sessions` find sessions: on this machine's disk, or in a store.

Both kinds have the same methods, so that the commands need not know which it is. A store's calls run on an event
loop in a thread of its own.
"""

import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import toolwire
from toolwire._support.words import plain_line
from toolwire.errors import ClaudeSDKError, NotSupportedError, SessionRunningError, UsageError
from toolwire.sessions import disk, paths, recorded
from toolwire.sessions.cost import CostReport, cost_report, cost_report_from_store
from toolwire.sessions.entries import is_session_id
from toolwire.sessions.recorded import RecordedSession
from toolwire.sessions.search import SearchHit
from toolwire.sessions.types import SDKSessionInfo, SessionStore, implements

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
OnProgress = Callable[[int, int], None] | None
Filters = dict[str, Any]
"""The filters of a search, as arguments of `search_sessions`; those of None were not given."""

_BEGINNING: Final = re.compile(r"[0-9a-f-]{1,36}")
_MOST_CANDIDATES: Final = 10


@dataclass(frozen=True)
class Scope:
    """Which sessions a command uses: those of one directory or (None) of all, and the CLI's folder on disk."""

    directory: str | None = None
    config_dir: str | None = None


class DiskPlace:
    """The sessions in the CLI's own folder."""

    def __init__(self, scope: Scope) -> None:
        self._where = vars(scope)

    @property
    def name(self) -> str:
        """The folder, for messages."""
        return str(paths.find_config_folder(self._where["config_dir"]) / "projects")

    def list_rows(self, limit: int, offset: int = 0) -> list[SDKSessionInfo]:
        """Return sessions, newest first; all of them if `limit` is 0."""
        return disk.list_sessions(limit=limit or None, offset=offset, **self._where)

    def find(self, beginning: str) -> str:
        """Return the id of the only session whose id begins like this."""
        folders = paths.find_project_folders(**self._where)
        return choose(beginning, [each.session_id for each in paths.list_session_files(folders)], self.name)

    def open(self, session_id: str) -> RecordedSession:
        """Open a session for reading."""
        return recorded.open_session(session_id, **self._where)

    def search(
        self, query: str, limit: int, filters: Filters, on_progress: OnProgress, *, output: bool
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best matches first."""
        return disk.search_sessions(
            query,
            limit=limit,
            include_tool_output=output,
            on_progress=on_progress,
            **filters,
            **self._where,
        )

    def report_costs(
        self, since: datetime | None, until: datetime | None, on_progress: OnProgress
    ) -> CostReport:
        """Return the cost of the sessions."""
        return cost_report(since=since, until=until, on_progress=on_progress, **self._where)

    def rename(self, session_id: str, title: str) -> None:
        """Give a session a title."""
        disk.rename_session(session_id, title, **self._where)

    def tag(self, session_id: str, tag: str | None) -> None:
        """Give a session a tag, or remove it if `tag` is None."""
        disk.tag_session(session_id, tag, **self._where)

    def fork(self, session_id: str, up_to: str | None, title: str | None) -> str:
        """Copy a session; returns the id of the copy."""
        made = disk.fork_session(session_id, up_to_message_id=up_to, title=title, **self._where)
        return made.session_id

    def delete(self, session_id: str, *, force: bool) -> None:
        """Delete a session."""
        try:
            disk.delete_session(session_id, force=force, **self._where)
        except SessionRunningError as error:
            raise SessionRunningError(str(error).replace("pass force=True", "use --force")) from error


class StorePlace:
    """The sessions in a store."""

    def __init__(self, portal: "BlockingPortal", store: Any, name: str, scope: Scope) -> None:
        from toolwire.sessions import store_functions  # noqa: PLC0415 - loads anyio

        self._portal = portal
        self._functions = store_functions
        self._store = store
        self.name = name
        self._scope = scope
        self._project_of: dict[str, str] = {}

    def list_rows(self, limit: int, offset: int = 0) -> list[SDKSessionInfo]:
        """Return sessions, newest first; all of them if `limit` is 0."""
        rows: list[SDKSessionInfo] = []
        for key in self._list_projects():
            found = self._call(
                self._functions.list_sessions_from_store,
                self._scoped(key),
                None,
                limit + offset if limit else None,
            )
            self._project_of.update({row.session_id: key for row in found})
            rows += found
        rows.sort(key=lambda row: (-row.last_modified, row.session_id))
        return rows[offset : offset + limit] if limit else rows[offset:]

    def find(self, beginning: str) -> str:
        """Return the id of the only session whose id begins like this."""
        whole = beginning.lower()
        if (
            self._scope.directory is None
            and is_session_id(whole)
            and (found := self._call_if_supported("find_projects", whole))
        ):
            self._project_of[whole] = found[0]
            return whole
        ids: dict[str, str] = {}
        for key in self._list_projects():
            ids.update(
                {each["session_id"]: key for each in self._call_if_supported("list_sessions", key) or []}
            )
        chosen = choose(beginning, list(ids), self.name)
        self._project_of[chosen] = ids[chosen]
        return chosen

    def open(self, session_id: str) -> RecordedSession:
        """Load a session."""
        session = self._call(recorded.load_session, self._store_of(session_id), session_id)
        return replace(session, project_key=self._project_of.get(session_id, session.project_key))

    def search(
        self, query: str, limit: int, filters: Filters, on_progress: OnProgress, *, output: bool
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best matches first."""
        del on_progress
        if not callable(getattr(self._store, "search", None)):
            raise NotSupportedError(
                f"{self.name} has no full-text search; SQLite and Postgres stores have one"
            )
        if unknown := [f"--{name}" for name, value in filters.items() if value is not None]:
            raise UsageError(
                f"{', '.join(unknown)}: only a search on disk has this filter, not one in a store"
            )
        work = partial(self._store.search, query, include_output=output, limit=limit or 1_000_000)
        keys = [None] if self._scope.directory is None else self._list_projects()
        hits: list[SearchHit] = []
        for key in keys:
            hits += self._call(partial(work, project_key=key))
        return hits[:limit] if limit else hits

    def report_costs(
        self, since: datetime | None, until: datetime | None, on_progress: OnProgress
    ) -> CostReport:
        """Return the cost of the sessions."""
        whole = CostReport()
        for key in self._list_projects():
            work = partial(cost_report_from_store, since=since, until=until, on_progress=on_progress)
            report = self._call(work, self._scoped(key))
            whole.sessions += report.sessions
            whole.unreadable += report.unreadable
            whole.since, whole.until = report.since, report.until
        return whole

    def rename(self, session_id: str, title: str) -> None:
        """Give a session a title."""
        self._call(self._functions.rename_session_via_store, self._store_of(session_id), session_id, title)

    def tag(self, session_id: str, tag: str | None) -> None:
        """Give a session a tag, or remove it if `tag` is None."""
        self._call(self._functions.tag_session_via_store, self._store_of(session_id), session_id, tag)

    def fork(self, session_id: str, up_to: str | None, title: str | None) -> str:
        """Copy a session; returns the id of the copy."""
        made = self._call(
            self._functions.fork_session_via_store, self._store_of(session_id), session_id, None, up_to, title
        )
        return made.session_id

    def delete(self, session_id: str, *, force: bool) -> None:
        """Delete a session."""
        del force  # no CLI has a session in a store open
        if not implements(self._store, "delete"):
            raise NotSupportedError(f"{self.name} cannot delete sessions")
        self._call(self._functions.delete_session_via_store, self._store_of(session_id), session_id)

    def add(self, session_id: str, source: Scope) -> None:
        """Copy a session from disk into the store. Only missing entries are added."""
        work = partial(
            self._functions.import_session_to_store, directory=source.directory, config_dir=source.config_dir
        )
        self._call(work, session_id, self._store)

    def _list_projects(self) -> Sequence[str]:
        """Return the keys of the projects whose sessions the command uses."""
        directory = self._scope.directory
        if directory is not None:
            places = [directory, *paths.find_worktrees(directory)]
            return list(dict.fromkeys(paths.project_key_for_directory(each) for each in places))
        found: list[str] | None = self._call_if_supported("list_projects")
        if found is None:
            raise UsageError(f"{self.name} cannot list its projects; name a directory")
        return found

    def _store_of(self, session_id: str) -> SessionStore:
        """Return the store for the project of a session that was found."""
        return self._scoped(self._project_of[session_id])

    def _scoped(self, project_key: str) -> SessionStore:
        from toolwire.sessions.stores.wrappers import ScopedSessionStore  # noqa: PLC0415

        return ScopedSessionStore(self._store, project_key=project_key)

    def _call_if_supported(self, method: str, *args: Any) -> Any:
        """Call a method of the store; None if it has no such method."""
        return (
            self._portal.call(getattr(self._store, method), *args)
            if implements(self._store, method)
            else None
        )

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        return self._portal.call(function, *args)


Place = DiskPlace | StorePlace


def choose(beginning: str, ids: Sequence[str], where: str) -> str:
    """Return the only id that begins with `beginning`. `UsageError` if there is none, or several."""
    wanted = beginning.strip().lower()
    if _BEGINNING.fullmatch(wanted) is None:
        raise UsageError(
            f"{plain_line(beginning)!r} is not the id of a session, or the beginning of one: "
            "`toolwire sessions list` shows them"
        )
    fitting = sorted(each for each in ids if each.lower().startswith(wanted))
    if wanted in fitting:
        return wanted
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UsageError(
            f"no session begins with {wanted} in {where}; `toolwire sessions list --all` shows all"
        )
    shown = "".join(f"\n  {each}" for each in fitting[:_MOST_CANDIDATES])
    more = f"\n  and {len(fitting) - _MOST_CANDIDATES} more" if len(fitting) > _MOST_CANDIDATES else ""
    raise UsageError(f"{len(fitting)} sessions begin with {wanted}; give more of the id:{shown}{more}")


@contextlib.contextmanager
def open_place(store: str | None, scope: Scope) -> Iterator[Place]:
    """Open the store that a command names, or the disk."""
    with _report_failures():
        if store is None:
            yield DiskPlace(scope)
            return
        with open_store(store, scope) as place:
            yield place


@contextlib.contextmanager
def open_store(url: str, scope: Scope, *, create: bool = False) -> Iterator[StorePlace]:
    """Open a store by its URL. `UsageError` if the URL is not valid, or an extra is not installed.

    `create`: create a missing SQLite file.
    """
    from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 - heavy

    opened, name = _make_store(url, create=create)
    with start_blocking_portal() as portal:
        try:
            yield StorePlace(portal, opened, name, scope)
        finally:
            for method in ("aclose", "close"):
                if callable(close := getattr(opened, method, None)):
                    portal.call(close)
                    break


def _make_store(url: str, *, create: bool) -> tuple[Any, str]:
    """Return a store, and its name for messages, which has no password."""
    scheme, colon, rest = url.partition(":")
    try:
        match scheme.lower() if colon else "":
            case "sqlite":
                path = Path(rest.removeprefix("//") if rest.startswith("//") else rest).expanduser()
                if not rest or (not create and not path.exists()):
                    raise UsageError(
                        f"there is no session store at {plain_line(rest) or '(no file was named)'}"
                    )
                return toolwire.SQLiteSessionStore(path), f"the store {path}"
            case "postgresql" | "postgres":
                return toolwire.PostgresSessionStore(url), "the Postgres store"
            case "redis" | "rediss" | "unix":
                return toolwire.RedisSessionStore(url), "the Redis store"
    except ImportError as error:
        raise UsageError(str(error)) from error
    shown = f"{plain_line(scheme)}:..." if colon else "something else"
    raise UsageError(f"--store takes sqlite:FILE, postgresql://... or redis://..., not {shown}")


@contextlib.contextmanager
def _report_failures() -> Iterator[None]:
    """Turn the exceptions of `toolwire.sessions` into errors of the command line."""
    try:
        yield
    except (BrokenPipeError, NotImplementedError):
        raise
    except FileNotFoundError as error:
        raise UsageError(_describe(error)) from error
    except TimeoutError as error:
        raise ClaudeSDKError(str(error) or "the operation timed out") from error
    except OSError as error:
        raise ClaudeSDKError(_describe(error)) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def _describe(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{where}{error.strerror}"
