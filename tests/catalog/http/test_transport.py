"""Connections: one for each request, opened before anything is booked, and only to addresses that are allowed."""

import base64
import ipaddress
import itertools
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import anyio.lowlevel
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.market import api_for
from shared.waiting import eventually
from toolwire.catalog.http.answers import describe_error
from toolwire.catalog.http.connection import Base, Retry, make_ssl_context
from toolwire.catalog.http.transport import OneRequestTransport, connect
from toolwire.errors import CatalogError

pytestmark = pytest.mark.anyio

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


class Peer:
    """A server that runs `act` for each connection, and records what it received."""

    def __init__(self, act):
        self.heard = []
        self.act = act

    def handle(self, connection):
        with connection:
            self.act(self, connection)

    def read_request(self, connection):
        data = b""
        # Read all of it: closing a socket with unread data resets the connection.
        while not data.endswith(b"\r\n\r\norder") and not (
            data.startswith(b"CONNECT") and b"\r\n\r\n" in data
        ):
            if not (part := connection.recv(65536)):
                break
            data += part
        self.heard.append(data)
        return data


@contextmanager
def listening(act, context=None):
    """Serve a peer on loopback; yields it and its port."""
    peer, open_ones = Peer(act), []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    if context is not None:
                        connection = context.wrap_socket(connection, server_side=True)
                except (ssl.SSLError, OSError):
                    continue
                open_ones.append(connection)
                threading.Thread(target=peer.handle, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield peer, server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def answer(peer, connection):
    peer.read_request(connection)
    connection.sendall(REPLY)


def request_to(port, scheme="http", before_send=None, host="127.0.0.1"):
    extensions = {"timeout": {"connect": 5.0}, "sni_hostname": "localhost"}
    if before_send is not None:
        extensions["before_send"] = before_send
    headers = {"Host": f"localhost:{port}", "Connection": "close"}
    url = f"{scheme}://{host}:{port}/buy"
    return httpx2.Request("POST", url, headers=headers, content=b"order", extensions=extensions)


async def send(transport, request):
    response = await transport.handle_async_request(request)
    try:
        return response.status_code, b"".join([part async for part in response.aiter_bytes()])
    finally:
        await response.aclose()


async def test_a_request_is_booked_on_an_open_connection_and_sent_after_it():
    """`before_send` is awaited once the connection is open, before the first byte."""
    events = []
    with listening(answer) as (peer, port):

        async def before_send(is_open):
            events.append((is_open(), list(peer.heard)))

        transport = OneRequestTransport(ssl.create_default_context)
        assert await send(transport, request_to(port, before_send=before_send)) == (200, b"{}")
    assert events == [(True, [])]
    assert peer.heard[0].startswith(b"POST /buy HTTP/1.1\r\n")


async def test_what_refuses_the_booking_keeps_the_request_from_being_sent():
    """The server only sees a connection that is closed."""
    ended = threading.Event()

    def watch(peer, connection):
        peer.read_request(connection)
        ended.set()

    with listening(watch) as (peer, port):

        async def before_send(is_open):
            raise CatalogError("over budget")

        with pytest.raises(CatalogError, match="over budget"):
            await send(
                OneRequestTransport(ssl.create_default_context), request_to(port, before_send=before_send)
            )
        await anyio.to_thread.run_sync(ended.wait, 5)
    assert peer.heard == [b""]


@pytest.mark.parametrize(
    "parting", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ids=["silent", "with words"]
)
async def test_a_connection_that_died_while_the_order_was_booked_is_known(parting):
    """`is_open()` becomes False, so nothing is sent on it, and nothing is uncertain."""
    gone = threading.Event()

    def hang_up(peer, connection):
        connection.sendall(parting)
        connection.close()
        gone.set()

    seen = []
    with listening(hang_up) as (_, port):

        async def before_send(is_open):
            await anyio.to_thread.run_sync(gone.wait, 5)
            await eventually(lambda: not is_open())
            seen.append(is_open())
            raise httpx2.ConnectError("it is gone")

        with pytest.raises(httpx2.ConnectError, match="it is gone"):
            await send(
                OneRequestTransport(ssl.create_default_context), request_to(port, before_send=before_send)
            )
    assert seen == [False]


async def test_a_reset_in_the_middle_of_a_reply_is_an_error():
    """The reply does not count as complete."""

    def reset(peer, connection):
        peer.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with listening(reset) as (_, port), pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
        await send(OneRequestTransport(ssl.create_default_context), request_to(port))


@pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {}), ("asyncio", {"use_uvloop": True}), ("trio", {})],
    ids=["asyncio", "uvloop", "trio"],
)
async def test_a_long_reply_comes_whole(anyio_backend):
    """It is larger than what is buffered at a time, on every event loop."""
    body = bytes(range(256)) * 20_000

    def much(peer, connection):
        peer.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with listening(much) as (_, port):
        assert await send(OneRequestTransport(ssl.create_default_context), request_to(port)) == (200, body)


