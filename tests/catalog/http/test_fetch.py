"""Reading the whole list of an API, despite failures, and only from the addresses that are allowed."""

import datetime as dt
import ipaddress
import logging
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import httpx2
import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.market import KEYS, Fault, PaidApi, api_for, keys_of, profile_for
from toolwire.catalog.http import fetch as http
from toolwire.catalog.http.answers import parse_retry_after
from toolwire.catalog.http.api import Api
from toolwire.catalog.http.connection import Retry
from toolwire.catalog.profile.model import ProfileError
from toolwire.errors import CatalogError, UsageError

pytestmark = pytest.mark.anyio

FETCH = "/products/fetch"
PUBLIC = "93.184.216.34"
INSIDE = """127.0.0.1 10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 240.0.0.1
255.255.255.255 ::1 :: fe80::1%eth0 fd00:ec2::254 fec0::1 ::ffff:127.0.0.1 64:ff9b::a9fe:a9fe
2002:7f00:1:: 2001:0:1::1 ::7f00:1 ff02::1 junk"""


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi(entries=298, broken=True) as running:
        yield running


def listing(*pages, seen=None):
    """Return a transport that responds with these pages in order."""
    waiting = list(pages)

    async def handle(request):
        if seen is not None:
            seen.append(request)
        page = waiting.pop(0) if waiting else page_of()
        return page if isinstance(page, httpx2.Response) else httpx2.Response(200, json=page)

    return httpx2.MockTransport(handle)


def page_of(*ids, more=None):
    tools = [{"function": {"name": each}} for each in ids]
    return {"tools": tools} | ({} if more is None else {"details": {"has_next_page": more}})


async def ids_from(*pages, **changes):
    async with api_for("http://127.0.0.1:1", transport=listing(*pages), **changes) as api:
        return [entry.id for entry in await api.entries()]


async def test_all_entries_of_all_pages_come(shop):
    """298 entries of three pages are read, with names, schemas and prices; invalid ones are left to the caller."""
    async with api_for(shop.url) as api:
        entries = await api.entries()
    assert [entry.id for entry in entries] == list(shop.products)
    weather = entries[0]
    assert weather.description == "weather — Tell the weather of a city"
    assert (weather.price, weather.category, weather.schema["required"]) == (10_000, "data", ["city"])
    assert [path for _, path, _ in shop.requests] == [f"{FETCH}?page={n}&page_size=100" for n in (1, 2, 3)]
    assert KEYS.items() <= shop.requests[0][2].items()


TWO = {"list": {"paging": {"size": 2}}}


@pytest.mark.parametrize(
    ("pages", "found"),
    [
        ([page_of("a", "b"), page_of("c")], "abc"),
        ([page_of("a", "b"), page_of()], "ab"),
        ([page_of()], ""),
        ([page_of("a", more=True), page_of("b", "c", more=False)], "abc"),
        ([page_of("a", "b", more=False)], "ab"),
        ([page_of("a", more=True), page_of(more=True), page_of("b", more=False)], "ab"),
        ([page_of("a", more=True), page_of("", more=True), page_of("b", more=False)], "ab"),
        ([page_of("a", more="false"), page_of("b")], "a"),
        ([page_of("a", more="true"), page_of("b", more="no")], "ab"),
        ([{**page_of("a", "b"), "details": {"has_next_page": None}}, page_of("c")], "ab"),
        ([{**page_of(each), "details": {"total_pages": 3}} for each in "abcd"], "abc"),
        ([{**page_of(each), "total_pages": "2"} for each in "abc"], "ab"),
        ([page_of("a"), page_of("b", "c"), page_of("d"), page_of(), page_of("e")], "abcd"),
        ([page_of("a", "b"), page_of(""), page_of("c")], "abc"),
        ([page_of("a", "b"), page_of("b"), page_of("c")], "ab"),
        ([page_of("a", "b"), {"tools": None}], "ab"),
        ([page_of("a", "b"), {"tools": [], "error": "no such page"}], "ab"),
        *(([page_of("a", "b"), httpx2.Response(status, json={})], "ab") for status in (400, 404, 416, 422)),
        ([page_of("a", "b", more=True), page_of("b", "c", more=False)], "abc"),
    ],
    ids=[
        *("short", "empty", "nothing", "flag", "flag-full", "flag-empty", "flag-no-ids", "word-false"),
        *(
            "words",
            "null",
            "total",
            "total-on-top",
            "capped",
            "no-ids",
            "known",
            "null-list",
            "error-past-end",
        ),
        *("400", "404", "416", "422", "shifted"),
    ],
)
async def test_the_last_page_is_known(pages, found):
    """The end is what the API declares, else a page without new entries or with an error status."""
    assert await ids_from(*pages, **TWO) == list(found)


