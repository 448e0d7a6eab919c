"""A Python type as the shape of structured output: its schema, an instance of it, and what is refused."""

import dataclasses
import datetime as dt
import enum
import sys
import uuid
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar, Union

import jsonschema
import orjson
import pytest
import typing_extensions
from pydantic import BaseModel, Field, RootModel, conint, field_validator

from toolwire import OptionsError, OutputValidationError
from toolwire.client.reply import OutputType, Reply, ToolCall

T = TypeVar("T")


NEW_YEAR = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
SOME_ID = uuid.UUID(int=7)


class Point(BaseModel):
    x: int
    y: int = 0


class Node(BaseModel):
    name: str
    kids: list["Node"] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Strict(BaseModel):
    model_config = {"extra": "forbid", "strict": True}
    n: int


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, n):
        if n % 2:
            raise ValueError("odd numbers are not even")
        return n


class Box(BaseModel, Generic[T]):
    inside: T


@dataclasses.dataclass
class Person:
    name: str
    born: dt.date
    tags: tuple[str, ...] = ()


class City(TypedDict):
    """A place."""

    name: str
    size: typing_extensions.NotRequired[int]


class Partial(TypedDict, total=False):
    a: typing_extensions.Required[int]
    b: str


class Late(TypedDict):
    a: "int"
    b: "typing_extensions.NotRequired[str]"


class LatePartial(TypedDict, total=False):
    a: "typing_extensions.Required[int]"
    b: "str"


class Tree(TypedDict):
    name: str
    kids: list["Tree"]


class Country(TypedDict):
    capital: City
    cities: list[City]


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Trip:
    to: City


@dataclasses.dataclass
class ModernTrip:
    to: "ModernCity"


class ModernCity(typing_extensions.TypedDict):
    name: str


def output(kind):
    made = OutputType(kind)
    assert made.format["type"] == "json_schema"
    schema = made.format["schema"]
    assert schema["type"] == "object", "the CLI wants an object at the top"
    orjson.dumps(schema)
    return made


def through(kind, answer):
    """Validate `answer`, after checking that it fits the schema that Claude gets."""
    made = output(kind)
    if "value" in made.format["schema"].get("properties", {}) and "value" not in answer:
        answer = {"value": answer}  # how an object with a description travels is not the point
    jsonschema.Draft202012Validator(made.format["schema"]).validate(answer)
    return made.validate(answer, Reply())


