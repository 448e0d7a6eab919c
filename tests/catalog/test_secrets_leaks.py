"""The API echoes our keys in every form and every place, and they are shown nowhere.

The search for leaks shares no code with the scrubber: it decodes what it sees, and looks for any eight consecutive
characters of a key, ignoring case. So half a key, or one in lower case, counts as a leak too.
"""

import base64
import binascii
import json
import logging
import re
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import anyio
import pytest
from prometheus_client import generate_latest

from shared.market import PaidApi, profile_for
from shared.waiting import eventually
from toolwire import ClaudeAgentOptions, run
from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire.catalog.http.connection import Retry
from toolwire.catalog.profile.model import BUILTIN
from toolwire.catalog.purchase.limits import Breaker
from toolwire.catalog.server import Catalog
from toolwire.catalog.tools.pins import Pins
from toolwire.testing import call, connect, say

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.slow]  # the event loop does not matter

KEY = 'sk_Live/7+qZ"Ab\\Zz%41=x9Wv'
BUDGET = "bdgQRSTUV0123456789wxyz"
ENVIRON = {"AGENT_PAYMENT_API_KEY": KEY, "AGENT_PAYMENT_BUDGET_KEY": BUDGET}
WINDOW = 8
ONCE = Retry(attempts=1)


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


# --- the forms, and the search for them ---


def lower_hex(text):
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def based(text, before="", after=""):
    return base64.b64encode(f"{before}{text}{after}".encode()).decode()


def forms(secret):
    """Return name -> the secret in that form."""
    escaped = json.dumps(secret)[1:-1]
    return {
        "raw": secret,
        "json": escaped,
        "json in json": json.dumps(escaped)[1:-1],
        "base64": based(secret),
        "base64 unpadded": based(secret).rstrip("="),
        "base64 urlsafe": base64.urlsafe_b64encode(secret.encode()).decode(),
        **{f"in longer base64, {n} before": based(secret, "x" * n, "and more") for n in range(4)},
        "pair in base64": based(f"{KEY}:{BUDGET}"),
        "basic": f"Basic {based(f'user:{secret}')}",
        "url": quote(secret, safe=""),
        "url, small hex": lower_hex(quote(secret, safe="")),
        "form": quote_plus(secret),
        "url twice": quote(quote(secret, safe=""), safe=""),
        "hex": secret.encode().hex(),
    }


ECHO = {f"{name} of the {which}": form for which, each in (("key", KEY), ("budget", BUDGET))
        for name, form in forms(each).items()}  # fmt: skip
EVERYTHING = " | ".join(ECHO.values())


