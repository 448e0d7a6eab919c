"""Definitions stored on disk, for times when the API is not available."""

import json
import stat

import pytest

from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.tools.entry_cache import load_entries as load
from toolwire.catalog.tools.entry_cache import save_entries as store

URL = "https://shop.example.com"
ENTRIES = (
    Entry("1", "weather", "Tell the weather", {"type": "object"}, 10_000, "data"),
    Entry("2", "mail", "", None, None, None),
)


def test_what_is_kept_comes_back(tmp_path):
    """All fields of all entries and the time of the fetch are stored, in a file with mode 0600."""
    path = tmp_path / "deep" / "er" / "kept.json"
    store(path, ENTRIES, URL, {"1": "weather"})
    kept = load(path, URL)
    assert (kept.entries, kept.names) == (ENTRIES, {"1": "weather"})
    assert kept.at > 1_700_000_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["kept.json"]


def test_another_address_has_nothing(tmp_path):
    """Entries of one API are not shown for another."""
    store(tmp_path / "kept.json", ENTRIES, URL, {})
    assert load(tmp_path / "kept.json", "https://other.example.com") is None
    assert load(tmp_path / "none.json", URL) is None


def damaged(**changes):
    """Return the content of a file with one entry, with these changes."""
    names = changes.pop("names", {})
    entry = {"id": "1", "name": "a", "description": "", "schema": None, "price": 1, "category": None}
    entry |= {"prices": {}, "price_argument": ""}
    return json.dumps(
        {"form": 3, "base_url": URL, "at": 1.0, "names": names, "entries": [{**entry, **changes}]}
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        json.dumps({"form": 3, "base_url": URL, "at": "then", "names": {}, "entries": []}),
        json.dumps({"form": 3, "base_url": URL, "at": 10**400, "names": {}, "entries": []}),
        json.dumps({"form": 3, "base_url": URL, "at": 1.0, "names": {}, "entries": 5}),
        json.dumps({"form": 3, "base_url": URL, "at": 1.0, "names": {}, "entries": [{}]}),
        json.dumps({"form": 3, "base_url": URL, "at": 1.0, "names": {}, "entries": ["text"]}),
        damaged(price="0.01"),
        damaged(price=-1),
        damaged(price=True),
        damaged(prices={"a": -1}),
        damaged(prices=[1]),
        damaged(price_argument=None),
        damaged(id=7),
        damaged(name=None),
        damaged(description=[]),
        damaged(category={}),
        damaged(names=[]),
        damaged(names={"1": 1}),
        "[" * 100_000,
    ],
)
def test_what_is_damaged_is_as_good_as_not_there(tmp_path, caplog, content):
    """A warning is logged, and the list is fetched again."""
    (tmp_path / "kept.json").write_text(content)
    assert load(tmp_path / "kept.json", URL) is None
    assert "they are fetched again" in caplog.text


def test_an_older_form_is_left_alone(tmp_path, caplog):
    """A file of another version is ignored without a warning."""
    (tmp_path / "kept.json").write_text(json.dumps({"form": 0, "base_url": URL}))
    assert load(tmp_path / "kept.json", URL) is None
    assert caplog.text == ""


def test_a_good_file_is_read(tmp_path):
    """Without changes, `damaged` returns a valid file, so the changes above are what is rejected."""
    (tmp_path / "kept.json").write_text(damaged())
    assert load(tmp_path / "kept.json", URL).entries == (Entry("1", "a", price=1),)


def test_integers_over_64_bits_are_kept_as_they_are(tmp_path):
    """A limit of 256 bits in a schema is the same after a restart."""
    entry = Entry("1", "a", schema={"properties": {"wei": {"type": "integer", "maximum": 2**256 - 1}}})
    store(tmp_path / "kept.json", [entry], URL, {})
    assert load(tmp_path / "kept.json", URL).entries == (entry,)


def test_what_cannot_be_kept_is_told(tmp_path, caplog):
    """A path that cannot be written, or data that is not JSON, only costs the cache, with a warning."""
    (tmp_path / "file").write_text("")
    store(tmp_path / "file" / "kept.json", ENTRIES, URL, {})
    assert "cannot be saved" in caplog.text
    caplog.clear()
    store(tmp_path / "kept.json", [Entry("1", "a", schema={"n": {1, 2}})], URL, {})
    assert "cannot be saved" in caplog.text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]
