"""`make clis`: the tests of any CLI with the oldest CLI that is supported and with the newest there is.

`make clis ARGS="[--folder build/clis] [VERSION ...]"`

Installs each version by npm into a folder of its own, and runs tests/real/test_any_cli.py with it, and those tests
of session stores that tell whether a turn can be lost, in the scratch environment that all tests with the real CLI
have. With the newest the scripted CLI is compared too; where they
differ that is told, and is no failure unless it is the version that the scripted CLI imitates.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from real.cli_under_test import VARIABLE
from toolwire._transport.find_cli import OLDEST_SUPPORTED, TESTED

PACKAGE = "@anthropic-ai/claude-code"
HERE = Path(__file__).parent
LIMIT = 900
STORES = [
    f"test_sessions_real.py::{test}"
    for test in (
        "test_a_conversation_goes_on_on_an_empty_machine[asyncio-memory]",
        "test_a_folder_that_cannot_be_written_is_gone_round[asyncio-memory]",
        "test_a_host_that_is_killed_in_mid_turn_loses_no_turn[asyncio]",
    )
]


def main() -> int:
    """Run the tests with each version; return 1 if the tests of any CLI fail with one of them."""
    parser = argparse.ArgumentParser(description="Run the tests of any CLI with other CLIs.")
    parser.add_argument(
        "versions", nargs="*", help=f"which ones; {OLDEST_SUPPORTED} and the newest on npm if none is named"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/clis"), help="where they are installed")
    asked = parser.parse_args()
    if shutil.which("npm") is None:
        say("make clis needs npm, which is not on PATH")
        return 1
    newest = npm("view", PACKAGE, "version")
    versions = asked.versions or list(dict.fromkeys([OLDEST_SUPPORTED, newest]))
    say(f"the newest Claude Code is {newest}; supported from {OLDEST_SUPPORTED} on, tried with {TESTED}")
    outcomes = {version: tried(version, asked.folder, compare=version == newest) for version in versions}
    for version, good in outcomes.items():
        say(f"Claude Code {version}: {'passed' if good else 'FAILED'}")
    return 0 if all(outcomes.values()) else 1


def tried(version: str, folder: Path, *, compare: bool) -> bool:
    """Install one version and run the tests with it; return whether they pass."""
    cli = installed(version, folder)
    good = tests_pass(cli, "test_any_cli.py", *STORES)
    if compare:
        same = tests_pass(cli, "test_contract.py")
        if not same:
            say(f"Claude Code {version} differs from the scripted CLI, which imitates {TESTED}: see above")
        good = good and (same or version != TESTED)
    return good


def installed(version: str, folder: Path) -> Path:
    """Return the program of this version; install it if it is not there yet."""
    own = folder.absolute() / version
    cli = own / "node_modules" / ".bin" / "claude"
    if not cli.exists():
        own.mkdir(parents=True, exist_ok=True)
        (own / "package.json").write_text('{"private": true}\n')
        npm("install", "--no-audit", "--no-fund", "--silent", f"{PACKAGE}@{version}", cwd=own)
    return cli


def npm(*arguments: str, cwd: Path | None = None) -> str:
    """Run npm and return what it prints."""
    command = [shutil.which("npm") or "npm", *arguments]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    return done.stdout.strip()


def tests_pass(cli: Path, *names: str) -> bool:
    """Run files of tests, or single tests, with a CLI; return whether they pass."""
    tests = [str(HERE / name) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *tests]
    environment = {**os.environ, VARIABLE: str(cli), "PYTHONHASHSEED": "0"}
    return subprocess.run(command, env=environment, timeout=LIMIT, check=False).returncode == 0


def say(text: str) -> None:
    sys.stderr.write(f"clis: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
