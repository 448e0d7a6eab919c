"""Profiles: what they contain, and how errors in them are reported."""

import datetime as dt
import sys
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from toolwire.catalog.profile.extract import read_item
from toolwire.catalog.profile.model import BUILTIN, Profile, ProfileError, Secret, json_schema
from toolwire.catalog.profile.tables import Call, ListRequest, Paging
from toolwire.catalog.tools.definitions import Entry, price_for
from toolwire.catalog.values import get_path
from toolwire.errors import UsageError

SHOP = Path(__file__).parents[3] / "examples" / "profiles" / "shop.toml"
SMALL = {
    "name": "x",
    "base_url": "https://x.example",
    "list": {"path": "/list"},
    "call": {"path": "/call", "id_field": "id"},
}
AGENTPMT, KEYS_FORM = BUILTIN["agentpmt"], BUILTIN["agentpmt-keys"]
WEATHER = {"name": "65f1", "description": "W — x", "parameters": {"a": 1}}


def small(**tables):
    """Return the smallest profile, with more settings in its tables."""
    return Profile(**SMALL).changed(**tables)


def test_agentpmt_is_built_in():
    """As its vendor documents, it has a token, or one made of the two older keys."""
    assert Profile.find("agentpmt") is AGENTPMT
    assert AGENTPMT.base_url == "https://api.agentpmt.com"
    token = AGENTPMT.secrets["token"]
    assert (token.variable, token.key, token.template) == (
        "AGENT_PAYMENT_TOKEN",
        "Authorization",
        "Bearer {value}",
    )
    assert [each.variable for each in token.parts] == ["AGENT_PAYMENT_API_KEY", "AGENT_PAYMENT_BUDGET_KEY"]
    assert AGENTPMT.call.id_field == "name"
    assert AGENTPMT.balance.path == "/credits/balance"


def test_the_older_form_of_agentpmt_is_chosen_by_name():
    """It sends two keys in headers, and the product's id in the body."""
    assert Profile.find("agentpmt-keys") is KEYS_FORM
    assert {each.key: each.variable for each in KEYS_FORM.secrets.values()} == {
        "x-api-key": "AGENT_PAYMENT_API_KEY",
        "x-budget-key": "AGENT_PAYMENT_BUDGET_KEY",
    }
    assert KEYS_FORM.call.id_field == "product_id"


@pytest.mark.parametrize("profile", [AGENTPMT, KEYS_FORM], ids=lambda each: each.name)
def test_agentpmt_takes_the_variables_of_the_environment(profile):
    """Address, budget and filter have variables; it is not promised that repeated orders are charged once."""
    variables = profile.environment
    assert (variables.base_url, variables.budget, variables.filter) == (
        "AGENT_PAYMENT_BASE_URL",
        "AGENT_PAYMENT_BUDGET",
        "AGENT_PAYMENT_TOOLS_FILTER",
    )
    assert not profile.call.idempotent
    assert profile.call.uncharged_statuses.isdisjoint({500, 503})
    assert 429 in profile.call.uncharged_statuses
    assert not profile.call.retry_statuses


def test_an_item_of_agentpmt_is_an_entry():
    """The id is also the name, and the schema is at function.parameters."""
    item = {"type": "function", "function": WEATHER}
    entry = AGENTPMT.read_entry(item)
    assert entry == Entry("65f1", "65f1", "W — x", {"a": 1})
    assert entry.raw is item


