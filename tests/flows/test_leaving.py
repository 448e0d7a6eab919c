"""Every way out of a conversation leaves no process and no task, in bounded time."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from shared.waiting import eventually
from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    ToolServer,
    query,
    run,
)
from toolwire._transport.find_cli import VARIABLE
from toolwire.testing import ScriptedCLI, call, say

pytestmark = pytest.mark.anyio

BUSY = ("hangs", "never ends", "deaf and busy")


@pytest.fixture
async def no_tasks_left(anyio_backend_name):
    """On asyncio: no task of ours survives the test."""
    yield
    if anyio_backend_name == "asyncio":
        await anyio.wait_all_tasks_blocked()
        assert [task for task in asyncio.all_tasks() if "toolwire" in str(task.get_coro())] == []


@pytest.mark.usefixtures("no_tasks_left")
class TestLeaving:
    async def test_break(self, play):
        """Leaving the loop early."""
        with anyio.fail_after(15):
            stream = query(prompt="go", options=play("never ends"))
            async for _ in stream:
                break
            await stream.aclose()

    async def test_exception_in_the_consumer(self, play):
        """The consumer's own exception comes through unchanged."""
        with anyio.fail_after(15), pytest.raises(ZeroDivisionError):
            async with ClaudeSDKClient(play("never ends")) as client:
                await client.query("go")
                async for _ in client.receive_messages():
                    1 / 0  # noqa: B018

    @pytest.mark.parametrize("scene", BUSY)
    async def test_cancel_scope_in_mid_run(self, play, scene):
        """A timeout around the loop."""
        with anyio.fail_after(14), anyio.move_on_after(1) as scope:
            async for _ in query(prompt="go", options=play(scene)):
                pass
        assert scope.cancelled_caught

    async def test_cancel_scope_while_connecting(self, play):
        """A timeout while the CLI has not answered initialize."""
        with anyio.move_on_after(0.3) as scope:
            await ClaudeSDKClient(play("never initializes")).connect()
        assert scope.cancelled_caught

    async def test_a_dropped_generator(self, play):
        """A generator that is dropped and never closed."""
        with anyio.fail_after(15):
            stream = query(prompt="go", options=play("never ends"))
            assert isinstance(await anext(stream), AssistantMessage)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # trio warns about every dropped generator
                del stream
                gc.collect()
            await anyio.wait_all_tasks_blocked()
            await settled()

    @pytest.mark.parametrize("seat", ["tool", "task of a tool", "hook", "permission"])
    async def test_disconnect_from_a_handler(self, caplog, seat):
        """disconnect() inside a handler returns at once, and the handler is cancelled with everything else."""
        held, returned, ended = [], [], []

        async def leave(*_):
            await held[0].disconnect()
            returned.append(held[0].connected)
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(seat)

        server = ToolServer("calc")

        @server.tool(name="leave")
        async def leave_in_tool() -> None:
            """Leave."""
            if seat == "tool":
                await leave()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leave)

        cli = ScriptedCLI([call("mcp__calc__leave"), say("never said")], allow=seat != "permission")
        options = ClaudeAgentOptions(
            mcp_servers={"calc": server},
            spawn_claude_code_process=cli,
            can_use_tool=leave if seat == "permission" else None,
            hooks={"PreToolUse": [HookMatcher(hooks=[leave])]} if seat == "hook" else None,
        )
        with anyio.fail_after(15):
            async with ClaudeSDKClient(options) as client:
                held.append(client)
                await client.query("go")
                found = [message async for message in client.receive_messages()]
        assert (returned, ended) == ([False], [seat])
        assert not any(isinstance(message, ResultMessage) for message in found)
        assert "did not stop" not in caplog.text

    async def test_disconnect_from_a_client_inside_a_tool(self, caplog):
        """A tool runs another client, whose tool disconnects the outer client: it waits for neither tool."""
        held = []
        inner, outer = ToolServer("inner"), ToolServer("outer")

        @inner.tool
        async def leave() -> None:
            """Leave."""
            await held[0].disconnect()

        @outer.tool
        async def ask() -> None:
            """Ask another client."""
            await run("go", options=options_for(inner, "leave"))

        with anyio.fail_after(15):
            async with ClaudeSDKClient(options_for(outer, "ask")) as client:
                held.append(client)
                await client.query("go")
                found = [message async for message in client.receive_messages()]
        assert not any(isinstance(message, ResultMessage) for message in found)
        assert "did not stop" not in caplog.text

    async def test_disconnect_from_another_task(self, play):
        """A client may be closed by a task that did not open it; the reader's loop just ends."""
        with anyio.fail_after(15):
            client = ClaudeSDKClient(play("never ends"))
            await client.connect()
            await client.query("go")
            seen = []

            async def read():
                seen.extend([message async for message in client.receive_messages()])

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await client.disconnect()
            assert len(seen) <= 1


