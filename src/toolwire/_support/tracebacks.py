"""Tracebacks for the author of a tool: the user's own code, without the frames of libraries around it."""

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from toolwire._support.words import plain

_NOT_THEIRS: Final = (
    Path(__file__).parent.parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)


def format_traceback(error: BaseException | None) -> str:
    """Format the traceback of an exception, from the first line of the user's own code."""
    first = trace = None if error is None else error.__traceback__
    while trace is not None and _is_library(Path(trace.tb_frame.f_code.co_filename)):
        trace = trace.tb_next
    shown = traceback.TracebackException(type(error), error, trace or first)  # type: ignore[arg-type] # both or none
    return "".join(shown.format()).rstrip()


def describe_place(error: BaseException) -> str:
    """Return the last line of the user's own code in a traceback, as `at app.py:7 in add`; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not _is_library(Path(each.filename))]
    if not frames:
        return ""
    frame = (theirs or frames)[-1]
    file, here = Path(frame.filename), Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return plain(f"at {shown}:{frame.lineno} in {frame.name}")


def _is_library(file: Path) -> bool:
    return any(file.is_relative_to(each) for each in _NOT_THEIRS)
