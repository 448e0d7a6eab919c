"""Clients started ahead of time: `startup()` and `WarmPool`, with a stand-in CLI that can be made to misbehave."""

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from shared.waiting import eventually
from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    CLIConnectionError,
    CLINotFoundError,
    CLITimeoutError,
    ProcessError,
    ResultError,
    ResultMessage,
    UnknownMessage,
    WarmPool,
    run,
    startup,
)
from toolwire.testing import ScriptedCLI, answer

pytestmark = pytest.mark.anyio

LIMIT = 20


class Pool(WarmPool):
    """The real one, but a close that hangs fails its test instead of ending the test run."""

    async def aclose(self):
        with anyio.CancelScope(shield=True):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                await super().aclose()
            else:
                async with asyncio.timeout(10 * self.size):  # cuts through a shield, where anyio does not
                    await super().aclose()


def living():
    """Return the pids of the programs that this process has started and that still run."""
    found = set()
    for path in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (path / "children").read_text().split()))
    return found


async def ask(client, text="hello"):
    await client.query(text)
    return [message async for message in client.receive_response()]


class TestStartup:
    async def test_a_started_client_is_ready(self, play):
        """The CLI has answered initialize; `async with` neither starts it again nor forgets to end it."""
        with anyio.fail_after(LIMIT):
            client = await startup(play("echo"))
            assert client.connected
            assert (await client.get_server_info())["claude_code_version"] == "9.9.9"
            started = living()
            async with client:
                assert living() == started
                assert (await ask(client))[-1].result == "hello"
            assert not client.connected
            await eventually(lambda: not living())

    async def test_a_started_client_can_be_used_without_a_block(self, play):
        """disconnect() is all that is needed."""
        with anyio.fail_after(LIMIT):
            client = await startup(play("echo"))
            assert (await ask(client))[-1].result == "hello"
            await client.disconnect()

    @pytest.mark.parametrize(
        ("scene", "more", "kind"),
        [
            ("exits at once", {}, ProcessError),
            ("never initializes", {"initialize_timeout": 0.2}, CLITimeoutError),
        ],
    )
    async def test_what_cannot_start_raises(self, play, scene, more, kind):
        """The error is the one of connect(), and nothing is left running."""
        with anyio.fail_after(LIMIT), pytest.raises(kind):
            await startup(play(scene, **more))
        assert living() == set()

    async def test_cancelled_while_it_starts(self, play):
        """A timeout around startup() leaves nothing running."""
        with anyio.fail_after(LIMIT):
            with anyio.move_on_after(0.2) as scope:
                await startup(play("never initializes"))
            assert scope.cancelled_caught
            await eventually(lambda: not living())


