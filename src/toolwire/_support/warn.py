"""Warns a user at the line of their own code that caused it, however many of our functions lie between.

Knows nothing of what is warned about.
"""

import sys
import warnings
from types import FrameType
from typing import Final

_PASSED: Final = ("toolwire", "dataclasses", "copy", "pickle")
"""Modules whose lines are not the user's: ours, and those that make objects of ours for the user."""


def warn_at_user_line(text: str, category: type[Warning]) -> None:
    """Issue a warning that names the nearest line outside of toolwire."""
    level = 1
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads the source of every frame
    while frame is not None and _is_passed(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level + 1 if frame is not None else 2)


def _is_passed(frame: FrameType) -> bool:
    # The `__init__` that `@dataclass` writes for a user's subclass is in no file.
    module = str(frame.f_globals.get("__name__", ""))
    return frame.f_code.co_filename == "<string>" or module.partition(".")[0] in _PASSED
