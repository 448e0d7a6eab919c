"""A hook of the build: makes the page that a package index shows, with links if the repository's address is given.

The address is given when a distribution is built (`make dist URL=https://github.com/OWNER/toolwire`), and is in no
file. With it, the metadata has links, and the relative links of README, which an index cannot follow, become
absolute: they lead to the files of this version's tag. A wheel that is built from an sdist has the page of the
sdist.
"""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "PROJECT_URL"
_LINK = re.compile(
    r"(?P<code>```.*?```|`[^`]*`)|(?P<image>!?)(?P<text>\[[^\]]*\])\((?!\w+:|#)(?P<path>[^)\s]+)\)", re.DOTALL
)


class PackagePage(MetadataHookInterface):
    """Fills in the fields `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the metadata of pyproject.toml. Called by hatchling for each build."""
        address = read_address(os.environ.get(VARIABLE, ""))
        if "readme" in metadata and not address:
            return  # the README of an sdist, which may have been built with an address
        text = Path(self.root, "README.md").read_text("utf-8")
        if address:
            metadata["urls"] = make_links(address, metadata["version"])
            text = make_absolute(text, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def read_address(given: str) -> str:
    """Check and return the address of the repository; empty if none is given."""
    address = given.strip().rstrip("/").removesuffix(".git")
    parts = urlsplit(address)
    if address and (parts.scheme != "https" or not parts.netloc or parts.path.count("/") < 2):  # noqa: PLR2004
        raise ValueError(
            f"{VARIABLE} is {given!r}, which is not the address of a repository; "
            f"write it as https://github.com/OWNER/toolwire, or leave it out"
        )
    return address


def make_links(address: str, version: str) -> dict[str, str]:
    """Return the links of the package, by the names for which PyPI shows a symbol."""
    files = f"{address}/blob/v{version}"
    return {
        "Source": address,
        "Documentation": f"{files}/docs/guide.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def make_absolute(text: str, address: str, version: str) -> str:
    """Make links to files and pictures of the repository absolute."""

    def replace(found: re.Match[str]) -> str:
        if found["code"]:
            return found["code"]
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}{found['text']}({address}/{kind}/v{version}/{found['path']})"

    return _LINK.sub(replace, text)
