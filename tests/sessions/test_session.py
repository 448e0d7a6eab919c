"""`Session`: one conversation by its id, on disk or in a store."""

import json
import subprocess
import sys
import uuid

import pytest

from shared.transcripts import SESSION, Writer, text
from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    InMemorySessionStore,
    Session,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    resume_or_create,
    run,
    sessions,
)
from toolwire.sessions.transcript import read_entries
from toolwire.testing import ScriptedCLI, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(tmp_path):
    """Return the path of a CLI's folder that does not exist yet."""
    return tmp_path / "config"


def write(config):
    """Write a conversation with a call; returns its path."""
    writer = Writer()
    place = writer.answer(writer.ask(None, "hello"), "hi", calls=1)
    writer.answer(writer.ask(place, "and now?"), "done")
    for line in writer.lines:
        if line["type"] == "assistant":
            line["message"] |= {"model": "claude-x", "usage": {"input_tokens": 1}}
            line["requestId"] = "req_1"
        if "sourceToolAssistantUUID" in line:
            line["toolUseResult"] = {"stdout": "ok"}
    return writer.write(config)


@pytest.fixture(params=["disk", "store", "store, wherever it ran"])
async def session(request, config):
    """Return the same session on disk, in a store, or in a store without its directory."""
    path = write(config)
    if request.param == "disk":
        return Session(SESSION, config_dir=config)
    store = InMemorySessionStore()
    key = {"project_key": sessions.project_key_for_directory("/work"), "session_id": SESSION}
    await store.append(key, [entry for _, entry in read_entries(path)])
    if request.param == "store":
        return Session(SESSION, "/work", store=store)
    return Session(SESSION, store=store, config_dir=config / "empty")


def test_a_new_session_has_its_id_at_once():
    """It has one before its first turn."""
    assert uuid.UUID(Session().id).version == 4
    assert Session().id != Session().id
    with pytest.raises(ValueError, match="Invalid session_id"):
        Session("customer-42")


async def test_the_history_is_in_the_classes_of_the_live_stream(session):
    """Messages have the same types, and results of tools are unchanged."""
    messages = await session.messages()
    assert [type(each) for each in messages] == [
        *(UserMessage, AssistantMessage, AssistantMessage, UserMessage, UserMessage, AssistantMessage)
    ]
    prompt, said, call, result, *_ = messages
    assert prompt.content == "hello"
    assert said.content == [TextBlock("hi")]
    assert (said.model, said.usage, said.request_id) == ("claude-x", {"input_tokens": 1}, "req_1")
    assert said.session_id == SESSION
    [used], [returned] = call.content, result.content
    assert isinstance(used, ToolUseBlock)
    assert isinstance(returned, ToolResultBlock)
    assert used.id == returned.tool_use_id
    assert result.tool_use_result == {"stdout": "ok"}
    assert all(each.uuid for each in messages)
    assert await session.messages(limit=2, offset=1) == messages[1:3]


async def test_it_is_renamed_tagged_and_described(session):
    """The results are those of the session functions."""
    await session.rename("Mine")
    await session.tag("blue")
    info = await session.info()
    assert (info.custom_title, info.tag, info.first_prompt) == ("Mine", "blue", "hello")
    await session.tag(None)
    assert (await session.info()).tag is None
    assert await session.exists()


async def test_a_title_reaches_the_store_and_the_local_file(config):
    """Otherwise the two would differ."""
    write(config)
    store = InMemorySessionStore()
    await sessions.import_session_to_store(SESSION, store, config_dir=config)
    session = Session(SESSION, "/work", store=store, config_dir=config)
    await session.rename("Mine")
    await session.tag("blue")
    for info in (await session.info(), sessions.get_session_info(SESSION, config_dir=config)):
        assert (info.custom_title, info.tag) == ("Mine", "blue")


async def test_it_is_forked_at_a_message_and_deleted(session):
    """The copy has the directory, store and folder of the original."""
    first = (await session.messages())[1]
    copy = await session.fork(at=first.uuid, title="Second thoughts")
    assert (copy.directory, copy.store, copy.config_dir) == (
        session.directory,
        session.store,
        session.config_dir,
    )
    assert [each.text for each in await copy.messages()] == ["hello", "hi"]
    assert (await copy.info()).custom_title == "Second thoughts"
    await session.delete()
    assert not await session.exists()
    assert await session.messages() == []
    assert await session.info() is None
    assert await copy.exists()


async def test_a_session_that_has_not_begun_has_no_history(config):
    """Reading it is no error; changing it is."""
    session = Session(config_dir=config)
    assert not await session.exists()
    assert await session.messages() == []
    assert await session.info() is None
    with pytest.raises(FileNotFoundError, match="not found"):
        await session.rename("Mine")


