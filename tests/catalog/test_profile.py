"""Profiles: what they hold, and what is refused with which words."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.profile.model import BUILTIN, ListParams, Profile, ProfileError, Secret, at
from toolwire.catalog.tools.definitions import Entry
from toolwire.errors import UsageError

SHOP = Path(__file__).parents[2] / "examples" / "profiles" / "shop.toml"
SMALL = {"name": "x", "base_url": "https://x.example", "list_path": "/list", "call_path": "/call"}
AGENTPMT = BUILTIN["agentpmt"]


def test_agentpmt_is_built_in():
    """As its API is today."""
    assert Profile.find("agentpmt") is AGENTPMT
    assert AGENTPMT.base_url == "https://api.agentpmt.com"
    assert {header: secret.variable for header, secret in AGENTPMT.secrets.items()} == {
        "x-api-key": "AGENT_PAYMENT_API_KEY",
        "x-budget-key": "AGENT_PAYMENT_BUDGET_KEY",
    }
    assert (AGENTPMT.base_url_variable, AGENTPMT.budget_variable, AGENTPMT.filter_variable) == (
        "AGENT_PAYMENT_BASE_URL",
        "AGENT_PAYMENT_BUDGET",
        "AGENT_PAYMENT_TOOLS_FILTER",
    )
    assert not AGENTPMT.idempotent
    assert AGENTPMT.uncharged_statuses.isdisjoint({429, 500, 503})


def test_an_item_of_agentpmt_is_an_entry():
    """The name is an id, the schema is under function.parameters."""
    item = {"type": "function", "function": {"name": "65f1", "description": "W — x", "parameters": {"a": 1}}}
    entry = AGENTPMT.entry(item)
    assert entry == Entry("65f1", "65f1", "W — x", {"a": 1})
    assert entry.raw is item


@pytest.mark.parametrize(
    "item", [None, [], "x", {}, {"function": {"name": ""}}, {"function": {"name": True}}]
)
def test_an_item_without_an_id_is_no_entry(item):
    """It could not be bought."""
    assert AGENTPMT.entry(item) is None


def test_the_example_maps_another_api():
    """A file of some forty lines is all that another API takes."""
    shop = Profile.find(str(SHOP))
    assert shop.list_params == ListParams("p", "limit", 50, 0)
    assert shop.secrets == {"Authorization": Secret("SHOP_TOKEN", "token", "Bearer {value}")}
    assert 429 in shop.uncharged_statuses
    assert shop.timeouts == {"W-1": 5.0}
    item = {
        "sku": 7,
        "title": "Weather",
        "summary": "s",
        "cost": {"usd": "0.02"},
        "kind": "data",
        "input": {},
    }
    assert shop.entry(item) == Entry("7", "Weather", "s", {}, 20_000, "data")
    assert shop.entry(item | {"cost": {"usd": "-1"}, "kind": 3, "summary": None, "title": None}) == Entry(
        "7", "7", "", {}
    )


@pytest.mark.parametrize("profile", [AGENTPMT, Profile.load(SHOP), Profile(**SMALL)], ids=lambda p: p.name)
def test_a_profile_survives_the_way_through_plain_data(profile):
    """What is written out reads as the same profile."""
    assert Profile.from_dict(profile.as_dict()) == profile


def test_yaml_is_read_as_toml_is(tmp_path):
    """The same settings in the other format."""
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "shop.yaml"
    path.write_text(yaml.safe_dump(Profile.load(SHOP).as_dict()))
    assert Profile.load(path) == Profile.load(SHOP)
    path.write_text("a: [")
    with pytest.raises(ProfileError, match="not valid YAML"):
        Profile.load(path)


def test_without_pyyaml_the_error_says_what_to_do(tmp_path, monkeypatch):
    """Install it, or write TOML."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "x.yml"
    path.write_text("name: x")
    with pytest.raises(ProfileError, match="pip install pyyaml, or write the profile as TOML"):
        Profile.load(path)


