"""Options that choose the tools of a target: groups, tool search, and chains."""

from pathlib import Path

import pytest

from shared.market import PaidApi, profile_for
from shared.till import environ
from toolwire.catalog.profile.model import Profile
from toolwire.cli.shared.target import Choice, reload, resolve
from toolwire.errors import ClaudeSDKError, UsageError
from toolwire.testing import connect

pytestmark = pytest.mark.anyio
APP = f"{Path(__file__).parents[2] / 'shared' / 'many_tools.py'}:tools"
CHAINS = """
[refund_twice]
description = "Give the money back twice."
steps = [
  { tool = "refundPayment", args = { number = "${input/number}" } },
  { tool = "refundPayment", args = { number = "${input/number}" } },
]
"""


@pytest.fixture
def chains(tmp_path):
    path = tmp_path / "chains.toml"
    path.write_text(CHAINS)
    return path


async def names(server):
    async with connect(server) as client:
        return [each.name for each in await client.list_tools()]


async def test_groups_chains_and_a_search_together(chains):
    """The group is applied first, then the chains, then the search; a reload gives the same tools."""
    choice = Choice(
        groups=("money", "admin"), chains=(chains,), find_tools=True, always_list=("refund_twice",)
    )
    target = resolve(APP, choice=choice)
    assert await names(target.server) == ["find_tools", "refund_twice", "forget"]
    assert await names(reload(target).server) == ["find_tools", "refund_twice", "forget"]
    async with connect(target.server) as client:
        assert (await client.call("refund_twice", number=5)).text == "refunded 5"
        found = await client.call("find_tools", query="report")
        assert found.structured["tools"] == []  # `report` is a tool of another group


async def test_a_catalogue_can_be_searched_and_chained(chains, tmp_path, monkeypatch):
    """The catalogue itself is kept next to the wrapper, because the command waits until it is loaded."""
    chains.write_text(CHAINS.replace("refundPayment", "weather").replace("number =", "city ="))
    with PaidApi(entries=40) as shop:
        for name, value in environ(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(Profile, "find", lambda _: profile_for(shop.url))
        choice = Choice(find_tools=True, chains=(chains,), always_list=("refund_twice",))
        target = resolve("catalog:shop", choice=choice)
        async with connect(target.server) as client:
            await target.source.loaded(10)
            assert [each.name for each in await client.list_tools()] == ["find_tools", "refund_twice"]
            found = await client.call("find_tools", query="price of a share", limit=1)
            assert [each["name"] for each in found.structured["tools"]] == ["stock"]
        choice = Choice(groups=("data",))
        target = resolve("catalog:shop", choice=choice)
        async with connect(target.server) as client:
            await target.source.loaded(10)
            assert [each.name for each in await client.list_tools()] == ["stock", "weather"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"always_list": ("a",)}, "--always-list only applies with --find-tools"),
        ({"chains": (Path("nowhere.toml"),)}, "nowhere.toml: the chains cannot be read"),
        ({"groups": ("admin",), "chains": ("given",)}, "there is no tool 'refundPayment'"),
    ],
)
def test_invalid_choices_are_errors(settings, text, chains):
    """The error comes before anything is served."""
    if settings.get("chains") == ("given",):
        settings = {**settings, "chains": (chains,)}
    with pytest.raises((UsageError, ClaudeSDKError), match=text):
        resolve(APP, choice=Choice(**settings))
