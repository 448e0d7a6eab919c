"""The requests that a profile describes: their content, and what is refused before anything is sent."""

import json
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.http.requests import (
    OutgoingRequest,
    Position,
    add_credentials,
    balance_request,
    next_link,
    order_request,
    page_request,
)
from toolwire.catalog.profile.model import BUILTIN, Profile
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError

SMALL = {
    "name": "x",
    "base_url": "https://x.example/v2",
    "list": {"path": "/list"},
    "call": {"path": "/call", "id_field": "id", "arguments": "input"},
}


def small(**tables):
    """Return the smallest profile, with more settings in its tables."""
    return Profile(**SMALL).changed(**tables)


def body_of(request):
    return json.loads(request.content)


def query_of(request):
    return parse_qsl(urlsplit(request.target).query)


def test_an_order_of_agentpmt():
    """The order has the product's name and the parameters, but no secrets."""
    request = order_request(BUILTIN["agentpmt"], "slug", {"action": "read"}, "k")
    assert (request.method, request.target) == ("POST", "/products/purchase")
    assert body_of(request) == {"name": "slug", "parameters": {"action": "read"}}
    assert request.headers == {"Accept": "application/json", "Content-Type": "application/json"}


def test_fixed_headers_query_and_body():
    """Settings for all requests and settings for orders are combined; those for orders take precedence."""
    shared = {"headers": {"X-All": "1", "X-Both": "1"}, "query": {"v": "3"}}
    own = {"headers": {"X-Both": "2"}, "query": {"w": "4"}, "body": {"lang": "en"}, "request_id_field": "ref"}
    request = order_request(
        small(request=shared, call={**own, "idempotency_header": "X-Key"}), "a", {"q": 1}, "k-1"
    )
    assert request.target == "/call?v=3&w=4"
    assert {"X-All": "1", "X-Both": "2", "X-Key": "k-1"}.items() <= request.headers.items()
    assert body_of(request) == {"lang": "en", "id": "a", "input": {"q": 1}, "ref": "k-1"}


def test_a_header_of_the_profile_takes_the_place_of_ours():
    """Header names are compared without case, so a header is sent once."""
    request = order_request(small(request={"headers": {"accept": "application/x"}}), "a", {}, "k")
    assert request.headers == {"accept": "application/x", "Content-Type": "application/json"}


def test_fields_inside_of_fields():
    """A dotted name sets a nested field of the body, without changing the profile's own table."""
    profile = small(
        call={"body": {"params": {"mode": "sync"}}, "id_field": "params.name", "arguments": "params.input"}
    )
    for _ in range(2):
        assert body_of(order_request(profile, "a", {"q": 1}, "k")) == {
            "params": {"mode": "sync", "name": "a", "input": {"q": 1}}
        }
    assert profile.call.body == {"params": {"mode": "sync"}}


@pytest.mark.parametrize(
    ("id", "step"),
    [
        ("a b", "a%20b"),
        ("geo/city", "geo%2Fcity"),
        ("a?b#c", "a%3Fb%23c"),
        ("50%", "50%25"),
        ("x\r\nX-Evil: 1", "x%0D%0AX-Evil%3A%201"),
        ("ä", "%C3%A4"),
        ("v1.2", "v1.2"),
        (7, "7"),
    ],
)
def test_an_id_is_one_step_of_the_path(id, step):
    """All special characters of an id are escaped."""
    profile = small(call={"path": "/tools/{id}/run", "id_field": ""})
    assert order_request(profile, id, {}, "k").target == f"/tools/{step}/run"


@pytest.mark.parametrize("id", ["..", ".", "../../admin", "a/../b", "%2e%2e", "..\\x", "", "\ud800"])
def test_an_id_that_climbs_is_not_sent(id):
    """A server may decode a path before it resolves ".."."""
    profile = small(call={"path": "/tools/{id}/run", "id_field": ""})
    with pytest.raises(CatalogError, match="the id"):
        order_request(profile, id, {}, "k")


