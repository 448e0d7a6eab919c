"""Keeps entries on disk that a session store did not take, where no file of the CLI has them.

Usually the CLI's own transcript is the spool. This one is for a CLI on another machine, and for a folder that will
not last. It has the layout of the CLI's folder, so that every session function works on it by its `config_dir`.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from platformdirs import user_state_path

from toolwire.messages.system import SessionKey
from toolwire.sessions import transcript
from toolwire.sessions.entries import NOT_MIRRORED
from toolwire.sessions.types import SessionStoreEntry

_LONGEST_NAME: Final = 240


class Spool:
    """A folder of transcripts that wait for their store. It is made when something is put into it."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder else user_state_path("toolwire") / "spool"

    def find(self, key: SessionKey) -> Path | None:
        """Return the file of a transcript if there is one."""
        try:
            path = self._place(key)
        except OSError:
            return None
        return path if path.exists() else None

    def add(self, key: SessionKey, entries: Iterable[SessionStoreEntry]) -> Path:
        """Append entries to a transcript, and return its file."""
        path = self._place(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        transcript.append_entries(path, entries)
        return path

    def copy(self, key: SessionKey, source: Path) -> Path:
        """Copy a transcript from a file that will not last."""
        self.remove(key)
        read = (entry for _, entry in transcript.read_entries(source))
        return self.add(key, (entry for entry in read if entry.get("type") not in NOT_MIRRORED))  # type: ignore[misc]

    def remove(self, key: SessionKey) -> None:
        """Forget a transcript, which the store has now."""
        self._place(key).unlink(missing_ok=True)

    def _place(self, key: SessionKey) -> Path:
        below = find_place(self.folder / "projects" / key["project_key"], key["session_id"])
        if below is not None and (subpath := key.get("subpath")):
            below = find_place(below.with_suffix(""), subpath)
        if below is None or not _is_name(key["project_key"]):
            raise OSError(f"a transcript with such a name cannot be kept on disk: {key!r}")
        return below


def find_place(folder: Path, subpath: str) -> Path | None:
    """Return the file of a transcript below a folder; None if its name leads elsewhere."""
    parts = PurePosixPath(subpath).parts
    if not parts or subpath.startswith("/") or not all(map(_is_name, parts)):
        return None
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.jsonl")


def _is_name(part: str) -> bool:
    is_safe = part not in {"", ".", ".."} and not set(part) & set("/\\:\0")
    return is_safe and len(part.encode(errors="replace")) <= _LONGEST_NAME


def is_temporary(path: Path) -> bool:
    """Return True for a file in the folder for temporary ones, which may be gone when the program has ended."""
    return path.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