async def test_a_page_that_comes_again_ends_the_list(caplog):
    """An API that ignores our page parameter would repeat its first page for ever."""
    pages = [page_of("a", "b", more=True)] * 2
    assert await ids_from(*pages) == ["a", "b"]
    assert "Page 2 of the list has nothing new" in caplog.text


async def test_pages_without_anything_new_end_the_list(caplog):
    """Several pages without new entries end the list, even if the API says that there are more."""
    seen = []
    pages = [page_of("a", more=True), *[page_of(more=True)] * 9]
    async with api_for("http://127.0.0.1:1", transport=listing(*pages, seen=seen)) as api:
        assert [entry.id for entry in await api.entries()] == ["a"]
    assert len(seen) == 4
    assert "Page 4 of the list has nothing new" in caplog.text


@pytest.mark.parametrize("pages", [[], [page_of("a", more=True)], [{**page_of("a"), "total_pages": 2}]])
async def test_a_page_that_must_be_there_is_missed(pages):
    """A 404 only ends the list if the page was a guess; otherwise it is an error."""
    with pytest.raises(CatalogError, match="of the list: HTTP 404"):
        await ids_from(*pages, httpx2.Response(404, json={}))


async def test_an_entry_too_deep_to_be_compared_is_kept_once():
    """The entry is recognised when an API that ignores the page parameter repeats the page."""
    schema = b"[" * 990 + b"]" * 990
    page = b'{"tools": [{"function": {"name": "a", "parameters": ' + schema + b"}}]}"
    pages = [httpx2.Response(200, content=page) for _ in range(2)]
    assert await ids_from(*pages) == ["a"]


async def test_prices_that_cannot_be_read_are_told_once(caplog):
    """They count as unknown, and the log does not repeat their text."""
    tools = [
        {"function": {"name": each}, "price": price} for each, price in (("a", "0.05 USD"), ("b", "s3cret"))
    ]
    page = {"tools": tools, "details": {"has_next_page": False}}
    async with api_for("http://127.0.0.1:1", transport=listing(page, page)) as api:
        for _ in range(2):
            assert [entry.price for entry in await api.entries()] == [50_000, None]
    assert caplog.text.count("1 entries of the list have a price at price that cannot be read") == 1
    assert "s3cret" not in caplog.text


async def test_entries_without_an_id_are_left_out_and_told(caplog):
    """They could not be bought, so they are skipped, with a line in the log."""
    odd = [{}, None, {"function": {"name": ""}}, {"function": {"name": True}}, {"function": {"name": 7}}]
    assert await ids_from({"tools": odd}) == ["7"]
    assert "4 entries of the list have no function.name and are left out" in caplog.text


async def test_an_api_without_pages_is_asked_once():
    """The request has no page parameter, and there is no second one."""
    assert await ids_from(page_of("a", "b"), list={"paging": {"kind": "none"}}) == [
        "a",
        "b",
    ]


async def test_an_endless_list_is_given_up(monkeypatch):
    """The limit is 1,000 pages, and 3 in this test."""
    monkeypatch.setattr(http, "MOST_PAGES", 3)
    with pytest.raises(CatalogError, match="does not end: 3 pages were read. Check list.paging"):
        await ids_from(*(page_of(each, more=True) for each in "abcd"))


