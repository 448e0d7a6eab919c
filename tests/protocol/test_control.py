"""Control requests and responses are matched by id, whatever arrives."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire._protocol.control import Cancelled, Control, Malformed, Requested, Responded, Unmatched


def answer(request_id, **body):
    return {"type": "control_response", "response": {"request_id": request_id, **body}}


def test_a_request_and_its_answer():
    """The answer to a request is matched by id."""
    control = Control()
    request_id, line = control.request({"subtype": "interrupt"})
    assert orjson.loads(line) == {
        "type": "control_request",
        "request_id": request_id,
        "request": {"subtype": "interrupt"},
    }
    event = control.receive(answer(request_id, subtype="success", response={"still_queued": []}))
    assert event == Responded(request_id, {"still_queued": []})


def test_ids_are_never_used_twice():
    """Each request has an id of its own, across connections too."""
    ids = [Control().request({"subtype": "x"})[0] for _ in range(5)]
    control = Control()
    ids += [control.request({"subtype": "x"})[0] for _ in range(5)]
    assert len(set(ids)) == 10


def test_answers_in_any_order():
    """Two pending requests are answered in reverse order."""
    control = Control()
    first, second = control.request({"subtype": "a"})[0], control.request({"subtype": "b"})[0]
    assert control.receive(answer(second, subtype="success", response={"n": 2})) == Responded(
        second, {"n": 2}
    )
    assert control.receive(answer(first, subtype="success", response={"n": 1})) == Responded(first, {"n": 1})


def test_an_error_answer_carries_text_and_code():
    """An error response keeps the CLI's text and code."""
    control = Control()
    request_id, _ = control.request({"subtype": "x"})
    event = control.receive(answer(request_id, subtype="error", error="no", error_code="unsupported_request"))
    assert event == Responded(request_id, {}, "no", "unsupported_request")


@pytest.mark.parametrize("response", [None, 5, [], "text"])
def test_a_success_without_a_body_is_an_empty_answer(response):
    """Many answers have no body."""
    control = Control()
    request_id, _ = control.request({"subtype": "x"})
    assert control.receive(answer(request_id, subtype="success", response=response)) == Responded(
        request_id, {}
    )


def test_unmatched_responses_are_recognised():
    """Echoes, repeats, and responses to requests that we stopped waiting for, match no request."""
    control = Control()
    request_id, _ = control.request({"subtype": "x"})
    control.receive(answer(request_id, subtype="success"))
    assert control.receive(answer(request_id, subtype="success")) == Unmatched(request_id)
    assert control.receive(answer("their-own-id", subtype="success")) == Unmatched("their-own-id")
    late, _ = control.request({"subtype": "x"})
    control.forget(late)
    assert control.receive(answer(late, subtype="success")) == Unmatched(late)


def test_a_request_of_the_cli():
    """A control request of the CLI becomes a Requested event with its body."""
    body = {"subtype": "can_use_tool", "tool_name": "Bash"}
    event = Control().receive({"type": "control_request", "request_id": "r1", "request": body})
    assert isinstance(event, Requested)
    assert (event.request_id, event.subtype, event.body) == ("r1", "can_use_tool", body)


def test_a_cancelled_request():
    """The CLI's cancellation of a request becomes a Cancelled event."""
    event = Control().receive({"type": "control_cancel_request", "request_id": "r1"})
    assert event == Cancelled("r1")


@pytest.mark.parametrize(
    ("frame", "request_id", "reason"),
    [
        ({"request": {"subtype": "x"}}, None, "without a request_id"),
        ({"request_id": 7, "request": {"subtype": "x"}}, None, "without a request_id"),
        ({"request_id": "r"}, "r", "without a request object"),
        ({"request_id": "r", "request": []}, "r", "without a request object"),
        ({"request_id": "r", "request": {}}, "r", "without a subtype"),
        ({"request_id": "r", "request": {"subtype": None}}, "r", "without a subtype"),
    ],
)
def test_a_broken_request_gets_an_error_reply(frame, request_id, reason):
    """A control request that lacks a part is refused with a reason, and the run goes on."""
    event = Control().receive({"type": "control_request", **frame})
    assert isinstance(event, Malformed)
    reply = orjson.loads(event.reply)["response"]
    assert reply["subtype"] == "error"
    assert reply["request_id"] == request_id
    assert reason in reply["error"]


def test_everything_else_is_conversation():
    """Frames of other types, known or not, are messages."""
    for frame in ({"type": "assistant"}, {"type": "new_thing"}, {}, {"type": None}, {"type": ["odd"]}):
        assert Control().receive(frame) is None


def test_replies_have_the_wire_shape():
    """respond() and respond_error() use the envelopes of the protocol."""
    control = Control()
    assert orjson.loads(control.respond("r", {"a": 1})) == {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": "r", "response": {"a": 1}},
    }
    assert orjson.loads(control.respond_error("r", "boom")) == {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": "r", "error": "boom"},
    }


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["control_request", "control_response", "control_cancel_request"]),
    st.dictionaries(st.sampled_from(["request_id", "request", "response"]), odd),
)
def test_no_control_frame_is_fatal(kind, rest):
    """Whatever a control frame holds, receive() raises nothing."""
    Control().receive({"type": kind, **rest})
