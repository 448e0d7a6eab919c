"""A journal in a process that is not killed, and connections to it from processes that are killed."""

import json
import os
import socket
import socketserver
import threading
import time
from collections import Counter


class Journal:
    """A server that records what the processes write to it, as long as the test runs."""

    def __init__(self):
        self.entries = []
        self._lock = threading.Lock()
        journal = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    for line in self.rfile:
                        entry = json.loads(line)
                        with journal._lock:
                            journal.entries.append({**entry, "at": time.monotonic()})
                        self.wfile.write(b"ok\n")
                        self.wfile.flush()
                except (OSError, ValueError):  # the process was killed, perhaps in the middle of a line
                    pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def of(self, event):
        with self._lock:
            return [each for each in self.entries if each["event"] == event]

    def asked(self):
        """Return how often the model was asked, by key."""
        return Counter(each["key"] for each in self.of("asked"))


class JournalLine:
    """A connection to the journal. When `write` returns, the journal has the entry."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._file = self._socket.makefile("rwb")
        self._lock = threading.Lock()

    def write(self, **entry):
        with self._lock:
            self._file.write(json.dumps({"pid": os.getpid(), **entry}).encode() + b"\n")
            self._file.flush()
            if self._file.readline() != b"ok\n":
                raise ConnectionError("the journal is gone")
