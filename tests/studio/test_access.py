"""The links and cookies of the studio, without a server: which requests are accepted."""

import pytest

from toolwire.studio.access import Access, AccessMiddleware

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

BASE = "http://127.0.0.1:8000/"


def make_scope(path="/", query="", kind="http", method="GET", **headers):
    """Return the ASGI scope of a request, as uvicorn passes it on."""
    given = {"host": "127.0.0.1:8000", **headers}
    return {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "server": ("127.0.0.1", 8000),
    }


async def app(scope, _receive, send):
    """The page behind the middleware."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    headers = [(b"content-type", b"text/plain"), (b"X-Frame-Options", b"ALLOWALL")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"page"})


async def ask(access, scope):
    """Send a request. Returns the first message, with the headers as a dict."""
    sent = []

    async def send(message):
        sent.append(message)

    await AccessMiddleware(app, access)(scope, None, send)
    first = sent[0]
    first["headers"] = {name.decode().lower(): value.decode() for name, value in first.get("headers", ())}
    return first


async def enter(access):
    """Open a link. Returns the cookie."""
    answer = await ask(access, make_scope(query=access.make_link(BASE).partition("?")[2]))
    assert answer["status"] == 200
    return answer["headers"]["set-cookie"].partition(";")[0]


async def test_a_link_gives_a_cookie_and_the_cookie_the_page():
    """The token of the link cannot be used again."""
    access = Access()
    cookie = await enter(access)
    answer = await ask(access, make_scope(cookie=cookie))
    assert answer["status"] == 200
    assert answer["headers"]["x-frame-options"] == "DENY"


async def test_a_link_that_is_opened_again_by_the_same_browser_leads_to_the_page():
    """A second click on the link in the terminal is not an error, because the browser has the cookie."""
    access = Access()
    link = access.make_link(BASE).partition("?")[2]
    first = await ask(access, make_scope(query=link))
    cookie = first["headers"]["set-cookie"].partition(";")[0]
    assert (await ask(access, make_scope(query=link, cookie=cookie)))["status"] == 200
    assert (await ask(access, make_scope(query=link)))["status"] == 403


async def test_a_link_is_used_up_by_a_browser_that_is_let_in_already():
    """Someone who reads the link afterwards cannot use it."""
    access = Access()
    cookie = await enter(access)
    link = access.make_link(BASE).partition("?")[2]
    assert (await ask(access, make_scope(query=link, cookie=cookie)))["status"] == 200
    assert (await ask(access, make_scope(query=link)))["status"] == 403


@pytest.mark.parametrize(
    "scope",
    [
        {"method": "POST"},
        {"path": "/other"},
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"kind": "websocket"},
    ],
)
async def test_a_token_is_not_used_up_by_what_is_no_visit(scope):
    """A request from another page cannot use up the user's link."""
    access = Access()
    query = access.make_link(BASE).partition("?")[2]
    answer = await ask(access, make_scope(query=query, **scope))
    assert answer.get("status", 403) in {403, 421}
    assert (await ask(access, make_scope(query=query)))["status"] == 200


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "toolwire_studio_8000=",
        "toolwire_studio_8000=x",
        "toolwire_studio_9000={key}",
        "=;=",
        "é=ü",
        "\x7f",
    ],
)
async def test_only_the_cookie_of_this_studio_counts(cookie):
    """A cookie that is empty, wrong, unreadable or of another port is refused."""
    access = Access()
    key = (await enter(access)).partition("=")[2]
    assert (await ask(access, make_scope(cookie=cookie.format(key=key))))["status"] == 403


@pytest.mark.parametrize(
    "cookies",
    [
        'a={{"x":1}}; {own}',
        "a=b c; {own}",
        "a; {own}; b",
        "a@b=1;{own}",
        "a=é; {own}",
        "toolwire_studio_8000=theirs; {own}",
        "{own}; toolwire_studio_8000=theirs",
    ],
)
async def test_cookies_of_other_servers_on_this_machine_keep_nobody_out(cookies):
    """A browser sends the cookies of all ports, in any form, and another server may have used the same name."""
    access = Access()
    own = await enter(access)
    assert (await ask(access, make_scope(cookie=cookies.format(own=own))))["status"] == 200


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("host", ["evil.example", "127.0.0.1:8000"]),
        ("host", ["127.0.0.1:8000", "127.0.0.1:8000"]),
        ("origin", ["https://evil.example", "http://127.0.0.1:8000"]),
    ],
)
async def test_a_header_that_decides_may_come_once(name, values):
    """Otherwise two parts of the server might each use another value."""
    access = Access()
    scope = make_scope(cookie=await enter(access))
    scope["headers"] = [each for each in scope["headers"] if each[0] != name.encode()]
    scope["headers"] += [(name.encode(), value.encode()) for value in values]
    assert (await ask(access, scope))["status"] in {403, 421}


@pytest.mark.parametrize("site", ["same-site", "cross-site", "same-origin", "none"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
async def test_another_page_of_this_machine_cannot_load_anything(site, mode):
    """Its requests have the cookie, since cookies do not depend on the port. A link to the studio is allowed."""
    access = Access()
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "cookie": await enter(access)}
    refused = mode == "no-cors" and site in {"same-site", "cross-site"}
    assert (await ask(access, make_scope(**headers)))["status"] == (403 if refused else 200)


async def test_a_socket_without_origin_is_closed():
    """Browsers always send an Origin header with a WebSocket, so the client is none of our pages."""
    access = Access()
    cookie = await enter(access)
    assert (await ask(access, make_scope(kind="websocket", cookie=cookie)))["type"] == "websocket.close"
    own = make_scope(kind="websocket", cookie=cookie, origin="http://127.0.0.1:8000")
    assert (await ask(access, own))["type"] == "websocket.accept"


async def test_only_the_latest_links_work():
    """Otherwise holding Enter down in the terminal would make the list of links grow without limit."""
    access = Access()
    links = [access.make_link(BASE) for _ in range(50)]
    assert not access.redeem(links[0].partition("=")[2])
    assert access.redeem(links[-1].partition("=")[2])


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", ""]
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_another_origin_is_refused_even_with_the_cookie(origin, kind):
    """A page of another site can make a browser send requests, which may have the cookie."""
    access = Access()
    answer = await ask(access, make_scope(kind=kind, cookie=await enter(access), origin=origin))
    assert answer.get("status") == 403 or answer["type"] == "websocket.close"


async def test_what_a_proxy_would_say_does_not_reach_the_page():
    """Proxy headers are removed, because NiceGUI would put the prefix into its HTML."""
    access, seen = Access(), []

    async def look(scope, _receive, send):
        seen.extend(name for name, _ in scope["headers"])
        await app(scope, _receive, send)

    async def ignore(_message):
        pass

    scope = make_scope(cookie=await enter(access))
    scope["headers"] += [(b"X-Forwarded-Prefix", b"/<script>"), (b"x-forwarded-host", b"evil.example")]
    await AccessMiddleware(look, access)(scope, None, ignore)
    assert seen == [b"host", b"cookie"]
