"""In-process tools with the real CLI: what the model gets, seen in the requests it would have received."""

import base64
import json
import threading
import time
import wave
from io import BytesIO

import anyio
import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer

from shared.waiting import eventually
from toolwire import (
    Audio,
    ClaudeSDKClient,
    Context,
    ElicitationRequest,
    ElicitationResult,
    Elicited,
    Image,
    McpError,
    McpLogMessage,
    McpProgressMessage,
    PermissionResultAllow,
    PermissionResultDeny,
    Resource,
    ResourceLink,
    ToolServer,
    create_sdk_mcp_server,
    query,
    run,
    tool,
)
from toolwire.testing import call, say, turn
from toolwire.wrap import combine, only, prefix

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 60
# The smallest PNG: one grey pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def calculator():
    calc = ToolServer("calculator")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @calc.tool
    async def divide(a: float, b: float) -> float:
        """Divide a by b."""
        return a / b

    return calc


async def test_what_is_15_plus_27(scripted):
    """The model calls `add`, gets 42, and says 42."""
    script = [call("mcp__calc__add", a=15, b=27), lambda request: say(request.tool_results[0].text)]
    async with scripted(script, mcp_servers={"calc": calculator()}, allowed_tools=["mcp__calc"]) as (
        model,
        options,
    ):
        with anyio.fail_after(LIMIT):
            reply = await run("What is 15 + 27?", options=options)
        offered = {each["name"]: each for each in model.requests[0].body["tools"]}
        assert offered["mcp__calc__add"]["description"] == "Add two numbers."
        assert offered["mcp__calc__add"]["input_schema"]["required"] == ["a", "b"]
    assert reply.text == "42.0"
    assert reply.tool_calls[0].result == [{"type": "text", "text": "42.0"}]


async def test_errors_reach_the_model(scripted):
    """A failing tool, wrong arguments (each named) and an unknown tool are errors that the model can read."""
    script = [
        call("mcp__calc__divide", a=1, b=0),
        call("mcp__calc__add", a="x", c=1),
        call("mcp__calc__ad", a=1, b=2),
        say("I see."),
    ]
    async with scripted(script, mcp_servers={"calc": calculator()}, allowed_tools=["mcp__calc"]) as (
        model,
        options,
    ):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        failed, wrong, unknown = (request.tool_results[0] for request in model.requests[1:])
    assert (failed.is_error, failed.text) == (True, "ZeroDivisionError: float division by zero")
    assert wrong.is_error
    assert wrong.text.startswith("Validation failed: ")
    assert all(f"{name}: " in wrong.text for name in "abc")
    assert unknown.is_error


async def test_five_read_only_tools_run_at_the_same_time(scripted):
    """All five are running before the first one ends."""
    server = ToolServer("s")
    running = 0
    all_here = anyio.Event()

    @server.tool(read_only=True)
    async def together(n: int) -> int:
        nonlocal running
        running += 1
        if running == 5:
            all_here.set()
        await all_here.wait()
        return n

    script = [turn(*(call("mcp__s__together", n=n) for n in range(5))), say("done")]
    async with scripted(script, mcp_servers={"s": server}, allowed_tools=["mcp__s"]) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        assert sorted(result.text for result in model.requests[1].tool_results) == list("01234")


async def test_a_tool_added_in_mid_turn_is_called_in_that_turn(scripted):
    """The CLI is notified at once, and the next request of the same turn offers the tool."""
    server = ToolServer("s")

    @server.tool
    async def grow() -> str:
        server.tool(lambda: "I am new", name="grown")
        await anyio.sleep(0.3)
        return "grown"

    script = [call("mcp__s__grow"), call("mcp__s__grown"), say("done")]
    async with scripted(script, mcp_servers={"s": server}, allowed_tools=["mcp__s"]) as (model, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options)
        assert "mcp__s__grown" not in model.requests[0].tools
        assert "mcp__s__grown" in model.requests[1].tools
        assert model.requests[2].tool_results[0].text == "I am new"
    assert reply.num_turns == 3


async def test_interrupt_cancels_an_async_handler(scripted):
    """An interrupt reaches the handler as cancellation, and the session goes on."""
    server = ToolServer("s")
    started, cancelled = anyio.Event(), anyio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with scripted(
        [call("mcp__s__hang"), say("back")], mcp_servers={"s": server}, allowed_tools=["mcp__s"]
    ) as (
        _,
        options,
    ):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                await started.wait()
                await client.interrupt()
                await cancelled.wait()
                messages = [message async for message in client.receive_response()]
                assert messages[-1].terminal_reason == "aborted_tools"
                await client.query("and now?")
                assert [message async for message in client.receive_response()][-1].result == "back"