@pytest.mark.parametrize(
    ("more", "price"),
    [
        ({"x-pricing": {"unit_type": "request", "price_per_unit": 5, "currency": "credits"}}, 50_000),
        ({"x-pricing": {"price_per_unit": "2.5", "currency": "credits"}}, 25_000),
        ({"x-pricing": {"price_per_unit": 0.05, "currency": "USDC"}}, 50_000),
        ({"x-pricing": {"price_per_unit": 0.05, "currency": "usdc"}}, 50_000),
        ({"x-pricing": {"price_per_unit": 0, "currency": "credits"}}, 0),
        ({"x-pricing": {"price_per_unit": 5, "currency": "doubloons"}}, None),
        ({"x-pricing": {"price_per_unit": -5, "currency": "credits"}}, None),
        ({"price": 0.01}, 10_000),
        ({"price": "$0.01"}, 10_000),
        ({}, None),
    ],
)
def test_prices_of_agentpmt_are_in_credits_or_dollars(more, price):
    """100 credits are a dollar, older entries have dollars, and in any other currency the price is unknown."""
    assert AGENTPMT.read_entry({"function": WEATHER, **more}).price == price


@pytest.mark.parametrize(
    "actions",
    [
        {"read": 1, "write": 20},
        {"read": {"price": 1}, "write": {"credits": 20}},
        [{"action": "read", "price": 1}, {"action": "write", "credits": 20}],
        [{"name": "read", "credits": 1}, {"slug": "write", "price": "20"}],
    ],
)
def test_agentpmt_has_prices_by_action(actions):
    """They may be an object or a list; for an action that is not in it, the highest price counts."""
    pricing = {"price_per_unit": 5, "currency": "credits", "actions": actions}
    entry = AGENTPMT.read_entry({"function": WEATHER, "x-pricing": pricing})
    assert (entry.prices, entry.price_argument) == ({"read": 10_000, "write": 200_000}, "action")
    assert entry.price == 200_000
    assert price_for(entry, {"action": "read"}) == ("read", 10_000)
    for other in ({}, {"action": "delete"}, {"action": "READ"}, {"action": None}, {"action": ["read"]}):
        assert price_for(entry, other) == ("", 200_000)


def test_a_price_by_action_that_cannot_be_read_is_no_price():
    """The highest price is then unknown as well."""
    pricing = {"currency": "credits", "actions": {"read": 1, "write": "dear"}}
    entry = AGENTPMT.read_entry({"function": WEATHER, "x-pricing": pricing})
    assert price_for(entry, {"action": "read"}) == ("read", 10_000)
    assert price_for(entry, {"action": "write"}) == ("write", None)
    assert price_for(entry, {"action": "other"}) == ("", None)


@pytest.mark.parametrize(
    "item", [None, [], "x", {}, {"function": {"name": ""}}, {"function": {"name": True}}]
)
def test_an_item_without_an_id_is_no_entry(item):
    """It could not be bought."""
    assert AGENTPMT.read_entry(item) is None


@pytest.mark.parametrize(
    "actions",
    [
        [{"tier": "read", "price": 1}],
        {"read": {"euros": 1}},
        [{"name": "read"}],
        "read: 1",
        7,
    ],
)
def test_prices_by_action_that_are_not_where_the_profile_says(actions):
    """They are reported as unreadable, and the flat price is not used instead."""
    pricing = {"price_per_unit": 5, "currency": "credits", "actions": actions}
    read = read_item(AGENTPMT.entry, {"function": WEATHER, "x-pricing": pricing})
    assert read.unreadable_prices
    assert price_for(read.entry, {"action": "read"})[1] is None


def test_no_prices_by_action_are_none():
    """An empty table is ignored, and the flat price counts."""
    pricing = {"price_per_unit": 5, "currency": "credits", "actions": {}}
    read = read_item(AGENTPMT.entry, {"function": WEATHER, "x-pricing": pricing})
    assert (read.unreadable_prices, read.entry.price) == ((), 50_000)


