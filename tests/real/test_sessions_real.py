"""History with the real CLI: transcripts are read correctly, stored entry for entry, and resumed from a store."""

import copy
import json
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import claude_agent_sdk
import pytest
from anyio.streams.text import TextReceiveStream
from typer.testing import CliRunner

from real.cli_under_test import cli_under_test
from shared.servers import PostgresServer, RedisServer, find_postgres, find_redis, require
from toolwire import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    InMemorySessionStore,
    MirrorErrorMessage,
    PostgresSessionStore,
    RedisSessionStore,
    ResultMessage,
    Session,
    SessionRunningError,
    SessionStoreError,
    SQLiteSessionStore,
    UserMessage,
    query,
    run,
    sessions,
)
from toolwire.cli.sessions import sessions_app
from toolwire.sessions.transcript import read_entries
from toolwire.testing import ClaudeEnvironment, ScriptedCLI, ScriptedModel, call, say, turn

pytestmark = pytest.mark.anyio
LIMIT = 120


def play(request):
    """Play the main agent, which makes three calls at once and then starts a subagent, and the subagent."""
    text = str(request.body["messages"])
    if "You look around." in str(request.body.get("system")):
        return say("I looked.")
    if "Where is the key?" in text:
        return say("Under the mat.")
    if "I looked." in text:
        return say("All done.")
    if "tool_result" in text:
        return call(
            "Agent", description="look", prompt="Look.", subagent_type="scout", run_in_background=False
        )
    return turn(
        say("Three at once."), *(call("Bash", command=f"echo {each}") for each in ("one", "two", "three"))
    )


PARALLEL = [play] * 4
SCOUT = {"scout": AgentDefinition(description="Looks around", prompt="You look around.", tools=["Bash"])}


@asynccontextmanager
async def machine(script, **options):
    """Make a fresh home with a scripted model; yield the options, the config folder and the model."""
    async with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        given = {"setting_sources": [], "strict_mcp_config": True, "cli_path": cli_under_test(), **options}
        given["session_store_spool"] = Path(env.env["HOME"]) / "spool"
        config = Path(env.env.get("CLAUDE_CONFIG_DIR") or Path(env.env["HOME"]) / ".claude")
        with anyio.fail_after(LIMIT):
            yield ClaudeAgentOptions(**env.options_kwargs(), **given), config, model


async def ask(client, prompt):
    """Run one turn and return its result."""
    await client.query(prompt)
    messages = [message async for message in client.receive_response()]
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1]


def find_transcript(config, session_id):
    """Return the transcript of a session, of which there is one."""
    [path] = config.rglob(f"{session_id}.jsonl")
    return path


def keeps_cost(path):
    """Return whether the CLI that wrote a transcript kept its cost there; older ones do not."""
    return any(entry["type"] == "cost-state" for _, entry in read_entries(path))


async def goes_on_in(path):
    """Return whether the CLI, given a transcript's path, writes there; older ones write to their own folder."""
    before = path.stat().st_size
    async with machine([say("Here.")], resume=str(path)) as (options, *_):
        async for _ in query(prompt="Where?", options=options):
            pass
    return path.stat().st_size > before


def list_said(entries):
    """Return the texts of messages: prompts, and what the model says."""
    found = [each["message"]["content"] for each in entries if each["type"] in {"user", "assistant"}]
    return [each if isinstance(each, str) else each[0].get("text") for each in found]


async def test_a_run_is_stored_entry_for_entry(store):
    """Parallel calls and a subagent are stored completely, including the cost, although the client disconnects."""
    async with machine(PARALLEL, session_store=store, allowed_tools=["Bash", "Agent"], agents=SCOUT) as (
        options,
        config,
        _,
    ):
        async with ClaudeSDKClient(options) as client:
            session_id = (await ask(client, "Go")).session_id
        [path] = config.rglob(f"{session_id}.jsonl")
        key = {"project_key": path.parent.name, "session_id": session_id}
        expected = [e for _, e in read_entries(path) if not e["type"].startswith("api-request")]
        stored = await store.load(key)
        assert stored == expected
        assert stored[-1]["type"] == ("cost-state" if keeps_cost(path) else "last-prompt")
        [subpath] = await store.list_subkeys(key)
        own = [e for e in await store.load({**key, "subpath": subpath}) if e["type"] != "agent_metadata"]
        below = path.with_suffix("") / f"{subpath}.jsonl"
        assert own == [e for _, e in read_entries(below) if not e["type"].startswith("api-request")]


