"""A shop on loopback that answers at once: what is measured is its client.

It speaks as a catalogue's API does: `GET` lists 300 products, 50 a page; `POST` sells one. A connection is kept
open unless its client asks to close it. Its port is the first line that it writes; it ends with its input.
"""

import asyncio
import json
import sys

PRODUCTS = 300
PAGE = 50


def main() -> None:
    asyncio.run(serve())


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Till, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


class Till(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        self.rest += data
        head, found, body = self.rest.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(headers.get(b"content-length", 0))
        if len(body) < length:
            return
        self.rest = body[length:]
        method, path, _ = first.split(b" ")
        closing = headers.get(b"connection") == b"close"
        self.transport.write(_framed(SOLD if method == b"POST" else page(path.decode()), closing))
        if closing:
            self.transport.close()


def page(path: str) -> bytes:
    """One page of the list."""
    wanted = dict(each.split("=") for each in path.partition("?")[2].split("&"))
    first = (int(wanted["page"]) - 1) * PAGE
    products = [product(number) for number in range(first, min(first + PAGE, PRODUCTS))]
    return json.dumps({"items": products, "more": first + PAGE < PRODUCTS}).encode()


def product(number: int) -> dict[str, object]:
    """The first is free, all others cost a cent."""
    fields = {
        name: {"type": "string", "description": f"The {name} to look for."}
        for name in ("city", "country", "day")
    }
    return {
        "id": f"product-{number}",
        "name": f"look up {number}",
        "description": f"Looks up number {number} of many things, and says what it found.",
        "schema": {"type": "object", "properties": fields, "required": ["city"]},
        "price": 0.01 if number else 0,
    }


def _framed(body: bytes, closing: bool) -> bytes:
    end = "close" if closing else "keep-alive"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Connection: {end}\r\n\r\n"
    return head.encode() + body


SOLD = json.dumps({"success": True, "result": {"city": "Ulm", "sky": "clear", "degrees": 21}}).encode()

if __name__ == "__main__":
    main()
