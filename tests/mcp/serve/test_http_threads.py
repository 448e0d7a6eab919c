"""Sync tools over HTTP: cancelled calls of one client do not take the threads of another."""

import threading

import anyio
import pytest

from shared.http_clients import HANDSHAKE, MODERN, Client, message_of, served
from shared.waiting import eventually
from toolwire import ToolServer

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's

LIMIT = 30
WORKERS = 4


class Hanging:
    """A server with a sync tool that hangs, one that does not, and an async one."""

    def __init__(self):
        self.let_go = threading.Event()
        self.begun = 0
        self.lock = threading.Lock()
        self.server = ToolServer("hanging", workers=WORKERS)
        for tool in (self.hang, self.add, self.add_async):
            self.server.tool(tool)

    def hang(self) -> None:
        """Hang."""
        with self.lock:
            self.begun += 1
        self.let_go.wait(LIMIT)

    def add(self, a: int) -> int:
        """Add one."""
        return a + 1

    async def add_async(self, a: int) -> int:
        """Add one."""
        return a + 1


class Named(Client):
    """A client that sends its own name as the client's, in the version without sessions."""

    name = "test"

    def request(self, method, params, number=1, **more):
        request = super().request(method, params, number, **more)
        if self.version == MODERN:
            meta = request["json"]["params"]["_meta"]
            info = {"name": self.name, "version": "1"}
            request["json"]["params"]["_meta"] = {**meta, "io.modelcontextprotocol/clientInfo": info}
        return request


async def hang_and_cancel(hanging, client, count):
    """Call the tool that hangs `count` times at once, and cancel all the calls."""
    begun = hanging.begun + count
    async with anyio.create_task_group() as calls:
        for number in range(100, 100 + count):
            calls.start_soon(client.call, "hang", number)
        await eventually(lambda: hanging.begun >= begun)
        if client.version == MODERN:
            calls.cancel_scope.cancel()  # closing the connection cancels the request in this version
        else:
            for number in range(100, 100 + count):
                await client.post("notifications/cancelled", {"requestId": number}, None)


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_cancelled_calls_of_one_client_starve_no_other(version):
    """Even if all threads hang in them. Further sync calls of the same client are refused with the reason."""
    hanging = Hanging()
    try:
        async with served(hanging, version) as first:
            mine = Named(first.http, version)
            mine.headers = first.headers
            yours = Named(first.http, version)
            yours.name = "another"
            await yours.open()
            await hang_and_cancel(hanging, mine, WORKERS)
            for number in range(10):
                reply = message_of(await yours.call("add", number, a=number))
                assert reply["result"]["content"][0]["text"] == str(number + 1)
            while not (refused := message_of(await mine.call("add", 1, a=1))["result"]).get("isError"):
                await anyio.sleep(0.005)  # the server notices a closed connection only after a while
            text = refused["content"][0]["text"]
            assert text.startswith(f"Tool 'add' was not run: {WORKERS} calls of this client"), text
            assert message_of(await mine.call("add_async", 2, a=1))["result"]["content"][0]["text"] == "2"
            hanging.let_go.set()
            while message_of(await mine.call("add", 3, a=1))["result"].get("isError"):
                await anyio.sleep(0.005)
    finally:
        hanging.let_go.set()
