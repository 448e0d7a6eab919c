"""The HTTP transport: responses that cannot be encoded, shutdown, and the address to listen on."""

import json
import os
import signal
import socket

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from toolwire import ToolServer
from toolwire.errors import UsageError
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import HttpApp, bound_socket
from toolwire.mcp.serve.start import host_for, serve_over

pytestmark = pytest.mark.asyncio_only  # the HTTP server is asyncio's

LIMIT = 30
BAD = "\ud800"  # half of a surrogate pair: UTF-8 cannot encode it
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def asking(method, params=None, request_id=1):
    """Return the headers and body of a request of MCP 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if params is not None:
        headers["mcp-name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**(params or {}), "_meta": meta}}
    return {"headers": headers, "json": body}


@pytest.mark.anyio
@pytest.mark.parametrize("sessions", [True, False])
async def test_an_answer_that_cannot_be_written_is_an_error(sessions):
    """Otherwise a client of the older versions would wait for it on a stream that has ended."""
    host = host_for(ToolServer("core"))

    async def bad(_ctx, _params):
        return {"text": BAD}

    async def refuse(_ctx, _params):
        raise MCPError(code=-32001, message=BAD)

    host.mcp_server.add_request_handler("x/bad", types.RequestParams, bad)
    host.mcp_server.add_request_handler("x/refuse", types.RequestParams, refuse)
    app = HttpApp(host, guard_for("127.0.0.1", None), sessions=sessions).asgi
    carrier = httpx2.ASGITransport(app)
    with anyio.fail_after(LIMIT):
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=carrier, base_url="http://localhost", headers=ACCEPT) as client,
        ):
            params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            opened = await client.post("/mcp", json=hello)
            if sessions:
                client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            for number, method in enumerate(["x/bad", "x/refuse"]):
                reply = await client.post("/mcp", json={"jsonrpc": "2.0", "id": number, "method": method})
                line = next(each for each in reply.text.splitlines() if each.startswith("data: {"))
                told = json.loads(line.removeprefix("data: "))
                assert (told["id"], told["error"]["code"]) == (number, -32603)


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_end_takes_no_new_work(capfd):
    """After a signal, running calls are answered, new ones refused, and a slow client gets status 503."""
    server = ToolServer("app")
    waiting, let_go = anyio.Event(), anyio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        await let_go.wait()
        return "waited"

    call = asking("tools/call", {"name": "wait"})
    replies = []
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        address = listening.getsockname()
        base = f"http://127.0.0.1:{address[1]}"
        async with anyio.create_task_group() as serving, httpx2.AsyncClient(base_url=base) as client:
            serving.start_soon(serve_over, host_for(server), listening, guard_for("127.0.0.1", None))

            async def ask() -> None:
                replies.append(await client.post("/mcp", **call))

            async with anyio.create_task_group() as calls:
                calls.start_soon(ask)
                await waiting.wait()
                slow = await anyio.connect_tcp(*address)
                await slow.send(
                    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                    b"Accept: application/json, text/event-stream\r\n"
                    b"Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\r\n{"
                )
                assert (await client.get("/healthz")).status_code == 200
                os.kill(os.getpid(), signal.SIGTERM)
                while (health := await client.get("/healthz")).status_code == 200:
                    pass  # until the signal has arrived
                assert (health.status_code, health.json()["status"]) == (503, "closing")
                refused = await client.post("/mcp", **call)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, -32000)
                assert (await client.get("/mcp", headers=ACCEPT)).status_code == 503
                told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
                notice = await client.post("/mcp", headers=call["headers"], json=told)
                assert notice.status_code == 202, "what is no new work is heard"
                let_go.set()
            async with slow:
                assert (await slow.receive()).startswith(b"HTTP/1.1 503 ")
    assert replies[0].json()["result"]["content"] == [{"type": "text", "text": "waited"}]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("nosuch.invalid", r"cannot listen on nosuch\.invalid:0: (?!Unknown error)\w[\w ]+$"),
        ("203.0.113.1", r"cannot listen on 203\.0\.113\.1:0: Cannot assign requested address$"),
        ("", "the host is empty"),
    ],
)
def test_an_address_that_cannot_be_had_is_named_in_words(host, said):
    """The error has the reason that the system gives, and no useless advice."""
    with pytest.raises(UsageError, match=said):
        bound_socket(host, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_may_have_its_brackets():
    """They are removed before the address is used."""
    with bound_socket("[::1]", 0) as listening:
        assert listening.getsockname()[0] == "::1"
