"""`toolwire serve`, used by the client of the `mcp` package over stdio and HTTP, in both eras of the protocol."""

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning

from mcp import Client, MCPError, StdioServerParameters

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.asyncio_only,
    pytest.mark.process,
]  # one event loop for the module

APP = Path(__file__).parents[2] / "shared" / "served_app.py"
LIMIT = 30
MODES = {"2025-11-25": "legacy", "2026-07-28": "auto"}
ANSWERS = {"Your name?": {"name": "Ada"}, "Your age?": {"age": 36}}
NOTICES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "updated",
}
EVENTS = {
    "ToolsListChanged": "tools",
    "PromptsListChanged": "prompts",
    "ResourcesListChanged": "resources",
    "ResourceUpdated": "updated",
}


@dataclass
class Peer:
    """A connected client, with callbacks that record what the server requests and sends."""

    transport: str
    version: str
    stderr: Path
    action: str = "accept"
    asked: list[str] = field(default_factory=list)
    logged: list[tuple[str, str | None, Any]] = field(default_factory=list)
    client: Any = None

    def __post_init__(self) -> None:
        self.told, self.notices = anyio.create_memory_object_stream[str](100)

    @property
    def modern(self) -> bool:
        return self.version == "2026-07-28"

    def settings(self) -> dict[str, Any]:
        return {
            "mode": MODES[self.version],
            "elicitation_callback": self.elicited,
            "sampling_callback": self.sampled,
            "list_roots_callback": self.rooted,
            "logging_callback": self.log,
            "message_handler": self.heard,
        }

    async def elicited(self, _context, params):
        self.asked.append(params.message)
        content = ANSWERS[params.message] if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)

    async def sampled(self, _context, params):
        return types.CreateMessageResult(
            role="assistant",
            model="m",
            content=types.TextContent(type="text", text=f"to {params.messages[0].content.text}"),
        )

    async def rooted(self, _context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])

    async def log(self, params):
        self.logged.append((params.level, params.logger, params.data))

    async def heard(self, message):
        kind = NOTICES.get(getattr(message, "method", ""))
        if kind is not None and not self.modern:
            self.told.send_nowait(kind)

    async def call(self, name: str, /, **arguments: Any) -> Any:
        return await self.client.call_tool(name, arguments)

    async def text(self, name: str, /, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert not result.is_error, result.content
        return result.content[0].text

    async def all_tools(self) -> list[list[str]]:
        """Return the names of all tools, page by page."""
        pages: list[list[str]] = []
        cursor = None
        while cursor is not None or not pages:
            page = await self.client.list_tools(cursor=cursor)
            pages.append([each.name for each in page.tools])
            cursor = page.next_cursor
        return pages

    @contextlib.asynccontextmanager
    async def listening(self, uri: str = "config://app") -> AsyncIterator[Callable[[], Awaitable[str]]]:
        """Subscribe to changes, in the way of this era; gives a function that waits for the next one.

        Notifications have a stream of their own, so those of earlier calls may still arrive: they are read
        first, up to one that is caused here.
        """
        async with self._subscribed(uri) as next_change:
            await self.text("touch", uri=uri)
            while await next_change() != "updated":
                pass
            yield next_change

    @contextlib.asynccontextmanager
    async def _subscribed(self, uri: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        if self.modern:
            async with self.client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=[uri],
            ) as subscription:
                events = aiter(subscription)

                async def heard() -> str:
                    return EVENTS[type(await anext(events)).__name__]

                yield heard
            return
        with pytest.warns(MCPDeprecationWarning):
            await self.client.subscribe_resource(uri)
        yield self.notices.receive
        with pytest.warns(MCPDeprecationWarning):
            await self.client.unsubscribe_resource(uri)


@contextlib.contextmanager
def over_http(log: Path):
    """Run `toolwire serve --http` and give its address."""
    command = [sys.executable, "-m", "toolwire", "serve", str(APP), "--http", "--port", "0"]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE) as process,
    ):
        try:
            lines = [line.decode().strip() for line in (process.stderr.readline(), process.stderr.readline())]
            assert lines[0] == "printed at import", lines + process.stderr.readlines()
            assert " at http://127.0.0.1:" in lines[1], lines
            yield lines[1].split(" at ")[1]
        finally:
            process.terminate()
            said = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 0, said
    assert said == b""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Serve the app over HTTP and give its address."""
    with over_http(tmp_path_factory.mktemp("http") / "stdout") as address:
        yield address


@pytest.fixture(
    scope="module",
    params=[(transport, version) for transport in ("stdio", "http") for version in MODES],
    ids="-".join,
)
async def peer(request, tmp_path_factory):
    """Connect a client with all callbacks."""
    transport, version = request.param
    log = tmp_path_factory.mktemp("stdio") / "stderr"
    connected = Peer(transport, version, log)
    with log.open("w") as stderr, contextlib.ExitStack() as stack:
        if transport == "stdio":
            command = StdioServerParameters(
                command=sys.executable, args=["-m", "toolwire", "serve", str(APP)]
            )
            target: Any = stdio_client(command, errlog=stderr)
        else:
            target = request.getfixturevalue("url")
        stack.enter_context(connected.told)
        stack.enter_context(connected.notices)
        async with Client(target, **connected.settings()) as connected.client:
            yield connected


@pytest.fixture(autouse=True)
def afresh(peer):
    """Reset what earlier tests have recorded."""
    peer.action = "accept"
    peer.asked.clear()
    peer.logged.clear()
    with contextlib.suppress(anyio.WouldBlock):
        while True:
            peer.notices.receive_nowait()


@pytest.fixture(autouse=True)
async def limit(afresh):
    """Fail a test that takes too long."""
    with anyio.fail_after(LIMIT):
        yield


async def test_hello(peer):
    """The client gets the server's name, version, instructions and capabilities."""
    assert peer.client.protocol_version == peer.version
    assert (peer.client.server_info.name, peer.client.server_info.version) == ("everyday", "1.2.3")
    assert peer.client.instructions == "For tests with real clients."
    able = peer.client.server_capabilities
    assert able.tools.list_changed
    assert able.prompts.list_changed
    assert able.resources.subscribe
    assert able.completions is not None
    assert (able.logging is None) == peer.modern


