"""A small paid API on loopback: real HTTP, real prices, a ledger of its own, and faults on demand.

It has the interface of AgentPMT: `GET /products/fetch` lists the products, `POST /products/purchase` runs a tool
and takes the money, `GET /credits/balance` returns the balance. With a bearer token it counts in credits (100 are a
dollar) and takes orders by `name`; with the two keys of the older interface it counts in dollars and takes orders
by `product_id`. It needs nothing but Python:

    python examples/paid_api.py --port 8402 --entries 298 --ledger bought.jsonl
    curl -H 'Authorization: Bearer t' 'http://127.0.0.1:8402/products/fetch?page=1&page_size=5'
    curl -H 'x-api-key: k' -H 'x-budget-key: b' 'http://127.0.0.1:8402/products/fetch?page=1&page_size=5'
    curl -d '{"faults": [{"kind": "reset_after_buying"}]}' http://127.0.0.1:8402/_control
    curl http://127.0.0.1:8402/_state

In a test or a demo: `async with PaidApi() as api:` (or a plain `with`), then `api.url`, `api.purchases`,
`api.balance` and `api.faults.append(Fault("half_reply"))`. Each connection has a thread, so any event loop will do.
"""

import argparse
import base64
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from _paid_faults import AFTER, BEFORE, Fault, reset, send, strike
from _paid_products import Product, on_sale


@dataclass
class Purchase:
    """A line of the ledger: money that was taken."""

    name: str
    product_id: str
    parameters: dict[str, Any]
    cost: float
    request_id: str
    at: float = field(default_factory=time.time)


