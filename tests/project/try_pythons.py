"""`make pythons`: runs the fast tests with every supported Python that is found.

python tests/project/try_pythons.py [--folder build/pythons] [VERSION ...]

Pythons are looked for on PATH and among pyenv's; a version that is not found is reported and skipped. Each gets a
virtual environment of its own with the dev requirements, made by `uv`, which takes packages from its cache.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parents[2]
NEEDS = (ROOT / "requirements-dev.txt", ROOT / "pyproject.toml")
FAST = [
    *(
        f"tests/{name}"
        for name in ("protocol", "messages", "options", "conversation", "client", "hooks", "tools")
    ),
    *(f"tests/support/test_{name}.py" for name in ("log", "tasks", "threads")),
    *(f"tests/transport/test_{name}.py" for name in ("find_cli", "find_cli_versions")),
    *(f"tests/project/test_{name}.py" for name in ("imports", "layers")),
    "tests/permissions/test_policies.py",
]
"""Tests that start no server and few processes: about a minute for each Python."""
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
RUNNING = ".".join(map(str, sys.version_info[:2]))
INSTALLING, TESTING = 900, 900


def main() -> int:
    """Run the fast tests with each Python; returns 1 if they fail with one of them."""
    parser = argparse.ArgumentParser(description="Run the fast tests with several Pythons.")
    parser.add_argument(
        "versions",
        nargs="*",
        help=f"which ones; if none, {', '.join(VERSIONS)} but for the one that runs this",
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "pythons", help="for the environments"
    )
    asked = parser.parse_args()
    outcomes: dict[str, str] = {}
    for version in asked.versions or VERSIONS:
        if version == RUNNING and not asked.versions:
            outcomes[version] = "SKIPPED: all the other tests run with it"
            continue
        found = find(version)
        if found is None:
            outcomes[version] = "SKIPPED: not found on PATH nor among pyenv's"
            say(f"Python {version}: {outcomes[version]}")
            continue
        since = time.monotonic()
        good = tests_pass(installed(found, asked.folder / version))
        outcomes[version] = f"{'passed' if good else 'FAILED'} in {time.monotonic() - since:.0f} s"
    for version, outcome in outcomes.items():
        say(f"Python {version}: {outcome}")
    return 1 if any("FAILED" in each for each in outcomes.values()) else 0


def find(version: str) -> str | None:
    """Return a Python of this version that starts, or None."""
    places = [shutil.which(f"python{version}"), *among_pyenvs(version)]
    return next((place for place in places if place and version_of(place) == version), None)


def among_pyenvs(version: str) -> list[str]:
    """Return pyenv's Pythons of this version, the newest first; they need not be on PATH."""
    if (pyenv := shutil.which("pyenv")) is None:
        return []
    said = subprocess.run(
        [pyenv, "root"], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    ).stdout.strip()
    found = Path(said, "versions").glob(f"{version}.*/bin/python") if said else []
    patch = {path: path.parent.parent.name.split(".")[2] for path in found}
    return [
        str(path) for path in sorted(patch, key=lambda path: (len(patch[path]), patch[path]), reverse=True)
    ]


def version_of(python: str) -> str:
    """Return the version that a Python reports; empty if it does not start, such as a shim without a Python."""
    asking = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(
            asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def installed(python: str, folder: Path) -> Path:
    """Return a Python in an environment with the dev requirements, which is made again when those have changed."""
    own = folder / "bin" / "python"
    stamp = folder / "installed"
    needed = hashlib.sha256(b"".join(path.read_bytes() for path in NEEDS)).hexdigest()
    if not stamp.exists() or stamp.read_text() != needed:
        say(f"installing into {folder}")
        making = [UV, "venv", "--quiet", "--clear", "--python", python, str(folder)]
        subprocess.run(making, timeout=INSTALLING, check=True)
        pip = [UV, "pip", "install", "--quiet", "--python", str(own)]
        subprocess.run([*pip, "-r", str(NEEDS[0])], timeout=INSTALLING, check=True)
        editable = ["--no-build-isolation", "--no-deps", "-e", str(ROOT)]
        subprocess.run([*pip, *editable], timeout=INSTALLING, check=True)
        stamp.write_text(needed)
    return own


def tests_pass(python: Path) -> bool:
    """Run the fast tests with a Python, and return True if they pass."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *FAST]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=TESTING, check=False).returncode == 0


def say(text: str) -> None:
    sys.stderr.write(f"pythons: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
