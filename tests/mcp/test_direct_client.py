"""The direct client: a server's tools, resources and prompts without a CLI."""

import anyio
import pytest
from mcp.server import MCPServer

from toolwire import (
    Context,
    ElicitationResult,
    McpError,
    ToolError,
    ToolServer,
    create_sdk_mcp_server,
    tool,
)
from toolwire.mcp.direct_client import connect
from toolwire.wrap import prefix

pytestmark = pytest.mark.anyio

LIMIT = 10


def calculator():
    calc = ToolServer("calc", instructions="Adds.")

    @calc.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @calc.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("no luck")

    return calc


async def test_tools_are_listed_and_called():
    """A tool is listed with its schema, and its result has text and an error flag."""
    with anyio.fail_after(LIMIT):
        async with connect(calculator()) as c:
            add, fail = await c.list_tools()
            result = await c.call("add", a=1, b=2)
            failed = await c.call("fail")
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.input_schema["required"] == ["a", "b"]
    assert fail.input_schema["type"] == "object"
    assert (result.text, result.is_error) == ("3", False)
    assert (failed.text, failed.is_error) == ("no luck", True)
    assert c.instructions == "Adds."


async def test_refusals_are_raised():
    """The errors for wrong arguments and unknown tools are raised with their JSON-RPC code."""
    with anyio.fail_after(LIMIT):
        async with connect(calculator()) as c:
            with pytest.raises(McpError, match="valid integer") as wrong:
                await c.call("add", {"a": "x", "b": 1})
            with pytest.raises(McpError, match="add"):
                await c.call("ad")
    assert wrong.value.code == -32602


async def test_notifications_are_kept():
    """Progress and log messages are recorded in the order in which they came."""
    server = ToolServer("busy")

    @server.tool
    async def work(context: Context) -> str:
        """Work."""
        await context.progress(1, 2, "half")
        await context.log("hello")
        return "done"

    with anyio.fail_after(LIMIT):
        async with connect(server) as c:
            await c.call("work")
    assert [each.method for each in c.notifications] == ["notifications/progress", "notifications/message"]
    assert c.notifications[0].params["message"] == "half"


async def test_a_server_can_ask():
    """An elicitation is answered by the given callback, and declined if there is none."""
    server = ToolServer("asking")

    @server.tool
    async def ask(context: Context) -> str:
        """Ask."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who?", schema)
        return f"{answer.action}: {answer.content}"

    def told(request):
        return ElicitationResult("accept", {"name": request.message})

    with anyio.fail_after(LIMIT):
        async with connect(server, on_elicitation=told) as c:
            result = await c.call("ask")
        async with connect(server) as c:
            declined = await c.call("ask")
    assert "accept" in result.text
    assert "Who?" in result.text
    assert "decline" in declined.text


async def test_a_cancelled_call_is_cancelled_in_the_server():
    """If the caller is cancelled, so is the tool."""
    server = ToolServer("slow")
    started, stopped = anyio.Event(), anyio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    with anyio.fail_after(LIMIT):
        async with connect(server) as c, anyio.create_task_group() as group:
            group.start_soon(c.call, "wait")
            await started.wait()
            group.cancel_scope.cancel()
    assert stopped.is_set()


async def test_servers_of_other_libraries():
    """Tools, resources and prompts of an `MCPServer` are used in the same way."""
    server = MCPServer("library")

    @server.tool()
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    @server.resource("res://motto")
    def motto() -> str:
        """The motto."""
        return "onwards"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello, {name}"

    with anyio.fail_after(LIMIT):
        async with connect(server) as c:
            assert [each.name for each in await c.list_tools()] == ["shout"]
            assert (await c.call("shout", text="hey")).text == "HEY"
            assert [each.uri for each in await c.list_resources()] == ["res://motto"]
            assert (await c.read_resource("res://motto"))[0].text == "onwards"
            (prompt,) = await c.list_prompts()
            assert (prompt.name, prompt.arguments) == ("greet", ("name",))
            assert (await c.get_prompt("greet", name="Ada")).text == "Hello, Ada"


async def test_what_a_server_lacks_is_an_error():
    """A server without resources refuses to list them."""
    with anyio.fail_after(LIMIT):
        async with connect(calculator()) as c:
            with pytest.raises(McpError, match="resources/list"):
                await c.list_resources()


async def test_wrapped_and_official_forms():
    """A wrapped server and the dict of `create_sdk_mcp_server` can be connected to."""

    @tool("echo", "Echo.", {"text": str})
    async def echo(args):
        return {"content": [{"type": "text", "text": args["text"]}]}

    with anyio.fail_after(LIMIT):
        async with connect(prefix(calculator(), "my_")) as c:
            assert (await c.call("my_add", a=1, b=1)).text == "2"
        async with connect(create_sdk_mcp_server("own", tools=[echo])) as c:
            assert (await c.call("echo", text="hi")).content == [{"type": "text", "text": "hi"}]


async def test_a_notification_just_before_the_end_still_arrives():
    """A change made just before the connection closes is in `notifications` afterwards."""
    server = ToolServer("s")
    async with connect(server) as client:
        server.tool(lambda: "", name="new")
    assert [each.method for each in client.notifications] == ["notifications/tools/list_changed"]
