"""The fast path at its edges: sessions and their users, bodies that break off, the handover of a call to `mcp`."""

import json

import anyio
import httpx2
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from shared.http_clients import HANDSHAKE, Calc, call, client_of, opened
from toolwire import http_app
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.fast_path import EarlyCall
from toolwire.mcp.serve.http import HttpApp
from toolwire.mcp.serve.start import host_for

BODY = 1 << 20  # a larger body never takes the fast path
pytestmark = pytest.mark.anyio


class Held:
    """A fast path that holds each call that it hands over to `mcp`, until `let_go` is set."""

    def __init__(self, fast_path):
        self.fast_path = fast_path
        self.handing_over, self.let_go = anyio.Event(), anyio.Event()

    async def answer(self, *request):
        answer = await self.fast_path.answer(*request)
        if isinstance(answer, EarlyCall):
            self.handing_over.set()
            await self.let_go.wait()
        return answer


async def asgi(app, came, headers):
    """Send the ASGI messages to the app, and return the status and the body of its response."""
    left, sent = list(came), []

    async def receive():
        if not left:
            await anyio.sleep_forever()
        return left.pop(0)

    async def send(message):
        sent.append(message)

    named = [(name.encode(), value.encode()) for name, value in {"host": "127.0.0.1", **headers}.items()]
    await app({"type": "http", "method": "POST", "path": "/mcp", "headers": named}, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


async def test_a_session_is_its_users():
    """If the application around it identifies users, nobody can use the session of another user."""
    calc = Calc()
    inner = http_app(calc.server)

    async def app(scope, receive, send):
        name = dict(scope["headers"]).get(b"x-user", b"").decode()
        token = AccessToken(token=name, client_id=name, scopes=[])
        await inner({**scope, **({"user": AuthenticatedUser(token)} if name else {})}, receive, send)

    async with client_of(app, inner) as http:
        sessions = {name: await opened(http, **({"x-user": name} if name else {})) for name in ("ann", "")}
        body, _ = call(version=HANDSHAKE, a=1, b=2)
        for owner, headers in sessions.items():
            for user in ("ann", "bob", ""):
                reply = await http.post(
                    "/mcp", headers={**headers, **({"x-user": user} if user else {})}, json=body
                )
                assert (user, reply.status_code) == (user, 200 if user == owner else 404)
    assert calc.runs == 2


async def test_nothing_runs_in_a_server_that_is_not_open():
    """Without its lifespan the app raises an error, and the tool does not run."""
    calc = Calc()
    body, headers = call(a=1, b=2)
    transport = httpx2.ASGITransport(http_app(calc.server))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        with pytest.raises(RuntimeError):
            await http.post("/mcp", headers=headers, json=body)
    assert calc.runs == 0


async def test_a_body_that_breaks_off_is_no_request():
    """Even if the part that came is a valid request."""
    calc = Calc()
    body, headers = call(a=1, b=2)
    came = [
        {"type": "http.request", "body": json.dumps(body).encode(), "more_body": True},
        {"type": "http.disconnect"},
    ]
    app = http_app(calc.server)
    async with client_of(app):
        status, _ = await asgi(app, came, {**headers, "content-length": "9999"})
    assert status == 400, "for nobody, but no error in the log either"
    assert calc.runs == 0


async def test_a_body_may_come_in_pieces():
    """The response is the same on the fast path and from `mcp`."""
    calc = Calc()
    for length in (10, 3 * BODY):  # the first is wrong: the body is too long for the fast path
        body, headers = call(a=1, b=2)
        text = json.dumps(body).encode() + b" " * (2 * BODY)
        pieces = [text[start : start + BODY // 3] for start in range(0, len(text), BODY // 3)]
        came = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        came[-1]["more_body"] = False
        app = http_app(calc.server)
        async with client_of(app):
            status, answer = await asgi(app, came, {**headers, "content-length": str(length)})
        assert (status, json.loads(answer)["result"]["content"][0]["text"]) == (200, "3.0")
    assert calc.runs == 2


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
async def test_a_call_on_its_way_to_mcp_can_be_ended(how):
    """While it is handed over, the client can still cancel it or delete its session."""
    calc = Calc()
    serving = host_for(calc.server)
    app = HttpApp(serving, guard_for("127.0.0.1", None))
    held = app.fast_path = Held(app.fast_path)
    async with client_of(app.asgi) as http, anyio.create_task_group() as calls:
        headers = await opened(http)
        body, _ = call("wait", 5, HANDSHAKE)

        async def ask() -> None:
            await http.post("/mcp", headers=headers, json=body)

        calls.start_soon(ask)
        await held.handing_over.wait()
        if how == "deleted":
            assert (await http.delete("/mcp", headers=headers)).status_code == 200
        else:
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            assert (await http.post("/mcp", headers=headers, json=cancel)).status_code == 202
        await calc.ended.wait()
        held.let_go.set()
    assert calc.runs == 1


async def test_a_call_ends_with_its_session():
    """Deleting the session also cancels a call that is still on the fast path."""
    calc = Calc()
    app = http_app(calc.server)
    async with client_of(app) as http, anyio.create_task_group() as calls:
        headers = await opened(http)
        body, _ = call("wait", 5, HANDSHAKE)

        async def ask() -> None:
            await http.post("/mcp", headers=headers, json=body)

        calls.start_soon(ask)
        await calc.begun.wait()
        assert (await http.delete("/mcp", headers=headers)).status_code == 200
        await calc.ended.wait()
    assert calc.runs == 1


@pytest.mark.parametrize("cursor", [None, "no such"])
async def test_a_list_is_counted_once(cursor):
    """Also one that the fast path leaves to `mcp`, because the cursor is unknown."""
    async with client_of(http_app(Calc().server)) as http:
        headers = await opened(http)
        params = {} if cursor is None else {"cursor": cursor}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        await http.post("/mcp", headers=headers, json=body)
        lines = (await http.get("/metrics")).text.splitlines()
    outcome = "ok" if cursor is None else "refused"
    assert [each for each in lines if each.startswith("toolwire_requests_total{")] == [
        f'toolwire_requests_total{{method="tools/list",outcome="{outcome}"}} 1.0'
    ]
