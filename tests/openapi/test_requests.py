"""Bodies and headers as a real server receives them, and requests that must not be sent."""

import base64
import email
import email.policy
import json
from urllib.parse import parse_qsl

import pytest

from shared.echo_api import EchoApi, call, document, operation
from toolwire import OpenAPI
from toolwire.errors import McpError

pytestmark = pytest.mark.anyio

PET = {
    "type": "object",
    "properties": {"name": {"type": "string", "nullable": True}, "n": {"type": "integer"}},
}


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


def parts_of(request):
    """Return the parts of a multipart body: name, filename, content type, bytes."""
    head = f"Content-Type: {request.header('Content-Type')[0]}\r\n\r\n".encode()
    whole = email.message_from_bytes(head + request.body, policy=email.policy.HTTP)
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part.get_content_type() if part["content-type"] else None,
            part.get_payload(decode=True),
        )
        for part in whole.iter_parts()
    ]


async def send(api, content, body, **more):
    """Call an operation with a body of this content, and return the received request."""
    given = document({"/x": {"post": operation(body=content, operationId="go")}}, **more)
    result = await call(api, given, "go", {"body": body})
    assert not result.is_error, result.text
    return api.last


@pytest.mark.parametrize(
    "media", ["application/json", "application/vnd.api+json", "application/json; charset=utf-8"]
)
async def test_json_is_sent_as_it_is(api, media):
    """Null, nesting, large numbers and other scripts arrive as they were given."""
    body = {"name": None, "n": 2**60, "more": [1.5, {"ü": "€"}, None]}
    request = await send(api, {media: {"schema": PET}}, body)
    assert json.loads(request.body) == body
    assert request.header("Content-Type") == [media]
    assert request.header("Content-Length") == [str(len(request.body))]


@pytest.mark.parametrize("body", [[1, None], "text", 5, True, None])
async def test_a_body_may_be_any_json(api, body):
    """A body is not always an object."""
    request = await send(api, {"application/json": {"schema": {}}}, body)
    assert json.loads(request.body) == body


async def test_a_form_is_encoded_field_by_field(api):
    """Lists are repeated, objects are JSON, null is left out, and no character of a value ends it."""
    fields = {
        "a": {"type": "string"},
        "b": {"type": "array", "items": {"type": "integer"}},
        "c": {"type": "object"},
        "d": {},
    }
    schema = {"type": "object", "properties": fields}
    body = {"a": "x&y=z +ü", "b": [1, 2], "c": {"k": [1]}, "d": None}
    request = await send(api, {"application/x-www-form-urlencoded": {"schema": schema}}, body)
    assert request.body == b"a=x%26y%3Dz+%2B%C3%BC&b=1&b=2&c=%7B%22k%22%3A%5B1%5D%7D"
    assert parse_qsl(request.body.decode())[0] == ("a", "x&y=z +ü")


async def test_a_form_follows_its_encoding(api):
    """The `encoding` of a field sets its style."""
    fields = {
        "a": {"type": "array", "items": {}},
        "b": {"type": "object"},
        "c": {"type": "array", "items": {}},
    }
    told = {
        "schema": {"type": "object", "properties": fields},
        "encoding": {
            "a": {"explode": False},
            "b": {"style": "deepObject"},
            "c": {"style": "pipeDelimited", "explode": False},
        },
    }
    body = {"a": ["x", "y"], "b": {"k": {"l": 1}}, "c": [1, 2]}
    request = await send(api, {"application/x-www-form-urlencoded": told}, body)
    assert request.body == b"a=x,y&b%5Bk%5D%5Bl%5D=1&c=1%7C2"


