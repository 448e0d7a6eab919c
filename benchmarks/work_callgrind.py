"""Instructions and allocations of the hot paths, counted by valgrind's callgrind, and whose code they are.

The counts do not depend on the machine's speed or load. Instructions differ between builds of Python, so a budget
holds them as a multiple of a reference that the same run has measured.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.work_fresh import fresh
from benchmarks.work_marked import MARK, REFERENCE
from benchmarks.work_paths import PATHS

_HEAVY = ("bridged", "HTTP")  # paths that load much; they go into a process of their own
_ALLOCATORS = re.compile(r"(_PyObject_(Malloc|Calloc|Realloc)|malloc|calloc|realloc)(\.lto_priv\.\d+)?$")
_HOMES = (
    (r"orjson", "orjson"),
    (r"_pydantic_core", "pydantic-core"),
    (r"jsonschema_rs", "jsonschema-rs"),
    (r"/_asyncio\.", "asyncio, the part in C"),
    (r"/lib(c|m|pthread)[.-]|/ld-", "C library (memory, copies)"),
    (r"python", "CPython"),
)


@dataclass(frozen=True)
class Stretch:
    """What was counted between two marks, for one unit."""

    instructions: float
    allocations: float
    multiple: float
    """Instructions, by those of the reference."""
    homes: dict[str, float]
    """Instructions by whose machine code they are."""


def missing() -> str | None:
    """Why nothing can be counted here."""
    return None if shutil.which("valgrind") else "valgrind is not installed: instructions are not counted"


def stretches(names: Iterable[str] = PATHS, tree: Path | None = None) -> dict[str, Stretch]:
    """Count these paths; those of another checkout with `tree`. Two processes, side by side."""
    heavy = [name for name in names if any(each in name for each in _HEAVY)]
    light = [name for name in names if name not in heavy]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda group: _run(group, tree) if group else {}, (light, heavy))
        together = {name: stretch for each in found for name, stretch in each.items()}
    return {name: together[name] for name in names}


def _run(names: Sequence[str], tree: Path | None) -> dict[str, Stretch]:
    counting = ["valgrind", "-q", "--tool=callgrind", f"--dump-before={MARK}"]
    counting.append("--callgrind-out-file={folder}/out")
    with fresh("work_marked", *names, tree=tree, under=counting) as (_printed, folder):
        # Every second part is what lies between two marks that belong together.
        parts = [_Part(folder / f"out.{2 * each + 2}") for each in range(len(names) + 1)]
    base = parts[0].instructions / REFERENCE
    return {
        name: _stretch(part, PATHS[name].units, base) for name, part in zip(names, parts[1:], strict=True)
    }


def _stretch(part: "_Part", units: int, base: float) -> Stretch:
    each = part.instructions / units
    homes = {home: cost / units for home, cost in part.homes.items()}
    return Stretch(each, part.allocations / units, each / base, homes)


class _Part:
    """One file of callgrind's: self cost by object, and how often the allocators were called."""

    def __init__(self, path: Path) -> None:
        self.instructions = 0
        self.allocations = 0
        self.homes: defaultdict[str, int] = defaultdict(int)
        for kind, name, number in _entries(path.read_text(errors="replace").splitlines()):
            if kind == "cost":
                self.instructions += number
                self.homes[_home(name)] += number
            elif _ALLOCATORS.match(name):
                self.allocations += number


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """`cost` lines with the object that they are of, `calls` lines with the function that was called.

    A name is written once, with a number in brackets; after that there is the number alone.
    """
    names: dict[tuple[str, str], str] = {}
    now = {"ob": "", "cfn": ""}
    skip = False
    for line in lines:
        if (found := _NAMED.match(line)) is not None:
            key, number, name = found.groups()
            table = "ob" if key.endswith("ob") else "fn" if key.endswith("fn") else "fl"
            now[key] = names.setdefault((table, number), name)
        elif line.startswith("calls="):
            yield "calls", now["cfn"], int(line[6:].split()[0])
            skip = True  # the next line is the cost of what was called, and counted there
        elif line[:1] in _POSITIONS:
            if not skip:
                yield "cost", now["ob"], int(line.split()[1])
            skip = False


_NAMED = re.compile(r"(\w+)=\((\d+)\)(?: (.*))?$")
_POSITIONS = frozenset("0123456789+-*")


def _home(library: str) -> str:
    return next((home for pattern, home in _HOMES if re.search(pattern, library)), "other libraries")
