"""Two requests in flight with one id in one session: the second is refused, the first is not affected."""

import json

import anyio
import pytest

from shared.http_clients import (
    HANDSHAKE,
    LIMIT,
    MODERN,
    Client,
    Waiting,
    client_of,
    message_of,
    opened,
    served,
    text_of,
)
from shared.http_clients import call as call_of
from shared.stdio_peer import serving
from toolwire import Context, ToolServer, http_app
from toolwire.mcp.serve.start import as_mcp_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

IN_USE = -32600
over_http = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the HTTP server is asyncio's


@pytest.mark.parametrize("handed_over", [False, True], ids=["in the first moment", "later"])
@pytest.mark.parametrize(
    ("first", "second"),
    [(5, 5), ("a", "a"), (5, "5"), ("5", 5)],
    ids=["number", "text", "5 and '5'", "'5' and 5"],
)
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "ping", "resources/read"])
async def test_the_second_is_refused(method, first, second, handed_over):
    """With any method, on the fast path or not. `mcp` takes a number and its text for the same id."""
    waiting, replies = Waiting(), []
    async with client_of(http_app(waiting.server)) as http:
        headers = await opened(http)

        async def ask(**more) -> None:
            body, _ = call_of("wait", first, HANDSHAKE, text="first")
            replies.append(await http.post("/mcp", headers={**headers, **more}, json=body))

        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: ask(**({"accept": "*/*"} if handed_over else {})))
            await waiting.has_begun()
            body, _ = call_of("echo", second, HANDSHAKE, text="second")
            refused = await http.post("/mcp", headers=headers, json={**body, "method": method})
            assert refused.status_code == 400
            error = refused.json()
            assert (error["id"], error["error"]["code"]) == (second, IN_USE)
            assert "is in use by a pending request" in error["error"]["message"]
            waiting.let_go.set()
        assert text_of(replies[0]) == "first"
        assert message_of(replies[0])["id"] == first
        assert text_of(await http.post("/mcp", headers=headers, json=body)) == "second", (
            "its id is free again"
        )
    assert waiting.begun == 1


@over_http
async def test_the_first_is_told_in_mcps_stream_that_it_goes_on():
    """Over real HTTP, with a stream that `mcp` keeps open, the first call's response still comes on that stream."""
    waiting, replies = Waiting(), []
    async with served(waiting, HANDSHAKE) as client, anyio.create_task_group() as calls:

        async def ask() -> None:
            replies.append(await client.post("tools/call", {"name": "wait"}, 5, accept="*/*"))

        calls.start_soon(ask)
        await waiting.has_begun()
        assert (await client.call("wait", 5)).status_code == 400
        waiting.let_go.set()
    assert text_of(replies[0]) == "waited"
    assert waiting.begun == 1


@over_http
async def test_an_id_is_in_use_while_its_work_goes_on():
    """If the client's connection breaks, the call of a session runs on, and its id stays in use until it ends."""
    waiting = Waiting()
    async with served(waiting, HANDSHAKE) as client:
        with anyio.move_on_after(LIMIT):
            async with client.http.stream(
                "POST", **client.request("tools/call", {"name": "wait"}, 5)
            ) as reply:
                assert reply.status_code == 200  # the stream is open, and is closed now
        await waiting.has_begun()
        assert (await client.call("echo", 5, text="x")).status_code == 400
        waiting.let_go.set()
        while (reply := await client.call("echo", 5, text="x")).status_code == 400:
            await anyio.sleep(0.01)
        assert text_of(reply) == "x"
    assert waiting.begun == 1


@over_http
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_another_client_may_use_the_same_id(version):
    """Ids belong to a session, or to a single request without one."""
    waiting, replies = Waiting(), []
    async with served(waiting, version) as client:
        other = await Client(client.http, version).open()

        async def ask(one, text) -> None:
            replies.append(text_of(await one.call("wait", 5, text=text)))

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask, client, "mine")
            calls.start_soon(ask, other, "yours")
            await waiting.has_begun(2)
            waiting.let_go.set()
    assert sorted(replies) == ["mine", "yours"]


@over_http
async def test_an_id_is_free_once_it_is_answered():
    """At once, on the fast path or not, also after an error."""
    waiting = Waiting()
    async with served(waiting, HANDSHAKE) as client:
        for number in range(20):
            for accept in ("*/*", "application/json, text/event-stream"):
                params = {"name": "echo", "arguments": {"text": str(number)}}
                reply = await client.post("tools/call", params, 5, accept=accept)
                assert text_of(reply) == str(number)
                assert message_of(await client.post("no/such", {}, 5))["error"]["code"] == -32601