async def test_people_find_read_and_account_for_a_run(tmp_path):
    """The commands list, show, search and export it in three formats; the cost is that of the result."""
    async with machine([play] * 5, allowed_tools=["Bash", "Agent"], agents=SCOUT) as (options, config, _):
        result = None
        async for message in query(prompt="Go", options=options):
            result = message if isinstance(message, ResultMessage) else result

        def command(*words):
            done = CliRunner().invoke(sessions_app, [*words, "--config-dir", str(config)])
            assert done.exit_code == 0, done.output
            return done.stdout

        def use():
            session_id = result.session_id
            assert session_id in command("list", str(options.cwd))
            assert "→ Bash echo three\n  three\n" in command("show", session_id[:13])
            assert "    I looked." in command("show", session_id, "--full")
            assert session_id in command("search", "--all", "three", "once")
            for kind in ("markdown", "html"):
                shown = command("export", session_id, "-f", kind)
                assert shown.index("echo three") < shown.index("Look.") < shown.index("I looked.")
                assert shown.index("I looked.") < shown.index("All done.")
            cost = json.loads(command("cost", session_id, "--json"))
            [path] = config.rglob(f"{session_id}.jsonl")
            kept = result.total_cost_usd if keeps_cost(path) else None
            assert (cost["cost_usd"], cost["is_estimate"]) == (kept, kept is None)
            used = result.model_usage.values()
            assert cost["input_tokens"] == sum(each["inputTokens"] for each in used)
            assert json.loads(command("cost", "--all", "--json"))["cost_usd"] == kept
            command("export", session_id, "-o", str(tmp_path))
            assert (tmp_path / path.name).read_bytes() == path.read_bytes()
            path.unlink()
            return session_id

        session_id = await anyio.to_thread.run_sync(use)
        resumed = copy.copy(options)
        resumed.resume = str(tmp_path / f"{session_id}.jsonl")  # the exported file is all that is left
        answers = [message async for message in query(prompt="Where is the key?", options=resumed)]
        assert answers[-1].result == "Under the mat."
        assert answers[-1].session_id == session_id


async def test_the_official_package_reads_the_same():
    """Both packages return the same messages, subagents and rows of a real conversation."""
    async with machine(PARALLEL, allowed_tools=["Bash", "Agent"], agents=SCOUT) as (options, config, _):
        async for _ in query(prompt="Go", options=options):
            pass
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CLAUDE_CONFIG_DIR", str(config))
            [row] = sessions.list_sessions(options.cwd)
            assert vars(row) == vars(claude_agent_sdk.list_sessions(str(options.cwd))[0])
            mine, theirs = (
                [vars(message) for message in package.get_session_messages(row.session_id)]
                for package in (sessions, claude_agent_sdk)
            )
            assert mine == theirs
            assert len(mine) == 11
            [agent] = sessions.list_subagents(row.session_id)
            assert claude_agent_sdk.list_subagents(row.session_id) == [agent]
            mine, theirs = (
                [vars(message) for message in package.get_subagent_messages(row.session_id, agent)]
                for package in (sessions, claude_agent_sdk)
            )
            assert mine == theirs
            assert mine[0]["parent_tool_use_id"]


async def test_a_conversation_goes_on_on_an_empty_machine(store):
    """Another home, another folder: the model gets the whole conversation, agents are there, all is stored.

    The cost goes on with a CLI that keeps it; with one that does not, it is that of this run.
    """
    async with machine(PARALLEL, session_store=store, allowed_tools=["Bash", "Agent"], agents=SCOUT) as (
        options,
        config,
        _,
    ):
        async with ClaudeSDKClient(options) as client:
            first = await ask(client, "Remember the mat")
        has_cost = keeps_cost(find_transcript(config, first.session_id))
    async with machine([play], session_store=store, resume=first.session_id) as (
        options,
        config,
        model,
    ):
        user_agent = config / "agents" / "mine.md"
        user_agent.parent.mkdir(parents=True)
        user_agent.write_text("---\nname: mine\ndescription: mine\n---\nYou are mine.\n")
        options.setting_sources = ["user"]
        async with ClaudeSDKClient(options) as client:
            assert "mine" in [each["name"] for each in (await client.get_server_info())["agents"]]
            second = await ask(client, "Where is the key?")
        assert second.session_id == first.session_id
        assert (second.total_cost_usd > first.total_cost_usd) == has_cost
        sent = json.dumps(model.requests[-1].body["messages"])
        assert all(
            text in sent for text in ("Remember the mat", "Three at once.", "I looked.", "Where is the key?")
        )
        [project] = await store.find_projects(first.session_id)
        stored = await store.load({"project_key": project, "session_id": first.session_id})
        assert list_said(stored)[-2:] == ["Where is the key?", "Under the mat."]
        assert [each["type"] for each in stored].count("cost-state") == (2 if has_cost else 0)
        assert sessions.list_subagents(first.session_id, config_dir=config)


