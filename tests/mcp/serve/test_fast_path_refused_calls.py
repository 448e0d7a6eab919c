"""A call that `mcp` refuses does not run: the fast path begins only calls that `mcp` accepts."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from pydantic import ValidationError

from shared.http_clients import (
    ANY,
    ENVELOPE,
    HANDSHAKE,
    MODERN,
    VERSIONS,
    Calc,
    call,
    client_of,
    message_of,
    opened,
)
from toolwire import ToolServer, http_app
from toolwire.mcp.serve.access import guard_for
from toolwire.mcp.serve.fast_path import accepts
from toolwire.mcp.serve.http import HttpApp
from toolwire.mcp.serve.start import host_for

pytestmark = pytest.mark.anyio


REFUSED = {
    "no progress token": {"_meta": {"progressToken": None}},
    "half a progress token": {"_meta": {"progressToken": 1.5}},
    "a list as progress token": {"_meta": {"progressToken": []}},
    "a task that is none": {"task": 5},
    "a task of some time": {"task": {"ttl": "soon"}},
    "a list of arguments": {"arguments": [1, 2]},
    "a name that is none": {"name": None},
    "meta that is none": {"_meta": 1},
}


def body_of(version, params, tool="add"):
    """Return the body and headers of a call with these parameters merged into the usual ones."""
    body, headers = call(tool, 7, version, a=1, b=2)
    body["params"] |= params
    if version == MODERN and isinstance(params.get("_meta"), dict):
        body["params"]["_meta"] = {**ENVELOPE, **params["_meta"]}
    return body, headers


@pytest.mark.parametrize("tool", ["add", "wait"])
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("params", REFUSED.values(), ids=REFUSED)
async def test_a_call_that_is_refused_has_not_run(params, version, tool):
    """Neither a tool that returns at once nor one that waits."""
    calc = Calc()
    async with client_of(http_app(calc.server)) as http:
        session = {} if version == MODERN else await opened(http)
        body, headers = body_of(version, params, tool)
        reply = await http.post("/mcp", headers=headers | session, json=body)
        assert message_of(reply)["error"]["code"] == -32602
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        assert calc.runs == 0


scalars = st.none() | st.booleans() | st.integers(-3, 2**63) | st.floats() | st.sampled_from(["", "add", "7"])
odd = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
metas = odd | st.fixed_dictionaries(
    {},
    optional={
        "progressToken": odd,
        "traceparent": odd,
        "io.modelcontextprotocol/protocolVersion": odd | st.just(MODERN),
        "io.modelcontextprotocol/clientInfo": odd | st.just({"name": "n", "version": "1"}),
        "io.modelcontextprotocol/clientCapabilities": odd
        | st.fixed_dictionaries(
            {}, optional={"elicitation": odd, "sampling": odd, "roots": odd, "tasks": odd}
        ),
        "io.modelcontextprotocol/logLevel": odd | st.just("info"),
        "io.modelcontextprotocol/related-task": odd,
    },
)
parameters = st.fixed_dictionaries(
    {},
    optional={
        "name": odd,
        "arguments": odd | st.dictionaries(st.sampled_from("ab"), scalars),
        "_meta": metas,
        "task": odd | st.fixed_dictionaries({}, optional={"ttl": odd}),
        "cursor": odd,
        "inputResponses": odd,
        "requestState": odd,
        "meta": metas,
        "progress_token": odd,
    },
)


@dataclass
class Dispatched:
    """The context of a request that `mcp` demands."""

    request_id: int = 1
    transport: Any = field(default_factory=lambda: TransportContext(kind="test", can_send_request=False))
    message_metadata: Any = None
    can_send_request: bool = False
    cancel_requested: Any = field(default_factory=anyio.Event)


@pytest.fixture
def recorded():
    """Return the `mcp` server of an app, with handlers that only record that they were reached, and the record."""
    core, reached = host_for(ToolServer("s")).mcp_server, []

    async def reach(ctx, _params):
        reached.append(ctx.method)
        return {"tools": []} if ctx.method == "tools/list" else {"content": []}

    for method in ("tools/call", "tools/list"):
        core.add_request_handler(method, core.get_request_handler(method).params_type, reach)
    core.middleware.clear()  # they check later rounds of a call, which the fast path never takes
    return core, reached


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from(VERSIONS),
    method=st.sampled_from(["tools/call", "tools/list", "no/such"]),
    params=st.none() | parameters,
    base=st.booleans(),
)
@example(version=HANDSHAKE, method="tools/call", params={"_meta": {"progressToken": None}}, base=True)
@example(version=HANDSHAKE, method="tools/call", params={"task": {"ttl": 1.5}}, base=True)
@example(
    version=MODERN, method="tools/call", params={"_meta": {**ENVELOPE, "progressToken": None}}, base=True
)
async def test_what_is_accepted_is_what_reaches_a_handler(recorded, version, method, params, base):
    """`accepts` is true exactly if `mcp` passes a request with these parameters to a handler."""
    core, reached = recorded
    reached.clear()
    if base and params is not None:
        params = {"name": "add", "arguments": {}, "_meta": ENVELOPE if version == MODERN else {}, **params}
    connection = Connection.from_envelope(version, None, None)
    with suppress(MCPError, ValidationError):
        await serve_one(core, Dispatched(), method, params, connection=connection, lifespan_state=None)
    assert accepts(core, method, version, params) == bool(reached)


@pytest.fixture
async def calc_over_http():
    calc = Calc()
    async with client_of(http_app(calc.server)) as http:
        yield calc, http, await opened(http)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from([HANDSHAKE, MODERN]), params=parameters.map(lambda each: {**each, "name": "add"})
)
async def test_both_ways_refuse_the_same_calls(calc_over_http, version, params):
    """With any parameters, the fast path and `mcp` give the same response, and a refused call has not run."""
    calc, http, session = calc_over_http
    body, headers = body_of(version, params)
    text = json.dumps(body).replace("NaN", "0").replace("Infinity", "0")
    headers = headers if version == MODERN else headers | session
    answers, runs = [], []
    for accept in (headers["accept"], ANY):
        before = calc.runs
        reply = await http.post("/mcp", headers={**headers, "accept": accept}, content=text)
        answers.append(message_of(reply))
        runs.append(calc.runs - before)
    assert answers[0] == answers[1]
    assert runs[0] == runs[1]
    if "error" in answers[0]:
        assert runs == [0, 0]


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_call_that_is_refused_after_all_ends_at_once(version, monkeypatch):
    """Should `mcp` refuse a call that has begun, its tool is cancelled instead of running on for nobody."""
    monkeypatch.setattr("toolwire.mcp.serve.fast_path._TAKEOVER_TIMEOUT", 10_000)
    calc = Calc()
    serving = host_for(calc.server)
    app = HttpApp(serving, guard_for("127.0.0.1", None))

    async def refuse(ctx, call_next):
        if ctx.method == "tools/call":
            raise MCPError(code=-32602, message="refused")
        return await call_next(ctx)

    serving.mcp_server.middleware.append(refuse)
    async with client_of(app.asgi) as http:
        session = {} if version == MODERN else await opened(http)
        body, headers = call("wait", 7, version)
        reply = await http.post("/mcp", headers=headers | session, json=body)
        assert message_of(reply)["error"] == {"code": -32602, "message": "refused"}
        await calc.ended.wait()
    assert calc.runs == 1
