"""Mistakes of tools that must harm no one else: unencodable text, odd numbers, exits, threads that wait."""

import json
import logging
import math
import signal
import threading

import anyio
import pytest

from shared.doubles import RecordingChannel, connected
from toolwire import Context, McpError, Resource, ToolError, ToolServer
from toolwire.tools.context import ToolCancelled
from toolwire.tools.results.to_json import sendable

pytestmark = pytest.mark.anyio

HALF = "cut \ud800"  # a lone surrogate, as in names of files that are not UTF-8
SHOWN = "cut \\ud800"


def writable(message):
    """Return True if a message can be written as strict JSON in UTF-8; raise an error otherwise."""
    json.dumps(message, allow_nan=False, ensure_ascii=False).encode()
    return True


# Text that cannot be encoded.


@pytest.fixture
def unlogged():
    """Turn logging off, since pytest's reports could not encode this text either."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def odd_server():
    server = ToolServer("odd", instructions=HALF, debug=True)

    @server.tool(name="raises")
    def _raises(kind: str) -> str:
        errors = {
            "plain": ValueError(HALF),
            "tool": ToolError(HALF),
            "rpc": McpError(-32000, HALF, {"at": HALF}),
        }
        raise errors[kind]

    @server.tool(name="returns", description=HALF)
    def _returns(kind: str) -> object:
        block = {"type": "text", "text": HALF, "_meta": {HALF: HALF}}
        return {"text": HALF, "list": [HALF], "dict": {HALF: HALF}, "block": block}[kind]

    @server.resource("fails://{kind}", complete={"kind": [HALF]})
    def _fails(kind: str) -> str:
        raise {"plain": ValueError(HALF), "tool": ToolError(HALF), "rpc": McpError(-32000, HALF, [HALF])}[
            kind
        ]

    @server.resource("gives://{kind}")
    def _gives(kind: str) -> object:
        return {"text": HALF, "data": {HALF: HALF}, "own": Resource("gives://own", text=HALF)}[kind]

    @server.prompt(name="asks")
    def _asks(what: str) -> str:
        return f"{what} {HALF}"

    return server


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {}),
        ("tools/list", {}),
        ("tools/list", {"cursor": HALF}),
        (HALF, {}),
        *(
            ("tools/call", {"name": "raises", "arguments": {"kind": kind}})
            for kind in ("plain", "tool", "rpc")
        ),
        *(
            ("tools/call", {"name": "returns", "arguments": {"kind": kind}})
            for kind in ("text", "list", "dict", "block")
        ),
        ("tools/call", {"name": HALF}),
        ("tools/call", {"name": "raises", "arguments": {HALF: 1}}),
        *(("resources/read", {"uri": f"fails://{kind}"}) for kind in ("plain", "tool", "rpc")),
        *(("resources/read", {"uri": f"gives://{kind}"}) for kind in ("text", "data", "own")),
        ("resources/read", {"uri": HALF}),
        ("prompts/get", {"name": "asks", "arguments": {"what": HALF}}),
        ("prompts/get", {"name": HALF}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "fails://{kind}"},
                "argument": {"name": "kind", "value": ""},
            },
        ),
    ],
)
@pytest.mark.usefixtures("unlogged")
async def test_every_answer_can_be_written(method, params):
    """Whatever text a function or a client gives, the response is JSON in UTF-8."""
    async with connected(odd_server()) as client:
        assert writable(await client.request(method, params))


@pytest.mark.usefixtures("unlogged")
async def test_errors_show_what_could_not_be_written():
    """A lone surrogate is shown as its escape sequence, in the message and in the data."""
    async with connected(odd_server()) as client:
        error = (await client.call("raises", kind="rpc"))["error"]
        assert (error["code"], error["message"], error["data"]) == (-32000, SHOWN, {"at": SHOWN})


async def test_an_exception_that_cannot_be_shown_is_named():
    """An exception whose own `__str__` fails is an error result like any other."""

    class BrokenError(Exception):
        def __str__(self):
            raise RuntimeError

    server = ToolServer("s")

    @server.tool
    def fail() -> None:
        raise BrokenError

    async with connected(server) as client:
        result = (await client.call("fail"))["result"]
        assert result["isError"]
        assert result["content"][0]["text"] == "BrokenError"


@pytest.mark.parametrize("threaded", [True, False])
async def test_notices_and_questions_can_be_written(threaded):
    """Log data, progress and elicitations are made encodable, in both kinds of tool."""
    server = ToolServer("s")
    channel = RecordingChannel({"elicitation/create": {"action": "decline"}}, {"elicitation": {}})
    odd = [HALF, {HALF: [HALF]}, math.nan, b"\xff", object, {1, 2}, 1 << 70]

    def tell(context):
        for each in odd:
            context.log(each, logger=HALF)
        context.progress(1, message=HALF)

    @server.tool(name="tell")
    def in_a_thread(context: Context) -> None:
        tell(context)
        context.wait(context.elicit(HALF))

    @server.tool(name="tell_on_loop")
    async def on_the_loop(context: Context) -> None:
        tell(context)
        await context.elicit(HALF)

    async with connected(server, channel) as client:
        server.log(HALF)
        answer = await client.call("tell" if threaded else "tell_on_loop", _meta={"progressToken": 1})
        assert "isError" not in answer["result"]
        await anyio.wait_all_tasks_blocked()
    logged = [each["params"]["data"] for each in channel.told if each["method"] == "notifications/message"]
    assert len(logged) == len(odd) + 1
    assert SHOWN in logged
    assert all(map(writable, channel.told))
    assert channel.asked[0][1]["message"] == SHOWN


async def test_a_value_that_cannot_even_be_shown():
    """An object whose `repr` fails is logged as the name of its class."""

    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert sendable(Broken()).endswith("Broken>")


async def test_a_server_logs_only_at_levels_that_there_are():
    """`ToolServer.log` raises the error for an unknown level to its caller, not on the event loop."""
    server = ToolServer("s")
    async with connected(server):
        with pytest.raises(ValueError, match="unknown log level"):
            server.log("x", "loud")


# Numbers.


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ((math.nan,), "ValueError"),
        ((math.inf,), "ValueError"),
        ((10**400,), "ValueError"),
        ((1, -math.inf), "ValueError"),
        (("1",), "TypeError"),
        ((True,), "TypeError"),
        ((None,), "TypeError"),
        ((1, "2"), "TypeError"),
        ((1, 2, 3), "TypeError"),
    ],
)
async def test_progress_takes_numbers_only(given, kind, threaded):
    """Anything but a finite number is an error of the tool, and no notification is sent."""
    server, channel = ToolServer("s"), RecordingChannel()

    @server.tool(inline=not threaded)
    def work(context: Context) -> None:
        context.progress(*given)

    async with connected(server, channel) as client:
        result = (await client.call("work", _meta={"progressToken": 1}))["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith(kind)
        assert channel.told == []


async def test_progress_of_large_numbers():
    """An integer that is too large for other implementations is sent as a float."""
    server, channel = ToolServer("s"), RecordingChannel()

    @server.tool
    async def work(context: Context) -> None:
        context.progress(1 << 70, 1.5)

    async with connected(server, channel) as client:
        await client.call("work", _meta={"progressToken": 1})
    assert channel.told[0]["params"]["progress"] == float(1 << 70)


@pytest.mark.parametrize("cursor", ["9" * 5000, "1" * 10, "1", "-1", "x", "", 1, ["x" * 500]])
async def test_a_cursor_that_was_never_given(cursor):
    """It is an invalid parameter, however long it is, and the error is short."""
    async with connected(ToolServer("s")) as client:
        error = (await client.request("tools/list", {"cursor": cursor}))["error"]
        assert error["code"] == -32602
        assert len(error["message"]) < 200


# Exits.


@pytest.fixture
def caught():
    """Install a handler for SIGINT, as while a server runs."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


