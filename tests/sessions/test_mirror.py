"""Mirroring into a store: nobody waits for it, nothing is lost or doubled, whatever the store does."""

from contextlib import asynccontextmanager

import anyio
import pytest

from shared.transcripts import SESSION, Writer
from toolwire import InMemorySessionStore, import_session_to_store
from toolwire.sessions import mirror as implementation
from toolwire.sessions.mirror import Mirror, make_key
from toolwire.sessions.spool import Spool

pytestmark = pytest.mark.anyio
KEY = {"project_key": "-work", "session_id": SESSION}


@asynccontextmanager
async def run_mirror(store, *, eager=False, timeout=10.0, **options):
    """Run a mirror; yields it and the errors that it reports."""
    errors = []
    mirror = Mirror(store, eager=eager, timeout=timeout, report=errors.append, **options)
    async with anyio.create_task_group() as group:
        group.start_soon(mirror.run)
        yield mirror, errors
        group.cancel_scope.cancel()


class Recording(InMemorySessionStore):
    """A store that records each append, and fails or hangs if a test wants it."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.failing = False
        self.gate = anyio.Event()
        self.gate.set()

    async def append(self, key, entries):
        """Add entries."""
        self.batches.append([each.get("uuid") for each in entries])
        await self.gate.wait()
        if self.failing:
            raise ConnectionError("the database is away")
        await super().append(key, entries)


@pytest.fixture
def disk(tmp_path):
    """Return a transcript on disk as the CLI writes it; `send(mirror, texts)` appends prompts and reports them."""

    class Disk:
        path = tmp_path / "projects" / "-work" / f"{SESSION}.jsonl"

        def __init__(self):
            self.path.parent.mkdir(parents=True)
            self.writer = Writer()

        def send(self, mirror, *texts):
            """Write prompts to the file, and report them to the mirror."""
            before = len(self.writer.lines)
            for text in texts:
                self.writer.ask(None, text)
            new = self.writer.lines[before:]
            self.path.write_bytes(self.writer.encode())
            mirror.add({"type": "transcript_mirror", "filePath": str(self.path), "entries": new})

    return Disk()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch, tmp_path):
    monkeypatch.setattr(implementation, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(implementation, "Spool", lambda: Spool(tmp_path / "spool"))


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"/home/u/.claude/projects/-work/{SESSION}.jsonl", KEY),
        (f"/x/-work/{SESSION}/subagents/agent-a1.jsonl", {**KEY, "subpath": "subagents/agent-a1"}),
        (
            f"/x/-work/{SESSION}/subagents/workflows/w1/agent-a.b.jsonl",
            {**KEY, "subpath": "subagents/workflows/w1/agent-a.b"},
        ),
        ("/home/u/notes.jsonl", None),
        ("", None),
    ],
)
def test_a_path_names_its_transcript(path, key):
    """The key is found from the path, wherever the CLI's folder is."""
    assert make_key(path) == key


async def test_reports_of_a_turn_are_stored_together(disk):
    """There is one append for each transcript, with the entries in order."""
    store = Recording()
    async with run_mirror(store) as (mirror, errors):
        for text in ("one", "two", "three"):
            disk.send(mirror, text)
        assert await mirror.flush()
    assert store.get_entries(KEY) == disk.writer.lines
    assert (len(store.batches), errors) == (1, [])


async def test_eager_reports_are_coalesced_while_the_store_is_busy(disk):
    """Reports that arrive during an append are stored by the next one."""
    store = Recording()
    async with run_mirror(store, eager=True) as (mirror, _):
        store.gate = anyio.Event()
        disk.send(mirror, "one")
        await anyio.wait_all_tasks_blocked()
        for text in ("two", "three", "four"):
            disk.send(mirror, text)
        store.gate.set()
        assert await mirror.flush()
    assert [len(each) for each in store.batches] == [2, 6]


