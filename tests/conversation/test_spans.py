"""OpenTelemetry spans of runs: when they are made, their contents, and that every token is counted once."""

import re
import subprocess
import sys

import pytest
from opentelemetry import trace

import toolwire
from shared.spans import exporter
from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLINotFoundError,
    HookMatcher,
    PermissionResultAllow,
    ProcessError,
    ResultError,
    ToolError,
    ToolServer,
    Transport,
    run,
)
from toolwire._conversation.observe import RunInfo
from toolwire._conversation.spans import find_other_tracer, start_spans
from toolwire._support.tracing import VARIABLE
from toolwire.testing import ScriptedCLI, call, exit_early, fail, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans():
    """Return a function that gives the spans that a test made, by name."""
    exporter().clear()

    def finished():
        return {span.name: span for span in exporter().get_finished_spans()}

    return finished


def server():
    """Return a server with two tools."""
    calc = ToolServer("calc")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add."""
        with trace.get_tracer("app").start_as_current_span("inside the tool"):
            return a + b

    @calc.tool
    def fail() -> None:
        """Fail."""
        raise ToolError("no")

    return calc


class Edited(Transport):
    """A transport whose frames a test can change."""

    def __init__(self, transport, edit):
        self._transport = transport
        self._edit = edit

    async def connect(self):
        await self._transport.connect()

    async def write(self, data):
        await self._transport.write(data)

    async def read_messages(self):
        async for frame in self._transport.read_messages():
            yield self._edit(frame)

    async def close(self):
        await self._transport.close()

    def is_ready(self):
        return self._transport.is_ready()

    async def end_input(self):
        await self._transport.end_input()


async def test_a_run_its_turn_and_what_happens_in_it_are_spans(spans):
    """Tool calls, hooks and permission requests are inside the turn, the turn in the run, all in the caller's."""

    async def hook(_event, _tool_use_id, _context):
        return {}

    async def decide(_tool, _given, _context):
        return PermissionResultAllow()

    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), call("mcp__calc__fail"), say("42")])
    options = ClaudeAgentOptions(
        tracing=True,
        mcp_servers={"calc": server()},
        can_use_tool=decide,
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        spawn_claude_code_process=cli,
    )
    with trace.get_tracer("app").start_as_current_span("the caller") as caller:
        await run("What is 15 + 27?", options=options)
    seen = spans()
    whole, turn = seen["toolwire.run"], seen["invoke_agent"]
    assert whole.parent.span_id == caller.get_span_context().span_id
    assert turn.parent.span_id == whole.context.span_id
    for name in ("execute_tool add", "execute_tool fail", "toolwire.hook PreToolUse", "toolwire.permission"):
        assert seen[name].parent.span_id == turn.context.span_id, name
    added = seen["execute_tool add"]
    assert added.attributes["gen_ai.tool.name"] == "add"
    assert added.attributes["gen_ai.tool.call.id"].startswith("toolu")
    assert seen["inside the tool"].parent.span_id == added.context.span_id
    assert added.status.is_ok or added.status.status_code.name == "UNSET"
    assert seen["execute_tool fail"].status.status_code.name == "ERROR"
    assert turn.attributes["toolwire.result"] == "success"
    assert turn.attributes["gen_ai.usage.output_tokens"] >= 0


async def test_an_exception_in_a_span_shows_no_secret(spans):
    """Its event says what was raised and where, without the secrets of the options."""

    async def hook(_event, _tool_use_id, _context):
        raise PermissionError("cannot log in with top-secret-password at http://me:other-secret@host.example")

    options = ClaudeAgentOptions(
        tracing=True,
        env={"DB_PWD": "top-secret-password"},
        mcp_servers={"calc": server()},
        allowed_tools=["mcp__calc"],
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        spawn_claude_code_process=ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("done")]),
    )
    await run("go", options=options)
    span = spans()["toolwire.hook PreToolUse"]
    event = dict(span.events[0].attributes)
    assert (span.events[0].name, len(span.events)) == ("exception", 1)
    assert event["exception.message"] == "cannot log in with <redacted> at http://<redacted>@host.example"
    assert "in handle" in event["exception.stacktrace"]
    assert span.status.status_code.name == "ERROR"
    assert not {"top-secret-password", "other-secret"} & set(re.findall(r"[\w-]+", span.to_json()))


