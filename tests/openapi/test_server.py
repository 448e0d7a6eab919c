"""`OpenAPI` as a server: names, hints, base URL, loading, refreshing, and unusable operations."""

import json
import logging

import anyio
import pytest

from shared.echo_api import EchoApi, Reply, as_json, call, document, operation
from shared.openapi_documents import ordinary
from toolwire import OpenAPI
from toolwire.errors import UsageError
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

BASE = "https://api.example.com/v1"


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


def load(given, **settings):
    """Read a document and return its server."""
    server = OpenAPI(given, **{"base_url": BASE, "environ": {}, **settings})
    server.load()
    return server


def test_every_operation_gets_a_legal_name_of_its_own():
    """It is the id, else method and path; the suffix of a long or repeated one does not depend on the others."""
    long = "a" * 80
    paths = {
        "/pets/{petId}/toys": {
            "get": operation({"name": "petId", "in": "path", "schema": {}}),
            "put": operation(operationId="pets/set-toys!"),
        },
        "/a": {"get": operation(operationId="same"), "post": operation(operationId="Same")},
        "/b": {"get": operation(operationId=long), "post": operation(operationId=long + "x")},
        "/": {"get": operation()},
        "/日本": {"get": operation(operationId="日本")},
    }
    server = load(document(paths), name="shop")
    names = {each.label: name for name, each in server.operations.items()}
    assert names["GET /pets/{petId}/toys"] == "get_pets_by_petId_toys"
    assert names["PUT /pets/{petId}/toys"] == "pets_set_toys"
    assert names["GET /"] == "get"
    assert names["GET /a"] != names["POST /a"]
    assert all(len(f"mcp__shop__{name}") <= 64 for name in names.values())
    alone = load(document({"/b": {"get": paths["/b"]["get"]}}), name="shop")
    assert names["GET /b"] in alone.operations
    assert load(document(paths), name="shop", include=["GET /a"]).operations.keys() == {names["GET /a"]}


def test_methods_are_hints():
    """Claude runs read-only tools in parallel."""
    methods = ("get", "head", "options", "post", "put", "patch", "delete")
    server = load(document({"/x": {method: operation(operationId=method) for method in methods}}))
    hints = {name: tool.definition.get("annotations", {}) for name, tool in server.tools.items()}
    assert hints["get"] == hints["head"] == hints["options"] == {"readOnlyHint": True}
    assert hints["put"] == {"idempotentHint": True}
    assert hints["delete"] == {"destructiveHint": True, "idempotentHint": True}
    assert hints["post"] == hints["patch"] == {}


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ({"include": ["tag:pets"]}, {"a", "b"}),
        ({"include": ["TAG:P*"], "exclude": ["method:post"]}, {"a"}),
        ({"include": ["/pets*"]}, {"a", "b"}),
        ({"include": ["path:/shops/*"]}, {"d"}),
        ({"include": ["GET"]}, {"a", "c", "d"}),
        ({"include": ["GET /shops*"]}, {"c", "d"}),
        ({"include": ["id:a", "c"]}, {"a", "c"}),
        ({"exclude": ["?"]}, set()),
    ],
)
def test_operations_are_chosen_by_tag_path_method_and_id(patterns, left):
    """Patterns are globs that ignore case."""
    pets = {
        "get": operation(operationId="a", tags=["pets"]),
        "post": operation(operationId="b", tags=["Pets"]),
    }
    paths = {
        "/pets": pets,
        "/shops": {"get": operation(operationId="c")},
        "/shops/x": {"get": operation(operationId="d")},
    }
    assert load(document(paths), **patterns).operations.keys() == left


def test_a_pattern_without_a_match_is_a_warning(caplog):
    """The pattern may be misspelt."""
    load(document({"/x": {"get": operation()}}), include=["GET", "tag:nope"])
    assert "no operation matches the pattern 'tag:nope'" in caplog.text
    with pytest.raises(UsageError, match="globs"):
        OpenAPI(document({}), include=[" "])


def test_one_bad_operation_does_not_affect_the_others(caplog):
    """Each is reported with the reason; the others become tools."""
    bad = {
        "/no-table": {"get": 5},
        "/item": 5,
        "relative": {"get": operation()},
        "/../up": {"get": operation()},
        "/frag#x": {"get": operation()},
        "/parameters": {"get": {"parameters": {"a": 1}}},
        "/nameless": {"get": operation({"in": "query"})},
        "/place": {"get": operation({"name": "a", "in": "moon"})},
        "/style": {"get": operation({"name": "a", "in": "query", "style": "matrix"})},
        "/body": {"post": {"requestBody": {"content": {}}}},
        "/media": {"post": operation(body={"multipart/mixed": {}})},
        "/ref": {"get": {"$ref": "#/nowhere"}},
        "/deep": {
            "post": operation(
                body={"application/json": {"schema": json.loads('{"items":' * 80 + "{}" + "}" * 80)}}
            )
        },
        "/trace": {"trace": operation()},
        "/security": {"get": operation(security={"a": []})},
    }
    good = {"/good": {"get": operation(operationId="good")}}
    server = load(document({**bad, **good, "x-extension": 5}))
    assert server.operations.keys() == {"good"}
    assert len(server.status.skipped) == len(bad)
    for path in bad:
        assert path in caplog.text
        assert any(path in each.name and each.reason for each in server.status.skipped)