@over_http
async def test_an_id_is_free_once_it_is_cancelled():
    """Cancelling unknown or invalid ids changes nothing."""
    waiting, replies = Waiting(), []
    async with served(waiting, HANDSHAKE) as client, anyio.create_task_group() as calls:

        async def ask(number) -> None:
            replies.append(message_of(await client.call("wait", number)))

        calls.start_soon(ask, 5)
        await waiting.has_begun()
        for unknown in (99, "5 ", "x", None, True, 5.5, [5], {"a": 5}, 2**70):
            await client.post("notifications/cancelled", {"requestId": unknown}, None)
        assert (await client.call("echo", 5, text="x")).status_code == 400
        await client.post("notifications/cancelled", {"requestId": 5}, None)
        while (reply := await client.call("echo", 5, text="x")).status_code == 400:
            await anyio.sleep(0.01)
        assert text_of(reply) == "x"
    assert [(each["id"], each["error"]["message"]) for each in replies] == [(5, "Request cancelled")]


@over_http
@pytest.mark.parametrize("number", [True, 5.0, 5.5, None, [5], {"a": 5}], ids=str)
async def test_an_id_that_is_none_takes_no_id(number):
    """An invalid id or a batch is refused, while the request with a similar id goes on."""
    waiting, replies = Waiting(), []
    async with served(waiting, HANDSHAKE) as client:

        async def ask() -> None:
            replies.append(await client.call("wait", 5))

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask)
            await waiting.has_begun()
            request = client.request("tools/call", {"name": "wait"})
            for body in (
                {**request["json"], "id": number},
                [request["json"]],
                [],
                [{**request["json"], "id": 5}],
            ):
                reply = await client.http.post(**{**request, "json": body})
                assert reply.status_code == 400, reply.text
            waiting.let_go.set()
        assert text_of(replies[0]) == "waited"
    assert waiting.begun == 1


@over_http
async def test_progress_tokens_may_repeat():
    """Two calls with the same token each get their own progress."""
    server, both = ToolServer("s"), anyio.Event()
    running = []

    @server.tool
    async def step(text: str, context: Context) -> str:
        running.append(text)
        if len(running) == 2:
            both.set()
        await both.wait()
        context.progress(1, 2, text)
        return text

    class Stepping:
        pass

    Stepping.server = server
    replies = {}
    async with served(Stepping, HANDSHAKE) as client, anyio.create_task_group() as calls:

        async def ask(number, text) -> None:
            params = {"name": "step", "arguments": {"text": text}, "_meta": {"progressToken": "same"}}
            replies[text] = await client.post("tools/call", params, number)

        calls.start_soon(ask, 1, "one")
        calls.start_soon(ask, 2, "two")
    for text, reply in replies.items():
        lines = [
            each.removeprefix("data: ") for each in reply.text.splitlines() if each.startswith("data: {")
        ]
        notice, result = map(json.loads, lines)
        assert (notice["params"]["progressToken"], notice["params"]["message"]) == ("same", text)
        assert result["result"]["content"][0]["text"] == text


# Over stdio.


@pytest.mark.parametrize(("first", "second"), [(1, 1), ("a", "a"), (1, "1"), ("1", 1), (2**70, 2**70)])
async def test_the_second_is_refused_over_stdio(core, first, second):
    """The first is answered, and then its id is free."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/wait", {}, first)
        await core.waiting.wait()
        peer.send("x/wait", {}, second)
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (second, IN_USE)
        assert "is in use by a pending request" in refused["error"]["message"]
        core.let_go.set()
        assert await peer.receive() == {"jsonrpc": "2.0", "id": first, "result": {"waited": True}}
        for _ in range(3):
            peer.send("x/wait", {}, second)
            assert (await peer.receive())["result"] == {"waited": True}


async def test_an_id_is_free_over_stdio_once_it_is_cancelled(core):
    """Cancelling unknown or invalid ids changes nothing."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/wait", {}, 1)
        await core.waiting.wait()
        for unknown in (99, "x", None, True, 1.5, [1], {"a": 1}):
            peer.send("notifications/cancelled", {"requestId": unknown})
        peer.send("ping", {}, 1)
        assert (await peer.receive())["error"]["code"] == IN_USE
        peer.send("notifications/cancelled", {"requestId": 1})
        peer.send("ping", {}, 1)
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_an_id_is_free_over_stdio_once_its_answer_is_read():
    """Also if a thread writes a long response: the client may read it before we know that it is written."""
    server = ToolServer("s")

    @server.tool
    async def long(text: str) -> str:
        return text * 20_000

    async with serving(as_mcp_server(server)) as peer:
        await peer.shake_hands()
        for number in range(100):
            peer.send("tools/call", {"name": "long", "arguments": {"text": f"{number} "}}, 1)
            answer = await peer.receive()
            assert answer["result"]["content"][0]["text"].startswith(f"{number} {number} "), answer
