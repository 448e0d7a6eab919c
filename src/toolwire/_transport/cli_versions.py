"""Which versions of the Claude Code CLI toolwire was tried with, and what is to be said of others.

`make clis` runs the tests of any CLI (tests/real/test_any_cli.py) with the oldest named here and with the newest.
"""

import re
from typing import Final

OLDEST: Final = "2.1.176"
"""The oldest CLI that toolwire supports: the one in the oldest claude-agent-sdk that `toolwire[cli]` allows."""
TRIED: Final = "2.1.325"
"""The CLI that all tests run with, and that the protocol was taken from."""


def numbers(version: object) -> tuple[int, int, int] | None:
    """Read a version as three numbers; None if it is none."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def doubt(version: object) -> str | None:
    """Say why a CLI of this version may not do everything; None if there is nothing to say.

    Nothing is said of a CLI that does not tell its version, as older ones do not when they start, nor of a newer
    patch version than the one that was tried: there is one almost daily.
    """
    given = numbers(version)
    if given is None:
        return None
    if given < (numbers(OLDEST) or ()):
        return f"Claude Code {version} is older than {OLDEST}, the oldest that toolwire supports: update it."
    if given[:2] > (numbers(TRIED) or ())[:2]:
        return (
            f"Claude Code {version} is newer than {TRIED}, the one that toolwire was tried with. What it adds is "
            "passed through; if something is missing, update toolwire."
        )
    return None
