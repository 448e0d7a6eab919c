"""A paid HTTP API on loopback that responds at once, for measuring its clients.

It has the API of a catalogue: `GET` lists 300 products, 50 per page; `POST` sells one. A connection is kept alive
unless the client requests to close it. The program prints its port as the first line, and exits when its input
ends.
"""

import asyncio
import json
import sys

PRODUCTS = 300
PAGE = 50


def main() -> None:
    """Serve until the input ends."""
    asyncio.run(serve())


async def serve() -> None:
    """Listen on a free port, print it, and serve until the input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ShopConnection, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    input_ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), input_ended.set)
    await input_ended.wait()


class ShopConnection(asyncio.Protocol):
    """One connection of a client."""

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
        self.transport.write(_make_response(SOLD if method == b"POST" else make_page(path.decode()), closing))
        if closing:
            self.transport.close()


def make_page(path: str) -> bytes:
    """Return a page of the list, as JSON."""
    wanted = dict(each.split("=") for each in path.partition("?")[2].split("&"))
    first = (int(wanted["page"]) - 1) * PAGE
    products = [make_product(number) for number in range(first, min(first + PAGE, PRODUCTS))]
    return json.dumps({"items": products, "more": first + PAGE < PRODUCTS}).encode()


def make_product(number: int) -> dict[str, object]:
    """Return a product of the list. The first is free, all others cost a cent."""
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


def _make_response(body: bytes, closing: bool) -> bytes:
    """Return an HTTP response with this body."""
    end = "close" if closing else "keep-alive"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Connection: {end}\r\n\r\n"
    return head.encode() + body


SOLD = json.dumps({"success": True, "result": {"city": "Ulm", "sky": "clear", "degrees": 21}}).encode()

if __name__ == "__main__":
    main()
