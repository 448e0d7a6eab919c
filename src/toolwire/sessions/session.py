"""`Session`: one conversation by its id, on disk or in a store, with its history, its cost and operations on it.

Only chooses between the functions of `disk` and those of `store_functions`, which do the work.
"""

import copy
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from toolwire._protocol.parse import parse
from toolwire._support.log import logger_for
from toolwire.messages.conversation import AssistantMessage, UserMessage
from toolwire.sessions import aio, entries, paths, store_functions, transcript, tree
from toolwire.sessions.paths import Directory
from toolwire.sessions.types import SDKSessionInfo, SessionStore

if TYPE_CHECKING:
    from toolwire.options.agent_options import ClaudeAgentOptions
    from toolwire.sessions.cost import SessionCost

logger = logger_for("sessions")

_COPIED_FIELDS = ("type", "message", "uuid", "timestamp", "origin", "error")
_RENAMED_FIELDS = {"sessionId": "session_id", "requestId": "request_id", "toolUseResult": "tool_use_result"}


class Session:
    """A conversation by its id. Without an id it gets a new one, which is known before the conversation begins.

        session = Session()
        await run("Remember: the key is under the mat.", options=await session.options())
        await run("Where is the key?", options=await session.options())
        for message in await session.messages():
            print(message)

    `directory`: that of the conversation; None searches all. `store`: where it is stored, instead of on this
    machine's disk. `config_dir`: the CLI's folder, if it is not the default.
    """

    def __init__(
        self,
        session_id: str | None = None,
        directory: Directory | None = None,
        *,
        store: SessionStore | None = None,
        config_dir: Directory | None = None,
    ) -> None:
        if session_id is not None:
            entries.check_session_id(session_id)
        self.id = session_id or str(uuid4())
        self.directory = directory
        self.store = store
        self.config_dir = config_dir

    def __repr__(self) -> str:
        where = f", store={self.store!r}" if self.store is not None else ""
        return f"Session({self.id!r}{where})"

    async def exists(self) -> bool:
        """Return True if the conversation has begun, so that it can be resumed."""
        if self.store is not None and await store_functions.find_project(self.store, self.id, self.directory):
            return True
        return await aio.run_in_thread(partial(_is_on_disk, self.id, self.directory, self.config_dir))

    async def _find_store(self) -> SessionStore | None:
        """Return the store, scoped to the project that has the conversation if no directory is given."""
        if self.store is None or self.directory is not None:
            return self.store
        projects = await store_functions.list_projects_of(self.store, self.id)
        if not projects or paths.project_key_for_directory(None) in projects:
            return self.store
        from toolwire.sessions.stores.wrappers import ScopedSessionStore  # noqa: PLC0415 - on demand

        return ScopedSessionStore(self.store, project_key=projects[0])

    async def options(self, base: "ClaudeAgentOptions | None" = None) -> "ClaudeAgentOptions":
        """Return a copy of options that continues this conversation if it has begun, and otherwise begins it."""
        from toolwire.options.agent_options import ClaudeAgentOptions  # noqa: PLC0415 - only for those who start one

        options = copy.copy(base) if base is not None else ClaudeAgentOptions()
        if options.session_store is None:
            options.session_store = self.store
        if self.config_dir is not None:
            options.env = {**options.env, "CLAUDE_CONFIG_DIR": os.fspath(self.config_dir)}
        if options.cwd is None and self.directory is not None:
            options.cwd = os.fspath(self.directory)
        config_dir = self.config_dir or paths.find_config_dir(options.env)
        cwd = options.cwd if options.cwd is not None else os.curdir
        place = Session(self.id, None, store=options.session_store, config_dir=config_dir)
        if options.session_store is not None:
            place.directory = cwd
        options.continue_conversation = False
        if await place.exists():
            options.resume, options.session_id = self.id, None
        else:
            await aio.run_in_thread(partial(_put_aside, self.id, cwd, config_dir))
            options.resume, options.session_id = None, self.id
        return options

    async def info(self) -> SDKSessionInfo | None:
        """Return its list entry: title, first prompt, times. None if it has not begun."""
        if (store := await self._find_store()) is not None:
            return await store_functions.get_session_info_from_store(store, self.id, self.directory)
        return await aio.get_session_info(self.id, self.directory, config_dir=self.config_dir)

    async def messages(
        self, limit: int | None = None, offset: int = 0, *, whole_history: bool = False
    ) -> list[UserMessage | AssistantMessage]:
        """Return its messages in order, in the classes that a running conversation yields.

        After a compaction they begin with its summary; `whole_history` includes the messages before it.
        """
        if (store := await self._find_store()) is not None:
            found = await store_functions.load_entries(store, self.id, self.directory)
            chosen = tree.choose_messages(found, limit, offset, whole_history=whole_history)
            return [make_message(entry, self.id) for entry in chosen]
        return await aio.run_in_thread(
            partial(self._read_messages, limit, offset, whole_history=whole_history)
        )

    def _read_messages(
        self, limit: int | None, offset: int, *, whole_history: bool
    ) -> list[UserMessage | AssistantMessage]:
        file = paths.find_session(self.id, self.directory, self.config_dir)
        if file is None:
            return []
        found = transcript.read_conversation(file.path, limit, offset, whole_history=whole_history)
        return [make_message(entry, self.id) for entry in found]

    async def rename(self, title: str) -> None:
        """Set its title. A session in a store that is also on this machine is renamed in both places."""
        if (store := await self._find_store()) is not None:
            await store_functions.rename_session_via_store(store, self.id, title, self.directory)
        with self._ignore_missing_file():
            await aio.rename_session(self.id, title, self.directory, config_dir=self.config_dir)

    async def tag(self, tag: str | None) -> None:
        """Set its tag, in both places as `rename` does; None removes it."""
        if (store := await self._find_store()) is not None:
            await store_functions.tag_session_via_store(store, self.id, tag, self.directory)
        with self._ignore_missing_file():
            await aio.tag_session(self.id, tag, self.directory, config_dir=self.config_dir)

    def _ignore_missing_file(self) -> AbstractContextManager[object]:
        """Ignore that a session in a store is not on this machine."""
        return nullcontext() if self.store is None else suppress(FileNotFoundError)

    async def fork(self, at: str | None = None, *, title: str | None = None) -> "Session":
        """Copy it under a new id, completely or up to the message with the uuid `at`, and return the copy."""
        if (store := await self._find_store()) is not None:
            made = await store_functions.fork_session_via_store(
                store, self.id, self.directory, up_to_message_id=at, title=title
            )
        else:
            made = await aio.fork_session(
                self.id, self.directory, up_to_message_id=at, title=title, config_dir=self.config_dir
            )
        return Session(made.session_id, self.directory, store=self.store, config_dir=self.config_dir)

    async def delete(self, *, force: bool = False) -> None:
        """Delete it with everything that belongs to it. `force`: also while a CLI has it open (on disk)."""
        if (store := await self._find_store()) is not None:
            await store_functions.delete_session_via_store(store, self.id, self.directory)
        else:
            await aio.delete_session(self.id, self.directory, force=force, config_dir=self.config_dir)

    async def cost(self) -> "SessionCost":
        """Return its cost, including all resumes."""
        from toolwire.sessions import cost  # noqa: PLC0415 - on demand

        if (store := await self._find_store()) is not None:
            return await cost.session_cost_from_store(store, self.id, self.directory)
        work = partial(cost.session_cost, self.id, self.directory, config_dir=self.config_dir)
        return await aio.run_in_thread(work)

    async def export(self, format: Literal["markdown", "jsonl", "html"] = "markdown") -> str:
        """Return the whole conversation as one text."""
        from toolwire.sessions import export  # noqa: PLC0415 - on demand

        if (store := await self._find_store()) is not None:
            return await export.export_session_from_store(store, self.id, format, self.directory)
        work = partial(export.export_session, self.id, format, self.directory, config_dir=self.config_dir)
        return await aio.run_in_thread(work)


