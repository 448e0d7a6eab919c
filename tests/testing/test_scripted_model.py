"""The scripted model over plain HTTP: how each kind of turn is sent."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from toolwire.testing import (
    ScriptedModel,
    answer,
    call,
    drop,
    fail,
    garbage,
    hang,
    say,
    scripted_model,
    think,
    turn,
)

HELLO: dict[str, Any] = {
    "model": "claude-test",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hello"}],
}
SESSION = {"X-Claude-Code-Session-Id": "s-1"}


@contextmanager
def connected(model: ScriptedModel) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=10)) as connection:
        yield connection


def post(model: ScriptedModel, body: Any = HELLO, path: str = "/v1/messages?beta=true", **headers: str):
    """Send a request on a connection of its own; returns status, headers and raw body."""
    with connected(model) as connection:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def ask(model: ScriptedModel, **changes: Any) -> dict[str, Any]:
    return json.loads(post(model, {**HELLO, **changes})[2])


def stream(model: ScriptedModel, **changes: Any) -> list[dict[str, Any]]:
    status, headers, data = post(model, {**HELLO, "stream": True, **changes})
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = []
    for event in data.decode().strip().split("\n\n"):
        name, _, payload = event.partition("\n")
        events.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def deltas(events: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    return [
        event["delta"]
        for event in events
        if event["type"] == "content_block_delta" and event["index"] == index
    ]


def test_a_text_turn_is_one_message():
    """Without streaming, the response is the whole message as JSON, with usage and the requested model."""
    with ScriptedModel([say("Hi.")]) as model:
        message = ask(model)
    assert message["content"] == [{"type": "text", "text": "Hi."}]
    assert (message["role"], message["model"], message["stop_reason"]) == (
        "assistant",
        "claude-test",
        "end_turn",
    )
    assert message["usage"] == {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def test_a_turn_streams_as_events():
    """A streamed turn opens, fills and closes each block, and ends with its stop reason."""
    script = [turn(think("hm"), say("Adding."), call("add", a=15, b=27), input_tokens=7, output_tokens=8)]
    with ScriptedModel(script) as model:
        events = stream(model)
    kinds = [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    thinking = [block[0], block[1], block[1], block[2]]
    assert kinds == ["message_start", *thinking, *block, *block, "message_delta", "message_stop"]
    assert events[0]["message"]["usage"]["input_tokens"] == 7
    assert [delta["type"] for delta in deltas(events, 0)] == ["thinking_delta", "signature_delta"]
    assert deltas(events, 1) == [{"type": "text_delta", "text": "Adding."}]
    assert json.loads(deltas(events, 2)[0]["partial_json"]) == {"a": 15, "b": 27}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"output_tokens": 8}


def test_calls_have_ids_of_their_own():
    """Ids of calls and messages are generated in order, unless the script gives them."""
    script = [
        turn(call("a"), call("b", id="toolu_mine")),
        call("c", {"id": 3}),
        turn(answer({"n": 1}), model="m"),
    ]
    with ScriptedModel(script) as model:
        first, second, third = ask(model), ask(model), ask(model)
    assert [block["id"] for block in first["content"]] == ["toolu_0001", "toolu_mine"]
    assert second["content"] == [{"type": "tool_use", "id": "toolu_0002", "name": "c", "input": {"id": 3}}]
    assert (third["content"][0]["name"], third["model"]) == ("StructuredOutput", "m")
    assert len({message["id"] for message in (first, second, third)}) == 3


def test_an_argument_named_id_is_not_taken_for_the_id_of_the_call():
    """An id that does not look like the id of a call is refused when the script is written."""
    with pytest.raises(ValueError, match="to pass an argument named 'id', use call"):
        call("find", id="42")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "añ😀\u2028\r\n\x00", "half a pair: \ud83d", "x" * 20_000_000])
def test_any_text_goes_through(text: str):
    """Empty, odd and very long texts arrive unchanged, with and without streaming."""
    with ScriptedModel([say(text), say(text)]) as model:
        assert ask(model)["content"][0]["text"] == text
        pieces = deltas(stream(model))
    assert "".join(piece["text"] for piece in pieces) == text
    assert len(pieces) <= 20


def test_pieces_have_the_size_asked_for():
    """`chunk_size` cuts texts and arguments into pieces of that many characters."""
    with ScriptedModel([turn(say("abcdefg"), call("t", key="value"), chunk_size=3)]) as model:
        events = stream(model)
    assert [delta["text"] for delta in deltas(events)] == ["abc", "def", "g"]
    assert json.loads("".join(delta["partial_json"] for delta in deltas(events, 1))) == {"key": "value"}
    with pytest.raises(ValueError, match="chunk_size"):
        turn(say("x"), chunk_size=0)


def test_delays_hold_the_answer_back(monkeypatch):
    """`delay` comes before the first byte and `chunk_delay` before each piece."""
    delays = []

    def wait(_handler, seconds):
        delays.append(seconds)
        return False

    monkeypatch.setattr(scripted_model._Handler, "_disconnected_within", wait)
    with ScriptedModel([turn(say("abc"), delay=0.1, chunk_delay=0.05, chunk_size=1)]) as model:
        stream(model)
    assert (delays[0], delays.count(0.05)) == (0.1, 3)


@pytest.mark.parametrize(
    ("step", "status", "kind", "retry"),
    [
        (fail(529), 529, "overloaded_error", "true"),
        (fail(500), 500, "api_error", "true"),
        (fail(429, retry_after=2, retry=False), 429, "rate_limit_error", "false"),
        (fail(401, "authentication_error", "bad key"), 401, "authentication_error", "false"),
        (fail(418), 418, "invalid_request_error", "false"),
    ],
)
def test_a_failure_is_an_error_of_the_api(step: Any, status: int, kind: str, retry: str):
    """The response has the status, the API's error body, and whether to retry."""
    with ScriptedModel([step]) as model:
        got, headers, data = post(model)
    assert (got, headers["x-should-retry"]) == (status, retry)
    assert headers["retry-after"] == ("2" if status == 429 else None)
    body = json.loads(data)
    assert (body["type"], body["error"]["type"], body["error"]["message"]) == ("error", kind, step.message)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_dropped_answer_breaks_off(streaming: bool):
    """`drop` begins a response and closes the connection before its end."""
    with ScriptedModel([drop("so far"), say("again")]) as model:
        with pytest.raises(http.client.IncompleteRead) as caught:
            post(model, {**HELLO, "stream": streaming})
        assert b"message" in caught.value.partial
        assert b"message_stop" not in caught.value.partial
        assert ask(model)["content"][0]["text"] == "again"


