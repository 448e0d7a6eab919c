"""What stores guarantee beyond the conformance suite: several processes, many sessions, odd and large entries."""

import subprocess
import sys
import threading
import uuid

import anyio
import pytest

from shared.transcripts import SESSION
from toolwire import (
    InMemorySessionStore,
    PostgresSessionStore,
    RedisSessionStore,
    SessionStoreError,
    SQLiteSessionStore,
    list_sessions_from_store,
    project_key_for_directory,
)
from toolwire.sessions.stores.base import decode_entry, encode_entry, encode_uuid, read_place

pytestmark = pytest.mark.anyio
KEY = {"project_key": "-work", "session_id": SESSION}

WRITE = """
import asyncio, sys
from toolwire import PostgresSessionStore, RedisSessionStore, SQLiteSessionStore
kind, place, session, name = sys.argv[1:]
if kind == "RedisSessionStore":
    store = RedisSessionStore(place.split()[0], prefix=place.split()[1])
else:
    store = {"SQLiteSessionStore": SQLiteSessionStore, "PostgresSessionStore": PostgresSessionStore}[kind](place)
key = {"project_key": "-work", "session_id": session}
async def main():
    print("ready", flush=True)
    for batch in range(int(name[1:]) or 10):
        lines = [{"type": "user", "uuid": f"{name}-{batch}-{n}", "text": "x" * 3000} for n in range(5)]
        await store.append(key, lines)
asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shared_store(request, tmp_path):
    """Return a store that several processes can open, and the arguments with which WRITE opens it."""
    if request.param == "sqlite":
        return SQLiteSessionStore(tmp_path / "s.db"), ["SQLiteSessionStore", str(tmp_path / "s.db")]
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return PostgresSessionStore(url), ["PostgresSessionStore", url]
    url, prefix = request.getfixturevalue("redis_server").url, str(uuid.uuid4())
    return RedisSessionStore(url, prefix=prefix), ["RedisSessionStore", f"{url} {prefix}"]


def start(arguments, name):
    """Start a process that appends batches of five entries."""
    command = [sys.executable, "-c", WRITE, *arguments, SESSION, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.process
async def test_processes_that_write_one_session_keep_their_batches_together(shared_store):
    """When three processes write at once, no entry is lost, and each batch stays in one piece."""
    store, arguments = shared_store
    running = [start(arguments, f"{each}0") for each in "abc"]
    for each in running:
        with each:
            assert each.wait(100) == 0
    names = [each["uuid"] for each in await store.load(KEY)]
    assert len(set(names)) == len(names) == 150
    batches = [names[at : at + 5] for at in range(0, 150, 5)]
    assert all(len({name.rpartition("-")[0] for name in batch}) == 1 for batch in batches)
    await store.aclose()


@pytest.mark.process
async def test_a_killed_writer_leaves_whole_batches(shared_store):
    """The store can still be used."""
    store, arguments = shared_store
    with start(arguments, "k100000") as process:
        process.stdout.readline()
        with anyio.fail_after(60):
            while len(await store.load(KEY) or []) < 20:
                await anyio.sleep(0.01)
        process.kill()
    with anyio.fail_after(60):  # the server may still be writing the last batch
        before = -1
        while before != (before := len(await store.load(KEY))):
            await anyio.sleep(0.2)
    assert before % 5 == 0
    await store.append(KEY, [{"type": "user", "uuid": "after"}])
    assert (await store.load(KEY))[-1]["uuid"] == "after"
    await store.aclose()


async def test_a_thousand_sessions_are_listed_without_loading_them(store, tmp_path, monkeypatch):
    """The list is made from their summaries."""
    project = project_key_for_directory(tmp_path)

    async def add(first):
        for number in range(first, first + 100):
            name = f"00000000-0000-4000-8000-{number:012}"
            line = {"type": "user", "uuid": name, "message": {"role": "user", "content": f"prompt {number}"}}
            await store.append({"project_key": project, "session_id": name}, [line])

    async with anyio.create_task_group() as group:
        for first in range(0, 1000, 100):
            group.start_soon(add, first)

    async def refuse(*_):
        pytest.fail("a session was loaded")

    monkeypatch.setattr(store, "load", refuse)
    rows = await list_sessions_from_store(store, tmp_path)
    assert len(rows) == 1000
    assert {each.first_prompt for each in rows} == {f"prompt {number}" for number in range(1000)}
    times = [each.last_modified for each in rows]
    assert times == sorted(times, reverse=True)
    assert len(await list_sessions_from_store(store, tmp_path, limit=10)) == 10


async def test_an_entry_of_30_mb_comes_back(store):
    """Databases usually get small messages, so an entry of this size is tested."""
    entry = {"type": "user", "uuid": "large", "text": "0123456789" * 3_000_000}
    await store.append(KEY, [entry])
    assert await store.load(KEY) == [entry]


async def test_entries_are_encoded_in_a_thread(make_store, monkeypatch):
    """Encoding a large entry would otherwise block the event loop."""
    store, threads = make_store(), []
    if isinstance(store, InMemorySessionStore):
        pytest.skip("it encodes nothing")

    def encode(entry):
        threads.append(threading.get_ident())
        return encode_entry(entry)

    monkeypatch.setattr(sys.modules[type(store).__module__], "encode_entry", encode)
    await store.append(KEY, [{"type": "user"}])
    assert threading.get_ident() not in threads
    assert len(threads) == 1


@pytest.mark.parametrize("name", ["x" * 100_000, "", "\ud800", "\x00", "'; DROP TABLE lines; --"])
async def test_any_text_is_an_id(store, name):
    """It may have any length and any characters, and an entry with a known id is not stored again."""
    entry = {"type": "user", "uuid": name}
    await store.append(KEY, [entry])
    await store.append(KEY, [entry])
    assert await store.load(KEY) == [entry]


@pytest.mark.parametrize(
    "key",
    [
        {**KEY, "project_key": "a\0b"},
        {**KEY, "session_id": "\ud800"},
        {**KEY, "subpath": "a\0"},
        {**KEY, "project_key": None},
        {**KEY, "subpath": 5},
    ],
)
async def test_a_key_that_a_database_cannot_hold_is_refused(store, key):
    """All stores refuse the same keys, so that no key is mistaken for another one."""
    with pytest.raises(SessionStoreError, match="key of a transcript"):
        await store.append(key, [{"type": "user"}])
    with pytest.raises(SessionStoreError, match="key of a transcript"):
        await store.load(key)


def test_a_damaged_line_is_an_error():
    """A damaged entry is not silently left out."""
    line = encode_entry({"type": "user", "text": "x" * 1000})
    for bad in (line[:-5], b"z", b"", b"=", b"={", b"=[]"):
        with pytest.raises(SessionStoreError, match="damaged"):
            decode_entry(bad)


def test_an_id_that_is_no_text_is_none():
    """`encode_uuid` returns None for it, so such an entry counts as new each time."""
    assert encode_uuid({"type": "x", "uuid": {"a": 1}}) is None
    assert read_place({"project_key": "a", "session_id": "b", "subpath": None}) == ("a", "b", "")
