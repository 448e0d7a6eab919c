"""Raw schemas are checked when a tool is made; their validator is compiled and kept at the first call."""

import pytest

from toolwire.errors import ToolDefinitionError
from toolwire.tools.schema.arguments import InvalidArguments
from toolwire.tools.schema.json_schema import from_json_schema
from toolwire.tools.tool import Tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_no_validator_is_kept_before_the_first_arguments():
    """A validator is several times as large as its schema, and most of many tools are never called."""
    parameters = from_json_schema(SCHEMA)
    assert "_validator" not in vars(parameters)
    assert parameters.validate({"a": 1}) == {"a": 1}
    kept = vars(parameters)["_validator"]
    with pytest.raises(InvalidArguments, match="a: Field required"):
        parameters.validate({})
    assert vars(parameters)["_validator"] is kept


def test_the_first_arguments_are_checked_like_all_others():
    """Wrong arguments of the first call are refused too."""
    with pytest.raises(InvalidArguments, match="integer"):
        from_json_schema(SCHEMA).validate({"a": "x"})


@pytest.mark.parametrize(
    "property_schema",
    [
        {"type": "strin"},
        {"type": "string", "pattern": "(["},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/other.json"},
        {"minimum": "3"},
        {"patternProperties": {"([": {}}},
    ],
)
def test_what_would_not_compile_is_refused_when_the_tool_is_made(property_schema):
    """The check compiles the schema, so nothing can fail at the first call."""
    with pytest.raises(ToolDefinitionError, match="tool 'bad'"):
        Tool("bad", "", {"type": "object", "properties": {"a": property_schema}}, lambda _: None)


def test_a_handler_with_a_signature_of_its_own_is_still_looked_at():
    """For a decorated handler, the signature of the wrapped function says whether it takes the context."""

    def handler(arguments, context):
        return arguments, context

    def decorate(function):
        def wrapper(*args):
            return function(*args)

        wrapper.__wrapped__ = function
        return wrapper

    assert Tool("a", "", SCHEMA, decorate(handler)).takes_context
    assert Tool("a", "", SCHEMA, handler).takes_context
    assert not Tool("a", "", SCHEMA, lambda arguments: arguments).takes_context
    assert not Tool("a", "", SCHEMA, lambda arguments, limit=5: (arguments, limit)).takes_context
