"""The page on profiles names every example. Its transcript runs in `make dist` (`try_pages`)."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "profiles.md"


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "examples" / "profiles").glob("*.toml"))
)
def test_every_example_is_on_the_page(name):
    """The page links to every example."""
    assert f"[{name}](../examples/profiles/{name})" in PAGE.read_text()
