"""Text of others on a terminal."""

import pytest

from toolwire._support.terminal import plain, plain_line


@pytest.mark.parametrize(
    ("text", "shown", "on_a_line"),
    [
        ("ünï", "ünï", "ünï"),
        ("\x1b[31mred\x1b[0m", "red", "\ufffd[31mred\ufffd[0m"),
        ("\x1b]0;title\x07x", "x", "\ufffd]0;title\ufffdx"),
        ("a\x08\x00b\x9b", "a\ufffd\ufffdb\ufffd", "a\ufffd\ufffdb\ufffd"),
        ("\u202eright to left", "\ufffdright to left", "\ufffdright to left"),
        ("a\r\nb\tc\u2028d", "a\nb\tc\ufffdd", "a  b c d"),
        ("half \ud83d", "half \ufffd", "half \ufffd"),
        ("👩\u200d🚀", "👩\u200d🚀", "👩\u200d🚀"),
    ],
)
def test_text_of_others_is_harmless(text, shown, on_a_line):
    """Printed, colours are removed and the lines stay; on a line nothing is removed, so that nothing is hidden."""
    assert (plain(text), plain_line(text)) == (shown, on_a_line)
