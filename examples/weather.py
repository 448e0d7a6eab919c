"""Weather: an async tool with progress, structured output, and several cities at the same time."""

from enum import StrEnum
from typing import Annotated, TypedDict

import anyio
from offline import converse, main

from toolwire import Context, ToolServer
from toolwire.testing import call, say, turn

weather = ToolServer("weather", "2.0.0")


class Unit(StrEnum):
    """How to measure warmth."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Report(TypedDict):
    """What the weather is like."""

    city: str
    degrees: float
    unit: Unit
    sky: str


MADE_UP = {"Ulm": (21.0, "clear"), "Oslo": (4.5, "snow"), "Lima": (19.0, "fog")}


@weather.tool(read_only=True, structured=True, always_load=True)
async def forecast(
    city: Annotated[str, "Name of the city"], context: Context[None], unit: Unit = Unit.CELSIUS
) -> Report:
    """Tell the weather of a city."""
    for step in range(1, 4):
        context.progress(step, 3, f"asking station {step}")
        await anyio.sleep(0.05)
    degrees, sky = MADE_UP[city]
    shown = degrees if unit is Unit.CELSIUS else degrees * 9 / 5 + 32
    return {"city": city, "degrees": shown, "unit": unit, "sky": sky}


SCRIPT = [
    turn(*(call("mcp__weather__forecast", city=city) for city in MADE_UP)),
    say("Ulm is clear, it snows in Oslo, and Lima has fog."),
]

if __name__ == "__main__":
    prompt = "What is the weather in Ulm, Oslo and Lima?"
    main(converse(prompt, SCRIPT, mcp_servers={"weather": weather}, allowed_tools=["mcp__weather"]))
