"""What a docstring says: about the function as a whole, and about each parameter.

Google, NumPy and Sphinx styles, read by `docstring_parser`. The style is the one whose sections name most of the
function's own parameters, so that a stray colon in prose is not taken for a section. It knows no types, no schema.
"""

import inspect
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from docstring_parser import Docstring

# Every section of every style has one of these in it.
_MARKS: Final = (":", "@", "--")
_GOOGLE_SECTION: Final = (
    r"(Args|Arguments|Params|Parameters|Raises|Exceptions?|Except|Attributes|Examples?|Returns|Yields):\s*"
)
# The end of a line that was only wrapped: no blank line, no list item and no deeper indent follows.
_WRAP: Final = r"(?<!\n)\n(?![\n\s\-*•\d])"


class Documentation(NamedTuple):
    """A docstring, taken apart."""

    description: str = ""
    parameters: Mapping[str, str] = MappingProxyType({})


def read(text: str | None, names: Collection[str]) -> Documentation:
    """The description, without the sections on parameters and results, and what is said of each parameter."""
    if not text or not text.strip():
        return Documentation()
    text = inspect.cleandoc(text)
    best = _best(text, names) if any(mark in text for mark in _MARKS) else None
    if best is None:
        return Documentation(text)
    from docstring_parser import DocstringStyle  # noqa: PLC0415 - loaded only when there can be sections

    google = best.style is DocstringStyle.GOOGLE
    description = _outside_sections(text) if google else (best.description or "").strip()
    return Documentation(description, {name: said for name, said in _said(best).items() if name in names})


def _best(text: str, names: Collection[str]) -> "Docstring | None":
    """The reading that finds the most, None if no style finds any section."""
    from docstring_parser import DocstringStyle, ParseError, parse  # noqa: PLC0415

    best, most = None, (0, 0)
    for style in (
        DocstringStyle.GOOGLE,
        DocstringStyle.NUMPYDOC,
        DocstringStyle.REST,
        DocstringStyle.EPYDOC,
    ):
        try:
            reading = parse(text, style)
        except (ParseError, ValueError, IndexError):  # odd text, or a slip of the parser: not this style
            continue
        # A bare DocstringMeta is a section that the parser has no name for: often just prose with a colon.
        sections = sum(type(meta).__name__ != "DocstringMeta" for meta in reading.meta)
        score = (len(_said(reading).keys() & set(names)), sections)
        if score > most:
            best, most = reading, score
    return best


def _said(reading: "Docstring") -> dict[str, str]:
    """What is said of each parameter; `a, b : int` speaks of both."""
    return {
        name.strip().lstrip("*"): re.sub(_WRAP, " ", parameter.description.strip())
        for parameter in reading.params
        if parameter.description and parameter.description.strip()
        for name in parameter.arg_name.split(",")
    }


def _outside_sections(text: str) -> str:
    """The text around Google sections: what follows one is kept too, which the parser would drop."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            inside = re.fullmatch(_GOOGLE_SECTION, line) is not None
        if not inside:
            kept.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