async def test_nobody_listens():
    """A refused connection is a ConnectError on every system."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(httpx2.ConnectError):
        await send(OneRequestTransport(ssl.create_default_context), request_to(port))


# --- proxies ---


def tunnel(status=b"200 OK"):
    """Return the behaviour of a proxy that connects to this machine, whatever host it is asked for."""

    def act(peer, connection):
        head = peer.read_request(connection)
        connection.sendall(b"HTTP/1.1 %b\r\n\r\n" % status)
        if not status.startswith(b"2"):
            return
        port = int(head.split(b" ")[1].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as other:
            threads = [
                threading.Thread(target=pump, args=pair, daemon=True)
                for pair in ((connection, other), (other, connection))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)

    return act


def pump(source, target):
    with suppress(OSError):  # if one side has closed, close the other too
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):  # already closed
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost, as a server context and a CA file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = made.public_bytes(serialization.Encoding.PEM)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(pem + key.private_bytes(*plain))
    (folder / "ca.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context, str(folder / "ca.pem")


async def test_the_tickets_of_a_tls_session_are_no_sign_that_the_server_hangs_up(certificate):
    """TLS 1.3 sends tickets after the handshake, while the order is being booked."""
    context, ca_file = certificate
    seen = []

    async def before_send(is_open):
        await anyio.to_thread.run_sync(greeted.wait, 5)  # the handshake is complete, and the tickets are sent
        seen.append(is_open())

    greeted = threading.Event()

    def greet(peer, connection):
        greeted.set()
        answer(peer, connection)

    with listening(greet, context) as (_, port):
        transport = OneRequestTransport(partial(make_ssl_context, ca_file))
        assert await send(transport, request_to(port, "https", before_send)) == (200, b"{}")
    assert seen == [True]


async def test_a_tls_connection_that_was_cut_while_the_order_was_booked_is_known(certificate):
    """`is_open()` becomes False, so nothing is sent on it, and nothing is uncertain."""
    _, ca_file = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file.replace("ca.pem", "both.pem"))
    context.num_tickets = 0

    def hang_up(peer, connection):
        connection.close()  # without a TLS close

    async def before_send(is_open):
        await eventually(lambda: not is_open())
        raise httpx2.ConnectError("it is gone")

    with listening(hang_up, context) as (_, port):
        transport = OneRequestTransport(partial(make_ssl_context, ca_file))
        with pytest.raises(httpx2.ConnectError, match="it is gone"):
            await send(transport, request_to(port, "https", before_send))


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_a_request_goes_through_the_proxy(secure, certificate):
    """The proxy opens a tunnel; the API does not see the proxy's credentials."""
    context, ca_file = certificate
    booked = []

    async def before_send(is_open):
        booked.append(len(proxy.heard))

    with listening(answer, context if secure else None) as (api, port), listening(tunnel()) as (proxy, via):
        named = httpx2.Proxy(f"http://127.0.0.1:{via}", auth=("me", "secret"))
        transport = OneRequestTransport(partial(make_ssl_context, ca_file), named)
        request = request_to(port, "https" if secure else "http", before_send, host="localhost")
        assert await send(transport, request) == (200, b"{}")
    assert proxy.heard[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % port)
    assert base64.b64encode(b"me:secret") in proxy.heard[0]
    assert base64.b64encode(b"me:secret") not in api.heard[0]
    assert booked == [1]  # by then, the tunnel was open


async def test_a_proxy_that_refuses_has_sent_nothing():
    """The order is not booked either."""
    booked = []

    async def before_send(is_open):
        booked.append(1)

    with listening(answer) as (api, port), listening(tunnel(b"407 Who are you")) as (_, via):
        transport = OneRequestTransport(ssl.create_default_context, httpx2.Proxy(f"http://127.0.0.1:{via}"))
        with pytest.raises(httpx2.ProxyError, match="refused to connect to localhost: HTTP 407"):
            await send(transport, request_to(port, before_send=before_send))
    assert (booked, api.heard) == ([], [])