async def test_a_store_that_hangs_delays_nobody_for_longer_than_the_limit(disk):
    """The first flush waits until its timeout, later ones do not wait; in the end everything is stored."""
    store = Recording()
    async with run_mirror(store, timeout=0.05) as (mirror, _):
        store.gate = anyio.Event()
        disk.send(mirror, "one")
        assert not await mirror.flush()
        mirror._timeout = 60
        for number in range(20):
            disk.send(mirror, f"more {number}")
            assert not await mirror.flush()
        store.gate.set()
        assert await mirror.finish()
    assert store.get_entries(KEY) == disk.writer.lines


async def test_a_store_that_fails_gets_everything_once_it_is_back(disk):
    """The missing entries are read from the file and stored once; each failure is reported once."""
    store = Recording()
    async with run_mirror(store) as (mirror, errors):
        disk.send(mirror, "one")
        assert await mirror.flush()
        store.failing = True
        disk.send(mirror, "two")
        assert not await mirror.flush()
        disk.writer.note(type="last-prompt", lastPrompt="x")
        disk.send(mirror, "three")
        assert not await mirror.finish()
        store.failing = False
        disk.send(mirror, "four")
        assert await mirror.finish()
    assert sorted(map(str, store.get_entries(KEY))) == sorted(map(str, disk.writer.lines))
    assert [each["error"] for each in errors] == ["the database is away"] * 2
    assert errors[0]["key"] == KEY


async def test_a_timeout_whose_outcome_is_unknown_doubles_nothing(disk, monkeypatch):
    """This holds in a store that does not detect duplicates, too."""

    class Forgetful(Recording):
        async def append(self, key, entries):
            await super().append(key, entries)
            if len(self.batches) == 1:
                await anyio.sleep_forever()

    monkeypatch.setattr(implementation, "_CALL_TIMEOUT", 0.05)
    store = Forgetful()
    async with run_mirror(store) as (mirror, errors):
        disk.writer.note(type="queue-operation")
        disk.send(mirror, "one")
        await mirror.finish()
        monkeypatch.setattr(implementation, "_CALL_TIMEOUT", 60)
        disk.send(mirror, "two")
        assert await mirror.finish()
    assert len(store.get_entries(KEY)) == len(disk.writer.lines)
    assert "took longer" in errors[0]["error"]


async def test_memory_is_bounded_while_the_store_hangs(disk, monkeypatch):
    """Entries above the limit are dropped from memory and read from the file later."""
    monkeypatch.setattr(implementation, "_HELD", 10)
    store = Recording()
    async with run_mirror(store, eager=True) as (mirror, _):
        store.gate = anyio.Event()
        for number in range(30):
            disk.send(mirror, f"prompt {number}")
            await anyio.wait_all_tasks_blocked()
            assert sum(len(each.waiting) for each in mirror._transcripts.values()) <= 10
        store.gate.set()
        assert await mirror.finish()
    assert {each["uuid"] for each in store.get_entries(KEY)} == {each["uuid"] for each in disk.writer.lines}


async def test_what_was_not_stored_at_the_end_is_named(disk, caplog, tmp_path):
    """The log names the file that has it, and the function that imports it."""
    store = Recording()
    store.failing = True
    async with run_mirror(store, timeout=0.05) as (mirror, _):
        disk.send(mirror, "one")
        await mirror.finish()
    assert str(tmp_path / "spool") in caplog.text
    assert "import_session_to_store" in caplog.text


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"filePath": "/x", "entries": []},
        {"filePath": 5, "entries": []},
        {"filePath": f"/p/{SESSION}.jsonl"},
    ],
)
async def test_a_report_that_cannot_be_read_is_an_error_message(frame):
    """It neither raises nor is ignored."""
    async with run_mirror(InMemorySessionStore()) as (mirror, errors):
        mirror.add(frame)
        assert await mirror.flush()
    assert [each["subtype"] for each in errors] == ["mirror_error"]


