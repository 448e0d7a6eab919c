"""Private files: nobody else reads them, nothing is left of them, nothing else is removed."""

import gc
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from toolwire import CLIConnectionError
from toolwire._transport.private_files import PREFIX, PrivateFiles, sweep

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="modes and locks of POSIX"),
    pytest.mark.process,
]
DEADLINE = 30
HOLDER = """
import os, sys, time
from toolwire._transport.private_files import PrivateFiles
files = PrivateFiles()
print(files.add("a.json", "secret"), flush=True)
if sys.argv[1:] == ["fork"] and os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
if sys.argv[1:] == ["exit"]:
    sys.exit()
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Use a temporary directory of its own for each test, and return it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left(place):
    return [entry.name for entry in place.iterdir()]


def start(place, *how):
    """Start another program that holds a private file; return it and the path of that file."""
    command = [sys.executable, "-c", HOLDER, *how]
    program = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(place)}
    )
    return program, Path(program.stdout.readline().strip())


def test_only_the_owner_can_read(place):
    """The file has mode 0600, the folder 0700, whatever the umask."""
    before = os.umask(0)
    try:
        files = PrivateFiles()
        path = Path(files.add("a.json", "sécret"))
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "sécret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.parent.parent == place
    files.remove()
    assert left(place) == []


def test_one_by_one_and_again(place):
    """The last file takes the folder along; afterwards files can be added again."""
    files = PrivateFiles()
    first, second = Path(files.add("a", "1")), Path(files.add("b", "2"))
    files.remove("a")
    files.remove("not there")
    assert (first.exists(), second.exists()) == (False, True)
    files.remove("b")
    assert left(place) == []
    third = Path(files.add("a", "3"))
    assert third.read_text() == "3"
    files.remove()
    files.remove()
    assert left(place) == []


def test_no_descriptor_is_left():
    """None is left after removal, nor when the object is forgotten."""
    before = len([*Path("/dev/fd").iterdir()])
    for _ in range(20):
        files = PrivateFiles()
        files.add("a", "1")
        files.remove()
        PrivateFiles().add("a", "1")  # forgotten
    gc.collect()
    assert len([*Path("/dev/fd").iterdir()]) == before


def test_files_that_nobody_removed_are_gone_with_the_program(place):
    """Garbage collection and the end of Python remove them."""
    PrivateFiles().add("a", "1")
    gc.collect()
    assert left(place) == []
    program, path = start(place, "exit")
    with program:
        assert program.wait(DEADLINE) == 0
    assert not path.exists()
    assert left(place) == []


def test_the_next_start_sweeps_what_a_killed_program_left(place):
    """It leaves alone the files of living programs, this one included."""
    own = PrivateFiles()
    mine = Path(own.add("a", "1"))
    dead, dead_path = start(place)
    living, living_path = start(place)
    with dead, living:
        try:
            dead.kill()
            dead.wait(DEADLINE)
            assert dead_path.exists()
            sweep(str(place))
            assert (dead_path.parent.exists(), living_path.exists(), mine.exists()) == (False, True, True)
        finally:
            living.kill()
    own.remove()
    code = "from toolwire._transport.private_files import PrivateFiles; PrivateFiles().add('a', '1')"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(place)}, check=True)
    assert left(place) == []  # the file of `living` went at that start


def test_a_forked_child_holds_nothing(place):
    """When its parent is killed, a sweep removes the files although the child lives; before that they stay."""
    program, path = start(place, "fork")
    child = int(program.stdout.readline())
    with program:
        try:
            program.kill()
            program.wait(DEADLINE)
            assert path.exists()
            sweep(str(place))
            assert left(place) == []
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_ends_leaves_the_files_to_the_parent(place):
    """This holds also when it ends as Python programs do, with all exit handlers; it can have files of its own."""
    code = """
import os, sys
from pathlib import Path
from toolwire._transport.private_files import PrivateFiles
files = PrivateFiles()
path = Path(files.add("a", "1"))
if child := os.fork():
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.exists()
else:
    files.remove()
    other = Path(files.add("b", "2"))
    assert path.exists() and other.parent != path.parent
sys.exit()
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(place)}, check=True)
    assert left(place) == []


def test_nothing_else_is_swept(place, tmp_path):
    """Links are not followed; folders of another mode, files and folders with more in them than files stay."""
    treasure = tmp_path / "treasure"
    treasure.mkdir(mode=0o700)
    (treasure / "gold").touch()
    (place / f"{PREFIX}link").symlink_to(treasure)
    open_to_all = place / f"{PREFIX}open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "gold").touch()
    (place / f"{PREFIX}file").touch()
    (place / "toolwire-abcdefgh").mkdir(mode=0o700)
    deep = place / f"{PREFIX}deep"
    (deep / "folder").mkdir(parents=True)
    deep.chmod(0o700)
    inside = place / f"{PREFIX}inside"
    inside.mkdir(mode=0o700)
    (inside / "link").symlink_to(treasure / "gold")
    before = set(left(place))
    sweep(str(place))
    assert (treasure / "gold").exists()
    assert (open_to_all / "gold").exists()
    assert before - set(left(place)) == {inside.name}
    sweep(str(place / "nowhere"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and start a CLI as another user")
def test_another_user_can_read_them_and_no_third_one(monkeypatch):
    """A CLI that runs as another user can read its files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        files = PrivateFiles(user=65_534)
        path = files.add("a", "secret")
        read, look = ["/bin/cat", path], ["/bin/ls", str(Path(path).parent)]
        assert subprocess.run(read, user=65_534, capture_output=True, check=True).stdout == b"secret"
        for command in (read, look):
            assert subprocess.run(command, user=65_533, capture_output=True, check=False).returncode != 0
        files.remove()
        assert left(place) == []


def test_where_nothing_can_be_written(monkeypatch, tmp_path):
    """The error says what to do."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(CLIConnectionError, match="TMPDIR"):
        PrivateFiles().add("a", "1")


def test_many_at_once_with_sweepers(place):
    """Programs that start at the same time do not take each other's files."""
    code = """
import sys
from pathlib import Path
from toolwire._transport.private_files import PrivateFiles, sweep
for _ in range(200):
    files = PrivateFiles()
    path = Path(files.add("a", "1"))
    sweep(sys.argv[1])
    assert path.read_text() == "1"
    files.remove()
"""
    environment = {**os.environ, "TMPDIR": str(place)}
    programs = [subprocess.Popen([sys.executable, "-c", code, str(place)], env=environment) for _ in range(4)]
    deadline = time.monotonic() + 90
    assert [program.wait(deadline - time.monotonic()) for program in programs] == [0] * 4
    assert left(place) == []
