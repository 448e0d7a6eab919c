"""Honest and misbehaving clients of both eras at once: the honest get their own responses, and no call is left."""

import random
from contextlib import suppress

import anyio
import httpx2
import pytest

from shared.http_clients import HANDSHAKE, MODERN, Client, message_of
from shared.waiting import eventually
from toolwire import Context, HttpLimits, ToolServer
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import bound_socket
from toolwire.mcp.serve.start import host_for, serve_over

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's

LIMIT = 90
CALLS = 16


def mixed_server():
    server = ToolServer("mixed", workers=8)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def later(text: str, context: Context) -> str:
        context.progress(1, 2, text)
        await anyio.sleep(0.01)
        return text

    @server.tool
    def threaded(text: str) -> str:
        return text

    @server.tool
    async def hang() -> None:
        await anyio.sleep_forever()

    return server


async def honest(http, version, name):
    """Use few ids again and again, one request at a time, and check that every response belongs to its request."""
    client, choose = await Client(http, version).open(), random.Random(name)  # noqa: S311 - to vary a test
    for number in range(CALLS):
        text = f"{name} {number}"
        tool = choose.choice(["echo", "later", "threaded"])
        request_id = choose.choice([1, "1", "x"])
        params = {"name": tool, "arguments": {"text": text}}
        accept = choose.choice(["*/*", "application/json, text/event-stream"])
        answer = message_of(await client.post("tools/call", params, request_id, accept=accept))
        assert answer["id"] == request_id
        assert answer["result"]["content"][0]["text"] == text


async def repeating(http):
    """Use one id twice at once: each request is answered or refused, never with the other's response."""
    client = await Client(http, HANDSHAKE).open()
    for number in range(CALLS):
        replies = {}

        async def ask(text, number=number, replies=replies):
            replies[text] = await client.call("later", number, text=text)

        async with anyio.create_task_group() as both:
            both.start_soon(ask, "one")
            both.start_soon(ask, "two")
        for text, reply in replies.items():
            if reply.status_code == 400:
                assert message_of(reply)["error"]["code"] == -32600
            else:
                assert message_of(reply)["result"]["content"][0]["text"] == text
        assert min(each.status_code for each in replies.values()) == 200


async def abandoning(http):
    """Open sessions and never use them."""
    for _ in range(CALLS):
        await Client(http, HANDSHAKE).open()


async def cancelling(http):
    """Cancel its calls and unknown ids, and use the cancelled ids again."""
    client = await Client(http, HANDSHAKE).open()
    for _ in range(CALLS):
        async with anyio.create_task_group() as calls:
            reply = []

            async def ask(reply=reply):
                reply.append(await client.call("hang", 7))

            calls.start_soon(ask)
            while not reply:
                for wrong in (8, "7 8", True, None):
                    await client.post("notifications/cancelled", {"requestId": wrong}, None)
                await client.post("notifications/cancelled", {"requestId": 7}, None)
        assert message_of(reply[0])["error"]["message"] == "Request cancelled"


async def leaving(http, version):
    """Close the connection at random moments."""
    client, choose = await Client(http, version).open(), random.Random(version)  # noqa: S311
    for number in range(CALLS):
        with anyio.move_on_after(choose.random() / 50), suppress(httpx2.HTTPError):
            await client.call(choose.choice(["later", "threaded"]), number, text="unheard")


async def refused(http, version):
    """Send invalid calls."""
    client = await Client(http, version).open()
    for wrong in [{"name": "echo", "arguments": []}, {"name": "none"}, {}, {"name": "echo", "task": 5}] * (
        CALLS // 4
    ):
        reply = await client.post(
            "tools/call", wrong, 1, **({"mcp-name": "echo"} if version == MODERN else {})
        )
        assert "error" in message_of(reply)


@pytest.mark.slow
async def test_honest_clients_get_their_own_answers():
    """Other clients repeat ids, abandon sessions, cancel, disconnect and send invalid calls meanwhile."""
    serving = host_for(mixed_server())
    limits = httpx2.Limits(max_connections=None)
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            anyio.create_task_group() as server,
            httpx2.AsyncClient(base_url=base, timeout=LIMIT, limits=limits) as http,
        ):

            async def serve() -> None:
                await serve_over(
                    serving, listening, guard_for("127.0.0.1", None), limits=HttpLimits(max_sessions=60)
                )

            server.start_soon(serve)
            async with anyio.create_task_group() as clients:
                for number in range(4):
                    for version in ("2025-06-18", HANDSHAKE, MODERN):
                        clients.start_soon(honest, http, version, f"{version} {number}")
                clients.start_soon(repeating, http)
                clients.start_soon(abandoning, http)
                clients.start_soon(cancelling, http)
                for version in (HANDSHAKE, MODERN):
                    clients.start_soon(leaving, http, version)
                    clients.start_soon(refused, http, version)
            await eventually(lambda: not serving.running)
            await honest(http, HANDSHAKE, "afterwards")
            server.cancel_scope.cancel()
