"""Writes files safely: replaced atomically, or appended to line by line, and readable by their owner only.

Must not know what the files contain.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

# Opening a pipe without a reader must not block, and links must not be followed. Windows lacks some of these flags.
_SAFE_FLAGS: Final = sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
)


def replace_file(path: Path, content: Iterable[bytes], *, mode: int = 0o600, use_umask: bool = False) -> None:
    """Replace a file atomically: after a crash, either the old or the new content is on the disk, never a part.

    The file gets exactly `mode`, or with `use_umask` at most that. Since it may hold secrets, its permissions are
    never wider than that, even while it is written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        if not use_umask:
            part.chmod(mode)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def open_for_lines(path: str | os.PathLike[str], *, truncate: bool = False) -> int:
    """Open or create a file that only its owner can read, and return the descriptor for `write_line`.

    Raises OSError for a link, a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE_FLAGS, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP, "is a symbolic link; use the path of the file itself", os.fspath(path)
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
    if truncate:
        os.ftruncate(descriptor, 0)
    return descriptor


def write_line(descriptor: int, line: bytes) -> None:
    """Append a line in one write, so that lines of several processes do not mix.

    Raises OSError if only a part of the line could be written.
    """
    data = line + b"\n"
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, "only a part of a line could be written")


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Open the file, append a line, and close it, so that a log that was rotated is created again."""
    descriptor = open_for_lines(path)
    try:
        write_line(descriptor, line)
    finally:
        os.close(descriptor)
