"""Which entries become tools, and under which names."""

import pytest

from toolwire.catalog.tools.build import Selection
from toolwire.catalog.tools.definitions import Definition, Entry
from toolwire.errors import UsageError


def entry(name, category=None):
    """An entry whose id is not its name."""
    return Entry(f"id-{name}", name, schema={"type": "object"}, category=category)


def chosen(*entries, known=None, **settings):
    """Return the names of the tools."""
    definitions, skipped = Selection(**settings).define(entries, known or {})
    assert skipped == []
    return [each.name for each in definitions]


FEW = (entry("weather", "data"), entry("weather map", "maps"), entry("Stock", "data"), entry("mail"))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["Stock", "mail", "weather", "weather_map"]),
        ({"include": ("weather",)}, ["weather", "weather_map"]),
        ({"include": ("*map",)}, ["weather_map"]),
        ({"include": ("stock",)}, ["Stock"]),
        ({"include": ("DATA",)}, ["Stock", "weather"]),
        ({"include": ("data", "mail"), "exclude": ("w*",)}, ["Stock", "mail"]),
        ({"exclude": ("weather",)}, ["Stock", "mail", "weather_map"]),
        ({"exclude": ("data", "maps")}, ["mail"]),
        ({"include": ("nothing of the kind",)}, []),
    ],
)
def test_tools_are_filtered(settings, names):
    """A word in `include` may match a part of a name; `exclude` matches whole names, globs and categories."""
    assert chosen(*FEW, **settings) == names


def test_groups_go_before_names():
    """Each name begins with its category, after the namespace; without a category nothing is added."""
    assert chosen(*FEW, group=True) == ["mail", "data_Stock", "data_weather", "maps_weather_map"]
    assert chosen(entry("a", "C++ & more!"), group=True, namespace="x") == ["x_c_plus_plus_and_more_a"]


def test_groups_of_one_prefix_never_share_a_name():
    """Two categories that give the same prefix do not hide each other's tools."""
    first, second = Entry("1", "a", category="the group"), Entry("2", "a", category="the-group")
    names = chosen(first, second, group=True)
    assert len(set(names)) == 2


def test_a_known_name_stays():
    """An entry keeps its name when another one with the same name is added."""
    one, two = Entry("1", "same name"), Entry("2", "same name!")
    assert "same_name" in chosen(one, two, known={"1": "same_name"})
    assert "same_name" not in chosen(one, two)


def test_a_tool_without_category_is_judged_by_its_name():
    """An empty category only matches the pattern `*`."""
    tool = Definition("1", "mail", "", {})
    assert Selection(include=("?*",)).includes(tool)
    assert not Selection(include=("data",)).includes(tool)
    assert not Selection(exclude=("*",)).includes(tool)


def test_a_new_name_that_is_not_legal_is_refused():
    """It is an error, and not corrected."""
    with pytest.raises(UsageError, match="cannot be renamed"):
        chosen(*FEW, rename={"mail": "e mail"})
