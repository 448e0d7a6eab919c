"""Where the databases of a batch are (`at`), and how many CLIs fit on a machine."""

import uuid
from pathlib import Path

import pytest

from toolwire.batch.place import count_slots, find_machine, find_network_disk, find_place, folder_name
from toolwire.errors import BatchError

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/share\\040one rw - nfs4 server:/x rw
31 30 8:2 / /mnt/share\\040one/local rw - ext4 /dev/sdb rw
32 22 0:41 / /data rw - fuse.sshfs host: rw
"""


def test_the_default_is_in_the_users_state_folder(state_folder):
    """Each batch has its own folder, with its outbox."""
    place = find_place(None, "review")
    assert place.folder == state_folder / "review"
    assert place.outbox == state_folder / "review" / "outbox"
    assert find_place(None, "a/b").folder != find_place(None, "a-b").folder


def test_postgres_keeps_its_outbox_on_this_machine(state_folder):
    """Passwords are hidden, `postgres://` is the same as `postgresql://`, and each database has its own outbox."""
    place = find_place("postgres://me:secret@db/x", "review")
    assert place.records == place.ledger == "postgresql://me:secret@db/x"
    assert place.outbox.is_relative_to(state_folder)
    assert "secret" not in place.shown
    assert place.outbox != find_place("postgres://me:secret@db/y", "review").outbox


@pytest.mark.parametrize("at", ["mysql://x/y", "redis://localhost", "sqlite:///x.db"])
def test_other_addresses_are_refused(at):
    """The message says what is possible."""
    with pytest.raises(BatchError, match="give a folder, or postgresql://"):
        find_place(at, "b")


def test_an_empty_place_is_refused():
    """It comes from an unset variable: in the current folder, the batch would start over, and be paid for again."""
    with pytest.raises(BatchError, match="the place of the batch is empty"):
        find_place("", "b")


def test_a_file_is_refused(tmp_path):
    """A batch needs a folder: the file would be overwritten, or fail later."""
    (tmp_path / "x").write_text("")
    with pytest.raises(BatchError, match="is a file: a batch needs a folder"):
        find_place(tmp_path / "x", "b")


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", None),
        ("/mnt/share one/x", "nfs4"),
        ("/mnt/share one/local/x", None),
        ("/data/deep/er", "fuse.sshfs"),
        ("/database", None),
    ],
)
def test_a_network_disk_is_detected_by_its_mount(tmp_path, folder, kind):
    """The innermost mount counts; names with spaces are escaped in the kernel's list."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert find_network_disk(Path(folder), mounts) == kind


def test_where_mounts_cannot_be_read_nothing_is_refused(tmp_path):
    """Only Linux has that list."""
    assert find_network_disk(tmp_path, tmp_path / "none") is None


def test_sqlite_on_a_network_disk_is_refused(monkeypatch, tmp_path):
    """SQLite's locks do not work there."""
    monkeypatch.setattr("toolwire.batch.place.find_network_disk", lambda folder: "nfs4")
    with pytest.raises(BatchError, match="network disk .nfs4., where SQLite loses data"):
        find_place(tmp_path / "b", "b")


@pytest.mark.parametrize(
    ("available", "limit", "used", "slots"),
    [("3072000", "max", "0", 10), ("3072000", "700000000", "60000000", 2), ("1000", "max", "0", 1)],
)
def test_the_number_of_slots_follows_from_free_memory(tmp_path, available, limit, used, slots):
    """The memory of the machine or of the container counts, whichever is less; there is at least one slot."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available} kB\n")
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(used)
    assert count_slots(tmp_path / "meminfo", tmp_path) == slots


def test_the_number_of_slots_where_memory_is_unknown(tmp_path):
    """There are four slots."""
    assert count_slots(tmp_path / "none", tmp_path / "none") == 4


def test_a_machine_keeps_its_id():
    """The id is stored on the disk that also has the transcripts and the outbox."""
    assert find_machine() == find_machine()
    assert len(find_machine()) == 32


def test_processes_that_start_together_have_the_same_machine_id(monkeypatch):
    """The second process never finds an id that is only half written."""
    others = []

    def start_another():
        if not others:
            others.append("")  # the other one starts no third
            others[0] = find_machine()
        return uuid4()

    uuid4 = uuid.uuid4
    monkeypatch.setattr("uuid.uuid4", start_another)
    assert [find_machine()] == others
    assert len(others[0]) == 32


def test_names_of_folders_are_safe():
    """The folder is always inside the state folder, whatever the name of the batch."""
    assert folder_name("review-2026.11") == "review-2026.11"
    assert "/" not in folder_name("../../etc")
    assert not folder_name("..").startswith(".")
