"""The official TypeScript clients, the old library and the new one, over stdio and HTTP.

`talk.mjs` has the whole conversation, and prints what it saw in each step; the tests check the steps.
"""

import json
import shutil

import pytest

from clients.clientele import BUILD, HERE, SERVE, install, play, served

CLIENTS = [("1", "legacy"), ("2", "legacy"), ("2", "modern")]
INVALID_PARAMS = -32602
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
# Errors over HTTP: `mcp` ends the stream of a cancelled call with an error, and clients end their own.
HARMLESS = ('"message":"Request cancelled"', "SSE stream disconnected: AbortError")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Serve the app over HTTP, and yield its address."""
    install()
    with served(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(
    scope="module",
    params=[(sdk, era, transport) for sdk, era in CLIENTS for transport in ("stdio", "http")],
    ids="-".join,
)
def seen(request, url, tmp_path_factory):
    """Run the conversation, and return what the client saw."""
    sdk, era, transport = request.param
    script = shutil.copy(HERE / "talk.mjs", BUILD)
    where = {"command": SERVE} if transport == "stdio" else {"url": url}
    done = play(script, json.dumps({"sdk": sdk, "era": era, **where}), home=tmp_path_factory.mktemp("talk"))
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "era": era}


def text(result):
    return result["content"][0]["text"]


def test_hello(seen):
    """The client and the server agree on the newest version of the era, and there is no unexpected error."""
    assert seen["version"] == VERSIONS[seen["era"]]
    assert (seen["server"]["name"], seen["server"]["version"]) == ("everyday", "1.2.3")
    assert seen["close"] == "closed"
    assert [each for each in seen["errors"] if not any(known in each for known in HARMLESS)] == []


def test_list_and_call(seen):
    """Tools are listed and called, also with structured results; 2,500 of them arrive in pages."""
    assert {"add", "stock", "fail"} <= set(seen["list"]["found"])
    assert text(seen["call"]) == "42.0"
    assert seen["structured"]["structuredContent"] == {"tea": 3}
    more = len(seen["list"]["found"]) + 2_500
    assert seen["paging"] == {"all": more, "different": more}


def test_errors(seen):
    """Failing tools and wrong arguments are error results, an unknown tool is a JSON-RPC error."""
    assert (seen["fail"]["isError"], text(seen["fail"])) == (True, "out of tea")
    assert seen["wrong"]["isError"]
    assert "a: Input should be a valid number" in text(seen["wrong"])
    assert seen["unknown"]["code"] == INVALID_PARAMS
    assert "Unknown tool: 'ad'. Did you mean 'add'?" in seen["unknown"]["threw"]


def test_list_changed(seen):
    """A client is notified of a new tool, lists again by itself, and calls it."""
    assert text(seen["changed"]) == "I am new"


def test_progress(seen):
    """Progress notifications come in order, before the response."""
    assert text(seen["progress"]["answer"]) == "there"
    assert [(each["progress"], each["total"], each["message"]) for each in seen["progress"]["steps"]] == [
        (done, 3, f"step {done}") for done in (1, 2, 3)
    ]


@pytest.mark.parametrize("step", ["cancel hang", "cancel busy", "time-out"])
def test_cancel(seen, step):
    """A call that the client cancels, or that times out there, is cancelled in the server."""
    assert seen[step]["outcome"] == "gave up"
    assert text(seen[step]["answer"]) == "true"


def test_questions(seen):
    """Tools send elicitation requests, one after the other and several at once, in the way of each era."""
    assert text(seen["ask twice"]) == "Ada is 36"
    assert text(seen["ask together"]) == "age=36 name='Ada'"
    assert seen["asked"][:2] == ["Your name?", "Your age?"]
    assert sorted(seen["asked"][2:4]) == ["Your age?", "Your name?"]
    if seen["era"] == "modern":
        assert "must not run twice" in seen["pay"]["threw"]
        assert len(seen["asked"]) == 4
    else:
        assert text(seen["pay"]) == "paid by Ada"
    assert "needs the client capability elicitation" in seen["mute"]["threw"]


def test_logging(seen):
    """Log messages are sent from the level on that the client has set."""
    assert text(seen["log"]) == "said"
    assert seen["logged"] == [["info", {"size": "middle"}], ["error", "big"]]


def test_resources_and_prompts(seen):
    """Resources and prompts are listed, read and completed; updated contents are announced."""
    assert [each["uri"] for each in seen["resources"]["resources"]] == ["config://app", "picture://dot"]
    assert seen["templates"]["resourceTemplates"][0]["uriTemplate"] == "users://{name}/notes"
    assert seen["read"]["contents"][0]["text"] == "ada was here"
    assert seen["updated"] == "config://app"
    assert [each["name"] for each in seen["prompts"]["prompts"]] == ["review"]
    assert seen["prompt"]["messages"][0]["content"]["text"] == "Review in English: x"
    assert seen["complete"]["completion"]["values"] == ["English", "Esperanto"]
