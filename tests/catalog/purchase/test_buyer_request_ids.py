"""A request id that a client uses twice in one session buys once, over stdio and over HTTP."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from shared.market import KEYS
from shared.shark import Shark

pytestmark = pytest.mark.process

PROFILE = """
name = "shark"
base_url = "{url}"
[secrets.key]
variable = "SHARK_KEY"
key = "x-api-key"
[list]
path = "/list"
items = "tools"
[entry]
id = "function.name"
name = "function.name"
description = "function.description"
schema = "function.parameters"
name_separator = " — "
[entry.price]
path = "price"
[call]
path = "/buy"
id_field = "product_id"
arguments = "parameters"
"""


def environment(folder):
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SHARK_KEY": KEYS["x-api-key"],
        "TOOLWIRE_LEDGER": str(folder / "ledger.db"),
    }


def target(api, folder):
    (folder / "shark.toml").write_text(PROFILE.format(url=api.url))
    return f"catalog:{folder / 'shark.toml'}"


def request(id, method, params):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@contextmanager
def over_stdio(api, folder):
    """Serve the catalogue; yields a function that sends a message and returns the response to its id."""
    command = [sys.executable, "-m", "toolwire", "serve", target(api, folder), "--quiet"]
    with subprocess.Popen(
        command, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def send(message):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message:
                reply = json.loads(process.stdout.readline())
                if reply.get("id") == message["id"]:
                    return reply
            return None

        try:
            yield send
        finally:
            process.stdin.close()
            process.wait(20)


@contextmanager
def over_http(api, folder):
    command = [sys.executable, "-m", "toolwire", "serve", target(api, folder), "--http", "--port", "0"]
    with subprocess.Popen(command, env=environment(folder), stderr=subprocess.PIPE, text=True) as process:
        url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        headers = {"accept": "application/json, text/event-stream"}
        try:
            with httpx2.Client(headers=headers, trust_env=False, timeout=20) as client:

                def send(message):
                    response = client.post(url, json=message)
                    if session := response.headers.get("mcp-session-id"):
                        client.headers["mcp-session-id"] = session
                        client.headers["mcp-protocol-version"] = "2025-06-18"
                    lines = [line for line in response.text.splitlines() if line.startswith("data: {")]
                    text = lines[-1].removeprefix("data: ") if lines else response.text
                    return json.loads(text) if text else None

                yield send
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.parametrize("serve", [over_stdio, over_http])
def test_an_id_that_is_used_twice_buys_once(serve, tmp_path):
    """The second request with the id is refused, whatever its arguments; another id buys again."""
    with Shark() as api, serve(api, tmp_path) as send:
        send(request(1, "initialize", HELLO))
        send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        send(request(2, "tools/list", {}))
        weather = {"name": "weather", "arguments": {}}
        assert not send(request(7, "tools/call", weather))["result"].get("isError")
        again = send(request(7, "tools/call", weather))["result"]
        other = send(request(7, "tools/call", {**weather, "arguments": {"city": "Ulm"}}))["result"]
        assert [each["isError"] for each in (again, other)] == [True, True]
        assert "was already made" in again["content"][0]["text"]
        assert len(api.sold) == 1
        assert not send(request("7", "tools/call", weather))["result"].get("isError")  # "7" is another id
    assert len(api.sold) == 2


def test_an_id_that_is_used_twice_buys_once_without_a_handshake(tmp_path):
    """This also holds over stdio in the MCP version without sessions, as the pipe has only one client."""
    with Shark() as api, over_stdio(api, tmp_path) as send:
        send(request(1, "tools/list", {"_meta": MODERN}))
        weather = {"name": "weather", "arguments": {}, "_meta": MODERN}
        first = send(request(7, "tools/call", weather))
        assert not first["result"].get("isError"), first
        assert send(request(7, "tools/call", weather))["result"]["isError"]
    assert len(api.sold) == 1
