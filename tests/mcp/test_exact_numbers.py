"""Integers over 64 bits stay exact on every way to a tool and back; infinity and NaN are refused on all of them."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from mcp import Client
from shared.stdio_peer import serving as serving_wire
from toolwire import McpError, ToolServer, create_sdk_mcp_server, tool
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import bound_socket
from toolwire.mcp.serve.start import as_mcp_server, host_for, serve_over
from toolwire.testing import connect
from toolwire.tools.tool import Tool

pytestmark = pytest.mark.anyio

LIMIT = 30
UINT256 = 2**256 - 1
NUMBERS = [UINT256, -UINT256, 2**64, -(2**63) - 1, 2**64 - 1, 10**400]
LIMITS = {"type": "integer", "maximum": 10**400, "minimum": -UINT256}
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Exact:
    """A server whose tools return their argument and record it."""

    def __init__(self):
        self.got = []
        self.server = ToolServer("exact")
        self.server.tool(self.typed)
        self.server.add(Tool("raw", "By a schema.", {"properties": {"n": LIMITS}}, self.raw))
        self.server.add(Tool("anything", "Takes anything.", {"properties": {}}, self.raw))

    def typed(self, n: int) -> dict[str, int]:
        """By a type."""
        self.got.append(n)
        return {"n": n}

    async def raw(self, arguments):
        self.got.append(arguments["n"])
        return {"n": arguments["n"]}


class Silent(ClientChannel):
    """A channel that fails if anything is sent to the client."""

    def notify(self, message):
        raise AssertionError(message)

    async def request(self, method, params, **_settings):
        raise AssertionError(method)


def refused(answer):
    """Return the error of a refused call. Over stdio and HTTP, wrong arguments are an error result."""
    if "error" in answer:
        return answer["error"]["message"]
    assert answer["result"]["isError"]
    return answer["result"]["content"][0]["text"]


def call(name, spelled, number=1):
    """Return the JSON text of a call, with an argument as it is spelled in JSON."""
    return (
        f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", '
        f'"params": {{"name": "{name}", "arguments": {{"n": {spelled}}}}}}}'
    )


def check(result, number):
    """Check that the result has the number in its text, and in its structured content if there is any."""
    assert json.loads(result["content"][0]["text"]) == {"n": number}
    structured = result.get("structuredContent", {"n": number})
    assert (type(structured["n"]), structured["n"]) == (int, number)


@pytest.mark.parametrize("name", ["typed", "raw", "anything"])
async def test_in_this_process(name):
    """With a client in the same process, and with JSON bytes."""
    exact = Exact()
    with anyio.fail_after(LIMIT):
        async with connect(exact.server) as client:
            for number in NUMBERS:
                result = await client.call(name, n=number)
                check({"content": [{"text": result.text}]}, number)
                assert result.structured in (None, {"n": number})
        connection = exact.server.connect(Silent())
        for number in NUMBERS:
            answer = json.loads(await connection.answer_bytes(call(name, number)))
            check(answer["result"], number)
    assert exact.got == NUMBERS * 2


async def test_what_is_structured_by_its_tool():
    """Nested structured content that a tool of the official form returns stays exact."""

    @tool("balance", "Tell a balance.", {"n": int})
    async def balance(given):
        structured = {"wei": [{"n": given["n"]}], "none": None}
        return {"content": [{"type": "text", "text": str(given["n"])}], "structuredContent": structured}

    server = create_sdk_mcp_server("official", tools=[balance])
    with anyio.fail_after(LIMIT):
        async with connect(server) as client:
            result = await client.call("balance", n=UINT256)
    assert result.text == str(UINT256)
    assert result.structured == {"wei": [{"n": UINT256}], "none": None}


@pytest.mark.parametrize("name", ["typed", "raw", "anything"])
async def test_over_stdio(name):
    """Arguments, results and ids stay exact, and so do the limits in a listed schema."""
    exact = Exact()
    async with serving_wire(as_mcp_server(exact.server)) as peer:
        await peer.shake_hands()
        for number in NUMBERS:
            peer.write(call(name, number))
            check((await peer.receive())["result"], number)
        peer.send("tools/list", {}, 2**70)
        listed = await peer.receive()
        assert listed["id"] == 2**70
        schemas = {each["name"]: each["inputSchema"] for each in listed["result"]["tools"]}
        assert schemas["raw"]["properties"]["n"] == LIMITS
    assert exact.got == NUMBERS


@asynccontextmanager
async def served(exact):
    """Serve over HTTP and give the address."""
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_over, host_for(exact.server), listening, guard_for("127.0.0.1", None))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            tasks.cancel_scope.cancel()


def posted(name, spelled, accept):
    """Return headers and body of a call of MCP 2026-07-28, with an argument as it is spelled in JSON."""
    headers = {
        "content-type": "application/json",
        "accept": accept,
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    body = call(name, spelled).replace('"params": {', f'"params": {{"_meta": {json.dumps(ENVELOPE)}, ')
    return {"headers": headers, "content": body.encode()}


def message(reply):
    """Return the last message of a response, which may be a stream or not."""
    lines = [each.removeprefix("data: ") for each in reply.text.splitlines() if each.startswith("data: {")]
    return json.loads(lines[-1] if lines else reply.text)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the HTTP server is asyncio's
class TestOverHttp:
    """The same over HTTP."""

    @pytest.mark.parametrize("accept", ["application/json, text/event-stream", "*/*"], ids=["quick", "mcp"])
    @pytest.mark.parametrize("name", ["typed", "raw", "anything"])
    async def test_by_plain_requests(self, name, accept):
        """On the fast path, and through `mcp`."""
        exact = Exact()
        async with served(exact) as url, httpx2.AsyncClient(timeout=LIMIT) as http:
            for number in NUMBERS:
                reply = await http.post(url, **posted(name, number, accept))
                check(message(reply)["result"], number)
        assert exact.got == NUMBERS

    @pytest.mark.parametrize("mode", ["legacy", "auto"])
    async def test_to_the_client_of_mcp(self, mode):
        """The client of `mcp` gets exact numbers, with a session and without."""
        exact = Exact()
        async with served(exact) as url, Client(url, mode=mode) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert tools["raw"].input_schema["properties"]["n"]["maximum"] == 10**400
            for name in ("typed", "raw", "anything"):
                result = await client.call_tool(name, {"n": UINT256})
                check({"content": [{"text": result.content[0].text}]}, UINT256)
                assert result.structured_content in (None, {"n": UINT256})
        assert exact.got == [UINT256] * 3

    @pytest.mark.parametrize("accept", ["application/json, text/event-stream", "*/*"], ids=["quick", "mcp"])
    async def test_infinity_is_refused(self, accept):
        """The error names the argument."""
        exact = Exact()
        async with served(exact) as url, httpx2.AsyncClient(timeout=LIMIT) as http:
            for name in ("typed", "raw", "anything"):
                for spelled in ("1e400", "-1e400", "NaN", "Infinity", "[null, 1e400]", f"[{UINT256}, 1e400]"):
                    answer = message(await http.post(url, **posted(name, spelled, accept)))
                    assert "n[1]: " in refused(answer) or "n: " in refused(answer)
                    assert "Input should be a finite number, got" in refused(answer)
        assert exact.got == []


async def test_infinity_is_refused_in_this_process():
    """The client refuses to send it, and text that contains it is refused as invalid JSON."""
    exact = Exact()
    with anyio.fail_after(LIMIT):
        async with connect(exact.server) as client:
            for number in (float("inf"), float("nan"), [None, float("-inf")]):
                with pytest.raises(TypeError, match="no NaN and no infinity"):
                    await client.call("anything", n=number)
        connection = exact.server.connect(Silent())
        for spelled in ("1e400", "NaN", "Infinity", f"[{UINT256}, 1e400]", "1" * 5_000):
            answer = json.loads(await connection.answer_bytes(call("anything", spelled)))
            assert answer["error"]["code"] == -32700
        for number in (float("inf"), {"deep": [float("nan")]}, [UINT256, float("inf")]):
            params = {"name": "anything", "arguments": {"n": number}}
            answer = await connection.answer(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            )
            assert "Input should be a finite number, got" in refused(answer)
    assert exact.got == []


async def test_infinity_is_refused_over_stdio():
    """Calls get an error; a notification that contains it is ignored, and the connection goes on."""
    exact = Exact()
    async with serving_wire(as_mcp_server(exact.server)) as peer:
        await peer.shake_hands()
        for spelled in ("1e400", "NaN", "-Infinity"):
            peer.write(f'{{"jsonrpc": "2.0", "method": "notifications/other", "params": {{"n": {spelled}}}}}')
            for name in ("typed", "raw", "anything"):
                peer.write(call(name, spelled))
                assert "n: Input should be a finite number" in refused(await peer.receive())
        peer.write(call("typed", 5))
        check((await peer.receive())["result"], 5)
    assert exact.got == [5]


async def test_limits_hold_for_integers_of_any_size():
    """`maximum`, `minimum`, `multipleOf`, `enum`, `const` and other keywords compare large integers exactly."""
    server = ToolServer("limits")
    schemas = {
        "most": ({"maximum": UINT256}, UINT256, UINT256 + 1),
        "least": ({"minimum": UINT256}, UINT256, UINT256 - 1),
        "below": ({"exclusiveMaximum": UINT256}, UINT256 - 1, UINT256),
        "above": ({"exclusiveMinimum": -UINT256}, -UINT256 + 1, -UINT256),
        "even": ({"multipleOf": 2}, UINT256 - 1, UINT256),
        "gwei": ({"multipleOf": 10**30}, 10**31, 10**31 + 1),
        "choice": ({"enum": [UINT256]}, UINT256, UINT256 - 1),
        "constant": ({"const": UINT256}, UINT256, UINT256 + 1),
        "kind": ({"type": "integer"}, UINT256, 0.5),
        "text": ({"type": "string"}, "1", UINT256),
        "different": ({"uniqueItems": True}, [UINT256, UINT256 - 1], [UINT256, UINT256]),
    }
    for name, (schema, _, _) in schemas.items():
        server.add(Tool(name, "Check.", {"properties": {"n": schema}}, lambda _: "fits"))
    with anyio.fail_after(LIMIT):
        async with connect(server) as client:
            for name, (_, good, bad) in schemas.items():
                assert (await client.call(name, n=good)).text == "fits"
                with pytest.raises(McpError, match="n: "):
                    await client.call(name, n=bad)
