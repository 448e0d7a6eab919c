"""URI templates: which URIs match, the values in them, and the values that are refused."""

import re
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import ToolDefinitionError
from toolwire.tools.resources import UriTemplate, check_uri
from toolwire.tools.schema.arguments import InvalidArguments


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("res://{id}", "res://5", {"id": "5"}),
        ("res://{id}", "res://", None),
        ("res://{id}", "res://a/b", None),
        ("res://{id}", "res://a?b", None),
        ("res://{id}", "res://a#b", None),
        ("res://{id}", "other://5", None),
        ("res://{id}/end", "res://5/end", {"id": "5"}),
        ("res://{id}/end", "res://5/ending", None),
        ("res://{id}/end", "res:///end", None),
        ("res://{id}d", "res://d", None),
        ("res://{a}/{b}", "res://1/2", {"a": "1", "b": "2"}),
        ("res://{a}/{b}", "res://1/", None),
        ("res://{a}/{b}", "res:///2", None),
        ("res://{name}.{ext}", "res://a.tar.gz", {"name": "a.tar", "ext": "gz"}),
        ("res://{name}.{ext}", "res://a.b.", {"name": "a", "ext": "b."}),
        ("res://{a}-{b}-{c}", "res://1-2-3", {"a": "1", "b": "2", "c": "3"}),
        ("res://{a}-{b}-{c}", "res://1-2", None),
        ("file:///{+path}", "file:///a/b.txt", {"path": "a/b.txt"}),
        ("file:///{path*}", "file:///a/b.txt", {"path": "a/b.txt"}),
        ("file:///{+path}", "file:///a?b", None),
        ("r://{a}/{+b}/{c}", "r://1/2/3/4/5", {"a": "1", "b": "2/3/4", "c": "5"}),
        ("r://{a}/{+b}/x/{c}", "r://1/x/x/x/2", {"a": "1", "b": "x/x", "c": "2"}),
        ("r://{a}/{+b}/{c}", "r://1/2", None),
        ("r://{a}/{+b}/{c}", "r://12", None),
        ("r://{a}-{+b}", "r://--x", {"a": "-", "b": "x"}),
        ("r://ab{x}ab", "r://ab", None),
        ("r://{+b}/x", "r:///x", None),
        ("r://x?k={k}", "r://x?k=5", {"k": "5"}),
        ("s://q{?a,b}", "s://q", {}),
        ("s://q{?a,b}", "s://q?", {}),
        ("s://q{?a,b}", "s://q?b=2&a=1", {"a": "1", "b": "2"}),
        ("s://q{?a,b}", "s://q?a=", {"a": ""}),
        ("s://q{?a,b}", "s://q?a=x%26y/z", {"a": "x&y/z"}),
        ("s://q{?a,b}", "s://qq?a=1", None),
        ("s://q{?a,b}", "s://q?a=1#f", None),
        ("s://{x}{?a}", "s://1?a=2", {"x": "1", "a": "2"}),
        ("s://{+x}{?a}", "s://1/2?a=3", {"x": "1/2", "a": "3"}),
        ("res://{id}", "res://a%20b%C3%A9", {"id": "a bé"}),
        ("res://{id}", "res://100%", {"id": "100%"}),
        ("res://{id}", "res://%252e%252e", {"id": "%2e%2e"}),
        ("res://{id}", "res://a..b", {"id": "a..b"}),
        ("file:///{+path}", "file:///a/...", {"path": "a/..."}),
    ],
)
def test_matches(template, uri, values):
    """A URI matches or does not, and its values are decoded."""
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "what"),
    [
        ("res://{id}", "res://..", "'..'"),
        ("res://{id}", "res://%2e%2E", "'..'"),
        ("res://{id}", "res://..%5Cx", "'..'"),
        ("res://{id}", "res://%2e%2e%20", "'..'"),
        ("res://{id}", "res://a%2Fb", "slashes"),
        ("res://{id}", "res://..%2f..%2fetc", "slashes"),
        ("res://{id}", "res://%5Cserver", "absolute"),
        ("res://{id}", "res://a%00", "NUL"),
        ("res://{id}", "res://%c0%ae%c0%ae", "UTF-8"),
        ("file:///{+path}", "file:///a/../../etc/passwd", "'..'"),
        ("file:///{+path}", "file:///a/%2e%2e/b", "'..'"),
        ("file:///{+path}", "file:///a%2f..", "'..'"),
        ("file:///{+path}", "file:///..%5c..", "'..'"),
        ("file:///{path*}", "file:///..", "'..'"),
        ("file:///{+path}", "file:////etc/passwd", "absolute"),
        ("file:///{+path}", "file:///%2Fetc/passwd", "absolute"),
        ("file:///{+path}", "file:///C:/Windows", "absolute"),
        ("file:///{+path}", "file:///a%00b", "NUL"),
        ("s://q{?a}", "s://q?a=../x", "'..'"),
        ("s://q{?a}", "s://q?a=/etc/passwd", "absolute"),
        ("s://q{?a}", "s://q?a=%2Fetc%2Fpasswd", "absolute"),
        ("s://q{?a}", "s://q?a=C:%5Cx", "absolute"),
        ("s://q{?a}", "s://q?a=%00", "NUL"),
        ("s://q{?a}", "s://q?a=1&a=2", "twice"),
        ("s://q{?a}", "s://q?b=2", "known: a"),
    ],
)
def test_values_that_never_reach_a_function(template, uri, what):
    """Ways out of a folder, NULs, invalid UTF-8 and odd queries are refused, and the error says which it was."""
    with pytest.raises(InvalidArguments, match=re.escape(what)) as caught:
        UriTemplate(template).match(uri)
    assert len(caught.value.violations) == 1
    assert caught.value.violations[0].path in ("id", "path", "a", "b")


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("no scheme/{id}", "scheme"),
        ("{id}", "scheme"),
        ("res:", "scheme"),
        ("", "scheme"),
        (5, "string"),
        ("res://a b/{id}", "whitespace"),
        ("res://{id", "brace"),
        ("res://id}", "brace"),
        ("res://{{id}}", "brace"),
        ("res://{}", "not supported"),
        ("res://{a,b}", "not supported"),
        ("res://{a:3}", "not supported"),
        ("res://{/a}", "not supported"),
        ("res://{#a}", "not supported"),
        ("res://{+a*}", "not supported"),
        ("res://{1a}", "not supported"),
        ("res://{?}", "not supported"),
        ("res://{a}{b}", "between"),
        ("res://{+a}/{+b}", "second variable that may have slashes"),
        ("res://{a}/{a}", "twice"),
        ("res://{a}{?a}", "twice"),
        ("res://x{?a}/y", "end of the template"),
        ("res://x?b=1{?a}", "must not follow a '?'"),
    ],
)
def test_templates_that_cannot_be(template, what):
    """A template that cannot be matched is refused with the reason."""
    with pytest.raises(ToolDefinitionError, match=re.escape(what)):
        UriTemplate(template)


