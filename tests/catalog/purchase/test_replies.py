"""Replies of APIs: how they are read, and how they are shown to the model."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.http.answers import RawBody, decode_reply
from toolwire.catalog.profile.model import BUILTIN
from toolwire.catalog.profile.tables import Reply
from toolwire.catalog.purchase import replies
from toolwire.catalog.purchase.replies import Outcome, build_result, read_reply


@pytest.mark.parametrize(
    ("result", "text", "structured"),
    [
        ("sunny", "sunny", None),
        (21.5, "21.5", None),
        (None, "", None),
        ([1, 2], "[1,2]", {"result": [1, 2]}),
        ({"t": 21}, '{"t":21}', {"t": 21}),
        ({}, "{}", None),
        (True, "true", None),
    ],
)
@pytest.mark.parametrize("shape", ["result", "output", "nested"])
def test_the_result_of_every_shape(shape, result, text, structured):
    """A reply with `result`, with `output` or nested gives the same outcome."""
    body = {"success": True, shape: result, "error": None}
    if shape == "nested":
        inner = {"status_code": 200, "data": {"success": True, "output": result}, "success": True}
        body = {"success": True, "response": inner, "purchase_details": {}, "error": None}
    assert read_reply(body) == Outcome(True, text, structured)


@pytest.mark.parametrize(
    ("body", "cost", "balance"),
    [
        ({"success": True, "result": "x", "cost": 0.01, "balance": 9.99}, 10_000, 9_990_000),
        ({"success": True, "result": "x", "cost": "0.01", "balance": "$9.99"}, 10_000, 9_990_000),
        (
            {"success": True, "output": "x", "purchase_details": {"cost": 0.5, "balance": 2}},
            500_000,
            2_000_000,
        ),
        ({"success": True, "output": "x", "purchase_details": {"price": "0.5"}}, 500_000, None),
        (
            {"success": True, "output": "x", "purchase_result": {"amount": 1, "new_balance": 3}},
            1_000_000,
            3_000_000,
        ),
        ({"success": True, "output": "x", "cost": "0.50 USD"}, 500_000, None),
        ({"success": True, "response": {"data": {"output": "x", "cost": 0.25}}}, None, None),
        ({"success": True, "data": {"success": True, "cost": 349.0, "result": "a quote"}}, None, None),
        ({"success": True, "data": {"success": True, "payment": {"amount": 349}, "result": "x"}}, None, None),
        ({"success": True, "response": {"data": "x", "purchase_details": {"cost": 1}}}, 1_000_000, None),
        ({"success": True, "symbol": "AAPL", "price": 101.2, "amount": 3}, None, None),
        ({"success": True, "result": "x", "cost": -1, "balance": -2}, None, None),
        ({"success": True, "result": "x", "cost": math.nan, "balance": math.inf}, None, None),
        ({"success": True, "result": "x", "cost": True, "balance": {}}, None, None),
        ({"success": True, "result": {"cost": 500, "balance": 3}}, None, None),
        ({"flight": "LH1", "cost": 500}, None, None),
        ({"success": False, "error": "late", "cost": 0.01}, 10_000, None),
    ],
)
def test_money_is_read_where_the_envelope_tells_it(body, cost, balance):
    """Costs and balances may be numbers or text, never negative, and are never read from inside the result."""
    outcome = read_reply(body)
    assert (outcome.cost, outcome.balance) == (cost, balance)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"success": False, "error": "no money"}, "no money"),
        ({"success": False, "error": {"code": 7, "message": "no money"}}, "no money"),
        ({"success": False, "error": {"code": 7}}, '{"code":7}'),
        ({"success": False, "errors": ["a", {"message": "b"}, 3]}, "a; b"),
        ({"success": False, "message": "no"}, "no"),
        ({"success": "false", "error": "no"}, "no"),
        ({"success": False}, "the API reports a failure without a reason"),
        ({"success": False, "output": "bad city"}, "bad city"),
        ({"error": "no"}, "no"),
        (
            {"success": True, "response": {"status_code": 200, "data": {"success": False, "error": "in"}}},
            "in",
        ),
        ({"success": True, "response": {"status_code": 500, "data": {"output": ""}}}, "status 500"),
        (
            {"success": True, "response": {"status_code": "404", "data": "gone"}, "message": "paid"},
            "status 404",
        ),
        ({"success": True, "response": {"success": False, "data": {"output": "x"}}, "error": "out"}, "out"),
        ({"success": True, "result": {"success": False, "error": "deep"}}, "deep"),
        ({"success": True, "purchase_result": {"success": False, "error": "card"}, "output": "x"}, "card"),
        (None, "unreadable reply: null instead of an object"),
        ("<html>", "unreadable reply: text instead of an object"),
        ({"success": True, "result": {"success": "false", "error": "no"}}, "no"),
        ({"success": True, "data": {"success": "No", "error": "in", "result": "x"}}, "in"),
        ({"status": "error", "message": "no such city"}, "no such city"),
        ({"status": "Failed", "error": {"message": "no"}}, "no"),
        ({"status": "failure", "message": "no", "cost": 0.01}, "no"),
        (3, "unreadable reply: a number instead of an object"),
        (b"x", "unreadable reply: bytes instead of an object"),
    ],
)
def test_a_failure_at_any_level_is_a_failure(body, error):
    """This holds for HTTP 200 too. The API's own message is used if there is one."""
    outcome = read_reply(body)
    assert not outcome.ok
    assert outcome.error == error


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"success": True}, ""),
        ({"success": True, "message": "done"}, "done"),
        ({"success": True, "error": "a note only", "result": "x"}, "x"),
        ({"temperature": 21}, '{"temperature":21}'),
        ({"success": True, "temperature": 21, "cost": 1}, '{"temperature":21}'),
        ({"success": True, "output": None, "result": "x"}, "x"),
        (
            {"success": True, "result": {"status_code": 404, "error": 0.02}},
            '{"status_code":404,"error":0.02}',
        ),
        ({"success": True, "data": {"city": "Oslo"}}, '{"city":"Oslo"}'),
        ({}, "{}"),
        ({"result": 10**30}, str(10**30)),
        ({"result": "\ud800"}, "?"),
    ],
)
def test_other_shapes_are_read_with_sense(body, text):
    """What is not part of the envelope is the result, and data that resembles a failure stays data."""
    outcome = read_reply(body)
    assert outcome.ok
    assert outcome.text == text


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (
            {"success": True, "symbol": "AAPL", "price": 101.2, "amount": 3, "cost": 0.01},
            {"symbol": "AAPL", "price": 101.2, "amount": 3},
        ),
        (
            {
                "success": True,
                "response": {"status_code": 200, "data": {"success": True, "price": 1, "cost": 5}},
            },
            {"price": 1, "cost": 5},
        ),
        (
            {"success": True, "message": "sent to bob", "ticket": "T1"},
            {"message": "sent to bob", "ticket": "T1"},
        ),
        ({"success": True, "t": None, "balance": "plenty"}, {"t": None, "balance": "plenty"}),
        ({"success": True, "data": [1], "summary": "S", "cost": 0.01}, {"data": [1], "summary": "S"}),
        ({"success": True, "output": "x", "data": {"a": 1}}, {"output": "x", "data": {"a": 1}}),
        ({"success": True, "output": None, "summary": "S"}, {"summary": "S"}),
        (
            {"success": True, "data": {"success": True, "output": "x"}, "summary": "S", "message": "paid"},
            {"output": "x", "summary": "S"},
        ),
        ({"success": True, "status": "ok", "data": {"a": 1}, "note": None}, {"a": 1}),
        ({"status": "failed", "job": 7}, {"status": "failed", "job": 7}),
        ([1, 2], {"result": [1, 2]}),
        ([], {"result": []}),
    ],
)
def test_nothing_that_was_paid_for_is_lost(body, result):
    """Fields beside the result, or named like money, are kept unless they belong to the envelope."""
    outcome = read_reply(body)
    assert outcome.ok
    assert outcome.structured == result


