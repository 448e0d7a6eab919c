"""Orders to an API that fails at every stage: the outcome is known correctly, and nothing is bought twice."""

import socket
import threading
from contextlib import closing, contextmanager

import anyio
import httpx2
import orjson
import pytest

from shared.market import KEYS, Fault, PaidApi, api_for
from shared.waiting import eventually
from toolwire.catalog.http import api as api_module
from toolwire.catalog.http.answers import Attempt
from toolwire.catalog.http.connection import Retry
from toolwire.errors import CatalogError, UsageError

pytestmark = pytest.mark.anyio

SHORT = 0.15  # seconds, for tests of the timeout
DECLARED = {
    "uncharged_statuses": [400, 401, 402, 403, 404, 409, 422, 429, 503],
    "retry_statuses": [429, 503],
}


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture
def shop():
    with PaidApi() as running:
        yield running


async def buy(api, shop, name="weather", arguments=None, **more):
    arguments = {"city": "Ulm"} if arguments is None else arguments
    return await api.buy(shop.id_of(name), arguments, key="k-1", **more)


async def test_a_purchase_is_answered(shop):
    """The body of the reply is returned unchanged, and the order is sent once."""
    attempt = Attempt()
    async with api_for(shop.url) as api:
        answer = await buy(api, shop, attempt=attempt)
    assert (answer.state, answer.status, answer.error, answer.ok) == ("answered", 200, None, True)
    assert answer.body["cost"] == 0.01
    assert (attempt.sent, attempt.tries, attempt.answer) == (True, 1, answer)
    assert [each.parameters for each in shop.purchases] == [{"city": "Ulm"}]


async def test_only_what_is_meant_goes_out(shop):
    """Only the profile's headers and those of HTTP are sent: nothing from the environment, and no cookies."""
    async with api_for(shop.url) as api:
        await buy(api, shop)
    ((method, path, headers),) = shop.requests
    assert (method, path) == ("POST", "/products/purchase")
    assert set(headers) == {
        *("host", "user-agent", "accept", "accept-encoding", "connection", "content-type", "content-length"),
        *KEYS,
    }
    assert headers["user-agent"].startswith("toolwire/")
    assert headers["host"] == shop.url.removeprefix("http://")


LONG = 5.0
MATRIX = [
    # fault, state, status, orders that arrive, bought, timeout
    (Fault("reset_on_connect"), "unknown", None, 0, 0, LONG),
    (Fault("reset_before_buying"), "unknown", None, 1, 0, LONG),
    (Fault("reset_after_buying"), "unknown", None, 1, 1, LONG),
    (Fault("half_reply"), "unknown", None, 1, 1, LONG),
    (Fault("hang_before_buying"), "unknown", None, 1, 0, SHORT),
    (Fault("hang_after_buying"), "unknown", None, 1, 1, SHORT),
    (Fault("drip", seconds=0.02), "unknown", None, 1, 1, SHORT),
    (Fault("garbage"), "unknown", 200, 1, 1, LONG),
    (Fault("wrong_type"), "unknown", 200, 1, 1, LONG),
    (Fault("oversized", size=200_000), "unknown", 200, 1, 1, LONG),
    (Fault("redirect"), "unknown", 307, 1, 0, LONG),
    (Fault("status_before_buying"), "unknown", 503, 1, 0, LONG),
    (Fault("status_after_buying"), "unknown", 503, 1, 1, LONG),
    (Fault("status_before_buying", status=429, retry_after="0"), "answered", 429, 1, 0, LONG),
    (Fault("status_after_buying", status=500), "unknown", 500, 1, 1, LONG),
    (Fault("status_before_buying", status=402), "answered", 402, 1, 0, LONG),
    (Fault("status_before_buying", status=599), "unknown", 599, 1, 0, LONG),
    (Fault("close_idle"), "answered", 200, 1, 1, LONG),
]


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case[0].kind}-{case[2]}")
async def test_a_fault_leaves_the_truth_and_one_order(shop, case):
    """For a fault at any stage, the reported state is right, and the order was sent once."""
    fault, state, status, orders, bought, timeout = case
    shop.faults.append(Fault(**vars(fault)))
    attempt = Attempt()
    async with api_for(shop.url, max_reply_bytes=100_000) as api:
        answer = await buy(api, shop, timeout=timeout, attempt=attempt)
    assert (answer.state, answer.status) == (state, status), answer
    assert (len(shop.requests), len(shop.purchases), attempt.tries) == (orders, bought, 1)
    assert attempt.answer is answer
    assert attempt.sent is (state == "unknown" or answer.ok)
    assert answer.error if not answer.ok else answer.error is None


