"""Runs a program on a real terminal, reads what it shows, and types.

    with Terminal([sys.executable, "-m", "toolwire", "run", ...], cwd=folder, env={...}) as terminal:
        terminal.expect("> ")
        terminal.send("add a=1 b=2\n")
        terminal.expect(r"returned: 3")
        assert terminal.wait() == 0

Every wait has a deadline. Escape sequences are removed from what is shown; what a carriage return or a movement of
the cursor would have overwritten is still there. `raw` has everything. POSIX only.
"""

import errno
import os
import pty
import re
import select
import signal
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\-_=>])")


def plain(text):
    """Return the text without escape sequences."""
    return ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


class Terminal:
    """A process with a terminal of its own as stdin, stdout and stderr."""

    def __init__(self, argv, cwd, env, size=(80, 24), timeout=30):
        import fcntl  # noqa: PLC0415 - POSIX only
        import termios  # noqa: PLC0415

        self._timeout = timeout
        self._seen = 0
        self._bytes = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(
                signal.SIGINT, signal.SIG_DFL
            )  # as on a terminal, though the tests may run in the background

        self.process = subprocess.Popen(
            list(map(str, argv)),
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=own_terminal,  # noqa: PLW1509 - before any thread of the child
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=self._timeout)
        os.close(self._master)

    @property
    def raw(self):
        """Everything that was shown, with escape sequences."""
        return self._bytes.decode(errors="replace")

    def screen(self):
        """Return everything that was shown, without escape sequences."""
        return plain(self.raw)

    def expect(self, pattern, timeout=None):
        """Wait for a text or regular expression after the last match, and return the match."""
        wanted = pattern if isinstance(pattern, re.Pattern) else re.compile(re.escape(pattern))
        deadline = time.monotonic() + (timeout or self._timeout)
        while True:
            found = wanted.search(self.screen(), self._seen)
            if found is not None:
                self._seen = found.end()
                return found
            if not self._read(deadline):
                rest = self.screen()[self._seen :]
                raise AssertionError(
                    f"{wanted.pattern!r} did not come; the screen after the last match:\n{rest}"
                )

    def send(self, text):
        """Type something; Ctrl-C is `\\x03`, Ctrl-D `\\x04`."""
        os.write(self._master, text.encode())

    def wait(self, timeout=None):
        """Read until the program has ended, and return its exit code."""
        deadline = time.monotonic() + (timeout or self._timeout)
        while self._read(deadline):
            pass
        return self.process.wait(timeout=max(deadline - time.monotonic(), 0.1))

    def idle(self, timeout=None):
        """Wait until the program's main thread sleeps.

        A Ctrl-C in the instant between readline's prompt and its wait for a key is noticed at the next key only;
        a test is quick enough for that, a person is not.
        """
        deadline = time.monotonic() + (timeout or self._timeout)
        stat = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, "the program does not rest"

    def _read(self, deadline):
        """Wait for more output; return False if the program has ended or the deadline has passed."""
        with suppress(InterruptedError):
            ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                return False
        try:
            data = os.read(self._master, 65536)
        except OSError as error:  # Linux raises EIO when the last program has left the terminal
            if error.errno != errno.EIO:
                raise
            return False
        self._bytes += data
        return bool(data)
