"""`create_sdk_mcp_server`: all arguments that the official function accepts, and what they become."""

from types import SimpleNamespace
from typing import Any

import pytest

from toolwire import ToolServer, ToolwireWarning, create_sdk_mcp_server, tool


async def one(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": []}


async def two(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": []}


def handlers(server: Any) -> dict[str, Any]:
    return {name: each.handler for name, each in server["instance"].tools.items()}


def test_it_is_a_config_with_a_server_of_ours():
    """It returns a dict like the official function, whose instance is a `ToolServer`."""
    server = create_sdk_mcp_server("calc", "2.0", [tool("a", "", {})(one)])
    assert (server["type"], server["name"]) == ("sdk", "calc")
    assert isinstance(server["instance"], ToolServer)
    assert server["instance"].version == "2.0"


def test_of_two_tools_of_a_name_the_last_counts():
    """As in the official SDK; a warning says so."""
    with pytest.warns(
        ToolwireWarning, match="two tools are called 'a' by the CLI.*the last counts"
    ) as caught:
        server = create_sdk_mcp_server("s", tools=[tool("a", "", {})(one), tool("a", "", {})(two)])
    assert handlers(server) == {"a": two}
    assert [each.filename for each in caught] == [__file__]


def test_of_two_tools_of_a_spelling_the_first_counts():
    """Of two names that the CLI spells the same, it takes the first."""
    with pytest.warns(ToolwireWarning, match="'a b' and 'a.b': the first counts"):
        server = create_sdk_mcp_server("s", tools=[tool("a b", "", {})(one), tool("a.b", "", {})(two)])
    assert handlers(server) == {"a b": one}


@pytest.mark.parametrize("name", ["", "天気", "a\nb", None])
def test_any_name_of_a_server_will_do(name: Any):
    """The CLI knows the server by its key in `mcp_servers`."""
    server = create_sdk_mcp_server(name)
    assert server["name"] == name
    assert server["instance"].name == "tools"


def test_tools_of_the_official_class_are_taken():
    """An object of another class with the official fields becomes a `Tool`, also when it is added later."""
    other = SimpleNamespace(
        name="a", description=None, input_schema={"n": int}, handler=one, annotations=None
    )
    server = create_sdk_mcp_server("s", tools=[other])  # type: ignore[list-item]
    assert handlers(server) == {"a": one}
    assert server["instance"].tools["a"].description == ""
    assert ToolServer("t").add(other).json_schema["properties"] == {"n": {"type": "integer"}}  # type: ignore[arg-type]


def test_what_is_set_on_a_tool_before_it_is_served_counts():
    """Libraries replace the handler, description or schema of a tool after it was made."""
    made = tool("a", "Before", {"n": int})(lambda args: "sync")
    made.handler, made.description, made.input_schema = two, "After", {"m": str}
    served = create_sdk_mcp_server("s", tools=[made])["instance"].tools["a"]
    assert (served.handler, served.is_async) == (two, True)
    assert (served.definition["description"], [*served.json_schema["properties"]]) == ("After", ["m"])
    plain = tool("b", "", {})(one)
    assert create_sdk_mcp_server("s", tools=[plain])["instance"].tools["b"] is plain
