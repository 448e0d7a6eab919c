"""One contract for the process pipes of asyncio and trio: what is written arrives, and every end is reported."""

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from shared.waiting import eventually, wait_until
from toolwire import CLIConnectionError, CLINotFoundError
from toolwire._transport.process import Command, process_pipe

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ASYNCIO_ONLY = pytest.mark.parametrize("anyio_backend", ["asyncio"])
LIMIT = 30

CAT = """
import sys
while data := sys.stdin.buffer.read1(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""
DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(60)
"""
HEEDS_SIGTERM = """
import time
print("ready", flush=True)
while True:
    time.sleep(60)
"""


class Ear:
    """A listener that records what a pipe reports, and lets a test wait for it."""

    def __init__(self):
        self.out = bytearray()
        self.err = bytearray()
        self.chunks = 0
        self.ends = []
        self._moved = anyio.Event()

    def data_received(self, data):
        assert not self.ends, "bytes after the end"
        self.out += data
        self.chunks += 1
        self._wake()

    def frame_received(self, frame):
        raise AssertionError("a process has no frames")

    def stderr_received(self, data):
        assert not self.ends, "bytes after the end"
        self.err += data
        self._wake()

    def ended(self, exit_code, error=None):
        self.ends.append((exit_code, error))
        self._wake()

    def _wake(self):
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def until(self, condition):
        while not condition():
            await self._moved.wait()

    async def end(self):
        await self.until(lambda: self.ends)
        return self.ends[0][0]


def program(code, **more):
    env = {"PATH": os.defpath, **more.pop("env", {})}
    return Command([sys.executable, "-SE", "-c", textwrap.dedent(code)], env, **more)


@asynccontextmanager
async def started(command):
    """Start a process; yield its pipe and its listener; end it afterwards."""
    with anyio.fail_after(LIMIT):
        ear = Ear()
        pipe = process_pipe(command)
        await pipe.open(ear)
        try:
            yield pipe, ear
        finally:
            pipe.kill()
            await pipe.stop()
            await ear.end()
            assert len(ear.ends) == 1


