"""Run as a program: opens many connections to a server, says nothing on them, and holds them until stdin ends.

Prints a line when all are open, or have been closed by the server. Usage: idlers.py PORT COUNT
"""

import contextlib
import errno
import resource
import select
import socket
import sys
import time

PATIENCE = 60
_AT_ONCE = 200


def main(port, count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held, deadline = [], time.monotonic() + PATIENCE
    while len(held) < count:
        batch = [_connecting(port) for _ in range(min(_AT_ONCE, count - len(held)))]
        waiting = {each.fileno(): each for each in batch}
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLOUT)
        while waiting:
            if time.monotonic() > deadline:
                sys.exit(f"only {len(held)} connections after {PATIENCE} s")
            for number, _ in poll.poll(1_000):
                poll.unregister(number)
                del waiting[number]
        held += batch
    sys.stdout.write("open\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()


def _connecting(port):
    each = socket.socket()
    each.setblocking(False)
    if each.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
        sys.exit("cannot connect")
    return each


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
