"""Secrets: where they come from, and that no encoding of them is shown."""

import base64
import html
import json
import logging
import re
import string
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from toolwire._support.scrubber import Scrubber
from toolwire.catalog.profile.model import BUILTIN, Profile, Secret
from toolwire.catalog.secrets import find_credentials
from toolwire.errors import CatalogError, UsageError

AGENTPMT = BUILTIN["agentpmt-keys"]
TOKEN = BUILTIN["agentpmt"]
SMALL = {
    "name": "x",
    "base_url": "https://x.example",
    "list": {"path": "/l"},
    "call": {"path": "/{id}"},
}
KEYS = {"AGENT_PAYMENT_API_KEY": "key-123456", "AGENT_PAYMENT_BUDGET_KEY": "budget-654321"}
TRICKY = 'sk/live+1 2%3"4\\5&é😀='


def lower_hex(text):
    """Return a text with its percent escapes in lower case."""
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def forms(secret):
    """Yield every encoding that must not be shown."""
    raw = secret.encode()
    escaped = json.dumps(secret)[1:-1]
    yield secret
    yield escaped
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield orjson.dumps(secret).decode()[1:-1]
    yield json.dumps(escaped)[1:-1]
    yield escaped.replace("/", "\\/")
    for encoded in (
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        quote(secret, safe="!~*'()+/"),
    ):
        yield encoded
        yield lower_hex(encoded)
    yield quote(quote(secret, safe=""), safe="")
    yield "".join(f"%{byte:02X}" for byte in raw)
    yield raw.hex()
    yield raw.hex().upper()
    yield html.escape(secret)


def base64_forms(secret, before=b"", after=b""):
    """Yield the Base64 of a secret between other bytes."""
    raw = before + secret.encode() + after
    for encoded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        yield encoded
        yield encoded.rstrip("=")
        yield quote(encoded, safe="")
        yield json.dumps(encoded).replace("/", "\\/")[1:-1]


@pytest.mark.parametrize(
    "secret", [TRICKY, "abcdef", "12345678", "100%25 off%%x", 'a\\\\b\\c"d', "tab\tnew\nline", "x y z w"]
)
def test_no_form_of_a_secret_is_left(secret):
    """Raw, JSON-escaped once or twice, URL-encoded in any way, hex, and Base64 at any offset are all redacted."""
    scrubber = Scrubber([secret])
    for form in forms(secret):
        assert scrubber.text(f"before {form} after") == "before [redacted] after", form
    for before in (b"", b"x", b"xy", b"user:", b"key-and-more"):
        for after in (b"", b"z", b":budget"):
            for form in base64_forms(secret, before, after):
                cleaned = scrubber.text(f"Authorization: {form}")
                assert "[redacted]" in cleaned, form
                assert form not in cleaned


def test_base64_in_lines_is_found():
    """Mail and PEM break Base64 into lines, which may also be inside JSON."""
    scrubber = Scrubber(["a-secret-of-some-length"])
    for lead in range(60, 80):
        broken = base64.encodebytes(b"x" * lead + b"a-secret-of-some-length").decode()
        assert "[redacted]" in scrubber.text(broken)
        assert "[redacted]" in scrubber.text(json.dumps(broken))


def test_pairs_of_secrets_in_base64():
    """The API once used `key:budget` in Base64."""
    scrubber = Scrubber(KEYS.values())
    encoded = base64.b64encode(":".join(KEYS.values()).encode()).decode()
    cleaned = scrubber.text(f"Bearer {encoded}")
    assert cleaned.count("[redacted]") == 2
    assert not [size for size in range(8, len(encoded)) if encoded[:size] in cleaned]


def test_ordinary_text_stays():
    """Text without a secret is not changed."""
    text = 'The key to success: 100% effort, "quoted" \\ and base64 aGVsbG8gd29ybGQ= too.'
    assert Scrubber(["key-123456", TRICKY]).text(text) == text
    assert Scrubber([]).text(text) == text
    assert Scrubber(["", " "]).data({"a": [text]}) == {"a": [text]}


def test_data_is_cleaned_with_its_keys_and_numbers():
    """All levels are cleaned, in a copy; if two keys become equal, one gets a number."""
    scrubber = Scrubber(["12345678", "key-123456"])
    data = {
        "key-123456": 1,
        "x key-123456": {"n": [12345678, 1.5, True, None, 912345678.5]},
        "[redacted]": "key-123456!",
        5: (b"key-123456", {"key-123456"}),
    }
    before = repr(data)
    assert scrubber.data(data) == {
        "[redacted]": 1,
        "x [redacted]": {"n": ["[redacted]", 1.5, True, None, "[redacted]"]},
        "[redacted] 2": "[redacted]!",
        5: [b"[redacted]", ["[redacted]"]],
    }
    assert repr(data) == before


