"""The stdio transport, tested over pipes."""

import gc
import json
import os
import signal
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer
from mcp.server.lowlevel import Server

from shared.stdio_peer import serving
from shared.waiting import eventually
from toolwire import ToolServer
from toolwire.mcp.serve import stdio
from toolwire.mcp.serve.start import as_mcp_server
from toolwire.tools.chain import chain, step
from toolwire.wrap import with_chains

pytestmark = pytest.mark.anyio

LIMIT = 20
BAD = "\ud800"  # half of a surrogate pair: UTF-8 cannot encode it


async def test_a_server_of_another_library_says_what_it_can_do():
    """Clients of the older versions use only what the capabilities in the `initialize` result name."""
    foreign = MCPServer("theirs")

    @foreign.tool()
    def twice(n: int) -> int:
        """Double it."""
        return 2 * n

    async with serving(as_mcp_server(foreign)) as peer:
        assert "tools" in (await peer.shake_hands())["capabilities"]


@pytest.mark.parametrize("method", ["x/bad", "x/refuse"])
async def test_an_answer_that_cannot_be_written_is_an_error_for_its_request(core, method):
    """The client gets an error with the request's id, and the server goes on."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send(method, request_id=1)
        reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (1, -32603)
        peer.send("ping", request_id=2)
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_a_notice_that_cannot_be_written_is_left_out(core):
    """Later notifications and the response are still sent."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/notice", request_id=1)
        assert (await peer.receive())["params"]["data"] == "after"
        assert (await peer.receive())["id"] == 1


@pytest.mark.parametrize("request_id", ["1.5", "null", "true", "[1]", "{}"])
async def test_an_id_that_is_none_is_refused(core, request_id):
    """A request with an invalid id gets an error; it is not taken for a notification."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.write(f'{{"jsonrpc":"2.0","id":{request_id},"method":"ping"}}')
        reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (None, -32600)


async def test_no_new_work_is_taken_at_the_end(core):
    """After a signal, running requests are answered and new ones refused; cancelling still works."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/wait", request_id=1)
        await core.waiting.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        reply = {"result": {}}
        while "result" in reply:  # until the signal has arrived
            await anyio.lowlevel.checkpoint()
            peer.send("ping", request_id=2)
            reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (2, -32000)
        core.let_go.set()
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "result": {"waited": True}}
        await peer.ended.wait()


async def test_a_call_cancelled_at_the_end_is_not_waited_for(core):
    """A call that is cancelled does not delay the shutdown."""
    async with serving(core, drain=600) as peer:
        await peer.shake_hands()
        peer.send("x/wait", request_id=1)
        await core.waiting.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        peer.send("notifications/cancelled", {"requestId": 1})
        await peer.ended.wait()


async def test_nobody_reading_is_the_end(core, caplog):
    """If the client closes our output, the server ends at once, without waiting for calls, and logs nothing."""
    async with serving(core, drain=600) as peer:
        await peer.shake_hands()
        peer.send("x/wait", request_id=1)
        await core.waiting.wait()
        peer.stop_reading()
        peer.write("garbage")
        peer.send("x/wait", request_id=2)
        await peer.ended.wait()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("[" * 200 + "]" * 200, "nested more than 100 deep"),
        ("[" + "[]," * 600_000 + "[]]", "more than 1000000 values"),
        ("[" + "9" * 1_001 + "]", "a number of more than 1000 digits"),
    ],
    ids=["deep", "many", "long"],
)
async def test_a_line_that_would_cost_too_much_is_refused(core, params, said):
    """Before it is decoded, with its id wherever the client puts it; the next line is served."""
    async with serving(core) as peer:
        await peer.shake_hands()
        for line in (
            f'{{"jsonrpc":"2.0","id":7,"method":"ping","params":{params}}}',
            f'{{"method":"ping","params":{params},"jsonrpc":"2.0","id":7}}',
        ):
            await anyio.to_thread.run_sync(peer.write, line)
            refused = await peer.receive()
            assert (refused["id"], refused["error"]["code"]) == (7, -32600)
            assert said in refused["error"]["message"]
        peer.send("ping", None, 8)
        assert (await peer.receive())["id"] == 8


