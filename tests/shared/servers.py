"""Real Postgres and Redis servers for tests, started on loopback and ended by the tests themselves.

They come from Debian's packages (`.ci/run` installs them). Where there are none, tests that need one are
skipped with a line that says so; in CI that is a failure.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import pytest

START_SECONDS = 60
_INITDB = ("-E", "UTF8", "--locale=C.UTF-8", "--no-sync")


def require(found, package):
    """Skip the test if a program was not found, or fail it in CI."""
    if found:
        return
    missing = f"needs Debian's package {package}, which is not installed"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def find_postgres():
    """Return the folder with the programs of the newest Postgres, or None."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -int(folder.parent.name))
    on_path = [Path(folder) for folder in os.get_exec_path()]
    needed = ("initdb", "postgres", "pg_isready", "createdb")
    return next(
        (each for each in [*debian, *on_path] if all((each / name).exists() for name in needed)), None
    )


def find_redis():
    """Return the path of `redis-server`, or None."""
    return shutil.which("redis-server")


def free_port():
    """Return a port of loopback that nothing listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class _Server:
    """A server process with a folder of its own, which is kept if it is killed and started again."""

    def __init__(self):
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="toolwire-server-"))
        self.process = None

    def command(self):
        raise NotImplementedError

    def answers(self):
        raise NotImplementedError

    def start(self):
        """Start the server and wait until it answers."""
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, **self.user()
            )
        until = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return self

    def kill(self):
        """End the server as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """End the server and remove its folder."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # Postgres ends at once, without waiting for its clients
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def user(self):
        return {}

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exc):
        self.stop()


class PostgresServer(_Server):
    """A cluster of its own, run by a plain user: Postgres refuses to run as root."""

    def __init__(self):
        super().__init__()
        self._bin = find_postgres()
        data = self.folder / "data"
        if os.getuid() == 0:
            shutil.chown(self.folder, **self.user())
        made = subprocess.run(
            [self._bin / "initdb", "-D", data, "-U", "toolwire", "-A", "trust", *_INITDB],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            cwd=self.folder,
            **self.user(),
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr}")

    def user(self):
        if os.getuid() != 0:
            return {}
        names = {each.pw_name for each in pwd.getpwall()}
        user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
        return {"user": user.pw_uid, "group": user.pw_gid}

    def command(self):
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",  # a killed server loses nothing that the kernel has
            "max_connections": "200",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options]

    def answers(self):
        return not subprocess.run(
            [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        ).returncode

    def kill(self):
        """End the server as a crash would, and wait for its children, which then end by themselves."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        super().kill()
        until = time.monotonic() + START_SECONDS
        while any(Path(f"/proc/{child}").exists() for child in children):
            if time.monotonic() > until:
                raise RuntimeError(f"children of a killed Postgres still run: {children}")
            time.sleep(0.01)

    def create_database(self):
        """Create an empty database, and return its URL."""
        name = f"test_{uuid.uuid4().hex}"
        done = subprocess.run(
            [self._bin / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "toolwire", name],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"createdb failed: {done.stderr}")
        return f"postgresql://toolwire@127.0.0.1:{self.port}/{name}"


class RedisServer(_Server):
    """A Redis server whose data is on disk after every write, in a folder of its own."""

    def command(self):
        settings = {"--bind": "127.0.0.1", "--port": str(self.port), "--dir": str(self.folder)}
        settings |= {"--appendonly": "yes", "--appendfsync": "always", "--save": "", "--databases": "64"}
        return [find_redis(), *(word for each in settings.items() for word in each)]

    def answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as peer:
            peer.sendall(b"PING\r\n")
            return peer.recv(16).startswith(b"+PONG")
        return False

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"


@pytest.fixture(scope="session")
def postgres_server():
    """Start a Postgres for the tests of this process."""
    require(find_postgres(), "postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server):
    """Create an empty database in a real Postgres, and return its URL."""
    return postgres_server.create_database()


@pytest.fixture(scope="session")
def redis_server():
    """Start a Redis for the tests of this process. It has 64 databases: `/0` to `/63` of its URL."""
    require(find_redis(), "redis-server")
    with RedisServer() as server:
        yield server
