"""The fast path over HTTP: the same responses as those of `mcp`, and no call runs twice."""

import json
import socket
from functools import cache

import anyio
import pytest

from shared.http_clients import ANY, BOTH, LIMIT, MODERN, VERSIONS, Calc, served
from toolwire import ToolServer, tool
from toolwire.mcp.serve.http import bound_socket
from toolwire.wrap import combine, only, prefix, rename, without

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's


def is_stream(reply):
    return reply.headers["content-type"].startswith("text/event-stream")


def at_once(reply):
    """Return whether the response came in one piece instead of as an open stream."""
    return "content-length" in reply.headers


def messages(reply):
    """Return the messages of a response, whether it is JSON or an event stream."""
    if not is_stream(reply):
        return [reply.json()]
    lines = [each.removeprefix("data: ") for each in reply.text.splitlines() if each.startswith("data: {")]
    return [json.loads(each) for each in lines]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2.5}}),
        ("tools/call", {"name": "add", "arguments": {"a": "x"}}),
        ("tools/call", {"name": "add", "arguments": []}),
        ("tools/call", {"name": "broken"}),
        ("tools/call", {"name": "odd"}),
        ("tools/call", {"name": "nobody"}),
        ("tools/list", {"cursor": "no such"}),
    ],
)
async def test_the_answer_is_that_of_mcp(version, method, params):
    """The fast path and `mcp` give the same response."""
    async with served(Calc(), version) as client:
        ours = [await client.post(method, params, 7) for _ in range(2)]
        theirs = await client.post(method, params, 7, accept=ANY)
        assert [messages(each) for each in ours] == [messages(theirs)] * 2
        assert {each.status_code for each in ours} == {theirs.status_code}
        assert [is_stream(each) for each in ours] == [is_stream(theirs)] * 2
        assert ours[0].headers.get("mcp-session-id") == theirs.headers.get("mcp-session-id")


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_there_at_once_comes_in_one_piece(version):
    """It has the form that `mcp` gives it: an event in a session, else JSON. A changed list is sent anew."""
    calc = Calc()
    async with served(calc, version) as client:
        reply = await client.call("add", a=1, b=2)
        assert (at_once(reply), is_stream(reply)) == (True, version != MODERN)
        assert calc.runs == 1
        assert len(messages(await client.post("tools/list", {}))[0]["result"]["tools"]) == 5
        calc.server.tool(lambda: "new", name="new")
        reply = await client.post("tools/list", {})
        assert at_once(reply)
        assert [each["name"] for each in messages(reply)[0]["result"]["tools"]][-1] == "new"


class Heard(ToolServer):
    """A server that records the methods of the requests that reach it."""

    def __init__(self, name="calc"):
        super().__init__(name)
        self.heard = []

    def connect(self, channel, **settings):
        connection = super().connect(channel, **settings)
        begin = connection.begin

        def note(message, *, encoded=False):
            if "id" in message:
                self.heard.append(message["method"])
            return begin(message, encoded=encoded)

        connection.begin = note
        return connection


@cache
def many_tools():
    """Return 2,500 tools, made once."""
    return [tool(f"t{number}", "", {})(lambda _: "one") for number in range(2_500)]


class Wrapped:
    """A server of many tools with a wrapper around it."""

    def __init__(self, wrap):
        self.inner = Heard()
        self.inner.swap((), many_tools())
        self.server = wrap(self.inner)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda inner: only(inner, "t*"), "t2499"),
        (lambda inner: without(inner, "t1*"), "t2499"),
        (lambda inner: prefix(inner, "x_"), "x_t2499"),
        (lambda inner: rename(inner, {"t2499": "last"}), "last"),
        (lambda inner: combine("all", ToolServer("other"), prefix(only(inner, "t*"), "x_")), "x_t2499"),
    ],
    ids=["only", "without", "prefix", "rename", "combine"],
)
async def test_a_wrapped_server_is_as_quick(version, wrap, name):
    """A call is one request to the wrapped server, without listing its tools. The responses are those of `mcp`."""
    wrapped = Wrapped(wrap)
    async with served(wrapped, version) as client:
        await client.post("tools/list", {})
        wrapped.inner.heard.clear()
        reply = await client.call(name)
        assert messages(reply)[0]["result"]["content"][0]["text"] == "one"
        assert at_once(reply)
        assert wrapped.inner.heard == ["tools/call"]
        for method, params in (
            ("tools/list", {}),
            ("tools/call", {"name": name}),
            ("tools/call", {"name": "t2499x"}),
        ):
            ours, theirs = [await client.post(method, params, 7, accept=each) for each in (BOTH, ANY)]
            assert messages(ours) == messages(theirs)
            assert at_once(ours) or "error" in messages(ours)[0]


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_a_tool_tells_comes_before_its_result(version):
    """Progress and result come as a stream, and the tool runs once."""
    calc = Calc()
    async with served(calc, version) as client:
        call = client.request("tools/call", {"name": "told"})
        call["json"]["params"]["_meta"] = {**call["json"]["params"].get("_meta", {}), "progressToken": 5}
        reply = await client.http.post(**call)
        progress, result = messages(reply)
        assert not at_once(reply)
        assert progress["params"] == {"progressToken": 5, "progress": 1, "total": 2}
        assert result["result"]["content"][0]["text"] == "told"
        assert calc.runs == 1


