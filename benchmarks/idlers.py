"""Run as a program: opens many connections to a server and says nothing on them, until stdin ends.

`idlers.py PORT COUNT [again]`. It prints a line when all have been opened. With `again`, a connection that the
server closes is opened anew, a thousand in a second at most.
"""

import contextlib
import errno
import resource
import selectors
import socket
import sys
import time

PATIENCE = 60.0  # seconds that all of them may take to be opened
AT_ONCE = 200  # connections that are being opened
PAUSE = AT_ONCE / 1_000


class Idlers:
    """Connections that are being opened, and those that are open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._events = selectors.DefaultSelector()
        self.opening = 0
        self.opened = 0

    def connect(self) -> None:
        """Begin to open one."""
        wire = socket.socket()
        wire.setblocking(False)
        if wire.connect_ex(("127.0.0.1", self._port)) not in {0, errno.EINPROGRESS}:
            wire.close()
            return
        self._events.register(wire, selectors.EVENT_WRITE)
        self.opening += 1

    def look(self, seconds: float) -> int:
        """Wait for something to happen. How many connections have been closed by the server."""
        closed = 0
        for key, events in self._events.select(seconds):
            wire = key.fileobj
            if events & selectors.EVENT_WRITE:
                self.opening -= 1
                self.opened += 1
                self._events.modify(wire, selectors.EVENT_READ)
            else:
                self._events.unregister(wire)
                wire.close()  # type: ignore[union-attr] - it is a socket
                closed += 1
        return closed

    def ended(self) -> bool:
        """Whether stdin has ended; from then on nobody needs them."""
        with selectors.DefaultSelector() as events:
            events.register(sys.stdin, selectors.EVENT_READ)
            return bool(events.select(0))


def main(port: int, count: int, again: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idlers, deadline = Idlers(port), time.monotonic() + PATIENCE
    begun = 0
    while idlers.opened < count:
        while begun < count and idlers.opening < AT_ONCE:
            idlers.connect()
            begun += 1
        idlers.look(1.0)
        if time.monotonic() > deadline:
            sys.exit(f"only {idlers.opened} connections after {PATIENCE:.0f} s")
    sys.stdout.write("open\n")
    sys.stdout.flush()
    while not idlers.ended():
        closed = idlers.look(0.1)
        if again:
            for _ in range(min(closed, AT_ONCE)):
                idlers.connect()
            time.sleep(PAUSE)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(int(sys.argv[1]), int(sys.argv[2]), "again" in sys.argv[3:])
