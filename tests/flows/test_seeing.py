"""What can be seen of a session: frames that go by, and OpenTelemetry spans."""

import contextvars
import logging
import re
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolwire import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    ToolError,
    ToolServer,
    run,
)
from toolwire._conversation.observe import LONGEST_TEXT
from toolwire.testing import ScriptedCLI, call, say

pytestmark = pytest.mark.anyio

EXPORTER = InMemorySpanExporter()
REQUEST = contextvars.ContextVar("REQUEST", default="none")


@pytest.fixture(scope="module", autouse=True)
def provider():
    """An SDK, as an application sets it up; it stays for the process, as OpenTelemetry wants it."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture
def spans():
    """The spans that a test made, by name."""
    EXPORTER.clear()

    def finished():
        return {span.name: span for span in EXPORTER.get_finished_spans()}

    return finished


def server():
    """Two tools."""
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


async def test_a_run_its_turn_and_what_happens_in_it_are_spans(spans):
    """Tool calls, hooks and permission requests are inside the turn, the turn in the run, all in the caller's."""

    async def hook(_event, _tool_use_id, _context):
        return {}

    async def decide(_tool, _given, _context):
        return PermissionResultAllow()

    cli = ScriptedCLI([call("mcp__calc__add", a=15, b=27), call("mcp__calc__fail"), say("42")])
    options = ClaudeAgentOptions(
        mcp_servers={"calc": server()},
        can_use_tool=decide,
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        spawn_claude_code_process=cli,
    )
    with trace.get_tracer("app").start_as_current_span("the caller") as caller:
        await run("What is 15 + 27?", options=options)
    seen = spans()
    whole, turn = seen["toolwire.run"], seen["toolwire.turn"]
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
    """It is told of the run's span in its environment, unless the user has set that."""
    seen = []

    def spawning(command):
        seen.append(command.env.get("TRACEPARENT"))
        return ScriptedCLI([say("hi")])(command)

    await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=spawning))
    whole = spans()["toolwire.run"]
    assert seen[0].split("-")[1:3] == [f"{whole.context.trace_id:032x}", f"{whole.context.span_id:016x}"]
    own = ClaudeAgentOptions(spawn_claude_code_process=spawning, env={"TRACEPARENT": "mine"})
    await run("hi", options=own)
    assert seen[1] == "mine"


async def test_a_failed_run_shows_in_its_spans(spans):
    """A result that says it failed marks the turn."""
    from toolwire import ResultError  # noqa: PLC0415
    from toolwire.testing import fail  # noqa: PLC0415

    with pytest.raises(ResultError):
        await run("hi", options=ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([fail(400)])))
    assert spans()["toolwire.turn"].status.status_code.name == "ERROR"


def test_nothing_is_imported_for_tracing_in_a_program_that_has_none():
    """OpenTelemetry costs a program without it neither time nor memory."""
    program = (
        "import sys, anyio\n"
        "from toolwire import ClaudeAgentOptions, run\n"
        "from toolwire.testing import ScriptedCLI, say\n"
        "async def main():\n"
        "    await run('hi', options=ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say('hi')])))\n"
        "anyio.run(main)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_that_the_api_is_loaded_does_not_switch_tracing_on():
    """`mcp` loads OpenTelemetry's API: without a provider, nobody would see the spans."""
    code = (
        "from opentelemetry import trace\n"
        "from toolwire._conversation.observe import start_tracer\n"
        "assert start_tracer() is None\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "assert start_tracer() is not None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_frames_can_be_looked_at():
    """Both directions, in order, with long texts cut."""
    frames = []
    long = "x" * (LONGEST_TEXT + 100)
    options = ClaudeAgentOptions(
        on_frame=lambda way, frame: frames.append((way, frame)),
        spawn_claude_code_process=ScriptedCLI([say(long)]),
    )
    reply = await run("hi", options=options)
    assert reply.text == long
    kinds = [(way, frame["type"]) for way, frame in frames]
    assert kinds[:2] == [("out", "control_request"), ("in", "control_response")]
    assert ("out", "user") in kinds
    assert ("in", "result") in kinds
    said = next(frame for way, frame in frames if frame["type"] == "assistant")
    assert said["message"]["content"][0]["text"] == "x" * LONGEST_TEXT + "… (100 more characters)"


async def test_a_tap_that_fails_is_taken_off(caplog):
    """Looking never breaks what is looked at."""
    seen = []

    def tap(_way, frame):
        seen.append(frame)
        raise ValueError("oops")

    with caplog.at_level(logging.ERROR, "toolwire"):
        options = ClaudeAgentOptions(on_frame=tap, spawn_claude_code_process=ScriptedCLI([say("hi")]))
        assert (await run("hi", options=options)).text == "hi"
    assert len(seen) == 1
    assert "is removed" in caplog.text


async def test_handlers_see_the_context_of_the_program():
    """Context variables that were set before the run are there in tools, hooks and permission requests."""
    seen = []
    calc = ToolServer("calc")

    @calc.tool
    async def look() -> str:
        """Look."""
        seen.append(REQUEST.get())
        return "ok"

    @calc.tool
    def look_in_a_thread() -> str:
        """Look."""
        seen.append(REQUEST.get())
        return "ok"

    async def hook(_event, _tool_use_id, _context):
        seen.append(REQUEST.get())
        return {}

    async def decide(_tool, _given, _context):
        seen.append(REQUEST.get())
        return PermissionResultAllow()

    cli = ScriptedCLI([call("mcp__calc__look"), call("mcp__calc__look_in_a_thread"), say("done")])
    options = ClaudeAgentOptions(
        mcp_servers={"calc": calc},
        can_use_tool=decide,
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
        spawn_claude_code_process=cli,
    )
    REQUEST.set("r1")
    await run("hi", options=options)
    assert seen == ["r1"] * 6
