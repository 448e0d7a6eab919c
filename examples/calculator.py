"""A calculator: four functions, and a division by zero, which Claude gets as an error."""

from offline import converse, main

from toolwire import ToolServer
from toolwire.testing import call, say

calc = ToolServer("calc", instructions="Exact arithmetic.")


@calc.tool(read_only=True)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@calc.tool(read_only=True)
def subtract(a: float, b: float) -> float:
    """Subtract b from a."""
    return a - b


@calc.tool(read_only=True)
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@calc.tool(read_only=True)
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


SCRIPT = [
    call("mcp__calc__add", a=15, b=27),
    call("mcp__calc__divide", a=1, b=0),
    say("15 + 27 = 42, and one cannot divide by zero."),
]

if __name__ == "__main__":
    prompt = "What is 15 + 27? And 1 / 0?"
    main(converse(prompt, SCRIPT, mcp_servers={"calc": calc}, allowed_tools=["mcp__calc"]))
