"""The table in docs/migrating.md of what is refused: each of its rows is refused."""

import pytest

from shared.refused import NAMES, find_refused
from toolwire import ClaudeAgentOptions, HookMatcher, OptionsError, ToolDefinitionError, tool

ROWS = find_refused()


def test_the_table_is_found():
    """The rows can be read from the page."""
    assert len(ROWS) > 30
    assert {row.there for row in ROWS} == {"raises", "exits", "fails"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_each_row_is_refused(row):
    """The code of the row raises an error when it is evaluated."""
    names = {"ClaudeAgentOptions": ClaudeAgentOptions, "HookMatcher": HookMatcher, "tool": tool, **NAMES}
    with pytest.raises((OptionsError, ToolDefinitionError, TypeError)) as caught:
        eval(row.code, names)  # noqa: S307 - our own page
    assert isinstance(caught.value, OptionsError | ToolDefinitionError) or "unexpected keyword" in str(
        caught.value
    )
