"""The tools of a server may be read while another thread changes them."""

import sys

import pytest

from toolwire import Tool, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.wrap import combine, prefix

pytestmark = pytest.mark.anyio


def make_tool(name, policy=None):
    return Tool(name, "", {}, lambda _: name, policy=policy)


def test_a_swap_never_hides_a_tool_that_stays():
    """A call during the swap finds its tool, and the order is that of the list."""
    server = ToolServer("s", tools=[make_tool("old"), make_tool("stays"), make_tool("replaced")])
    tools, missing = server.tools, []

    def check(frame, event, _argument):  # called between any two steps of the swap
        if "stays" not in tools or "replaced" not in tools:
            missing.append((frame.f_lineno, event))

    added = [make_tool("new"), make_tool("replaced")]
    sys.setprofile(check)
    try:
        server.swap(["old", "replaced"], added)
    finally:
        sys.setprofile(None)
    assert missing == []
    assert list(server.tools) == [each["name"] for each in server.page(None)[0]["tools"]]
    assert set(server.tools) == {"stays", "new", "replaced"}
    assert server.tools["replaced"] is added[1]


@pytest.mark.parametrize("wrap", [lambda server: prefix(server, ""), lambda server: combine("all", server)])
def test_a_wrapper_can_be_iterated_while_tools_are_added(wrap):
    """The iteration gives the tools that were there when it began."""
    server = ToolServer("s", tools=[make_tool("a"), make_tool("b")])
    found = []
    for name in wrap(server).tools:
        found.append(name)
        server.add(make_tool(f"more_{name}"))
    assert found == ["a", "b"]


async def test_a_tool_that_is_added_while_time_limits_are_looked_for():
    """The first connection reads all tools' timeouts, while a catalogue may still be loading tools in a thread."""

    class Growing(Tool):
        @property
        def timeout(self):
            if "more" not in server.tools and self.name in server.tools:
                server.add(make_tool("more"))

        @timeout.setter
        def timeout(self, value):
            pass

    server = ToolServer("s")
    server.add(Growing("a", "", {}, lambda _: 1))
    server.add(make_tool("b"))
    connection = server.connect(ClientChannel())
    assert connection.limits_time is False
    assert "more" in server.tools
    await connection.aclose()
