"""Compares what a command prints with its transcript in the documents."""

import re


def matches(expected, shown):
    """Return whether the output matches: `...` stands for the rest of a line, alone for any number of lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r" *\n"
        for line in expected
    )
    return re.fullmatch(pattern, shown) is not None