@pytest.mark.parametrize(
    "case",
    [case for case in MATRIX if case[2] is None or case[2] >= 500],
    ids=lambda case: f"{case[0].kind}-{case[2]}",
)
async def test_an_idempotent_api_is_asked_again_with_the_same_key(shop, case):
    """If the profile promises one charge per key, the order is retried until it is answered, and charged once."""
    fault, *_, timeout = case
    shop.replay = "same"
    shop.faults.append(Fault(**vars(fault)))
    again = timeout == LONG and fault.status != 599
    async with api_for(shop.url, idempotent=True, idempotency_header="x-request-id") as api:
        answer = await buy(api, shop, timeout=timeout)
    assert answer.state == ("answered" if again else "unknown"), answer
    assert {headers["x-request-id"] for *_, headers in shop.requests} == {"k-1"}
    assert len(shop.purchases) <= 1
    assert not again or len(shop.purchases) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_api_that_does_not_charge_is_asked_again(shop, status):
    """429 and 503 are retried if the profile declares that they are not charged; Retry-After is respected."""
    shop.faults.append(Fault("status_before_buying", status=status, retry_after="0.01", times=2))
    attempt = Attempt()
    async with api_for(shop.url, **DECLARED) as api:
        answer = await buy(api, shop, attempt=attempt)
    assert (answer.ok, attempt.tries, len(shop.purchases)) == (True, 3, 1)


async def test_a_busy_api_is_left_alone_in_the_end(shop):
    """After the last attempt the error status is the answer, and nothing counts as sent."""
    shop.faults.append(Fault("status_before_buying", retry_after="0.01", times=9))
    attempt = Attempt()
    async with api_for(shop.url, **DECLARED) as api:
        answer = await buy(api, shop, attempt=attempt)
    assert (answer.state, answer.status, answer.retry_after, attempt.tries) == ("answered", 503, 0.01, 3)
    assert attempt.sent is False
    assert answer.error == "HTTP 503 (Service Unavailable): fault: 503"


async def test_a_wait_that_is_longer_than_the_time_left_is_not_begun(shop):
    """The error status is returned at once, with the time after which a retry is possible."""
    shop.faults.append(Fault("status_before_buying", retry_after="60", times=9))
    async with api_for(shop.url, **DECLARED, retry=Retry()) as api:
        answer = await buy(api, shop, timeout=2)
    assert (answer.status, answer.retry_after, len(shop.requests)) == (503, 60.0, 1)


async def test_a_conflict_after_a_lost_answer_stays_unknown(shop):
    """409 for the same key says that the order arrived before, but not what became of it."""
    shop.replay = "conflict"
    shop.faults.append(Fault("reset_after_buying"))
    async with api_for(shop.url, idempotent=True, idempotency_header="x-request-id", **DECLARED) as api:
        answer = await buy(api, shop)
    assert (answer.state, answer.status, len(shop.purchases)) == ("unknown", 409, 1)


async def test_a_lost_answer_stays_unknown_when_the_api_goes_away(shop):
    """The first order may have been bought, so a refused connection in a later attempt proves nothing."""
    shop.faults.append(Fault("reset_after_buying"))
    attempt = Attempt()
    retry = Retry(attempts=3, wait=0.01, jitter=0)
    async with api_for(shop.url, idempotent=True, idempotency_header="x-request-id", retry=retry) as api:
        transport = api._connections.transport
        original = transport.handle_async_request

        async def once_then_down(request):
            try:
                return await original(request)
            finally:
                if attempt.tries == 1:
                    shop.__exit__()

        transport.handle_async_request = once_then_down
        answer = await buy(api, shop, attempt=attempt)
    assert (answer.state, attempt.tries, len(shop.purchases)) == ("unknown", 3, 1)
    assert "ConnectError" in answer.error


