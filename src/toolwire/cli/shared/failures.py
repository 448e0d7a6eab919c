"""Shows where a user's tool failed: its file and line, and with `--debug` the traceback.

The model, and so the result of a call, gets only the exception's text. The place is for the author, on stderr.
"""

import contextlib
import logging
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

import toolwire
from toolwire._support.words import plain

DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a tool that fails, not only its last line.")
]
_NOT_THEIRS: Final = (
    Path(toolwire.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)


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
            self._show(plain(record.exc_text or _format_traceback(error)))
        else:
            self._show(_describe_place(error))


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


def _format_traceback(error: BaseException | None) -> str:
    """Format the traceback of an exception, from the first line of the user's own code."""
    first = trace = None if error is None else error.__traceback__
    while trace is not None and _is_library(Path(trace.tb_frame.f_code.co_filename)):
        trace = trace.tb_next
    shown = traceback.TracebackException(type(error), error, trace or first)  # type: ignore[arg-type] # both or none
    return "".join(shown.format()).rstrip()


def _describe_place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not _is_library(Path(each.filename))]
    if not frames:
        return f"  {type(error).__name__}; --debug shows the traceback"
    frame = (theirs or frames)[-1]
    file, here = Path(frame.filename), Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return plain(f"  at {shown}:{frame.lineno} in {frame.name}; --debug shows the traceback")


def _is_library(file: Path) -> bool:
    return any(file.is_relative_to(each) for each in _NOT_THEIRS)
