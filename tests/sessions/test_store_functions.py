"""The session functions on a store: like the official ones, and with stores that lack methods, fail or hang."""

import json
from dataclasses import asdict

import anyio
import claude_agent_sdk as official
import pytest
from hypothesis import given

from shared.transcripts import SESSION, Writer, conversations, texts
from toolwire import sessions as ours

pytestmark = pytest.mark.anyio
KEY = {"project_key": "-work", "session_id": SESSION}
OTHER = "22222222-2222-4222-8222-222222222222"


async def fill(store, writer=None):
    """Store a session with a call, or the writer's; returns the writer."""
    if writer is None:
        writer = Writer()
        writer.answer(writer.ask(None, "hello"), "hi", calls=1)
    await store.append({**KEY, "session_id": writer.session}, writer.lines)
    return writer


async def both(name, store, *arguments):
    """Return the results of both packages as plain data."""
    answers = []
    for package in (ours, official):
        found = await getattr(package, name)(store, *arguments)
        answers.append([asdict(each) if hasattr(each, "uuid") else each for each in found])
    return answers


@pytest.mark.asyncio_only
@given(conversations())
async def test_messages_are_the_official_ones(writer):
    """This holds for any conversation and for pages of it."""
    store = ours.InMemorySessionStore()
    await fill(store, writer)
    for arguments in [(SESSION, "/work"), (SESSION, "/work", 2, 1), ("x", "/work"), (OTHER, "/work")]:
        mine, theirs = await both("get_session_messages_from_store", store, *arguments)
        assert mine == theirs


async def test_a_list_comes_from_summaries_alone():
    """If the store keeps summaries, no session is loaded."""

    class Counting(ours.InMemorySessionStore):
        async def load(self, key):
            raise AssertionError("loaded")

    store = Counting()
    for number in range(3):
        writer = Writer(OTHER[:-1] + str(number))
        writer.ask(None, f"prompt {number}")
        await fill(store, writer)
    listed = await ours.list_sessions_from_store(store, "/work", limit=2, offset=1)
    assert [each.first_prompt for each in listed] == ["prompt 1", "prompt 0"]


class Plain:
    """A store that can list and load but keeps no summaries; loading some sessions fails."""

    def __init__(self, inner, failing=()):
        self.inner, self.failing, self.loaded = inner, failing, []
        self.append, self.list_sessions = inner.append, inner.list_sessions

    async def load(self, key):
        """Return entries, or fail."""
        self.loaded.append(key["session_id"])
        if key["session_id"] in self.failing:
            raise ConnectionError("the network is gone")
        return await self.inner.load(key)


async def test_one_session_that_cannot_be_loaded_hides_no_other(caplog):
    """It is listed with the reason, which is logged too."""
    inner = ours.InMemorySessionStore()
    await fill(inner)
    writer = Writer(OTHER)
    writer.ask(None, "the other")
    await fill(inner, writer)
    listed = await ours.list_sessions_from_store(Plain(inner, {SESSION}), "/work")
    assert [each.summary for each in listed] == ["the other", "(cannot be loaded: the network is gone)"]
    assert "the network is gone" in caplog.text


async def test_only_a_page_is_loaded():
    """Sessions are loaded sixteen at a time, until the page is full."""
    inner = ours.InMemorySessionStore()
    for number in range(50):
        writer = Writer(f"{OTHER[:-2]}{number:02}")
        writer.ask(None, f"prompt {number}")
        await fill(inner, writer)
    store = Plain(inner)
    listed = await ours.list_sessions_from_store(store, "/work", limit=3)
    assert [each.first_prompt for each in listed] == ["prompt 49", "prompt 48", "prompt 47"]
    assert len(store.loaded) == 16


async def test_a_stale_summary_is_made_again():
    """A summary that is older than its session is not used."""

    class Stale(ours.InMemorySessionStore):
        async def list_session_summaries(self, project_key):
            found = await super().list_session_summaries(project_key)
            return [{**each, "mtime": 5, "data": {"custom_title": "old"}} for each in found]

    store = Stale()
    await fill(store)
    [row] = await ours.list_sessions_from_store(store, "/work")
    assert (row.custom_title, row.first_prompt) == (None, "hello")


async def test_a_session_has_the_time_of_its_last_entry():
    """The time is not that of the call."""
    store = ours.InMemorySessionStore()
    writer = await fill(store)
    await store.append(KEY, [{"type": "last-prompt", "lastPrompt": "hello"}])
    info = await ours.get_session_info_from_store(store, SESSION, "/work")
    assert info.last_modified == ours.entries.read_time(writer.lines[-1]["timestamp"])
    assert await ours.get_session_info_from_store(store, OTHER, "/work") is None
    assert await ours.get_session_info_from_store(store, "x", "/work") is None


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("list_sessions_from_store", (), "list_session"),
        ("list_subagents_from_store", (SESSION,), "list_subkeys"),
    ],
)
async def test_a_method_that_is_missing_is_named(name, arguments, missing):
    """It is the same type of error as the official package's."""

    class Two:
        append = load = None

    for package in (ours, official):
        with pytest.raises(ValueError, match=missing):
            await getattr(package, name)(Two(), *arguments)


