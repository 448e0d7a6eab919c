"""Where a schema holds other schemas, and how it refers to them: the keywords that carry its structure."""

from typing import Final

ONE: Final = (
    *("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"),
    *("propertyNames", "not", "if", "then", "else"),
)
"""Keywords whose value is one schema."""

LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose value is a list of schemas."""

TABLES: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value is a table of schemas by name. The names are no keywords, whatever they are."""

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
