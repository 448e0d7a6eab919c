"""Completion of arguments: where values come from, how many are returned, and errors for invalid requests."""

import threading
from enum import Enum
from itertools import count
from typing import Literal

import anyio
import pytest

from shared.doubles import connected
from toolwire import ToolDefinitionError, ToolError, ToolServer
from toolwire.testing import connect

pytestmark = pytest.mark.anyio


class Color(Enum):
    RED = "red"
    GREEN = "green"


async def offered(server, argument="x", value="", prompt="p", **context):
    """Return the completion, or the error."""
    ref = {"type": "ref/prompt", "name": prompt}
    params = {"ref": ref, "argument": {"name": argument, "value": value}, **context}
    async with connected(server) as client:
        answer = await client.request("completion/complete", params)
    return answer["result"]["completion"] if "result" in answer else answer["error"]


def completing(source, **settings):
    """Return a server with one prompt, whose argument x is completed by `source`."""
    server = ToolServer("s", **settings)
    server.add_prompt(lambda x, y="": "", name="p", complete={"x": source})
    return server


async def test_a_list_is_filtered_by_its_beginning():
    """Values that begin with the given text, in any case, are returned in their order."""
    server = completing(["Berlin", "Bern", "Rome", "BERGEN"])
    assert await offered(server, value="ber") == {
        "values": ["Berlin", "Bern", "BERGEN"],
        "total": 3,
        "hasMore": False,
    }
    assert (await offered(server))["total"] == 4
    assert (await offered(server, value="x"))["values"] == []


async def test_functions_sync_and_async_with_or_without_the_other_arguments():
    """A function gets the value, and the other arguments if it has a parameter for them; nothing is filtered."""
    here = threading.get_ident()

    def one(value):
        return (f"{value}!", str(threading.get_ident() == here))

    async def two(value, arguments):
        return [value, *sorted(arguments.items()).__repr__().split()]

    def with_default(value, limit=2):
        return [value] * limit

    def generator(value):
        yield from (value, "z")

    context = {"context": {"arguments": {"y": "1", "z": 5}}}
    assert (await offered(completing(one), value="a"))["values"] == ["a!", "False"]
    assert (await offered(completing(two), value="a", **context))["values"] == ["a", "[('y',", "'1')]"]
    assert (await offered(completing(with_default), value="a", **context))["values"] == ["a", "a"]
    assert (await offered(completing(generator), value="a"))["values"] == ["a", "z"]
    assert (await offered(completing(lambda value: two(value, {})), value="a"))["values"] == ["a", "[]"]


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (Literal["a", "b"], ["a", "b"]),
        (Literal["a"], ["a"]),
        (Literal["a", None], ["a"]),  # noqa: PYI061 - another schema than with | None
        (Literal["a", 2] | None, ["a", "2"]),
        (Color, ["red", "green"]),
        (Color | bool, ["red", "green", "true", "false"]),
        (bool, ["true", "false"]),
        (str, []),
        (list[Color], []),
    ],
    ids=str,
)
async def test_types_that_are_lists_of_values(annotation, values):
    """`Literal`, `Enum` and `bool` complete by themselves, and the prompt accepts each of these values."""

    def p(x):
        return "good"

    p.__annotations__ = {"x": annotation}
    server = ToolServer("s")
    server.add_prompt(p)
    assert (await offered(server))["values"] == values
    assert ("completions" in server.capabilities()) is bool(values)
    async with connected(server) as client:
        for value in values:
            assert "result" in await client.request("prompts/get", {"name": "p", "arguments": {"x": value}})


async def test_what_was_given_wins_over_the_type():
    """Given values replace those of the type."""

    def p(x: bool) -> str:
        return ""

    server = ToolServer("s")
    server.add_prompt(p, complete={"x": ["yes", "no"]})
    assert (await offered(server))["values"] == ["yes", "no"]


@pytest.mark.parametrize(
    ("source", "total", "more"),
    [
        ([str(n) for n in range(100)], 100, False),
        ([str(n) for n in range(101)], 101, True),
        (lambda value: [str(n) for n in range(250)], 250, True),
        (lambda value: map(str, count()), None, True),
    ],
    ids=["100", "101", "250", "endless"],
)
async def test_at_most_100_values(source, total, more):
    """At most 100 are returned, with the total, which is left out for an endless iterator."""
    found = await offered(completing(source))
    assert found["values"] == [str(n) for n in range(100)]
    assert (found.get("total"), found["hasMore"]) == (total, more)


