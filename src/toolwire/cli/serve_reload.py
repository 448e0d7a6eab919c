"""Background tasks of `toolwire serve`: reload a file when it changes, and fetch a catalogue again at SIGHUP.

Files are polled twice a second, which works on every file system, and there are few of them. When a file cannot be
loaded, the old version is kept.
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

_INTERVAL: Final = 0.5  # seconds


async def reload_on_change(
    target: "Target", replace: "Callable[[Server], Awaitable[None]]", report: Callable[[str], None]
) -> None:
    """Load the target again whenever one of its files changes, and pass the new server to `replace`."""
    from toolwire.mcp.foreign import as_server  # noqa: PLC0415 - heavy

    seen = _read_stamps(watched_files(target))
    while True:
        await anyio.sleep(_INTERVAL)
        now = _read_stamps(watched_files(target))
        if now == seen:
            continue
        seen = now
        try:
            target = reload(target)
            await replace(as_server(target.server))
        except ClaudeSDKError as error:
            report(f"not reloaded: {error}")
        except Exception as error:  # noqa: BLE001 - the file is being edited and may raise anything
            report(f"not reloaded: {type(error).__name__}: {error}")
        else:
            report(f"reloaded {target.text}")
            seen = _read_stamps(watched_files(target))


async def watch_catalog(catalog: Any, report: Callable[[str], None]) -> None:
    """Report how the first load of a catalogue went, and fetch its list again at SIGHUP."""
    # The signal is handled from the start: by default it ends the process.
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        status = await catalog.loaded(within=60.0)
        report(
            f"{catalog.name}: {status.fetched} entries fetched, "
            f"{status.registered} tools registered ({status.state})"
        )
        for each in status.skipped:
            report(f"left out: {each.name} ({each.reason})")
        async for _ in signals:
            report(f"{catalog.name}: fetching the list again")
            catalog.refresh()


def _read_stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    stamps = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # editors remove a file for a moment while they save it
            continue
        stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps
