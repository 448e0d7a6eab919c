"""Compare the throughput of a batch with that of the bare queue engine, under a steady load of scripted runs.

    python -m benchmarks.batch --tasks 10000                        # SQLite
    python -m benchmarks.batch --tasks 10000 --at postgresql://...  # an empty database

Both are measured in one run, on SQLite or Postgres, with the same number of workers and of concurrent runs per
worker, and execute the same scripted runs of 50 ms. The bare engine is DBOS with `run()` in each task and nothing
else: no records, no reservations, no outbox. Prints JSON: runs per second of both, their ratio, the peak memory of
the driver, and the processor time of an idle worker, with the short poll interval of this load and with the default
one.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from toolwire import ClaudeAgentOptions, run
from toolwire.batch import Batch
from toolwire.batch.dbos_queue import POLL as DEFAULT_POLL
from toolwire.batch.dbos_queue import DbosQueue
from toolwire.batch.place import find_place
from toolwire.batch.queue import Delivery
from toolwire.testing import ScriptedCLI, say, turn

WORKERS = 3
PLACES = 8
POLL = 0.2
IDLE_SECONDS = 20.0
UID = "bare"


def make_options() -> ClaudeAgentOptions:
    """Return options for a scripted CLI that responds after 50 ms."""
    return ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([turn(say("ok"), delay=0.05)] * 100_000))


def make_batch() -> "Batch[Any]":
    """Return the batch definition that all processes share."""
    return Batch("held-load", make_options(), concurrency=PLACES, budget="100000", per_run="0.01")


async def work_for_batch(at: str | None, poll: float) -> None:
    """Run a worker of the batch until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with make_batch().open(at, poll=poll) as batch:
        await batch.work(stop=stop)


async def work_bare(at: str | None, counted: Path) -> None:
    """Run a worker of the bare engine until SIGTERM. Appends one byte to a file for each finished run."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = make_options()
    with counted.open("ab", buffering=0) as file:

        async def carry_out(key: str) -> None:
            await run(key, options=options)
            file.write(b".")

        queue = DbosQueue(find_place(at, "bare").queue, UID, f"bare-{os.getpid()}", poll=POLL)
        await queue.open(carry_out, PLACES)
        await stop.wait()
        await queue.close()


async def drive_batch(at: str | None, tasks: int) -> dict[str, float]:
    """Add the runs to the batch, read all results, and measure this process."""
    async with make_batch().open(at, work=False, poll=POLL) as batch:
        began = time.monotonic()
        await batch.add((f"k{number}", "Say ok.") for number in range(tasks))
        added = time.monotonic()
        done = 0
        async for each in batch.results():
            done += each.state == "done"
        ended = time.monotonic()
        if done != tasks:
            raise RuntimeError(f"{tasks - done} runs are not done: {batch.progress}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"add_seconds": added - began, "seconds": ended - began, "driver_mb": memory}


def start(role: str, at: str | None, counted: Path) -> "subprocess.Popen[bytes]":
    """Start another process of this program, in the given role."""
    words = [sys.executable, "-m", "benchmarks.batch", "--role", role, "--counted", str(counted)]
    return subprocess.Popen([*words, *(["--at", at] if at else [])])  # noqa: S603 - ourselves


def measure_idle(workers: "list[subprocess.Popen[bytes]]") -> float:
    """Return how much of a core, in percent, an idle worker uses: the highest value of all workers."""
    before = [processor_seconds(each.pid) for each in workers]
    time.sleep(IDLE_SECONDS)
    used = [processor_seconds(each.pid) - first for each, first in zip(workers, before, strict=True)]
    return 100 * max(used) / IDLE_SECONDS


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(processes: "list[subprocess.Popen[bytes]]") -> None:
    """Terminate workers with SIGTERM, as an operator would, and wait until they have exited."""
    for each in processes:
        each.terminate()
    for each in processes:
        each.wait(60)


def measure_bare(at: str | None, tasks: int, counted: Path) -> float:
    """Return the seconds that the bare engine takes for the same runs, from the moment the first is queued."""

    async def put() -> None:
        queue = DbosQueue(find_place(at, "bare").queue, UID, "", poll=POLL)
        await queue.open(None, 0)
        await queue.put([Delivery(f"k{number}", 1) for number in range(tasks)])
        await queue.close()

    counted.touch()
    workers = [start("bare", at, counted) for _ in range(WORKERS)]
    try:
        time.sleep(5)  # until all of them have started
        began = time.monotonic()
        asyncio.run(put())
        while counted.stat().st_size < tasks:
            time.sleep(0.05)
        return time.monotonic() - began
    finally:
        stop(workers)


def measure_batch(at: str | None, tasks: int, counted: Path) -> dict[str, float]:
    """Return what the driver of the batch measured, and the load of a worker that is idle afterwards."""
    workers = [start("batch", at, counted) for _ in range(WORKERS)]
    try:
        time.sleep(5)  # as above
        words = [sys.executable, "-m", "benchmarks.batch", "--role", "driver", "--tasks", str(tasks)]
        driver = subprocess.run(  # noqa: S603 - ourselves
            [*words, *(["--at", at] if at else [])], stdout=subprocess.PIPE, check=True
        )
        found = {**json.loads(driver.stdout), "idle_percent": measure_idle(workers)}
    finally:
        stop(workers)
    workers = [start("default", at, counted)]
    try:
        time.sleep(5)  # as above
        return {**found, "idle_percent_default": measure_idle(workers)}
    finally:
        stop(workers)


def main() -> None:
    """Run the benchmark, or one of its processes if `--role` names one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--at")
    parser.add_argument("--role", choices=["all", "bare", "batch", "default", "driver"], default="all")
    parser.add_argument("--counted", type=Path)
    given = parser.parse_args()
    if given.role == "bare":
        asyncio.run(work_bare(given.at, given.counted))
    elif given.role in ("batch", "default"):
        asyncio.run(work_for_batch(given.at, POLL if given.role == "batch" else DEFAULT_POLL))
    elif given.role == "driver":
        print(json.dumps(asyncio.run(drive_batch(given.at, given.tasks))))  # noqa: T201 - read by the parent process
    else:
        with tempfile.TemporaryDirectory(prefix="toolwire-bench-") as folder:
            os.environ["TOOLWIRE_BATCHES"] = folder
            counted = Path(folder) / "counted"
            bare = measure_bare(given.at, given.tasks, counted)
            batch = measure_batch(given.at, given.tasks, counted)
        rates = {"bare_per_second": given.tasks / bare, "batch_per_second": given.tasks / batch["seconds"]}
        ratio = rates["batch_per_second"] / rates["bare_per_second"]
        print(json.dumps({"tasks": given.tasks, **rates, "ratio": ratio, **batch}, indent=2))  # noqa: T201 - its result


if __name__ == "__main__":
    main()
