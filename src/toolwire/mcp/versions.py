"""The versions of `mcp` that toolwire works with, and for what. Must not load `mcp`.

Tools of our own need none of it. Servers of other libraries are used with any version from 1.23 on, as the official
package allows; what is served to other clients, and servers on the web, need 2.x.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from toolwire.errors import NotSupportedError

TESTED: Final = "mcp>=1.23,<2.4"
"""The versions that `make mcps` was run with: the advice if a later one lacks a name."""
OLDEST: Final = (1, 23)
NEXT: Final = (3, 0)
"""The first version that is not known."""
SERVING: Final = (2, 0)
"""The oldest version for serving over stdio, and for servers on the web."""
SERVING_HTTP: Final = (2, 2)
"""The oldest version for serving over HTTP: earlier ones keep a session for each request that they refuse."""


@cache
def installed() -> tuple[int, int]:
    """Return the major and minor version of `mcp`; (0, 0) if there is none, or one that does not tell."""
    try:
        major, minor = version("mcp").split(".")[:2]
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return (0, 0)


def can_use(oldest: tuple[int, int]) -> bool:
    """True if the `mcp` that is installed is known, and not older."""
    return oldest <= installed() < NEXT


def check_mcp(purpose: str, oldest: tuple[int, int] = OLDEST) -> None:
    """Raise `NotSupportedError` if the `mcp` that is installed cannot be used for a purpose."""
    if can_use(oldest):
        return
    found = installed()
    needed = f"mcp>={'.'.join(map(str, oldest))},<{NEXT[0]}"
    have = f"version {version('mcp')} is installed" if found != (0, 0) else "it is not installed"
    raise NotSupportedError(f"{purpose} needs {needed}, and {have}; run: pip install '{needed}'")
