"""A paid API that misbehaves: it charges any amount, is slow, cuts connections, and keeps its own records.

`with Shark() as api:` runs it in a thread; any number of connections at once. `sold` has every order that was
charged, even if its response was lost.
"""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

MICROS = 1_000_000
_DRIP = 0.02

FAULTS = {
    "unread": "a reset before any of the order is read; nothing is charged",
    "head": "a reset when the headers were read; nothing is charged",
    "before": "the connection ends when the whole order was read; nothing is charged",
    "after": "the same, and it is charged",
    "hang": "no answer until the caller leaves; nothing is charged",
    "hang after": "the same, and it is charged",
    "charged 500": "that status, and it is charged; any other status works too",
    "429": "that status, and nothing is charged; any other status works too",
    "302": "a redirect, and nothing is charged",
    "half": "half of the reply; the same as `cut 5`",
    "cut 3": "three tenths of the reply, from its first byte on; 0 to 9 work",
    "garbage": "a reply that says that it is JSON and is not",
    "html": "a reply that is no JSON and says so",
    "huge": "a reply of 300,000 bytes",
    "drip": "a reply that comes byte by byte, more slowly than anybody waits",
}
"""What `spoil` may answer; "" is no fault. From `half` on it is charged."""


@dataclass
class Sold:
    """One charged order. `key` is the caller's id for it; `told` is the cost that the reply states."""

    id: str
    arguments: dict
    micros: int
    key: str
    answered: bool = False
    """Whether all of a good reply was given to the system to send."""
    told: int | None = None


@dataclass
class Arrived:
    """One order that was read, charged or not, in the order of arrival."""

    id: str
    arguments: dict
    key: str
    at: float


@dataclass
class Shark:
    """The API. `charge(id, number)` is the cost of an order in micros; `items` has prices in dollars, or None."""

    items: list = field(default_factory=lambda: [("1", "weather", 0.01)])
    charge: Callable[[str, int], int] = lambda _id, _number: 10_000
    tells_cost: bool = True
    delay: float = 0.0
    reply: dict = field(default_factory=dict)
    """More of each reply, or other values in it."""
    idempotent: bool = False
    spoil: Callable[[int], str] = lambda _number: ""
    """What goes wrong with an order, by its number: one of `FAULTS`, or ""; but see `refuse`."""
    refuse: Callable[[int], str] = lambda _number: ""
    """What goes wrong with a connection before its order is read, by its number: "", unread, head, or close."""
    on_list: Callable[[], None] = lambda: None

    def __post_init__(self):
        self.sold: list[Sold] = []
        self.arrived: list[Arrived] = []
        self.orders = 0
        self.lists = 0
        self.connections = 0
        self.connected = 0
        self.refused = threading.Semaphore(0)
        """Released each time that a connection was ended by `refuse`."""
        self.open = 0
        self.most_open = 0
        self.balance = 1000 * MICROS

    @property
    def taken(self):
        """The sum of all charges, in micros."""
        return sum(each.micros for each in self.sold)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self):
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def serve():
            await self._listen()
            ready.set()

        def run():
            self._loop.run_until_complete(serve())
            self._loop.run_forever()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.01))
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @contextmanager
    def away(self):
        """Refuse connections for a while."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        yield
        asyncio.run_coroutine_threadsafe(self._listen(self._port), self._loop).result(10)

    async def _listen(self, port=0):
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", port, backlog=1000)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self):
        self._server.close()

    async def _connection(self, reader, writer):
        self.connections += 1
        self.connected += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self.connected -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader, writer):
        if (refused := self.refuse(self.connections)) in ("unread", "close"):
            if refused == "unread":
                await reader.read(1)
                _reset(writer)
            writer.close()
            await writer.wait_closed()
            self.refused.release()
            return
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        if refused == "head":
            _reset(writer)
            return
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if lines[0].startswith("GET"):
            await _write(writer, 200, json.dumps(self._page()).encode())
            return
        self.orders += 1
        number, order = self.orders, json.loads(body)
        key = headers.get("idempotency-key", "")
        self.arrived.append(Arrived(order["product_id"], order.get("parameters", {}), key, time.time()))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            spoilt = self.spoil(number)
            if spoilt.startswith("hang"):
                if spoilt == "hang after":
                    self._sell(order, number, key)
                await reader.read()
                return
            status, data, sold = await self._answer(order, number, key, spoilt)
        finally:
            self.open -= 1
        if data is not None:
            await self._reply(writer, spoilt, status, data, sold)

    def _page(self):
        self.lists += 1
        self.on_list()
        tools = [
            {"function": {"name": entry, "description": f"{name} — What it does", "parameters": {}}}
            | ({} if price is None else {"price": price})
            for entry, name, price in self.items
        ]
        return {"success": True, "tools": tools, "details": {"has_next_page": False}}

    def _sell(self, order, number, key):
        """Charge an order; if the API is idempotent, only once for each key."""
        known = next((each for each in self.sold if self.idempotent and key and each.key == key), None)
        if known is None:
            known = Sold(
                order["product_id"],
                order.get("parameters", {}),
                self.charge(order["product_id"], number),
                key,
            )
            self.sold.append(known)
            self.balance -= known.micros
        return known

    async def _answer(self, order, number, key, spoilt):
        """Return status and data of the reply (data None to hang up), and what was sold if the reply says so."""
        if spoilt == "before":
            return 200, None, None
        if spoilt.isdecimal():
            return int(spoilt), {"success": False, "error": f"status {spoilt}"}, None
        known = self._sell(order, number, key)
        await asyncio.sleep(self.delay)
        if spoilt == "after":
            return 200, None, None
        if spoilt.startswith("charged "):
            return int(spoilt.split()[1]), {"success": False, "error": spoilt}, None
        told = {"cost": known.micros / MICROS} if self.tells_cost else {}
        if spoilt == "huge":
            told["more"] = "x" * 300_000
        return (
            200,
            {"success": True, "result": "done", "balance": self.balance / MICROS, **told, **self.reply},
            known,
        )

    async def _reply(self, writer, spoilt, status, data, sold):
        content = json.dumps(data).encode()
        if spoilt == "garbage":
            await _write(writer, 200, b'{"success": tru\x00\xff garbage')
        elif spoilt == "html":
            await _write(writer, 200, b"<html>" + content + b"</html>", kind="text/html")
        elif spoilt == "drip":
            await _write(writer, 200, content, cut=0.0, pause=_DRIP)
        elif spoilt == "half" or spoilt.startswith("cut "):
            await _write(writer, 200, content, cut=0.5 if spoilt == "half" else int(spoilt[4:]) / 10)
        else:
            if sold is not None and spoilt != "huge":
                sold.told = sold.micros if self.tells_cost else None
                sold.answered = True
            await _write(writer, status, content)


async def _write(writer, status, content, *, kind="application/json", cut=1.0, pause=0.0):
    """Write a reply, or the first part of it; with a pause, the rest byte by byte."""
    more = "Location: http://127.0.0.1:9/elsewhere\r\n" if status // 100 == 3 else ""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{more}"
    whole = head.encode() + b"Connection: close\r\n\r\n" + content
    sent = int(len(whole) * cut)
    writer.write(whole[:sent])
    await writer.drain()
    for byte in whole[sent:] if pause else b"":
        await asyncio.sleep(pause)
        writer.write(bytes([byte]))
        await writer.drain()


def _reset(writer):
    """End a connection abruptly: the caller sees "connection reset", not an orderly end."""
    if (connection := writer.get_extra_info("socket")) is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
