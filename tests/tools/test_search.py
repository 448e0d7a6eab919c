"""Tools are found by the words of their definitions, in any language, however odd the texts are."""

import pytest

from toolwire.tools.search import ToolIndex, make_search_hint, split_words, tags_of


def index(**descriptions):
    found = ToolIndex()
    found.update({name: {"name": name, "description": text} for name, text in descriptions.items()})
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getHTTPServerStatus", ["get", "http", "server", "status"]),
        ("list_all-addresses.v2", ["list", "all", "address", "v2"]),
        ("Queries, boxes, branches and gas", ["query", "box", "branch", "and", "gas"]),
        ("Straße café \uff26\uff35\uff2c\uff2c", ["strasse", "cafe", "full"]),
        ("顧客検索", ["顧客", "客検", "検索"]),
        ("検索API", ["検索", "api"]),
        ("Найти счета", ["наити", "счета"]),
        ("\x00\x1b[31m", ["31m"]),
        ("...", []),
    ],
)
def test_words(text, words):
    """Names are split where people see words; accents, case and plurals do not matter."""
    assert sorted(split_words(text)) == sorted(words)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("refund", "refundPayment"),
        ("refunding", None),
        ("refun", "refundPayment"),
        ("REFUNDS", "refundPayment"),
        ("give money back to a customer", "refundPayment"),
        ("weather", "get_forecast"),
        ("customers", "list_customers"),
        ("get_forecast", "get_forecast"),
        ("顧客", "kokyaku"),
        ("顧", "kokyaku"),
    ],
)
def test_the_best_match_comes_first(query, best):
    """Names count more than descriptions, whole words more than beginnings, rare words more than common ones."""
    found = index(
        refundPayment="Give the money of a customer back.",
        get_forecast="The weather of the next days.",
        list_customers="All of them, with pages.",
        kokyaku="顧客の注文を検索する",
        **{f"report_{number}": "A report for the customer about money." for number in range(50)},
    )
    assert (found.search(query, 1) or [None])[0] == best


@pytest.mark.parametrize(
    "query", ["", "   ", ".*", "[a-z]+(", "\x00", "x" * 1_000_000, "ab " * 500_000, "'; DROP"]
)
def test_no_query_is_too_odd(query):
    """A query without words finds nothing, patterns have no meaning, and the length does not matter."""
    assert index(add="Add two numbers.").search(query, 5) == []


def test_hostile_definitions_are_indexed_in_part():
    """Megabytes of text, wrong types and ten thousand parameters are indexed in part, without an error."""
    found = ToolIndex()
    found.update(
        {
            "long": {"name": "long", "description": "needle " + "straw" * 1_000_000 + " hidden"},
            "odd": {"name": "odd", "description": 5, "title": ["x"], "_meta": 7, "inputSchema": []},
            "wide": {
                "name": "wide",
                "inputSchema": {"properties": {f"field{number}": {} for number in range(10_000)}},
            },
            "tagged": {
                "name": "tagged",
                "_meta": {"toolwire/tags": ["Shop", 5, None], "fastmcp": {"tags": ["a"]}},
            },
        }
    )
    assert found.search("needle", 1) == ["long"]
    assert found.search("hidden", 1) == []
    assert found.search("shop", 1) == ["tagged"]
    assert len(found.search("field", 100)) == 1


def test_the_index_follows_changes():
    """Removed tools are not found, changed ones by their new words, with the scores of a new index."""
    found = index(a="apples", b="bananas", c="cherries")
    definitions = {
        "b": {"name": "b", "description": "berries"},
        "c": {"name": "c", "description": "cherries"},
    }
    found.update(definitions)
    anew = ToolIndex()
    anew.update(definitions)
    for query in ("apples", "bananas", "berries", "cherries", "c"):
        assert found.search(query, 5) == anew.search(query, 5)
    assert found.search("apples", 5) == []
    assert found.search("berries", 5) == ["b"]
    found.update({})
    assert (len(found), found.search("cherries", 5)) == (0, [])


def test_tags_and_category_are_tags():
    """A catalogue's category and the tags of FastMCP count like toolwire's tags."""
    meta = {"toolwire/category": "Money", "toolwire/tags": ["a", "b"], "_fastmcp": {"tags": ["b", "c"]}}
    assert tags_of({"_meta": meta}) == ["Money", "a", "b", "c"]
    assert tags_of({}) == []


def test_a_search_hint_has_the_words_that_the_name_lacks():
    """The hint is short and has each word once, those of the name first."""
    hint = make_search_hint("stripe_createCharge", "Create a charge", None, "payments", "Charges a card.")
    assert hint == "stripe create charge payment card"
    assert len(make_search_hint("x", "word " * 5, " ".join(f"w{number}" for number in range(999)))) <= 200