class TestPool:
    async def test_a_waiting_cli_is_used_and_replaced(self, play):
        """The conversation runs on the CLI that waited, and another is started at once."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo")) as pool:
                await pool.wait_ready()
                assert pool.ready == 1
                waiting = living()
                assert len(waiting) == 1
                async with pool.client() as client:
                    assert client.connected
                    await pool.wait_ready()
                    assert pool.ready == 1
                    assert len(living()) == 2
                    assert (await ask(client))[-1].result == "hello"
                assert living().isdisjoint(waiting)
                assert len(living()) == 1
            assert living() == set()

    async def test_run_gives_a_reply(self, play):
        """`pool.run()` sends one prompt to a warm CLI and returns the reply."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo")) as pool:
                seen = []
                reply = await pool.run("hello", on_message=seen.append)
        assert reply.text == "hello"
        assert [type(message) for message in reply.messages] == [AssistantMessage, ResultMessage]
        assert seen == reply.messages

    async def test_run_waits_for_background_work_as_the_other_run_does(self, play):
        """`pool.run()` and `run()` give the same reply: the last result of the run, not the first."""
        with anyio.fail_after(LIMIT):
            plain = await run("go", options=play("two runs"))
            async with Pool(play("two runs")) as pool:
                warm = await pool.run("go")
        assert plain.text == "second of two"
        assert warm.text == plain.text
        assert [type(message) for message in warm.messages] == [type(message) for message in plain.messages]

    async def test_run_keeps_every_message_as_the_other_run_does(self, play):
        """A message that `query()` would leave out is in the reply of both."""
        options = play("echo")
        scene = options.cli_path.read_text()
        marked = scene.replace(
            "assistant(json.dumps(prompt", "tell(type='from the future')\n        assistant(json.dumps(prompt"
        )
        assert marked != scene
        options.cli_path.write_text(marked)
        with anyio.fail_after(LIMIT):
            plain = await run("go", options=options)
            async with Pool(options) as pool:
                warm = await pool.run("go")
        assert isinstance(plain.messages[0], UnknownMessage)
        assert [type(message) for message in warm.messages] == [type(message) for message in plain.messages]

    async def test_run_raises_a_failed_result_with_the_reply(self, play):
        """As `run()` does, `pool.run()` raises ResultError with the reply."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("fails")) as pool:
                with pytest.raises(ResultError, match="529") as caught:
                    await pool.run("go")
        assert caught.value.reply.result.api_error_status == 529

    async def test_run_raises_when_the_cli_dies(self, play):
        """A death in mid-run is an error, and the pool goes on."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("dies")) as pool:
                for _ in range(2):
                    with pytest.raises(ProcessError, match="exit code: 7"):
                        await pool.run("go")

    async def test_a_cli_that_dies_while_it_waits_is_replaced(self, play):
        """No client gets a dead CLI."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo"), size=2) as pool:
                await pool.wait_ready()
                assert pool.ready == 2
                for pid in living():
                    os.kill(pid, signal.SIGKILL)
                await eventually(lambda: pool.ready == 0)
                reply = await pool.run("hello")
                assert reply.text == "hello"
                await pool.wait_ready()
                assert pool.ready == 2

    async def test_one_of_several_dies_while_it_waits(self, play):
        """The living one is used, and the pool is full again afterwards."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo"), size=2) as pool:
                await pool.wait_ready()
                os.kill(min(living()), signal.SIGKILL)
                await eventually(lambda: pool.ready == 1)
                for _ in range(2):
                    assert (await pool.run("hello")).text == "hello"
                await pool.wait_ready()
                assert pool.ready == 2

    async def test_five_conversations_on_a_pool_of_two(self, play):
        """All run at once, each on a CLI of its own, each with its own answer."""
        answers = {}
        together = anyio.Event()
        inside = 0

        async def converse(number):
            nonlocal inside
            async with pool.client() as client:
                inside += 1
                if inside == 5:
                    together.set()
                await together.wait()
                messages = await ask(client, f"number {number}")
                answers[number] = (
                    messages[-1].result,
                    json.loads(messages[0].text)["message"]["content"],
                )

        with anyio.fail_after(LIMIT):
            async with Pool(play("echo"), size=2) as pool:
                async with anyio.create_task_group() as group:
                    for number in range(5):
                        group.start_soon(converse, number)
                assert answers == {number: (f"number {number}",) * 2 for number in range(5)}
                await pool.wait_ready()
                assert pool.ready == 2
                await eventually(lambda: len(living()) == 2)
            assert living() == set()

    async def test_many_runs_at_once(self, play):
        """Each run gets its own answer, and no CLI is left."""
        replies = {}

        async def one(number):
            replies[number] = (await pool.run(str(number))).text

        with anyio.fail_after(60):
            async with Pool(play("echo"), size=2) as pool, anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(one, number)
        assert replies == {number: str(number) for number in range(8)}
        assert living() == set()

    async def test_options_that_cannot_start(self, tmp_path, caplog):
        """The pool opens and closes; each conversation raises what is wrong."""
        with anyio.fail_after(LIMIT):
            async with Pool(ClaudeAgentOptions(cli_path=tmp_path / "gone"), size=2) as pool:
                await pool.wait_ready()
                assert pool.ready == 0
                for _ in range(2):
                    with pytest.raises(CLINotFoundError, match="gone"):
                        await pool.run("hello")
        assert "could not be started ahead of time" in caplog.text

    async def test_a_cli_that_exits_at_once(self, play):
        """The run raises the error of a CLI that starts and exits at once."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("exits at once")) as pool:
                with pytest.raises(ProcessError, match="flux capacitor"):
                    await pool.run("hello")

    @pytest.mark.parametrize("size", [0, -1])
    def test_a_pool_of_nothing_is_refused(self, size):
        """The size is at least 1."""
        with pytest.raises(ValueError, match="at least 1"):
            Pool(size=size)

    def test_a_pool_can_be_made_outside_an_event_loop(self, play):
        """A pool can be a global of a service that is opened later, once per event loop."""

        async def main():
            with anyio.fail_after(LIMIT):
                async with pool:
                    await pool.wait_ready()
                    return (await pool.run("hello")).text

        for backend in ("asyncio", "trio"):
            pool = Pool(play("echo"))
            for _ in range(2):
                assert anyio.run(main, backend=backend) == "hello"


class TestClosing:
    async def test_closed_the_moment_it_was_opened(self, play):
        """Nothing has been started yet: closing returns."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo"), size=2):
                pass
        assert living() == set()

    @pytest.mark.parametrize("scene", ["echo", "never initializes"])
    async def test_closed_while_it_starts(self, play, scene):
        """A CLI that is being started is ended too, in bounded time."""
        with anyio.fail_after(LIMIT):
            async with Pool(play(scene), size=2):
                await eventually(living)
            await eventually(lambda: not living())

    async def test_closed_twice_and_by_several(self, play):
        """Closing again does nothing; several may close at once."""
        with anyio.fail_after(LIMIT):
            pool = Pool(play("echo"), size=2)
            async with pool:
                await pool.wait_ready()
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(pool.aclose)
                assert living() == set()
            await pool.aclose()
        assert pool.ready == 0

    async def test_a_closed_pool_says_so(self, play):
        """Neither before it is opened nor after it is closed does it start anything."""
        pool = Pool(play("echo"))
        with anyio.fail_after(LIMIT):
            for _ in range(2):
                with pytest.raises(CLIConnectionError, match="WarmPool is not open"):
                    await pool.run("hello")
                async with pool:
                    await pool.wait_ready()
        assert living() == set()

    async def test_a_conversation_under_way_survives_the_end_of_the_pool(self, play):
        """Closing the pool ends only the CLIs that wait."""
        with anyio.fail_after(LIMIT):
            pool = Pool(play("echo"))
            await pool.__aenter__()
            await pool.wait_ready()
            async with pool.client() as client:
                await pool.aclose()
                assert (await ask(client))[-1].result == "hello"
            assert living() == set()

    async def test_deaf_clis_are_ended_side_by_side(self, play):
        """Closing three CLIs that ignore SIGTERM takes no longer than closing one."""
        with anyio.fail_after(40):
            pool = Pool(play("deaf"), size=3)
            await pool.__aenter__()
            await pool.wait_ready()
            with anyio.fail_after(12):
                await pool.aclose()
        assert living() == set()