def test_a_cost_that_cannot_be_read_is_told_once(caplog, monkeypatch):
    """The log names the field and its type, but not the value, which may be anything."""
    monkeypatch.setattr(replies, "_LOGGED", set())
    for _ in range(3):
        assert read_reply({"success": True, "output": "x", "cost": "sk-secret"}).cost is None
    assert caplog.text.count("A reply's cost is text that cannot be read as dollars") == 1
    assert "sk-secret" not in caplog.text


def test_a_success_is_shown_with_its_money():
    """Cost and balance have a line each if they are known, and are in the structured content."""
    outcome = read_reply({"success": True, "result": {"t": 21}, "cost": 0.01, "balance": 9.99})
    assert build_result(outcome, 20_000) == {
        "content": [{"type": "text", "text": '{"t":21}\nCost: $0.0100\nRemaining Balance: $9.99'}],
        "isError": False,
        "structuredContent": {"result": {"t": 21}, "cost": 0.01, "balance": 9.99},
    }
    plain = build_result(Outcome(True, "sunny"))
    assert plain == {"content": [{"type": "text", "text": "sunny"}], "isError": False}
    assert build_result(Outcome(True, "x"), 20_000)["content"][0]["text"] == "x\nCost: $0.0200"
    assert build_result(Outcome(True))["content"][0]["text"] == "The tool gave no result."


