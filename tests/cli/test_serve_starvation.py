"""Thousands of idle connections to a server with few file descriptors do not disturb its clients."""

import http.client
import json
import resource
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from benchmarks import idlers as idlers_program

from shared.served import MODERN, PATIENCE, Http, Served

PROGRAM_OF_IDLERS = Path(idlers_program.__file__)
TOKEN = "a-token-of-the-test"  # noqa: S105 - of a server on loopback that ends with the test
IDLERS = 5_000
DESCRIPTORS = 256
FEW = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
APP = '''
import os
from toolwire import ToolServer

app = ToolServer("app")
taken = []

@app.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b

@app.tool
def hog() -> int:
    """Take every descriptor that is left."""
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return len(taken)

@app.tool
def release() -> int:
    """Give them back."""
    count = len(taken)
    while taken:
        os.close(taken.pop())
    return count
'''
PROGRAM = """
import sys
import anyio
from app import app
from toolwire import serve_http

def announce(where):
    sys.stderr.write(f"app at {where.url}\\n")
    sys.stderr.flush()

anyio.run(lambda: serve_http(app, port=0, token=sys.argv[1], on_listening=announce))
"""


class Program(Http):
    """A program of the user that serves on plain asyncio, with Python's default logging."""

    def __init__(self, *, cwd, before=()):
        (cwd / "program.py").write_text(PROGRAM)
        Served.__init__(self, cwd=cwd, before=before, command=[sys.executable, "program.py", TOKEN])
        self.url = self.expect(r"at (http://\S+)")[1]


@pytest.fixture(params=["command", "program"])
def server(request, tmp_path):
    """A server with few file descriptors: the command, which may use uvloop, or a program on plain asyncio."""
    (tmp_path / "app.py").write_text(APP)
    if request.param == "command":
        started = Http("app.py:app", cwd=tmp_path, env={"TOOLWIRE_TOKEN": TOKEN}, before=FEW)
    else:
        started = Program(cwd=tmp_path, before=FEW)
    with started:
        yield started


class Client:
    """An authorised client that keeps its connection."""

    def __init__(self, server):
        self._connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE)

    def call(self, tool="add", **arguments):
        """Call a tool and return the text of its result."""
        params = {"name": tool, "arguments": arguments, "_meta": MODERN}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "authorization": f"Bearer {TOKEN}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        self._connection.request("POST", "/mcp", body, headers)
        with self._connection.getresponse() as response:
            return json.loads(response.read())["result"]["content"][0]["text"]

    def works(self):
        return self.call(a=1, b=2) == "3"

    def works_on_the_same_connection(self):
        before = self._connection.sock
        return before is not None and self.works() and self._connection.sock is before

    def close(self):
        self._connection.close()


@contextmanager
def idlers(server, count):
    """Open this many idle connections, held by as many processes as their own descriptor limit requires."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = min(count, 2_500, hard - 100)
    port = str(urlsplit(server.url).port)
    with ExitStack() as stack:
        processes = []
        for start in range(0, count, share):
            command = [sys.executable, str(PROGRAM_OF_IDLERS), port, str(min(share, count - start))]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def test_five_thousand_idle_connections_shut_nobody_out(server):
    """Connected clients keep their connections, new ones can connect, and the log stays small."""
    kept = [Client(server) for _ in range(10)]
    assert all(client.works() for client in kept)
    with idlers(server, IDLERS) as processes:
        assert all(client.works_on_the_same_connection() for client in kept), "while they come"
        for process in processes:
            assert process.stdout.readline() == "open\n"
        for _ in range(3):
            newcomers = [Client(server) for _ in range(5)]
            assert all(client.works() for client in newcomers)
            assert all(client.works_on_the_same_connection() for client in (*kept, *newcomers))
            for client in newcomers:
                client.close()
    for client in kept:
        client.close()
    server.signal()
    assert server.wait() == 0
    assert len("\n".join(server.lines)) < 4_000, server.lines


def test_a_server_without_descriptors_recovers(server):
    """After a tool has used all, connected clients are served; after they are released, new ones can connect."""
    client = Client(server)
    assert client.works()
    assert int(client.call("hog")) > 0
    with idlers(server, 50) as processes:
        for process in processes:
            assert process.stdout.readline() == "open\n", "by the kernel: the server cannot accept them"
        assert client.works_on_the_same_connection()
    assert int(client.call("release")) > 0
    newcomer = Client(server)
    assert newcomer.works()
    for each in (client, newcomer):
        each.close()
    server.signal()
    assert server.wait() == 0
    assert len("\n".join(server.lines)) < 4_000, server.lines


def test_the_command_raises_its_limit_of_descriptors(tmp_path):
    """It raises the soft limit to the hard one."""
    (tmp_path / "app.py").write_text(APP)
    before = ["sh", "-c", 'ulimit -Sn 100 && ulimit -Hn 600 && exec "$@"', "sh"]
    with Http("app.py:app", cwd=tmp_path, env={"TOOLWIRE_TOKEN": TOKEN}, before=before) as server:
        client = Client(server)
        assert int(client.call("hog")) > 400
        client.call("release")
        client.close()
