"""Credentials: where they come from, which requests get them, and that they are never shown."""

import base64
import json
import logging
import os
import threading

import anyio
import pytest

from shared.echo_api import EchoApi, Reply, as_json, call, document, operation
from toolwire import ClientCredentials, OpenAPI
from toolwire.errors import UsageError
from toolwire.testing import connect

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-value-4711"  # noqa: S105 - of a test
SCHEMES = {
    "header_key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query_key": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie_key": {"type": "apiKey", "in": "cookie", "name": "session"},
    "token": {"type": "http", "scheme": "bearer"},
    "login": {"type": "http", "scheme": "basic"},
    "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
    "digest": {"type": "http", "scheme": "digest"},
}


@pytest.fixture
def api():
    with EchoApi() as api:
        yield api


def secured(*requirements, method="get", schemes=None, **more):
    """Return a document with an operation that has these requirements, and one that has none."""
    return document(
        {
            "/x": {method: operation(operationId="go", security=list(requirements))},
            "/free": {"get": operation(operationId="free", security=[])},
        },
        components={"securitySchemes": schemes or SCHEMES},
        **more,
    )


def test_a_key_in_the_query_may_have_the_name_of_a_header():
    """Names such as `Host` are only reserved among headers."""
    schemes = {"key": {"type": "apiKey", "in": "query", "name": "host"}}
    server = OpenAPI(
        secured({"key": []}, schemes=schemes),
        base_url="https://api.example.com",
        auth={"key": SECRET},
        environ={},
    )
    server.load()
    assert server.missing_credentials() == {}


@pytest.mark.parametrize(
    ("name", "given", "header", "expected"),
    [
        ("header_key", SECRET, "X-Key", SECRET),
        ("cookie_key", SECRET, "Cookie", f"session={SECRET}"),
        ("token", SECRET, "Authorization", f"Bearer {SECRET}"),
        (
            "login",
            ("me", SECRET),
            "Authorization",
            "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode(),
        ),
        (
            "login",
            f"me:{SECRET}",
            "Authorization",
            "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode(),
        ),
        ("oauth", SECRET, "Authorization", f"Bearer {SECRET}"),
    ],
)
async def test_each_scheme_is_sent_as_it_should_be(api, name, given, header, expected):
    """The schemes are keys, tokens, and user with password."""
    assert not (await call(api, secured({name: []}), "go", {}, auth={name: given})).is_error
    assert api.last.header(header) == [expected]


async def test_a_key_in_the_query_is_added_to_it(api):
    """It is percent-encoded."""
    assert not (
        await call(api, secured({"query_key": []}), "go", {}, auth={"query_key": "a&b=" + SECRET})
    ).is_error
    assert api.last.target == "/x?key=a%26b%3D" + SECRET


@pytest.mark.parametrize(
    ("scheme", "place", "key"), [("query_key", "query", "key"), ("cookie_key", "cookie", "session")]
)
async def test_no_argument_can_take_the_place_of_a_key(api, scheme, place, key):
    """An exploded object may have any keys, and an API might use the first of two values."""
    given = secured({scheme: []})
    given["paths"]["/x"]["get"]["parameters"] = [{"name": "f", "in": place, "schema": {"type": "object"}}]
    result = await call(api, given, "go", {"f": {key: "mine"}}, auth={scheme: SECRET})
    assert result.is_error
    assert f"an argument sets '{key}', which is for credentials; nothing was sent" in result.text
    assert not api.requests
    assert not (await call(api, given, "go", {"f": {"other": "mine"}}, auth={scheme: SECRET})).is_error


async def test_schemes_are_and_within_a_requirement_and_or_between_them(api):
    """The first requirement with all its credentials present is used; an empty one needs none."""
    both = secured({"digest": []}, {"header_key": [], "query_key": []}, {"token": []})
    await call(api, both, "go", {}, auth={"header_key": "one-key", "token": "a-token"})
    assert (api.last.header("X-Key"), api.last.header("Authorization")) == ([], ["Bearer a-token"])
    await call(
        api, both, "go", {}, auth={"header_key": "one-key", "query_key": "two-key", "token": "a-token"}
    )
    assert (api.last.header("X-Key"), api.last.header("Authorization")) == (["one-key"], [])
    assert api.last.target == "/x?key=two-key"
    optional = secured({}, {"token": []})
    assert not (await call(api, optional, "go", {})).is_error
    assert api.last.header("Authorization") == []
    await call(api, optional, "go", {}, auth={"token": "a-token"})
    assert api.last.header("Authorization") == ["Bearer a-token"]