def test_a_list_is_structured_under_result():
    """Structured content must be an object, so a list is put under `result`."""
    assert build_result(read_reply({"result": [1]}))["structuredContent"] == {"result": [1]}


def test_a_cost_in_the_result_is_not_overwritten():
    """The result is kept unchanged beside the money."""
    body = {"success": True, "result": {"cost": 500}, "cost": 0.01}
    assert build_result(read_reply(body))["structuredContent"] == {"result": {"cost": 500}, "cost": 0.01}


def test_a_failure_is_an_error_result():
    """It has the message for the model, and a cost only if the reply says that it was charged."""
    failed = build_result(read_reply({"success": False, "error": "no"}), 20_000)
    assert failed == {
        "content": [{"type": "text", "text": "Tool execution failed: no"}],
        "isError": True,
    }
    charged = build_result(read_reply({"success": False, "error": "no", "cost": 1, "result": {"a": 1}}))
    assert charged["content"][0]["text"] == "Tool execution failed: no\nCost: $1.0000"
    assert "structuredContent" not in charged
    assert build_result(Outcome(False))["content"][0]["text"] == "Tool execution failed: no reason given"


def test_a_long_error_is_cut():
    """An error that is a whole HTML page is shortened."""
    assert len(read_reply({"success": False, "error": "x" * 10_000}).error) == 2_000


@pytest.mark.slow
def test_a_reply_of_any_depth_is_read():
    """A reply that is nested too deeply becomes a text that says it is unreadable."""
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    outcome = read_reply({"success": True, "result": deep})
    assert outcome.text == "unreadable reply"
    assert outcome.structured is None
    envelope: dict = {"success": False, "error": "innermost"}
    for _ in range(50):
        envelope = {"success": True, "response": envelope}
    read_reply(envelope)
    read_reply({"success": deep, "output": deep, "data": deep, "status": deep, "cost": deep})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        *("success", "result", "output", "response", "data", "error", "cost", "balance"),
                        *("status_code", "purchase_details", "purchase_result", "message"),
                    ]
                ),
                st.text(max_size=3),
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.one_of(st.none(), st.integers(0, 10**9)))
def test_any_reply_is_read_and_shown(body, price):
    """Any reply gives an outcome with a text, and never an exception."""
    outcome = read_reply(body)
    assert outcome.ok == (outcome.error is None)
    assert outcome.cost is None or outcome.cost >= 0
    result = build_result(outcome, price)
    assert result["isError"] is not outcome.ok
    assert result["content"][0]["text"].encode()
    if isinstance(body, dict) and body.get("success") is False:
        assert not outcome.ok