@pytest.mark.parametrize("line", ["garbage", "request"])
async def test_a_client_that_never_reads_is_let_go(core, caplog, monkeypatch, line):
    """If too much output is unread and the client reads none of it for a while, the connection ends."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 100_000)
    monkeypatch.setattr(stdio, "_READ_TIMEOUT", 0.0)
    async with serving(core) as peer:
        await peer.shake_hands()
        number = 0
        while not peer.ended.is_set():
            number += 1
            if line == "garbage":
                for _ in range(50):
                    peer.write(line)
            else:
                peer.send("ping", None, "x" * 5_000 + str(number))  # the response has it too
            await anyio.sleep(0.001)
    assert "the client has not read anything" in caplog.text


@pytest.mark.slow
async def test_much_may_wait_for_a_client_that_reads(core, monkeypatch):
    """As long as the client reads something, the connection does not end, however low the limit is."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 1_000)
    async with serving(core) as peer:
        await peer.shake_hands()
        for number in range(2_000):
            peer.send("ping", None, number + 1)
        found = {(await peer.receive())["id"] for _ in range(2_000)}
    assert found == set(range(1, 2_001))


async def flood(peer, lines):
    """Write lines from a thread, as fast as the server reads them."""
    text = "\n".join(json.dumps({"jsonrpc": "2.0", **line}) for line in lines)
    await anyio.to_thread.run_sync(peer.write, text)


async def test_a_flood_is_refused_beyond_a_limit_and_can_be_cancelled(core, monkeypatch):
    """Accepted requests are answered in the end. Cancellations and pings get through meanwhile."""
    monkeypatch.setattr(stdio, "_MAX_PENDING", 50)
    async with serving(core) as peer:
        await peer.shake_hands()
        await flood(peer, [{"id": number, "method": "x/wait"} for number in range(1, 2_001)])
        refused = [await peer.receive() for _ in range(1_950)]
        assert {each["id"] for each in refused} == set(range(51, 2_001))
        assert {each["error"]["code"] for each in refused} == {-32600}
        assert "too many requests are pending" in refused[0]["error"]["message"]
        peer.send("notifications/cancelled", {"requestId": 7})
        peer.send("x/wait", None, "in its place")
        peer.send("ping", None, "ping")
        assert await peer.receive() == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        core.let_go.set()
        answered = {(await peer.receive())["id"] for _ in range(50)}
        assert answered == {*range(1, 51), "in its place"} - {7}


async def test_large_requests_count_by_their_bytes(core, monkeypatch):
    """Beyond a limit of bytes, requests are refused, but one is always accepted."""
    monkeypatch.setattr(stdio, "_MAX_PENDING_BYTES", 10_000)
    async with serving(core) as peer:
        await peer.shake_hands()
        params = {"_meta": {"text": "x" * 20_000}}
        await flood(peer, [{"id": number, "method": "x/wait", "params": params} for number in (1, 2)])
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (2, -32600)
        core.let_go.set()
        assert (await peer.receive())["id"] == 1


@pytest.fixture
def counted(monkeypatch):
    """Record the maximum of queued messages, of pending requests, and of bytes that the client has not read."""
    most = {"queued": 0, "pending": 0, "unread": 0}

    class Counting(stdio.LineConnection):
        def _handle(self, line):
            super()._handle(line)
            most["queued"] = max(most["queued"], len(self._intake._items))
            most["pending"] = max(most["pending"], len(self.pending))
            most["unread"] = max(most["unread"], self._writer._waiting)

    monkeypatch.setattr(stdio, "LineConnection", Counting)
    return most


@pytest.mark.slow
async def test_a_hundred_thousand_requests_at_once(core, counted, monkeypatch):
    """Each is answered or refused in the end, and only a bounded number is held in memory."""
    monkeypatch.setattr(stdio, "_MAX_PENDING", 500)
    async with serving(core) as peer, anyio.create_task_group() as tasks:
        await peer.shake_hands()
        tasks.start_soon(flood, peer, [{"id": n, "method": "x/wait"} for n in range(1, 100_001)])
        answers = [await peer.receive() for _ in range(99_500)]
        core.let_go.set()
        answers += [await peer.receive() for _ in range(500)]
    assert {each["id"] for each in answers} == set(range(1, 100_001))
    assert sum("result" in each for each in answers) == 500
    assert counted["pending"] == 500
    assert counted["queued"] <= 500


async def test_notifications_wait_in_the_pipe_while_the_server_takes_none(counted, monkeypatch):
    """While the server starts, it stops reading once its queue is full."""
    monkeypatch.setattr(stdio, "_MAX_QUEUED", 10)
    monkeypatch.setattr(stdio, "_MAX_POSTED", 1_000)
    start = anyio.Event()

    @asynccontextmanager
    async def lifespan(_server):
        await start.wait()
        yield

    slow = Server("slow", lifespan=lifespan)
    async with serving(slow) as peer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, peer, [{"method": "notifications/x"} for _ in range(30_000)])
            await eventually(lambda: counted["queued"] > 10)
            for _ in range(300):  # time for a thread that would read on
                await anyio.to_thread.run_sync(gc.get_count)
            assert counted["queued"] < 3_000, "the rest is in the pipe"
            start.set()
        await peer.shake_hands()


