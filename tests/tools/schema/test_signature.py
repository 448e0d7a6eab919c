"""Typed functions: their schema, the arguments they accept, and how they are called."""

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import pickle
import re
import typing
import uuid
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from toolwire.errors import ToolDefinitionError
from toolwire.tools.schema.arguments import InvalidArguments, Violation
from toolwire.tools.schema.json_schema import from_json_schema
from toolwire.tools.schema.signature import DefinitionError, signature_of

S = TypeVar("S")


class Context(Generic[S]):
    """Stands for the context of a call."""


class SubContext(Context[int]):
    """A subclass of the context."""


class Color(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Unit(enum.StrEnum):
    METRE = "m"


@dataclasses.dataclass
class Point:
    x: int
    y: Annotated[int, "Height"] = 0


class Movie(TypedDict):
    title: str
    year: NotRequired[Annotated[int, "Year of release"]]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Node(BaseModel):
    """A node of a tree."""

    value: int
    children: "list[Node]" = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    inner: Node | None = None


class Exact(BaseModel):
    model_config = ConfigDict(strict=True)
    on: dt.date


UserId = NewType("UserId", int)


def sig(function, **more):
    return signature_of(function, context_type=Context, **more)


def taking(annotation, *default):
    """Return the signature of a function with one parameter, `it`."""

    def function(it): ...

    function.__annotations__ = {"it": annotation}
    function.__defaults__ = default or None
    return sig(function)


def schema_of(annotation, *default):
    return taking(annotation, *default).parameters.json_schema["properties"]["it"]


def value_of(annotation, value):
    return taking(annotation).parameters.validate({"it": value})["it"]


def refusal_of(annotation, value):
    with pytest.raises(InvalidArguments) as caught:
        value_of(annotation, value)
    return caught.value.violations


def greet(name: str, formal: bool = False) -> str:
    """Greet a person.

    In their own language, where known.

    Args:
        name: Person to greet
        formal: Use formal greeting

    Returns:
        The greeting.
    """
    return f"{'Good day' if formal else 'Hi'}, {name}"


def test_the_golden_case():
    """The whole schema of `greet`, with the descriptions of its docstring."""
    signature = sig(greet)
    assert signature.parameters.json_schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Person to greet"},
            "formal": {"type": "boolean", "description": "Use formal greeting", "default": False},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert signature.description == "Greet a person.\n\nIn their own language, where known."
    assert signature.context_parameter is None


def test_no_parameters_is_an_empty_object():
    """A function without parameters accepts an empty object and nothing else."""
    parameters = sig(lambda: None).parameters
    assert parameters.json_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert parameters.validate({}) == {}
    with pytest.raises(InvalidArguments, match="a: Unknown argument"):
        parameters.validate({"a": 1})


@pytest.mark.parametrize(
    ("annotation", "schema", "sent", "value"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, "15", 15),
        (float, {"type": "number"}, 1, 1.0),
        (bool, {"type": "boolean"}, True, True),
        (None, {"type": "null"}, None, None),
        (Any, {}, {"a": [1]}, {"a": [1]}),
        (Literal["a", 1], {"enum": ["a", 1]}, 1, 1),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045 - to test the old spelling
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "1", "1"),  # noqa: UP007 - to test the old spelling
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3, 3),
        (list[int], {"type": "array", "items": {"type": "integer"}}, ["1"], [1]),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1], (1,)),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1], {1}),
        (
            frozenset[int],
            {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
            [1],
            frozenset({1}),
        ),
        (typing.Sequence[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
        (
            collections.abc.Mapping[str, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {},
            {},
        ),
        (typing.Iterable[int], {"type": "array", "items": {"type": "integer"}}, ["1"], [1]),
        (collections.abc.Iterable, {"type": "array", "items": {}}, [1], [1]),
        (dt.date, {"type": "string", "format": "date"}, "2024-01-02", dt.date(2024, 1, 2)),
        (dt.time, {"type": "string", "format": "time"}, "10:30", dt.time(10, 30)),
        (dt.timedelta, {"type": "string", "format": "duration"}, "PT1H", dt.timedelta(hours=1)),
        (uuid.UUID, {"type": "string", "format": "uuid"}, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        (pathlib.Path, {"type": "string", "format": "path"}, "a/b", pathlib.Path("a/b")),
        (bytes, {"type": "string", "format": "binary"}, "abc", b"abc"),
        (UserId, {"type": "integer"}, 7, 7),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_type_has_its_schema_and_its_values(annotation, schema, sent, value):
    """Each simple type has its JSON schema, and its values become Python's."""
    assert schema_of(annotation) == schema
    result = value_of(annotation, sent)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("annotation", "schema", "sent", "value"),
    [
        (Color, {"enum": ["red", 1]}, "red", Color.RED),
        (Level, {"enum": [1, 2], "type": "integer"}, 2, Level.HIGH),
        (Unit, {"enum": ["m"], "type": "string"}, "m", Unit.METRE),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "integer", "default": 0, "description": "Height"},
                },
                "required": ["x"],
                "additionalProperties": False,
            },
            {"x": "1"},
            Point(1, 0),
        ),
        (
            Movie,
            {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "year": {"type": "integer", "description": "Year of release"},
                },
                "required": ["title"],
                "additionalProperties": False,
            },
            {"title": "M"},
            {"title": "M"},
        ),
        (
            Node,
            {
                "type": "object",
                "description": "A node of a tree.",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
                },
                "required": ["value"],
                "additionalProperties": False,
            },
            {"value": 1, "children": [{"value": 2}]},
            Node(value=1, children=[Node(value=2)]),
        ),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_class_is_a_definition(annotation, schema, sent, value):
    """Each class stands once in $defs, and the function gets instances of it."""
    parameters = taking(annotation).parameters
    assert parameters.json_schema["$defs"] == {annotation.__name__: schema}
    assert parameters.json_schema["properties"] == {"it": {"$ref": f"#/$defs/{annotation.__name__}"}}
    result = parameters.validate({"it": sent})["it"]
    assert (result, type(result)) == (value, type(value))


