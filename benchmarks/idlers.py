"""A program that opens many connections to a server and keeps them silent until its stdin is closed.

`idlers.py PORT COUNT [again]`. It prints a line when all connections are open. With `again`, a connection that the
server closes is opened again, at most a thousand per second.
"""

import contextlib
import errno
import resource
import selectors
import socket
import sys
import time

PATIENCE = 60.0  # seconds within which all connections must be open
AT_ONCE = 200  # the most connections that are being opened at the same time
PAUSE = AT_ONCE / 1_000


class Idlers:
    """A set of silent connections, with counts of those being opened and those opened so far."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._events = selectors.DefaultSelector()
        self.opening = 0
        self.opened = 0

    def connect(self) -> None:
        """Start to open one connection."""
        connection = socket.socket()
        connection.setblocking(False)
        if connection.connect_ex(("127.0.0.1", self._port)) not in {0, errno.EINPROGRESS}:
            connection.close()
            return
        self._events.register(connection, selectors.EVENT_WRITE)
        self.opening += 1

    def poll(self, seconds: float) -> int:
        """Wait for events on the connections. Returns how many connections the server has closed."""
        closed = 0
        for key, events in self._events.select(seconds):
            connection = key.fileobj
            if events & selectors.EVENT_WRITE:
                self.opening -= 1
                self.opened += 1
                self._events.modify(connection, selectors.EVENT_READ)
            else:
                self._events.unregister(connection)
                connection.close()  # type: ignore[union-attr] - it is a socket
                closed += 1
        return closed

    def stdin_ended(self) -> bool:
        """True if stdin was closed, after which the connections are no longer needed."""
        with selectors.DefaultSelector() as events:
            events.register(sys.stdin, selectors.EVENT_READ)
            return bool(events.select(0))


def main(port: int, count: int, again: bool) -> None:
    """Open the connections, print `open`, and keep them until stdin is closed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idlers, deadline = Idlers(port), time.monotonic() + PATIENCE
    begun = 0
    while idlers.opened < count:
        while begun < count and idlers.opening < AT_ONCE:
            idlers.connect()
            begun += 1
        idlers.poll(1.0)
        if time.monotonic() > deadline:
            sys.exit(f"only {idlers.opened} of {count} connections were opened within {PATIENCE:.0f} s")
    sys.stdout.write("open\n")
    sys.stdout.flush()
    while not idlers.stdin_ended():
        closed = idlers.poll(0.1)
        if again:
            for _ in range(min(closed, AT_ONCE)):
                idlers.connect()
            time.sleep(PAUSE)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(int(sys.argv[1]), int(sys.argv[2]), "again" in sys.argv[3:])
