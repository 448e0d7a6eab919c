"""A server of another library (`mcp`), in this process and unchanged, under names of your own."""

from mcp.server import MCPServer
from offline import converse, main

from toolwire.testing import call, say
from toolwire.wrap import only, prefix

library = MCPServer("library")


@library.tool()
def find(title: str) -> str:
    """Find a book."""
    return f"{title}: shelf 42"


@library.tool()
def burn(title: str) -> str:
    """Burn a book."""
    return f"{title} is gone"


SCRIPT = [call("mcp__lib__book_find", title="Emma"), say("Emma is on shelf 42.")]

if __name__ == "__main__":
    servers = {"lib": prefix(only(library, "find"), "book_")}  # nobody burns books
    main(converse("Where is Emma?", SCRIPT, mcp_servers=servers, allowed_tools=["mcp__lib"]))