async def test_the_cli_continues_the_trace(spans):
    """The CLI gets the run's span in its environment, unless the user has set that variable."""
    seen = []

    def spawning(command):
        seen.append(command.env.get("TRACEPARENT"))
        return ScriptedCLI([say("hi")])(command)

    await run("hi", options=ClaudeAgentOptions(tracing=True, spawn_claude_code_process=spawning))
    whole = spans()["toolwire.run"]
    assert seen[0].split("-")[1:3] == [f"{whole.context.trace_id:032x}", f"{whole.context.span_id:016x}"]
    own = ClaudeAgentOptions(tracing=True, spawn_claude_code_process=spawning, env={"TRACEPARENT": "mine"})
    await run("hi", options=own)
    assert seen[1] == "mine"


async def test_a_failed_run_shows_in_its_spans(spans):
    """A failed result marks the turn as failed."""
    with pytest.raises(ResultError):
        await run(
            "hi", options=ClaudeAgentOptions(tracing=True, spawn_claude_code_process=ScriptedCLI([fail(400)]))
        )
    assert spans()["invoke_agent"].status.status_code.name == "ERROR"


async def test_there_are_no_spans_unless_they_are_asked_for(spans, monkeypatch):
    """A provider alone is not enough: spans need the option, or the variable, which the option overrides."""
    monkeypatch.delenv(VARIABLE, raising=False)
    await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("hi")])))
    monkeypatch.setenv(VARIABLE, "1")
    await run(
        "hi", options=ClaudeAgentOptions(tracing=False, spawn_claude_code_process=ScriptedCLI([say("hi")]))
    )
    assert spans() == {}
    await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("hi")])))
    assert set(spans()) == {"toolwire.run", "invoke_agent"}


async def test_every_token_is_on_one_span(spans):
    """Backends add up all spans: the sum is that of the results, including tokens from the cache, counted once."""
    results = []

    def edit(frame):
        if frame["type"] == "result":
            number = len(results) + 1
            frame["usage"] |= {"cache_read_input_tokens": 100 * number, "cache_creation_input_tokens": 10}
            frame["total_cost_usd"] = [0.25, 0.75][len(results)]  # of the whole session, as from the CLI
            results.append(frame)
        return frame

    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("3"), say("again")])
    options = ClaudeAgentOptions(
        tracing=True,
        mcp_servers={"calc": server()},
        allowed_tools=["mcp__calc"],
        agent="helper",
        spawn_claude_code_process=lambda command: Edited(cli(command), edit),
    )
    async with ClaudeSDKClient(options) as client:
        for _ in range(2):
            await client.query("hi")
            async for _message in client.receive_response():
                pass
    made = exporter().get_finished_spans()
    turns = [span for span in made if span.name == "invoke_agent helper"]
    assert len(turns) == 2

    def total(name):
        return sum(span.attributes.get(name, 0) for span in made)

    assert total("gen_ai.usage.output_tokens") == sum(each["usage"]["output_tokens"] for each in results)
    assert total("gen_ai.usage.cache_read.input_tokens") == 300
    assert total("gen_ai.usage.cache_creation.input_tokens") == 20
    plain = sum(each["usage"]["input_tokens"] for each in results)
    assert total("gen_ai.usage.input_tokens") == plain + 320
    assert [span.attributes["toolwire.cost_usd"] for span in turns] == [0.25, 0.5]
    assert {name for span in made for name in span.attributes if "usage" in name} == {
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
    }
    for turn in turns:
        assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
        assert turn.attributes["gen_ai.agent.name"] == "helper"
        assert turn.attributes["gen_ai.provider.name"] == "anthropic"
        assert turn.attributes["gen_ai.conversation.id"] == results[0]["session_id"]


async def test_a_turn_is_part_of_the_span_in_which_its_prompt_is_sent(spans):
    """A client or a pool may outlive the span in which it is used; a link leads to the run."""
    tracer = trace.get_tracer("app")
    cli = ScriptedCLI([say("1"), say("2")])
    options = ClaudeAgentOptions(tracing=True, spawn_claude_code_process=cli)
    async with ClaudeSDKClient(options) as client:
        with tracer.start_as_current_span("a request") as request:
            await client.query("hi")
            async for _ in client.receive_response():
                pass
    turn, whole = spans()["invoke_agent"], spans()["toolwire.run"]
    assert turn.parent.span_id == request.get_span_context().span_id
    assert [link.context.span_id for link in turn.links] == [whole.context.span_id]
    assert whole.parent is None


