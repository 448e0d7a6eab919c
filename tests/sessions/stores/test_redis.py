"""The Redis store on a real server: expiry, migrations, and errors when the server cannot be reached."""

import uuid

import anyio
import pytest
import redis

from shared.servers import RedisServer, find_redis, require
from shared.stores import AGENT, KEY, say
from shared.transcripts import SESSION
from toolwire import NotSupportedError, RedisSessionStore, SessionStoreError
from toolwire.sessions.stores import redis as implementation

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def prefix():
    """Return a prefix that no other test uses."""
    return str(uuid.uuid4())


@pytest.fixture
async def store(redis_server, prefix):
    """Open an empty store."""
    async with RedisSessionStore(redis_server.url, prefix=prefix) as it:
        yield it


@pytest.fixture
def raw(redis_server):
    """Return a client of the Redis server."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


async def test_it_says_that_it_cannot_search(store):
    """The error names stores that can."""
    with pytest.raises(NotSupportedError, match="PostgresSessionStore"):
        await store.search("harbour")


async def test_a_session_is_forgotten_some_time_after_its_last_append(redis_server, prefix, raw):
    """Its subagents and its row in lists expire with it; each append restarts the time for all of them."""
    store = RedisSessionStore(redis_server.url, prefix=prefix, ttl=1000)
    await store.append(AGENT, [say("1", "a")])
    await store.append({**KEY, "session_id": "other"}, [say("1", "a")])
    for name in raw.keys(f"{prefix}:*{SESSION}*agent*"):
        raw.expire(name, 5)
    await store.append(KEY, [say("2", "b")])
    own = [name for name in raw.keys(f"{prefix}:*{SESSION}:*") if b":of:" not in name]
    assert len(own) == 7
    assert all(raw.ttl(name) > 900 for name in own)
    for name in own:
        raw.pexpire(name, 1)
    with anyio.fail_after(10):
        while any(map(raw.exists, own)):
            await anyio.sleep(0.01)
    assert await store.load(KEY) is None
    assert await store.list_subkeys(KEY) == []
    assert await store.find_projects(SESSION) == []
    assert [each["session_id"] for each in await store.list_sessions("-work")] == ["other"]
    assert raw.zcard(f"{prefix}:{{-work}}:sessions") == 1


async def test_keys_of_a_project_are_in_one_slot_of_a_cluster(store, raw, prefix):
    """Otherwise a Lua script could not write them together."""
    odd = {"project_key": "a}{b:c", "session_id": SESSION}
    await store.append(odd, [say("1", "a")])
    await store.append({**odd, "subpath": "x}y"}, [say("1", "a")])
    names = [each.decode() for each in raw.keys(f"{prefix}:{{*") if b"a%7D" in each]
    assert len(names) == 8
    assert {name.partition("{")[2].partition("}")[0] for name in names} == {"a%7D%7Bb%3Ac"}


async def test_keys_of_a_newer_version_are_refused(store, raw, redis_server, prefix):
    """The keys are not changed."""
    await store.append(KEY, [say("1", "a")])
    raw.set(f"{prefix}:format", 99)
    with pytest.raises(SessionStoreError, match="newer version of toolwire"):
        await RedisSessionStore(redis_server.url, prefix=prefix).load(KEY)


async def test_keys_of_an_older_version_are_brought_up_to_date(store, raw, redis_server, prefix, monkeypatch):
    """Their content is kept."""
    await store.append(KEY, [say("1", "a")])
    monkeypatch.setattr(implementation, "_MIGRATIONS", (lambda db, first: db.set(f"{first}:later", "1"),))
    assert await RedisSessionStore(redis_server.url, prefix=prefix).load(KEY) == [say("1", "a")]
    assert (raw.get(f"{prefix}:later"), raw.get(f"{prefix}:format")) == (b"1", b"2")


async def test_a_server_that_was_killed_and_is_back_is_used_again():
    """What was stored before is still there; an append in between raises a `SessionStoreError`."""
    require(find_redis(), "redis-server")
    with RedisServer() as server:
        store = RedisSessionStore(server.url)
        await store.append(KEY, [say("1", "a")])
        server.kill()
        for _ in range(2):
            with pytest.raises(SessionStoreError, match="127.0.0.1"):
                await store.append(KEY, [say("2", "b")])
        server.start()
        await store.append(KEY, [say("2", "b"), say("3", "c")])
        assert [each["uuid"] for each in await store.load(KEY)] == ["1", "2", "3"]
        await store.aclose()


async def test_a_server_that_does_not_answer_is_an_error_after_the_limit(redis_server, prefix, raw):
    """The store works again as soon as the server does."""
    store = RedisSessionStore(redis_server.url, prefix=prefix, timeout=0.3, connections=1)
    await store.append(KEY, [say("1", "a")])
    raw.client_pause(3000)
    with pytest.raises(SessionStoreError, match=r"(?i)time"), anyio.fail_after(20):
        await store.append(KEY, [say("2", "b")])
    raw.client_unpause()
    await store.append(KEY, [say("2", "b")])
    assert [each["uuid"] for each in await store.load(KEY)] == ["1", "2"]
    await store.aclose()


async def test_a_wrong_password_is_a_clear_error(redis_server, prefix):
    """The error names the server, but not the password."""
    store = RedisSessionStore(redis_server.url.replace("//", "//me:hunter22secret@"), prefix=prefix)
    with pytest.raises(SessionStoreError, match="127.0.0.1") as caught:
        await store.load(KEY)
    assert "hunter22secret" not in str(caught.value)
