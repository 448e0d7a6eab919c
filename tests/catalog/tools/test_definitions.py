"""Definitions: entries become tools, and one bad entry does not affect the others."""

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.catalog.tools.definitions import Definition, Entry, Skipped, define
from toolwire.errors import UsageError
from toolwire.tools.tool import Tool

ID = "65f1c0ffee65f1c0ffee65f1"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def names(*entries, **settings):
    """Return id -> name of the tools made from these entries."""
    definitions, skipped = define(entries, **settings)
    assert not skipped
    return {each.id: each.name for each in definitions}


def test_an_entry_becomes_a_tool():
    """It has a readable name, its description, schema, price and category."""
    entry = Entry(ID, ID, "Weather Now — of any city", SCHEMA, 10_000, "data", {"x": 1})
    definitions, skipped = define([entry])
    assert definitions == [
        Definition(
            ID, "weather_now", "Weather Now — of any city", SCHEMA, 10_000, "data", (), base="weather_now"
        )
    ]
    assert skipped == []


def test_one_bad_entry_never_costs_the_others():
    """A bad entry is skipped with a reason, and the others become tools."""
    definitions, skipped = define(
        [Entry("1", "good", schema=SCHEMA), Entry("2", "bad", schema={"type": "string"}), Entry("", "no id")]
    )
    assert [each.name for each in definitions] == ["good"]
    assert skipped == [
        Skipped("2", "bad", "the schema has the type string, but arguments are an object"),
        Skipped("", "no id", "it has no id with which it could be bought"),
    ]


def test_the_order_of_the_entries_does_not_matter():
    """Definitions are sorted by name, whatever the order of the pages."""
    entries = [Entry(str(each), f"tool {each % 5}", schema=SCHEMA, price=each) for each in range(20)]
    expected = define(entries)
    random.Random(4).shuffle(entries)  # noqa: S311 - any order
    assert define(entries) == expected


def test_an_entry_that_comes_twice_is_one_tool():
    """Pages overlap when a list changes. If the two differ, the higher price counts, and the other is reported."""
    same, dear = Entry("1", "a", schema=SCHEMA, price=5), Entry("1", "a", schema=SCHEMA, price=9)
    assert len(define([same, same])[0]) == 1
    assert define([same, same])[1] == []
    for entries in ([same, dear], [dear, same]):
        definitions, skipped = define(entries)
        assert [each.price for each in definitions] == [9]
        assert [each.reason for each in skipped] == [
            "the catalogue has its id more than once, with different definitions"
        ]


def test_poisoned_text_is_cleaned():
    """Characters that a person cannot see are removed from the text for the model, and the repair is recorded."""
    [definition] = define([Entry("1", "we\u200bather", "Nice\u202e tool\u200b" + "x" * 5000)])[0]
    assert definition.name == "weather"
    assert definition.description.startswith("Nice toolx")
    assert len(definition.description) == 2000
    assert "cleaned" in definition.repairs[0]


def test_renaming_by_id_or_name():
    """The user's name is used, with the namespace before it."""
    entries = [Entry("1", "Get Weather"), Entry("2", "Stock Price"), Entry("3", "other")]
    renames = {"1": "weather", "stock_price": "stock"}
    assert names(*entries, rename=renames) == {"1": "weather", "2": "stock", "3": "other"}
    assert names(*entries, rename=renames, namespace="shop")["1"] == "shop_weather"
    assert names(*entries, rename={"Get Weather": "w"})["1"] == "w"


def test_the_users_word_goes_before_an_older_right():
    """The renamed entry gets the name, and the entry that had it gets a suffix."""
    entries = [Entry("1", "forecast"), Entry("2", "weather")]
    found = names(*entries, rename={"1": "weather"}, known={"1": "forecast", "2": "weather"})
    assert found["1"] == "weather"
    assert found["2"].startswith("weather_")


def test_two_renamed_to_one_stay_two():
    """Each gets a suffix."""
    found = names(Entry("1", "a"), Entry("2", "b"), rename={"1": "c", "2": "c"})
    assert len(set(found.values())) == 2


@pytest.mark.parametrize("asked", [{"rename": {"1": "not legal"}}, {"namespace": "not legal"}])
def test_what_the_user_asks_must_be_legal(asked):
    """Only mistakes of the caller raise an exception."""
    with pytest.raises(UsageError):
        define([], **asked)


def test_names_of_an_earlier_run_stay():
    """A new entry with the same name does not take it."""
    before = names(Entry("1", "weather"))
    after = names(Entry("1", "weather"), Entry("2", "Weather"), known=before)
    assert after["1"] == "weather"
    assert after["2"].startswith("Weather_")


def test_without_a_free_name_the_entry_is_skipped():
    """The reason says so."""
    taken = []
    while definitions := define([Entry("1", "a")], taken=taken)[0]:
        taken.append(definitions[0].name)
    assert define([Entry("1", "a")], taken=taken)[1] == [Skipped("1", "a", "no free name was found")]


def test_the_fingerprint_is_of_what_the_model_is_told():
    """It depends on name, description and schema, but not on the order of keys, the price or repairs."""
    one = Definition("1", "a", "b", {"type": "object", "properties": {}}, 5, None, ("x",))
    assert one.fingerprint == Definition("2", "a", "b", {"properties": {}, "type": "object"}).fingerprint
    assert re.fullmatch("[0-9a-f]{64}", one.fingerprint)
    others = [
        Definition("1", "a2", "b", one.schema),
        Definition("1", "a", "b2", one.schema),
        Definition("1", "a", "b", {"type": "object"}),
    ]
    assert len({one.fingerprint, *(each.fingerprint for each in others)}) == 4


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["type", "properties", "items", "required", "enum"]), st.text(max_size=5)
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=15,
)
NAMES = st.one_of(st.text(max_size=70), st.sampled_from(["weather", "Weather", "WEATHER ", "天気", "x" * 70]))
ENTRIES = st.builds(
    Entry,
    id=st.one_of(st.text(max_size=5), st.sampled_from(["a", "b"]), JSON),
    name=st.one_of(NAMES, JSON),
    description=st.one_of(st.text(max_size=30), st.just("A — b"), JSON),
    schema=JSON,
    price=st.one_of(st.none(), st.integers(), st.floats()),
    category=st.one_of(st.none(), st.text(max_size=5), JSON),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(ENTRIES, max_size=8), st.randoms(use_true_random=False), st.sampled_from(["", "shop"]))
def test_any_entries_can_be_defined(entries, shuffle, namespace):
    """Any data of an API gives legal unique names and valid tools, in any order, without an exception."""
    definitions, skipped = define(entries, namespace=namespace)
    assert len(definitions) + len(skipped) <= len(entries)
    assert len({each.name.lower() for each in definitions}) == len(definitions)
    for each in definitions:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each.name)
        assert each.price is None or each.price >= 0
        assert len(each.fingerprint) == 64
        Tool(each.name, each.description, each.schema, lambda _: None)
    shuffle.shuffle(entries)
    assert define(entries, namespace=namespace) == (definitions, skipped)
