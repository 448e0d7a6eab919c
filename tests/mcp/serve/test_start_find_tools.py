"""`toolwire serve --find-tools`, used by the client of the `mcp` package over stdio and HTTP, in both eras."""

import contextlib
import sys
from pathlib import Path

import anyio
import pytest
from mcp.client.stdio import stdio_client

from mcp import Client, StdioServerParameters
from shared.served import Served

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.process]

APP = Path(__file__).parents[2] / "shared" / "many_tools.py"
OPTIONS = [f"{APP}:tools", "--find-tools", "--always-list", "report_7"]
LIMIT = 60
CHANGED = "notifications/tools/list_changed"
MODES = {"2025-11-25": "legacy", "2026-07-28": "auto"}


@contextlib.contextmanager
def served(transport, tmp_path, *more):
    """Give a function that returns what a client connects to, made anew for each client."""
    if transport == "stdio":
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "toolwire", "serve", *OPTIONS, *more]
        )
        yield lambda: stdio_client(command)
        return
    with Served(*OPTIONS, "--http", "--port", "0", *more, cwd=tmp_path) as process:
        address = process.expect(r"at (http://\S+)")[1]
        yield lambda: address


@contextlib.asynccontextmanager
async def connected(target, mode):
    """Connect a client; give it and the list of the notifications that it gets."""
    heard = []

    async def keep(message):
        heard.append(getattr(message, "method", ""))

    with anyio.fail_after(LIMIT):
        async with Client(target, mode=mode, message_handler=keep) as client:
            yield client, heard


async def names(client):
    return [each.name for each in (await client.list_tools()).tools]


async def find(client, query):
    result = await client.call_tool("find_tools", {"query": query, "limit": 1})
    return result.structured_content["tools"]


@pytest.mark.parametrize("version", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_finds_and_calls(transport, version, tmp_path):
    """With a session or over stdio, found tools are listed; otherwise the result has all that a call needs."""
    with served(transport, tmp_path) as target:
        async with connected(target(), MODES[version]) as (client, heard):
            assert await names(client) == ["find_tools", "report_7", "forget"]
            [found] = await find(client, "give money back")
            assert found["name"] == "refundPayment"
            stateless = transport == "http" and version == "2026-07-28"
            assert ("refundPayment" in await names(client)) is not stateless
            if version == "2025-11-25":
                assert CHANGED in heard
            result = await client.call_tool(found["name"], {"number": 3})
            assert result.content[0].text == "refunded 3"
            result = await client.call_tool("report_99", {"number": 1})
            assert result.content[0].text == "got 1"


async def test_two_sessions_have_two_lists(tmp_path):
    """Tools that one client found are not listed or announced to the other; removed tools are gone for both."""
    with served("http", tmp_path) as target:
        async with (
            connected(target(), "legacy") as (ada, told_ada),
            connected(target(), "legacy") as (bob, told),
        ):
            await find(ada, "refund")
            assert "refundPayment" in await names(ada)
            assert await names(bob) == ["find_tools", "report_7", "forget"]
            assert (CHANGED in told_ada, CHANGED in told) == (True, False)
            await bob.call_tool("forget", {})
            assert await names(ada) == ["find_tools", "report_7", "forget"]
            assert await find(ada, "refund") == []


async def test_a_client_on_a_pipe_without_a_session_is_told_if_it_listens():
    """A client of 2026-07-28 gets list changes on its subscription stream."""
    with served("stdio", None) as target:
        async with (
            connected(target(), "auto") as (client, _),
            client.listen(tools_list_changed=True) as subscription,
        ):
            await find(client, "refund")
            assert type(await anext(aiter(subscription))).__name__ == "ToolsListChanged"


async def test_several_processes_keep_no_lists(tmp_path):
    """With --stateless a client of the older era is served like one of the newer, without a list of found tools."""
    with served("http", tmp_path, "--stateless") as target:
        async with connected(target(), "legacy") as (client, _):
            [found] = await find(client, "refund")
            assert await names(client) == ["find_tools", "report_7", "forget"]
            assert (await client.call_tool(found["name"], {"number": 3})).content[0].text == "refunded 3"


async def test_a_group_is_served(tmp_path):
    """`--group` chooses tools by their tags."""
    with Served(f"{APP}:tools", "--group", "MONEY", "--http", "--port", "0", cwd=tmp_path) as process:
        async with connected(process.expect(r"at (http://\S+)")[1], "auto") as (client, _):
            assert await names(client) == ["refundPayment"]
