"""Runs `toolwire serve` as a process, and talks to it by plain HTTP or JSON lines.

Every wait has a deadline.
"""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 30
CLIENT = {"name": "test", "version": "1"}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


class Served:
    """A running server. `lines` has the lines of its stderr that were read so far."""

    def __init__(self, *args, cwd, env=None, wire=subprocess.DEVNULL, before=(), command=None):
        """Start it; `before` is a command that runs the other, such as one that sets a limit."""
        self.lines = []
        self._arrived = queue.Queue()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLWIRE")}
        self.process = subprocess.Popen(
            [*before, *(command or [sys.executable, "-m", "toolwire", "serve", *map(str, args)])],
            cwd=cwd,
            env={**environment, **(env or {})},
            stdin=wire,
            stdout=wire,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def expect(self, pattern):
        """Wait for a line on stderr that matches, among those not read before, and return the match."""
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self._arrived.get(timeout=max(deadline - time.monotonic(), 0.01))
            assert line is not None, f"ended before {pattern!r}: {self.lines}"
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def signal(self, number=signal.SIGTERM):
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, seconds=PATIENCE):
        """Wait until it has ended by itself, and return the exit code."""
        code = self.process.wait(seconds)
        while (line := self._arrived.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Http(Served):
    """A server over HTTP on loopback; `url` is its endpoint."""

    def __init__(self, *args, cwd, env=None, port=0, before=(), command=None):
        super().__init__("--http", "--port", port, *args, cwd=cwd, env=env, before=before, command=command)
        try:
            self.url = self.expect(r"at (http://\S+)")[1]
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def request(self, path=None, body=None, method=None, timeout=PATIENCE, **headers):
        """Send an HTTP request, and return status, headers and text of the response."""
        url = self.url if path is None else self.url.rsplit("/", 1)[0] + path
        data = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(url, data, named, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def ask(self, method, params=None, request_id=1, **headers):
        """Send a request of MCP 2026-07-28, and return its result or error."""
        params = {**(params or {}), "_meta": {**MODERN, **(params or {}).get("_meta", {})}}
        named = params.get("name") or params.get("uri")
        extra = {"Mcp_Name": named} if named else {}
        _, _, text = self.request(
            body={"jsonrpc": "2.0", "id": request_id, "method": method, "params": params},
            Accept="application/json, text/event-stream",
            Content_Type="application/json",
            MCP_Protocol_Version="2026-07-28",
            Mcp_Method=method,
            **extra,
            **headers,
        )
        replies = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        reply = json.loads(replies[-1] if replies else text)
        return reply.get("result", reply.get("error"))


class Stdio(Served):
    """A server over stdio; the test does the handshake with `shake_hands`."""

    def __init__(self, *args, cwd, env=None):
        super().__init__(*args, cwd=cwd, env=env, wire=subprocess.PIPE)

    def send(self, method, params=None, request_id=None):
        """Write a request, or a notification if it has no id."""
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.write(json.dumps(message if request_id is None else {**message, "id": request_id}))

    def write(self, line):
        """Write a line."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self):
        """Return the next message, or None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def answer(self, request_id):
        """Return the response with that id, and skip other messages."""
        while (message := self.receive()) is not None:
            if message.get("id") == request_id:
                return message
        raise AssertionError(f"no answer to {request_id}: {self.lines}")

    def shake_hands(self):
        """Do the handshake, and return the result of `initialize`."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
        self.send("initialize", params, 0)
        result = self.answer(0)["result"]
        self.send("notifications/initialized")
        return result
