"""Makes the text of others safe to show: it cannot move the cursor, change colours or the direction of writing.

Pure functions. Must not know where the text is printed.
"""

import re
from typing import Final

KEPT: Final = "\n\t\u200c\u200d"
"""Unprintable characters that may stay. The joiners make letters and emoji of several characters."""
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MARK: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """Remove escape sequences, such as colours, and put a mark for other control characters. Keeps the lines."""
    return _mark(_ESCAPES.sub("", text).replace("\r\n", "\n"))


def plain_line(text: str) -> str:
    """Put a mark for every control character and a space for every line break. Hides nothing.

    For text on which somebody decides, or that is cut: an escape sequence is not removed, since it may be long.
    """
    return _mark("".join([" " if char.isspace() else char for char in text]))


def _mark(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() or char in KEPT else _MARK for char in text])
