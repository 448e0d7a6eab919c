"""Prompts of a `ToolServer`: lists, results, and the errors for mistakes."""

import logging
import threading
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Annotated, Any, Literal

import anyio
import pytest
from mcp.types import PromptMessage, TextContent
from pydantic import AfterValidator, Field

from shared.doubles import RecordingChannel, connected
from toolwire import (
    Audio,
    Context,
    Image,
    Resource,
    ResourceLink,
    ResourceNotFoundError,
    ToolDefinitionError,
    ToolError,
    ToolServer,
)
from toolwire._protocol.jsonrpc import Interrupted
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def review(code: str, style: Literal["brief", "full"] = "brief") -> str:
    """Review some code.

    Args:
        code: What to look at.
    """
    return f"Review ({style}): {code}"


async def get(client, name, **arguments):
    """Return the result of a prompt, or the error."""
    answer = await client.request("prompts/get", {"name": name, "arguments": arguments})
    return answer["result"] if "result" in answer else answer["error"]


async def messages_of(value):
    """Return the response to a prompt whose function returns `value`."""
    server = ToolServer("s")
    server.add_prompt(lambda: value, name="p")
    async with connected(server) as client:
        return await get(client, "p")


def said(text, role="user"):
    """Return a text message."""
    return {"role": role, "content": {"type": "text", "text": text}}


# Lists.


async def test_what_is_listed():
    """Names, descriptions and required arguments are taken from signature and docstring."""
    server = ToolServer("s")
    server.add_prompt(review, title="Review", icons=[{"src": "https://x/i"}], meta={"m": 1})

    @server.prompt(name="other", description="Another.")
    def function(
        context: Context,
        a: Annotated[int, "A number."],
        b: Annotated[str, Field(title="B", description="Some text.")] = "",
    ) -> str:
        return ""

    async with connected(server) as client:
        assert (await client.request("prompts/list"))["result"]["prompts"] == [
            {
                "name": "review",
                "description": "Review some code.",
                "title": "Review",
                "arguments": [
                    {"name": "code", "description": "What to look at.", "required": True},
                    {"name": "style", "required": False},
                ],
                "icons": [{"src": "https://x/i"}],
                "_meta": {"m": 1},
            },
            {
                "name": "other",
                "description": "Another.",
                "arguments": [
                    {"name": "a", "description": "A number.", "required": True},
                    {"name": "b", "title": "B", "description": "Some text.", "required": False},
                ],
            },
        ]


@pytest.mark.slow
async def test_a_long_list_comes_in_pages():
    """1,001 prompts come in two pages; cursors are checked."""
    server = ToolServer("s")
    for n in range(1_001):
        server.add_prompt(lambda: "", name=f"p{n}")
    async with connected(server) as client:
        first = (await client.request("prompts/list"))["result"]
        assert len(first["prompts"]) == 1_000
        second = (await client.request("prompts/list", {"cursor": first["nextCursor"]}))["result"]
        assert [each["name"] for each in second["prompts"]] == ["p1000"]
        assert (await client.request("prompts/list", {"cursor": "x"}))["error"]["code"] == -32602
        server.remove_prompt("p0")
        assert "nextCursor" not in (await client.request("prompts/list"))["result"]
        server.add_prompt(lambda: "", name="last")
        assert "nextCursor" in (await client.request("prompts/list"))["result"]


async def test_capabilities_tell_of_what_is_there():
    """The capability is declared only while there are prompts; the methods stay once there was one."""
    server = ToolServer("s")
    async with connected(server) as client:
        for method in ("prompts/list", "prompts/get"):
            assert (await client.request(method, {"name": "p"}))["error"]["code"] == -32601
        server.add_prompt(lambda: "", name="p")
        capabilities = (await client.request("initialize"))["result"]["capabilities"]
        assert capabilities == {
            "tools": {"listChanged": True},
            "logging": {},
            "prompts": {"listChanged": True},
        }
        server.remove_prompt("p")
        assert "prompts" not in server.capabilities()
        assert (await client.request("prompts/list"))["result"] == {"prompts": []}


