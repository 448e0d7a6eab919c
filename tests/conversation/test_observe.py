"""Observers of runs: which events they get, in which order and context, and that they cannot break a run."""

import contextvars
import logging
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLINotFoundError,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultMessage,
    RunObserver,
    ToolError,
    ToolServer,
    UserMessage,
    WarmPool,
    add_observer,
    query,
    remove_observer,
    run,
)
from toolwire._support.tracing import VARIABLE, is_tracing_wanted
from toolwire.testing import ScriptedCLI, call, exit_early, say, silence

pytestmark = pytest.mark.anyio

CURRENT = contextvars.ContextVar("CURRENT", default="none")


class Recorder(RunObserver):
    """Records its events."""

    def __init__(self, info, log):
        self.info = info
        self.log = log
        log.append(("start", info))

    def frame(self, direction, frame):
        self.log.append(("frame", direction, frame["type"]))

    def message(self, direction, message):
        self.log.append(("message", direction, message))

    @contextmanager
    def call(self, call):
        self.log.append(("call", call.kind, call.name))
        before = CURRENT.set(f"in {call.kind} {call.name}")
        try:
            yield
        except BaseException as error:
            self.log.append(("raised", call.name, type(error)))
            raise
        finally:
            CURRENT.reset(before)
            self.log.append(("called", call.name, call.failure, call.result))

    def end(self, error):
        self.log.append(("end", error))


@pytest.fixture
def watch():
    """Add observers for one test: `watch()` adds a recorder and returns its events, `watch(start)` another one."""
    added = []

    def add(start=None):
        log = []
        start = start or (lambda info: Recorder(info, log))
        added.append(start)
        add_observer(start)
        return log

    yield add
    for each in added:
        remove_observer(each)


def server():
    """Return a server with tools that work, fail, and report the context in which they run."""
    calc = ToolServer("calc")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add."""
        return a + b

    @calc.tool
    async def look() -> str:
        """Look."""
        return CURRENT.get()

    @calc.tool
    def look_in_a_thread() -> str:
        """Look."""
        return CURRENT.get()

    @calc.tool
    def fail() -> None:
        """Fail."""
        raise ToolError("no")

    return calc


def options(*script, **more):
    """Return options for a scripted run with those tools."""
    given = {"mcp_servers": {"calc": server()}, "allowed_tools": ["mcp__calc"], **more}
    return ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([*script]), **given)


def kinds(log):
    """Return the kinds of events, without direct repetitions."""
    seen = []
    for event in log:
        if not seen or seen[-1] != event[0]:
            seen.append(event[0])
    return seen


async def test_every_way_to_run_is_seen(watch):
    """`run()`, `query()`, a client and a warm pool are all observed."""
    log = watch()
    await run("hi", options=options(say("1")))
    async for _ in query(prompt="hi", options=options(say("1"))):
        pass
    async with ClaudeSDKClient(options(say("1"))) as client:
        await client.query("hi")
        async for _ in client.receive_response():
            pass
    async with WarmPool(options(say("1"), say("1"))) as pool:
        await pool.wait_ready()
        await pool.run("hi")
    starts, ends = (sum(event[0] == kind for event in log) for kind in ("start", "end"))
    results = [each[2] for each in log if each[0] == "message" and isinstance(each[2], ResultMessage)]
    assert starts == ends >= 4
    assert len(results) == 4


async def test_the_order_of_events(watch):
    """Start, frames each before its message, calls between them, and the end last."""
    log = watch()
    given = options(call("mcp__calc__add", a=1, b=2), say("3"))
    reply = await run("What is 1 + 2?", options=given)
    assert log[0][0] == "start"
    assert log[0][1].options is given
    assert log[-1] == ("end", None)
    assert sum(event[0] == "end" for event in log) == 1
    assert log[1:3] == [("frame", "out", "control_request"), ("frame", "in", "control_response")]
    for number, event in enumerate(log):
        if event[0] == "message":
            assert log[number - 1][:2] == ("frame", event[1])
    messages = [event[1:] for event in log if event[0] == "message"]
    assert [message for direction, message in messages if direction == "out"] == [
        UserMessage("What is 1 + 2?")
    ]
    assert [message for direction, message in messages if direction == "in"] == reply.messages
    began, ended = log.index(("call", "tool", "add")), [each[0] for each in log].index("called")
    said = next(
        i for i, each in enumerate(log) if each[0] == "message" and isinstance(each[2], AssistantMessage)
    )
    assert said < began < ended < len(log) - 1
    result = log[ended]
    assert result[1:3] == ("add", None)
    assert result[3]["content"][0]["text"] == "3.0"


async def test_a_program_that_reads_nothing_is_seen_all_the_same(watch):
    """Messages are reported when they arrive, not when they are read."""
    seen = anyio.Event()

    class Waiting(RunObserver):
        def message(self, direction, message):
            if direction == "in" and isinstance(message, ResultMessage):
                seen.set()

    watch(lambda _: Waiting())
    async with ClaudeSDKClient(options(say("hi"))) as client:
        await client.query("hi")
        with anyio.fail_after(60):
            await seen.wait()


async def test_tools_hooks_and_permissions_are_calls(watch):
    """Each has its input, the id of its tool use and its outcome; context that it sets reaches the user's code."""
    log = watch()
    contexts, infos = [], []

    class Infos(RunObserver):
        def call(self, call):
            infos.append(call)  # and no context manager

    watch(lambda _: Infos())

    async def hook(_event, _tool_use_id, _context):
        contexts.append(CURRENT.get())
        return {}

    async def decide(tool, _given, _context):
        contexts.append(CURRENT.get())
        return PermissionResultDeny(message="no") if tool.endswith("add") else PermissionResultAllow()

    script = [
        call("mcp__calc__add", a=1, b=2),
        call("mcp__calc__look"),
        call("mcp__calc__look_in_a_thread"),
        call("mcp__calc__fail"),
        say("done"),
    ]
    more = {"allowed_tools": [], "can_use_tool": decide, "hooks": {"PreToolUse": [HookMatcher(hooks=[hook])]}}
    reply = await run("go", options=options(*script, **more))
    looked = [each.result for each in reply.tool_calls if each.name.startswith("mcp__calc__look")]
    assert [each[0]["text"] for each in looked] == ["in tool look", "in tool look_in_a_thread"]
    assert contexts[:2] == ["in hook PreToolUse", "in permission mcp__calc__add"]
    assert CURRENT.get() == "none"
    ended = {each[1]: each[2] for each in log if each[0] == "called"}
    assert ended == {
        "PreToolUse": None,
        "mcp__calc__add": "denied",
        "mcp__calc__look": None,
        "mcp__calc__look_in_a_thread": None,
        "mcp__calc__fail": None,
        "look": None,
        "look_in_a_thread": None,
        "fail": "tool_error",
    }
    refused = next(each for each in infos if each.kind == "permission")
    assert (refused.name, refused.input, refused.server) == ("mcp__calc__add", {"a": 1, "b": 2}, None)
    assert refused.result["behavior"] == "deny"
    asked = next(each for each in infos if each.kind == "hook")
    assert asked.input["tool_name"] == "mcp__calc__add"
    assert refused.tool_use_id == asked.tool_use_id == reply.tool_calls[0].id
    looked_at = next(each for each in infos if each.kind == "tool")
    assert (looked_at.name, looked_at.server) == ("look", "calc")
    assert looked_at.tool_use_id == reply.tool_calls[1].id


