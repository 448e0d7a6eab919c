"""The cost of an import: time and memory of fresh processes that import an SDK and begin to use it.

The floor is Python itself. Memory is the peak of the process as reported by the kernel (`VmHWM`): `ru_maxrss` is
not suitable, because a process begins with the peak of the one that started it.
"""

import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks import typescript
from benchmarks.processes import SDKS, make_environment, run_python
from benchmarks.results import Bench, Figures

SUITE = "imports"
UNITS = {"import": "ms", "process": "ms", "peak": "MB", "growth": "MB"}
BARE, ASKING, TOOL = "bare", "query and options", "one typed tool"
ROUNDS = 7

_FRAME = """\
import time
begun = time.perf_counter_ns()
{code}
took = time.perf_counter_ns() - begun
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(took, peak)
"""
_ASKING = """\
from {sdk} import ClaudeAgentOptions, query
messages = query(prompt="hello", options=ClaudeAgentOptions(allowed_tools=["Read"]))
"""
_OUR_TOOL = """\
from toolwire import ToolServer
server = ToolServer("calc")

@server.tool
async def add(a: float, b: float) -> float:
    \"\"\"Add two numbers.\"\"\"
    return a + b
"""
_THEIR_TOOL = """\
from claude_agent_sdk import create_sdk_mcp_server, tool

@tool("add", "Add two numbers.", {"a": float, "b": float})
async def add(arguments):
    return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}

server = create_sdk_mcp_server("calc", tools=[add])
"""
CASES = {
    BARE: {sdk: f"import {module}" for sdk, module in SDKS.items()},
    ASKING: {sdk: _ASKING.format(sdk=module) for sdk, module in SDKS.items()},
    TOOL: {"toolwire": _OUR_TOOL, "official": _THEIR_TOOL},
}
OF_NODE: dict[str, dict[str, str]] = {BARE: {}, TOOL: {"tools": "typed"}}
"""The cases of the TypeScript SDK: without "query and options", because its query() starts a process at once."""


def run_code(code: str, home: Path) -> tuple[float, float, float]:
    """Run code in a new process. Returns the milliseconds of the code, those of the process, and the peak in MB."""
    begun = time.perf_counter()
    done = run_python(["-c", _FRAME.format(code=code)], home)
    whole = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    took, peak = done.stdout.split()
    return int(took) / 1e6, whole * 1e3, int(peak) / 1024


def measure_code(code: str, home: Path, empty: float) -> Figures:
    """Return the figures of one process that runs `code`; `empty` is the peak of Python itself, in MB."""
    took, whole, peak = run_code(code, home)
    return {"import": took, "process": whole, "peak": peak, "growth": peak - empty}


def measure_node(case: dict[str, str], home: Path) -> Figures:
    """Return the same figures for the TypeScript SDK; its growth is relative to Node itself."""
    empty, _ = run_node({"import": "nothing"}, home)
    seen, whole = run_node(case, home)
    peak = seen["peak"] / 1024
    return {
        "import": seen["took"] / 1e6,
        "process": whole,
        "peak": peak,
        "growth": peak - empty["peak"] / 1024,
    }


def run_node(case: dict[str, str], home: Path) -> tuple[dict[str, float], float]:
    """Run the TypeScript driver. Returns what it measured, and the milliseconds of its process."""
    begun = time.perf_counter()
    done = typescript.run(case, make_environment(home), home)
    whole = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout), whole * 1e3


def measure_floor(home: Path) -> Figures:
    """Return the figures of Python itself."""
    _, whole, peak = run_code("pass", home)
    return {"process": whole, "peak": peak}


def run(bench: Bench) -> None:
    """Measure all imports, and add the targets."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        for code in (code for codes in CASES.values() for code in codes.values()):
            run_code(code, home)  # compiles the modules, and reads the files into the cache
        empty = statistics.median(run_code("pass", home)[2] for _ in range(5))
        for case, codes in CASES.items():
            turns = {sdk: partial(measure_code, code, home, empty) for sdk, code in codes.items()}
            if case in OF_NODE and typescript.is_available():
                turns["typescript"] = partial(measure_node, OF_NODE[case], home)
            bench.compare(SUITE, case, {"floor": partial(measure_floor, home), **turns}, UNITS, rounds=ROUNDS)

    def find_ratios(case: str, measure: str) -> list[float]:
        ours, theirs = (bench.find_row(SUITE, case, measure, who) for who in SDKS)
        return bench.compute_ratios(ours, theirs)

    whole = statistics.median(find_ratios(BARE, "process"))
    asking = statistics.median(find_ratios(ASKING, "import"))
    note = f"the rest is loaded when used: with query and options {asking:.2f}; the whole bare process: {whole:.2f}"
    bench.add_target(
        "import, bare: of the official SDK's time", "at most", 1 / 6, find_ratios(BARE, "import"), note
    )
    whole = statistics.median(find_ratios(TOOL, "process"))
    note = f"the whole process, Python's own start and end in it: {whole:.2f}"
    bench.add_target(
        "import, one typed tool defined: of the official SDK's time",
        "at most",
        1 / 4,
        find_ratios(TOOL, "import"),
        note,
    )
    for case, what in ((BARE, "bare"), (ASKING, "query and options"), (TOOL, "one typed tool defined")):
        growth = statistics.median(find_ratios(case, "growth"))
        bench.add_target(
            f"import, {what}: of the official SDK's peak of memory",
            "at most",
            0.6,
            find_ratios(case, "peak"),
            f"without what Python itself takes: {growth:.2f}",
        )