def test_integers_of_any_size_are_written_exactly():
    """Large integers, such as amounts in wei, are exact in the body and in the query."""
    big = 2**256 - 1
    assert body_of(order_request(small(), "a", {"wei": big, "t": "ä"}, "k"))["input"] == {
        "wei": big,
        "t": "ä",
    }
    profile = small(call={"method": "GET", "arguments": ""})
    assert ("wei", str(big)) in query_of(order_request(profile, "a", {"wei": big}, "k"))


def deep(levels):
    """Return a nested list."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "no NaN and no infinity"),
        (float("inf"), "no NaN and no infinity"),
        ([{"a": float("-inf")}], "no NaN and no infinity"),
        ("\ud800", "half of a surrogate pair"),
        (["\udfff", 2**70], "half of a surrogate pair"),
        (deep(100_000), "nested too deeply"),
        (10**5000, "more than 4,300 digits"),
    ],
    ids=["nan", "inf", "nested-inf", "surrogate", "surrogate-in-list", "deep", "endless"],
)
def test_what_cannot_be_written_is_refused(method, value, words):
    """Such a value is never replaced by null or anything else."""
    profile = small(call={"method": method, "arguments": ""})
    with pytest.raises(CatalogError, match=words):
        order_request(profile, "a", {"x": value}, "k")


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("name", ["id", "lang", "ref"])
def test_an_argument_cannot_stand_in_for_a_fixed_field(method, name):
    """A model cannot buy another entry by sending an argument `id`."""
    fixed = {"query": {"lang": "en"}} if method == "GET" else {"body": {"lang": "en"}}
    profile = small(call={"method": method, "arguments": "", "request_id_field": "ref", **fixed})
    with pytest.raises(
        CatalogError, match=f"the argument '{name}' has the same name as a field that the profile sets"
    ):
        order_request(profile, "a", {name: "other"}, "k")


def test_an_argument_cannot_stand_in_for_a_secret():
    """Nor can it replace a query parameter that all requests have."""
    secret = {"variable": "KEY", "place": "query", "key": "token"}
    profile = small(
        secrets={"key": secret}, request={"query": {"v": "3"}}, call={"method": "GET", "arguments": ""}
    )
    for name in ("token", "v"):
        with pytest.raises(CatalogError, match="the profile sets itself"):
            order_request(profile, "a", {name: "other"}, "k")


def test_arguments_in_the_query():
    """Each argument is a parameter of its own, or all of them are JSON in one parameter."""
    given = {
        "t": "a&b",
        "n": 1.5,
        "yes": True,
        "none": None,
        "list": ["x", 2, None],
        "deep": {"a": [1]},
        "e": [],
    }
    profile = small(call={"method": "GET", "arguments": ""})
    assert query_of(order_request(profile, 7, given, "k")) == [
        ("id", "7"),
        *(("t", "a&b"), ("n", "1.5"), ("yes", "true"), ("list", "x"), ("list", "2"), ("deep", '{"a":[1]}')),
    ]
    profile = small(call={"method": "GET"})
    assert query_of(order_request(profile, 7, {"a": 1}, "k")) == [("id", "7"), ("input", '{"a":1}')]


def test_a_query_has_an_end():
    """A request line that is too long is refused, because servers handle that differently."""
    profile = small(call={"method": "GET"})
    with pytest.raises(CatalogError, match="the request is too long"):
        order_request(profile, "a", {"t": "x" * 40_000}, "k")


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(),
       lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8), max_size=4))  # fmt: skip
def test_any_json_arrives_as_it_was(arguments):
    """Any JSON argument is unchanged in the body of an order."""
    assert body_of(order_request(small(), "a", arguments, "k"))["input"] == arguments


def test_streams_are_asked_for():
    """The request has the query parameters that the profile sets for streams."""
    request = order_request(small(call={"streams": True, "stream_query": {"sse": "1"}}), "a", {}, "k")
    assert request.target == "/call?sse=1"
    assert request.headers["Accept"] == "text/event-stream, application/json"


@pytest.mark.parametrize(
    ("paging", "position", "target"),
    [
        ({}, Position(), "/list"),
        ({"kind": "page", "size_parameter": "n", "size": 5}, Position(1, 1), "/list?page=1&n=5"),
        ({"kind": "page", "parameter": "p"}, Position(2, 2), "/list?p=2"),
        ({"kind": "offset"}, Position(2, 50), "/list?offset=50"),
        ({"kind": "cursor", "cursor": "next"}, Position(), "/list"),
        ({"kind": "cursor", "cursor": "next"}, Position(2, "a&b="), "/list?cursor=a%26b%3D"),
        ({"kind": "link"}, Position(2, target="/other?x=1"), "/other?x=1"),
    ],
)
def test_a_page_is_asked_for(paging, position, target):
    """The request for a page follows the profile's kind of paging."""
    request = page_request(small(list={"paging": paging}), position)
    assert (request.method, request.target, request.content) == ("GET", target, b"")


