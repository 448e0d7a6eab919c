"""A greeter: descriptions from a docstring, a default, and the official `@tool` form beside the typed one."""

from typing import Any

from offline import converse, main

from toolwire import ToolServer, tool
from toolwire.testing import call, say, turn


@tool
def greet(name: str, formal: bool = False) -> str:
    """Greet someone.

    Args:
        name: Person to greet
        formal: Use formal greeting
    """
    return f"Good day, {name}." if formal else f"Hi {name}!"


@tool("farewell", "Say goodbye", {"name": str})
async def farewell(args: dict[str, Any]) -> dict[str, Any]:
    """Say goodbye. This is unchanged code for the official SDK."""
    return {"content": [{"type": "text", "text": f"Goodbye, {args['name']}."}]}


greeter = ToolServer("greeter", tools=[greet, farewell])

SCRIPT = [
    turn(call("mcp__g__greet", name="Ada", formal=True), call("mcp__g__farewell", name="Ada")),
    say("Ada was greeted and seen off."),
]

if __name__ == "__main__":
    main(
        converse("Greet Ada, then say goodbye.", SCRIPT, mcp_servers={"g": greeter}, allowed_tools=["mcp__g"])
    )
