"""Finds the user's own code in a stack, for warnings that name its line and tracebacks without our frames.

Must not know what a warning is about, or what failed.
"""

import sys
import traceback
import warnings
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

from toolwire._support.words import plain

_INTERNAL: Final = ("toolwire", "dataclasses", "copy", "pickle")
"""Modules that are not the user's code: ours, and those that create our objects on behalf of the user."""


def warn_at_user_line(text: str, category: type[Warning]) -> None:
    """Issue a warning that names the nearest line outside of toolwire, however deep in our code it is raised."""
    level = 1
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads the source of every frame
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level + 1 if frame is not None else 2)


def _is_internal(frame: FrameType) -> bool:
    # The `__init__` that `@dataclass` writes for a user's subclass is in no file.
    module = str(frame.f_globals.get("__name__", ""))
    return frame.f_code.co_filename == "<string>" or module.partition(".")[0] in _INTERNAL


def format_traceback(error: BaseException | None) -> str:
    """Format the traceback of an exception, from the first line of the user's own code."""
    first = trace = None if error is None else error.__traceback__
    while trace is not None and _is_library(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    shown = traceback.TracebackException(type(error), error, trace or first)  # type: ignore[arg-type] # both or none
    return "".join(shown.format()).rstrip()


def describe_place(error: BaseException) -> str:
    """Return the last line of the user's own code in a traceback, as `at app.py:7 in add`; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not _is_library(each.filename)]
    if not frames:
        return ""
    frame = (theirs or frames)[-1]
    file, here = Path(frame.filename), Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return plain(f"at {shown}:{frame.lineno} in {frame.name}")


def _is_library(file: str) -> bool:
    return any(Path(file).is_relative_to(each) for each in _library_folders())


@cache
def _library_folders() -> tuple[Path, ...]:
    import sysconfig  # noqa: PLC0415 - only a failure needs it

    installed = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
    return (Path(__file__).parent.parent, *installed)