async def test_changes_are_announced_once_per_batch():
    """Several changes at once cause one notification, and none about tools."""
    server, channel = ToolServer("s"), RecordingChannel()
    async with connected(server, channel):
        for n in range(5):
            server.add_prompt(lambda: "", name=f"p{n}")
        server.remove_prompt("p2")
        await anyio.wait_all_tasks_blocked()
        assert channel.told == [{"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}]
        server.remove_prompt("p3")
        await anyio.wait_all_tasks_blocked()
        assert len(channel.told) == 2
    assert list(server.prompts) == ["p0", "p1", "p4"]


# Arguments.


@dataclass
class Range:
    low: int
    high: int


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (str, '["a"]', '["a"]'),
        (Any, "5", "5"),
        (int, "5", 5),
        (float, "1.5", 1.5),
        (bool, "true", True),
        (bool, "no", False),
        (date, "2025-01-02", date(2025, 1, 2)),
        (int | None, "5", 5),
        (int | None, "null", None),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Range, '{"low": 1, "high": 2}', Range(1, 2)),
        (Literal[1, 2], "2", 2),
        (Literal["1", 2], "1", "1"),
        (Level, "2", Level.HIGH),
    ],
    ids=str,
)
async def test_arguments_are_converted(annotation, text, value):
    """MCP sends strings, which become the annotated types: directly, or parsed as JSON."""
    seen = []

    def prompt(x):
        seen.append(x)
        return ""

    prompt.__annotations__ = {"x": annotation}
    server = ToolServer("s")
    server.add_prompt(prompt)
    async with connected(server) as client:
        assert "messages" in await get(client, "prompt", x=text)
    assert seen == [value]
    assert type(seen[0]) is type(value)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({}, {"numbers", "style"}),
        ({"numbers": "[1]", "style": "loud"}, {"style"}),
        ({"numbers": "[1", "style": "brief"}, {"numbers"}),
        ({"numbers": '[1, "x"]', "style": "brief"}, {"numbers[1]"}),
        ({"numbers": [1, "x"], "style": "5"}, {"numbers[1]", "style"}),
        ({"numbers": "7", "style": "5", "more": "x"}, {"numbers", "style", "more"}),
    ],
    ids=["missing", "literal", "no-json", "inside", "no-text", "all"],
)
async def test_every_violation_of_a_prompt_is_named(arguments, paths):
    """Missing, unknown and wrong arguments are all listed, with the values as they were sent."""
    server = ToolServer("s")

    @server.prompt
    def prompt(numbers: list[int], style: Literal["brief", "full"]) -> str:
        raise AssertionError("never called")

    async with connected(server) as client:
        error = await get(client, "prompt", **arguments)
    assert error["code"] == -32602
    assert {each["path"] for each in error["data"]["violations"]} == paths
    assert (error["data"]["prompt"], error["data"]["server"]) == ("prompt", "s")
    if "more" in arguments:
        assert "got '7'" in error["message"]


async def test_a_check_that_fails_itself_is_answered():
    """If a validator of the user's raises an unexpected exception, the client gets an internal error."""

    def check(value):
        raise KeyError("oops")

    server = ToolServer("s")

    @server.prompt
    def prompt(x: Annotated[str, AfterValidator(check)]) -> str:
        return x

    async with connected(server) as client:
        error = await get(client, "prompt", x="a")
    assert (error["code"], error["message"]) == (-32603, "KeyError: 'oops'")


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"name": "reviw"}, "Unknown prompt: 'reviw'. Did you mean 'review'?"),
        ({"name": "zzz"}, "Unknown prompt: 'zzz'."),
        ({}, "name must be a string, got nothing"),
        ({"name": 5}, "name must be a string, got int"),
        ({"name": "review", "arguments": []}, "arguments must be an object, got list"),
    ],
    ids=["near", "far", "none", "number", "list"],
)
async def test_requests_that_fit_no_prompt(params, what):
    """The error says what is wrong."""
    server = ToolServer("s")
    server.prompt(review)
    async with connected(server) as client:
        error = (await client.request("prompts/get", params))["error"]
    assert error["code"] == -32602
    assert error["message"].endswith(what)


