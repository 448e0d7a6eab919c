"""Three APIs of different shapes, each described only by a profile: listed, bought from, and the books compared."""

import base64
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from shared.market import QUICK
from shared.other_apis import PICTURE, PROFILES, Acme, Atlas, Lumen
from shared.till import ledger_in, states
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.server import Catalog
from toolwire.testing import connect

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture(params=[Acme, Lumen, Atlas], ids=lambda api: api.profile)
def any_api(request):
    with request.param() as api:
        yield api


@pytest.fixture
def acme():
    with Acme() as api:
        yield api


@pytest.fixture
def lumen():
    with Lumen() as api:
        yield api


@pytest.fixture
def atlas():
    with Atlas() as api:
        yield api


@asynccontextmanager
async def opened(api, folder, changes=None, **settings):
    """Connect a client to a loaded catalogue of the API's example profile."""
    profile = Profile.load(PROFILES / f"{api.profile}.toml").changed(**(changes or {}))
    environ = {
        **api.environ,
        profile.environment.base_url: api.url,
        "TOOLWIRE_LEDGER": str(folder / "ledger.db"),
    }
    catalog = Catalog(profile, environ=environ, **{"retry": QUICK, "refresh": None, "budget": 10, **settings})
    async with connect(catalog) as client:
        await catalog.loaded(10)
        yield catalog, client


def spent(folder):
    """Return the amount that our ledger has as charged."""
    with ledger_in(folder) as ledger:
        return sum(row.money for row in ledger.rows() if row.state == "settled")


@pytest.mark.parametrize(
    ("api", "count", "price"), [(Acme, 120, 50_000), (Lumen, 45, 200_000), (Atlas, 3, 2_000)]
)
async def test_all_pages_become_tools_with_prices(tmp_path, caplog, api, count, price):
    """Paging by offset, by cursor in a POST and by links works, without warnings about the profile."""
    with api() as running:
        async with opened(running, tmp_path) as (catalog, _):
            assert (catalog.status.state, catalog.status.registered) == ("live", count)
            assert {each.price for each in catalog.definitions.values()} == {price}
    assert not [
        record.message for record in caplog.records if record.name.startswith("toolwire.catalog.http")
    ]


async def test_secrets_go_where_the_profile_says_and_nowhere_else(any_api, tmp_path, caplog):
    """They are neither in the files of the catalogue nor in the log."""
    async with opened(any_api, tmp_path) as (catalog, client):
        tool = next(iter(catalog.definitions))
        await client.call(tool, {"city": "Ulm"} if any_api.profile == "acme" else {})
    assert len(any_api.requests) > 1
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for value in any_api.environ.values():
        assert value.encode() not in files
        assert value not in caplog.text


async def test_a_wrong_secret_is_not_repeated(lumen, tmp_path, caplog):
    """The API quotes the key of the query in its error, and our error masks it."""
    lumen.environ = {"LUMEN_KEY": "wrong/key+of-ours"}
    async with opened(lumen, tmp_path) as (catalog, _):
        assert catalog.status.state == "down"
    assert "HTTP 401" in catalog.status.error
    assert "wrong" not in catalog.status.error + caplog.text


async def test_acme_takes_the_id_in_the_path_and_the_arguments_as_the_body(acme, tmp_path):
    """Cents become dollars, and the API's books match the ledger."""
    async with opened(acme, tmp_path) as (_, client):
        result = await client.call("City", city="Ulm")
    assert json.loads(result.text.splitlines()[0]) == {"you_sent": {"city": "Ulm"}}
    assert "Cost: $0.0500" in result.text
    method, path, headers, _ = acme.requests[-1]
    assert (method, path) == ("POST", "/v2/skills/geo%2Fcity/run")
    assert len(headers["x-request-id"]) == 64
    assert (spent(tmp_path), acme.taken) == (50_000, 50_000)


async def test_a_failure_inside_of_http_200_is_one(acme, tmp_path):
    """After `{"ok": false}` with a cost of 0 the model gets the reason, and the money is released."""
    async with opened(acme, tmp_path) as (_, client):
        result = await client.call("City", city="Atlantis")
    assert (result.is_error, "no such city" in result.text) == (True, True)
    assert (states(tmp_path), acme.taken) == ([("released", 0)], 0)