def by(**settings):
    """Return the `[reply]` section of a profile."""
    return Reply(**settings)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("5 EUR", '"5 EUR"'),
        (1e308, "1e+308"),
        (-1, "-1"),
        (True, "true"),
        ({"amount": 5}, '{"amount": 5}'),
        ("x" * 500, None),
        ("\u202e\x1b[2J", '"\\u202e\\u001b[2J"'),
    ],
)
@pytest.mark.parametrize("reply", [by(), by(cost="cost", cost_unit="cents")], ids=["unaided", "by path"])
def test_a_cost_that_cannot_be_read_is_not_the_same_as_none(told, text, reply):
    """The unreadable cost is quoted in printable ASCII, and shortened; a cost of null is no cost."""
    outcome = read_reply({"success": True, "result": "x", "cost": told}, reply)
    assert (outcome.ok, outcome.cost) == (True, None)
    assert outcome.unreadable_cost is not None
    assert outcome.unreadable_cost == text or (text is None and len(outcome.unreadable_cost) < 100)
    assert read_reply({"success": True, "result": "x", "cost": None}, reply).unreadable_cost is None


def test_a_cost_that_can_be_read_counts_beside_one_that_cannot():
    """If one field is unreadable, the cost is read from another known field."""
    body = {"success": True, "output": "x", "cost": "5 EUR", "purchase_details": {"cost": 0.5}}
    outcome = read_reply(body)
    assert (outcome.cost, outcome.unreadable_cost) == (500_000, None)


def test_money_and_result_by_path():
    """Credits are converted to dollars, and fields with money are not part of the result."""
    reply = by(result="data.out", cost="used", cost_unit=0.01, balance="left", balance_unit=0.01, error="why")
    outcome = read_reply({"data": {"out": {"t": 1}}, "used": 3, "left": 250}, reply)
    assert outcome == Outcome(True, '{"t":1}', {"t": 1}, 30_000, 2_500_000)
    outcome = read_reply({"success": True, "result": "x", "used": 3}, by(cost="used", cost_unit=0.01))
    assert outcome == Outcome(True, "x", None, 30_000)


def test_a_path_that_leads_nowhere_is_told_once(caplog, monkeypatch):
    """The missing path is logged once, and the result, which was paid for, is still shown."""
    monkeypatch.setattr(replies, "_LOGGED", set())
    reply = by(result="data.out", cost="used")
    for _ in range(2):
        outcome = read_reply({"success": True, "result": "x", "cost": 0.01}, reply)
        assert (outcome.text, outcome.cost) == ("x", None)
    assert caplog.text.count("nothing at reply.cost = 'used'") == 1
    assert caplog.text.count("nothing at reply.result = 'data.out'") == 1


@pytest.mark.parametrize(
    ("condition", "fails", "passes"),
    [
        ({"path": "ok", "equals": False}, [{"ok": False}], [{"ok": True}, {"ok": 0}, {}, {"ok": None}]),
        ({"path": "code", "equals": 1}, [{"code": 1}, {"code": 1.0}], [{"code": True}, {"code": "1"}, {}]),
        ({"path": "code", "not_in": [0, 200]}, [{"code": 1402}, {"code": "0"}], [{"code": 0}, {}, {"code": None}]),
        ({"path": "code", "one_of": [1, 2]}, [{"code": 2}], [{"code": 3}, {}]),
        ({"path": "err", "present": True}, [{"err": "x"}, {"err": {"a": 1}}, {"err": 0}],
         [{"err": None}, {"err": ""}, {"err": []}, {"err": {}}, {"err": False}, {}]),
        ({"path": "out", "present": False}, [{}, {"out": None}, {"out": ""}], [{"out": 0}, {"out": "x"}]),
        ({"path": "a", "equals": None}, [{"a": None}], [{}, {"a": 1}]),
        ({"path": "a.b", "equals": 1, "present": True}, [{"a": {"b": 1}}], [{"a": 1}, {"a": {"b": 2}}]),
    ],
)  # fmt: skip
def test_conditions_of_failure(condition, fails, passes):
    """The conditions alone decide, whatever else the reply says."""
    reply = by(failure=[condition])
    for body in fails:
        assert not read_reply({"success": True, **body}, reply).ok, body
    for body in passes:
        assert read_reply({"success": False, "out": "x", **body}, reply).ok, body


def test_the_words_for_a_failure():
    """The message is read at `error`, else in a usual field, else it names the condition."""
    failure = [{"path": "code", "not_in": [0]}]
    assert read_reply({"code": 5, "why": {"text": "no"}}, by(failure=failure, error="why.text")).error == "no"
    assert read_reply({"code": 5, "message": "no"}, by(failure=failure)).error == "no"
    assert read_reply({"code": 5}, by(failure=failure)).error == "the API reports a failure (code is 5)"
    assert read_reply({"success": False, "why": "no"}, by(error="why")).error == "no"