def test_a_named_tuple_comes_from_a_list():
    """A named tuple is an array in JSON."""
    assert value_of(Pair, [1]) == Pair(1, "r")
    assert value_of(tuple[int, Pair], [1, [2, "x"]]) == (1, Pair(2, "x"))


def test_a_decimal_keeps_its_digits():
    """A Decimal is exact, whether it is sent as a string or as a number."""
    assert value_of(decimal.Decimal, "0.10") == decimal.Decimal("0.10")
    assert value_of(decimal.Decimal, 0.1) == decimal.Decimal("0.1")


def test_values_are_read_as_json_in_unions_and_strict_models():
    """A string is accepted as a date in a union or strict model, since JSON has no dates."""
    assert value_of(dt.date | str, "2024-01-02") == dt.date(2024, 1, 2)
    assert value_of(Exact, {"on": "2024-01-02"}) == Exact(on=dt.date(2024, 1, 2))


def test_titles_are_only_those_that_the_author_wrote():
    """No title is derived from a name; a property called `title` and explicit titles are kept."""

    class Book(BaseModel):
        title: str
        subtitle: Annotated[str, Field(title="Second line")]

    class Named(BaseModel):
        model_config = ConfigDict(title="A name")
        a: int

    def store(title: str, *, book: Book, named: Named, color: Color, movie: Movie, point: Point): ...

    schema = sig(store).parameters.json_schema
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Book"]["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Named"]["title"] == "A name"
    written = re.findall(r'"title": "([^"]*)"', json.dumps(schema))
    assert sorted(written) == ["A name", "Second line"]


