"""A batch with the real CLI: a worker is killed after a paid tool call, in mid-turn, and another one goes on."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from real.cli_under_test import cli_under_test
from shared.journal import Journal
from toolwire import PostgresSessionStore
from toolwire.batch import Batch
from toolwire.sessions.paths import project_key_for_directory
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, say, turn

PROGRAM = Path(__file__).with_name("batch_program.py")
TASKS = int(os.environ.get("BATCH_REAL_TASKS", "6"))
"""Runs in each test. 200 are what is promised; they take a quarter of an hour on two cores."""
LIMIT = 150 + 6 * TASKS
pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(200 + LIMIT)]


@pytest.fixture
def anyio_backend():
    """Batches run on asyncio only."""
    return "asyncio"


class Shopper:
    """The model: buys once for each task, then thinks for long; while it thinks its worker is killed."""

    def __init__(self):
        self.asked = []
        self.delay = 60.0

    def __call__(self, request):
        text = json.dumps(request.body["messages"])
        found = re.search(r"This is task (k\d+)", text)
        if found is None:
            return say("ok")
        key = found[1]
        bought = f"bought {key}" in text
        self.asked.append((key, bought))
        if bought:
            return turn(say(f"{key} is done."), delay=self.delay)
        return call("mcp__shop__buy", key=key)


async def run_with_a_kill(tmp_path, model, names, **settings):
    """Run the batch; the first worker is killed while both its runs are in mid-turn, the second goes on.

    `names` are those of their machines: each has a home of its own. Returns the runs, what is unknown, and what was
    bought.
    """
    journal, processes = Journal(), []
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ScriptedModel(rules=[model]))
        machines = {name: await stack.enter_async_context(ClaudeEnvironment(server)) for name in names}
        cwd = str(next(iter(machines.values())).cwd)  # the same path on both

        def start(name, *, until_done):
            environment = machines[name]
            options = {**environment.options_kwargs(), "cwd": cwd, "cli_path": cli_under_test()}
            given = {"journal": journal.port, "options": options, "until_done": until_done, **settings}
            env = {
                **os.environ,
                "HOME": environment.env["HOME"],
                "TOOLWIRE_BATCHES": str(Path(environment.env["HOME"]) / "batches"),
                "BATCH_SETTINGS": json.dumps(given),
                "PYTHONPATH": str(PROGRAM.parents[1]),
            }
            with (tmp_path / f"worker-{len(processes)}.log").open("wb") as log:
                processes.append(subprocess.Popen([sys.executable, PROGRAM], env=env, stdout=log, stderr=log))
            return processes[-1]

        try:
            batch = Batch("real", per_run="0.5", on_lost="resume")
            async with batch.open(settings["at"], work=False) as opened:
                await opened.add({f"k{number}": f"k{number}" for number in range(TASKS)})
            first = start(names[0], until_done=False)
            with anyio.fail_after(100):
                while sum(bought for _, bought in model.asked) < 2:  # both concurrent runs are in mid-turn
                    await anyio.sleep(0.05)
                if "store" in settings:
                    await wait_until_stored(settings["store"], cwd)
            first.kill()
            first.wait()
            model.delay = 0.0
            second = start(names[-1], until_done=True)
            with anyio.fail_after(LIMIT):
                while second.poll() is None:
                    await anyio.sleep(0.1)
            assert second.returncode == 0, (tmp_path / "worker-1.log").read_text()
            async with batch.open(settings["at"], work=False) as opened:
                done = [each async for each in opened.results()]
                unknown = await opened.unknown()
        finally:
            for process in processes:
                process.kill()
                process.wait()
            journal.close()
    return done, unknown, [each["key"] for each in journal.of("bought")]


async def wait_until_stored(url, cwd):
    """Wait until the store has both purchases: it is behind the CLI by as long as a write takes."""
    async with PostgresSessionStore(url) as store:
        while True:
            listed = await store.list_sessions(project_key_for_directory(cwd))
            stored = [
                json.dumps(
                    await store.load(
                        {"project_key": project_key_for_directory(cwd), "session_id": each["session_id"]}
                    )
                )
                for each in listed
            ]
            if sum("bought k" in each for each in stored) == 2:
                return
            await anyio.sleep(0.05)


def check(model, done, unknown, bought):
    """Assert that each task bought exactly once, and that only the two lost turns were requested again."""
    keys = {f"k{number}" for number in range(TASKS)}
    assert {each.key: each.state for each in done} == dict.fromkeys(keys, "done")
    assert sorted(bought) == sorted(keys)
    assert len(model.asked) - 2 * TASKS == 2
    assert {each.attempts for each in done} == {1, 2}
    assert len(unknown) == 2  # the cost of the lost turns is unknown


async def test_a_lost_run_goes_on_from_its_transcript(tmp_path, monkeypatch):
    """A second worker process on the same machine resumes it."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    model = Shopper()
    began = time.monotonic()
    found = await run_with_a_kill(tmp_path, model, ["here"], at=str(tmp_path / "b"))
    check(model, *found)
    print(f"{TASKS} runs, {len(model.asked)} turns asked, {time.monotonic() - began:.0f} s")  # noqa: T201 - with -s


async def test_a_lost_run_goes_on_from_the_session_store_on_another_machine(
    tmp_path, monkeypatch, postgres_url
):
    """The second worker has a fresh home and no file of the first machine."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    model = Shopper()
    found = await run_with_a_kill(tmp_path, model, ["one", "other"], at=postgres_url, store=postgres_url)
    check(model, *found)
