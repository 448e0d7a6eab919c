"""How many HTTP sessions are kept: the one that was idle longest is ended for a new one, but never one in use."""

import asyncio
import time

import anyio
import httpx2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from shared.http_clients import (
    HANDSHAKE,
    LIMIT,
    MODERN,
    Client,
    Waiting,
    call,
    client_of,
    message_of,
    opened,
    text_of,
)
from shared.waiting import eventually
from toolwire import HttpLimits, http_app
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.http import HttpApp, bound_socket
from toolwire.mcp.serve.http_sessions import Exchange, HttpSession
from toolwire.mcp.serve.start import host_for, serve_over

pytestmark = pytest.mark.anyio


async def status_of(http, headers, number=1, **more):
    """Make a call in the session, and return the status of the response."""
    body, _ = call("echo", number, HANDSHAKE, text="x")
    return (await http.post("/mcp", headers={**headers, **more}, json=body)).status_code


@pytest.mark.parametrize("accept", ["*/*", "application/json, text/event-stream"], ids=["mcp", "fast path"])
async def test_the_session_that_was_idle_longest_makes_room(accept):
    """Its client gets status 404, as MCP demands, and can open another session."""
    async with client_of(http_app(Waiting().server, limits=HttpLimits(max_sessions=3))) as http:
        first, second, third = [await opened(http) for _ in range(3)]
        assert await status_of(http, first, accept=accept) == 200  # so that the second was idle longest
        fourth = await opened(http)
        gone = await http.post("/mcp", headers=second, json=call("echo", 1, HANDSHAKE, text="x")[0])
        assert (gone.status_code, gone.json()["error"]["message"]) == (404, "Session not found")
        assert (await http.get("/mcp", headers=second)).status_code == 404
        assert [await status_of(http, each) for each in (first, third, fourth)] == [200, 200, 200]
        assert await status_of(http, await opened(http)) == 200, "it opens another"
        assert await status_of(http, first) == 404


async def test_a_session_in_use_stays():
    """A session with a running call is not ended, however old; if all are in use, a new one is refused."""
    waiting, replies = Waiting(), []
    app = HttpApp(
        host_for(waiting.server),
        guard_for("127.0.0.1", None),
        limits=HttpLimits(max_sessions=2),
    )
    async with client_of(app.asgi) as http:
        busy, idle = await opened(http), await opened(http)

        async def ask(headers) -> None:
            replies.append(await http.post("/mcp", headers=headers, json=call("wait", 5, HANDSHAKE)[0]))

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask, busy)
            await waiting.has_begun()
            third = await opened(http)
            assert await status_of(http, idle) == 404
            calls.start_soon(ask, third)
            await waiting.has_begun(2)
            full = await http.post("/mcp", headers=call(version=HANDSHAKE)[1], json={})
            assert (full.status_code, "retry-after" in full.headers) == (503, True)
            assert "too many sessions" in full.json()["error"]["message"]
            modern, headers = call("echo", 1, MODERN, text="no session")
            assert text_of(await http.post("/mcp", headers=headers, json=modern)) == "no session"
            waiting.let_go.set()
        assert [text_of(each) for each in replies] == ["waited", "waited"]
        assert await status_of(http, await opened(http)) == 200
        assert len(app.sessions) == 2


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", ["stream", "work"])
async def test_a_session_with_a_stream_or_with_work_stays(how):
    """A session counts as in use while its client listens to a stream, or while a call runs whose stream broke."""
    waiting = Waiting()
    with anyio.fail_after(LIMIT), bound_socket("127.0.0.1", 0) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            anyio.create_task_group() as serving,
            httpx2.AsyncClient(base_url=base, timeout=LIMIT) as http,
        ):
            guard = guard_for("127.0.0.1", None)

            async def serve() -> None:
                await serve_over(
                    host_for(waiting.server), listening, guard, limits=HttpLimits(max_sessions=2)
                )

            serving.start_soon(serve)
            first = await Client(http, HANDSHAKE).open()
            if how == "stream":
                listening_on = http.stream(
                    "GET", "/mcp", headers={**first.headers, "accept": "text/event-stream"}
                )
            else:
                listening_on = http.stream("POST", **first.request("tools/call", {"name": "wait"}, 5))
            async with listening_on as stream:
                assert stream.status_code == 200
                if how == "stream":
                    others = [await Client(http, HANDSHAKE).open() for _ in range(4)]
            if how == "work":
                others = [await Client(http, HANDSHAKE).open() for _ in range(4)]
                waiting.let_go.set()
            statuses = [(await each.call("echo", 9, text="x")).status_code for each in (first, *others)]
            assert statuses == [200, 404, 404, 404, 200]
            serving.cancel_scope.cancel()


async def test_a_session_that_nobody_uses_is_ended():
    """It is ended after the idle timeout, which begins when its last call has ended."""
    waiting, replies = Waiting(), []
    serving = host_for(waiting.server)
    app = HttpApp(
        serving,
        guard_for("127.0.0.1", None),
        limits=HttpLimits(session_timeout=1000),
    )
    async with client_of(app.asgi) as http:
        busy, idle = await opened(http), await opened(http)

        async def ask() -> None:
            replies.append(await http.post("/mcp", headers=busy, json=call("wait", 5, HANDSHAKE)[0]))

        async with anyio.create_task_group() as calls:
            calls.start_soon(ask)
            await waiting.has_begun()
            app.sessions.end_idle_at(time.monotonic() + 500)
            assert len(app.sessions) == 2
            app.sessions.end_idle_at(time.monotonic() + 1500)
            assert await status_of(http, idle) == 404
            waiting.let_go.set()
        assert text_of(replies[0]) == "waited"
        assert await status_of(http, busy) == 200
        app.sessions.end_idle_at(time.monotonic() + 500)
        assert await status_of(http, busy) == 200
        app.sessions.end_idle_at(time.monotonic() + 1500)
        assert await status_of(http, busy) == 404


