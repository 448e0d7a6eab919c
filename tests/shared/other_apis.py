"""The three APIs of examples/profiles on loopback, each with its own record of charges."""

import base64
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

PROFILES = Path(__file__).parents[2] / "examples" / "profiles"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(32))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass
class Reply:
    """A response."""

    body: object
    status: int = 200
    kind: str = "application/json"
    headers: tuple = ()

    def content(self):
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Api:
    """A server; `taken` is the sum that it charged, in micro-dollars."""

    profile = ""

    def __init__(self):
        self.requests = []
        self.charges = []
        self._server = None

    @property
    def taken(self):
        return sum(self.charges)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}{self.base}"

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def charge(self, micros):
        self.charges.append(micros)


def _handler(api):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            api.requests.append((self.command, self.path, headers, content))
            query = parse_qs(parts.query)
            path = parts.path.removeprefix(api.base)
            reply = api.answer(self.command, path, query, headers, json.loads(content) if content else None)
            sent = reply.content()
            self.send_response(reply.status)
            for name, value in (
                ("Content-Type", reply.kind),
                ("Content-Length", str(len(sent))),
                *reply.headers,
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET  # noqa: N815 - named by http.server

        def log_message(self, *_):
            pass

    return Handler


class Acme(Api):
    """An API of 120 skills at 5 cents; "geo/city" answers, and fails for Atlantis."""

    profile = "acme"
    base = "/v2"
    environ: ClassVar = {"ACME_USER": "user-of-acme", "ACME_PASSWORD": "password-of-acme"}
    total = 120

    def answer(self, method, path, query, headers, body):
        login = base64.b64encode(b"user-of-acme:password-of-acme").decode()
        if headers.get("authorization") != f"Basic {login}" or headers.get("x-client") != "agent":
            return Reply({"ok": False, "reason": "who are you?"}, 401)
        if (method, path) == ("GET", "/skills"):
            start, size = (
                int(query["offset"][0]),
                min(int(query["limit"][0]), 30),
            )  # it returns less than requested
            return Reply({"skills": [self.skill(n) for n in range(start, min(start + size, self.total))],
                          "total": self.total})  # fmt: skip
        assert method == "POST"
        skill = unquote(path.removeprefix("/skills/").removesuffix("/run"))
        if skill != "geo/city" or body.pop("client") != "agent":
            return Reply({"ok": False, "reason": f"no skill {skill}"}, 404)
        if body["city"] == "Atlantis":
            return Reply({"ok": False, "reason": "no such city", "charged_cents": 0})
        self.charge(50_000)
        return Reply({"ok": True, "answer": {"you_sent": body}, "charged_cents": 5})

    def skill(self, number):
        slug, title = ("geo/city", "City") if number == 0 else (f"s/{number}", f"Skill {number}")
        return {
            "slug": slug,
            "title": title,
            "about": f"About {title}",
            "cents": 5,
            "topic": "geo",
            "input": CITY,
        }


class Lumen(Api):
    """An API of 45 models; a draft costs 2 credits of half a cent, a final picture 40."""

    profile = "lumen"
    base = "/api"
    environ: ClassVar = {"LUMEN_KEY": "key/of+lumen"}
    prices: ClassVar = {"draft": 2, "final": 40}
    left = 500
    total = 45

    def answer(self, method, path, query, headers, body):
        if query.get("key") != ["key/of+lumen"]:
            return Reply({"code": 401, "message": f"no such key: {query.get('key')}"}, 401)
        if (method, path) == ("GET", "/account"):
            return Reply({"code": 0, "data": {"credits": self.left}})
        if path == "/models/search":
            assert body["kind"] == "image"
            start = int(body.get("cursor", "c0")[1:])
            end = min(start + body["n"], self.total)
            after = f"c{end}" if end < self.total else None
            return Reply(
                {"code": 0, "data": {"models": [self.model(n) for n in range(start, end)], "next": after}}
            )
        model = body["model"]
        cost = self.prices[model["input"].get("quality", "final")]
        if cost > self.left:
            return Reply({"code": 1402, "message": "not enough credits"})
        if model["input"].get("prompt") == "forbidden":
            self.charge(cost * 5_000)
            self.left -= cost
            return Reply({"code": 1500, "message": "it was drawn, and may not be shown"})
        self.charge(cost * 5_000)
        self.left -= cost
        output = {"uid": model["uid"], **model["input"]}
        return Reply({"code": 0, "data": {"output": output}, "usage": {"credits": cost, "left": self.left}})

    def model(self, number):
        properties = {"quality": {"enum": ["draft", "final"]}, "prompt": {"type": "string"}}
        return {
            "uid": number,
            "label": f"Draw {number}",
            "text": "Draw a picture",
            "params": {"type": "object", "properties": properties},
            "tiers": [{"tier": tier, "credits": price} for tier, price in self.prices.items()],
        }


class Atlas(Api):
    """An API of three layers on three pages: a picture, a text, and a file."""

    profile = "atlas"
    base = "/maps/v1"
    environ: ClassVar = {"ATLAS_TOKEN": "token-of-atlas"}
    left = 1_000_000
    layers = ("relief", "names", "model")
    elsewhere = ""

    def answer(self, method, path, query, headers, body):
        assert (method, body) == ("GET", None)
        if headers.get("x-atlas-token") != "token-of-atlas" or query.pop("api-version", None) != ["3"]:
            return Reply({"error": "who are you?"}, 401)
        if path == "/layers":
            place = int(query.get("from", ["0"])[0])
            origin = self.elsewhere or self.url.removesuffix(self.base)
            link = f'<{origin}{self.base}/layers?api-version=3&from={place + 1}>; rel="next"'
            more = (
                (("Link", f'<{origin}/first>; rel="first", {link}'),) if place + 1 < len(self.layers) else ()
            )
            return Reply([self.layer(self.layers[place])], headers=more)
        (layer,) = query.pop("layer")
        self.charge(2_000)
        self.left -= 2_000
        money = (("X-Charged-Micros", "2000"), ("X-Left-Micros", str(self.left)))
        if layer == "relief":
            return Reply(PICTURE, kind="image/png", headers=money)
        if layer == "names":
            return Reply(
                f"names: {sorted(query.items())}".encode(), kind="text/plain; charset=utf-8", headers=money
            )
        return Reply(b"\x00\x01\x02", kind="model/stl", headers=money)

    def layer(self, name):
        number = {"type": "number"}
        properties = {"lat": number, "lon": number, "tags": {"type": "array", "items": {"type": "string"}}}
        properties |= {"style": {"type": "object"}, "dark": {"type": "boolean"}, "zoom": {"type": "integer"}}
        return {
            "id": name,
            "doc": f"Draw {name}",
            "args": {"type": "object", "properties": properties},
            "usd": "0.002",
        }
