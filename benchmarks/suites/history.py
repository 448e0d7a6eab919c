"""Past sessions on disk: list a page, search, and read one of ten thousand; read a very large one.

Each call is made in a fresh process; importing the SDK is not included. Memory is by how much the call raised the
peak of the process. Both SDKs read the same files.
"""

import json
import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.processes import SDKS, run_python
from benchmarks.results import Bench, Figures

SUITE = "history"
UNITS = {"time": "ms", "memory": "MB"}
SESSIONS = 10_000
LARGE = 56_000_000
ROUNDS = 3
TURNS = 8
"""Prompts in each of the many sessions."""

_FRAME = """\
import time
import {module} as sdk
def peak():
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sdk.list_sessions("/nowhere", 1, 0, False), sdk.get_session_messages("nothing")  # imports what is imported lazily
before = peak()
begun = time.perf_counter_ns()
found = {call}
took = time.perf_counter_ns() - begun
print(took, peak() - before, len(found) if isinstance(found, list) else found)
"""
WORDS = [
    "harbour",
    "festival",
    "lantern",
    "ledger",
    "signal",
    "orchard",
    "copper",
    "window",
    "river",
    "engine",
]


def write_session(path: Path, number: int, turns: int, size: int) -> None:
    """Write a transcript as the CLI does: prompts, attachments, responses, calls and their results."""
    session, when = path.stem, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    parent: str | None = None
    with path.open("wb") as file:
        for turn in range(turns):
            word = WORDS[(number + turn) % len(WORDS)]
            text = f"{word} {number} {turn} " + " ".join(WORDS) * (size // 90)
            call = f"toolu_{number}_{turn}"
            blocks = [
                ("user", f"Where is the {word} of {number}?"),
                ("attachment", None),
                ("assistant", [{"type": "text", "text": text}]),
                ("assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "ls"}}]),
                ("user", [{"type": "tool_result", "tool_use_id": call, "content": text}]),
            ]
            for kind, content in blocks:
                name = str(uuid.uuid5(uuid.UUID(int=number), f"{turn} {file.tell()}"))
                line = {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "type": kind,
                    "uuid": name,
                    "timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    "sessionId": session,
                    "cwd": "/work",
                    "gitBranch": "main",
                }
                if content is None:
                    line["attachment"] = {"type": "date"}
                else:
                    line["message"] = {"role": kind, "content": content, "id": f"msg_{turn}"}
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                parent = name


def write_history(home: Path, sessions: int, large: int) -> tuple[str, str]:
    """Write many sessions and a large one. Returns the ids of one of the many, and of the large one."""
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    for number in range(sessions):
        write_session(folder / f"{uuid.UUID(int=number + 1)}.jsonl", number, TURNS, 900)
    other = home / ".claude" / "projects" / "-large"
    other.mkdir()
    path = other / f"{uuid.UUID(int=2**64)}.jsonl"
    write_session(path, sessions, large // 10_500, 5_000)
    return str(uuid.UUID(int=sessions // 2)), path.stem


def time_call(sdk: str, call: str, home: Path, expected: int | None = None) -> Figures:
    """Make one call in a fresh process. Returns its time and memory."""
    done = run_python(["-c", _FRAME.format(module=SDKS[sdk], call=call)], home)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    took, memory, found = done.stdout.split(maxsplit=2)
    if expected is not None and int(found) != expected:
        raise RuntimeError(f"{sdk}: {call} returned {found.strip()} items, expected {expected}")
    return {"time": int(took) / 1e6, "memory": int(memory) / 1024}


def run(bench: Bench) -> None:
    """Measure all calls, and add the targets."""
    sessions, large = (300, LARGE // 20) if bench.quick else (SESSIONS, LARGE)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        one, huge = write_history(home, sessions, large)
        many = f"{sessions:,} sessions"
        page = "sdk.list_sessions('/work', 10, 0, False)"
        everything = "sdk.list_sessions('/work', None, 0, False)"
        first = {"toolwire": partial(time_call, "toolwire", everything, home, sessions)}
        bench.compare(SUITE, f"{many}: all, for the first time", first, UNITS, rounds=1)
        hits = {
            "toolwire": partial(time_call, "toolwire", "sdk.search_sessions('lantern', '/work')", home, 20)
        }
        bench.compare(SUITE, f"{many}: search, for the first time", hits, UNITS, rounds=1)
        bench.compare(SUITE, f"{many}: search", hits, UNITS, rounds=ROUNDS)
        narrow = f"sdk.search_sessions('\"lantern {sessions // 2}\"', '/work')"
        bench.compare(
            SUITE,
            f"{many}: search for a phrase",
            {"toolwire": partial(time_call, "toolwire", narrow, home)},
            UNITS,
            rounds=ROUNDS,
        )
        for case, call, count in (
            (f"{many}: a page of 10", page, 10),
            (f"{many}: all", everything, sessions),
            (f"{many}: the messages of one", f"sdk.get_session_messages('{one}')", TURNS * 4),
            (f"{large // 10**6} MB: 10 messages", f"sdk.get_session_messages('{huge}', None, 10)", 10),
            (f"{large // 10**6} MB: all messages", f"sdk.get_session_messages('{huge}')", None),
        ):
            turns = {sdk: partial(time_call, sdk, call, home, count) for sdk in SDKS}
            bench.compare(SUITE, case, turns, UNITS, rounds=ROUNDS)
        streamed = f"sum(1 for _ in sdk.iter_session_messages('{huge}'))"
        turns = {"toolwire": partial(time_call, "toolwire", streamed, home)}
        bench.compare(SUITE, f"{large // 10**6} MB: all messages, streamed", turns, UNITS, rounds=ROUNDS)
    ours, theirs = (bench.find_row(SUITE, f"{many}: a page of 10", "time", sdk) for sdk in SDKS)
    bench.add_target(
        f"{many}: a page of 10, times the official SDK's speed",
        "at least",
        20,
        bench.compute_ratios(theirs, ours),
    )
    case = f"{large // 10**6} MB: 10 messages"
    ours, theirs = (bench.find_row(SUITE, case, "memory", sdk) for sdk in SDKS)
    bench.add_target(
        f"{case}, of the official SDK's memory", "at most", 0.5, bench.compute_ratios(ours, theirs)
    )
