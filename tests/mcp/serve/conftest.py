"""For the tests of what serves MCP."""

import pytest

from shared.stdio_peer import low_level_server


@pytest.fixture
def core():
    """A server of `mcp` with responses that JSON cannot hold, and calls that take their time."""
    return low_level_server()
