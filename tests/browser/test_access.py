"""Only the browser that opened its link gets into the studio."""

import http.client
import json
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from toolwire.studio.access import POLICY


def request(studio, path="/", method="GET", **headers):
    """Send a request as another program would, and return the response with its text."""
    parts = urlsplit(studio.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    response.text = response.read().decode()
    connection.close()
    return response


def cookie_of(page):
    """Return the cookies of the page's browser as a header."""
    return "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies())


PATHS = ["/", "/_nicegui/3/static/nicegui.js", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_enters_without_the_link(studio, path):
    """Neither the page nor its files nor its socket can be reached."""
    response = request(studio, path)
    assert response.status == 403
    assert "Open the link shown in the terminal" in response.text


@pytest.mark.parametrize("token", ["", "x", "%00", "x" * 5000, "é"])
def test_a_wrong_token_opens_nothing(studio, token):
    """The response is 403, and sets no cookie."""
    from urllib.parse import quote  # noqa: PLC0415 - only here

    response = request(studio, f"/?token={quote(token)}")
    assert response.status == 403
    assert response.getheader("set-cookie") is None


def test_a_link_works_once(page, studio):
    """The page has used the link; another browser needs a new one."""
    response = request(studio, "/?" + studio.link.partition("?")[2])
    assert response.status == 403
    assert "Each link works once" in response.text


def test_the_token_is_not_in_the_address_bar(page):
    """The token must not get into the browser's history, or into screenshots."""
    assert urlsplit(page.url).query == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"host": "localhost.evil.example"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost"},
    ],
)
def test_another_host_or_origin_is_refused_even_with_the_cookie(page, studio, headers):
    """DNS rebinding and other websites are refused, for the page and for its socket."""
    for path in PATHS:
        assert request(studio, path, cookie=cookie_of(page), **headers).status in {403, 421}


def test_the_cookie_is_for_this_studio_and_no_script(page, studio):
    """It is HttpOnly and SameSite=Strict, and its name has the port, since cookies ignore ports."""
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert str(urlsplit(studio.address).port) in cookie["name"]
    assert page.evaluate("document.cookie") == ""


def test_a_socket_needs_the_cookie_and_the_origin(page, studio):
    """A WebSocket without the cookie and the right origin is refused."""
    for headers in (
        {},
        {"Origin": "https://evil.example", "Cookie": cookie_of(page)},
        {"Cookie": cookie_of(page)},
    ):
        assert open_socket(studio, headers) == 403
    assert open_socket(studio, {"Origin": studio.address.rstrip("/"), "Cookie": cookie_of(page)}) == 101


def open_socket(studio, headers):
    """Request a WebSocket, and return the status."""
    parts = urlsplit(studio.address)
    lines = [
        "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1",
        f"Host: {parts.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return int(connection.recv(1000).split()[1])


def test_every_response_has_the_policy(page, studio):
    """The policy lets the page load from and send to its own address only, and no other page may frame it."""
    for path in ("/", "/nothing"):
        response = request(studio, path, cookie=cookie_of(page))
        assert response.getheader("content-security-policy") == POLICY
        assert response.getheader("x-frame-options") == "DENY"
        assert response.getheader("x-content-type-options") == "nosniff"
    assert "connect-src 'self'" in POLICY
    assert "default-src 'none'" in POLICY


def test_the_policy_stops_a_page_that_was_made_to_call_home(chromium, studio, page):
    """A script that got into the page could reach no other server."""
    context = page.context
    other = context.new_page()
    other.goto(studio.address)
    other.get_by_role("tab").first.wait_for()
    outcome = other.evaluate("fetch('http://127.0.0.1:9/x').then(() => 'sent', error => String(error))")
    assert "Failed to fetch" in outcome
    assert (
        other.evaluate(
            "new Promise(done => {"
            " document.addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));"
            " fetch('http://127.0.0.1:9/y').catch(() => 0) })"
        )
        == "connect-src"
    )
    other.close()


def test_it_listens_on_loopback_only(studio):
    """The port is only open on loopback, so that no other machine can reach it."""
    port = urlsplit(studio.address).port
    lines = Path("/proc/net/tcp").read_text().splitlines()
    listening = {line.split()[1] for line in lines[1:] if line.split()[3] == "0A"}
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


def test_a_stranger_sees_a_page_that_says_what_to_do(chromium, studio):
    """The page tells a browser without the cookie how to get a link."""
    with chromium.new_context() as window:
        page = window.new_page()
        page.goto(studio.address)
        expect(page.get_by_role("heading")).to_have_text("toolwire studio")
        expect(page.get_by_text("press Enter in the terminal for a new one")).to_be_visible()


def test_uploads_go_nowhere_else(page, studio):
    """The upload route of the page needs the cookie too."""
    response = request(studio, "/_nicegui/client/x/upload/1", "POST", content_length="0")
    assert response.status == 403
    assert json.dumps(response.getheader("set-cookie")) == "null"


def test_a_private_file_leads_into_the_studio(start, tmp_path):
    """A local file may redirect the browser to the link, which is how the command opens it."""
    shutil.copy(Path(__file__).parent / "shop_app.py", tmp_path / "app.py")

    def write_file(running):
        file = tmp_path / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={running.link}">')
        return file.as_uri()

    page, running = start("app.py", find_link=write_file)
    expect(page.get_by_role("button", name="order")).to_be_visible()
    assert page.url == running.address
