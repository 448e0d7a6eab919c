"""Asks the user on the program's terminal: for permission for a call, and for the form of an elicitation.

Owns the reading and writing; the texts and their meaning are in `_support.dialogs`. Reading blocks, so it is done
in a worker thread, one prompt at a time, and ends when the call that needs it is cancelled. Control characters in
text from the model or a server are replaced. Without a terminal the answer is no.
"""

import json
import select
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from toolwire._support.dialogs import Elicitation, Permission, Prompt, ask_permission, elicit
from toolwire._support.threads import Workers
from toolwire._support.words import plain_line
from toolwire.permissions.policy import Answer, Asker
from toolwire.permissions.types import PermissionResultDeny, ToolPermissionContext

T = TypeVar("T")

ReadLine: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and returns the line that was typed; None at the end of input."""

_NO_TERMINAL: Final = (
    "The call was not allowed: it needs the user's permission, and there is no terminal to ask on."
)
_workers = Workers(8)
_turn = threading.Lock()  # one prompt at a time


def ask_on_terminal(read_line: ReadLine | None = None) -> Asker:
    """Return an asker for `ask` that shows a call and reads yes, always or no; `no because ...` adds a reason."""

    async def ask_on_terminal(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Answer:
        read = read_line or (_read if _has_terminal() else None)
        if read is None:
            return PermissionResultDeny(message=_NO_TERMINAL)
        arguments = json.dumps(given, ensure_ascii=False, default=str)
        always = "" if context.suppress_always_allow_rule else "in this session"
        dialog = ask_permission(name, arguments, context.decision_reason, always=always)
        permission: Permission = await _run(dialog, read)
        if not permission.allowed:
            return PermissionResultDeny(message=permission.denial)
        return "always" if permission.always else True

    return ask_on_terminal


def terminal_elicitation(
    read_line: ReadLine | None = None,
) -> Callable[[Elicitation], Awaitable[dict[str, Any]]]:
    """Return a callback for `ClaudeAgentOptions(on_elicitation=...)`. It declines if there is no terminal."""

    async def terminal_elicitation(request: Elicitation) -> dict[str, Any]:
        read = read_line or (_read if _has_terminal() else None)
        return {"action": "decline"} if read is None else await _run(elicit(request), read)

    return terminal_elicitation


async def _run(dialog: Generator[Prompt, str | None, T], read: ReadLine) -> T:
    prompt = next(dialog)
    while True:
        lines = [plain_line(text) + "\n" for text, _ in prompt.lines]
        line = await read("".join(lines) + plain_line(prompt.text))
        try:
            prompt = dialog.send(line)
        except StopIteration as stop:
            result: T = stop.value
            return result


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def _read(prompt: str) -> str | None:
    """Read a line from the terminal in a worker thread."""
    cancelled = threading.Event()
    try:
        return await _workers.run(lambda: _read_blocking(prompt, cancelled))
    finally:
        cancelled.set()


def _read_blocking(prompt: str, cancelled: threading.Event) -> str | None:
    while not _turn.acquire(timeout=0.1):
        if cancelled.is_set():
            return None
    try:
        _discard_typed()
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while sys.platform != "win32" and not select.select([sys.stdin], [], [], 0.1)[0]:
            if cancelled.is_set():
                sys.stderr.write("\n(the request was cancelled)\n")
                return None
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    finally:
        _turn.release()


def _discard_typed() -> None:
    """Discard input that was typed before the prompt: it cannot be an answer to it."""
    with suppress(ImportError, OSError):
        import termios  # noqa: PLC0415 - POSIX only

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
