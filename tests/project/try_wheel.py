"""`make dist`: builds wheel and sdist, and tries the installed wheel as a new user would, without the checkout.

[PROJECT_URL=https://...] python tests/project/try_wheel.py [--out dist]

Each extra gets its own environment, and so does toolwire alone, which is tried in an empty folder: the demo, a
new project and its tests, calling, serving to the official client, and packing. Another environment has all extras:
all blocks of README and the documents run there (`try_pages`); README itself installs the sdist. Needs `uv`, from
the dev requirements.
"""

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from try_pages import PAGES, find_packages, say, try_pages

from shared.container import command_lines

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
LIMIT = 600  # seconds for one step
IMPORTS = {
    "cli": "claude_agent_sdk",
    "trio": "trio",
    "uvloop": "uvloop",
    "postgres": "psycopg",
    "redis": "redis",
    "openapi": "yaml, toolwire.openapi.server",
    "batch": "toolwire.batch",
    "studio": "toolwire.studio.app",
}
"""A module of each extra, to see that it was installed."""
CLIENT = """
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    start = StdioServerParameters(command=sys.argv[1], args=["serve", "shop.py"])
    async with stdio_client(start) as streams, ClientSession(*streams) as client:
        await client.initialize()
        print((await client.call_tool("find", {"word": "tea"})).content[0].text)


asyncio.run(asyncio.wait_for(main(), 60))
"""