async def test_a_call_that_raises_is_seen_and_still_raises(watch):
    """The exception of a callback passes through the context manager and reaches the CLI."""
    log = watch()
    seen = []

    class Swallowing(RunObserver):
        @contextmanager
        def call(self, call):
            try:
                yield
            except LookupError as error:
                seen.append(error)

    watch(lambda _: Swallowing())

    async def decide(_tool, _given, _context):
        raise LookupError("oops")

    answers = []
    given = options(
        call("mcp__calc__add", a=1, b=2),
        say("done"),
        allowed_tools=[],
        can_use_tool=decide,
        on_frame=lambda way, frame: answers.append((way, str(frame))),
    )
    await run("go", options=given)
    assert ("raised", "mcp__calc__add", LookupError) in log
    assert ("called", "mcp__calc__add", "LookupError", None) in log
    assert len(seen) == 1
    assert any(way == "out" and "oops" in frame for way, frame in answers)


async def test_an_observer_adds_to_the_environment_of_the_cli(watch):
    """Added variables reach the CLI, removed ones do not, and the user's own variables win."""
    commands = []

    def spawn(command):
        commands.append(command.env)
        return ScriptedCLI([say("hi")])(command)

    def start(info):
        assert info.env["CLAUDE_CODE_ENTRYPOINT"] == "sdk-py"
        info.env["TRACEPARENT"] = "00-mine"
        info.env["OWN"] = "overwritten"
        info.env.pop("PATH", None)

    watch(start)
    await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=spawn, env={"OWN": "stays"}))
    assert commands[0]["TRACEPARENT"] == "00-mine"
    assert commands[0]["OWN"] == "stays"
    assert "PATH" not in commands[0]


async def test_a_transport_of_the_user_has_no_environment(watch):
    """With a custom transport there is no process that could get it."""
    log = watch()
    async for _ in query(prompt="hi", options=ClaudeAgentOptions(), transport=ScriptedCLI([say("hi")])):
        pass
    assert log[0][1].env == {}
    assert kinds(log)[-1] == "end"


