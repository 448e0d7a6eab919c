"""The page that a browser gets at the address of a server."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from toolwire import ToolServer, http_app
from toolwire.mcp.serve.access import GuardMiddleware, guard_for
from toolwire.mcp.serve.page import WelcomePage

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the HTTP server is asyncio's

LIMIT = 30
TOKEN = "a-token-of-the-test"  # noqa: S105 - of an application that ends with the test
CHROME = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
BROWSER = {"accept": FIREFOX}
ANY_HOST = "0.0.0.0"  # noqa: S104 - nothing listens


class Page(HTMLParser):
    """The elements of a page in order, their attributes, and its texts by element."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes, self._inside = [], {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag != "meta":
            self._inside.append(tag)

    def handle_endtag(self, tag):
        assert self._inside.pop() == tag

    def handle_data(self, data):
        if self._inside and data.strip():
            self.texts.setdefault(self._inside[-1], []).append(" ".join(data.split()))


async def get(
    server=None, path="/mcp", *, method="GET", headers=None, base="http://localhost:8000", **settings
):
    """Send one request to a server that has one tool, and return the response."""
    if server is None:
        server = ToolServer("shop", version="1.2.3")
        server.tool(secret_tool)
    app = http_app(server, **settings)
    with anyio.fail_after(LIMIT):
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base) as client,
        ):
            client.headers.clear()
            return await client.request(method, path, headers=headers or BROWSER)


def secret_tool() -> str:
    """A tool that visitors must not hear of."""
    return ""


@pytest.mark.parametrize("path", ["/mcp", "/"])
@pytest.mark.parametrize("accept", [CHROME, FIREFOX, "TEXT/HTML"])
async def test_a_browser_sees_what_this_is_and_how_to_connect(path, accept):
    """The page shows name, version, address and a command, but no tool."""
    response = await get(path=path, headers={"accept": accept})
    page = Page(response.text)
    assert response.status_code == 200
    assert page.texts["h1"] == ["shop"]
    assert "version 1.2.3, made with toolwire" in page.texts["p"][0]
    assert page.texts["pre"] == [
        "http://localhost:8000/mcp",
        "claude mcp add --transport http shop http://localhost:8000/mcp",
    ]
    assert page.texts["p"][-1] == "No token is needed."
    assert "secret_tool" not in response.text


async def test_the_page_is_readable_for_all():
    """It has one heading, a title, a language, fits a phone and both colour schemes, and loads or links nothing."""
    text = (await get()).text
    page = Page(text)
    assert page.tags.count("h1") == 1
    assert page.tags.count("main") == 1
    assert page.texts["title"] == ["shop: an MCP server"]
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    assert "color-scheme:light dark" in text
    assert not {"a", "script", "form", "img", "link", "iframe"} & set(page.tags)
    assert not {name for _, name, _ in page.attributes} & {"href", "src", "style"}


async def test_the_headers_are_strict():
    """They forbid scripts, frames, other styles than the page's own, caching and the Referer header."""
    response = await get()
    style = re.search(r"<style>(.*)</style>", response.text)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert dict(response.headers) == {
        "vary": "Origin",
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "content-length": str(len(response.content)),
    }


async def test_a_visitor_needs_no_token_and_learns_that_one_is_needed():
    """The page does not contain the token, and all other requests still need it."""
    response = await get(token=TOKEN)
    assert response.status_code == 200
    assert TOKEN not in response.text
    assert TOKEN not in str(response.headers)
    page = Page(response.text)
    assert page.texts["p"][-1].startswith("A token is needed")
    assert page.texts["pre"][1].endswith('--header "Authorization: Bearer TOKEN"')
    assert (await get(token=TOKEN, method="POST")).status_code == 401
    assert (await get(token=TOKEN, path="/metrics")).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example.com"}, 421),
        ({"host": ""}, 421),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/"])
async def test_another_host_or_origin_is_refused_as_ever(path, headers, status):
    """A web page whose host name resolves to this server (DNS rebinding) learns nothing about it."""
    response = await get(path=path, headers={**BROWSER, **headers}, token=TOKEN)
    assert response.status_code == status
    assert "shop" not in response.text
    assert response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("localhost", "http://localhost/mcp"),
        ("LOCALHOST:8000", "http://localhost:8000/mcp"),
        ("[::1]:8000", "http://[::1]:8000/mcp"),
        ("localhost:80/<script>alert(1)</script>", "http://localhost:80/mcp"),
        ("<b>@localhost:8000", "http://localhost:8000/mcp"),
        ("localhost:<b>", "http://localhost/mcp"),
        ("localhost:99999999", "http://localhost/mcp"),
        ("localhost?<b>#<i>", "http://localhost/mcp"),
    ],
)
async def test_of_the_host_header_only_a_known_host_and_its_port_are_shown(host, shown):
    """Nothing else in the header reaches the page."""
    response = await get(headers={**BROWSER, "host": host})
    page = Page(response.text)
    assert page.texts["pre"][0] == shown
    assert not {"script", "b", "i"} & set(page.tags)


async def test_an_unverified_host_is_not_shown():
    """A server for any host cannot tell a wrong one, and its own address may be that of an internal network."""
    response = await get(host=ANY_HOST, token=TOKEN, headers={**BROWSER, "host": "evil.example.com"})
    assert response.status_code == 200
    assert "evil" not in response.text
    page = Page(response.text)
    assert page.texts["pre"][0] == "http://HOST/mcp"
    assert "Replace HOST by the host in the address bar" in page.texts["p"][-1]


