"""A client of a searchable server lists few tools, finds others, and calls each by its own name."""

import gc
import logging

import anyio
import pytest
from mcp.server import MCPServer

from shared.many_tools import SCHEMA, make_tools
from shared.waiting import eventually
from toolwire import ToolDefinitionError, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.mcp.direct_client import connect
from toolwire.tools.tool import Tool
from toolwire.wrap import combine, group, only, prefix, searchable

pytestmark = pytest.mark.anyio
LIMIT = 30


class Watched(ClientChannel):
    """A channel that records the notifications to its client. `follows` says that the client reacts to changes."""

    def __init__(self, session=None, scope=None):
        self.session, self.request_scope = session, scope
        self.sent = []
        self.follows = False

    def notify(self, message):
        self.sent.append(message["method"])

    def own_list_changed(self):
        super().own_list_changed()
        return self.follows


async def ask(connection, method, params=None, id=1):
    with anyio.fail_after(LIMIT):
        return await connection.answer({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})


async def names(connection):
    return [each["name"] for each in (await ask(connection, "tools/list"))["result"]["tools"]]


async def find(connection, query, **more):
    params = {"name": "find_tools", "arguments": {"query": query, **more}}
    return (await ask(connection, "tools/call", params))["result"]["structuredContent"]


async def test_what_is_found_appears_in_the_list_and_is_called_by_its_name():
    """The list has `find_tools` and what is always listed; a search adds to it, notifies, and returns schemas."""
    notices = []
    server = searchable(make_tools(1_500), always=["report_7"])
    async with connect(server, on_notification=lambda notice: notices.append(notice.method)) as client:
        assert [each.name for each in await client.list_tools()] == ["find_tools", "report_7", "forget"]
        about = (await client.list_tools())[0].description
        assert "1,502 tools" in about
        found = await client.call("find_tools", query="give money back", limit=1)
        [only_one] = found.structured["tools"]
        assert (only_one["name"], only_one["inputSchema"]) == ("refundPayment", SCHEMA)
        assert notices == ["notifications/tools/list_changed"]
        assert [each.name for each in await client.list_tools()][-1] == "refundPayment"
        assert (await client.call("refundPayment", number=5)).text == "refunded 5"
        await client.call("find_tools", query="give money back", limit=1)
        assert len(notices) == 1  # the list did not change


async def test_a_tool_that_is_not_listed_can_be_called():
    """A client that ignores the notification, or has no list of its own, calls what `find_tools` returned."""
    async with connect(searchable(make_tools())) as client:
        assert (await client.call("report_99", number=1)).text == "got 1"


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "(["}, {"query": "z" * 2_000_000}])
async def test_a_find_without_a_match_reveals_nothing(arguments):
    """The result says that nothing was found, and the list does not change."""
    channel = Watched()
    connection = searchable(make_tools()).connect(channel)
    found = await find(connection, **arguments)
    assert found["tools"] == []
    assert "other words" in found["hint"]
    assert channel.sent == []
    assert await names(connection) == ["find_tools", "forget"]


async def test_wrong_arguments_of_the_search_are_refused():
    """They are validated like those of any tool; a limit that is too high is lowered to the maximum."""
    connection = searchable(make_tools()).connect(Watched())
    for wrong in ({}, {"query": 5}, {"query": "a", "limit": 0}, {"query": "a", "more": 1}):
        reply = await ask(connection, "tools/call", {"name": "find_tools", "arguments": wrong})
        assert "Validation failed" in reply["error"]["message"], wrong
    assert len((await find(connection, "report", limit=10**9))["tools"]) == 20


async def test_the_oldest_finds_give_way():
    """The list has a maximum, beyond which the oldest finds are dropped; finding a tool again makes it new."""
    connection = searchable(make_tools(), most=3).connect(Watched())
    for number in (1, 2, 3, 1, 4):
        await find(connection, f"report_{number}", limit=1)
    assert await names(connection) == ["find_tools", "forget", "report_3", "report_1", "report_4"]


async def test_of_one_search_the_best_are_kept():
    """If a search finds more tools than the list may have, the best are listed."""
    server = ToolServer(
        "shop", tools=[Tool(each, "", SCHEMA, print) for each in ("tea", "tea_cup", "tea_cup_set")]
    )
    connection = searchable(server, most=1).connect(Watched())
    found = await find(connection, "tea")
    assert [each["name"] for each in found["tools"]] == ["tea", "tea_cup", "tea_cup_set"]
    assert await names(connection) == ["find_tools", "tea"]


