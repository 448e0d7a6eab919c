"""Recordings of the real CLI: replayed to the same messages, strict about tool results, free of secrets."""

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import anyio
import pytest

from toolwire import ClaudeAgentOptions, ToolServer, run
from toolwire.testing import call, say
from toolwire.testing.recording import Recorder, Replay, ReplayMismatch

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 60
QUESTION = "What is 15 + 27?"
KEY = 'sk-ant-"real"/key+with every\\thing~é'


def calculator(result=None):
    """Return a server whose `add` adds, or returns a fixed result."""
    calc = ToolServer("calculator")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b if result is None else result

    return calc


def replayed(replay, server):
    """Return options for a replay of what `test_a_real_run_replays` records."""
    return ClaudeAgentOptions(
        spawn_claude_code_process=replay, mcp_servers={"calc": server}, allowed_tools=["mcp__calc"]
    )


async def test_a_real_run_replays(scripted, tmp_path):
    """A run with a tool call replays to the same messages, and a changed tool result is reported with its line."""
    path = tmp_path / "run.jsonl"
    script = [call("mcp__calc__add", a=15, b=27), lambda request: say(request.tool_results[0].text)]
    given = {"mcp_servers": {"calc": calculator()}, "allowed_tools": ["mcp__calc"]}
    async with scripted(script, spawn_claude_code_process=Recorder(path), **given) as (_, options):
        with anyio.fail_after(LIMIT):
            first = await run(QUESTION, options=options)
    replay = Replay(path)
    with anyio.fail_after(LIMIT):
        again = await run(QUESTION, options=replayed(replay, calculator()))
    assert first.text == again.text == "42.0"
    assert again.messages == first.messages
    replay.assert_finished()

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = next(
        n for n, line in enumerate(lines, 1) if line.get("dir") == ">" and '"42.0"' in json.dumps(line)
    )
    with anyio.fail_after(LIMIT), pytest.raises(ReplayMismatch, match=f"line {changed}: ") as caught:
        await run(QUESTION, options=replayed(Replay(path), calculator(43.0)))
    assert any('"42.0"' in row and '"43.0"' in row for row in str(caught.value).splitlines())


async def test_a_key_in_the_environment_is_not_in_the_recording(scripted, tmp_path):
    """An API key never gets into the file, in whatever form the user, the model or a tool says it."""
    path = tmp_path / "run.jsonl"
    encoded = [b64encode(b"x" * at + KEY.encode()).decode() for at in range(3)]
    safe = [urlsafe_b64encode(b"x" * at + KEY.encode()).decode() for at in range(3)]
    forms = [KEY, json.dumps(KEY)[1:-1], quote(KEY, safe=""), quote(KEY), *encoded, *safe]
    leak = ToolServer("leak")

    @leak.tool
    def leaks() -> str:
        """Everything."""
        return " ".join(forms)

    script = [call("mcp__leak__leaks"), say(" ".join(forms))]
    given = {"mcp_servers": {"leak": leak}, "allowed_tools": ["mcp__leak"], "system_prompt": f"Use {KEY}"}
    spawn = {"spawn_claude_code_process": Recorder(path)}
    async with scripted(script, extra={"ANTHROPIC_API_KEY": KEY}, **given, **spawn) as (_, options):
        with anyio.fail_after(LIMIT):
            reply = await run(f"Here: {' '.join(forms)}", options=options)
    assert KEY in reply.text
    written = path.read_text()
    for form in (*forms[:4], *(each[4:-4] for each in (*encoded, *safe))):
        for spelled in (form, json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]):
            assert spelled not in written
    assert written.count("<scrubbed>") >= 3 * len(forms)
