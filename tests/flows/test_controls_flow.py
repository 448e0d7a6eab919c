"""Control requests as a user sees them: what is sent, what is refused before that, and what faults lead to."""

import json

import anyio
import pytest
from anyio.lowlevel import checkpoint

from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    CLITimeoutError,
    ControlRequestError,
    HookMatcher,
    Transport,
    UnsupportedRequestError,
)

pytestmark = pytest.mark.anyio

LIMIT = 20
VERSION = "2.0.1"


class Peer(Transport):
    """A CLI in memory: responds by a table of functions; with `{}` if it has none; not if one returns None."""

    def __init__(self, **answers):
        self.asked = []
        self.unanswered = []
        self._answers = {"initialize": lambda _: {"claude_code_version": VERSION}, **answers}
        self._send, self._receive = anyio.create_memory_object_stream(1000)

    async def connect(self):
        pass

    async def write(self, data):
        frame = json.loads(data)
        if frame["type"] == "control_request":
            request, request_id = frame["request"], frame["request_id"]
            self.asked.append(request)
            self.reply(request_id, self._answers.get(request["subtype"], lambda _: {})(request))
        await checkpoint()

    def reply(self, request_id, answer):
        if answer is None:
            self.unanswered.append(request_id)
            return
        good = {"subtype": "success", "response": answer}
        body = answer if answer.get("subtype") == "error" else good
        self._send.send_nowait({"type": "control_response", "response": {**body, "request_id": request_id}})

    async def read_messages(self):
        async with self._receive:
            async for frame in self._receive:
                yield frame

    async def close(self):
        self._send.close()

    def is_ready(self):
        return True

    async def end_input(self):
        self._send.close()


def refused(text, code=None):
    """Return a function that answers a request with an error response."""
    return lambda _: {"subtype": "error", "error": text, **({"error_code": code} if code else {})}


def talking_to(peer, **options):
    return ClaudeSDKClient(ClaudeAgentOptions(**options), transport=peer)


