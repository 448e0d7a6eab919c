"""Runs every block of README and the documents as a reader would type it, in an empty folder with an empty home.

python tests/project/try_pages.py [--bin DIR] [--clone DIR] [PAGE ...]

`--bin` is the folder with the commands to try: `make dist` gives that of the wheel, else it is the one that
runs this program. `--clone` is a checkout, for pages that use one; `make dist` gives the unpacked sdist.

The kind of a block says how it is run:

- `console`: the lines after `$ ` are typed into one shell, the other lines are what they print; `...` is anything.
  A command must succeed, unless an error is shown. One that ends with `&` keeps running; a server in the foreground
  or a studio must start, and is then stopped. A command with a comment `# needs ...` is not run: see NEEDS. Of
  `make` only the target is looked up, in the clone, because CI runs them all.
- a first line `# name.py`, in a block of any kind: the block is written to that file.
- other `python` blocks: together they are the page's program. Each `main` is run where it is defined. The model's
  lines are in a comment before the block.
- `text`: what that program prints.
- `nginx` and `ini`: parts of files that other programs read; other tests read them.
"""

import argparse
import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from shared.console import matches  # noqa: E402
from shared.transcripts import harbour  # noqa: E402
from toolwire import testing  # noqa: E402
from toolwire.testing import ClaudeEnvironment, ScriptedModel  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = ("an account", "a publication", "a server", "podman")
"""What a reader may have and this machine has not; nothing else keeps a command from being run."""
README_SCRIPT = 'call("mcp__calc__add", a=15, b=27); say("42")'
"""The model's lines of README: no comments in what a newcomer reads first."""
LIMIT = 120.0
"""Seconds for a command or a program."""

