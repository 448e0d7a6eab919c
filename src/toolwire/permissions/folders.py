"""A policy for files: it denies access to files outside some folders.

A path is interpreted in every way that a tool might interpret it (unchanged, trimmed, with `~` or variables
expanded, with `..` resolved textually or through links), and all the results must be inside. Paths through the
files of a process (`/proc/self`, `/dev/fd`) are refused: in the CLI's process they mean something else. On disk the
policy only looks at links. It cannot detect changes on disk between the decision and the call.
"""

import fnmatch
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolwire.permissions.policy import Policy, matches_tool
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
"""Tool -> arguments that are paths. `?`: if missing, the working directory; `*`: a glob pattern."""

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_GLOB: Final = re.compile(r"[*?\[{(]|[@+!]\(")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_BLANK: Final = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
_DOTS: Final = re.compile(r"\*+\.\**\.\**|\.(\**[.?]\**|\*+)")
_PROCESS_FILES: Final = re.compile(r"/proc/(self|thread-self|\d+)(/|\Z)|/dev/(fd|stdin|stdout|stderr)(/|\Z)")
"""Paths that mean something else to the process that opens them than to this one."""
_MAX_LINKS: Final = 40
_MAX_PARTS: Final = 1_000
"""Limit for the alternatives of a pattern, and for the folders that it matches."""


class _OutsideError(Exception):
    """Raised for a path that is not inside; its text is shown to the model."""


def inside(
    folder: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    tools: Mapping[str, str | tuple[str, ...]] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    allow: bool = False,
) -> Policy:
    """Deny the file tools access outside the folders. Inside: no opinion, or allow if `allow` is set.

    Paths through `/proc/self`, `/proc/<pid>` or `/dev/fd` are always denied.

    `tools` adds tools and the names of their path arguments: `{"mcp__fs__*": "path"}`. Relative paths start at
    `cwd`: set it if `ClaudeAgentOptions.cwd` is not this process's own working directory.
    """
    folders = tuple(Path(os.path.realpath(Path(each).expanduser())) for each in (folder, *more))
    arguments = {
        name: (fields,) if isinstance(fields, str) else tuple(fields)
        for name, fields in {**FILE_TOOLS, **(tools or {})}.items()
    }

    def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult | None:
        paths = [
            field for tool, fields in arguments.items() if matches_tool(name, (tool,)) for field in fields
        ]
        if not paths:
            return None
        start = os.path.abspath(cwd or (context.raw or {}).get("cwd") or Path.cwd())  # noqa: PTH100 - text
        try:
            for field in paths:
                for path in _find_paths(given, field, start):
                    _check(path, start, folders)
        except _OutsideError as outside:
            allowed = ", ".join(map(str, folders))
            return PermissionResultDeny(message=f"{name} may only use files inside {allowed}: {outside}.")
        return PermissionResultAllow() if allow else None

    more_shown = ", allow=True" if allow else ""
    return Policy(judge, f"inside({', '.join(repr(str(each)) for each in folders)}{more_shown})")


def _find_paths(given: Mapping[str, Any], field: str, start: str) -> Iterator[str]:
    """Yield the paths in an argument."""
    name = field.rstrip("?*")
    value: Any = given
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if field.endswith("*"):
        yield from _find_roots(value, given.get("path"), start)
        return
    if value is None or value == "":
        if not field.endswith("?"):
            raise _OutsideError(f"{name} is missing")
        yield start
        return
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str):
            raise _OutsideError(f"{name} is not a path")
        yield each


def _find_roots(pattern: Any, path: Any, start: str) -> Iterator[str]:
    """Yield the folders that a glob pattern starts from, and the links that its folders may be."""
    if not isinstance(pattern, str):
        raise _OutsideError("the pattern is missing")
    parts = re.split(r"[/{},()|]", pattern)
    if (
        "\\" in pattern
        or any(_trim(part) == ".." for part in parts)
        or re.search(r"[{,(|][\s\ufeff]*[/~]", pattern)
        or any(_goes_up(each) for each in _expand(pattern, "."))
    ):
        raise _OutsideError(
            "the pattern must have no '..' in any spelling, no backslash and no absolute paths as alternatives"
        )
    base = path if isinstance(path, str) and path else start
    fixed = _GLOB.split(pattern, maxsplit=1)[0]
    # The part before the first wildcard, without the beginning of a name that continues with the wildcard.
    fixed = fixed if fixed == pattern else fixed[: fixed.rfind("/") + 1]
    yield os.path.join(base, fixed) if _trim(fixed) else base  # noqa: PTH118 - text
    yield _trim(fixed) or base
    below = os.path.join(start, os.path.expanduser(os.path.expandvars(_trim(base))))  # noqa: PTH111, PTH118
    for each in _expand(pattern, "?"):
        yield from _find_links(below, each)