class TestCancelling:
    async def test_a_cancelled_conversation(self, play):
        """A timeout around run() ends that CLI alone; the pool goes on."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("never ends")) as pool:
                await pool.wait_ready()
                with anyio.move_on_after(0.3) as scope:
                    await pool.run("go")
                assert scope.cancelled_caught
                await pool.wait_ready()
                await eventually(lambda: len(living()) == 1)
                assert pool.ready == 1

    async def test_a_cancelled_block(self, play):
        """Cancelling the block around the pool ends everything in it."""
        with anyio.fail_after(LIMIT):
            with anyio.CancelScope() as scope:
                async with Pool(play("echo"), size=2) as pool:
                    await pool.wait_ready()
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
        assert living() == set()

    async def test_a_cancelled_wait(self, play):
        """Giving up on wait_ready() does not stop the starting."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo")) as pool:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await pool.wait_ready()
                await pool.wait_ready()
                assert pool.ready == 1

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    async def test_no_task_is_left(self, play, anyio_backend):
        """On asyncio: neither a start nor a conversation leaves a task."""
        with anyio.fail_after(LIMIT):
            async with Pool(play("echo"), size=2) as pool:
                await pool.run("hello")
        await anyio.wait_all_tasks_blocked()
        assert [task for task in asyncio.all_tasks() if "toolwire" in str(task.get_coro())] == []


class TestOutputTypes:
    async def test_a_pool_has_an_output_type(self):
        """Its CLIs are started with the schema, and each reply has an instance of the type."""
        clis = [ScriptedCLI([answer([1, 2])]), ScriptedCLI([answer([3])]), ScriptedCLI([answer({"a": "b"})])]
        options = ClaudeAgentOptions(spawn_claude_code_process=lambda start: clis.pop(0)(start))  # noqa: PLW0108 - another CLI each time
        with anyio.fail_after(LIMIT):
            async with Pool(options, output_type=list[int]) as pool:
                await pool.wait_ready()
                assert (await pool.run("one")).output == [1, 2]
                await pool.wait_ready()  # the second CLI waits
                reply = await pool.run("another type", output_type=dict[str, str])
                assert reply.output == {"a": "b"}
                assert pool.ready == 1

    async def test_a_pool_that_is_closed_runs_nothing(self):
        """A closed pool refuses `run()` with an output type too."""
        with pytest.raises(CLIConnectionError, match="not open"):
            await Pool().run("hello", output_type=int)