def test_descriptions_by_precedence():
    """`Field(description=...)` wins over text in `Annotated`, which wins over the docstring."""

    def function(
        a: Annotated[int, "text", Field(description="field")],
        b: Annotated[int, "text"],
        c: Annotated[int, typing_extensions.Doc("doc")],
        d: list[Annotated[int, "item"]],
        e: int,
    ):
        """Do it.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
            e: docstring
        """

    properties = sig(function).parameters.json_schema["properties"]
    assert [each["description"] for each in properties.values()] == [
        "field",
        "text",
        "doc",
        "docstring",
        "docstring",
    ]
    assert properties["d"]["items"] == {"type": "integer", "description": "item"}


def test_two_parameters_of_one_type_have_descriptions_of_their_own():
    """The description of one does not appear at the other, although they share a definition."""

    def function(a: Color, b: Color):
        """Mix.

        :param a: first
        """

    properties = sig(function).parameters.json_schema["properties"]
    assert properties == {
        "a": {"$ref": "#/$defs/Color", "description": "first"},
        "b": {"$ref": "#/$defs/Color"},
    }


def test_constraints_are_advertised_and_checked():
    """Constraints of `Field` are in the schema and are checked."""
    assert schema_of(Annotated[int, Field(ge=1, le=5)]) == {"type": "integer", "minimum": 1, "maximum": 5}
    assert refusal_of(Annotated[int, Field(ge=1)], 0) == [
        Violation("it", "Input should be greater than or equal to 1, got 0")
    ]


def test_an_alias_is_the_name_on_the_wire():
    """JSON has the alias, the function gets its parameter's own name."""

    def send(sender: Annotated[str, Field(alias="from")], to: str = "all"):
        """Send.

        Args:
            sender: Who sends
        """

    parameters = sig(send).parameters
    assert parameters.json_schema["properties"]["from"] == {"type": "string", "description": "Who sends"}
    assert parameters.json_schema["required"] == ["from"]
    assert parameters.validate({"from": "me"}) == {"sender": "me"}


def test_two_parameters_with_one_wire_name_are_refused():
    """An alias that is the name of another parameter is an error."""

    def send(sender: Annotated[str, Field(alias="to")], to: str): ...

    with pytest.raises(DefinitionError, match="same name in JSON"):
        sig(send)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 5, 5),
        (str, "a", "a"),
        (float, 1.5, 1.5),
        (int | None, None, None),
        (dt.date, dt.date(2024, 1, 2), "2024-01-02"),
        (Color, Color.RED, "red"),
        (list[int], [1], [1]),
        (set[int], {1}, [1]),
        (Point, Point(1), {"x": 1, "y": 0}),
        (Any, None, None),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_default_that_json_can_say_is_shown(annotation, default, shown):
    """The schema has the default of an argument that may be left out."""
    signature = taking(annotation, default)
    assert signature.parameters.json_schema["properties"]["it"]["default"] == shown
    assert "required" not in signature.parameters.json_schema
    assert signature.parameters.validate({}) == {}


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Any, object()),
        (float, float("inf")),
        (float, float("nan")),
        (pydantic.SecretStr, pydantic.SecretStr("hidden")),
        (Annotated[float, Field(gt=1)], 0.5),
        (list[int], ()),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_default_that_json_cannot_say_only_makes_it_optional(annotation, default):
    """Sentinels, secrets, and defaults that would be invalid as arguments are not in the schema."""
    signature = taking(annotation, default)
    assert "default" not in signature.parameters.json_schema["properties"]["it"]
    assert "required" not in signature.parameters.json_schema


def test_integers_over_64_bits_are_numbers_like_any_other():
    """They work as a default, a choice, a limit and an argument: a balance in wei has 256 bits."""
    most = 2**256 - 1
    assert taking(int, most).parameters.json_schema["properties"]["it"]["default"] == most
    assert taking(Literal[2**70]).parameters.validate({"it": 2**70}) == {"it": 2**70}
    limited = taking(Annotated[int, Field(le=most)]).parameters
    assert limited.json_schema["properties"]["it"]["maximum"] == most
    assert limited.validate({"it": most}) == {"it": most}
    with pytest.raises(InvalidArguments, match=f"less than or equal to {most}"):
        limited.validate({"it": most + 1})


