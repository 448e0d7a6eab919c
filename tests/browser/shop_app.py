"""The tools that the studio is tested with: forms, progress, elicitation, failures, pictures, hostile output."""

import asyncio
import struct
import zlib
from enum import Enum
from typing import Annotated, Literal

from pydantic import Base64Bytes, BaseModel, Field

from toolwire import Audio, Context, Image, ToolServer

shop = ToolServer("shop")


class Color(Enum):
    """Colours that are in stock."""

    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    """Where things go."""

    street: str = Field(description="Street and number")
    city: str
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]


class Item(BaseModel):
    """One line of an order."""

    name: str
    count: int = Field(ge=1, le=10)
    color: Color = Color.RED


class Who(BaseModel):
    """A form for the user."""

    name: str
    age: int = Field(ge=0, le=150)


class Cash(BaseModel):
    """Paid at the door."""

    kind: Literal["cash"]


class Card(BaseModel):
    """Paid by card."""

    kind: Literal["card"]
    number: str


@shop.tool(read_only=True)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@shop.tool
def order(  # noqa: PLR0917 - a long form
    customer: str,
    address: Address,
    items: list[Item],
    express: bool = False,
    note: str | None = None,
    priority: Literal[1, 2, 3] = 1,
    payment: Cash | Card | None = None,
) -> dict:
    """Order things."""
    return {
        "customer": customer,
        "count": sum(each.count for each in items),
        "to": address.city,
        "express": express,
        "note": note,
        "priority": priority,
        "payment": None if payment is None else payment.kind,
    }


@shop.tool
async def slow(context: Context, steps: int = 5) -> str:
    """Count slowly, with progress and logs."""
    for step in range(1, steps + 1):
        context.progress(step, steps, f"step {step}")
        context.log(f"did {step}")
        await asyncio.sleep(0.2)
    return "counted"


@shop.tool
async def ask(context: Context) -> str:
    """Ask the user who they are."""
    answer = await context.elicit("Who are you?", Who)
    return f"{answer.action} {answer.content}"


@shop.tool
def fail(word: str) -> str:
    """Fail, always."""
    raise ValueError(f"no {word} here")


@shop.tool
def media() -> list:
    """A red square and a short silence."""
    rows = b"".join(b"\0" + b"\xff\0\0" * 40 for _ in range(40))
    head = struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )
    sound = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 44, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 8
    )
    return [Image(data=png, mime_type="image/png"), Audio(data=sound + b"\x80" * 8, mime_type="audio/wav")]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@shop.tool
def upload(content: Annotated[Base64Bytes, Field(description="Any file")]) -> int:
    """Count the bytes of a file."""
    return len(content)


HOSTILE = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    "<iframe src=javascript:parent.pwned=3></iframe><svg onload='window.pwned = 4'>"
    "{{ constructor.constructor('window.pwned = 5')() }} ${window.pwned = 6} \x1b[31m\u202e\x07 "
    "[link](javascript:window.pwned=7) </textarea></script>"
)


@shop.tool(description=HOSTILE, title=HOSTILE)
async def hostile(context: Context, size: int = 10) -> str:
    """Say what would run in a careless page, and a lot of it."""
    context.log(HOSTILE)
    context.progress(1, 2, HOSTILE)
    return HOSTILE + "x" * size
