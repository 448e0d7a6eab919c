"""Reads the file of a profile: TOML, and YAML where PyYAML is installed."""

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from toolwire.catalog.profile.rules import ProfileError

_LARGEST: Final = 256 * 1024


def read(path: Path) -> Any:
    """Read and parse a file. ProfileError says which file, and what is wrong."""
    kind = path.suffix.lower()
    if kind not in (".toml", ".yaml", ".yml"):
        raise ProfileError(f"{path}: a profile is a .toml, .yaml or .yml file")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ProfileError(f"{path}: the profile cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise ProfileError(f"{path}: a profile may have {_LARGEST // 1024} KiB, this is larger")
    try:
        return parse(content.decode("utf-8-sig"), kind)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not valid {kind[1:].upper()}: {error}") from error


def parse(text: str, kind: str) -> Any:
    """Parse TOML (`.toml`) or YAML."""
    return tomllib.loads(text) if kind == ".toml" else _yaml(text)


def _yaml(text: str) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise ProfileError(
            "PyYAML is needed to read YAML: pip install pyyaml, or write the profile as TOML"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it is imported when it is needed
        """Rejects keys that are set twice: one of the two would be lost."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for name in (key.value for key, _ in node.value if isinstance(key.value, str)):
                if name in seen:
                    line = node.start_mark.line + 1
                    raise ProfileError(f"{name[:80]!r} is set twice in the table at line {line}")
                seen.add(name)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"not valid YAML: {error}") from error