def test_a_default_of_none_makes_the_type_nullable():
    """With `x: int = None`, null is accepted; constraints and description are kept."""
    assert schema_of(Annotated[int, Field(ge=1, description="d")], None) == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "description": "d",
        "default": None,
    }
    assert taking(int, None).parameters.validate({"it": None}) == {"it": None}


def test_a_type_that_is_nullable_already_stays_as_it_is():
    """A default of None adds no second null, however deep the first is."""
    maybe = NewType("maybe", int | None)  # type: ignore[valid-newtype]
    assert schema_of(maybe, None) == schema_of(int | None, None)
    assert schema_of(Annotated[int | None, "text"] | str, None)["anyOf"][1:] == [{"type": "string"}]
    assert schema_of(Literal[1, None], None) == {"enum": [1, None], "default": None}  # noqa: PYI061 - tested here


def test_discriminated_unions():
    """The tag selects the branch, and errors in the branch are reported with their path."""

    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]
        tricks: list[str]

    pet = Annotated[Cat | Dog, Field(discriminator="kind")]
    assert value_of(list[pet], [{"kind": "cat", "lives": 9}]) == [Cat(kind="cat", lives=9)]
    found = refusal_of(list[pet], [{"kind": "dog", "lives": 9}])
    assert {each.path for each in found} == {
        "it[0].tricks",
        "it[0].lives",
    }  # their order is up to Pydantic


def test_defaults_by_field():
    """`Field` can give the default, but one in the function's signature overrides it."""

    def function(
        a: int = Field(3, ge=1),
        b: int = Field(description="needed"),
        c: list[int] = Field(default_factory=list),  # noqa: B008 - FastAPI's way of writing it is what is tested
        d: Annotated[int, Field(default=1)] = 2,
        *,
        e: Annotated[int, Field(default=5)],
    ): ...

    parameters = sig(function).parameters
    assert parameters.json_schema["properties"]["a"] == {"type": "integer", "minimum": 1, "default": 3}
    assert parameters.json_schema["properties"]["d"] == {"type": "integer", "default": 2}
    assert parameters.json_schema["required"] == ["b"]
    assert parameters.validate({"b": 0}) == {"a": 3, "b": 0, "c": [], "d": 2, "e": 5}


def test_names_that_others_stumble_over():
    """Parameters may have names that Pydantic uses itself, and any that Python allows."""
    names = [
        "schema",
        "model_config",
        "copy",
        "json",
        "class_",
        "_private",
        "self",
        "cls",
        "type",
        "title",
        "имя",
        "naïve",
    ]
    space: dict[str, Any] = {}
    exec(f"def function({', '.join(f'{name}: int' for name in names)}): return locals()", space)  # noqa: S102 - built from the list above
    signature = sig(space["function"])
    arguments = dict(zip(names, range(len(names)), strict=True))
    assert signature.parameters.json_schema["required"] == names
    args, kwargs = signature.arguments_for(signature.parameters.validate(arguments), None)
    assert space["function"](*args, **kwargs) == arguments


def test_unannotated_parameters_take_anything():
    """Without an annotation, the value is not checked."""
    assert schema_of(typing.Any) == sig(lambda it: None).parameters.json_schema["properties"]["it"] == {}


def test_every_violation_is_told_with_its_path():
    """One message lists everything that is wrong."""

    def add(a: float, b: float, points: list[Point] | None = None): ...

    with pytest.raises(InvalidArguments) as caught:
        sig(add).parameters.validate({"a": "x", "points": [{"x": 1}, {"y": "high", "z": 1}]})
    assert str(caught.value) == (
        "Validation failed: a: Input should be a valid number, got 'x'; b: Field required; "
        "points[1].x: Field required; points[1].y: Input should be a valid integer, got 'high'; "
        "points[1].z: Unknown argument"
    )