class TestNothingWentOut:
    """Without a connection the order is tried again, and in the end it is certain that nothing was bought."""

    async def test_a_refused_connection(self, shop):
        """If nothing listens, the state after all attempts is "not_sent"."""
        await shop.stop()
        attempt = Attempt()
        async with api_for(shop.url) as api:
            answer = await buy(api, shop, attempt=attempt)
        assert (answer.state, attempt.sent, attempt.tries) == ("not_sent", False, 3)
        assert "ConnectError" in answer.error

    async def test_an_api_that_comes_back_in_time(self, shop):
        """The order is sent once, as soon as a connection can be made."""
        await shop.stop()
        attempt = Attempt()

        async def come_back():
            await eventually(lambda: attempt.tries >= 3)
            await shop.start()

        retry = Retry(attempts=50, wait=0.01, longest_wait=0.01, jitter=0)
        async with api_for(shop.url, retry=retry) as api, anyio.create_task_group() as group:
            group.start_soon(come_back)
            answer = await buy(api, shop, attempt=attempt)
        assert (answer.ok, len(shop.purchases)) == (True, 1)
        assert attempt.tries >= 3

    async def test_a_connection_that_nobody_accepts(self):
        """With a full backlog the connection attempt times out, and nothing was sent."""
        with closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            host, port = listener.getsockname()
            fillers = []
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex((host, port))
                fillers.append(filler)
            try:
                async with api_for(f"http://127.0.0.1:{port}", connect_timeout=0.05) as api:
                    answer = await api.buy("id", {}, key="k", timeout=2)
            finally:
                for filler in fillers:
                    filler.close()
        assert (answer.state, answer.error) == ("not_sent", "ConnectTimeout: no connection within 0.05 s")

    async def test_the_time_ends_while_nothing_is_connected(self, shop):
        """A timeout before anything was sent leaves no doubt: the state is "not_sent"."""
        stopped = anyio.Event()

        async def never(host, port):
            await stopped.wait()

        url = shop.url.replace("127.0.0.1", "localhost")
        async with api_for(url, resolver=never, connect_timeout=0.05) as api:
            answer = await buy(api, shop)
        said = "ConnectTimeout: localhost was not resolved within 0.05 s"
        assert (answer.state, answer.error) == ("not_sent", said)

    async def test_arguments_that_are_no_json(self, shop):
        """Infinity has no JSON form, so it is refused before any request."""
        async with api_for(shop.url) as api:
            answer = await buy(api, shop, arguments={"city": float("inf")})
        assert answer.state == "not_sent"
        assert answer.error == "the arguments cannot be sent: JSON has no NaN and no infinity"
        assert shop.requests == []


@contextmanager
def raw_server(*talks):
    """Serve each connection with the next function, which gets the bare socket."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(5)

        def serve():
            for talk in talks:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(5)


def reading(connection):
    """Read a whole request from a connection."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)


def replying(reply):
    def talk(connection):
        reading(connection)
        connection.sendall(reply)

    return talk


def good(extra=b""):
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + extra + b"\r\n{}"


