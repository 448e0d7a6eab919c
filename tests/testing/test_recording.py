"""Recording and replaying without the real CLI: a small program in its place, and recordings made by hand."""

import json
import stat
import sys
from base64 import b64encode
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import anyio
import anyio.lowlevel
import pytest

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ProcessError,
    ToolServer,
    query,
    run,
)
from toolwire.testing.recording import Recorder, Replay, ReplayMismatch, load

pytestmark = pytest.mark.anyio

LIMIT = 20
OLD = Path(__file__).parent / "data" / "recording-v1.jsonl"
QUESTION = "What is 15 + 27?"
KEY = 'sk-"very"/secret+key é'

# Replies to each prompt with the variable MY_API_KEY in several forms; the prompt "die" makes it fail.
STAND_IN = """#!{python}
import base64, json, os, sys, urllib.parse

def write(**frame):
    print(json.dumps(frame), flush=True)

key = os.environ.get("MY_API_KEY", "no key")
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        response = {{"subtype": "success", "request_id": frame["request_id"], "response": {{"pid": 1}}}}
        write(type="control_response", response=response)
    elif frame["type"] == "user":
        said = frame["message"]["content"]
        if said == "die":
            print("out of order", file=sys.stderr)
            sys.exit(3)
        forms = [key, json.dumps(key), base64.b64encode(b"u:" + key.encode()).decode(), urllib.parse.quote(key)]
        text = " ".join(["echo", said, *forms])
        message = {{"role": "assistant", "model": "m", "content": [{{"type": "text", "text": text}}]}}
        write(type="assistant", message=message, session_id="s", **{{"key " + key: 1}})
        write(type="result", subtype="success", is_error=False, duration_ms=1, duration_api_ms=1, num_turns=1,
              session_id="s", result=text)
"""


@pytest.fixture
def cli(tmp_path):
    """Return the path of a program in the place of the CLI."""
    path = tmp_path / "stand-in"
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o700)
    return path


def calculator(add=lambda a, b: a + b):
    calc = ToolServer("calculator")

    @calc.tool(name="add")
    def _add(a: float, b: float) -> float:
        """Add two numbers."""
        return add(a, b)

    return calc


def old(replay, **options):
    """Return options to play the recording of format 1."""
    servers = {"calc": options.pop("server", None) or calculator()}
    return ClaudeAgentOptions(spawn_claude_code_process=replay, mcp_servers=servers, **options)


def write(path, *lines):
    """Write a recording made by hand; returns its path."""
    text = [json.dumps(line) for line in ({"toolwire_recording": 1, "version": "0", "argv": []}, *lines)]
    path.write_text("\n".join([*text, ""]))
    return path


def asks(subtype="initialize", id="r1", **body):
    return {
        "t": 0,
        "dir": ">",
        "frame": {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **body}},
    }


def answers(id="r1", **body):
    response = {"subtype": "success", "request_id": id, "response": body}
    return {"t": 0, "dir": "<", "frame": {"type": "control_response", "response": response}}


async def test_an_old_recording_still_plays():
    """A recording of format 1, which is kept forever, still gives the reply that it gave when it was made."""
    replay = Replay(OLD)
    with anyio.fail_after(LIMIT):
        reply = await run(QUESTION, options=old(replay))
    assert reply.text == "42.0"
    assert reply.tool_calls[0].result == [{"type": "text", "text": "42.0"}]
    replay.assert_finished()


async def test_each_connection_is_a_fresh_play():
    """A recording of one connection can be played any number of times, also concurrently."""
    replay = Replay(OLD)
    texts = []

    async def once():
        texts.append((await run(QUESTION, options=old(replay))).text)

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(once)
            group.start_soon(once)
        await once()
    assert texts == ["42.0"] * 3
    replay.assert_finished()


@pytest.mark.parametrize(
    ("question", "server", "line", "shown"),
    [
        ("What is 1 + 1?", None, 6, ['"What is 15 + 27?"', '"What is 1 + 1?"']),
        (QUESTION, calculator(lambda a, b: a - b), 15, ['"text": "42.0"', '"text": "-12.0"']),
        (QUESTION, ToolServer("calculator"), 11, ['"add"', '"tools": []']),
    ],
    ids=["prompt", "result", "tools"],
)
async def test_a_difference_is_reported_at_its_line(question, server, line, shown):
    """With another prompt, result or tool list, the error has the line, the recorded and the actual value."""
    replay = Replay(OLD)
    with anyio.fail_after(LIMIT), pytest.raises(ReplayMismatch, match=f"line {line}: ") as caught:
        await run(question, options=old(replay, server=server))
    assert caught.value.line == line
    table = str(caught.value).splitlines()
    row = next(row for row in table if row.startswith("!"))
    assert all(any(part in row for row in table) for part in shown)
    assert "|" in row
    with pytest.raises(ReplayMismatch):
        replay.assert_finished()