def quitting_server():
    server = ToolServer("quits")
    kinds = {"interrupt": KeyboardInterrupt, "exit": SystemExit}

    async def fails(kind: str) -> None:
        raise kinds[kind]

    @server.tool(name="sync")
    def _sync(kind: str) -> None:
        raise kinds[kind]

    @server.tool(name="inline", inline=True)
    def _inline(kind: str) -> None:
        raise kinds[kind]

    @server.tool(name="async")
    async def _async(kind: str) -> None:
        raise kinds[kind]

    @server.tool(name="grouped")
    async def _grouped(kind: str) -> None:
        raise BaseExceptionGroup("two", [kinds[kind](), ValueError()])

    @server.tool(name="waits")
    def _waits(kind: str, context: Context) -> None:
        context.wait(fails(kind))

    @server.resource("quits://{kind}")
    async def _resource(kind: str) -> None:
        raise kinds[kind]

    @server.prompt(name="quits")
    def _prompt(kind: str) -> None:
        raise kinds[kind]

    @server.tool(name="add")
    def _add(a: int) -> int:
        return a + 1

    return server


@pytest.mark.usefixtures("caught")
@pytest.mark.parametrize("kind", ["interrupt", "exit"])
@pytest.mark.parametrize("name", ["sync", "inline", "async", "grouped", "waits"])
async def test_a_tool_that_raises_an_exit_fails_alone(name, kind):
    """`KeyboardInterrupt` and `SystemExit` that a tool raises become error results."""
    async with connected(quitting_server()) as client:
        assert (await client.call(name, kind=kind))["result"]["isError"]
        assert (await client.call("add", a=1))["result"]["content"][0]["text"] == "2"