class TestBytes:
    """Replies that only a raw socket can produce."""

    async def test_each_purchase_has_its_own_connection(self):
        """A server that closes a kept-alive connection later cannot make the next order uncertain."""
        with raw_server(replying(good(b"Connection: keep-alive\r\n")), replying(good())) as url:
            async with api_for(url) as api:
                first = await api.buy("id", {}, key="k")
                second = await api.buy("id", {}, key="k")
        assert (first.state, second.state) == ("answered", "answered")

    @pytest.mark.parametrize(
        "reply",
        [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.9\r\n",
            b"\x00" * 200_000,
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
            b"HTTP/1.1 100 Continue\r\n\r\n",
            good(b"Content-Encoding: gzip\r\n"),
            b"HTTP/1.1 302 Found\r\nLocation: http://[bad\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: data\ndata: half\n\n",
        ],
        ids=lambda reply: reply[:40].decode("ascii", "replace").split("\r")[0][:20],
    )
    async def test_a_broken_reply_is_unknown(self, reply):
        """After any incomplete or invalid reply, the order may have been bought."""
        with raw_server(replying(reply)) as url:
            async with api_for(url) as api:
                answer = await api.buy("id", {}, key="k", timeout=3)
        assert answer.state == "unknown"
        assert answer.error

    @pytest.mark.slow
    @pytest.mark.parametrize("length", [b"Content-Length: 999999999999\r\n", b""])
    async def test_an_endless_reply_is_not_kept(self, length):
        """Reading stops at the limit, with or without a Content-Length."""
        sent = []

        def pour(connection):
            reading(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + length + b"\r\n")
            connection.settimeout(5)
            try:
                while True:
                    sent.append(connection.send(b"x" * 65536))
            except OSError:
                return

        with raw_server(pour) as url:
            async with api_for(url, max_reply_bytes=100_000) as api:
                answer = await api.buy("id", {}, key="k", timeout=5)
        assert (answer.state, answer.status) == ("unknown", 200)
        assert "max_reply_bytes" in answer.error
        assert sum(sent) < 20_000_000  # no more than fits into the sockets' buffers

    async def test_a_refusal_counts_though_its_body_is_lost(self):
        """The status 402 is certain from the first line, even if the body is cut off."""
        reply = (
            b"HTTP/1.1 402 Payment Required\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        with raw_server(replying(reply)) as url:
            async with api_for(url) as api:
                answer = await api.buy("id", {}, key="k")
        assert (answer.state, answer.status, answer.error) == ("answered", 402, "HTTP 402 (Payment Required)")


class TestCancelled:
    """After a cancellation, the attempt still says whether the order was sent."""

    @pytest.mark.parametrize(("kind", "bought"), [("hang_before_buying", 0), ("hang_after_buying", 1)])
    async def test_after_it_was_sent(self, shop, kind, bought):
        """A call cancelled after sending has `sent` True and no answer."""
        shop.faults.append(Fault(kind))
        attempt = Attempt()
        async with api_for(shop.url) as api:
            with anyio.move_on_after(5) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: buy(api, shop, attempt=attempt))
                    await eventually(lambda: shop.requests and len(shop.purchases) >= bought)
                    scope.cancel()
        assert (attempt.sent, attempt.answer) == (True, None)

    async def test_before_it_was_sent(self, shop):
        """A call cancelled between two connection attempts has `sent` False."""
        await shop.stop()
        attempt = Attempt()
        async with api_for(shop.url, retry=Retry(wait=60)) as api:
            with anyio.move_on_after(5) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: buy(api, shop, attempt=attempt, timeout=600))
                    await eventually(lambda: attempt.answer is not None)
                    scope.cancel()
        assert (attempt.sent, attempt.answer.state) == (False, "not_sent")


class TestOnSend:
    """The callback before the first byte."""

    async def test_it_comes_before_the_order(self, shop):
        """It is awaited once, before anything has arrived at the API."""
        seen = []
        attempt = Attempt()

        async def on_send():
            await anyio.sleep(0.02)
            seen.append((len(shop.requests), attempt.sent))

        async with api_for(shop.url) as api:
            answer = await buy(api, shop, on_send=on_send, attempt=attempt)
        assert (answer.ok, seen) == (True, [(0, False)])

    async def test_it_does_not_come_without_a_connection(self, shop):
        """An order that cannot be sent is not recorded as sent."""
        await shop.stop()
        async with api_for(shop.url) as api:
            answer = await buy(api, shop, on_send=lambda: pytest.fail("nothing was sent"))
        assert answer.state == "not_sent"

    async def test_what_it_raises_stops_the_order(self, shop):
        """If the ledger cannot be written, nothing is sent."""
        attempt = Attempt()

        async def on_send():
            raise CatalogError("disk full")

        async with api_for(shop.url) as api:
            with pytest.raises(CatalogError, match="disk full"):
                await buy(api, shop, on_send=on_send, attempt=attempt)
        assert (attempt.sent, shop.requests, shop.purchases) == (False, [], [])


