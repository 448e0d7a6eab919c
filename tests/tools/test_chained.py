"""A chain calls its tools one after the other, as its client would, and stops at the first error."""

import logging
import threading

import anyio
import pytest
from mcp.server import MCPServer

from toolwire import Context, ToolDefinitionError, ToolError, ToolServer
from toolwire._protocol.jsonrpc import ClientChannel
from toolwire.mcp.direct_client import connect
from toolwire.tools.chain import chain, step
from toolwire.wrap import combine, only, prefix, searchable, with_chains

pytestmark = pytest.mark.anyio
LIMIT = 30
RESEARCH = chain(
    "research",
    "Search, then fetch the first page.",
    [
        step("search", {"query": "${input/topic}"}),
        step("fetch", {"url": "${search/results/0/url}", "depth": "${input/depth}"}),
    ],
    title="Research",
    tags=["web"],
)


@pytest.fixture(autouse=True)
async def limit(anyio_backend):
    with anyio.fail_after(LIMIT):
        yield


class Web:
    """A server whose tools record their calls."""

    def __init__(self):
        self.calls = []
        self.begun, self.cancelled = anyio.Event(), anyio.Event()
        self.server = ToolServer("web")
        for function, settings in (
            (self.search, {"read_only": True}),
            (self.fetch, {"read_only": True}),
            (self.fail, {"policy": "always_ask"}),
            (self.wait, {}),
            (self.picture, {}),
            (self.remove, {"policy": "always_deny"}),
        ):
            self.server.tool(**settings)(function)

    async def search(self, query: str, context: Context) -> dict:
        """Search."""
        self.calls.append(("search", query, context.tool_use_id, context.request_key))
        await context.progress(1, 4, "looking")
        await context.progress(4, 4, "found")
        return {"results": [{"url": f"https://{query}/0"}]}

    def fetch(self, url: str, depth: int = 1) -> str:
        """Fetch, in a thread."""
        self.calls.append(("fetch", url, depth))
        return f"page of {url}"

    async def fail(self, text: str = "it broke") -> str:
        """Fail."""
        self.calls.append(("fail",))
        raise ToolError(text)

    async def wait(self) -> str:
        """Wait for ever."""
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()

    async def picture(self) -> dict:
        """Give a picture."""
        return {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}

    async def remove(self) -> str:
        """Remove."""
        return "removed"


async def run(server, name, /, **arguments):
    async with connect(server) as client:
        return await client.call(name, **arguments)


async def test_results_go_into_later_arguments():
    """The result is that of the last step, with the steps done in `_meta`; optional inputs may be left out."""
    web = Web()
    result = await run(with_chains(web.server, RESEARCH), "research", topic="tea")
    assert (result.text, result.is_error) == ("page of https://tea/0", False)
    assert result.meta["toolwire/chain"] == {"steps": 2, "done": ["search", "fetch"]}
    assert [call[:2] for call in web.calls] == [("search", "tea"), ("fetch", "https://tea/0")]
    result = await run(with_chains(web.server, RESEARCH), "research", topic="tea", depth=3)
    assert web.calls[-1] == ("fetch", "https://tea/0", 3)


async def test_a_chain_is_listed_as_a_tool():
    """Its input schema and hints are made from those of its steps; the other tools are still listed."""
    async with connect(with_chains(Web().server, RESEARCH)) as client:
        first, *others = await client.list_tools()
        assert (first.name, first.title, len(others)) == ("research", "Research", 6)
        assert first.input_schema["required"] == ["topic"]
        assert first.annotations["readOnlyHint"] is True
        assert (await client.call("fetch", url="x")).text == "page of x"


async def test_a_result_of_its_own():
    """`result` is filled from references, and becomes structured content if it is an object."""
    made = chain(
        "c", "", [step("search", {"query": "a"}), step("fetch", {"url": "u"})],
        result={"url": "${search/results/0/url}", "page": "${fetch.text}"},
    )  # fmt: skip
    result = await run(with_chains(Web().server, made), "c")
    assert result.structured == {"url": "https://a/0", "page": "page of u"}
    made = chain("c", "", [step("fetch", {"url": "u"})], result="It says: ${fetch.text}")
    assert (await run(with_chains(Web().server, made), "c")).text == "It says: page of u"


