"""A hook of mkdocs: adds pages outside of docs/ to the site, and adapts the links between them and docs/."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = ("SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_FROM_ROOT = re.compile(r"\]\(docs/")
_TO_ROOT = re.compile(r"\]\(\.\./(?=examples/|README\.md|[A-Z]+\.md)")


def on_files(files: Files, config: Any) -> Files:
    """Add README as the first page, the other pages of the root, and the examples that pages link to."""
    for name in ("README.md", *PAGES):
        text = _FROM_ROOT.sub("](", (ROOT / name).read_text(encoding="utf-8"))
        place = "index.md" if name == "README.md" else name
        files.append(File.generated(config, place, content=text))
    for path in sorted((ROOT / "examples").rglob("*.toml")):
        files.append(
            File.generated(config, path.relative_to(ROOT).as_posix(), content=path.read_text("utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt links to pages of the root to their place in the site."""
    up = "../" * page.file.src_uri.count("/")
    return _TO_ROOT.sub(f"]({up}", markdown).replace("](README.md)", "](index.md)")
