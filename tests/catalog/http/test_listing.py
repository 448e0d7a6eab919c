"""The paging of a list, without a network: how each kind continues and ends, and what is said about wrong paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.http.listing import Reading, describe_signs_of_more, find_next_link
from toolwire.catalog.http.requests import page_request
from toolwire.catalog.profile.model import Profile
from toolwire.errors import CatalogError

SMALL = {
    "name": "x",
    "base_url": "https://x.example/v2",
    "list": {"path": "/list", "items": "items"},
    "call": {"path": "/{id}"},
}
MOST = 50


def reading_with(**paging):
    return Reading(Profile(**SMALL).changed(list={"paging": paging}))


def page_of(*ids, **more):
    return {"items": [{"id": each, "schema": {}} for each in ids], **more}


def read(reading, *pages, headers=None):
    """Return the requests that were made for these pages, and the ids that were found."""
    waiting, asked = list(pages), []
    while reading.position is not None and len(asked) < MOST:
        request = page_request(reading._profile, reading.position)
        asked.append(request.target.removeprefix("/list"))
        reading.take(waiting.pop(0) if waiting else page_of(), headers, request.target)
    return asked, "".join(entry.id for entry in reading.entries)


def test_one_request_where_there_are_no_pages():
    """Without paging there is one request, with only the path."""
    assert read(reading_with(), page_of("a")) == ([""], "a")


def test_offsets_follow_what_was_given():
    """The next offset is the number of items received, so a page may be smaller than requested."""
    pages = [page_of("a", "b", total=5), page_of("c", "d", total=5), page_of("e", total=5)]
    assert read(reading_with(kind="offset", size_parameter="n", size=3, total_items="total"), *pages) == (
        ["?offset=0&n=3", "?offset=2&n=3", "?offset=4&n=3"],
        "abcde",
    )


def test_pages_end_where_the_number_of_items_says():
    """The list also ends by the number of pages, or by a flag."""
    pages = [page_of("a", "b", total=3), page_of("c", total=3)]
    assert read(reading_with(kind="page", total_items="total"), *pages) == (["?page=1", "?page=2"], "abc")
    pages = [page_of("a", n=2), page_of("b", n=2)]
    assert read(reading_with(kind="page", first=0, total_pages="n"), *pages) == (["?page=0", "?page=1"], "ab")
    pages = [page_of("a", more=True), page_of("b", more=False)]
    assert read(reading_with(kind="offset", more="more"), *pages) == (["?offset=0", "?offset=1"], "ab")


@pytest.mark.parametrize("last", [{}, {"next": None}, {"next": ""}, {"next": False}])
def test_a_cursor_leads_on_until_there_is_none(last):
    """A cursor may be text or a number; the first request has none."""
    pages = [page_of("a", next="x=1&y"), page_of("b", next=7), page_of("c", **last)]
    assert read(reading_with(kind="cursor", cursor="next"), *pages) == (
        ["", "?cursor=x%3D1%26y", "?cursor=7"],
        "abc",
    )


def test_a_cursor_of_zero_is_a_cursor():
    """Only null, false, "" and a missing field end the list."""
    pages = [page_of("a", next=0), page_of("b")]
    assert read(reading_with(kind="cursor", cursor="next"), *pages) == (["", "?cursor=0"], "ab")


@pytest.mark.parametrize("cursor", [True, {"a": 1}, ["x"], 1.5, "x" * 10_000])
def test_what_is_no_cursor_is_told(cursor):
    """The path leads to something else, so the error says to check it."""
    with pytest.raises(CatalogError, match="that is not a cursor (.*): check list.paging.cursor"):
        read(reading_with(kind="cursor", cursor="next"), page_of("a", next=cursor))


def test_a_list_that_goes_in_circles_ends(caplog):
    """A cursor or link that repeats ends the list, with a warning."""
    pages = [page_of(each, next=f"c{n % 2}") for n, each in enumerate("abcdef")]
    asked, found = read(reading_with(kind="cursor", cursor="next"), *pages)
    assert (len(asked), found) == (3, "abc")
    pages = [page_of(each, next=f"/v2/list?p={n % 2}") for n, each in enumerate("abcdef")]
    assert len(read(reading_with(kind="link", cursor="next"), *pages)[0]) == 3
    assert caplog.text.count("leads back to an earlier one") == 2


@pytest.mark.parametrize("kind", ["cursor", "link"])
def test_new_cursors_for_nothing_new_end_too(kind):
    """An API that invents cursors for ever is given up after some pages without new items."""
    pages = [page_of(next=f"/v2/list?p={n}") for n in range(99)]
    asked, _ = read(reading_with(kind=kind, cursor="next"), *pages)
    assert len(asked) == 3


def test_links_lead_on():
    """The link may be in the header, or at a path in the page."""
    reading = reading_with(kind="link")
    reading.take(page_of("a"), {"link": '<https://x.example/v2/list?p=2>; rel="next"'}, "/list")
    assert reading.position.target == "/list?p=2"
    reading.take(page_of("b"), {}, "/list?p=2")
    assert reading.position is None
    pages = [page_of("a", links={"next": "?p=2"}), page_of("b", links={"next": None})]
    assert read(reading_with(kind="link", cursor="links.next"), *pages) == (["", "?p=2"], "ab")


def test_a_link_elsewhere_is_refused():
    """A link to another origin is an error."""
    with pytest.raises(CatalogError, match="leads to evil.test, which is not the API"):
        read(reading_with(kind="link", cursor="next"), page_of("a", next="https://evil.test/v2/list"))


@pytest.mark.parametrize(
    ("header", "link"),
    [
        ('</a>; rel="next"', "/a"),
        ("</a>; rel=next", "/a"),
        ('</a>; rel="prev", </b>; title="x, y"; rel="next"', "/b"),
        ('</a>; rel="first next"', "/a"),
        ('</a>; REL="NEXT"', "/a"),
        ('</a>; rel="nextish"', None),
        ("</a>; rel=nextish", None),
        ('</a>; title="rel=next"', None),
        ("</a>", None),
        ("next", None),
        ("", None),
    ],
)
def test_the_link_header(header, link):
    """It is parsed as RFC 8288 specifies."""
    assert find_next_link({"link": header}) == link


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_link_header_is_read_in_time(header):
    """No text raises an exception or takes too long."""
    find_next_link({"link": header * 20})


@pytest.mark.parametrize(
    ("page", "sign"),
    [
        ({"has_more": True}, "has_more is True"),
        ({"meta": {"next_cursor": "abc"}}, "meta.next_cursor is 'abc'"),
        ({"pagination": {"total": 120}}, "pagination.total is 120"),
        ({"next": None, "has_more": False, "total": 50}, ""),
        ({"next": {"a": 1}}, ""),
        ({"total": True}, ""),
        ([], ""),
    ],
)
def test_signs_that_a_list_goes_on(page, sign):
    """If the profile has no paging, fields that suggest more pages are found and described."""
    assert describe_signs_of_more(page, 50, {}) == sign


def problems(reading):
    return [problem.text for problem in reading.problems()]


def test_counts_of_what_was_found():
    """The counts are used by the check of a profile, and for warnings."""
    reading = Reading(Profile(**SMALL).changed(entry={"price": {"path": "p", "unit": "cents"}}))
    items = [{"id": 1, "schema": {}, "p": 5}, {"id": "b", "p": "5 EUR"}, {"name": "no id"}, None]
    reading.take({"items": items})
    assert (reading.items, reading.without_id, reading.unreadable_prices) == (4, 2, 1)
    assert reading.found == {"id": 2, "schema": 1, "price": 2, "name": 1}
    assert reading.numbers == {"1": 1}
    assert [entry.price for entry in reading.entries] == [50_000, None]
    assert problems(reading) == [
        "2 entries of the list have no id and are left out",
        "1 entries of the list have a price at p that cannot be read as cents, so it counts as unknown",
    ]


def test_defaults_that_lead_nowhere_are_no_problem():
    """Only paths that the profile sets itself, and the schema, are reported."""
    reading = reading_with()
    reading.take({"items": [{"id": 1, "title": "a", "input": {"type": "object"}}]})
    assert problems(reading) == [
        "entry.schema = 'schema' is in no item: the first item has id, title, input (object)"
    ]


def test_the_names_of_an_api_cannot_make_a_line_of_the_log():
    """Nor can they control a terminal."""
    reading = reading_with()
    reading.take({"items": [{"id": 1, "a\nWARNING b\x1b[2J": 1}]})
    (problem,) = problems(reading)
    assert problem.endswith("the first item has id, a WARNING b[2J")


def test_a_schema_of_null_is_there():
    """It means a tool without parameters, and is not reported."""
    reading = reading_with()
    reading.take({"items": [{"id": 1, "schema": None}]})
    assert problems(reading) == []


def test_one_of_two_ways_to_tell_the_price_is_enough():
    """An item may have a flat price or prices by action."""
    price = {"path": "p", "argument": "action", "by_value": "actions"}
    for item in ({"p": 1}, {"actions": {"a": 1}}):
        reading = Reading(Profile(**SMALL).changed(entry={"price": price}))
        reading.take({"items": [{"id": 1, "schema": {}, **item}]})
        assert problems(reading) == []


def test_a_total_that_is_not_there_is_told():
    """The problem is reported, and the end of the list has to be guessed."""
    reading = reading_with(kind="offset", total_items="totl")
    assert read(reading, page_of("a", total=2), page_of("b", total=2)) == (
        ["?offset=0", "?offset=1", "?offset=2"],
        "ab",
    )
    (problem,) = problems(reading)
    assert (
        problem
        == "list.paging.total_items = 'totl' is not in the first page: it has items (list of 1), total"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["items", "id", "next", "more", "total", "schema"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=8), st.sampled_from(["none", "page", "offset", "cursor", "link"]))
def test_any_pages_come_to_an_end(pages, kind):
    """Any pages give a list, or a `CatalogError`."""
    settings = {
        "page": {"more": "more", "total_items": "total"},
        "offset": {"more": "more", "total_items": "total"},
        "cursor": {"more": "more", "cursor": "next"},
        "link": {"cursor": "next"},
    }
    reading = reading_with(kind=kind, **settings.get(kind, {}))
    try:
        asked, _ = read(reading, *pages)
    except CatalogError:
        return
    assert len(asked) <= len(pages) + 4
    assert all(isinstance(problem.text, str) for problem in reading.problems())


def test_the_last_id_of_a_page_can_be_its_cursor():
    """The path step -1 is the last item of a list; the flag ends the list without another request."""
    pages = [page_of("a", "b", has_more=True), page_of("c", has_more=False)]
    reading = reading_with(kind="cursor", parameter="starting_after", cursor="items.-1.id", more="has_more")
    assert read(reading, *pages) == (["", "?starting_after=b"], "abc")
    assert problems(reading) == []


@pytest.mark.parametrize("kind", ["page", "offset"])
def test_an_api_that_does_not_know_the_parameter_is_told(kind):
    """It repeats its first page; that only 2 of 120 items were read is reported."""
    reading = reading_with(kind=kind, parameter="p")
    read(reading, *[page_of("a", "b", total=120)] * 4)
    (problem,) = problems(reading)
    assert problem == (
        "the list seems to continue (total is 120), but only its first 2 items are read: "
        f"check list.paging (kind = '{kind}')"
    )
    reading = reading_with(kind=kind, parameter="p")
    read(reading, *[page_of("a", "b")] * 4)
    (problem,) = problems(reading)
    assert problem == (
        "page 2 of the list is the same as page 1: if there are more than these 2 items, "
        f"check list.paging (kind = '{kind}', parameter = 'p')"
    )


def test_a_total_that_is_no_number_is_told():
    """The problem is reported, and the end of the list has to be guessed."""
    reading = reading_with(kind="offset", total_items="items")
    read(reading, page_of("a"), page_of("b"))
    (problem,) = problems(reading)
    assert problem.startswith("list.paging.total_items = 'items' is [{")
    assert "which is not a number" in problem