@pytest.mark.parametrize("step", [hang(), turn(say("late"), delay=3600), turn(say("abc"), chunk_delay=3600)])
def test_closing_ends_what_is_going_on(step: Any):
    """Closing the model breaks off hanging and delayed responses at once; it may be closed twice."""
    arrived = threading.Event()

    def arrive(_: Any) -> Any:
        arrived.set()
        return step

    with ScriptedModel([arrive]) as model, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, model, {**HELLO, "stream": True})
        assert arrived.wait(10)
        model.close()
        model.close()
        assert isinstance(waiting.exception(10), http.client.HTTPException | ConnectionError)
        with pytest.raises(ConnectionError):
            post(model)
        with pytest.raises(RuntimeError, match="closed"):
            model.start()


def test_a_client_that_leaves_is_not_an_error(capfd: pytest.CaptureFixture[str]):
    """If a client disconnects during a response, no traceback is printed, and the model keeps running."""
    arrived = threading.Event()
    script = [
        lambda _: arrived.set() or hang(),
        turn(say("x" * 5_000_000), chunk_size=50_000),
        say("still here"),
    ]
    with ScriptedModel(script) as model:
        with connected(model) as connection:
            connection.request("POST", "/v1/messages", json.dumps(HELLO))
            assert arrived.wait(10)
        with connected(model) as connection:
            connection.request("POST", "/v1/messages", json.dumps({**HELLO, "stream": True}))
            connection.getresponse().read(10)
        assert ask(model)["content"][0]["text"] == "still here"
    assert capfd.readouterr() == ("", "")


