"""Draws bars beside the columns of a table, as wide as the terminal has room, and fills in days without any."""

import sys
from collections.abc import Collection
from datetime import date
from typing import Final

from toolwire.cli.shared.printing import out

_WIDEST: Final = 40
_NARROWEST: Final = 6
_IN_A_PIPE: Final = 30
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LIGHT: Final = "░"


def list_days(known: Collection[str], most: int) -> list[str]:
    """Return the days (as 2026-11-01), with those between them as far as `most` of the last ones are shown."""
    try:
        last = date.fromisoformat(max(day for day in known if day[:1].isdigit()))
    except ValueError:
        return sorted(known)
    recent = {
        date.fromordinal(last.toordinal() - back).isoformat() for back in range(min(most, last.toordinal()))
    }
    return sorted({*known, *(day for day in recent if day > min(known))})


def measure_room(cells: list[list[str]]) -> int:
    """Return the width for bars beside these columns; 0 if there is no room."""
    from rich.cells import cell_len  # noqa: PLC0415 - heavy

    console = out()
    if not console.is_terminal:
        return _IN_A_PIPE
    taken = sum(max(map(cell_len, column)) + 2 for column in zip(*cells, strict=True))
    room = min(console.width - taken, _WIDEST)
    return room if room >= _NARROWEST else 0


def draw_bar(amount: float, most: float, width: int, light_amount: float = 0) -> str:
    """Draw a bar as rich markup: dark for an amount, and light for another one behind it."""
    if not most:
        return ""
    eighths = round(amount * width * 8 / most)
    if amount and not eighths:
        eighths = 1
    dark = _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    light = _LIGHT * min(round(light_amount * width / most), width - len(dark))
    try:
        (dark + light).encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        dark, light = "#" * len(dark), "-" * len(light)
    return f"[cyan]{dark}[/][yellow]{light}[/]"