async def test_a_client_that_reads_late_gets_every_answer(core, counted, monkeypatch):
    """While too much output is unread, nothing more is read from the client."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 10_000)
    monkeypatch.setattr(stdio, "_MAX_POSTED", 1_000)
    async with serving(core) as peer:
        await peer.shake_hands()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, peer, [{"method": 7}] * 20_000)
            await eventually(lambda: counted["unread"] > 10_000)
            for _ in range(600):  # time for a thread that would read on
                await anyio.to_thread.run_sync(gc.get_count)
            assert counted["unread"] < 400_000
            for _ in range(20_000):
                assert (await peer.receive())["error"]["code"] == -32600


@pytest.fixture
def wordy():
    """Return a server with one tool that returns a lot and counts its calls."""
    server = ToolServer("wordy")
    server.calls = 0

    @server.tool
    async def much() -> str:
        """Say much."""
        server.calls += 1
        await anyio.sleep(0)
        return "x" * 10_000

    return server


async def flood_with_calls(peer, number):
    """Send this number of calls of the wordy tool, and read nothing."""
    await flood(
        peer, [{"id": n + 1, "method": "tools/call", "params": {"name": "much"}} for n in range(number)]
    )


async def test_calls_do_not_begin_while_their_client_does_not_read(wordy, monkeypatch):
    """Each would put another result into memory. They begin when the client reads, and each is answered."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 100_000)
    async with serving(as_mcp_server(wordy)) as peer:
        await peer.shake_hands()
        await flood_with_calls(peer, 1_000)
        await eventually(lambda: wordy.calls > 9)
        for _ in range(300):  # time for more of them
            await anyio.to_thread.run_sync(gc.get_count)
        assert wordy.calls < 100
        assert {(await peer.receive())["id"] for _ in range(1_000)} == set(range(1, 1_001))
    assert wordy.calls == 1_000


async def test_a_client_that_sends_and_reads_nothing_more_is_let_go(wordy, caplog, monkeypatch):
    """The timeout also ends a connection on which nothing more is written."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 100_000)
    monkeypatch.setattr(stdio, "_READ_TIMEOUT", 0.2)
    async with serving(as_mcp_server(wordy)) as peer:
        await peer.shake_hands()
        await flood_with_calls(peer, 200)
        await peer.ended.wait()
    assert "the client has not read anything" in caplog.text


async def test_a_signal_ends_a_server_whose_client_does_not_read(wordy, monkeypatch):
    """Calls that have not begun are dropped."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 100_000)
    monkeypatch.setattr(stdio, "_FLUSH_TIMEOUT", 0.1)
    async with serving(as_mcp_server(wordy), drain=0.1) as peer:
        await peer.shake_hands()
        await flood_with_calls(peer, 1_000)
        await eventually(lambda: wordy.calls > 9)
        os.kill(os.getpid(), signal.SIGTERM)
        await peer.ended.wait()
    assert wordy.calls < 100


async def test_messages_of_the_log_arrive_in_the_order_in_which_they_were_logged():
    """Also log messages that belong to no request."""
    server = ToolServer("talkative")

    @server.tool
    async def talk() -> None:
        """Say much."""
        for number in range(50):
            server.log(number)

    async with serving(as_mcp_server(server)) as peer:
        await peer.shake_hands()
        peer.send("tools/call", {"name": "talk"}, 1)
        messages = [await peer.receive() for _ in range(51)]
    logged = [each["params"]["data"] for each in messages if "method" in each]
    assert logged == list(range(50))


@pytest.mark.parametrize("chains", [(), [chain("twice", "Talk twice.", [step("talk")])]])
async def test_a_log_message_of_the_server_arrives_once(chains):
    """However many calls of the client are running."""
    server, let_go = ToolServer("talkative"), anyio.Event()

    @server.tool
    async def wait() -> None:
        """Run until the test lets it go."""
        await let_go.wait()

    @server.tool
    async def talk() -> None:
        """Say something."""
        server.log("hello")

    served = with_chains(server, *chains) if chains else server
    async with serving(as_mcp_server(served)) as peer:
        await peer.shake_hands()
        peer.send("tools/call", {"name": "wait"}, 1)
        peer.send("tools/call", {"name": "talk"}, 2)
        messages = [await peer.receive()]
        while messages[-1].get("id") != 2:
            messages.append(await peer.receive())
        let_go.set()
        while messages[-1].get("id") != 1:
            messages.append(await peer.receive())
    assert [each["params"]["data"] for each in messages if "method" in each] == ["hello"]