def test_the_documents_server_is_used_only_if_allowed():
    """Otherwise the error names the URL to pass or to allow."""
    given = document(
        {"/x": {"get": operation(operationId="go")}},
        servers=[
            {
                "url": "https://{region}.example.com/{v}",
                "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}, "v": {"default": "v1"}},
            }
        ],
    )
    server = load(given, base_url=None)
    assert server.base_url is None
    assert "https://eu.example.com/v1" in server.base_problem
    assert load(given, base_url=None, allow_servers=True).base_url == "https://eu.example.com/v1"
    assert (
        load(given, base_url=None, allow_servers=True, server_variables={"region": "us"}).base_url
        == "https://us.example.com/v1"
    )
    with pytest.raises(UsageError, match="must be one of"):
        load(given, base_url=None, allow_servers=True, server_variables={"region": "evil.com/"})


@pytest.mark.parametrize(
    ("more", "base"),
    [
        (
            {"host": "api.example.com", "basePath": "/v2", "schemes": ["http", "https"]},
            "https://api.example.com/v2",
        ),
        ({"host": "api.example.com"}, "https://api.example.com"),
        ({"host": "127.0.0.1:80", "schemes": ["http"]}, "http://127.0.0.1:80"),
        ({"host": "api.example.com", "schemes": ["http"]}, None),
        ({"basePath": "/v2"}, None),
    ],
)
def test_swagger_has_host_and_path(more, base):
    """Plain http is allowed to this machine only."""
    assert load(document({}, version="2.0", **more), base_url=None, allow_servers=True).base_url == base


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "ftp://example.com",
        "https://user:pw@example.com",
        "https://example.com?x=1",
        "https://example.com/a/../b",
        "example.com",
        "",
    ],
)
def test_a_base_url_is_checked(url):
    """The rules are those of catalogues."""
    with pytest.raises(UsageError, match="base_url"):
        OpenAPI(document({}), base_url=url)
    assert (
        OpenAPI(document({}), base_url="http://example.com", network={"allow_http": True}).base_url
        == "http://example.com"
    )
    with pytest.raises(UsageError, match="network"):
        OpenAPI(document({}), network={"allow": ["not an address"]})


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "192.168.1.1"])
async def test_internal_addresses_are_not_called_unless_allowed(host):
    """A base URL must not point into the internal network."""
    given = document({"/x": {"get": operation(operationId="go")}})
    result = await call(None, given, "go", {}, base_url=f"https://{host}")
    assert result.is_error
    assert "not on the public internet" in result.text


async def test_an_operation_with_a_server_of_its_own_stays_on_the_origin(api):
    """Another path or the document's own server is allowed; another host would get the credentials."""
    given = document(
        {
            "/a": {"get": operation(operationId="a", servers=[{"url": "/v9"}])},
            "/b": {"get": operation(operationId="b", servers=[{"url": "https://evil.example.com"}])},
            "/c": {"servers": [{"url": f"{api.url}/v8/"}], "get": operation(operationId="c")},
            "/d": {"servers": [{"url": "https://prod.example.com"}], "get": operation(operationId="d")},
        },
        servers=[{"url": "https://prod.example.com"}],
    )
    server = OpenAPI(given, base_url=f"{api.url}/v1", environ={})
    async with connect(server) as client:
        await server.loaded()
        for name in ("a", "c", "d"):
            assert not (await client.call(name)).is_error
    assert [each.target for each in api.requests] == ["/v9/a", "/v8/c", "/v1/d"]
    assert [each.name for each in server.status.skipped] == ["GET /b"]


async def test_an_operation_for_another_server_of_the_document_does_not_go_to_the_first(api):
    """It is left out, even if the document lists both servers."""
    given = document(
        {
            "/a": {"get": operation(operationId="a", servers=[{"url": f"{api.url}/upload"}])},
            "/b": {"get": operation(operationId="b", servers=[{"url": "https://upload.example.com"}])},
        },
        servers=[
            {"url": f"{api.url}/v1"},
            {"url": f"{api.url}/upload"},
            {"url": "https://upload.example.com"},
        ],
    )
    server = OpenAPI(given, base_url=f"{api.url}/v1", environ={})
    async with connect(server) as client:
        await server.loaded()
        assert not (await client.call("a")).is_error
    assert [each.target for each in api.requests] == ["/upload/a"]
    assert [each.name for each in server.status.skipped] == ["GET /b"]