async def test_a_limit_may_be_written_with_a_point():
    """2.0 is an integer in JSON Schema."""
    connection = searchable(make_tools()).connect(Watched())
    assert len((await find(connection, "report", limit=2.0))["tools"]) == 2


async def test_each_client_has_a_list_of_its_own():
    """A list belongs to a session with all its connections; over stdio to the process; else to a connection."""
    server = searchable(make_tools())

    class Session:
        pass

    ada, bob = Session(), Session()
    channels = [Watched(ada), Watched(bob), Watched(scope="pipe"), Watched(scope="other"), Watched()]
    for channel in (channels[0], channels[2]):
        await find(first := server.connect(channel), "refund", limit=1)
        await first.aclose()
    seen = []
    for channel in channels:
        seen.append("refundPayment" in await names(other := server.connect(channel)))
        await other.aclose()
    assert seen == [True, False, True, False, False]
    assert [bool(each.sent) for each in channels] == seen
    kept = server._of_sessions
    assert len(kept) == 1
    del ada, channels, channel, first, other
    gc.collect()
    assert len(kept) == 0


async def test_a_client_that_follows_changes_has_its_list_before_the_result():
    """The search waits until it has listed the tools again; for a client that does not list again, only once."""
    server = searchable(make_tools())
    channel = Watched()
    connection = server.connect(channel)
    order = []

    async def search():
        await find(connection, "refund", limit=1)
        order.append("result")

    async def follow():
        await eventually(lambda: channel.sent)
        assert "refundPayment" in await names(connection)
        order.append("list")

    channel.follows = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search)
        tasks.start_soon(follow)
    assert order == ["list", "result"]
    lazy = Watched()
    lazy.follows = True
    connection = server.connect(lazy)
    for number in range(3):
        await find(connection, f"report_{number}", limit=1)
    assert connection._revealed.lists_again is False
    assert len(lazy.sent) == 3


async def test_searches_at_the_same_time_wait_for_one_list():
    """One list request may follow several notifications; it ends the wait of all searches."""
    channel = Watched()
    channel.follows = True
    connection = searchable(make_tools()).connect(channel)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(find, connection, "refund")
        tasks.start_soon(find, connection, "report_7")
        await eventually(lambda: len(channel.sent) == 2)
        assert {"refundPayment", "report_7"} <= set(await names(connection))
    assert connection._revealed.lists_again is True
    assert connection._revealed.listed is None


async def test_clients_without_a_name_do_not_add_up():
    """Stateless clients have a new scope for each request, so only the latest scopes are kept."""
    server = searchable(make_tools())
    for number in range(200):
        await find(server.connect(Watched(scope=str(number))), "refund", limit=1)
    assert len(server._of_scopes) <= 16


async def test_the_list_follows_the_server():
    """A found tool that is removed is no longer listed, and one that changes is listed with its new definition."""
    inner = make_tools()
    connection = searchable(inner).connect(Watched())
    await find(connection, "refund", limit=1)
    inner.remove("refundPayment")
    assert await names(connection) == ["find_tools", "forget"]
    assert (await find(connection, "refund", limit=1))["tools"] == []
    inner.add(Tool("refundPayment", "Other words: reimburse.", {}, lambda _: "new"))
    [found] = (await find(connection, "reimburse"))["tools"]
    assert found["description"] == "Other words: reimburse."
    assert "refundPayment" in await names(connection)
    reply = await ask(connection, "tools/call", {"name": "refundPaymnt", "arguments": {}})
    assert "Did you mean 'refundPayment'?" in reply["error"]["message"]


async def test_huge_definitions_do_not_fill_a_result():
    """Descriptions are shortened, and instead of a schema that is too large come the names of its arguments."""
    wide = {"type": "object", "properties": {f"field_{each}": {"type": "string"} for each in range(5_000)}}
    server = ToolServer("s", tools=[Tool("needle", "\x1b[31m\x00" + "x" * 1_000_000, wide, lambda _: 1)])
    async with connect(searchable(server)) as client:
        found = await client.call("find_tools", query="needle")
        [tool] = found.structured["tools"]
        assert len(tool["description"]) == 1_003
        assert len(tool["arguments"]["names"]) == 100
        assert "inputSchema" not in tool
        assert len(found.text) < 5_000


