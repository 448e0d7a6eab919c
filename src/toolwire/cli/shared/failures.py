"""Shows where a user's tool failed: its file and line, and with `--debug` the traceback.

The model, and so the result of a call, gets only the exception's text. The place is for the author, on stderr.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import typer

from toolwire._support.user_code import describe_place, format_traceback
from toolwire._support.words import plain

DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a tool that fails, not only its last line.")
]
_HINT: Final = "--debug shows the traceback"


class _Failures(logging.Handler):
    """Hands a description of each exception that a server logs to `show`."""

    def __init__(self, show: Callable[[str], None], *, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None and not record.exc_text:  # with a secret in it, the record has only the text
            return
        if error is None or self._debug:
            self._show(plain(record.exc_text or format_traceback(error)))
        else:
            self._show(f"  {describe_place(error) or type(error).__name__}; {_HINT}")


@contextlib.contextmanager
def shown_failures(show: Callable[[str], None], *, debug: bool = False) -> Iterator[None]:
    """While the block runs, call `show` with the place, or the traceback, of each tool that fails."""
    logger = logging.getLogger("toolwire.server")
    handler = _Failures(show, debug=debug)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
