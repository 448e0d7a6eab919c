"""Tools made of functions: what is refused, and how the error says what to write instead."""

import pytest

from toolwire import ToolDefinitionError, ToolServer


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda server: server.tool("find"), r"write @server\.tool\(name='find'\)"),
        (lambda server: server.add(lambda x: x), "a lambda has no name .* name='double'"),
        (
            lambda server: server.tool(readonly=True)(print_it),
            r"no setting readonly \(did you mean read_only\?\)",
        ),
        (lambda server: server.tool(quux=True)(print_it), "a tool has no setting quux$"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(define, said):
    """The definition raises an error with the corrected code or setting."""
    with pytest.raises(ToolDefinitionError, match=said):
        define(ToolServer("s"))


def test_a_lambda_with_a_name_is_a_tool():
    """A given name replaces the one that a lambda lacks."""
    server = ToolServer("s")
    server.tool(lambda x: x, name="same")
    assert list(server.tools) == ["same"]


def print_it(text: str) -> str:
    """Print it."""
    return text