async def test_a_document_is_fetched_and_its_server_is_where_it_came_from(api):
    """A relative server is resolved against the document's URL; nothing else is fetched."""
    told = document({"/x": {"get": operation(operationId="go")}}, servers=[{"url": "/v3"}])
    api.paths["/docs/openapi.json"] = Reply(body=as_json(told))
    server = OpenAPI(f"{api.url}/docs/openapi.json?v=1", environ={})
    async with connect(server) as client:
        assert (await server.loaded()).state == "live"
        assert not (await client.call("go")).is_error
    assert server.base_url == f"{api.url}/v3"
    assert [each.target for each in api.requests] == ["/docs/openapi.json?v=1", "/v3/x"]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(302, headers={"Location": "http://127.0.0.1:9/other"}), "redirects are not followed"),
        (Reply(404), "HTTP 404"),
        (Reply(body=b"<html>"), "neither"),
    ],
)
async def test_a_document_that_cannot_be_fetched_is_reported(api, reply, said):
    """The server stays up, and its status says why it has no tools."""
    api.reply = reply
    server = OpenAPI(f"{api.url}/openapi.json", environ={})
    async with connect(server) as client:
        status = await server.loaded()
        assert status.state == "down"
        assert said in status.error
        assert await client.list_tools() == []
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "url", ["http://example.com/openapi.json", "https://user:pw@example.com/x", "https://"]
)
def test_the_url_of_a_document_is_checked(url):
    """The URL is checked before anything is fetched."""
    with pytest.raises(UsageError, match="URL of the document"):
        OpenAPI(url)


async def test_a_document_that_changes_changes_the_tools(tmp_path):
    """A refresh reads it again; names stay, clients are notified, and a broken document changes nothing."""
    file = tmp_path / "pets.json"
    file.write_bytes(as_json(document({"/a": {"get": operation(operationId="a")}})))
    server = OpenAPI(file, base_url=BASE, environ={})
    async with connect(server) as client:
        await server.loaded()
        file.write_bytes(
            as_json(
                document(
                    {"/a": {"get": operation(operationId="a")}, "/b": {"get": operation(operationId="b")}}
                )
            )
        )
        server.refresh()
        await server.loaded()
        assert [tool.name for tool in await client.list_tools()] == ["a", "b"]
        with anyio.fail_after(5):
            while not any(each.method == "notifications/tools/list_changed" for each in client.notifications):
                await anyio.sleep(0.01)
        file.write_bytes(b"{")
        server.refresh()
        status = await server.loaded()
        assert status.state == "cached"
        assert [tool.name for tool in await client.list_tools()] == ["a", "b"]


async def test_a_refresh_reads_changed_referenced_files(tmp_path):
    """With `external_files` the tools depend on other files too, even if the document itself stays the same."""
    (tmp_path / "limit.json").write_text('{"type": "integer", "maximum": 5}')
    file = tmp_path / "pets.json"
    parameter = {"name": "limit", "in": "query", "schema": {"$ref": "limit.json"}}
    file.write_bytes(as_json(document({"/a": {"get": operation(operationId="a", parameters=[parameter])}})))
    server = OpenAPI(file, base_url=BASE, environ={}, external_files=True)
    async with connect(server) as client:
        await server.loaded()
        (tmp_path / "limit.json").write_text('{"type": "integer", "maximum": 9}')
        server.refresh()
        await server.loaded()
        [tool] = await client.list_tools()
        assert '"maximum": 9' in json.dumps(tool.input_schema)
        published = server.status
        server.refresh()
        await server.loaded()
        assert (
            server.status is published
        )  # nothing has changed, so clients are not told to list the tools again


async def test_five_thousand_operations_are_listed_in_pages():
    """The pages have all operations, each once."""
    server = OpenAPI(ordinary(5_000), base_url=BASE, environ={})
    async with connect(server) as client:
        await server.loaded()
        names = [tool.name for tool in await client.list_tools()]
    assert len(names) == len(set(names)) == 5_000


def test_progress_is_reported():
    """The callback gets the step, how much of it is done, and the end."""
    heard = []
    load(ordinary(300), on_progress=lambda *news: heard.append(news))
    assert heard[0][0] == "reading"
    assert ("reading operations", 100, 300) in heard
    assert heard[-1] == ("", 0, 0)


@pytest.mark.parametrize("name", ["timeout", "max_response_bytes", "max_in_flight", "max_schema_bytes"])
def test_settings_are_checked(name):
    """The error names the setting and the value."""
    with pytest.raises(UsageError, match=f"{name} must be over 0, got -1"):
        OpenAPI(document({}), **{name: -1})


@pytest.mark.parametrize(
    ("source", "name"),
    [("petstore.yaml", "petstore"), ("shop/openapi.json", "shop"), ("My API v2.json", "my_api_v2")],
)
def test_a_server_is_named_after_its_document(tmp_path, source, name):
    """The name is that of the file, or of its folder if the file has a common name."""
    file = tmp_path / source
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    assert OpenAPI(file).name == name
    assert OpenAPI("https://api.github.com/openapi.json").name == "github"


async def test_a_log_of_warnings_names_the_server(caplog):
    """So warnings about several documents can be distinguished."""
    caplog.set_level(logging.WARNING)
    load(document({"/x": {"trace": operation()}}), name="pets")
    assert "pets: TRACE /x is left out" in caplog.text
