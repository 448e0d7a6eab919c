"""`toolwire doctor`: reports what is installed, what is missing, and what to do about it.

It checks only that keys are set, never their values, and reads no files of the user. The CLI is started once, for
its version, in an empty environment.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import typer

from toolwire.cli.shared.printing import markup, show, show_json
from toolwire.cli.shared.target_options import JsonOption
from toolwire.errors import CLIConnectionError
from toolwire.mcp.versions import NEXT, SERVING, SERVING_HTTP, can_use

Level = Literal["ok", "note", "problem"]

_VERSION_TIMEOUT: Final = 30.0  # seconds
_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PROVIDERS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_NEEDED: Final = ("anyio", "mcp", "orjson", "pydantic", "jsonschema-rs", "rich", "typer")
_MARKS: Final[dict[Level, str]] = {
    "ok": "[green]ok[/]",
    "note": "[yellow]note[/]",
    "problem": "[red]problem[/]",
}


@dataclass(frozen=True)
class Found:
    """The result of one check."""

    what: str
    level: Level
    said: str
    fix: str = ""


def doctor(json: JsonOption = False) -> None:
    """Check this machine: the Claude Code CLI, keys (only that they are set), Python and packages.

    Exits with 1 only if tools cannot be served.

    Examples:

      toolwire doctor

      toolwire doctor --json
    """
    found = list(_run_checks(os.environ))
    failed = any(each.level == "problem" for each in found)
    if json:
        show_json({"ok": not failed, "findings": [asdict(each) for each in found]})
    else:
        _show(found)
    if failed:
        raise typer.Exit(1)


def _show(found: list[Found]) -> None:
    from rich.table import Table  # noqa: PLC0415 - loads rich

    table = Table(box=None, show_header=False, pad_edge=False)
    for each in found:
        fix = f". {markup(each.fix)}" if each.fix else ""
        table.add_row(_MARKS[each.level], f"[bold]{each.what}[/]", f"{markup(each.said)}{fix}")
    show(table)


def _run_checks(env: Mapping[str, str]) -> Iterator[Found]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Found("Python", "ok", f"{version} at {sys.executable}")
    yield from _check_packages()
    cli = _check_cli(env)
    yield from cli
    keys = [name for name in (*_KEYS, *_PROVIDERS) if env.get(name)]
    if keys:
        yield Found("key", "ok", f"{', '.join(keys)} set (the value was not read)")
    else:
        fix = "Live runs then need a CLI that is logged in: claude /login, or set ANTHROPIC_API_KEY"
        yield Found("key", "note", "no key or provider in the environment", fix)
    yield _check_node()
    if cli[0].level != "ok":
        yield Found("run", "note", "only toolwire run --scripted works: there is no CLI to start")


def _check_packages() -> Iterator[Found]:
    versions = {
        name: _installed_version(name) for name in ("toolwire", *_NEEDED, "uvloop", "trio", "uvicorn")
    }
    missing = [name for name in _NEEDED if versions[name] is None]
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    yield Found("packages", "ok", there)
    if missing:
        fix = f"{sys.executable} -m pip install --force-reinstall toolwire"
        yield Found("packages", "problem", f"missing: {', '.join(missing)}", fix)
    if (mcp := versions["mcp"]) is not None:
        oldest = ".".join(map(str, SERVING_HTTP))
        fix = f"{sys.executable} -m pip install 'mcp>={oldest},<{NEXT[0]}'"
        if not can_use(SERVING):
            yield Found("mcp", "problem", f"toolwire serve does not work with mcp {mcp}", fix)
        elif not can_use(SERVING_HTTP):
            yield Found("mcp", "note", f"toolwire serve --http does not work with mcp {mcp}", fix)


def _installed_version(name: str) -> str | None:
    import importlib.metadata  # noqa: PLC0415 - slow to load

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_cli(env: Mapping[str, str]) -> list[Found]:
    from toolwire._transport.find_cli import find_cli  # noqa: PLC0415

    try:
        path = find_cli(env=env)
    except CLIConnectionError as error:
        first, *rest = str(error).splitlines()
        places = [line.removeprefix("  - ") for line in rest if line.startswith("  - ")]
        said = f"{first} {', '.join(places)}" if places else first
        fix = "For live runs: npm install -g @anthropic-ai/claude-code, or pip install 'toolwire[cli]'"
        return [Found("CLI", "note", said, fix)]
    version, problem = _cli_version(path)
    if version is None:
        return [
            Found(
                "CLI",
                "note",
                f"{path} ({_how_found(path, env)}) {problem}",
                "Install it again, or choose another CLI",
            )
        ]
    return [Found("CLI", "ok", f"{version}, {path} ({_how_found(path, env)})"), *_compare_version(version)]


def _how_found(path: str, env: Mapping[str, str]) -> str:
    from toolwire._transport.find_cli import VARIABLE, bundled_cli  # noqa: PLC0415

    if env.get(VARIABLE):
        return f"named by {VARIABLE}"
    if path == shutil.which("claude", path=env.get("PATH", "")):
        return "on PATH"
    return "from the package claude-agent-sdk" if path == bundled_cli() else "in a usual place"


def _cli_version(path: str) -> tuple[str | None, str]:
    """Return the version of a CLI, or None and the problem."""
    from toolwire.testing.environment import ClaudeEnvironment  # noqa: PLC0415

    with ClaudeEnvironment("http://127.0.0.1:9") as clean:  # a port without a server
        try:
            done = _ask_version(path, clean.env, clean.cwd)
        except subprocess.TimeoutExpired:
            return None, f"did not print its version within {_VERSION_TIMEOUT:g} seconds"
        except OSError as error:
            return None, f"cannot be started: {error.strerror}"
    words = done.stdout.split()
    if done.returncode or not words:
        return None, f"failed when asked for its version (exit code {done.returncode})"
    return words[0], ""


def _ask_version(
    path: str, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the CLI that a run would start, or Node: only for its version
        [path, "--version"],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=_VERSION_TIMEOUT,
        check=False,
    )


def _compare_version(version: str) -> Iterator[Found]:
    from toolwire._transport.find_cli import TESTED, version_warning  # noqa: PLC0415

    if version == TESTED:
        yield Found("CLI version", "ok", "the version that toolwire is tested with")
    elif text := version_warning(version):
        yield Found("CLI version", "note", text)
    else:
        yield Found("CLI version", "ok", f"toolwire is tested with {TESTED}; {version} most likely works too")


def _check_node() -> Found:
    path = shutil.which("node")
    if path is None:
        return Found("Node", "ok", "not found, and not needed: the native CLI runs without it")
    try:
        done = _ask_version(path, {"PATH": os.environ.get("PATH", os.defpath)})
        version = done.stdout.strip() or "(unknown version)"
    except (OSError, subprocess.SubprocessError):
        version = "(does not start)"
    return Found("Node", "ok", f"{version} at {path}; only a CLI installed by npm needs it")