class TestTypes:
    @pytest.mark.parametrize(
        ("kind", "answer", "expected"),
        [
            (Point, {"x": 1}, Point(x=1)),
            (Node, {"value": {"name": "a", "kids": [{"name": "b"}]}}, Node(name="a", kids=[Node(name="b")])),
            (Box[Point], {"inside": {"x": 1}}, Box[Point](inside=Point(x=1))),
            (RootModel[list[int]], {"value": [1, 2]}, RootModel[list[int]]([1, 2])),
            (
                Person,
                {"name": "Ada", "born": "1815-12-10", "tags": ["x"]},
                Person("Ada", dt.date(1815, 12, 10), ("x",)),
            ),
            (ModernTrip, {"to": {"name": "Rome"}}, ModernTrip({"name": "Rome"})),
            (City, {"name": "Rome"}, {"name": "Rome"}),
            (Partial, {"a": 1}, {"a": 1}),
            (Country, {"capital": {"name": "R"}, "cities": []}, {"capital": {"name": "R"}, "cities": []}),
            (dict[str, int], {"a": 1}, {"a": 1}),
            (dict[str, City], {"a": {"name": "R"}}, {"a": {"name": "R"}}),
            (list[Point], {"value": [{"x": 1}]}, [Point(x=1)]),
            (list[City], {"value": [{"name": "R", "size": 3}]}, [{"name": "R", "size": 3}]),
            (tuple[int, str], {"value": [1, "a"]}, (1, "a")),
            (tuple[City, ...], {"value": [{"name": "R"}]}, ({"name": "R"},)),
            (set[int], {"value": [1, 2]}, {1, 2}),
            (int, {"value": 5}, 5),
            (str, {"value": "text"}, "text"),
            (bool, {"value": True}, True),
            (float, {"value": 1.5}, 1.5),
            (Decimal, {"value": "1.10"}, Decimal("1.10")),
            (dt.datetime, {"value": "2020-01-02T03:04:05Z"}, NEW_YEAR),
            (uuid.UUID, {"value": str(SOME_ID)}, SOME_ID),
            (Literal["a", "b"], {"value": "a"}, "a"),
            (Literal["a", 1] | None, {"value": None}, None),
            (Colour, {"value": "blue"}, Colour.BLUE),
            (Pair, {"value": [1, "a"]}, Pair(1, "a")),
            (Union[Point, int], {"value": 3}, 3),  # noqa: UP007 - the old spelling is the point
            (Point | int, {"value": {"x": 3}}, Point(x=3)),
            (Optional[Point], {"value": None}, None),  # noqa: UP045 - the old spelling is the point
            (Point | None, {"value": {"x": 1}}, Point(x=1)),
            (Optional[City], {"value": {"name": "R"}}, {"name": "R"}),  # noqa: UP045
            (type(None), {"value": None}, None),
            (Any, {"value": {"free": [1]}}, {"free": [1]}),
            (conint(gt=1), {"value": 2}, 2),
        ],
    )  # fmt: skip
    def test_an_answer_becomes_an_instance(self, kind, answer, expected):
        """An answer that fits the schema becomes a value of the type."""
        made = through(kind, answer)
        assert made == expected
        assert type(made) is type(expected)

    @pytest.mark.parametrize(
        ("kind", "answer", "expected"),
        [
            (Annotated[int, Field(gt=1)], {"value": 2}, 2),
            (list[Annotated[int, Field(gt=1)]], {"value": [2]}, [2]),
            (dict[str, Annotated[int, Field(gt=1)]], {"a": 2}, {"a": 2}),
            (Annotated[str, Field(pattern="^a+$")], {"value": "aa"}, "aa"),
            (Annotated[Point, Field(description="where")], {"x": 1}, Point(x=1)),
            (Annotated[City, Field(description="where")], {"name": "R"}, {"name": "R"}),
            (Annotated[list[City], Field(min_length=1)], {"value": [{"name": "R"}]}, [{"name": "R"}]),
            (Annotated[int, ["metadata", "of somebody else"]], {"value": 2}, 2),
        ],
    )
    def test_constraints_and_descriptions(self, kind, answer, expected):
        """`Annotated` types, alone and inside others."""
        assert through(kind, answer) == expected

    @pytest.mark.parametrize(
        ("kind", "answer"),
        [
            (City | None, {"value": {"name": "R"}}),
            (list[City | int], {"value": [{"name": "R"}, 1]}),
            (dict[str, list[City | None]], {"a": [{"name": "R"}, None]}),
            (Country | City, {"value": {"name": "R"}}),
        ],
    )
    def test_the_standard_typed_dict_in_a_union(self, kind, answer):
        """`X | Y` with a standard TypedDict works on every Python."""
        assert through(kind, answer) == answer.get("value", answer)

    def test_a_recursive_typed_dict(self):
        """A recursive TypedDict works, or is refused with an OptionsError."""
        answer = {"name": "a", "kids": [{"name": "b", "kids": []}]}
        try:
            made = OutputType(Tree)
        except OptionsError:
            return
        wrapped = "value" in made.format["schema"]["properties"]
        assert made.validate({"value": answer} if wrapped else answer, Reply()) == answer

    @pytest.mark.parametrize(("kind", "required"), [(Late, ["a"]), (LatePartial, ["a"])])
    def test_what_is_required_in_a_typed_dict_with_late_annotations(self, kind, required):
        """`NotRequired` and `Required` count in string annotations too (`from __future__ import annotations`)."""
        assert output(kind).format["schema"].get("required", []) == required
        assert through(kind, {"a": 1}) == {"a": 1}

    def test_the_words_of_a_typed_dict_reach_the_schema(self):
        """Its docstring is its description, as on newer Pythons."""
        assert output(City).format["schema"].get("description") == "A place."

    def test_a_standard_typed_dict_in_a_dataclass(self):
        """Pydantic takes it from Python 3.12 on; before, its error says what to import instead."""
        if sys.version_info < (3, 12):
            with pytest.raises(OptionsError, match=r"typing_extensions\.TypedDict"):
                output(Trip)
            return
        assert through(Trip, {"to": {"name": "R"}}) == Trip({"name": "R"})
        assert through(list[Trip], {"value": [{"to": {"name": "R"}}]}) == [Trip({"name": "R"})]

    def test_an_object_travels_as_it_is_and_the_rest_in_an_object(self):
        """The CLI requires an object at the top level; only other types are wrapped."""
        assert "x" in output(Point).format["schema"]["properties"]
        schema = output(list[Point]).format["schema"]
        assert schema["required"] == ["value"]
        assert schema["additionalProperties"] is False
        assert "Point" in schema["$defs"]

    def test_a_field_that_is_called_value_is_no_wrapping(self):
        """A model with a field of that name is not wrapped."""

        class Holder(BaseModel):
            value: int

        assert through(Holder, {"value": 3}) == Holder(value=3)