async def test_continuing_takes_the_newest_session_of_the_store(store):
    """`continue_conversation` resumes it, with no transcript on the disk."""
    async with machine([say("One."), say("Two.")], session_store=store) as (options, config, model):
        async for message in query(prompt="first", options=options):
            last = message
        [path] = config.rglob(f"{last.session_id}.jsonl")
        path.unlink()
        options.continue_conversation = True
        async for message in query(prompt="second", options=options):
            result = message
        assert result.session_id == last.session_id
        assert "first" in json.dumps(model.requests[-1].body["messages"])


async def test_a_local_turn_that_the_store_lacks_is_kept_and_added(store):
    """Resuming on the machine that has the turn brings the store up to date."""
    async with machine([say("One."), say("Two."), say("Three.")], session_store=store) as (
        options,
        _,
        model,
    ):
        async for message in query(prompt="first", options=options):
            last = message
        options.resume, options.session_store = last.session_id, None
        async for _ in query(prompt="second, without the store", options=options):
            pass
        options.session_store = store
        async for _ in query(prompt="third", options=options):
            pass
        assert "second, without the store" in json.dumps(model.requests[-1].body["messages"])
        said = await sessions.get_session_messages_from_store(store, last.session_id, options.cwd)
        assert [each.message["content"] for each in said if each.type == "user"] == [
            "first",
            "second, without the store",
            "third",
        ]


async def test_a_conversation_in_two_places_is_an_error(store):
    """Neither side is overwritten, and the error says what to do."""
    async with machine([say("One.")], session_store=store) as (options, config, _):
        async for message in query(prompt="first", options=options):
            last = message
        [path] = config.rglob(f"{last.session_id}.jsonl")
        key = {"project_key": path.parent.name, "session_id": last.session_id}
        await store.append(
            key, [{"type": "user", "uuid": "elsewhere", "message": {"role": "user", "content": "x"}}]
        )
        with path.open("a") as file:
            file.write(json.dumps({"type": "user", "uuid": "here", "message": {}}) + "\n")
        before = path.read_bytes()
        options.resume = last.session_id
        with pytest.raises(SessionStoreError, match="two places"):
            async for _ in query(prompt="second", options=options):
                pass
        assert path.read_bytes() == before


def sort(entries):
    """Return entries in an order that does not depend on when they were stored."""
    return sorted(json.dumps(each, sort_keys=True) for each in entries)


class Broken(InMemorySessionStore):
    """A store that fails while `failing` is true."""

    failing = True

    async def append(self, key, entries):
        """Add entries, or fail."""
        if self.failing:
            raise ConnectionError("the database is away")
        await super().append(key, entries)


async def test_a_store_that_comes_back_has_everything():
    """The conversation goes on meanwhile, and a message reports that the store failed."""
    store = Broken()
    async with machine([say("One."), say("Two.")], session_store=store) as (options, config, _):
        async with ClaudeSDKClient(options) as client:
            await client.query("first")
            messages = [message async for message in client.receive_response()]
            store.failing = False
            second = await ask(client, "second")
        assert "the database is away" in [
            each.error for each in messages if isinstance(each, MirrorErrorMessage)
        ]
        [path] = config.rglob(f"{second.session_id}.jsonl")
        stored = store.get_entries({"project_key": path.parent.name, "session_id": second.session_id})
        expected = [e for _, e in read_entries(path) if not e["type"].startswith("api-request")]
        assert sort(stored) == sort(expected)


