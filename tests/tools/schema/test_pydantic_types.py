"""`readable`: Pydantic accepts types that contain the standard TypedDict, on every Python."""

import dataclasses
import sys
import typing
from typing import Annotated, Generic, NamedTuple, NewType, NotRequired, Required, TypedDict, TypeVar

import pytest
import typing_extensions
from pydantic import ConfigDict, Field, ValidationError
from pydantic.errors import PydanticUserError

from toolwire import ToolDefinitionError, tool
from toolwire.tools.schema.pydantic_types import adapter_of, readable

T = TypeVar("T")


class Leaf(TypedDict):
    """A leaf."""

    size: int
    note: NotRequired[str]


class Tree(TypedDict, total=False):
    name: Required[str]
    leaf: Annotated[Leaf, Field(description="the leaf")]
    trees: "list[Tree]"


class Box(TypedDict, Generic[T]):
    item: T
    more: list[T]


class Child(Leaf):
    age: int


class Closed(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    a: int


class ReadOnlyField(TypedDict):
    a: typing_extensions.ReadOnly[int]


class Pair(NamedTuple):
    first: Leaf
    second: int = 0


@dataclasses.dataclass
class Garden:
    tree: Tree
    leaves: list[Leaf] | None = None
    box: Box[int] | None = None


@dataclasses.dataclass
class Park(Generic[T]):
    inner: T
    gardens: dict[str, Garden] = dataclasses.field(default_factory=dict)


LeafId = NewType("LeafId", Leaf)
leaf = {"size": 1}

SHAPES = [
    (Leaf, leaf, leaf),
    (Leaf | None, None, None),
    (typing.Optional[Leaf], leaf, leaf),  # noqa: UP045 - to test the old spelling
    (typing.Union[int, Leaf], leaf, leaf),  # noqa: UP007 - to test the old spelling
    (list[Leaf], [leaf], [leaf]),
    (typing.List[Leaf], [leaf], [leaf]),  # noqa: UP006 - to test the old spelling
    (dict[str, Leaf], {"a": leaf}, {"a": leaf}),
    (tuple[int, Leaf], [1, leaf], (1, leaf)),
    (tuple[Leaf, ...], [leaf], (leaf,)),
    (typing.Sequence[Leaf], [leaf], [leaf]),
    (typing.Mapping[str, list[Leaf | None]], {"a": [leaf, None]}, {"a": [leaf, None]}),
    (Annotated[Leaf, "text"], leaf, leaf),
    (Annotated[list[Annotated[Leaf, Field(description="d")]], Field(min_length=1)], [leaf], [leaf]),
    (LeafId, leaf, leaf),
    (
        Tree,
        {"name": "a", "trees": [{"name": "b", "leaf": leaf}]},
        {"name": "a", "trees": [{"name": "b", "leaf": leaf}]},
    ),
    (Child, {"size": "1", "age": 2}, {"size": 1, "age": 2}),
    (Box[int], {"item": "1", "more": ["2"]}, {"item": 1, "more": [2]}),
    (Box[Leaf], {"item": leaf, "more": []}, {"item": leaf, "more": []}),
    (Box, {"item": "1", "more": [None]}, {"item": "1", "more": [None]}),
    (ReadOnlyField, {"a": 1}, {"a": 1}),
]


@pytest.mark.filterwarnings("ignore:Item 'a' on TypedDict class:UserWarning")
@pytest.mark.parametrize(("annotation", "sent", "value"), SHAPES, ids=[str(shape[0]) for shape in SHAPES])
def test_a_readable_type_is_one_that_pydantic_takes(annotation, sent, value):
    """The standard TypedDict validates and has a schema wherever it stands in a type."""
    adapter = adapter_of(readable(annotation))
    assert adapter.validate_python(sent) == value
    assert adapter.json_schema()


def test_the_schema_is_that_of_the_class():
    """Name, docstring, required keys, descriptions and recursion are kept."""
    schema = adapter_of(readable(Tree)).json_schema()
    assert schema["$ref"] == "#/$defs/Tree"
    assert schema["$defs"]["Leaf"]["description"] == "A leaf."
    assert schema["$defs"]["Leaf"]["required"] == ["size"]
    assert schema["$defs"]["Tree"]["required"] == ["name"]
    assert schema["$defs"]["Tree"]["properties"]["leaf"] == {
        "$ref": "#/$defs/Leaf",
        "description": "the leaf",
    }
    assert schema["$defs"]["Tree"]["properties"]["trees"]["items"] == {"$ref": "#/$defs/Tree"}


def test_the_settings_of_the_class_are_kept():
    """`__pydantic_config__` of the class is respected."""
    with pytest.raises(ValidationError, match="Extra inputs"):
        adapter_of(readable(Closed)).validate_python({"a": 1, "b": 2})


def test_local_names_are_found_in_the_namespace():
    """String annotations may use names from the given namespace."""

    class Local(TypedDict):
        size: int

    class Outer(TypedDict):
        inner: "Local"

    names = {"Local": Local}
    adapter = adapter_of(readable(Outer, names), names)
    assert adapter.validate_python({"inner": {"size": "1"}}) == {"inner": {"size": 1}}
    assert typing.get_type_hints(Outer, localns=names) == {"inner": Local}


def test_a_name_that_nobody_knows_is_left_to_pydantic():
    """An unknown name raises no error in `readable`: Pydantic's error has the name."""

    class Lost(TypedDict):
        inner: "Nowhere"  # noqa: F821 - an unknown name is what is tested

    with pytest.raises((PydanticUserError, NameError)):
        adapter_of(readable(list[Lost])).validate_python([])


def test_the_class_stays_what_it_was():
    """The user's class is not modified."""
    before = dict(vars(Leaf))
    adapter_of(readable(Leaf))
    assert dict(vars(Leaf)) == before
    assert typing.is_typeddict(Leaf)
    assert Leaf(size=1) == {"size": 1}
    assert set(Leaf.__annotations__) == {"size", "note"}


@pytest.mark.parametrize(
    "given",
    [5, "text", None, typing.Any, int, list, T, [1], object()],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_anything_else_is_left_alone(given):
    """A type without a TypedDict, or a value that is no type, is returned unchanged."""
    assert readable(given) is given


INSIDE = [
    (Pair, [leaf], Pair({"size": 1}, 0)),
    (
        Garden,
        {"tree": {"name": "a"}, "leaves": [leaf], "box": {"item": 1, "more": ["2"]}},
        Garden({"name": "a"}, [{"size": 1}], {"item": 1, "more": [2]}),
    ),
    (
        Park[Leaf],
        {"inner": leaf, "gardens": {"g": {"tree": {"name": "x"}}}},
        Park(leaf, {"g": Garden({"name": "x"})}),
    ),
]


@pytest.mark.parametrize(("annotation", "sent", "value"), INSIDE, ids=[str(shape[0]) for shape in INSIDE])
def test_inside_of_other_classes_it_is_for_pydantic_to_take(annotation, sent, value):
    """A standard TypedDict in another class is left to Pydantic; before Python 3.12 its error says what to do."""
    if sys.version_info >= (3, 12):
        assert adapter_of(readable(annotation)).validate_python(sent) == value
        return
    with pytest.raises(PydanticUserError, match="typing_extensions.TypedDict"):
        adapter_of(readable(annotation))


def test_a_tool_says_what_to_do_about_it():
    """The tool's error has the parameter's name and the import that works."""
    if sys.version_info >= (3, 12):
        pytest.skip("Pydantic takes it here")

    def plant(garden: Garden) -> str: ...

    with pytest.raises(ToolDefinitionError, match=r"parameter 'garden'.*typing_extensions.TypedDict"):
        tool(plant)