async def test_list_and_call(peer):
    """Tools are listed with their schemas, and called; structured content comes beside the text."""
    tools = {each.name: each for each in (await peer.client.list_tools()).tools}
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].input_schema["required"] == ["a", "b"]
    assert tools["add"].annotations.read_only_hint
    assert await peer.text("add", a=15, b=27) == "42.0"
    stock = await peer.call("stock", item="tea")
    assert stock.structured_content == json.loads(stock.content[0].text) == {"tea": 3}


async def test_errors(peer):
    """A failing tool and wrong arguments are results that a model can read; an unknown tool is an error."""
    failed = await peer.call("fail")
    assert (failed.is_error, failed.content[0].text) == (True, "out of tea")
    wrong = await peer.call("add", a="x", c=1)
    assert wrong.is_error
    assert all(f"{name}: " in wrong.content[0].text for name in "abc")
    with pytest.raises(MCPError, match="Unknown tool: 'ad'. Did you mean 'add'?") as unknown:
        await peer.call("ad", a=1, b=2)
    assert unknown.value.code == types.INVALID_PARAMS


async def test_2500_tools_come_in_pages(peer):
    """A client that follows the cursors has all of them, once."""
    before = len((await peer.all_tools())[0])
    await peer.text("crowd", size=2_500)
    pages = await peer.all_tools()
    names = [name for page in pages for name in page]
    assert len(pages) == 3
    assert len(names) == len(set(names)) == before + 2_500
    assert await peer.text("one_of_many_2499") == "I am new"
    with pytest.raises(MCPError) as wrong:
        await peer.client.list_tools(cursor="nonsense")
    assert wrong.value.code == types.INVALID_PARAMS
    await peer.text("crowd", size=0)
    assert len(await peer.all_tools()) == 1


