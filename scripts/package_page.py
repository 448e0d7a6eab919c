"""A hook of the build: what an index shows of the package, with links if the address of the repository is given.

The address is given when a distribution is built (`make dist URL=https://github.com/OWNER/toolwire`), and stands in
no file. With it the metadata has links, and those of README, which an index cannot follow, become absolute, to
the files of this version's tag. A wheel that is built from an sdist has what the sdist has.
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
        """Called for each build, with what pyproject.toml says."""
        address = read_address(os.environ.get(VARIABLE, ""))
        if "readme" in metadata and not address:
            return  # an sdist's, which may have been built with an address
        text = Path(self.root, "README.md").read_text("utf-8")
        if address:
            metadata["urls"] = make_links(address, metadata["version"])
            text = make_absolute(text, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def read_address(given: str) -> str:
    """Check the address of the repository. Empty if there is none."""
    address = given.strip().rstrip("/").removesuffix(".git")
    parts = urlsplit(address)
    if address and (parts.scheme != "https" or not parts.netloc or parts.path.count("/") < 2):  # noqa: PLR2004
        raise ValueError(
            f"{VARIABLE} is {given!r}, which is not the address of a repository; "
            f"write it as https://github.com/OWNER/toolwire, or leave it out"
        )
    return address


def make_links(address: str, version: str) -> dict[str, str]:
    """The links of the package, by the names under which PyPI shows them with a symbol."""
    files = f"{address}/blob/v{version}"
    return {
        "Source": address,
        "Documentation": f"{files}/docs/guide.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def make_absolute(text: str, address: str, version: str) -> str:
    """Markdown in which links to files of the repository lead there, and its pictures are shown."""

    def absolute(found: re.Match[str]) -> str:
        if found["code"]:
            return found["code"]
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}{found['text']}({address}/{kind}/v{version}/{found['path']})"

    return _LINK.sub(absolute, text)