def test_the_text_of_violations_is_bounded():
    """Twenty are shown and the rest counted, long values and names are cut; the list has all of them."""
    with pytest.raises(InvalidArguments) as caught:
        value_of(list[int], ["x" * 10_000] * 50)
    assert len(caught.value.violations) == 50
    assert str(caught.value).endswith("; ... and 30 more")
    assert len(str(caught.value)) < 20 * 200
    assert len(refusal_of(dict[str, int], {"k" * 10_000: "x"})[0].path) < 100


def test_paths_leave_out_the_branches_of_unions():
    """A path has only keys and indexes of the arguments."""
    violations = refusal_of(dict[str, list[int] | Point | dict[str, Movie]], {"k": {"a": {"year": 1}}})
    paths = {each.path for each in violations}
    assert {"it.k", "it.k.x", "it.k.a", "it.k.a.title"} == paths


def test_a_bad_key_is_said_to_be_one():
    """The keys of a dict are checked too, and the error says that it is about a key."""
    assert refusal_of(dict[int, str], {"q": "a"}) == [
        Violation("it.q", "key: Input should be a valid integer, got 'q'")
    ]


def test_a_validator_of_the_author_speaks_in_its_own_words():
    """The message is the text of the ValueError that the validator raises."""

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    violations = refusal_of(Annotated[int, pydantic.AfterValidator(even)], 3)
    assert violations == [Violation("it", "must be even, got 3")]


def test_invalid_arguments_survive_pickling():
    """The error can be sent to another process."""
    error = InvalidArguments([Violation("a", "Field required")])
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copy), copy.violations) == (str(error), error.violations)


