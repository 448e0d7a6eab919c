"""A process that was forked from ours neither keeps our CLIs alive after us, nor keeps them from being closed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from shared.waiting import wait_until
from toolwire._transport.find_cli import bundled_cli

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the lifeline and /proc are Linux"),
    pytest.mark.process,
]
DEADLINE = 30

# A CLI that answers initialize and prompts, ignores SIGTERM if told to, and writes to a file when its input ends.
CLI = f"""#!{sys.executable} -SE
import json, os, signal, sys
if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def tell(**frame):
    print(json.dumps(frame), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        body = {{"subtype": "success", "request_id": frame["request_id"], "response": {{"pid": os.getpid()}}}}
        tell(type="control_response", response=body)
    else:
        base = {{"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}}
        tell(type="result", session_id="s", result="hello", **base)
        tell(type="system", subtype="session_state_changed", state="idle", sdk_host_only=True)
open(os.environ["ENDED"], "a").write("end of input\\n")
"""

PROGRAM = """
import multiprocessing, os, sys, threading, time
import anyio
from toolwire import ClaudeAgentOptions, ClaudeSDKClient, run

how, backend, path = sys.argv[1:]
loop = {"backend": backend}
if backend == "uvloop":
    loop = {"backend": "asyncio", "backend_options": {"use_uvloop": True}}
options = ClaudeAgentOptions(cli_path=path, env=os.environ.copy(), inherit_env=False)

async def say_hi():
    print((await run("hi", options=options)).text, flush=True)

def own_client():
    # In a thread of its own: to trio and anyio, this one is still in the loop that it was forked in.
    thread = threading.Thread(target=anyio.run, args=[say_hi], kwargs=loop)
    thread.start()
    thread.join()

def fork(work):
    if how == "multiprocessing":
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        return child.pid
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child

async def main():
    async with ClaudeSDKClient(options) as client:
        cli = (await client.get_server_info())["pid"]
        if how == "own client":
            os.waitpid(fork(own_client), 0)
            await client.query("hi")
            async for message in client.receive_response():
                print(message.result, flush=True)
            return
        child = fork(lambda: time.sleep(600))
        print(cli, child, flush=True)
        if how != "close":
            time.sleep(600)

anyio.run(main, **loop)
print("closed", flush=True)
"""


@pytest.fixture
def cli(tmp_path):
    """Return the path of the CLI above."""
    program = tmp_path / "claude"
    program.write_text(CLI)
    program.chmod(0o755)
    return program


@pytest.fixture
def start(tmp_path):
    """Return a function that starts PROGRAM; whatever it started is killed at the end."""
    pids, programs = [], []

    def begin(*arguments, **env):
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "ENDED": str(tmp_path / "ended"), **env}
        program = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        return program

    def forked(program):
        found = [int(part) for part in program.stdout.readline().split()]
        assert len(found) == 2, "the program did not get that far"
        pids.extend(found)
        return found

    begin.forked = forked
    yield begin
    for program in programs:
        program.kill()
        program.wait()
        program.stdout.close()
    for pid in pids:
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    with suppress(TimeoutError):
        wait_until(lambda: not lives(pid), DEADLINE)
    return not lives(pid)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_the_cli_ends_with_a_killed_program_although_a_forked_worker_lives(start, cli, how, backend):
    """Whatever the worker inherited, it does not keep the CLI alive."""
    program = start(how, backend, cli)
    cli_pid, worker = start.forked(program)
    program.kill()
    program.wait(DEADLINE)
    assert ends(cli_pid)
    assert lives(worker)


@pytest.mark.real
def test_the_real_cli_ends_too(start, tmp_path):
    """The same with the real CLI, in the environment of the test kit."""
    from toolwire.testing import ClaudeEnvironment, ScriptedModel  # noqa: PLC0415

    with ScriptedModel([]) as model, ClaudeEnvironment(model) as env:
        program = start("os.fork", "asyncio", bundled_cli(), **env.env)
        cli_pid, worker = start.forked(program)
        program.kill()
        program.wait(DEADLINE)
        assert ends(cli_pid)
        assert lives(worker)


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_closing_is_gentle_although_a_forked_worker_lives(start, cli, backend, tmp_path):
    """The CLI sees the end of its input, although the worker inherited it: otherwise it would have been killed."""
    program = start("close", backend, cli, DEAF="1")
    _, worker = start.forked(program)
    assert program.stdout.readline() == "closed\n"
    assert (tmp_path / "ended").read_text() == "end of input\n"
    assert lives(worker)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_forked_child_can_have_a_client_of_its_own(start, cli, backend):
    """The child's client works, and the parent's goes on."""
    program = start("own client", backend, cli)
    assert program.stdout.read() == "hello\nhello\nclosed\n"


def test_a_worker_of_the_server_ends_with_its_parent():
    """`toolwire serve --workers` uses the same lifelines for its workers."""
    code = """
import os, subprocess, sys, time
from toolwire._transport.lifeline import Lifeline
lifeline = Lifeline()
worker = subprocess.Popen(["/bin/sleep", "600"], pass_fds=lifeline.inherit)
lifeline.hold(worker.pid)
child = os.fork()
if child:
    print(worker.pid, child, flush=True)
time.sleep(600)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with program:
        worker, child = map(int, program.stdout.readline().split())
        try:
            program.kill()
            program.wait(DEADLINE)
            assert ends(worker)
            assert lives(child)
        finally:
            os.kill(child, signal.SIGKILL)
            if lives(worker):
                os.kill(worker, signal.SIGKILL)


CLOSING = """
import os, subprocess, sys, threading
from toolwire._transport.private_files import PrivateFiles
from toolwire._transport.process import Command, ProcessPipe

at_fork, forked, seen = threading.Event(), threading.Event(), []
os.register_at_fork(before=at_fork.set)  # before ours, which takes the lock: the last one registered is first


def fork(number):
    child = os.fork()
    if child == 0:
        try:
            os.fstat(number)
        except OSError:
            os._exit(1)
        os._exit(0)
    forked.set()
    seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def reused(number):
    # Another thread opens a file, and a third one forks.
    assert os.open(os.devnull, os.O_RDONLY) == number
    thread = threading.Thread(target=fork, args=[number])
    thread.start()
    assert at_fork.wait(30)
    forked.wait(0.5)  # in vain, if it is right: the fork has to wait for us
    return thread


class Slow:
    def __init__(self, remove, number):
        self.remove, self.number, self.detach = remove, number, remove.detach

    def __call__(self):
        self.remove()
        self.thread = reused(self.number)


class Pipe(ProcessPipe):
    def _close_input(self): ...
    def _input_descriptor(self): ...


if sys.argv[1] == "private files":
    files = PrivateFiles()
    files.add("a", "text")
    slow = files._remove = Slow(files._remove, files._lock)
    files.remove()
    thread = slow.thread
else:
    process = subprocess.Popen(["/bin/sleep", "0"])
    pipe, threads, close = Pipe(Command([], {})), [], os.close
    pipe._on_started(process.pid)
    number = pipe._pidfd

    def slowly(descriptor):
        close(descriptor)
        if descriptor == number and not threads:
            threads.append(None)  # the child comes here too
            threads.append(reused(number))

    os.close = slowly
    pipe._on_gone()
    process.wait()
    thread = threads[1]
thread.join(30)
print(seen)
"""


@pytest.mark.parametrize("what", ["private files", "pidfd"])
def test_a_forked_child_closes_no_descriptor_that_has_become_anothers(what, tmp_path):
    """It is forked by another thread just when ours has closed a descriptor and its number is in use again."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLOSING, what],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[0]\n"
