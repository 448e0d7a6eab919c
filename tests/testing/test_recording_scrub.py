"""Secrets are found in every form in which they may occur in a recording."""

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.testing.recording import SCRUBBED, RecordingScrubber, same, secrets_of

KEY = 'sk-ant-"q\\uo/te+d"-ÿ~é😀'
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=24).filter(
    lambda secret: len(secret.strip()) >= 6 and not set(secret) & set("<>") and secret not in SCRUBBED
)


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY),
        json.dumps(KEY, ensure_ascii=False),
        json.dumps(json.dumps(json.dumps(KEY))),
        json.dumps(KEY).replace("/", "\\/"),
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY).lower(),
        quote(quote(KEY, safe=""), safe=""),
        KEY.encode().hex().upper(),
    ],
    ids=[
        "raw",
        "json",
        "utf8 json",
        "nested json",
        "slashes",
        "url",
        "whole url",
        "lower url",
        "url twice",
        "hex",
    ],
)
def test_a_secret_is_replaced_in_each_spelling(form):
    """The text around the secret is kept."""
    scrubbed = RecordingScrubber([KEY]).text(f"before {form} after")
    assert scrubbed.startswith("before ")
    assert scrubbed.endswith(" after")
    assert scrubbed.replace('"', "").replace("\\", "") == f"before {SCRUBBED} after"


@pytest.mark.slow
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "!", "!!", "!!!"])
@pytest.mark.parametrize("wrap", [str, json.dumps, lambda secret: json.dumps(secret, ensure_ascii=False)])
def test_base64_is_found_at_each_alignment(encode, before, after, wrap):
    """Wherever the secret begins in the encoded bytes, at most 12 characters of its base64 are left in a row."""
    encoded = encode(f"{before}{wrap(KEY)}{after}".encode()).decode()
    for text in (encoded, quote(encoded, safe="")):
        left = RecordingScrubber([KEY]).text(f"Basic {text}")
        assert SCRUBBED in left
        assert max(map(len, left.removeprefix("Basic ").split(SCRUBBED))) <= 12


@settings(deadline=None)
@given(SECRETS, TEXTS, TEXTS)
def test_no_form_of_any_secret_survives(secret, before, after):
    """A random secret in a value, a key, nested JSON, a URL or base64 is removed from the recorded value."""
    text = f"{before}{secret}{after}"
    value = {
        text: [text, {"inner": json.dumps({"x": text})}],
        "url": [quote(text, safe=""), quote(text), quote_plus(text)],
        "base64": [b64encode(text.encode()).decode(), urlsafe_b64encode(text.encode()).decode()],
    }
    scrubbed = RecordingScrubber([secret]).value(value)
    standard, safe = scrubbed["base64"]
    assert SCRUBBED in standard
    assert SCRUBBED in safe
    key = next(iter(scrubbed))
    found = [key, scrubbed[key][0], scrubbed[key][1]["inner"], *scrubbed["url"]]
    for each in found:
        assert SCRUBBED in each
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
            assert form not in each
        assert secret not in unquote_plus(each)


@settings(deadline=None)
@given(SECRETS, st.binary(max_size=7), st.binary(max_size=7))
def test_what_is_left_of_base64_does_not_decode_to_the_secret(secret, before, after):
    """Even when the remaining parts are joined, they do not decode to the secret."""
    encoded = b64encode(before + secret.encode() + after).decode()
    rest = RecordingScrubber([secret]).text(encoded).replace(SCRUBBED, "").rstrip("=")
    rest += "A" * (-len(rest) % 4)
    assert secret.encode() not in b64decode(rest)


def test_keys_numbers_and_named_mappings():
    """Keys and numbers are searched too, and values of headers with telling names are removed even if unknown."""
    value = {"a123456z": 1234567, "n": 12, "headers": {"X-Api-Key": "unknown", "Accept": "text"}, "on": True}
    assert RecordingScrubber(["123456"]).value(value) == {
        f"a{SCRUBBED}z": SCRUBBED,
        "n": 12,
        "headers": {"X-Api-Key": SCRUBBED, "Accept": "text"},
        "on": True,
    }


@pytest.mark.parametrize("name", ["headers", "Headers", "HEADERS", "env", "Env"])
def test_a_named_mapping_is_known_in_any_case(name):
    """The log and `repr` do so too: a frame may contain the configuration of any program."""
    assert RecordingScrubber([]).value({name: {"X-Api-Key": "k"}}) == {name: {"X-Api-Key": SCRUBBED}}


def test_an_argument_that_is_json():
    """Headers of a server on the command line are scrubbed even if nobody declared their values as secrets."""
    argument = json.dumps({"mcpServers": {"a": {"type": "http", "headers": {"Authorization": "Bearer x"}}}})
    assert "Bearer" not in RecordingScrubber([]).argument(argument)
    assert RecordingScrubber(["secret"]).argument("{no json secret") == f"{{no json {SCRUBBED}"


def test_short_values_are_left_alone():
    """A password of five letters would be found inside of words."""
    assert RecordingScrubber(["hello", " short "]).text("hello short") == "hello short"


def test_secrets_of_an_environment():
    """Values of variables with telling names; users, passwords and random parts of URLs, also decoded."""
    hook = "https://example.com/T0001/7d1f0c9e8b2a4456a1b2c3d4"
    environment = {
        "A_KEY": "value1",
        "DATABASE": "pg://me:p%40ss-word@host/db",
        "HOME": "/home/user",
        "URL": hook,
    }
    assert list(secrets_of(environment)) == [
        "value1",
        *("me:p%40ss-word", "me:p@ss-word", "p%40ss-word", "p@ss-word"),
        "7d1f0c9e8b2a4456a1b2c3d4",
    ]


@pytest.mark.parametrize(
    ("expected", "came", "equal"),
    [
        (f"a {SCRUBBED} b", "a secret b", True),
        (f"a {SCRUBBED} b", "a secret c", False),
        (SCRUBBED, 12345678, True),
        ({SCRUBBED: [1, SCRUBBED]}, {"secret": [1, "x"]}, True),
        ({SCRUBBED: [1, SCRUBBED]}, {"secret": [2, "x"]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
        (1, "1", False),
    ],
)
def test_a_scrubbed_value_equals_anything(expected, came, equal):
    """A scrubbed part matches any value; everything else must be equal."""
    assert same(expected, came) is equal


@pytest.mark.slow
def test_a_secret_of_backslashes_takes_no_time():
    """Repeated escapes do not make the search take exponential time."""
    secret = "\\" * 3_000 + "tail"
    assert secret not in RecordingScrubber([secret]).text("before " + secret + " after")
