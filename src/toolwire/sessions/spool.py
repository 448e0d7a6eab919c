"""Keeps entries on disk that could not be stored in a session store, if no file of the CLI has them.

Usually the CLI's own transcript serves as the spool. This one is for a CLI on another machine, or whose folder is
temporary. It has the layout of the CLI's folder, so every session function can read it with `config_dir`.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from platformdirs import user_state_path

from toolwire.messages.system import SessionKey
from toolwire.sessions import transcript

_LONGEST_NAME: Final = 240


class Spool:
    """A folder of transcripts that wait for their store. It is created when the first entry is added."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder else user_state_path("toolwire") / "spool"

    def find(self, key: SessionKey) -> Path | None:
        """Return the file of a transcript; None if there is none."""
        try:
            path = self._find_path(key)
        except OSError:
            return None
        return path if path.exists() else None

    def add(self, key: SessionKey, entries: Iterable[Mapping[str, Any]]) -> Path:
        """Append entries to a transcript, and return its file."""
        path = self._find_path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        transcript.append_entries(path, entries)
        return path

    def copy(self, key: SessionKey, source: Path) -> Path:
        """Replace a transcript by a copy of a temporary file."""
        self.remove(key)
        return self.add(key, transcript.read_mirrored(source))

    def remove(self, key: SessionKey) -> None:
        """Remove a transcript that the store now has."""
        self._find_path(key).unlink(missing_ok=True)

    def _find_path(self, key: SessionKey) -> Path:
        below = find_transcript_path(self.folder / "projects" / key["project_key"], key["session_id"])
        if below is not None and (subpath := key.get("subpath")):
            below = find_transcript_path(below.with_suffix(""), subpath)
        if below is None or not _is_name(key["project_key"]):
            raise OSError(f"the key {key!r} cannot be used as a file name")
        return below


def find_transcript_path(folder: Path, subpath: str) -> Path | None:
    """Return the path of a transcript below a folder; None if `subpath` is unsafe or leads out of the folder."""
    parts = PurePosixPath(subpath).parts
    if not parts or subpath.startswith("/") or not all(map(_is_name, parts)):
        return None
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.jsonl")


def _is_name(part: str) -> bool:
    is_safe = part not in {"", ".", ".."} and not set(part) & set("/\\:\0")
    return is_safe and len(part.encode(errors="replace")) <= _LONGEST_NAME


def is_temporary(path: Path) -> bool:
    """Return True for a file in the temporary folder, which may not outlive the program."""
    return path.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
