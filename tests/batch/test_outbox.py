"""A result is written to a complete file on this machine before anything else is done with it."""

import stat

from toolwire.batch.outbox import Outbox


def test_a_result_is_found_until_it_is_removed(tmp_path):
    """Each attempt has one result, and a later one replaces it."""
    outbox = Outbox(tmp_path / "outbox")
    first = outbox.write("a/../b", 1, {"n": 1})
    assert outbox.write("a/../b", 1, {"n": 2}) == first
    other = outbox.write("a/../b", 2, {"n": 3})
    outbox.sync(first)
    assert sorted(content["n"] for _, content in outbox.pending()) == [2, 3]
    outbox.remove(first)
    outbox.remove(first)
    assert [path for path, _ in outbox.pending()] == [other]


def test_only_its_owner_can_read_it(tmp_path):
    """A result may contain secrets."""
    outbox = Outbox(tmp_path / "outbox")
    path = outbox.write("k", 1, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_broken_file_is_left_for_a_person(tmp_path, caplog):
    """It is logged and ignored, and so are incomplete files; the others are still found."""
    outbox = Outbox(tmp_path)
    (tmp_path / "x-1.json").write_bytes(b'{"half')
    (tmp_path / "y-1.123.part").write_bytes(b"{}")
    outbox.write("k", 1, {"ok": True})
    assert [content for _, content in outbox.pending()] == [{"ok": True}]
    assert "x-1.json cannot be read" in caplog.text
    assert (tmp_path / "x-1.json").exists()