def decodings(text):
    """Yield a text, and what it may contain in encoded form."""
    yield text
    plain = text
    for _ in range(3):
        plain = re.sub(r'\\(["\\/])', r"\1", plain)
        yield plain
    for decode in (unquote, unquote_plus):
        once = decode(text)
        yield once
        yield decode(once)
    for found in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        for start in range(4):
            piece = found[start:].replace("-", "+").replace("_", "/")
            piece = piece[: len(piece) // 4 * 4]
            yield base64.b64decode(piece).decode("latin-1")
    for found in re.findall(r"(?:[0-9a-fA-F]{2}){8,}", text):
        yield binascii.unhexlify(found).decode("latin-1")


PARTS = re.compile(
    "|".join(
        re.escape(each[at : at + WINDOW]) for each in (KEY, BUDGET) for at in range(len(each) - WINDOW + 1)
    ),
    re.IGNORECASE,
)


def leaks(text):
    """Return the parts of a key that are in a text, in any form."""
    return {found for each in decodings(text) for found in PARTS.findall(each)}


@pytest.mark.parametrize("name", ECHO)
def test_what_finds_leaks_finds_every_form(name):
    """A test of the tests: each form is found, half of it too, and nothing once it is scrubbed."""
    form = ECHO[name]
    assert leaks(f"so {form} it is")
    assert leaks(form[: len(form) * 3 // 4])
    assert not leaks("so [redacted] it is")
    assert not leaks(Scrubber([KEY, BUDGET]).text(f"so {form} it is"))


# --- an API with prepared replies ---


class Parrot:
    """A server with one prepared reply for purchases and one for the list, as raw bytes."""

    def __init__(self, *, listed=None, bought=None):
        self.listed = listed or reply({"tools": [entry("1", "weather — Tell the weather")]})
        self.bought = bought or reply({"success": True, "result": "fine", "cost": 0.01})

    def __enter__(self):
        parrot = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                assert self.headers["x-api-key"].endswith(KEY)
                self.wfile.write(parrot.listed if "/fetch" in self.path else parrot.bought)

            do_POST = do_GET  # noqa: N815 - named by http.server

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join(10)
        self.server.server_close()


def reply(body, status="200 OK", **headers):
    """Return an HTTP reply; header names have _ for -."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}"]
    named = {"Content_Type": "application/json", **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def entry(id, description, schema=None, price=0.01, **more):
    function = {"name": id, "description": description, "parameters": schema or {"type": "object"}}
    return {"function": {**function, **more}, "price": price, "category": "data"}


class Seen:
    """Everything that is visible of a catalogue from outside."""

    def __init__(self, folder, caplog):
        self.folder, self.caplog = folder, caplog
        self.texts = {}

    def add(self, where, value):
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        self.texts[where] = self.texts.get(where, "") + "\n" + text

    def check(self):
        """Check that no part of a key is anywhere. A failure names the places."""
        formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
        for record in self.caplog.records:
            self.add(f"log of {record.name}", formatter.format(record))
            self.add(f"log of {record.name}", repr(record.__dict__.get("toolwire")))
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                self.add(path.name, "\n".join(re.findall(r"[ -~]{6,}", path.read_bytes().decode("latin-1"))))
        found = {where: sorted(each) for where, text in self.texts.items() if (each := leaks(text))}
        assert found == {}


@pytest.fixture
def seen(tmp_path, caplog):
    """A `Seen`, with every logger at the level DEBUG."""
    caplog.set_level(logging.DEBUG)
    return Seen(tmp_path, caplog)


def catalog_for(url, folder, profile=None, **more):
    """Return a catalogue that writes all its files, and does not retry."""
    given = {"cache": folder / "cache.json", "ledger": folder / "ledger.db", "audit": folder / "audit.jsonl"}
    return Catalog(
        profile or profile_for(url), environ=ENVIRON, retry=ONCE, breaker=Breaker(99), **given, **more
    )


@asynccontextmanager
async def opened(catalog, seen):
    """Connect a client to a catalogue. At the end, record what it was told, and the metrics."""
    async with connect(catalog) as client:
        status = await catalog.loaded()
        yield client
        seen.add("tools/list", [each.raw for each in await client.list_tools()])
        seen.add("notifications", [[each.method, each.params] for each in client.notifications])
        seen.add("status", repr((status, catalog.status)))
        seen.add("metrics", generate_latest(catalog.metrics_registry).decode())


async def bought(url, seen, tool="weather", profile=None, **arguments):
    """Buy once, and record everything visible of it."""
    catalog = catalog_for(url, seen.folder, profile)
    async with opened(catalog, seen) as client:
        result = await client.call(tool, arguments)
        seen.add("result", result.raw)
    return result


def test_no_log_line_of_ours_shows_the_keys_of_a_catalogue(tmp_path, caplog):
    """Keys of catalogues are masked in all log lines of this process, like keys in options."""
    environ = {"AGENT_PAYMENT_API_KEY": "kq-7781-of-a-log", "AGENT_PAYMENT_BUDGET_KEY": "bq-9932-of-a-log"}
    Catalog("agentpmt-keys", environ=environ, cache=False, ledger=tmp_path / "l.db")
    logger_for("anything").warning("sent with %s", environ)
    assert "of-a-log" not in caplog.text


# --- replies to purchases ---

CUTS = {  # a key at the point where a long text is cut
    f"a key at {at}": "x" * (at - 12) + KEY + BUDGET for at in (300, 1_000, 2_000)
}
BODIES = {
    "result": {"success": True, "result": EVERYTHING, "cost": 0.01, "balance": 9},
    "object": {"success": True, "result": {"echo": ECHO, "keys": dict.fromkeys(ECHO.values(), 1)}},
    "output": {"success": True, "output": [list(ECHO.values())], "error": None},
    "nested": {"success": True, "response": {"status_code": 200, "data": {"success": True, "output": ECHO}}},
    "failure": {"success": False, "error": EVERYTHING},
    "failure, an object": {"success": False, "error": {"message": EVERYTHING, "seen": ECHO}},
    "nested failure": {"success": True, "response": {"data": {"success": False, "error": EVERYTHING}}},
    "paid failure": {"success": False, "error": EVERYTHING, "cost": 0.01},
    "more than agreed": {"success": True, "result": EVERYTHING, "cost": 0.5},
    "no envelope": ECHO,
    **{f"failure, {name}": {"success": False, "error": text} for name, text in CUTS.items()},
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_no_reply_gives_a_key_away(body, seen):
    """Results and failures of every shape are scrubbed, with the keys in every form, as values and as names."""
    with Parrot(bought=reply(body)) as api:
        result = await bought(api.url, seen)
    assert "[redacted]" in str(result.raw) or "x" * 200 in result.text
    seen.check()


@pytest.mark.parametrize("status", ["400 Bad Request", "402 Payment Required", "409 Conflict", "500 Oops"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
async def test_no_refusal_gives_a_key_away(status, cut, seen):
    """Whether the order was refused or is unknown, the reason is shown, but not the keys."""
    with Parrot() as api:
        catalog = catalog_for(api.url, seen.folder)
        async with opened(catalog, seen) as client:
            for error in CUTS.values() if cut else (KEY, BUDGET, based(f"{KEY}:{BUDGET}"), quote(KEY)):
                api.bought = reply({"success": False, "error": error}, status)
                result = await client.call("weather")
                assert result.is_error
                seen.add("result", result.raw)
    seen.check()


HEADS = {
    "redirect": reply({}, "302 Found", Location=f"https://{BUDGET}.evil.test/{quote(KEY)}"),
    "content type": reply(b"<p>", Content_Type=f"text/{BUDGET}; {KEY}"),
    "encoding": reply(b"{}", Content_Encoding=BUDGET),
    "reason phrase": reply({"error": "no"}, f"401 {KEY} {BUDGET}"),
    "headers": reply({"error": "no"}, "401 No", WWW_Authenticate=f'Basic realm="{KEY}"', Set_Cookie=based(BUDGET)),
    "headers of a success": reply({"success": True, "result": 1}, X_Echo=f"{KEY} {BUDGET}"),
    "retry after": reply({"error": "no"}, "503 No", Retry_After=KEY),
    "no HTTP": f"{BUDGET} {KEY}\r\n\r\n".encode(),
    "no header": f"HTTP/1.1 200 OK\r\n{BUDGET} {KEY}\r\n\r\n".encode(),
    "no header, cut": f"HTTP/1.1 200 OK\r\n{'x' * 255}{BUDGET}\r\n\r\n".encode(),
    "no length": f"HTTP/1.1 200 OK\r\nContent-Length: {BUDGET}\r\n\r\n".encode(),
    "garbage": reply(b'{"success": tru ' + KEY.encode()),
    "half": reply({"error": KEY}, "400 No")[:-20],
}  # fmt: skip


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("way", ["bought", "listed"])
async def test_no_header_gives_a_key_away(head, way, seen):
    """Status lines, headers and replies that are not HTTP are scrubbed, for purchases and for the list."""
    with Parrot(**{way: head}) as api:
        catalog = catalog_for(api.url, seen.folder)
        async with opened(catalog, seen) as client:
            if way == "bought":
                seen.add("result", (await client.call("weather")).raw)
    seen.check()


@pytest.mark.parametrize("name", ["all of it", *CUTS])
async def test_no_progress_gives_a_key_away(name, seen):
    """The progress messages of a stream are scrubbed, with their field names and its error."""
    for last in ("done", "error"):
        news = {"all of it": EVERYTHING, **CUTS}[name]
        told = json.dumps({"message": news, "echo": ECHO})
        stream = f"event: data\ndata: {news}\n\nevent: data\ndata: {told}\n\nevent: {last}\ndata: {news}\n\n"
        with Parrot(bought=reply(stream.encode(), Content_Type="text/event-stream")) as api:
            await bought(api.url, seen, profile=profile_for(api.url, streams=True))
    assert "notifications/progress" in seen.texts["notifications"]
    seen.check()


# --- the list ---

WORDS = {
    "description": entry("1", f"weather — {EVERYTHING}"),
    "the cut of a description": entry("1", "weather — " + "x" * 1_975 + KEY + BUDGET),
    "name": entry("1", f"{KEY} — Weather"),
    "name that is a legal one": entry("1", f"{BUDGET} — Weather"),
    "category": {**entry("1", "weather — Tell"), "category": f"{KEY} {BUDGET}"},
    "schema": entry("1", "weather — Tell", {"type": "object", "properties": {
        "city": {"type": "string", "description": EVERYTHING, "enum": list(ECHO.values()), "default": KEY},
        BUDGET: {"type": "string"}}}),
    "id": entry(KEY, "weather — Tell"),
    "broken": entry("1", f"{BUDGET} — Weather", {"type": "object", "properties": {"x": {"$ref": f"#/{KEY}"}}}),
    "no JSON": entry("1", "weather — Tell", f"{KEY} {BUDGET}"),
}  # fmt: skip


@pytest.mark.parametrize("item", WORDS.values(), ids=WORDS)
async def test_no_entry_gives_a_key_away(item, seen):
    """Texts of the catalogue go to the model, the cache and the log, none of them with a key."""
    with Parrot(listed=reply({"tools": [item, entry("2", "stock — Tell a price")]})) as api:
        catalog = catalog_for(api.url, seen.folder)
        async with opened(catalog, seen) as client:
            assert "stock" in catalog.definitions
            for name in list(catalog.definitions):
                seen.add("result", (await client.call(name)).raw)
            Pins.of(catalog.definitions.values()).save(seen.folder / "pins.json")
            api.listed = reply({"tools": [entry("2", f"stock — {EVERYTHING}", price=0.02)]})
            catalog.refresh()
            await eventually(lambda: catalog.status.fetched == 1)
    seen.check()


@pytest.mark.parametrize(
    "listed",
    [
        reply({"success": False, "error": EVERYTHING}),
        reply({"success": False, "error": "x" * 290 + KEY}),
        reply({"error": f"{KEY} {BUDGET}"}, "401 No"),
        reply({"error": "x" * 290 + KEY}, "401 No"),
        reply({"success": False, "error": ECHO}),
    ],
    ids=["failure", "cut failure", "status", "cut status", "object"],
)
async def test_no_failure_of_the_list_gives_a_key_away(listed, seen):
    """The error goes to the log, to clients and into the status, without a key."""
    with Parrot(listed=listed) as api:
        catalog = catalog_for(api.url, seen.folder)
        async with opened(catalog, seen):
            assert catalog.status.state == "down"
    seen.check()


async def test_a_secret_in_a_template_is_one_without_it_too(seen):
    """The header has "Bearer " before the key, but the echo does not."""
    given = {name: {"template": "Bearer {value}"} for name in BUILTIN["agentpmt-keys"].secrets}
    with Parrot(bought=reply({"success": True, "result": f"{KEY} {BUDGET}"})) as api:
        profile = profile_for(api.url, secrets=given)
        result = await bought(api.url, seen, profile=profile)
    assert "[redacted]" in result.text
    seen.check()


# --- everything else ---


async def test_no_exception_gives_a_key_away(tmp_path):
    """Errors about unusable keys and unreadable key files do not quote them."""
    texts = []
    bad = tmp_path / "keys.toml"
    bad.write_text(f"api_key = {KEY}\n{BUDGET}")
    bad.chmod(0o600)
    for environ, file in (
        ({**ENVIRON, "AGENT_PAYMENT_API_KEY": KEY + "\n" + KEY}, None),
        ({**ENVIRON, "AGENT_PAYMENT_API_KEY": KEY + "é"}, None),
        ({"AGENT_PAYMENT_API_KEY": KEY}, None),
        ({}, bad),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            Catalog("agentpmt", environ=environ, credentials_file=file, cache=False)
        chain, error = [], caught.value
        while error is not None:
            chain.append(repr(error))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        texts += chain
    assert {each: leaks(each) for each in texts if leaks(each)} == {}


async def test_no_repr_gives_a_key_away(tmp_path):
    """A catalogue and its parts can be printed."""
    catalog = catalog_for("http://127.0.0.1:1", tmp_path)
    assert not leaks(repr(catalog) + str(catalog) + repr(catalog.profile) + repr(catalog._scrubber))


async def test_no_recording_gives_a_key_away(scripted_cli, tmp_path, seen):
    """All frames of a conversation are scrubbed before any recorder sees them."""
    with PaidApi() as api:
        shop = catalog_for(api.url, tmp_path)
        scripted_cli.script(call("mcp__shop__echo"), say("Thanks."))
        given = {"mcp_servers": {"shop": shop}, "allowed_tools": ["mcp__shop"]}
        async with connect(shop):
            await shop.loaded()
            reply_ = await run("go", options=ClaudeAgentOptions(**given, **scripted_cli.options_kwargs()))
    assert "[redacted]" in str(reply_.tool_calls[0].result)
    seen.add("messages", repr(reply_.messages))
    seen.check()