def test_a_page_is_asked_for_in_a_body():
    """A list by POST can have its position in the body."""
    paging = {"kind": "cursor", "cursor": "next", "place": "body", "size_parameter": "n", "size": 5}
    profile = small(list={"method": "POST", "body": {"kind": "x"}, "paging": paging})
    assert body_of(page_request(profile, Position())) == {"kind": "x", "n": 5}
    assert body_of(page_request(profile, Position(2, "c2"))) == {"kind": "x", "n": 5, "cursor": "c2"}


def test_a_balance_is_asked_for():
    """Without `[balance]` in the profile it is an error."""
    assert balance_request(BUILTIN["agentpmt"]).target == "/credits/balance"
    with pytest.raises(CatalogError, match=r"profile x has no \[balance\]"):
        balance_request(small())


def test_credentials_are_added_last():
    """They go into the query or into headers."""
    found = Credentials(headers={"X-Key": "k"}, query={"token": "a&b"}, values=("k", "a&b"))
    request = add_credentials(OutgoingRequest("GET", "/a", {"Accept": "x"}), found)
    assert (request.target, request.headers) == ("/a?token=a%26b", {"Accept": "x", "X-Key": "k"})
    assert add_credentials(OutgoingRequest("GET", "/a?b=c"), found).target == "/a?b=c&token=a%26b"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("https://x.example/v2/list?page=2", "/list?page=2"),
        ("https://X.example:443/v2/list?page=2", "/list?page=2"),
        ("/v2/list?page=2", "/list?page=2"),
        ("?page=2", "/list?page=2"),
        ("more?page=2", "/more?page=2"),
        ("https://x.example/v2/other", "/other"),
    ],
)
def test_links_on_the_same_origin(link, target):
    """The link may be absolute, or relative to the page."""
    assert next_link(small(), link, "/list?page=1") == target


@pytest.mark.parametrize(
    "link",
    [
        *("https://evil.test/v2/list", "http://x.example/v2/list", "https://x.example:8443/v2/list"),
        *("/v2/..%2fadmin", "/v2/%2e%2e%2Fadmin", "/v2/a%2f..%5C..%2fadmin", "/v2/list?a=" + "a" * 40_000),
        *("//evil.test/v2/list", "https://x.example@evil.test/v2/list", "https://x.example/other"),
        *("https://x.example/v2/../admin", "https://x.example/v2/%2e%2e/admin", "javascript:alert(1)"),
        *("https://[", "/v2/list?a b", "/v2/li\\st", "https://x.example/v20/list"),
    ],
)
def test_links_that_lead_elsewhere_are_refused(link):
    """Otherwise secrets would be sent there."""
    with pytest.raises(CatalogError, match="the link to the next page"):
        next_link(small(), link, "/list")


def test_a_link_that_repeats_our_secret_does_not_send_it_twice():
    """APIs build the link from the request, which had the secret in its query."""
    secret = {"variable": "KEY", "place": "query", "key": "token"}
    profile = small(secrets={"key": secret}, list={"paging": {"kind": "link"}})
    for query in ("token=s3cret&page=2", "page=2&token=s3cret", "page=2&to%6ben=s3cret"):
        assert page_request(profile, Position(2, target=f"/list?{query}")).target == "/list?page=2"
    assert page_request(profile, Position(2, target="/list?token=x")).target == "/list"
