"""Progress bars."""

from toolwire.cli.shared import progress


def test_without_a_terminal_there_is_no_bar(capsys):
    """A pipe gets no output, and no work is done for it."""
    with progress.show_progress("Reading") as move:
        assert move is None
    assert capsys.readouterr().err == ""


def test_short_work_shows_no_bar(capsys, monkeypatch):
    """Only work that takes a while shows one."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with progress.show_progress("Reading") as move:
        move(1, 2)
        move(2, 2)
    assert "Reading" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    with progress.show_progress("Reading") as move:
        move(1, 2)
    assert "Reading" in capsys.readouterr().err