@pytest.mark.parametrize(
    "annotation",
    [Node, Point, Movie, list[Node], dict[str, Point | None]],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_unknown_fields_are_violations_at_any_depth(annotation):
    """Classes refuse unknown fields unless they are configured otherwise, and their schema says so."""
    whole = {"x": 1, "title": "t", "value": 1, "zz": 1}
    wrapped = (
        [whole]
        if annotation == list[Node]
        else {"k": whole}
        if annotation == dict[str, Point | None]
        else whole
    )
    messages = {each.message for each in refusal_of(annotation, wrapped) if each.path.endswith("zz")}
    assert messages == {"Unknown argument"}
    definitions = taking(annotation).parameters.json_schema["$defs"]
    assert [each["additionalProperties"] for each in definitions.values()] == [False]


def test_a_model_that_allows_extra_fields_keeps_them():
    """The model's own setting counts; other models beside it then follow Pydantic's rules."""
    assert value_of(Open, {"zz": 1}).zz == 1
    assert value_of(Open, {"inner": {"value": 1, "zz": 1}}).inner == Node(value=1)
    definitions = taking(Open).parameters.json_schema["$defs"]
    assert definitions["Open"]["additionalProperties"] is True
    assert "additionalProperties" not in definitions["Node"]


def test_the_input_is_never_changed():
    """The function gets copies: changing them does not change the caller's values."""
    arguments = {"it": {"a": [1]}}
    value = taking(Any).parameters.validate(arguments)["it"]
    value["a"].append(2)
    assert arguments == {"it": {"a": [1]}}


@pytest.mark.parametrize(
    ("value", "text"),
    [({1: object()}, "not JSON"), ({"a": {1}}, "not JSON"), ("\ud800", "cannot be read"), (2**70, "")],
    ids=["object", "set", "surrogate", "big"],
)
def test_what_is_not_json_is_a_violation(value, text):
    """Python values that JSON cannot hold are refused, large integers accepted."""
    if not text:
        assert value_of(int, value) == value
    else:
        with pytest.raises(InvalidArguments, match=text):
            value_of(Any, value)


def test_deep_nesting_is_a_violation_not_a_crash():
    """Arguments that are nested very deep do not raise a RecursionError."""
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        value_of(Any, deep)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (collections.abc.Callable[[int], int], r"Callable\[\[int\], int\]"),
        (collections.abc.Callable[..., int] | None, "Callable"),
        (collections.abc.Callable[..., int] | int | str, "Callable"),
        (type[Point], "not a JSON value"),
        (collections.abc.Generator[int, None, None], r"use list\[...\]"),
        (collections.abc.Iterator[int], "Iterator"),
        (re.Match, "re.Match"),
        (object(), "object"),
        (Annotated[str, Field(pattern="(?=a)")], "look-around"),
        ("Missing", "name 'Missing' is not defined"),
        ("list[Missing]", "name 'Missing' is not defined"),
        ("1 +", "is not a type"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_what_has_no_schema_is_refused_when_defined(annotation, text):
    """The error has tool, parameter and annotation, and says what to use instead."""

    def fetch(good: int, bad): ...

    fetch.__annotations__ = {"good": int, "bad": annotation}
    with pytest.raises(DefinitionError, match=text) as caught:
        sig(fetch)
    assert str(caught.value).startswith("tool 'fetch': parameter 'bad': ")
    assert "use JSON-like types" in str(caught.value) or "define the name" in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ToolDefinitionError)


def test_the_name_in_the_error_is_that_of_the_tool():
    """If the tool has a name of its own, the error has that."""
    with pytest.raises(DefinitionError, match="^tool 'other': parameter 'x'"):
        sig(lambda x: None, name="other") and sig(_refused, name="other")


def _refused(x: re.Match): ...


def test_variadic_parameters_are_refused():
    """For `*args` and `**kwargs`, which have no names, the error says what to use."""
    with pytest.raises(DefinitionError, match=r"parameter '\*items': use one parameter of type list"):
        sig(lambda *items: None, name="f")
    with pytest.raises(
        DefinitionError, match=r"parameter '\*\*more': use one parameter of type dict.*functools.wraps"
    ):
        sig(lambda **more: None, name="f")


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Context[int],
        SubContext,
        Context | None,
        Optional[Context[str]],  # noqa: UP045 - to test the old spelling
        Annotated[Context, "the context"],
        "Context",
        "Context[int] | None",
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_the_context_parameter_is_found_and_not_advertised(annotation):
    """Whatever its name and position, it is not in the schema, and the call fills it in."""

    def function(a: int, whatever=None, b: int = 2):
        return a, whatever, b

    function.__annotations__["whatever"] = annotation
    signature = sig(function)
    assert signature.context_parameter == "whatever"
    assert list(signature.parameters.json_schema["properties"]) == ["a", "b"]
    args, kwargs = signature.arguments_for({"a": 1}, "the context")
    assert function(*args, **kwargs) == (1, "the context", 2)


def test_a_context_imported_for_type_checkers_only_is_found():
    """If its annotation cannot be resolved, the class name in it is enough."""
    space: dict[str, Any] = {}
    exec("def function(a: int, context: 'Context[str]'): ...", space)  # noqa: S102 - a module without the import
    assert sig(space["function"]).context_parameter == "context"


@pytest.mark.parametrize("name", ["context", "ctx"])
def test_a_context_without_an_annotation_is_known_by_its_name(name):
    """No model is meant to fill it in. With an annotation or a default it is a parameter like others."""
    space: dict[str, Any] = {}
    exec(f"def bare({name}, a: int): ...\ndef typed({name}: str): ...\ndef optional({name}=1): ...", space)  # noqa: S102
    assert sig(space["bare"]).context_parameter == name
    assert list(sig(space["bare"]).parameters.json_schema["properties"]) == ["a"]
    for other in ("typed", "optional"):
        assert sig(space[other]).context_parameter is None
        assert list(sig(space[other]).parameters.json_schema["properties"]) == [name]


def test_two_contexts_are_refused():
    """The error names both parameters."""

    def function(a: Context, b: Context | None = None): ...

    with pytest.raises(DefinitionError, match="'a' and 'b' both take the context"):
        sig(function)


def test_positional_only_and_keyword_only_parameters():
    """Each is passed in the way that it allows; missing positional ones get their defaults."""

    def function(a: int, context: Context, b: int = 2, c: int = 3, /, d: int = 4, *, e: int):
        return a, context, b, c, d, e

    signature = sig(function)
    values = signature.parameters.validate({"a": 1, "c": 30, "e": 5})
    args, kwargs = signature.arguments_for(values, "ctx")
    assert function(*args, **kwargs) == (1, "ctx", 2, 30, 4, 5)


class Service:
    """A service."""

    def look(self, word: str) -> str:
        """Look up a word.

        Args:
            word: The word
        """
        return word

    @classmethod
    def make(cls, size: int) -> str:
        """Make one."""
        return str(size)

    @staticmethod
    def plain(size: int) -> str:
        """Plain one."""
        return str(size)

    def __call__(self, depth: int) -> str:
        """Call it."""
        return str(depth)


class QuietService(Service):
    def look(self, word: str) -> str:
        return word


@functools.wraps(greet)
def wrapped(*args, **kwargs):
    return greet(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "properties", "description"),
    [
        (Service().look, ["word"], "Look up a word."),
        (QuietService().look, ["word"], "Look up a word."),
        (Service.make, ["size"], "Make one."),
        (Service.plain, ["size"], "Plain one."),
        (Service.__dict__["plain"], ["size"], "Plain one."),
        (Service(), ["depth"], "Call it."),
        (
            functools.partial(greet, "Bob"),
            ["formal"],
            "Greet a person.\n\nIn their own language, where known.",
        ),
        (
            functools.partial(greet, formal=True),
            ["name"],
            "Greet a person.\n\nIn their own language, where known.",
        ),
        (functools.partial(Service().look), ["word"], "Look up a word."),
        (
            functools.lru_cache(greet),
            ["name", "formal"],
            "Greet a person.\n\nIn their own language, where known.",
        ),
        (wrapped, ["name", "formal"], "Greet a person.\n\nIn their own language, where known."),
    ],
    ids=lambda given: "",
)
def test_every_kind_of_callable_is_read(function, properties, description):
    """Methods, partials, objects and wrapped functions list the parameters that a caller can pass."""
    signature = sig(function)
    assert list(signature.parameters.json_schema["properties"]) == properties
    assert signature.description == description
    values = dict.fromkeys(properties, 1) | ({"word": "w"} if "word" in properties else {})
    values |= {"name": "n"} if "name" in properties else {}
    args, kwargs = signature.arguments_for(signature.parameters.validate(values), None)
    assert isinstance(function(*args, **kwargs), str)


