"""Writing files safely: whole or not at all, line by line, for the owner only. Must not know what they hold."""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

# A pipe without a reader must not block the writer, and a link must not lead it elsewhere; not all on Windows.
_CAREFULLY: Final = sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
)


def replace_file(path: Path, content: Iterable[bytes], *, mode: int = 0o600, use_umask: bool = False) -> None:
    """Write a file in one step: after a crash there is the old file or the new one, on the disk and never half.

    The file gets exactly `mode`, or with `use_umask` at most that. It may hold secrets, so it never is more open
    than that while it is written.
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
    """Open or create a file of lines that only its owner can read, for `write_line`; returns the descriptor.

    Raises OSError for a link, a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CAREFULLY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link: name the file itself", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", os.fspath(path))
    if truncate:
        os.ftruncate(descriptor, 0)
    return descriptor


def write_line(descriptor: int, line: bytes) -> None:
    """Append a line in one write, so that lines of several processes do not mix. OSError if only a part fits."""
    data = line + b"\n"
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, "only a part of a line could be written")


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Open the file, append a line, and close it: a log that is moved away (rotated) is created anew."""
    descriptor = open_for_lines(path)
    try:
        write_line(descriptor, line)
    finally:
        os.close(descriptor)
