"""Session stores that frameworks bring along, with options built from a dict: they work without changes."""

import asyncio
import json
from contextlib import asynccontextmanager

import anyio
import pytest

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    MirrorErrorMessage,
    ResultMessage,
    RunObserver,
    ToolServer,
    add_observer,
    query,
    remove_observer,
)
from toolwire.sessions.transcript import read_entries
from toolwire.testing import ScriptedCLI, say

pytestmark = pytest.mark.anyio


class FrameworkStore:
    """A framework's store, not written for toolwire: ignores projects, keeps JSON rows, does not deduplicate."""

    def __init__(self, table):
        self.table = table

    async def append(self, key, entries):
        """Add entries."""
        self.table += [(key["session_id"], key.get("subpath"), json.dumps(each)) for each in entries]

    async def load(self, key):
        """Return entries."""
        wanted = (key["session_id"], key.get("subpath"))
        return [json.loads(line) for *place, line in self.table if tuple(place) == wanted] or None

    async def list_sessions(self, project_key):
        """Return all sessions, whatever the project."""
        return [{"session_id": each, "mtime": 1} for each in {row[0] for row in self.table}]

    async def list_subkeys(self, key):
        """Return subpaths."""
        return sorted({row[1] for row in self.table if row[0] == key["session_id"] and row[1]})

    async def delete(self, key):
        """Forget a session."""


def make_options(tmp_path, name, script, **more):
    """Return options as a framework makes them: a dict first, with empty values in it."""
    folder = tmp_path / name
    folder.mkdir()
    given = {
        "cwd": str(folder),
        "resume": None,
        "env": {"CLAUDE_CONFIG_DIR": str(folder / "config")},
        "spawn_claude_code_process": ScriptedCLI(script, transcripts=True),
        "session_store_flush": "batched",
        **more,
    }
    return ClaudeAgentOptions(**given)


async def test_a_frameworks_store_is_used_as_it_is(tmp_path):
    """A store needs no base class, gets each entry once, and another machine can resume the session from it."""
    table = []
    options = make_options(tmp_path, "one", [say("One."), say("Two.")], session_store=FrameworkStore(table))
    async with ClaudeSDKClient(options) as client:
        for prompt in ("first", "second"):
            await client.query(prompt)
            messages = [message async for message in client.receive_response()]
            assert not any(isinstance(each, MirrorErrorMessage) for each in messages)
    session_id = messages[-1].session_id
    types = [json.loads(line)["type"] for *_, line in table]
    assert types.count("user") == types.count("assistant") == 2
    assert types[-1] == "cost-state"
    seen = []

    def look(request):
        seen.append(json.dumps(request.body["messages"]))
        return say("Three.")

    options = make_options(tmp_path, "two", [look], session_store=FrameworkStore(table), resume=session_id)
    result = [message async for message in query(prompt="third", options=options)][-1]
    assert isinstance(result, ResultMessage)
    assert result.session_id == session_id
    assert all(each in seen[0] for each in ("first", "One.", "second", "Two.", "third"))


async def test_a_frameworks_store_continues_the_newest(tmp_path):
    """`continue_conversation` finds the newest session in the store's own list."""
    table = []
    options = make_options(tmp_path, "one", [say("One.")], session_store=FrameworkStore(table))
    first = [message async for message in query(prompt="first", options=options)][-1]
    options = make_options(
        tmp_path, "two", [say("Two.")], session_store=FrameworkStore(table), continue_conversation=True
    )
    second = [message async for message in query(prompt="second", options=options)][-1]
    assert second.session_id == first.session_id


async def test_a_store_without_dedupe_gets_nothing_twice_after_a_failure(tmp_path):
    """After a failure, toolwire looks up which entries the store lacks, and appends only those."""
    table = []

    class Flaky(FrameworkStore):
        failing = True

        async def append(self, key, entries):
            if self.failing:
                await super().append(key, entries[:1])  # in part, as a database without transactions
                raise ConnectionError("away")
            await super().append(key, entries)

    store = Flaky(table)
    options = make_options(tmp_path, "one", [say("One."), say("Two.")], session_store=store)
    async with ClaudeSDKClient(options) as client:
        await client.query("first")
        messages = [message async for message in client.receive_response()]
        assert any(isinstance(each, MirrorErrorMessage) for each in messages)
        store.failing = False
        await client.query("second")
        messages = [message async for message in client.receive_response()]
    [path] = tmp_path.rglob(f"{messages[-1].session_id}.jsonl")
    written = [entry for _, entry in read_entries(path)]
    stored = [json.loads(line) for *_, line in table]
    assert sort(stored) == sort(written)


def sort(entries):
    """Return entries in an order that does not depend on when they were stored."""
    return sorted(json.dumps(each, sort_keys=True) for each in entries)


def test_a_cancelled_wait_for_a_store_still_ends_everything_else(tmp_path):
    """`Task.cancel()` while closing waits for a store that hangs: observers, servers and tasks end all the same."""
    ended = []

    class Hanging(FrameworkStore):
        async def append(self, key, entries):
            await anyio.sleep_forever()

    @asynccontextmanager
    async def lifespan(_):
        yield
        ended.append("server")

    class Ends(RunObserver):
        def end(self, error):
            ended.append("observer")

    options = make_options(
        tmp_path,
        "one",
        [say("One.")],
        session_store=Hanging([]),
        session_store_timeout_ms=10,
        mcp_servers={"tools": ToolServer("tools", lifespan=lifespan)},
    )

    async def use(done):
        async with ClaudeSDKClient(options) as client:
            await client.query("first")
            async for _ in client.receive_response():
                pass
            done.set()

    async def main():
        done = asyncio.Event()
        task = asyncio.create_task(use(done))
        await done.wait()
        await anyio.wait_all_tasks_blocked()
        assert ended == []  # closing waits for the store
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == ["observer", "server"]
        await anyio.wait_all_tasks_blocked()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def observe(_):
        return Ends()

    add_observer(observe)
    try:
        asyncio.run(main())
    finally:
        remove_observer(observe)