class Hanging(InMemorySessionStore):
    """A store that never returns."""

    async def append(self, key, entries):
        """Hang."""
        await anyio.sleep_forever()


async def test_a_store_that_hangs_stops_nothing():
    """Results come, an interrupt works, and closing ends."""
    limits = {"session_store_timeout_ms": 200, "session_store_close_timeout_ms": 500}
    async with machine([say("One."), say("Two.")], session_store=Hanging(), **limits) as (options, config, _):
        async with ClaudeSDKClient(options) as client:
            assert (await ask(client, "first")).result == "One."
            await client.interrupt()
            second = await ask(client, "second")
        assert second.result == "Two."
        [path] = config.rglob(f"{second.session_id}.jsonl")
        assert path.stat().st_size


async def test_a_session_is_begun_and_resumed_under_its_own_id(tmp_path):
    """This holds also when its first CLI was killed before anything was said."""
    async with machine([say("One."), say("Two.")]) as (options, config, model):
        session = Session(config_dir=config)
        folder = config / "projects" / sessions.project_key_for_directory(options.cwd)
        folder.mkdir(parents=True)
        (folder / f"{session.id}.jsonl").write_text('{"type":"queue-operation","operation":"enqueue"}\n')
        for prompt in ("First.", "Second."):
            reply = await run(prompt, options=await session.options(options))
            assert reply.session_id == session.id
        assert "First." in str(model.requests[-1].body["messages"])
        assert [message.text for message in await session.messages()] == ["First.", "One.", "Second.", "Two."]
        [hit] = sessions.search_sessions("Second", config_dir=config)
        assert hit.session_id == session.id
        assert sessions.check_sessions(config_dir=config) == []


async def test_the_history_of_a_session_is_what_the_live_stream_was():
    """It has the same objects, except for what is not stored; parallel calls and a subagent are included."""
    async with machine(PARALLEL, allowed_tools=["Bash", "Agent"], agents=SCOUT) as (options, config, _):
        async with ClaudeSDKClient(options) as client:
            await client.query("Go")
            live = [
                message
                async for message in client.receive_response()
                if isinstance(message, (AssistantMessage, UserMessage)) and message.parent_tool_use_id is None
            ]
            assert client.get_session().config_dir == config
            kept = await client.get_session().messages()
        assert kept[0].content == "Go"
        by_uuid = {message.uuid: message for message in kept}
        assert {message.uuid for message in live} == {message.uuid for message in kept[1:]}
        for message in live:
            found = by_uuid[message.uuid]
            assert type(found) is type(message)
            assert found.content == message.content
            if isinstance(message, UserMessage):
                assert found.tool_use_result == message.tool_use_result
            else:
                assert (found.model, found.message_id) == (message.model, message.message_id)
        assert len(await client.get_session().messages()) == len(kept)


async def test_a_running_session_is_listed_searched_and_not_deleted():
    """While its CLI writes the file, the session is listed and found, but neither pruned nor deleted."""
    async with machine([say("One."), say("Two.")]) as (options, config, _):
        async with ClaudeSDKClient(options) as client:
            await ask(client, "First.")
            for prompt in ("Second.", None):
                session_id = client.get_session().id
                [row] = sessions.list_sessions(config_dir=config)
                assert row.session_id == session_id
                assert sessions.search_sessions("First", config_dir=config)
                assert sessions.prune_sessions(keep=0, config_dir=config, dry_run=False) == []
                with pytest.raises(SessionRunningError):
                    sessions.delete_session(session_id, config_dir=config)
                if prompt:
                    await ask(client, prompt)
        assert len(sessions.search_sessions("Second", config_dir=config)) == 1
        sessions.delete_session(session_id, config_dir=config)
        assert [path for path in config.rglob("*") if session_id in path.name] == []


