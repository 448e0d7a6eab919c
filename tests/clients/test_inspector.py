"""The MCP Inspector in its command-line mode, over stdio and HTTP, in both eras of the protocol."""

import json

import pytest

from clients.clientele import BUILD, SERVE, install, play, served

SCRIPT = BUILD / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
TOOL_FAILED = 5


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Serve the app over HTTP, and yield its address."""
    install()
    with served(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(
    params=[(transport, era) for transport in ("stdio", "http") for era in ("legacy", "modern")],
    ids="-".join,
    scope="module",
)
def inspect(request, url, tmp_path_factory):
    """Return a function that runs one method and returns the exit code, the result from its JSON, and stderr."""
    transport, era = request.param
    home = tmp_path_factory.mktemp("inspector")
    first, last = ((), ("--", *SERVE)) if transport == "stdio" else ((url, "--transport", "http"), ())

    def run(method, *more):
        options = ("--format", "json", "--protocol-era", era, "--method", method, *more)
        done = play(SCRIPT, "--cli", *first, *options, *last, home=home)
        return done.returncode, json.loads(done.stdout)["result"] if done.stdout else None, done.stderr

    return run


def test_tools(inspect):
    """Tools are listed and called; a failing and an unknown tool have different errors."""
    code, listed, _ = inspect("tools/list", "--strict")
    assert code == 0
    assert {"add", "stock", "fail"} <= {each["name"] for each in listed["tools"]}
    code, called, _ = inspect(
        "tools/call", "--tool-name", "add", "--tool-args-json", json.dumps({"a": 15, "b": 27})
    )
    assert (code, called["content"]) == (0, [{"type": "text", "text": "42.0"}])
    code, failed, said = inspect("tools/call", "--tool-name", "fail", "--tool-arg", "reason=rain")
    assert (code, failed["isError"], failed["content"][0]["text"]) == (TOOL_FAILED, True, "rain")
    assert "tool_is_error" in said
    code, _, said = inspect("tools/call", "--tool-name", "nope")
    assert code != 0
    assert "tool_not_found" in said


def test_resources_and_prompts(inspect):
    """Resources and prompts are listed and read."""
    code, listed, _ = inspect("resources/list")
    assert (code, [each["uri"] for each in listed["resources"]]) == (0, ["config://app", "picture://dot"])
    code, listed, _ = inspect("resources/templates/list")
    assert (code, listed["resourceTemplates"][0]["uriTemplate"]) == (0, "users://{name}/notes")
    code, read, _ = inspect("resources/read", "--uri", "users://ada/notes")
    assert (code, read["contents"][0]["text"]) == (0, "ada was here")
    code, listed, _ = inspect("prompts/list")
    assert (code, [each["name"] for each in listed["prompts"]]) == (0, ["review"])
    code, made, _ = inspect("prompts/get", "--prompt-name", "review", "--prompt-args", "code=x")
    assert (code, made["messages"][0]["content"]["text"]) == (0, "Review in English: x")
