"""Validation of arguments against very large schemas."""

import pytest

from shared.echo_api import EchoApi
from shared.openapi_documents import ordinary
from toolwire import McpError, OpenAPI
from toolwire.testing import connect

pytestmark = pytest.mark.anyio


async def test_data_that_looks_like_a_reference_is_no_reference():
    """A definition whose default is `{"$ref": ...}` needs no other definition, usable or not."""
    table = {
        "A": {"type": "object", "properties": {"z": {"type": "object", "default": {"$ref": "#/$defs/B"}}}},
        "B": {"$ref": "other.json#/x"},
    }
    paths = {
        f"/{name}": {
            "post": {
                "operationId": name,
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
                },
                "responses": {"200": {"description": "ok"}},
            }
        }
        for name in table
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": paths,
        "components": {"schemas": table},
    }
    server = OpenAPI(document, base_url="http://127.0.0.1:1", environ={})
    server.load()
    assert list(server.tools) == ["A"]


async def test_a_schema_of_hundreds_of_definitions_is_checked_whole_before_anything_is_sent():
    """Arguments are rejected if they violate the listed part of the schema, or the rest of it."""
    with EchoApi() as api:
        server = OpenAPI(
            ordinary(500, tangled=True), base_url=api.url, headers={"X-Api-Key": "k" * 8}, environ={}
        )
        async with connect(server) as client:
            await server.loaded()
            body = {"name": "x", "status": "open"}
            with pytest.raises(McpError, match="status"):
                await client.call("createInvoice", body={"name": "x"})
            assert server.tools["createInvoice"].parameters.is_large
            deep = {**body, "count": "no number"}
            for _ in range(60):
                deep = {**body, "next": deep}
            refused = await client.call("createInvoice", body=deep)
            assert refused.is_error
            assert "count: Input should be of type integer" in refused.text
            assert api.requests == []
            assert not (
                await client.call("createInvoice", body={**body, "next": {**body, "count": 1}})
            ).is_error
    assert [each.target for each in api.requests] == ["/invoices"]