@pytest.fixture
async def restored(peer):
    """Remove the tools, prompts and resources that a test has added, even if it fails."""
    yield
    await peer.call("shrink", name="grown")
    for change in ("prompt_change", "resource_change"):
        while await peer.text(change) != "removed":
            pass


@pytest.mark.usefixtures("restored")
async def test_changes_are_heard(peer):
    """A client that listens is notified of changed lists, and of changes of resources that it subscribed to."""
    async with peer.listening() as next_change:
        await peer.text("grow", name="grown")
        assert await next_change() == "tools"
        assert "grown" in (await peer.all_tools())[0]
        assert await peer.text("grown") == "I am new"
        await peer.text("shrink", name="grown")
        assert await next_change() == "tools"
        assert "grown" not in (await peer.all_tools())[0]
        for what, change in (("prompts", "prompt_change"), ("resources", "resource_change")):
            for _ in range(2):
                await peer.text(change)
                assert await next_change() == what
        await peer.text("touch", uri="users://ada/notes")
        await peer.text("touch", uri="config://app")
        assert await next_change() == "updated"
        await peer.text("grow", name="grown")
        assert await next_change() == "tools"


async def test_progress(peer):
    """Progress arrives in order, all of it before the answer."""
    seen = []

    async def on_progress(progress, total, message):
        seen.append((progress, total, message))

    result = await peer.client.call_tool("steps", {"upto": 20}, progress_callback=on_progress)
    assert result.content[0].text == "there"
    assert seen == [(done, 20, f"step {done}") for done in range(1, 21)]


async def test_logging(peer):
    """Log messages arrive from the requested level on, with their logger."""
    if peer.modern:
        meta = {types.LOG_LEVEL_META_KEY: "info"}
        await peer.text("chat")
        assert peer.logged == []
        await peer.client.call_tool("chat", {}, meta=meta)
    else:
        with pytest.warns(MCPDeprecationWarning):
            await peer.client.set_logging_level("info")
        await peer.text("chat")
    assert peer.logged == [("info", "talk", {"size": "middle"}), ("error", "everyday", "big")]


@pytest.mark.parametrize("tool", ["hang", "busy"])
async def test_cancel(peer, tool):
    """If the caller is cancelled, so is the tool, in a coroutine and in a thread."""
    mark = f"{tool}-{peer.transport}-{peer.version}"
    async with anyio.create_task_group() as caller:

        async def on_progress(*_: Any) -> None:
            caller.cancel_scope.cancel()

        await peer.client.call_tool(tool, {"mark": mark}, progress_callback=on_progress)
    assert caller.cancel_scope.cancelled_caught
    assert await peer.text("cancelled", mark=mark) == "true"


async def test_time_out(peer):
    """If the caller's timeout expires, the tool is cancelled."""
    mark = f"late-{peer.transport}-{peer.version}"
    with pytest.raises(MCPError) as late:
        await peer.client.call_tool("hang", {"mark": mark}, read_timeout_seconds=0.3)
    assert late.value.code == types.REQUEST_TIMEOUT
    assert await peer.text("cancelled", mark=mark) == "true"


@pytest.mark.parametrize("tool", ["greet", "greet_in_a_thread"])
async def test_a_question(peer, tool):
    """A tool gets the user's response to an elicitation: the answer, a refusal or a cancellation."""
    assert await peer.text(tool) == "Hello Ada"
    for peer.action in ("decline", "cancel"):
        assert await peer.text(tool) == f"You {peer.action}."
    assert peer.asked == ["Your name?"] * 3


async def test_two_questions(peer):
    """Each of two successive elicitations is sent once; in 2026-07-28 the tool runs again after each response."""
    before = int(await peer.text("count", of="ask_twice"))
    assert await peer.text("ask_twice") == "Ada is 36"
    assert peer.asked == ["Your name?", "Your age?"]
    assert int(await peer.text("count", of="ask_twice")) - before == (3 if peer.modern else 1)


