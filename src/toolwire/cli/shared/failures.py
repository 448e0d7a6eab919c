"""Shows on stderr what the log says about failures: warnings, or the place where a user's tool failed.

The result of a call, which the model sees, has only the exception's text. The file and line, or with
`--debug` the traceback, are for the author.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Annotated, Final

import typer

from toolwire._support.user_code import describe_place, format_traceback
from toolwire._support.words import plain
from toolwire.cli.shared.printing import note

DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a tool that fails, not only its last line.")
]
_HINT: Final = "--debug shows the traceback"
_REPEAT: Final = 30.0  # seconds until the same warning is printed again


class _Failures(logging.Handler):
    """Hands a description of each exception that a server logs to `show`."""

    def __init__(self, show: Callable[[str], None], *, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None and not record.exc_text:  # if it contained a secret, the record has only a text
            return
        if error is None or self._debug:
            self._show(plain(record.exc_text or format_traceback(error)))
        else:
            self._show(f"  {describe_place(error) or type(error).__name__}; {_HINT}")


def shown_failures(show: Callable[[str], None], *, debug: bool = False) -> AbstractContextManager[None]:
    """While the block runs, call `show` with the place, or the traceback, of each tool that fails."""
    return _handle_records("toolwire.server", _Failures(show, debug=debug))


class _Warnings(logging.Handler):
    """Prints each record on one line, above the live screen if there is one; the same text once in a while."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        now = time.monotonic()
        if now - self._printed.get(text, -_REPEAT) >= _REPEAT:
            self._printed[text] = now
            with suppress(OSError):  # nobody reads stderr any more, which must not fail what is logged
                note(f"{record.levelname.capitalize()}: {text}")


def shown_warnings() -> AbstractContextManager[None]:
    """While the block runs, print the warnings and errors that toolwire logs."""
    return _handle_records("toolwire", _Warnings())


@contextmanager
def _handle_records(logger_name: str, handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(logger_name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
