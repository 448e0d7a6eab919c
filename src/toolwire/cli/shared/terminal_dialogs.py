"""Asks the user on the terminal of a command: permission for a call, and the form of an elicitation.

Owns how a dialog looks on a rich console and how a line is read; wording and meaning are in `_support.dialogs`. The
functions block and run in the thread that owns the terminal. Without a terminal every request is refused, and a
note on stderr says why.
"""

import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from rich.console import Console
from rich.text import Text

from toolwire._support.dialogs import Permission, Prompt, Role, ask_permission, elicit
from toolwire._support.words import plain_line
from toolwire.cli.shared.printing import format_arguments, tool_name
from toolwire.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult

T = TypeVar("T")


class ReadLine(Protocol):
    """Shows a prompt and returns the typed line; raises EOFError at the end of input."""

    def __call__(self, prompt: str, *, remember: bool = False) -> str: ...


_NO_TERMINAL: Final = (
    "The call was not allowed: permission is needed, and there is no terminal to ask the user on."
)
_STYLES: Final[dict[Role, str]] = {
    "request": "bold",
    "detail": "",
    "url": "underline",
    "note": "dim",
    "error": "red",
}


class Asker:
    """Asks on `console`, or refuses everything when `read_line` is None."""

    def __init__(self, console: Console, notes: Console, read_line: ReadLine | None) -> None:
        self._console = console
        self._notes = notes
        self._read_line = read_line
        self._always: set[str] = set()
        self._noted: set[str] = set()

    def permission(
        self, name: str, given: Mapping[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Ask whether a tool may be called."""
        if name in self._always:
            return PermissionResultAllow()
        shown = tool_name(name)
        if self._read_line is None:
            options = f"--allow {shown}" + " or --yes" * name.startswith("mcp__")
            self._note(f"{shown} was not allowed: there is no terminal to ask on. Use {options}.")
            return PermissionResultDeny(message=_NO_TERMINAL)
        text = format_arguments(given) or "(no arguments)"
        always = "this tool in this run"
        dialog = ask_permission(shown, text, context.decision_reason, always=always, ask_reason=True)
        permission: Permission = self._run(dialog, self._read_line)
        if not permission.allowed:
            return PermissionResultDeny(message=permission.denial)
        if permission.always:
            self._always.add(name)
        return PermissionResultAllow()

    def elicitation(self, request: ElicitationRequest) -> ElicitationResult:
        """Ask for the input that a server requests from the user."""
        if self._read_line is None:
            self._note(
                f"{plain_line(request.server)} requested input from the user: declined, there is no terminal."
            )
            return ElicitationResult("decline")
        return ElicitationResult(**self._run(elicit(request), self._read_line))

    def _run(self, dialog: Generator[Prompt, str | None, T], read_line: ReadLine) -> T:
        discard_typed()
        prompt = next(dialog)
        while True:
            for text, role in prompt.lines:
                self._console.print(Text(plain_line(text), style=_STYLES[role]), soft_wrap=True)
            line: str | None = None
            with suppress(EOFError):
                line = read_line(plain_line(prompt.text))
            try:
                prompt = dialog.send(line)
            except StopIteration as stop:
                result: T = stop.value
                return result

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._notes.print(Text(text, style="yellow"), soft_wrap=True)


def line_reader(console: Console) -> ReadLine | None:
    """Return a function that reads lines from the terminal and prompts on `console`; None without a terminal."""
    if not sys.stdin.isatty() or not console.file.isatty():
        return None
    try:
        import readline  # noqa: PLC0415 - not on every system
    except ImportError:
        history = None
    else:
        readline.set_auto_history(False)
        history = readline.add_history

    def read(prompt: str, *, remember: bool = False) -> str:
        if console.file is not sys.stdout:  # `input` would write the prompt there
            console.out(prompt, end="", highlight=False)
        try:
            with on_ctrl_c(signal.default_int_handler):
                line = input(prompt if console.file is sys.stdout else "")
        except (EOFError, KeyboardInterrupt):
            console.out("")
            raise
        if remember and line.strip() and history is not None:
            history(line)
        return line

    return read


@contextmanager
def on_ctrl_c(handler: Callable[..., object]) -> Iterator[None]:
    """Handle Ctrl-C with `handler` inside the block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def discard_typed() -> None:
    """Discard input that was typed before the prompt: it cannot be an answer to it."""
    with suppress(ImportError):
        import termios  # noqa: PLC0415 - POSIX only

        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
