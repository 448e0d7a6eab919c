"""A target that is loaded again whenever its files change.

Files are looked at twice a second: that works on every file system, and there are few of them. A file that does not
load leaves everything as it was.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from toolwire._target import reload, watched
from toolwire.errors import ClaudeSDKError

if TYPE_CHECKING:
    from toolwire._jsonrpc import Server
    from toolwire._target import Target

_EVERY: Final = 0.5


async def follow(
    target: "Target", replace: "Callable[[Server], Awaitable[None]]", say: Callable[[str], None]
) -> None:
    """Hand every new state of the target to `replace`, for as long as it runs."""
    from toolwire.mcp.serve import connectable  # noqa: PLC0415 - heavy

    seen = _stamps(watched(target))
    while True:
        await anyio.sleep(_EVERY)
        now = _stamps(watched(target))
        if now == seen:
            continue
        seen = now
        try:
            target = reload(target)
            await replace(connectable(target.server))
        except ClaudeSDKError as error:
            say(f"not reloaded: {error}")
        else:
            say(f"reloaded {target.text}")
            seen = _stamps(watched(target))


def _stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # gone for a moment: editors write anew and rename
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