@pytest.mark.slow
def test_data_of_any_depth_and_with_cycles():
    """Nothing is raised, whatever the structure."""
    scrubber = Scrubber(["key-123456"])
    deep: list = ["key-123456"]
    for _ in range(100_000):
        deep = [deep]
    cleaned = scrubber.data(deep)
    while isinstance(cleaned[0], list):
        cleaned = cleaned[0]
    assert cleaned == ["[redacted]"]
    cycle: dict = {"a": "key-123456"}
    cycle["self"] = cycle
    copy = scrubber.data(cycle)
    assert copy["self"] is copy
    assert copy["a"] == "[redacted]"
    assert scrubber.data([10**5000, object]) == [10**5000, object]


def test_a_short_value_is_taken_only_as_a_word(caplog):
    """Otherwise ordinary text would be redacted; a warning says so, without the value."""
    with caplog.at_level(logging.WARNING, "toolwire"):
        scrubber = Scrubber(made({"KEY": "abc"}, variable="KEY").values)
    assert "less than 6 characters" in caplog.text
    assert "abc" not in caplog.text
    assert scrubber.text("abc abcdef xabc (abc)") == "[redacted] abcdef xabc ([redacted])"
    assert scrubber.text("token=YWJj; more=YWJjZGVm") == "token=[redacted]; more=YWJjZGVm"


@pytest.mark.parametrize("secret", ["redacted", "[redacted]", "]aaaaa", "aaaaaa", "d]d]d]", "[redac"])
def test_a_secret_that_looks_like_the_mask(secret):
    """The mask itself is not redacted, and never forms a secret with the text beside it."""
    scrubber = Scrubber([secret])
    for text in (
        secret,
        secret + secret[1:],
        secret[:-1] + secret * 3 + secret[1:],
        f"[redacted]{secret[1:]}",
    ):
        assert secret not in scrubber.text(text)


@pytest.mark.slow
@pytest.mark.parametrize("filler", ["\\", "%25", "key-12345", "a", "aGVs", "\\u006b", "%6b", "\n", "&#0"])
@pytest.mark.timeout(60)
def test_the_cost_is_linear(filler):
    """A megabyte of text that almost looks like a secret takes a moment, not minutes."""
    scrubber = Scrubber(["key-123456", "\\\\\\\\\\\\", "%%%%%%%%%%", "aaaaaaaaaaab"])
    text = filler * (1_000_000 // len(filler))
    scrubber.text(text)


SECRETS = st.text(
    st.one_of(
        st.sampled_from(string.ascii_letters + string.digits + '+/=-_.:%&"\\ '), st.characters(codec="utf-8")
    ),
    min_size=6,
    max_size=40,
).filter(lambda text: text == text.strip())
AROUND = st.text(st.characters(codec="utf-8"), max_size=20)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(SECRETS, AROUND, AROUND, st.binary(max_size=5), st.binary(max_size=5))
def test_any_secret_in_any_text(secret, before, after, lead, trail):
    """No encoding of a secret is left in a text, or in the JSON of nested data."""
    scrubber = Scrubber([secret])
    for form in [*forms(secret), *base64_forms(secret, lead, trail)]:
        assert form not in scrubber.text(f"{before}{form}{after}")
        cleaned = scrubber.data({"a": [f"{before}{form}", {form: form}], form + after: 1})
        values = [cleaned["a"][0], *cleaned["a"][1], *cleaned["a"][1].values(), *cleaned]
        assert not [value for value in values if form in value]
        assume(not any(each in form for each in ', "{[:'))  # those come from JSON itself
        assert form not in json.dumps(cleaned, ensure_ascii=False)


def test_credentials_come_from_the_environment():
    """The profile names the variables and the headers."""
    assert find_credentials(AGENTPMT, KEYS).headers == {
        "x-api-key": "key-123456",
        "x-budget-key": "budget-654321",
    }
    assert (
        find_credentials(AGENTPMT, KEYS | {"AGENT_PAYMENT_API_KEY": " key\n"}).headers["x-api-key"] == "key"
    )


def test_all_missing_variables_are_named_in_one_line():
    """A user can then set all of them at once."""
    with pytest.raises(CatalogError) as caught:
        find_credentials(AGENTPMT, {"AGENT_PAYMENT_API_KEY": "  "})
    assert str(caught.value) == (
        "AGENT_PAYMENT_API_KEY, AGENT_PAYMENT_BUDGET_KEY are not set: set them, or put api_key, budget_key "
        "in a credentials file (profile agentpmt-keys)"
    )
    with pytest.raises(CatalogError, match="^AGENT_PAYMENT_BUDGET_KEY is not set: set it"):
        find_credentials(AGENTPMT, {"AGENT_PAYMENT_API_KEY": "x"})


def test_templates_make_the_header():
    """The template may be `Bearer {value}`, for example."""
    profile = Profile(**SMALL, secrets={"token": Secret(variable="TOKEN", template="Bearer {value}")})
    found = find_credentials(profile, {"TOKEN": "t{value}"})
    assert found.headers == {"Authorization": "Bearer t{value}"}
    assert set(found.values) == {"t{value}", "Bearer t{value}"}


def made(environ, **secret):
    """Return the credentials of a profile with one secret."""
    return find_credentials(Profile(**SMALL, secrets={"one": secret}), environ)


def test_a_secret_can_go_into_the_query():
    """The parameter has the name that the profile gives it."""
    found = made({"TOKEN": "t-1"}, variable="TOKEN", place="query", key="api_key")
    assert (found.query, found.headers) == ({"api_key": "t-1"}, {})


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ({"variable": "KEY", "template": "{value}:"}, "k-1:"),
        ({"variable": "KEY", "template": "api:{value}"}, "api:k-1"),
        ({"parts": [{"variable": "USER"}, {"variable": "PASSWORD"}]}, "u-1:p-1"),
    ],
)
def test_basic_authentication(secret, text):
    """The header has a key as user, a fixed user with the key, or a user and a password."""
    found = made({"KEY": "k-1", "USER": "u-1", "PASSWORD": "p-1"}, place="basic", **secret)
    encoded = base64.b64encode(text.encode()).decode()
    assert found.headers == {"Authorization": f"Basic {encoded}"}
    assert {encoded, text} <= set(found.values)


