"""`toolwire catalog check`: what it shows of an API, and what it says about a profile that does not fit."""

import json

import httpx2
import pytest
from typer.testing import CliRunner

from shared.market import PaidApi
from shared.other_apis import PROFILES, Acme, Atlas, Lumen
from toolwire._support.scrubber import Scrubber
from toolwire.catalog.check import check_profile
from toolwire.catalog.http.api import Api
from toolwire.catalog.http.connection import Retry
from toolwire.catalog.profile.model import Profile, json_schema
from toolwire.catalog.secrets import Credentials
from toolwire.cli.main import app

ITEM = {"id": "a1", "name": "Weather", "description": "Tell it", "schema": {"type": "object"}, "price": 0.01}
SMALL = {
    "name": "x",
    "base_url": "https://93.184.216.34",
    "secrets": {"key": {"variable": "KEY"}},
    "list": {"path": "/list", "items": "items"},
    "entry": {"price": {"path": "price"}},
    "call": {"path": "/call", "id_field": "id", "arguments": "input"},
}


async def checked(page, headers=None, profile=SMALL, **tables):
    """Return the result of a check on a page, or on the pages that a function returns."""
    asked = []

    async def answer(request):
        asked.append(request)
        if callable(page):
            return page(request)
        return page if isinstance(page, httpx2.Response) else httpx2.Response(200, json=page, headers=headers)

    profile = Profile(**profile).changed(**tables)
    transport = httpx2.MockTransport(answer)
    async with Api(profile, Credentials(), transport=transport, retry=Retry(attempts=1)) as api:
        found = await check_profile(profile, api, Scrubber(["s3cret-of-ours"]))
    assert {request.url.path for request in asked} <= {"/list", "/balance"}  # a check never buys
    return found


async def findings(page, headers=None, **tables):
    """Return the findings of a check as text."""
    found = await checked(page, headers, **tables)
    return [f"{each.level}: {each.text}" for each in found.findings]


def page_of(*items, **more):
    return {"items": list(items), **more}


@pytest.mark.anyio
async def test_a_profile_that_fits_has_no_findings():
    """The result has what was read, for the user to look at."""
    found = await checked(page_of(ITEM))
    assert (found.ok, found.findings) == (True, [])
    assert (found.entry.price, found.definition.name, found.next_page) == (10_000, "Weather", "")
    assert json.loads(found.call_request.content) == {"id": "a1", "input": {}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("page", "tables", "words"),
    [
        (
            page_of(),
            {},
            "error: the list has no items at list.items = 'items': the page has items (list of 0)",
        ),
        (
            {"data": {"tools": [ITEM]}},
            {},
            "page 1 has no list at 'items': the page has data.tools (list of 1)",
        ),
        ([ITEM], {}, "page 1 has no list at 'items': the page is a list of 1. Check list.items"),
        (
            page_of(ITEM),
            {"entry": {"id": "uid"}},
            "error: none of the 1 items has an id at entry.id = 'uid': the first item has id, name, description",
        ),
        (
            page_of({**ITEM, "price": "5 EUR"}),
            {},
            'at price that cannot be read as dollars, so it counts as unknown: "5 EUR"',
        ),
        (
            httpx2.Response(401, json={"error": "no"}),
            {},
            "error: page 1 of the list: HTTP 401 (Unauthorized): no",
        ),
        (
            httpx2.Response(200, text="<html>"),
            {},
            "error: page 1 of the list is not JSON (6 bytes of text/plain)",
        ),
        (
            httpx2.Response(401, json={"error": "no"}),
            {"secrets": {"key": {"variable": "KEY", "key": "X-Key"}}},
            "(Unauthorized): no. Sent: the header X-Key: *** (check [secrets])",
        ),
        (
            {"ok": False, "why": "bad token"},
            {"reply": {"error": "why"}},
            "page 1 has no list at 'items': the page has ok, why, and says 'bad token'",
        ),
        (
            page_of({**ITEM, "schema": {"type": "string"}}),
            {},
            "error: 1 of 1 entries cannot be tools: Weather: the schema has the type string",
        ),
        (
            page_of({**ITEM, "schema": {"type": "object", "properties": {"id": {"type": "string"}}}}),
            {"call": {"arguments": ""}},
            "error: 1 of 1 entries cannot be called: the argument 'id' has the same name as a field",
        ),
        (
            page_of({**ITEM, "id": "../x"}),
            {"call": {"path": "/{id}", "id_field": ""}},
            "error: 1 of 1 entries cannot be called: the id '../x' cannot be a part of a path",
        ),
    ],
)
async def test_what_makes_a_profile_useless_is_an_error(page, tables, words):
    """The error says what is there instead."""
    found = await checked(page, **tables)
    assert not found.ok
    assert any(words in f"{each.level}: {each.text}" for each in found.findings), found.findings


