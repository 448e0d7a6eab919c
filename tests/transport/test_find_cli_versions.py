"""CLIs of other versions: an unknown newer one works, with a warning, and what it adds is passed through."""

import logging

import pytest

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ToolServer,
    UnknownBlock,
    UnknownMessage,
    query,
)
from toolwire._conversation import wiring as _connect
from toolwire._transport.find_cli import OLDEST_SUPPORTED, TESTED, parse_version, version_warning
from toolwire.testing import ScriptedCLI, call, say

pytestmark = pytest.mark.anyio


class OtherCLI:
    """The scripted CLI with another version; `change(frame)` yields what it sends instead of a frame."""

    def __init__(self, script, version, change=lambda frame: [frame]):
        self.cli, self.version, self.change = ScriptedCLI(script), version, change
        self.written = []

    def __call__(self, command):
        transport = self.cli(command)
        read, write = transport.read_messages, transport.write

        async def altered():
            async for frame in read():
                body = frame.get("response", {}).get("response")
                if isinstance(body, dict) and "claude_code_version" in body:
                    body.update(claude_code_version=self.version)
                for each in self.change(frame):
                    yield each

        async def noted(data):
            self.written.append(data)
            await write(data)

        transport.read_messages, transport.write = altered, noted
        return transport


def options_for(cli, **more):
    calc = ToolServer("calc")

    @calc.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    given = {"mcp_servers": {"calc": calc}, "allowed_tools": ["mcp__calc"], **more}
    return ClaudeAgentOptions(spawn_claude_code_process=cli, **given)


def script():
    return [call("mcp__calc__add", a=15, b=27), lambda request: say(request.tool_results[0].text)]


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """Forget which warnings were logged: each comes once in a process, and here once in a test."""
    monkeypatch.setattr(_connect, "_warned", set())


def from_the_future(frame):
    """Yield what a CLI of 2099 might send: messages, blocks, fields and requests that are unknown today."""
    if frame["type"] == "assistant":
        yield {"type": "hologram", "session_id": "s", "beams": 3}
        yield {"type": "system", "subtype": "tea_is_ready", "cups": 2, "uuid": "u", "session_id": "s"}
        yield {
            "type": "control_request",
            "request_id": "tea",
            "request": {"subtype": "make_tea", "sugar": True},
        }
        yield {"type": "control_cancel_request", "request_id": "tea2", "why": {"not": "known"}}
        frame["message"]["content"].append({"type": "scent", "of": "jasmine"})
    if frame["type"] in {"assistant", "result"}:
        frame["mood"] = {"good": True}
    yield frame


async def test_an_unknown_newer_cli_works(caplog):
    """Tools are called and answered, what is new is passed through, and a warning says what to do."""
    cli = OtherCLI(script(), "99.0.0", from_the_future)
    with caplog.at_level(logging.WARNING, "toolwire"):
        options = options_for(cli, include_all_messages=True)
        messages = [message async for message in query(prompt="go", options=options)]
    assert isinstance(messages[-1], ResultMessage)
    assert messages[-1].result == "42"
    unknown = [each.raw for each in messages if isinstance(each, UnknownMessage)]
    assert {"type": "hologram", "session_id": "s", "beams": 3} in unknown
    assert next(each.data["cups"] for each in messages if getattr(each, "subtype", "") == "tea_is_ready") == 2
    blocks = [block for each in messages if isinstance(each, AssistantMessage) for block in each.content]
    assert any(isinstance(each, UnknownBlock) for each in blocks)
    assert any("tea" in line and "error" in line for line in cli.written), "the unknown request got no answer"
    (warning,) = [each.getMessage() for each in caplog.records if "99.0.0" in each.getMessage()]
    assert TESTED in warning
    assert "update toolwire" in warning


async def test_the_same_without_unknown_messages():
    """Without `include_all_messages`, unknown messages are left out."""
    cli = OtherCLI(script(), "99.0.0", from_the_future)
    messages = [message async for message in query(prompt="go", options=options_for(cli))]
    assert not [each for each in messages if isinstance(each, UnknownMessage)]
    assert messages[-1].result == "42"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (TESTED, None),
        (OLDEST_SUPPORTED, None),
        ("2.1.99999", None),
        ("2.2.0", "newer than"),
        ("3.0.0", "newer than"),
        ("2.0.77", "older than"),
        ("1.0.128", "older than"),
        (None, None),
        ("nightly", None),
        (7, None),
    ],
)
async def test_each_version_is_told_once(version, said, caplog):
    """Each version is warned about once, however many sessions there are, and no session fails."""
    with caplog.at_level(logging.WARNING, "toolwire"):
        for _ in range(2):
            async with ClaudeSDKClient(options_for(OtherCLI([say("hi")], version))) as client:
                await client.query("go")
                assert [message async for message in client.receive_response()][-1].result == "hi"
    told = [each.getMessage() for each in caplog.records if "Claude Code" in each.getMessage()]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


def test_versions_are_read_as_numbers():
    """So that 2.1.99 is older than 2.1.176."""
    assert parse_version("2.1.99 (Claude Code)") == (2, 1, 99)
    assert "older than" in version_warning("2.1.99")
    assert parse_version("2.1") is None
