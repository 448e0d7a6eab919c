"""Commands with `openapi:` targets: tools, call, check, serve, config and new."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from shared.echo_api import EchoApi, Reply, as_json, document, operation
from shared.programs import run_python
from toolwire.cli.main import app
from toolwire.cli.shared.progress import LoadProgress

PETS = document(
    {
        "/pets": {"get": operation(operationId="listPets", summary="List all pets", tags=["pets"])},
        "/pets/{id}": {
            "get": operation(
                {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
                operationId="getPet",
                summary="Read one pet",
                security=[{"key": []}],
            ),
            "trace": operation(),
        },
        "/other": {
            "post": operation(
                body={"application/json": {"schema": {"$ref": "other.json"}}}, operationId="other"
            )
        },
        "/bare": {"post": operation()},
        "/long": {"get": operation(operationId="x" * 90, summary="A name over 64 characters")},
    },
    servers=[{"url": "https://pets.example.com/v1"}],
    components={"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
)
PETS["info"]["title"] = 'Pets"""\nimport os'


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a document in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.json").write_bytes(as_json(PETS))
    return tmp_path


def command(*arguments, code=0, **env):
    """Run the command in this process."""
    done = CliRunner(env=env).invoke(app, list(arguments))
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def test_tools_lists_the_operations():
    """It lists all operations that can be called, or those that --include chooses."""
    listed = json.loads(command("tools", "openapi:pets.json", "--json").stdout)["tools"]
    assert [tool["name"] for tool in listed][:2] == ["listPets", "getPet"]
    chosen = json.loads(command("tools", "openapi:pets.json", "--include", "tag:pets", "--json").stdout)[
        "tools"
    ]
    assert [tool["name"] for tool in chosen] == ["listPets"]


def test_call_sends_a_request(api):
    """Credentials come from the environment, and the result is on stdout."""
    api.reply = Reply(body=b'{"name":"Rex"}')
    done = command(
        "call",
        "openapi:pets.json",
        "getPet",
        "id=7",
        "--base-url",
        f"{api.url}/v1",
        TOOLWIRE_AUTH_KEY="my-own-key",
    )
    assert json.loads(done.stdout) == {"name": "Rex"}
    assert api.last.target == "/v1/pets/7"
    assert api.last.header("X-Key") == ["my-own-key"]


def test_call_without_a_base_url_is_an_error():
    """The server that the document names is not called unless the user allows it."""
    done = command("call", "openapi:pets.json", "listPets", code=1)
    assert "--base-url" in done.stdout + done.stderr
    assert "https://pets.example.com/v1" in done.stdout + done.stderr


def test_check_reports_what_a_model_has_trouble_with():
    """Operations that are left out and why, missing descriptions, names that are too long, missing credentials."""
    report = json.loads(command("check", "openapi:pets.json", "--json").stdout)
    said = "\n".join(each["what"] for each in report["findings"])
    assert "TRACE /pets/{id} is left out" in said
    assert "POST /other is left out: it refers to 'other.json'" in said
    assert "1 tool has neither summary nor description: post_bare" in said
    assert "is too long (90 characters)" in said
    assert "no call can be made" in said
    assert "TOOLWIRE_AUTH_KEY" in said
    assert report["ok"]
    command("check", "openapi:pets.json", "--strict", code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tools", "openapi:nowhere.yaml"], "does not exist"),
        (["tools", "openapi:pets.json", "--allow-network", "x"], "network"),
        (["call", "app.py", "x", "--base-url", "https://x.example"], "only applies to openapi: targets"),
        (["check", "app.py", "--credentials", "x"], "--credentials only applies to openapi: targets"),
        (["call", "openapi:pets.json", "listPets", "--base-url", "http://x.example"], "base_url"),
        (["new", "x", "--from", "petstore.yaml"], "openapi:DOCUMENT"),
        (["new", "x", "--include", "y"], "only apply with --from"),
        (
            ["new", "pets2", "--from", "openapi:pets.json", "--include", "nothing"],
            "no operation that can be used",
        ),
    ],
)
def test_mistakes_are_one_line_errors(arguments, said):
    """With exit code 2."""
    assert said in command(*arguments, code=2).stderr


def test_an_unusable_document_is_an_error(folder):
    """With the reason."""
    (folder / "bad.yaml").write_text("openapi: [")
    assert "neither JSON nor YAML" in command("tools", "openapi:bad.yaml", code=1).stderr


@pytest.mark.process
def test_new_writes_a_project_whose_tests_pass(folder):
    """It has the chosen operations and a copy of the document; a hostile title in the document adds no code."""
    command("new", "my-pets", "--from", "openapi:pets.json", "--include", "*Pet*")
    project = folder / "my-pets"
    assert json.loads((project / "openapi.json").read_text()) == PETS
    assert "'https://pets.example.com/v1'" in (project / "my_pets.py").read_text()
    assert "\nimport os" not in (project / "my_pets.py").read_text()
    assert "TOOLWIRE_AUTH_KEY" in (project / "README.md").read_text()
    env = {"PATH": os.defpath, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", env=env, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.process
def test_serve_offers_the_operations_over_stdio(api):
    """Any client can call them; operations that were left out are named on stderr."""
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    last = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "listPets", "arguments": {}},
    }
    with subprocess.Popen(
        [sys.executable, "-m", "toolwire", "serve", "openapi:pets.json", "--base-url", api.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "HOME": os.environ.get("HOME", "/")},
    ) as served:
        served.stdin.write(b"".join(as_json(line) + b"\n" for line in lines))
        served.stdin.flush()
        answers = [json.loads(served.stdout.readline()) for _ in range(2)]
        served.stdin.write(as_json(last) + b"\n")
        served.stdin.flush()
        while (answer := json.loads(served.stdout.readline())).get("id") != 3:
            answers.append(answer)
        _, errors = served.communicate(timeout=30)
    assert "listPets" in json.dumps(answers)
    assert answer["result"]["content"][0]["text"] == '{"ok":true}'
    assert b"left out: TRACE /pets/{id}" in errors


def test_config_writes_an_entry_that_works_from_any_folder(folder):
    """The entry has the absolute path, the address as a variable, and no credentials."""
    done = command(
        *(
            "config",
            "openapi:pets.json",
            "--for",
            "cursor",
            "--env",
            "TOOLWIRE_BASE_URL=https://pets.example.com/v1",
        ),
        TOOLWIRE_AUTH_KEY="my-own-key",
    )
    (entry,) = json.loads(done.stdout)["mcpServers"].values()
    assert f"openapi:{folder}/pets.json" in entry["args"]
    assert entry["env"]["TOOLWIRE_BASE_URL"] == "https://pets.example.com/v1"
    assert "my-own-key" not in done.stdout + done.stderr


def test_progress_is_one_line_that_is_overwritten():
    """The line is cleared at the end; quick work shows nothing."""
    import io  # noqa: PLC0415 - only here

    stream = io.StringIO()
    progress = LoadProgress(stream, quiet=0)
    progress("reading operations", 100, 5_000)
    progress("", 0, 0)
    assert stream.getvalue().startswith("\rreading operations: 100 of 5,000\r")
    assert stream.getvalue().rstrip(" ").endswith("\r")
    quiet = io.StringIO()
    LoadProgress(quiet)("reading", 0, 0)
    assert quiet.getvalue() == ""