async def test_a_result_that_no_prompt_waits_for_has_a_turn_too(spans):
    """Its tokens were used: a background task that ends starts a turn by itself, and prompts may queue."""
    cli = ScriptedCLI([say("1"), say("2")])
    options = ClaudeAgentOptions(tracing=True, spawn_claude_code_process=cli)
    async with ClaudeSDKClient(options) as client:
        await client.query("hi")
        await client.query("and")
        for _ in range(2):
            async for _message in client.receive_response():
                pass
    assert [span.name for span in exporter().get_finished_spans()] == [
        "invoke_agent",
        "invoke_agent",
        "toolwire.run",
    ]


def test_a_subagent_in_the_background_starts_no_turn(spans):
    """Its tokens are in the next result; a turn of its own would have none, and no end."""
    observer = start_spans(RunInfo(ClaudeAgentOptions(), {"CLAUDE_CODE_USE_BEDROCK": "1"}))
    observer.frame("in", {"type": "assistant", "parent_tool_use_id": "toolu_1"})
    observer.end(None)
    assert set(spans()) == {"toolwire.run"}
    assert spans()["toolwire.run"].attributes["gen_ai.provider.name"] == "aws.bedrock"


@pytest.mark.parametrize("usage", [None, 3, {}, {"input_tokens": "many"}, {"output_tokens": None}])
def test_a_result_with_odd_numbers_ends_its_turn(spans, usage):
    """A value that is not a number is left out."""
    observer = start_spans(RunInfo(ClaudeAgentOptions(), {}))
    observer.frame("in", {"type": "result", "usage": usage, "total_cost_usd": "free", "session_id": 7})
    observer.end(None)
    assert not [name for name in spans()["invoke_agent"].attributes if "usage" in name or "cost" in name]


async def test_a_run_that_breaks_off_ends_its_spans(spans):
    """The span of the run says why; nothing is left open."""
    with pytest.raises(ProcessError):
        await run(
            "hi",
            options=ClaudeAgentOptions(tracing=True, spawn_claude_code_process=ScriptedCLI([exit_early()])),
        )
    seen = spans()
    assert set(seen) == {"toolwire.run", "invoke_agent"}
    assert seen["toolwire.run"].attributes["error.type"] == "ProcessError"
    assert seen["toolwire.run"].status.status_code.name == "ERROR"
    exporter().clear()
    with pytest.raises(CLINotFoundError):
        await run("hi", options=ClaudeAgentOptions(tracing=True, cli_path="/nowhere/claude"))
    assert spans()["toolwire.run"].attributes["error.type"] == "CLINotFoundError"


def written_in(module, wrapped):
    """Return a wrapper around a function, made as code of that module makes it."""
    code = (
        "import functools\n"
        "def wrap(wrapped):\n"
        "    @functools.wraps(wrapped)\n"
        "    def wrapper(*args, **kwargs):\n"
        "        return wrapped(*args, **kwargs)\n"
        "    return wrapper\n"
    )
    names = {"__name__": module}
    exec(code, names)  # noqa: S102 - the code above
    return names["wrap"](wrapped)


class Wrapt:
    """Looks like a wrapper of wrapt: all names but one are those of the wrapped object."""

    def __init__(self, wrapper, wrapped):
        self._self_wrapper = wrapper
        self.__wrapped__ = wrapped
        self.__module__ = wrapped.__module__

    def __call__(self, *args, **kwargs):
        return self.__wrapped__(*args, **kwargs)


async def test_there_are_no_spans_beside_those_of_another_tracer(spans, monkeypatch, caplog):
    """Otherwise every token would be counted twice. One warning names the other tracer."""
    monkeypatch.setattr("toolwire._conversation.spans._warned", set())
    options = ClaudeAgentOptions(tracing=True, spawn_claude_code_process=ScriptedCLI([say("1")] * 3))
    monkeypatch.setattr(ClaudeSDKClient, "query", written_in("openinference.x", ClaudeSDKClient.query))
    for _ in range(2):
        await run("hi", options=options)
    assert spans() == {}
    assert caplog.text.count("openinference.x traces the client already") == 1
    monkeypatch.undo()
    await run("hi", options=options)
    assert "invoke_agent" in spans()