@pytest.mark.parametrize("value", [None, 1, "a\0b"])
async def test_a_variable_that_cannot_be_set_stops_no_run(watch, value, caplog):
    """The observer is left out of the run, and its changes to the environment are undone."""
    commands = []

    def spawn(command):
        commands.append(command.env)
        return ScriptedCLI([say("hi")])(command)

    def start(info):
        info.env.clear()
        info.env["TRACEPARENT"] = value

    watch(start)
    await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=spawn))
    assert "TRACEPARENT" not in commands[0]
    assert commands[0]["CLAUDE_CODE_ENTRYPOINT"] == "sdk-py"
    assert "cannot be set: 'TRACEPARENT'" in caplog.text


class Failing(RunObserver):
    """Raises in one method."""

    def __init__(self, where, error, told):
        self.where = where
        self.error = error
        self.told = told

    def _do(self, event):
        self.told.append(event)
        if event == self.where:
            raise self.error

    def frame(self, _direction, _frame):
        self._do("frame")

    def message(self, _direction, _message):
        self._do("message")

    def call(self, _call):
        self._do("call")
        return Manager(self._do)

    def end(self, _error):
        self._do("end")


class Manager:
    """A context manager that records its steps."""

    def __init__(self, do):
        self._do = do

    def __enter__(self):
        self._do("enter")

    def __exit__(self, *_):
        self._do("exit")
        return True


@pytest.mark.parametrize("error", [ValueError("oops"), SystemExit(3)], ids=["Exception", "BaseException"])
@pytest.mark.parametrize("where", ["start", "frame", "message", "call", "enter", "exit", "end"])
async def test_an_observer_that_raises_breaks_nothing(watch, where, error, caplog):
    """It is logged once and gets only the end of its run; the run and other observers continue."""
    told = []

    def start(_info):
        if where == "start":
            raise error
        return Failing(where, error, told)

    watch(start)
    log = watch()
    with caplog.at_level(logging.ERROR, "toolwire"):
        reply = await run("go", options=options(call("mcp__calc__add", a=1, b=2), say("3")))
    assert reply.text == "3"
    assert log[-1] == ("end", None)
    assert ("call", "tool", "add") in log
    if where == "start":
        assert told == []
    else:
        assert told[-1] == "end"
        assert told.count(where) == 1
        assert where == "end" or told.index(where) == len(told) - 2
    assert len([each for each in caplog.records if each.name == "toolwire.observers"]) == 1


@pytest.mark.parametrize("returned", ["no observer", object(), 1])
async def test_an_observer_that_returns_something_else_is_logged(watch, returned, caplog):
    """The log says what was returned."""
    watch(lambda _: returned)
    assert (await run("hi", options=options(say("hi")))).text == "hi"
    assert f"RunObserver or None, got {type(returned).__name__}" in caplog.text


async def test_a_removed_observer_sees_nothing(watch):
    """A removed observer sees neither new runs nor the rest of running ones."""
    log = []

    def start(info):
        return Recorder(info, log)

    add_observer(start)
    add_observer(start)  # changes nothing
    async with ClaudeSDKClient(options(say("hi"))) as client:
        assert [each[0] for each in log].count("start") == 1
        before = len(log)
        remove_observer(start)
        remove_observer(start)
        await client.query("hi")
        async for _ in client.receive_response():
            pass
    await run("hi", options=options(say("hi")))
    assert len(log) == before


async def test_an_observer_that_is_added_sees_runs_from_then_on(watch):
    """An observer does not see runs that started before it was added."""
    async with ClaudeSDKClient(options(say("hi"))) as client:
        log = watch()
        await client.query("hi")
        async for _ in client.receive_response():
            pass
    assert log == []


async def test_a_method_of_an_object_can_be_added_and_removed():
    """Every access creates a new bound method; equal ones count as the same observer."""

    class Library:
        seen = 0

        def start(self, _info):
            self.seen += 1

    library = Library()
    add_observer(library.start)
    await run("hi", options=options(say("hi")))
    remove_observer(library.start)
    await run("hi", options=options(say("hi")))
    assert library.seen == 1


def test_only_a_function_can_be_added():
    """An instance instead of its class is refused at once."""
    with pytest.raises(TypeError, match="takes a function or a class, got RunObserver"):
        add_observer(RunObserver())


async def test_the_reason_of_a_failed_run_is_told(watch, tmp_path):
    """Observers get the error of a missing CLI, of one that exits, and of a stream of prompts that raises."""
    log = watch()
    with pytest.raises(CLINotFoundError):
        await run("hi", options=ClaudeAgentOptions(cli_path=tmp_path / "none"))
    assert kinds(log) == ["start", "end"]
    assert isinstance(log[-1][1], CLINotFoundError)
    with pytest.raises(ProcessError):
        await run("hi", options=options(exit_early(3)))
    assert isinstance(log[-1][1], ProcessError)

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "hi"}}
        raise LookupError("oops")

    with pytest.raises(LookupError):
        await run(prompts(), options=options(say("hi")))
    assert isinstance(log[-1][1], LookupError)