@pytest.mark.usefixtures("caught")
@pytest.mark.parametrize("kind", ["interrupt", "exit"])
async def test_a_resource_or_prompt_that_raises_an_exit_fails_alone(kind):
    """`KeyboardInterrupt` and `SystemExit` that they raise become JSON-RPC errors."""
    async with connected(quitting_server()) as client:
        read = await client.request("resources/read", {"uri": f"quits://{kind}"})
        got = await client.request("prompts/get", {"name": "quits", "arguments": {"kind": kind}})
        assert (read["error"]["code"], got["error"]["code"]) == (-32603, -32603)


@pytest.fixture
def heeds_ctrl_c():
    """Install Python's own handler, which is missing if these tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
async def test_an_interrupt_of_a_thread_is_never_ctrl_c():
    """A `KeyboardInterrupt` that a sync tool raises is an error result even with Python's own signal handler."""
    async with connected(quitting_server()) as client:
        assert (await client.call("sync", kind="interrupt"))["result"]["isError"]


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("inline", [True, False])
def test_ctrl_c_is_not_swallowed(backend, inline):
    """A real SIGINT while a tool runs ends the program."""
    server = ToolServer("s")

    def press() -> None:
        signal.raise_signal(signal.SIGINT)

    async def press_on_loop() -> None:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep_forever()

    server.tool(name="press", inline=True)(press) if inline else server.tool(name="press")(press_on_loop)

    async def main():
        async with connected(server) as client:
            await client.call("press")
            await anyio.sleep_forever()

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        anyio.run(main, backend=backend)
    error = caught.value
    assert isinstance(error, KeyboardInterrupt) or error.subgroup(KeyboardInterrupt) is not None


# Threads that wait.


class Mute(RecordingChannel):
    """A channel that never answers requests."""

    def __init__(self):
        super().__init__(capabilities={"elicitation": {}})
        self.heard = anyio.Event()
        self.ended = 0

    async def request(self, method, params, **_settings):
        self.heard.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended += 1


@pytest.mark.parametrize("how", ["cancelled", "timed out", "closed"])
async def test_a_thread_that_waits_is_let_go_when_its_call_ends(how):
    """`context.wait()` raises `ToolCancelled`, the awaitable is cancelled, and the thread is free again."""
    server = ToolServer("s", workers=1)
    raised, gone = [], threading.Event()

    @server.tool(timeout=0.5 if how == "timed out" else None)
    def ask(context: Context) -> None:
        try:
            context.wait(context.elicit("q"))
        except ToolCancelled:
            try:
                context.wait(context.elicit("again"))
            except ToolCancelled as error:
                raised.append(str(error))
        finally:
            gone.set()

    @server.tool
    def add(a: int) -> int:
        return a + 1

    channel = Mute()
    async with connected(server, channel) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, "ask", None, "mine")
        await channel.heard.wait()
        if how == "cancelled":
            await client.notify("notifications/cancelled", requestId="mine")
        if how == "closed":
            await client.connection.aclose()
        else:
            assert (await client.call("add", a=1))["result"]["content"][0]["text"] == "2"
        await anyio.to_thread.run_sync(gone.wait, 5)
    assert raised == ["the call of ask was cancelled"]
    assert channel.ended == 1


async def test_what_a_thread_waits_for_may_fail():
    """`context.wait()` raises the exception of the awaitable unchanged."""
    server = ToolServer("s")

    async def fails() -> None:
        raise LookupError("no such thing")

    @server.tool
    def ask(context: Context) -> str:
        try:
            context.wait(fails())
        except LookupError as error:
            return str(error)
        return "nothing raised"

    async with connected(server) as client:
        assert (await client.call("ask"))["result"]["content"][0]["text"] == "no such thing"


# Lifespans.


@pytest.mark.usefixtures("caught")
@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
async def test_a_lifespan_that_cannot_open_is_an_error_of_each_call(kind):
    """Whatever it raises, calls get an error with its text, and the program goes on."""

    class Fails:
        async def __aenter__(self):
            raise kind("no database")

        async def __aexit__(self, *_):
            return None

    server = ToolServer("s", lifespan=lambda _server: Fails(), tools=[lambda_tool])
    async with connected(server) as client:
        error = (await client.call("lambda_tool"))["error"]
        assert error["code"] == -32603
        assert "no database" in error["message"]


def lambda_tool() -> str:
    """Do nothing."""
    return "done"


async def test_a_lifespan_that_hangs_at_its_start_is_not_waited_for():
    """It is cancelled at once when the last client leaves."""
    seen = anyio.Event()

    class Hangs:
        async def __aenter__(self):
            try:
                await anyio.sleep_forever()
            finally:
                seen.set()

        async def __aexit__(self, *_):
            return None

    server = ToolServer("s", lifespan=lambda _server: Hangs())
    with anyio.fail_after(5):
        async with connected(server):
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
        await seen.wait()