def test_the_example_maps_another_api():
    """A file of about forty lines is enough to describe another API."""
    shop = Profile.find(str(SHOP))
    paging = shop.list.paging
    assert (paging.kind, paging.parameter_name, paging.size_parameter, paging.size, paging.start) == (
        *("page", "p", "limit", 50),
        0,
    )
    assert shop.secrets == {"token": Secret(variable="SHOP_TOKEN", name="token", template="Bearer {value}")}
    assert 429 in shop.call.retry_statuses
    assert shop.call.timeouts == {"W-1": 5.0}
    item = {
        "sku": 7,
        "title": "Weather",
        "summary": "s",
        "cost": {"usd": "0.02"},
        "kind": "data",
        "input": {},
    }
    assert shop.read_entry(item) == Entry("7", "Weather", "s", {}, 20_000, "data")
    assert shop.read_entry(
        item | {"cost": {"usd": "-1"}, "kind": 3, "summary": None, "title": None}
    ) == Entry("7", "7", "", {})


@pytest.mark.parametrize(
    ("unit", "amount", "price"),
    [
        ("dollars", "$0.05", 50_000),
        ("cents", 5, 50_000),
        ("cents", "0.00005", 1),
        ("micros", 7, 7),
        ("micros", 0.1, 1),
        (0.01, 5, 50_000),
        (0.0001, "3", 300),
        (2, 1.5, 3_000_000),
        ("cents", "$5", None),
        ("cents", "5 EUR", None),
        ("cents", True, None),
        ("cents", 1e308, None),
        ("cents", 10**12, None),
        ("micros", 10**12, 10**12),
    ],
)
def test_a_price_is_read_in_its_unit(unit, amount, price):
    """It is exact, and rounded up to a micro-dollar."""
    profile = small(entry={"price": {"path": "p", "unit": unit}})
    assert profile.read_entry({"id": "a", "p": amount}).price == price


@pytest.mark.parametrize("profile", [AGENTPMT, Profile.load(SHOP), Profile(**SMALL)], ids=lambda p: p.name)
def test_a_profile_survives_the_way_through_plain_data(profile):
    """`from_dict(as_dict())` gives an equal profile."""
    assert Profile.from_dict(profile.as_dict()) == profile


def test_yaml_is_read_as_toml_is(tmp_path):
    """The same settings in YAML give the same profile."""
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "shop.yaml"
    path.write_text(yaml.safe_dump(Profile.load(SHOP).as_dict()))
    assert Profile.load(path) == Profile.load(SHOP)
    path.write_text("a: [")
    with pytest.raises(ProfileError, match="not valid YAML"):
        Profile.load(path)