DEAR = [{**ITEM, "id": str(n), "price": price} for n, price in enumerate((5, 120, 400))]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("page", "tables", "words"),
    [
        (
            page_of(*DEAR),
            {},
            "warning: prices from $5.00 to $400.00: is the unit cents? entry.price.unit is dollars",
        ),
        (
            page_of({**ITEM, "price_cents": 0.5}),
            {"entry": {"price": {"path": "price_cents"}}},
            "warning: prices of $0.50: is the unit cents?",
        ),
        (
            page_of({**ITEM, "pricing": {"n": 5, "currency": "credits"}}),
            {"entry": {"price": {"path": "pricing.n"}}},
            "warning: prices of $5.00, and pricing.currency is 'credits': entry.price.unit is dollars",
        ),
        (
            page_of({**ITEM, "price": 0.05}),
            {"entry": {"price": {"unit": "cents"}}},
            "warning: prices of $0.0005: is the unit dollars? entry.price.unit is cents",
        ),
        (page_of(ITEM), {"entry": {"price": {"path": ""}}}, "warning: entry.price is not set (is it price?)"),
        (
            page_of(ITEM),
            {"entry": {"price": {"path": "cost"}}},
            "warning: entry.price.path = 'cost' is in no item",
        ),
        (
            page_of(ITEM),
            {"entry": {"schema": "input"}},
            "warning: entry.schema = 'input' is in no item: the first",
        ),
        (page_of(ITEM), {"entry": {"name": "title"}}, "warning: entry.name = 'title' is in no item"),
        (page_of(ITEM), {"entry": {"category": "kind"}}, "warning: entry.category = 'kind' is in no item"),
        (
            page_of(*[{**ITEM, "id": str(n)} for n in range(50)], total=120),
            {},
            "the list seems to continue (total is 120), but only its first 50 items are read: set list.paging",
        ),
        (
            page_of(ITEM, meta={"next_cursor": "abc"}),
            {"list": {"paging": {"kind": "cursor", "cursor": "meta.nxt"}}},
            "list.paging.cursor = 'meta.nxt' is not in the first page: it has items (list of 1), meta.next",
        ),
        (
            page_of(ITEM, has_more=False),
            {"list": {"paging": {"kind": "page", "more": "hasmore"}}},
            "warning: list.paging.more = 'hasmore' is not in the first page",
        ),
        (
            page_of(ITEM, ok=True),
            {},
            'report failures like this, set [reply] failure = [{ path = "ok", equals = false }]',
        ),
        (page_of(ITEM, code=0), {}, '[reply] failure = [{ path = "code", not_in = [0] }]'),
        (page_of(ITEM, ITEM), {}, "warning: 1 items have the same id as another item"),
        (
            page_of({**ITEM, "name": "65f1c0ffee65f1c0ffee"}),
            {},
            "warning: the names are ids (65f1c0ffee65f1c0ffee)",
        ),
        (page_of({**ITEM, "description": ""}), {}, "warning: no entry has a description"),
        (
            page_of(ITEM, {**ITEM, "id": "b", "schema": {"type": "string"}}),
            {},
            "warning: 1 of 2 entries cannot be tools: Weather: the schema has the type string",
        ),
        (
            page_of({**ITEM, "price": 0.0000025}),
            {},
            "warning: prices of $0.000003: are these prices per call, and not per token or another part of a call?",
        ),
        (
            page_of({**ITEM, "price": 10_000}),
            {"entry": {"price": {"unit": "cents"}}},
            "warning: prices of $100.00: is a call that expensive? entry.price.unit is cents",
        ),
        (
            page_of({**ITEM, "price": None}),
            {},
            "warning: 1 of 1 entries have no price: the cost of calling them is not known",
        ),
        (
            page_of({**ITEM, "currency": "credits"}),
            {"entry": {"price": {"unit_path": "curency", "units": {"credits": 0.01}}}},
            "warning: entry.price.unit_path = 'curency' is in no item: the first item has id",
        ),
        (
            page_of(
                {
                    **ITEM,
                    "schema": {"type": "object", "properties": {"action": {"enum": ["read", "write"]}}},
                    "by": {"get": 1, "put": 2},
                }
            ),
            {"entry": {"price": {"argument": "action", "by_value": "by"}}},
            "warning: Weather has prices for get, put, but its 'action' can only be read, write",
        ),
        (
            page_of(ITEM),
            {"entry": {"price": {"unit": 0.01}}, "reply": {"cost": "used"}},
            "warning: prices are not in dollars, but reply.cost_unit is not set: the cost is read as dollars",
        ),
        (
            page_of(ITEM),
            {"entry": {"name_separator": " -- "}},
            "warning: entry.name_separator = ' -- ' is in no description",
        ),
        (page_of(ITEM, errno=0), {}, '[reply] failure = [{ path = "errno", not_in = [0] }]'),
        (
            page_of(ITEM, status="success"),
            {},
            'the list has status = "success": if replies to calls report failures like this, set',
        ),
        (
            page_of(ITEM),
            {"list": {"paging": {"kind": "page", "parameter": "p"}}},
            "warning: page 2 of the list is the same as page 1: if there are more than these 1 items, check",
        ),
        (
            page_of({**ITEM, "by": {"a": 1}}),
            {"entry": {"price": {"argument": "action", "by_value": "by"}}},
            "warning: entry.price.argument = 'action' is not a parameter of Weather",
        ),
    ],
)
async def test_what_looks_wrong_is_a_warning(page, tables, words):
    """It may be intended, so the profile can still be used."""
    found = await checked(page, **tables)
    assert found.ok
    assert any(words in f"{each.level}: {each.text}" for each in found.findings), found.findings


