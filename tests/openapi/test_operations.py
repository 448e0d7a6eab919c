"""Randomly damaged documents: unusable operations are skipped, and the rest of the document still works."""

import copy
import json
import logging
import random

import jsonschema_rs
import pytest

from shared.echo_api import document, operation
from toolwire import OpenAPI
from toolwire.errors import UsageError

PET = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "kind": {"type": "string"},
        "id": {"type": "integer", "readOnly": True},
        "mother": {"$ref": "#/components/schemas/Pet"},
    },
    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat"}},
}
WHOLE = document(
    {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": operation(
                {"name": "q", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                tags=["pets"],
                security=[{"key": []}],
            ),
            "put": operation(
                body={
                    "application/json": {
                        "schema": {"oneOf": [{"$ref": "#/components/schemas/Cat"}], "nullable": True}
                    }
                }
            ),
        },
        "/files": {
            "post": operation(
                body={
                    "multipart/form-data": {
                        "schema": {
                            "type": "object",
                            "properties": {"f": {"type": "string", "format": "binary"}},
                        },
                        "encoding": {"f": {"contentType": "image/png"}},
                    }
                }
            )
        },
        "/form": {
            "post": operation(
                {"$ref": "#/components/parameters/Page"},
                body={"application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Pet"}}},
            )
        },
    },
    servers=[
        {"url": "https://{region}.example.com", "variables": {"region": {"default": "eu", "enum": ["eu"]}}}
    ],
    components={
        "schemas": {
            "Pet": PET,
            "Cat": {
                "allOf": [
                    {"$ref": "#/components/schemas/Pet"},
                    {
                        "type": "object",
                        "properties": {
                            "n": {
                                "type": "integer",
                                "minimum": 0,
                                "exclusiveMinimum": True,
                                "enum": [1, 2],
                                "default": 1,
                            }
                        },
                    },
                ]
            },
        },
        "parameters": {
            "Page": {
                "name": "page",
                "in": "query",
                "explode": False,
                "schema": {"type": "array", "items": {"type": "string", "pattern": "^a"}},
            }
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
        },
    },
)
JUNK = [
    *(
        None,
        5,
        -1.5,
        "x",
        "",
        [],
        {},
        True,
        [None],
        [[]],
        10**30,
        "\ud800",
        "\u202e",
        "a" * 3_000,
        "http://[",
    ),
    *(
        {"$ref": "#"},
        {"$ref": 5},
        {"$ref": ""},
        {"$ref": "#/a~2"},
        {"$ref": "//["},
        {"$ref": "#/paths"},
        {"allOf": [{"$ref": "#"}]},
    ),
]
NAMES = ["\ud800", "x y", "../", "{a}", "$ref", "type", "properties", "in", "style", "required"]


def damage(dice):
    """Return a copy of the document with a few parts replaced, removed or added."""
    made = copy.deepcopy(WHOLE)
    places, left = [], [made]
    while left:
        each = left.pop()
        for key, value in each.items() if isinstance(each, dict) else enumerate(each):
            places.append((each, key))
            if isinstance(value, dict | list):
                left.append(value)
    for owner, key in dice.sample(places, dice.choice([1, 3, 10])):
        if isinstance(owner, list):
            if key < len(owner):
                owner[key] = copy.deepcopy(dice.choice(JUNK))
        elif dice.random() < 0.2:
            owner.pop(key, None)
        else:
            owner[dice.choice([key, key, dice.choice(NAMES)])] = copy.deepcopy(dice.choice(JUNK))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_damage_affects_only_the_damaged_operations(seed, caplog):
    """The document is rejected with a reason, or the schemas of all its tools compile."""
    caplog.set_level(logging.ERROR)
    dice = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(10):
        content = json.dumps(damage(dice))
        server = OpenAPI({}, base_url="https://api.example.com", environ={}, output_schemas=seed % 3 == 0)
        try:
            server._publish(content.encode("utf-8", "surrogatepass"))
        except UsageError:
            continue
        for tool in server.tools.values():
            jsonschema_rs.validator_for(tool.definition["inputSchema"])
            json.dumps(tool.definition, ensure_ascii=False).encode()
        assert all(each.reason and "cannot be read: " not in each.reason for each in server.status.skipped), (
            content
        )
        server.find_problems()


def test_the_document_is_whole_before_it_is_damaged():
    """Otherwise the test with damaged copies would prove nothing."""
    server = OpenAPI(WHOLE, base_url="https://api.example.com", environ={})
    server.load()
    assert (len(server.tools), server.status.skipped) == (4, ())
