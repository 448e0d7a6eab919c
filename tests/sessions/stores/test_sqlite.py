"""The SQLite store: exact entries, no duplicates, migrations and permissions."""

import json
import os
import sqlite3
import stat

import anyio
import pytest

from shared.stores import KEY, say
from shared.transcripts import SESSION
from toolwire import SessionStoreError, SQLiteSessionStore
from toolwire.sessions.stores import sqlite as implementation

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path):
    """Return the path of a file that does not exist yet."""
    return tmp_path / "new folder" / "sessions.db"


async def test_entries_come_back_exactly(path):
    """With NUL, lone surrogates, large integers, keys in any order and 2 MB, and over another connection too."""
    entries = [
        {"uuid": "1", "type": "user", "text": "\x00 \ud83d 🚀 \u2028"},
        {"type": "x", "number": 2**80, "float": 1e308, "null": None, "deep": [[[{}]]]},
        {"type": "big", "text": "ab" * 1_000_000},
    ]
    await SQLiteSessionStore(path).append(KEY, entries)
    assert await SQLiteSessionStore(path).load(KEY) == entries


async def test_an_entry_is_stored_once_however_often_it_is_sent(path):
    """A retry after an unknown outcome adds no duplicates; entries without an id are added each time."""
    store = SQLiteSessionStore(path)
    batch = [say("1", "a"), say("2", "b"), {"type": "note"}]
    await store.append(KEY, batch)
    await store.append(KEY, [*batch, say("3", "c")])
    assert [each.get("uuid") for each in await store.load(KEY)] == ["1", "2", None, None, "3"]


async def test_a_full_disk_is_named_and_the_store_works_on(path):
    """SQLite rolls back by itself then; a second rollback would fail and hide the reason."""
    store = SQLiteSessionStore(path)
    await store.append(KEY, [say("1", "a")])
    [pages] = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(SessionStoreError, match="database or disk is full"):
        await store.append(KEY, [say(f"x{number}", os.urandom(3000).hex()) for number in range(50)])
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
    await store.append(KEY, [say("2", "b")])
    assert [each["uuid"] for each in await store.load(KEY)] == ["1", "2"]


async def test_only_its_owner_can_read_the_file(path):
    """Transcripts may contain secrets."""
    await SQLiteSessionStore(path).append(KEY, [say("1", "a")])
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


async def test_a_cancelled_append_is_whole_or_not_there(path):
    """A caller that is cancelled leaves either the whole batch or nothing of it."""
    store = SQLiteSessionStore(path)
    for number in range(20):
        with anyio.move_on_after(number * 0.0005):
            await store.append(KEY, [say(f"{number}-{each}", "x" * 1000) for each in range(50)])
    await store.append(KEY, [say("last", "x")])
    names = [each["uuid"] for each in await store.load(KEY)]
    assert (len(names) - 1) % 50 == 0


async def test_a_file_of_a_newer_version_is_refused(path):
    """The file is not changed."""
    await SQLiteSessionStore(path).append(KEY, [say("1", "a")])
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SessionStoreError, match="newer version of toolwire"):
        await SQLiteSessionStore(path).load(KEY)


async def test_a_file_of_the_first_version_is_brought_up_to_date(path):
    """The first version did not record who wrote; its content can be loaded, appended to and searched."""
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.executescript(implementation._MIGRATIONS[0])
        db.execute(f"PRAGMA application_id = {implementation._APPLICATION}")
        db.execute("PRAGMA user_version = 1")
        known = {"is_sidechain": False, "first_prompt": "old harbour", "first_prompt_locked": True}
        summary = json.dumps(known)
        db.execute("INSERT INTO transcripts VALUES (1, '-work', ?, '', 5, ?)", (SESSION, summary))
        line = b"=" + json.dumps(say("1", "old harbour")).encode()
        db.execute("INSERT INTO lines VALUES (1, 1, ?, ?)", (b"1", line))
    store = SQLiteSessionStore(path)
    assert await store.append_from(KEY, [say("1", "again"), say("2", "new")], "me") is None
    assert await store.load(KEY) == [say("1", "old harbour"), say("2", "new")]
    assert await store.append_from(KEY, [say("3", "x")], "you") == "me"
    assert len(await store.search("harbour")) == 1
    [row] = await store.list_session_summaries("-work")
    assert row["data"]["first_prompt"] == "old harbour"


async def test_a_file_of_an_older_version_is_brought_up_to_date(path, monkeypatch):
    """Its content is kept."""
    await SQLiteSessionStore(path).append(KEY, [say("1", "a")])
    newer = (*implementation._MIGRATIONS, "ALTER TABLE transcripts ADD COLUMN later TEXT")
    monkeypatch.setattr(implementation, "_MIGRATIONS", newer)
    store = SQLiteSessionStore(path)
    assert await store.load(KEY) == [say("1", "a")]
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT later FROM transcripts").fetchall() == [(None,)]


async def test_another_programs_file_is_refused(tmp_path):
    """Nothing is written to it, whether or not it is a database."""
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(SessionStoreError, match="another program"):
        await SQLiteSessionStore(other).append(KEY, [say("1", "a")])
    text = tmp_path / "notes.txt"
    text.write_text("my notes " * 100)
    with pytest.raises(SessionStoreError, match=r"notes.txt"):
        await SQLiteSessionStore(text).append(KEY, [say("1", "a")])
    assert text.read_text() == "my notes " * 100


async def test_the_file_is_opened_anew_after_it_was_closed(path):
    """So a store can be used again after a conversation has closed it."""
    async with SQLiteSessionStore(path) as store:
        await store.append(KEY, [say("1", "a")])
    assert len(await store.load(KEY)) == 1
    await store.aclose()
    with sqlite3.connect(path) as db:
        [summary] = db.execute("SELECT summary FROM transcripts").fetchone()
    assert json.loads(summary)["first_prompt"] == "a"