class TestStreams:
    """Server-sent events: progress messages, then a body."""

    async def test_events_are_news_and_the_last_is_the_answer(self, shop):
        """`data` events go to the progress callback; the `done` event has the reply."""
        news = []
        async with api_for(shop.url, streams=True) as api:
            answer = await buy(api, shop, on_progress=news.append)
        assert news == ["looking", "found"]
        assert (answer.ok, answer.body["cost"]) == (True, 0.01)
        assert shop.requests[0][1] == "/products/purchase?stream=true"

    async def test_an_error_event_is_a_failure_in_the_body(self, shop):
        """It is treated like HTTP 200 with `success: false`."""
        shop.shape = "nested_failure"
        async with api_for(shop.url, streams=True) as api:
            answer = await buy(api, shop)
        assert (answer.ok, answer.body) == (True, {"success": False, "error": "the tool failed"})

    async def test_a_listener_that_fails_loses_nothing(self, shop, caplog):
        """An exception in the progress callback is logged, and the answer is still returned."""

        def broken(message):
            raise ValueError(message)

        async with api_for(shop.url, streams=True) as api:
            answer = await buy(api, shop, on_progress=broken)
        assert answer.ok
        assert "The callback for progress failed" in caplog.text

    @pytest.mark.parametrize(
        ("events", "body", "news"),
        [
            (b"data: a\n\ndata: b\n\nevent: done\n\n", {"success": True, "output": "ab"}, ["a", "b"]),
            (
                b'data: {"message": "one"}\n\ndata: {"success": true}\n\nevent: done\ndata: [DONE]\n\n',
                {"success": True},
                ["one", '{"success": true}'],
            ),
            (b"data: {no\r\n\r\nevent: done\r\n\r\n", {"success": True, "output": "{no"}, ["{no"]),
            (
                b'data: on\n\nevent: done\ndata: {"output": "x", "cost": 0.01}\n\n',
                {"output": "x", "cost": 0.01},
                ["on"],
            ),
            (
                b'data: a\n\nevent: done\ndata: {"cost": 0.01}\n\n',
                {"success": True, "output": "a", "cost": 0.01},
                ["a"],
            ),
            (
                b'data: a\n\nevent: done\ndata: {"error": "no"}\n\n',
                {"output": "a", "error": "no"},
                ["a"],
            ),
            (b"data: a\n\nevent: done\ndata: b\n\n", {"success": True, "output": "ab"}, ["a"]),
            (b"event: done\ndata: 42 degrees\n\n", {"success": True, "output": "42 degrees"}, []),
            (b": beat\n\nevent: strange\ndata: x\n\nevent: done\n\n", {"success": True, "output": ""}, []),
        ],
        ids=[
            *(
                "pieces",
                "last-data",
                "no-json",
                "done-reply",
                "done-cost",
                "done-error",
                "done-text",
                "only-done",
            ),
            "strange",
        ],
    )
    async def test_other_dialects(self, events, body, news):
        """Text pieces are joined to the output, the last piece may be the reply, and unknown events are ignored."""
        heard = []
        with raw_server(
            replying(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events)
        ) as url:
            async with api_for(url, streams=True) as api:
                answer = await api.buy("id", {}, key="k", on_progress=heard.append)
        assert (answer.body, heard) == (body, news)

    async def test_a_stream_is_capped_too(self):
        """The size limit also applies to the sum of many small events."""
        events = b"data: " + b"x" * 1000 + b"\n\n"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        with raw_server(replying(head + events * 100 + b"event: done\n\n")) as url:
            async with api_for(url, max_reply_bytes=50_000) as api:
                answer = await api.buy("id", {}, key="k")
        assert (answer.state, "max_reply_bytes" in answer.error) == ("unknown", True)


async def test_a_redirect_names_its_target_and_is_not_followed(shop):
    """API keys are only sent to the configured host."""
    with PaidApi() as other:
        target = other.url.replace("127.0.0.1", "localhost")
        shop.faults.append(Fault("redirect", to=f"{target}/products/purchase"))
        async with api_for(shop.url) as api:
            answer = await buy(api, shop)
        assert "the API redirects to localhost. Redirects are not followed" in answer.error
        assert other.requests == []


