"""The "did you mean" of every message, and foreign text on a terminal."""

import unicodedata

import pytest

from toolwire._support.words import closest, count, plain, plain_line, reveal, storable


def test_the_closest_name_is_found():
    """The most similar known name, or None."""
    assert closest("serch", ["search", "fetch"]) == "search"
    assert closest("zzz", ["search", "fetch"]) is None
    assert closest("x", []) is None


def test_one_is_not_many():
    """Zero takes the plural, as in English."""
    assert [count(each, "tool") for each in (0, 1, 2)] == ["0 tools", "1 tool", "2 tools"]


def test_the_cutoff_says_how_alike():
    """A caller for which a wrong guess is worse than none sets a higher cutoff."""
    assert closest("PreToolUsed", ["PreToolUse"], cutoff=0.8) == "PreToolUse"
    assert closest("Tool", ["PreToolUse"], cutoff=0.8) is None


def test_a_name_of_any_length_is_compared_in_no_time():
    """Only the beginning counts: a name can come from outside, and comparing grows with the square."""
    assert closest("a" * 5_000_000, ["a" * 200, "b"]) == "a" * 200


@pytest.mark.parametrize(
    ("text", "shown", "on_a_line"),
    [
        ("ünï", "ünï", "ünï"),
        ("\x1b[31mred\x1b[0m", "red", "\ufffd[31mred\ufffd[0m"),
        ("\x1b]0;title\x07x", "x", "\ufffd]0;title\ufffdx"),
        ("a\x08\x00b\x9b", "a\ufffd\ufffdb\ufffd", "a\ufffd\ufffdb\ufffd"),
        ("\u202eright to left", "\ufffdright to left", "\ufffdright to left"),
        ("a\r\nb\tc\u2028d", "a\nb\tc\ufffdd", "a  b c d"),
        ("half \ud83d", "half \ufffd", "half \ufffd"),
        ("👩\u200d🚀", "👩\u200d🚀", "👩\u200d🚀"),
    ],
)
def test_text_of_others_is_harmless(text, shown, on_a_line):
    """Printed, colours are removed and the lines stay; on a line nothing is removed, so that nothing is hidden."""
    assert (plain(text), plain_line(text)) == (shown, on_a_line)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ünï\n\ttab 👩\u200d🚀 עברית", "ünï\n\ttab 👩\u200d🚀 עברית"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b]0;t\x07", "⟦U+001B⟧[2J⟦U+001B⟧]0;t⟦U+0007⟧"),
        ("\u202ea\u2066b\u200f\u061c", "⟦U+202E⟧a⟦U+2066⟧b⟦U+200F⟧⟦U+061C⟧"),
        ("a\r\nb\rc\x00\x7f\x9b", "a\nb⟦U+000D⟧c⟦U+0000⟧⟦U+007F⟧⟦U+009B⟧"),
        ("\ud83d \U000e0041 \u2028 \ufeff \u200b", "⟦U+D83D⟧ ⟦U+E0041⟧ ⟦U+2028⟧ ⟦U+FEFF⟧ ⟦U+200B⟧"),
    ],
)
def test_what_nobody_sees_is_written_as_its_number(text, shown):
    """Colours alone are removed; letters of any language stay."""
    assert reveal(text) == shown
    assert shown.encode()


def test_no_control_or_formatting_character_is_left():
    """This holds for all of Unicode, except for line breaks, tabs and the joiners of letters and emoji."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    hidden = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in kinds]
    left = [char for char in hidden if reveal(char) == char]
    assert set(left) <= {"\n", "\t", "\u200c", "\u200d"}, [hex(ord(char)) for char in left]


def test_a_database_takes_what_is_storable():
    """Characters that a database refuses are replaced; letters of any language stay."""
    assert storable("é\0\ud800 漢") == "é?? 漢"


def test_among_very_many_names_the_likely_ones_are_compared():
    """A call of an unknown tool must not keep the event loop busy because there are ten thousand others."""
    names = [f"customer_orders_list_{number}" for number in range(10_000)]
    assert closest("customer_ordrs_list_77", names) == "customer_orders_list_77"
    assert closest("zzz", names) is None
