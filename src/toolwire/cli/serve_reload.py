"""What goes on beside a server: a file that is loaded again when it changes, a catalogue that is fetched again.

Files are looked at twice a second: that works on every file system, and there are few of them. A file that does not
load leaves everything as it was.
"""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolwire.cli.shared.target import reload, watched_files
from toolwire.errors import ClaudeSDKError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.tools.dispatch.interface import Server

_EVERY: Final = 0.5


async def follow(
    target: "Target", replace: "Callable[[Server], Awaitable[None]]", say: Callable[[str], None]
) -> None:
    """Hand every new state of the target to `replace`, for as long as it runs."""
    from toolwire.mcp.foreign import as_server  # noqa: PLC0415 - heavy

    seen = _stamps(watched_files(target))
    while True:
        await anyio.sleep(_EVERY)
        now = _stamps(watched_files(target))
        if now == seen:
            continue
        seen = now
        try:
            target = reload(target)
            await replace(as_server(target.server))
        except ClaudeSDKError as error:
            say(f"not reloaded: {error}")
        except Exception as error:  # noqa: BLE001 - the boundary to a file that somebody is working on
            say(f"not reloaded: {type(error).__name__}: {error}")
        else:
            say(f"reloaded {target.text}")
            seen = _stamps(watched_files(target))


async def tend(catalog: Any, say: Callable[[str], None]) -> None:
    """Say how the first load of a catalogue went; fetch its list again at SIGHUP."""
    with anyio.open_signal_receiver(
        signal.SIGHUP
    ) as signals:  # from the start: by default SIGHUP ends a process
        status = await catalog.loaded(within=60.0)
        say(
            f"{catalog.name}: {status.fetched} entries fetched, "
            f"{status.registered} tools registered ({status.state})"
        )
        for each in status.skipped:
            say(f"left out: {each.name} ({each.reason})")
        async for _ in signals:
            say(f"{catalog.name}: fetching the list again")
            catalog.refresh()


def _stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # gone for a moment: editors write anew and rename
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
