"""Secrets of the options reach the CLI in a private file, and get into no command line, log or error."""

import json
import logging
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from shared.waiting import eventually
from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLINotFoundError,
    CLITimeoutError,
    Command,
    ControlRequestError,
    ProcessError,
    WarmPool,
    query,
    run,
    startup,
)
from toolwire.testing import Recorder

pytestmark = pytest.mark.anyio
LIMIT = 30

CLI = """
import json, os, stat, sys, time
scene = os.environ["SCENE"]
out = sys.stdout
def tell(**frame):
    out.write(json.dumps(frame) + "\\n")
    out.flush()
def accept(request, **response):
    body = {"subtype": "success", "request_id": request["request_id"], "response": response}
    tell(type="control_response", response=body)
path = sys.argv[sys.argv.index("--mcp-config") + 1]
mode = stat.S_IMODE(os.stat(path).st_mode), stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
config = open(path).read()
with open(os.environ["REPORT"], "w") as report:
    json.dump({"argv": sys.argv, "modes": mode, "config": config, "path": path}, report)
if scene == "exits":
    sys.exit(f"cannot use {config} nor {os.environ['DB_PWD']}")
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "user":
        result = {"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
        shown = {"there": os.path.exists(path)}
        tell(type="result", session_id="s", result=json.dumps(shown), **result)
        tell(type="system", subtype="session_state_changed", state="idle", sdk_host_only=True)
    elif frame["type"] == "control_request" and scene == "silent":
        pass
    elif frame["type"] == "control_request" and frame["request"]["subtype"] == "mcp_reconnect":
        body = {"subtype": "error", "request_id": frame["request_id"], "error": f"cannot reach {config}"}
        tell(type="control_response", response=body)
    elif frame["type"] == "control_request":
        accept(frame)
"""
SERVERS = {
    "remote": {
        "type": "http",
        "url": "https://me:url-secret-1@host.example/mcp?token=url-secret-2",
        "headers": {"Authorization": "Bearer header-secret-3", "X-Team": "header-secret-4"},
    },
    "local": {"command": "npx", "args": ["--api-key", "arg-secret-5"], "env": {"GH_PAT": "env-secret-6"}},
}
SECRETS = [*(f"url-secret-{n}" for n in (1, 2)), *(f"header-secret-{n}" for n in (3, 4)), "arg-secret-5"]
SECRETS += ["env-secret-6", "env-secret-7", "env-secret-8"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A temporary directory of our own: what is left in it was left by toolwire."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def options(tmp_path, place):
    """Return a function that makes options full of secrets; its `report()` tells how the CLI was started."""
    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable} -SE\n{CLI}")
    program.chmod(0o755)

    def make(scene="plays along", **more):
        env = {
            "SCENE": scene,
            "REPORT": str(tmp_path / "report"),
            "DB_PWD": "env-secret-7",
            **more.pop("env", {}),
        }
        given = {"mcp_servers": SERVERS, "cli_path": program, "env": env, "inherit_env": False, **more}
        return ClaudeAgentOptions(settings={"env": {"SMTP_PASS": "env-secret-8"}}, **given)

    make.report = lambda: json.loads((tmp_path / "report").read_text())
    return make


def shown(text):
    """Return the secrets that occur in a text."""
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize("given", [SERVERS, json.dumps({"mcpServers": SERVERS})], ids=["dict", "JSON"])
async def test_the_configuration_goes_by_a_private_file(options, place, given):
    """The CLI reads it from a file that nobody else can read, and that is deleted once the CLI has answered."""
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options(mcp_servers=given)) as client:
            report = options.report()
            assert json.loads(report["config"]) == {"mcpServers": SERVERS}
            assert report["modes"] == [0o600, 0o700]
            assert shown(" ".join(report["argv"])) == []
            assert not Path(report["path"]).exists()
            assert [file.name for file in place.rglob("*.json")] == [
                "settings.json"
            ]  # kept: the CLI may read it again
            await client.query("hi")
            replies = [message async for message in client.receive_response()]
            assert json.loads(replies[-1].result) == {"there": False}
    assert list(place.iterdir()) == []