async def test_an_operation_without_security_gets_no_credentials(api):
    """Its `security` is an empty list, although there are credentials."""
    assert not (await call(api, secured({"token": []}), "free", {}, auth={"token": SECRET})).is_error
    assert SECRET not in str(api.last)


async def test_missing_credentials_are_named_and_nothing_is_sent(api):
    """The error names the variable to set."""
    result = await call(api, secured({"header_key": []}, {"digest": []}), "go", {})
    assert result.is_error
    assert "TOOLWIRE_AUTH_HEADER_KEY" in result.text
    assert "digest, which is not supported" in result.text
    assert api.requests == []


async def test_credentials_come_from_the_environment_or_a_private_file(api, tmp_path):
    """`auth` comes first, then the environment, then the file; a file that others may read is rejected."""
    given = secured({"header_key": [], "token": [], "query_key": []})
    file = tmp_path / "keys.toml"
    file.write_text('header_key = "from-file"\ntoken = "from-file"\nquery_key = "from-file"\n')
    file.chmod(0o600)
    environ = {"TOOLWIRE_AUTH_HEADER_KEY": "from-environ", "TOOLWIRE_AUTH_TOKEN": "from-environ"}
    server = OpenAPI(
        given, base_url=api.url, auth={"header_key": "given-one"}, credentials_file=file, environ=environ
    )
    async with connect(server) as client:
        assert not (await client.call("go")).is_error
    assert api.last.header("X-Key") == ["given-one"]
    assert api.last.header("Authorization") == ["Bearer from-environ"]
    assert api.last.target == "/x?key=from-file"
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        OpenAPI(given, base_url=api.url, credentials_file=file, environ={}).load()


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({"tokn": "x"}, "did you mean token"),
        ({"token": "a\r\nb"}, "printable ASCII"),
        ({"token": ""}, "must be the token"),
        ({"login": "no-colon"}, "user:password"),
        ({"digest": "x"}, "not supported"),
        ({"header_key": ClientCredentials("a", "b")}, "takes no OAuth2 client"),
        ({"oauth": {"client": "x"}}, "client_id"),
        ("x", "must name its security scheme"),
    ],
)
def test_wrong_credentials_are_an_error_at_once(auth, said):
    """The error says what is wrong, before any call."""
    with pytest.raises(UsageError, match=said) as caught:
        OpenAPI(secured({"token": []}), base_url="http://127.0.0.1:1", auth=auth, environ={}).load()
    assert not any(each in str(caught.value) for each in ("a\r\nb", r"a\r\nb", "no-colon"))


async def test_a_string_is_for_the_only_scheme(api):
    """`auth="..."` is enough for a document with one scheme."""
    given = secured({"token": []}, schemes={"token": SCHEMES["token"]})
    assert not (await call(api, given, "go", {}, auth=SECRET)).is_error
    assert api.last.header("Authorization") == [f"Bearer {SECRET}"]


def client_api(api, lifetimes):
    """Let the server issue tokens with these lifetimes, and accept only the last one; returns the tokens."""
    tokens = []

    def hand_out(request):
        tokens.append(f"token-number-{len(tokens) + 1}")
        return Reply(body=as_json({"access_token": tokens[-1], "expires_in": lifetimes[len(tokens) - 1]}))

    def check(request):
        good = request.header("Authorization") == [f"Bearer {tokens[-1]}"]
        return Reply() if good else Reply(401, b'{"error":"token"}')

    api.paths |= {"/token": hand_out, "/x": check}
    return tokens


