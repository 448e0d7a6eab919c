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
        cm: int

    class Gardener:
        def plant(self, size: Size): ...

    assert sig(Gardener().plant).parameters.validate({"size": {"cm": 1}}) == {"size": {"cm": 1}}


def make_tool():
    """Return a function that uses a class local to this one."""

    @dataclasses.dataclass
    class Water:
        litres: int

    def pour(water: Water):
        return Water(water.litres)

    return pour


def test_types_in_the_closure_are_resolved():
    """Types that the function itself uses are found in its closure after the outer function has returned."""
    assert sig(make_tool()).parameters.validate({"water": {"litres": 1}})["water"].litres == 1


def test_a_name_that_is_not_bound_yet_is_named():
    """A local type that is only defined later is an error that has its name."""

    def pour(water: Later):
        return Later

    with pytest.raises(DefinitionError, match="parameter 'water': .*'Later' is not defined"):
        sig(pour)

    class Later: ...


def test_a_type_for_the_type_checker_only_is_named():
    """A name that cannot be resolved is an error with the parameter's name and what to do."""

    def pay(amount: Decimal): ...

    with pytest.raises(
        DefinitionError, match="parameter 'amount': .*'Decimal' is not defined.*outside of TYPE_CHECKING"
    ):
        sig(pay)


@dataclasses.dataclass
class Receipt:
    amount: Decimal


def test_a_type_for_the_type_checker_only_in_a_class_is_named():
    """A name in a field that cannot be resolved is an error with that name and what to do."""

    def pay(receipt: Receipt): ...

    text = r"Receipt has no JSON schema: name 'Decimal' is not defined; .*outside of TYPE_CHECKING$"
    with pytest.raises(DefinitionError, match=text):
        sig(pay)


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
