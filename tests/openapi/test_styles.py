"""Every parameter style of OpenAPI for every type of value, as a real server receives it."""

import pytest

from shared.echo_api import EchoApi, call, document, operation
from toolwire.errors import McpError

pytestmark = pytest.mark.anyio

TEXT, LIST, TABLE, NUMBER = "blue", ["blue", "black"], {"R": 100, "G": "2 0"}, 1.5
SCHEMAS = {
    str: {"type": "string"},
    list: {"type": "array", "items": {}},
    dict: {"type": "object"},
    float: {"type": "number"},
}
SCHEMAS |= {bool: {"type": "boolean"}, int: {"type": "integer"}}

PATHS = [
    ("simple", False, TEXT, "blue"),
    ("simple", False, LIST, "blue,black"),
    ("simple", False, TABLE, "R,100,G,2%200"),
    ("simple", True, TEXT, "blue"),
    ("simple", True, LIST, "blue,black"),
    ("simple", True, TABLE, "R=100,G=2%200"),
    ("label", False, TEXT, ".blue"),
    ("label", False, LIST, ".blue,black"),
    ("label", False, TABLE, ".R,100,G,2%200"),
    ("label", True, LIST, ".blue.black"),
    ("label", True, TABLE, ".R=100.G=2%200"),
    ("matrix", False, TEXT, ";v=blue"),
    ("matrix", False, LIST, ";v=blue,black"),
    ("matrix", False, TABLE, ";v=R,100,G,2%200"),
    ("matrix", True, LIST, ";v=blue;v=black"),
    ("matrix", True, TABLE, ";R=100;G=2%200"),
    ("matrix", True, "", ";v"),
    ("simple", False, 5, "5"),
    ("simple", False, NUMBER, "1.5"),
    ("simple", False, True, "true"),
]
QUERIES = [
    ("form", True, TEXT, "v=blue"),
    ("form", True, LIST, "v=blue&v=black"),
    ("form", True, TABLE, "R=100&G=2%200"),
    ("form", False, LIST, "v=blue,black"),
    ("form", False, TABLE, "v=R,100,G,2%200"),
    ("form", True, "", "v="),
    ("form", True, [], ""),
    ("form", True, 5.0, "v=5"),
    ("form", True, False, "v=false"),
    ("form", True, "a&b=c#d+e", "v=a%26b%3Dc%23d%2Be"),
    ("form", True, "Zürich €", "v=Z%C3%BCrich%20%E2%82%AC"),
    ("form", False, ["a,b", "c"], "v=a%2Cb,c"),
    ("spaceDelimited", False, LIST, "v=blue%20black"),
    ("spaceDelimited", False, TABLE, "v=R%20100%20G%202%200"),
    ("spaceDelimited", True, LIST, "v=blue&v=black"),
    ("pipeDelimited", False, LIST, "v=blue%7Cblack"),
    ("pipeDelimited", False, TABLE, "v=R%7C100%7CG%7C2%200"),
    ("pipeDelimited", True, LIST, "v=blue&v=black"),
    ("deepObject", True, TABLE, "v%5BR%5D=100&v%5BG%5D=2%200"),
    (
        "deepObject",
        True,
        {"a": {"b": 1}, "c": ["x", "y"]},
        "v%5Ba%5D%5Bb%5D=1&v%5Bc%5D%5B0%5D=x&v%5Bc%5D%5B1%5D=y",
    ),
]
COOKIES = [
    (True, TEXT, "v=blue"),
    (False, LIST, "v=blue,black"),
    (True, LIST, "v=blue; v=black"),
    (False, TABLE, "v=R,100,G,2%200"),
]
HEADERS = [
    (False, TEXT, "blue"),
    (False, LIST, "blue,black"),
    (False, TABLE, "R,100,G,2 0"),
    (True, TABLE, "R=100,G=2 0"),
    (False, 5, "5"),
]
SWAGGER = [
    ("query", "csv", "?v=blue,black"),
    ("query", "ssv", "?v=blue%20black"),
    ("query", "tsv", "?v=blue%09black"),
    ("query", "pipes", "?v=blue%7Cblack"),
    ("query", "multi", "?v=blue&v=black"),
    ("path", "csv", "blue,black"),
    ("path", "ssv", "blue%20black"),
    ("path", "pipes", "blue%7Cblack"),
]


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


def parameter(place, value, **more):
    return {"name": "v", "in": place, "required": place == "path", "schema": SCHEMAS[type(value)], **more}


@pytest.mark.parametrize(("style", "explode", "value", "expected"), PATHS)
async def test_a_path_parameter_is_written_in_its_style(api, style, explode, value, expected):
    """Each style of a path, for text, lists, objects and numbers."""
    given = document(
        {
            "/x/{v}/y": {
                "get": operation(parameter("path", value, style=style, explode=explode), operationId="go")
            }
        }
    )
    result = await call(api, given, "go", {"v": value})
    assert not result.is_error, result.text
    assert api.last.target == f"/x/{expected}/y"


@pytest.mark.parametrize(("style", "explode", "value", "expected"), QUERIES)
async def test_a_query_parameter_is_written_in_its_style(api, style, explode, value, expected):
    """Each style of a query, for each type of value; nothing in a value can end it."""
    given = document(
        {"/x": {"get": operation(parameter("query", value, style=style, explode=explode), operationId="go")}}
    )
    result = await call(api, given, "go", {"v": value})
    assert not result.is_error, result.text
    assert api.last.target == ("/x?" + expected if expected else "/x")