@pytest.mark.parametrize(
    ("steps", "text", "done"),
    [
        ([step("fail")], "it broke", []),
        ([step("fetch", {"url": "u"}), step("fail"), step("fetch", {"url": "v"})], "it broke", ["fetch"]),
        ([step("fail", {"text": "x" * 1_000_000})], "more characters", []),
        ([step("fetch", {"url": "${input/u}"})], "Validation failed: url", []),
        ([step("fetch", {"url": "u"}), step("fetch", {"url": "${fetch/a}"})], "text that is not JSON", ["fetch"]),
        ([step("search", {"query": "q"}), step("fetch", {"url": "${search/results/9}"})], "list of 1", ["search"]),
        ([step("picture"), step("fetch", {"url": "${picture.text}"})], "has no text", ["picture"]),
        ([step("wait", timeout=0.01)], "wait timed out after 0.01 s", []),
    ],
)  # fmt: skip
async def test_the_first_error_ends_it(steps, text, done):
    """The result says which step failed, why, and what was done before; no later step runs."""
    web = Web()
    schema = {"type": "object", "properties": {"u": {}}}
    result = await run(with_chains(web.server, chain("c", "", steps, input_schema=schema)), "c", u=5)
    assert result.is_error
    assert text in result.text
    assert len(result.text) < 25_000
    assert result.meta["toolwire/chain"]["done"] == done
    assert result.meta["toolwire/chain"]["failed"] == steps[len(done)].tool + (
        "_2" if text.startswith("text") else ""
    )
    assert ("Done before it: " if done else "Nothing was done before it.") in result.text
    assert ("fetch", "v", 1) not in web.calls


async def test_wrong_arguments_start_nothing():
    """Arguments are checked against the chain's own schema before any step runs."""
    web = Web()
    async with connect(with_chains(web.server, RESEARCH)) as client:
        reply = await client._connection.answer(
            {
                "jsonrpc": "2.0",
                "id": 9,
                "method": "tools/call",
                "params": {"name": "research", "arguments": {"x": 1}},
            }
        )
    assert "Validation failed" in reply["error"]["message"]
    assert web.calls == []


async def test_one_progress_over_all_steps():
    """The progress of a step is a fraction of the chain's, which only grows and ends at the number of steps."""
    seen = []
    async with connect(
        with_chains(Web().server, RESEARCH), on_notification=lambda notice: seen.append(notice.params)
    ) as client:
        await client.call("research", topic="a")
    amounts = [each["progress"] for each in seen]
    assert {each["total"] for each in seen} == {2}
    assert amounts == sorted(set(amounts))
    assert amounts[0] == 0
    assert amounts[-1] == 2
    assert any(0 < each < 1 for each in amounts)


class Silent(ClientChannel):
    """A channel that records the notifications to the client."""

    def __init__(self, scope=None):
        self.request_scope, self.sent = scope, []

    def notify(self, message):
        self.sent.append(message)


def call(name, id=1, meta=None, **arguments):
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


async def test_progress_goes_to_the_token_of_the_chain():
    """Without a token there is no progress; a step that is called directly uses its own token."""
    channel = Silent()
    connection = with_chains(Web().server, RESEARCH).connect(channel)
    await connection.answer(call("research", topic="a"))
    assert channel.sent == []
    await connection.answer(call("research", meta={"progressToken": "T"}, topic="a"))
    assert {each["params"]["progressToken"] for each in channel.sent} == {"T"}
    channel.sent.clear()
    await connection.answer(call("search", meta={"progressToken": "S"}, query="a"))
    assert [each["params"]["progressToken"] for each in channel.sent] == ["S", "S"]


async def test_each_step_has_ids_of_its_own():
    """The ids are the same when a request is repeated, and different for two steps of one call."""
    web = Web()
    twice = chain("twice", "", [step("search", {"query": "a"}), step("search", {"query": "a"})])
    connection = with_chains(web.server, twice).connect(Silent("pipe"))
    for _ in range(2):
        await connection.answer(call("twice", id=7, meta={"claudecode/toolUseId": "toolu_1"}))
    ids = [each[2:] for each in web.calls]
    assert ids[:2] == ids[2:]
    assert ids[0] == ("toolu_1/search", "pipe:'7/search'")
    assert len(set(ids)) == 2


