"""Resuming from a store: what is written on this machine, what never is, and stores that misbehave."""

import json
import os
import pwd
import shutil
import stat
import sys
import time

import anyio
import pytest

from shared.transcripts import SESSION, Writer
from toolwire import ClaudeAgentOptions, InMemorySessionStore, SessionStoreError, project_key_for_directory
from toolwire.sessions import resume
from toolwire.sessions.resume import fetch_session, remove_folder
from toolwire.sessions.spool import Spool
from toolwire.sessions.transcript import read_entries

pytestmark = pytest.mark.anyio
COST = {"type": "cost-state", "totalCostUSD": 5}
OTHER = "11111111-2222-4333-8444-555555555555"


class Machine:
    """A home folder, a project, and the options to resume there."""

    def __init__(self, tmp_path, store):
        self.home = tmp_path / "home"
        self.cwd = tmp_path / "work"
        self.cwd.mkdir(parents=True)
        self.store = store
        self.key = {"project_key": project_key_for_directory(self.cwd), "session_id": SESSION}
        self.folder = self.home / ".claude" / "projects" / self.key["project_key"]
        self.path = self.folder / f"{SESSION}.jsonl"
        self.spool = Spool(tmp_path / "spool")

    async def resume(self, *, is_local=False, **changes):
        """Fetch the session, as a start does."""
        given = {"resume": SESSION, "cwd": self.cwd, "session_store": self.store, **changes}
        options = ClaudeAgentOptions(**given, session_store_spool=self.spool.folder)
        return await fetch_session(options, {"HOME": str(self.home)}, is_local=is_local)

    def block(self):
        """Put a file in the place of the CLI's folder, so that nobody can write there."""
        self.home.mkdir()
        (self.home / ".claude").write_text("a file")

    def add_cli(self, does):
        """Write a program that runs this shell code when it is called with --version."""
        path = self.home.parent / "claude"
        path.write_text(f'#!/bin/sh\n[ "$*" = --version ] || exit 9\n{does}\n')
        path.chmod(0o755)
        return path

    def read(self):
        """Return the entries of the local transcript."""
        return [entry for _, entry in read_entries(self.path)]

    def write(self, lines, path=None):
        """Write a local transcript."""
        path = path or self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing on it, and an empty store."""
    return Machine(tmp_path, InMemorySessionStore())


def make_turns(count):
    """Return the entries of some turns, each with its cost at the end."""
    writer, at = Writer(), None
    for number in range(count):
        at = writer.answer(writer.ask(at, f"prompt {number}"), f"answer {number}")
        writer.note(**{**COST, "totalCostUSD": number})
    return writer.lines


async def test_an_empty_machine_gets_everything(machine):
    """The transcript is in the CLI's folder, readable for its owner only, with subagents and their metadata."""
    lines = make_turns(2)
    await machine.store.append(machine.key, lines)
    agent = {**machine.key, "subpath": "subagents/agent-a1"}
    noted = {"type": "agent_metadata", "agentType": "scout"}
    await machine.store.append(agent, [noted, {**lines[0], "isSidechain": True}, {**noted, "finished": True}])
    fetched = await machine.resume()
    assert machine.read() == lines
    assert (fetched.options.resume, fetched.project_keys, fetched.folder) == (SESSION, {}, None)
    below = machine.folder / SESSION / "subagents"
    assert json.loads((below / "agent-a1.meta.json").read_text()) == {"agentType": "scout", "finished": True}
    assert [entry["isSidechain"] for _, entry in read_entries(below / "agent-a1.jsonl")] == [True]
    for each in machine.folder.rglob("*"):
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600)