@pytest.mark.parametrize(("explode", "value", "expected"), COOKIES)
async def test_a_cookie_is_written_as_a_form(api, explode, value, expected):
    """All values go into one header."""
    given = document(
        {"/x": {"get": operation(parameter("cookie", value, explode=explode), operationId="go")}}
    )
    assert not (await call(api, given, "go", {"v": value})).is_error
    assert api.last.header("Cookie") == [expected]


@pytest.mark.parametrize(("explode", "value", "expected"), HEADERS)
async def test_a_header_is_written_simply(api, explode, value, expected):
    """The value is not percent-encoded."""
    given = document(
        {
            "/x": {
                "get": operation(
                    parameter("header", value, explode=explode) | {"name": "X-V"}, operationId="go"
                )
            }
        }
    )
    assert not (await call(api, given, "go", {"X-V": value})).is_error
    assert api.last.header("X-V") == [expected]


@pytest.mark.parametrize(("place", "form", "expected"), SWAGGER)
async def test_a_collection_format_of_swagger_is_kept(api, place, form, expected):
    """In Swagger 2, `collectionFormat` defines the separator of the values of a list."""
    told = {
        "name": "v",
        "in": place,
        "required": place == "path",
        "type": "array",
        "items": {"type": "string"},
    }
    path = "/x/{v}" if place == "path" else "/x"
    given = document(
        {path: {"get": operation(told | {"collectionFormat": form}, operationId="go")}}, version="2.0"
    )
    assert not (await call(api, given, "go", {"v": LIST})).is_error
    assert api.last.target == ("/x/" if place == "path" else "/x") + expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a/b:c?d@e", "a/b:c?d@e"),
        ("a%2Fb 100%", "a%2Fb%20100%25"),
        ("a&b#c+d[e]", "a%26b%23c%2Bd%5Be%5D"),
        ("x=y", "x=y"),
    ],
)
async def test_reserved_characters_stay_where_they_are_allowed_and_harmless(api, value, expected):
    """`allowReserved` keeps them, except for those that would end the value or the query."""
    given = document(
        {"/x": {"get": operation(parameter("query", value, allowReserved=True), operationId="go")}}
    )
    assert not (await call(api, given, "go", {"v": value})).is_error
    assert api.last.target == f"/x?v={expected}"


async def test_an_empty_value_is_accepted_where_the_document_says_so(api):
    """With `allowEmptyValue`, a parameter also takes the empty string."""
    flag = {"name": "v", "in": "query", "schema": {"type": "integer"}}
    given = document({"/x": {"get": operation(flag | {"allowEmptyValue": True}, operationId="go")}})
    assert not (await call(api, given, "go", {"v": ""})).is_error
    assert api.last.target == "/x?v="
    strict = document({"/x": {"get": operation(flag, operationId="go")}})
    with pytest.raises(McpError, match="integer"):
        await call(api, strict, "go", {"v": ""})
    assert len(api.requests) == 1


async def test_a_parameter_with_a_content_type_is_json(api):
    """With a JSON media type in `content`, the value is written as JSON."""
    told = {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    given = document({"/x": {"get": operation(told, operationId="go")}})
    assert not (await call(api, given, "go", {"filter": {"a": [1, None]}})).is_error
    assert api.last.target == "/x?filter=%7B%22a%22%3A%5B1%2Cnull%5D%7D"


async def test_parameters_with_the_same_name_are_distinguished(api):
    """Path, query, header and body parameters of one name are separate arguments."""
    given = document(
        {
            "/x/{id}": {
                "put": operation(
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "id", "in": "query", "schema": {"type": "string"}},
                    {"name": "id", "in": "header", "schema": {"type": "string"}},
                    {"name": "body", "in": "query", "schema": {"type": "string"}},
                    body={
                        "application/json": {
                            "schema": {"type": "object", "properties": {"id": {"type": "string"}}}
                        }
                    },
                    operationId="go",
                )
            }
        }
    )
    arguments = {"path_id": "p", "query_id": "q", "header_id": "h", "query_body": "b", "body": {"id": "j"}}
    assert not (await call(api, given, "go", arguments)).is_error
    assert api.last.target == "/x/p?id=q&body=b"
    assert api.last.header("id") == ["h"]
    assert api.last.body == b'{"id":"j"}'


@pytest.mark.parametrize("value", ["..", ".", "", "a/../b", "../admin", "..%2fadmin", "%2e%2e", "..\\x"])
async def test_no_path_value_changes_the_path(api, value):
    """Values that would move up or remove a path segment are not sent."""
    given = document({"/x/{v}/y": {"delete": operation(parameter("path", value), operationId="go")}})
    assert (await call(api, given, "go", {"v": value})).is_error
    assert api.requests == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("a;b=c", "a%3Bb%3Dc"),
        ("{v}", "%7Bv%7D"),
        ("...", "..."),
        ("\r\n", "%0D%0A"),
    ],
)
async def test_a_path_value_is_always_one_segment(api, value, expected):
    """Every character with a meaning in a path is encoded."""
    given = document({"/x/{v}/y": {"get": operation(parameter("path", value), operationId="go")}})
    assert not (await call(api, given, "go", {"v": value})).is_error
    assert api.last.target == f"/x/{expected}/y"


async def test_two_values_that_together_move_up_are_not_sent(api):
    """A dot in each of two adjacent parameters would make `..`."""
    both = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ("a", "b")
    ]
    given = document({"/x/{a}{b}/y": {"get": operation(*both, operationId="go")}})
    assert (await call(api, given, "go", {"a": ".", "b": "."})).is_error
    assert api.requests == []
