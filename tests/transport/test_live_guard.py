"""While the test kit is in use, no CLI other than the kit's is started."""

import os
import subprocess
import sys
import threading

import anyio
import pytest

from toolwire import ClaudeAgentOptions, ClaudeSDKClient, LiveStartError, WarmPool, query, run, startup
from toolwire._transport.find_cli import VARIABLE
from toolwire._transport.live_guard import IN_USE
from toolwire.testing import ClaudeEnvironment, ScriptedCLI, allow_live, say

pytestmark = pytest.mark.anyio
LIMIT = 30
MODEL = "http://127.0.0.1:9"  # never connected to

# Stands in for the real CLI that would have been started: it leaves a trace, and answers.
LIVE = f"""#!{sys.executable} -SE
import json, os, sys
open(os.environ["TRACE"], "a").close()
def tell(**frame):
    print(json.dumps(frame), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        body = {{"subtype": "success", "request_id": frame["request_id"], "response": {{}}}}
        tell(type="control_response", response=body)
    else:
        base = {{"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}}
        tell(type="result", session_id="s", result="live", **base)
        tell(type="system", subtype="session_state_changed", state="idle", sdk_host_only=True)
"""


@pytest.fixture(autouse=True)
def live(tmp_path, monkeypatch):
    """Make toolwire find a CLI that leaves a trace; return a function that tells whether it was started."""
    program = tmp_path / "claude"
    program.write_text(LIVE)
    program.chmod(0o755)
    trace = tmp_path / "trace"
    monkeypatch.setenv(VARIABLE, str(program))
    monkeypatch.setenv("TRACE", str(trace))
    return trace.exists


async def by_query(options):
    async for _ in query(prompt="hi", options=options):
        pass


async def by_client(options):
    async with ClaudeSDKClient(options):
        pass


async def by_run(options):
    await run("hi", options=options)


async def by_startup(options):
    await (await startup(options)).disconnect()


async def by_pool(options):
    async with WarmPool(options) as pool:
        await pool.run("hi")


WAYS = [by_query, by_client, by_run, by_startup, by_pool]


@pytest.mark.parametrize("way", WAYS)
async def test_options_without_the_kits_are_refused(scripted_cli, way, live):
    """The error names the kit and shows how to pass its options; nothing was started."""
    with anyio.fail_after(LIMIT), pytest.raises(LiveStartError) as caught:
        await way(ClaudeAgentOptions())
    assert "scripted_cli" in str(caught.value)
    assert "ClaudeAgentOptions(**scripted_cli.options_kwargs(), ...)" in str(caught.value)
    assert "allow_live" in str(caught.value)
    assert not live()


async def test_no_options_at_all(scripted_model, live):
    """Passing no options at all is the usual way to forget them."""
    with anyio.fail_after(LIMIT), pytest.raises(LiveStartError, match=r"scripted_model\.options_kwargs"):
        await run("hi")
    assert not live()


@pytest.mark.parametrize("fixture", ["scripted_cli", "scripted_model", "claude_env"])
async def test_every_fixture_guards(fixture, request, live):
    """None does so longer than its test: otherwise other tests in this file would fail."""
    request.getfixturevalue(fixture)
    with pytest.raises(LiveStartError, match=fixture):
        await by_client(ClaudeAgentOptions(env={"ANTHROPIC_API_KEY": "sk-mine"}))
    assert not live()


@pytest.mark.process
async def test_without_a_kit_nothing_is_refused(live):
    """The guard is only active while a kit is."""
    assert IN_USE not in os.environ
    with anyio.fail_after(LIMIT):
        await by_run(ClaudeAgentOptions())
    assert live()


async def test_the_options_of_the_kit_pass(scripted_cli):
    """Further options may be added to them."""
    scripted_cli.script(say("done"))
    with anyio.fail_after(LIMIT):
        assert (
            await run("hi", options=ClaudeAgentOptions(**scripted_cli.options_kwargs(max_turns=3)))
        ).text == "done"


@pytest.mark.process
async def test_the_environment_of_the_kit_passes(claude_env, live):
    """Variables of the test's own may be added, but they do not lead to another model."""
    with anyio.fail_after(LIMIT):
        kit = claude_env(MODEL, extra={"TRACE": os.environ["TRACE"]})
        await by_run(ClaudeAgentOptions(**kit.options_kwargs()))
        assert live()
        for more in ({"ANTHROPIC_BASE_URL": "https://api.example"}, {"CLAUDE_CODE_USE_BEDROCK": "1"}):
            with pytest.raises(LiveStartError):
                await by_run(ClaudeAgentOptions(env={**kit.env, **more}, inherit_env=False))


