"""Sending requests once, or again where that is safe, and the results of their responses."""

import base64

import pytest

from shared.echo_api import EchoApi, Reply, as_json, call, document, operation
from toolwire.catalog import Retry

pytestmark = pytest.mark.anyio

QUICK = Retry(attempts=3, wait=0.01, jitter=0.0)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


async def go(api, method="get", **settings):
    given = document({"/x": {method: operation(operationId="go")}})
    return await call(api, given, "go", {}, retry=QUICK, **settings)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options"])
@pytest.mark.parametrize("reply", [Reply(503), Reply(429), Reply(502), Reply(0)])
async def test_methods_other_than_get_and_head_are_never_sent_twice(api, method, reply):
    """This holds for every response, and for a lost one: the request may have been carried out."""
    api.reply = reply
    result = await go(api, method)
    assert result.is_error
    assert len(api.requests) == 1
    if not reply.status:
        assert "may have been carried out" in result.text


@pytest.mark.parametrize("method", ["get", "head"])
@pytest.mark.parametrize("reply", [Reply(503), Reply(429, headers={"Retry-After": "0"}), Reply(0)])
async def test_a_get_is_retried_after_a_temporary_failure(api, method, reply):
    """Three times at most."""
    api.replies.extend([reply, reply])
    assert not (await go(api, method)).is_error
    assert len(api.requests) == 3
    api.reply = reply
    assert (await go(api, method)).is_error
    assert len(api.requests) == 6


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500])
async def test_an_error_reaches_the_model_with_its_text(api, status):
    """The request is sent once; the error has the status and the text."""
    api.reply = Reply(status, as_json({"detail": [{"loc": ["body", "name"], "msg": "too short"}]}))
    result = await go(api)
    assert result.is_error
    assert f"HTTP {status}" in result.text
    assert "too short" in result.text
    assert len(api.requests) == 1


async def test_a_long_error_is_cut(api):
    """A model should not have to read a whole HTML page."""
    api.reply = Reply(500, b"<html>" + b"x" * 500_000, "text/html")
    result = await go(api)
    assert result.is_error
    assert len(result.text) < 5_000


async def test_a_redirect_is_not_followed(api):
    """The other server would get the credentials."""
    api.reply = Reply(307, headers={"Location": f"{api.url}/elsewhere"})
    result = await go(api, "post")
    assert result.is_error
    assert "not followed" in result.text
    assert len(api.requests) == 1


async def test_a_response_is_read_up_to_the_limit(api):
    """The limit is checked against Content-Length and while the response is received."""
    api.reply = Reply(body=as_json("x" * 100_000))
    result = await go(api, max_response_bytes=10_000)
    assert result.is_error
    assert "10,000" in result.text
    assert not (await go(api, max_response_bytes=200_000)).is_error


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(body=b'{ "a" : [1, null] }'), '{"a":[1,null]}'),
        (Reply(body=b"null"), "null"),
        (Reply(body=b"{broken"), "{broken"),
        (Reply(body=b"12345678901234567890123"), "12345678901234567890123"),
        (Reply(body="grüß".encode("latin-1"), kind="text/plain; charset=latin-1"), "grüß"),
        (Reply(body=b"<a/>", kind="application/xml"), "<a/>"),
        (Reply(body=b"a,b", kind="text/csv"), "a,b"),
        (Reply(body=b'{"a":1}\n{"a":2}\n', kind="application/x-ndjson"), '{"a":1}\n{"a":2}\n'),
        (Reply(body=b'{"a":1}\n', kind="application/jsonl"), '{"a":1}\n'),
        (Reply(body=b"a=1&b=2", kind="application/x-www-form-urlencoded"), "a=1&b=2"),
        (Reply(204, b"", None), "HTTP 204 (No Content): success, no content"),
        (Reply(201, b"", None), "HTTP 201 (Created): success, no content"),
        (Reply(body=b'{"a":1}', kind="application/problem+json"), '{"a":1}'),
    ],
)
async def test_json_and_text_are_text(api, reply, text):
    """JSON is compact, with exact numbers; an empty success says so."""
    api.reply = reply
    result = await go(api, "post")
    assert not result.is_error
    assert result.text == text


