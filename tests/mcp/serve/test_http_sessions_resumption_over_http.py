"""Clients that resume a broken stream over HTTP, and sessions that end meanwhile."""

import json
import logging
import re

import anyio
import pytest

from shared.http_clients import HANDSHAKE, Waiting, call, client_of, opened
from toolwire import Context, ToolServer, http_app

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}


class Exchange:
    """One HTTP request and its response. A message of the type `hold` is only sent once `go` is set."""

    def __init__(self, app, headers, body=None, *, hold="", **more):
        self.app, self.hold, self.sent, self.over = app, hold, [], False
        self.held, self.go, self.moved, self.left = (anyio.Event() for _ in range(4))
        named = {**headers, **more, "host": "127.0.0.1"}
        self.scope = {
            "type": "http",
            "method": "GET" if body is None else "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(key.replace("_", "-").encode(), value.encode()) for key, value in named.items()],
        }
        self.came = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]

    async def run(self):
        await self.app(self.scope, self.receive, self.send)
        self.over = True
        self.moved.set()

    async def receive(self):
        if not self.came:
            await self.left.wait()
            return {"type": "http.disconnect"}
        return self.came.pop()

    async def send(self, message):
        if message["type"] == self.hold:
            self.held.set()
            await self.go.wait()
        self.sent.append(message)
        self.moved.set()

    async def until(self, holds):
        while not holds():
            self.moved = anyio.Event()
            await self.moved.wait()

    async def event(self):
        """Wait for the first event, and return its id."""
        await self.until(lambda: re.search(r"^id: (\S+)", self.text, re.MULTILINE))
        return re.search(r"^id: (\S+)", self.text, re.MULTILINE)[1]

    async def end(self):
        await self.until(lambda: self.over)
        return self.answers

    @property
    def text(self):
        return b"".join(each.get("body", b"") for each in self.sent).decode()

    @property
    def answers(self):
        """Return the texts of the results that came."""
        messages = map(json.loads, re.findall(r"^data: (\{.*)\r$", self.text, re.MULTILINE))
        return [each["result"]["content"][0]["text"] for each in messages if "result" in each]


@pytest.fixture
async def scene():
    """Start a server with a tool that waits, a session, and a call as a stream; give a function that resumes it."""
    waiting = Waiting()
    app = http_app(waiting.server)
    async with client_of(app) as http, anyio.create_task_group() as group:
        headers = await opened(http)
        first = Exchange(app, headers, call("wait", 5, HANDSHAKE)[0])
        group.start_soon(first.run)
        event = await first.event()

        def come_back(**more):
            exchange = Exchange(app, headers, last_event_id=event, **more)
            group.start_soon(exchange.run)
            return exchange

        yield waiting, http, headers, first, come_back
        group.cancel_scope.cancel()


async def answer_is_kept(come_back):
    """Wait until the response is stored, by resuming the stream once more, and return what came."""
    return await come_back().end()


async def test_an_answer_that_comes_while_its_client_comes_back(scene):
    """The response comes after the replay began, before anything was sent on the new stream."""
    waiting, _, _, first, come_back = scene
    first.left.set()
    await first.end()
    again = come_back(hold="http.response.start")
    await again.held.wait()
    waiting.let_go.set()
    assert await answer_is_kept(come_back) == ["waited"]
    again.go.set()
    assert await again.end() == ["waited"]


async def test_a_client_that_is_back_before_its_loss_is_known(scene):
    """While its old connection still counts as open, each resumed stream gets the response."""
    waiting, _, _, first, come_back = scene
    again, once_more = come_back(), come_back()
    for each in (again, once_more):
        await each.until(lambda each=each: each.sent)
    waiting.let_go.set()
    assert [await each.end() for each in (first, again, once_more)] == [["waited"]] * 3


async def test_a_client_that_has_its_answer_has_nothing_to_wait_for(scene):
    """Resuming after the last event of a stream ends at once."""
    waiting, _, headers, first, _ = scene
    waiting.let_go.set()
    await first.end()
    last = re.findall(r"^id: (\S+)\r$", first.text, re.MULTILINE)[-1]
    again = Exchange(first.app, headers, last_event_id=last)
    await again.run()
    assert again.answers == []


async def test_a_client_that_is_back_leaves_with_its_session(scene):
    """A resumed stream ends when its session is deleted."""
    _, http, headers, _, come_back = scene
    again = come_back()
    await again.until(lambda: again.sent)
    assert (await http.delete("/mcp", headers=headers)).status_code == 200
    assert await again.end() == []


async def test_a_tool_may_close_its_stream_again():
    """Also the stream of a client that has resumed, which then resumes once more."""
    orders, told = anyio.create_memory_object_stream[str](5)
    server = ToolServer("closing")

    @server.tool
    async def obey(context: Context) -> str:
        """Take long."""
        async for order in told:
            if order == "close":
                await context.close_stream()
            elif order == "end":
                break
            else:
                await context.log(order)
        return "done"

    app = http_app(server)
    async with client_of(app) as http, anyio.create_task_group() as group, orders, told:
        headers = await opened(http)
        stream = Exchange(app, headers, call("obey", 5, HANDSHAKE)[0])
        group.start_soon(stream.run)
        event = await stream.event()
        for order in ("first", "second"):
            await orders.send("close")
            assert await stream.end() == []
            stream = Exchange(app, headers, last_event_id=event)
            group.start_soon(stream.run)
            await orders.send(order)
            await stream.until(lambda stream=stream, order=order: order in stream.text)
        await orders.send("end")
        assert await stream.end() == ["done"]
        assert "first" in stream.text


@pytest.mark.parametrize("hold", ["http.response.start", "http.response.body"])
async def test_a_session_that_ends_while_a_message_for_it_is_on_its_way(scene, caplog, hold):
    """If the session ends before `mcp` takes the message, while its client reads the 202, there is no traceback."""
    _, http, headers, first, _ = scene
    caplog.set_level(logging.DEBUG)
    notice = Exchange(first.app, headers, CANCEL, hold=hold)
    async with anyio.create_task_group() as group:
        group.start_soon(notice.run)
        await notice.held.wait()
        assert (await http.delete("/mcp", headers=headers)).status_code == 200
        notice.go.set()
    assert [each.get("status") for each in notice.sent] == [202, None]
    assert [each for each in caplog.records if each.exc_info or each.levelno >= logging.WARNING] == []
    assert "Error handling POST request: the client has disconnected" in caplog.messages