class Remote:
    """A CLI on another machine: it reports entries, but there is no file here."""

    path = f"/far/away/projects/-work/{SESSION}.jsonl"

    def __init__(self):
        self.sent = []

    def send(self, mirror, *names):
        """Report entries with these ids."""
        new = [{"type": "user", "uuid": name, "message": {"role": "user", "content": name}} for name in names]
        self.sent += new
        mirror.add({"type": "transcript_mirror", "filePath": self.path, "entries": new})


async def test_without_a_file_entries_wait_in_the_spool(tmp_path):
    """When the store works again, they are stored from there and removed from the spool."""
    store, cli, spool = Recording(), Remote(), Spool(tmp_path / "own spool")
    async with run_mirror(store, spool=spool) as (mirror, errors):
        store.failing = True
        cli.send(mirror, "1", "2")
        assert not await mirror.flush()
        assert spool.find(KEY).stat().st_mode & 0o777 == 0o600
        store.failing = False
        cli.send(mirror, "3")
        assert await mirror.finish()
    assert store.get_entries(KEY) == cli.sent
    assert spool.find(KEY) is None
    assert len(errors) == 1


async def test_without_a_file_memory_is_bounded_too(tmp_path, monkeypatch):
    """The limit is on the size of the entries, while a store hangs."""
    monkeypatch.setattr(implementation, "_HELD_SIZE", 1000)
    store, cli, spool = Recording(), Remote(), Spool(tmp_path / "spool")
    store.gate = anyio.Event()
    async with run_mirror(store, eager=True, spool=spool) as (mirror, _):
        for number in range(20):
            cli.send(mirror, f"{number}" + "x" * 400)
            await anyio.wait_all_tasks_blocked()
            assert sum(each.size for each in mirror._transcripts.values()) <= 1000
        store.gate.set()
        assert await mirror.finish()
    assert store.get_entries(KEY) == cli.sent


async def test_what_hangs_at_the_end_is_in_the_spool(tmp_path, caplog):
    """Entries of the append that hangs are included; the import that the log names adds each once."""
    store, cli, spool = Recording(), Remote(), Spool(tmp_path / "spool")
    store.gate = anyio.Event()
    async with run_mirror(store, eager=True, spool=spool, timeout=0.05) as (mirror, _):
        cli.send(mirror, "1")
        await anyio.wait_all_tasks_blocked()
        cli.send(mirror, "2")
        assert not await mirror.finish()
    assert f"config_dir={str(spool.folder)!r}" in caplog.text
    store.gate.set()
    await import_session_to_store(SESSION, store, config_dir=spool.folder)
    assert store.get_entries(KEY) == cli.sent


async def test_a_spool_that_fails_is_an_error_and_not_the_end(tmp_path):
    """The conversation goes on, and the error says what is lost."""
    (tmp_path / "file").write_text("not a folder")
    store, cli = Recording(), Remote()
    store.failing = True
    async with run_mirror(store, spool=Spool(tmp_path / "file")) as (mirror, errors):
        cli.send(mirror, "1")
        assert not await mirror.flush()
        store.failing = False
        cli.send(mirror, "2")
        await mirror.finish()
    assert "1 entries are lost" in errors[0]["error"]


@pytest.mark.parametrize("path", ["../../x", "a/../../x", "\0", "C:\\x"])
async def test_no_report_makes_the_spool_write_elsewhere(tmp_path, path):
    """This holds whatever path a CLI reports."""
    store = Recording()
    store.failing = True
    async with run_mirror(store, spool=Spool(tmp_path / "deep" / "spool")) as (mirror, errors):
        mirror.add({"filePath": f"/p/-work/{SESSION}/{path}.jsonl", "entries": [{"type": "x"}]})
        assert not await mirror.flush()
    assert any("lost" in each["error"] for each in errors)
    assert not list(tmp_path.rglob("x.jsonl"))


