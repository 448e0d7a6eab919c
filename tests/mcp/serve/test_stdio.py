"""The carrier of stdio, over pipes of our own."""

import os
import signal

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer

from shared.stdio_peer import serving
from toolwire.mcp.serve import stdio
from toolwire.mcp.serve.start import as_mcp_server

pytestmark = pytest.mark.anyio

LIMIT = 20
BAD = "\ud800"  # half of a character: no UTF-8 can hold it


async def test_a_server_of_another_library_says_what_it_can_do():
    """Clients of the older versions ask once, at the start, and then look at nothing that was not named."""
    foreign = MCPServer("theirs")

    @foreign.tool()
    def twice(n: int) -> int:
        """Double it."""
        return 2 * n

    async with serving(as_mcp_server(foreign)) as peer:
        assert "tools" in (await peer.shake_hands())["capabilities"]


@pytest.mark.parametrize("method", ["x/bad", "x/refuse"])
async def test_an_answer_that_cannot_be_written_is_an_error_for_its_request(core, method):
    """Whoever asked hears of it, and the server lives on."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send(method, request_id=1)
        reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (1, -32603)
        peer.send("ping", request_id=2)
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_a_notice_that_cannot_be_written_is_left_out(core):
    """Those behind it still come, and the answer."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/notice", request_id=1)
        assert (await peer.receive())["params"]["data"] == "after"
        assert (await peer.receive())["id"] == 1


@pytest.mark.parametrize("request_id", ["1.5", "null", "true", "[1]", "{}"])
async def test_an_id_that_is_none_is_refused(core, request_id):
    """A request that nobody could answer is told so; it is no notification."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.write(f'{{"jsonrpc":"2.0","id":{request_id},"method":"ping"}}')
        reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (None, -32600)


async def test_no_new_work_is_taken_at_the_end(core):
    """After a signal, what runs is answered and what comes is refused; cancelling still works."""
    async with serving(core) as peer:
        await peer.shake_hands()
        peer.send("x/wait", request_id=1)
        await core.waiting.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        reply = {"result": {}}
        while "result" in reply:  # the signal takes its way
            await anyio.lowlevel.checkpoint()
            peer.send("ping", request_id=2)
            reply = await peer.receive()
        assert (reply["id"], reply["error"]["code"]) == (2, -32000)
        core.let_go.set()
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "result": {"waited": True}}
        await peer.ended.wait()


async def test_a_call_cancelled_at_the_end_is_not_waited_for(core):
    """What the client does not want any more holds nothing up."""
    async with serving(core, drain=600) as peer:
        await peer.shake_hands()
        peer.send("x/wait", request_id=1)
        await core.waiting.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        peer.send("notifications/cancelled", {"requestId": 1})
        await peer.ended.wait()


async def test_nobody_reading_is_the_end(core, caplog):
    """A client that has closed our output gets nothing more, so nothing is waited for, and nobody is told."""
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
    """Before it is decoded, with the id of the request wherever the client puts it; and the next line is served."""
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
    """When much waits for it, and it has taken nothing of that for a while."""
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
                peer.send("ping", None, "x" * 5_000 + str(number))  # it comes back
            await anyio.sleep(0.001)
    assert "the client has not read anything" in caplog.text


@pytest.mark.slow
async def test_much_may_wait_for_a_client_that_reads(core, monkeypatch):
    """However little may wait: as long as it takes some of it, it is not let go."""
    monkeypatch.setattr(stdio, "_MAX_UNREAD", 1_000)
    async with serving(core) as peer:
        await peer.shake_hands()
        for number in range(2_000):
            peer.send("ping", None, number + 1)
        found = {(await peer.receive())["id"] for _ in range(2_000)}
    assert found == set(range(1, 2_001))