@pytest.mark.asyncio_only
async def test_the_scripted_cli_writes_what_the_real_one_does(tmp_path):
    """The same messages in the same order, with the same fields or fewer."""

    def read(path):
        lines = [entry for _, entry in read_entries(path)]
        said = [each for each in lines if each["type"] in {"user", "assistant"}]
        blocks = [each["message"]["content"] for each in said]
        kinds = [each if isinstance(each, str) else [block["type"] for block in each] for each in blocks]
        return lines, kinds

    script = [turn(say("Two."), call("Bash", command="echo 1"), call("Bash", command="echo 2")), say("Done.")]
    async with machine(script, allowed_tools=["Bash"]) as (options, config, _):
        async for message in query(prompt="Go", options=options):
            last = message
        real, real_kinds = read(*config.rglob(f"{last.session_id}.jsonl"))
    cli = ScriptedCLI(script, transcripts=True, allow=True, tools={"Bash": lambda command: command})
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    options = ClaudeAgentOptions(spawn_claude_code_process=cli, env=env, cwd=tmp_path)
    async for message in query(prompt="Go", options=options):
        last = message
    scripted, scripted_kinds = read(*tmp_path.rglob(f"{last.session_id}.jsonl"))
    assert scripted_kinds == real_kinds
    known = {each["type"]: set() for each in real}
    for each in real:
        known[each["type"]] |= set(each)
    for each in scripted:
        assert set(each) <= known[each["type"]], each["type"]


async def test_a_folder_that_cannot_be_written_is_gone_round(store, tmp_path):
    """A resumed session is then kept in a temporary folder until the store has it; a CLI that cannot is refused."""
    async with machine([say("One.")], session_store=store) as (options, config, _):
        async for message in query(prompt="Remember the mat", options=options):
            first = message
        path = find_transcript(config, first.session_id)
        has_cost = keeps_cost(path)
        copied = Path(shutil.copy(path, tmp_path))
    can = await goes_on_in(copied)
    async with machine([say("Two.")], session_store=store, resume=first.session_id) as (
        options,
        config,
        model,
    ):
        config.mkdir(exist_ok=True)
        (config / "projects").write_text("a file where the folder should be")
        client = ClaudeSDKClient(options)
        if can:
            async with client:
                second = await ask(client, "second")
                folder = client._conversation._resumed_from
            assert second.session_id == first.session_id
            assert "Remember the mat" in json.dumps(model.requests[-1].body["messages"])
            assert not folder.exists()
        else:
            with pytest.raises(SessionStoreError, match=r"update Claude Code to [\d.]+ or newer"):
                await client.connect()
            assert model.requests == []
        [project] = await store.find_projects(first.session_id)
        stored = await store.load({"project_key": project, "session_id": first.session_id})
        assert list_said(stored) == ["Remember the mat", "One.", *(["second", "Two."] if can else [])]
        assert [each["type"] for each in stored].count("cost-state") == (1 + can if has_cost else 0)


@pytest.mark.asyncio_only
@pytest.mark.parametrize("start", ["new", "fork"])
async def test_what_cannot_be_saved_is_refused_at_the_start(start):
    """The CLI would save nothing and not report it, so it is not started and nothing is spent."""
    store = InMemorySessionStore()
    async with machine([say("One.")], session_store=store) as (options, *_):
        async for message in query(prompt="first", options=options):
            first = message
    more = {"resume": first.session_id, "fork_session": True} if start == "fork" else {}
    async with machine([say("Two.")], session_store=store, **more) as (options, config, model):
        config.mkdir(exist_ok=True)
        (config / "projects").write_text("a file where the folder should be")
        with pytest.raises(SessionStoreError, match="or set another folder with env={'CLAUDE_CONFIG_DIR'"):
            await ClaudeSDKClient(options).connect()
        assert model.requests == []


HOST = """
import json, sys
import anyio
from toolwire import ClaudeAgentOptions, ClaudeSDKClient, AssistantMessage, SQLiteSessionStore

async def main():
    kwargs = json.loads(sys.argv[1])
    options = ClaudeAgentOptions(session_store=SQLiteSessionStore(sys.argv[2]), **kwargs)
    async with ClaudeSDKClient(options) as client:
        for prompt in ("first", "second"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    print(json.dumps(message.session_id), flush=True)

anyio.run(main)
"""