async def test_query_run_and_warm_starts_leave_nothing(options, place):
    """No way to start a CLI leaves a file behind."""
    with anyio.fail_after(LIMIT):
        assert json.loads((await run("hi", options=options())).text) == {"there": False}
        assert [message async for message in query(prompt="hi", options=options())]
        assert list(place.iterdir()) == []
        async with WarmPool(options(), size=2) as pool:
            await pool.wait_ready()
            assert list(place.rglob("mcp-config.json")) == []
            await pool.run("hi")
        assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "case",
    [
        ("exits", {}, ProcessError),
        ("silent", {"initialize_timeout": 0.2}, CLITimeoutError),
        ("never starts", {"cli_path": "/nowhere/claude"}, CLINotFoundError),
    ],
    ids=lambda case: case[0],
)
async def test_a_start_that_fails_leaves_nothing_and_tells_no_secret(options, place, case, caplog):
    """Neither the error nor the log has a secret, although the CLI wrote them to stderr."""
    scene, more, kind = case
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(LIMIT), pytest.raises(kind) as caught:
        await startup(options(scene, **more))
    assert list(place.iterdir()) == []
    error = caught.value
    assert shown(f"{error} {error!r} {error.args} {getattr(error, 'stderr', '')}") == []
    assert shown(caplog.text) == []
    if scene == "exits":
        assert "cannot use" in str(error)


async def test_a_file_that_cannot_be_started_leaves_nothing(options, place, tmp_path):
    """The file is written before the process starts, and deleted if it cannot start."""
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    with anyio.fail_after(LIMIT), pytest.raises(Exception, match="the interpreter named in its first line"):
        await startup(options(cli_path=broken))
    assert list(place.iterdir()) == []


async def test_a_cancelled_start_leaves_nothing(options, place, tmp_path):
    """This holds whenever it is cancelled, from before the process exists until it should have answered."""
    with anyio.fail_after(LIMIT):
        for turns in (0, 1, 2, 3, 5, 10):
            async with anyio.create_task_group() as group:
                group.start_soon(startup, options("silent"))
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            assert list(place.iterdir()) == []
        async with anyio.create_task_group() as group:
            group.start_soon(startup, options("silent"))
            await eventually((tmp_path / "report").exists)
            group.cancel_scope.cancel()
        assert list(place.iterdir()) == []


async def test_what_the_cli_refuses_is_told_without_secrets(options):
    """Error texts of the CLI may quote the configuration; the exception does not have its secrets."""
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options()) as client:
            with pytest.raises(ControlRequestError, match="cannot reach") as caught:
                await client.reconnect_mcp_server("remote")
    assert shown(f"{caught.value} {caught.value!r}") == []


async def test_servers_that_are_set_later_are_secrets_too(options, caplog):
    """After `set_mcp_servers()`, the log hides their secrets too."""
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(options()) as client:
            later = {"type": "http", "url": "http://h/", "headers": {"X-Custom": "later-secret-9"}}
            await client.set_mcp_servers({"later": later})
            logging.getLogger("toolwire.session").warning("it says %s", json.dumps(later))
    assert "it says" in caplog.text
    assert "later-secret-9" not in caplog.text


async def test_a_recorder_starts_it_here(options, place, tmp_path):
    """A recorder starts the CLI on this machine, so the CLI gets the file, and the recording has no secret."""
    recorder = Recorder(tmp_path / "run.jsonl")
    with anyio.fail_after(LIMIT):
        await run("hi", options=options(spawn_claude_code_process=recorder))
    assert shown(" ".join(options.report()["argv"])) == []
    assert shown((tmp_path / "run.jsonl").read_text()) == []
    assert list(place.iterdir()) == []


def test_options_are_shown_with_names_and_without_secrets(options):
    """The repr() of options, which gets into tracebacks and logs, shows names but no secrets."""
    more = {
        "agents": None,
        "extra_args": {"api-key": "arg-secret-5", "name": "x"},
        "env": {"DATABASE_URL": "postgres://me:url-secret-1@db.example/x"},
        "managed_settings": {"env": {"A": "env-secret-6"}},
    }
    text = repr(options(**more))
    assert shown(text) == []
    for name in (
        "remote",
        "host.example",
        "Authorization",
        "X-Team",
        "GH_PAT",
        "DB_PWD",
        "SMTP_PASS",
        "api-key",
        "npx",
    ):
        assert name in text
    assert "permission_mode=None" in text
    assert shown(repr(options(mcp_servers=json.dumps({"mcpServers": SERVERS})))) == []


def test_a_command_is_shown_without_secrets():
    """The repr() of a Command shows no secrets: `spawn_claude_code_process` gets one, and may log it."""
    argv = ["claude", "--mcp-config", json.dumps({"mcpServers": SERVERS}), "--token", "arg-secret-5", "-v"]
    command = Command(argv, {"ANY": "env-secret-6"}, "/work")
    assert shown(repr(command)) == []
    for part in ("claude", "remote", "ANY", "/work", "--token", "-v"):
        assert part in repr(command)