async def test_a_list_that_is_too_long_in_all_is_given_up(monkeypatch):
    """Each page may be small enough, but all of them together too large."""
    monkeypatch.setattr(http, "MOST_LIST_BYTES", 100)
    with pytest.raises(CatalogError, match="the list is too large: over 100 bytes at page 2"):
        await ids_from(*(page_of(each * 30, more=True) for each in "abcd"))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"success": False, "error": "closed"}, "the API could not return the list: closed"),
        ({"success": False}, "the API could not return the list: no reason given"),
        ({"success": "false", "error": "closed", "tools": []}, "the API could not return the list: closed"),
        ({"error": "closed", "tools": []}, "the API could not return the list: closed"),
        ({"other": []}, "page 1 has no list at 'tools': the page has other (list of 0). Check list.items in the"),
        ([], "page 1 has no list at 'tools'"),
        (httpx2.Response(401, json={"error": "bad key"}), "page 1 of the list: HTTP 401 (Unauthorized): bad key"),
        (httpx2.Response(401, json={"error": {"message": "a\nb"}}), "HTTP 401 (Unauthorized): a b"),
        (httpx2.Response(302, headers={"Location": "https://evil.test"}), "the API redirects to evil.test."),
        (httpx2.Response(302, headers={"Location": "/x"}), "HTTP 302: the API redirects to another path."),
    ],
)  # fmt: skip
async def test_what_is_no_list_is_told_at_once(page, words):
    """The error says what is wrong, where, and what to do. There is no retry, as it would not help."""
    with pytest.raises(CatalogError) as caught:
        await ids_from(page)
    assert words in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault("reset_before_buying", FETCH),
        Fault("half_reply", FETCH),
        Fault("garbage", FETCH),
        Fault("wrong_type", FETCH),
        Fault("hang_before_buying", FETCH),
        Fault("drip", FETCH, seconds=0.1),
        Fault("status_before_buying", FETCH, status=503),
        Fault("status_before_buying", FETCH, status=500),
        Fault("status_before_buying", FETCH, status=429, retry_after="0.01"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
async def test_what_may_pass_is_tried_again(shop, fault):
    """Reading costs nothing, so after two failures of a page a third attempt succeeds."""
    shop.faults.append(Fault(**{**vars(fault), "times": 2}))
    slow = fault.kind in ("hang_before_buying", "drip")  # the others must not run into a timeout
    async with api_for(shop.url, timeout=1.0 if slow else 30.0) as api:
        assert len(await api.entries()) == 298
    assert len(shop.requests) == 5


async def test_what_does_not_pass_is_told_in_the_end(shop):
    """The error is that of the last of three attempts."""
    shop.faults.append(Fault("status_before_buying", FETCH, times=9))
    async with api_for(shop.url) as api:
        with pytest.raises(
            CatalogError, match=r"page 1 of the list: HTTP 503 \(Service Unavailable\): fault: 503"
        ):
            await api.entries()
    assert len(shop.requests) == 3


async def test_an_api_that_is_down_is_told(shop):
    """The error contains the original cause."""
    await shop.stop()
    async with api_for(shop.url) as api:
        with pytest.raises(CatalogError, match="page 1 of the list: ConnectError: "):
            await api.entries()


async def test_a_page_over_the_cap_is_refused(shop):
    """Reading stops at the limit, and there is no retry, as the page would be no smaller."""
    async with api_for(shop.url, max_reply_bytes=1000) as api:
        with pytest.raises(CatalogError, match="max_reply_bytes"):
            await api.entries()
    assert len(shop.requests) == 1


async def test_it_can_be_cancelled_in_a_wait(shop):
    """A cancellation ends the wait before the next attempt at once."""
    shop.faults.append(Fault("status_before_buying", FETCH, retry_after="60", times=9))
    async with api_for(shop.url, retry=Retry(longest_retry_after=60)) as api:
        with anyio.move_on_after(0.1) as scope:
            await api.entries()
    assert scope.cancelled_caught


async def test_retries_are_silent_unless_logging_is_set_up(shop, capfd):
    """Nothing is printed to stderr, not even by the library for retries."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        shop.faults.append(Fault("status_before_buying", FETCH))
        async with api_for(shop.url) as api:
            await api.entries()
    finally:
        root.handlers = handlers
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("tries", "asked", "pause"), [(1, None, 1), (2, None, 2), (9, None, 5), (1, 7.0, 7), (1, 99.0, 30)]
)
def test_waits_grow_and_are_bounded(tries, asked, pause):
    """The wait doubles each time. What the API asks for takes precedence. Both have a maximum."""
    assert Retry(wait=1, jitter=0).pause(tries, asked) == pause
    assert pause <= Retry(wait=1, jitter=0.5).pause(tries, asked) <= pause + 0.5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("nan", None),
        ("1e999", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", None),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999999999", None),
        ("Wed, 99999999999999999999 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_read(header, seconds):
    """It may be seconds or a date; anything else is ignored."""
    assert parse_retry_after(header) == seconds


class TestAddresses:
    """API keys are only sent to the configured host, and only if its address is allowed."""

    @staticmethod
    async def ask(url, *addresses, seen=None, **more):
        async def resolver(host, port):
            return addresses

        transport = listing(page_of("a", more=False), seen=seen)
        async with api_for(url, transport=transport, resolver=resolver, **more) as api:
            return await api.entries()

    async def test_the_checked_address_is_the_one_that_is_asked(self):
        """The checked address is connected to; the name stays in the Host header and the TLS handshake."""
        seen = []
        await self.ask("https://api.example.com:8443/v2", PUBLIC, seen=seen)
        (request,) = seen
        assert str(request.url) == f"https://{PUBLIC}:8443/v2/products/fetch?page=1&page_size=100"
        assert request.headers["host"] == "api.example.com:8443"
        assert request.extensions["sni_hostname"] == "api.example.com"

    @pytest.mark.parametrize(
        "address",
        INSIDE.split(),
    )
    async def test_a_name_that_leads_inside_is_refused(self, address):
        """Private, link-local and metadata addresses, and their IPv6 forms, are refused, even among public ones."""
        for addresses in ([address], [PUBLIC, address]):
            with pytest.raises(CatalogError, match="not on the public internet, so nothing was sent"):
                await self.ask("https://api.example.com", *addresses)

    @pytest.mark.parametrize(
        "address", [PUBLIC, "2606:4700::1111", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"]
    )
    async def test_public_addresses_are_good(self, address):
        """IPv4, IPv6, and IPv4 embedded in IPv6 are accepted."""
        assert len(await self.ask("https://api.example.com", address)) == 1

    @pytest.mark.parametrize("url", ["https://10.0.0.1", "https://169.254.169.254", "https://[fd00::1]"])
    async def test_an_inner_address_is_refused_as_base_url_too(self, url):
        """Only loopback addresses may be used without being public."""
        with pytest.raises(CatalogError, match="not on the public internet"):
            await self.ask(url)

    async def test_localhost_must_be_this_machine(self):
        """Plain HTTP is sent to loopback only, whatever the resolver returns."""
        assert len(await self.ask("http://localhost:9", "127.0.0.1", "::1")) == 1
        with pytest.raises(CatalogError, match="not on this machine"):
            await self.ask("http://localhost:9", PUBLIC)

    @pytest.mark.parametrize(
        "url", ["http://api.example.com", "ftp://127.0.0.1", "https://u:p@api.example.com", "http://10.0.0.1"]
    )
    async def test_such_an_address_does_not_get_into_a_profile(self, url):
        """The base URL must be https, or plain http to loopback."""
        with pytest.raises(ProfileError):
            profile_for(url)

    async def test_a_name_that_is_not_known(self):
        """The network may be down for a moment, so resolving is retried before it is an error."""
        asked = []

        async def resolver(host, port):
            asked.append((host, port))
            raise OSError("no such name")

        async with api_for("https://api.example.com", resolver=resolver) as api:
            with pytest.raises(CatalogError, match="api.example.com could not be resolved: no such name"):
                await api.entries()
            answer = await api.buy("id", {}, key="k")
        assert asked == [("api.example.com", 443)] * 6
        assert answer.state == "not_sent"

    async def test_a_name_without_an_address(self):
        """It is an error, like an unknown name."""
        with pytest.raises(CatalogError, match="api.example.com has no address"):
            await self.ask("https://api.example.com")

    async def test_a_name_that_moves_inside_buys_nothing(self):
        """Against DNS rebinding, each connection is checked again, and the order is not sent."""
        answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"], ["127.0.0.1"]])
        seen = []

        async def resolver(host, port):
            return next(answers)

        transport = listing(page_of("a", more=False), seen=seen)
        async with api_for("https://api.example.com", transport=transport, resolver=resolver) as api:
            await api.entries()
            answer = await api.buy("id", {}, key="k")
        assert (answer.state, len(seen)) == ("not_sent", 1)
        assert "resolves to 127.0.0.1" in answer.error

    async def test_a_dead_address_is_followed_by_the_next(self, shop):
        """If a host has several addresses, the next one is tried, and the order is sent once."""

        async def resolver(host, port):
            return ["127.0.0.2", "127.0.0.1"]  # nothing listens at the first

        async with api_for(shop.url.replace("127.0.0.1", "localhost"), resolver=resolver) as api:
            answer = await api.buy(shop.id_of("weather"), {"city": "Ulm"}, key="k")
        assert (answer.state, len(shop.purchases)) == ("answered", 1)

    async def test_the_real_name_service_is_asked(self, shop):
        """localhost is resolved by the system's own resolver."""
        async with api_for(shop.url.replace("127.0.0.1", "localhost")) as api:
            assert len(await api.entries()) == 298
        assert shop.requests[0][2]["host"].startswith("localhost:")

    async def test_proxies_of_the_environment_are_not_used(self, shop, monkeypatch):
        """Environment variables cannot put a proxy between us and the API."""
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with api_for(shop.url) as api:
            assert len(await api.entries()) == 298


@pytest.mark.parametrize(
    "value", ["", "se\ncret", "se\r\ncret: y", "secret\x00", "sécret", " secret", "secret\t"]
)
def test_a_secret_that_is_no_header_value_is_refused_unseen(value):
    """The message names the header, but never shows its value."""
    with pytest.raises(UsageError) as caught:
        Api(profile_for("http://127.0.0.1:1"), keys_of({"x-api-key": value}))
    assert str(caught.value).startswith("the value of x-api-key cannot be sent in a header")
    assert "cret" not in str(caught.value)


@pytest.fixture
def tls(tmp_path):
    """A TLS server for localhost: its URL, the names that clients asked for, and a context that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "both.pem").write_bytes(pem + key.private_bytes(*plain))
    names = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = orjson.dumps(page_of("a", more=False))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_):
            pass  # a client that does not trust us hangs up

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    context.sni_callback = lambda _, asked, __: names.append(asked)
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"https://localhost:{server.server_port}", names, ssl.create_default_context(cadata=pem.decode())
    server.shutdown()
    thread.join()
    server.server_close()


async def here(host, port):
    return [str(ipaddress.IPv4Address("127.0.0.1"))]


async def test_the_certificate_is_checked_against_the_name(tls):
    """The host name counts, although the connection is made to an address."""
    url, names, trusting = tls
    async with api_for(url, resolver=here, ssl_context=trusting) as api:
        assert [entry.id for entry in await api.entries()] == ["a"]
    assert names == ["localhost"]


async def test_a_certificate_that_nobody_vouches_for_is_no_connection(tls):
    """Nothing of the order is sent unless the TLS handshake succeeds."""
    url, *_ = tls
    async with api_for(url, resolver=here, retry=Retry(attempts=1)) as api:
        answer = await api.buy("id", {}, key="k")
    assert answer.state == "not_sent"
    assert "CERTIFICATE_VERIFY_FAILED" in answer.error
