"""Which HTTP requests the guard of a server accepts, by host, origin and token."""

import pytest

from toolwire._support.addresses import is_loopback
from toolwire.errors import UsageError
from toolwire.mcp.serve.access import Guard, GuardMiddleware, guard_for, hostname

TOKEN = "s3cret"  # noqa: S105


def test_a_loopback_server_answers_its_own_names_only():
    """A web page whose host name resolves to 127.0.0.1 (DNS rebinding) gets status 421."""
    guard = guard_for("127.0.0.1", None)
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "localhost", "LOCALHOST:1"):
        assert guard.refusal({"host": host}) is None, host
    for host in (
        "evil.example.com",
        "127.0.0.1.evil.com:8000",
        "localhost.evil.com",
        "",
        "evil@localhost.x",
        "[::1",
    ):
        refused = guard.refusal({"host": host})
        assert refused is not None, host
        assert refused.status == 421


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:6274", True),
        ("https://127.0.0.1:3000", True),
        ("http://[::1]:3000", True),
        ("https://app.example.com", True),
        ("https://app.example.com.evil.com", False),
        ("http://app.example.com", False),
        ("http://evil.example.com", False),
        ("http://localhost.evil.com", False),
        ("null", False),
        ("", False),
        ("file://localhost", False),
        ("http://[broken", False),
    ],
)
def test_pages_are_let_in_by_origin(origin, allowed):
    """Pages of this machine and of the given origins are accepted; all others get status 403."""
    guard = guard_for("127.0.0.1", None, origins=["https://app.example.com"])
    refused = guard.refusal({"host": "127.0.0.1:8000", "origin": origin})
    assert (refused is None) == allowed
    assert refused is None or refused.status == 403


@pytest.mark.parametrize(
    ("header", "good"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer {TOKEN}", True),
        (f"Bearer  {TOKEN} ", True),
        ("Bearer other", False),
        (f"Bearer {TOKEN}x", False),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        ("", False),
        ("Bearer é", False),
    ],
)
def test_a_token_must_match(header, good):
    """If a token is set, a request without exactly that token gets status 401."""
    guard = guard_for("127.0.0.1", TOKEN)
    refused = guard.refusal({"host": "localhost", "authorization": header})
    assert (refused is None) == good
    assert refused is None or refused.status == 401


def test_a_health_check_needs_no_token_but_still_the_right_host():
    """With `open_to_all` the token is not checked, but the host still is."""
    guard = guard_for("127.0.0.1", TOKEN)
    assert guard.refusal({"host": "localhost"}, open_to_all=True) is None
    assert guard.refusal({"host": "evil.com"}, open_to_all=True) is not None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])  # noqa: S104
def test_other_addresses_need_a_token(host):
    """A server on an address that other machines can reach is never open to all."""
    with pytest.raises(UsageError, match="TOOLWIRE_TOKEN"):
        guard_for(host, None)
    guard = guard_for(host, TOKEN)
    good = {"host": "any.example.com", "authorization": f"Bearer {TOKEN}"}
    assert guard.refusal(good) is None
    assert guard.refusal({"host": "any.example.com"}) is not None
    assert guard.refusal({**good, "origin": "http://localhost:3000"}) is not None, (
        "a page needs to be named there"
    )


def test_named_hosts_narrow_an_open_address():
    """If hosts are given, requests for any other are refused."""
    guard = guard_for("0.0.0.0", TOKEN, hosts=["tools.example.com"])  # noqa: S104
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert guard.refusal({**headers, "host": "tools.example.com:80"}) is None
    assert guard.refusal({**headers, "host": "other.example.com"}) is not None


@pytest.mark.parametrize("token", ["", "   "])
def test_an_empty_token_is_refused(token):
    """A variable that is set to nothing does not turn the check off."""
    with pytest.raises(UsageError, match="empty"):
        guard_for("127.0.0.1", token)


@pytest.mark.parametrize("token", ["gehéim", "a\nb", "a\x00b"])
def test_a_token_that_no_header_can_carry_is_refused(token):
    """No request could ever match it."""
    with pytest.raises(UsageError, match="a header cannot carry"):
        guard_for("127.0.0.1", token)