def test_a_class_is_called_to_make_one():
    """A class has the parameters of its constructor."""
    signature = sig(Point)
    args, kwargs = signature.arguments_for(signature.parameters.validate({"x": 1}), None)
    assert Point(*args, **kwargs) == Point(1, 0)


def test_what_a_partial_fixes_is_not_shown():
    """A value that a partial binds by name may be a secret: it is neither a parameter nor a default."""
    signature = sig(functools.partial(greet, formal="SECRET"))
    assert "SECRET" not in json.dumps(signature.parameters.json_schema)
    with pytest.raises(InvalidArguments):
        signature.parameters.validate({"name": "a", "formal": True})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Service.look, "an unbound method"),
        (Service.__dict__["make"], "classmethod needs its class"),
        (5, "5 is not a function"),
        (max, "cannot be found|use one parameter"),
        (type("Odd", (), {"__call__": 5})(), "cannot be found|not a function"),
    ],
    ids=["unbound", "classmethod", "number", "builtin", "odd"],
)
def test_what_cannot_be_called_is_refused(given, text):
    """What could only fail when it is called is refused when it is defined."""
    with pytest.raises(DefinitionError, match=text):
        sig(given, name="f")


def test_a_wrapped_function_keeps_its_types():
    """Annotations are resolved in the module of the wrapped function."""
    assert sig(wrapped).parameters.json_schema == sig(greet).parameters.json_schema


