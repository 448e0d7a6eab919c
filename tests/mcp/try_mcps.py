"""`make mcps`: the tests that meet `mcp`, with the oldest, the newest and the other supported versions of it.

python tests/mcp/try_mcps.py [--folder build/mcps] [VERSION ...]

Each version gets a virtual environment of its own that has `mcp`, and FastMCP where it fits; everything else comes
from the environment that runs this. Made by `uv`, which takes packages from its cache.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("1.23.0", "1.30.0", "2.0.0", "2.2.0")
"""The oldest, the newest 1.x, the oldest that serves, and over HTTP. All other tests run with the newest."""
BESIDE = {
    "1.30.0": ["fastmcp==3.4.11", "fastmcp-slim==3.4.11"],
    "2.0.0": ["fastmcp==4.0.11", "fastmcp-slim==4.0.11"],
}
"""What is installed beside a version: a FastMCP that accepts it."""
NEEDS = {1: ["httpx", "httpcore", "httpx-sse", "certifi"], 2: []}
"""What a major version needs beyond the dev requirements."""
ALWAYS = ["tests/mcp/test_versions.py", "tests/mcp/foreign/test_mcp1.py", "tests/tools/test_context.py"]
WITH_2 = [
    "tests/mcp/test_compat.py",
    "tests/mcp/test_direct_client.py",
    "tests/mcp/test_remote.py",
    "tests/mcp/test_sdk_server.py",
    "tests/mcp/foreign",
    "tests/mcp/serve/test_host.py",
    "tests/mcp/serve/test_stdio.py",
    "tests/tools/results",
]
WITH_HTTP = ["tests/mcp/test_exact_numbers.py", "tests/mcp/serve"]
INSTALLING, TESTING = 600, 600
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"


def main() -> int:
    """Run the tests with each version; return 1 if they fail with one of them."""
    parser = argparse.ArgumentParser(description="Run the tests that meet mcp with several versions of it.")
    parser.add_argument("versions", nargs="*", help=f"which ones; if none, {', '.join(VERSIONS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mcps", help="for the environments")
    asked = parser.parse_args()
    outcomes: dict[str, str] = {}
    for version in asked.versions or VERSIONS:
        since = time.monotonic()
        good = tests_pass(installed(version, asked.folder / version), version)
        outcomes[version] = f"{'passed' if good else 'FAILED'} in {time.monotonic() - since:.0f} s"
    for version, outcome in outcomes.items():
        say(f"mcp {version}: {outcome}")
    return 1 if any("FAILED" in each for each in outcomes.values()) else 0


def installed(version: str, folder: Path) -> Path:
    """Return a Python that has this version of `mcp`, and all other packages of this environment."""
    python, stamp = folder / "bin" / "python", folder / "installed"
    major = int(version.partition(".")[0])
    packages = [f"mcp=={version}", *NEEDS[major], *BESIDE.get(version, [])]
    packages += [f"mcp-types=={version}"] if major > 1 else []
    if not stamp.exists() or stamp.read_text() != " ".join(packages):
        say(f"installing into {folder}")
        making = [UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]
        subprocess.run(making, timeout=INSTALLING, check=True)
        own = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
        pip = [UV, "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
        subprocess.run([*pip, *packages], timeout=INSTALLING, check=True)
        # After its own packages, those of this environment, including those that its .pth files add.
        rest = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        Path(own, "zz_rest.pth").write_text(rest)
        stamp.write_text(" ".join(packages))
    return python


def tests_pass(python: Path, version: str) -> bool:
    """Run the tests that fit a version, and return whether they pass."""
    number = tuple(map(int, version.split(".")[:2]))
    chosen = [*ALWAYS, *(WITH_2 if number >= (2, 0) else []), *(WITH_HTTP if number >= (2, 2) else [])]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--fast", *chosen]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=TESTING, check=False).returncode == 0


def say(text: str) -> None:
    sys.stderr.write(f"mcps: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
