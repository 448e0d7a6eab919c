"""The official distribution's metadata, for a machine where it is not installed.

Instrumentation libraries read the version of `claude-agent-sdk` there before they patch anything.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path

from toolwire.official import API_LEVEL

NAME = "claude-agent-sdk"


def find(context: DistributionFinder.Context | None) -> Iterable[Distribution]:
    """Yield the distribution if it is requested, by name or with all others, and the real one is not installed."""
    requested = getattr(context, "name", None)
    if requested is not None and requested.lower().replace("_", "-") != NAME:
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