async def test_an_argument_with_the_name_of_a_fixed_field_buys_nothing(acme, tmp_path):
    """The argument is refused, so that nothing else than intended can be bought."""
    async with opened(acme, tmp_path, {"call": {"body": {"city": "Rome"}}}) as (_, client):
        result = await client.call("City", city="Ulm")
    assert (result.is_error, acme.taken) == (True, 0)
    assert "the argument 'city' has the same name as a field that the profile sets itself" in result.text
    assert states(tmp_path) == []


async def test_lumen_counts_in_credits(lumen, tmp_path):
    """Cost and balance are read by path, in credits of half a cent; a numeric id stays a number."""
    async with opened(lumen, tmp_path) as (_, client):
        result = await client.call("draw_7", quality="draft", prompt="a cat")
    assert "Cost: $0.0100\nRemaining Balance: $2.49" in result.text
    assert result.structured["result"] == {"uid": 7, "quality": "draft", "prompt": "a cat"}
    assert (spent(tmp_path), lumen.taken) == (10_000, 10_000)


@pytest.mark.parametrize(
    ("left", "prompt", "state"),
    [(1, "a cat", ("released", 0)), (500, "forbidden", ("settled", 200_000))],
)
async def test_failures_by_code(lumen, tmp_path, left, prompt, state):
    """A failure that the profile declares free releases the money; any other counts as paid, at the price."""
    lumen.left = left
    async with opened(lumen, tmp_path) as (_, client):
        result = await client.call("draw_7", quality="final", prompt=prompt)
    words = "not enough credits" if left == 1 else "it was drawn, and may not be shown"
    assert (result.is_error, words in result.text) == (True, True)
    assert states(tmp_path) == [state]
    assert spent(tmp_path) == lumen.taken


async def test_atlas_takes_the_arguments_in_the_query(atlas, tmp_path):
    """Lists become repeated parameters, nested values JSON, and null is left out."""
    async with opened(atlas, tmp_path) as (_, client):
        arguments = {"lat": 48.4, "zoom": 7, "dark": True, "tags": ["a b", "&c"], "style": {"x": [1]}}
        result = await client.call("names", arguments)
    assert "names: " in result.text
    assert "Cost: $0.0020\nRemaining Balance: $1.00" in result.text
    method, target, headers, content = atlas.requests[-1]
    assert (method, content, "content-type" in headers) == ("GET", b"", False)
    assert parse_qs(urlsplit(target).query) == {
        "api-version": ["3"],
        "layer": ["names"],
        "lat": ["48.4"],
        "zoom": ["7"],
        "dark": ["true"],
        "tags": ["a b", "&c"],
        "style": ['{"x":[1]}'],
    }
    assert (spent(tmp_path), atlas.taken) == (2_000, 2_000)


async def test_pictures_and_files_are_blocks(atlas, tmp_path):
    """The reply is an image or a file, with the cost in a header."""
    async with opened(atlas, tmp_path) as (_, client):
        picture, file = await client.call("relief"), await client.call("model")
    block = picture.content[1]
    assert (block["type"], block["mimeType"], base64.b64decode(block["data"])) == (
        "image",
        "image/png",
        PICTURE,
    )
    assert "Cost: $0.0020" in picture.text
    inside = file.content[1]["resource"]
    assert (inside["mimeType"], base64.b64decode(inside["blob"])) == ("model/stl", b"\x00\x01\x02")
    assert (spent(tmp_path), atlas.taken) == (4_000, 4_000)


async def test_a_link_to_another_host_is_not_followed(atlas, tmp_path):
    """Otherwise our token would be sent there."""
    atlas.elsewhere = "https://evil.test"
    async with opened(atlas, tmp_path) as (catalog, _):
        assert catalog.status.state == "down"
    assert "the link to the next page leads to evil.test, which is not the API" in catalog.status.error


async def test_a_budget_holds_over_an_api_in_credits(lumen, tmp_path):
    """The highest price has to fit the budget before anything is sent."""
    async with opened(lumen, tmp_path, budget="0.15") as (_, client):
        result = await client.call("draw_7", prompt="a cat")
    assert (result.is_error, lumen.taken) == (True, 0)