async def test_a_transport_of_your_own_passes(scripted_model, live):
    """toolwire starts nothing for it."""
    with anyio.fail_after(LIMIT):
        assert (await run("hi", transport=ScriptedCLI([say("by transport")]))).text == "by transport"
        options = ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("by starter")]))
        assert (await run("hi", options=options)).text == "by starter"
    assert not live()


@pytest.mark.process
async def test_a_live_start_can_be_allowed(scripted_cli, live):
    """allow_live() allows it inside its block only."""
    with anyio.fail_after(LIMIT):
        with allow_live():
            await by_pool(ClaudeAgentOptions())
        assert live()
        with pytest.raises(LiveStartError):
            await by_run(ClaudeAgentOptions())


@pytest.mark.process
async def test_two_kits_at_once(live):
    """Each passes with its own environment; the guard stays until the last one is closed."""
    more = {"TRACE": os.environ["TRACE"]}
    first, second = ClaudeEnvironment(MODEL, extra=more).start(), ClaudeEnvironment(MODEL, extra=more).start()
    with anyio.fail_after(LIMIT):
        try:
            await by_run(ClaudeAgentOptions(**first.options_kwargs()))
            await by_run(ClaudeAgentOptions(**second.options_kwargs()))
            first.close()
            first.close()
            with pytest.raises(LiveStartError, match=r"\*\*environment\.options_kwargs"):
                await by_run(ClaudeAgentOptions())
        finally:
            first.close()
            second.close()
        await by_run(ClaudeAgentOptions())
    assert IN_USE not in os.environ


@pytest.mark.process
async def test_a_kit_that_nobody_closed_guards_as_long_as_it_lives():
    """A forgotten environment does not refuse live starts for ever."""
    ClaudeEnvironment(MODEL).start()
    with anyio.fail_after(LIMIT):
        await by_run(ClaudeAgentOptions())


@pytest.mark.process
async def test_a_test_that_restores_the_environment_leaves_no_guard(live):
    """A kit in a parent process is recognised only by the environment that this process was started with."""
    with ClaudeEnvironment(MODEL):
        before = dict(os.environ)
    assert IN_USE in before
    os.environ[IN_USE] = before[IN_USE]
    try:
        with anyio.fail_after(LIMIT):
            await by_run(ClaudeAgentOptions())
    finally:
        del os.environ[IN_USE]
    assert live()


async def test_other_threads_are_guarded(scripted_cli, live):
    """The code under test may have threads of its own."""
    caught = []

    def work():
        try:
            anyio.run(by_run, ClaudeAgentOptions())
        except Exception as error:  # noqa: BLE001 - looked at below
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert [type(error) for error in caught] == [LiveStartError]
    assert not live()


PROGRAM = """
import anyio
from toolwire import LiveStartError, run
try:
    print(anyio.run(run, "hi").text)
except LiveStartError as error:
    print(error)
"""


@pytest.mark.process
async def test_processes_that_a_test_starts_are_guarded(scripted_cli, claude_env, live):
    """They are guarded through their environment, and pass with the environment of the kit."""

    def say_hi(env):
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=2 * LIMIT
        ).stdout

    said = await anyio.to_thread.run_sync(say_hi, None)
    assert "scripted_cli, claude_env, in the process that started this one" in said
    assert "Start this process with the environment of the kit: env=environment.env. To start" in said
    assert not live()
    own = {name: os.environ[name] for name in (VARIABLE, "TRACE")}
    kit = claude_env(MODEL, extra=own)
    assert await anyio.to_thread.run_sync(say_hi, {**os.environ, **kit.env}) == "live\n"
    assert live()


@pytest.fixture(scope="class")
def kit():
    """Yield a kit for several tests."""
    with ClaudeEnvironment(MODEL) as environment:
        yield environment


class TestWiderScope:
    @pytest.mark.parametrize("again", [1, 2])
    def test_guards_each_of_them(self, kit, again, live):
        """A fixture of a wider scope guards every test in it."""
        with pytest.raises(LiveStartError):
            anyio.run(by_run, ClaudeAgentOptions())
        assert not live()