@pytest.mark.asyncio_only
async def test_a_host_that_is_killed_in_mid_turn_loses_no_turn(tmp_path):
    """What the CLI had reported is in the store within a second: another machine goes on from there."""
    path = tmp_path / "s.db"

    def script(request):
        return call("Bash", command="sleep 60") if "second" in request.prompt else say("One.")

    async with machine([script] * 2) as (options, _, model):
        given = {
            "cwd": str(options.cwd),
            "env": options.env,
            "inherit_env": False,
            "cli_path": str(cli_under_test()) if cli_under_test() else None,
            "allowed_tools": ["Bash"],
            "setting_sources": [],
        }
        command = [sys.executable, "-c", HOST, json.dumps(given), str(path)]
        async with await anyio.open_process(command, stderr=None) as process:
            lines = TextReceiveStream(process.stdout)
            session_id = json.loads((await lines.receive()).splitlines()[0])
            store = SQLiteSessionStore(path)
            key = None
            while key is None:
                await anyio.sleep(0.05)
                if projects := await store.find_projects(session_id):
                    key = {"project_key": projects[0], "session_id": session_id}
            while '"sleep 60"' not in json.dumps(await store.load(key)):
                await anyio.sleep(0.05)
            process.kill()
        before = await store.load(key)
    async with machine([say("Three.")], session_store=store, resume=session_id) as (options, _, model):
        async with ClaudeSDKClient(options) as client:
            third = await ask(client, "third")
        assert third.session_id == session_id
        sent = json.dumps(model.requests[-1].body["messages"])
        assert all(each in sent for each in ("first", "One.", "second", "third"))
        assert (await store.load(key))[: len(before)] == before


class Slow(InMemorySessionStore):
    """A store that takes four seconds for each append."""

    async def append(self, key, entries):
        """Add entries after four seconds."""
        await anyio.sleep(4)
        await super().append(key, entries)


@pytest.mark.asyncio_only
@pytest.mark.parametrize("flush", ["batched", "eager"])
async def test_a_slow_store_loses_nothing(flush):
    """Results arrive before the store has the entries; after closing, the store has all of them."""
    store = Slow()
    async with machine(
        [say("One."), say("Two.")],
        session_store=store,
        session_store_flush=flush,
        session_store_timeout_ms=100,
    ) as (options, config, _):
        async with ClaudeSDKClient(options) as client:
            assert (await ask(client, "first")).result == "One."
            assert store.size == 0
            await client.interrupt()
            second = await ask(client, "second")
        [path] = config.rglob(f"{second.session_id}.jsonl")
        stored = store.get_entries({"project_key": path.parent.name, "session_id": second.session_id})
        assert stored == [e for _, e in read_entries(path) if not e["type"].startswith("api-request")]


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_server_that_is_killed_during_a_run_gets_everything_once_it_is_back(kind):
    """The conversation goes on, and a message reports the failure."""
    require(find_postgres() if kind == "postgres" else find_redis(), kind)
    with PostgresServer() if kind == "postgres" else RedisServer() as server:
        store = (
            PostgresSessionStore(server.create_database(), connect_timeout=2)
            if kind == "postgres"
            else RedisSessionStore(server.url, connect_timeout=2)
        )
        script = [say(each) for each in ("One.", "Two.", "Three.")]
        async with machine(script, session_store=store) as (options, config, _):
            async with ClaudeSDKClient(options) as client:
                await ask(client, "first")
                server.kill()
                await client.query("second")
                messages = [message async for message in client.receive_response()]
                assert any(isinstance(each, MirrorErrorMessage) for each in messages)
                server.start()
                third = await ask(client, "third")
            [path] = config.rglob(f"{third.session_id}.jsonl")
            key = {"project_key": path.parent.name, "session_id": third.session_id}
            stored = await store.load(key)
            expected = [e for _, e in read_entries(path) if not e["type"].startswith("api-request")]
            assert sort(stored) == sort(expected)
        await store.aclose()


async def test_two_hosts_on_one_session_are_told(store):
    """The host that began earlier gets an error message when it goes on; both branches are in the store."""
    async with machine([say("One."), say("Three.")], session_store=store) as (options, *_):
        async with ClaudeSDKClient(options) as first:
            began = await ask(first, "first")
            async with machine([say("Two.")], session_store=store, resume=began.session_id) as other:
                async for _ in query(prompt="second", options=other[0]):
                    pass
            await first.query("third")
            messages = [message async for message in first.receive_response()]
        errors = [each.error for each in messages if isinstance(each, MirrorErrorMessage)]
        assert len(errors) == 1
        assert "another conversation has added" in errors[0]
        [project] = await store.find_projects(began.session_id)
        stored = await store.load({"project_key": project, "session_id": began.session_id})
        said = [each["message"]["content"] for each in stored if each["type"] == "user"]
        assert said == ["first", "second", "third"]
