"""What an import costs: time and memory of fresh processes that import an SDK and begin to use it.

The floor is Python itself. Memory is the peak of the process by the kernel's own count: `ru_maxrss` would not do,
since a process begins with the peak of the one that started it.
"""

import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks import typescript
from benchmarks.processes import SDKS, environment, python
from benchmarks.results import Bench, Measured

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
OF_NODE: dict[str, dict[str, str]] = {
    BARE: {},
    TOOL: {"tools": "typed"},
}  # its query() starts a process at once


def fresh(code: str, home: Path) -> tuple[float, float, float]:
    """Run code in a new process: milliseconds inside, milliseconds of the process, peak in MB."""
    begun = time.perf_counter()
    done = python(["-c", _FRAME.format(code=code)], home)
    whole = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    took, peak = done.stdout.split()
    return int(took) / 1e6, whole * 1e3, int(peak) / 1024


def turn(code: str, home: Path, empty: float) -> Measured:
    """The figures of one process; `empty` is what Python itself takes up."""
    took, whole, peak = fresh(code, home)
    return {"import": took, "process": whole, "peak": peak, "growth": peak - empty}


def node_turn(case: dict[str, str], home: Path) -> Measured:
    """The same figures of the TypeScript SDK; its growth is over Node itself."""
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
    """What the driver saw of itself, and milliseconds of its process."""
    begun = time.perf_counter()
    done = typescript.run(case, environment(home), home)
    whole = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout), whole * 1e3


def nothing(home: Path) -> Measured:
    """The figures of Python itself."""
    _, whole, peak = fresh("pass", home)
    return {"process": whole, "peak": peak}


def run(bench: Bench) -> None:
    """Measure, and judge."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        for code in (code for codes in CASES.values() for code in codes.values()):
            fresh(code, home)  # compiles what was not compiled yet, and brings the files into memory
        empty = statistics.median(fresh("pass", home)[2] for _ in range(5))
        for case, codes in CASES.items():
            turns = {sdk: partial(turn, code, home, empty) for sdk, code in codes.items()}
            if case in OF_NODE and typescript.available():
                turns["typescript"] = partial(node_turn, OF_NODE[case], home)
            bench.compare(SUITE, case, {"floor": partial(nothing, home), **turns}, UNITS, rounds=ROUNDS)

    def ratio(case: str, measure: str) -> list[float]:
        ours, theirs = (bench.row(SUITE, case, measure, who) for who in SDKS)
        return bench.ratios(ours, theirs)

    whole = statistics.median(ratio(BARE, "process"))
    asking = statistics.median(ratio(ASKING, "import"))
    note = f"the rest is loaded when used: with query and options {asking:.2f}; the whole bare process: {whole:.2f}"
    bench.target("import, bare: of the official SDK's time", "at most", 1 / 6, ratio(BARE, "import"), note)
    whole = statistics.median(ratio(TOOL, "process"))
    note = f"the whole process, Python's own start and end in it: {whole:.2f}"
    bench.target(
        "import, one typed tool defined: of the official SDK's time",
        "at most",
        1 / 4,
        ratio(TOOL, "import"),
        note,
    )
    for case, what in ((BARE, "bare"), (ASKING, "query and options"), (TOOL, "one typed tool defined")):
        growth = statistics.median(ratio(case, "growth"))
        bench.target(
            f"import, {what}: of the official SDK's peak of memory",
            "at most",
            0.6,
            ratio(case, "peak"),
            f"without what Python itself takes: {growth:.2f}",
        )
