"""890 entries of 114 products in the shapes in which a real vendor publishes its actions, each with its sample.

They are made by rule, the same every time: properties in alphabetical order, each with a boolean `required`; a
sample of at most eight parameters, texts as `example ...`. The words are ours.
"""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from toolwire.catalog.tools.definitions import Entry

PRODUCTS, ACTIONS = 114, 890
_LONGEST_SAMPLE = 8


@dataclass(frozen=True)
class Published:
    """One action as the vendor publishes it."""

    entry: Entry
    sample: dict[str, Any] = field(hash=False)
    fits: bool
    """Whether the sample has all that the API requires: long ones are cut."""


def text(name, **more):
    """Return the schema of a text parameter, and its sample."""
    return {"description": f"The {name} — as the service knows it.", "type": "string", **more}, (
        f"example {name.replace('_', ' ')}"
    )


# Name -> schema and sample. `required` is added to each.
_USUAL = {
    name: text(name)
    for name in (
        *(
            "space",
            "message_name",
            "page_token",
            "query",
            "title",
            "description",
            "type",
            "format",
            "default",
        ),
        *("id", "pattern", "required", "enum", "const", "not", "if", "then", "else", "name", "url", "email"),
    )
}
_LONG = 'Answers with JSON such as {"rows": [{"id": 1}], "next": null} — “quoted”, and more of it. ' * 40
_UNUSUAL = {
    "page_size": ({"default": 50, "maximum": 1000, "minimum": 1, "type": "integer"}, 50),
    "skip": ({"minimum": 0, "type": "int"}, 0),
    "timeout_seconds": ({"default": "600", "maximum": "1200", "minimum": 10, "type": "integer"}, 600),
    "temperature": ({"default": 0.7, "maximum": 2, "minimum": 0, "type": "float"}, 0.7),
    "amount_wei": ({"maximum": 2**256 - 1, "minimum": 0, "type": "integer"}, 2**256 - 1),
    "minutes_saved": ({"minimum": 0, "type": "number"}, 1),
    "build_jar": ({"default": True, "type": "boolean"}, True),
    "validate_output": ({"default": "false", "type": "bool"}, False),
    "output_mode": ({"default": "both", "enum": ["source", "both"], "type": "string"}, "both"),
    "reaction": ({"default": "👍", "enum": ["👍", "❤️", "👩🏽‍💻", "🏳️‍🌈"], "type": "string"}, "👍"),
    "emoji_unicode": ({"description": "A reaction (e.g., '❤️' or '👍🏽').", "type": "string"}, "👍"),
    "locale_label": ({"enum": ["می‌خواهم", "हिन्दी", "Donau\u00addampf"], "type": "string"}, "می‌خواهم"),
    "line_ending": ({"enum": ["\n", "\r\n"], "default": "\n", "type": "string"}, "\r\n"),
    "rows": ({"items": {"type": "object"}, "type": "array"}, [{}]),
    "items": ({"description": "Lines of the order.", "items": {"type": "object"}, "type": "array"}, [{}]),
    "tags": ({"items": {"description": "", "type": "string"}, "type": "array"}, ["example tag"]),
    "row_numbers": (
        {
            "items": {"minimum": 2, "type": "integer"},
            "maxItems": 500,
            "minItems": 1,
            "type": "array",
            "uniqueItems": True,
        },
        [2],
    ),
    "recipients": ({"type": "array"}, ["example recipient"]),
    "rule": ({"type": "object"}, {}),
    "metadata": ({"additionalProperties": True, "type": "object"}, {"any": 1}),
    "labels": ({"additionalProperties": {"type": "string"}, "type": "object"}, {"a": "b"}),
    "properties": (
        {
            "properties": {
                "items": {"items": {"type": "object"}, "required": False, "type": "array"},
                "type": {"description": "Its kind.", "required": True, "type": "string"},
                "properties": {"required": False, "type": "object"},
                "limit": {"default": None, "required": False, "type": "integer"},
            },
            "type": "object",
        },
        {"items": [{}], "type": "example type", "properties": {}, "limit": None},
    ),
    "definitions": ({"items": {"type": "string"}, "type": "array"}, ["example definition"]),
    "skin_pack": (
        {
            "description": "Nested, with a boolean `required` at each level.",
            "properties": {
                "skins": {
                    "items": {
                        "properties": {"texture": {"required": True, "type": "string"}},
                        "type": "object",
                    },
                    "required": True,
                    "type": "array",
                }
            },
            "type": "object",
        },
        {"skins": [{"texture": "example texture"}]},
    ),
    "start_date": ({"format": "date", "type": "string"}, "2026-01-31"),
    "created_after": ({"format": "date-time", "type": "datetime"}, "2026-01-31T10:00:00Z"),
    "mod_id": ({"pattern": "^[a-z][a-z0-9_]{1,63}$", "type": "string"}, "example_mod"),
    "filter": ({"description": _LONG, "type": "string"}, "example filter"),
    "payload": ({"description": "Anything at all."}, {"free": [1, None]}),
    "parent_id": ({"default": None, "type": "string"}, None),
    "max_price": ({"default": None, "minimum": 0, "type": "number"}, None),
    "sort_by": ({"default": None, "enum": ["name", "date"], "type": "string"}, None),
    "attachments": ({"default": None, "items": {"type": "object"}, "type": "array"}, None),
    "options": ({"default": None, "properties": {"a": {"type": "string"}}, "type": "object"}, None),
    "priority": ({"enum": ["low", "high", None], "type": "string"}, None),
}
_ALL = _USUAL | _UNUSUAL


def published() -> list[Published]:
    """Make all of them, in the order of their products."""
    choose = random.Random(13)  # noqa: S311 - the same every time
    unusual = itertools.cycle(_UNUSUAL)
    made = []
    for number in range(ACTIONS):
        product, action = number % PRODUCTS, number // PRODUCTS
        count = (0, 1, 2, 3, 4, 6, 16)[number % 7]
        names = {next(unusual), *choose.sample(sorted(_ALL), count - 1)} if count else set()
        made.append(_publish(product, action, sorted(names), choose))
    return sorted(made, key=lambda each: each.entry.id)


def _publish(product: int, action: int, names: list[str], choose: random.Random) -> Published:
    needed = {name: choose.random() < 0.4 for name in names}
    schema = {name: {**_ALL[name][0], "required": needed[name]} for name in names}
    sample = {name: _ALL[name][1] for name in names[:_LONGEST_SAMPLE]}
    entry = Entry(
        id=f"product-{product}/action-{action}",
        name=f"product-{product}-action-{action}",
        description=f"Product {product} — Action {action} of it, with {len(names)} parameters. ✅",
        schema=schema,
        price=10_000 * (action % 16),
        category=f"category {product % 9}",
    )
    return Published(entry, sample, fits=all(name in sample for name in names if needed[name]))
