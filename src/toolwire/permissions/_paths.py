"""A policy for files: nothing outside some folders.

A path is read in every way that a tool might read it (as it is, trimmed, with `~` or variables filled in, with `..`
taken by letter or through links) and all of the readings must be inside. Paths through the files of a process
(`/proc/self`, `/dev/fd`) are refused: they mean something else to the CLI. It looks at links on the disk and at
nothing else there. What happens to the disk between the question and the call is out of its sight.
"""

import fnmatch
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
_GLOB: Final = re.compile(r"[*?\[{(]|[@+!]\(")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_BLANK: Final = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
_UP: Final = re.compile(r"\*+\.\**\.\**|\.(\**[.?]\**|\*+)")
_OF_A_PROCESS: Final = re.compile(r"/proc/(self|thread-self|\d+)(/|\Z)|/dev/(fd|stdin|stdout|stderr)(/|\Z)")
"""Paths that mean something else to the process that opens them than to this one."""
_MOST_LINKS: Final = 40
_MOST: Final = 1_000
"""Alternatives of a pattern, and folders on its way, that are looked at."""


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

    Paths through `/proc/self`, `/proc/<pid>` or `/dev/fd` are denied wherever they lead.

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
    if (
        "\\" in pattern
        or any(_trimmed(part) == ".." for part in parts)
        or re.search(r"[{,(|][\s\ufeff]*[/~]", pattern)
        or any(_climbs(each) for each in _spelled(pattern, "."))
    ):
        raise _Outside(
            "the pattern must have no '..' in any spelling, no backslash and no absolute paths as alternatives"
        )
    base = path if isinstance(path, str) and path else start
    fixed = _GLOB.split(pattern, maxsplit=1)[0]
    # What stands before the first wildcard; a started name belongs to the wildcard.
    fixed = fixed if fixed == pattern else fixed[: fixed.rfind("/") + 1]
    yield os.path.join(base, fixed) if _trimmed(fixed) else base  # noqa: PTH118 - text
    yield _trimmed(fixed) or base
    below = os.path.join(start, os.path.expanduser(os.path.expandvars(_trimmed(base))))  # noqa: PTH111, PTH118
    for each in _spelled(pattern, "?"):
        yield from _linked(below, each)


def _spelled(pattern: str, unsure: str) -> list[str]:
    """The patterns that alternatives stand for, with `*`, `?` and plain characters only.

    `unsure` is put for square brackets that may hold a dot.
    """
    if re.search(r"\([^)]*[./~(]|\[[!^]?\]|\[[^]/]*[{},:\[]", pattern):
        raise _Outside("the pattern has brackets with something in them that cannot be checked")
    pattern = re.sub(r"\{[^{},/]*\.\.[^{},/]*\}", "*", pattern)
    pattern = re.sub(r"!\([^)]*\)", "*", pattern)
    pattern = re.sub(r"[*+]\([^)]*\)", "*", pattern)
    pattern = re.sub(r"[?@]?\(([^)]*)\)", lambda found: f"{{{found[1].replace('|', ',')},,*}}", pattern)
    pattern = re.sub(r"\[[^]/]*\]", lambda found: unsure if re.search(r"[.!^-]", found[0]) else "?", pattern)
    done: list[str] = []
    left = [pattern]
    while left:
        if len(done) + len(left) > _MOST:
            raise _Outside("the pattern has too many alternatives")
        each = left.pop()
        if inner := _BRACES.search(each):
            ways = inner[1].split(",")
            ways += ["*"] if len(ways) == 1 else []  # `{a}` is a plain name to some
            left += [each[: inner.start()] + one + each[inner.end() :] for one in ways]
        else:
            done.append(each)
    return done


def _climbs(pattern: str) -> bool:
    """Whether a part may be `..`; a wildcard does not stand for the dot at the beginning."""
    return any(_UP.fullmatch(_trimmed(part)) for part in pattern.split("/"))


def _linked(base: str, pattern: str) -> Iterator[str]:
    """The links that the folders of a pattern may lead through; `**` follows none."""
    folders = [base if not pattern.startswith("/") else "/"]
    for part in pattern.split("/")[:-1]:
        if part in ("", ".", "**"):
            continue
        name = re.compile(fnmatch.translate(part), re.IGNORECASE)
        found = [each for folder in folders for each in _entries(folder) if name.match(each.name)]
        yield from (each.path for each in found if each.is_symlink())
        folders = [each.path for each in found]
        if len(folders) > _MOST:
            raise _Outside("the pattern goes through too many folders")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return [each for each in found if each.is_symlink() or each.is_dir()]
    except (OSError, ValueError):
        return []  # nothing to go through


def _trimmed(text: str) -> str:
    """Without blanks around it, as JavaScript sees them too."""
    return _BLANK.sub("", text)


def _check(path: str, start: str, folders: tuple[Path, ...]) -> None:
    if "\0" in path or not _trimmed(path):
        raise _Outside("that is no path")
    if _trimmed(path).casefold().startswith("file:"):
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
                if any(map(_OF_A_PROCESS.match, _ways_to(target))):
                    raise _Outside(f"{_short(path)} leads through the files of a process (/proc, /dev/fd)")
                real = Path(os.path.realpath(target))
            except (OSError, ValueError):
                raise _Outside(f"{_short(path)} cannot be resolved") from None
            if not any(real == folder or folder in real.parents for folder in folders):
                raise _Outside(f"{_short(path)} is outside")


def _ways_to(path: str) -> Iterator[str]:
    """Each file and link that the kernel would pass on the way, as an absolute path."""
    here, links = "/", 0
    left = path.split("/")[::-1]
    while left:
        part = left.pop()
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - text
        if part in ("", ".", ".."):
            continue
        here = os.path.join(here, part)  # noqa: PTH118 - text
        yield here
        try:
            target = os.readlink(here)  # noqa: PTH115 - text
        except OSError:
            continue  # no link, or nothing there
        links += 1
        if links > _MOST_LINKS:
            raise _Outside(f"{_short(path)} leads through too many links")
        left += target.split("/")[::-1]
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - text


def _readings(path: str) -> set[str]:
    """All that a tool may take the text for."""
    found = {path, path.strip(), _trimmed(path)}
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
