"""The pytest plugin as users see it: small test files, run by a pytest process of their own."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]

PLUGIN = "toolwire.testing.plugin"

HEAVY = [
    "anyio",
    "asyncio",
    "pydantic",
    "mcp",
    "trio",
    "orjson",
    "toolwire.client",
    "toolwire.testing.scripted_cli",
]

# A user's test, as in the docs; for the other peer, only the fixture's name changes.
AGENT = """
import anyio, pytest
from toolwire import ClaudeAgentOptions, ToolServer, run
from toolwire.testing import call, say

pytestmark = pytest.mark.anyio
calc = ToolServer("calc")

@calc.tool
def add(a: float, b: float) -> float:
    return a + b

async def test_agent(PEER):
    PEER.script(call("mcp__calc__add", a=15, b=27), say("42"))
    options = PEER.options_kwargs(mcp_servers={"calc": calc}, allowed_tools=["mcp__calc"])
    with anyio.fail_after(60):
        reply = await run("What is 15 + 27?", options=ClaudeAgentOptions(**options))
    assert reply.text == "42"
    PEER.assert_called("add", a=15)
    PEER.assert_called("mcp__calc__add", a=15, b=27)
    with pytest.raises(AssertionError, match=r"expected: add\\(a=16\\)\\ncalled:   mcp__calc__add\\(a=15, b=27\\)"):
        PEER.assert_called("add", a=16)
    with pytest.raises(AssertionError, match="ad was not called .did you mean 'add'"):
        PEER.assert_called("ad")
    PEER.assert_no_pending()
"""

# Replies to each prompt with "echo" and the prompt.
STAND_IN = """#!{python}
import json, sys

for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        response = {{"subtype": "success", "request_id": frame["request_id"], "response": {{}}}}
        print(json.dumps({{"type": "control_response", "response": response}}), flush=True)
    elif frame["type"] == "user":
        said = frame["message"]["content"]
        result = {{"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1,
            "duration_api_ms": 1, "num_turns": 1, "session_id": "s", "result": "echo " + said}}
        print(json.dumps(result), flush=True)
"""

RECORDED = """
import anyio, os, pytest
from toolwire import ClaudeAgentOptions, run

@pytest.mark.anyio
async def test_echo(recording):
    options = ClaudeAgentOptions(**recording.options_kwargs(cli_path="CLI"))
    with anyio.fail_after(30):
        reply = await run(os.environ.get("PROMPT", "hello"), options=options)
    assert reply.text == "echo hello"
"""


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Return a function that runs a test file with the plugin, in a process of its own."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # If the plugin is installed with an entry point, it must not be loaded twice.
    registered = {point.value for point in entry_points(group="pytest11")}
    plugin = () if PLUGIN in registered else ("-p", PLUGIN)

    def start(source, *arguments):
        pytester.makepyfile(test_it=source)
        given = (*plugin, "-p", "no:cacheprovider", "-W", "error", *arguments)
        return pytester.runpytest_subprocess(*given, timeout=100)

    return start


@pytest.fixture
def recorded(pytester):
    """Return the source of a test that uses a recording, and the folder of its recordings."""
    cli = pytester.path / "stand-in"
    cli.write_text(STAND_IN.format(python=sys.executable))
    cli.chmod(0o700)
    return RECORDED.replace("CLI", str(cli)), pytester.path / "recordings"


def test_the_plugin_loads_nothing_heavy():
    """Every pytest run pays for this import if toolwire is installed."""
    code = "import sys, toolwire.testing.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "toolwire.testing.plugin" in done.stdout.split()
    assert set(done.stdout.split()) & set(HEAVY) == set()


def test_an_agent_on_the_scripted_cli(run_tests):
    """The user's test passes on both event loops, without starting a CLI."""
    run_tests(AGENT.replace("PEER", "scripted_cli")).assert_outcomes(passed=2)


@pytest.mark.real
def test_an_agent_on_the_real_cli(run_tests):
    """The same test, with another fixture, passes with the real CLI and a scripted model."""
    run_tests(AGENT.replace("PEER", "scripted_model")).assert_outcomes(passed=2)


@pytest.mark.parametrize("peer", ["scripted_cli", "scripted_model"])
def test_a_script_not_followed_fails_the_test(run_tests, peer):
    """Turns left over fail a test that would pass; a test that fails by itself keeps its own error."""
    source = """
        from toolwire.testing import say

        def test_left_over(PEER):
            assert PEER.script(say("never asked")).options_kwargs(max_turns=1)["max_turns"] == 1

        def test_failed_already(PEER):
            PEER.script(say("never asked"))
            assert 1 == 2

        def test_no_script(PEER):
            PEER.assert_no_pending()
            PEER.options_kwargs()

        def test_two_scripts(PEER):
            PEER.script().script(say("too late"))
    """
    result = run_tests(source.replace("PEER", peer))
    result.assert_outcomes(passed=1, failed=3)
    output = result.stdout.str()
    errors = [
        line
        for line in output.splitlines()
        if line.startswith("E ") and "the script was not followed" in line
    ]
    assert len(errors) == 1  # only the first test fails for this reason
    result.stdout.fnmatch_lines(["FAILED *::test_left_over - AssertionError: the script was not followed*"])
    assert "pytest_runtest_call" not in output  # the plugin's own frames are not shown
    assert "assert 1 == 2" in output
    assert f"{peer} already has a script" in output


