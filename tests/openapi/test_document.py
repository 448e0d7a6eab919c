"""Reading documents, and which files and URLs their references may use."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shared.echo_api import document, operation
from toolwire import OpenAPI
from toolwire.errors import UsageError
from toolwire.openapi.document import open_document

BASE = "https://api.example.com"


def load(path, **settings):
    """Read a document from a file and return its server."""
    server = OpenAPI(path, base_url=BASE, environ={}, **settings)
    server.load()
    return server


def body_of(reference):
    return operation(body={"application/json": {"schema": {"$ref": reference}}})


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (b'{"openapi": "3.0.3", "paths": {}}', "3.0"),
        (b'\xef\xbb\xbf{"openapi": "3.1.0", "paths": {}}', "3.1"),
        ('{"openapi": "3.2.0"}'.encode("utf-16"), "3.1"),
        (b"openapi: 3.0.0\npaths: {}\n", "3.0"),
        (b"swagger: 2.0\npaths: {}\n", "2.0"),
        (b"swagger: '2.0'\n", "2.0"),
        (b'{"openapi": "3.0.0", "info": {"title": "a\tb\x07"}}', "3.0"),
    ],
)
def test_json_and_yaml_of_all_versions_are_read(content, version):
    """Byte order marks, UTF-16, numbers as versions and control characters in texts are no obstacle."""
    assert open_document(content, "spec").version == version


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither `openapi` nor `swagger`"),
        (b"[]", "neither `openapi` nor `swagger`"),
        (b"{", "neither JSON nor YAML"),
        (b'{"openapi": "3.0.0", "x": NaN}', "NaN is not valid JSON"),
        (b'{"swagger": "1.2"}', "2.0, 3.0 and 3.1"),
        (b'{"openapi": "4.0.0"}', "2.0, 3.0 and 3.1"),
        (b'{"openapi": "3.0.0", "paths": []}', "`paths` must be an object"),
        (b"\xff\xff\xff", "UTF-8"),
        (b'{"openapi": "3.0.0", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "neither JSON|deep"),
        (b'{"openapi": "3.0.0", "x": ' + b"[" * 200 + b"]" * 200 + b"}", "150 levels deep"),
    ],
)
def test_an_invalid_document_is_an_error(content, said):
    """The error names the source and the reason."""
    with pytest.raises(UsageError, match=said) as raised:
        open_document(content, "spec.json")
    assert "spec.json" in str(raised.value)


def test_a_missing_file_is_an_error_at_once(tmp_path):
    """The error comes when the server is created, not when a client connects."""
    with pytest.raises(UsageError, match="does not exist"):
        OpenAPI(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="is not a file"):
        OpenAPI(tmp_path)


@pytest.fixture
def files(tmp_path):
    """Return the path of a document in a folder, with files beside, below and outside of it."""
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "outside.json").write_text('{"type": "object"}')
    (inside / "pet.yaml").write_text(
        "type: object\nproperties:\n  tag: {$ref: 'sub/tag.json#/defs/Tag'}\n"
        "  up: {$ref: 'spec.json#/components/schemas/Own'}\n"
    )
    (inside / "sub" / "tag.json").write_text('{"defs": {"Tag": {"type": "string", "maxLength": 3}}}')
    (inside / "link.json").symlink_to(tmp_path / "outside.json")
    references = {
        "/own": "#/components/schemas/Own",
        "/self": "spec.json#/components/schemas/Own",
        "/pet": "pet.yaml",
        "/up": "../outside.json",
        "/link": "link.json",
        "/absolute": str(tmp_path / "outside.json"),
        "/file": f"file://{tmp_path}/outside.json",
        "/none": "nowhere.json",
        "/web": "http://127.0.0.1:9/pet.json",
        "/scheme": "//127.0.0.1:9/pet.json",
        "/broken": "#/components/schemas/Nope",
    }
    given = document(
        {path: {"post": body_of(reference)} for path, reference in references.items()},
        components={"schemas": {"Own": {"type": "object"}}},
    )
    (inside / "spec.json").write_text(json.dumps(given))
    return inside / "spec.json"


def test_other_files_are_not_read_unless_allowed(files):
    """Operations that refer to other files are left out, with the reason; the others stay."""
    server = load(files)
    assert {each.label for each in server.operations.values()} == {"POST /own", "POST /self"}
    reasons = {each.name: each.reason for each in server.status.skipped}
    assert "external_files=True" in reasons["POST /pet"]
    assert "never fetched" in reasons["POST /web"]
    assert "does not exist" in reasons["POST /broken"]


def test_external_files_allows_only_files_in_the_folder(files):
    """Links, `..` and absolute paths cannot lead outside, and no URL is fetched."""
    server = load(files, external_files=True)
    assert {each.label for each in server.operations.values()} == {"POST /own", "POST /self", "POST /pet"}
    schema = server.tools["post_pet"].definition["inputSchema"]
    assert schema["$defs"]["Tag"] == {"type": "string", "maxLength": 3}
    assert schema["$defs"]["Own"] == {"type": "object"}
    reasons = {each.name: each.reason for each in server.status.skipped}
    for name in ("/up", "/link", "/absolute"):
        assert "outside the document's folder" in reasons[f"POST {name}"]
    for name in ("/web", "/scheme", "/file"):
        assert "never fetched" in reasons[f"POST {name}"]
    assert "does not exist" in reasons["POST /none"]


def test_nothing_is_fetched_whatever_the_document_says():
    """URLs in references, schema ids, examples and links cause no connection."""
    seen = []

    class Trap(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)

    trap = HTTPServer(("127.0.0.1", 0), Trap)
    thread = threading.Thread(target=trap.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{trap.server_port}"
    schema = {
        "$schema": f"{url}/a",
        "$id": f"{url}/b",
        "type": "object",
        "properties": {"x": {"$id": f"{url}/c", "$ref": "#/components/schemas/Y"}},
    }
    more = {"externalDocs": {"url": f"{url}/d"}, "x-logo": f"{url}/e"}
    given = document(
        {
            "/a": {
                "post": operation(
                    body={
                        "application/json": {
                            "schema": schema,
                            "examples": {"e": {"externalValue": f"{url}/f"}},
                        }
                    }
                )
            },
            "/b": {"post": body_of(f"{url}/g")},
            "/c": {"$ref": f"{url}/h"},
            "/d": {"post": body_of("#/components/schemas/Z")},
        },
        version="3.1.0",
        components={
            "schemas": {
                "Y": {"type": "string"},
                "Z": {"$dynamicRef": f"{url}/i", "properties": {"a": {"$ref": f"{url}/j"}}},
            }
        },
        **more,
    )
    server = OpenAPI(given, base_url=BASE, environ={})
    server.load()
    assert {each.label for each in server.operations.values()} == {"POST /a"}
    assert len(server.status.skipped) == 3
    for tool in server.tools.values():
        tool.parameters.validate({"body": {"x": "y"}})
    trap.shutdown()
    trap.server_close()
    assert seen == []


def test_an_endless_chain_of_references_skips_only_its_operation():
    """An operation with a parameter that refers to itself is skipped."""
    loop = {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    given = document(
        {"/x": {"get": operation({"$ref": "#/components/parameters/a"})}, "/y": {"get": operation()}},
        components={"parameters": loop},
    )
    server = OpenAPI(given, base_url=BASE, environ={})
    server.load()
    assert [each.label for each in server.operations.values()] == ["GET /y"]
