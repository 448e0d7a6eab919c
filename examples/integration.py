"""Everything at once, with bad input: the errors that Claude gets when a call cannot be carried out.

A typed server, a foreign one of the `mcp` package, wrong arguments, an unknown tool, a tool that fails, one that
takes too long, and a tool that appears while the conversation runs.
"""

from typing import Literal

import anyio
from mcp.server import MCPServer
from offline import converse, main

from toolwire import ToolError, ToolServer
from toolwire.testing import call, say, turn

SEATS = 8
desk = ToolServer("desk")
library = MCPServer("library")


@desk.tool
def book(room: Literal["blue", "green"], seats: int) -> str:
    """Book a room."""
    if seats > SEATS:
        raise ToolError(f"The {room} room has {SEATS} seats. Ask for fewer.")
    desk.add(cancel, replace=True)
    return f"The {room} room is booked for {seats}."


def cancel(room: Literal["blue", "green"]) -> str:
    """Cancel a booking; there is nothing to cancel before the first one."""
    return f"The {room} room is free again."


@desk.tool(timeout=0.2)
async def ask_the_boss() -> str:
    """Ask the boss, who never answers."""
    await anyio.sleep_forever()
    return "never"


@library.tool()
def find_book(title: str) -> str:
    """Find a book; this server is written with the `mcp` package alone."""
    return f"{title}: shelf 42"


SCRIPT = [
    call("mcp__desk__book", room="red", seats="many"),
    call("mcp__desk__book", room="blue", seats=20),
    call("mcp__desk__bok", room="blue", seats=2),
    call("mcp__desk__ask_the_boss"),
    turn(call("mcp__desk__book", room="blue", seats=2), call("mcp__library__find_book", title="Emma")),
    call("mcp__desk__cancel", room="blue"),
    say("The room was booked and is free again; Emma is on shelf 42."),
]

if __name__ == "__main__":
    servers = {"desk": desk, "library": library}
    allowed = ["mcp__desk", "mcp__library"]
    main(converse("Book me a room, and find Emma.", SCRIPT, mcp_servers=servers, allowed_tools=allowed))
