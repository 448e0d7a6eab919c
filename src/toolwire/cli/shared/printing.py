"""Prints tables, JSON, notes and errors for the commands, and defines their exit codes.

Text of servers and models is made safe first: control characters are replaced, and none of it is read as markup.
"""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from toolwire._support.words import KEPT, plain, plain_line
from toolwire.tools.names import short_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILURE: Final = 1
WRONG_USE: Final = 2  # such as a target that does not exist
INTERRUPTED: Final = 130  # Ctrl-C
_BMP: Final = 0xFFFF
_WIDE: Final = 100_000
_KB: Final = 1024


def one_line(text: str) -> str:
    """Return the first line of a text, made safe for a terminal."""
    return plain(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def markup(text: str) -> str:
    """Escape a text for rich markup, made safe for a terminal."""
    from rich.markup import escape  # noqa: PLC0415 - heavy

    return escape(plain(text))


def out() -> "Console":
    """Return the console for results."""
    from rich.console import Console  # noqa: PLC0415 - heavy

    return Console(highlight=False)


def show(table: "Table") -> None:
    """Print a table: as wide as the terminal, or in a pipe with one line for each row."""
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
    """Print a value as JSON."""
    typer.echo(to_json(value))


def to_json(value: Any, indent: int | None = 2) -> str:
    """Format a value as JSON that stdout can encode and a terminal can show safely."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    # JSON allows control characters that a terminal would obey. Escaped, they mean the same.
    return "\n".join(line if line.isprintable() else _escape(line) for line in text.split("\n"))


def _escape(line: str) -> str:
    return "".join(
        char if char.isprintable() or char in KEPT or ord(char) > _BMP else f"\\u{ord(char):04x}"
        for char in line
    )


def note(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(plain(text), err=True)


def size(count: int) -> str:
    """Format a number of bytes."""
    if count < _KB:
        return f"{count} bytes"
    return f"{count / _KB:.0f} KB" if count < _KB * _KB else f"{count / _KB / _KB:.1f} MB"


def tool_name(name: str) -> str:
    """Shorten the name of a tool: `mcp__calc__add` to `calc.add`."""
    return plain_line(short_name(name))


def format_arguments(given: Mapping[str, Any]) -> str:
    """Format the arguments of a call as `a=1, b="x"`."""
    shown = ((name, json.dumps(value, ensure_ascii=False, default=str)) for name, value in given.items())
    return ", ".join(plain_line(f"{name}={value}") for name, value in shown)


def fail(message: str, code: int = FAILURE) -> NoReturn:
    """Exit with a message on stderr."""
    from rich.console import Console  # noqa: PLC0415 - heavy, and only failures need it
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]Error:[/] {escape(plain(message))}")
    raise typer.Exit(code)