async def test_a_cancelled_chain_cancels_its_step():
    """The running tool is cancelled, and no other starts."""
    web = Web()
    made = chain("c", "", [step("wait"), step("fetch", {"url": "u"})])
    connection = with_chains(web.server, made).connect(Silent())
    replies = []
    async with anyio.create_task_group() as tasks:

        async def ask():
            replies.append(await connection.answer(call("c", id=3)))

        tasks.start_soon(ask)
        await web.begun.wait()
        await connection.answer(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
        )
    assert web.cancelled.is_set()
    assert "cancelled" in replies[0]["error"]["message"]
    assert web.calls == []


class Loading(ToolServer):
    """A server that loads its tools when they are first requested, and takes until `loaded` is set."""

    def __init__(self, web):
        super().__init__("loading")
        self.web, self.waiting, self.loaded = web, anyio.Event(), anyio.Event()

    def before_list(self):
        return None if self.loaded.is_set() else self.load

    async def load(self):
        self.waiting.set()
        await self.loaded.wait()
        self.swap([], self.web.tools.values())


@pytest.mark.parametrize("how", ["cancelled", "closed"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_chain_that_is_cancelled_while_tools_are_loaded_does_not_run(own, how):
    """Nor does a tool of a combined server. The call is cancelled by its client or by closing the connection."""
    web = Web()
    loading = Loading(web.server)
    server = (
        with_chains(loading, chain("c", "", [step("fetch", {"url": "u"})]))
        if own
        else combine("all", loading)
    )
    connection = server.connect(Silent())
    replies = []
    async with anyio.create_task_group() as tasks:

        async def ask():
            message = call("c", id=3) if own else call("fetch", id=3, url="u")
            replies.append(await connection.answer(message))

        tasks.start_soon(ask)
        await loading.waiting.wait()
        if how == "closed":
            await connection.aclose()
        else:
            await connection.answer(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
            )
        loading.loaded.set()
    assert "cancelled" in replies[0]["error"]["message"]
    assert web.calls == []


async def test_the_whole_chain_has_a_time_limit():
    """The chain has a timeout besides those of its steps."""
    web = Web()
    result = await run(with_chains(web.server, chain("c", "", [step("wait")], timeout=0.01)), "c")
    assert result.is_error
    assert "timed out after 0.01 s" in result.text
    assert web.cancelled.is_set()


async def test_a_sync_tool_that_is_cancelled_knows_it():
    """A thread cannot be stopped, but it sees that `context.cancelled` is set."""
    begun, known = threading.Event(), threading.Event()
    server = ToolServer("s")

    @server.tool
    def slow(context: Context) -> str:
        begun.set()
        while not context.cancelled:
            known.wait(0.01)
        known.set()
        return "late"

    result = await run(with_chains(server, chain("c", "", [step("slow", timeout=0.05)])), "c")
    assert result.is_error
    assert await anyio.to_thread.run_sync(known.wait, 10)


async def test_a_chain_in_a_chain_keeps_its_own_time_limit():
    """If the step has another timeout, the shorter one applies."""
    inner = chain("inner", "", [step("wait")], timeout=0.05)
    outer = chain("outer", "", [step("inner", timeout=LIMIT * 10)])
    result = await run(with_chains(Web().server, outer, inner), "outer")
    assert "inner timed out after 0.05 s" in result.text


async def test_the_result_may_be_an_optional_argument():
    """The result is null if the argument was not given."""
    steps = [step("fetch", {"url": "x", "depth": "${input/depth}"})]
    server = with_chains(Web().server, chain("c", "", steps, result="${input/depth}"))
    assert (await run(server, "c", depth=7)).text == "7"
    result = await run(server, "c")
    assert not result.is_error
    assert result.text in ("", "null")


async def test_chains_in_chains():
    """Their steps run as if they were written in the outer chain; errors have the path of the step."""
    web = Web()
    outer = chain(
        "outer",
        "",
        [step("research", {"topic": "${input/t}"}, name="first"), step("fetch", {"url": "${first}"})],
    )
    server = with_chains(web.server, outer, RESEARCH)
    result = await run(server, "outer", t="tea")
    assert result.text == "page of page of https://tea/0"
    assert result.meta["toolwire/chain"]["done"] == ["first/search", "first/fetch", "fetch"]
    broken = chain("broken", "", [step("inner", {})])
    inner = chain("inner", "", [step("fail")])
    result = await run(with_chains(web.server, broken, inner), "broken")
    assert "at step 'inner/fail'" in result.text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: with_chains(Web().server), "no chains given"),
        (lambda: with_chains(Web().server, RESEARCH, RESEARCH), "two chains are called 'research'"),
        (lambda: with_chains(Web().server, chain("fetch", "", [step("picture")])), "a tool called 'fetch'"),
        (lambda: with_chains(Web().server, chain("c", "", [step("c")])), "calls itself"),
        (lambda: with_chains(Web().server, chain("c", "", [step("nothing")])), "there is no tool 'nothing'"),
        (lambda: with_chains(Web().server, chain("c", "", [step("fetch")])), "fetch requires 'url'"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_when_it_is_made(make, text):
    """If the tools are already known then."""
    with pytest.raises(ToolDefinitionError, match=text):
        make()


async def test_a_chain_whose_tool_goes_away_is_not_listed(caplog):
    """Calling it gives an error that says why, and runs nothing; it is back when the tool is."""
    web = Web()
    server = with_chains(web.server, RESEARCH)
    removed = web.server.remove("fetch")
    async with connect(server) as client:
        with caplog.at_level(logging.WARNING):
            assert "research" not in [each.name for each in await client.list_tools()]
        assert "there is no tool 'fetch'" in caplog.text
        result = await client.call("research", topic="a")
        assert result.is_error
        assert (
            "The chain cannot run: chain 'research', step 2 (fetch): there is no tool 'fetch'" in result.text
        )
        assert web.calls == []
        web.server.add(removed)
        assert (await client.call("research", topic="a")).text == "page of https://a/0"


def test_policies_of_steps_hold_for_the_chain():
    """A chain has the strictest policy of its steps, so that it cannot be used to evade one."""
    chains = [
        chain("asks", "", [step("fetch", {"url": "u"}), step("fail")]),
        chain("denies", "", [step("asks"), step("remove")]),
        RESEARCH,
    ]
    policies = {
        each["name"]: each["permission_policy"] for each in with_chains(Web().server, *chains).cli_policies()
    }
    assert policies == {
        "fail": "always_ask",
        "remove": "always_deny",
        "asks": "always_ask",
        "denies": "always_deny",
    }


async def test_it_works_with_all_other_wrappers():
    """It can be put around and inside renamed, filtered, combined and searchable servers."""
    renamed = chain("c", "", [step("x_search", {"query": "a"}), step("add", {"a": 1, "b": 2})])
    calc = ToolServer("calc")
    calc.tool(lambda a, b: a + b, name="add")
    calc.tool(lambda: 1, name="other")
    inner = combine("all", prefix(Web().server, "x_"), only(calc, "add"))
    assert (await run(with_chains(inner, renamed), "c")).text == "3"
    async with connect(searchable(with_chains(inner, renamed), always=["c"])) as client:
        assert [each.name for each in await client.list_tools()] == ["find_tools", "c"]
        assert (await client.call("c")).text == "3"
    async with connect(prefix(with_chains(inner, renamed), "y_")) as client:
        assert (await client.call("y_c")).text == "3"


async def test_tools_of_another_library():
    """Chains of them are checked when they are listed, and call the tools through their server."""
    server = MCPServer("foreign")

    @server.tool()
    async def find(title: str) -> dict[str, str]:
        """Find."""
        return {"where": f"shelf of {title}"}

    @server.tool()
    async def bring(place: str) -> str:
        """Bring."""
        return f"brought from {place}"

    made = chain(
        "get",
        "Get a book.",
        [step("find", {"title": "${input/title}"}), step("bring", {"place": "${find/where}"})],
    )
    bad = chain("bad", "", [step("nothing")])
    async with connect(with_chains(server, made, bad)) as client:
        assert [each.name for each in await client.list_tools()] == ["get", "find", "bring"]
        assert (await client.call("get", title="Emma")).text == "brought from shelf of Emma"
        assert (await client.call("find", title="Emma")).structured == {"where": "shelf of Emma"}
        assert "there is no tool 'nothing'" in (await client.call("bad")).text


async def test_a_step_that_asks_the_user_does_not_start_the_chain_again():
    """A stateless client would answer by repeating the call, so requests of a chain's steps are not repeatable."""
    asked = []

    class Asked(Silent):
        async def request(self, method, params, *, key=None, repeatable=True):
            asked.append(repeatable)
            return {"action": "decline"}

    server = ToolServer("s")

    @server.tool
    async def ask(context: Context) -> str:
        return (await context.elicit("Really?")).action

    connection = with_chains(server, chain("c", "", [step("ask")])).connect(Asked())
    await connection.answer(call("c"))
    await connection.answer(call("ask"))
    assert asked == [False, True]
