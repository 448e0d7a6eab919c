"""Times, ages and sizes on a command line."""

from datetime import UTC, datetime, timedelta

import pytest

from toolwire.cli.shared.quantities import parse_age, parse_size, parse_time
from toolwire.errors import UsageError

NOW = datetime(2026, 11, 6, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12h", datetime(2026, 11, 6, 0, 30, tzinfo=UTC)),
        ("1d", datetime(2026, 11, 6, tzinfo=UTC)),
        ("2w", datetime(2026, 10, 24, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T10:00+02:00", datetime(2026, 11, 1, 8, tzinfo=UTC)),
    ],
)
def test_times(text, expected):
    """A time is an age or a date. Ages in days and weeks count whole UTC days, and today is one of them."""
    assert parse_time("--since", text, NOW) == expected


def test_ages_and_sizes():
    """Both are written with a unit; a KB has 1024 bytes."""
    assert parse_age("--older-than", "30d") == timedelta(days=30)
    assert parse_age("--older-than", "2w") == timedelta(days=14)
    assert [parse_size("--max-size", each) for each in ("7", "2k", "3 MB", "1GiB")] == [
        7,
        2048,
        3 << 20,
        1 << 30,
    ]


@pytest.mark.parametrize("text", ["", "soon", "-3d", "1.5h", "99999d", "7x"])
def test_anything_else_is_refused_with_examples(text):
    """The error names the option and the values that it takes."""
    with pytest.raises(UsageError, match="--x takes 12h, 7d, 4w or a date"):
        parse_time("--x", text, NOW)
    with pytest.raises(UsageError, match="--x takes 12h, 30d or 8w"):
        parse_age("--x", text)
    with pytest.raises(UsageError, match="--x takes a size"):
        parse_size("--x", text)