def test_basic_authentication_needs_a_colon():
    """The error does not show the value."""
    with pytest.raises(UsageError, match="KEY must be user:password for basic authentication") as caught:
        made({"KEY": "k-123456"}, place="basic", variable="KEY")
    assert "k-123456" not in str(caught.value)
    assert made({"KEY": "u:k-123456"}, place="basic", variable="KEY").headers


def test_the_name_of_a_user_is_no_secret():
    """Otherwise the word would be redacted in every reply."""
    parts = [{"variable": "USER"}, {"variable": "PASSWORD"}]
    found = made({"USER": "weather", "PASSWORD": "pass-123"}, place="basic", parts=parts)
    assert Scrubber(found.values).text("weather pass-123 weather:pass-123") == "weather [redacted] [redacted]"


def test_the_token_of_agentpmt():
    """It is in its own variable, or the Base64 of both keys; all of these are secret."""
    found = find_credentials(TOKEN, {**KEYS, "AGENT_PAYMENT_TOKEN": "tok-1"})
    assert found.headers == {"Authorization": "Bearer tok-1"}
    found = find_credentials(TOKEN, KEYS)
    encoded = base64.b64encode(b"key-123456:budget-654321").decode()
    assert found.headers == {"Authorization": f"Bearer {encoded}"}
    assert {"key-123456", "budget-654321", "key-123456:budget-654321", encoded} <= set(found.values)


def test_a_missing_token_names_both_ways(tmp_path):
    """One line names both; if one of the keys is set, only the other is asked for."""
    with pytest.raises(CatalogError) as caught:
        find_credentials(TOKEN, {})
    assert str(caught.value) == (
        "AGENT_PAYMENT_TOKEN is not set: set it (or AGENT_PAYMENT_API_KEY and AGENT_PAYMENT_BUDGET_KEY), "
        "or put token in a credentials file (profile agentpmt)"
    )
    with pytest.raises(CatalogError, match="^AGENT_PAYMENT_BUDGET_KEY is not set: set it, or put budget_key"):
        find_credentials(TOKEN, {"AGENT_PAYMENT_API_KEY": "x"})


def test_the_environment_goes_before_the_file_as_a_whole(stored):
    """Two keys in the environment take precedence over a token in the file."""
    path = stored('token = "file-token"')
    assert find_credentials(TOKEN, {}, path).headers == {"Authorization": "Bearer file-token"}
    found = find_credentials(TOKEN, KEYS, path).headers["Authorization"]
    assert found == f"Bearer {base64.b64encode(b'key-123456:budget-654321').decode()}"


def test_credentials_are_not_shown():
    """They are neither in the repr, as in tracebacks, nor in the digest, which names files."""
    found = find_credentials(TOKEN, KEYS)
    assert repr(found) == "Credentials()"
    assert not [value for value in found.values if value in found.digest]
    assert found.digest == find_credentials(TOKEN, KEYS).digest
    assert found.digest != find_credentials(TOKEN, {"AGENT_PAYMENT_TOKEN": "other"}).digest


