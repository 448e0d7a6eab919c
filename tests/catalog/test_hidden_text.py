"""Hidden text: invisible characters are removed, unless they belong to an emoji or a script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.hidden_text import has_hidden, remove_hidden
from toolwire.catalog.tools.definitions import slug
from toolwire.catalog.values import tidy


def tags(text):
    """Return a text in Unicode's tag characters."""
    return "".join(chr(0xE0000 + ord(each)) for each in text)


ENGLAND = f"\U0001f3f4{tags('gbeng')}\U000e007f"


@pytest.mark.parametrize(
    "text",
    [
        "👍",
        "👍🏽 done",
        "❤️ and ❤︎",
        "👨‍👩‍👧‍👦",
        "👩🏽‍💻",
        "🏳️‍🌈",
        "🏴‍☠️",
        "🧔‍♂️",
        "⛓️‍💥",
        "1️⃣ #️⃣ *️⃣",
        "🇩🇪🇫🇷",
        ENGLAND,
        f"go {ENGLAND}!",
        "\U0001fae8 \U0001faf8",  # newer than some Pythons
        "™️ ©️ ↔️ ⌚️ Ⓜ️ ㊗️",
        "می‌خواهم",  # Persian, with ZWNJ
        "क्‍ष क्‌ष",  # Hindi, with ZWJ and with ZWNJ
        "ශ්‍රී ලංකා",  # Sinhala
        "নির্‌ধারণ",  # Bengali
        "\u0d28\u0d4d\u200d \u0930\u094d\u200d",  # Malayalam and Marathi, with ZWJ at the end of a word
        "\u182e\u1823\u1829\u180b\u182d\u180e\u1820",  # Mongolian, with a selector and its vowel separator
        "\u0e20\u0e32\u0e29\u0e32\u200b\u0e44\u0e17\u0e22",  # Thai, with an optional line break
        "\u2813\u2811\u2800\u2807",  # Braille, with its space
        "Donau\u00addampf\u00adschiff",
        "a — b … “c” naïve 日本語 \u00a0",
        '{\n\t"a": 1\n}',
        "٪ ۝ \u0600",
    ],
)  # fmt: skip
def test_what_people_write_stays(text):
    """Emoji with all their parts, joiners between letters and soft hyphens in words are kept."""
    assert remove_hidden(text) == text
    assert not has_hidden({"a": [text]})
    assert tidy(f" {text} ") == text.strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tags("obey"), ""),
        (f"👍{tags('obey')}", "👍"),
        (f"\U0001f3f4{tags('obey')}\U000e007f", "🏴"),
        (f"\U0001f3f4{tags('gbeng')}", "🏴"),
        (f"{ENGLAND}{tags('x')}\U000e007f", ENGLAND),
        ("a\u200bb\u2060c\ufeff", "abc"),
        ("a\u200cb\u200dc", "abc"),
        ("م\u200c\u200cی", "می"),
        ("\u200cمی\u200d ", "می "),
        ("م\u200b\u200cی", "می"),
        ("👍\u200d", "👍"),
        ("👍\u200d\u200d👍", "👍👍"),
        ("👍\ufe0f\ufe0f\ufe0f", "👍\ufe0f"),
        ("👍\ufe0f\ufe01\U000e0100\U000e01ef", "👍\ufe0f"),
        ("a\ufe0fb", "ab"),
        ("1\ufe0f2", "12"),
        ("\u00adab\u00ad", "ab"),
        ("a\u00ad\u00adb", "ab"),
        ("1\u00ad2", "12"),
        ("\u202aabc\u202e\u2066def\u2069\u200f", "abcdef"),
        ("a\u3164\u00adb", "a\u00adb"),
        ("a\u17b4\u200dក", "aក"),
        ("a\x00\x1b[2Jb\x7f", "a[2Jb"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\x0bb\x0cc\x85d\u2028e\u2029f", "a\nb\nc\nd\ne\nf"),
        ("a\u180b\u180c\u180db\u180f", "ab"),
        ("\u182e\u180b\u180c\u180d", "\u182e\u180b"),
        ("\u0d4d\u200d\u200c\u200d", "\u0d4d"),
        ("\u2800\u2813\u2800\u2800\u2811", "\u2813\u2811"),
        ("\u0e20\u200b\u200b\u0e32", "\u0e20\u0e32"),
        ("a\U0001d159b", "ab"),
        ("\ue000\U000f0000\ud800", ""),
    ],
    ids=ascii,
)
def test_what_could_hide_an_instruction_goes(text, expected):
    """Tags, bidi marks, and runs of zero-width characters and selectors are removed where they do not belong."""
    assert remove_hidden(text) == expected
    assert remove_hidden(expected) == expected
    assert has_hidden(text) == ("\r" not in text)


@given(
    st.text(
        st.one_of(
            st.sampled_from(
                "a1م\u200b\u200c\u200d\u00ad\ufe0f\ufe01\u3164\u17b4ក👍❤🏴\u20e3\U000e0067\U000e007f\u202e"
            ),
            st.characters(),
        ),
        max_size=30,
    )
)
def test_cleaned_text_is_clean(text):
    """Cleaning a text twice is the same as cleaning it once, and no text gets longer."""
    cleaned = remove_hidden(text)
    assert remove_hidden(cleaned) == cleaned
    assert not has_hidden(cleaned)
    assert len(cleaned) <= len(text)


def test_a_cut_leaves_no_half_of_an_emoji():
    """A text that is shortened does not end with invisible characters."""
    family = "👨‍👩‍👧‍👦"
    for length in range(2, 9):
        assert not has_hidden(tidy(family * 9, length))
        assert len(tidy(family * 9, length)) <= length


def test_a_name_is_one_word_with_or_without_soft_hyphens():
    """Soft hyphens, joiners and parts of emoji do not count as gaps."""
    assert slug("wea\u00adther ❤️ map") == "weather_map"