def children():
    """Return the processes that this one has started, zombies included."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if stat[1] == str(os.getpid()):
                found.add(int(entry.name))
    return found


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def settled(children_before, descriptors_before):
    """Wait until neither processes nor descriptors are left over."""
    try:
        with anyio.fail_after(5):
            await eventually(lambda: not (children() - children_before or descriptors() > descriptors_before))
    except TimeoutError:
        assert children() - children_before == set()
        assert descriptors() <= descriptors_before


@pytest.fixture
def quick(monkeypatch):
    """Shorten the timeouts of the steps of stop()."""
    monkeypatch.setattr("toolwire._transport.process.CLOSE_TIMEOUT", 0.3)
    monkeypatch.setattr("toolwire._transport.process.TERMINATE_TIMEOUT", 0.3)


class TestBytes:
    async def test_bytes_arrive_as_they_were_written(self):
        """Any byte in any chunking: nothing is decoded, cut or joined."""
        code = """
            import sys
            out = sys.stdout.buffer
            for number in range(256):
                out.write(bytes([number]))
                if number % 7 == 0:
                    out.flush()
        """
        async with started(program(code)) as (_, ear):
            assert await ear.end() == 0
            assert bytes(ear.out) == bytes(range(256))

    async def test_what_is_written_arrives_in_order(self):
        """Lines go out in the order of the calls, none is lost at the end of input."""
        async with started(program(CAT)) as (pipe, ear):
            lines = [b"%d %s\n" % (number, b"x" * (number % 50)) for number in range(5000)]
            for line in lines:
                pipe.write(line)
            pipe.end_input()
            assert await ear.end() == 0
            assert bytes(ear.out) == b"".join(lines)

    async def test_much_both_ways_at_once_does_not_block(self):
        """Far more than a pipe holds, written without waiting, while as much comes back."""
        async with started(program(CAT)) as (pipe, ear):
            block = os.urandom(1 << 20)
            for _ in range(16):
                pipe.write(block)
            pipe.end_input()
            await ear.end()
            assert bytes(ear.out) == block * 16
            assert ear.chunks > 16

    async def test_one_large_write(self):
        """One line of many megabytes goes out whole."""
        async with started(program(CAT)) as (pipe, ear):
            block = os.urandom(8 << 20)
            pipe.write(block)
            await pipe.drain()
            await ear.until(lambda: len(ear.out) == len(block))
            assert bytes(ear.out) == block

    async def test_much_on_stderr_does_not_hold_up_stdout(self):
        """Both streams are read all the time, and kept apart."""
        code = """
            import sys
            for number in range(200):
                sys.stderr.buffer.write(b"e" * 10_000)
                sys.stdout.buffer.write(b"o" * 10_000)
        """
        async with started(program(code)) as (_, ear):
            assert await ear.end() == 0
            assert (bytes(ear.out), bytes(ear.err)) == (b"o" * 2_000_000, b"e" * 2_000_000)

    async def test_the_last_bytes_come_before_the_end(self):
        """A program that writes and exits at once loses nothing."""
        code = "import os; os.write(1, b'o' * 60_000); os.write(2, b'e' * 60_000); os._exit(4)"
        for _ in range(5):
            async with started(program(code)) as (_, ear):
                assert await ear.end() == 4
                assert (len(ear.out), len(ear.err)) == (60_000, 60_000)


class TestInput:
    async def test_end_input_is_the_end_of_its_input(self):
        """The program reads to the end; a second call and later writes do nothing."""
        code = "import sys; data = sys.stdin.buffer.read(); print(len(data), flush=True); sys.exit(3)"
        async with started(program(code)) as (pipe, ear):
            pipe.write(b"12345")
            pipe.end_input()
            pipe.end_input()
            pipe.write(b"too late")
            assert await ear.end() == 3
            assert bytes(ear.out) == b"5\n"

    async def test_the_input_of_one_is_not_held_open_by_another(self):
        """A process started later does not inherit the pipes of an earlier one."""
        async with started(program(CAT)) as (first, heard), started(program(CAT)):
            first.end_input()
            assert await heard.end() == 0

    async def test_writing_to_a_program_that_is_gone_is_harmless(self):
        """After its end writes, drains, ends of input and stops do nothing and raise nothing."""
        async with started(program("pass")) as (pipe, ear):
            assert await ear.end() == 0
            pipe.write(b"x" * 1_000_000)
            await pipe.drain()
            pipe.end_input()
            await pipe.stop()
            pipe.kill()

    async def test_a_program_that_closes_its_input_is_not_an_error(self):
        """Writes to a closed pipe are dropped; what the program says still arrives."""
        code = """
            import os, sys
            os.close(0)
            print("closed", flush=True)
            import time
            time.sleep(60)
        """
        async with started(program(code)) as (pipe, ear):
            await ear.until(lambda: b"closed" in ear.out)
            for _ in range(3):
                pipe.write(b"x" * 100_000)
                await pipe.drain()
            assert ear.ends == []

    async def test_drain_waits_for_a_program_that_does_not_read(self):
        """Back pressure: drain returns when the program has read, not before."""
        code = """
            import sys
            print("ready", flush=True)
            signal.sigwait({signal.SIGUSR1})
            print(len(sys.stdin.buffer.read(4_000_000)), flush=True)
            sys.stdin.read()
        """
        code = (
            "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
            + textwrap.dedent(code)
        )
        before = children()
        async with started(program(code)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            drained = []

            async def drain():
                await pipe.drain()
                drained.append(True)

            async with anyio.create_task_group() as group:
                pipe.write(b"x" * 2_000_000)
                pipe.write(b"y" * 2_000_000)
                group.start_soon(drain)
                for _ in range(20):
                    await checkpoint()
                assert drained == []
                for pid in children() - before:
                    os.kill(pid, signal.SIGUSR1)
            assert drained == [True]
            await ear.until(lambda: b"4000000" in ear.out)

    async def test_drain_ends_with_the_program(self):
        """drain() returns when the program dies."""
        async with started(program(HEEDS_SIGTERM)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    pipe.write(b"x" * 1_000_000)
                group.start_soon(pipe.drain)
                for _ in range(5):
                    await checkpoint()
                pipe.kill()
            assert await ear.end() == -signal.SIGKILL


class TestEnds:
    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("pass", 0),
            ("import os; os._exit(3)", 3),
            ("import os; os._exit(255)", 255),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
            ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ],
    )
    async def test_the_exit_code_is_told(self, code, expected):
        """It is the exit code, or the signal as a negative number; no exception is raised."""
        async with started(program(code)) as (_, ear):
            assert await ear.end() == expected
            assert ear.ends == [(expected, None)]

    async def test_stop_is_gentle_first(self):
        """A program that exits at the end of its input gets no signal."""
        code = "import sys; sys.stdin.read(); print('bye', flush=True); sys.exit(0)"
        async with started(program(code)) as (pipe, ear):
            await pipe.stop()
            assert await ear.end() == 0
            assert bytes(ear.out) == b"bye\n"

    async def test_stop_lets_what_was_written_arrive(self):
        """What was written before the stop still arrives."""
        code = "import sys; print(len(sys.stdin.buffer.read()), flush=True)"
        async with started(program(code)) as (pipe, ear):
            pipe.write(b"x" * 3_000_000)
            await pipe.stop()
            assert await ear.end() == 0
            assert bytes(ear.out) == b"3000000\n"

    @pytest.mark.usefixtures("quick")
    async def test_stop_then_asks(self):
        """A program that ignores the end of its input gets SIGTERM."""
        async with started(program(HEEDS_SIGTERM)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            await pipe.stop()
            assert await ear.end() == -signal.SIGTERM

    @pytest.mark.usefixtures("quick")
    async def test_stop_then_kills(self):
        """A program that ignores SIGTERM too gets SIGKILL, in bounded time."""
        async with started(program(DEAF)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            pipe.write(b"x" * 2_000_000)  # a full pipe must not hold up the end
            with anyio.fail_after(10):
                await pipe.stop()
            assert await ear.end() == -signal.SIGKILL

    async def test_how_long_stop_waits_can_be_set(self):
        """With a timeout of 0, SIGTERM comes at once; with a long one, the program ends in its own time."""
        slow = "import sys, time; sys.stdin.read(); time.sleep(0.5); print('written', flush=True)"
        for code, gentle, expected in ((HEEDS_SIGTERM, 0.0, -signal.SIGTERM), (slow, 3_600.0, 0)):
            with anyio.fail_after(LIMIT):
                ear = Ear()
                pipe = process_pipe(program(code, close_timeout=gentle))
                await pipe.open(ear)
                if gentle == 0:
                    await ear.until(lambda ear=ear: b"ready" in ear.out)
                await pipe.stop()
                assert await ear.end() == expected
                assert gentle == 0 or b"written" in ear.out

    async def test_time_since_the_end_of_input_counts(self):
        """stop() counts the time since end_input() and does not begin a new wait."""
        with anyio.fail_after(LIMIT):
            ear = Ear()
            pipe = process_pipe(program(HEEDS_SIGTERM, close_timeout=3_600.0))
            await pipe.open(ear)
            await ear.until(lambda: b"ready" in ear.out)
            pipe.end_input()
            pipe._input_ended_at -= 3_600
            await pipe.stop()
            assert await ear.end() == -signal.SIGTERM

    async def test_a_cancelled_stop_kills_at_once(self):
        """A cancelled stop() does not wait to be gentle: the program is gone when it returns."""
        async with started(program(DEAF)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            with anyio.fail_after(10, shield=True), anyio.CancelScope() as scope:
                scope.cancel()
                await pipe.stop()
            assert await ear.end() == -signal.SIGKILL

    async def test_several_stops(self):
        """Any number of tasks may stop it; all return when it is gone."""
        async with started(program("import sys; sys.stdin.read()")) as (pipe, ear):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(pipe.stop)
            assert await ear.end() == 0

    async def test_kill_needs_no_await(self):
        """kill() may be called from anywhere, more than once."""
        async with started(program(DEAF)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            pipe.kill()
            pipe.kill()
            assert await ear.end() == -signal.SIGKILL

    async def test_a_program_that_closes_its_output_and_lives_on_for_a_while(self):
        """The end is reported when the process ends, and once."""
        code = """
            import os, sys
            os.write(1, b"last words")
            os.close(1)
            sys.stdin.read()
            os._exit(6)
        """
        async with started(program(code)) as (pipe, ear):
            await ear.until(lambda: b"last words" in ear.out)
            pipe.end_input()
            assert await ear.end() == 6

    async def test_a_grandchild_that_holds_everything_open_does_not_hold_us(self):
        """When the program is gone the end comes in bounded time, whoever has its streams."""
        code = """
            import subprocess, sys
            child = subprocess.Popen([sys.executable, "-SE", "-c", "import time; time.sleep(60)"])
            print(child.pid, flush=True)
            import os
            os._exit(2)
        """
        async with started(program("pass")) as (_, ear):
            await ear.end()
        before = children(), descriptors()
        grandchild = None
        try:
            async with started(program(code)) as (pipe, ear):
                pipe.write(b"x" * 2_000_000)  # nobody will ever read it
                assert await ear.end() == 2
                grandchild = int(ear.out)
                await pipe.drain()
            await settled(*before)
        finally:
            if grandchild is not None:
                os.kill(grandchild, signal.SIGKILL)
            await anyio.wait_all_tasks_blocked()

    async def test_nothing_is_left_of_many(self):
        """No descriptor and no process stays behind."""
        async with started(program("pass")) as (_, ear):
            await ear.end()
        before = children(), descriptors()
        for _ in range(5):
            async with started(program("print(1)")) as (_, ear):
                await ear.end()
        await settled(*before)

    @ASYNCIO_ONLY
    async def test_a_program_that_is_gone_before_we_look(self, anyio_backend):
        """It exits while the loop is busy with something else: no error in the loop, no descriptor lost."""
        async with started(program("pass")) as (_, ear):
            await ear.end()
        before = children(), descriptors()
        trouble = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: trouble.append(context))
        with anyio.fail_after(LIMIT):
            ear = Ear()
            pipe = process_pipe(Command(["/bin/true"], {}))
            loop.call_soon(busy_until_children_are_gone, before[0])
            await pipe.open(ear)
            assert await ear.end() == 0
            await pipe.stop()
        assert trouble == []
        await settled(*before)


FORKS = """
import atexit, os, sys
import anyio
from toolwire._transport.process import Command, process_pipe

