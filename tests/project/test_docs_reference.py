"""The reference has everything: names and commands are generated, variables are compared with the source."""

import re
from pathlib import Path

import toolwire

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"\b(?:TOOLWIRE|AGENT_PAYMENT)_[A-Z_]+\b")


def test_every_public_name_is_in_the_reference():
    """Each name is listed with the module that defines it, as the site looks it up."""
    pages = "".join(path.read_text() for path in REFERENCE.glob("*.md"))
    missing = [
        name for name, where in toolwire._WHERE.items() if f"::: toolwire.{where}.{name}\n" not in pages
    ]
    assert missing == []


def test_every_environment_variable_is_on_its_page():
    """The page has the variables that the source names, and no other of ours."""
    page = set(VARIABLE.findall((REFERENCE / "environment.md").read_text()))
    files = [path for kind in ("*.py", "*.toml") for path in (ROOT / "src").rglob(kind)]
    source = {found for path in files for found in VARIABLE.findall(path.read_text("utf-8"))}
    assert page == source


def test_every_page_is_in_the_navigation():
    """Every page is in mkdocs.yml: mkdocs would only warn."""
    listed = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    root = {"index.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert listed == there | root


def test_every_message_of_the_page_on_troubleshooting_exists():
    """Each message occurs literally in the source, so that a search for it leads there."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)  # join texts that are split over two lines
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert messages
    assert [each for each in messages if each not in joined] == []