def test_the_newline_behind_a_token_is_no_part_of_it():
    """Secrets from files and variables often end with one."""
    guard = guard_for("127.0.0.1", f"{TOKEN}\n")
    assert guard.refusal({"host": "localhost", "authorization": f"Bearer {TOKEN}"}) is None


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ("Example.COM", "example.com"),
        ("example.com:9000", "example.com:9000"),
        (" example.com. ", "EXAMPLE.com:1"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("my_host", "my_host:80"),
        ("[FE80::1]:80", "[fe80::1]:9000"),
        ("::2", "[::2]"),
    ],
)
def test_hosts_are_taken_as_people_write_them(given, header):
    """Case, a port, brackets, a final dot and Unicode do not matter."""
    guard = guard_for("127.0.0.1", None, hosts=[given])
    assert guard.refusal({"host": header}) is None
    assert guard.refusal({"host": "other.example"}) is not None


@pytest.mark.parametrize(
    "given", ["", "*", "*.example.com", "https://example.com", "example.com/x", "a b", "a..b"]
)
def test_what_is_no_host_is_refused(given):
    """A value that could never match a request must be a mistake."""
    with pytest.raises(UsageError, match="is not a host name"):
        guard_for("127.0.0.1", None, hosts=[given])


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ("https://example.com/", "https://example.com"),
        ("HTTPS://Example.com", "https://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("http://example.com:8080", "http://example.com:8080"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://[FE80::1]:3000/", "http://[fe80::1]:3000"),
        ("chrome-extension://abcDEF", "chrome-extension://abcDEF"),
    ],
)
def test_origins_are_taken_as_people_write_them(given, header):
    """They are normalized to the form that browsers send."""
    guard = guard_for("127.0.0.1", None, origins=[given])
    assert guard.allows_origin(header)
    assert guard.origins == {header}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "*",
        "null",
        "example.com",
        "https://",
        "https://example.com/app",
        "https://example.com?x",
        "https://me@example.com",
        "https://*.example.com",
        "https://example.com:port",
    ],
)
def test_what_is_no_origin_is_refused(given):
    """A value that could never match a request must be a mistake."""
    with pytest.raises(UsageError, match="is not an? (origin|host name)"):
        guard_for("127.0.0.1", None, origins=[given])


def test_the_address_itself_is_taken_as_people_write_it():
    """Brackets and capitals do not matter in the address that the server listens on."""
    assert guard_for("[::1]", None).refusal({"host": "[::1]:8000"}) is None
    assert guard_for("LOCALHOST", None).refusal({"host": "localhost"}) is None


def test_a_guard_without_hosts_or_token_lets_all_in():
    """The dataclass has no rules of its own: they come from `guard_for`."""
    assert Guard(None).refusal({"host": "x"}) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("0.0.0.0", False),  # noqa: S104 - every address of this machine
        ("10.0.0.1", False),
        ("example.com", False),
    ],
)
def test_loopback_is_told_by_address(host, expected):
    """All of 127.0.0.0/8, ::1 and "localhost" are loopback, and nothing else."""
    assert is_loopback(host) is expected


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["host", "origin", "authorization"])
async def test_headers_that_decide_must_not_be_repeated(name):
    """The guard might check one value and the application behind it use the other."""

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(*more):
        headers = [
            (b"host", b"localhost"),
            (b"origin", b"http://localhost"),
            (b"authorization", b"Bearer s3cret"),
        ]
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [*headers, *more]}
        await GuardMiddleware(app, guard_for("127.0.0.1", TOKEN))(scope, None, send)
        return sent[0]["status"]

    same = {"host": b"localhost", "origin": b"http://localhost", "authorization": b"Bearer s3cret"}[name]
    assert await ask((b"accept", b"a"), (b"accept", b"b")) == 200
    assert await ask((name.encode(), same)) == 400


def test_the_host_of_a_header_has_no_port():
    """`hostname` removes brackets and port, and lowercases the name."""
    assert [hostname(each) for each in ("a:1", "[::1]:2", "B", "")] == ["a", "::1", "b", ""]
