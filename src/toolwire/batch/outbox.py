"""The outbox: the result of a run is written to a file on this machine before anything else is done with it.

So a result that was paid for survives the loss of its process, of the database and of the network: the next process
on this machine finds the file and books it. A file is complete once it has its final name, and it is synced to disk
before anything is booked. This module knows nothing about the content of the files.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolwire._support.log import logger_for

logger = logger_for("batch")

_SUFFIX: Final = ".json"


class Outbox:
    """A folder of results that are not booked yet, shared by all processes of this machine that work on a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, key: str, attempt: int, content: dict[str, Any]) -> Path:
        """Write a result, replacing an earlier one of the same attempt. From now on it survives this process."""
        path = self._path(key, attempt)
        part = path.with_suffix(f".{os.getpid()}.part")
        data = json.dumps(content, separators=(",", ":")).encode()
        # Rename first and sync later: syncing is slow, and the kernel keeps the file if this process is killed.
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
        part.replace(path)
        return path

    def sync(self, path: Path) -> bool:
        """Sync a result to disk, so that it survives a power cut too. False if another process has booked it."""
        for each, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))):
            try:
                descriptor = os.open(each, flags)
            except FileNotFoundError:
                return False
            except PermissionError:  # a folder cannot be opened on Windows
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True

    def remove(self, path: Path) -> None:
        """Remove a result that is booked."""
        path.unlink(missing_ok=True)

    def pending(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the results that are not booked. A file that cannot be read is logged and left in place."""
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                content = json.loads(path.read_bytes())
            except FileNotFoundError:  # booked meanwhile
                continue
            except (OSError, ValueError) as error:
                logger.error("the result in %s cannot be read and is left in place: %s", path, error)  # noqa: TRY400
                continue
            if isinstance(content, dict):
                yield path, content

    def _path(self, key: str, attempt: int) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}-{attempt}{_SUFFIX}"
