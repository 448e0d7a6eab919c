"""The tools of the served benchmarks: the same functions for all libraries."""

from collections.abc import Callable
from typing import Any


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def look_up(
    city: str, country: str = "", days: int = 3, units: str = "metric", detail: bool = False
) -> str:
    """Look up the weather of a city for some days."""
    return f"{city} {country} {days} {units} {detail}"


def register(tool: Callable[..., Any], count: int) -> None:
    """Register `add` and `count - 1` tools for weather. `tool(name)` returns a library's decorator."""
    tool("add")(add)
    for number in range(count - 1):
        tool(f"look_up_{number}")(look_up)