async def test_another_request_is_reported():
    """A control request that was not recorded raises `ReplayMismatch` and does not hang."""
    async with _client(OLD) as client:
        with anyio.fail_after(LIMIT), pytest.raises(ReplayMismatch, match="control_request set_model"):
            await client.set_model("other")


def _client(path, **given):
    return ClaudeSDKClient(old(Replay(path, **given)))


async def test_a_frame_that_never_comes_is_a_mismatch():
    """If the host does not send its prompt, it gets an error after the timeout, which says what was expected."""
    async with _client(OLD, timeout=0.05) as client:
        with anyio.fail_after(LIMIT), pytest.raises(ReplayMismatch, match="line 6: expected user frame"):
            async for _ in client.receive_messages():
                pass


async def test_what_is_left_over_is_reported():
    """`assert_finished` lists what a host that left early did not send or receive, and fails if none connected."""
    replay = Replay(OLD)
    with pytest.raises(AssertionError, match="the recording was not used"):
        replay.assert_finished()
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(old(replay)):
            pass
    with pytest.raises(AssertionError, match="line 6: the host never sent user frame") as caught:
        replay.assert_finished()
    assert "line 18: result success was not played" in str(caught.value)


async def test_what_follows_the_last_result_need_not_be_read(tmp_path):
    """Whether a host that leaves after the result has read the CLI's last frames depends on timing."""
    *lines, _, _ = map(json.loads, OLD.read_text().splitlines())
    lines[-1]["t"] = 3600
    path = write(tmp_path / "r.jsonl", *lines[1:], {"t": 3600, "host": "closed"})
    replay = Replay(path, speed=50.0)
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(old(replay)) as client:
            await client.query(QUESTION)
            received = [message async for message in client.receive_response()]
    assert received[-1].result == "42.0"
    replay.assert_finished()


async def test_real_time_takes_the_recorded_time(monkeypatch):
    """With a `speed`, the pauses of the recording are kept in proportion."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    own = SimpleNamespace(sleep=sleep, lowlevel=anyio.lowlevel, move_on_after=anyio.move_on_after)
    monkeypatch.setattr("toolwire.testing.recording.anyio", own)
    with anyio.fail_after(LIMIT):
        await run(QUESTION, options=old(Replay(OLD, speed=2.0)))
    assert 0.3 <= sum(pauses) <= 0.7365 / 2
    with pytest.raises(ValueError, match="speed"):
        Replay(OLD, speed=0)


async def test_requests_are_matched_by_subtype_and_their_ids_mapped(tmp_path):
    """The current request gets the response whatever its id is; requests of one subtype are matched in order."""
    path = write(
        tmp_path / "r.jsonl",
        asks(),
        answers(),
        asks("mcp_status", "r2"),
        answers("r2", mcpServers=[{"name": "was here", "status": "connected"}]),
        {"t": 0, "something": "new"},
        {"t": 0, "host": "closed"},
        {"t": 0, "dir": "<", "frame": {"type": "system", "subtype": "too late"}},
    )
    replay = Replay(path)
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(ClaudeAgentOptions(spawn_claude_code_process=replay)) as client:
            status = await client.get_mcp_status()
    assert status["mcpServers"][0]["name"] == "was here"
    replay.assert_finished()


async def test_a_withdrawn_question_needs_no_answer(tmp_path):
    """Whether the host responds to a request before it is cancelled depends on timing, so it need not."""
    question = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
    asked = {"type": "control_request", "request_id": "q", "request": question}
    body = {"subtype": "success", "request_id": "q", "response": {"behavior": "allow"}}
    path = write(
        tmp_path / "r.jsonl",
        asks(),
        answers(),
        {"t": 0, "dir": "<", "frame": asked},
        {"t": 0, "dir": ">", "frame": {"type": "control_response", "response": body}},
        {"t": 0, "dir": "<", "frame": {"type": "control_cancel_request", "request_id": "q"}},
        {"t": 0, "dir": "<", "frame": {"type": "system", "subtype": "after"}},
        {"t": 0, "host": "closed"},
    )
    replay = Replay(path)

    async def never(*_):
        await anyio.sleep_forever()

    with anyio.fail_after(LIMIT):
        async with (
            ClaudeSDKClient(
                ClaudeAgentOptions(spawn_claude_code_process=replay, can_use_tool=never)
            ) as client,
            aclosing(client.receive_messages()) as messages,
        ):
            assert (await anext(messages)).subtype == "after"
    replay.assert_finished()


@pytest.mark.process
async def test_a_run_is_recorded_and_replayed(cli, tmp_path, monkeypatch):
    """The file has the frames, the end of input and the exit, and is private; a replay gives the same messages."""
    path = tmp_path / "run.jsonl"
    path.touch(mode=0o644)
    recorder = Recorder(path)
    with anyio.fail_after(LIMIT):
        options = ClaudeAgentOptions(spawn_claude_code_process=recorder, cli_path=cli)
        first = [message async for message in query(prompt="hello", options=options)]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["toolwire_recording"] == 1
    assert lines[0]["argv"][0] == str(cli)
    assert [line.get("dir") or [*line][1] for line in lines[1:]] == [*"><><<", "input", "exit"]
    assert lines[-1]["exit"] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replay = Replay(path)
    with anyio.fail_after(LIMIT):
        options = ClaudeAgentOptions(spawn_claude_code_process=replay)
        again = [message async for message in query(prompt="hello", options=options)]
    assert again == first
    replay.assert_finished()


@pytest.mark.process
async def test_no_secret_is_in_the_file(cli, tmp_path, monkeypatch):
    """Secrets of the CLI's environment, of ours and given ones are removed in every form; the recording replays."""
    path = tmp_path / "run.jsonl"
    monkeypatch.setenv("OUR_TOKEN", "token-of-this-process")
    prompt = f"my token-of-this-process and given-secret {b64encode(KEY.encode()).decode()}"
    recorder = Recorder(path, secrets=["given-secret"])
    options = ClaudeAgentOptions(
        spawn_claude_code_process=recorder, cli_path=cli, env={"MY_API_KEY": KEY}, system_prompt=f"use {KEY}"
    )
    with anyio.fail_after(LIMIT):
        reply = await run(prompt, options=options)
    assert KEY in reply.text
    written = path.read_text()
    bodies = [b64encode(b" " * at + KEY.encode()).decode()[4:-4] for at in range(3)]
    for form in (
        KEY,
        json.dumps(KEY)[1:-1],
        quote(KEY),
        quote(KEY, safe=""),
        *bodies,
        "this-process",
        "given-secret",
    ):
        assert form not in written
        assert json.dumps(form)[1:-1] not in written
    replay = Replay(path)
    with anyio.fail_after(LIMIT):
        await run(prompt, options=ClaudeAgentOptions(spawn_claude_code_process=replay))
    replay.assert_finished()


