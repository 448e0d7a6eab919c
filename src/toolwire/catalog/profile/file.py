"""The reading of a profile's file: TOML, and YAML where PyYAML is installed."""

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from toolwire.catalog.profile.rules import ProfileError

_LARGEST: Final = 256 * 1024


def read(path: Path) -> Any:
    """What the file holds, whatever that is."""
    if path.suffix.lower() not in (".toml", ".yaml", ".yml"):
        raise ProfileError(f"{path}: a profile is a .toml, .yaml or .yml file")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ProfileError(f"{path}: a profile may have {_LARGEST // 1024} KiB, this is larger")
        text = content.decode()
        return tomllib.loads(text) if path.suffix.lower() == ".toml" else _yaml(text, path)
    except OSError as error:
        raise ProfileError(f"{path}: the profile cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from error


def _yaml(text: str, path: Path) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise ProfileError(
            f"{path}: PyYAML is needed to read YAML: pip install pyyaml, or write the profile as TOML"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not valid YAML: {error}") from error
