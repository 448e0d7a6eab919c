"""A server over stdio on pipes of this process, and the client's ends of them."""

import json
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from toolwire.mcp.serve.stdio import serve_wire

LIMIT = 20
BAD = "\ud800"  # half of a character: no UTF-8 can hold it


@dataclass
class Peer:
    """The server's two descriptors, and the client's ends of them."""

    drain: float = 30
    ended: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self):
        self.input, self._writing = os.pipe()
        self._reading, self.output = os.pipe()
        self._pending = b""

    def write(self, line):
        """Write a line."""
        os.write(self._writing, line.encode() + b"\n")

    def send(self, method, params=None, request_id=None):
        """Write a request, or a notification if it has no id."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.write(json.dumps(message if request_id is None else {**message, "id": request_id}))

    async def receive(self):
        """Return the next message."""
        while b"\n" not in self._pending:
            await anyio.wait_readable(self._reading)
            self._pending += os.read(self._reading, 1 << 16)
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    async def shake_hands(self):
        """Do the handshake, and return the result of `initialize`."""
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.send("initialize", params, 0)
        result = (await self.receive())["result"]
        self.send("notifications/initialized")
        return result

    def leave(self):
        """Close the server's input."""
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    def stop_reading(self):
        """Close the client's end of the server's output."""
        if self._reading is not None:
            os.close(self._reading)
            self._reading = None

    def close(self):
        """Close everything except the server's input, which its thread may still be reading."""
        self.leave()
        self.stop_reading()
        os.close(self.output)


@asynccontextmanager
async def serving(core, drain=30):
    """Serve over pipes and yield the client's side; at the end, wait until the server has ended by itself."""
    peer = Peer(drain)

    async def serve():
        await serve_wire(peer, core, peer.drain)
        peer.ended.set()

    try:
        with anyio.fail_after(LIMIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                yield peer
                peer.leave()
                await peer.ended.wait()
    finally:
        peer.close()


def low_level_server():
    """Make a server with results and notifications that JSON cannot hold, and calls that wait."""
    core = Server("core")
    core.let_go = anyio.Event()
    core.waiting = anyio.Event()

    async def bad(_ctx, _params):
        return {"text": BAD}

    async def refuse(_ctx, _params):
        raise MCPError(code=-32001, message=BAD)

    async def notice(ctx, _params):
        for data in (BAD, "after"):
            await ctx.session.send_notification(
                types.LoggingMessageNotification(
                    params=types.LoggingMessageNotificationParams(level="info", data=data)
                )
            )
        return {}

    async def wait(_ctx, _params):
        core.waiting.set()
        await core.let_go.wait()
        return {"waited": True}

    for name, handler in (("bad", bad), ("refuse", refuse), ("notice", notice), ("wait", wait)):
        core.add_request_handler(f"x/{name}", types.RequestParams, handler)
    return core