SENT = [
    ("interrupt", (), {}, {"subtype": "interrupt"}),
    ("interrupt", (True,), {}, {"subtype": "interrupt", "cancel_queued": True}),
    ("set_model", (), {}, {"subtype": "set_model", "model": None}),
    ("background_tasks", (), {}, {"subtype": "background_tasks"}),
    ("rewind_files", ("u",), {}, {"subtype": "rewind_files", "user_message_id": "u"}),
    ("rewind_files", ("u", True), {}, {"subtype": "rewind_files", "user_message_id": "u", "dry_run": True}),
    ("get_context_usage", (), {}, {"subtype": "get_context_usage"}),
    (
        "set_max_thinking_tokens",
        (None,),
        {},
        {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": None},
    ),
    (
        "set_max_thinking_tokens",
        (0, None),
        {},
        {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 0, "thinking_display": None},
    ),
    (
        "side_question",
        ("Well?",),
        {"history": [{"question": "a", "response": "b"}], "control_timeout": 5},
        {"subtype": "side_question", "question": "Well?", "history": [{"question": "a", "response": "b"}]},
    ),
    (
        "reload_plugins",
        (),
        {"add_plugins": [{"type": "local", "path": "/p"}]},
        {"subtype": "reload_plugins", "add_plugins": [{"type": "local", "path": "/p"}]},
    ),
    (
        "read_file",
        ("a", 3, "base64"),
        {},
        {"subtype": "read_file", "path": "a", "max_bytes": 3, "encoding": "base64"},
    ),
    (
        "set_cwd",
        ("/a",),
        {"trusted_directory": "/a"},
        {"subtype": "set_cwd", "path": "/a", "trust_accepted": True, "trusted_directory": "/a"},
    ),
    ("control_request", ("brew_tea",), {"cups": 2}, {"subtype": "brew_tea", "cups": 2}),
]


@pytest.mark.parametrize(("name", "arguments", "more", "request_body"), SENT)
async def test_what_is_sent(name, arguments, more, request_body):
    """Arguments that were not given are not sent, so that the CLI's own defaults apply."""
    peer = Peer()
    with anyio.fail_after(LIMIT):
        async with talking_to(peer) as client:
            await getattr(client, name)(*arguments, **more)
    assert peer.asked[1] == request_body


WRONG = [
    ("set_model", (5,), TypeError, "model must be a string, got int"),
    ("set_permission_mode", ("",), ValueError, "mode must not be empty"),
    ("stop_task", (None,), TypeError, "task_id must be a string, got NoneType"),
    ("get_context_usage", ("all",), ValueError, "detail must be one of 'summary', 'full', None, got 'all'"),
    ("set_max_thinking_tokens", ("many",), TypeError, "must be an integer or None, got str"),
    ("set_max_thinking_tokens", (1, "loud"), ValueError, "thinking_display must be one of"),
    ("apply_flag_settings", ("x",), TypeError, "settings must be a dict, got str"),
    ("apply_flag_settings", ({1: 2},), TypeError, "keys of settings must be strings, got 1"),
    ("update_settings", ("policy", {}), ValueError, "source must be one of"),
    ("read_file", ("a", 0), ValueError, "max_bytes must be above zero"),
    ("read_file", ("a", "1"), TypeError, "max_bytes must be a number"),
    ("seed_read_state", ("a", 1.5), TypeError, "whole milliseconds"),
    ("file_suggestions", (None,), TypeError, "query must be a string"),
    ("read_mcp_resource", ("s", "http://x"), ValueError, "must begin with ui://"),
    ("mcp_call", ("t", [1]), TypeError, "arguments must be a dict"),
    ("side_question", ("q", [{"question": "a"}]), ValueError, "needs 'response' as a string"),
    ("reload_plugins", (), ValueError, "must be absolute"),
    ("set_mcp_servers", ([],), TypeError, "servers must be a dict"),
    ("set_mcp_permission_mode_override", ("s", "plan"), ValueError, "mode must be one of"),
    ("wait_until_ready", (0,), ValueError, "timeout must be above zero"),
    ("wait_until_ready", (1, "calc"), TypeError, "list of names"),
    ("control_request", ("",), ValueError, "subtype must not be empty"),
]


@pytest.mark.parametrize(("name", "arguments", "kind", "text"), WRONG)
async def test_wrong_arguments_are_refused_before_anything_is_sent(name, arguments, kind, text):
    """The error names the argument and what it should be."""
    peer = Peer()
    more = {"add_plugins": [{"type": "local", "path": "p"}]} if name == "reload_plugins" else {}
    with anyio.fail_after(LIMIT):
        async with talking_to(peer) as client:
            with pytest.raises(kind, match=text):
                await getattr(client, name)(*arguments, **more)
    assert [request["subtype"] for request in peer.asked] == ["initialize"]


async def test_an_older_cli_is_named():
    """A request that the CLI does not know raises an error that says which CLI it is and what to do."""
    peer = Peer(get_plan=refused("Unsupported control request subtype: get_plan", "unsupported_request"))
    with anyio.fail_after(LIMIT):
        async with talking_to(peer) as client:
            with pytest.raises(UnsupportedRequestError, match=f"Claude Code {VERSION} does not") as error:
                await client.get_plan()
    assert (error.value.subtype, error.value.error_code) == ("get_plan", "unsupported_request")
    assert "cli_path" in str(error.value)


async def test_a_refusal_keeps_the_words_and_the_code():
    """Any other error response is raised with the CLI's text and its error code."""
    peer = Peer(reload_plugins=refused("The session is busy", "reload_plugins_busy"))
    with anyio.fail_after(LIMIT):
        async with talking_to(peer) as client:
            with pytest.raises(ControlRequestError, match="^The session is busy$") as error:
                await client.reload_plugins(refuse_if_busy=True)
    assert (error.value.subtype, error.value.error_code) == ("reload_plugins", "reload_plugins_busy")


async def test_a_late_answer_finds_nobody():
    """After a timeout or a cancelled wait the session goes on, and the late response is ignored."""
    peer = Peer(get_plan=lambda _: None)
    with anyio.fail_after(LIMIT):
        async with talking_to(peer, control_timeout=0.05) as client:
            with pytest.raises(CLITimeoutError, match="get_plan.*within 0.05 s"):
                await client.get_plan()
            with anyio.move_on_after(0.05) as scope:
                await client.control_request("get_plan", control_timeout=LIMIT)
            assert scope.cancelled_caught
            assert len(peer.unanswered) == 2
            for request_id in peer.unanswered:
                peer.reply(request_id, {"exists": True})
            assert await client.set_model("m") == "m"


async def test_without_a_connection_each_request_says_so():
    """Before the start and after the end, requests raise CLIConnectionError instead of hanging."""
    client = talking_to(Peer())
    with pytest.raises(CLIConnectionError, match="Not connected"):
        await client.get_usage()
    async with client:
        pass
    for ask in (client.interrupt, client.supported_models, client.wait_until_ready, client.reinitialize):
        with pytest.raises(CLIConnectionError, match="Not connected"):
            await ask()


async def test_an_interrupt_gets_through_unread_messages(play):
    """Ten thousand unread messages delay neither the response to interrupt() nor any other response."""
    with anyio.fail_after(LIMIT):
        async with ClaudeSDKClient(play("flood")) as client:
            await client.query("go")
            assert await client.interrupt() == {"subtype": "interrupt"}  # what the stand-in CLI responds
            assert await client.set_model("good") == "good"
            assert client.unread > 10_000


async def test_answers_of_an_old_cli_lack_things():
    """An empty response is no error: a missing part is empty in the result, or is what was requested."""
    with anyio.fail_after(LIMIT):
        async with talking_to(Peer()) as client:
            assert await client.interrupt() == {}
            assert await client.set_permission_mode("plan") == "plan"
            assert await client.cancel_async_message("u") is False
            assert await client.background_tasks() is True
            assert await client.supported_models() == []
            assert await client.account_info() == {}


async def test_initializing_again_says_the_same():
    """The second initialize request repeats the first, hooks included, plus new fields; its response is kept."""

    async def hook(*_):
        return {}

    versions = iter(["1", "2"])
    peer = Peer(initialize=lambda _: {"claude_code_version": next(versions)})
    with anyio.fail_after(LIMIT):
        async with talking_to(peer, hooks={"Stop": [HookMatcher(hooks=[hook])]}, title="Tea") as client:
            await client.reinitialize(proactivity=True)
            assert (await client.initialization_result())["claude_code_version"] == "2"
    first, second = peer.asked
    assert first["hooks"]
    assert second == {**first, "proactivity": True}


def server(name, status, **more):
    return {"name": name, "status": status, **more}


def statuses(*stages):
    """Return a function that answers `mcp_status` with each stage once, and with the last one ever after."""
    left = list(stages)
    return lambda _: {"mcpServers": left.pop(0) if len(left) > 1 else left[0]}


async def test_waiting_looks_until_the_tools_are_there():
    """A server that is not listed, is pending or has no tools is not ready yet; a disabled one does not count."""
    done = [server("a", "connected", tools=[]), server("b", "disabled")]
    peer = Peer(
        mcp_status=statuses(
            [], [server("a", "pending")], [server("a", "connected")], done, [server("a", "failed")]
        )
    )
    with anyio.fail_after(LIMIT):
        async with talking_to(peer, mcp_servers={"a": {"command": "a"}}) as client:
            assert await client.wait_until_ready() == {"mcpServers": done}
            with pytest.raises(CLIConnectionError, match=r"^MCP servers not ready: a \(failed\)$"):
                await client.wait_until_ready()


async def test_waiting_ends_when_the_cli_does_not_answer():
    """The timeout holds even if the CLI never responds, and the error names the servers that were configured."""
    peer = Peer(mcp_status=lambda _: None)
    with anyio.fail_after(LIMIT):
        async with talking_to(peer, mcp_servers={"a": {"command": "a"}}) as client:
            with pytest.raises(CLITimeoutError, match=r"within 0.1 s: a \(not known to the CLI\)"):
                await client.wait_until_ready(0.1)
