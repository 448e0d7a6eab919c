"""Several worker processes behind one port: how they start and end."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.served import Http
from toolwire.cli.serve import _Worker, metrics_folder, worker_command

ENDING = {
    "code": -32000,
    "message": "the server is shutting down: the request was cancelled before it was done",
}
APP = '''
import os, sys
import anyio
from toolwire import ToolServer

app = ToolServer("app")


@app.tool
async def wait() -> str:
    """Wait for a long time."""
    print("waiting", os.getpid(), file=sys.stderr, flush=True)
    await anyio.sleep(600)
    return "waited"
'''


@pytest.fixture
def folder(tmp_path):
    """A folder with an app in it."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def serve(folder, drain):
    """Serve with two processes, by a command line with options before the target."""
    options = ("--workers", "2", "--drain", drain)
    return Http(*options, "--", "app.py", cwd=folder, env={"TMPDIR": str(folder)})


def test_a_second_signal_ends_the_wait(folder):
    """So a user need not wait for running calls, which get an error; no metrics folder is left behind."""
    with serve(folder, 600) as served, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.ask, "tools/call", {"name": "wait"})
        served.expect("waiting")
        served.signal()
        served.signal(signal.SIGINT)
        assert asked.result(20) == ENDING
        assert served.wait(20) == 0
    assert list(folder.glob("toolwire-metrics-*")) == []


def test_workers_end_with_a_parent_that_was_killed(folder):
    """No process is left that holds the port or serves clients."""
    with serve(folder, 0) as served, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.ask, "tools/call", {"name": "wait"})
        served.expect("waiting")
        served.signal(signal.SIGKILL)
        assert asked.result(20) == ENDING
        assert served.wait(20) == -signal.SIGKILL  # and no other process holds its stderr


def test_a_file_beside_the_target_may_be_called_like_a_module_of_python(folder):
    """Workers import Python's own email, as their parent does."""
    (folder / "email.py").write_text("raise RuntimeError('not this one')")
    command = [sys.executable, "-P", "-m", "toolwire", "serve", "--http", "--port", "0", "--workers", "2"]
    with Http(command=[*command, "app.py"], cwd=folder, env={"TMPDIR": str(folder)}) as served:
        assert [tool["name"] for tool in served.ask("tools/list")["tools"]] == ["wait"]


@pytest.mark.skipif(sys.platform != "linux", reason="the lifeline is a pipe on Linux only")
def test_a_worker_that_cannot_be_started_leaves_no_descriptor():
    """Both ends of its lifeline are closed."""
    given = []

    def fail(lifeline):
        given.extend(lifeline._ends)
        raise BlockingIOError(11, "no more processes")

    with pytest.raises(BlockingIOError):
        _Worker(fail)
    assert len(given) == 2
    for descriptor in given:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_options_of_a_worker_come_before_a_double_dash():
    """After the dash they would be taken for a second target."""
    command = worker_command(["serve", "--http", "--workers", "2", "--", "app.py"], 7)
    assert command == [
        *(sys.executable, "-P", "-m", "toolwire", "serve", "--fd", "7", "--stateless"),
        *("--http", "--workers", "2", "--", "app.py"),
    ]


def test_stale_metrics_folders_are_removed(tmp_path, monkeypatch):
    """Only folders of servers that have ended are removed, not those of running servers or their workers."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "toolwire-metrics-left"
    left.mkdir()
    (left / "counter_1.db").write_bytes(b"x")
    with metrics_folder() as (mine, lock):
        assert not left.exists()
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
        with metrics_folder() as (other, _):
            assert mine.is_dir()
            assert mine != other
    assert list(tmp_path.iterdir()) == []
    child.communicate(b"\n", timeout=20)
