"""Any message gets exactly one of: a response with the request's id, nothing, or `Unanswerable`."""

import copy
import json

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.foreign_servers import KINDS, Scene, connected, do, greet, initialize, note, request, text_of
from toolwire._protocol.jsonrpc import Unanswerable

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

VALID = [
    initialize(),
    initialize(1, "2025-06-18"),
    note("notifications/initialized"),
    note("notifications/cancelled", requestId=2, reason="r"),
    note("notifications/progress", progressToken=1, progress=0.5),
    note("notifications/roots/list_changed"),
    request(1, "ping"),
    request(1, "tools/list", cursor="x"),
    request(2, "tools/call", name="add", arguments={"a": 1, "b": 2}, _meta={"progressToken": 2}),
    do(2, "log", "x"),
    do("a", "fail", "x"),
    request(2.5, "resources/read", uri="res://one"),
    request(2, "prompts/get", name="greet", arguments={"name": "Bob"}),
    request(3, "logging/setLevel", level="info"),
    request(3, "server/discover"),
    request(3, "subscriptions/listen"),
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}},
]
KEYS = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "_meta", "progressToken", "requestId", "result", "error", "name"]
) | st.text(max_size=5)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(st.characters(), max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@st.composite
def mutated(draw):
    """Draw a valid message and change up to three places in it."""
    message = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 3))):
        place = message
        while (inner := [each for each in place.values() if isinstance(each, dict)]) and draw(st.booleans()):
            place = draw(st.sampled_from(inner))
        key = draw(st.sampled_from(sorted(place)) | KEYS if place else KEYS)
        if draw(st.booleans()):
            place[key] = draw(JSON)
        else:
            place.pop(key, None)
    return message


def wants_reply(message):
    """Return whether a message is a request, by the wording of the specification rather than by our code."""
    if not isinstance(message, dict) or "id" not in message:
        return False
    if "method" not in message and message.keys() & {"result", "error"}:
        return False
    return isinstance(message["id"], int | float | str) and not isinstance(message["id"], bool)


async def check(connection, message):
    """Send one message, and check that it gets a response if and only if it is a request."""
    original = copy.deepcopy(message)
    try:
        reply = await connection.answer(message)
    except Unanswerable:
        assert not wants_reply(message)
        return
    assert message == original
    assert (reply is not None) == wants_reply(message)
    if reply is not None:
        json.dumps(reply)
        assert reply["jsonrpc"] == "2.0"
        assert reply["id"] == message["id"]
        assert type(reply["id"]) is type(message["id"])
        assert len(reply.keys() & {"result", "error"}) == 1
        assert isinstance(reply.get("result", {}), dict)
        error = reply.get("error", {"code": 0, "message": ""})
        assert isinstance(error["code"], int)
        assert isinstance(error["message"], str)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=st.lists(mutated() | JSON, max_size=8), greeted=st.booleans())
async def test_any_message_gets_one_of_three_answers(kind, messages, greeted):
    """Messages are sent all at once, with or without a handshake before; the connection still works afterwards."""
    async with connected(KINDS[kind](Scene()), greeting=greeted) as connection:
        async with anyio.create_task_group() as group:
            for message in messages:
                group.start_soon(check, connection, message)
        await greet(connection)
        called = await connection.answer(request(9, "tools/call", name="add", arguments={"a": 15, "b": 27}))
        assert text_of(called) == "42"
