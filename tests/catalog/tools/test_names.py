"""Tool names are legal, readable, unique and stable."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.tools.definitions import (
    assign,
    base_name,
    check_renames,
    is_legal,
    readable_name,
    slug,
)
from toolwire.errors import UsageError
from toolwire.tools.names import wire_name

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
ID = "65f1c0ffee65f1c0ffee65f1"


def named(*bases, **settings):
    """Return the assigned names of entries "0", "1", ... that want these base names."""
    return assign({str(index): base for index, base in enumerate(bases)}, **settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getWeather", "getWeather"),
        ("_private-1", "_private-1"),
        ("Weather Forecast", "weather_forecast"),
        ("  Stock/Price (US) ", "stock_price_us"),
        ("Café Müller", "cafe_muller"),
        ("Straße", "strasse"),
        ("R&D", "r_and_d"),
        ("pay\u200bload", "payload"),
        ("\u202egnp.exe", "gnp_exe"),
        ("天気 now", "now"),
        ("天気", ""),
        ("---", ""),
        ("ﬁle①", "file1"),
    ],
)
def test_a_name_is_made_legal_and_stays_readable(text, expected):
    """Legal names stay; accents, other scripts and invisible characters go, and gaps become underscores."""
    assert slug(text) == expected


def test_the_readable_name_is_before_the_dash_where_the_name_is_an_id():
    """The real API's names are database ids, and its descriptions begin with the readable name."""
    assert readable_name(ID, ID, "Weather Now — the weather of today") == "Weather Now"
    assert readable_name("7", ID, "Weather Now — the weather of today") == "Weather Now"
    assert readable_name("7", "weather", "Other — text") == "weather"
    assert readable_name(ID, ID, "no dash") == ID
    assert readable_name(ID, ID, "Weather: nice", ": ") == "Weather"
    assert readable_name(ID, ID, "Weather — nice", "") == ID


def test_an_entry_without_a_usable_name_is_called_by_its_id():
    """Letters of other scripts are dropped, and "tool_" is put before an id."""
    assert base_name("p-7", "天気", "") == "tool_p-7"
    assert base_name(ID, ID, "no dash") == f"tool_{ID}"
    assert re.fullmatch("tool_[0-9a-f]{8}", base_name("天", "気", ""))


def test_namesakes_all_get_a_suffix_of_their_own():
    """No entry takes precedence, and none can be mistaken for another."""
    names = named("weather", "weather", "other")
    assert names["2"] == "other"
    assert re.fullmatch("weather_[0-9a-f]{8}", names["0"])
    assert re.fullmatch("weather_[0-9a-f]{8}", names["1"])
    assert names["0"] != names["1"]


def test_a_third_namesake_renames_nobody():
    """A suffix only depends on the entry's id."""
    two, three = named("weather", "weather"), named("weather", "weather", "weather")
    assert two.items() <= three.items()


def test_who_had_a_name_keeps_it_when_a_namesake_comes():
    """If the names of the last run are known, only the new entry gets a suffix, so a name cannot be stolen."""
    names = named("weather", "weather", known={"1": "weather"})
    assert names["1"] == "weather"
    assert names["0"].startswith("weather_")
    suffixed = named("weather", "weather")["0"]
    assert named("weather", known={"0": suffixed}) == {"0": suffixed}


@pytest.mark.parametrize(
    "known", [{"0": "tempest"}, {"0": "we ather"}, {"0": ""}, {"9": "weather"}, {"0": "weather_00000000"}]
)
def test_a_known_name_that_the_entry_does_not_go_by_any_more_is_no_right(known):
    """If an entry changes its own name, its known name is no longer used."""
    assert named("weather", known=known) == {"0": "weather"}


def test_two_with_the_same_known_name_have_no_right():
    """A damaged map of known names never gives two tools the same name."""
    names = named("weather", "weather", known={"0": "weather", "1": "weather"})
    assert "weather" not in names.values()
    assert len(set(names.values())) == 2


