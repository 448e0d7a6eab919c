"""What stores guarantee beyond the conformance suite: several processes, odd and large entries, search, secrets."""

import subprocess
import sys
import threading
import traceback
import uuid

import anyio
import pytest

from shared.programs import run_python
from shared.stores import AGENT, KEY, SEARCHABLE, say
from shared.transcripts import SESSION, Writer
from toolwire import (
    InMemorySessionStore,
    PostgresSessionStore,
    RedisSessionStore,
    SessionStoreError,
    SQLiteSessionStore,
    list_sessions_from_store,
    project_key_for_directory,
)
from toolwire._support.secrets import redact
from toolwire.sessions.stores.base import decode_entry, encode_entry, encode_uuid, read_place

pytestmark = pytest.mark.anyio

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


@pytest.mark.parametrize("make_store", SEARCHABLE, indirect=True)
async def test_search_finds_what_was_said(store):
    """Main transcripts and subagents are searched, results of tools only with `include_output`."""
    writer = Writer()
    writer.answer(writer.ask(None, "Where is the harbour of Lisbon?"), "On the river Tagus.", calls=1)
    writer.lines[-1]["message"]["content"][0]["content"] = "a secret lighthouse"
    await store.append(KEY, writer.lines)
    await store.append(AGENT, [say("s1", "The subagent saw the harbour \x00 \ud83d")])
    hits = await store.search("harbour")
    assert {(each.subpath, each.type) for each in hits} == {(None, "user"), ("subagents/agent-a1", "user")}
    assert all("**harbour**" in each.snippet for each in hits)
    assert await store.search("lighthouse") == []
    [hit] = await store.search("lighthouse", include_output=True)
    assert (hit.session_id, hit.project_key, "**lighthouse**" in hit.snippet) == (SESSION, "-work", True)
    assert len(await store.search("harb")) == 2  # the last word matches as a prefix
    assert await store.search("harb lisbon") == []
    assert len(await store.search("lisbon harbour")) == 1
    assert await store.search('"of Tagus"') == []
    assert len(await store.search('"harbour of Lisbon"')) == 1
    assert await store.search("harbour", project_key="-other") == []
    assert len(await store.search("harbour", limit=1)) == 1
    await store.append(KEY, [say("later", "another harbour")])
    assert len(await store.search("harbour")) == 3
    await store.delete(KEY)
    assert await store.search("harbour") == []


@pytest.mark.parametrize("make_store", SEARCHABLE, indirect=True)
@pytest.mark.parametrize(
    "query",
    [
        *("", "  ", '"', "AND", "a & (b", "a OR (b", "x:y", "*", "'", "it's"),
        *("-", "' --", "\\", "a\\'b", "!x", "_", "\x00", "\ud83d", "NEAR(a"),
    ],
)
async def test_any_text_can_be_searched_for(store, query):
    """No part of a query is an operator."""
    await store.append(KEY, [say("1", f"begin {query} end")])
    await store.search(query)
    await store.search(query, include_output=True)


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        (PostgresSessionStore, "postgresql://me:hunter22secret@127.0.0.1:1/name"),
        (PostgresSessionStore, "host=127.0.0.1 port=1 user=me password=hunter22secret"),
        (PostgresSessionStore, "postgresql://me:hunter22secret%zz@127.0.0.1/name"),
        (PostgresSessionStore, "postgresql://me:hunter22secret@127.0.0.1:hunter22secret/name"),
        (PostgresSessionStore, "postgresql://me:x@hunter22secret@127.0.0.1/name"),
        (PostgresSessionStore, "postgresql://me:1/hunter22secret@127.0.0.1/name"),
        (PostgresSessionStore, "postgresql://127.0.0.1:1/name?password=hunter22secret"),
        (RedisSessionStore, "redis://me:hunter22secret@127.0.0.1:1/0"),
        (RedisSessionStore, "redis://:hunter22secret@127.0.0.1:hunter22secret/0"),
        (RedisSessionStore, "http://me:hunter22secret@127.0.0.1/"),
        (RedisSessionStore, "redis://me:[hunter22secret@127.0.0.1/"),
        (RedisSessionStore, "redis://:1/hunter22secret@127.0.0.1:1/0"),
        (RedisSessionStore, "redis://:1#hunter22secret@127.0.0.1:1/0"),
        (RedisSessionStore, "redis://127.0.0.1:1/0?password=hunter22secret"),
        (RedisSessionStore, "hunter22secret"),
    ],
)
async def test_a_password_is_in_no_text(kind, url):
    """It is neither in the store's repr nor in its errors, their causes included."""
    with pytest.raises((ValueError, SessionStoreError)) as caught:  # no server listens there
        await use(kind, url)
    assert "hunter22secret" not in "".join(traceback.format_exception(caught.value))


async def use(kind, url):
    """Make a store, check that its repr hides the password and that the password is redacted, and load."""
    store = kind(url, connect_timeout=2)
    assert "hunter22secret" not in repr(store)
    assert "127.0.0.1" in repr(store)
    assert redact("it is hunter22secret") != "it is hunter22secret"
    await store.load(KEY)


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "kind", "extra"),
    [("psycopg", "PostgresSessionStore", "postgres"), ("redis", "RedisSessionStore", "redis")],
)
def test_without_the_extra_the_error_says_what_to_install(module, kind, extra):
    """The error is one line."""
    program = f"import sys; sys.modules[{module!r}] = None; import toolwire; toolwire.{kind}('{extra}://x/y')"
    error = run_python("-c", program).stderr.splitlines()[-1]
    assert error.startswith("ImportError: ")
    assert f"pip install 'toolwire[{extra}]'" in error
