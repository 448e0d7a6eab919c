"""Records behave as the dataclasses that they are, although their `__init__` is compiled late."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pytest

from toolwire._support.record import Record, record


@record
class Late(Record):
    """A record as the library declares them."""

    name: str
    type: str | None = None
    items: list[int] = field(default_factory=list)
    raw: Any = field(default=None, compare=False, repr=False)


@record
class Later(Late):
    """A record with the fields of its base before its own."""

    more: int = 0


@dataclass
class Usual:
    """The same fields as `Late`, made by `@dataclass`."""

    name: str
    type: str | None = None
    items: list[int] = field(default_factory=list)
    raw: Any = field(default=None, compare=False, repr=False)


def fresh():
    """Return a class of which no object has been made yet."""

    @record
    class Fresh(Record):
        name: str
        items: list[int] = field(default_factory=list)

    return Fresh


def test_it_is_made_as_a_dataclass_is():
    """Objects are made by position and by name, with defaults and a new list each; those of a subclass too."""
    first, second = Late("a"), Late(name="a", items=[])
    assert first == second
    assert first.items is not second.items
    assert repr(first) == "Late(name='a', type=None, items=[])"
    assert repr(Later("a", more=2)) == "Later(name='a', type=None, items=[], more=2)"
    assert Later("a") != Late("a")
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'name'"):
        fresh()()
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        fresh()("a", other=1)


def test_it_looks_like_a_dataclass():
    """It has the same signature, hints and fields, even before the first object is made."""
    assert str(inspect.signature(Late)) == str(inspect.signature(Usual))
    assert str(inspect.signature(fresh())) == "(name: str, items: list[int] = <factory>) -> None"
    assert get_type_hints(Late.__init__) == get_type_hints(Usual.__init__)
    assert Late.__init__.__qualname__ == "Late.__init__"
    assert [each.name for each in dataclasses.fields(Later)] == ["name", "type", "items", "raw", "more"]
    assert Late.__match_args__ == Usual.__match_args__
    assert inspect.isfunction(fresh().__init__)


def test_it_is_copied_replaced_and_pickled():
    """Programs do this with messages."""
    made = Late("a", "b", [1], raw={"c": 1})
    assert dataclasses.replace(made, name="z").items == [1]
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert dataclasses.asdict(made) == {"name": "a", "type": "b", "items": [1], "raw": {"c": 1}}
    match made:
        case Late(name, kind):
            assert (name, kind) == ("a", "b")


def test_users_can_derive_from_it():
    """A subclass may call our `__init__` from its own, before any other use of it, or be a dataclass."""
    base = fresh()

    class Own(base):
        def __init__(self, name):
            super().__init__(name.upper())

    @dataclass
    class Data(base):
        extra: int = 0

    assert Own("a").name == "A"
    assert (Data("a", [1], 2).items, Data("a").extra) == ([1], 0)
