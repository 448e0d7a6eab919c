"""The page on the command shows every command. Its transcripts run in `make dist` (`try_pages`)."""

from pathlib import Path

from toolwire.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "command.md"


def test_the_page_shows_every_command():
    """The name of every command occurs on the page."""
    page = PAGE.read_text()
    names = {each.callback.__name__ for each in app.registered_commands if each.callback} - {"demo"}
    assert [name for name in sorted(names) if f"toolwire {name}" not in page] == []
