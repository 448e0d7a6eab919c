"""Files that only this user can read, for values that are too long or too secret for a command line.

Owns a folder for each session, and removes those of programs that were killed. A folder belongs to the process
that holds the lock on it; the kernel releases the lock when that process ends, for whatever reason. Must not know
what the files contain. Windows has no such modes and locks: there the folder is in the user's own temporary
directory, and folders of killed programs are not removed.
"""

import os
import stat
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import Final

from toolwire._transport.lifeline import FORKING, release_in_children
from toolwire.errors import CLIConnectionError

PREFIX: Final = "toolwire-private-"
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_sweeping = threading.Lock()
_swept: set[str] = set()


class PrivateFiles:
    """The private files of one session: mode 0600, in a folder of mode 0700.

    `user` is the operating-system user who has to read them, if that is not the current one: the files then belong
    to that user, and the folder can be entered by all users, but not listed.
    """

    def __init__(self, user: str | int | None = None) -> None:
        self._user = user
        self._folder: str | None = None
        self._lock: int | None = None
        self._remove: weakref.finalize[..., PrivateFiles] | None = None

    def add(self, name: str, text: str) -> str:
        """Write `text` to a new file and return its path. Raises `CLIConnectionError` if that fails."""
        try:
            if self._folder is None:
                place = os.path.abspath(tempfile.gettempdir())  # noqa: PTH100 - the CLI may work elsewhere
                _sweep_once(place)
                self._make_folder(place)
            path = os.path.join(self._folder or "", name)  # noqa: PTH118 - what is stored is text
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                if self._user is not None:
                    _give_to(self._user, file.fileno())
                file.write(text.encode())
        except OSError as error:
            self.remove()
            raise CLIConnectionError(
                f"A private file for the CLI could not be written: {error}. Free some space there, or set TMPDIR "
                "to a writable directory."
            ) from error
        return path

    def remove(self, name: str | None = None) -> None:
        """Remove one file, or all of them, and the folder when it is empty. Never raises."""
        if self._folder is None or self._remove is None:
            return
        if name is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))  # noqa: PTH108, PTH118
                name = None if os.listdir(self._folder) == [] else name  # noqa: PTH208
        if name is None:
            with FORKING:  # otherwise a forked child could close a descriptor that was reused meanwhile
                self._remove()
                self._folder = self._lock = self._remove = None

    def forked(self) -> None:
        """Leave the files to the parent, in a forked child."""
        if self._remove is not None:
            self._remove.detach()
        if self._lock is not None:
            os.close(self._lock)
        self._folder = self._lock = self._remove = None

    def _make_folder(self, place: str) -> None:
        while self._folder is None:
            with FORKING:
                folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
                try:
                    lock = _lock(folder)
                except (BlockingIOError, FileNotFoundError):
                    continue  # another process that sweeps took it for an abandoned folder
                except OSError:
                    lock = None  # folders cannot be locked here, so none are swept either
                self._folder, self._lock = folder, lock
                self._remove = weakref.finalize(self, _remove, folder, lock)
                release_in_children(self)
        if self._user is not None:
            os.chmod(self._folder, 0o711)  # noqa: PTH101, S103 - its files stay private


def _give_to(user: str | int, descriptor: int) -> None:
    if sys.platform == "win32":
        return
    import pwd  # noqa: PLC0415 - not on Windows

    with suppress(KeyError):  # no such user: starting the process will report it
        os.fchown(descriptor, user if isinstance(user, int) else pwd.getpwnam(user).pw_uid, -1)


def _remove(folder: str, lock: int | None) -> None:
    """Remove a folder and release its lock. Also called for a session that was never closed."""
    with FORKING:
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118
            os.rmdir(folder)  # noqa: PTH106
        if lock is not None:
            os.close(lock)


def _lock(folder: str) -> int | None:
    """Lock a folder and return the descriptor that holds the lock; None on Windows.

    Raises BlockingIOError if another process has locked it, FileNotFoundError if it was removed, and OSError if
    folders cannot be locked here.
    """
    if sys.platform == "win32":
        return None
    import fcntl  # noqa: PLC0415 - not on Windows

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            raise FileNotFoundError(folder)  # noqa: TRY301 - closed below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sweep_once(place: str) -> None:
    """Remove the folders of killed programs, once for each temporary directory that this process uses."""
    with _sweeping:
        if sys.platform != "win32" and place not in _swept:
            _swept.add(place)
            sweep(place)


def sweep(place: str) -> None:
    """Remove our folders in `place` that no process has locked. Links are never followed."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    if _is_ours(entry.stat(follow_symlinks=False)):
                        _remove(entry.path, _lock(entry.path))


def _is_ours(status: os.stat_result) -> bool:
    is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o066
    return is_private and status.st_uid == os.geteuid()