async def test_idle_sessions_are_looked_for():
    """The running application ends sessions after the idle timeout by itself."""
    serving = host_for(Waiting().server)
    app = HttpApp(serving, guard_for("127.0.0.1", None), limits=HttpLimits(session_timeout=0.1))
    async with client_of(app.asgi) as http:
        params = {
            "protocolVersion": HANDSHAKE,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        reply = await http.post("/mcp", headers=call(version=HANDSHAKE)[1], json=body)
        assert "result" in message_of(reply)
        await eventually(lambda: len(app.sessions) == 0)
        assert await status_of(http, {"mcp-session-id": reply.headers["mcp-session-id"]}) == 404


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("user", ["", "ann"])
async def test_abandoned_sessions_leave_nothing_behind(user):
    """After many sessions that were opened and never used, no more tasks run than before."""
    inner = http_app(Waiting().server, limits=HttpLimits(max_sessions=5))

    async def app(scope, receive, send):
        token = AccessToken(token="t", client_id=user, scopes=[])  # noqa: S106 - it gives access to nothing
        await inner({**scope, **({"user": AuthenticatedUser(token)} if user else {})}, receive, send)

    async with client_of(app, inner) as http:
        kept = [await opened(http) for _ in range(5)]
        before = len(asyncio.all_tasks())
        for _ in range(60):
            last = await opened(http)
        await eventually(lambda: len(asyncio.all_tasks()) <= before)
        assert await status_of(http, last) == 200
        assert await status_of(http, kept[0]) == 404


async def test_a_handshake_that_fails_is_a_session_that_makes_room_too():
    """`mcp` keeps the session of a failed `initialize`, so it counts and can be ended for a new one."""
    serving = host_for(Waiting().server)
    app = HttpApp(
        serving,
        guard_for("127.0.0.1", None),
        limits=HttpLimits(max_sessions=3),
    )
    async with client_of(app.asgi) as http:
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 5}}
        for _ in range(10):
            reply = await http.post("/mcp", headers=call(version=HANDSHAKE)[1], json=body)
            assert message_of(reply)["error"]["code"] == -32602
        assert len(app.sessions) == 3
        assert await status_of(http, await opened(http)) == 200


async def test_who_is_not_let_in_opens_no_session():
    """Requests without the right token open no session, nor do invalid ones that are no handshake."""
    serving = host_for(Waiting().server)
    app = HttpApp(
        serving,
        guard_for("127.0.0.1", "sesame"),
        limits=HttpLimits(max_sessions=3),
    )
    async with client_of(app.asgi) as http:
        let_in = {"authorization": "Bearer sesame"}
        mine = await opened(http, **let_in)
        _, headers = call(version=HANDSHAKE)
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": info}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        for given in ({}, {"authorization": "Bearer guess"}):
            for _ in range(5):
                assert (await http.post("/mcp", headers={**headers, **given}, json=body)).status_code == 401
        for odd in ({}, [], {**body, "method": "ping"}, {**body, "id": None}, {**body, "jsonrpc": "1.0"}):
            assert (await http.post("/mcp", headers={**headers, **let_in}, json=odd)).status_code >= 400
        assert len(app.sessions) == 1
        assert await status_of(http, mine, **let_in) == 200


class Claims(RuleBasedStateMachine):
    """A model of one session: requests arrive, are worked on, are answered and leave, in any possible order."""

    def __init__(self):
        super().__init__()
        self.session = HttpSession("s", None, lambda _: None)
        self.exchanges = []  # of (exchange, key), while they are open
        self.work = {}  # by key: the context manager that tracks the handler

    def taken(self, key):
        return key in self.work or any(each == key for _, each in self.exchanges)

    @rule(number=st.sampled_from([1, "1", "01", 2, "a"]))
    def come(self, number):
        key = int(number) if number != "a" else number
        exchange = Exchange(self.session).__enter__()
        free = not self.taken(key)
        assert exchange.claim_nowait(number) == free
        self.exchanges.append((exchange, key if free else None))

    @precondition(lambda self: any(key is not None and key not in self.work for _, key in self.exchanges))
    @rule(data=st.data())
    def begin(self, data):
        free = [key for _, key in self.exchanges if key is not None and key not in self.work]
        key = data.draw(st.sampled_from(free))
        self.work[key] = self.session.track(key)
        self.work[key].__enter__()

    @precondition(lambda self: self.work)
    @rule(data=st.data())
    def finish(self, data):
        self.work.pop(data.draw(st.sampled_from(list(self.work)))).__exit__(None, None, None)

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data())
    def leave(self, data):
        left = data.draw(st.sampled_from(self.exchanges))
        self.exchanges.remove(left)
        left[0].__exit__(None, None, None)

    @invariant()
    def busy_while_anything_goes_on(self):
        assert self.session.busy == bool(self.exchanges or self.work)


Claims.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@pytest.mark.slow
def test_an_id_has_one_request_at_a_time():
    """In any order of events, an id is claimed exactly while its request is in flight."""
    run_state_machine_as_test(Claims)