# Results.


async def test_a_prompt_is_filled_in():
    """A returned string becomes one message of the user; the description is in the result."""
    server = ToolServer("s")
    server.prompt(review)
    async with connected(server) as client:
        assert await get(client, "review", code="x = 1") == {
            "description": "Review some code.",
            "messages": [said("Review (brief): x = 1")],
        }


MESSAGES = {
    "text": ("a", [said("a")]),
    "pair": (("assistant", "a"), [said("a", "assistant")]),
    "pair-of-roles": (("user", "assistant"), [said("assistant")]),
    "pair-with-list": (("assistant", ["a", "b"]), [said("a", "assistant"), said("b", "assistant")]),
    "dict": ({"role": "assistant", "content": "a"}, [said("a", "assistant")]),
    "whole-dict": (said("a", "assistant"), [said("a", "assistant")]),
    "dict-with-content": (
        {"role": "user", "content": ResourceLink("a://b", "b")},
        [{"role": "user", "content": {"type": "resource_link", "uri": "a://b", "name": "b"}}],
    ),
    "image": (
        Image(PNG),
        [
            {
                "role": "user",
                "content": {"type": "image", "data": Image(PNG).block()["data"], "mimeType": "image/png"},
            }
        ],
    ),
    "audio": (
        ("user", Audio(b"x", mime_type="audio/wav")),
        [{"role": "user", "content": {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}}],
    ),
    "resource": (
        Resource("a://b", text="t"),
        [{"role": "user", "content": {"type": "resource", "resource": {"uri": "a://b", "text": "t"}}}],
    ),
    "list": (["a", ("assistant", "b"), said("c")], [said("a"), said("b", "assistant"), said("c")]),
    "tuple": (("a", "b", "c"), [said("a"), said("b"), said("c")]),
    "nothing-said": ([], []),
    "mcp": (
        PromptMessage(role="assistant", content=TextContent(type="text", text="a")),
        [said("a", "assistant")],
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
async def test_results(case):
    """Each form of returned messages gives the right messages."""
    value, expected = MESSAGES[case]
    assert (await messages_of(value))["messages"] == expected


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "NoneType is not a message: return a str"),
        (5, "int is not a message"),
        ({"a": 1}, "dict is not a message"),
        ({"role": "system", "content": "a"}, "role must be 'user' or 'assistant', not 'system'"),
        ({"role": "user", "content": {"type": "video"}}, "unknown type 'video'"),
        (["a", 5], "int is not a message"),
    ],
    ids=["none", "number", "data", "role", "block", "inside"],
)
async def test_results_that_are_no_messages(value, what):
    """A value that cannot be a message is an internal error with a hint."""
    error = await messages_of(value)
    assert error["code"] == -32603
    assert error["message"].startswith("Prompt 'p': ")
    assert what in error["message"]


@pytest.mark.parametrize(
    ("error", "message", "logged"),
    [
        (ToolError("Not today."), "Not today.", False),
        (ValueError("bad"), "ValueError: bad", True),
        (ResourceNotFoundError("x"), "ResourceNotFoundError: x", True),
    ],
    ids=["tool-error", "value-error", "not-found"],
)
async def test_what_a_function_raises(caplog, error, message, logged):
    """A `ToolError` is sent with its own text, others with their type; those are logged with a traceback."""

    def fail():
        raise error

    server = ToolServer("s")
    server.add_prompt(fail)
    async with connected(server) as client:
        with caplog.at_level(logging.WARNING, logger="toolwire.server"):
            answer = await get(client, "fail")
    assert answer == {"code": -32603, "message": message, "data": {"prompt": "fail", "server": "s"}}
    assert ("Traceback" in caplog.text) is logged


