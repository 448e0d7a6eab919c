"""Servers of three other libraries with the same contents, and a channel that records what reaches the client."""

from collections import defaultdict
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context

from toolwire._protocol.jsonrpc import METHOD_NOT_FOUND, ClientChannel, RpcError
from toolwire.mcp.foreign.connection import ForeignServer

CLIENT = {"name": "claude-code", "version": "2.1.325"}


class RecordingChannel(ClientChannel):
    """A channel that records notifications and requests, and answers the requests that it has answers for."""

    capabilities = None

    def __init__(self, capabilities=None, answers=None):
        self.capabilities = capabilities or {}
        self.answers = answers or {}
        self.notices = []
        self.asked = []
        self._moved = anyio.Event()

    def notify(self, message):
        self.notices.append(message)
        self._move()

    async def request(self, method, params, **_settings):
        self.asked.append((method, params))
        self._move()
        answer = self.answers.get(method, RpcError(METHOD_NOT_FOUND, f"{method} is not for me"))
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer

    def _move(self):
        self._moved.set()
        self._moved = anyio.Event()

    async def noticed(self, method):
        """Wait for the first notification with this method, and return its params."""
        while not (found := [each for each in self.notices if each["method"] == method]):
            await self._moved.wait()
        return found[0].get("params")

    async def was_asked(self):
        """Wait for the first request, and return its method and params."""
        while not self.asked:
            await self._moved.wait()
        return self.asked[0]


class Scene:
    """The tools' functions. Each tells the test that it was entered, and waits at a gate of its own name."""

    def __init__(self):
        self.entered = defaultdict(anyio.Event)
        self.gate = defaultdict(anyio.Event)
        self.left = defaultdict(anyio.Event)
        self.finished = []

    async def wait(self, session, name):
        self.entered[name].set()
        try:
            await self.gate[name].wait()
            self.finished.append(name)
        finally:
            self.left[name].set()
        return f"{name} is done"

    async def stubborn(self, session, name):
        with anyio.CancelScope(shield=True):
            return await self.wait(session, name)

    async def progress(self, session, name):
        await session.report_progress(0.5, 1, name)
        return await self.wait(session, name)

    async def log(self, session, name):
        await session.send_log_message("warning", name, logger="a")
        return "logged"

    async def changed(self, session, name):
        await session.send_tool_list_changed()
        await session.send_resource_updated("res://one")
        return "told"

    async def elicit(self, session, name):
        fields = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await session.elicit_form("Who are you?", fields)
        return f"{answer.action} {answer.content}"

    async def impatient(self, session, name):
        async with anyio.create_task_group() as group:
            group.start_soon(self.elicit, session, "")
            await self.gate[name].wait()
            group.cancel_scope.cancel()
        return "gave up"

    async def sample(self, session, name):
        question = types.SamplingMessage(role="user", content=types.TextContent(text="Say hi"))
        return (await session.create_message([question], max_tokens=5)).content.text

    async def roots(self, session, name):
        return ",".join(str(root.uri) for root in (await session.list_roots()).roots)

    async def ping(self, session, name):
        await session.send_ping()
        return "alive"

    async def able(self, session, name):
        capabilities = session.client_capabilities.model_dump(exclude_none=True)
        return ",".join(sorted(capabilities)) + f" of {session.client_params.client_info.name}"

    async def fail(self, session, name):
        raise LookupError(f"no {name}")

    def do(self, what, session, name):
        return getattr(self, what)(session, name)