async def test_a_store_that_is_back_while_nobody_speaks_gets_the_rest(disk, monkeypatch):
    """It needs no other report, and failed attempts in between are not reported."""
    monkeypatch.setattr(implementation, "_RETRIES", (0.01, 0.02))
    store = Recording()
    async with run_mirror(store) as (mirror, errors):
        store.failing = True
        disk.send(mirror, "one")
        assert not await mirror.flush()
        with anyio.fail_after(30):
            while len(store.batches) < 10:
                await anyio.sleep(0.005)
            store.failing = False
            while not store.get_entries(KEY):
                await anyio.sleep(0.005)
    assert store.get_entries(KEY) == disk.writer.lines
    assert len(errors) == 1


async def test_two_conversations_on_one_session_are_told(disk):
    """Each gets one error, after the other has written in between; all entries of both are stored."""
    store = InMemorySessionStore()
    async with run_mirror(store) as (one, errors), run_mirror(store) as (two, others):
        mine, theirs = Remote(), Remote()
        for mirror, cli, name in ((one, mine, "1"), (two, theirs, "2")):
            cli.send(mirror, name)
            assert await mirror.flush()
        assert (errors, others) == ([], [])
        mine.send(one, "3")
        assert await one.flush()
        assert "another conversation" in errors[0]["error"]
        assert others == []
        mine.send(one, "4")
        assert await one.flush()
        assert len(errors) == 1
        theirs.send(two, "5")
        assert await two.flush()
        assert "another conversation" in others[0]["error"]
    assert [each["uuid"] for each in store.get_entries(KEY)] == ["1", "2", "3", "4", "5"]


async def test_a_cli_that_reports_nothing_is_an_error(disk):
    """It is reported once: the CLI's folder is not writable, or the CLI is too old."""
    async with run_mirror(InMemorySessionStore(), is_local=True) as (mirror, errors):
        assert await mirror.flush()
        assert await mirror.flush()
    assert ["CLAUDE_CONFIG_DIR" in each["error"] for each in errors] == [True]


async def test_a_session_of_which_nothing_is_reported_is_an_error(disk):
    """For example, after `/clear` the next session's file may not be writable."""
    async with run_mirror(InMemorySessionStore(), is_local=True) as (mirror, errors):
        disk.send(mirror, "one")
        assert await mirror.flush(KEY["session_id"])
        assert errors == []
        for _ in range(2):
            assert await mirror.flush("another")
    assert ["CLAUDE_CONFIG_DIR" in each["error"] for each in errors] == [True]


async def test_a_cancelled_flush_loses_nothing(disk):
    """The caller may be cancelled while it waits for the store."""
    store = Recording()
    async with run_mirror(store) as (mirror, _):
        store.gate = anyio.Event()
        disk.send(mirror, "one")
        with anyio.move_on_after(0.02):
            await mirror.flush()
        store.gate.set()
        assert await mirror.finish()
    assert store.get_entries(KEY) == disk.writer.lines


class Sync(InMemorySessionStore):
    """A store whose `append` is not async."""

    def append(self, key, entries):
        """Return at once, without being async."""


async def test_a_store_that_is_not_async_is_named(disk):
    """The error names the method."""
    async with run_mirror(Sync()) as (mirror, errors):
        disk.send(mirror, "one")
        assert not await mirror.flush()
    assert "Sync.append() must be async" in errors[0]["error"]


async def test_what_was_read_from_the_file_before_it_was_reported_is_stored_once(disk):
    """The CLI writes entries before it reports them; those without an id would otherwise be stored twice."""
    store = Recording()
    async with run_mirror(store) as (mirror, _):
        store.failing = True
        disk.send(mirror, "one")
        assert not await mirror.flush()
        for text in ("x", "x", "y"):
            disk.writer.note(type="last-prompt", lastPrompt=text)
        disk.path.write_bytes(disk.writer.encode())
        store.failing = False
        assert await mirror.finish()
        mirror.add({"filePath": str(disk.path), "entries": disk.writer.lines[-3:]})
        disk.send(mirror, "two")
        assert await mirror.flush()
        disk.writer.note(type="last-prompt", lastPrompt="x")
        mirror.add({"filePath": str(disk.path), "entries": disk.writer.lines[-1:]})
        assert await mirror.flush()
    assert store.get_entries(KEY) == disk.writer.lines
