"""Bundles of `toolwire pack`: the official validator accepts them, and the official client can call them."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import anyio
import pytest
from mcp.client.stdio import stdio_client

from clients.clientele import BUILD, install, play
from mcp import ClientSession, StdioServerParameters

VALIDATOR = BUILD / "node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
APP = '''
import os

import helper
from toolwire import ToolServer

shop = ToolServer("shop", version="2.3.4")


@shop.tool
def ask() -> str:
    """Tell that a key is there, and what the neighbour says."""
    return f"{len(os.environ['SHOP_KEY'])} {helper.WORD}"
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder with a server that needs a key and a module beside it."""
    install()
    here = tmp_path_factory.mktemp("bundles")
    (here / "app.py").write_text(APP)
    (here / "helper.py").write_text('WORD = "neighbour"')
    return here


def pack(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "toolwire", "pack", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.rpartition(" (")[0])


@pytest.mark.parametrize(
    "words", [("app.py", "--env", "SHOP_KEY"), ("catalog:agentpmt",)], ids=lambda each: each[0]
)
def test_the_official_validator_takes_it(folder, words, tmp_path):
    """The official tool unpacks the bundle, and its manifest is valid."""
    bundle = pack(folder, *words, "--force")
    done = play(VALIDATOR, "unpack", str(bundle), str(tmp_path / "out"), home=tmp_path)
    assert done.returncode == 0, done.stderr
    done = play(VALIDATOR, "validate", str(tmp_path / "out" / "manifest.json"), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passes" in done.stdout


async def _call_installed(folder, tmp_path):
    with zipfile.ZipFile(pack(folder, "app.py", "--env", "SHOP_KEY", "--force")) as bundle:
        bundle.extractall(tmp_path)
    config = json.loads((tmp_path / "manifest.json").read_text())["server"]["mcp_config"]

    def fill(text):
        return text.replace("${__dirname}", str(tmp_path)).replace("${user_config.shop_key}", "sesame")

    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    env |= {name: fill(value) for name, value in config["env"].items()}
    start = StdioServerParameters(command=UV, args=[fill(each) for each in config["args"]], env=env)
    with anyio.fail_after(240):
        async with stdio_client(start) as streams, ClientSession(*streams) as client:
            await client.initialize()
            result = await client.call_tool("ask", {})
    assert result.content[0].text == "6 neighbour"


def test_its_server_answers_the_official_client(folder, tmp_path):
    """uv starts the server as the manifest says and installs what it needs; the key comes from the host."""
    assert UV is not None, "uv is not installed"
    anyio.run(_call_installed, folder, tmp_path)
