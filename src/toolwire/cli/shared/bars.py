"""Tables with bars that fill the width of the terminal, and the days that they show."""

import sys
from collections.abc import Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

from toolwire.cli.shared.printing import markup, out

if TYPE_CHECKING:
    from rich.table import Table

MOST_LINES: Final = 31
"""The most rows of a table that are shown: the days of a month."""
_WIDEST: Final = 40
_NARROWEST: Final = 6
_IN_A_PIPE: Final = 30
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LIGHT: Final = "░"


def list_days(known: Collection[str], most: int) -> list[str]:
    """Return the known days (as 2026-11-01) in order. Days missing among the last `most` ones are added."""
    try:
        last = date.fromisoformat(max(day for day in known if day[:1].isdigit()))
    except ValueError:
        return sorted(known)
    recent = {
        date.fromordinal(last.toordinal() - back).isoformat() for back in range(min(most, last.toordinal()))
    }
    return sorted({*known, *(day for day in recent if day > min(known))})


def make_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    amounts: Sequence[float],
    light_amounts: Sequence[float] = (),
) -> "Table":
    """Make a table of names and numbers, with a bar for each row where there is room."""
    from rich.table import Table  # noqa: PLC0415 - heavy

    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(title, justify="left" if at == 0 else "right", overflow="fold", no_wrap=at > 0)
    width = _measure_room([titles, *rows])
    if width:
        table.add_column("", no_wrap=True)
    light_amounts = light_amounts or [0] * len(amounts)
    most = max(map(sum, zip(amounts, light_amounts, strict=True)))
    for row, amount, light in zip(rows, amounts, light_amounts, strict=True):
        table.add_row(*map(markup, row), *([draw_bar(amount, most, width, light)] if width else []))
    return table


def _measure_room(cells: Sequence[Sequence[str]]) -> int:
    """Return the width for bars beside these columns; 0 if there is no room."""
    from rich.cells import cell_len  # noqa: PLC0415 - heavy

    console = out()
    if not console.is_terminal:
        return _IN_A_PIPE
    taken = sum(max(map(cell_len, column)) + 2 for column in zip(*cells, strict=True))
    room = min(console.width - taken, _WIDEST)
    return room if room >= _NARROWEST else 0


def draw_bar(amount: float, most: float, width: int, light_amount: float = 0) -> str:
    """Draw a bar as rich markup: dark for an amount, followed by a light part for another one."""
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