def test_a_failure_that_is_not_charged_costs_nothing():
    """The profile can say so with `charged = false`, unless the reply has a cost."""
    failure = [{"path": "code", "equals": 1402, "charged": False}, {"path": "code", "not_in": [0]}]
    reply = by(failure=failure, cost="used", cost_unit="cents")
    assert read_reply({"code": 1402}, reply).cost == 0
    assert read_reply({"code": 1402, "used": 3}, reply).cost == 30_000
    assert read_reply({"code": 1402, "used": "?"}, reply).unreadable_cost == '"?"'
    assert read_reply({"code": 9}, reply).cost is None


def test_replies_of_agentpmt():
    """The new shape has credits; the two older shapes have no money."""
    reply = BUILTIN["agentpmt"].reply
    newer = {"success": True, "result": {"a": 1}, "charged_credits": 5, "balance_credits": 995}
    assert read_reply(newer, reply) == Outcome(True, '{"a":1}', {"a": 1}, 50_000, 9_950_000)
    assert read_reply({"success": True, "output": "x", "error": None}, reply) == Outcome(True, "x")
    nested = {"success": True, "response": {"status_code": 500, "data": {"success": False, "output": "no"}}}
    assert not read_reply(nested, reply).ok


def test_text_and_files():
    """Text, images, audio and other files are detected by type and content; the cost is in a header."""
    reply = by(kind="binary", cost_header="X-Cents", cost_unit="cents", balance_header="X-Left")
    outcome = read_reply(RawBody("text/plain", "hello"), reply, {"x-cents": "2", "x-left": "3"})
    assert outcome == Outcome(True, "hello", None, 20_000, 3_000_000)
    assert read_reply(RawBody("text/plain", "hello"), reply, {"x-cents": "two"}).unreadable_cost == '"two"'
    picture = read_reply(RawBody("application/octet-stream", b"\x89PNG\r\n\x1a\n..."), reply)
    assert picture.content[0]["mimeType"] == "image/png"
    sound = read_reply(RawBody("audio/x-own", b"\x00\x01"), reply)
    assert (sound.content[0]["type"], sound.content[0]["mimeType"]) == ("audio", "audio/x-own")
    file = read_reply(RawBody("image/png", b"no picture"), reply)
    assert file.content[0]["type"] == "resource"
    assert read_reply(RawBody("image/png", b""), reply) == Outcome(ok=True)
    shows = build_result(picture)
    assert [each["type"] for each in shows["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    ("kind", "type", "content", "body"),
    [
        ("json", "application/json", b'{"a":1}', {"a": 1}),
        ("json", "text/plain", b"hello", None),
        ("text", "text/plain; charset=latin-1", b"\xe9", RawBody("text/plain", "é")),
        ("text", "text/plain; charset=nonsense", b"e", RawBody("text/plain", "e")),
        ("text", "text/plain; charset=undefined", b"e", RawBody("text/plain", "e")),
        ("text", "text/plain; charset=idna", b"e", RawBody("text/plain", "e")),
        ("text", "", b"hello", RawBody("text/plain", "hello")),
        ("text", "application/json", b'{"error": "no"}', {"error": "no"}),
        ("binary", "image/png", b"\x89", RawBody("image/png", b"\x89")),
        ("binary", "text/csv", b"a,b", RawBody("text/csv", "a,b")),
        ("binary", "a b/c\x1b", b"\x00", RawBody("application/octet-stream", b"\x00")),
    ],
)
def test_bodies_are_decoded_by_their_kind(kind, type, content, body):
    """A body whose type says JSON is parsed as JSON, whatever the kind."""
    assert decode_reply(kind, {"content-type": type}, content) == body


@given(JSON, st.sampled_from([by(result="output", cost="cost", failure=[{"path": "error", "present": True}]),
       by(cost="cost|data.cost", balance="balance", error="error")]))  # fmt: skip
def test_any_body_is_read_by_any_paths(body, reply):
    """Nothing is raised for any body."""
    outcome = read_reply(body, reply)
    assert outcome.ok or outcome.error