def test_other_tracers_are_found_by_the_code_that_they_put_in_place(monkeypatch):
    """They patch methods, or a class or function of a module, somehow; a program's own wrapper does not count."""
    assert find_other_tracer() is None
    with monkeypatch.context() as patch:
        patch.setattr(ClaudeSDKClient, "connect", written_in("my_app.retries", ClaudeSDKClient.connect))
        assert find_other_tracer() is None
        patch.setattr(ClaudeSDKClient, "connect", written_in("logfire.x", ClaudeSDKClient.connect))
        assert find_other_tracer() == "logfire.x"
    with monkeypatch.context() as patch:
        patch.setattr(toolwire, "query", written_in("langsmith.x", toolwire.query))
        assert find_other_tracer() == "langsmith.x"
    with monkeypatch.context() as patch:
        patch.setattr(toolwire, "query", written_in("new_claude_agent_sdk_tracer", toolwire.query))
        assert find_other_tracer() == "new_claude_agent_sdk_tracer"
    with monkeypatch.context() as patch:
        wrapper = written_in("opentelemetry.instrumentation.x", len)
        patch.setattr("toolwire.client.query.query", Wrapt(wrapper, toolwire.query))
        assert find_other_tracer() == "opentelemetry.instrumentation.x"
    with monkeypatch.context() as patch:
        patch.setattr(
            toolwire, "ClaudeSDKClient", type("C", (ClaudeSDKClient,), {"__module__": "braintrust.x"})
        )
        assert find_other_tracer() == "braintrust.x"
    assert find_other_tracer() is None


async def test_a_client_around_ours_is_another_tracer(spans):
    """It patches nothing, and is found among the callers of a run; a program's own traced function is not."""
    names = {"__name__": "unheard_of.claude_agent_sdk.client", "run": run}
    exec("async def traced_run(*args, **more):\n    return await run(*args, **more)\n", names)  # noqa: S102 - as it stands
    cli = ScriptedCLI([say("1"), say("2")])
    options = ClaudeAgentOptions(tracing=True, spawn_claude_code_process=cli)
    await names["traced_run"]("hi", options=options)
    assert spans() == {}

    @trace.get_tracer("app").start_as_current_span("mine")
    async def mine():
        await run("hi", options=options)

    await mine()
    assert set(spans()) == {"mine", "toolwire.run", "invoke_agent"}


def test_a_tracer_of_the_official_package_is_none_of_ours(monkeypatch):
    """A program may use both packages: a patch of the official one does not see our runs."""
    import claude_agent_sdk  # noqa: PLC0415 - only here

    method = claude_agent_sdk.ClaudeSDKClient.connect
    monkeypatch.setattr(claude_agent_sdk.ClaudeSDKClient, "connect", written_in("logfire.x", method))
    assert find_other_tracer() is None


@pytest.mark.process
def test_without_a_provider_it_is_said_once_that_there_are_no_spans():
    """One message says so, whether or not OpenTelemetry's API is loaded: `mcp` loads it."""
    program = (
        "import logging, anyio\n"
        "from toolwire import ClaudeAgentOptions, run\n"
        "from toolwire.testing import ScriptedCLI, say\n"
        "logging.basicConfig()\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        "        cli = ScriptedCLI([say('hi')])\n"
        "        await run('hi', options=ClaudeAgentOptions(tracing=True, spawn_claude_code_process=cli))\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.count("no TracerProvider") == 1


@pytest.mark.process
def test_nothing_is_imported_for_tracing_in_a_program_that_has_none():
    """OpenTelemetry costs a program without it neither time nor memory."""
    program = (
        "import sys, anyio\n"
        "from toolwire import ClaudeAgentOptions, run\n"
        "from toolwire.testing import ScriptedCLI, say\n"
        "async def main():\n"
        "    await run('hi', options=ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say('hi')])))\n"
        "anyio.run(main)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry') or name.endswith('.spans')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
