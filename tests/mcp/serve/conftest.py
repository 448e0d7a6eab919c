"""Fixtures for the tests of serving."""

import pytest

from shared.stdio_peer import low_level_server


@pytest.fixture
def core():
    """Return a low-level server of `mcp` with results that JSON cannot hold, and slow calls."""
    return low_level_server()
