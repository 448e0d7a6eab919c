"""Conversion of dollars to micro-dollars and back."""

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.money import dollars, micros


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.01", 10_000),
        ("$0.01", 10_000),
        ("0.50 USD", 500_000),
        ("usd 0.5", 500_000),
        ("US$0.01", 10_000),
        ("$0.01 USD", 10_000),
        ("0.01$", 10_000),
        (" 1.5 ", 1_500_000),
        (".5", 500_000),
        ("1e-3", 1_000),
        (0.1, 100_000),
        (3, 3_000_000),
        (Decimal("0.000001"), 1),
        ("0.0000001", 1),
        (0.1 + 0.2, 300_001),
        (Decimal("1e-999999"), 1),
        (0, 0),
        ("-0", 0),
        ("0e9999", 0),
        (9_999_999_999, 9_999_999_999_000_000),
    ],
)
def test_dollars_become_micros_rounded_up(value, expected):
    """The result is exact to the micro, and never less than the amount."""
    assert micros(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            True,
            None,
            [],
            {},
            b"1",
            "",
            "free",
            "1_000",
            "1,5",
            "0x10",
            "٣",
            "1 EUR",
            "€1",
            "5 cents",
            "USD",
            "1" * 100,
        ),
        *(-1, -0.5, "-0.01", Decimal(-1), float("nan"), float("inf"), "nan", "inf", Decimal("sNaN")),
        *(10**10, 10**4000, 1e300, "1e400", "1e9999", Decimal("1e999999")),
    ],
)
def test_what_is_no_amount_is_refused(value):
    """Negative, infinite, huge and other values raise ValueError, without taking long."""
    with pytest.raises(ValueError, match="amount"):
        micros(value)


@pytest.mark.parametrize(
    ("amount", "places", "expected"),
    [
        (10_000, 4, "$0.0100"),
        (9_990_000, 2, "$9.99"),
        (9_994_999, 2, "$9.99"),
        (9_995_000, 2, "$10.00"),
        (0, 4, "$0.0000"),
        (1, 4, "$0.000001"),
        (1, 2, "$0.000001"),
        (1_500_000, 0, "$2"),
        (-2_500_000, 2, "-$2.50"),
        (1, 99, "$0.000001"),
    ],
)
def test_amounts_are_shown_with_their_places(amount, places, expected):
    """Amounts are rounded half up, but one above zero is never shown as zero."""
    assert dollars(amount, places) == expected


@given(st.integers(0, 10**15))
def test_an_amount_survives_the_way_through_text(amount):
    """Six decimal places represent micro-dollars exactly."""
    assert micros(dollars(amount, 6)) == amount


@given(st.decimals(0, 10**6, allow_nan=False, places=9))
def test_rounding_is_always_up_and_by_less_than_a_micro(value):
    """No price is read as less than it is."""
    assert 0 <= micros(value) - value * 1_000_000 < 1


@given(st.one_of(st.text(), st.floats(), st.integers(), st.decimals(), st.binary(), st.none()))
def test_nothing_but_value_errors(value):
    """Any value that an API sends as a price is an amount, or raises ValueError."""
    with contextlib.suppress(ValueError):
        assert micros(value) >= 0