class Ear:
    ends = []
    def data_received(self, data): pass
    def stderr_received(self, data): pass
    def ended(self, code, error=None): self.ends.append(code)

async def main():
    ear = Ear()
    pipe = process_pipe(Command([sys.executable, "-SE", "-c", "import sys; sys.stdin.read()"], {}))
    await pipe.open(ear)
    if not (child := os.fork()):
        atexit._run_exitfuncs()  # what the end of an interpreter does
        os._exit(0)
    os.waitpid(child, 0)
    with anyio.move_on_after(1):
        while not ear.ends:
            await anyio.sleep(0.01)
    print("ended" if ear.ends else "alive", flush=True)
    await pipe.stop()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_end_of_a_forked_child_is_not_the_end_of_the_program(backend):
    """A process that was forked from ours and exits leaves our programs alone."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout == "alive\n", done.stderr


def test_uvloop():
    """The pipe for asyncio works on uvloop too."""
    pytest.importorskip("uvloop")

    async def main():
        async with started(program(CAT)) as (pipe, ear):
            pipe.write(b"x" * 1_000_000)
            await ear.until(lambda: len(ear.out) == 1_000_000)
            await pipe.stop()
            assert await ear.end() == 0
        async with started(program(DEAF)) as (pipe, ear):
            await ear.until(lambda: b"ready" in ear.out)
            pipe.kill()
            return await ear.end()

    assert anyio.run(main, backend_options={"use_uvloop": True}) == -signal.SIGKILL


EAGER = """
import sys
for number in range(20000):
    sys.stdout.write(f"{number}\\n")
    if number % 50 == 0:
        sys.stdout.flush()