async def test_certificates_of_our_own_are_trusted_when_named(certificate):
    """Without `ca_file` the certificate is refused."""
    context, ca_file = certificate
    with listening(answer, context) as (_, port):
        good = OneRequestTransport(partial(make_ssl_context, ca_file))
        assert await send(good, request_to(port, "https")) == (200, b"{}")
        with pytest.raises(httpx2.ConnectError) as refused:
            await send(OneRequestTransport(make_ssl_context), request_to(port, "https"))
    assert "CERTIFICATE_VERIFY_FAILED" in describe_error(refused.value)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_holds_no_certificates_is_an_error(tmp_path, text):
    """The error names the setting and the file."""
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CatalogError, match=r"network.ca_file .*ca.pem cannot be read as certificates"):
        make_ssl_context(str(file))


# --- internal addresses ---


async def internal(host, port):
    return ["10.1.2.3"]


async def test_an_internal_address_is_refused_with_the_way_out():
    """The error says which setting allows it; other networks stay refused."""
    base = Base.of("https://api.internal")
    with pytest.raises(CatalogError, match=r'network.allow = \["10.1.2.3"\]'):
        await base.addresses(internal)
    allowed = [ipaddress.ip_network("10.1.0.0/16")]
    assert await base.addresses(internal, allowed) == ["10.1.2.3"]
    with pytest.raises(CatalogError, match="is not on the public internet"):
        await base.addresses(internal, [ipaddress.ip_network("10.2.0.0/16")])


async def test_a_flood_of_interim_responses_lets_others_run():
    """A server that sends "100 Continue" without end does not block other tasks for more than one read."""
    flood = b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000  # 1 MB: many reads
    turns, reads = 0, []

    def pour(peer, connection):
        peer.read_request(connection)
        with suppress(OSError):  # the client has closed the connection
            connection.sendall(flood + REPLY)

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    with listening(pour) as (_, port):
        stream = await connect("127.0.0.1", port, None, "localhost")
        await stream.write(b"POST / HTTP/1.1\r\n\r\norder")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            while sum(map(len, (each for each, _ in reads))) < len(flood):
                before = turns
                reads.append((await stream.read(8 * 1024), turns - before))
            tasks.cancel_scope.cancel()
        await stream.aclose()
    idle = [passed == 0 for _, passed in reads]
    assert not any(first and second for first, second in itertools.pairwise(idle))


# --- settings of the profile ---


def sell(peer, connection):
    """Receive an order of any length, and reply to it."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(next(line for line in head.lower().split(b"\r\n") if b"content-length" in line).split()[1])
    while len(body) < length:
        body += connection.recv(65536)
    peer.heard.append(head + b"\r\n\r\n" + body)
    reply = b'{"success": true, "result": "sold"}'
    start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply)
    connection.sendall(start + reply)


async def here(host, port):
    return ["127.0.0.1"]


async def test_orders_go_through_the_profile_s_proxy_with_its_certificates(certificate):
    """The proxy resolves the name; the certificate is verified with the profile's `ca_file`."""
    context, ca_file = certificate
    with listening(sell, context) as (api, port), listening(tunnel()) as (proxy, via):
        network = {"proxy": f"http://127.0.0.1:{via}", "ca_file": ca_file}
        async with api_for(f"https://localhost:{port}", network=network) as client:
            answer = await client.buy("id", {}, key="k")
    assert answer.ok, answer.error
    assert proxy.heard[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % port)
    assert api.heard[0].startswith(b"POST /products/purchase HTTP/1.1\r\n")


async def test_orders_go_to_the_internal_addresses_that_the_profile_allows():
    """Without `network.allow` nothing is sent."""
    with listening(sell) as (api, port):
        url, network = f"http://api.internal:{port}", {"allow_http": True}
        async with api_for(url, network=network, resolver=here, retry=Retry(attempts=1)) as client:
            refused = await client.buy("id", {}, key="k")
        async with api_for(url, network={**network, "allow": ["127.0.0.0/8"]}, resolver=here) as client:
            answer = await client.buy("id", {}, key="k")
    assert refused.state == "not_sent"
    assert "network.allow" in refused.error
    assert answer.ok, answer.error
    assert len(api.heard) == 1