async def test_a_token_is_fetched_once_and_kept(api):
    """Concurrent calls fetch one token, which is used until shortly before it expires."""
    tokens = client_api(api, [3600])
    schemes = {"oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": f"{api.url}/token"}}}}
    server = OpenAPI(
        secured({"oauth": []}, schemes=schemes),
        base_url=api.url,
        auth={"oauth": ClientCredentials("id:1", "a secret&", scopes=["read", "write"])},
        environ={},
    )
    async with connect(server) as client, anyio.create_task_group() as tasks:
        await server.loaded()
        for _ in range(10):
            tasks.start_soon(client.call, "go")
    assert tokens == ["token-number-1"]
    asked = [each for each in api.requests if each.target == "/token"]
    assert len(asked) == 1
    assert asked[0].method == "POST"
    assert asked[0].body == b"grant_type=client_credentials&scope=read+write"
    assert asked[0].header("Authorization") == ["Basic " + base64.b64encode(b"id%3A1:a+secret%26").decode()]
    assert len(api.requests) == 11


async def test_an_expired_token_is_replaced(api):
    """A token is replaced even if its lifetime is shorter than the usual margin."""
    tokens = client_api(api, [0, 3600])
    auth = {
        "oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token", "in_body": True}
    }
    server = OpenAPI(secured({"oauth": []}), base_url=api.url, auth=auth, environ={})
    async with connect(server) as client:
        await server.loaded()
        assert not (await client.call("go")).is_error
        assert not (await client.call("go")).is_error
    assert len(tokens) == 2
    assert json.loads(
        as_json(dict(each.split("=") for each in api.requests[0].body.decode().split("&")))
    ) == {
        "grant_type": "client_credentials",
        "client_id": "i",
        "client_secret": SECRET,
    }


@pytest.mark.parametrize(("method", "error", "sent"), [("get", False, 2), ("post", True, 1)])
async def test_a_rejected_token_is_replaced_but_only_a_get_is_sent_again(api, method, error, sent):
    """After a 401, the next request has a new token; a POST is not sent again."""
    tokens = client_api(api, [3600, 3600, 3600])
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    server = OpenAPI(secured({"oauth": []}, method=method), base_url=api.url, auth=auth, environ={})
    async with connect(server) as client:
        await server.loaded()
        assert not (await client.call("go")).is_error
        tokens.append("revoked")
        before = len([each for each in api.requests if each.target == "/x"])
        assert (await client.call("go")).is_error is error
        assert len([each for each in api.requests if each.target == "/x"]) - before == sent
        assert not (await client.call("go")).is_error


async def test_a_late_rejection_of_an_old_token_keeps_the_new_one(api):
    """Otherwise concurrent calls would replace each other's new tokens."""
    tokens = client_api(api, [3600] * 4)
    check, refused, renewed = api.paths["/x"], [], threading.Event()

    def refuse_one_late(request):
        reply = check(request)
        if reply.status == 200:
            renewed.set()
        else:
            refused.append(request)
            if len(refused) == 1:
                renewed.wait(10)
        return reply

    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    server = OpenAPI(secured({"oauth": []}), base_url=api.url, auth=auth, environ={})
    async with connect(server) as client:
        await server.loaded()
        assert not (await client.call("go")).is_error
        tokens.append("revoked")
        api.paths["/x"] = refuse_one_late
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(client.call, "go")
    assert len(refused) == 2
    assert tokens == ["token-number-1", "revoked", "token-number-3"]


def test_the_documents_token_endpoint_is_used_only_on_the_apis_own_origin():
    """A document must not be able to send the client's secret elsewhere."""
    schemes = {
        "oauth": {
            "type": "oauth2",
            "flows": {"clientCredentials": {"tokenUrl": "https://evil.example/token"}},
        }
    }
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET}}
    with pytest.raises(UsageError, match="needs token_url") as raised:
        OpenAPI(
            secured({"oauth": []}, schemes=schemes), base_url="https://api.example.com", auth=auth, environ={}
        ).load()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/token", "http://example.com/token", "ftp://x/token", "https://[::1"]
)
async def test_a_token_endpoint_is_checked_like_any_url(api, url):
    """Plain http is allowed to this machine only."""
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": url}}
    result = await call(api, secured({"oauth": []}), "go", {}, auth=auth)
    assert result.is_error
    assert "token_url" in result.text
    assert api.requests == []