async def test_options_begin_a_session_and_then_resume_it(config):
    """Both have the same id; the given options are not modified."""
    given = ClaudeAgentOptions(model="m", continue_conversation=True, env={"X": "1"})
    session = Session(SESSION, "/work", config_dir=config)
    options = await session.options(given)
    assert (options.session_id, options.resume, options.continue_conversation) == (SESSION, None, False)
    assert (options.model, options.cwd) == ("m", "/work")
    assert options.env == {"X": "1", "CLAUDE_CONFIG_DIR": str(config)}
    write(config)
    options = await session.options(given)
    assert (options.session_id, options.resume) == (None, SESSION)
    assert (given.session_id, given.resume, given.env) == (None, None, {"X": "1"})


async def test_resume_or_create_looks_where_the_run_will(config):
    """It looks in the folder that the options name, or in their store."""
    options = ClaudeAgentOptions(env={"CLAUDE_CONFIG_DIR": str(config)})
    assert (await resume_or_create(SESSION, options)).session_id == SESSION
    write(config)
    assert (await resume_or_create(SESSION, options)).resume == SESSION
    store = InMemorySessionStore()
    options = ClaudeAgentOptions(
        session_store=store, cwd="/work", env={"CLAUDE_CONFIG_DIR": str(config / "none")}
    )
    assert (await resume_or_create(SESSION, options)).session_id == SESSION
    key = {"project_key": sessions.project_key_for_directory("/work"), "session_id": SESSION}
    await store.append(key, [{"type": "queue-operation"}])
    assert (await resume_or_create(SESSION, options)).session_id == SESSION
    await store.append(key, [{"type": "user", "uuid": "u", "message": {"content": "x"}}])
    assert (await resume_or_create(SESSION, options)).resume == SESSION


@pytest.mark.parametrize(
    "content", [b"", b'{"type":"queue-operation"}\n', b'{"type":"custom-title","customTitle":"x"}\n']
)
async def test_a_file_in_which_nothing_was_said_is_put_aside(config, content):
    """The CLI would neither resume it nor begin a session under its id, so it is renamed; its content is kept."""
    path = config / "projects" / "-work" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    session = Session(SESSION, "/work", config_dir=config)
    assert not await session.exists()
    assert (await session.options()).session_id == SESSION
    assert not path.exists()
    aside = path.with_name(path.name + ".unfinished")
    assert aside.read_bytes() == content
    assert sessions.list_sessions(config_dir=config) == []
    write(config)
    await session.delete()
    assert not aside.exists()


@pytest.mark.process
async def test_a_file_that_a_cli_has_just_begun_is_left_alone(config):
    """Its first message is still to come."""
    path = config / "projects" / "-work" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"type":"queue-operation"}\n')
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (config / "sessions").mkdir()
        (config / "sessions" / f"{process.pid}.json").write_text(json.dumps({"sessionId": SESSION}))
        await Session(SESSION, "/work", config_dir=config).options()
        assert path.exists()
        process.communicate(b"\n")


async def test_a_run_has_the_id_of_its_session(config):
    """The id is known before the run."""
    cli = ScriptedCLI([say("hi")])
    session = Session(config_dir=config)
    reply = await run(
        "hello", options=await session.options(ClaudeAgentOptions(spawn_claude_code_process=cli))
    )
    assert reply.session_id == session.id


async def test_a_client_knows_its_session(config):
    """It is known at once if the options name it, else from the first turn on, also after the client was closed."""
    cli = ScriptedCLI([say("hi"), say("hi")])
    env = {"CLAUDE_CONFIG_DIR": str(config)}
    named = ClaudeSDKClient(ClaudeAgentOptions(session_id=SESSION, env=env))
    assert (named.get_session().id, named.get_session().config_dir) == (SESSION, str(config))
    assert ClaudeSDKClient(ClaudeAgentOptions(resume=SESSION)).get_session().id == SESSION
    async with ClaudeSDKClient(ClaudeAgentOptions(spawn_claude_code_process=cli)) as client:
        with pytest.raises(CLIConnectionError, match="not known before the first turn"):
            client.get_session()
        await client.query("hello")
        reported = [message async for message in client.receive_response()][-1].session_id
        assert client.get_session().id == reported
    assert client.get_session().id == reported
    async with ClaudeSDKClient(
        ClaudeAgentOptions(resume=SESSION, fork_session=True, spawn_claude_code_process=cli)
    ) as client:
        with pytest.raises(CLIConnectionError, match="not known"):
            client.get_session()


async def test_cost_and_export_are_those_of_the_functions(session):
    """This holds on disk and in a store, whose subagents count too."""
    if session.store is not None:
        key = {"project_key": sessions.project_key_for_directory("/work"), "session_id": SESSION}
        below = Writer()
        below.respond(below.ask(None, "look"), text("I looked."), usage={"input_tokens": 7}, isSidechain=True)
        await session.store.append({**key, "subpath": "subagents/agent-a1"}, below.lines)
    assert (await session.cost()).usage.input_tokens == (9 if session.store is not None else 2)
    shown = await session.export()
    assert "> hello" in shown
    assert ("I looked." in shown) == (session.store is not None)
    assert (await session.export("html")).startswith("<!doctype html>")
    lines = (await session.export("jsonl")).splitlines()
    assert [json.loads(line)["type"] for line in lines][:2] == ["user", "attachment"]