def _expand(pattern: str, unsure: str) -> list[str]:
    """Return the patterns that the alternatives expand to, with only `*`, `?` and plain characters.

    `unsure` replaces square brackets that may match a dot.
    """
    if re.search(r"\([^)]*[./~(]|\[[!^]?\]|\[[^]/]*[{},:\[]", pattern):
        raise _OutsideError("the pattern has brackets whose contents cannot be checked")
    pattern = re.sub(r"\{[^{},/]*\.\.[^{},/]*\}", "*", pattern)
    pattern = re.sub(r"!\([^)]*\)", "*", pattern)
    pattern = re.sub(r"[*+]\([^)]*\)", "*", pattern)
    pattern = re.sub(r"[?@]?\(([^)]*)\)", lambda found: f"{{{found[1].replace('|', ',')},,*}}", pattern)
    pattern = re.sub(r"\[[^]/]*\]", lambda found: unsure if re.search(r"[.!^-]", found[0]) else "?", pattern)
    done: list[str] = []
    left = [pattern]
    while left:
        if len(done) + len(left) > _MAX_PARTS:
            raise _OutsideError("the pattern has too many alternatives")
        each = left.pop()
        if inner := _BRACES.search(each):
            choices = inner[1].split(",")
            choices += ["*"] if len(choices) == 1 else []  # some tools treat `{a}` as a plain name
            left += [each[: inner.start()] + choice + each[inner.end() :] for choice in choices]
        else:
            done.append(each)
    return done


def _goes_up(pattern: str) -> bool:
    """Return True if a part may match `..`; a wildcard does not match a dot at the beginning."""
    return any(_DOTS.fullmatch(_trim(part)) for part in pattern.split("/"))


def _find_links(base: str, pattern: str) -> Iterator[str]:
    """Yield the links that the folders of a pattern may be; `**` does not follow links."""
    folders = [base if not pattern.startswith("/") else "/"]
    for part in pattern.split("/")[:-1]:
        if part in ("", ".", "**"):
            continue
        name = re.compile(fnmatch.translate(part), re.IGNORECASE)
        found = [each for folder in folders for each in _list_folders(folder) if name.match(each.name)]
        yield from (each.path for each in found if each.is_symlink())
        folders = [each.path for each in found]
        if len(folders) > _MAX_PARTS:
            raise _OutsideError("the pattern matches too many folders")


def _list_folders(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return [each for each in found if each.is_symlink() or each.is_dir()]
    except (OSError, ValueError):
        return []


def _trim(text: str) -> str:
    """Strip whitespace as both Python and JavaScript define it."""
    return _BLANK.sub("", text)


def _check(path: str, start: str, folders: tuple[Path, ...]) -> None:
    if "\0" in path or not _trim(path):
        raise _OutsideError("it is not a valid path")
    if _trim(path).casefold().startswith("file:"):
        raise _OutsideError("use a plain path, not a URL")
    for reading in _interpret(path):
        if reading.startswith("~"):
            raise _OutsideError(f"{_shorten(path)} names a home folder that is unknown here")
        absolute = reading.startswith("/") or Path(reading).is_absolute()
        if not absolute and Path(os.path.normpath(reading)).parts[:1] == ("..",):
            raise _OutsideError(f"{_shorten(path)} leaves the working directory, use an absolute path")
        whole = os.path.join(start, reading)  # noqa: PTH118 - text, and `..` must stay
        for target in (whole, os.path.normpath(whole)):
            try:
                if any(map(_PROCESS_FILES.match, _trace(target))):
                    raise _OutsideError(
                        f"{_shorten(path)} leads through the files of a process (/proc, /dev/fd)"
                    )
                real = Path(os.path.realpath(target))
            except (OSError, ValueError):
                raise _OutsideError(f"{_shorten(path)} cannot be resolved") from None
            if not any(real == folder or folder in real.parents for folder in folders):
                raise _OutsideError(f"{_shorten(path)} is outside")


def _trace(path: str) -> Iterator[str]:
    """Yield each file and link that the kernel would traverse, as an absolute path."""
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
            continue  # not a link, or it does not exist
        links += 1
        if links > _MAX_LINKS:
            raise _OutsideError(f"{_shorten(path)} leads through too many links")
        left += target.split("/")[::-1]
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - text


def _interpret(path: str) -> set[str]:
    """Return every path that a tool may interpret the text as."""
    found = {path, path.strip(), _trim(path)}
    found |= {unicodedata.normalize("NFC", each) for each in found}
    found |= {os.path.expandvars(each) for each in found}
    if "\\" in path or _DRIVE.match(path):
        found |= {each.replace("\\", "/") for each in found}
    homes = {each for each in found if each.startswith("~")}
    # Most tools expand `~` to a home folder; some treat it as a plain name.
    found |= {f"./{each}" for each in homes}
    return (found - homes) | {os.path.expanduser(each) if each[1:2] in ("", "/") else each for each in homes}  # noqa: PTH111


def _shorten(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}...")  # noqa: PLR2004 - a readable length