@pytest.mark.anyio
async def test_a_link_that_is_not_followed_is_seen():
    """The only sign of more pages may be a Link header."""
    link = {"Link": '<https://93.184.216.34/list?page=2>; rel="next"'}
    (finding,) = await findings(page_of(ITEM), link)
    assert 'the list seems to continue (a Link header with rel="next")' in finding
    found = await checked(page_of(ITEM), link, list={"paging": {"kind": "link"}})
    assert found.next_page == "GET https://93.184.216.34/list?page=2"


@pytest.mark.anyio
async def test_a_profile_without_secrets_is_a_warning():
    """Without them, the API cannot know who pays."""
    found = await checked(page_of(ITEM), profile={**SMALL, "secrets": {}})
    assert [each.text for each in found.findings] == ["there is no [secrets]: the API cannot know who pays"]


@pytest.mark.anyio
async def test_a_second_page_that_cannot_be_had_is_an_error():
    """The list could not be read to its end."""

    def pages(request):
        if "cursor" in request.url.params:
            return httpx2.Response(400, json={"error": "what is a cursor?"})
        return httpx2.Response(200, json=page_of(ITEM, next="x"))

    (finding,) = await findings(pages, list={"paging": {"kind": "cursor", "cursor": "next"}})
    assert finding == "error: page 2 of the list: HTTP 400 (Bad Request): what is a cursor?"


@pytest.mark.anyio
async def test_a_balance_that_cannot_be_read_is_a_warning():
    """The warning names the wrong path."""
    found = await findings(page_of(ITEM), balance={"path": "/balance", "amount": "data.left"})
    assert found == [
        "warning: the balance could not be read: balance.amount = 'data.left' is not in the reply"
    ]


