"""Large arguments that are invalid: the first errors are listed, without checking for long."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from toolwire.tools.context import Context
from toolwire.tools.schema.arguments import InvalidArguments, shorten
from toolwire.tools.schema.json_schema import compile_schema, from_json_schema
from toolwire.tools.schema.signature import signature_of

MANY = 20_000
TREE = {
    "type": "object",
    "properties": {"it": {"$ref": "#/$defs/tree"}, "few": {"type": "array", "minItems": 50}},
    "$defs": {"tree": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/tree"}}, {"type": "integer"}]}},
}


class Row(BaseModel):
    """Of a table."""

    number: int


def typed(it: list[Row], tags: Annotated[list[int], Field(min_length=150)] = ()) -> None:
    """Take a table."""


def refused(parameters, arguments):
    """Return the error that refuses these arguments."""
    with pytest.raises(InvalidArguments) as caught:
        parameters.validate(arguments)
    return caught.value


def test_very_many_mistakes_by_types():
    """The first are listed, all are counted, and the message is short."""
    error = refused(signature_of(typed, context_type=Context).parameters, {"it": [{"number": "x"}] * MANY})
    assert error.violations[0].path == "it[0].number"
    assert len(error.violations) <= 1_000
    assert str(error).endswith(f"... and {MANY - 20} more")
    assert len(str(error)) < 4_000


def test_very_many_mistakes_by_a_schema():
    """Also with a schema that refers to itself, where each error takes long to find."""
    error = refused(from_json_schema(TREE), {"it": [["x"]] * MANY})
    assert error.violations[0].path == "it"
    assert "fits none of the allowed forms" in str(error)
    assert len(str(error)) < 4_000


def test_mistakes_that_are_far_behind():
    """They are not listed; the error only says that the arguments do not fit and are too large."""
    numbers = {"it": [1] * MANY + ["x"], "few": [1] * 200}
    assert str(refused(from_json_schema(TREE), numbers)) == (
        "Validation failed: The arguments do not fit the schema, and are too large to list the errors"
    )
    table = {"it": [{"number": 1}] * MANY + [{"number": "x"}] * MANY, "tags": [1] * 200}
    assert str(refused(signature_of(typed, context_type=Context).parameters, table)) == (
        "Validation failed: The arguments do not fit the schema, and are too large to list the errors"
    )


def test_a_mistake_far_behind_is_named_if_it_is_one_of_few():
    """Finding it takes no extra time with typed parameters."""
    error = refused(
        signature_of(typed, context_type=Context).parameters,
        {"it": [{"number": 1}] * MANY + [{"number": "x"}]},
    )
    assert [each.path for each in error.violations] == [f"it[{MANY}].number"]


def test_what_is_cut_off():
    """Lists are shortened as much as needed; objects are not, so the result may be None."""
    small = {"a": [1, 2, 3]}
    assert shorten(small, 10) is small
    assert shorten({"a": [1] * 500, "b": "x"}, 200) == {"a": [1] * 100, "b": "x"}
    assert shorten({"a": [[1] * 50] * 50}, 200) == {"a": [[1] * 10] * 10}
    assert shorten({"a": [1] * 500}, 5) == {"a": [1, 1]}
    assert shorten({str(number): 1 for number in range(500)}, 200) is None


@pytest.mark.parametrize(
    "wrap", [lambda n: n, lambda n: [n], lambda n: {"a": n}], ids=["plain", "lists", "objects"]
)
@pytest.mark.parametrize(
    "first", [2**62, 2**70, -(2**70), 10**900], ids=["2**62", "2**70", "-2**70", "10**900"]
)
def test_integers_that_are_alike_do_not_take_the_validator_for_minutes(first, wrap):
    """Many integers close to one another are refused where they must be unique, since the validator would compare
    each with all others. Elsewhere they are accepted.
    """
    unique, plain = (
        compile_schema(
            {"properties": {"it": {"type": "array", "uniqueItems": flag}}} if flag else {"properties": {}}
        )
        for flag in (True, False)
    )
    arguments = {"it": [wrap(first + number) for number in range(500)]}
    with pytest.raises(InvalidArguments, match="close to one another"):
        unique.validate(arguments)
    assert plain.validate(arguments) == arguments
    few = {"it": arguments["it"][:40]}
    assert unique.validate(few) == few
    with pytest.raises(InvalidArguments, match="unique"):
        unique.validate({"it": [*few["it"], few["it"][0]]})


def test_integers_that_are_far_apart_may_be_many():
    """For example the ids of messages, which begin with the time."""
    unique = compile_schema({"properties": {"it": {"uniqueItems": True}}})
    arguments = {"it": [2**62 + (number << 22) for number in range(5_000)]}
    assert unique.validate(arguments) == arguments