def test_taken_names_are_compared_as_the_cli_spells_them():
    """`weather.now` of another server part becomes `weather_now` in the CLI, and case is ignored."""
    names = named("weather_now", "Pay", "pay", taken=["weather.now"])
    assert names["0"].startswith("weather_now_")
    assert {names["1"].lower(), names["2"].lower()}.isdisjoint({"pay"})


def test_long_names_are_cut_and_always_carry_a_suffix():
    """Two names with the same first 64 characters stay different, and the namespace is within the 64."""
    names = named("x" * 80, "x" * 80 + "y", "z" * 62, namespace="shop")
    assert len(set(names.values())) == 3
    assert all(LEGAL.fullmatch(name) and name.startswith("shop_") for name in names.values())
    assert named("x" * 80, namespace="shop")["0"] == names["0"]


def test_a_name_that_looks_like_anothers_suffixed_one_takes_nothing():
    """If an entry calls itself like another one's suffixed name, both get a longer suffix."""
    target = named("weather", "weather")["0"]
    names = named("weather", "weather", target)
    assert len(set(names.values())) == 3
    assert target not in names.values()


def test_without_a_free_name_there_is_none():
    """If even the longest suffix is taken, only that entry gets no name."""
    tried = []
    taken: set[str] = set()
    while (name := named("a", "b", taken=taken)["0"]) is not None:
        tried.append(name)
        taken.add(name)
    assert len(tried) == 5
    assert named("a", "b", taken=taken) == {"0": None, "1": "b"}


@pytest.mark.parametrize("namespace", ["a b", "__", "é", "a.b"])
def test_an_illegal_namespace_is_the_users_mistake(namespace):
    """The error says what is allowed."""
    with pytest.raises(UsageError, match="namespace"):
        named("a", namespace=namespace)


def test_a_long_namespace_is_cut():
    """It may come from an API's category, and has to leave room for the name."""
    assert named("weather", namespace="c" * 70) == {"0": f"{'c' * 32}_weather"}
    assert named("weather", namespace="_" * 40 + "c") == {"0": "x_weather"}


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, 5, None, "__"])
def test_an_illegal_new_name_is_the_users_mistake(name):
    """It is an error, and not corrected."""
    with pytest.raises(UsageError, match="renamed"):
        check_renames({"a": name})


TEXTS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(["weather", "Weather", "weather!", "weather_now", "weather now", "天気", "x" * 70]),
)


@given(
    st.dictionaries(st.text(min_size=1, max_size=30), TEXTS, max_size=12),
    st.sets(TEXTS, max_size=4),
    st.sampled_from(["", "shop"]),
    st.dictionaries(st.text(min_size=1, max_size=3), TEXTS, max_size=4),
    st.randoms(use_true_random=False),
)
def test_names_are_legal_unique_and_independent_of_the_order(entries, taken, namespace, known, shuffle):
    """This holds for any entry names, taken names and known names."""
    bases = {who: base_name(who, name, "") for who, name in entries.items()}
    names = assign(bases, taken=taken, namespace=namespace, known=known)
    assert names.keys() == entries.keys()
    assert all(name is not None and LEGAL.fullmatch(name) and is_legal(name) for name in names.values())
    keys = [wire_name(name).casefold() for name in names.values()]
    assert len(set(keys)) == len(keys)
    assert {wire_name(name).casefold() for name in taken}.isdisjoint(keys)
    order = list(bases)
    shuffle.shuffle(order)
    bases = {who: bases[who] for who in order}
    assert assign(bases, taken=taken, namespace=namespace, known=known) == names
    assert assign(bases, taken=taken, namespace=namespace, known=names) == names


def test_ten_thousand_namesakes_are_named_quickly():
    """The number of rounds does not depend on the number of entries."""
    bases = ["weather"] * 10_000
    random.Random(1).shuffle(bases)  # noqa: S311 - any order
    assert len(set(named(*bases).values())) == 10_000