"""


@pytest.mark.parametrize("uvloop", [False, True])
def test_output_from_the_first_moment_on_stays_in_order(uvloop):
    """Output that asyncio has buffered before we look comes before what we read ourselves."""
    if uvloop:
        pytest.importorskip("uvloop")

    async def main():
        for _ in range(5):
            async with started(program(EAGER)) as (_, ear):
                assert await ear.end() == 0
                assert ear.out.split() == [b"%d" % number for number in range(20000)]

    anyio.run(main, backend_options={"use_uvloop": uvloop})


@ASYNCIO_ONLY
async def test_lines_of_one_turn_go_out_together(anyio_backend, monkeypatch):
    """The first line of a turn goes at once, the others of that turn in one write."""
    async with started(program(CAT)) as (pipe, ear):
        written = []
        monkeypatch.setattr(pipe, "_stdin", Spy(pipe._stdin, written))
        for _ in range(3):
            for line in (b"1\n", b"2\n", b"3\n"):
                pipe.write(line)
            await checkpoint()
            await checkpoint()
        assert written == [b"1\n", b"2\n3\n"] * 3
        await ear.until(lambda: ear.out == b"1\n2\n3\n" * 3)


class Spy:
    """Records what is written to a transport."""

    def __init__(self, transport, written):
        self._transport = transport
        self._written = written

    def write(self, data):
        self._written.append(data)
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


def busy_until_children_are_gone(before):
    """Keep the event loop busy until asyncio's thread has reaped the child."""
    with suppress(TimeoutError):
        wait_until(lambda: not children() - before, 10)