class Refused(Exception):  # noqa: N818 - a response
    """A response other than 200, sent before any money was taken."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class PaidApi:
    """The API: its products, its purchases, and the faults that it will have."""

    def __init__(
        self,
        *,
        port: int = 0,
        entries: int = 6,
        broken: bool = False,
        balance: str = "10",
        ledger: str | Path | None = None,
        shape: str = "flat",  # of replies: flat, output, nested, or nested_failure inside HTTP 200
        replay: str = "",  # of a request id seen before: "" buys again, "same" repeats the reply, "conflict" is 409
        keys: tuple[str, str] | None = None,  # the only good (x-api-key, x-budget-key); None takes any
        token: str = "",  # the only good bearer token; "" takes any, or base64 of the keys if those are given
    ) -> None:
        self.products = {product.id: product for product in on_sale(entries, broken=broken)}
        self.balance = Decimal(balance)
        self.shape, self.replay, self.keys = shape, replay, keys
        self.token = token or (base64.b64encode(":".join(keys).encode()).decode() if keys else "")
        self.purchases: list[Purchase] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path and headers of each
        self.faults: list[Fault] = []
        self.closing = threading.Event()
        self._ledger = Path(ledger) if ledger else None
        self._replies: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._port = port
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """The base URL; the port stays the same after `stop` and `start`."""
        return f"http://127.0.0.1:{self._port}"

    def id_of(self, name: str) -> str:
        """Return the product id of a readable name."""
        return next(product.id for product in self.products.values() if product.name == name)

    def __enter__(self) -> Self:
        """Start listening."""
        self.closing.clear()
        self._server = Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening and drop every open connection, as a crash would."""
        server, self._server = self._server, None
        if server is not None:
            self.closing.set()
            server.shutdown()
            server.server_close()
            server.hang_up()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    async def start(self) -> None:
        """Start again, at the same address, with the same ledger."""
        self.__enter__()

    async def stop(self) -> None:
        """Stop: from now on connections are refused."""
        self.__exit__()

    def down_for(self, seconds: float) -> None:
        """Refuse connections for a while."""
        self.__exit__()
        threading.Timer(seconds, self.__enter__).start()

    def fault(self, path: str, kinds: set[str]) -> Fault | None:
        """Use up the next fault of these kinds for that path."""
        with self._lock:
            for fault in self.faults:
                if fault.kind in kinds and path.startswith(fault.path) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def page(self, page: int = 1, page_size: int = 50, *, in_credits: bool = False) -> dict[str, Any]:
        """Return one page of the catalogue, with prices in credits or in dollars."""
        size, found = max(1, min(page_size, 100)), list(self.products.values())
        shown, pages = found[(page - 1) * size : page * size], -(-len(found) // size)
        tools = [
            {
                "type": "function",
                "function": {
                    "name": p.id,
                    "description": f"{p.name} — {p.description}",
                    "parameters": p.parameters,
                },
                **({"x-pricing": pricing_of(p)} if in_credits else {"price": p.price}),
                "category": p.category,
            }
            for p in shown
        ]
        details = {
            "tools_on_this_page": len(tools),
            "total_qualified_tools": len(found),
            "page_returned": page,
        }
        details |= {"page_size_requested": page_size, "total_pages": pages, "has_next_page": page < pages}
        return {"success": True, "details": details, "tools": tools}

    def find(self, wanted: Any) -> Product:
        """Return the product with this id, or with this slug of its name."""
        named = (each for each in self.products.values() if each.name.replace(" ", "-") == wanted)
        product = self.products.get(str(wanted)) or next(named, None)
        if product is None:
            raise Refused(404, f"There is no product {wanted!r}")
        return product

    def buy(self, order: Any, headers: dict[str, str]) -> dict[str, Any]:
        """Check the order, take the money, run the tool, and return the reply."""
        in_credits = "authorization" in headers
        if not isinstance(order, dict) or not isinstance(parameters := order.get("parameters", {}), dict):
            raise Refused(400, "The body must be an object with name or product_id, and parameters")
        product = self.find(order.get("name" if in_credits else "product_id"))
        if missing := [
            name for name in (product.parameters or {}).get("required", []) if name not in parameters
        ]:
            raise Refused(422, f"Missing parameters: {', '.join(missing)}")
        request_id = (
            headers.get("x-request-id") or headers.get("idempotency-key") or order.get("request_id") or ""
        )
        with self._lock:
            if request_id in self._replies and self.replay == "conflict":
                raise Refused(409, f"Request {request_id} was made before")
            if request_id in self._replies and self.replay == "same":
                return self._replies[request_id]
            cost = product.cost(parameters)
            if cost > self.balance:
                raise Refused(402, f"Insufficient balance: {self.balance} left, {cost} needed")
            self.balance -= cost
            bought = Purchase(product.name, product.id, parameters, float(cost), request_id)
            self.purchases.append(bought)
            if self._ledger:
                with self._ledger.open("a") as file:
                    file.write(json.dumps(asdict(bought)) + "\n")
            balance = self.balance
        result = headers if product.name == "echo" else product.run(**parameters)
        reply = shaped(self.shape, result, float(cost), float(balance), in_credits=in_credits)
        if request_id:
            self._replies[request_id] = reply
        return reply

    def control(self, wish: dict[str, Any]) -> None:
        """Change the behaviour, from another process."""
        self.faults += [Fault(**fault) for fault in wish.get("faults", [])]
        self.shape, self.replay = wish.get("shape", self.shape), wish.get("replay", self.replay)
        self.balance = Decimal(str(wish.get("balance", self.balance)))
        for name, price in wish.get("prices", {}).items():
            self.products[self.id_of(name)].price = price
        if "down" in wish:
            threading.Timer(0.05, self.down_for, [wish["down"]]).start()  # after this request is answered

    def state(self) -> dict[str, Any]:
        """Return the purchases, the balance and the faults."""
        with self._lock:
            bought = [asdict(purchase) for purchase in self.purchases]
        return {"balance": str(self.balance), "purchases": bought, "faults": [asdict(f) for f in self.faults]}


def pricing_of(product: Product) -> dict[str, Any]:
    """Return the price of a product in the newer format of the list."""

    def counted(price: Any) -> Any:
        return round(price * 100, 4) if isinstance(price, float) else price

    pricing = {"unit_type": "request", "price_per_unit": counted(product.price), "currency": "credits"}
    actions = {action: counted(price) for action, price in product.actions.items()}
    return pricing | ({"actions": actions} if actions else {})


def shaped(
    shape: str, result: Any, cost: float, balance: float, *, in_credits: bool = False
) -> dict[str, Any]:
    """Return the reply in one of the shapes that real APIs use."""
    if shape == "output":
        return {"success": True, "output": result, "error": None}
    if shape.startswith("nested"):
        good = shape == "nested"
        data = {"success": good, "output": result if good else "the tool failed"}
        return {
            "success": True,
            "response": {"status_code": 200 if good else 500, "data": data},
            "error": None,
        }
    if in_credits:
        money = {"charged_credits": round(cost * 100, 4), "balance_credits": round(balance * 100, 4)}
        return {"success": True, "result": result, **money}
    return {"success": True, "result": result, "cost": cost, "balance": balance}


class Server(ThreadingHTTPServer):
    """A thread for each connection, and a list of the open ones."""

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, callers that come at once are reset

    def __init__(self, address: tuple[str, int], api: PaidApi) -> None:
        super().__init__(address, Handler)
        self.api = api
        self.open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """Close all connections, which ends the threads that read from them."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have disconnected, which is expected here; report anything else as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, and replies or carries out a fault."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: Server

    def handle(self) -> None:
        """Read requests until the connection ends, unless a fault comes first."""
        self.server.open.add(self.connection)
        try:
            if self.server.api.fault("/products/purchase", {"reset_on_connect"}):
                self.connection.recv(1, socket.MSG_PEEK)  # a request has arrived, and is not read
                reset(self)
            else:
                super().handle()
        finally:
            self.server.open.discard(self.connection)

    def do_GET(self) -> None:
        """Process a request, in this order: fault, work, fault, reply."""
        api, path = self.server.api, urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not path.startswith("/_"):
            api.requests.append((self.command, self.path, headers))
        if (fault := api.fault(path, BEFORE)) and strike(fault, self, api.closing, b""):
            return
        try:
            reply = self.work(api, path, body, headers)
        except Refused as refused:
            send(self, refused.status, json.dumps({"success": False, "error": str(refused)}).encode())
            return
        encoded = json.dumps(reply).encode()
        if (fault := api.fault(path, AFTER)) and strike(fault, self, api.closing, encoded):
            return
        if path == "/products/purchase" and "stream=true" in self.path:
            self.stream(reply)
        else:
            send(self, 200, encoded)

    do_POST = do_GET  # noqa: N815 - named by http.server

    def work(self, api: PaidApi, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """Return the reply to a request, by its path."""
        try:
            order = json.loads(body or b"{}")
        except ValueError as error:
            raise Refused(400, f"The body is not JSON: {error}") from None
        if path == "/_control":
            api.control(order)
        if path.startswith("/_"):
            return api.state()
        in_credits = self.check_payer(api, headers)
        if path == "/products/fetch":
            query = parse_qs(urlsplit(self.path).query)
            asked = {name: int(query[name][0]) for name in ("page", "page_size") if name in query}
            return api.page(**asked, in_credits=in_credits)
        if path == "/credits/balance" and in_credits:
            return {"success": True, "data": {"balance": round(float(api.balance) * 100, 4)}}
        if path == "/products/purchase" and self.command == "POST":
            return api.buy(order, headers)
        raise Refused(404, f"There is nothing at {path}")

    @staticmethod
    def check_payer(api: PaidApi, headers: dict[str, str]) -> bool:
        """Refuse a request without the right secrets. Returns True for a bearer token, which counts in credits."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind == "Bearer":
            if not token or (api.token and token != api.token):
                raise Refused(401, "the token is wrong")
            return True
        given = (headers.get("x-api-key", ""), headers.get("x-budget-key", ""))
        if not all(given) or (api.keys and given != api.keys):
            raise Refused(401, "x-api-key or x-budget-key is missing or wrong")
        return False

    def stream(self, reply: dict[str, Any]) -> None:
        """Send the reply as server-sent events: two progress events, then the whole reply."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        good = "response" not in reply or reply["response"]["data"]["success"]
        last = (
            f"event: done\ndata: {json.dumps(reply)}\n\n"
            if good
            else "event: error\ndata: the tool failed\n\n"
        )
        for event in ("event: data\ndata: looking\n\n", "event: data\ndata: found\n\n", last):
            self.wfile.write(event.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--entries", type=int, default=6, help="number of products on sale")
    parser.add_argument("--broken", action="store_true", help="include broken entries")
    parser.add_argument("--balance", default="10", help="dollars in the account")
    parser.add_argument("--ledger", help="file to append a line to for every purchase")
    with PaidApi(**vars(parser.parse_args())) as api:
        print(api.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
