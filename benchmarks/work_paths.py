"""Defines the hot paths: units of work that are repeated in this process, without a real pipe."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import toolwire
from benchmarks.work_wires import AsgiClient, FakePipe, Turn, encode, open_conversation

SERVER = "calc"
_BLOCKS = 8  # different chunks to feed, so that an id is reused only long after its request was answered


@dataclass(frozen=True)
class HotPath:
    """A piece of work that users wait for, many times in a run."""

    open: Callable[[], AbstractAsyncContextManager[Turn]]
    """Sets the path up, and yields the function that does units of it."""
    units: int = 192
    """How many units are done for one count."""
    slack: float = 0.1
    """By which share a count may exceed the recorded one; larger where the order of threads is random."""


# Requests of the CLI.


def _make_control_request(number: int, body: dict[str, Any]) -> bytes:
    return encode({"type": "control_request", "request_id": f"peer_{number}", "request": body})


def _make_mcp_request(
    number: int, method: str, params: dict[str, Any], *, is_notification: bool = False
) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    if is_notification:
        del message["id"]
    return _make_control_request(
        number, {"subtype": "mcp_message", "server_name": SERVER, "message": message}
    )


def make_tool_call(number: int) -> bytes:
    """Encode a request to call the tool `add`."""
    meta = {"progressToken": number, "claudecode/toolUseId": f"toolu_{number:024d}"}
    return _make_mcp_request(
        number, "tools/call", {"name": "add", "arguments": {"a": 15, "b": 27}, "_meta": meta}
    )


def _make_blocks(encode_one: Callable[[int], bytes], depth: int = 1) -> list[bytes]:
    """Return chunks of `depth` requests each; `encode_one` makes one of them from its id."""
    return [b"".join(encode_one(each * depth + one + 10) for one in range(depth)) for each in range(_BLOCKS)]


@asynccontextmanager
async def _open_server(server: Any) -> AsyncIterator[FakePipe]:
    """Open a session in which the CLI has initialized an in-process MCP server."""
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "peer", "version": "1"},
    }
    async with open_conversation(mcp_servers={SERVER: server}) as (pipe, _client):
        await pipe.feed_and_wait(_make_mcp_request(1, "initialize", about), 1)
        await pipe.feed_and_wait(
            _make_mcp_request(2, "notifications/initialized", {}, is_notification=True), 1
        )
        yield pipe


@asynccontextmanager
async def open_calls(server: Callable[[], Any], depth: int = 1) -> AsyncIterator[Turn]:
    """Call a tool, with `depth` calls in flight."""
    async with _open_server(server()) as pipe:
        yield pipe.make_turn(_make_blocks(make_tool_call, depth), depth, b"42")


@asynccontextmanager
async def open_lists() -> AsyncIterator[Turn]:
    """Send `tools/list` to a server with a thousand tools."""
    async with _open_server(make_large_server()) as pipe:
        yield pipe.make_turn(
            _make_blocks(lambda number: _make_mcp_request(number, "tools/list", {})), 1, b'"tool_999"'
        )


@asynccontextmanager
async def open_permissions() -> AsyncIterator[Turn]:
    """Request permission to use a tool."""

    async def decide(_name: str, _given: dict[str, Any], _context: Any) -> Any:
        return toolwire.PermissionResultAllow()

    def ask(number: int) -> bytes:
        body = {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "input": {"command": "ls", "description": "List"},
        }
        return _make_control_request(
            number, {**body, "permission_suggestions": [], "tool_use_id": f"toolu_{number:024d}"}
        )

    async with open_conversation(can_use_tool=decide) as (pipe, _client):
        yield pipe.make_turn(_make_blocks(ask), 1, b'"allow"')


@asynccontextmanager
async def open_hooks() -> AsyncIterator[Turn]:
    """Call a PreToolUse hook."""

    async def look(_given: Any, _used: str | None, _context: Any) -> Any:
        return {"continue_": True}

    options = {"hooks": {"PreToolUse": [toolwire.HookMatcher(matcher="Bash", hooks=[look])]}}
    async with open_conversation(**options) as (pipe, _client):
        known = pipe.initialize["request"]["hooks"]["PreToolUse"][0]["hookCallbackIds"][0]
        given = {"session_id": "s", "transcript_path": "t", "cwd": "/", "hook_event_name": "PreToolUse"}
        given |= {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"}
        body = {"subtype": "hook_callback", "callback_id": known, "input": given, "tool_use_id": "toolu_1"}
        yield pipe.make_turn(_make_blocks(partial(_make_control_request, body=body)), 1, b'"continue":true')


# Messages of the CLI.

_COMMON = {"session_id": "bench", "uuid": "u", "parent_tool_use_id": None}


def _make_message(text: str) -> bytes:
    body = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": None,
        "usage": {},
    }
    return encode(
        {"type": "assistant", **_COMMON, "message": {**body, "content": [{"type": "text", "text": text}]}}
    )


def _make_partial(text: str) -> bytes:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return encode({"type": "stream_event", **_COMMON, "event": delta})


@asynccontextmanager
async def open_bursts(burst: int = 64) -> AsyncIterator[Turn]:
    """Read small messages with `async for`, of which `burst` arrive in one chunk."""
    chunk = _make_message("lorem ipsum dolor sit amet") * burst
    async with open_conversation() as (pipe, client):
        messages = client.receive_messages()

        async def turn(units: int) -> None:
            for _ in range(units // burst):
                pipe.listener.data_received(chunk)
                for _ in range(burst):
                    await anext(messages)

        yield turn
        await messages.aclose()


@asynccontextmanager
async def open_stream(line: bytes, cut: int) -> AsyncIterator[Turn]:
    """Read messages that arrive one at a time, in pieces of `cut` bytes, while the reader waits."""
    pieces = [line[at : at + cut] for at in range(0, len(line), cut)]
    async with open_conversation(include_partial_messages=True) as (pipe, client):
        messages, loop = client.receive_messages(), asyncio.get_running_loop()

        async def turn(units: int) -> None:
            for _ in range(units):
                for piece in pieces:
                    loop.call_soon(pipe.listener.data_received, piece)
                await anext(messages)

        yield turn
        await messages.aclose()


# Over HTTP: the ASGI application is called as a web server would call it.


@asynccontextmanager
async def open_posts(
    server: Callable[[], Any], method: str, params: dict[str, Any], found: bytes
) -> AsyncIterator[Turn]:
    """Send HTTP requests in an MCP session; a response must contain `found`."""
    from toolwire.mcp.serve.start import http_app  # noqa: PLC0415 - heavy, and only for these paths

    app = http_app(server())
    client = AsgiClient(app)
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
                response = await client.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            if found not in response:
                raise ValueError(f"wrong response, without {found!r}: {response[:300]!r}")

        yield turn


# Tools and servers.


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def make_typed_server(function: Callable[..., Any] = add, **settings: Any) -> Any:
    """Return a server with one typed tool."""
    server = toolwire.ToolServer(SERVER)
    server.tool(name="add", **settings)(function)
    return server


def add_sync(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def make_raw_server() -> Any:
    """Return a server whose tool has a handwritten schema, as in the official SDK."""
    number = {"type": "number"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}

    async def handle(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}

    return toolwire.create_sdk_mcp_server(
        SERVER, tools=[toolwire.tool("add", "Add two numbers.", schema)(handle)]
    )


def make_large_server(count: int = 1000) -> Any:
    """Return a server with many small tools."""

    async def handle(_given: dict[str, Any]) -> dict[str, Any]:
        return {"content": []}

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    made = [
        toolwire.tool(f"tool_{each}", "Tell the weather of a city.", schema)(handle) for each in range(count)
    ]
    return toolwire.create_sdk_mcp_server(SERVER, tools=made)["instance"]


def make_mcp_server() -> Any:
    """Return a server of the `mcp` package."""
    from mcp.server import MCPServer  # noqa: PLC0415 - heavy, and only for this path

    server = MCPServer(SERVER, log_level="CRITICAL")  # it sets up logging for the whole process
    server.tool()(add)
    return server


_CALL = {"name": "add", "arguments": {"a": 15, "b": 27}}

PATHS: dict[str, HotPath] = {
    "tool call": HotPath(lambda: open_calls(make_typed_server)),
    "tool call, 64 in flight": HotPath(lambda: open_calls(make_typed_server, 64), units=640),
    "tool call, inline": HotPath(lambda: open_calls(partial(make_typed_server, add_sync, inline=True))),
    "tool call, in a thread": HotPath(lambda: open_calls(partial(make_typed_server, add_sync)), slack=0.3),
    "tool call, raw schema": HotPath(lambda: open_calls(make_raw_server)),
    "tools/list of 1,000": HotPath(open_lists, units=24),
    "permission": HotPath(open_permissions),
    "hook": HotPath(open_hooks),
    "messages in a burst": HotPath(open_bursts, units=640),
    "partial message": HotPath(lambda: open_stream(_make_partial("lorem ipsum"), 1 << 16)),
    "message of 1 MB": HotPath(
        lambda: open_stream(_make_message("lorem ipsum dolor é " * 50_000), 1 << 16), units=4
    ),
    # From here on `mcp` is loaded, and with it OpenTelemetry, for which sessions that start later create spans.
    "tool call, bridged": HotPath(lambda: open_calls(make_mcp_server), units=48),
    "HTTP call": HotPath(lambda: open_posts(make_typed_server, "tools/call", _CALL, b"42"), units=32),
    "HTTP tools/list of 1,000": HotPath(
        lambda: open_posts(make_large_server, "tools/list", {}, b'"tool_999"'), units=16
    ),
}