def test_addresses_are_checked_like_templates():
    """A plain URI needs a scheme too."""
    check_uri("config://app")
    with pytest.raises(ToolDefinitionError, match="scheme"):
        check_uri("config")


def test_templates_of_the_same_addresses_have_the_same_shape():
    """The names in a template make no difference to what it matches, but its operators do."""
    assert UriTemplate("r://{a}/{+b}{?c,d}").shape == UriTemplate("r://{x}/{y*}{?d,c}").shape
    others = ["r://{a}", "r://{+a}", "r://{a}{?b}", "r://{a}{?c}", "r://{a}/"]
    assert len({UriTemplate(each).shape for each in others}) == len(others)


@pytest.mark.timeout(60)
def test_a_hostile_uri_does_not_hang():
    """The time to match is linear in the length of the URI: with backtracking this one would take years."""
    template = UriTemplate("r://{a}-{b}-{c}-{d}/{+e}-{f}-{g}/end")
    assert template.match("r://" + "-" * 200_000 + "/" + "-" * 200_000) is None


@settings(max_examples=1_000)
@given(
    literals=st.lists(st.text(alphabet="a-/", min_size=1, max_size=2), min_size=1, max_size=4),
    wide=st.integers(-1, 3),
    path=st.text(alphabet="a-/", max_size=10),
)
def test_a_match_is_found_whenever_there_is_one(literals, wide, path):
    """Matching without backtracking finds a match exactly if a regular expression does."""
    names = [f"v{number}" for number in range(len(literals))]
    template = "r:x" + "".join(
        f"{{{'+' if number == wide else ''}{name}}}{literal}"
        for number, (name, literal) in enumerate(zip(names, literals, strict=True))
    )
    regex = "r:x" + "".join(
        f"({'[^?#]+' if number == wide else '[^/?#]+'}){re.escape(literal)}"
        for number, literal in enumerate(literals)
    )
    uri = f"r:x{path}"
    try:
        found = UriTemplate(template).match(uri)
    except InvalidArguments:
        found = {}
    assert (found is not None) == (re.fullmatch(regex, uri) is not None)


@given(value=st.text(min_size=1, max_size=20), path=st.lists(st.text(min_size=1, max_size=5), min_size=1))
def test_values_come_back_as_they_were_put_in(value, path):
    """Matching an expanded URI (RFC 6570) gives the original values, unless they are refused."""
    template = UriTemplate("r://{id}/{+path}{?q}")
    joined = "/".join(path)
    uri = f"r://{quote(value, safe='')}/{quote(joined, safe='/')}?q={quote(value, safe='')}"
    try:
        assert template.match(uri) == {"id": value, "path": joined, "q": value}
    except InvalidArguments:
        assert re.search(r"\.\.|\0|/|\\", value + joined)


@pytest.mark.parametrize("value", ["\ud800", "a\ud800"])
def test_half_characters(value):
    """Percent-encoded bytes that are not UTF-8 are refused instead of guessed."""
    with pytest.raises(InvalidArguments, match="UTF-8"):
        UriTemplate("r://{id}").match("r://" + quote(value.encode("utf-8", "surrogatepass")))