@pytest.mark.parametrize(
    ("name", "shown", "entry"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>", "_script_alert_1___script_"),
        ("a & \"b\" 'c'", "a & \"b\" 'c'", "a____b___c_"),
        ("x; rm -rf ~", "x; rm -rf ~", "x__rm_-rf__"),
        ("--scope", "--scope", "scope"),
        ("{0.__class__}", "{0.__class__}", "_0___class___"),
    ],
)
async def test_a_hostile_name_is_only_text(name, shown, entry):
    """It cannot add elements to the page or words to the command."""
    response = await get(ToolServer(name, version='"><script>'))
    page = Page(response.text)
    assert "script" not in page.tags
    assert page.texts["h1"] == [shown]
    assert page.texts["pre"][1] == f"claude mcp add --transport http {entry} http://localhost:8000/mcp"


class Named:
    """A name and a version, which a server of another library may have set to anything."""

    def __init__(self, name, version):
        self.name, self.version = name, version


@pytest.mark.parametrize("name", ["\x1b[31m\r\n\0\u202e\ud800", "", None, "x" * 100_000, 5])
async def test_any_name_makes_a_page(name):
    """Control characters are replaced, long names cut."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"x"), (b"accept", b"text/html")],
    }
    page = WelcomePage(Named(name, name), guard_for("127.0.0.1", None), "/a b'<&")
    await page.find(scope)(scope, None, send)
    text = sent[1]["body"].decode()
    assert len(text) < 5_000
    assert all(char.isprintable() or char == "\n" for char in text)
    assert Page(text).texts["pre"][0] == "http://HOST/a%20b'%3C&"


NOT_BROWSERS = [
    ("GET", "/mcp", {"accept": "text/event-stream"}),
    ("GET", "/mcp", {"accept": "application/json, text/event-stream"}),
    ("GET", "/mcp", {"accept": "text/html, text/event-stream"}),
    ("GET", "/mcp", {"accept": "text/html, application/json;q=0.9"}),
    ("GET", "/mcp", {"accept": "*/*"}),
    ("GET", "/mcp", {}),
    ("GET", "/mcp", {"accept": "text/*"}),
    ("GET", "/mcp", {"accept": "application/xhtml+xml"}),
    ("GET", "/mcp", {**BROWSER, "mcp-session-id": "x"}),
    ("GET", "/mcp", {**BROWSER, "mcp-protocol-version": "2025-11-25"}),
    ("GET", "/mcp", {**BROWSER, "last-event-id": "1"}),
    ("HEAD", "/mcp", BROWSER),
    ("POST", "/mcp", BROWSER),
    ("DELETE", "/mcp", BROWSER),
    ("OPTIONS", "/mcp", BROWSER),
    ("GET", "/", {"accept": "application/json"}),
    ("POST", "/", BROWSER),
    ("GET", "/other", BROWSER),
    ("GET", "/mcp/", BROWSER),
    ("GET", "/healthz", BROWSER),
    ("GET", "/metrics", BROWSER),
]


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(("method", "path", "headers"), NOT_BROWSERS)
async def test_every_other_request_is_answered_as_if_there_was_no_page(
    monkeypatch, token, method, path, headers
):
    """The same status, headers and body, with and without a token."""
    with_page = await get(path=path, method=method, headers={"x": "x", **headers}, token=token)
    monkeypatch.setattr(WelcomePage, "find", lambda _self, _scope: None)
    without = await get(path=path, method=method, headers={"x": "x", **headers}, token=token)
    assert "claude mcp add" not in with_page.text
    assert describe(with_page) == describe(without)


def describe(response):
    """Return everything of a response but the id of a new session, which is random."""
    random = {"mcp-session-id": "random"} if "mcp-session-id" in response.headers else {}
    return response.status_code, {**response.headers, **random}, response.content


async def test_accept_may_be_spread_over_several_headers():
    """HTTP allows that; a client that also accepts an event stream is no browser."""
    several = [("accept", "text/html"), ("accept", "text/event-stream")]
    assert "claude mcp add" not in (await get(headers=several)).text
    assert (await get(headers=[("accept", "image/png"), ("accept", "text/html")])).status_code == 200


async def test_the_path_of_the_protocol_may_be_the_root():
    """Or any other path, also below a prefix of an application around it."""
    assert Page((await serve_at("/")).text).texts["pre"][0] == "http://localhost:8000/"
    assert Page((await serve_at("/a/b")).text).texts["pre"][0] == "http://localhost:8000/a/b"
    prefixed = await get_mounted()
    assert Page(prefixed.text).texts["pre"][0] == "http://localhost:8000/tools/mcp"


async def serve_at(path):
    app = http_app(ToolServer("shop"), path=path)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost:8000"
    ) as client:
        return await client.get(path, headers=BROWSER)


async def get_mounted():
    app = Starlette(routes=[Mount("/tools", app=http_app(ToolServer("shop")))])
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost:8000"
    ) as client:
        return await client.get("/tools/mcp", headers=BROWSER)


async def test_a_visitor_is_nobody_who_was_let_in():
    """A browser never counts as authorised, neither with the right token nor if none is needed."""
    let_in, sent = [], []
    for token in (None, TOKEN):
        guard = guard_for("127.0.0.1", token)
        page = WelcomePage(Named("n", "1"), guard, "/mcp")

        async def app(_scope, _receive, _send):
            sent.append("app")

        async def send(message):
            sent.append(message.get("status"))

        middleware = GuardMiddleware(app, guard, on_authorised=let_in.append, find_page=page.find)
        headers = [
            (b"host", b"localhost"),
            (b"accept", b"text/html"),
            (b"authorization", f"Bearer {TOKEN}".encode()),
        ]
        await middleware({"type": "http", "method": "GET", "path": "/mcp", "headers": headers}, None, send)
    assert let_in == []
    assert sent == [200, None, 200, None]
