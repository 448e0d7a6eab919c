"""The outbox: what a run answered is a file on this machine before anything else happens with it.

An answer that was paid for survives the end of its process, of the database and of the network: whoever comes next
on this machine finds the file and books it. The file is complete as soon as it has its name; it is on the disk
before anything is booked. Must not know what is in it.
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
    """A folder of answers that are not booked yet, shared by the processes of a machine that work for a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, key: str, attempt: int, content: dict[str, Any]) -> Path:
        """Write an answer, in place of an earlier one of the same attempt. It survives this process from now on."""
        path = self._path(key, attempt)
        part = path.with_suffix(f".{os.getpid()}.part")
        data = json.dumps(content, separators=(",", ":")).encode()
        # First the name, then the disk: that wait is long, and a killed process leaves what the kernel has.
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
        part.replace(path)
        return path

    def sync(self, path: Path) -> bool:
        """Wait until an answer is on the disk: from now on it survives a power cut too. False: others booked it."""
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
        """Remove an answer that is booked."""
        path.unlink(missing_ok=True)

    def pending(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the answers that are not booked. One that cannot be read is logged and left for a person."""
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                content = json.loads(path.read_bytes())
            except FileNotFoundError:  # booked meanwhile
                continue
            except (OSError, ValueError) as error:
                logger.error("the answer in %s cannot be read, and is left as it is: %s", path, error)  # noqa: TRY400
                continue
            if isinstance(content, dict):
                yield path, content

    def _path(self, key: str, attempt: int) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}-{attempt}{_SUFFIX}"
