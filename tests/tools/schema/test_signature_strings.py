"""Annotations that are strings, as in any module with `from __future__ import annotations`."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

import pytest
from typing_extensions import TypeAliasType

from toolwire.tools.schema.arguments import InvalidArguments
from toolwire.tools.schema.signature import DefinitionError, signature_of

if TYPE_CHECKING:
    from decimal import Decimal


class Context:
    """Stands for the context of a call."""


@dataclasses.dataclass
class Branch:
    name: str
    twigs: list[Branch] = dataclasses.field(default_factory=list)


class Leaf(TypedDict):
    color: str
    veins: NotRequired[int]
    next: NotRequired[Leaf | None]


def sig(function):
    return signature_of(function, context_type=Context)


def prune(
    branch: Branch, leaf: Leaf | None = None, *, how: Annotated[Literal["soft", "hard"], "Force"] = "soft"
): ...


def test_strings_are_resolved_in_their_module():
    """Classes, unions, Annotated and Literal in strings are resolved, recursive ones too."""
    parameters = sig(prune).parameters
    properties = parameters.json_schema["properties"]
    assert properties["branch"] == {"$ref": "#/$defs/Branch"}
    assert properties["how"] == {
        "type": "string",
        "enum": ["soft", "hard"],
        "description": "Force",
        "default": "soft",
    }
    assert parameters.json_schema["$defs"]["Leaf"]["required"] == ["color"]
    values = parameters.validate(
        {
            "branch": {"name": "a", "twigs": [{"name": "b"}]},
            "leaf": {"color": "red", "next": {"color": "green"}},
        }
    )
    assert values == {
        "branch": Branch("a", [Branch("b")]),
        "leaf": {"color": "red", "next": {"color": "green"}},
    }


def test_local_types_are_resolved():
    """A function defined in a function may use the types defined there, which hide those of the module."""

    @dataclasses.dataclass
    class Branch:
        size: int

    class Seed(TypedDict):
        weight: NotRequired[float]

    def grow(branch: Branch, seeds: list[Seed], context: Context): ...

    signature = sig(grow)
    assert signature.context_parameter == "context"
    values = signature.parameters.validate({"branch": {"size": 1}, "seeds": [{"weight": 2}, {}]})
    assert values == {"branch": Branch(1), "seeds": [{"weight": 2.0}, {}]}


def test_local_types_of_a_method_are_resolved():
    """A method of a local class may use local types."""

    class Size(TypedDict):
        width: int

    class Box(TypedDict):
        size: Size

    @dataclasses.dataclass
    class Item:
        count: int

    @dataclasses.dataclass
    class Order:
        items: list[Item]

    def store(box: Box, order: Order): ...

    parameters = sig(store).parameters
    box, order = {"size": {"width": 1}}, {"items": [{"count": 2}]}
    assert parameters.validate({"box": box, "order": order}) == {"box": box, "order": Order([Item(2)])}
    for wrong in ({"box": {"size": {}}, "order": order}, {"box": box, "order": {"items": [{}]}}):
        with pytest.raises(InvalidArguments, match="width|count"):
            parameters.validate(wrong)


Nested = dict[str, "Nested"] | list["Nested"] | str


def test_an_alias_that_contains_itself_is_named():
    """It has no JSON schema; the error has its name and says how to write it instead."""

    def store(value: Nested): ...

    with pytest.raises(DefinitionError, match="'Nested' is an alias that contains itself; .*TypeAliasType"):
        sig(store)


Tree = TypeAliasType("Tree", "dict[str, Tree] | list[Tree] | str")


def test_an_alias_type_that_contains_itself_has_a_schema():
    """What the error above suggests works."""

    def store(value: Tree): ...

    assert sig(store).parameters.validate({"value": {"a": ["b", {}]}}) == {"value": {"a": ["b", {}]}}
    with pytest.raises(InvalidArguments):
        sig(store).parameters.validate({"value": {"a": [1]}})


def test_an_unresolvable_return_type_does_no_harm():
    """It is only needed for structured output."""

    def pay(amount: int) -> Decimal: ...

    assert sig(pay).output_schema is None


def test_wrapped_functions_are_resolved_where_they_were_written():
    """A decorator's wrapper has the annotations of the wrapped function."""

    @functools.wraps(prune)
    def wrapper(*args, **kwargs): ...

    assert sig(wrapper).parameters.json_schema == sig(prune).parameters.json_schema
