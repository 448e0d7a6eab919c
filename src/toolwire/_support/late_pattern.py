"""Regular expressions that are compiled when they are first used.

Compiling one takes up to half a millisecond, and most programs never get to those for rare cases. One that every
program uses is better compiled at import.
"""

import re
from typing import Any, cast


def late_pattern(pattern: str, flags: int = 0) -> "re.Pattern[str]":
    """Return what `re.compile` returns, as far as its methods and attributes go."""
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        """Called for what is not here yet: compile, and keep it for the next time."""
        value = getattr(re.compile(*self._source), name)
        setattr(self, name, value)
        return value
