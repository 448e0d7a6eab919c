"""Cancellation at every await: of a query, a client, a run, a served call and a purchase.

Each test does its work again and again, cancelled one await later each time, until it ends uncancelled. Each time
the cancellation must come out, nothing may be left, and the same objects must still work for the next user.
"""

import json
import os
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from faults.hostile_cli import RIGHT
from faults.leftovers import threads
from faults.points import WAYS_TO_CANCEL, sweep
from faults.stage import Outcome
from shared.shark import Shark
from shared.stdio_peer import Peer
from shared.till import opened, states
from shared.waiting import eventually
from toolwire import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, ToolServer, query, run
from toolwire.catalog.purchase.limits import Breaker
from toolwire.mcp.serve.start import host_for, http_app, serve_pipe
from toolwire.testing import ScriptedCLI, call, connect, say

every_way = pytest.mark.parametrize("how", WAYS_TO_CANCEL)
every_peer = pytest.mark.parametrize("peer", ["memory", "process"])
PRICE = 10_000


def options_for(stage, peer):
    """Return options for the hostile CLI without a fault, or for a CLI in memory that ends with the same text."""
    if peer == "process":
        return stage.options()
    server = ToolServer("calc")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        await anyio.sleep(0)
        return a + b

    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), say(RIGHT)], allow=True)
    return ClaudeAgentOptions(mcp_servers={"calc": server}, spawn_claude_code_process=cli)


# --- one prompt ---


@every_way
@every_peer
def test_query(stage, record_property, how, peer):
    """`query()` can be cancelled anywhere, and leaves nothing behind."""

    async def case(cancel):
        async def work():
            found = Outcome()
            async for message in query(prompt="hello", options=options_for(stage, peer)):
                found.messages.append(message)
            return found

        ended = await cancel(work)
        assert ended.cancelled or ended.result.results == [RIGHT]

    assert sweep(stage, how, case, record_property) > 5


@every_way
@every_peer
def test_run(stage, record_property, how, peer):
    """`run()` can be cancelled anywhere, and leaves nothing behind."""

    async def case(cancel):
        ended = await cancel(lambda: run("hello", options=options_for(stage, peer)))
        assert ended.cancelled or ended.result.text == RIGHT

    assert sweep(stage, how, case, record_property) > 5


# --- a client, method by method: after a cancellation the others still work ---


@asynccontextmanager
async def connected(stage, peer):
    """Yield a connected client."""
    async with ClaudeSDKClient(options_for(stage, peer)) as client:
        yield client


async def read_to_the_result(client):
    """Read messages up to the result, and return the texts of the results."""
    found = [message async for message in client.receive_response() if isinstance(message, ResultMessage)]
    return [message.result for message in found]


@every_way
@every_peer
def test_connect(stage, record_property, how, peer):
    """After a cancelled `connect()`, the client can connect again."""

    async def case(cancel):
        client = ClaudeSDKClient(options_for(stage, peer))
        ended = await cancel(client.connect)
        assert client.connected is not ended.cancelled
        if ended.cancelled:
            await client.connect()
        await client.query("hello")
        assert await read_to_the_result(client) == [RIGHT]
        await client.disconnect()

    assert sweep(stage, how, case, record_property) > 0


@every_way
@every_peer
def test_client_query(stage, record_property, how, peer):
    """A cancelled `query()` has sent its prompt already, and the client can be used further."""

    async def case(cancel):
        async with connected(stage, peer) as client:
            await cancel(lambda: client.query("hello"))
            assert await read_to_the_result(client) == [RIGHT], "it is written before anything is waited for"
            await client.set_model("m")

    sweep(stage, how, case, record_property)


@every_way
@every_peer
def test_receive(stage, record_property, how, peer):
    """Cancelled reading loses no message: whoever reads next gets the rest."""

    async def case(cancel):
        taken = []

        async def work():
            async for message in client.receive_response():
                taken.append(message)

        async with connected(stage, peer) as client:
            await client.query("hello")
            await cancel(work)
            if not any(isinstance(message, ResultMessage) for message in taken):
                await work()
        outcome = Outcome(taken)
        assert outcome.results == [RIGHT]
        assert peer == "memory" or outcome.right

    assert sweep(stage, how, case, record_property) > 0


@every_way
@every_peer
@pytest.mark.parametrize("verb", ["interrupt", "set_model", "get_mcp_status"])
def test_control_requests(stage, record_property, how, peer, verb):
    """A response whose caller was cancelled does not disturb later requests."""

    async def case(cancel):
        async with connected(stage, peer) as client:
            await cancel(getattr(client, verb))
            await getattr(client, verb)()
            await client.query("hello")
            assert await read_to_the_result(client) == [RIGHT]

    assert sweep(stage, how, case, record_property) > 0


