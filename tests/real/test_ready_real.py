"""MCP servers of the real CLI: waiting until their tools are there, and changing them while it runs."""

import json
import os
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from real.small_server import answer
from toolwire import ClaudeSDKClient, CLIConnectionError, CLITimeoutError, ToolServer
from toolwire.testing import say

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]  # each test starts a CLI

LIMIT = 60
PROGRAM = Path(__file__).with_name("small_server.py")
SMALL = {"command": sys.executable, "args": [str(PROGRAM)]}


class Gate:
    """A server over stdio that waits for `open()` before it begins."""

    def __init__(self, path):
        os.mkfifo(path)
        self.config = {"command": sys.executable, "args": [str(PROGRAM), str(path)]}
        self._end = os.open(path, os.O_RDWR)  # both ends, so that neither side waits for the other here

    def open(self):
        os.write(self._end, b"!" * 100)

    def close(self):
        os.close(self._end)


@pytest.fixture
def gate(tmp_path):
    """Return a server that has not begun yet."""
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


def calc():
    server = ToolServer("calc")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@contextmanager
def small_over_http():
    """Serve the same small server on a loopback port; yield its configuration."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = b""
            if "id" in message:
                result = answer(message["method"], message.get("params") or {})
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self.send_response(200 if body else 202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.send_error(405)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield {"type": "http", "url": f"http://127.0.0.1:{web.server_port}/mcp"}
        finally:
            web.shutdown()
            thread.join()


async def open_once_pending(client, gate, name):
    """Let the server begin once the CLI reports that it waits for it."""
    while True:
        servers = (await client.get_mcp_status())["mcpServers"]
        if any((server["name"], server["status"]) == (name, "pending") for server in servers):
            gate.open()
            return


async def first_tools(client, model):
    """Run a turn; return the names of the MCP tools that the model is offered in it."""
    await client.query("hello")
    async for _ in client.receive_response():
        pass
    return [name for name in model.requests[-1].tools if name.startswith("mcp__")]


@pytest.mark.parametrize("wait", [True, False])
async def test_the_first_turn_has_the_tools_of_a_late_server(scripted, gate, wait):
    """The CLI does not wait long for servers of .mcp.json: the first turn misses them, unless we waited."""
    given = {
        "setting_sources": ["project"],
        "strict_mcp_config": False,
        "settings": json.dumps({"enableAllProjectMcpServers": True}),
    }
    with anyio.fail_after(LIMIT):
        async with scripted([say("hi")], **given) as (model, options):
            Path(options.cwd, ".mcp.json").write_text(json.dumps({"mcpServers": {"late": gate.config}}))
            async with ClaudeSDKClient(options) as client, anyio.create_task_group() as group:
                if wait:
                    group.start_soon(open_once_pending, client, gate, "late")
                    await client.wait_until_ready(LIMIT)
                tools = await first_tools(client, model)
                gate.open()
                await client.wait_until_ready()
    assert tools == (["mcp__late__say"] if wait else [])


async def test_servers_of_every_kind_are_waited_for(scripted, gate):
    """Servers in this process, started by the CLI, and remote: all have their tools at the end."""
    with anyio.fail_after(LIMIT), small_over_http() as http:
        servers = {"calc": calc(), "late": gate.config, "http": http}
        async with (
            scripted([], mcp_servers=servers) as (_, options),
            ClaudeSDKClient(options) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(open_once_pending, client, gate, "late")
            status = await client.wait_until_ready()
            await client.add_mcp_server("more", calc())
            again = await client.wait_until_ready(servers=["more"])
    found = {server["name"]: [tool["name"] for tool in server["tools"]] for server in status["mcpServers"]}
    assert found == {"calc": ["add"], "late": ["say"], "http": ["say"]}
    assert "more" in [server["name"] for server in again["mcpServers"]]


async def test_late_and_failed_servers_are_named(scripted, gate):
    """A timeout names those that are late and those that failed, with the CLI's reasons."""
    servers = {
        "calc": calc(),
        "late": gate.config,
        "bad": {"command": "/no/such/program"},
        "closed": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
    }
    with anyio.fail_after(LIMIT):
        async with scripted([], mcp_servers=servers) as (_, options), ClaudeSDKClient(options) as client:
            with pytest.raises(CLITimeoutError, match="not ready within 1 s") as late:
                await client.wait_until_ready(1)
            with pytest.raises(CLIConnectionError, match="nobody") as unknown:
                await client.wait_until_ready(0.2, ["calc", "nobody"])
            gate.open()
            with pytest.raises(CLIConnectionError) as failed:
                await client.wait_until_ready()
            assert not isinstance(failed.value, CLITimeoutError)
            await client.wait_until_ready(servers=["calc", "late"])
    for part in ("bad (failed: ENOENT", "closed (failed: ECONNREFUSED", "late (pending)"):
        assert part in str(late.value)
    assert "calc" not in str(unknown.value)
    assert "late" not in str(failed.value)
    assert "bad (failed: ENOENT" in str(failed.value)


async def test_a_disabled_server_is_not_waited_for(scripted):
    """A server that is switched off does not count, unless it is named."""
    with anyio.fail_after(LIMIT):
        async with (
            scripted([], mcp_servers={"small": SMALL}) as (_, options),
            ClaudeSDKClient(options) as client,
        ):
            await client.wait_until_ready()
            await client.toggle_mcp_server("small", False)
            await client.wait_until_ready()
            with pytest.raises(CLIConnectionError, match=r"small \(disabled\)"):
                await client.wait_until_ready(servers=["small"])


async def test_a_server_of_the_options_can_be_removed(scripted, tmp_path):
    """A server that the CLI started itself can be removed, and one without arguments added."""
    bare = tmp_path / "bare"
    bare.write_text(f"#!{sys.executable}\n{PROGRAM.read_text()}")
    bare.chmod(0o755)
    with anyio.fail_after(LIMIT):
        async with (
            scripted([], mcp_servers={"calc": calc(), "small": SMALL}) as (_, options),
            ClaudeSDKClient(options) as client,
        ):
            await client.wait_until_ready()
            assert (await client.remove_mcp_server("small"))["removed"] == ["small"]
            added = await client.add_mcp_server("bare", {"command": str(bare)})
            status = await client.wait_until_ready()
    assert added == {"added": ["bare"], "removed": [], "errors": {}}
    assert sorted(server["name"] for server in status["mcpServers"]) == ["bare", "calc"]


async def test_a_config_in_json_is_waited_for_too(scripted):
    """toolwire does not know the names of these servers, so it waits for those that the CLI lists."""
    text = json.dumps({"mcpServers": {"small": SMALL}})
    with anyio.fail_after(LIMIT):
        async with scripted([], mcp_servers=text) as (_, options), ClaudeSDKClient(options) as client:
            (server,) = (await client.wait_until_ready())["mcpServers"]
    assert [tool["name"] for tool in server["tools"]] == ["say"]
