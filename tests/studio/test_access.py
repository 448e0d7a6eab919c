"""Who is let into the studio: requests as uvicorn hands them on, without a browser (that is in tests/browser)."""

import pytest

from toolwire.studio.access import POLICY, Access, AccessMiddleware

PORT = 8123
HERE = f"127.0.0.1:{PORT}"


async def page(scope, receive, send):
    """The studio behind the door."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"Content-Security-Policy", b"none")]}
    )
    await send({"type": "http.response.body", "body": b"tools"})


@pytest.fixture
def access():
    """The links of one studio."""
    return Access()


@pytest.fixture
def visit(access):
    """Send a request; returns the first message of the response and the rest of it."""

    async def ask(kind="http", query="", method="GET", path="/", **headers):
        headers = {"host": HERE, **headers}
        scope = {
            "type": kind,
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [
                (name.encode(), value.encode()) for name, value in headers.items() if value is not None
            ],
            "server": ("127.0.0.1", PORT),
        }
        sent = []

        async def send(message):
            sent.append(message)

        await AccessMiddleware(page, access)(scope, None, send)
        return sent

    return ask


def redeemed(response):
    """The cookie that a link was exchanged for."""
    (first, *_) = response
    assert first["status"] == 303
    return dict(first["headers"])[b"set-cookie"].decode().partition(";")[0]


@pytest.fixture
def link(access):
    """The query of a link that nobody has used."""
    return access.make_link(f"http://{HERE}/").partition("?")[2]


@pytest.mark.anyio
async def test_a_link_works_once_and_its_cookie_stays(visit, link):
    """Its token is exchanged for a cookie that neither scripts nor other sites get, and leaves the address."""
    first = await visit(query=link)
    headers = dict(first[0]["headers"])
    assert headers[b"location"] == b"/"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert {b"HttpOnly", b"SameSite=Strict"} <= set(headers[b"set-cookie"].split(b"; "))
    cookie = redeemed(first)
    assert (await visit(cookie=cookie))[0]["status"] == 200
    assert (await visit(query=link))[0]["status"] == 403
    assert (await visit(cookie=cookie))[0]["status"] == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"cookie": None}, 403),
        ({"cookie": f"toolwire_studio_{PORT}=guessed"}, 403),
        ({"cookie": 'a="\\777'}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": f"evil.example:{PORT}"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": ""}, 421),
        ({"host": None}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": f"https://{HERE}"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_others_are_refused(visit, link, headers, status):
    """Without the cookie, by another name of the host, or from another page: over HTTP and as a WebSocket."""
    cookie = redeemed(await visit(query=link))
    origin = {"origin": f"http://{headers.get('host', HERE)}"}
    response = await visit(**{"cookie": cookie, **headers})
    assert response[0]["status"] == status
    assert b"tools" not in response[1]["body"]
    (closed,) = await visit("websocket", **{"cookie": cookie, **origin, **headers})
    assert closed["type"] == "websocket.close"


@pytest.mark.anyio
async def test_a_websocket_of_the_page_is_accepted_and_one_without_an_origin_is_not(visit, link):
    """Programs leave the origin out; browsers never do."""
    cookie = redeemed(await visit(query=link))
    assert (await visit("websocket", cookie=cookie, origin=f"http://{HERE}"))[0]["type"] == "websocket.accept"
    assert (await visit("websocket", cookie=cookie))[0]["type"] == "websocket.close"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "how",
    [
        {"host": f"evil.example:{PORT}"},
        {"origin": "https://evil.example"},
        {"method": "POST"},
        {"path": "/elsewhere"},
    ],
)
async def test_a_link_is_not_used_up_by_others(visit, link, how):
    """Only a visit of the page itself exchanges the token."""
    refused = await visit(query=link, **how)
    assert refused[0]["status"] in {403, 421}
    assert b"set-cookie" not in dict(refused[0]["headers"])
    redeemed(await visit(query=link))


@pytest.mark.anyio
async def test_every_response_has_the_policy_that_lets_nothing_out(visit, link):
    """Once, in place of one that the page would have; refusals have it too."""
    cookie = redeemed(await visit(query=link))
    for response in (await visit(cookie=cookie), await visit()):
        policies = [
            value for name, value in response[0]["headers"] if name.lower() == b"content-security-policy"
        ]
        assert policies == [POLICY.encode()]
    rules = dict(each.strip().split(" ", 1) for each in POLICY.split(";"))
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert not [value for value in rules.values() if "http" in value or "*" in value]


def test_old_links_are_forgotten(access):
    """Of many links only the latest work, so that they cost no memory."""
    links = [access.make_link("").partition("token=")[2] for _ in range(30)]
    assert not access.redeem(links[0])
    assert access.redeem(links[-1])
    assert not access.redeem("")
    assert not access.redeem("\ud800")