def low_level(scene, **more):
    """Make mcp's low-level server."""
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("add", "do")]
    text = types.TextResourceContents(uri="res://one", text="first")

    async def list_tools(ctx, params):
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx, params):
        given = params.arguments or {}
        if params.name == "add":
            said = str(given["a"] + given["b"])
        else:
            said = await scene.do(given["what"], ctx.session, given.get("name", ""))
        return types.CallToolResult(content=[types.TextContent(text=said)])

    async def list_resources(ctx, params):
        return types.ListResourcesResult(resources=[types.Resource(uri="res://one", name="one")])

    async def list_templates(ctx, params):
        template = types.ResourceTemplate(uri_template="res://{name}/text", name="named")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(ctx, params):
        found = text if str(params.uri) == "res://one" else text.model_copy(update={"text": "text of x"})
        return types.ReadResourceResult(contents=[found])

    async def list_prompts(ctx, params):
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet")])

    async def get_prompt(ctx, params):
        words = types.TextContent(text=f"Greet {params.arguments['name']}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=words)])

    async def complete(ctx, params):
        return types.CompleteResult(completion=types.Completion(values=[params.argument.value + "b"]))

    async def set_level(ctx, params):
        scene.finished.append(params.level)
        return types.EmptyResult()

    return Server(
        "low",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=set_level,
        **more,
    )


def high_level(scene, **more):
    """Make mcp's high-level server."""
    server = MCPServer("high", **more)

    @server.tool()
    async def do(what: str, ctx: Context, name: str = "") -> str:
        return await scene.do(what, ctx.session, name)

    async def complete(ref, argument, context):
        return types.Completion(values=[argument.value + "b"])

    server.completion()(complete)
    return _furnished(server, server.tool(), server.prompt())


def fastmcp(scene, **more):
    """Make a FastMCP server."""
    server = FastMCP("fast", **more)

    @server.tool
    async def do(what: str, ctx: FastContext, name: str = "") -> str:
        return await scene.do(what, ctx.session, name)

    async def complete(ref, argument, context):
        return [argument.value + "b"]

    server.completion(complete)
    return _furnished(server, server.tool, server.prompt)


def _furnished(server, tool, prompt):
    async def add(a: int, b: int) -> int:
        return a + b

    async def one() -> str:
        return "first"

    async def named(name: str) -> str:
        return f"text of {name}"

    async def greet(name: str) -> str:
        return f"Greet {name}"

    tool(add)
    server.resource("res://one")(one)
    server.resource("res://{name}/text")(named)
    prompt(greet)
    return server


KINDS = {"low": low_level, "high": high_level, "fast": fastmcp}


def request(request_id, method, **params):
    """Return a request of the client."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def initialize(request_id=0, version="2025-11-25"):
    """Return the CLI's first request."""
    return request(request_id, "initialize", protocolVersion=version, capabilities={}, clientInfo=CLIENT)


def do(request_id, what, name="", **more):
    """Return a call of the tool `do`, with a progress token as the CLI sends it."""
    meta = {"_meta": {"progressToken": request_id, "claudecode/toolUseId": "toolu_1"}}
    return request(
        request_id, "tools/call", name="do", arguments={"what": what, "name": name}, **meta, **more
    )


def note(method, **params):
    """Return a notification of the client."""
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


def running():
    """Return the ids of the running tasks."""
    return {task.id for task in anyio.get_running_tasks()}


@asynccontextmanager
async def connected(server, channel=None, *, greeting=True, alone=True, limit=20):
    """Yield a connection to the server, for `limit` seconds at most, and check that it leaves no task behind."""
    before = running()
    with anyio.fail_after(limit):
        connection = ForeignServer(server).connect(channel or RecordingChannel())
        try:
            if greeting:
                await greet(connection)
            yield connection
        finally:
            await connection.aclose()
        assert running() <= before or not alone


class Calls:
    """Requests that are pending side by side: `start` one, later await its `reply`."""

    def __init__(self, connection, group):
        self._connection = connection
        self._group = group
        self._replies = {}

    def start(self, key, message):
        scope = anyio.CancelScope()
        self._replies[key] = (anyio.Event(), [], scope)
        self._group.start_soon(self._run, key, message)

    async def _run(self, key, message):
        done, replies, scope = self._replies[key]
        with scope:
            replies.append(await self._connection.answer(message))
        done.set()

    def give_up(self, key):
        self._replies[key][2].cancel()

    async def reply(self, key):
        done, replies, _ = self._replies[key]
        await done.wait()
        return replies[0]


async def greet(connection):
    """Do the whole handshake, and return its result."""
    answer = await connection.answer(initialize())
    assert await connection.answer(note("notifications/initialized")) is None
    return answer["result"]


def text_of(answer):
    """Return the text of a tool's result."""
    return answer["result"]["content"][0]["text"]