class TestRefused:
    @pytest.mark.parametrize(
        "kind",
        [
            5,
            "no such type",
            "not python(",
            [int],
            {"type": "object"},
            {"type": "str"},
            {1, 2},
            object(),
            Point(x=1),
            sys,
            type,
            complex(1),
            Annotated[str, Field(pattern="(")],
        ],
        ids=lambda kind: type(kind).__name__,
    )
    def test_what_has_no_schema(self, kind):
        """A type that cannot be the output type raises an OptionsError that names the option."""
        with pytest.raises(OptionsError) as caught:
            OutputType(kind)
        assert caught.value.option == "output_type"
        assert "output_type" in str(caught.value)

    def test_a_function_is_not_a_type(self):
        """Pydantic would call it with Claude's answer as arguments."""

        def act(x: int) -> int:
            raise AssertionError("called")

        with pytest.raises(OptionsError):
            OutputType(act)

    def test_a_name_that_is_not_defined(self):
        """An annotation with an undefined name raises an OptionsError that names it."""

        class Broken(TypedDict):
            x: "NoSuchName"  # noqa: F821

        with pytest.raises(OptionsError, match="NoSuchName"):
            OutputType(Broken)


class TestWrongAnswers:
    @pytest.mark.parametrize(
        ("kind", "answer"),
        [
            (Point, {"x": "many"}),
            (Point, {}),
            (Point, []),
            (Point, "text"),
            (Strict, {"n": "1"}),
            (Strict, {"n": 1, "more": 1}),
            (Even, {"n": 3}),
            (list[int], {"value": ["x"]}),
            (list[int], {"other": [1]}),
            (list[int], {}),
            (int, {"value": None}),
            (Literal["a"], {"value": "b"}),
            (Colour, {"value": "green"}),
            (City, {"size": 3}),
            (conint(gt=1), {"value": 1}),
            (Node, {"value": {"name": "a", "kids": [{"name": 5}]}}),
            (Point | int, {"value": "x"}),
        ],
    )
    def test_an_answer_that_does_not_fit(self, kind, answer):
        """The error has the output, the reply, and the validator's own error."""
        reply = Reply()
        with pytest.raises(OutputValidationError, match="not a valid") as caught:
            OutputType(kind).validate(answer, reply)
        assert caught.value.reply is reply
        assert type(caught.value.__cause__).__name__ == "ValidationError"

    def test_no_answer_at_all(self):
        """The error says that there is no structured output, and has the reply."""
        reply = Reply()
        with pytest.raises(OutputValidationError, match="no structured output, expected Point") as caught:
            OutputType(Point).validate(None, reply)
        assert caught.value.reply is reply
        assert caught.value.output is None

    def test_an_optional_answer_that_is_missing_is_not_none(self):
        """`{}` is not `{"value": null}`: the schema requires the key."""
        with pytest.raises(OutputValidationError):
            OutputType(Point | None).validate({}, Reply())

    @pytest.mark.parametrize("answer", [5, True, 1.5, "5", [5]])
    def test_an_answer_that_is_not_wrapped_at_all(self, answer):
        """A bare value in place of the wrapping object is accepted or raises OutputValidationError."""
        try:
            made = OutputType(int).validate(answer, Reply())
        except OutputValidationError as error:
            made = None
            problem = error
        else:
            problem = None
        assert made == 5 or problem is not None

    def test_null_is_a_fine_optional_answer(self):
        """`{"value": null}` is None."""
        assert OutputType(Point | None).validate({"value": None}, Reply()) is None

    @pytest.mark.parametrize("text", ["half an emoji \ud83d", "\udc00"])
    def test_text_that_is_not_unicode(self, text):
        """A cut emoji, which the CLI can send, gives a string or an OutputValidationError, never a TypeError."""
        try:
            made = OutputType(str).validate({"value": text}, Reply())
        except OutputValidationError as error:
            problem = error
        else:
            problem = None
            assert isinstance(made, str)
        assert problem is None or problem.output == text

    @pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**30])
    def test_large_numbers(self, number):
        """Integers over 64 bits are numbers like any other."""
        assert OutputType(int).validate({"value": number}, Reply()) == number


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        (
            [{"type": "text", "text": "a"}, {"type": "image", "data": "x"}, {"type": "text", "text": "b"}],
            "a\nb",
        ),
        ([{"type": "text"}], ""),
    ],
)
def test_the_text_of_a_tool_call(result, text):
    """`text` has the text of any form of result, without images."""
    assert ToolCall("1", "t", {}, result).text == text
