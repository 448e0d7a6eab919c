"""Clients of a server over HTTP, on a loopback port or in memory, and servers whose tools a test can wait for."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx2

from toolwire import Context, ToolServer
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import bound_socket
from toolwire.mcp.serve.start import host_for, serve_over

LIMIT = 30
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
VERSIONS = ["2025-06-18", HANDSHAKE, MODERN]
BOTH = "application/json, text/event-stream"
ANY = "*/*"  # as valid, but not what clients send, so `mcp` handles it
INFO = {"name": "test", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Calc:
    """A server, and records of what its tools did."""

    def __init__(self):
        self.runs = 0
        self.begun, self.let_go = anyio.Event(), anyio.Event()
        self.ended = anyio.Event()
        self.server = ToolServer("calc")
        for each in (self.add, self.told, self.wait, self.broken, self.odd):
            self.server.tool(each)

    async def add(self, a: float, b: float) -> float:
        """Add."""
        self.runs += 1
        return a + b

    async def told(self, context: Context) -> str:
        """Tell of progress first."""
        self.runs += 1
        context.progress(1, 2)
        return "told"

    async def wait(self) -> str:
        """Wait."""
        self.runs += 1
        self.begun.set()
        try:
            await self.let_go.wait()
        finally:
            self.ended.set()
        return "waited"

    async def broken(self) -> str:
        """Fail."""
        raise ValueError("broken")

    async def odd(self) -> dict:
        """Give a content that no version knows."""
        return {"content": [{"type": "smell", "of": "roses"}]}


class Waiting:
    """A server with a tool that waits until it is let go; `begun` counts its calls."""

    def __init__(self):
        self.begun = 0
        self.more = anyio.Event()
        self.let_go = anyio.Event()
        self.server = ToolServer("waiting")
        self.server.tool(self.wait)
        self.server.tool(self.echo)

    async def wait(self, text: str = "waited") -> str:
        """Wait."""
        self.begun += 1
        self.more.set()
        await self.let_go.wait()
        return text

    async def echo(self, text: str) -> str:
        """Say it again."""
        return text

    async def has_begun(self, times=1):
        while self.begun < times:
            self.more = anyio.Event()
            await self.more.wait()


class Client:
    """A client that speaks one version of MCP to a server."""

    def __init__(self, http, version):
        self.http = http
        self.version = version
        self.headers = {"content-type": "application/json", "accept": BOTH, "mcp-protocol-version": version}

    async def open(self):
        if self.version != MODERN:
            params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": INFO}
            opened = await self.post("initialize", params, 0)
            self.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            await self.post("notifications/initialized", {}, None)
        return self

    def request(self, method, params, number=1, **more):
        headers = {**self.headers, **more}
        if self.version == MODERN:
            params = {**params, "_meta": {**ENVELOPE, "io.modelcontextprotocol/clientInfo": INFO}}
            headers |= {"mcp-method": method, **({"mcp-name": params["name"]} if "name" in params else {})}
        body = {
            "jsonrpc": "2.0",
            "method": method,
            "params": params,
            **({} if number is None else {"id": number}),
        }
        return {"url": "/mcp", "headers": headers, "json": body}

    async def post(self, method, params, number=1, **more):
        return await self.http.post(**self.request(method, params, number, **more))

    async def call(self, tool, number=1, **arguments):
        return await self.post("tools/call", {"name": tool, "arguments": arguments}, number)


@asynccontextmanager
async def served(calc, version):
    """Serve on a loopback port, and yield a connected client."""
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            anyio.create_task_group() as serving,
            httpx2.AsyncClient(base_url=base, timeout=LIMIT) as http,
        ):
            serving.start_soon(serve_over, host_for(calc.server), listening, guard_for("127.0.0.1", None))
            yield await Client(http, version).open()
            serving.cancel_scope.cancel()


def call(tool="add", number=1, version=MODERN, **arguments):
    """Return a tool call as (body, headers)."""
    params = {"name": tool, "arguments": arguments}
    headers = {
        "content-type": "application/json",
        "accept": BOTH,
        "mcp-protocol-version": version,
    }
    if version == MODERN:
        params["_meta"] = ENVELOPE
        headers |= {"mcp-method": "tools/call", "mcp-name": tool}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, headers


@asynccontextmanager
async def client_of(app, served=None):
    """Start an application and yield a client of it; `served` is the part with the lifespan, if not all of it."""
    served = app if served is None else served
    with anyio.fail_after(LIMIT):
        async with (
            served.router.lifespan_context(served),
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1", timeout=LIMIT
            ) as http,
        ):
            yield http


async def opened(http, **more):
    """Open a session, and return the headers for further requests."""
    _, headers = call(version=HANDSHAKE)
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": INFO}
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    reply = await http.post("/mcp", headers=headers | more, json=first)
    headers |= {"mcp-session-id": reply.headers["mcp-session-id"]}
    for further in ({"method": "notifications/initialized"}, {"method": "ping", "id": 1}):
        await http.post("/mcp", headers=headers | more, json={"jsonrpc": "2.0", **further})
    return headers


def message_of(reply):
    lines = [each for each in reply.text.splitlines() if each.startswith("data: {")]
    return json.loads(lines[-1].removeprefix("data: ") if lines else reply.text)


def text_of(reply):
    return message_of(reply)["result"]["content"][0]["text"]