async def test_interrupt_tells_a_sync_handler_and_does_not_wait_for_it(scripted):
    """A sync handler sees the flag; the result comes although its thread is still busy."""
    server = ToolServer("s")
    started, noticed, release = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def busy(context: Context) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        noticed.set()
        release.wait(30)

    async with scripted([call("mcp__s__busy")], mcp_servers={"s": server}, allowed_tools=["mcp__s"]) as (
        _,
        options,
    ):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                await eventually(started.is_set)
                await client.interrupt()
                messages = [message async for message in client.receive_response()]
                assert messages[-1].terminal_reason == "aborted_tools"
                assert not release.is_set()
    assert noticed.wait(5)
    release.set()


def wav():
    data = BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8_000)
        file.writeframes(b"\x80" * 80)
    return data.getvalue()


async def test_results_of_every_kind(scripted):
    """Text, structured content, images, audio and resources arrive as the CLI passes them on."""
    server = ToolServer("s")
    server.tool(lambda: None, name="empty")
    server.tool(lambda: ["look", Image(PNG)], name="image")
    server.tool(lambda: Audio(wav()), name="audio")
    server.tool(lambda: ResourceLink("file:///a.txt", "a.txt", description="A file"), name="link")
    server.tool(lambda: Resource("res://x", text="EMBEDDED"), name="resource")

    @server.tool(structured=True)
    def structured() -> dict[str, int]:
        return {"a": 1}

    names = ("empty", "image", "audio", "link", "resource", "structured")
    script = [*(call(f"mcp__s__{name}") for name in names), say("done")]
    async with scripted(script, mcp_servers={"s": server}, allowed_tools=["mcp__s"]) as (model, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options)
        texts = dict(
            zip(names, (request.tool_results[0].text for request in model.requests[1:]), strict=True)
        )
    assert "completed with no output" in texts["empty"]
    assert texts["image"].startswith("look")
    assert any(block["type"] == "image" for block in reply.tool_calls[1].result)
    assert "[Audio from s]" in texts["audio"]
    assert texts["link"] == "[Resource link: a.txt] file:///a.txt (A file)"
    assert texts["resource"] == "[Resource from s at res://x] EMBEDDED"
    assert json.loads(texts["structured"]) == {"a": 1}