async def test_async_and_sync_functions_and_the_context():
    """Sync functions run in threads, async ones on the event loop; both can elicit."""
    here, channel = threading.get_ident(), RecordingChannel({"elicitation/create": {"action": "decline"}})
    server = ToolServer("s")

    @server.prompt
    def threaded(context: Context) -> str:
        return f"{context.tool} {context.wait(context.elicit('?')).action} {threading.get_ident() == here}"

    @server.prompt()
    async def on_loop(context: Context) -> str:
        return f"{context.tool} {(await context.elicit('?')).action} {threading.get_ident() == here}"

    async with connected(server, channel) as client:
        assert (await get(client, "threaded"))["messages"] == [said("threaded decline False")]
        assert (await get(client, "on_loop"))["messages"] == [said("on_loop decline True")]


async def test_time_out_and_interruption(caplog):
    """The server's timeout applies to prompts; `Interrupted` passes out of the call, also out of a task group."""

    def interrupt(params):
        raise Interrupted

    server, channel = ToolServer("s", timeout=0.05), RecordingChannel({"roots/list": interrupt})

    @server.prompt
    async def slow() -> str:
        await anyio.sleep_forever()

    @server.prompt
    async def asks(context: Context) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(context.roots)
        return ""

    async with connected(server, channel) as client:
        assert (await get(client, "slow"))["message"] == "Prompt 'slow' timed out after 0.05 s"
        with pytest.raises(Interrupted):
            await get(client, "asks")
    assert caplog.text == ""


# Definitions.


def takes_any(**rest: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "settings", "what"),
    [
        (takes_any, {}, "prompt 'takes_any': parameter '**rest': use one parameter"),
        (5, {}, "expected a function, got 5"),
        (review, {"name": "::"}, "no letter or digit"),
        (review, {"timeout": -1}, "timeout"),
        (review, {"description": 5}, "the description must be a string"),
        (review, {"tittle": "x"}, "a prompt has no setting tittle"),
        (
            review,
            {"complete": {"cod": ["x"]}},
            "complete names 'cod', which is not one of its arguments (code",
        ),
        (review, {"complete": {"code": "abc"}}, "must be a list of strings or a function"),
        (review, {"complete": {"code": [1]}}, "all values must be strings"),
        (review, {"complete": ["code"]}, "complete must be a dict"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_definitions_that_cannot_work(function, settings, what):
    """The error is raised by the definition, and says what is wrong, where, and what to do."""
    server = ToolServer("s")
    with pytest.raises(ToolDefinitionError) as caught:
        server.add_prompt(function, **settings)
    assert what in str(caught.value)
    assert not server.prompts


def test_names_that_are_taken():
    """A name can be used once, or replaced with replace=True; removing an unknown one suggests the most similar."""
    server = ToolServer("s")
    assert server.prompt(review) is review
    with pytest.raises(ToolDefinitionError, match="prompt 'review': the server already has it; replace=True"):
        server.prompt(review)
    again = server.add_prompt(lambda: "", name="review", replace=True)
    assert server.prompts == {"review": again}
    with pytest.raises(KeyError, match="Did you mean 'review'"):
        server.remove_prompt("revew")


async def test_the_test_client_fills_in_prompts():
    """The client of `connect()` lists and gets the prompts of a `ToolServer`."""
    server = ToolServer("s")
    server.prompt(review)
    with anyio.fail_after(20):
        async with connect(server) as client:
            (listed,) = await client.list_prompts()
            assert (listed.name, listed.arguments) == ("review", ("code", "style"))
            assert (await client.get_prompt("review", code="x", style="full")).text == "Review (full): x"