class Report(BaseModel):
    total: int
    parts: list["Report"] = []


def returning(annotation):
    def function(): ...

    function.__annotations__ = {"return": annotation}
    return sig(function)


@pytest.mark.parametrize(
    ("annotation", "properties"),
    [
        (Point, ["x", "y"]),
        (Movie, ["title", "year"]),
        (Report, ["total", "parts"]),
        (collections.abc.Awaitable[Point], ["x", "y"]),
        ("Point", ["x", "y"]),
        (Annotated[Point, "a point"], ["x", "y"]),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_return_type_that_is_an_object_has_an_output_schema(annotation, properties):
    """Schema and adapter of the result come from the return annotation."""
    signature = returning(annotation)
    assert signature.output_schema["type"] == "object"
    assert list(signature.output_schema["properties"]) == properties
    assert signature.output_adapter is signature.output_adapter
    assert "title" not in signature.output_schema


def test_a_dict_of_things_has_an_output_schema():
    """`dict[str, T]` is enough, since it says what its values are."""
    signature = returning(dict[str, int])
    assert signature.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert signature.output_adapter.dump_python({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "annotation",
    [int, str, list[int], Point | None, None, Any, dict, dict[str, Any], re.Match, "Missing", Pair, object()],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_other_return_types_have_none(annotation):
    """A type that is no object, or says nothing about its fields, causes no output schema and no error."""
    signature = returning(annotation)
    assert signature.output_schema is None
    assert signature.output_adapter is None


def test_no_return_annotation_has_none():
    """Without a return annotation there is no output schema."""
    assert sig(lambda: None).output_schema is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e9, 1e9)
    | st.sampled_from(["", "1", "red", "m", "x", "title"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "title", "value", "children", "k"]), inner, max_size=4)
    ),
    max_leaves=8,
)
leaf_types = st.sampled_from(
    [str, int, float, bool, None, Any, Literal["x", 1], Color, Level, Unit, Point, Movie, Node, Pair]
)
some_types = st.recursive(
    leaf_types,
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),
        inner.map(lambda each: Optional[each]),  # noqa: UP045 - to test the old spelling
        inner.map(lambda each: dict[str, each]),
        inner.map(lambda each: tuple[each, ...]),
        st.tuples(inner, inner).map(lambda two: Union[two[0], two[1]]),  # noqa: UP007 - to test the old spelling
        st.tuples(inner, inner).map(lambda two: tuple[two[0], two[1]]),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(annotations=st.lists(some_types, min_size=1, max_size=3), data=st.data())
def test_what_fits_the_advertised_schema_is_accepted(annotations, data):
    """Arguments that fit the listed schema are never refused; others raise `InvalidArguments` or are accepted."""

    def function(p0, p1=None, p2=None): ...

    function.__annotations__ = {f"p{number}": annotation for number, annotation in enumerate(annotations)}
    parameters = sig(function).parameters
    arguments = data.draw(st.dictionaries(st.sampled_from(["p0", "p1", "p2", "p3"]), json_values))
    before = json.dumps(arguments)
    try:
        from_json_schema(parameters.json_schema).validate(arguments)
        fits = True
    except InvalidArguments:
        fits = False
    try:
        parameters.validate(arguments)
        taken = True
    except InvalidArguments:
        taken = False
    assert taken or not fits
    assert json.dumps(arguments) == before


@settings(max_examples=200, deadline=None)
@given(value=json_values)
def test_json_passes_through_any_unchanged(value):
    """A parameter of type `Any` gets the JSON value unchanged."""
    assert value_of(Any, value) == value