async def test_a_machine_that_is_behind_gets_the_rest(machine):
    """The cost of turns on other machines is added too, and local copies of API requests stay."""
    lines = make_turns(3)
    await machine.store.append(machine.key, lines)
    local = [{"type": "api-request", "body": "x"}, *lines[: len(lines) // 3]]
    machine.write(local)
    await machine.resume()
    assert machine.read() == [*local, *lines[len(lines) // 3 :]]
    assert machine.read()[-1]["totalCostUSD"] == 2
    before = machine.path.read_bytes()
    await machine.resume()
    assert machine.path.read_bytes() == before


async def test_a_store_that_is_behind_gets_the_rest(machine):
    """A title that only the store has does not count as a second branch."""
    lines = make_turns(2)
    title = {"type": "custom-title", "customTitle": "x", "uuid": "only in the store"}
    await machine.store.append(machine.key, [*lines[: len(lines) // 2], title])
    machine.write(lines)
    await machine.resume()
    assert [each for each in machine.store.get_entries(machine.key) if each != title] == lines
    assert machine.read() == [*lines, title]


@pytest.mark.parametrize("where", ["another folder", "the spool"])
async def test_a_turn_that_is_only_elsewhere_on_this_machine_is_stored_first(machine, where):
    """The store could not be reached when the turn was written."""
    lines = make_turns(2)
    await machine.store.append(machine.key, lines[: len(lines) // 2])
    if where == "the spool":
        machine.spool.add(machine.key, lines)
    else:
        machine.write(lines, machine.folder.parent / "-other" / machine.path.name)
    await machine.resume()
    assert machine.store.get_entries(machine.key) == lines
    assert machine.read() == lines
    assert machine.spool.find(machine.key) is None


async def test_a_session_that_is_only_in_the_spool_is_resumed(machine):
    """The store could not be reached from the first prompt on."""
    lines = make_turns(1)
    machine.spool.add(machine.key, lines)
    await machine.resume()
    assert machine.store.get_entries(machine.key) == lines == machine.read()


@pytest.mark.parametrize("where", ["own", "-other"])
async def test_two_branches_are_an_error_and_nothing_is_changed(machine, where):
    """The other branch may be in the same project folder or in another one."""
    lines = make_turns(2)
    await machine.store.append(machine.key, lines)
    other = Writer()
    other.number = 100
    other.ask(lines[0]["uuid"], "elsewhere")
    path = machine.path if where == "own" else machine.folder.parent / where / machine.path.name
    machine.write([*lines[:2], *other.lines], path)
    before = path.read_bytes()
    with pytest.raises(SessionStoreError, match="two places"):
        await machine.resume()
    assert path.read_bytes() == before
    assert machine.store.get_entries(machine.key) == lines


@pytest.mark.parametrize("content", [b"", b"torn", b'{"type":"custom-title","customTitle":"mine"}\n'])
async def test_a_local_file_without_messages_is_kept(machine, content):
    """Its content is kept; the entries of the store follow."""
    lines = make_turns(1)
    await machine.store.append(machine.key, lines)
    machine.folder.mkdir(parents=True)
    machine.path.write_bytes(content)
    await machine.resume()
    assert machine.path.read_bytes().startswith(content)
    assert [each for each in machine.read() if each["type"] != "custom-title"] == lines


@pytest.mark.parametrize(
    "subpath",
    [
        "../../x",
        "/etc/x",
        "a/../../x",
        "C:\\x",
        "\\\\server\\x",
        ".",
        "..",
        "a\\b",
        "n" * 300,
        "subagents/../../../x",
    ],
)
async def test_no_name_in_a_store_leads_elsewhere(machine, tmp_path, subpath, caplog):
    """It is skipped, and the log says so."""

    class Hostile(InMemorySessionStore):
        async def list_subkeys(self, key):
            return [subpath, "subagents/agent-a1", "nul\0byte"]

        async def load(self, key):
            return make_turns(1)

    machine.store = Hostile()
    await machine.resume()
    written = set(tmp_path.rglob("*.jsonl"))
    assert written == {machine.path, machine.folder / SESSION / "subagents" / "agent-a1.jsonl"}
    assert "unsafe" in caplog.text


async def test_a_folder_that_cannot_be_written_is_gone_round(machine):
    """The transcript is written to a temporary folder, and the CLI gets its path."""
    lines = make_turns(1)
    await machine.store.append(machine.key, lines)
    machine.block()
    fetched = await machine.resume()
    assert fetched.options.resume == str(fetched.folder / machine.key["project_key"] / f"{SESSION}.jsonl")
    assert [
        entry for _, entry in read_entries(fetched.folder / machine.key["project_key"] / f"{SESSION}.jsonl")
    ] == lines
    assert stat.S_IMODE(fetched.folder.stat().st_mode) == 0o700
    remove_folder(fetched.folder)


@pytest.mark.process
@pytest.mark.parametrize(
    ("does", "can"),
    [
        ("echo '2.1.187 (Claude Code)'", True),
        ("echo '2.2.0 (Claude Code)'", True),
        ("echo '2.1.186 (Claude Code)'", False),
        ("echo 2.1.176", False),
        ("echo; exit 1", False),
        ("exec sleep 60", False),
    ],
)
async def test_a_cli_that_cannot_go_on_elsewhere_is_refused(machine, monkeypatch, does, can):
    """The error comes before the CLI is started and says what to do; no folder is left behind."""
    await machine.store.append(machine.key, make_turns(1))
    machine.block()
    if "sleep" in does:
        monkeypatch.setattr(resume, "_VERSION_TIMEOUT", 0.2)
    monkeypatch.setenv("TMPDIR", str(machine.cwd))
    monkeypatch.setattr("tempfile.tempdir", None)
    given = {"is_local": True, "cli_path": machine.add_cli(does)}
    if can:
        assert (await machine.resume(**given)).folder.exists()
        return
    with pytest.raises(SessionStoreError, match=r"not a folder|Not a directory") as caught:
        await machine.resume(**given)
    assert "update Claude Code to 2.1.187 or newer" in str(caught.value)
    assert list(machine.cwd.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("resumed", [None, OTHER, "my title", "fork"])
async def test_what_every_cli_would_write_to_its_own_folder_is_refused(machine, resumed):
    """A new session, one that is not in the store and a fork can only be written to the CLI's own folder."""
    await machine.store.append(machine.key, make_turns(1))
    machine.block()
    changes = {"resume": SESSION, "fork_session": True} if resumed == "fork" else {"resume": resumed}
    with pytest.raises(SessionStoreError, match="CLAUDE_CONFIG_DIR"):
        await machine.resume(is_local=True, cli_path=machine.add_cli("echo 2.1.325"), **changes)


@pytest.mark.process
async def test_a_path_is_resumed_where_it_is(machine):
    """The CLI's folder is not needed for it."""
    machine.block()
    path = str(machine.cwd / f"{SESSION}.jsonl")
    given = {"is_local": True, "cli_path": machine.add_cli("echo 2.1.325")}
    assert (await machine.resume(resume=path, **given)).options.resume == path


PROGRAM = """
import json, sys
from pathlib import Path
import anyio
from toolwire import ClaudeAgentOptions, InMemorySessionStore, project_key_for_directory
from toolwire.sessions.resume import fetch_session

async def main():
    given = json.loads(sys.argv[1])
    key = {"project_key": project_key_for_directory(given["cwd"]), "session_id": given["resume"]}
    folder = Path(given["home"], ".claude", "projects", key["project_key"])
    folder.mkdir(parents=True)
    path = folder / f"{given['resume']}.jsonl"
    path.write_text("".join(json.dumps(each) + chr(10) for each in given["lines"]))
    path.chmod(0o444)
    folder.chmod(0o555)
    store = InMemorySessionStore()
    await store.append(key, given["lines"][: given["stored"]])
    options = ClaudeAgentOptions(session_store=store, resume=given["resume"], cwd=given["cwd"])
    fetched = await fetch_session(options, {"HOME": given["home"]}, is_local=False)
    lines = [json.loads(line) for line in Path(fetched.options.resume).read_text().splitlines()]
    print(json.dumps([str(fetched.folder), lines == given["lines"], await store.load(key) == given["lines"]]))

anyio.run(main)
"""


@pytest.mark.process
@pytest.mark.asyncio_only
@pytest.mark.parametrize("stored", [8, 4])
async def test_a_transcript_that_can_only_be_read_is_not_gone_on_with(tmp_path, stored):
    """Even if it is up to date: the CLI could not write to it. Entries that only it has are stored first."""
    lines = make_turns(2)
    assert len(lines) == 8
    given = {"home": str(tmp_path / "home"), "cwd": str(tmp_path), "resume": SESSION, "lines": lines}
    command = [sys.executable, "-c", PROGRAM, json.dumps({**given, "stored": stored})]
    if os.getuid() == 0:  # root may write every file, unless it gives that capability up
        if shutil.which("setpriv") is None:
            pytest.skip("there is no setpriv, and root may write every file")
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    done = await anyio.run_process(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=None)
    folder, *rest = json.loads(done.stdout)
    assert folder.startswith(str(tmp_path / "toolwire-resume-"))
    assert rest == [True, True]


async def test_a_linked_folder_is_followed(machine, tmp_path):
    """The CLI follows such links too."""
    await machine.store.append(machine.key, make_turns(1))
    (tmp_path / "elsewhere").mkdir()
    machine.home.mkdir()
    (machine.home / ".claude").symlink_to(tmp_path / "elsewhere")
    await machine.resume()
    assert list((tmp_path / "elsewhere").rglob(f"{SESSION}.jsonl"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start the CLI as another user")
async def test_the_user_of_the_cli_can_read_it(machine):
    """The files belong to that user."""
    await machine.store.append(machine.key, make_turns(1))
    await machine.resume(user="nobody")
    number = pwd.getpwnam("nobody").pw_uid
    assert [each.stat().st_uid for each in (machine.path, machine.folder)] == [number] * 2


async def test_a_session_of_another_folder_is_found(machine):
    """The key that the store has for it is kept for later entries."""
    await machine.store.append({**machine.key, "project_key": "-elsewhere"}, make_turns(1))
    fetched = await machine.resume()
    assert fetched.project_keys == {machine.key["project_key"]: "-elsewhere"}
    assert machine.read() == make_turns(1)


async def test_what_the_store_does_not_have_is_left_to_the_cli(machine):
    """Nothing is written, and the options stay. The same holds for a title, which only the CLI can resolve."""
    assert (await machine.resume()).options.resume == SESSION
    assert (await machine.resume(resume="my title")).options.resume == "my title"
    assert (await machine.resume(resume=None)).options.resume is None
    assert not machine.home.exists()


async def test_continuing_takes_the_newest_of_a_thousand(machine):
    """The other sessions are not loaded."""
    loads = []

    class Counting(InMemorySessionStore):
        async def load(self, key):
            loads.append(key)
            return await super().load(key)

    machine.store = Counting()
    for number in range(1000):
        name = f"00000000-0000-4000-8000-{number:012}"
        await machine.store.append({**machine.key, "session_id": name}, [{**make_turns(1)[0], "uuid": name}])
    await machine.store.append({**machine.key, "session_id": "not an id"}, [{"type": "user"}])
    fetched = await machine.resume(resume=None, continue_conversation=True)
    assert fetched.options.resume == "00000000-0000-4000-8000-000000000999"
    assert len(loads) <= 3


def _answer(method, value):
    async def answer(self, *_):
        return value() if callable(value) else value

    return {method: answer}


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        (_answer("load", 5), "must return a list of entries"),
        (_answer("load", "text"), "must return a list of entries"),
        (_answer("load", ["text"]), "must return a list of entries"),
        (_answer("load", lambda: (each for each in ())), "returned generator"),
        (_answer("load", {"type": "user"}), "must return a list of entries"),
        (_answer("list_subkeys", None), "must return a list of strings"),
        (_answer("list_subkeys", [5]), "must return a list of strings"),
        (_answer("list_sessions", [{"session_id": SESSION}]), "session_id and mtime"),
        (_answer("list_sessions", None), "session_id and mtime"),
        ({"load": lambda self, key: []}, "must be async"),
        ({"load": lambda self, key: 1 / 0}, "division by zero"),
    ],
)
async def test_a_store_that_returns_rubbish_is_named(machine, methods, text):
    """The error has the method, what it should return, and what it returned."""
    machine.store = type("Odd", (InMemorySessionStore,), methods)()
    await machine.store.append(machine.key, make_turns(1))
    again = {"resume": None, "continue_conversation": True} if "list_sessions" in methods else {}
    with pytest.raises(SessionStoreError, match="cannot resume") as caught:
        await machine.resume(**again)
    assert text in str(caught.value)
    assert next(iter(methods)) in str(caught.value)


async def test_a_store_that_hangs_is_an_error_after_the_limit(machine):
    """The limit is `load_timeout_ms`; the error names the method and the option."""

    class Hanging(InMemorySessionStore):
        async def load(self, key):
            await anyio.sleep_forever()

    machine.store = Hanging()
    with pytest.raises(SessionStoreError, match=r"load\(\) took longer than 0.05 s \(load_timeout_ms\)"):
        await machine.resume(load_timeout_ms=50)


async def test_loading_a_large_session_does_not_block(machine):
    """With 30 MB in one entry, the event loop still runs other tasks."""
    lines = make_turns(1)
    lines[0]["message"]["content"] = "x" * 30_000_000
    await machine.store.append(machine.key, lines)
    gaps = []

    async def watch():
        last = time.monotonic()
        while True:
            await anyio.sleep(0.005)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await machine.resume()
        group.cancel_scope.cancel()
    assert machine.read() == lines
    assert len(gaps) > 3
