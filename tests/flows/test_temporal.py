"""`run()` in a Temporal activity, as the page on batches shows it, in Temporal's own test environment."""

import asyncio
import re
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

import toolwire
from toolwire import ClaudeAgentOptions
from toolwire.testing import ScriptedCLI, hang, say, turn

PAGE = Path(toolwire.__file__).parents[2] / "docs" / "batch.md"
pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]


def load(cli):
    """Return the activity of the page, with a scripted CLI and quick heartbeats."""
    (code,) = [
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "temporalio" in each
    ]
    names = {"__name__": "page"}
    exec(code.replace("seconds=10.0", "seconds=0.02"), names)  # noqa: S102 - our own document
    names["ClaudeAgentOptions"] = lambda **given: ClaudeAgentOptions(spawn_claude_code_process=cli, **given)
    return names["review_repo"]


async def test_the_activity_beats_while_it_runs():
    """Heartbeats do not depend on messages: they are sent while the model is silent, too."""
    beats = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    cli = ScriptedCLI([turn(say("Looks fine."), delay=0.5)])
    async with asyncio.timeout(30):
        assert await environment.run(load(cli), "api") == "Looks fine."
    assert len(beats) > 3
    assert cli.prompts == ["Review api."]


async def test_a_cancelled_activity_ends_its_run():
    """Cancelling the activity ends it while the model is still silent."""
    started = asyncio.Event()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: started.set()
    cli = ScriptedCLI([hang()])
    work = asyncio.create_task(environment.run(load(cli), "api"))
    async with asyncio.timeout(30):
        await started.wait()
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