_BLOCK = re.compile(
    r"(?:<!-- script: (?P<script>[^\n]*) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_PORT = re.compile(r"(?:--port |127\.0\.0\.1:)(\d{4,5})\b")
_WITH_CLONE = re.compile(r"^\$ .*(?:\./toolwire\b|\btoolwire/)", re.MULTILINE)
"""A command that uses the clone, which is then in the folder."""
_RUN = "\nimport asyncio as _asyncio\nif 'main' in globals():\n    _asyncio.run(globals().pop('main')())\n"
_SERVER = re.compile(r"^(\w+=\S+ )*toolwire (?:(-v )?serve .*--http\b|studio\b)")
_STARTED = re.compile(r"(?: at |^toolwire studio: )https?://\S+\n", re.MULTILINE)
_END = "\x1e"
_ONE_AT_A_TIME = threading.Lock()
"""Held while a server listens on its usual port."""


class PageError(Exception):
    """Raised for a block that does not do what its page says."""


@dataclass
class Block:
    """One block of a page: its kind, its text, and the script of the model."""

    kind: str
    text: str
    script: str = ""

    @property
    def file(self) -> str | None:
        """The name of the file that the block is written to, or None."""
        found = _FILE.match(self.text) if self.kind not in ("console", "text") else None
        return found[1] if found else None


@dataclass
class Command:
    """A command of a page, the comment after it, and the output that the page shows."""

    text: str
    comment: str = ""
    shown: list[str] = field(default_factory=list)

    @property
    def needs(self) -> str | None:
        """What the command needs according to its comment, or None."""
        found = re.match(r"needs (.+)", self.comment)
        return found[1] if found else None


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of a page from top to bottom, with shown ports replaced by free ones."""
    for port in sorted(set(_PORT.findall(text))):
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    return [Block(found["kind"], found["text"], found["script"] or "") for found in _BLOCK.finditer(text)]


def read_commands(block: str) -> Iterator[Command]:
    """Yield the commands of a console block."""
    for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, rest = re.sub(r"\\\n\s*", "", each).partition("\n")
        text, _, comment = re.sub(r"\s+# ", "\0", command, count=1).partition("\0")
        yield Command(text, comment, rest.splitlines())


def find_packages() -> list[str]:
    """Return the packages that pages install: they are put into the environment beforehand."""
    found = re.findall(
        r"^\$ pip install ((?:[a-z][\w-]* ?)+)$",
        "\n".join(each.read_text("utf-8") for each in PAGES),
        re.MULTILINE,
    )
    return sorted({name for names in found for name in names.split()})


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Shell:
    """The shell that runs all commands of a page: folder and variables are kept from one to the next."""

    def __init__(self, folder: Path, env: dict[str, str], clone: Path) -> None:
        self._clone = clone
        self._process = subprocess.Popen(
            ["/bin/sh"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._seen = ""
        self._background: list[str] = []

    def type(self, command: Command) -> tuple[int, str]:
        """Run a command, and return its exit code and what it printed."""
        text = command.text
        if text.startswith("make "):
            text = (
                f"make --dry-run -C {shlex.quote(str(self._clone))} {text.removeprefix('make ')} >/dev/null"
            )
        if text.endswith("&"):
            self._send(text)
            shown = "".join(self._read_line() for _ in command.shown or [""])
            self._background.append(self._run("printf %s $!")[1])
            return 0, shown
        if _SERVER.match(text):
            return self._watch_server(text)
        return self._run(text)

    def _watch_server(self, text: str) -> tuple[int, str]:
        """Start a server, check that it listens, and stop it with SIGTERM."""
        with contextlib.nullcontext() if "--port" in text else _ONE_AT_A_TIME:
            self._send(f"{text} &")
            shown = self._read_line()
            while not _STARTED.search(shown):
                if not (line := self._read_line()) or "Error" in line:
                    return 1, shown + line
                shown += line
            code, rest = self._run("kill $!; wait $!")
            return code, shown + rest

    def _run(self, text: str) -> tuple[int, str]:
        self._send(text, f"printf '{_END}%s\\n' $?")
        shown = self._read_to(_END)
        return int(self._read_to("\n")), shown

    def _send(self, text: str, then: str = "") -> None:
        """Write a command with an empty stdin: one that asks for input would wait for ever."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ {text}\n}} </dev/null\n{then}\n".encode())
        self._process.stdin.flush()

    def _read_line(self) -> str:
        return self._read_to("\n") + "\n"

    def _read_to(self, end: str) -> str:
        """Read up to this text, and return what was before it."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + LIMIT
        while end not in self._seen:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                why = "the shell has ended" if ready else f"nothing came for {LIMIT:g} s"
                raise PageError(f"{why}, after: {self._seen!r}")
            self._seen += more.decode("utf-8", "replace")
        found, _, self._seen = self._seen.partition(end)
        return found

    def close(self) -> None:
        """Stop background commands. Servers must end with 0, as the documents promise."""
        try:
            for process in self._background:
                code, shown = self._run(f"kill {process}; wait {process}")
                if code not in (0, 128 + signal.SIGTERM):
                    raise PageError(f"what went on in the background ended with {code}: {shown}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def try_page(page: Path, commands: Path, clone: Path) -> tuple[int, int]:
    """Run all blocks of a page. Returns how many commands and blocks ran, and how many are marked `# needs`."""
    text = page.read_text("utf-8")
    blocks = read_blocks(text)
    with (
        tempfile.TemporaryDirectory(prefix="page-") as made,
        ScriptedModel(read_script(page, blocks)) as model,
        ClaudeEnvironment(model) as environment,
    ):
        folder = Path(made).resolve() / "folder"
        folder.mkdir()
        if _WITH_CLONE.search(text):
            shutil.copytree(clone, folder / "toolwire", ignore=shutil.ignore_patterns(".*", "build", "dist"))
        env = variables(environment, commands)
        harbour(Path(env["HOME"]) / ".claude")  # a reader has sessions already
        # A page that makes its own environment finds only the toolwire that it installs.
        python = commands if "$ python3 -m venv" not in text else Path(sys.base_prefix) / "bin"
        shell = Shell(folder, {**env, "PATH": f"{python}{os.pathsep}{os.defpath}"}, clone)
        with contextlib.closing(shell):
            done = _run_blocks(page, blocks, folder, shell, env)
        model.assert_finished()
        return done


def read_script(page: Path, blocks: list[Block]) -> list[object]:
    """Return the turns of the model for a page."""
    names = {name: getattr(testing, name) for name in testing.__all__}
    lines = [block.script for block in blocks] if page != ROOT / "README.md" else [README_SCRIPT]
    return [eval(line, names) for each in lines for line in each.split("; ") if line]  # noqa: S307 - our own pages


def variables(environment: ClaudeEnvironment, commands: Path) -> dict[str, str]:
    """Return a reader's variables, with the scripted model as the only one, and settings of package indexes."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_CERT"))}
    kept.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    return {
        **environment.env,
        **kept,
        "PATH": f"{commands}{os.pathsep}{os.defpath}",
        "PIP_CONSTRAINT": str(ROOT / "requirements-dev.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "BROWSER": "true",  # `true` does nothing: a studio opens no window
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _run_blocks(
    page: Path, blocks: list[Block], folder: Path, shell: Shell, env: dict[str, str]
) -> tuple[int, int]:
    """Run the blocks from top to bottom. All Python blocks run together, at the first of them."""
    run = waiting = 0
    wrong: list[str] = []
    program = [block for block in blocks if block.kind == "python" and not block.file]
    printed = ""
    for block in blocks:
        if block.file:
            (folder / block.file).write_text(block.text.partition("\n")[2], "utf-8")
        elif block.kind == "console":
            for command in read_commands(block.text):
                if command.needs is None:
                    wrong += _check(command, *shell.type(command))
                    run += 1
                elif command.needs.startswith(NEEDS):
                    waiting += 1
                else:
                    raise PageError(f"needs {command.needs!r}, which is none of {', '.join(NEEDS)}")
        elif block.kind == "python":
            if block is program[0]:
                printed = _run_program(page, program, folder, env)
            run += 1
        elif block.kind == "text":
            if block.text not in printed:
                raise PageError(f"should print:\n{block.text}\nand prints:\n{printed}")
        elif block.kind not in ("nginx", "ini"):
            raise PageError(f"nothing says how to run a block of {block.kind!r}:\n{block.text}")
    if wrong:
        raise PageError("\n".join(wrong))
    return run, waiting


def _check(command: Command, code: int, shown: str) -> list[str]:
    """Compare what a command did with what its page shows, and return the differences."""
    fails = any(re.search(r"\berror\b", line, re.IGNORECASE) for line in command.shown)
    if (code != 0) != fails:
        return [f"$ {command.text}\nended with {code}, and shows:\n{shown}"]
    if command.shown and not matches(command.shown, shown):
        expected = "\n".join(command.shown)
        return [f"$ {command.text}\nshould show:\n{expected}\nand shows:\n{shown}"]
    return []


def _run_program(page: Path, blocks: list[Block], folder: Path, env: dict[str, str]) -> str:
    """Run Python blocks as one program, and return what it printed."""
    file = folder / f"page_{page.stem.replace('-', '_')}.py"
    file.write_text("\n".join(block.text + _RUN for block in blocks), "utf-8")
    done = subprocess.run(
        [Path(env["PATH"].partition(os.pathsep)[0]) / "python", file],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise PageError(f"its Python blocks fail:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def try_pages(pages: list[Path], commands: Path, clone: Path) -> int:
    """Try pages, two at a time. Returns how many blocks and commands ran; raises SystemExit if a page is wrong."""
    run, failed = 0, []
    with ThreadPoolExecutor(2) as pool:
        long_first = sorted(pages, key=lambda page: -page.read_text("utf-8").count("\n$ "))
        tried = [(page, pool.submit(_timed, page, commands, clone)) for page in long_first]
        for page, outcome in tried:
            name = page.relative_to(ROOT)
            try:
                done, waiting, seconds = outcome.result()
            except (PageError, AssertionError, subprocess.TimeoutExpired) as error:
                failed.append(str(name))
                say(f"{name}: FAILED\n{error}")
                continue
            run += done
            if done or waiting:
                say(f"{name}: {done} run, {waiting} need something, {seconds:.0f} s")
    if failed:
        raise SystemExit(f"pages that do not do what they say: {', '.join(failed)}")
    return run


def _timed(page: Path, commands: Path, clone: Path) -> tuple[int, int, float]:
    since = time.monotonic()
    run, waiting = try_page(page, commands, clone)
    return run, waiting, time.monotonic() - since


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Try the named pages, or all."""
    parser = argparse.ArgumentParser(description="Run the blocks of the documents.")
    parser.add_argument("pages", nargs="*", type=Path, help="some of them; all if none is named")
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent, help="of the environment")
    parser.add_argument("--clone", type=Path, default=ROOT, help="a checkout")
    asked = parser.parse_args()
    try_pages(
        [page.absolute() for page in asked.pages] or PAGES, asked.bin.absolute(), asked.clone.absolute()
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