def test_the_password_of_a_proxy():
    """Only a variable that the profile names is used; if it is missing, that is an error."""
    network = {"proxy": "http://proxy:3128", "proxy_variable": "PROXY_LOGIN"}
    profile = Profile(**SMALL, network=network)
    assert find_credentials(profile, {"PROXY_LOGIN": "me:secret-1"}).proxy == "me:secret-1"
    assert "secret-1" in find_credentials(profile, {"PROXY_LOGIN": "me:secret-1"}).values
    with pytest.raises(CatalogError, match="PROXY_LOGIN is not set: set it to user:password for the proxy"):
        find_credentials(profile, {})


@pytest.mark.parametrize("value", ["a\nb", "a\rX: y", "é", "\x00", "x" * 9000])
def test_a_value_that_no_header_can_hold_is_refused_unseen(value):
    """The error names the variable, but not the value."""
    with pytest.raises(UsageError, match="^AGENT_PAYMENT_API_KEY is too long, or has characters") as caught:
        find_credentials(AGENTPMT, KEYS | {"AGENT_PAYMENT_API_KEY": value})
    assert value not in str(caught.value)


@pytest.fixture
def stored(tmp_path):
    """Return a function that writes a credentials file with this text and mode."""

    def store(text, name="credentials.toml", mode=0o600):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    return store


def test_credentials_from_a_file(stored):
    """It may be TOML or JSON; the environment takes precedence."""
    path = stored('api_key = "file-key"\nbudget_key = "file-budget"')
    assert find_credentials(AGENTPMT, {}, path).headers == {
        "x-api-key": "file-key",
        "x-budget-key": "file-budget",
    }
    assert find_credentials(AGENTPMT, {"AGENT_PAYMENT_API_KEY": "env"}, path).headers["x-api-key"] == "env"
    path = stored('{"api_key": "json-key", "budget_key": 12}', "credentials.json")
    assert find_credentials(AGENTPMT, {}, str(path)).headers == {
        "x-api-key": "json-key",
        "x-budget-key": "12",
    }


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_file_that_others_can_read_is_refused(stored, mode):
    """The error has the chmod command that fixes it."""
    path = stored('api_key = "x"', mode=mode)
    with pytest.raises(UsageError, match=f"chmod 600 {path}"):
        find_credentials(AGENTPMT, KEYS, path)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("api_key = hidden-secret", "c.toml", "not a valid credentials file"),
        ("{hidden-secret", "c.json", "not a valid credentials file"),
        ("[1]", "c.json", "a name with a text"),
        ("[table]\na = 1", "c.toml", "a name with a text"),
        ("#" * 70_000, "c.toml", "at most 64 KiB"),
    ],
)
def test_a_file_that_holds_no_credentials(stored, text, name, words):
    """It is refused, and the error quotes nothing of it, not even by its cause."""
    with pytest.raises(UsageError, match=words) as caught:
        find_credentials(AGENTPMT, KEYS, stored(text, name))
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_that_is_none(tmp_path):
    """A missing file, a folder and a device are refused."""
    with pytest.raises(UsageError, match="cannot be read"):
        find_credentials(AGENTPMT, KEYS, tmp_path / "gone.toml")
    with pytest.raises(UsageError, match="cannot be read|plain file"):
        find_credentials(AGENTPMT, KEYS, tmp_path)
    with pytest.raises(UsageError, match="regular file"):
        find_credentials(AGENTPMT, KEYS, "/dev/null")


def test_an_endless_secret_is_refused():
    """Otherwise the pattern that finds it would be too long."""
    parts = [{"variable": "USER"}, {"variable": "PASSWORD"}]
    with pytest.raises(UsageError, match="is too long"):
        made({"USER": "x" * 5_000, "PASSWORD": "x" * 5_000}, parts=parts)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_secret_in_json_is_found_in_every_encoding_that_json_is_read_in(encoding):
    """The search in raw bytes covers all encodings that the JSON parser accepts."""
    secret = KEYS["AGENT_PAYMENT_API_KEY"]
    content = json.dumps({"output": f"you sent {secret}"}).encode(encoding)
    assert Scrubber([secret]).may_be_in(content)
    assert not Scrubber(["another-secret"]).may_be_in(content)


@pytest.mark.slow
def test_many_keys_that_are_the_secret_are_cleaned_in_linear_time():
    """A reply with thousands of spellings of the secret as keys is still read quickly."""
    secret = "key-1234567890abcdef"  # noqa: S105 - 20 characters: 2 ** 20 spellings, percent-encoded or not
    spellings = [
        "".join(f"%{ord(each):02x}" if number >> at & 1 else each for at, each in enumerate(secret))
        for number in range(30_000)
    ]
    clean = Scrubber([secret]).data(dict.fromkeys(spellings, 1))
    assert len(clean) == len(spellings)
    assert {"[redacted]", "[redacted] 2", "[redacted] 30000"} <= clean.keys()