def options_for(server, name):
    """Options for a scripted CLI that calls one tool of that server."""
    cli = ScriptedCLI([call(f"mcp__{server.name}__{name}"), say("done")], allow=True)
    return ClaudeAgentOptions(mcp_servers={server.name: server}, spawn_claude_code_process=cli)


async def settled():
    """Wait until this process has no children."""
    while any(True for _ in living_children()):
        await anyio.lowlevel.checkpoint()


def living_children():
    for path in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            yield from (path / "children").read_text().split()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("steps", [*range(12), 20, 40, 80])
async def test_task_cancel_at_any_await(play, steps, anyio_backend, no_tasks_left):
    """`task.cancel()` after any number of loop turns, from the start of the process to the middle of the run."""
    task = asyncio.create_task(run("go", options=play("never ends")))
    for _ in range(steps):
        await asyncio.sleep(0.004)
    task.cancel()
    with anyio.fail_after(15), pytest.raises(asyncio.CancelledError):
        await task
    with anyio.fail_after(15):
        await settled()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_twice(play, anyio_backend, no_tasks_left):
    """A second `cancel()` during the clean-up after the first does not leave the process running."""
    task = asyncio.create_task(run("go", options=play("deaf and busy")))
    await asyncio.sleep(0.5)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    with anyio.fail_after(15):
        await settled()


async def test_a_deaf_cli_is_waited_for_as_long_as_the_option_says(play, caplog, no_tasks_left):
    """`close_timeout` counts once for waiting for the exit and closing together; then come SIGTERM and SIGKILL."""
    with anyio.fail_after(30):
        assert (await run("hi", options=play("deaf", close_timeout=0.1))).text == "hi"
    assert "did not exit within 0.1 s" in caplog.text
    with anyio.fail_after(30):
        async with ClaudeSDKClient(play("deaf", close_timeout=0)) as client:
            await client.query("hi")
    with anyio.fail_after(15):
        await settled()


PROGRAM = """
import asyncio, sys
from toolwire import ClaudeAgentOptions, ClaudeSDKClient, query

options = ClaudeAgentOptions(inherit_env=True)

async def never_closed():
    client = ClaudeSDKClient(options)
    await client.connect()
    await client.query("go")
    async for _ in client.receive_messages():
        print("in mid-run", flush=True)
        sys.stdin.readline()
        if sys.argv[1] == "return":
            return
        if sys.argv[1] == "exit":
            sys.exit(3)

async def loop_ends():
    task = asyncio.create_task(read())
    await asyncio.sleep(1)

async def read():
    async for _ in query(prompt="go", options=options):
        print("in mid-run", flush=True)

asyncio.run(loop_ends() if sys.argv[1] == "loop" else never_closed())
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", ["return", "exit", "loop", "SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("scene", ["never ends", "hangs"])
async def test_the_end_of_this_process_is_the_end_of_the_cli(play, how, scene, anyio_backend):
    """However the program ends, with its client closed or not, killed or not, its CLI ends too."""
    options = play(scene)
    env = {**os.environ, **options.env, VARIABLE: str(options.cli_path)}
    pipe = subprocess.PIPE
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how], env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        assert program.stdout.readline() == b"in mid-run\n"
        cli = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()[0])
        if how.startswith("SIG"):
            program.send_signal(getattr(signal, how))
        _, errors = program.communicate(b"go on\n", timeout=20)
    finally:
        program.kill()
    with anyio.fail_after(10):
        await eventually(lambda: not Path(f"/proc/{cli}").exists())
    if not how.startswith("SIG"):
        # Nothing on stderr except, on newer Pythons, asyncio's own warning about the transport that nobody closed.
        complaints = errors.split(b"Exception ignored in: ")
        assert b"Traceback" not in complaints[0]
        assert all(each.startswith(b"<function BaseSubprocessTransport.__del__") for each in complaints[1:])
