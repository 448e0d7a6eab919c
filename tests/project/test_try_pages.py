"""How pages are run: errors on a page are detected, and only a visible mark keeps a command from running."""

import sys
from pathlib import Path

import pytest

from project.try_pages import ROOT, PageError, find_packages, read_commands, try_page
from shared.console import matches

pytestmark = pytest.mark.process

BIN = Path(sys.executable).parent


@pytest.fixture
def run_page(tmp_path):
    """Return a function that runs a page with this text, in the environment of the tests."""

    def run(text):
        page = tmp_path / "page.md"
        page.write_text(text, "utf-8")
        return try_page(page, BIN, ROOT)

    return run


def test_a_page_that_is_right(run_page):
    """Files are written, the shell keeps its folder and variables, and the program prints what the page shows."""
    text = """
```toml
# kept.toml
tea = 4
```

```console
$ mkdir below && cd below
$ export TEA=5
$ cat ../kept.toml; echo "$TEA"
tea = 4
5
$ toolwire run "hello"    # needs an account, and costs money
```

```python
async def main():
    print("tea is", 4)
```

```text
tea is 4
```
"""
    assert run_page(text) == (4, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ echo tea\ncoffee\n```\n", "should show"),
        ("```console\n$ false\n```\n", "ended with 1"),
        ("```console\n$ echo tea\nError: no tea\n```\n", "ended with 0"),
        ("```console\n$ echo tea    # needs patience\n```\n", "needs 'patience'"),
        ("```console\n$ make no-such-target\n```\n", "ended with 2"),
        ("```python\nasync def main():\n    assert False\n```\n", "Python blocks fail"),
        ("```python\nprint(4)\n```\n\n```text\n5\n```\n", "should print"),
        ("```toml\ntea = 4\n```\n", "nothing says how to run"),
        ("```console\n$ exit 3\n```\n", "the shell has ended"),
    ],
)
def test_what_is_wrong_on_a_page_is_noticed(text, said, run_page):
    """The error names what the page promised and what happened."""
    with pytest.raises(PageError, match=said):
        run_page(text)


def test_a_script_of_the_model_that_is_not_played_is_noticed(run_page):
    """A script that the block never used is an error."""
    with pytest.raises(AssertionError, match="not played"):
        run_page('<!-- script: say("tea") -->\n```python\nprint(4)\n```\n')


def test_no_page_hides_commands_in_indented_blocks():
    """Such lines would look like commands, but nothing would run them."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    hidden = [
        f"{page.name}: {line}"
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if line.startswith(("    toolwire ", "    pip ", "    python ", "    export "))
    ]
    assert hidden == []


def test_the_way_from_nothing_takes_five_commands():
    """README's transcript from an empty folder to Claude's call of a tool has at most five commands."""
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = [each for each in text.split("```console\n") if each.startswith("$ python3 -m venv")]
    commands = list(read_commands(block.partition("```")[0]))
    assert len(commands) <= 5
    assert all(each.needs is None for each in commands)
    assert "--scripted" in commands[-1].text
    assert 'find returned: ["tea"]' in commands[-1].shown


def test_the_packages_of_the_pages_are_found():
    """The packages that pages install are found, without toolwire itself."""
    assert {"fastmcp", "opentelemetry-sdk", "pytest"} <= set(find_packages())
    assert "toolwire" not in " ".join(find_packages())


def test_the_matching_itself_can_fail():
    """Output that is not on the page does not match."""
    assert matches(["a ...", "...", "z"], "a b\nc\nd\nz\n")
    assert not matches(["a ...", "z"], "a b\nc\nz\n")
