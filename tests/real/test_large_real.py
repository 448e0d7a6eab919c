"""Thousands of tools with the real CLI: a model finds one by the CLI's own search, or by ours, and calls it."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anyio
import pytest

from shared.many_tools import make_tools
from shared.openapi_documents import ordinary
from toolwire import run
from toolwire.openapi.server import OpenAPI
from toolwire.testing import call, say
from toolwire.wrap import searchable

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]
LIMIT = 120
COUNT = 5_000


class Company(BaseHTTPRequestHandler):
    """A company's API that records its requests and returns their paths."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("X-Api-Key")))
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def company():
    with ThreadingHTTPServer(("127.0.0.1", 0), Company) as server:
        server.asked = []
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


async def test_one_of_5000_operations_is_found_and_called(scripted, company):
    """The first request to the model has no definitions of them; the search finds the operation by what it does."""
    address = f"http://127.0.0.1:{company.server_address[1]}"
    api = OpenAPI(
        ordinary(COUNT),
        name="company",
        base_url=address,
        auth={"key": "secret"},
        network={"allow": ("127.0.0.0/8",), "allow_http": True},
    )
    names = []

    def choose(request):
        """Call what the search has found, as a model does."""
        found = str(request.body["messages"][-1])
        names.extend(each for each in api.tools if f"mcp__company__{each}'" in found)
        return call(f"mcp__company__{names[0]}", limit=5)

    script = [call("ToolSearch", query="+warehouse archived list", max_results=3), choose, say("done")]
    async with scripted(
        script,
        extra={"ENABLE_TOOL_SEARCH": "true"},
        mcp_servers={"company": api},
        allowed_tools=["mcp__company"],
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("List the archived warehouses.", options=options)
    first = model.requests[0].body["tools"]
    assert len(api.tools) == COUNT
    assert len(first) < 100
    assert not [
        each for each in first if each["name"].startswith("mcp__company__") and not each.get("defer_loading")
    ]
    assert len(json.dumps(model.requests[0].body["tools"])) < 200_000
    [(path, key)] = company.asked
    assert path.startswith("/archived-warehouse")
    assert path.endswith("s?limit=5")
    assert key == "secret"
    assert "path" in model.requests[2].tool_results[0].text


async def test_our_search_reveals_tools_to_the_cli(scripted):
    """Without the CLI's search, ours offers only its own tools, and one that it finds in the same turn."""
    server = searchable(make_tools(COUNT))
    script = [
        call("mcp__many__find_tools", query="give money back", limit=1),
        call("mcp__many__refundPayment", number=7),
        say("done"),
    ]
    async with scripted(
        script,
        extra={"ENABLE_TOOL_SEARCH": "false"},
        mcp_servers={"many": server},
        allowed_tools=["mcp__many"],
    ) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("Refund it.", options=options)

    def offered(request):
        return {each["name"] for each in request.body["tools"] if each["name"].startswith("mcp__many__")}

    assert offered(model.requests[0]) == {"mcp__many__find_tools", "mcp__many__forget"}
    assert offered(model.requests[1]) == {*offered(model.requests[0]), "mcp__many__refundPayment"}
    assert model.requests[2].tool_results[0].text == "refunded 7"
