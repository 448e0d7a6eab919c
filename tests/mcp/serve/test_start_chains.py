"""`toolwire serve --chain`, used by the client of the `mcp` package over stdio and HTTP, in both eras."""

import sys
from pathlib import Path

import anyio
import pytest
from mcp.client.stdio import stdio_client

from mcp import Client, StdioServerParameters
from shared.served import Served

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.process]

APP = Path(__file__).parents[2] / "shared" / "many_tools.py"
CHAINS = """
[twice]
description = "Refund twice."
steps = [
  { tool = "refundPayment", args = { number = "${input/number}" }, name = "first" },
  { tool = "report_3", args = { number = "${input/number}" } },
]
result = { both = "${first.text}, ${report_3.text}" }
"""
MODES = {"2025-11-25": "legacy", "2026-07-28": "auto"}


async def use(target, mode):
    """List the tools, call the chain with progress, and call it with wrong arguments."""
    told = []

    async def keep(progress, total, _message):
        told.append((progress, total))

    with anyio.fail_after(60):
        async with Client(target, mode=mode) as client:
            assert (await client.list_tools()).tools[0].name == "twice"
            result = await client.call_tool("twice", {"number": 3}, progress_callback=keep)
            assert result.structured_content == {"both": "refunded 3, got 3"}
            wrong = await client.call_tool("twice", {"number": "x"})
            assert wrong.is_error
            assert "Validation failed" in wrong.content[0].text
    assert told == sorted(told)
    assert told[-1] == (2, 2)


@pytest.mark.parametrize("version", MODES)
async def test_over_stdio(version, tmp_path):
    """A chain is listed and called like any other tool."""
    (tmp_path / "chains.toml").write_text(CHAINS)
    args = ["-m", "toolwire", "serve", f"{APP}:tools", "--chain", str(tmp_path / "chains.toml")]
    await use(stdio_client(StdioServerParameters(command=sys.executable, args=args)), MODES[version])


async def test_over_http(tmp_path):
    """A chain is listed and called like any other tool, with and without a session."""
    (tmp_path / "chains.toml").write_text(CHAINS)
    options = [f"{APP}:tools", "--chain", "chains.toml", "--http", "--port", "0"]
    with Served(*options, cwd=tmp_path) as process:
        address = process.expect(r"at (http://\S+)")[1]
        for mode in MODES.values():
            await use(address, mode)
