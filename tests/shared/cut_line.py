"""A proxy to a server on loopback that cuts a connection at a chosen word, before or after the server got it."""

import contextlib
import select
import socket
import threading


class CutLine:
    """A proxy to a port. `cut(word, heard=...)` cuts the next connection on which a client sends the word.

    If `heard`, the server gets the word and its reply is lost; else the server never gets it. With `away` no new
    connection gets through afterwards, until `mend`.
    """

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._plan = None
        self.cuts = 0
        self._away = False
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, word, *, heard, away=False):
        self._plan = (word, heard, away)

    def mend(self):
        self._away = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._away:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._open += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client, server):
        with contextlib.suppress(OSError, ValueError), client, server:
            while True:
                for source in select.select([client, server], [], [], 60)[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is server:
                        client.sendall(data)
                        continue
                    word, heard, away = self._plan or (None, False, False)
                    if word is None or word not in data:
                        server.sendall(data)
                        continue
                    self._plan, self._away = None, away
                    self.cuts += 1
                    if heard:
                        server.sendall(data)
                        server.recv(65536)  # the reply, which is lost
                    return
