"""The official distribution's metadata, for a machine where it is not installed.

Instrumentation libraries ask `importlib.metadata` for the version of `claude-agent-sdk` before they patch anything.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path

from toolwire.official import API_LEVEL

NAME = "claude-agent-sdk"


def find(context: DistributionFinder.Context | None) -> Iterable[Distribution]:
    """Return the distribution if it was asked for, by name or among all, and the real one is not installed."""
    asked = getattr(context, "name", None)
    if asked is not None and asked.lower().replace("_", "-") != NAME:
        return
    if not any(MetadataPathFinder.find_distributions(DistributionFinder.Context(name=NAME))):
        yield _Alias()


class _Alias(Distribution):
    """A distribution with a name, a version and no files."""

    def read_text(self, filename: str) -> str | None:
        return (
            f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {API_LEVEL}\n" if filename == "METADATA" else None
        )

    def locate_file(self, path: object) -> Path:
        return Path(str(path))
