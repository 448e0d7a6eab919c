"""Async versions of the functions for sessions on disk. Each runs in a thread, on asyncio and on trio."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from toolwire._support.threads import Workers
from toolwire.sessions import check, disk, prune
from toolwire.sessions.paths import Directory
from toolwire.sessions.types import SessionMessage

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE = 100
_workers = Workers(4)  # disk work: more threads would not be faster


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run disk work in a thread."""
    return await _workers.run(work)


def _in_thread(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await run_in_thread(partial(function, *args, **kwargs))

    return call


list_sessions = _in_thread(disk.list_sessions)
get_session_info = _in_thread(disk.get_session_info)
get_session_messages = _in_thread(disk.get_session_messages)
list_subagents = _in_thread(disk.list_subagents)
get_subagent_messages = _in_thread(disk.get_subagent_messages)
rename_session = _in_thread(disk.rename_session)
tag_session = _in_thread(disk.tag_session)
delete_session = _in_thread(disk.delete_session)
fork_session = _in_thread(disk.fork_session)


async def iter_session_messages(
    session_id: str,
    directory: Directory | None = None,
    *,
    whole_history: bool = False,
    config_dir: Directory | None = None,
) -> AsyncIterator[SessionMessage]:
    """Yield the messages of a session in order, reading a few at a time."""
    found = disk.iter_session_messages(
        session_id, directory, whole_history=whole_history, config_dir=config_dir
    )
    while some := await run_in_thread(lambda: list(itertools.islice(found, _AT_ONCE))):
        for each in some:
            yield each


search_sessions = _in_thread(disk.search_sessions)
prune_sessions = _in_thread(prune.prune_sessions)
check_sessions = _in_thread(check.check_sessions)
