"""Requests made to cost more than they should are refused early, and errors do not quote them at length."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams

from toolwire import HttpLimits, ToolServer, http_app, tool
from toolwire.tools.resources import UriTemplate

LIMIT = 60
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
CLIENT = {"name": "test", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LONG = "Z" * 300_000
SHORT = 6_000  # characters of a response that quotes nothing at length

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def app():
    """Return a server with tools, a resource and a prompt."""
    server = ToolServer("app")

    @server.tool
    def take(it: object) -> str:
        """Take anything."""
        return type(it).__name__

    @server.tool
    def numbers(it: list[int]) -> int:
        """Take whole numbers."""
        return sum(it)

    tree = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/tree"}}, {"type": "integer"}]}
    schema = {"type": "object", "properties": {"it": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}

    @tool("tree", "Take lists of lists.", schema)
    async def in_lists(_arguments):
        return {"content": []}

    @server.resource("data://{name}")
    def data(name: str) -> str:
        """Some data."""
        return name

    @server.prompt
    def greet(who: str) -> str:
        """Greet."""
        return who

    server.add(in_lists)
    return server


class Client:
    """A client that speaks one version of MCP."""

    def __init__(self, http, version):
        self.http, self.version = http, version
        self.headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": version,
        }

    async def open(self):
        if self.version != MODERN:
            params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": CLIENT}
            reply = await self.http.post("/mcp", headers=self.headers, json=body_of("initialize", params))
            self.headers["mcp-session-id"] = reply.headers["mcp-session-id"]
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.http.post("/mcp", headers=self.headers, json=ready)
        return self

    async def post(self, method, params, content=None):
        """Send a request; return status, text and message of the response. `content` replaces the body."""
        headers = dict(self.headers)
        if self.version == MODERN:
            params = {**params, "_meta": ENVELOPE}
            headers["mcp-method"] = method
            name = params.get("name") or params.get("uri")
            headers |= {"mcp-name": name} if isinstance(name, str) else {}
        content = json.dumps(body_of(method, params)).encode() if content is None else content
        reply = await self.http.post("/mcp", headers=headers, content=content)
        lines = [
            line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")
        ]
        return reply.status_code, reply.text, json.loads(lines[-1] if lines else reply.text)

    async def call(self, name, it):
        """Call a tool with `it`, which is JSON."""
        meta = f',"_meta":{json.dumps(ENVELOPE)}' if self.version == MODERN else ""
        params = f'{{"name":"{name}","arguments":{{"it":{it}}}{meta}}}'
        content = f'{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}'.encode()
        return await self.post("tools/call", {"name": name}, content)


def body_of(method, params):
    return {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}


@asynccontextmanager
async def served(version, **limits):
    """Serve the app and give a client of it, with one of the two versions of MCP."""
    asgi = http_app(app(), limits=HttpLimits(**limits))
    transport = httpx2.ASGITransport(asgi)
    with anyio.fail_after(LIMIT):
        async with (
            asgi.router.lifespan_context(asgi),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=LIMIT) as http,
        ):
            yield await Client(http, version).open()


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize(
    ("it", "said"),
    [
        ("[" + "[]," * 200_000 + "[]]", "more than 100000 values"),
        ("[" + '"",' * 200_000 + '""]', "more than 100000 values"),
        ("{" + '"k":0,' * 200_000 + '"k":0}', "more than 100000 values"),
        ("[" * 1_000_000 + "]" * 1_000_000, "nested more than 100 deep"),
        ("[" * 120 + "]" * 120, "nested more than 100 deep"),
        ("9" * 1_001, "a number of more than 1000 digits"),
        ("[" + ",".join(str((2**61 - 1) * each) for each in range(10**6, 10**6 + 2_000)) + "]", "20 digits"),
        ("[" + "-0," * 70_000 + f"-0.{'1' * 4_000}]", "a number of more than 1000 digits"),
    ],
    ids=["lists", "strings", "one key", "very deep", "deep", "long", "of one hash", "long among many"],
)
async def test_too_many_values_and_too_deep_ones_are_refused(version, it, said):
    """Before they are decoded; the error has the id of the request."""
    async with served(version) as client:
        status, text, message = await client.call("take", it)
        assert (status, message["id"], message["error"]["code"]) == (400, 5, -32600)
        assert said in message["error"]["message"]
        assert len(text) < SHORT


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize(
    ("it", "kind"),
    [
        ('"' + '[[{,\\\\\\"' * 300_000 + '"', "str"),
        ("[" * 60 + "]" * 60, "list"),
        ("[" + "[1]," * 20_000 + "[1]]", "list"),
        ("[" + '"' + "x" * 3_000_000 + '"]', "list"),
    ],
    ids=["brackets in a string", "deep", "many", "long"],
)
async def test_what_is_within_the_limits_is_served(version, it, kind):
    """Also if it is too large for the fast path."""
    async with served(version) as client:
        status, _, message = await client.call("take", it)
        assert (status, message["result"]["content"][0]["text"]) == (200, kind)


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_the_limits_can_be_set(version):
    """Body size, depth and number of values each have an option."""
    async with served(version, max_body=10_000, max_depth=10, max_values=100) as client:
        assert (await client.call("take", "[" * 20 + "]" * 20))[0] == 400
        assert (await client.call("take", "[" + "1," * 200 + "1]"))[0] == 400
        assert (await client.call("take", f'"{"x" * 20_000}"'))[0] == 413
        assert (await client.call("take", "[1, 2]"))[0] == 200


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": LONG}),
        ("tools/call", {"name": "numbers", "arguments": {"it": LONG}}),
        ("tools/call", {"name": "numbers", "arguments": {LONG: 1}}),
        ("tools/call", {"name": "numbers", "arguments": {"it": [LONG] * 3}}),
        ("tools/call", {"name": "numbers", "arguments": {"it": ["x"] * 50_000}}),
        ("tools/call", {"name": "tree", "arguments": {"it": LONG}}),
        ("tools/call", {"name": "tree", "arguments": {"it": [["x"]] * 20_000}}),
        ("tools/call", {"name": ["x"] * 50_000}),
        ("tools/call", {"name": "numbers", "arguments": LONG}),
        ("resources/read", {"uri": LONG}),
        ("resources/read", {"uri": f"no://{LONG}"}),
        ("prompts/get", {"name": LONG}),
        ("prompts/get", {"name": "greet", "arguments": {LONG: "x"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": LONG}, "argument": CLIENT}),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": LONG}, "argument": {"name": "n", "value": ""}},
        ),
        ("tools/list", {"cursor": LONG}),
        ("logging/setLevel", {"level": LONG}),
        (f"x/{LONG}", {}),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_errors_do_not_quote_the_request(version, method, params):
    """A name, address, argument or method of 300,000 characters is shortened wherever an error quotes it."""
    async with served(version) as client:
        _, text, message = await client.post(method, params)
        assert "error" in message or message["result"]["isError"]
        assert len(text) < SHORT


@pytest.mark.parametrize(
    "body", ["[" + '"x",' * 50_000 + "1]", json.dumps({LONG: 1}), json.dumps(LONG), "{" + LONG]
)
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_errors_of_the_transport_do_not_quote_the_request(version, body):
    """Nor do errors about a body that is no JSON-RPC message."""
    async with served(version) as client:
        status, text, _ = await client.post("x", {}, body.encode())
        assert (status, len(text) < SHORT) == (400, True)


async def test_errors_of_foreign_servers_are_cut_too():
    """What another library quotes from the request is shortened; the rest of its error is unchanged."""
    foreign = Server("foreign")

    async def refuse(_ctx, params):
        raise MCPError(
            code=-32001, message=f"no {params.name}", data={"sent": [params.name], "own": "y" * 9_000}
        )

    foreign.add_request_handler("tools/call", CallToolRequestParams, refuse)
    asgi = http_app(foreign)
    transport = httpx2.ASGITransport(asgi)
    with anyio.fail_after(LIMIT):
        async with (
            asgi.router.lifespan_context(asgi),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=LIMIT) as http,
        ):
            client = await Client(http, HANDSHAKE).open()
            _, _, message = await client.post("tools/call", {"name": LONG})
    error = message["error"]
    assert len(error["message"]) < SHORT
    assert len(error["data"]["sent"][0]) < SHORT
    assert error["data"]["own"] == "y" * 9_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_only_utf_8_is_read(version, encoding):
    """The limits are checked on UTF-8; `mcp` would also decode other encodings, which would evade them."""
    async with served(version) as client:
        params = {"name": "take", "arguments": {"it": ["\u0122", *[[]] * 200_000]}}
        if version == MODERN:
            params["_meta"] = ENVELOPE
        body = json.dumps(body_of("tools/call", params), ensure_ascii=False).encode(encoding)
        status, text, _ = await client.post("tools/call", {"name": "take"}, body)
        assert (status, "must be UTF-8" in text) == (400, True)


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_long_id_is_refused(version):
    """It would be stored for as long as the response."""
    async with served(version) as client:
        for number, good in (("i" * 1_000, True), ("i" * 1_001, False)):
            params = {"name": "take", "arguments": {"it": 1}}
            if version == MODERN:
                params["_meta"] = ENVELOPE
            body = json.dumps({**body_of("tools/call", params), "id": number}).encode()
            status, text, _ = await client.post("tools/call", {"name": "take"}, body)
            assert (status, "at most 1000 characters" in text) == ((200, False) if good else (400, True))


@pytest.mark.parametrize("length", [8_192, 8_193])
async def test_a_long_address_is_refused_before_it_is_matched(length, monkeypatch):
    """Otherwise megabytes of `%41` would have to be decoded."""
    matched = []
    match = UriTemplate.match
    monkeypatch.setattr(UriTemplate, "match", lambda *given: matched.append(given) or match(*given))
    async with served(HANDSHAKE) as client:
        uri = "data://" + "%41" * 2_000
        uri += "x" * (length - len(uri))
        _, text, message = await client.post("resources/read", {"uri": uri})
    if length <= 8_192:
        assert message["result"]["contents"][0]["text"].startswith("AAA")
    else:
        assert (message["error"]["code"], "Must have at most 8192 characters" in text) == (-32602, True)
        assert matched == []


async def test_subscriptions_have_a_limit():
    """Their number and the length of each URI are limited."""
    async with served(HANDSHAKE) as client:
        _, text, _ = await client.post("resources/subscribe", {"uri": "data://" + "x" * 9_000})
        assert "Must have at most 8192 characters" in text
        for number in range(1_000):
            _, _, message = await client.post("resources/subscribe", {"uri": f"data://{number}"})
            assert "result" in message
        _, text, _ = await client.post("resources/subscribe", {"uri": "data://more"})
        assert "can have at most 1000 subscriptions" in text