def test_the_environment_of_the_cli(run_tests):
    """`claude_env` makes environments, which are removed after the test; the fixture's own takes more variables."""
    source = """
        import pytest
        from pathlib import Path

        homes = []

        def test_made(claude_env, scripted_model):
            scripted_model.script()
            one = claude_env(scripted_model.model, extra={"A": "1"})
            two = claude_env("http://127.0.0.1:9")
            assert one.env["A"] == "1" and two.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
            env = scripted_model.options_kwargs(env={"B": "2"})["env"]
            assert env["B"] == "2" and env["ANTHROPIC_BASE_URL"] == scripted_model.model.url
            with pytest.raises(ValueError, match="a proxy"):
                scripted_model.options_kwargs(env={"HTTPS_PROXY": "http://elsewhere"})
            homes.extend([one.home, two.home, scripted_model.env.home])
            assert all(home.is_dir() for home in homes)

        def test_gone():
            assert len(homes) == 3 and not any(home.exists() for home in homes)
    """
    run_tests(source).assert_outcomes(passed=2)


def test_record_then_replay(run_tests, recorded, monkeypatch):
    """Without a recording the error names the option to make one; a recording replays on both event loops."""
    source, folder = recorded
    missing = run_tests(source)
    missing.assert_outcomes(errors=2)
    missing.stdout.fnmatch_lines(["*no recording at *test_echo.jsonl*--toolwire-record*"])

    run_tests(source, "--toolwire-record", "-k", "asyncio").assert_outcomes(passed=1, deselected=1)
    assert [path.name for path in folder.iterdir()] == ["test_echo.jsonl"]
    (folder.parent / "stand-in").unlink()
    run_tests(source).assert_outcomes(passed=2)

    monkeypatch.setenv("PROMPT", "something else")
    changed = run_tests(source)
    changed.assert_outcomes(failed=2)
    changed.stdout.fnmatch_lines(
        ["*ReplayMismatch: *test_echo.jsonl, line 4:*", '*"hello"*|*"something else"*']
    )


def test_a_failed_test_keeps_the_old_recording(run_tests, recorded, monkeypatch):
    """Only a test that passed replaces its recording."""
    source, folder = recorded
    run_tests(source, "--toolwire-record").assert_outcomes(passed=2)
    before = (folder / "test_echo.jsonl").read_text()
    monkeypatch.setenv("PROMPT", "something else")
    run_tests(source, "--toolwire-record").assert_outcomes(failed=2)
    assert [path.read_text() for path in folder.iterdir()] == [before]


def test_a_recording_not_played_fails_the_test(run_tests, pytester):
    """A test that never connects to its recording fails; the file's name has the class and the parameters."""
    source = """
        import pytest

        class TestIt:
            @pytest.mark.parametrize("n", ["a/b"])
            def test_unused(self, recording, n):
                assert recording.path.exists() and not recording.anew
    """
    folder = pytester.mkdir("recordings")
    (folder / "TestIt.test_unused[a_b].jsonl").write_text('{"toolwire_recording": 1}\n')
    result = run_tests(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the recording was not used*"])


ALIAS = (
    "import claude_agent_sdk, toolwire\ndef test_alias(): assert claude_agent_sdk.query is toolwire.query\n"
)


@pytest.mark.parametrize("by", ["flag", "setting", "xdist"])
def test_claude_agent_sdk_is_toolwire_if_that_is_asked_for(pytester, by):
    """A flag or a setting does this before any conftest is imported, also in the workers of xdist."""
    pytester.makeconftest("from claude_agent_sdk import query")
    pytester.makepyfile(ALIAS)
    if by == "setting":
        pytester.makeini("[pytest]\ntoolwire_as_official = true")
    flags = {"flag": ["--toolwire-as-official"], "setting": [], "xdist": ["--toolwire-as-official", "-n1"]}[
        by
    ]
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *flags).assert_outcomes(passed=1)


def test_claude_agent_sdk_is_the_official_one_otherwise(pytester):
    """Without flag and setting it is the official package; if it was imported too early, pytest says so."""
    pytester.makepyfile(early="import claude_agent_sdk", test_it=ALIAS)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "test_it.py").assert_outcomes(failed=1)
    done = pytester.runpytest_subprocess("-p", "early", "--toolwire-as-official", "test_it.py")
    done.stderr.fnmatch_lines(["ERROR: install_as_official() was called too late*(by early)*"])