@every_way
@every_peer
def test_disconnect(stage, record_property, how, peer):
    """A cancelled `disconnect()` ends the CLI all the same, and can be repeated."""

    async def case(cancel):
        client = ClaudeSDKClient(options_for(stage, peer))
        await client.connect()
        await cancel(client.disconnect)
        assert not client.connected
        await client.disconnect()

    assert sweep(stage, how, case, record_property) > 0


@every_way
@every_peer
def test_disconnect_in_mid_turn(stage, record_property, how, peer):
    """`disconnect()` can be cancelled while the model is answering, and leaves nothing behind."""

    async def case(cancel):
        async with connected(stage, peer) as client:
            await client.query("hello")
            async for _ in client.receive_messages():
                break
            await cancel(client.disconnect)

    assert sweep(stage, how, case, record_property) > 0


# --- a served call ---

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Served:
    """A server behind an HTTP application, which counts the calls of its tool."""

    def __init__(self):
        self.begun = self.ended = 0
        server = ToolServer("calc")

        @server.tool
        async def add(a: int, b: int, seconds: float) -> int:
            """Add, and take that long."""
            self.begun += 1
            try:
                await anyio.sleep(seconds)
            finally:
                self.ended += 1
            return a + b

        self.app = http_app(server)

    async def call(self, seconds):
        """Call the tool as a web server would, and return the text of its result."""
        params = {"name": "add", "arguments": {"a": 15, "b": 27, "seconds": seconds}, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        body = json.dumps(message).encode()
        headers = {
            "host": "localhost",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "add",
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        came = [{"type": "http.request", "body": body, "more_body": False}]
        sent = []

        async def receive():
            await anyio.sleep(0)
            return came.pop() if came else await anyio.sleep_forever()

        async def send(event):
            await anyio.sleep(0)
            sent.append(event.get("body", b""))

        await self.app(scope, receive, send)
        data = b"".join(sent)
        return json.loads(data[data.index(b"{") : data.rindex(b"}") + 1])["result"]["content"][0]["text"]


@pytest.mark.parametrize("how", ["task", "late", "scope"])
@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["at_once", "slow"])
def test_a_served_call(stage, record_property, how, seconds):
    """A cancelled request ends its tool, and the next request is answered. A slow call is passed on to `mcp`."""

    async def case(cancel):
        served = Served()
        async with served.app.router.lifespan_context(served.app):
            ended = await cancel(lambda: served.call(seconds))
            assert ended.cancelled or ended.result == "42"
            await eventually(lambda: served.begun == served.ended)
            assert served.begun <= 1
            assert await served.call(0.0) == "42"

    assert sweep(stage, how, case, record_property) > 3


class ServedOverStdio:
    """The same server over stdio, whose next call a test can cancel."""

    def __init__(self):
        self.begun = self.ended = self.returned = 0
        self.server = ToolServer("calc")
        self.cancel = None
        """Does the work of the next call, and cancels it on its way."""

        @self.server.tool
        async def add(a: int, b: int) -> int:
            """Add."""
            self.begun += 1
            try:
                await anyio.sleep(0)
                await anyio.sleep(0.001)
                self.returned += 1
                return a + b
            finally:
                self.ended += 1

        @self.server.tool
        def add_in_thread(a: int, b: int) -> int:
            """Add in a worker thread."""
            self.begun += 1
            self.returned += 1
            self.ended += 1
            return a + b

    async def serve(self, peer):
        """Serve the client on those pipes until it leaves."""
        host = host_for(self.server)
        host.mcp_server.middleware.insert(0, self._cancel_on_the_way)
        await serve_pipe(host, peer, drain=30.0)

    async def _cancel_on_the_way(self, ctx, call_next):
        if ctx.method != "tools/call" or self.cancel is None:
            return await call_next(ctx)
        cancel, self.cancel = self.cancel, None
        ended = await cancel(lambda: call_next(ctx))
        if ended.cancelled:
            raise MCPError(code=-1, message="cancelled")
        return ended.result


def call_tool(peer, tool, request_id):
    """Write a request to call a tool."""
    peer.send("tools/call", {"name": tool, "arguments": {"a": 15, "b": 27}}, request_id)


def shake_hands(peer):
    """Write the requests that open a session."""
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    peer.send("initialize", params, 0)
    peer.send("notifications/initialized")


@asynccontextmanager
async def pipes():
    """Yield the pipes between a client and its server; close them when the thread that reads them has ended."""
    before, peer = threads(), Peer()
    try:
        yield peer
    finally:
        with anyio.CancelScope(shield=True):
            peer.leave()
            await eventually(lambda: threads() <= before)
        peer.close()
        os.close(peer.input)


both_kinds = pytest.mark.parametrize("tool", ["add", "add_in_thread"])


@every_way
@both_kinds
def test_a_call_over_stdio(stage, record_property, how, tool):
    """A call that is cancelled ends its tool, and the same client gets a response to its next request."""

    async def case(cancel):
        served = ServedOverStdio()
        served.cancel = cancel
        async with pipes() as peer, anyio.create_task_group() as tasks:
            tasks.start_soon(served.serve, peer)
            await peer.shake_hands()
            call_tool(peer, tool, 1)
            first = await peer.receive()
            if served.returned:
                assert text_of(first) == "42" or first["error"]["message"] == "cancelled"
            else:
                assert first["error"]["message"] == "cancelled"
            await eventually(lambda: served.begun == served.ended)
            assert served.begun <= 1
            call_tool(peer, tool, 2)
            second = await peer.receive()
            assert (second["id"], text_of(second)) == (2, "42")
            peer.leave()

    assert sweep(stage, how, case, record_property) > 0


@every_way
@both_kinds
def test_a_server_over_stdio(stage, record_property, how, tool):
    """A cancelled server ends its calls and its connection; the tools can be served again."""

    async def case(cancel):
        served = ServedOverStdio()
        async with pipes() as peer:
            shake_hands(peer)
            call_tool(peer, tool, 1)
            peer.leave()
            ended = await cancel(lambda: served.serve(peer))
            assert served.begun <= 1
            await eventually(lambda: served.begun == served.ended)
            if not ended.hit:
                await peer.receive()
                assert text_of(await peer.receive()) == "42"
        async with pipes() as peer:
            shake_hands(peer)
            call_tool(peer, tool, 1)
            peer.leave()
            await served.serve(peer)
            await peer.receive()
            assert text_of(await peer.receive()) == "42"

    assert sweep(stage, how, case, record_property, in_all_tasks=True) > 20


def text_of(response):
    """Return the text of a tool's result; None for an error."""
    return response["result"]["content"][0]["text"] if "result" in response else None


@every_way
def test_an_answered_call(stage, record_property, how):
    """A cancelled call in this process ends its tool, and the next call is answered."""

    async def case(cancel):
        seen = []
        server = ToolServer("calc")

        @server.tool
        async def add(a: int, b: int) -> int:
            """Add."""
            seen.append("begun")
            try:
                await anyio.sleep(0)
                await anyio.sleep(0.001)
            finally:
                seen.append("ended")
            return a + b

        async with connect(server) as client:
            ended = await cancel(lambda: client.call("add", a=15, b=27))
            assert ended.cancelled or ended.result.text == "42"
            assert seen.count("begun") == seen.count("ended") <= 1
            assert (await client.call("add", a=15, b=27)).text == "42"

    assert sweep(stage, how, case, record_property) > 0


# --- a purchase ---


@every_way
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_a_purchase(stage, record_property, how, idempotent):
    """A cancelled purchase is never sent twice, and all that the API has charged is in the ledger."""
    header = {"idempotent": True, "idempotency_header": "Idempotency-Key"} if idempotent else {}
    settings = {"profile": {"timeout": 10.0, **header}, "breaker": Breaker(failures=1_000), "audit": False}
    numbers = iter(range(10_000))

    with Shark(idempotent=idempotent) as api:

        async def case(cancel):
            folder = stage.folder / f"ledger {next(numbers)}"
            folder.mkdir()
            sold, orders = len(api.sold), api.orders
            async with opened(api, folder, **settings) as (_, client):
                ended = await cancel(lambda: client.call("weather", city="Ulm"))
                await eventually(lambda: api.connected == 0)
                await eventually(lambda: "sent" not in [state for state, _ in states(folder)])
                booked = states(folder)
                assert api.orders - orders <= 1, "it was sent twice"
                assert len(booked) <= 1
                if len(api.sold) > sold:
                    assert booked in ([("settled", PRICE)], [("unknown", PRICE)]), (
                        "it was bought and forgotten"
                    )
                if not ended.cancelled:
                    assert not ended.result.is_error
                    assert booked == [("settled", PRICE)]
                elif booked and booked[0][0] == "released":
                    assert len(api.sold) == sold
                assert not (await client.call("weather", city="Bonn")).is_error, "nothing is stuck"

        assert sweep(stage, how, case, record_property) > 3
