"""Where a batch keeps its data: turns `at` into the addresses of its databases and the folder of its outbox.

By default a batch has its own folder of SQLite files in the user's state folder: no server, one machine. A path is
such a folder elsewhere. A Postgres URL serves any number of machines. The outbox is always on a disk of this
machine.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolwire._support.secrets import redact
from toolwire.catalog.ledger.opening import state_folder
from toolwire.errors import BatchError

VARIABLE: Final = "TOOLWIRE_BATCHES"
_MEMORY: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")
_PER_CLI: Final = 300 * 1024 * 1024
_UNKNOWN: Final = 4  # slots, if the free memory cannot be determined
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    {
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
            "nfs",
            "nfs3",
            "nfs4",
        ),
        *("smb", "smb2", "smb3", "smbfs"),
        *("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
"""File systems, as Linux names them, on which SQLite cannot lock its files."""
_POSTGRES: Final = re.compile(r"postgres(?:ql)?(?:\+psycopg\d?)?://", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """The addresses of a batch's data. `ledger` is a path, or a URL of Postgres."""

    records: str
    queue: str
    ledger: str
    outbox: Path
    folder: Path | None
    """The folder of the SQLite files; None for Postgres."""

    @property
    def shown(self) -> str:
        """The location for messages, without secrets."""
        return str(self.folder) if self.folder is not None else redact(hide_password(self.records))


@contextmanager
def report_unusable_folders() -> Iterator[None]:
    """Raise it as a `BatchError` if a file or folder of a batch cannot be created, read or written."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise BatchError(
            f"{error.filename} cannot be used for the data of a batch: {error.strerror}. Choose another folder with"
            f" --at, at= or {VARIABLE}, or change its permissions"
        ) from error


@report_unusable_folders()
def find_place(
    at: str | os.PathLike[str] | None, name: str, environ: Mapping[str, str] = os.environ
) -> Place:
    """Return where the batch `name` keeps its data. SQLite on a network disk is refused if it can be detected."""
    base = _base(environ)
    if at == "":  # such as that of an unset variable in a script, which would mean the current folder
        raise BatchError("the place of the batch is empty: give a folder, or postgresql://user@host/database")
    if isinstance(at, str) and _POSTGRES.match(at):
        url = _POSTGRES.sub("postgresql://", at, count=1)
        local = hashlib.sha256(f"{url}\n{name}".encode()).hexdigest()[:16]
        return Place(url, url, url, base / "outbox" / f"{folder_name(name)}-{local}", None)
    if isinstance(at, str) and "://" in at:
        kind = at.partition("://")[0]
        raise BatchError(
            f"a batch cannot be stored at a {kind}:// address: give a folder, or postgresql://user@host/database"
        )
    folder = (base / folder_name(name) if at is None else Path(at).expanduser()).absolute()
    if folder.exists() and not folder.is_dir():
        raise BatchError(
            f"{folder} is a file: a batch needs a folder for its data, or a postgresql:// address"
        )
    if (disk := find_network_disk(folder)) is not None:
        raise BatchError(
            f"{folder} is on a network disk ({disk}), where SQLite loses data: use a folder on a local disk, or"
            " postgresql://user@host/database for several machines"
        )
    return Place(
        f"sqlite:///{folder / 'runs.db'}",
        f"sqlite:///{folder / 'queue.db'}",
        str(folder / "ledger.db"),
        folder / "outbox",
        folder,
    )


def find_machine(environ: Mapping[str, str] = os.environ) -> str:
    """Return the id of this machine: created once, and kept in the user's state folder.

    Strictly, it identifies the disk with that folder, which also has the outboxes.
    """
    path = _base(environ) / "machine"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _create_whole(path, uuid.uuid4().hex)
        return path.read_text().strip() or "unknown"
    except OSError as error:
        raise BatchError(f"the id of this machine cannot be written to {path}: {error.strerror}") from error


def _create_whole(path: Path, text: str) -> None:
    """Create a file unless it exists. Another process never sees it incomplete."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    part.write_text(text)
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not path.exists():
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _base(environ: Mapping[str, str]) -> Path:
    return Path(environ.get(VARIABLE) or state_folder() / "batches").expanduser()


def count_slots(meminfo: Path = _MEMORY, groups: Path = _GROUP) -> int:
    """Return how many CLIs fit into the free memory, at about 300 MB each; at least one."""
    free = None
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        free = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # the limit of a container; it may be "max", which is not a number
        limit = int((groups / "memory.max").read_text()) - int((groups / "memory.current").read_text())
        free = limit if free is None else min(free, limit)
    return _UNKNOWN if free is None else max(1, free // _PER_CLI)


def folder_name(name: str) -> str:
    """Return a folder name for a batch: its own name if that is safe, and unique to the batch in any case."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def hide_password(url: str) -> str:
    """Return a URL with its password masked."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", url)


def find_network_disk(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of network file system that a folder is on; None if it is local or unknown."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:  # not on Linux
        return None
    real = Path(os.path.realpath(folder))
    best, kind = Path("/"), ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or not rest:  # noqa: PLR2004 - id, parent, device, root, mount point
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4]))
        if real.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, rest[0]
    return kind if kind in _NETWORK else None