@pytest.mark.parametrize("version", ["2025-11-25"])
async def test_a_call_that_takes_longer_is_a_stream(version):
    """The client gets an event id at once, with which it can fetch the result later; the tool runs once."""
    calc = Calc()
    async with served(calc, version) as client:
        async with client.http.stream("POST", **client.request("tools/call", {"name": "wait"})) as reply:
            assert not at_once(reply)
            lines = aiter(reply.aiter_lines())
            event = [await anext(lines) for _ in range(2)]
        calc.let_go.set()
        number = next(line.removeprefix("id: ") for line in event if line.startswith("id: "))
        headers = {**client.headers, "last-event-id": number}
        async with client.http.stream("GET", "/mcp", headers=headers) as again:
            async for line in again.aiter_lines():
                if line.startswith("data: {"):
                    assert json.loads(line.removeprefix("data: "))["result"]["content"][0]["text"] == "waited"
                    break
        assert calc.runs == 1


@pytest.mark.parametrize("late", [False, True])
async def test_a_call_can_be_cancelled(late):
    """While the fast path has it, or after it was handed over to `mcp`."""
    calc, replies = Calc(), []
    async with served(calc, "2025-11-25") as client, anyio.create_task_group() as calls:

        async def ask() -> None:
            replies.append(await client.call("wait", 9))

        calls.start_soon(ask)
        await calc.begun.wait()
        if late:
            await anyio.sleep(0.5)  # longer than the fast path keeps a call
        await client.post("notifications/cancelled", {"requestId": 9}, None)
        await calc.ended.wait()
    assert messages(replies[0])[-1]["error"] == {"code": -32800, "message": "Request cancelled"}
    assert calc.runs == 1


async def test_a_client_without_a_session_that_leaves_ends_its_call():
    """In 2026-07-28, closing the connection cancels the request."""
    calc = Calc()
    async with served(calc, MODERN) as client:
        with anyio.move_on_after(LIMIT) as leaving:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call, "wait")
                await calc.begun.wait()
                leaving.cancel()
        await calc.ended.wait()
        assert (calc.runs, calc.let_go.is_set()) == (1, False)


async def test_a_session_that_has_ended_answers_no_more():
    """A session that was deleted or never existed gets status 404."""
    async with served(Calc(), "2025-11-25") as client:
        assert (await client.http.delete("/mcp", headers=client.headers)).status_code == 200
        assert (await client.call("add", a=1, b=2)).status_code == 404
        client.headers["mcp-session-id"] = "made-up"
        assert (await client.call("add", a=1, b=2)).status_code == 404


@pytest.mark.parametrize("number", [1 << 70, "é", -1, 1.5, True, None])
async def test_any_id_is_answered_as_mcp_does(number):
    """Also unusual and invalid ids."""
    async with served(Calc(), "2025-11-25") as client:
        replies = []
        for accept in (BOTH, ANY):
            call = client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, accept=accept)
            call["json"]["id"] = number
            replies.append(await client.http.post(**call))
        assert replies[0].status_code == replies[1].status_code
        if replies[0].content:
            assert messages(replies[0]) == messages(replies[1])


async def test_a_version_that_is_none_is_refused():
    """Having a session does not change that."""
    async with served(Calc(), "2025-11-25") as client:
        client.headers["mcp-protocol-version"] = "2099-01-01"
        assert (await client.call("add", a=1, b=2)).status_code == 400


def test_answers_do_not_wait_for_the_client_to_confirm():
    """asyncio sets TCP_NODELAY only if the socket says that it is TCP; otherwise each response would take 40 ms."""
    with bound_socket("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