def test_a_function_may_stand_for_a_turn():
    """A function in the script gets the parsed request, and returns the turn."""
    body = {
        "system": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}],
        "tools": [{"name": "add", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "add 1 and 2"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": [{"type": "text", "text": "no"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "<system-reminder>not the user</system-reminder>"},
                ],
            },
            {"role": "system", "content": "also not the user"},
        ],
    }
    with ScriptedModel([lambda request: say(f"{request.prompt}: {request.tool_results[0].text}")]) as model:
        assert ask(model, **body)["content"][0]["text"] == "add 1 and 2: 3"
        (request,) = model.requests
    assert request.tool_results == [("toolu_1", "3", False), ("toolu_2", "no", True)]
    assert (request.system, request.tools, request.model) == ("be\nbrief", ["add"], "claude-test")
    assert (request.agent_id, request.session_id, request.side) == (None, None, False)


def test_requests_are_recorded_without_credentials():
    """A recorded request has path, headers and body, but no key."""
    with ScriptedModel([say("x")]) as model:
        post(model, HELLO, **{"x-api-key": "secret-1", "Authorization": "Bearer secret-2", "X-Other": "kept"})
        (request,) = model.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/messages", HELLO)
    assert request.headers["x-other"] == "kept"
    assert "secret" not in repr(dict(request.headers))


def test_a_script_that_has_run_out_says_so():
    """A request too many is refused with an error that quotes its prompt, and `assert_finished` reports it."""
    with ScriptedModel([]) as model:
        status, headers, data = post(model)
        assert (status, headers["x-should-retry"]) == (400, "false")
        error = json.loads(data)["error"]
        assert error["type"] == "invalid_request_error"
        assert "the script has run out" in error["message"]
        assert "'hello'" in error["message"]
        assert len(model.unexpected) == len(model.requests) == 1
        with pytest.raises(AssertionError, match="request not expected: the script has run out"):
            model.assert_finished()


def test_turns_not_taken_are_listed():
    """`assert_finished` lists the turns that were not requested, shortened, and passes if there are none."""
    with ScriptedModel(
        [say("one"), turn(think("x" * 500), call("add", a=1)), fail(529), hang(), drop()]
    ) as model:
        ask(model)
        with pytest.raises(AssertionError) as caught:
            model.assert_finished()
        assert "say('one')" not in str(caught.value)
        assert str(caught.value).count("not played") == len(model.remaining) == 4
        assert "call('add', {'a': 1})" in str(caught.value)
        assert len(str(caught.value)) < 500
    with ScriptedModel() as model:
        model.assert_finished()


def test_entries_that_are_not_answers_are_rejected():
    """A wrong entry is rejected when the script is given, a wrong return value when its request comes."""
    with pytest.raises(TypeError, match="got 'hello'"):
        ScriptedModel(["hello"])
    with pytest.raises(TypeError, match=r"got Garbage"):  # a fault of the CLI, which a model cannot play
        ScriptedModel([], subagents=[garbage()])
    for value in (None, "hello", garbage()):
        with ScriptedModel([lambda _, value=value: value]) as model:
            status, _, data = post(model)
            assert status == 400
            assert f"returned {value!r}, which is not an answer" in json.loads(data)["error"]["message"]
            with pytest.raises(AssertionError, match="which is not an answer"):
                model.assert_finished()


def test_a_function_that_raises_is_reported():
    """The request is refused, and the exception is the cause of the failed assertion."""

    def wrong(_: Any) -> Any:
        raise KeyError("oops")

    with ScriptedModel([wrong]) as model:
        assert post(model)[0] == 400
        with pytest.raises(AssertionError, match="oops") as caught:
            model.assert_finished()
    assert isinstance(caught.value.__cause__, KeyError)


SIDE_REQUESTS: list[dict[str, Any]] = [
    {"max_tokens": 1},
    {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"messages": [{"role": "user", "content": "[SUGGESTION MODE: what comes next?]"}]},
]


@pytest.mark.parametrize("change", SIDE_REQUESTS)
def test_side_requests_take_no_turn(change: dict[str, Any]):
    """Requests that the CLI makes for itself get a short text and use no turn."""
    with ScriptedModel([say("main")]) as model:
        assert ask(model, **change)["content"] == [{"type": "text", "text": "ok"}]
        assert stream(model, **change)[-1]["type"] == "message_stop"
        assert ask(model)["content"][0]["text"] == "main"
        assert (len(model.requests), len(model.others)) == (1, 2)
        model.assert_finished()


