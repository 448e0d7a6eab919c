"""Makes OpenAPI documents of any size, in the shape that company APIs have.

A *resource* has five operations: list, create, read, replace, delete. Its input schema has ten properties of usual
types and refers to three schemas that all resources share, one of which refers to itself. Its output schema also
refers to that of the next resource: so the output schemas of all resources form one cycle. Lists have the usual
query parameters; create and replace take a JSON body; every operation has response schemas, also for errors.

In a *tangled* document the output schema is used for input too: the body of each request refers to all schemas.
"""

from itertools import islice
from typing import Any

WORDS = (
    *("invoice", "customer", "shipment", "refund", "warehouse", "contract", "ticket", "campaign"),
    *("employee", "vehicle", "sensor", "article", "booking", "device", "payout", "survey"),
)
KINDS = ("", "draft", "archived", "regional", "external", "recurring", "bulk", "shared", "legacy", "priority")


def ordinary(
    operations: int,
    *,
    tangled: bool = False,
    title: str = "Ordinary API",
    server: str = "https://api.example.com/v1",
) -> Any:
    """Make an OpenAPI 3.0 document with this number of operations."""
    names = list(islice(_names(), -(-operations // 5)))
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = dict(_SHARED)
    left = operations
    for at, name in enumerate(names):
        schemas[f"{_class(name)}Input"] = _input(name)
        schemas[_class(name)] = _resource(name, _class(names[(at + 1) % len(names)]))
        for path, method, operation in islice(_operations(name, tangled), min(5, left)):
            paths.setdefault(path, {})[method] = operation
            left -= 1
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": "1.0.0", "description": "Made by a test."},
        "servers": [{"url": server}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}},
        },
    }


def _names() -> Any:
    number = 0
    while True:
        for kind in KINDS:
            for word in WORDS:
                yield "_".join(filter(None, (kind, word, str(number) if number else "")))
        number += 1


def _class(name: str) -> str:
    return "".join(each.capitalize() for each in name.split("_"))


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_SHARED: dict[str, Any] = {
    "Money": {
        "type": "object",
        "required": ["amount", "currency"],
        "properties": {
            "amount": {"type": "string", "pattern": r"^-?\d+(\.\d{1,2})?$", "example": "12.50"},
            "currency": {"type": "string", "enum": ["EUR", "USD", "GBP"], "default": "EUR"},
        },
    },
    "Address": {
        "type": "object",
        "properties": {
            "street": {"type": "string"},
            "city": {"type": "string", "description": "The city, in its own language."},
            "country": {"type": "string", "minLength": 2, "maxLength": 2},
        },
    },
    "Tag": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "parent": _ref("Tag"),
            "children": {"type": "array", "items": _ref("Tag")},
        },
    },
    "Error": {
        "type": "object",
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string"},
            "details": {"type": "object"},
        },
    },
}


def _input(name: str) -> dict[str, Any]:
    spoken = name.replace("_", " ")
    return {
        "type": "object",
        "description": f"One {spoken}.",
        "required": ["name", "status"],
        "properties": {
            "name": {"type": "string", "maxLength": 200, "description": f"The name of the {spoken}."},
            "status": {"type": "string", "enum": ["open", "closed", "waiting"]},
            "due": {"type": "string", "format": "date", "nullable": True},
            "count": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "ratio": {"type": "number", "maximum": 1},
            "active": {"type": "boolean", "default": True},
            "price": _ref("Money"),
            "address": _ref("Address"),
            "tags": {"type": "array", "items": _ref("Tag")},
            "notes": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }


def _resource(name: str, neighbour: str) -> dict[str, Any]:
    own = {
        "id": {"type": "string", "format": "uuid", "readOnly": True},
        "created_at": {"type": "string", "format": "date-time", "readOnly": True},
        "next": _ref(neighbour),
    }
    return {
        "allOf": [_ref(f"{_class(name)}Input"), {"type": "object", "required": ["id"], "properties": own}]
    }


def _operations(name: str, tangled: bool) -> Any:
    spoken, called = name.replace("_", " "), _class(name)
    many, one = f"/{name.replace('_', '-')}s", f"/{name.replace('_', '-')}s/{{id}}"
    tags, of = [name.rpartition("_")[2]], _ref(called)
    sent = of if tangled else _ref(f"{called}Input")
    identity = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": f"The id of the {spoken}.",
        "schema": {"type": "string"},
    }
    body = {"required": True, "content": {"application/json": {"schema": sent, "example": {"name": "x"}}}}
    yield (
        many,
        "get",
        {
            "operationId": f"list{called}s",
            "tags": tags,
            "summary": f"List {spoken}s",
            "description": f"Returns the {spoken}s that fit all filters, newest first.",
            "parameters": [
                _query(
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                    "How many to return.",
                ),
                _query("cursor", {"type": "string"}, "Where the last page ended."),
                _query(
                    "status",
                    {"type": "array", "items": {"type": "string", "enum": ["open", "closed", "waiting"]}},
                    "Only these.",
                ),
                _query("sort", {"type": "string", "enum": ["name", "created_at"]}, "The order."),
            ],
            "responses": _responses(
                "200",
                {
                    "type": "object",
                    "properties": {"items": {"type": "array", "items": of}, "next": {"type": "string"}},
                },
            ),
        },
    )
    yield (
        many,
        "post",
        {
            "operationId": f"create{called}",
            "tags": tags,
            "summary": f"Create a {spoken}",
            "requestBody": body,
            "responses": _responses("201", of),
        },
    )
    yield (
        one,
        "get",
        {
            "operationId": f"get{called}",
            "tags": tags,
            "summary": f"Read a {spoken}",
            "parameters": [identity],
            "responses": _responses("200", of),
        },
    )
    yield (
        one,
        "put",
        {
            "operationId": f"replace{called}",
            "tags": tags,
            "summary": f"Replace a {spoken}",
            "parameters": [identity],
            "requestBody": body,
            "responses": _responses("200", of),
        },
    )
    yield (
        one,
        "delete",
        {
            "operationId": f"delete{called}",
            "tags": tags,
            "summary": f"Delete a {spoken}",
            "parameters": [identity],
            "responses": {"204": {"description": "Gone."}},
        },
    )


def _query(name: str, schema: Any, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _responses(status: str, schema: Any) -> dict[str, Any]:
    error = {"description": "It failed.", "content": {"application/json": {"schema": _ref("Error")}}}
    return {
        status: {"description": "Done.", "content": {"application/json": {"schema": schema}}},
        "404": error,
        "422": error,
    }