@pytest.mark.process
async def test_several_connections_are_kept_apart(cli, tmp_path):
    """The second connection is appended to the file, and is played for the second connection of the replay."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    options = ClaudeAgentOptions(spawn_claude_code_process=recorder, cli_path=cli)
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options) as one, ClaudeSDKClient(options) as two:
            for client, prompt in ((two, "second"), (one, "first")):
                await client.query(prompt)
                async for _ in client.receive_response():
                    pass
    assert len(load(path)) == 2
    replay = Replay(path)
    options = ClaudeAgentOptions(spawn_claude_code_process=replay)
    with anyio.fail_after(LIMIT):
        for prompt in ("first", "second"):
            async with ClaudeSDKClient(options) as client:
                await client.query(prompt)
                said = [
                    each async for each in client.receive_response() if isinstance(each, AssistantMessage)
                ]
                assert said[0].content[0].text.startswith(f"echo {prompt}")
        replay.assert_finished()
        with pytest.raises(ReplayMismatch, match="connection 3 was opened, but only 2 were recorded"):
            await ClaudeSDKClient(options).connect()


@pytest.mark.process
async def test_a_failed_process_is_recorded_and_fails_again(cli, tmp_path):
    """The exit code is the same in the replay; only the recorded run has the CLI's stderr."""
    path = tmp_path / "run.jsonl"
    options = ClaudeAgentOptions(spawn_claude_code_process=Recorder(path), cli_path=cli)
    with anyio.fail_after(LIMIT), pytest.raises(ProcessError, match="out of order") as first:
        await run("die", options=options)
    options = ClaudeAgentOptions(spawn_claude_code_process=Replay(path))
    with anyio.fail_after(LIMIT), pytest.raises(ProcessError) as again:
        await run("die", options=options)
    assert first.value.exit_code == again.value.exit_code == 3


@pytest.mark.process
async def test_a_cli_that_does_not_start_leaves_nothing_open(tmp_path):
    """The error is the same as without a recorder, and the file is closed."""
    options = ClaudeAgentOptions(
        spawn_claude_code_process=Recorder(tmp_path / "r.jsonl"), cli_path=tmp_path / "no"
    )
    before = _open_files()
    with anyio.fail_after(LIMIT), pytest.raises(Exception, match="not found at"):
        await run("hello", options=options)
    assert _open_files() == before


def _open_files():
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("{}", "line 1: not a recording"),
        ("[]", "line 1: not a JSON object"),
        ('{"toolwire_recording": 1}\n\nx', "line 3: not JSON"),
        ('{"toolwire_recording": 99, "version": "9"}', "newer toolwire"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, text, match):
    """The error has the line that shows it is not a recording."""
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        Replay(path)