def test_rules_answer_what_the_script_does_not():
    """Rules are tried in order for side requests and for requests after the script's end."""
    rules = [
        lambda request: say("title") if request.side else None,
        lambda request: say("more") if request.prompt == "hello" else None,
    ]
    with ScriptedModel([say("one")], rules=rules) as model:
        assert ask(model, max_tokens=1)["content"][0]["text"] == "title"
        assert [ask(model)["content"][0]["text"] for _ in range(3)] == ["one", "more", "more"]
        assert ask(model, messages=[])["type"] == "error"
        assert len(model.unexpected) == 1


def test_subagents_may_have_a_script_of_their_own():
    """Requests of subagents use their own script if there is one, else the main one."""
    agent = {"x-claude-code-agent-id": "a1"}
    with ScriptedModel([say("main")], subagents=[say("sub")]) as model:
        assert b'"sub"' in post(model, **agent)[2]
        assert b'"main"' in post(model)[2]
        assert [request.agent_id for request in model.requests] == ["a1", None]
        assert b"by subagent a1" in post(model, **agent)[2]
    with ScriptedModel([say("first"), say("second")]) as model:
        assert b'"first"' in post(model, **agent)[2]


def test_a_refused_request_sent_again_is_refused_again():
    """If the same messages of a session were refused for good, they get the same error again and use no turn."""
    with ScriptedModel([fail(400), say("next"), fail(529), say("after")]) as model:
        assert [post(model, **SESSION)[0] for _ in range(3)] == [400, 400, 400]
        assert len(model.requests) == 1
        later = {**HELLO, "messages": [{"role": "user", "content": "another"}]}
        assert [post(model, later, **SESSION)[0] for _ in range(3)] == [200, 529, 200]
        model.assert_finished()


def test_tokens_are_counted():
    """The token count is an estimate that grows with the request, and takes no turn."""
    with ScriptedModel() as model:
        small, large = (
            json.loads(post(model, {"messages": "x" * size}, "/v1/messages/count_tokens?beta=true")[2])[
                "input_tokens"
            ]
            for size in (1, 4000)
        )
        assert 0 < small < 100
        assert 900 < large < 1100
        model.assert_finished()


@pytest.mark.parametrize(
    ("method", "path"), [("HEAD", "/"), ("GET", "/v1/models"), ("POST", "/api/event"), ("PUT", "/x")]
)
def test_anything_else_is_not_found(method: str, path: str):
    """Probes get a 404 in the API's form at once, and the connection stays usable."""
    with ScriptedModel() as model, connected(model) as connection:
        for _ in range(2):
            connection.request(method, path, b"{}" if method in {"POST", "PUT"} else None)
            response = connection.getresponse()
            assert response.status == 404
            body = response.read()
            assert body == b"" if method == "HEAD" else json.loads(body)["error"]["type"] == "not_found_error"
        assert len(model.others) == 2
        model.assert_finished()


def test_a_body_that_is_not_json_is_refused():
    """A body that is not a JSON object, or is sent in chunks, is refused, and its request is unexpected."""
    with ScriptedModel([say("x")]) as model:
        assert post(model, b"{nonsense")[0] == post(model, b"[]")[0] == 400
        assert post(model, b"", **{"Transfer-Encoding": "chunked"})[0] == 411
        assert len(model.unexpected) == 2
        assert len(model.remaining) == 1


def test_many_at_once_take_one_turn_each():
    """Twenty concurrent requests get twenty different turns, and all are recorded."""
    with ScriptedModel([call("t", n=n) for n in range(20)]) as model, ThreadPoolExecutor(20) as pool:
        blocks = [message["content"][0] for message in pool.map(lambda _: ask(model), range(20))]
        assert sorted(block["input"]["n"] for block in blocks) == list(range(20))
        assert len({block["id"] for block in blocks}) == 20
        assert len(model.requests) == 20
        model.assert_finished()


def test_it_is_an_async_context_manager_too():
    """`async with` starts and closes the model as `with` does; before that, it has no URL."""
    model = ScriptedModel([say("x")])
    with pytest.raises(RuntimeError, match="not started"):
        _ = model.url

    async def conversation() -> dict[str, Any]:
        async with model:
            return await asyncio.to_thread(ask, model)

    assert asyncio.run(conversation())["content"][0]["text"] == "x"
    with pytest.raises(ConnectionError):
        ask(model)
