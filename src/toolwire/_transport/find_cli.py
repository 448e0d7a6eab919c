"""Where the Claude Code CLI is.

Looks at files only; no process is started to find or to date it.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolwire.errors import CLIConnectionError, CLINotFoundError

VARIABLE = "TOOLWIRE_CLI"
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
    """The path of the CLI: `cli_path`, `TOOLWIRE_CLI`, PATH, the usual places, an installed claude-agent-sdk.

    A path that was named (by option or variable) is used or refused, never passed over for another.
    """
    env = os.environ if env is None else env
    if cli_path is not None:
        return _named(os.fspath(cli_path), "the option cli_path", env)
    if named := env.get(VARIABLE):
        return _named(named, f"the environment variable {VARIABLE}", env)
    looked: list[str] = []
    for place, where in _candidates(env):
        if place is not None and os.path.isfile(place):  # noqa: PTH113 - an unreadable folder is "no", not an error
            return _refuse_batch(place)
        looked.append(f"  - {where}")
    raise CLINotFoundError(
        "Claude Code not found. Looked in:\n" + "\n".join(looked) + "\nInstall it with one of\n"
        "  npm install -g @anthropic-ai/claude-code\n"
        "  pip install 'toolwire[cli]'\n"
        f"or name it: ClaudeAgentOptions(cli_path=...) or {VARIABLE}=/path/to/claude"
    )


def bundled_cli() -> str | None:
    """The binary inside an installed `claude-agent-sdk`, found without importing that package."""
    try:
        spec = importlib.util.find_spec("claude_agent_sdk")
    except ValueError:  # somebody has put a bare module of that name into sys.modules
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(folder) / "_bundled" / _NAME
        if binary.is_file():
            return str(binary)
    return None


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    # Not the working directory: a `claude` lying there may be anybody's.
    folders = [part for part in env.get("PATH", "").split(os.pathsep) if os.path.isabs(part)]  # noqa: PTH117 - no Path needed
    yield shutil.which(_NAME, path=os.pathsep.join(folders)), "PATH"
    for place in _USUAL:
        folder = os.path.expanduser(place)  # noqa: PTH111 - a home that is not known is left as it is
        yield os.path.join(folder, _NAME), f"{place}/{_NAME}"  # noqa: PTH118
    yield bundled_cli(), "the Python package claude-agent-sdk"


def _named(path: str, by: str, env: Mapping[str, str]) -> str:
    expanded = os.path.expanduser(path)  # noqa: PTH111
    if os.path.dirname(expanded):  # noqa: PTH120
        found = expanded if os.path.isfile(expanded) else None  # noqa: PTH113
    else:
        found = shutil.which(expanded, path=env.get("PATH"))
    if found is None:
        raise CLINotFoundError(f"Claude Code not found at the place that {by} names", path)
    # The CLI starts in another folder, where the same relative path may be another file.
    return _refuse_batch(os.path.abspath(found))  # noqa: PTH100 - links stay as they are


def _refuse_batch(path: str) -> str:
    """Windows runs .cmd and .bat through cmd.exe, which reads commands out of arguments: never safe to start."""
    parts = path.replace("\\", "/").replace(":", "/").split("/")
    if sys.platform == "win32" and any(
        part.rstrip(". ").lower().endswith((".bat", ".cmd")) for part in parts
    ):
        raise CLIConnectionError(
            f"{path} is a batch file, and arguments given to one can run commands. Use a native claude.exe: "
            "install Claude Code natively, or point cli_path at one."
        )
    return path
