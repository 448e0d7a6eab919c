"""Files that are written whole or not at all, and files of lines."""

import os
import stat
import threading

import pytest

from toolwire._support.files import append_line, open_for_lines, replace_file, write_line


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder):
    return [each.name for each in folder.iterdir()]


def test_a_file_is_replaced_in_one_step(tmp_path):
    """The new content, for the owner only, and nothing else is left in the folder."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_file(path, [b"new ", b"content"])
    assert (path.read_bytes(), mode_of(path), names_in(tmp_path)) == (b"new content", 0o600, ["file"])


def test_the_old_file_stays_if_the_content_fails(tmp_path):
    """This holds also where only a part of the content could be made."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def content():
        yield b"new"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        replace_file(path, content())
    assert (path.read_bytes(), names_in(tmp_path)) == (b"old", ["file"])


def test_the_mode_is_exact_unless_the_umask_counts(tmp_path):
    """A replaced file keeps its mode whatever the umask; a fresh one is as the user wants files to be."""
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "exact", [b""], mode=0o644)
        replace_file(tmp_path / "fresh", [b""], mode=0o666, use_umask=True)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "exact"), mode_of(tmp_path / "fresh")) == (0o644, 0o600)


def test_two_writers_of_one_process_do_not_disturb_each_other(tmp_path):
    """Each writes a file of its own first: the last one wins, and nobody fails."""
    path, failures, start = tmp_path / "file", [], threading.Barrier(4)

    def write(content):
        start.wait(10)
        try:
            for _ in range(20):
                replace_file(path, [content] * 10)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=[each]) for each in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (failures, len(path.read_bytes()), names_in(tmp_path)) == ([], 10, ["file"])


def test_lines_are_appended_for_the_owner_only(tmp_path):
    """A file that was moved away is created anew."""
    path = tmp_path / "log"
    append_line(path, b"one")
    append_line(path, b"two")
    path.rename(tmp_path / "log.1")
    append_line(path, b"three")
    assert ((tmp_path / "log.1").read_bytes(), path.read_bytes()) == (b"one\ntwo\n", b"three\n")
    assert mode_of(path) == 0o600


def test_a_file_of_lines_can_begin_anew(tmp_path):
    """A recording does this at its first connection."""
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    descriptor = open_for_lines(path, truncate=True)
    write_line(descriptor, b"new")
    os.close(descriptor)
    assert path.read_bytes() == b"new\n"


def test_lines_are_appended_to_regular_files_only(tmp_path):
    """A link may point to another user's file, and a pipe may block; both are refused, and so are folders."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name, words in (("link", "is a symbolic link"), ("pipe", "not a regular file"), ("", "directory")):
        with pytest.raises(OSError, match=words):
            append_line(tmp_path / name, b"line")
    os.close(reader)
    assert not (tmp_path / "elsewhere").exists()
