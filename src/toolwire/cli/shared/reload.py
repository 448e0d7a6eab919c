"""Loads a target again when one of its files changes, for commands that run on."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolwire.errors import ClaudeSDKError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.tools.dispatch.interface import Server

_POLL_INTERVAL: Final = 0.5  # seconds between two looks at the files of a target


async def reload_on_change(
    target: "Target", replace: "Callable[[Server], Awaitable[None]]", report: Callable[[str], None]
) -> None:
    """Load the target again whenever one of its files changes, and pass the new server to `replace`."""
    import anyio  # noqa: PLC0415 - heavy, as are the next ones

    from toolwire.cli.shared.target import reload, watched_files  # noqa: PLC0415
    from toolwire.mcp.foreign import as_server  # noqa: PLC0415

    seen = _read_stamps(watched_files(target))
    while True:
        await anyio.sleep(_POLL_INTERVAL)
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


def _read_stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    stamps = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # editors remove a file for a moment while they save it
            continue
        stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps
