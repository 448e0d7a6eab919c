"""Finds the Claude Code CLI, and knows which versions of it are supported.

Looks at files only; no process is started to find it. `make clis` runs tests/real/test_any_cli.py with the oldest
version named here and with the newest.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from toolwire.errors import CLIConnectionError, CLINotFoundError

OLDEST_SUPPORTED: Final = "2.1.176"
"""The CLI in the oldest claude-agent-sdk that `toolwire[cli]` allows."""
TESTED: Final = "2.1.325"
"""The CLI that all tests run with, and whose protocol is implemented."""
VARIABLE: Final = "TOOLWIRE_CLI"
_NAME = "claude.exe" if sys.platform == "win32" else "claude"
_USUAL = (
    "~/.local/bin",
    "~/.claude/local",
    "~/.npm-global/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "~/node_modules/.bin",
    "~/.yarn/bin",
    "~/.bun/bin",
)


def find_cli(cli_path: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return the path of the CLI.

    It is searched for in `cli_path`, `TOOLWIRE_CLI`, PATH, the usual directories, and an installed
    claude-agent-sdk. If the option or the variable is set, no other place is searched: the path is used, or an
    error is raised.
    """
    env = os.environ if env is None else env
    if cli_path is not None:
        return _check_given(os.fspath(cli_path), "the option cli_path", env)
    if given := env.get(VARIABLE):
        return _check_given(given, f"the environment variable {VARIABLE}", env)
    searched: list[str] = []
    for path, where in _candidates(env):
        if path is not None and os.path.isfile(path):  # noqa: PTH113 - an unreadable folder is "no", not an error
            return _refuse_batch(path)
        searched.append(f"  - {where}")
    raise CLINotFoundError(
        "Claude Code not found. Looked in:\n" + "\n".join(searched) + "\nInstall it with one of\n"
        "  npm install -g @anthropic-ai/claude-code\n"
        "  pip install 'toolwire[cli]'\n"
        f"or set its path with ClaudeAgentOptions(cli_path=...) or {VARIABLE}=/path/to/claude"
    )


def bundled_cli() -> str | None:
    """Return the path of the CLI inside an installed `claude-agent-sdk`, without importing that package."""
    folder = find_official_folder()
    binary = folder and Path(folder) / "_bundled" / _NAME
    return str(binary) if binary and binary.is_file() else None


def find_official_folder() -> str | None:
    """Return the package folder of an installed `claude-agent-sdk`; None if it is not installed.

    Searches `sys.path` itself: in alias mode, `sys.modules` and the finders return toolwire for that name.
    """
    spec = PathFinder.find_spec("claude_agent_sdk")
    return next(iter((spec and spec.submodule_search_locations) or ()), None)


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    # Not the working directory: a `claude` in there may come from anyone.
    folders = [part for part in env.get("PATH", "").split(os.pathsep) if os.path.isabs(part)]  # noqa: PTH117 - no Path needed
    yield _which(_NAME, path=os.pathsep.join(folders)), "PATH"
    for place in _USUAL:
        folder = os.path.expanduser(place)  # noqa: PTH111 - an unknown home directory is not an error here
        yield os.path.join(folder, _NAME), f"{place}/{_NAME}"  # noqa: PTH118
    yield bundled_cli(), "the Python package claude-agent-sdk"


def _check_given(path: str, by: str, env: Mapping[str, str]) -> str:
    expanded = os.path.expanduser(path)  # noqa: PTH111
    if os.path.dirname(expanded):  # noqa: PTH120
        found = expanded if os.path.isfile(expanded) else None  # noqa: PTH113
    else:
        found = _which(expanded, path=env.get("PATH"))
    if found is None:
        raise CLINotFoundError(f"Claude Code not found at the path given by {by}", path)
    # The CLI starts in another folder, where the same relative path may be another file.
    return _refuse_batch(os.path.abspath(found))  # noqa: PTH100 - links stay as they are


def _refuse_batch(path: str) -> str:
    """Refuse a batch file on Windows: cmd.exe runs it, and executes commands that are in the arguments."""
    parts = path.replace("\\", "/").replace(":", "/").split("/")
    if sys.platform == "win32" and any(
        part.rstrip(". ").lower().endswith((".bat", ".cmd")) for part in parts
    ):
        raise CLIConnectionError(
            f"{path} is a batch file, and arguments given to one can run commands. Use a native claude.exe: "
            "install Claude Code natively, or point cli_path at one."
        )
    return path


def parse_version(version: object) -> tuple[int, int, int] | None:
    """Parse a version into three numbers; None if it is not one."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def version_warning(version: object) -> str | None:
    """Return the warning for a CLI of this version; None if there is nothing to warn about.

    There is no warning for a CLI that does not report its version, as older ones do not when they start, nor for a
    newer patch version than the tested one, since those are released almost daily.
    """
    given = parse_version(version)
    if given is None:
        return None
    if given < (parse_version(OLDEST_SUPPORTED) or ()):
        return f"Claude Code {version} is older than {OLDEST_SUPPORTED}, the oldest supported version: update it."
    if given[:2] > (parse_version(TESTED) or ())[:2]:
        return (
            f"Claude Code {version} is newer than {TESTED}, the version that toolwire was tested with. New messages"
            " are passed through; if something does not work, update toolwire."
        )
    return None


def _which(name: str, path: str | None) -> str | None:
    import shutil  # noqa: PLC0415 - it loads compression modules

    return shutil.which(name, path=path)
