"""Regular expressions that are compiled late: they give the same answers."""

import re

from toolwire._support.words import late_pattern


def test_it_answers_as_a_compiled_one():
    """It has the same methods, flags and attributes."""
    late, compiled = late_pattern("(a+)b", re.IGNORECASE), re.compile("(a+)b", re.IGNORECASE)
    assert late.findall("xAAb ab") == compiled.findall("xAAb ab") == ["AA", "a"]
    assert late.sub("-", "xAAb ab") == "x- -"
    assert (late.pattern, late.flags, late.groups) == (compiled.pattern, compiled.flags, 1)


def test_it_is_compiled_when_it_is_used():
    """A method is made at its first use, and then kept."""
    late = late_pattern("a")
    assert "search" not in vars(late)
    assert late.search("ba")
    assert late.search is late.search
