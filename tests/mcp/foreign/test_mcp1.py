"""Servers made with `mcp` 1.x work behind a connection. Only run where 1.x is installed: `make mcps`."""

from contextlib import asynccontextmanager

import anyio
import pytest

import toolwire
from toolwire.errors import McpError
from toolwire.mcp.versions import SERVING, installed
from toolwire.testing import connect
from toolwire.wrap import combine, prefix

if installed() >= SERVING:
    pytest.skip("a newer mcp is installed", allow_module_level=True)

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import Server
from pydantic import BaseModel

from mcp import types

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Field .lifespan. has an incomplete definition"),  # in the oldest 1.x
]

LIMIT = 60


class Scene:
    """A high-level server with one tool of each kind, and a record of its lifespan."""

    def __init__(self):
        self.seen = []
        self.begun, self.stopped = anyio.Event(), anyio.Event()
        self.server = FastMCP("calc", instructions="Count.", lifespan=self.lifespan)
        for function in (self.add, self.fail, self.wait, self.tell, self.ask):
            self.server.tool()(function)
        self.server.resource("note://one")(self.note)

    @asynccontextmanager
    async def lifespan(self, server):
        self.seen.append("opened")
        yield {"base": 10}
        self.seen.append("closed")

    def add(self, a: int, b: int, ctx: Context) -> int:
        return a + b + ctx.request_context.lifespan_context["base"]

    def fail(self) -> str:
        raise ValueError("not today")

    async def wait(self) -> str:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.set()

    async def tell(self, ctx: Context) -> str:
        await ctx.info("half")
        await ctx.report_progress(1, 2)
        return "told"

    async def ask(self, ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Choice)
        return f"{answer.action} {answer.data.colour}"

    def note(self) -> str:
        return "a note"


class Choice(BaseModel):
    """The answer that the tool requests by elicitation."""

    colour: str


async def test_tools_are_listed_and_called_in_the_lifespan():
    """Names, schemas, results and errors are the server's own."""
    scene = Scene()
    with anyio.fail_after(LIMIT):
        async with connect(scene.server) as client:
            assert client.server_info["name"] == "calc"
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert set(tools) == {"add", "fail", "wait", "tell", "ask"}
            assert tools["add"].input_schema["required"] == ["a", "b"]
            assert (await client.call("add", a=1, b=2)).text == "13"
            failed = await client.call("fail")
            assert failed.is_error
            assert "not today" in failed.text
            assert (await client.call("add", a="x", b=2)).is_error
            assert (await client.read_resource("note://one"))[0].text == "a note"
            assert scene.seen == ["opened"]
    assert scene.seen == ["opened", "closed"]


async def test_calls_run_side_by_side_and_the_end_stops_them():
    """A call that waits does not delay others; closing the connection cancels it."""
    scene = Scene()
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as calls, connect(scene.server) as client:

            async def wait() -> None:
                with pytest.raises(McpError, match="cancelled"):
                    await client.call("wait")

            calls.start_soon(wait)
            await scene.begun.wait()
            assert (await client.call("add", a=1, b=2)).text == "13"
            await client.aclose()
        await scene.stopped.wait()


async def test_a_call_that_nobody_waits_for_is_cancelled():
    """If the caller is cancelled, the tool in the server is cancelled too."""
    scene = Scene()
    with anyio.fail_after(LIMIT):
        async with connect(scene.server) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call, "wait")
                await scene.begun.wait()
                calls.cancel_scope.cancel()
            await scene.stopped.wait()
            assert (await client.call("add", a=1, b=2)).text == "13"


async def test_a_tool_reaches_its_client():
    """Log messages, progress and elicitation requests of a tool reach the client."""
    scene, notified, asked = Scene(), [], []

    async def answer(request):
        asked.append(request.message)
        return {"action": "accept", "content": {"colour": "red"}}

    with anyio.fail_after(LIMIT):
        async with connect(
            scene.server, on_elicitation=answer, on_notification=lambda each: notified.append(each.method)
        ) as client:
            assert (await client.call("tell")).text == "told"
            assert (await client.call("ask")).text == "accept red"
    assert asked == ["Which?"]
    assert "notifications/message" in notified


async def test_a_low_level_server_with_wrappers():
    """It can be prefixed and combined with a `ToolServer`; its own error messages are passed on unchanged."""
    server = Server("low")

    @server.list_tools()
    async def list_tools():
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [types.Tool(name="echo", inputSchema=schema)]

    @server.call_tool()
    async def call_tool(name, arguments):
        return [types.TextContent(type="text", text=f"{name} {arguments['text']}")]

    ours = toolwire.ToolServer("ours")

    @ours.tool
    def double(number: int) -> int:
        return 2 * number

    both = combine("both", prefix(server, "low_"), ours)
    with anyio.fail_after(LIMIT):
        async with connect(both) as client:
            assert {tool.name for tool in await client.list_tools()} == {"low_echo", "double"}
            assert (await client.call("low_echo", text="hi")).text == "echo hi"
            assert (await client.call("double", number=4)).text == "8"
            refused = await client.call("low_echo", text=7)
            assert refused.is_error
            assert "Input validation error" in refused.text
        async with connect(server) as client:
            with pytest.raises(McpError, match="Method not found"):
                await client.request("resources/list", {})


@pytest.mark.parametrize("hint", ["readOnlyHint", "read_only_hint"])
async def test_annotations_are_spelled_as_mcp_does(hint):
    """Both spellings of a hint are listed in camelCase, as `mcp` spells them."""
    server = toolwire.ToolServer("s")

    @server.tool(annotations=toolwire.ToolAnnotations(**{hint: True, "x_more": 1}))
    def look() -> str:
        return ""

    async with connect(server) as client:
        (tool,) = await client.list_tools()
    assert tool.annotations == {"readOnlyHint": True, "x_more": 1}


async def test_a_lifespan_that_fails_is_the_answer():
    """Connecting fails with the server's error instead of waiting for ever."""

    @asynccontextmanager
    async def broken(server):
        raise OSError("no database")
        yield

    with anyio.fail_after(LIMIT), pytest.raises(McpError, match="no database"):
        async with connect(FastMCP("s", lifespan=broken)):
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_fastmcp_2_and_3():
    """They work with and without a lifespan of their own, which all sessions share."""
    fastmcp = pytest.importorskip("fastmcp.server.server", exc_type=ImportError)
    seen = []

    @asynccontextmanager
    async def lifespan(server):
        seen.append("opened")
        yield {}
        seen.append("closed")

    for settings in ({}, {"lifespan": lifespan}):
        server = fastmcp.FastMCP("fast", **settings)

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        with anyio.fail_after(LIMIT):
            async with connect(server) as one, connect(server) as two:
                assert [(await each.call("add", a=1, b=2)).text for each in (one, two)] == ["3", "3"]
    assert seen == ["opened", "closed"]


@pytest.mark.parametrize("name", ["serve_stdio", "serve_http"])
async def test_serving_needs_a_newer_one(name):
    """The error comes when the function is called, and says which versions of `mcp` it needs."""
    with pytest.raises(toolwire.NotSupportedError, match=r"needs mcp>=2\.\d,<3, but version 1\."):
        await getattr(toolwire, name)(Scene().server)
