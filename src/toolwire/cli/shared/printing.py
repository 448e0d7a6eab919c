"""What the commands print: others' text made harmless, tables that also work in a pipe, JSON.

Text of others has no say over the terminal: control characters and those that turn the direction of writing are
replaced, and nothing of it is read as markup.
"""

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

from toolwire._support.terminal import KEPT, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BMP: Final = 0xFFFF
_WIDE: Final = 100_000


def one_line(text: str) -> str:
    """The first line of a text of others."""
    return plain(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def markup(text: str) -> str:
    """Text of others inside rich markup."""
    from rich.markup import escape  # noqa: PLC0415 - loads rich

    return escape(plain(text))


def out() -> "Console":
    """Where results go."""
    from rich.console import Console  # noqa: PLC0415 - loads rich

    return Console(highlight=False)


def err() -> "Console":
    """Where everything else goes."""
    from rich.console import Console  # noqa: PLC0415 - loads rich

    return Console(stderr=True, highlight=False, soft_wrap=True)


def show(table: "Table") -> None:
    """Print a table: as wide as the terminal, and in a pipe one line for each row."""
    console = out()
    if console.is_terminal:
        console.print(table)
        return
    from rich.console import Console  # noqa: PLC0415

    wide = Console(highlight=False, width=_WIDE, no_color=True, file=sys.stdout)
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def show_json(value: Any) -> None:
    """Print a value for a machine."""
    typer.echo(to_json(value))


def to_json(value: Any) -> str:
    """JSON for people and machines; what no encoding takes is escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=2)
    # In a terminal these would act, although JSON lets them pass: escaped they mean the same.
    return "".join(
        char if char.isprintable() or char in KEPT or ord(char) > _BMP else f"\\u{ord(char):04x}"
        for char in text
    )


def note(text: str) -> None:
    """A line of others or of ours on stderr."""
    typer.echo(plain(text), err=True)


def size(count: int) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1024 or unit == "MB":  # noqa: PLR2004 - bytes in a KB
            return f"{count:.0f} {unit}" if unit != "MB" else f"{count:.1f} MB"
        count = round(count / 1024)
    raise AssertionError(count)