@pytest.mark.parametrize("key", ["", "a\r\nx-evil: 1", "ä", " a"])
async def test_a_key_that_breaks_out_of_its_header_is_refused(shop, key):
    """Such a key is refused before anything is sent."""
    async with api_for(shop.url) as api:
        with pytest.raises(UsageError, match="cannot be sent in a header"):
            await api.buy("id", {}, key=key)
    assert shop.requests == []


async def test_the_body_alone_guards_what_is_sent(shop):
    """Even if a transport does not call `before_send`, reading the body marks the order as sent."""
    attempt = Attempt()

    async def answer_late(request):
        assert attempt.sent is True
        raise httpx2.ConnectError("says that it never connected")

    async with api_for(shop.url, transport=httpx2.MockTransport(answer_late)) as api:
        answer = await buy(api, shop, attempt=attempt)
    assert (answer.state, attempt.tries) == ("unknown", 1)


async def test_an_id_that_is_a_number_is_sent_as_one():
    """It is a number in the order if it is one in the list; text that looks like a number stays text."""
    orders = []

    async def handle(request):
        if request.method == "GET":
            tools = [{"function": {"name": each}} for each in (42, "43", 10**18)]
            return httpx2.Response(200, json={"tools": tools, "details": {"has_next_page": False}})
        orders.append(orjson.loads(request.content)["product_id"])
        return httpx2.Response(200, json={"success": True})

    async with api_for("http://127.0.0.1:1", transport=httpx2.MockTransport(handle)) as api:
        for entry in await api.entries():
            assert (await api.buy(entry.id, {}, key="k")).ok
    assert orders == [42, "43", str(10**18)]


async def test_the_request_id_can_go_into_the_body(shop):
    """The profile can set a body field for the key, and fixed body fields for every order."""
    shop.replay = "same"
    async with api_for(shop.url, request_id_field="request_id", body={"lang": "en"}) as api:
        await buy(api, shop)
    assert shop.purchases[0].request_id == "k-1"


async def test_a_refusal_stands_when_the_time_ends_in_the_next_try(shop):
    """The first attempt was refused and the second sent nothing, so the refusal is the answer."""
    shop.faults.append(Fault("status_before_buying"))
    asked = []

    async def resolver(host, port):
        asked.append(host)
        if len(asked) > 1:
            await anyio.sleep(60)
        return ["127.0.0.1"]

    url = shop.url.replace("127.0.0.1", "localhost")
    attempt = Attempt()
    async with api_for(url, resolver=resolver, **DECLARED) as api:
        answer = await buy(api, shop, timeout=SHORT, attempt=attempt)
    assert (answer.state, answer.status, attempt.sent, attempt.tries) == ("answered", 503, False, 2)


async def test_an_accident_inside_is_an_answer_too(shop, caplog):
    """An unexpected exception after the order was sent makes its state unknown; the log has the traceback."""

    async def burst(request):
        raise RuntimeError("a bug")

    async with api_for(shop.url, transport=httpx2.MockTransport(burst)) as api:
        answer = await buy(api, shop)
    assert (answer.state, answer.error) == ("unknown", "RuntimeError: a bug")
    assert "A purchase failed unexpectedly" in caplog.text


async def test_nothing_is_bought_after_the_end(shop):
    """Once the client is closed, no call or retry sends anything."""
    async with api_for(shop.url) as api:
        pass
    answer = await buy(api, shop)
    assert (answer.state, answer.error) == ("not_sent", "the connection to the API is closed")
    with pytest.raises(CatalogError, match="closed"):
        await api.entries()
    assert shop.requests == []


async def test_a_reply_that_is_there_is_read_however_long_that_takes(shop, monkeypatch):
    """The timeout ends with the last byte of the reply, so slow processing afterwards loses nothing."""
    read = api_module.read_body

    async def slowly(*args):
        await anyio.sleep(2 * SHORT)
        return await read(*args)

    monkeypatch.setattr(api_module, "read_body", slowly)
    async with api_for(shop.url) as api:
        answer = await buy(api, shop, timeout=SHORT)
    assert answer.ok
