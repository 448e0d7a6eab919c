"""Trips: arguments of nested models, progress, and a call that fails; the studio shows them."""

from enum import StrEnum
from typing import TypedDict

import anyio
from offline import converse, main
from pydantic import BaseModel, Field

from toolwire import Context, ToolServer
from toolwire.testing import call, say

trips = ToolServer("trips")


class Seat(StrEnum):
    """Where to sit."""

    WINDOW = "window"
    AISLE = "aisle"


class Traveller(BaseModel):
    """Who travels."""

    name: str = Field(description="As in the passport")
    age: int = Field(ge=0, le=120)


class Stop(BaseModel):
    """A city on the way."""

    city: str
    nights: int = Field(1, ge=1, le=14)


class Trip(TypedDict):
    """What was booked."""

    traveller: str
    nights: int
    price: float
    seat: Seat


PRICES = {"Ulm": 80.0, "Oslo": 140.0}


@trips.tool(read_only=True)
def price(city: str, nights: int = 1) -> float:
    """Tell what some nights in a city cost."""
    return PRICES[city] * nights


@trips.tool
async def book(traveller: Traveller, stops: list[Stop], context: Context, seat: Seat = Seat.WINDOW) -> Trip:
    """Book a trip through one or more cities."""
    total = 0.0
    for number, stop in enumerate(stops, 1):
        context.progress(number, len(stops), f"asking for a bed in {stop.city}")
        context.log(f"{stop.nights} nights in {stop.city}")
        await anyio.sleep(0.3)
        total += price(stop.city, stop.nights)
    return {
        "traveller": traveller.name,
        "nights": sum(stop.nights for stop in stops),
        "price": total,
        "seat": seat,
    }


ANN = {"name": "Ann", "age": 34}
SCRIPT = [
    call("mcp__trips__book", traveller=ANN, stops=[{"city": "Ulm", "nights": 2}, {"city": "Lima"}]),
    call("mcp__trips__book", traveller=ANN, stops=[{"city": "Ulm", "nights": 2}]),
    say("Ann has two nights in Ulm for 160. For Lima I could not find a bed."),
]

if __name__ == "__main__":
    prompt = "Book Ann, 34, two nights in Ulm and one in Lima."
    main(converse(prompt, SCRIPT, mcp_servers={"trips": trips}, allowed_tools=["mcp__trips"]))