def test_without_pyyaml_the_error_says_what_to_do(tmp_path, monkeypatch):
    """The user can install it, or write TOML."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "x.yml"
    path.write_text("name: x")
    with pytest.raises(ProfileError, match="pip install pyyaml, or write the profile as TOML"):
        Profile.load(path)


def test_the_environment_may_give_the_address():
    """The address must follow the same rules as in a profile."""
    assert AGENTPMT.resolved({}) is AGENTPMT
    assert AGENTPMT.resolved({"AGENT_PAYMENT_BASE_URL": " "}) is AGENTPMT
    local = AGENTPMT.resolved({"AGENT_PAYMENT_BASE_URL": "http://127.0.0.1:8080"})
    assert local == AGENTPMT.changed(base_url="http://127.0.0.1:8080")
    with pytest.raises(ProfileError, match="AGENT_PAYMENT_BASE_URL: base_url must be an https address"):
        AGENTPMT.resolved({"AGENT_PAYMENT_BASE_URL": "http://api.example.com"})
    assert Profile(**SMALL).resolved({"": "x"}).base_url == SMALL["base_url"]


@pytest.mark.parametrize(
    "address",
    [
        "https://a.example",
        "https://a.example:8443/v1/",
        "http://localhost:1",
        "http://[::1]:1",
        "http://127.8.8.8",
    ],
)
def test_addresses_that_may_get_secrets(address):
    """The base URL may be https, or plain http to this machine."""
    assert Profile(**SMALL | {"base_url": address}).base_url == address


@pytest.mark.parametrize(
    "address",
    [
        *("", "a.example", "ftp://a.example", "file:///etc/passwd", "http://a.example", "http://10.0.0.1"),
        *("http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://127.0.0.1@evil.example"),
        *("https://user:pw@a.example", "https://a.example/?x=1", "https://a.example/#x", "https://"),
        *("https://a.example/../x", "https://a.example/%2e%2E/x", "https://a b", "https://a.example\\@evil"),
        *(
            "https://a.example:port",
            "https://[::1",
            "https://a.example\n",
            "https://é.example",
            "http://2130706433",
        ),
    ],
)
def test_addresses_that_may_not(address):
    """Plain http to other hosts, users, queries, ".." in paths and invalid addresses are refused."""
    with pytest.raises(ProfileError, match="base_url"):
        Profile(**SMALL | {"base_url": address})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lst": "/x"}, "there is no setting 'lst': did you mean 'list'"),
        ({"zzzz": 1}, "there is no setting 'zzzz': the settings are name"),
        ({"call": {"pth": "/x"}}, "call: there is no setting 'pth': did you mean 'path'"),
        ({"name": ""}, "name must not be empty"),
        ({"name": " "}, "name must not be empty"),
        ({"name": 5}, "name must be text, got 5"),
        ({"call": {"id_field": ""}}, "call: id_field must be set, or path must contain {id}"),
        ({"call": {"timeout": "30"}}, "call.timeout must be a number of seconds"),
        ({"call": {"timeout": 0}}, "call.timeout must be a number of seconds"),
        ({"call": {"timeout": float("inf")}}, "call.timeout must be a number of seconds"),
        ({"call": {"timeout": True}}, "call.timeout must be a number of seconds"),
        ({"call": {"timeouts": {"a": -1}}}, "call.timeouts.a must be a number of seconds"),
        ({"call": {"timeouts": 3}}, "call.timeouts must be a table"),
        ({"call": 3}, "call must be a table"),
        ({"call": {"idempotent": "yes"}}, "call.idempotent must be true or false"),
        ({"call": {"idempotent": True}}, "idempotency_header or request_id_field must be set"),
        ({"call": {"max_reply_bytes": 0}}, "call.max_reply_bytes must be over 0, got 0"),
        ({"call": {"max_reply_bytes": True}}, "call.max_reply_bytes must be a whole number, got True"),
        ({"call": {"uncharged_statuses": [99]}}, "call.uncharged_statuses[0] must be an HTTP status"),
        ({"call": {"uncharged_statuses": "400"}}, "call.uncharged_statuses must be a list"),
        ({"call": {"retry_statuses": [503]}}, "must be among uncharged_statuses unless idempotent"),
        ({"call": {"method": "DELETE"}}, "call.method must be one of GET, POST, PUT, PATCH, got 'DELETE'"),
        ({"call": {"method": "GET", "body": {"a": 1}}}, "call: body must be empty with method GET"),
        ({"call": {"arguments": "id"}}, "must be different fields"),
        ({"call": {"body": {"id": 1}}}, "call: id_field and body.id must be different fields"),
        (
            {"call": {"id_field": "a.b", "arguments": "a"}},
            "id_field and arguments must be different fields, and not one inside the other, got 'a.b' and 'a'",
        ),
        (
            {"call": {"id_field": "a.b", "body": {"a": {"b": 1}}}},
            "id_field and body.a.b must be different fields",
        ),
        ({"call": {"id_field": "a.b", "body": {"a": 1}}}, "id_field and body.a must be different fields"),
        ({"entry": {"id": "a|" * 1_000}}, "entry.id is too long for a path"),
        ({"name": 10**5_000}, "name must be text, got a int that is too large to be shown"),
        (
            {"call": {"timeout": 10**400}},
            "call.timeout must be a number of seconds, over 0 and at most a day, got 1000",
        ),
        (
            {"reply": {"failure": [{"path": "on", "equals": dt.date(2026, 1, 1)}]}},
            "reply.failure[0]: equals, one_of and not_in must be valid JSON",
        ),
        ({"call": {"body": {"a": [{1: 2}]}}}, "call.body.a must have names as keys, got 1"),
        ({"call": {"stream_query": {"s": "1"}}}, "call: stream_query has no effect without streams = true"),
        (
            {"reply": {"cost_unit": "cents"}},
            "reply: cost or cost_header must be set with cost_unit: a cost that is found automatically",
        ),
        ({"reply": {"balance_unit": 0.01}}, "reply: balance or balance_header must be set with balance_unit"),
        (
            {"secrets": {"k": {"variable": "K", "encoding": "base64"}}},
            "encoding applies only to parts: a variable is sent unchanged",
        ),
        (
            {"secrets": {"k": {"variable": "K", "place": "basic", "key": "X-Key"}}},
            "key has no effect with place = 'basic'",
        ),
        (
            {"list": {"paging": {"size_parameter": "limit"}}},
            "list.paging: size_parameter has no effect with kind = 'none': set kind to one of page, offset",
        ),
        (
            {"list": {"paging": {"kind": "page", "cursor": "next"}}},
            "list.paging: cursor has no effect with kind = 'page': set kind to one of cursor, link",
        ),
        (
            {"list": {"paging": {"kind": "offset", "total_pages": "pages"}}},
            "list.paging: total_pages has no effect with kind = 'offset': set kind to one of page",
        ),
        (
            {"list": {"path": "/list?sort=new"}},
            "list.path must be only a path: the part after the ? belongs in query",
        ),
        ({"list": {"path": "list"}}, "list.path must be a path"),
        ({"list": {"path": "//evil.example/x"}}, "list.path must be a path"),
        ({"call": {"path": "/a/../b"}}, "call.path must not contain"),
        ({"call": {"path": "/a?b=c"}}, "call.path must be only a path"),
        ({"call": {"path": "/a/{name}"}}, "call.path must be a path"),
        ({"secrets": {"x": "VARIABLE"}}, "secrets.x must be a table"),
        ({"secrets": 3}, "secrets must be a table"),
        ({"secrets": {"x": {}}}, "secrets.x: variable must be set"),
        ({"secrets": {"x": {"variable": "A", "vriable": "B"}}}, "secrets.x: there is no setting 'vriable'"),
        ({"secrets": {"x": {"variable": "A", "vriable": "B"}}}, "did you mean 'variable'"),
        ({"secrets": {"x": {"variable": "A", "place": "query"}}}, "secrets.x: key must be set"),
        ({"secrets": {"x": {"parts": [{"name": "a"}]}}}, "secrets.x.parts[0]: variable must be set"),
        (
            {"secrets": {"x": {"variable": "A B"}}},
            "secrets.x.variable must be the name of an environment variable",
        ),
        ({"secrets": {"x": {"variable": "A", "template": "Bearer"}}}, "must contain {value} once"),
        ({"secrets": {"x": {"variable": "A", "template": "{value}\r\nX: y"}}}, "must contain {value} once"),
        ({"secrets": {"x": {"variable": "A", "key": "x y"}}}, "must be the name of a header"),
        (
            {"secrets": {"x": {"variable": "A", "key": "Host"}}},
            "must not be Host, which the connection sets itself",
        ),
        (
            {"secrets": {"a": {"variable": "A"}, "b": {"variable": "B"}}},
            "the header authorization is set twice: set it in one place",
        ),
        (
            {"secrets": {"a": {"variable": "A", "key": "x-k"}}, "request": {"headers": {"X-K": "1"}}},
            "the header x-k is set twice: set it in one place",
        ),
        ({"request": {"headers": {"Host": "a"}}}, "must not be Host, which the connection sets itself"),
        ({"request": {"headers": {"X-A": "a\r\nX-B: c"}}}, "request.headers.X-A must be printable ASCII"),
        ({"call": {"idempotency_header": "a:b"}}, "must be the name of a header"),
        ({"environment": {"budget": "1A"}}, "environment.budget must be the name of an environment variable"),
        ({"list": {"paging": {"size": 0}}}, "list.paging.size must be at least 1, got 0"),
        ({"list": {"paging": {"parameter": 3}}}, "list.paging.parameter must be text"),
        ({"list": {"paging": {"first": -1}}}, "list.paging.first must be at least 0"),
        ({"list": {"paging": [1]}}, "list.paging must be a table"),
        ({"list": {"paging": {"kind": "cursor"}}}, "list.paging: cursor must be set"),
        (
            {"list": {"paging": {"kind": "pages"}}},
            "must be one of none, page, offset, cursor, link, got 'pages'",
        ),
        (
            {"list": {"paging": {"kind": "page", "place": "body"}}},
            "list: paging.place must be query with method GET",
        ),
        ({"entry": {"id": ""}}, "entry.id must not be empty"),
        ({"entry": {"price": {"unit": "euros"}}}, "entry.price.unit must be dollars, cents, micros"),
        ({"entry": {"price": {"unit": 0}}}, "entry.price.unit must be dollars, cents, micros"),
        ({"entry": {"price": {"argument": "action"}}}, "argument and by_value must be set together"),
        ({"entry": {"price": {"unit_path": "u"}}}, "unit_path and units must be set together"),
        ({"reply": {"failure": [{"path": "ok"}]}}, "equals, one_of, not_in or present must be set"),
        ({"reply": {"failure": {"path": "ok"}}}, "reply.failure must be a list"),
        ({"balance": {"path": "/b"}}, "balance: amount must be set"),
        ({"network": {"allow": ["inside"]}}, "network.allow[0] must be an IP address or a network"),
        ({"network": {"proxy": "proxy:3128"}}, "network.proxy must be the address of a proxy"),
        (
            {"network": {"proxy": "http://u:p@proxy:3128"}},
            "user and password belong in network.proxy_variable",
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(change, words):
    """The error says what is wrong, where, and what to do, and is a UsageError."""
    with pytest.raises(UsageError) as caught:
        Profile.from_dict(
            {
                **SMALL,
                **{
                    name: {**SMALL.get(name, {}), **table} if isinstance(table, dict) else table
                    for name, table in change.items()
                },
            },
            where="shop.toml",
        )
    assert isinstance(caught.value, ProfileError)
    assert words in str(caught.value)
    assert str(caught.value).startswith("shop.toml: ")


def test_a_profile_in_python_is_checked_too():
    """Models and plain tables follow the same rules as a file."""
    tables = {**SMALL, "list": ListRequest(path="/list"), "call": Call(path="/{id}")}
    assert Profile(**tables).call.path == "/{id}"
    with pytest.raises(ProfileError, match="secrets.x must be a table"):
        Profile(**SMALL, secrets={"x": "VARIABLE"})
    with pytest.raises(ProfileError, match="list must be a table"):
        Profile(**{**SMALL, "list": None})
    with pytest.raises(ValidationError, match="cursor must be set"):
        Paging(kind="cursor")


def test_a_profile_cannot_be_changed_in_place():
    """`changed` returns a copy with the changes."""
    profile = small()
    with pytest.raises(ValidationError):
        profile.name = "other"
    assert small(call={"timeout": 3}).call.timeout == 3
    assert small(call={"timeout": 3}).call.path == SMALL["call"]["path"]


def test_keys_that_are_no_text_are_refused():
    """YAML allows such keys."""
    with pytest.raises(ProfileError, match="call.body must have names as keys, got 1"):
        Profile.from_dict({**SMALL, "call": {**SMALL["call"], "body": {1: 2}}})


def test_plain_http_to_other_machines_must_be_allowed():
    """The profile has to set `network.allow_http`."""
    with pytest.raises(
        ProfileError, match=r"plain http is allowed only to .* \(or with network.allow_http\)"
    ):
        small(base_url="http://shop.internal")
    assert small(base_url="http://shop.internal", network={"allow_http": True}).network.allow_http


@pytest.mark.parametrize("path", sorted(SHOP.parent.glob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_takes_every_example(path):
    """An editor that uses the JSON schema finds no mistakes in the examples."""
    validator = jsonschema_rs.validator_for(json_schema())
    assert [error.message for error in validator.iter_errors(tomllib.loads(path.read_text()))] == []
    assert not validator.is_valid({**SMALL, "clal": {}})


def test_every_setting_is_described():
    """Each has a sentence, which is in the JSON schema too."""
    schema = json_schema()
    tables = {"profile": schema, **schema["$defs"]}
    missing = [
        f"{table}.{name}"
        for table, each in tables.items()
        for name, setting in each.get("properties", {}).items()
        if not setting.get("description", "").endswith((".", "`"))
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"x = [", "not valid TOML"),
        ("a.toml", b"\xff", "not valid TOML"),
        ("a.toml", b"name = 'x'", "base_url, list, call must be set"),
        ("a.toml", b"#" * 300_000, "256 KiB"),
        ("a.yaml", b"- 1", "must be a table"),
        ("a.ini", b"", "must be a .toml, .yaml or .yml file"),
        ("gone.toml", None, "cannot be read"),
        ("agentpmtt", None, "there is no profile"),
    ],
)
def test_files_that_are_no_profile(tmp_path, monkeypatch, name, content, words):
    """Each error says which file, and what is wrong."""
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(ProfileError, match=words):
        Profile.find(name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b", 1),
        ("list.1", 3),
        ("list.9", None),
        ("list.x", None),
        ("a.b.c", None),
        ("", None),
        ("list.²", None),
    ],
)
def test_dotted_paths(path, expected):
    """A path leads through objects and lists to a value, or gives None."""
    assert get_path({"a": {"b": 1}, "list": [2, 3]}, path) == expected


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["function", "name", "price", "category", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_item_is_an_entry_or_none(item):
    """No item raises an exception."""
    entry = AGENTPMT.read_entry(item)
    assert entry is None or (entry.id and isinstance(entry.name, str))


YAML = "name: x\nbase_url: https://x.example\nlist: {path: /l}\n"


@pytest.mark.parametrize("kind", ["tables", "lists"])
def test_a_few_aliases_are_not_millions_of_values(tmp_path, kind):
    """Thirty lines of YAML that double with each are refused before anything traverses them."""
    pytest.importorskip("yaml")
    first, more = ("{k: v}", "{{p: *a{0}, q: *a{0}}}") if kind == "tables" else ("[v]", "[*a{0}, *a{0}]")
    lines = [f"    a0: &a0 {first}", *(f"    a{n}: &a{n} {more.format(n - 1)}" for n in range(1, 40))]
    path = tmp_path / "bomb.yaml"
    path.write_text(YAML + "call:\n  path: /c\n  id_field: i\n  body:\n" + "\n".join(lines))
    with pytest.raises(ProfileError, match="a profile may have at most 20,000 values"):
        Profile.load(path)
    path.write_text(YAML + "call: &c\n  path: /c\n  id_field: i\n  body: *c\n")
    with pytest.raises(ProfileError, match="nested at most 50 deep"):
        Profile.load(path)


def test_what_is_set_twice_in_yaml_is_told(tmp_path):
    """It is an error, as in TOML: otherwise one of the two would be lost."""
    pytest.importorskip("yaml")
    path = tmp_path / "twice.yaml"
    path.write_text(YAML + "call: {path: /c, id_field: i}\nname: y\n")
    with pytest.raises(ProfileError, match="'name' is set twice in the table at line 1"):
        Profile.load(path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    """Some editors write one."""
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SHOP.read_bytes())
    assert Profile.load(path) == Profile.load(SHOP)
