"""The Postgres store on a real server: migrations, and errors when the server cannot be reached."""

import os
import signal
import subprocess
import sys

import anyio
import psycopg
import pytest

from shared.stores import KEY, say
from toolwire import PostgresSessionStore, SessionStoreError
from toolwire.sessions.stores import postgres as implementation

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
async def store(postgres_url):
    """Open a store in an empty database."""
    async with PostgresSessionStore(postgres_url) as it:
        yield it


async def test_a_message_with_very_many_words_is_kept_and_found(store):
    """Postgres refuses to index more than a megabyte of words, which must not lose the message."""
    text = " ".join(f"word{number}" for number in range(600_000))
    await store.append(KEY, [say("1", text)])
    assert await store.load(KEY) == [say("1", text)]
    [hit] = await store.search("word77")
    assert "**word77**" in hit.snippet


async def test_tables_of_a_newer_version_are_refused(store, postgres_url):
    """The tables are not changed."""
    await store.append(KEY, [say("1", "a")])
    with psycopg.connect(postgres_url) as db:
        db.execute("UPDATE toolwire_sessions_format SET version = 99")
    with pytest.raises(SessionStoreError, match="newer version of toolwire"):
        await PostgresSessionStore(postgres_url).load(KEY)


async def test_tables_of_an_older_version_are_brought_up_to_date(store, postgres_url, monkeypatch):
    """Their content is kept."""
    await store.append(KEY, [say("1", "a")])
    newer = (*implementation._MIGRATIONS, "ALTER TABLE toolwire_transcripts ADD COLUMN later text")
    monkeypatch.setattr(implementation, "_MIGRATIONS", newer)
    async with PostgresSessionStore(postgres_url) as newest:
        assert await newest.load(KEY) == [say("1", "a")]
    with psycopg.connect(postgres_url) as db:
        assert db.execute("SELECT later FROM toolwire_transcripts").fetchall() == [(None,)]
        assert db.execute("SELECT version FROM toolwire_sessions_format").fetchall() == [(len(newer),)]


async def test_stores_that_make_the_tables_at_the_same_time_do_so_once(postgres_url):
    """Stores on several machines may start at the same time."""
    stores = [PostgresSessionStore(postgres_url) for _ in range(6)]
    async with anyio.create_task_group() as group:
        for number, each in enumerate(stores):
            group.start_soon(each.append, KEY, [say(str(number), "a")])
    assert len(await stores[0].load(KEY)) == 6
    for each in stores:
        await each.aclose()


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_url, postgres_server):
    """An error at the start is better than the loss of a turn later."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(
            "CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    try:
        url = f"postgresql://toolwire@127.0.0.1:{postgres_server.port}/plain"
        with pytest.raises(SessionStoreError, match="ENCODING 'UTF8'"):
            await PostgresSessionStore(url).append(KEY, [say("1", "a")])
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("DROP DATABASE plain WITH (FORCE)")


async def test_a_server_that_was_killed_and_is_back_is_used_again(postgres_server, store):
    """What was stored before is still there; an append in between raises a `SessionStoreError`."""
    await store.append(KEY, [say("1", "a")])
    postgres_server.kill()
    try:
        with pytest.raises(SessionStoreError, match="127.0.0.1"):
            await store.append(KEY, [say("2", "b")])
        with pytest.raises(SessionStoreError, match="refused"):
            await store.load(KEY)
    finally:
        postgres_server.start()
    await store.append(KEY, [say("2", "b"), say("3", "c")])
    assert [each["uuid"] for each in await store.load(KEY)] == ["1", "2", "3"]


async def test_a_server_that_does_not_answer_is_an_error_after_the_limit(postgres_url):
    """The hanging call keeps no thread: the next call opens a new connection, even if only one is allowed."""
    store = PostgresSessionStore(postgres_url, timeout=0.5, connections=1)
    await store.append(KEY, [say("1", "a")])
    server = store._pool._idle[0][0].info.backend_pid
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(SessionStoreError, match=r"did not respond within 0\.5 s"), anyio.fail_after(20):
            await store.append(KEY, [say("2", "b")])
        store._timeout = 60
        await store.append(KEY, [say("2", "b")])
    finally:
        os.kill(server, signal.SIGCONT)
    assert [each["uuid"] for each in await store.load(KEY)] == ["1", "2"]
    await store.aclose()


async def test_a_lock_of_another_is_waited_for_no_longer_than_the_limit(store, postgres_url):
    """Here another client left a transaction open."""
    await store.append(KEY, [say("1", "a")])
    store._timeout = 0.3
    with psycopg.connect(postgres_url) as db:
        db.execute("SELECT * FROM toolwire_transcripts FOR UPDATE")
        with (
            pytest.raises(SessionStoreError, match=r"did not respond|statement timeout"),
            anyio.fail_after(20),
        ):
            await store.append(KEY, [say("2", "b")])
    store._timeout = 60
    await store.append(KEY, [say("2", "b")])
    assert len(await store.load(KEY)) == 2


async def test_a_store_can_be_used_after_a_fork(store):
    """The child process opens its own connections and closes none of the parent's."""
    await store.append(KEY, [say("1", "a")])
    program = (
        "import os, sys, asyncio\n"
        "from toolwire import PostgresSessionStore\n"
        f"key = {KEY!r}\n"
        "store = PostgresSessionStore(sys.argv[1])\n"
        "asyncio.run(store.load(key))\n"
        "if os.fork() == 0:\n"
        "    asyncio.run(store.append(key, [{'type': 'user', 'uuid': 'child'}]))\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "asyncio.run(store.append(key, [{'type': 'user', 'uuid': 'parent'}]))\n"
    )
    url = store._pool._parameters
    address = f"postgresql://{url['user']}@{url['host']}:{url['port']}/{url['dbname']}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, address], check=True, timeout=60)
    assert [each["uuid"] for each in await store.load(KEY)] == ["1", "child", "parent"]