async def test_deferred_and_always_loaded_tools(scripted):
    """With tool search on, an always-loaded tool is offered at once; a deferred one can be found and called."""
    server = ToolServer("s")
    server.tool(lambda: "here", name="always", always_load=True, description="At once.")
    server.tool(lambda: "found", name="deferred", search_hint="zebra", description="Later.")
    script = [
        call("ToolSearch", query="zebra"),
        call("mcp__s__deferred"),
        call("mcp__s__always"),
        say("done"),
    ]
    async with scripted(
        script, extra={"ENABLE_TOOL_SEARCH": "true"}, mcp_servers={"s": server}, allowed_tools=["mcp__s"]
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        first = {each["name"]: each for each in model.requests[0].body["tools"]}
        assert not first["mcp__s__always"].get("defer_loading")
        assert first.get("mcp__s__deferred", {"defer_loading": True}).get("defer_loading")
        assert "mcp__s__deferred" in str(model.requests[1].body["messages"][-1])
        assert model.requests[2].tool_results[0].text == "found"
        assert model.requests[3].tool_results[0].text == "here"


async def test_progress_and_logs_are_in_the_stream(scripted):
    """Progress and logs, which the CLI drops, reach the host as typed messages with the id of the tool use."""
    server = ToolServer("s")

    @server.tool
    async def work(context: Context) -> str:
        context.progress(1, 2, "half")
        context.log("a note", "warning")
        return "ok"

    async with scripted(
        [call("mcp__s__work", id="toolu_w"), say("done")],
        mcp_servers={"s": server},
        allowed_tools=["mcp__s"],
        include_all_messages=True,
    ) as (_, options):
        with anyio.fail_after(LIMIT):
            messages = [message async for message in query(prompt="go", options=options)]
    (progress,) = [each for each in messages if isinstance(each, McpProgressMessage)]
    (log,) = [each for each in messages if isinstance(each, McpLogMessage)]
    assert (progress.server, progress.tool_use_id, progress.progress, progress.total) == (
        "s",
        "toolu_w",
        1,
        2,
    )
    assert (log.server, log.level, log.data, log.tool_use_id) == ("s", "warning", "a note", "toolu_w")


async def test_asking_user_and_model(scripted, tmp_path):
    """Elicitation, sampling and roots are answered by the application's callbacks."""
    server = ToolServer("s")

    @server.tool
    async def ask(context: Context) -> str:
        answer: Elicited = await context.elicit(
            "Your name?", {"type": "object", "properties": {"n": {"type": "string"}}}
        )
        said = await context.sample("hm?")
        roots = await context.roots()
        return f"{answer.content['n']} {said.text} {roots[0].uri == tmp_path.as_uri()}"

    asked = []

    async def on_elicitation(request: ElicitationRequest) -> ElicitationResult:
        asked.append((request.server, request.message, request.mode))
        return ElicitationResult("accept", {"n": "Ada"})

    async with scripted(
        [call("mcp__s__ask"), say("done")],
        mcp_servers={"s": server},
        allowed_tools=["mcp__s"],
        on_elicitation=on_elicitation,
        on_sampling=lambda request: "sampled",
        roots=[tmp_path],
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        assert model.requests[1].tool_results[0].text == "Ada sampled True"
    assert asked == [("s", "Your name?", "form")]


async def test_the_url_route_of_the_cli(scripted):
    """A tool that refuses with -32042 makes the CLI ask the host, and call again when it accepts."""
    server = ToolServer("s")
    calls = []

    @server.tool
    async def sign_in() -> str:
        calls.append(1)
        if len(calls) == 1:
            page = {
                "mode": "url",
                "elicitationId": "e1",
                "url": "https://example.com/x",
                "message": "please open",
            }
            raise McpError(-32042, "URL elicitation", {"elicitations": [page]})
        return "signed in"

    asked = []

    async def accept(request: ElicitationRequest) -> ElicitationResult:
        asked.append((request.server, request.mode, request.url, request.elicitation_id))
        return ElicitationResult("accept")

    async with scripted(
        [call("mcp__s__sign_in"), say("done")],
        mcp_servers={"s": server},
        allowed_tools=["mcp__s"],
        on_elicitation=accept,
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        assert model.requests[1].tool_results[0].text == "signed in"
    assert asked == [("s", "url", "https://example.com/x", "e1")]


async def test_a_foreign_server_and_wrappers(scripted):
    """A server of the `mcp` package works plain and wrapped, beside our own and the official form."""
    library = MCPServer("library")

    @library.tool()
    def find(title: str) -> str:
        """Find a book."""
        return f"{title}: shelf 42"

    @tool("hello", "Say hello", {"name": str})
    async def hello(args):
        return {"content": [{"type": "text", "text": f"Hello {args['name']}"}]}

    servers = {
        "lib": library,
        "all": combine("all", prefix(library, "book_"), only(calculator(), "add")),
        "old": create_sdk_mcp_server("old", tools=[hello]),
    }
    script = [
        call("mcp__lib__find", title="Emma"),
        call("mcp__all__book_find", title="Emma"),
        call("mcp__all__add", a=1, b=2),
        call("mcp__old__hello", name="Ada"),
        say("done"),
    ]
    async with scripted(script, mcp_servers=servers, allowed_tools=["mcp__lib", "mcp__all", "mcp__old"]) as (
        model,
        options,
    ):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        assert "mcp__all__divide" not in model.requests[0].tools
        results = [request.tool_results[0].text for request in model.requests[1:]]
    assert "Emma: shelf 42" in results[0]
    assert "Emma: shelf 42" in results[1]
    assert results[2:] == ["3.0", "Hello Ada"]


async def test_a_server_that_takes_the_place_of_another_is_heard_of(scripted):
    """The CLI knows servers by name: one that is replaced, even in the user's own dict, offers its new tools."""
    old, new = ToolServer("s"), ToolServer("s")
    old.tool(lambda: "old", name="first")
    new.tool(lambda: "new", name="second")
    servers = {"s": old}
    script = [say("one"), call("mcp__s__second"), say("two")]
    async with scripted(script, mcp_servers=servers, allowed_tools=["mcp__s"]) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                assert [message async for message in client.receive_response()][-1].result == "one"
                servers["s"] = new
                await client.set_mcp_servers(servers)
                await client.wait_until_ready(LIMIT, ["s"])
                await client.query("again")
                assert [message async for message in client.receive_response()][-1].result == "two"
        assert "mcp__s__second" in model.requests[1].tools
        assert model.requests[2].tool_results[0].text == "new"


async def test_servers_come_and_go_without_losing_a_call(scripted):
    """A server is added while a call of another runs: both work, and it can be taken away again."""
    server, late = ToolServer("s"), ToolServer("late")
    late.tool(lambda: "late but there", name="hello")
    started, release = anyio.Event(), anyio.Event()

    @server.tool
    async def slow() -> str:
        started.set()
        await release.wait()
        return "slow and steady"

    script = [call("mcp__s__slow"), call("mcp__late__hello"), say("one"), say("two")]
    async with scripted(script, mcp_servers={"s": server}, allowed_tools=["mcp__s", "mcp__late"]) as (
        model,
        options,
    ):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("go")
                await started.wait()
                assert (await client.add_mcp_server("late", late))["added"] == ["late"]
                release.set()
                assert [message async for message in client.receive_response()][-1].result == "one"
                assert {each["name"] for each in (await client.get_mcp_status())["mcpServers"]} == {
                    "s",
                    "late",
                }
                assert (await client.remove_mcp_server("late"))["removed"] == ["late"]
                await client.query("again")
                assert [message async for message in client.receive_response()][-1].result == "two"
        assert model.requests[1].tool_results[0].text == "slow and steady"
        assert model.requests[2].tool_results[0].text == "late but there"
        assert "mcp__late__hello" not in model.requests[3].tools
        assert "mcp__s__slow" in model.requests[3].tools


async def test_policies_of_tools(scripted):
    """`always_ask` asks although a rule allows the server, `always_deny` takes the tool away."""
    server = ToolServer("s")
    server.tool(lambda: "asked and done", name="careful", policy="always_ask")
    server.tool(lambda: "never", name="never", policy="always_deny")
    asked = []

    async def decide(name, tool_input, context):
        asked.append(name)
        return PermissionResultAllow() if len(asked) == 1 else PermissionResultDeny(message="not twice")

    script = [call("mcp__s__careful"), call("mcp__s__careful"), say("done")]
    with pytest.warns(UserWarning, match="can_use_tool"):
        async with scripted(
            script, mcp_servers={"s": server}, allowed_tools=["mcp__s"], can_use_tool=decide
        ) as (model, options):
            with anyio.fail_after(LIMIT):
                await run("go", options=options)
            assert "mcp__s__never" not in model.requests[0].tools
            results = [request.tool_results[0].text for request in model.requests[1:]]
    assert asked == ["mcp__s__careful"] * 2
    assert results == ["asked and done", "not twice"]


async def test_a_fastmcp_server_with_resources(scripted):
    """A FastMCP server as it is: its tools, and its resources through the CLI's own resource tools."""
    fast = FastMCP("fast")

    @fast.tool
    def shout(text: str) -> str:
        """Make it loud."""
        return text.upper()

    @fast.resource("res://motto")
    def motto() -> str:
        """The motto."""
        return "Small steps."

    script = [
        call("mcp__fast__shout", text="hi"),
        call("ListMcpResourcesTool"),
        call("ReadMcpResourceTool", server="fast", uri="res://motto"),
        say("done"),
    ]
    async with scripted(script, mcp_servers={"fast": fast}, allowed_tools=["mcp__fast"]) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        loud, listed, read = (request.tool_results[0].text for request in model.requests[1:])
    assert "HI" in loud
    assert "res://motto" in listed
    assert "Small steps." in read


async def test_the_cli_offers_resources_of_our_own_servers_to_the_model(scripted):
    """The CLI's own tools list and read resources, those of templates included; a missing one is reported."""
    shop = ToolServer("shop")

    @shop.resource("config://shop")
    def config() -> str:
        """The settings."""
        return "currency = EUR"

    @shop.resource("item://{name}")
    def item(name: str) -> dict:
        """One article."""
        return {"name": name, "price": 4}

    script = [
        call("ListMcpResourcesTool", server="shop"),
        call("ReadMcpResourceTool", server="shop", uri="config://shop"),
        call("ReadMcpResourceTool", server="shop", uri="item://tea"),
        call("ReadMcpResourceTool", server="shop", uri="item:///etc/passwd"),
        say("done"),
    ]
    tools = ["ListMcpResourcesTool", "ReadMcpResourceTool"]
    async with scripted(script, mcp_servers={"shop": shop}, allowed_tools=tools) as (_, options):
        reply = await run("go", options=options)
    listed, settings, tea, refused = [each.result for each in reply.tool_calls]
    assert "config://shop" in listed
    assert "currency = EUR" in settings
    assert '\\"price\\":4' in tea or '"price":4' in tea
    assert "it may have been deleted or the URI is stale" in refused, (
        "the CLI's own words for what is not there"
    )