class TestStart:
    async def test_environment_and_folder_are_those_given(self, tmp_path):
        """Nothing of our own environment is added."""
        code = "import os; print(sorted({*os.environ} - {'LC_CTYPE'}), os.getcwd(), flush=True)"
        command = program(code, env={"GIVEN": "1"}, cwd=str(tmp_path))
        async with started(command) as (_, ear):
            assert await ear.end() == 0
            text = ear.out.decode()
        assert "['GIVEN', 'PATH']" in text  # LC_CTYPE is set by Python itself
        assert str(tmp_path.resolve()) in text

    async def test_what_cannot_start_is_named(self, tmp_path):
        """Each reason has its own error text, and nothing is left running or open."""
        plain = tmp_path / "plain"
        plain.write_text("#!/bin/sh\n")
        script = tmp_path / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        junk = tmp_path / "junk"
        junk.write_bytes(b"\0\1\2\3")
        junk.chmod(0o755)
        ok = sys.executable
        cases = [
            (Command([str(tmp_path / "gone")], {}), CLINotFoundError, "gone"),
            (Command([str(script)], {}), CLIConnectionError, "script"),
            (Command([str(plain)], {}), CLIConnectionError, "No permission to execute"),
            (Command([str(junk)], {}), CLIConnectionError, "Exec format error|Failed to start"),
            (Command([str(tmp_path)], {}), CLIConnectionError, "No permission to execute"),
            (Command([ok], {}, str(tmp_path / "nowhere")), CLIConnectionError, "does not exist.*nowhere"),
            (Command([ok], {}, str(plain)), CLIConnectionError, "plain"),
            (Command([ok, "x" * 3_000_000], {}), CLIConnectionError, "too large"),
            (Command([ok, "a\0b"], {}), CLIConnectionError, "null byte"),
        ]
        before = children(), descriptors()
        for command, kind, words in cases:
            ear = Ear()
            pipe = process_pipe(command)
            with anyio.fail_after(LIMIT), pytest.raises(kind, match=words):
                await pipe.open(ear)
            assert ear.ends == []
        await settled(*before)

    async def test_a_user_that_does_not_exist_is_named(self):
        """An unknown user is a connection error that names it, at once."""
        pipe = process_pipe(program("pass", user="no-such-user-here"))
        with anyio.fail_after(LIMIT), pytest.raises(CLIConnectionError, match="no-such-user-here"):
            await pipe.open(Ear())

    async def test_too_many_open_files_is_a_connection_error(self, monkeypatch):
        """When the system has no descriptors left the error is ours."""

        def exhausted():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(os, "pipe", exhausted)
        with anyio.fail_after(LIMIT), pytest.raises(CLIConnectionError, match="Too many open files"):
            await process_pipe(program("pass")).open(Ear())

    async def test_stop_after_a_failed_start(self, tmp_path):
        """Stopping what never started returns at once and raises nothing."""
        pipe = process_pipe(Command([str(tmp_path / "gone")], {}))
        with anyio.fail_after(LIMIT), pytest.raises(CLINotFoundError):
            await pipe.open(Ear())
        with anyio.fail_after(2):
            pipe.write(b"x\n")
            pipe.end_input()
            await pipe.drain()
            await pipe.stop()
            pipe.kill()

    async def test_stop_after_a_start_with_an_unforeseen_error(self):
        """Whatever went wrong while starting: stopping returns at once."""
        pipe = process_pipe(program("pass", user="no-such-user-here"))
        with anyio.fail_after(LIMIT), pytest.raises(Exception, match="no-such-user-here"):
            await pipe.open(Ear())
        with anyio.fail_after(2):
            await pipe.stop()

    async def test_cancelled_at_any_step_of_the_start(self, caplog):
        """A start that is cancelled leaves neither process nor descriptor, and logs no error."""
        async with started(program("pass")) as (_, ear):
            await ear.end()
        before = children(), descriptors()
        with caplog.at_level(logging.WARNING):
            for steps in range(10):
                with anyio.fail_after(LIMIT):
                    async with anyio.create_task_group() as group:
                        group.start_soon(start_and_stop, process_pipe(program(CAT)))
                        for _ in range(steps + 1):
                            await checkpoint()
                        group.cancel_scope.cancel()
        await settled(*before)
        assert caplog.text == ""


async def start_and_stop(pipe):
    """Start a process as a session does: stop() follows every start, however it went."""
    try:
        await pipe.open(Ear())
        await anyio.sleep_forever()
    finally:
        await pipe.stop()


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_listener_that_fails_does_not_close_the_pipe(uvloop):
    """The event loop's exception handler gets the error, and later output still arrives."""
    if uvloop:
        pytest.importorskip("uvloop")

    async def main():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        async with started(program(CAT)) as (pipe, ear):
            usual = ear.data_received

            def failing(data):
                ear.data_received = usual
                raise ValueError("not today")

            pipe.write(b"before\n")
            await ear.until(lambda: ear.out == b"before\n")
            ear.data_received = failing
            pipe.write(b"lost\n")
            while not told:
                await checkpoint()
            pipe.write(b"after\n")
            await ear.until(lambda: ear.out.endswith(b"after\n"))
            pipe.end_input()
            assert await ear.end() == 0
        assert [str(each) for each in told] == ["not today"]

    anyio.run(main, backend_options={"use_uvloop": uvloop})
