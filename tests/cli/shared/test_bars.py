"""The bars beside tables of costs, and the days that such a table lists."""

from toolwire.cli.shared.bars import draw_bar, list_days


def test_a_bar_is_as_long_as_its_share():
    """In eighths of a character; any amount above 0 is visible, and a second amount follows in light characters."""
    assert draw_bar(4, 8, 10) == "[cyan]█████[/][yellow][/]"
    assert draw_bar(1, 10_000, 10) == "[cyan]▏[/][yellow][/]"
    assert draw_bar(4, 8, 10, 2) == "[cyan]█████[/][yellow]░░[/]"
    assert draw_bar(0, 0, 10) == ""


def test_days_without_data_are_filled_in():
    """Days between known ones are added, as far back as the limit allows; a name that is not a day is kept."""
    assert list_days(["2026-03-01", "2026-02-27"], 31) == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert list_days(["2026-03-01", "2020-01-01"], 2) == ["2020-01-01", "2026-02-28", "2026-03-01"]
    assert list_days(["unknown"], 31) == ["unknown"]
    assert list_days(["unknown", "2026-03-01"], 31) == ["2026-03-01", "unknown"]
    assert list_days(["0001-01-01"], 31) == ["0001-01-01"]
    assert list_days([], 31) == []