async def test_a_multipart_body_has_files_and_fields(api):
    """Files are given as base64 or text, with name and type; objects are sent as JSON; lists are several parts."""
    binary = {"type": "string", "format": "binary"}
    fields = {
        "photo": binary,
        "more": {"type": "array", "items": binary},
        "meta": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "n": {"type": "integer"},
        "doc": binary,
    }
    told = {
        "schema": {"allOf": [{"type": "object", "properties": fields, "required": ["photo"]}]},
        "encoding": {
            "photo": {"contentType": "image/png, image/jpeg"},
            "tags": {"contentType": "text/x-tag"},
        },
    }
    raw = bytes(range(256))
    body = {
        "photo": base64.b64encode(raw).decode(),
        "more": [
            {"text": "one", "filename": 'a"b.txt', "content_type": "text/plain"},
            base64.b64encode(b"2").decode(),
        ],
        "meta": {"a": None},
        "tags": ["x", "y"],
        "n": 5,
        "doc": {"base64": base64.b64encode(b"\r\n--x\r\n").decode(), "filename": "évil\r\nX-Y: z"},
    }
    request = await send(api, {"multipart/form-data": told}, body)
    assert parts_of(request) == [
        ("photo", "photo", "image/png", raw),
        ("more", "a%22b.txt", "text/plain", b"one"),
        ("more", "more", "application/octet-stream", b"2"),
        ("meta", None, "application/json", b'{"a":null}'),
        ("tags", None, "text/x-tag", b"x"),
        ("tags", None, "text/x-tag", b"y"),
        ("n", None, None, b"5"),
        ("doc", "évil%0D%0AX-Y: z", "application/octet-stream", b"\r\n--x\r\n"),
    ]


@pytest.mark.parametrize(
    "bad", ["not base64!", {"base64": "***"}, {"text": "x", "content_type": "a\r\nX-Evil: 1"}]
)
async def test_an_invalid_file_is_not_sent(api, bad):
    """Invalid base64, or a content type with line breaks, is an error, and nothing is sent."""
    schema = {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}
    given = document(
        {"/x": {"post": operation(body={"multipart/form-data": {"schema": schema}}, operationId="go")}}
    )
    result = await call(api, given, "go", {"body": {"f": bad}})
    assert result.is_error
    assert "nothing was sent" in result.text
    assert api.requests == []


async def test_in_3_1_a_file_is_what_has_a_media_type_and_no_encoding(api):
    """A field with `contentMediaType` alone is a file; with `contentEncoding` too it is text."""
    fields = {
        "f": {"type": "string", "contentMediaType": "image/png"},
        "t": {"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"},
    }
    told = {"schema": {"type": "object", "properties": fields}}
    request = await send(api, {"multipart/form-data": told}, {"f": "AAE=", "t": "AAE="}, version="3.1.0")
    assert [(name, content) for name, _, _, content in parts_of(request)] == [("f", b"\0\1"), ("t", b"AAE=")]


async def test_text_xml_and_bytes_are_sent_raw(api):
    """A body that is neither JSON nor a form is text, or bytes in base64."""
    text = await send(api, {"text/plain": {"schema": {"type": "string"}}}, "hällo")
    assert (text.body, text.header("Content-Type")) == ("hällo".encode(), ["text/plain; charset=utf-8"])
    xml = await send(api, {"application/xml": {"schema": PET}}, "<pet/>")
    assert (xml.body, xml.header("Content-Type")) == (b"<pet/>", ["application/xml; charset=utf-8"])
    raw = await send(api, {"application/octet-stream": {"schema": {}}}, base64.b64encode(b"\0\xff").decode())
    assert (raw.body, raw.header("Content-Type")) == (b"\0\xff", ["application/octet-stream"])
    png = await send(api, {"image/png": {"schema": {"type": "string", "format": "binary"}}}, "AAE=")
    assert (png.body, png.header("Content-Type")) == (b"\0\1", ["image/png"])


async def test_of_several_content_types_json_is_chosen_but_files_go_first(api):
    """JSON is easiest for a model; a form with files can do what JSON cannot."""
    form = {"schema": {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}}
    both = {
        "application/xml": {"schema": PET},
        "application/x-www-form-urlencoded": {"schema": PET},
        "application/json": {"schema": PET},
    }
    assert (await send(api, both, {"n": 1})).header("Content-Type") == ["application/json"]
    files = await send(api, {"application/json": {"schema": PET}, "multipart/form-data": form}, {"f": "AA=="})
    assert files.header("Content-Type")[0].startswith("multipart/form-data")