async def test_images_and_bytes_are_content(api):
    """Images are image content, which the model sees; other bytes are a resource."""
    api.reply = Reply(body=PNG, kind="image/png")
    (block,) = (await go(api)).raw["content"]
    assert (block["type"], block["mimeType"], base64.b64decode(block["data"])) == ("image", "image/png", PNG)
    api.reply = Reply(body=b"PK\x03\x04", kind="application/zip")
    (block,) = (await go(api)).raw["content"]
    assert (block["type"], block["resource"]["mimeType"]) == ("resource", "application/zip")
    assert base64.b64decode(block["resource"]["blob"]) == b"PK\x03\x04"


async def test_the_result_of_head_is_its_headers(api):
    """A response to HEAD has no body."""
    api.reply = Reply(headers={"X-Total": "42"})
    assert "x-total: 42" in (await go(api, "head")).text


async def test_structured_content_has_status_and_result(api):
    """With output schemas, for JSON and for an empty response; a result that does not fit is an error."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    told = operation(operationId="go") | {
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}
    }
    given = document({"/x": {"post": told}})
    api.reply = Reply(body=b'{"n": 5}')
    result = await call(api, given, "go", {}, output_schemas=True)
    assert result.raw["structuredContent"] == {"status": 200, "result": {"n": 5}}
    api.reply = Reply(204, b"", None)
    result = await call(api, given, "go", {}, output_schemas=True)
    assert (result.is_error, result.raw["structuredContent"]) == (False, {"status": 204})
    api.reply = Reply(body=b'{"n": "no number"}')
    result = await call(api, given, "go", {}, output_schemas=True)
    assert result.is_error
    assert "does not match its schema" in result.text
    assert "no number" in result.text


async def test_a_response_may_fit_the_schema_of_any_success(api):
    """An operation may have different schemas for 200 and 202."""

    def told(name):
        schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
        return {"description": "", "content": {"application/json": {"schema": schema}}}

    made = operation(operationId="go") | {"responses": {"200": told("thing"), "202": told("receipt")}}
    given = document({"/x": {"post": made}})
    api.reply = Reply(202, b'{"receipt": 5}')
    result = await call(api, given, "go", {}, output_schemas=True)
    assert not result.is_error, result.text
    assert result.raw["structuredContent"] == {"status": 202, "result": {"receipt": 5}}
    api.reply = Reply(200, b'{"other": 5}')
    assert (await call(api, given, "go", {}, output_schemas=True)).is_error


async def test_a_response_that_is_too_long_says_that_the_call_may_have_been_carried_out(api):
    """Otherwise a model would repeat the call."""
    api.reply = Reply(201, b"x" * 100)
    given = document({"/x": {"post": operation(operationId="go")}})
    text = (await call(api, given, "go", {}, max_response_bytes=10)).text
    assert "HTTP 201" in text
    assert "may have been carried out" in text


async def test_a_call_ends_in_time(api):
    """The error after the timeout says that the call may have been carried out."""
    import threading  # noqa: PLC0415 - only here

    release = threading.Event()
    api.paths["/x"] = lambda _request: Reply() if release.wait(20) else Reply(500)
    result = await go(api, "post", timeout=0.2)
    release.set()
    assert result.is_error
    assert "within 0.2 s" in result.text
    assert "may have been carried out" in result.text
    assert len(api.requests) == 1


async def test_the_accept_header_prefers_json(api):
    """It also forbids compression, because the size of a compressed body could not be limited."""
    await go(api)
    assert api.last.header("Accept")[0].startswith("application/json")
    assert api.last.header("Accept-Encoding") == ["identity"]
