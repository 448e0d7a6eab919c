"""The "did you mean" of every message."""

from toolwire._support.words import closest


def test_the_closest_name_is_found():
    """The most similar known name, or None."""
    assert closest("serch", ["search", "fetch"]) == "search"
    assert closest("zzz", ["search", "fetch"]) is None
    assert closest("x", []) is None


def test_the_cutoff_says_how_alike():
    """A caller for which a wrong guess is worse than none asks for more."""
    assert closest("PreToolUsed", ["PreToolUse"], cutoff=0.8) == "PreToolUse"
    assert closest("Tool", ["PreToolUse"], cutoff=0.8) is None


def test_a_name_of_any_length_is_compared_in_no_time():
    """Only the beginning counts: a name can come from outside, and comparing grows with the square."""
    assert closest("a" * 5_000_000, ["a" * 200, "b"]) == "a" * 200
