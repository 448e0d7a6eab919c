"""Transcripts of the scripted CLI: stored, resumed, forked and read like those of the real CLI."""

import json

import pytest

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    InMemorySessionStore,
    MirrorErrorMessage,
    ProcessError,
    ResultMessage,
    ToolServer,
    query,
    sessions,
)
from toolwire.sessions.transcript import read_entries
from toolwire.testing import ScriptedCLI, call, say, turn

pytestmark = pytest.mark.anyio
tools = ToolServer("calc")


@tools.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def machine(tmp_path):
    """Return a function that makes options for a machine of its own: `(name, script, **options)`."""

    def make(name, script, *, transcripts=True, **options):
        folder = tmp_path / name
        (folder / "work").mkdir(parents=True, exist_ok=True)
        cli = ScriptedCLI(script, transcripts=transcripts, allow=True)
        env = {"CLAUDE_CONFIG_DIR": str(folder / "config")}
        made = ClaudeAgentOptions(
            spawn_claude_code_process=cli,
            env=env,
            cwd=folder / "work",
            mcp_servers={"calc": tools},
            **options,
        )
        return made, folder / "config"

    return make


async def ask(options, prompt):
    """Run a conversation with one prompt and return its result."""
    messages = [message async for message in query(prompt=prompt, options=options)]
    assert isinstance(messages[-1], ResultMessage)
    assert not any(isinstance(each, MirrorErrorMessage) for each in messages)
    return messages[-1]


PARALLEL = [
    turn(say("Two at once."), call("mcp__calc__add", a=1, b=2), call("mcp__calc__add", a=3, b=4)),
    say("3 and 7."),
]


async def test_a_run_is_stored_entry_for_entry(machine):
    """Store and file have the same entries, with the cost at the end, and session functions read both alike."""
    store = InMemorySessionStore()
    options, config = machine("one", PARALLEL, session_store=store)
    async with ClaudeSDKClient(options) as client:
        await client.query("Add up")
        messages = [message async for message in client.receive_response()]
    session_id = messages[-1].session_id
    [path] = config.rglob(f"{session_id}.jsonl")
    key = {"project_key": path.parent.name, "session_id": session_id}
    assert store.get_entries(key) == [entry for _, entry in read_entries(path)]
    assert store.get_entries(key)[-1]["type"] == "cost-state"
    on_disk = sessions.get_session_messages(session_id, config_dir=config)
    stored = await sessions.get_session_messages_from_store(store, session_id, options.cwd)
    assert [vars(each) for each in on_disk] == [vars(each) for each in stored]
    blocks = [each.message["content"] for each in on_disk]
    assert [each if isinstance(each, str) else each[0]["type"] for each in blocks] == [
        *("Add up", "text", "tool_use", "tool_use", "tool_result", "tool_result", "text")
    ]
    [row] = sessions.list_sessions(config_dir=config)
    assert (row.first_prompt, row.cwd) == ("Add up", str(options.cwd))


async def test_a_conversation_goes_on_from_a_store_on_another_machine(machine):
    """It has the earlier messages and cost; the first part needs no files on disk."""
    store = InMemorySessionStore()
    options, _ = machine("one", [say("Under the mat.")], transcripts=False, session_store=store)
    first = await ask(options, "The key is under the mat")
    seen = []

    def look(request):
        seen.extend(request.body["messages"])
        return say("Under the mat, you said.")

    options, config = machine("two", [look], session_store=store, resume=first.session_id)
    second = await ask(options, "Where is the key?")
    assert second.session_id == first.session_id
    assert second.total_cost_usd > first.total_cost_usd
    assert [each["content"] for each in seen][::2] == ["The key is under the mat", "Where is the key?"]
    said = sessions.get_session_messages(first.session_id, config_dir=config)
    assert len(said) == 4
    [project] = await store.find_projects(first.session_id)
    stored = await store.load({"project_key": project, "session_id": first.session_id})
    assert [each["type"] for each in stored].count("cost-state") == 2


async def test_the_newest_conversation_is_continued(machine):
    """This is done with `continue_conversation`, without a store."""
    options, config = machine("one", [say("One.")])
    first = await ask(options, "first")
    options, _ = machine("one", [say("Two.")], continue_conversation=True)
    second = await ask(options, "second")
    assert second.session_id == first.session_id
    assert len(sessions.get_session_messages(first.session_id, config_dir=config)) == 4


async def test_a_fork_has_an_id_of_its_own(machine):
    """It also has the earlier messages; the original session is unchanged."""
    store = InMemorySessionStore()
    options, config = machine("one", [say("One.")], session_store=store)
    first = await ask(options, "first")
    options, _ = machine(
        "one", [say("Two.")], session_store=store, resume=first.session_id, fork_session=True
    )
    second = await ask(options, "second")
    assert second.session_id != first.session_id
    counts = [
        len(sessions.get_session_messages(each.session_id, config_dir=config)) for each in (first, second)
    ]
    assert counts == [2, 4]


async def test_an_unknown_conversation_is_refused_as_by_the_real_cli(machine):
    """It is refused if transcripts are written; otherwise any id is accepted, as tests that only set one expect."""
    name = "11111111-1111-4111-8111-111111111111"
    options, _ = machine("one", [say("One.")], resume=name)
    with pytest.raises(ProcessError):
        async for message in query(prompt="x", options=options):
            last = message
    assert f"No conversation found with session ID: {name}" in json.dumps(last.errors)
    options, config = machine("two", [say("One.")], transcripts=False, resume=name)
    assert (await ask(options, "x")).session_id == name
    assert not config.exists()


async def test_nothing_is_written_or_reported_unless_asked(machine):
    """So a test of something else leaves no transcripts."""
    options, config = machine("one", [say("One.")], transcripts=False)
    async with ClaudeSDKClient(options) as client:
        await client.query("x")
        frames = [message async for message in client.receive_response()]
    assert isinstance(frames[-1], ResultMessage)
    assert not config.exists()