def main() -> int:
    """Build and try the distributions; raises if anything fails."""
    parser = argparse.ArgumentParser(description="Build the distributions and try the wheel.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="for wheel and sdist")
    out = parser.parse_args().out.absolute()
    address = os.environ.get("PROJECT_URL", "").strip()
    if address:
        check_changelog()
    else:
        say("no address of the repository is given (make dist URL=https://...): the package has no links")
    shutil.rmtree(out, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-d", out], cwd=ROOT)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    extras = check_metadata(wheel, address)
    unknown = extras - IMPORTS.keys()
    if unknown:
        raise SystemExit(f"extras that are not tried: {', '.join(sorted(unknown))}; add them to IMPORTS")
    with tempfile.TemporaryDirectory() as made:
        with ThreadPoolExecutor(2) as pool:
            alone = pool.submit(try_alone, wheel, Path(made) / "alone")
            tries = [pool.submit(try_extra, wheel, extra, Path(made) / extra) for extra in sorted(extras)]
            tried = sum(each.result() for each in [alone, *tries])
        with tarfile.open(sdist) as archive:
            archive.extractall(Path(made) / "sdist", filter="data")
        (clone,) = (Path(made) / "sdist").iterdir()
        everything = f"{wheel}[{','.join(sorted(extras))}]"
        tool, _ = install(everything, Path(made) / "pages", "pip", *find_packages())
        tried += try_pages(PAGES, tool.parent, clone)
    say(f"{wheel.name} and {sdist.name}: {len(extras) + 3} environments")
    say(f"{tried} passed, 0 failed")
    return 0


def check_changelog() -> None:
    """Check that the version to publish is in the changelog, with its date."""
    about: dict[str, str] = {}
    exec((ROOT / "src" / "toolwire" / "_version.py").read_text("utf-8"), about)  # noqa: S102 - our own file
    heading = f"## {about['__version__']} - "
    if not re.search(
        rf"^{re.escape(heading)}\d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    ):
        raise SystemExit(f"CHANGELOG.md has no heading {heading}YYYY-MM-DD: write one before you publish")


def check_metadata(wheel: Path, address: str) -> set[str]:
    """Check the wheel's files and metadata, and return its extras."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = email.message_from_bytes(archive.read(metadata))
    assert told["Description-Content-Type"] == "text/markdown"
    assert told["License-Expression"] == "MIT"
    assert told["Requires-Python"] == ">=3.11"
    assert "# toolwire" in told.get_payload()
    links = dict(each.split(", ") for each in told.get_all("Project-URL") or [])
    assert sorted(links) == (["Changelog", "Documentation", "Issues", "Source"] if address else []), links
    assert ("](docs/" in told.get_payload()) == (not address)
    assert "toolwire/py.typed" in names
    assert any(name.startswith("toolwire/cli/templates/") for name in names)
    assert not any(name.startswith("tests/") for name in names)
    return set(told.get_all("Provides-Extra") or [])


def try_alone(wheel: Path, folder: Path) -> int:
    """Try toolwire with no extra: the first hour of a new user."""
    tool, python = install(wheel, folder)
    home = folder / "home"
    home.mkdir()
    assert "toolwire " in run([tool, "--version"], cwd=home)
    assert "15 + 27 is 42" in run([tool, "demo"], cwd=home)  # scripted, since there is no CLI
    run([tool, "new", "shop"], cwd=home)
    project = home / "shop"
    run([UV, "pip", "install", "--quiet", "--python", python, "pytest"], cwd=home)
    run([UV, "pip", "install", "--quiet", "--python", python, "--no-deps", "-e", "."], cwd=project)
    assert "5 passed" in run([python, "-m", "pytest", "-q"], cwd=project)
    assert "find" in run([tool, "tools", "shop.py"], cwd=project)
    assert '["tea"]' in run([tool, "call", "shop.py", "find", "word=tea"], cwd=project)
    assert '["tea"]' in run([python, "-c", CLIENT, tool], cwd=project)
    assert ".mcpb" in run([tool, "pack", "shop.py"], cwd=project)
    assert "CLI" in run([tool, "doctor"], cwd=project)
    for words in command_lines():  # of the container: --help checks the options and does nothing else
        run([tool, *words, *([] if "--help" in words else ["--help"])], cwd=home)
    assert "pip install 'toolwire[studio]'" in run([tool, "studio", "shop.py"], cwd=project, code=2)
    return 10


def try_extra(wheel: Path, extra: str, folder: Path) -> int:
    """Try an extra: its module can be imported, and `cli` brings a CLI that the demo uses."""
    tool, python = install(f"{wheel}[{extra}]", folder)
    run([python, "-c", f"import toolwire.sessions, {IMPORTS[extra]}"], cwd=folder)
    if extra == "studio":
        run([python, "-c", "import sys, toolwire; assert 'nicegui' not in sys.modules"], cwd=folder)
        assert "on a page in your browser" in run([tool, "studio", "--help"], cwd=folder)
    shown = run([tool, "demo"], cwd=folder)
    assert ("the real Claude Code CLI" in shown) == (extra == "cli"), shown
    return 1


def install(what: Path | str, folder: Path, *more: str) -> tuple[Path, Path]:
    """Install a distribution, and more, into an environment of its own; return its command and its Python."""
    say(f"{Path(str(what)).name}: installing")
    run([UV, "venv", "--quiet", "--python", sys.executable, folder], cwd=ROOT)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    pins = ["--constraint", ROOT / "requirements-dev.txt"]
    run([UV, "pip", "install", "--quiet", "--python", python, *pins, str(what), *more], cwd=folder)
    return scripts / "toolwire", python


def run(command: list[object], cwd: Path, code: int = 0) -> str:
    """Run a command away from the checkout and its variables; it must exit with `code`. Returns what it printed.

    If it must fail, stderr is included.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "TOOLWIRE", "ANTHROPIC", "CLAUDE", "AWS", "GOOGLE"))
    }
    # Leave out this machine's own `claude`: the environment has one, or there is none.
    env["PATH"] = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "claude").exists()
    )
    env |= {"NO_COLOR": "1", "COLUMNS": "200", "HOME": str(cwd) if cwd != ROOT else os.environ["HOME"]}
    env["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode != code:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout + (done.stderr if code else "")


if __name__ == "__main__":
    raise SystemExit(main())
