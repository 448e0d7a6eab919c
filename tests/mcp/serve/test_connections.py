"""Limits of the HTTP server over real connections: how many may stay open, which are closed first, and timeouts."""

import asyncio
import errno
import json
import math
import socket
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from shared.waiting import eventually
from toolwire import HttpLimits, ToolServer
from toolwire.errors import UsageError
from toolwire.mcp.serve import limits as limits_module
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.connections import Connection, Connections
from toolwire.mcp.serve.http import bound_socket
from toolwire.mcp.serve.limits import connection_limit
from toolwire.mcp.serve.start import host_for, serve_over
from toolwire.tools.context import Context

PATIENCE = 30
SOON = 0.4  # seconds: a limit that is to be exceeded
LATER = 3.0  # seconds: a limit that other clients must not exceed, however busy the machine is
LONG = 600.0
TOKEN = "a-token-of-the-test"  # noqa: S105 - of a server on loopback that ends with the test
BIG = 48 << 20  # bytes: more than the kernel holds for a client that does not read
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's


class App:
    """A server whose tools wait, report progress without end, or return a lot."""

    def __init__(self):
        self.server = ToolServer("app")
        for each in (self.add, self.wait, self.chat, self.big):
            self.server.tool(each)
        self.waiting, self.let_go, self.cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    def add(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    async def wait(self) -> str:
        """Wait until told."""
        self.waiting.set()
        await self.let_go.wait()
        return "waited"

    async def chat(self, context: Context) -> str:
        """Tell of progress for ever, or until cancelled."""
        try:
            for step in range(1_000_000_000):
                await context.report_progress(step, message="x" * 20_000)
                await anyio.sleep(0)
        finally:
            self.cancelled.set()
        return "never"

    def big(self) -> str:
        """A long answer."""
        return "x" * BIG


class Client:
    """One connection to the server, which sends and receives bytes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        """Return the status and the body of the next response, which must be short."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, lines = int(head.split()[1]), head.lower().split(b"\r\n")
        if b"transfer-encoding: chunked" in lines:
            return status, await self.reader.readuntil(b"\r\n0\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        return status, await self.reader.readexactly(length)

    async def ask(self, token=TOKEN):
        """Call the tool `add` and return the response."""
        await self.send(call(token=token))
        return await self.answer()

    async def works(self):
        status, body = await self.ask()
        return status == 200 and json.loads(body)["result"]["content"][0]["text"] == "3"

    async def rest(self):
        """Return everything until the server closes or resets the connection."""
        found = b""
        try:
            while data := await self.reader.read(1 << 16):
                found += data
        except ConnectionError:
            pass
        return found


def call(tool="add", token=TOKEN, progress=False, **arguments):
    """Return a whole request as bytes."""
    if tool == "add":
        arguments = {"a": 1, "b": 2}
    meta = {**META, "progressToken": 1} if progress else META
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return head(len(body), tool, token) + body


def head(length, tool="add", token=TOKEN):
    """Return the header of a call as bytes."""
    return (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\r\n"
    ).encode()


@asynccontextmanager
async def served(app=None, **limits):
    """Serve the app with these limits, and give a function that opens connections to it."""
    writers = []
    with anyio.fail_after(PATIENCE), bound_socket("127.0.0.1", 0) as listening:
        address = listening.getsockname()

        async def connect():
            reader, writer = await asyncio.open_connection(*address, limit=1 << 16)
            writers.append(writer)
            return Client(reader, writer)

        async def serve():
            await serve_over(
                host_for((app or App()).server),
                listening,
                guard_for("127.0.0.1", TOKEN),
                limits=HttpLimits(**limits),
            )

        async with anyio.create_task_group() as serving:
            serving.start_soon(serve)
            try:
                yield connect
            finally:
                for writer in writers:
                    writer.close()
                serving.cancel_scope.cancel()


# Timeouts.


async def test_a_connection_that_says_nothing_is_closed():
    """It gets no response, since it sent no request."""
    async with served(header_timeout=SOON) as connect:
        silent = await connect()
        assert await silent.rest() == b""


@pytest.mark.slow
@pytest.mark.parametrize("further", [False, True])
async def test_a_header_that_trickles_in_is_cut_off(further):
    """The timeout is for the whole header, not for each byte of it, also for a later request on a connection."""
    async with served(header_timeout=LATER) as connect:
        client = await connect()
        if further:
            assert (await client.ask("wrong"))[0] == 401

        async def trickle():
            await client.send(b"POST /mcp HTTP/1.1\r\nX-Long: ")
            while True:
                await client.send(b"x")
                await anyio.sleep(LATER / 100)

        async with anyio.create_task_group() as sending:

            async def send():
                with suppress(ConnectionError):
                    await trickle()

            sending.start_soon(send)
            answer = await client.rest()
            sending.cancel_scope.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ") or answer == b"", "the answer may be lost to the reset"


@pytest.mark.slow
@pytest.mark.parametrize("further", [False, True])
async def test_a_slow_header_is_answered_with_408(further):
    """A client that stops in the middle of a header gets a response that says why, also in a later request."""
    async with served(header_timeout=LATER, idle_timeout=LONG) as connect:
        client = await connect()
        if further:
            assert await client.works()
        await client.send(b"POST /mcp HTTP/1.1\r\n")
        status, body = await client.answer()
        assert (status, b"took too long" in body) == (408, True)
        assert await client.rest() == b""


@pytest.mark.parametrize("method", [b"POST", b"GET", b"DELETE"])
async def test_a_body_that_does_not_come_is_answered_with_408(method):
    """Even an authorised client cannot keep a request open for ever."""
    async with served(body_timeout=SOON) as connect:
        client = await connect()
        await client.send(head(100).replace(b"POST", method) + b"{")
        status, body = await client.answer()
        assert (status, json.loads(body)["error"]["code"]) == (408, -32600)
        assert await client.rest() == b""


@pytest.mark.parametrize("authorization", [b"", b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"])
async def test_a_browser_whose_body_does_not_come_is_not_kept(authorization):
    """It gets the page; its connection then has the timeout of unauthorised ones, even with a token."""
    async with served(header_timeout=SOON, idle_timeout=LONG, body_timeout=LONG) as connect:
        visitor = await connect()
        await visitor.send(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nContent-Length: 100\r\n"
            + authorization
            + b"\r\n{"
        )
        assert (await visitor.answer())[0] == 200
        assert await visitor.rest() == b""


@pytest.mark.slow
async def test_a_body_that_has_come_may_be_worked_on_for_longer():
    """The timeout of the body does not apply to the call."""
    app = App()
    async with served(app, body_timeout=LATER, header_timeout=LATER, idle_timeout=LATER) as connect:
        client = await connect()
        await client.send(call("wait"))
        await app.waiting.wait()
        silent = await connect()
        assert await silent.rest() == b""  # by now the limits were checked, more than once
        app.let_go.set()
        head_ = await client.reader.readuntil(b"\r\n\r\n")
        assert head_.startswith(b"HTTP/1.1 200 ")


async def test_an_idle_connection_has_an_end():
    """A connection that made a successful request is closed after the idle timeout."""
    async with served(idle_timeout=SOON) as connect:
        client = await connect()
        assert await client.works()
        assert await client.rest() == b""


@pytest.mark.slow
async def test_a_stranger_is_not_kept_as_long_as_a_client():
    """A refused request does not give a connection the longer idle timeout."""
    async with served(header_timeout=LATER) as connect:
        stranger, client = await connect(), await connect()
        assert (await stranger.ask("wrong"))[0] == 401
        assert await client.works()
        assert await stranger.rest() == b""
        assert await client.works(), "the client's connection is still the same"


# Number of connections.


async def test_strangers_give_way_and_clients_do_not():
    """The oldest stranger is closed first; a health check, the browser page and a wrong token make no client."""
    async with served(max_connections=4, header_timeout=LONG) as connect:
        kept = [await connect(), await connect()]
        for client in kept:
            assert await client.works()
        healthy, wrong = await connect(), await connect()
        await healthy.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await healthy.answer())[0] == 200
        await healthy.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n")
        status, page = await healthy.answer()
        assert (status, b"<h1>app</h1>" in page) == (200, True)
        assert (await wrong.ask("wrong"))[0] == 401
        newer = await connect()
        assert await newer.works(), "a new client gets in"
        assert await healthy.rest() == b"", "the oldest stranger is gone"
        assert (await wrong.ask("wrong"))[0] == 401, "the other is not"
        for _ in range(50):
            await connect()  # and send nothing
        assert await wrong.rest() == b""
        for client in (*kept, newer):
            assert await client.works(), "no client has lost its connection"


async def test_a_burst_of_strangers_closes_no_client():
    """Connections count as strangers as soon as they are accepted, not only once they are served."""
    async with served(max_connections=20, header_timeout=LONG) as connect:
        kept = [await connect(), await connect()]
        for client in kept:
            assert await client.works()
        await asyncio.gather(*(connect() for _ in range(80)))
        for client in kept:
            assert await client.works()
        assert await (await connect()).works()


async def test_among_clients_the_one_idle_for_longest_gives_way():
    """Its client can connect again. A connection that waits for a response is not idle."""
    app = App()
    async with served(app, max_connections=3, header_timeout=LONG) as connect:
        busy, first, second = [await connect() for _ in range(3)]
        await busy.send(call("wait"))
        await app.waiting.wait()
        for client in (first, second, first):  # now the second has been idle for longest
            assert await client.works()
        newcomer = await connect()
        assert await newcomer.works()
        assert await second.rest() == b""
        assert await first.works()
        app.let_go.set()
        assert (await busy.reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_when_all_are_busy_a_newcomer_is_refused():
    """It gets status 503; once a connection has ended, a new one is accepted."""
    app = App()
    async with served(app, max_connections=1, header_timeout=LONG) as connect:
        busy = await connect()
        await busy.send(call("wait"))
        await app.waiting.wait()
        refused = await connect()
        assert (await refused.answer())[0] == 503
        assert await refused.rest() == b""
        app.let_go.set()
        assert (await busy.reader.readline()).startswith(b"HTTP/1.1 200 ")
        busy.writer.close()
        while True:
            again = await connect()
            try:
                if (await again.ask())[0] == 200:
                    break
            except (ConnectionError, asyncio.IncompleteReadError):
                pass  # the server has not noticed yet that the first connection ended


async def test_a_limit_for_each_address():
    """If one address has too many connections, one of its own is closed."""
    async with served(max_per_address=2, header_timeout=LONG) as connect:
        first, second = await connect(), await connect()
        assert await first.works()
        third = await connect()
        assert await third.works()
        assert await second.rest() == b"", "the stranger gave way"
        assert await first.works()


@pytest.mark.slow
async def test_what_strangers_send_does_not_fill_the_log(capfd):
    """Repeated warnings are suppressed after a few, and nothing that strangers send raises an error in our code."""
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    async with served(max_connections=50) as connect:
        for sent in (b"garbage\r\n\r\n", upgrade, b"\0" * 100_000, upgrade * 1_000):
            for _ in range(60):
                client = await connect()
                with suppress(ConnectionError):
                    await client.send(sent)
                    await client.reader.read(1)
                client.writer.close()
    said = capfd.readouterr().err
    assert 0 < len(said.splitlines()) < 120, "of thousands"
    assert not any(error in said for error in ("ProtocolError", "RuntimeError", "AttributeError"))


# Responses that nobody reads.


async def test_an_answer_that_nobody_reads_is_held_for_a_limited_time():
    """Then the connection is reset in the middle of the response."""
    app = App()
    async with served(app, write_timeout=SOON) as connect:
        deaf = await connect()
        deaf.writer.transport.pause_reading()
        await deaf.send(call("big"))
        wire = deaf.writer.get_extra_info("socket")
        await eventually(lambda: wire.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET)


async def test_a_stream_that_nobody_reads_ends_and_its_work_is_cancelled():
    """The tool sends progress without end, and the client does not read it."""
    app = App()
    async with served(app, write_timeout=SOON) as connect:
        deaf = await connect()
        deaf.writer.transport.pause_reading()
        await deaf.send(call("chat", progress=True))
        await app.cancelled.wait()


# Bodies.


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused(chunked):
    """By its Content-Length, or as soon as too much has come; the connection can be used again."""
    async with served(max_body=100_000) as connect:
        client = await connect()
        body = b" " * 200_000
        if chunked:
            start = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            pieces = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
            whole = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            start, whole = head(len(body)), body
        await client.send(start + whole)
        status, answer = await client.answer()
        error = json.loads(answer)["error"]
        assert (status, error["code"]) == (413, -32600)
        assert "larger than 100000 bytes" in error["message"]
        assert await client.works(), "the rest of the body was skipped"


async def test_a_body_that_says_to_be_huge_is_not_waited_for():
    """It is refused by its Content-Length alone."""
    async with served() as connect:
        client = await connect()
        await client.send(head(10**18))
        assert (await client.answer())[0] == 413


async def test_a_body_in_tiny_pieces_is_a_body():
    """A body in chunks of one byte is accepted."""
    async with served() as connect:
        client = await connect()
        body = call()[call().index(b"\r\n\r\n") + 4 :]
        start = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await client.send(start + b"".join(b"1\r\n%c\r\n" % each for each in body) + b"0\r\n\r\n")
        status, answer = await client.answer()
        assert (status, b'"3"' in answer) == (200, True)


async def test_nobody_reads_the_large_body_of_a_stranger():
    """The request is refused by its header, and the connection is closed instead of skipping the body."""
    async with served(header_timeout=LONG) as connect:
        stranger = await connect()
        await stranger.send(head(2_000_000, token="wrong"))  # noqa: S106
        assert (await stranger.rest()).startswith(b"HTTP/1.1 401 ")


async def test_the_event_loop_turns_while_a_large_read_is_looked_at():
    """A large read, which may hold 40,000 pieces of a body, is handled in several turns of the event loop."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    given = []

    class Protocol(asyncio.Protocol):
        def data_received(self, data):
            given.append((turns, len(data)))

    connections = Connections(HttpLimits(), lambda _state: Protocol())
    connection = Connection(connections, "", lambda _state: Protocol())
    counting = asyncio.create_task(count())
    with socket.socket() as wire:
        connection.connection_made(Pipe(wire))
        connection.data_received(b"x" * 100_000)
        connection.data_received(b"y" * 100)
        while sum(length for _, length in given) < 100_100:
            await asyncio.sleep(0)
    counting.cancel()
    assert len({turn for turn, _ in given}) == len(given) > 10
    connection.connection_lost(None)


async def test_a_header_has_a_limit_of_size():
    """A header that is too large is refused even if all of it comes at once."""
    async with served(header_timeout=LONG, idle_timeout=LONG) as connect:
        client = await connect()
        with suppress(ConnectionError):
            await client.send(call().replace(b"Host:", b"X-Long: " + b"x" * 100_000 + b"\r\nHost:"))
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 400 ") or answer == b"", "the answer may be lost to the reset"


class Pipe(asyncio.Transport):
    """A transport that stands for a client that reads as much as the test says."""

    def __init__(self, wire):
        super().__init__({"socket": wire})
        self.unread, self.aborted = 1 << 20, False

    def get_write_buffer_size(self):
        return self.unread

    def pause_reading(self):
        pass

    resume_reading = pause_reading

    def abort(self):
        self.aborted = True

    def is_closing(self):
        return self.aborted


async def test_a_client_that_reads_slowly_but_steadily_is_served():
    """It must read at least 64 KiB in each `write_timeout`; with less the connection is aborted."""
    connections = Connections(HttpLimits(write_timeout=10), lambda _state: asyncio.Protocol())
    connection = Connection(connections, "", lambda _state: asyncio.Protocol())
    with socket.socket() as wire:
        _read_steadily(connection, Pipe(wire))


def _read_steadily(connection, pipe):
    connection.connection_made(pipe)
    connection.start_request()
    connection.pause_writing()
    now = asyncio.get_running_loop().time()
    for turn in range(1, 6):
        pipe.unread -= 64 << 10
        connection.enforce_limits(now + 11 * turn)
        assert not pipe.aborted
    pipe.unread -= 1 << 10
    connection.enforce_limits(now + 11 * 6)
    assert pipe.aborted


async def test_a_connection_that_has_gone_is_forgotten():
    """It is no longer counted or kept in any list, even if its request ends only later."""
    connections = Connections(HttpLimits(), lambda _state: asyncio.Protocol())
    connection = Connection(connections, "", lambda _state: asyncio.Protocol())
    with socket.socket() as wire:
        connection.connection_made(Pipe(wire))
        connection.data_received(b"x" * 100_000)
        connection.start_request()
        connection.authorise()
        connection.connection_lost(None)
        connection.finish_request()
    await asyncio.sleep(0)
    assert (len(connections), connections._strangers, connections._idle) == (0, {}, {})


# Values of the limits.


@pytest.mark.parametrize(
    ("descriptors", "asked", "most"),
    [
        (256, None, 192),
        (1024, None, 768),
        (100, None, 36),
        (20, None, 1),
        (1 << 20, None, 10_000),
        (1024, 100, 100),
        (1024, 5_000, 768),
        (None, None, 10_000),
        (None, 50_000, 50_000),
    ],
)
async def test_there_are_descriptors_to_spare(monkeypatch, caplog, descriptors, asked, most):
    """Some are kept for what tools open; if more connections are asked for than that allows, a warning says so."""
    monkeypatch.setattr(limits_module, "_descriptors", lambda: descriptors)
    assert connection_limit(HttpLimits(max_connections=asked)) == most
    assert bool(caplog.records) == (asked == 5_000)


@pytest.mark.parametrize(
    "wrong", [{"max_body": 0}, {"header_timeout": -1}, {"max_connections": 0}, {"session_timeout": math.inf}]
)
async def test_what_is_no_limit_is_refused(wrong):
    """A limit must be a finite number over 0; 0 would mean that nothing is allowed, None that there is no limit."""
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be a number greater than 0"):
        HttpLimits(**wrong)
