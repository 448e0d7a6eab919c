"""A channel and a client for tests of servers."""

from contextlib import asynccontextmanager

import anyio

from toolwire import McpError
from toolwire._protocol.jsonrpc import ClientChannel


class RecordingChannel(ClientChannel):
    """A channel that records notifications and requests, and answers requests from a table."""

    capabilities = None

    def __init__(self, answers=None, capabilities=None):
        self.told = []
        self.asked = []
        self.answers = answers or {}
        self.capabilities = capabilities or {}

    def notify(self, message):
        self.told.append(message)

    async def request(self, method, params, **_settings):
        self.asked.append((method, params))
        if method not in self.answers:
            raise McpError(-32601, f"Method not found: {method}")
        answer = self.answers[method]
        return answer(params) if callable(answer) else answer


class Client:
    """A client that numbers its requests and returns the responses."""

    def __init__(self, connection):
        self.connection = connection
        self.count = 0

    async def request(self, method, params=None, id=None):
        self.count += 1
        message = {"jsonrpc": "2.0", "id": self.count if id is None else id, "method": method}
        answer = await self.connection.answer(message if params is None else {**message, "params": params})
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == message["id"]
        assert ("result" in answer) != ("error" in answer)
        return answer

    async def call(self, name, /, _meta=None, _id=None, **arguments):
        params = {"name": name, "arguments": arguments}
        if _meta is not None:
            params["_meta"] = _meta
        return await self.request("tools/call", params, _id)

    async def notify(self, method, **params):
        assert await self.connection.answer({"jsonrpc": "2.0", "method": method, "params": params}) is None


@asynccontextmanager
async def connected(server, channel=None):
    """Yield a client of a server, with a limit of 20 seconds."""
    connection = server.connect(channel or RecordingChannel())
    try:
        with anyio.fail_after(20):
            yield Client(connection)
    finally:
        await connection.aclose()
