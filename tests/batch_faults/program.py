"""A user's program with a batch, for processes that are killed: `program.py driver` and `program.py worker`.

Its CLI is scripted and in the same process. Every request to the model is written to the journal, in a process that
is never killed, before the model responds: a run that is requested twice is paid twice.
"""

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import re
import signal
import sys
import time

from shared.journal import JournalLine
from shared.moved_clock import follow

SETTINGS = json.loads(os.environ["BATCH_SETTINGS"])
if "clock" in SETTINGS:
    follow(SETTINGS["clock"])

from pydantic import BaseModel  # noqa: E402 - as `follow` asks

from toolwire import ClaudeAgentOptions, ToolServer  # noqa: E402
from toolwire.batch import Batch, Run  # noqa: E402
from toolwire.testing import ScriptedCLI, answer, call, turn  # noqa: E402


class Verdict(BaseModel):
    """The output of a run."""

    key: str


class Task(BaseModel):
    """An item."""

    name: str


JOURNAL = JournalLine(SETTINGS["journal"])


def ask(request):
    """Play the model: it is paid as soon as it gets a request."""
    key = re.search(r"task (\S+)", request.prompt)[1]
    done = len(request.tool_results) and int(request.tool_results[-1].text)
    if not done:
        JOURNAL.write(event="asked", key=key)
    if key == "k0" and done < SETTINGS["long_steps"]:
        return call("mcp__desk__look", step=done + 1)
    return turn(answer({"key": key}), delay=SETTINGS["delay"])


desk = ToolServer("desk")


@desk.tool
async def look(step: int) -> str:
    """Take ten minutes for one of the steps of a long run."""
    until = time.monotonic() + 600  # first of all: the reader of the journal may move the clock
    JOURNAL.write(event="step", step=step)
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
    return str(step)


BATCH = Batch(
    SETTINGS["name"],
    ClaudeAgentOptions(
        spawn_claude_code_process=ScriptedCLI([ask] * 100_000),
        mcp_servers={"desk": desk},
        allowed_tools=["mcp__desk__look"],
    ),
    Verdict,
    concurrency=SETTINGS["concurrency"],
    budget=SETTINGS["budget"],
    per_run=SETTINGS["per_run"],
    on_lost=SETTINGS["on_lost"],
)


@BATCH.task
def prepare(task: Task) -> Run:
    if SETTINGS.get("version") == 2 and "5" in task.name:
        raise ValueError("no fives any more")
    return Run(f"This is task {task.name}")


def opened(*, work):
    times = {name: SETTINGS[name] for name in ("poll", "beat", "stale")}
    return BATCH.open(SETTINGS["at"], work=work, **times)


async def tasks():
    for number in range(SETTINGS["tasks"]):
        yield f"k{number}", Task(name=f"k{number}")
        if number % 10 == 0:
            await asyncio.sleep(SETTINGS["pause"])


async def drive():
    async with opened(work=False) as batch:
        JOURNAL.write(event="driver")
        await batch.add(tasks())
        JOURNAL.write(event="added")
        async for done in batch.results():
            JOURNAL.write(event="result", key=done.key, state=done.state, cost=str(done.cost))
        JOURNAL.write(event="over")


async def work():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with opened(work=True) as batch:
        JOURNAL.write(event="worker")
        await batch.work(stop=stop)


async def cancel():
    async with opened(work=False) as batch:
        since = time.monotonic()
        await batch.cancel()
        JOURNAL.write(event="cancelled", seconds=time.monotonic() - since)


def show_tasks():
    """Write the stacks of all tasks and threads to the log, for a test that waits in vain."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, show_tasks)
    await {"driver": drive, "worker": work, "canceller": cancel}[sys.argv[1]]()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