async def test_questions_at_once(peer):
    """Concurrent elicitations are sent in one round."""
    before = int(await peer.text("count", of="ask_together"))
    assert await peer.text("ask_together") == "age=36 name='Ada'"
    assert sorted(peer.asked) == ["Your age?", "Your name?"]
    assert int(await peer.text("count", of="ask_together")) - before == (2 if peer.modern else 1)


async def test_a_tool_that_must_not_run_twice(peer):
    """It can elicit if the client has a session; without one it gets an error that says why."""
    before = int(await peer.text("count", of="pay"))
    if peer.modern:
        with pytest.raises(MCPError, match="must not run twice.* use a client that keeps a session"):
            await peer.call("pay")
        assert peer.asked == []
    else:
        assert await peer.text("pay") == "paid by Ada"
    assert int(await peer.text("count", of="pay")) - before == 1


async def test_model_and_roots(peer):
    """A tool can request sampling and roots from the client."""
    assert await peer.text("consult") == "to hm? ['file:///srv']"


async def test_resources(peer):
    """Resources and templates are listed and read, text and bytes; an unknown one is an error."""
    listed = {str(each.uri): each for each in (await peer.client.list_resources()).resources}
    assert set(listed) == {"config://app", "picture://dot"}
    assert listed["config://app"].mime_type == "application/json"
    (template,) = (await peer.client.list_resource_templates()).resource_templates
    assert template.uri_template == "users://{name}/notes"
    assert json.loads((await peer.client.read_resource("config://app")).contents[0].text) == {"theme": "dark"}
    assert (await peer.client.read_resource("users://ada/notes")).contents[0].text == "ada was here"
    assert (await peer.client.read_resource("picture://dot")).contents[0].blob == "iVBORw=="
    with pytest.raises(MCPError, match="nowhere://") as unknown:
        await peer.client.read_resource("nowhere://at/all")
    assert unknown.value.code == (types.INVALID_PARAMS if peer.modern else -32002)


async def test_prompts_and_completion(peer):
    """Prompts are listed and rendered; their arguments and those of templates are completed."""
    (prompt,) = (await peer.client.list_prompts()).prompts
    assert [(each.name, each.required) for each in prompt.arguments] == [("code", True), ("language", False)]
    made = await peer.client.get_prompt("review", {"code": "x = 1", "language": "Finnish"})
    assert made.messages[0].content.text == "Review in Finnish: x = 1"
    found = await peer.client.complete(
        types.PromptReference(type="ref/prompt", name="review"), {"name": "language", "value": "E"}
    )
    assert found.completion.values == ["English", "Esperanto"]
    found = await peer.client.complete(
        types.ResourceTemplateReference(type="ref/resource", uri="users://{name}/notes"),
        {"name": "name", "value": "a"},
    )
    assert found.completion.values == ["ada", "alan"]
    for name, arguments in (("reviews", {}), ("review", {})):
        with pytest.raises(MCPError) as wrong:
            await peer.client.get_prompt(name, arguments)
        assert wrong.value.code == types.INVALID_PARAMS


async def test_what_is_printed(peer):
    """What the app, a tool and its children print never mixes with the protocol; over stdio it goes to stderr."""
    assert await peer.text("noisy") == "quiet"
    if peer.transport == "stdio":
        said = peer.stderr.read_text().splitlines()
        assert {"printed at import", "printed in a tool", "written to descriptor 1", "said by a child"} <= {
            *said
        }


async def test_a_client_that_cannot_be_asked(peer, url):
    """Elicitation with a client without that capability fails with an error that names the capability."""
    async with Client(url, mode=MODES[peer.version]) as client:
        with pytest.raises(
            MCPError, match="needs the client capability elicitation, which this client does not declare"
        ) as told:
            await client.call_tool("greet", {})
    assert told.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert told.value.error.data == {"requiredCapabilities": {"elicitation": {}}}
