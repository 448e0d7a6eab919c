"""The server in the config of `create_sdk_mcp_server` can be run like the official one, a server of `mcp`."""

import subprocess
import sys

import anyio
import httpx2
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.memory import create_client_server_memory_streams

from mcp import ClientSession
from toolwire import create_sdk_mcp_server, tool

pytestmark = pytest.mark.anyio


@tool("confirm", "Confirm.", {})
async def confirm(_arguments):
    """Deny."""
    return {"content": [{"type": "text", "text": "denied"}], "is_error": True}


@pytest.fixture
def server():
    """Return the server of a config."""
    return create_sdk_mcp_server("ours", tools=[confirm])["instance"]


async def test_it_runs_over_streams(server):
    """It works with memory streams, as programs use it in their own tests."""
    with anyio.fail_after(20):
        async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, *far, server.create_initialization_options())
            async with ClientSession(*near) as client:
                assert (await client.initialize()).server_info.name == "ours"
                assert [each.name for each in (await client.list_tools()).tools] == ["confirm"]
                result = await client.call_tool("confirm", {})
                assert (result.is_error, result.content[0].text) == (True, "denied")
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio_only
async def test_it_runs_behind_a_manager_of_http_sessions(server):
    """It works in mcp's HTTP session manager, as programs use it to serve their tools to another process."""
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "confirm"}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    with anyio.fail_after(20):
        async with (
            manager.run(),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(manager.handle_request)) as client,
        ):
            response = await client.post("http://127.0.0.1/mcp", json=request, headers=headers)
    assert response.json()["result"]["content"] == [{"type": "text", "text": "denied"}]


def test_it_has_what_a_server_of_mcp_has(server):
    """It has all attributes but those without effect in the CLI, whose error says so."""
    missing = {name for name in dir(Server("theirs")) if not name.startswith("__") and not has(server, name)}
    assert missing <= {"add_notification_handler", "add_request_handler", "_is_protocol"}
    with pytest.raises(AttributeError, match="would not reach the CLI"):
        server.add_request_handler("x/y", object, confirm)


def has(server, name):
    """Return whether it has an attribute, even one that raises an error of its own."""
    try:
        return hasattr(server, name)
    except RuntimeError:  # `session_manager` before there is one, as in `mcp`
        return True


@pytest.mark.process
def test_mcp_is_loaded_only_for_that():
    """Making the server, or looking for an attribute that no server has, does not import `mcp`."""
    program = """
import sys
from toolwire import create_sdk_mcp_server
server = create_sdk_mcp_server("ours")["instance"]
print(hasattr(server, "nothing"), "mcp" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