def _is_on_disk(session_id: str, directory: Directory | None, config_dir: Directory | None) -> bool:
    file = paths.find_session(session_id, directory, config_dir)
    if file is None:
        return False
    return tree.has_conversation(entry for _, entry in transcript.read_entries(file.path))


def _put_aside(session_id: str, directory: Directory, config_dir: Directory | None) -> None:
    """Rename a transcript without messages, left by a CLI that was killed early.

    The CLI neither resumes such a session nor starts a new one under an id that has a file.
    """
    folders = paths.find_project_folders(directory, config_dir, include_worktrees=False)
    for file in paths.find_copies(session_id, folders[:1]):
        if paths.find_running_process(session_id, config_dir) is None:
            aside = file.path.with_name(file.path.name + paths.UNFINISHED)
            logger.info("session %s has no messages; its file was renamed to %s", session_id, aside)
            file.path.replace(aside)


def make_message(entry: Mapping[str, Any], session_id: str) -> UserMessage | AssistantMessage:
    """Return the message that a running conversation would have yielded for an entry."""
    frame = {name: entry[name] for name in _COPIED_FIELDS if name in entry}
    frame |= {there: entry[here] for here, there in _RENAMED_FIELDS.items() if here in entry}
    frame.setdefault("session_id", session_id)
    if entry.get("isMeta") or entry.get("isCompactSummary"):
        frame["isSynthetic"] = True
    message = parse(frame)
    assert isinstance(message, UserMessage | AssistantMessage)  # noqa: S101 - the entry is one of these two
    return message


async def resume_or_create(
    session_id: str, options: "ClaudeAgentOptions | None" = None
) -> "ClaudeAgentOptions":
    """Return a copy of options that resumes a session if there is one with this id, and otherwise creates it.

    The id is a UUID; `str(uuid.uuid5(uuid.NAMESPACE_URL, "customer-42"))` makes one from your own name for it.
    """
    return await Session(session_id).options(options)
