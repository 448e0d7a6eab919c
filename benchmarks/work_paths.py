"""The hot paths: each one unit of work, done again and again in this process, with no real pipe."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import toolwire
from benchmarks.work_wires import Caller, Turn, Wires, conversation, encoded

SERVER = "calc"
_BLOCKS = 8  # different chunks to feed: an id is used again long after its question was answered


@dataclass(frozen=True)
class HotPath:
    """A piece of work that users wait for, many times a run."""

    opened: Callable[[], AbstractAsyncContextManager[Turn]]
    units: int = 192
    """How many to do for one count."""
    slack: float = 0.1
    """How much more than what was recorded is let through; more where threads meet by chance."""


# Questions of the CLI.


def _question(number: int, body: dict[str, Any]) -> bytes:
    return encoded({"type": "control_request", "request_id": f"peer_{number}", "request": body})


def _rpc(number: int, method: str, params: dict[str, Any], *, notice: bool = False) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    if notice:
        del message["id"]
    return _question(number, {"subtype": "mcp_message", "server_name": SERVER, "message": message})


def tool_call(number: int) -> bytes:
    """A call of the tool `add`."""
    meta = {"progressToken": number, "claudecode/toolUseId": f"toolu_{number:024d}"}
    return _rpc(number, "tools/call", {"name": "add", "arguments": {"a": 15, "b": 27}, "_meta": meta})


def _blocks(made: Callable[[int], bytes], depth: int = 1) -> list[bytes]:
    return [b"".join(made(each * depth + one + 10) for one in range(depth)) for each in range(_BLOCKS)]


@asynccontextmanager
async def _served(server: Any) -> AsyncIterator[Wires]:
    """A conversation in which the CLI has shaken hands with a server."""
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "peer", "version": "1"},
    }
    async with conversation(mcp_servers={SERVER: server}) as (wires, _client):
        await wires.answers(_rpc(1, "initialize", about), 1)
        await wires.answers(_rpc(2, "notifications/initialized", {}, notice=True), 1)
        yield wires


@asynccontextmanager
async def calls(server: Callable[[], Any], depth: int = 1) -> AsyncIterator[Turn]:
    """Tool calls, so many at a time."""
    async with _served(server()) as wires:
        yield wires.asking(_blocks(tool_call, depth), depth, b"42")


@asynccontextmanager
async def lists() -> AsyncIterator[Turn]:
    """`tools/list` with a thousand tools."""
    async with _served(many_tools()) as wires:
        yield wires.asking(_blocks(lambda number: _rpc(number, "tools/list", {})), 1, b'"tool_999"')


@asynccontextmanager
async def permissions() -> AsyncIterator[Turn]:
    """May this tool be used?"""

    async def decide(_name: str, _given: dict[str, Any], _context: Any) -> Any:
        return toolwire.PermissionResultAllow()

    def ask(number: int) -> bytes:
        body = {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "input": {"command": "ls", "description": "List"},
        }
        return _question(
            number, {**body, "permission_suggestions": [], "tool_use_id": f"toolu_{number:024d}"}
        )

    async with conversation(can_use_tool=decide) as (wires, _client):
        yield wires.asking(_blocks(ask), 1, b'"allow"')


@asynccontextmanager
async def hooks() -> AsyncIterator[Turn]:
    """A hook before a tool is used."""

    async def look(_given: Any, _used: str | None, _context: Any) -> Any:
        return {"continue_": True}

    options = {"hooks": {"PreToolUse": [toolwire.HookMatcher(matcher="Bash", hooks=[look])]}}
    async with conversation(**options) as (wires, _client):
        known = wires.initialize["request"]["hooks"]["PreToolUse"][0]["hookCallbackIds"][0]
        given = {"session_id": "s", "transcript_path": "t", "cwd": "/", "hook_event_name": "PreToolUse"}
        given |= {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"}
        body = {"subtype": "hook_callback", "callback_id": known, "input": given, "tool_use_id": "toolu_1"}
        yield wires.asking(_blocks(partial(_question, body=body)), 1, b'"continue":true')


# Messages of the CLI.

_COMMON = {"session_id": "bench", "uuid": "u", "parent_tool_use_id": None}


def _said(text: str) -> bytes:
    body = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": None,
        "usage": {},
    }
    return encoded(
        {"type": "assistant", **_COMMON, "message": {**body, "content": [{"type": "text", "text": text}]}}
    )


def _partial(text: str) -> bytes:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return encoded({"type": "stream_event", **_COMMON, "event": delta})


@asynccontextmanager
async def bursts(burst: int = 64) -> AsyncIterator[Turn]:
    """Small messages that lie in the pipe together, read with `async for`."""
    chunk = _said("lorem ipsum dolor sit amet") * burst
    async with conversation() as (wires, client):
        messages = client.receive_messages()

        async def turn(units: int) -> None:
            for _ in range(units // burst):
                wires.listener.data_received(chunk)
                for _ in range(burst):
                    await anext(messages)

        yield turn
        await messages.aclose()


@asynccontextmanager
async def streamed(line: bytes, cut: int) -> AsyncIterator[Turn]:
    """Messages that come one by one, in pieces of `cut` bytes, while the reader waits."""
    pieces = [line[at : at + cut] for at in range(0, len(line), cut)]
    async with conversation(include_partial_messages=True) as (wires, client):
        messages, loop = client.receive_messages(), asyncio.get_running_loop()

        async def turn(units: int) -> None:
            for _ in range(units):
                for piece in pieces:
                    loop.call_soon(wires.listener.data_received, piece)
                await anext(messages)

        yield turn
        await messages.aclose()


# Over HTTP: the ASGI application, called as a server would.


@asynccontextmanager
async def posts(
    server: Callable[[], Any], method: str, params: dict[str, Any], found: bytes
) -> AsyncIterator[Turn]:
    """Requests of a client in a session."""
    from toolwire.mcp.serve.start import http_app  # noqa: PLC0415 - heavy, and only for these paths

    app = http_app(server())
    client = Caller(app)
    about = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "peer", "version": "1"},
    }
    async with app.router.lifespan_context(app):
        await client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

        async def turn(units: int) -> None:
            for _ in range(units):
                answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            if found not in answer:
                raise ValueError(f"a wrong answer: {answer[:300]!r}")

        yield turn


# What is called.


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def typed(function: Callable[..., Any] = add, **settings: Any) -> Any:
    """A typed tool, in a server."""
    server = toolwire.ToolServer(SERVER)
    server.tool(name="add", **settings)(function)
    return server


def add_here(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def raw() -> Any:
    """A tool with a schema by hand, as the official SDK has them."""
    number = {"type": "number"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}

    async def handle(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}

    return toolwire.create_sdk_mcp_server(
        SERVER, tools=[toolwire.tool("add", "Add two numbers.", schema)(handle)]
    )


def many_tools(count: int = 1000) -> Any:
    """A server of many small tools."""

    async def handle(_given: dict[str, Any]) -> dict[str, Any]:
        return {"content": []}

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    made = [
        toolwire.tool(f"tool_{each}", "Tell the weather of a city.", schema)(handle) for each in range(count)
    ]
    return toolwire.create_sdk_mcp_server(SERVER, tools=made)["instance"]


def foreign() -> Any:
    """A server of the `mcp` package."""
    from mcp.server import MCPServer  # noqa: PLC0415 - heavy, and only for this path

    server = MCPServer(SERVER, log_level="CRITICAL")  # it sets up logging for the whole process
    server.tool()(add)
    return server


_CALL = {"name": "add", "arguments": {"a": 15, "b": 27}}

PATHS: dict[str, HotPath] = {
    "tool call": HotPath(lambda: calls(typed)),
    "tool call, 64 in flight": HotPath(lambda: calls(typed, 64), units=640),
    "tool call, inline": HotPath(lambda: calls(partial(typed, add_here, inline=True))),
    "tool call, in a thread": HotPath(lambda: calls(partial(typed, add_here)), slack=0.3),
    "tool call, raw schema": HotPath(lambda: calls(raw)),
    "tools/list of 1,000": HotPath(lists, units=24),
    "permission": HotPath(permissions),
    "hook": HotPath(hooks),
    "messages in a burst": HotPath(bursts, units=640),
    "partial message": HotPath(lambda: streamed(_partial("lorem ipsum"), 1 << 16)),
    "message of 1 MB": HotPath(lambda: streamed(_said("lorem ipsum dolor é " * 50_000), 1 << 16), units=4),
    # From here on `mcp` is loaded, and with it OpenTelemetry, which a session that begins then makes spans for.
    "tool call, bridged": HotPath(lambda: calls(foreign), units=48),
    "HTTP call": HotPath(lambda: posts(typed, "tools/call", _CALL, b"42"), units=32),
    "HTTP tools/list of 1,000": HotPath(lambda: posts(many_tools, "tools/list", {}, b'"tool_999"'), units=16),
}
