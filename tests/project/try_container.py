"""`make container`: builds the Containerfile, and tries the image as a server of tools and as a batch worker.

python tests/project/try_container.py [--base pull|debian|there]

Needs podman. `--base` says where the base image comes from: `pull` it, which is the default; build it from `debian`
packages under the same name (as root, with mmdebstrap), where no registry can be reached; or it is `there`. From
packages, it shows that the Containerfile and the image work, and nothing about the official base image.

Variables: PODMAN is the command with its own options (`podman --runtime runc`); BUILD and RUN are further options
of `podman build` (`--isolation chroot`, a `--volume` with settings of pip) and of `podman run` (`--ulimit ...`).
"""

import argparse
import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mcp.client.streamable_http import streamable_http_client  # noqa: E402

from mcp import ClientSession  # noqa: E402
from shared.container import values  # noqa: E402
from shared.servers import free_port  # noqa: E402

PODMAN = shlex.split(os.environ.get("PODMAN", "podman"))
BUILD = shlex.split(os.environ.get("BUILD", ""))
RUN = shlex.split(os.environ.get("RUN", ""))
IMAGE = "localhost/toolwire-try"
NAME = f"toolwire-try-{os.getpid()}"
LIMIT = 900  # seconds for one step
SUITE = "trixie"
"""The release of Debian whose Python has the version of the official image."""
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,netbase,tzdata"
APP = '''
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b
'''
REVIEW = """
from toolwire import ClaudeAgentOptions
from toolwire.batch import Batch, Run
from toolwire.testing import ClaudeEnvironment, ScriptedModel, say

model = ScriptedModel([say("Fine.")] * 9).start()
environment = ClaudeEnvironment(model).start()
review = Batch(
    "review", ClaudeAgentOptions(**environment.options_kwargs()), budget="1", per_run="0.1", concurrency=1
)


@review.task
def prepare(item: dict) -> Run:
    return Run(f"Review {item['name']}.")
"""
"""A batch with the CLI of the image and a scripted model: no key, no network."""
LOOK = """
import os, pathlib, shutil, sys
home = pathlib.Path.home()
assert os.getuid() == 10001 and home == pathlib.Path("/home/toolwire"), (os.getuid(), home)
assert os.access(home, os.W_OK) and not os.access("/opt/toolwire", os.W_OK)
for program in ("gcc", "cc", "make", "git", "uv", "hatchling"):
    assert shutil.which(program) is None, program
for cache in (home / ".cache", pathlib.Path("/src")):
    assert not cache.exists(), cache
assert not [*pathlib.Path("/opt/toolwire").glob("lib/python*/site-packages/pip")]
"""


def main() -> int:
    """Build and try the image; raises if anything fails."""
    parser = argparse.ArgumentParser(description="Build the Containerfile and try the image.")
    parser.add_argument("--base", choices=("pull", "debian", "there"), default="pull", help="the base image")
    base = parser.parse_args().base
    if shutil.which(PODMAN[0]) is None:
        raise SystemExit(f"{PODMAN[0]} is not installed; on Debian: apt-get install podman")
    if base == "debian":
        make_base(values("FROM")[-1])
    say("building")
    pull = "missing" if base == "pull" else "never"
    podman("build", *BUILD, f"--pull={pull}", "-t", IMAGE, "-f", "Containerfile", ".")
    size = int(podman("image", "inspect", "--format", "{{.Size}}", IMAGE))
    say(f"the image has {size / 1e6:.0f} MB")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "app.py").write_text(APP)
        (folder / "review.py").write_text(REVIEW)
        (folder / "tasks.jsonl").write_text('{"key": "one", "name": "one"}\n')
        tries = (try_look, try_server, try_worker)
        for each in tries:
            each(["--network", "host", "--volume", f"{folder}:/app:ro", *RUN])
            say(f"{each.__name__}: passed")
    say(f"{len(tries) + 1} passed, 0 failed")
    return 0


def make_base(name: str) -> None:
    """Make an image with this name from Debian's packages, with Python where the official one has it."""
    say(f"making {name} of Debian's packages")
    links = 'ln -s /usr/bin/python3 "$1/usr/local/bin/python"; ln -s /usr/bin/pip3 "$1/usr/local/bin/pip"'
    with tempfile.TemporaryDirectory() as made:
        archive = Path(made) / "base.tar"
        start = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
        subprocess.run([*start, f"--customize-hook={links}", SUITE, archive], check=True, timeout=LIMIT)
        podman("import", archive, name)


def try_look(options: list[str]) -> None:
    """Check that the user is unprivileged, that build tools and caches are gone, and that a CLI is found."""
    podman("run", "--rm", *options, "--entrypoint", "python", IMAGE, "-c", LOOK)
    assert "from the package claude-agent-sdk" in podman("run", "--rm", *options, IMAGE, "doctor")


def try_server(options: list[str]) -> None:
    """Try `serve --http`: the official client calls a tool, and SIGTERM ends the process with 0."""
    port = free_port()
    with started(options, "serve", "app.py", "--http", "--port", str(port)) as server:
        server.wait_for(f"http://127.0.0.1:{port}/mcp")
        assert asyncio.run(asyncio.wait_for(call_add(f"http://127.0.0.1:{port}/mcp"), 60)) == "42.0"
        assert server.stop() == 0


async def call_add(url: str) -> str:
    """Call the tool of APP."""
    async with streamable_http_client(url) as streams, ClientSession(*streams[:2]) as client:
        await client.initialize()
        return (await client.call_tool("add", {"a": 15, "b": 27})).content[0].text


def try_worker(options: list[str]) -> None:
    """Try a batch worker: it executes a run that another container has added, and SIGTERM ends it with 0."""
    podman("volume", "create", NAME)
    try:
        options = [*options, "--volume", f"{NAME}:/home/toolwire"]
        with (
            started(options, "batch", "run", "review.py", "tasks.jsonl", "--no-work") as adds,
            started(options, "batch", "worker", "review.py") as worker,
        ):
            assert adds.wait() == 0, adds.logs()
            assert worker.stop() == 0, worker.logs()
        assert "Fine." in podman("run", "--rm", *options, IMAGE, "batch", "export", "review", "-")
    finally:
        podman("volume", "rm", "--force", NAME)


class started:  # noqa: N801 - reads as a block
    """A container in the background, which is removed at the end of the block."""

    def __init__(self, options: list[str], *words: str) -> None:
        self._id = podman("run", "--detach", *options, IMAGE, *words).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        podman("rm", "--force", self._id)

    def logs(self) -> str:
        """Return what it has printed."""
        done = subprocess.run([*PODMAN, "logs", self._id], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    def wait_for(self, text: str) -> None:
        """Wait until it has printed this."""
        deadline = time.monotonic() + 60
        while text not in self.logs():
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing like {text!r} in:\n{self.logs()}")
            time.sleep(0.2)

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        podman("stop", "--time", "60", self._id)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        return int(podman("wait", self._id))


def podman(*words: object) -> str:
    """Run podman, and return what it printed."""
    done = subprocess.run(
        [*PODMAN, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise SystemExit(f"failed: podman {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    raise SystemExit(main())
