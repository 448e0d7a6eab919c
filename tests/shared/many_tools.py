"""Servers of very many tools, as a file that `toolwire serve` can serve: `tools`, and `found` with a search."""

from toolwire import ToolServer
from toolwire.tools.tool import Tool
from toolwire.wrap import searchable

COUNT = 1_500
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def make_tools(count=100, name="many"):
    """Make a server of `count` ordinary tools, one that refunds money, and one (always listed) to remove a tool."""
    server = ToolServer(name)

    async def handle(arguments):
        return f"got {arguments['number']}"

    async def refund(arguments):
        return f"refunded {arguments['number']}"

    async def forget(_arguments):
        server.remove("refundPayment")
        return "forgotten"

    dull = (Tool(f"report_{each}", f"Write report {each}.", SCHEMA, handle) for each in range(count))
    refunding = Tool("refundPayment", "Give a customer's money back.", SCHEMA, refund, tags=["money"])
    server.swap([], [*dull, refunding])
    server.add(Tool("forget", "Remove a tool.", {}, forget, always_load=True, tags=["admin"]))
    return server


tools = make_tools(COUNT)
found = searchable(tools, always=["report_7"], most=3)
