"""Python values as JSON: nothing is lost or changed silently, and errors say where the value is."""

import json
from collections import ChainMap, Counter, OrderedDict, UserList, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr
from pydantic.dataclasses import dataclass as pydantic_dataclass

from toolwire.tools.results.content import Text
from toolwire.tools.results.to_json import BadResult, plain, text


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Bits(IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    id: int
    _secret: str = "kept"  # noqa: S105 - a field's name
    tags: set[str] = field(default_factory=lambda: {"b", "a"})


@dataclass(slots=True)
class Slotted:
    when: date


@pydantic_dataclass
class Checked:
    amount: Decimal


class Model(BaseModel):
    some_name: int = Field(alias="someName")
    key: SecretStr = SecretStr("hidden")


class Shout(str):
    __slots__ = ()

    def __str__(self):
        return "not this"


class Array:
    """What numpy's arrays and scalars have in common."""

    def __init__(self, items):
        self.items = items

    def tolist(self):
        return self.items


class Attrs:
    __attrs_attrs__ = (SimpleNamespace(name="a"),)
    a = 1


class Struct:
    __struct_fields__ = ("a",)
    a = 2


WRITTEN: list[tuple[Any, Any]] = [
    (Colour.RED, "red"),
    (Level.LOW, 1),
    (Word.YES, "yes"),
    (Bits.A | Bits.B, 3),
    (Point(1, 2), {"x": 1, "y": 2}),
    (Order(7), {"id": 7, "_secret": "kept", "tags": ["a", "b"]}),
    (Slotted(date(2024, 2, 29)), {"when": "2024-02-29"}),
    (Checked(Decimal("1.10")), {"amount": "1.10"}),
    (Model(someName=1), {"someName": 1, "key": "**********"}),
    (Shout("hey"), "hey"),
    (Array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (Attrs(), {"a": 1}),
    (Struct(), {"a": 2}),
    (SimpleNamespace(a=[1]), {"a": [1]}),
    (Decimal("1.10"), "1.10"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "2024-01-02T03:04:00+00:00"),
    (time(1, 2, tzinfo=UTC), "01:02:00+00:00"),
    (timedelta(days=1, seconds=3), "P1DT3S"),
    (PurePosixPath("a/b"), "a/b"),
    (ip_address("::1"), "::1"),
    (Fraction(1, 3), "1/3"),
    (b"\xff\xfe\xfd", "//79"),
    (bytearray(b"a"), "YQ=="),
    (memoryview(b"a"), "YQ=="),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset("ba"), ["a", "b"]),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    ({"a": 1}.values(), [1]),
    (deque([1, 2]), [1, 2]),
    (UserList([1]), [1]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (defaultdict(int, a=1), {"a": 1}),
    (Counter("aab"), {"a": 2, "b": 1}),
    (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
    (MappingProxyType({"a": (1, 2)}), {"a": [1, 2]}),
    (10**30, 10**30),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
    ({1: "a", None: "b", True and 2.5: "c"}, {"1": "a", "null": "b", "2.5": "c"}),
    ({Colour.RED: 1, (1, 2): 2, date(2024, 1, 1): 3}, {"red": 1, "[1,2]": 2, "2024-01-01": 3}),
    ("caf\udce9", "caf\\udce9"),
    ("naïve 日本", "naïve 日本"),
]


@pytest.mark.parametrize(
    ("value", "wanted"), WRITTEN, ids=lambda value: ascii(value).partition(" at 0x")[0][:40]
)
def test_how_values_are_written(value, wanted):
    """Each kind of value has one form, alone, inside others, and beside values that need the slower encoder."""
    assert json.loads(text(value)) == wanted
    assert plain({"in": [value]})[0] == {"in": [wanted]}
    assert plain([value, {0: float("inf")}])[0] == [wanted, {"0": "Infinity"}]


def test_the_text_is_compact_and_readable():
    """There are no spaces between tokens, and non-ASCII letters are not escaped."""
    assert text({"a": [1, 2], "é": "日本"}) == '{"a":[1,2],"é":"日本"}'


def test_a_nan_is_not_turned_into_null():
    """A NaN becomes the string "NaN", even deep inside and beside real nulls."""
    value = {"a": None, "b": [Order(1), {"c": float("nan")}]}
    data, written = plain(value)
    assert data["a"] is None
    assert data["b"][1] == {"c": "NaN"}
    assert json.loads(written) == data


def test_a_model_with_a_nan_keeps_it():
    """Infinity in a field of a Pydantic model becomes a string too."""

    class Reading(BaseModel):
        value: float

    assert plain([Reading(value=float("inf"))])[0] == [{"value": "Infinity"}]


def test_plain_data_is_detached():
    """Changing the value afterwards does not change the result."""
    value = {"a": [1]}
    data, _ = plain(value)
    value["a"].append(2)
    assert data == {"a": [1]}


def test_unsortable_sets_are_arrays_still():
    """A set whose items cannot be sorted becomes an array in any order."""
    assert sorted(json.loads(text({1, "a"})), key=str) == [1, "a"]


class Plain:
    pass


class Broken:
    __struct_fields__ = ("a",)

    @property
    def a(self):
        raise RuntimeError("no database")


async def coroutine():
    """Return a coroutine, which no test awaits."""


async def async_generator():
    yield 1


def cyclic():
    items: list[Any] = []
    items.append({"self": items})
    return items


def deep(levels):
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED = [
    (Plain(), f"{__name__}.Plain", "JSON"),
    (Broken(), f"{__name__}.Broken", "no database"),
    ((i for i in "ab"), "generator", "not a generator"),
    (async_generator(), "async_generator", "not awaited"),
    (len, "builtin_function_or_method", "call it"),
    (lambda: 1, "function", "call it"),
    (Order, "type", "instance"),
    (json, "module", "module"),
    (ValueError("x"), "ValueError", "raised, not returned"),
    (zip("a", "b", strict=True), "zip", "only once"),
    (Text("a"), "toolwire.tools.results.content.Text", "a list of the content and the data"),
    ({1: "a", "1": "b"}, "dict", "two keys"),
    (10**5000, "int", "digits"),
]


@pytest.mark.parametrize(("value", "name", "words"), REFUSED, ids=[name for _, name, _ in REFUSED])
def test_what_has_no_json_is_refused_by_name(value, name, words):
    """The error has the type's name, a hint, and where the value is."""
    with pytest.raises(BadResult, match=words) as caught:
        text({"rows": [0, value]})
    if name != "int":
        assert caught.value.type_name.endswith(name)
        assert "rows[1]" in str(caught.value)


def test_a_forgotten_await_is_named():
    """For a coroutine inside the data, the error says that it was not awaited."""
    slip = coroutine()
    with pytest.raises(BadResult, match=r"not awaited \(at a\.b\)") as caught:
        text({"a": {"b": slip}})
    slip.close()
    assert caught.value.type_name == "coroutine"


@pytest.mark.parametrize("value", [cyclic(), deep(100_000)], ids=["cyclic", "deep"])
def test_endless_values_are_refused(value):
    """A value that contains itself, or is nested too deep, raises an error instead of hanging or crashing."""
    with pytest.raises(BadResult, match="itself|deep"):
        text(value)


def test_the_same_value_twice_is_no_cycle():
    """A shared part is written as often as it occurs."""
    part = {1: 2}
    assert json.loads(text([part, part])) == [{"1": 2}, {"1": 2}]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
odd_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.binary(max_size=20),
    st.decimals(),
    st.fractions(),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from(
        [Colour.RED, Level.LOW, Order(1), Point(1, 2), Model(someName=2), len, Plain(), Broken(), Text("a")]
    ),
    st.builds(object),
)
odd_values = st.recursive(
    odd_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text() | st.integers() | st.none() | st.dates(), inner, max_size=3),
        inner.map(lambda value: Array([value])),
        inner.map(lambda value: MappingProxyType({"k": value})),
        inner.map(lambda value: namedtuple("Pair", "a b")(value, 1)),  # noqa: PYI024 - made anew each time
    ),
    max_leaves=8,
)


@given(json_values)
def test_json_values_come_back_as_they_were(value):
    """The text of a JSON value decodes to the same value."""
    data, written = plain(value)
    assert json.loads(written) == value
    assert data == value
    assert text(value) == written


@given(odd_values)
def test_anything_else_is_strict_json_or_refused(value):
    """Any Python value becomes strict JSON or raises `BadResult`."""
    try:
        data, written = plain(value)
    except BadResult:
        return
    written.encode()
    assert json.loads(written, parse_constant=pytest.fail) == data
    assert text(value) == written
