"""Numbers in purchases: integers over 64 bits stay exact, and infinity is refused."""

import dataclasses
import json

import anyio
import pytest

from shared.market import PaidApi
from shared.till import opened, states
from toolwire.errors import McpError

pytestmark = pytest.mark.anyio

UINT256 = 2**256 - 1
WEI = {"type": "integer", "minimum": 0, "maximum": UINT256}


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(20):
        yield


@pytest.fixture(params=["flat", "output", "nested"])
def shop(request):
    """An API that sells `send`, which returns its arguments, in each of the shapes of replies."""
    with PaidApi(shape=request.param) as running:
        like = running.products[running.id_of("weather")]
        product = dataclasses.replace(
            like,
            name="send",
            description="Send wei",
            parameters={
                "wei": {**WEI, "required": True},
                "more": {"description": "Anything.", "required": False},
            },
            run=lambda **given: {"given": given, "left": [UINT256, {"low": -UINT256}], "none": None},
        )
        running.products[product.id] = product
        yield running


async def test_an_integer_of_256_bits_is_bought_and_comes_back_exactly(shop, tmp_path):
    """It is exact in the order, in the text and in the structured content of the result."""
    async with opened(shop, tmp_path) as (_, client):
        (send,) = [each for each in await client.list_tools() if each.name == "send"]
        assert send.input_schema["properties"]["wei"] == WEI
        result = await client.call("send", wei=UINT256)
    assert not result.is_error, result.text
    assert [each.parameters for each in shop.purchases] == [{"wei": UINT256}]
    expected = {"given": {"wei": UINT256}, "left": [UINT256, {"low": -UINT256}], "none": None}
    assert json.loads(result.text.splitlines()[0]) == expected
    assert result.structured["result"] == expected
    assert type(result.structured["result"]["left"][0]) is int


async def test_two_that_a_float_cannot_tell_apart_are_two(shop, tmp_path):
    """Neither the result cache nor the request key confuses two integers that are equal as floats."""
    async with opened(shop, tmp_path, cache_results={"send": 60.0}) as (_, client):
        results = [await client.call("send", wei=wei) for wei in (UINT256, UINT256 - 1, UINT256)]
    assert [each.structured["result"]["given"]["wei"] for each in results] == [UINT256, UINT256 - 1, UINT256]
    assert [each.parameters["wei"] for each in shop.purchases] == [UINT256, UINT256 - 1]


async def test_a_limit_of_256_bits_holds(shop, tmp_path):
    """A value of the maximum plus one is refused before anything is spent."""
    async with opened(shop, tmp_path) as (_, client):
        with pytest.raises(McpError, match="wei: "):
            await client.call("send", wei=UINT256 + 1)
    assert shop.purchases == []
    assert states(tmp_path) == []


async def test_infinity_is_not_bought(shop, tmp_path):
    """It is not sent as null either, nor where the schema accepts anything; nothing is reserved."""
    async with opened(shop, tmp_path) as (catalog, client):
        for number in (float("inf"), float("nan"), [None, float("-inf")]):
            with pytest.raises(TypeError, match="no NaN and no infinity"):
                await client.call("send", {"wei": 1, "more": number})
        tool = catalog.tools["send"]
        for number in (float("inf"), {"deep": [float("nan")]}):
            with pytest.raises(Exception, match="finite number"):
                tool.parameters.validate({"wei": 1, "more": number})
    assert shop.purchases == []
    assert states(tmp_path) == []


@pytest.mark.parametrize("number", ["1e400", "NaN", "1" * 5_000], ids=["1e400", "NaN", "5,000 digits"])
async def test_a_reply_with_a_number_that_cannot_be_held_is_not_lost(shop, tmp_path, number):
    """The result was paid for, so the model gets the number as text, exactly as it was written."""
    plain = json.dumps
    shop.products[shop.id_of("send")].run = lambda **_: {"n": "@"}
    json.dumps = lambda *args, **more: plain(*args, **more).replace('"@"', number)
    try:
        async with opened(shop, tmp_path) as (_, client):
            result = await client.call("send", wei=1)
    finally:
        json.dumps = plain
    assert not result.is_error
    assert f'"{number}"' in result.text
    assert [state for state, _ in states(tmp_path)] == ["settled"]
