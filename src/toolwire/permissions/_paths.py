"""A policy for files: nothing outside some folders.

A path is read in every way that a tool might read it (as it is, trimmed, with `~` or variables filled in, with `..`
taken by letter or through links) and all of the readings must be inside. It looks at links on the disk and at
nothing else there. What happens to the disk between the question and the call is out of its sight.
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolwire.permissions._matching import named
from toolwire.permissions.policy import Policy
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

FILE_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "Read": ("file_path",),
    "Write": ("file_path",),
    "Edit": ("file_path",),
    "MultiEdit": ("file_path",),
    "NotebookEdit": ("notebook_path",),
    "NotebookRead": ("notebook_path",),
    "Glob": ("path?", "pattern*"),
    "Grep": ("path?",),
    "LS": ("path?",),
}
"""Tool -> arguments that are paths. With `?`, none means the working directory; with `*`, it is a glob pattern."""

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_GLOB: Final = re.compile(r"[*?\[{]")


class _Outside(Exception):  # noqa: N818 - it says what a path is
    """Carries the sentence for the model."""


def inside(
    folder: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    tools: Mapping[str, str | tuple[str, ...]] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    allow: bool = False,
) -> Policy:
    """Deny the file tools everything outside the folders; inside, no opinion, or with `allow` a yes.

    `tools` adds tools and the names of their path arguments: `{"mcp__fs__*": "path"}`. `cwd` is where relative
    paths start: give it when `ClaudeAgentOptions.cwd` is not this process's own.
    """
    folders = tuple(Path(os.path.realpath(Path(each).expanduser())) for each in (folder, *more))
    arguments = {
        name: (fields,) if isinstance(fields, str) else tuple(fields)
        for name, fields in {**FILE_TOOLS, **(tools or {})}.items()
    }

    def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult | None:
        wanted = [field for tool, fields in arguments.items() if named(name, (tool,)) for field in fields]
        if not wanted:
            return None
        start = os.path.abspath(cwd or (context.raw or {}).get("cwd") or Path.cwd())  # noqa: PTH100 - text
        try:
            for field in wanted:
                for path in _paths(given, field, start):
                    _check(path, start, folders)
        except _Outside as outside:
            allowed = ", ".join(map(str, folders))
            return PermissionResultDeny(message=f"{name} may only use files inside {allowed}: {outside}.")
        return PermissionResultAllow() if allow else None

    more_shown = ", allow=True" if allow else ""
    return Policy(judge, f"inside({', '.join(repr(str(each)) for each in folders)}{more_shown})")


def _paths(given: Mapping[str, Any], field: str, start: str) -> Iterator[str]:
    """The paths in an argument."""
    name = field.rstrip("?*")
    value: Any = given
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if field.endswith("*"):
        yield from _roots(value, given.get("path"), start)
        return
    if value is None or value == "":
        if not field.endswith("?"):
            raise _Outside(f"{name} is missing")
        yield start
        return
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str):
            raise _Outside(f"{name} is not a path")
        yield each


def _roots(pattern: Any, path: Any, start: str) -> Iterator[str]:
    """The folders that a glob pattern starts from."""
    if not isinstance(pattern, str):
        raise _Outside("the pattern is missing")
    parts = re.split(r"[/{},()|]", pattern)
    if "\\" in pattern or any(part.strip() == ".." for part in parts) or re.search(r"[{,(|]\s*[/~]", pattern):
        raise _Outside(
            "the pattern must have no '..', no backslash and no alternatives that are absolute paths"
        )
    base = path if isinstance(path, str) and path else start
    fixed = _GLOB.split(pattern, maxsplit=1)[0]
    # What stands before the first wildcard; a started name belongs to the wildcard.
    fixed = fixed if fixed == pattern else fixed[: fixed.rfind("/") + 1]
    yield os.path.join(base, fixed) if fixed.strip() else base  # noqa: PTH118 - text
    yield fixed.strip() or base


def _check(path: str, start: str, folders: tuple[Path, ...]) -> None:
    if "\0" in path or not path.strip():
        raise _Outside("that is no path")
    if path.strip().casefold().startswith("file:"):
        raise _Outside("write a plain path, not a URL")
    for reading in _readings(path):
        if reading.startswith("~"):
            raise _Outside(f"{_short(path)} names a home folder that is not known here")
        absolute = reading.startswith("/") or Path(reading).is_absolute()
        if not absolute and Path(os.path.normpath(reading)).parts[:1] == ("..",):
            raise _Outside(f"{_short(path)} climbs out of the working directory, write an absolute path")
        whole = os.path.join(start, reading)  # noqa: PTH118 - text, and `..` must stay
        for target in (whole, os.path.normpath(whole)):
            try:
                real = Path(os.path.realpath(target))
            except (OSError, ValueError):
                raise _Outside(f"{_short(path)} cannot be resolved") from None
            if not any(real == folder or folder in real.parents for folder in folders):
                raise _Outside(f"{_short(path)} is outside")


def _readings(path: str) -> set[str]:
    """All that a tool may take the text for."""
    found = {path, path.strip()}
    found |= {unicodedata.normalize("NFC", each) for each in found}
    found |= {os.path.expandvars(each) for each in found}
    if "\\" in path or _DRIVE.match(path):
        found |= {each.replace("\\", "/") for each in found}
    homes = {each for each in found if each.startswith("~")}
    # A `~` is a home folder to most tools and a plain name to some.
    found |= {f"./{each}" for each in homes}
    return (found - homes) | {os.path.expanduser(each) if each[1:2] in ("", "/") else each for each in homes}  # noqa: PTH111


def _short(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}...")  # noqa: PLR2004 - a readable length
