"""Time: a clock that jumps, a reader that is slow, a CLI that does not read, prompts larger than any pipe."""

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
    """The system's clock, which somebody sets at every look."""

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
    """No limit is reckoned by it: everything comes to its right end."""
    monkeypatch.setattr(time, "time", Clock(*jumps))
    assert stage.play(backend, WAYS[way], stage.options()).right


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_while_the_clock_jumps(stage, monkeypatch, backend):
    """A limit comes when it is due, though the clock says that it is a year ago."""
    monkeypatch.setattr(time, "time", Clock(0, -YEAR, YEAR))
    outcome = stage.play(backend, WAYS["client"], stage.options("control", "hang", control_timeout=WAIT))
    assert isinstance(outcome.error, CLITimeoutError)


@pytest.mark.parametrize(("step", "way", "backend"), in_turns((step,) for step in STEPS), ids=name_of)
def test_a_loop_that_is_blocked_at_any_step(stage, step, way, backend):
    """Somebody else's code stops the event loop again and again: everything comes late, and nothing is lost."""

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
    """Who takes a pause after each message gets them all, and holds up no answer of a handler."""

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
    """20 MB of prompt arrive while the CLI takes its time to read."""

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
    """The pipe is full: whoever writes waits, may leave, and leaves nothing behind."""
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
