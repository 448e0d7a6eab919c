"""Reads the table of docs/migrating.md that lists what is refused."""

import re
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
_ROW = re.compile(r"^\| `(?P<code>[^`]+)` \| (?P<there>raises|exits|fails) \| (?P<why>.+) \|$", re.MULTILINE)


class Refused(NamedTuple):
    """A row of the table: code that is refused, and what the official SDK does with it."""

    code: str
    there: str


def find_refused() -> list[Refused]:
    """Read the rows; a bar inside code is written with a backslash."""
    section = PAGE.read_text(encoding="utf-8").partition("### What is still refused")[2].partition("\n## ")[0]
    return [Refused(row["code"].replace("\\|", "|"), row["there"]) for row in _ROW.finditer(section)]


async def hook(*args: Any) -> dict[str, Any]:
    """Decide nothing."""
    return {}


async def decide(*args: Any) -> Any:
    """Fail: this permission callback is never called."""
    raise AssertionError


async def handler(args: Any) -> dict[str, Any]:
    """Return no content: a tool."""
    return {"content": []}


async def generator(args: Any) -> Any:
    """A function that cannot be a tool."""
    yield {}


NAMES: dict[str, Any] = {
    "ID": "0b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f11",
    "Path": Path,
    "hook": hook,
    "decide": decide,
    "handler": handler,
    "generator": generator,
}
"""The names that the code of the rows uses, besides those of the SDK."""
