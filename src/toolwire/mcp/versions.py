"""The versions of `mcp` that each feature of toolwire needs. Must not load `mcp`.

Our own tools do not need `mcp`. Servers of other libraries work with any version from 1.23 on, as in the official
package. Serving to other clients, and remote servers, need 2.x.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from toolwire.errors import NotSupportedError

TESTED: Final = "mcp>=1.23,<2.4"
"""The versions that `make mcps` was run with. An error recommends these if a later version lacks a name."""
OLDEST: Final = (1, 23)
NEXT: Final = (3, 0)
"""The first version that is not supported."""
SERVING: Final = (2, 0)
"""The oldest version for serving over stdio, and for remote servers."""
SERVING_HTTP: Final = (2, 2)
"""The oldest version for serving over HTTP: earlier ones keep a session for each request that they refuse."""


@cache
def installed() -> tuple[int, int]:
    """Return the major and minor version of `mcp`; (0, 0) if it is not installed, or the version is unusual."""
    try:
        major, minor = version("mcp").split(".")[:2]
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return (0, 0)


def can_use(oldest: tuple[int, int]) -> bool:
    """Return True if the installed `mcp` is supported, and not older than `oldest`."""
    return oldest <= installed() < NEXT


def check_mcp(purpose: str, oldest: tuple[int, int] = OLDEST) -> None:
    """Raise `NotSupportedError` if the installed version of `mcp` cannot be used for a purpose."""
    if can_use(oldest):
        return
    found = installed()
    needed = f"mcp>={'.'.join(map(str, oldest))},<{NEXT[0]}"
    have = f"version {version('mcp')} is installed" if found != (0, 0) else "it is not installed"
    raise NotSupportedError(f"{purpose} needs {needed}, but {have}; run: pip install '{needed}'")