@pytest.mark.anyio
async def test_a_secret_in_a_link_is_not_shown():
    """It is masked if an API repeats our token in a link, to its own host or another."""
    paging = {"paging": {"kind": "link"}}
    link = {"Link": '<https://93.184.216.34/list?as=s3cret-of-ours>; rel="next"'}
    assert "s3cret" not in (await checked(page_of(ITEM), link, list=paging)).next_page
    link = {"Link": '<https://s3cret-of-ours.test/list>; rel="next"'}
    (finding,) = await findings(page_of(ITEM), link, list=paging)
    assert "s3cret" not in finding


def run(*words, **environ):
    return CliRunner().invoke(app, ["catalog", *words], env={"TOOLWIRE_CREDENTIALS": None, **environ})


@pytest.mark.slow
@pytest.mark.parametrize("api", [Acme, Lumen, Atlas], ids=lambda api: api.profile)
def test_the_examples_fit_and_nothing_is_bought(api):
    """Their secrets are masked in all output."""
    with api() as running:
        variable = f"{api.profile.upper()}_URL"
        result = run("check", str(PROFILES / f"{api.profile}.toml"), **{variable: running.url}, **api.environ)
        assert (result.exit_code, running.charges) == (0, [])
        as_json = run(
            "check", str(PROFILES / f"{api.profile}.toml"), "--json", **{variable: running.url}, **api.environ
        )
    assert "the profile fits; nothing was bought" in result.output
    assert "***" in result.output
    report = json.loads(as_json.stdout)
    assert (report["ok"], report["findings"], report["found"]["items"] > 0) == (True, [], True)
    for value in api.environ.values():
        assert value not in result.output + as_json.output


def test_the_balance_is_shown():
    """This needs a `[balance]` request in the profile."""
    with Lumen() as api:
        result = run("check", str(PROFILES / "lumen.toml"), LUMEN_URL=api.url, **api.environ)
    assert "balance\n  $2.50" in result.output
    assert "price: by quality: draft $0.0100, final $0.2000" in result.output


def test_the_built_in_profile_fits_the_sample_api():
    """The profile is found by name, and the request for the next page is shown."""
    token = "token-of-a-test"  # noqa: S105 - of a test
    with PaidApi(entries=120, token=token) as api:
        result = run("check", "agentpmt", AGENT_PAYMENT_TOKEN=token, AGENT_PAYMENT_BASE_URL=api.url)
        assert (result.exit_code, api.purchases) == (0, [])
    assert "the profile fits" in result.output
    assert "next page: GET http://" in result.output
    assert "/products/fetch?page=2&page_size=100" in result.output


def test_errors_end_with_1_and_wrong_use_with_2(tmp_path):
    """These are the exit codes of the other commands too."""
    assert run("check", str(tmp_path / "none.toml")).exit_code == 2
    assert run("check", "agentpmt", AGENT_PAYMENT_TOKEN="", AGENT_PAYMENT_API_KEY="").exit_code == 1
    environ = {"AGENT_PAYMENT_TOKEN": "bad-token"}
    with PaidApi(keys=("good", "keys")) as api:
        result = run("check", "agentpmt", AGENT_PAYMENT_BASE_URL=api.url, **environ)
    assert result.exit_code == 1
    assert "error: page 1 of the list: HTTP 401 (Unauthorized): the token is wrong" in result.output


def test_text_of_an_api_cannot_steer_the_terminal():
    """It cannot break out of its line either."""

    class Evil(Acme):
        def skill(self, number):
            return super().skill(number) | {"about": "\x1b[2J\nfindings\n  the profile fits \u202e"}

    with Evil() as api:
        result = run("check", str(PROFILES / "acme.toml"), ACME_URL=api.url, **api.environ)
    assert "\x1b" not in result.output
    assert result.output.count("\nfindings\n") == 1


def test_the_schema_is_printed():
    """It is meant for editors."""
    assert json.loads(run("schema").stdout) == json_schema()