async def test_a_program_that_leaves_early_is_no_failure_of_the_run(watch):
    """Neither an exception in the user's loop nor a cancelled task is an error of the run."""
    log = watch()
    messages = query(prompt="hi", options=options(say("hi")))
    with pytest.raises(LookupError):
        async for _ in messages:
            raise LookupError("the program's own")
    await messages.aclose()
    assert log[-1] == ("end", None)
    started = anyio.Event()

    class Waiting(RunObserver):
        def frame(self, direction, frame):
            if direction == "out" and frame["type"] == "user":
                started.set()

    watch(lambda _: Waiting())
    async with anyio.create_task_group() as group:

        async def go():
            await run("hi", options=options(silence()))

        group.start_soon(go)
        with anyio.fail_after(60):
            await started.wait()
        group.cancel_scope.cancel()
    assert log[-1] == ("end", None)


async def test_prompts_are_seen_in_the_context_of_the_sender(watch):
    """A client may be used in several web requests: for a prompt, the span of its own request is current."""
    seen = []

    class Contexts(RunObserver):
        def frame(self, direction, frame):
            if direction == "out" and frame["type"] == "user":
                seen.append(CURRENT.get())

    watch(lambda _: Contexts())
    async with ClaudeSDKClient(options(say("1"))) as client:
        CURRENT.set("the request")
        await client.query("hi")
        async for _ in client.receive_response():
            pass
    async with WarmPool(options(say("1"), say("2"))) as pool:
        await pool.wait_ready()
        CURRENT.set("another request")
        await pool.run("hi")
    assert seen == ["the request", "another request"]


@contextmanager
def never_yields():
    """A context manager whose generator ends without a yield."""
    if CURRENT.get() == "never":
        yield


@contextmanager
def yields_twice():
    """A context manager that raises when it is exited."""
    yield
    yield


@contextmanager
def turns_it_into_another():
    """A context manager that raises something else on its way out."""
    try:
        yield
    finally:
        raise LookupError("mine")


@asynccontextmanager
async def is_async():
    """An async context manager."""
    yield


ODD = [
    never_yields,
    yields_twice,
    turns_it_into_another,
    is_async,
    lambda: "no context manager",
    lambda: Manager,
]


@pytest.mark.parametrize("make", ODD)
async def test_an_odd_context_manager_changes_nothing_for_the_call(watch, make, caplog):
    """The tool runs and its result arrives, whatever context manager wraps it."""

    class Odd(RunObserver):
        def call(self, _call):
            return make()

    watch(lambda _: Odd())
    log = watch()
    reply = await run("go", options=options(call("mcp__calc__add", a=1, b=2), say("3")))
    assert reply.tool_calls[0].result[0]["text"] == "3.0"
    assert log[-1] == ("end", None)
    assert "failed in call()" in caplog.text


async def test_observers_may_come_and_go_while_they_are_told(watch):
    """An observer may remove itself and add another one during an event."""
    log = []

    class Fickle(RunObserver):
        def frame(self, _direction, _frame):
            log.append("frame")
            remove_observer(start)
            watch(lambda _: log.append("started"))

    def start(_info):
        return Fickle()

    watch(start)
    await run("hi", options=options(say("hi")))
    assert log == ["frame"]
    await run("hi", options=options(say("hi")))
    assert log == ["frame", "started"]


async def test_runs_at_the_same_time_have_an_observer_each(watch):
    """No observer gets events of another run."""
    log = []

    class Own(RunObserver):
        def __init__(self, info):
            self.prompt = info.options.title
            self.seen = []

        def message(self, direction, message):
            if direction == "out":
                self.seen.append(message.content)

        def end(self, _error):
            log.append((self.prompt, self.seen))

    watch(Own)
    async with anyio.create_task_group() as group:
        for number in map(str, range(5)):

            async def go(number=number):
                await run(number, options=options(say("hi"), title=number))

            group.start_soon(go)
    assert sorted(log) == [(number, [number]) for number in map(str, range(5))]


def test_tracing_is_asked_for_by_option_or_variable(monkeypatch):
    """The option wins; the variable accepts the usual words for off."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not is_tracing_wanted()
    assert is_tracing_wanted(True)
    for value in ("1", "true", "on"):
        monkeypatch.setenv(VARIABLE, value)
        assert is_tracing_wanted()
        assert not is_tracing_wanted(False)
    for value in ("", "0", "False", "no", " off "):
        monkeypatch.setenv(VARIABLE, value)
        assert not is_tracing_wanted()