async def test_an_argument_that_nobody_completes():
    """An argument without values, or that does not exist, gets an empty list."""
    server = completing(["a"])
    for argument in ("y", "nope"):
        assert await offered(server, argument) == {"values": [], "total": 0, "hasMore": False}


async def test_resource_templates():
    """Parameters of a template can be completed; a resource with a plain URI has none."""
    server = ToolServer("s")
    server.add_resource("a://{x}", lambda x: x, name="t", complete={"x": ["b", "c"]})
    server.add_resource("a://b", lambda: "", name="r")
    assert server.capabilities()["completions"] == {}
    with anyio.fail_after(20):
        async with connect(server) as client:
            assert (await client.complete("x", "B", template="a://{x}")).values == ["b"]
            assert (await client.complete("x", template="a://b")).values == []
            with pytest.raises(ValueError, match="not both"):
                await client.complete("x")
    server.remove_resource("a://{x}")
    assert "completions" not in server.capabilities()


async def test_the_test_client_completes_prompts():
    """`complete()` passes the other arguments on, and returns values, total and whether there are more."""
    server = completing(lambda value, arguments: [value + arguments.get("y", "?")] * 101)
    with anyio.fail_after(20):
        async with connect(server) as client:
            found = await client.complete("x", "a", prompt="p", arguments={"y": "b"})
            assert (found.values[0], len(found.values), found.total, found.has_more) == ("ab", 100, 101, True)


GOOD = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ref": None}, "ref must be an object"),
        ({"ref": {"type": "ref/tool"}}, "Unknown reference: 'ref/tool'"),
        ({"ref": {"type": "ref/prompt"}}, "ref.name must be a string"),
        ({"ref": {"type": "ref/prompt", "name": "pp"}}, "Unknown prompt: 'pp'. Did you mean 'p'?"),
        ({"ref": {"type": "ref/resource"}}, "ref.uri must be a string"),
        ({"ref": {"type": "ref/resource", "uri": "a://{x}"}}, "Unknown resource template: a://{x}"),
        ({"argument": "x"}, "argument must be an object"),
        ({"argument": {"name": 5, "value": ""}}, "argument.name must be a string"),
        ({"argument": {"name": "x"}}, "argument.value must be a string"),
        ({"context": []}, "context must be an object"),
        ({"context": {"arguments": [1]}}, "context.arguments must be an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_requests_that_cannot_be_answered(change, what):
    """The error names the invalid or unknown part."""
    async with connected(completing(["a"])) as client:
        assert "result" in await client.request("completion/complete", GOOD)
        error = (await client.request("completion/complete", {**GOOD, **change}))["error"]
    assert error["code"] == -32602
    assert what in error["message"]


async def test_a_server_without_prompts_and_resources_knows_no_completion():
    """The error is "method not found"."""
    async with connected(ToolServer("s")) as client:
        assert (await client.request("completion/complete", GOOD))["error"]["code"] == -32601


def refuse(value):
    raise ToolError("Not now.")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (refuse, "Not now."),
        (lambda value: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda value: "text", "Prompt 'p': completion must return a list of strings, not str"),
        (lambda value: None, "Prompt 'p': completion must return a list of strings, not NoneType"),
        (lambda value: [1], "Prompt 'p': completion must return strings, not int"),
    ],
    ids=["tool-error", "exception", "string", "nothing", "numbers"],
)
async def test_functions_that_fail(source, what):
    """The request gets an internal error with the text of what went wrong."""
    error = await offered(completing(source))
    assert (error["code"], error["message"]) == (-32603, what)
    assert (error["data"]["argument"], error["data"]["server"]) == ("x", "s")


async def test_time_out():
    """A function that takes too long causes an error that says so."""

    async def slow(value):
        await anyio.sleep_forever()

    error = await offered(completing(slow, timeout=0.05))
    assert error["message"] == "Prompt 'p': completion timed out after 0.05 s"


def test_an_async_generator_is_refused():
    """Only functions that return all values at once are accepted."""

    async def values(value):
        yield "a"

    with pytest.raises(ToolDefinitionError, match="async generator"):
        completing(values)