async def test_titles_and_tags_are_the_official_lines():
    """Other programs that read the store see no difference."""
    lines = []
    for package in (ours, official):
        store = ours.InMemorySessionStore()
        await package.rename_session_via_store(store, SESSION, " Mine ", "/work")
        await package.tag_session_via_store(store, SESSION, "blue", "/work")
        await package.tag_session_via_store(store, SESSION, None, "/work")
        lines.append([{**each, "uuid": "", "timestamp": ""} for each in store.get_entries(KEY)])
    assert lines[0] == lines[1]
    with pytest.raises(ValueError, match="title must be non-empty"):
        await ours.rename_session_via_store(store, SESSION, " ", "/work")


async def test_deleting_from_a_store_that_cannot_is_logged(caplog):
    """As with the official package nothing is deleted, but the log says so."""
    await ours.delete_session_via_store(Plain(ours.InMemorySessionStore()), SESSION, "/work")
    assert "has no delete()" in caplog.text


async def test_a_fork_takes_its_subagents_along():
    """The original is unchanged."""
    store = ours.InMemorySessionStore()
    await fill(store)
    before = store.get_entries(KEY)
    noted = {"type": "agent_metadata", "toolUseId": "toolu_2_0", "agentType": "Explore"}
    await store.append(
        {**KEY, "subpath": "subagents/agent-a1"}, [noted, {"type": "user", "sessionId": SESSION}]
    )
    copy = (await ours.fork_session_via_store(store, SESSION, "/work", title="Copy")).session_id
    assert await ours.list_subagents_from_store(store, copy, "/work") == ["a1"]
    assert (await ours.get_session_info_from_store(store, copy, "/work")).custom_title == "Copy"
    said = [await ours.get_session_messages_from_store(store, each, "/work") for each in (SESSION, copy)]
    assert texts(said[0]) == texts(said[1])
    assert store.get_entries(KEY) == before
    with pytest.raises(FileNotFoundError, match="not found"):
        await ours.fork_session_via_store(store, OTHER, "/work")


async def test_an_import_adds_what_the_store_lacks(tmp_path, caplog):
    """It adds, once, what the CLI would have sent; a torn line is left out and logged."""
    writer = Writer()
    writer.answer(writer.ask(None, "hello"), "hi")
    writer.note(type="api-request-blob", data="x")
    writer.note(type="last-prompt", lastPrompt="hello")
    path = writer.write(tmp_path)
    agents = path.with_suffix("") / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-a1.jsonl").write_text(
        json.dumps({"type": "user", "uuid": "s", "isSidechain": True}) + "\n"
    )
    (agents / "agent-a1.meta.json").write_text(json.dumps({"agentType": "Explore"}))
    with path.open("ab") as file:
        file.write(b'{"type":"us')
    store = ours.InMemorySessionStore()
    for _ in range(2):
        await ours.import_session_to_store(SESSION, store, config_dir=tmp_path, batch_size=2)
    expected = [line for line in writer.lines if line["type"] != "api-request-blob"]
    assert store.get_entries(KEY) == expected
    assert [each["type"] for each in store.get_entries({**KEY, "subpath": "subagents/agent-a1"})] == [
        "agent_metadata",
        "user",
    ]
    assert "skipped 1 lines that cannot be read" in caplog.text
    with pytest.raises(FileNotFoundError, match="not found"):
        await ours.import_session_to_store(OTHER, store, config_dir=tmp_path)


@pytest.mark.parametrize(("size", "batches"), [(400, [400, 300]), (600, [600, 100]), (0, [500, 200])])
async def test_an_import_adds_batches_of_the_size_that_was_asked_for(tmp_path, size, batches):
    """Zero stands for 500, as in the official package."""
    writer, seen = Writer(), []
    while len(writer.lines) < 700:
        writer.note(type="last-prompt", lastPrompt=str(len(writer.lines)))
    writer.write(tmp_path)

    class Counting(ours.InMemorySessionStore):
        async def append(self, key, entries):
            seen.append(len(entries))
            await super().append(key, entries)

    await ours.import_session_to_store(SESSION, Counting(), config_dir=tmp_path, batch_size=size)
    assert seen == batches


async def test_a_store_that_hangs_is_a_timeout_that_names_the_call(monkeypatch):
    """The error names the method of the store."""

    class Hanging(ours.InMemorySessionStore):
        async def load(self, key):
            await anyio.sleep_forever()

    monkeypatch.setattr("toolwire.sessions.store_functions._TIMEOUT", 0.01)
    with pytest.raises(TimeoutError, match=r"load\(\) took longer"):
        await ours.get_session_messages_from_store(Hanging(), SESSION, "/work")
