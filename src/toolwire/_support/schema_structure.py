"""Where a JSON schema contains other schemas, and how it refers to them: tables for all code that walks schemas.

The keywords are those of draft 2020-12, and those of older drafts that still occur. Must not know why a schema is
walked.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

ONE: Final = (
    *("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    "additionalItems",  # before draft 2020-12
)
"""Keywords whose value is one schema. In older drafts, `items` may also be a list of them."""

LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose value is a list of schemas."""

TABLES: Final = (
    *("properties", "patternProperties", "$defs", "dependentSchemas"),
    *("definitions", "dependencies"),  # before draft 2019-09
)
"""Keywords whose value is a table of schemas by name. The names are not keywords, even if they look like one."""

IN_PLACE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
"""Keywords whose schemas are applied to the same value as the schema that they are in."""

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that apply a schema from elsewhere to the same value."""

_LONGEST_INDEX: Final = 6  # digits


def iter_subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keyword and the value of each schema inside a schema. In an invalid one, it may be any value."""
    for keyword, value in schema.items():
        if keyword in TABLES:
            inner = list(value.values()) if isinstance(value, dict) else []
        elif keyword in LISTS or (keyword == "items" and isinstance(value, list)):
            inner = value if isinstance(value, list) else []
        else:
            inner = [value] if keyword in ONE else []
        for each in inner:
            yield keyword, each


def resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the value that a reference inside the document `root` points to; None if there is none."""
    if not reference.startswith("#"):
        return None
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return _find_anchor(reference[1:], root)
    node: Any = root
    for raw in unquote(reference[2:]).split("/"):
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(step)
        elif (
            isinstance(node, list)
            and step.isdecimal()
            and len(step) <= _LONGEST_INDEX
            and int(step) < len(node)
        ):
            node = node[int(step)]
        else:
            return None
    return node


def _find_anchor(anchor: str, root: Mapping[str, Any]) -> Any:
    left: list[Any] = [root]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            if anchor in (each.get("$anchor"), each.get("$dynamicAnchor")):
                return each
            left.extend(inner for _, inner in iter_subschemas(each))
    return None
