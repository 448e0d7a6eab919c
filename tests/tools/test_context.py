"""Which log messages a client gets."""

from itertools import product

import pytest

from toolwire.tools.context import LEVELS, reaches


def test_a_client_gets_its_level_and_all_above():
    """In the order of syslog, which MCP has taken over."""
    assert LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    for (i, level), (j, threshold) in product(enumerate(LEVELS), enumerate(LEVELS)):
        assert reaches(level, threshold) is (i >= j)


@pytest.mark.parametrize("unknown", ["fatal", "", None, 3, ["info"]])
def test_an_unknown_level_reaches_nobody(unknown):
    """Whoever sends it and whoever asks for it: levels come from outside."""
    assert not reaches(unknown, "debug")
    assert not reaches("emergency", unknown)