async def test_the_list_is_made_once_for_each_client():
    """The encoded list is reused until it changes, and a page has at most a thousand tools."""
    server = searchable(make_tools(2_500), always=["report_*"])
    connection = server.connect(Watched())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    first, again = (connection.begin(message, encoded=True)["result"] for _ in range(2))
    assert first is again
    await find(connection, "refund", limit=1)
    assert connection.begin(message, encoded=True)["result"] is not first
    assert server.page(None) is server.page(None)
    assert len((await ask(connection, "tools/list", {"cursor": "2"}))["result"]["tools"]) == 503
    assert "Unknown cursor" in (await ask(connection, "tools/list", {"cursor": "9"}))["error"]["message"]


async def test_a_server_of_another_library_can_be_searched():
    """Its tools are listed when they are needed, since only it knows them."""
    server = MCPServer("foreign")
    for number in range(30):
        server.add_tool(lambda: "dull", name=f"report_{number}", description="A report.")
    server.add_tool(lambda: "sunny", name="get_forecast", description="The weather of tomorrow.")
    async with connect(searchable(server, always=["report_3"])) as client:
        assert [each.name for each in await client.list_tools()] == ["find_tools", "report_3"]
        found = await client.call("find_tools", query="weather")
        assert [each["name"] for each in found.structured["tools"]] == ["get_forecast"]
        assert [each.name for each in await client.list_tools()] == ["find_tools", "report_3", "get_forecast"]
        assert (await client.call("get_forecast")).text == "sunny"


async def test_wrappers_go_inside():
    """Other wrappers must be inside, so that the search has the names that are called; outside they are refused."""
    inner = combine("all", prefix(make_tools(), "a_"), only(make_tools(), "forget"))
    async with connect(searchable(inner)) as client:
        [found] = (await client.call("find_tools", query="refund", limit=1)).structured["tools"]
        assert (await client.call(found["name"], number=1)).text == "refunded 1"
    for wrap in (lambda each: prefix(each, "x_"), lambda each: combine("all", each), searchable):
        with pytest.raises(ToolDefinitionError, match="searchable"):
            wrap(searchable(make_tools()))


async def test_a_tool_of_the_same_name(caplog):
    """It is refused if it is known at the start, and hidden with a warning if it is added later."""
    inner = make_tools(1)
    connection = searchable(inner).connect(Watched())
    inner.add(Tool("find_tools", "Mine.", {}, lambda _: "mine"))
    with caplog.at_level(logging.WARNING):
        assert (await names(connection)).count("find_tools") == 1
    assert "hides a tool of the same name" in caplog.text
    with pytest.raises(ToolDefinitionError, match="has a tool 'find_tools'"):
        searchable(inner)
    other = searchable(inner, name="search_tools").connect(Watched())
    reply = await ask(other, "tools/call", {"name": "find_tools", "arguments": {}})
    assert reply["result"]["content"][0]["text"] == "mine"


@pytest.mark.parametrize("settings", [{"most": 0}, {"most": True}, {"always": "report_*"}, {"name": ""}])
def test_wrong_settings_are_refused(settings):
    """The error says which setting of `searchable` is wrong."""
    with pytest.raises(ToolDefinitionError, match="searchable: "):
        searchable(make_tools(1), **settings)


async def test_groups_show_the_tools_of_some_tags():
    """Tags are matched by patterns, ignoring case; a hidden tool cannot be called either."""
    server = make_tools(1_500)  # those of the group are on the second page
    async with connect(group(server, "MON*")) as client:
        assert [each.name for each in await client.list_tools()] == ["refundPayment"]
    connection = group(server, "admin").connect(Watched())
    assert await names(connection) == ["forget"]
    assert "error" in await ask(
        connection, "tools/call", {"name": "refundPayment", "arguments": {"number": 1}}
    )
    assert await names(group(server, "none").connect(Watched())) == []
    with pytest.raises(ToolDefinitionError, match="only"):
        group(MCPServer("foreign"), "money")
    with pytest.raises(ToolDefinitionError, match="tags must be a list of strings"):
        Tool("a", "", {}, lambda _: 1, tags="money")


async def test_malformed_messages_are_left_to_the_server():
    """They get the same error codes as without a search."""
    plain = make_tools(1)
    both = [plain.connect(Watched()), searchable(plain).connect(Watched())]
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []},
        {"jsonrpc": "1.0", "id": 1, "method": "tools/call", "params": {"name": "find_tools"}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}},
        {"jsonrpc": "2.0", "id": 1, "method": "nothing"},
        {"jsonrpc": "2.0", "method": "tools/list"},
    ):
        first, second = [await each.answer(message) for each in both]
        assert (first or {}).get("error", {}).get("code") == (second or {}).get("error", {}).get("code"), (
            message
        )
