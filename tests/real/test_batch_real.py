"""A batch with the real CLI: a worker is killed after a paid tool call, in mid-turn, and another one goes on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from real.cli_under_test import cli_under_test
from shared.journal import Journal
from toolwire.batch import Batch
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, say, turn

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).with_name("batch_program.py")
TASKS = int(os.environ.get("BATCH_REAL_TASKS", "6"))


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


async def test_a_lost_run_goes_on_from_its_transcript(tmp_path, monkeypatch):
    """Every tool is paid exactly once, and only the lost turns are asked again."""
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "state"))
    model, journal = Shopper(), Journal()
    processes = []
    async with ScriptedModel(rules=[model]) as server, ClaudeEnvironment(server) as environment:
        options = {**environment.options_kwargs(), "cli_path": cli_under_test()}

        def start(*, until_done):
            settings = {
                "journal": journal.port,
                "at": str(tmp_path / "b"),
                "options": options,
                "until_done": until_done,
            }
            log = (tmp_path / f"worker-{len(processes)}.log").open("wb")
            env = {
                **os.environ,
                "BATCH_SETTINGS": json.dumps(settings),
                "PYTHONPATH": str(PROGRAM.parents[1]),
            }
            with log:
                processes.append(subprocess.Popen([sys.executable, PROGRAM], env=env, stdout=log, stderr=log))
            return processes[-1]

        try:
            batch = Batch("real", per_run="0.5", on_lost="resume")
            async with batch.open(tmp_path / "b", work=False) as opened:
                await opened.add({f"k{number}": f"k{number}" for number in range(TASKS)})
            first = start(until_done=False)
            with anyio.fail_after(100):
                while sum(bought for _, bought in model.asked) < 2:  # both places are in mid-turn
                    await anyio.sleep(0.05)
            first.kill()
            first.wait()
            model.delay = 0.0
            second = start(until_done=True)
            with anyio.fail_after(150):
                while second.poll() is None:
                    await anyio.sleep(0.1)
            assert second.returncode == 0, (tmp_path / "worker-1.log").read_text()
            async with batch.open(tmp_path / "b", work=False) as opened:
                done = [each async for each in opened.results()]
                unknown = await opened.unknown()
        finally:
            for process in processes:
                process.kill()
                process.wait()
            journal.close()
    assert {each.key: each.state for each in done} == {f"k{number}": "done" for number in range(TASKS)}
    bought = [each["key"] for each in journal.of("bought")]
    assert sorted(bought) == sorted({f"k{number}" for number in range(TASKS)})  # each exactly once
    again = len(model.asked) - 2 * TASKS
    assert again == 2  # the two lost turns, and nothing else
    assert {each.attempts for each in done} == {1, 2}
    assert len(unknown) == 2  # what the lost turns cost nobody knows
