"""Helpers for text: patterns that are compiled late, similar names, and untrusted text made safe to show.

Text that was made safe cannot move the cursor, or change colours or the direction of writing. Must not know where
the text is shown.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, cast


def late_pattern(pattern: str, flags: int = 0) -> "re.Pattern[str]":
    """Return a regular expression that is compiled when it is first used, and otherwise works like `re.compile`'s.

    Compiling one takes up to half a millisecond, and most programs never need those for rare cases. One that every
    program uses is better compiled at import.
    """
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern, and keep the requested attribute for the next time."""
        value = getattr(re.compile(*self._source), name)
        setattr(self, name, value)
        return value


_LONGEST: Final = 200  # characters of a name that are compared: comparing is slow, and names can be untrusted
_MOST_COMPARED: Final = 1_000  # names; if there are more, only those that begin or end in the same way
_START: Final = 3

KEPT: Final = "\n\t\u200c\u200d"
"""Unprintable characters that are kept. The joiners form letters and emoji of several characters."""
_ESCAPES: Final = late_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_COLOURS: Final = late_pattern(r"\x1b\[[0-9;:]*m")
_UNSEEN: Final = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control, direction and formatting characters except line breaks, tabs and joiners; and lone surrogates."""
_MARK: Final = "\N{REPLACEMENT CHARACTER}"


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to `name`, for a "did you mean"; None if none is similar.

    `cutoff` is the required similarity, from 0 (any name) to 1 (the same name).
    """
    import difflib  # noqa: PLC0415 - only a mistake needs it

    name, names = name[:_LONGEST], list(known)
    if len(names) > _MOST_COMPARED:  # each takes 20 microseconds, and this may run on an event loop
        alike = [each for each in names if each[:_START] == name[:_START] or each[-_START:] == name[-_START:]]
        alike.sort(key=lambda each: abs(len(each) - len(name)))
        names = alike[:_MOST_COMPARED]
    near = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the hint for an unknown name, " Did you mean 'search'?", or "" if no known name is similar."""
    near = closest(name, known, cutoff=cutoff)
    return f" Did you mean {near!r}?" if near else ""


def count(number: int, word: str) -> str:
    """Return `1 tool`, `2 tools`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def plain(text: str) -> str:
    """Remove escape sequences, such as colours, and replace other control characters by a mark. Keeps the lines."""
    return _mark(_ESCAPES.sub("", text).replace("\r\n", "\n"))


def plain_line(text: str) -> str:
    """Replace every control character by a mark and every line break by a space. Removes nothing.

    For text that a user decides on, or that is cut: an escape sequence is not removed, since it may be long.
    """
    return _mark("".join([" " if char.isspace() else char for char in text]))


def reveal(text: str) -> str:
    """Write every control and formatting character as its number, such as ⟦U+202E⟧. Colours are removed.

    For files that the user reads: nothing in the text is lost, hidden, or shown in another order.
    """
    text = _COLOURS.sub("", text).replace("\r\n", "\n")
    return text if text.isprintable() else _UNSEEN.sub(_name, text)


def storable(text: str) -> str:
    """Replace characters that databases do not accept in text (NUL and lone surrogates) by a question mark."""
    return text.replace("\0", "?").encode(errors="replace").decode()


def _name(found: re.Match[str]) -> str:
    return f"\u27e6U+{ord(found[0]):04X}\u27e7"


def _mark(text: str) -> str:
    # Most lines have nothing to replace, which is quick to find out.
    return "\n".join([line if line.isprintable() else _mark_line(line) for line in text.split("\n")])


def _mark_line(line: str) -> str:
    return "".join([char if char.isprintable() or char in KEPT else _MARK for char in line])
