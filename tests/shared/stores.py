"""Every kind of session store, for tests that all of them must pass. Postgres and Redis are real servers."""

import uuid

import pytest

from shared.transcripts import SESSION
from toolwire import InMemorySessionStore, PostgresSessionStore, RedisSessionStore, SQLiteSessionStore

KINDS = [
    "memory",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.process),
    pytest.param("redis", marks=pytest.mark.process),
]
SEARCHABLE = KINDS[1:3]
KEY = {"project_key": "-work", "session_id": SESSION}
AGENT = {**KEY, "subpath": "subagents/agent-a1"}


def say(name, text):
    """Return an entry with an id."""
    return {"type": "user", "uuid": name, "message": {"role": "user", "content": text}}


@pytest.fixture(params=KINDS)
def make_store(request, tmp_path):
    """Return a function that makes a fresh store; once for each kind."""
    match request.param:
        case "memory":
            return InMemorySessionStore
        case "sqlite":
            return lambda: SQLiteSessionStore(tmp_path / f"{uuid.uuid4()}.db")
        case "postgres":
            server = request.getfixturevalue("postgres_server")
            return lambda: PostgresSessionStore(server.create_database())
        case _:
            url = request.getfixturevalue("redis_server").url
            return lambda: RedisSessionStore(url, prefix=str(uuid.uuid4()))


@pytest.fixture
def store(make_store):
    """Return a fresh store; once for each kind."""
    return make_store()