async def test_the_timeout_of_a_call_includes_its_token(api):
    """A token endpoint that hangs does not delay calls beyond their timeout, however many wait."""
    ended = threading.Event()
    api.paths["/token"] = lambda _: (ended.wait(30), Reply())[1]
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    server = OpenAPI(secured({"oauth": []}), base_url=api.url, auth=auth, environ={}, timeout=0.3)
    texts = []

    async def go(client):
        texts.append((await client.call("go")).text)

    try:
        async with connect(server) as client:
            await server.loaded()
            with anyio.fail_after(15):
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(go, client)
    finally:
        ended.set()
    assert texts == ["GET /x: no access token could be fetched within 0.3 s; nothing was sent"] * 3


async def test_a_lost_token_response_does_not_mean_that_the_call_was_sent(api):
    """The error must not say that the POST may have been carried out."""
    api.paths["/token"] = Reply(0)
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    result = await call(api, secured({"oauth": []}, method="post"), "go", {}, auth=auth)
    assert result.text.startswith("POST /x: no access token could be fetched (")
    assert result.text.endswith("; nothing was sent")


async def test_no_token_no_request(api):
    """The call is an error with the reason of the token endpoint, without secrets, and is not sent."""
    api.paths["/token"] = Reply(400, as_json({"error": f"invalid_client {SECRET}"}))
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    result = await call(api, secured({"oauth": []}), "go", {}, auth=auth)
    assert result.is_error
    assert "invalid_client" in result.text
    assert SECRET not in result.text
    assert [each.target for each in api.requests] == ["/token"]


@pytest.mark.parametrize("status", [200, 400, 302])
async def test_secrets_are_removed_from_responses_and_logs(api, status, caplog):
    """If an API repeats a key, raw or encoded, neither the model nor a log gets it."""
    caplog.set_level(logging.DEBUG)
    encoded = base64.b64encode(f"me:{SECRET}".encode()).decode()
    body = as_json({"key": SECRET, "list": [f"x{SECRET}y", encoded], SECRET: 1})
    api.reply = Reply(status, body, headers={"X-Echo": SECRET, "Location": f"https://{SECRET}.example/"})
    result = await call(
        api,
        secured({"login": []}),
        "go",
        {},
        auth={"login": ("me", SECRET)},
        headers={"X-More": "other-secret"},
    )
    assert SECRET not in result.text
    assert encoded not in result.text
    assert SECRET not in caplog.text
    assert encoded not in caplog.text


async def test_a_key_is_recognised_in_base64_of_the_url_that_it_was_sent_in(api):
    """In a URL the key is percent-encoded."""
    api.paths["/x"] = lambda request: Reply(body=as_json(base64.b64encode(request.target.encode()).decode()))
    result = await call(api, secured({"query_key": []}), "go", {}, auth={"query_key": "sEcr3t/ke+y=1"})
    assert "[redacted]" in result.text


async def test_a_token_from_the_endpoint_is_a_secret_too(api):
    """It is removed from responses like any other."""
    tokens = client_api(api, [3600])
    api.paths["/x"] = lambda request: Reply(body=as_json({"seen": request.header("Authorization")}))
    auth = {"oauth": {"client_id": "i", "client_secret": SECRET, "token_url": f"{api.url}/token"}}
    result = await call(api, secured({"oauth": []}), "go", {}, auth=auth)
    assert tokens[0] not in result.text
    assert "redacted" in result.text


async def test_fixed_headers_are_sent_with_every_request_and_replace_credentials(api):
    """For APIs whose document does not describe their security."""
    result = await call(api, secured({"token": []}), "go", {}, headers={"Authorization": f"Token {SECRET}"})
    assert not result.is_error
    assert api.last.header("Authorization") == [f"Token {SECRET}"]
    for name in ("Host", "Content-Length", "bad name"):
        with pytest.raises(UsageError):
            OpenAPI(secured(), base_url=api.url, headers={name: "x"}, environ={})


def test_secrets_are_in_no_text_of_ours():
    """Neither `ClientCredentials` nor the server shows them in its repr."""
    assert SECRET not in repr(ClientCredentials("id", SECRET))
    server = OpenAPI(
        secured({"token": []}),
        base_url="http://127.0.0.1:1",
        auth={"token": SECRET},
        environ=dict(os.environ),
    )
    server.load()
    assert SECRET not in repr(server)
