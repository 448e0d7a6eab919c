"""Counts instructions and allocations of the hot paths with valgrind's callgrind, and instructions by library.

The counts do not depend on the machine's speed or load. Instructions differ between builds of Python, so a budget
states them as a multiple of a reference that was counted in the same run.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.work_fresh import run_fresh
from benchmarks.work_marked import MARK, REFERENCE
from benchmarks.work_paths import PATHS

_HEAVY = ("bridged", "HTTP")  # paths that load large libraries; they run in a separate process
_ALLOCATORS = re.compile(r"(_PyObject_(Malloc|Calloc|Realloc)|malloc|calloc|realloc)(\.lto_priv\.\d+)?$")
_LIBRARIES = (
    (r"orjson", "orjson"),
    (r"_pydantic_core", "pydantic-core"),
    (r"jsonschema_rs", "jsonschema-rs"),
    (r"/_asyncio\.", "asyncio, the part in C"),
    (r"/lib(c|m|pthread)[.-]|/ld-", "C library (memory, copies)"),
    (r"python", "CPython"),
)


@dataclass(frozen=True)
class UnitCounts:
    """The counts of one unit of work, taken between two marks."""

    instructions: float
    allocations: float
    multiple: float
    """Instructions, divided by those of the reference."""
    libraries: dict[str, float]
    """Instructions by the library that the machine code belongs to."""


def find_problem() -> str | None:
    """Return why callgrind cannot be used on this machine, or None if it can."""
    return None if shutil.which("valgrind") else "valgrind is not installed: instructions are not counted"


def count_paths(names: Iterable[str] = PATHS, tree: Path | None = None) -> dict[str, UnitCounts]:
    """Count these paths in two parallel processes. With `tree`, the library of that checkout is counted."""
    heavy = [name for name in names if any(each in name for each in _HEAVY)]
    light = [name for name in names if name not in heavy]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda group: _run(group, tree) if group else {}, (light, heavy))
        together = {name: counts for each in found for name, counts in each.items()}
    return {name: together[name] for name in names}


def _run(names: Sequence[str], tree: Path | None) -> dict[str, UnitCounts]:
    counting = ["valgrind", "-q", "--tool=callgrind", f"--dump-before={MARK}"]
    counting.append("--callgrind-out-file={folder}/out")
    with run_fresh("work_marked", *names, tree=tree, under=counting) as (_printed, folder):
        # callgrind writes a file at each mark: every second file covers the work between a start and an end mark.
        parts = [_DumpFile(folder / f"out.{2 * each + 2}") for each in range(len(names) + 1)]
    base = parts[0].instructions / REFERENCE
    return {
        name: _make_counts(part, PATHS[name].units, base) for name, part in zip(names, parts[1:], strict=True)
    }


def _make_counts(part: "_DumpFile", units: int, base: float) -> UnitCounts:
    each = part.instructions / units
    libraries = {library: cost / units for library, cost in part.libraries.items()}
    return UnitCounts(each, part.allocations / units, each / base, libraries)


class _DumpFile:
    """The counts in one callgrind dump: instructions by object file, and calls of the allocators."""

    def __init__(self, path: Path) -> None:
        self.instructions = 0
        self.allocations = 0
        self.libraries: defaultdict[str, int] = defaultdict(int)
        for kind, name, number in _read_entries(path.read_text(errors="replace").splitlines()):
            if kind == "cost":
                self.instructions += number
                self.libraries[_find_library(name)] += number
            elif _ALLOCATORS.match(name):
                self.allocations += number


def _read_entries(lines: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Yield `("cost", object file, instructions)` and `("calls", called function, number of calls)` from a dump.

    The format writes a name once, with a number in brackets, and later only the number.
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
            skip = True  # the next line is the cost of the called function, which is counted there
        elif line[:1] in _POSITIONS:
            if not skip:
                yield "cost", now["ob"], int(line.split()[1])
            skip = False


_NAMED = re.compile(r"(\w+)=\((\d+)\)(?: (.*))?$")
_POSITIONS = frozenset("0123456789+-*")


def _find_library(path: str) -> str:
    """Return the label of the library that an object file belongs to."""
    return next((library for pattern, library in _LIBRARIES if re.search(pattern, path)), "other libraries")
