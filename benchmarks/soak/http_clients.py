"""The load over HTTP: a `toolwire serve` process, and well-behaved and other clients of two MCP versions.

Good clients call tools and check the results. Among the others are slow readers, clients that disconnect in the
middle of a request or of its response, clients whose stream breaks and that reconnect for the rest, clients that
cancel, and clients without the token. Whatever these do, the good ones must get their responses.

`era` is the version of MCP that a client speaks: `SESSION` has sessions, `MODERN` has none.

python -m benchmarks.soak.http_clients '{"name": "clients", "seconds": 60}'
"""

import asyncio
import itertools
import json
import os
import random
import re
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import HERE, make_environment
from benchmarks.soak.load import PATIENCE, Book, ExpectedEnd, begin, check, main, write_line

SESSION, MODERN = "2025-11-25", "2026-07-28"
INFO = {"name": "soak", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": SESSION, "capabilities": {}, "clientInfo": INFO}
OK, ACCEPTED, UNAUTHORIZED = 200, 202, 401
LONG = 400_000
SIP, SIP_PAUSE = 32_768, 0.02
ABANDONED = 0.05
"""The share of sessions that a disconnecting client leaves open; the others are ended on a new connection."""
CALLS = 40
"""Calls after which a good client is replaced by a new one."""
PAUSE = 0.1
SPARE = 8
"""By how many descriptors the server may grow until the end: some are opened when first needed."""


class Reply:
    """An HTTP response: its status, headers, and JSON-RPC messages."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def message(self) -> dict[str, Any]:
        """The last JSON-RPC message in it."""
        check(self.status == OK, f"HTTP {self.status}: {self.body[:200]!r}")
        return dict(json.loads(extract_events(self.body)[-1] if "event-stream" in self.type else self.body))

    @property
    def type(self) -> str:
        """The content type."""
        return self.headers.get("content-type", "")

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        message = self.message
        check("result" in message, f"the response is an error: {message}")
        check(not message["result"].get("isError"), f"the tool failed: {message}")
        return str(message["result"]["content"][0]["text"])


def extract_events(body: bytes) -> list[bytes]:
    """Return the data of all events in a stream that have data."""
    lines = (line[5:].strip() for line in body.splitlines() if line.startswith(b"data:"))
    return [line for line in lines if line]


class Client:
    """A client of one era, with a connection that is kept until it breaks."""

    def __init__(self, name: str, server: "Server", era: str, numbers: Iterator[int]) -> None:
        self.name, self.port, self.token, self.era = name, server.port, server.token, era
        self.session = ""
        self.numbers = numbers
        self.number = 0
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Connect, and start a session if the era has sessions."""
        await self.close()
        await self.reconnect()
        if self.era == SESSION:
            self.session = ""
            reply = await self.send_request("initialize", HELLO)
            self.session = reply.headers["mcp-session-id"]
            check(reply.message["result"]["serverInfo"]["name"] == "soak", "another server answered")
            await self.send(self.encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            check((await self.read()).status == ACCEPTED, "notifications/initialized was not accepted")

    async def reconnect(self) -> None:
        """Open a new connection, and keep the session."""
        self.hang_up()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def close(self) -> None:
        """End the session with a DELETE request, and close the connection."""
        if self.session and self.writer is not None:
            await self.send(self.make_head("DELETE") + b"\r\n\r\n")
            await self.read()
            self.session = ""
        self.hang_up()

    def hang_up(self, *, rudely: bool = False) -> None:
        """Close the connection. With `rudely`, the server sees a reset."""
        writer, self.writer, self.reader = self.writer, None, None
        if writer is None:
            return
        if rudely:
            wire = writer.get_extra_info("socket")
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort() if rudely else writer.close()

    def make_head(self, verb: str = "POST", **more: str) -> bytes:
        """Return the request line and the headers, without the empty line at their end."""
        named = {
            "Host": f"127.0.0.1:{self.port}",
            "Accept": "application/json, text/event-stream",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            **({"Mcp-Session-Id": self.session} if self.session else {}),
            **({"Mcp-Protocol-Version": self.era} if self.session or self.era == MODERN else {}),
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return "\r\n".join([f"{verb} /mcp HTTP/1.1", *(f"{n}: {v}" for n, v in named.items())]).encode()

    def encode(self, message: dict[str, Any]) -> bytes:
        """Encode a JSON-RPC message as an HTTP request."""
        more = {}
        params = message.get("params", {})
        if self.era == MODERN and "id" in message:
            message = {**message, "params": {**params, "_meta": ENVELOPE}}
            more = {"Mcp_Method": message["method"]}
            more |= {"Mcp_Name": params["name"]} if "name" in params else {}
        body = json.dumps(message).encode()
        length = str(len(body))
        return (
            self.make_head(Content_Type="application/json", Content_Length=length, **more)
            + b"\r\n\r\n"
            + body
        )

    def encode_call(self, tool: str, **arguments: Any) -> bytes:
        """Encode a tool call with the next number as an HTTP request."""
        self.number = next(self.numbers)
        given = {"client": self.name, "number": self.number, **arguments} if tool != "tally" else {}
        params = {"name": tool, "arguments": given}
        return self.encode({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params})

    async def send_request(self, method: str, params: dict[str, Any]) -> Reply:
        """Send a JSON-RPC request. Returns the response."""
        await self.send(self.encode({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}))
        return await self.read()

    async def send(self, request: bytes) -> None:
        """Send bytes on the connection."""
        assert self.writer is not None  # noqa: S101
        self.writer.write(request)
        await self.writer.drain()

    async def read_head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers of a response."""
        assert self.reader is not None  # noqa: S101
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        return int(first.split(" ")[1]), {name.lower(): value for name, value in headers.items()}

    async def read(self, *, slowly: bool = False) -> Reply:
        """Read a whole response. With `slowly`, pause between small reads."""
        assert self.reader is not None  # noqa: S101
        status, headers = await self.read_head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while chunk := await self.read_chunk():
                body += chunk
        elif slowly:
            body, length = b"", int(headers["content-length"])
            while len(body) < length:
                body += await self.reader.readexactly(min(SIP, length - len(body)))
                await asyncio.sleep(SIP_PAUSE)
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Reply(status, headers, body)

    async def resume_stream(self, after: str) -> dict[str, Any]:
        """Reconnect for the message that was missed after an event. Returns {} if the stream ends without one."""
        await self.reconnect()
        await self.send(self.make_head("GET", Last_Event_ID=after) + b"\r\n\r\n")
        status, _ = await self.read_head()
        check(status == OK, f"reconnecting to a stream: HTTP {status}")
        received = b""
        while not extract_events(received):
            chunk = await self.read_chunk()
            if not chunk:
                return {}
            received += chunk
        return dict(json.loads(extract_events(received)[-1]))

    async def read_chunk(self) -> bytes:
        """Read the next chunk of a body; empty at its end."""
        assert self.reader is not None  # noqa: S101
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]


Act = Callable[[Client, Book, random.Random], Awaitable[None]]
"""What a client does. Its name is part of the client's name, from which the random numbers follow."""


async def be_good(client: Client, book: Book, chance: random.Random) -> None:
    """Connect, make a number of calls, disconnect. Every result is checked."""
    kind = "session client" if client.era == SESSION else "stateless client"
    with book.track(f"{kind}: connect"):
        async with asyncio.timeout(PATIENCE):
            await client.connect()
    if client.writer is None:
        return
    for _ in range(CALLS):
        tool = chance.choice(["add", "add", "add_in_thread"])
        with book.track(f"{kind}: call"):
            async with asyncio.timeout(PATIENCE):
                await client.send(client.encode_call(tool))
                said = (await client.read()).text
            check(said == str(client.number + 1), f"{client.number} + 1 is {said}")
        await asyncio.sleep(PAUSE * chance.random())
        if client.writer is None or client.writer.is_closing():
            return
    async with asyncio.timeout(PATIENCE):
        await client.close()


async def read_slowly(client: Client, book: Book, chance: random.Random) -> None:
    """Request a long text, and read it slowly, in small pieces."""
    with book.track("slow reader: long text"):
        async with asyncio.timeout(PATIENCE):
            await client.connect()
            await client.send(client.encode_call("text", size=LONG))
            said = (await client.read(slowly=True)).text
            check(said == "x" * LONG + f" {client.number}", f"the text is {said[-40:]!r}")
            await client.close()
    client.hang_up()
    await asyncio.sleep(PAUSE * chance.random())


async def die(client: Client, book: Book, chance: random.Random) -> None:
    """Disconnect in the head or body of a request, before the response or in it, with or without a reset."""
    with book.track("dying client"):
        async with asyncio.timeout(PATIENCE):
            await client.connect()
            request = client.encode_call(chance.choice(["add", "add_later", "text"]), size=LONG, seconds=0.5)
            where = chance.choice(["head", "body", "sent", "answer"])
            body_at = request.index(b"\r\n\r\n") + 4
            cut = {"head": chance.randrange(1, body_at), "body": chance.randrange(body_at, len(request))}
            await client.send(request[: cut.get(where, len(request))])
            if where == "answer":
                assert client.reader is not None  # noqa: S101
                await client.reader.readexactly(30)
            client.hang_up(rudely=chance.random() < 0.5)  # noqa: PLR2004 - half of them
            if client.session and chance.random() > ABANDONED:
                await client.reconnect()
                await client.close()
            raise ExpectedEnd(
                f"left in the {where} of a request" if where in cut else f"left, {where} before"
            )
    client.hang_up()
    await asyncio.sleep(PAUSE * chance.random())


async def come_back(client: Client, book: Book, chance: random.Random) -> None:
    """Drop the stream of a long call, and reconnect for the response with Last-Event-ID."""
    with book.track("client that comes back: long call"):
        async with asyncio.timeout(PATIENCE):
            await client.connect()
            await client.send(client.encode_call("add_later", seconds=0.6))
            status, headers = await client.read_head()
            check(status == OK and "event-stream" in headers["content-type"], f"HTTP {status} {headers}")
            begun = await client.read_chunk()
            found = re.search(rb"^id: ?(.+?)\r?$", begun, re.MULTILINE)
            check(found, f"the stream does not begin with an id: {begun!r}")
            assert found is not None  # noqa: S101
            number = client.number
            client.hang_up(rudely=chance.random() < 0.5)  # noqa: PLR2004
            message = await client.resume_stream(found[1].decode())
            check(
                message,
                "the stream ended before the response, so that the client would have to reconnect again",
            )
            check(message["id"] == number, f"the response to {number} is {message}")
            check(message["result"]["content"][0]["text"] == str(number + 1), f"{number} + 1 is {message}")
            await client.reconnect()
            await client.close()
    client.hang_up()
    await asyncio.sleep(PAUSE * chance.random())


async def cancel(client: Client, book: Book, chance: random.Random) -> None:
    """Cancel a call that would wait forever: by a notification, or by disconnecting where that cancels."""
    with book.track("cancelling client"):
        async with asyncio.timeout(PATIENCE):
            await client.connect()
            await client.send(client.encode_call("wait"))
            await client.read_head()  # the call runs, and its stream has begun
            number = client.number
            await client.reconnect()
            if client.era == SESSION:
                cancelled = {"requestId": number, "reason": "enough"}
                notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
                await client.send(client.encode(notice))
                check((await client.read()).status == ACCEPTED, "the cancellation was not accepted")
            await client.close()
            raise ExpectedEnd("cancelled a call")
    client.hang_up()
    await asyncio.sleep(PAUSE * chance.random())


async def intrude(client: Client, book: Book, chance: random.Random) -> None:
    """Connect without the token, or with a wrong one, and be refused."""
    client.token = chance.choice(["", "another"])
    with book.track("stranger"):
        async with asyncio.timeout(PATIENCE):
            await client.reconnect()
            await client.send(client.encode_call("add"))
            status, _ = await client.read_head()
            check(status == UNAUTHORIZED, f"a client without the token got HTTP {status}")
            raise ExpectedEnd("refused a stranger")
    client.hang_up()
    await asyncio.sleep(PAUSE)


ACTS: list[tuple[Act, str, int]] = [
    (be_good, SESSION, 6),
    (be_good, MODERN, 6),
    (read_slowly, SESSION, 1),
    (read_slowly, MODERN, 2),
    (die, SESSION, 2),
    (die, MODERN, 2),
    (come_back, SESSION, 2),
    (cancel, SESSION, 1),
    (cancel, MODERN, 1),
    (intrude, MODERN, 1),
]
"""What clients do, in which era, and how many of them there are."""


class Server:
    """`toolwire serve` as a process. It exits when its input ends, so it cannot outlive this process."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(16)
        (folder / "token").write_text(self.token)
        (folder / "token").chmod(0o600)
        self.log = (folder / "server.log").open("w+")
        where = str(HERE / "soak" / "served.py")
        arguments = ["serve", where, "--http", "--port", "0", "--token-file", str(folder / "token")]
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "toolwire", *arguments],
            env=make_environment(folder),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
        )
        self.port = 0

    async def wait_until_listening(self) -> None:
        """Wait until the server logs its port."""
        until = time.monotonic() + PATIENCE
        while not (found := re.search(r"at http://[^:]+:(\d+)/", self.read_log())):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {self.read_log()}")
            await asyncio.sleep(0.05)
        self.port = int(found[1])

    def read_log(self) -> str:
        """Return what the server has logged so far."""
        self.log.seek(0)
        return self.log.read()

    def count_descriptors(self) -> int:
        """Return the number of open descriptors of the server."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - only their number

    def end(self) -> int:
        """Close the input of the server, and wait. Returns its exit code."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


async def repeat(act: Act, make: Callable[[], Client], book: Book, until: float) -> None:
    """Have one client after the other do the same, until the time is over."""
    chance = random.Random(make().name)  # noqa: S311 - the same sequence in every run
    while True:
        client = make()
        try:
            await act(client, book, chance)
        finally:
            client.hang_up()
        if time.monotonic() > until:
            return


async def work(book: Book, case: dict[str, Any]) -> dict[str, Any]:
    """Run the load: start the server, run the clients, stop the server."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        server = Server(Path(name))
        try:
            await server.wait_until_listening()
            write_line(pids={"server": server.process.pid})
            return await _run_clients(book, case, server)
        finally:
            code = server.end()
            said = server.read_log()
            server.log.close()
            if code:
                book.add_finding(f"the server exited with code {code}: {said[-500:]}")


async def _run_clients(book: Book, case: dict[str, Any], server: Server) -> dict[str, Any]:
    """Run all clients, then check what the server counted and logged."""
    at_first = (await _read_tally_when_idle(server))["descriptors"]
    until = begin(case)
    async with asyncio.TaskGroup() as group:
        for act, era, count in ACTS:
            for number in range(count):
                # The clients of one place share a name and a counter, so that a number is never used twice.
                make = partial(Client, f"{act.__name__} {era} {number}", server, era, itertools.count(1))
                group.create_task(repeat(act, make, book, until))
    tally = await _read_tally_when_idle(server, at_first + SPARE)
    if tally["twice"]:
        book.add_finding(f"{tally['twice']} calls ran twice")
    if tally["waiting"]:
        book.add_finding(f"{tally['waiting']} cancelled calls still run")
    if (more := tally["descriptors"] - at_first) > SPARE:
        book.add_finding(
            f"{more} descriptors of the server are still open after all clients have disconnected"
        )
    said = server.read_log()
    if tracebacks := said.count("Traceback (most recent call last)"):
        book.add_finding(f"the server wrote {tracebacks} tracebacks: {said[-500:]}")
    return {"server": {**tally, "tracebacks": tracebacks, "log_bytes": len(said)}}


async def _read_tally_when_idle(server: Server, descriptors: int = sys.maxsize) -> dict[str, Any]:
    """Return the tally of the tools and the number of descriptors of the server.

    Waits until no call is waiting and at most `descriptors` are open, or until `PATIENCE` is over.
    """
    client = Client("tally", server, MODERN, itertools.count(1))
    until = time.monotonic() + PATIENCE
    while True:
        await client.reconnect()
        await client.send(client.encode_call("tally"))
        tally = dict((await client.read()).message["result"]["structuredContent"])
        tally["descriptors"] = server.count_descriptors()
        client.hang_up()
        quiet = not tally["waiting"] and tally["descriptors"] <= descriptors
        if quiet or time.monotonic() > until:
            return tally
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    main(work, json.loads(sys.argv[1]))
