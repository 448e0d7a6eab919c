"""Which log messages are sent to a client."""

from itertools import product

import pytest

from toolwire.tools.context import LEVELS, reaches


def test_a_client_gets_its_level_and_all_above():
    """The order of levels is that of syslog, as in MCP."""
    assert LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    for (i, level), (j, threshold) in product(enumerate(LEVELS), enumerate(LEVELS)):
        assert reaches(level, threshold) is (i >= j)


@pytest.mark.parametrize("unknown", ["fatal", "", None, 3, ["info"]])
def test_an_unknown_level_reaches_nobody(unknown):
    """Levels come from outside: an unknown one is never sent, and as the client's level allows nothing."""
    assert not reaches(unknown, "debug")
    assert not reaches("emergency", unknown)