def test_the_environment_may_give_the_address():
    """And only one that the rules allow."""
    assert AGENTPMT.resolved({}) is AGENTPMT
    assert AGENTPMT.resolved({"AGENT_PAYMENT_BASE_URL": " "}) is AGENTPMT
    local = AGENTPMT.resolved({"AGENT_PAYMENT_BASE_URL": "http://127.0.0.1:8080"})
    assert local == replace(AGENTPMT, base_url="http://127.0.0.1:8080")
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
    """https, or plain http to this machine."""
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
    """Plain http elsewhere, users, queries, climbing paths and what is no address."""
    with pytest.raises(ProfileError, match="base_url"):
        Profile(**SMALL | {"base_url": address})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"list_pth": "/x"}, "no setting 'list_pth': did you mean 'list_path'"),
        ({"zzzz": 1}, "no setting 'zzzz': known are name"),
        ({"name": ""}, "name must not be empty"),
        ({"name": 5}, "name must be text, got 5"),
        ({"id_field": ""}, "id_field must not be empty"),
        ({"timeout": "30"}, "timeout must be seconds"),
        ({"timeout": 0}, "timeout must be seconds"),
        ({"timeout": float("inf")}, "timeout must be seconds"),
        ({"timeout": True}, "timeout must be seconds"),
        ({"timeouts": {"a": -1}}, "timeouts.a must be seconds"),
        ({"timeouts": 3}, "timeouts must be a table"),
        ({"idempotent": "yes"}, "idempotent must be true or false"),
        ({"idempotent": True}, "set idempotency_header or request_id_field"),
        ({"max_reply_bytes": 0}, "max_reply_bytes must be a whole number over 0"),
        ({"uncharged_statuses": [99]}, "uncharged_statuses must be a list of HTTP statuses"),
        ({"uncharged_statuses": "400"}, "uncharged_statuses must be a list of HTTP statuses"),
        ({"call_method": "GET"}, "call_method must be one of POST"),
        ({"list_path": "list"}, "list_path must be a path"),
        ({"list_path": "//evil.example/x"}, "list_path must be a path"),
        ({"call_path": "/a/../b"}, "call_path must not have"),
        ({"call_path": "/a?b=c"}, "call_path must be a path"),
        ({"secrets": {"x": "VARIABLE"}}, "secrets.x must be a table"),
        ({"secrets": 3}, "secrets must be a table"),
        ({"secrets": {"x": {}}}, "secrets.x: variable must be set"),
        ({"secrets": {"x": {"variable": "A", "vriable": "B"}}}, "did you mean 'variable'"),
        (
            {"secrets": {"x": {"variable": "A B"}}},
            "secrets.x.variable must be the name of an environment variable",
        ),
        ({"secrets": {"x": {"variable": "A", "template": "Bearer"}}}, "must have {value} once"),
        ({"secrets": {"x": {"variable": "A", "template": "{value}\r\nX: y"}}}, "must have {value} once"),
        ({"secrets": {"x y": {"variable": "A"}}}, "not the name of a header"),
        ({"secrets": {"Host": {"variable": "A"}}}, "Host is set by the connection itself"),
        ({"idempotency_header": "a:b"}, "not the name of a header"),
        ({"budget_variable": "1A"}, "budget_variable must be the name of an environment variable"),
        ({"list_params": {"page_size": 0}}, "list_params.page_size must be 1 to"),
        ({"list_params": {"page": 3}}, "list_params.page must be text"),
        ({"list_params": {"first_page": -1}}, "list_params.first_page must be"),
        ({"list_params": [1]}, "list_params must be a table"),
        ({"list_params": {"pages": 3}}, "did you mean 'page'"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(change, words):
    """What, where, and what to do: as a UsageError."""
    with pytest.raises(UsageError) as caught:
        Profile.from_dict(SMALL | change, where="shop.toml")
    assert isinstance(caught.value, ProfileError)
    assert words in str(caught.value)
    assert str(caught.value).startswith("shop.toml: ")


def test_a_profile_in_python_is_checked_too():
    """The same rules as in a file."""
    with pytest.raises(ProfileError, match="secrets.x must be a Secret"):
        Profile(**SMALL, secrets={"x": "VARIABLE"})
    with pytest.raises(ProfileError, match="list_params must be ListParams"):
        Profile(**SMALL, list_params=None)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"x = [", "not valid TOML"),
        ("a.toml", b"\xff", "not valid TOML"),
        ("a.toml", b"name = 'x'", "base_url, list_path, call_path must be set"),
        ("a.toml", b"#" * 300_000, "256 KiB"),
        ("a.yaml", b"- 1", "must be a table"),
        ("a.ini", b"", "is a .toml, .yaml or .yml file"),
        ("gone.toml", None, "cannot be read"),
        ("agentpmtt", None, "there is no profile"),
    ],
)
def test_files_that_are_no_profile(tmp_path, monkeypatch, name, content, words):
    """Each says which file, and what is wrong."""
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
    """They lead through objects and lists, or nowhere."""
    assert at({"a": {"b": 1}, "list": [2, 3]}, path) == expected


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
    """Whatever the API sent, nothing is raised."""
    entry = AGENTPMT.entry(item)
    assert entry is None or (entry.id and isinstance(entry.name, str))
