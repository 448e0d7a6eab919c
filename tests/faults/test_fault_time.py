"""Time: a clock that jumps, a slow reader, a CLI that does not read, prompts larger than any pipe."""

import time

import anyio
import pytest

from faults.hostile_cli import STEPS
from faults.stage import BACKENDS, WAIT, WAYS, Outcome, giving_up, in_turns, name_of
from toolwire import ClaudeSDKClient, ClaudeSDKError, CLITimeoutError, query

YEAR = 365 * 24 * 3600
MEGABYTES = 20 * 1_000_000
"""More than any pipe holds."""


class Clock:
    """The system's clock, set to another time at every reading."""

    def __init__(self, *jumps):
        self._real = time.time
        self._jumps = jumps
        self._looks = 0

    def __call__(self):
        self._looks += 1
        return self._real() + self._jumps[self._looks % len(self._jumps)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jumps", [(YEAR,), (-YEAR,), (0, YEAR, -YEAR), (-1e9,)], ids=str)
def test_a_clock_that_jumps(stage, monkeypatch, jumps, way, backend):
    """No limit depends on the wall clock: everything ends right."""
    monkeypatch.setattr(time, "time", Clock(*jumps))
    assert stage.play(backend, WAYS[way], stage.options()).right


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_while_the_clock_jumps(stage, monkeypatch, backend):
    """The timeout comes when it is due, though the wall clock jumps by a year."""
    monkeypatch.setattr(time, "time", Clock(0, -YEAR, YEAR))
    outcome = stage.play(backend, WAYS["client"], stage.options("control", "hang", control_timeout=WAIT))
    assert isinstance(outcome.error, CLITimeoutError)


@pytest.mark.parametrize(("step", "way", "backend"), in_turns((step,) for step in STEPS), ids=name_of)
def test_a_loop_that_is_blocked_at_any_step(stage, step, way, backend):
    """Other code blocks the event loop again and again: everything is late, and nothing is lost."""

    async def talk():
        outcome = None

        async def block():
            while outcome is None:
                time.sleep(0.02)
                await anyio.sleep(0.002)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(block)
            outcome = await WAYS[way](stage.options(step, "glued" if step != "closing" else "none"))
        return outcome

    assert stage.play(backend, talk).right


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_slow_reader(stage, way, backend):
    """A caller who pauses after each message gets all of them, and delays no response of a handler."""

    async def talk():
        outcome = Outcome()
        if way == "query":
            async for message in query(prompt="hello", options=stage.options()):
                outcome.messages.append(message)
                await anyio.sleep(0.05)
        else:
            async with ClaudeSDKClient(stage.options()) as client:
                await client.query("hello")
                async for message in client.receive_response():
                    await client.get_mcp_status()
                    outcome.messages.append(message)
                    await anyio.sleep(0.05)
        return outcome

    assert stage.play(backend, talk).right


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_prompt_that_no_pipe_holds(stage, way, backend):
    """20 MB of prompt arrive, though the CLI reads slowly."""

    async def talk():
        outcome = Outcome()
        prompt = "x" * MEGABYTES
        if way == "query":
            outcome.messages = [message async for message in query(prompt=prompt, options=stage.options())]
        else:
            async with ClaudeSDKClient(stage.options()) as client:
                await client.query(prompt)
                outcome.messages = [message async for message in client.receive_response()]
        return outcome

    assert stage.play(backend, talk).right


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", ["hang", "deaf", "SIGSTOP", "close stdin", "exit 1"], ids=name_of)
def test_a_cli_that_does_not_read(stage, fault, way, backend):
    """The pipe is full: the writer waits, can leave, and leaves nothing behind; a CLI that exits is an error."""
    reached = stage.folder / "reached"
    options = stage.options("idle", fault, env={"REACHED": str(reached)})

    async def talk():
        outcome = Outcome()
        prompt = "x" * MEGABYTES
        async with giving_up(None if fault == "exit 1" else reached) as scope:
            try:
                if way == "query":
                    async for _ in query(prompt=prompt, options=options):
                        pass
                else:
                    async with ClaudeSDKClient(options) as client:
                        await client.query(prompt)
                        async for _ in client.receive_response():
                            pass
            except ClaudeSDKError as error:
                outcome.error = error
        outcome.given_up = scope.cancelled_caught
        return outcome

    outcome = stage.play(backend, talk)
    assert (outcome.error is not None) is (fault == "exit 1"), outcome
    assert outcome.given_up is (fault != "exit 1")