async def test_swagger_has_form_fields_and_files(api):
    """Swagger 2's `formData` is a form, or multipart if a field is a file."""
    name = {"name": "name", "in": "formData", "type": "string", "required": True}
    many = {
        "name": "ids",
        "in": "formData",
        "type": "array",
        "items": {"type": "integer"},
        "collectionFormat": "multi",
    }
    packed = many | {"name": "packed", "collectionFormat": "pipes"}
    file = {"name": "file", "in": "formData", "type": "file"}
    given = document(
        {
            "/a": {"post": operation(name, many, packed, operationId="a")},
            "/b": {"post": operation(name, file, operationId="b")},
        },
        version="2.0",
    )
    body = {"name": "x y", "ids": [1, 2], "packed": [3, 4]}
    assert not (await call(api, given, "a", {"body": body})).is_error
    assert api.last.body == b"name=x+y&ids=1&ids=2&packed=3%7C4"
    assert not (await call(api, given, "b", {"body": {"name": "x", "file": "AAE="}})).is_error
    assert parts_of(api.last) == [
        ("name", None, None, b"x"),
        ("file", "file", "application/octet-stream", b"\0\1"),
    ]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", " a", "ä", "x" * 9000])
async def test_a_header_cannot_carry_another(api, value):
    """A value with line breaks or other invalid characters is an error, and nothing is sent."""
    told = {"name": "X-V", "in": "header", "schema": {"type": "string"}}
    given = document({"/x": {"get": operation(told, operationId="go")}})
    result = await call(api, given, "go", {"X-V": value})
    assert result.is_error
    assert api.requests == []


async def test_headers_of_the_connection_and_of_credentials_are_not_arguments(api):
    """A model cannot set Host, Authorization, Cookie and the like, nor the parameter of an API key."""
    names = [
        "Host",
        "Authorization",
        "Cookie",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Accept",
        "Content-Type",
    ]
    names += ["Proxy-Authorization", "x-api-key", "bad name", "X-Fine"]
    parameters = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
    parameters.append({"name": "token", "in": "query", "schema": {"type": "string"}})
    schemes = {
        "a": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "b": {"type": "apiKey", "in": "query", "name": "token"},
    }
    given = document(
        {"/x": {"get": operation(*parameters, operationId="go")}}, components={"securitySchemes": schemes}
    )
    assert not (await call(api, given, "go", {"X-Fine": "yes"})).is_error
    for name in (*names[:-1], "token"):
        with pytest.raises(McpError):
            await call(api, given, "go", {name: "evil"})
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"id": "x"},
        {"id": 5, "other": 1},
        {"id": 5, "kind": "fish"},
        {"id": 5, "body": {"name": 7}},
        {"id": 5, "body": []},
        {"id": 5, "body": {"name": "\ud800"}},
        {"id": None},
    ],
)
async def test_wrong_arguments_never_reach_the_server(api, arguments):
    """Arguments that do not match the schema are rejected with the reason, and nothing is sent."""
    given = document(
        {
            "/x/{id}": {
                "post": operation(
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
                    {"name": "kind", "in": "query", "schema": {"type": "string", "enum": ["cat", "dog"]}},
                    operationId="go",
                    requestBody={
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
                    },
                )
            }
        },
        components={"schemas": {"Pet": PET}},
    )
    with pytest.raises(McpError, match="Validation failed"):
        await call(api, given, "go", arguments)
    assert api.requests == []


async def test_a_path_with_a_query_keeps_it(api):
    """Some documents distinguish operations by a query in the path."""
    told = {"name": "q", "in": "query", "schema": {"type": "string"}}
    given = document({"/x?action=list": {"get": operation(told, operationId="go")}})
    assert not (await call(api, given, "go", {"q": "a"})).is_error
    assert api.last.target == "/x?action=list&q=a"


async def test_a_target_that_is_too_long_is_not_sent(api):
    """Servers reject such a request line; the error says why."""
    told = {"name": "q", "in": "query", "schema": {"type": "string"}}
    given = document({"/x": {"get": operation(told, operationId="go")}})
    result = await call(api, given, "go", {"q": "x" * 40_000})
    assert result.is_error
    assert "characters" in result.text
    assert api.requests == []


async def test_only_a_valid_content_type_is_sent(api):
    """A range such as `text/*` is replaced, and an operation whose type cannot be a header value is skipped."""
    bodies = {"text": "text/*", "bad": "application/json; x=\r\nEvil: 1"}
    paths = {
        f"/{name}": {"post": operation(operationId=name, body={media: {}})} for name, media in bodies.items()
    }
    assert not (await call(api, document(paths), "text", {"body": "hi"})).is_error
    assert api.last.header("Content-Type") == ["text/plain; charset=utf-8"]
    server = OpenAPI(document(paths), base_url=api.url, environ={})
    assert [(each.name, "is not supported" in each.reason) for each in server.load().skipped] == [
        ("POST /bad", True)
    ]
