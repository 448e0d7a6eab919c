"""A run as spans over time, from frames written by hand: order, nesting, times, and why something failed."""

import json
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.frames import FRAMES, MOMENTS, TYPED
from shared.transcripts import SESSION, Writer
from toolwire import ClaudeAgentOptions, PermissionResultAllow, PermissionResultDeny, ToolServer, run
from toolwire.sessions.recorded import LoadedTranscript, RecordedSession
from toolwire.studio.timeline import Timeline, name_tool, read_recording, read_session, read_text
from toolwire.testing import ScriptedCLI, call, say, turn

CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus"


class Run:
    """A run whose frames are added to a timeline, each a second after the one before it."""

    def __init__(self):
        self.timeline = Timeline()
        self.t = 0.0
        self.changed = []

    def host(self, **frame):
        """Add a frame of the host."""
        self.t += 1
        self.changed = self.timeline.add(self.t, "out", frame)
        return self.t

    def cli(self, **frame):
        """Add a frame of the CLI."""
        self.t += 1
        self.changed = self.timeline.add(self.t, "in", frame)
        return self.t

    def prompt(self, text):
        """Add a prompt."""
        return self.host(type="user", message={"role": "user", "content": text})

    def start(self, text="go"):
        """Add the start of the CLI, a prompt, and the beginning of its turn."""
        self.host(type="control_request", request_id="1", request={"subtype": "initialize"})
        self.cli(type="control_response", response={"subtype": "success", "request_id": "1", "response": {}})
        self.prompt(text)
        return self.init()

    def init(self):
        """Add the beginning of a turn."""
        return self.cli(type="system", subtype="init", model="m1", session_id="s1", mcp_servers=[])

    def say(self, *blocks, id="msg_1", agent=None, **more):
        """Add a response of the model, or a part of one."""
        message = {
            "id": id,
            "model": "m1",
            "content": list(blocks),
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }
        return self.cli(type="assistant", message=message, parent_tool_use_id=agent, session_id="s1", **more)

    def ask(self, request_id, subtype, **request):
        """Add a control request of the CLI."""
        return self.cli(
            type="control_request", request_id=request_id, request={"subtype": subtype, **request}
        )

    def answer(self, request_id, response=None, **more):
        """Add the host's response to it."""
        body = {"subtype": "success", "request_id": request_id, "response": response, **more}
        return self.host(type="control_response", response=body)

    def call_function(self, call, request_id="c1", rpc=2):
        """Add the CLI's call of the function behind a tool."""
        params = {"name": "add", "arguments": {"a": 1}, "_meta": {"claudecode/toolUseId": call}}
        message = {"method": "tools/call", "params": params, "id": rpc}
        return self.ask(request_id, "mcp_message", server_name="calc", message=message)

    def result_of(self, call, content="ok", agent=None, **more):
        """Add a tool result as the CLI reports it."""
        block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
        return self.cli(type="user", message={"content": [block]}, parent_tool_use_id=agent)

    def end(self, **more):
        """Add the result of a turn."""
        return self.cli(
            type="result", subtype="success", is_error=False, result="done", session_id="s1", **more
        )

    def tree(self):
        """Return the kind and title of each span, indented by depth."""
        return ["  " * each.depth + f"{each.kind} {each.title}" for each in self.timeline.in_order()]

    def find(self, kind, at=0):
        """Return a span of this kind."""
        return [each for each in self.timeline.spans if each.kind == kind][at]


def text(words):
    """Return a text block."""
    return {"type": "text", "text": words}


def use(call, name="mcp__calc__add", **arguments):
    """Return a call as the model makes it."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def times(span):
    """Return the start and end of a span."""
    return span.start, span.end


def test_a_turn_with_a_tool_call():
    """Start, turn, model, tool and function: nested, with the times of their frames."""
    run = Run()
    begun = run.start("What is 1 + 1?")
    called = run.say(text("I add."), use("t1", a=1))
    hook = run.ask(
        "h1", "hook_callback", tool_use_id="t1", input={"hook_event_name": "PreToolUse", "tool_name": "x"}
    )
    run.answer("h1", {"continue": True})
    asked = run.ask("p1", "can_use_tool", tool_name="mcp__calc__add", tool_use_id="t1", input={"a": 1})
    run.answer("p1", {"behavior": "allow"})
    function = run.call_function("t1")
    run.answer("c1", {"mcp_response": {"id": 2, "result": {"content": [text("2")]}}})
    returned = run.result_of("t1", [text("2")])
    said = run.say(text("It is 2."), id="msg_2")
    usage = {"m1": {"inputTokens": 30, "outputTokens": 20, "cacheReadInputTokens": 5}}
    ended = run.end(total_cost_usd=0.25, modelUsage=usage)
    assert run.tree() == [
        "start Start of Claude Code",
        "turn What is 1 + 1?",
        "  model m1",
        "  tool calc: add",
        "    hook PreToolUse",
        "    permission May Claude use calc: add?",
        "    mcp add runs in calc",
        "  model m1",
    ]
    assert times(run.find("start")) == (0.0, 2.0)
    assert times(run.find("turn")) == (3.0, ended)
    assert times(run.find("model")) == (begun, called)
    assert times(run.find("tool")) == (called, returned)
    assert times(run.find("hook")) == (hook, hook + 1)
    assert times(run.find("permission")) == (asked, asked + 1)
    assert times(run.find("mcp")) == (function, function + 1)
    assert times(run.find("model", 1)) == (returned, said)
    tool = run.find("tool")
    assert (tool.name, tool.input, tool.output) == ("mcp__calc__add", {"a": 1}, [text("2")])
    assert run.find("permission").output == {"behavior": "allow"}
    assert run.find("model").output["text"] == "I add."
    assert run.find("model").output["calls"] == ["mcp__calc__add"]
    summary = run.timeline.summary
    assert (summary.cost_usd, summary.turns, summary.model, summary.session_id) == (0.25, 1, "m1", "s1")
    assert (summary.tokens.input_tokens, summary.tokens.output_tokens, summary.tokens.cache_read_tokens) == (
        30,
        20,
        5,
    )
    assert (summary.tool_calls, summary.model_calls, summary.permission_questions) == (1, 2, 1)
    assert (summary.prompts, summary.is_over, summary.error) == (["What is 1 + 1?"], True, None)
    assert summary.duration == ended
    assert run.timeline.problems() == []
    for span in run.timeline.spans:
        assert [run.timeline.frames[number].number for number in span.frames] == span.frames


def test_it_serves_a_run_that_goes_on():
    """A span that is running has no end, and `add` returns the spans that were opened or changed."""
    run = Run()
    run.prompt("go")
    assert [each.kind for each in run.changed] == ["turn", "model"]
    assert [each.end for each in run.changed] == [None, None]
    assert not run.timeline.summary.is_over
    run.say(use("t1"))
    assert [each.kind for each in run.changed] == ["model", "tool"]
    assert run.find("tool").end is None
    assert run.timeline.summary.tokens.input_tokens == 3, "counted before the result tells"
    run.result_of("t1")
    assert [each.kind for each in run.changed] == ["tool", "model"]
    run.end()
    assert run.timeline.summary.is_over
    assert run.tree()[-1] == "  model Model (no request)", "nothing says that it was"


def test_partial_messages_measure_the_model():
    """The status of the request and the stream give the exact start and end of a response."""
    run = Run()
    run.start()
    asked = run.cli(type="system", subtype="status", status="requesting")
    usage = {"input_tokens": 7, "output_tokens": 1}
    first = run.cli(
        type="stream_event",
        event={"type": "message_start", "message": {"id": "msg_1", "model": "m1", "usage": usage}},
    )
    run.say(use("t1"))
    done = run.result_of("t1")
    run.cli(
        type="stream_event",
        event={"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    )
    stopped = run.cli(type="stream_event", event={"type": "message_stop"})
    model = run.find("model")
    assert times(model) == (asked, stopped)
    assert model.output["first_token"] == first - asked
    assert model.output["stop_reason"] == "tool_use"
    assert model.output["usage"]["output_tokens"] == 9
    assert done < stopped
    assert run.find("model", 1).start == stopped, (
        "a tool was done before the model was: it is asked after both"
    )


def test_blocks_of_one_response_are_one_span():
    """A result between two blocks of one response does not split it into two spans."""
    run = Run()
    run.start()
    run.say(use("t1"))
    run.result_of("t1")
    last = run.say(use("t2"))
    returned = run.result_of("t2")
    run.say(text("done"), id="msg_2")
    run.end()
    assert run.find("model").end == last
    assert run.find("model", 1).start == returned
    assert [each.kind for each in run.timeline.spans].count("model") == 2


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ({"subtype": "error_max_turns", "is_error": True}, "the turn limit (max_turns) was reached"),
        ({"is_error": True, "result": "API Error: 529"}, "API Error: 529"),
        (
            {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"},
            "interrupted while a tool was running",
        ),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["it broke"]}, "it broke"),
        ({"is_error": True, "subtype": "", "result": None}, "no reason was given"),
    ],
)
def test_why_a_turn_failed(end, why):
    """The reason is in words, and the first of all problems."""
    run = Run()
    run.start()
    run.say(use("t1"))
    run.result_of("t1", "no such file", is_error=True)
    run.cli(**{"type": "result", "subtype": "success", **end})
    problems = run.timeline.problems()
    assert (problems[0].why, problems[0].fatal, problems[0].title) == (why, True, "go")
    assert (problems[1].why, problems[1].fatal, problems[1].title) == ("no such file", False, "calc: add")
    assert run.timeline.summary.error == why
    assert run.timeline.summary.failures == 2


def test_a_failed_function_counts_once():
    """The function's failure and its call's failure are one problem."""
    run = Run()
    run.start()
    run.say(use("t1"))
    run.call_function("t1")
    failure = {"content": [text("ZeroDivisionError")], "isError": True}
    run.answer("c1", {"mcp_response": {"id": 2, "result": failure}})
    run.result_of("t1", "ZeroDivisionError", is_error=True)
    assert run.find("mcp").failed == "ZeroDivisionError"
    assert [(each.title, each.why) for each in run.timeline.problems()] == [
        ("calc: add", "ZeroDivisionError")
    ]


def test_a_denied_call():
    """The call failed, with the reason; the permission request itself did not."""
    run = Run()
    run.start()
    run.say(use("t1", "Bash"), use("t2", "Write"))
    run.ask("p1", "can_use_tool", tool_name="Bash", tool_use_id="t1", input={})
    run.answer("p1", {"behavior": "deny", "message": "too dear"})
    run.result_of("t1", "too dear", is_error=True)
    run.cli(type="system", subtype="permission_denied", tool_use_id="t2", message="a rule")
    run.result_of("t2", "no", is_error=True)
    assert run.find("permission").failed is None
    assert [each.failed for each in run.timeline.spans if each.kind == "tool"] == [
        "permission denied: too dear",
        "permission denied: a rule",
    ]


def test_an_interrupt_and_what_was_cancelled():
    """A cancelled function and a cancelled permission request end at once; a late response changes nothing."""
    run = Run()
    run.start()
    run.say(use("t1"), use("t2", "Bash"))
    run.call_function("t1")
    run.ask("p1", "can_use_tool", tool_name="Bash", tool_use_id="t2", input={})
    interrupt = run.host(type="control_request", request_id="2", request={"subtype": "interrupt"})
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 2, "reason": "AbortError"}}
    cancelled = run.ask("n1", "mcp_message", server_name="calc", message=cancel)
    withdrawn = run.cli(type="control_cancel_request", request_id="p1")
    done = run.cli(type="control_response", response={"subtype": "success", "request_id": "2"})
    run.answer("c1", {"mcp_response": {"id": 2, "result": {"content": []}}})
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "is_error": True,
        "content": "The user doesn't want",
    }
    meta = [{"id": "t1", "non_execution_kind": "user-rejected"}]
    run.cli(type="user", message={"content": [result]}, tool_result_meta=meta)
    run.cli(type="result", subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    assert (run.find("mcp").end, run.find("mcp").failed) == (
        cancelled,
        "cancelled by Claude Code (AbortError)",
    )
    assert (run.find("permission").end, run.find("permission").failed) == (
        withdrawn,
        "cancelled by Claude Code",
    )
    assert times(run.find("control")) == (interrupt, done)
    assert run.find("tool").failed == "interrupted"
    assert run.find("tool", 1).failed == "interrupted while a tool was running", "it had no result of its own"
    assert run.timeline.summary.is_over


def test_a_subagent_in_the_background_outlasts_its_call_and_turn():
    """Its frames nest below it; it ends with its task, and wakes a turn without a prompt."""
    run = Run()
    run.start()
    run.say(use("t1", "Agent", description="look", prompt="Look.", subagent_type="helper"))
    started = run.cli(
        type="system", subtype="task_started", task_id="a1", tool_use_id="t1", task_type="local_agent"
    )
    launched = {"type": "tool_result", "tool_use_id": "t1", "content": "launched"}
    run.cli(type="user", message={"content": [launched]}, tool_use_result={"isAsync": True})
    run.say(use("t2"), id="msg_2", agent="t1")
    run.call_function("t2")
    run.answer("c1", {"mcp_response": {"id": 2, "result": {"content": []}}})
    run.say(text("noted"), id="msg_3")
    run.end()
    assert not run.timeline.summary.is_over
    run.result_of("t2", agent="t1")
    run.say(text("found"), id="msg_4", agent="t1")
    hook = {"hook_event_name": "SubagentStop", "agent_id": "a1"}
    run.ask("h1", "hook_callback", tool_use_id="made-up", input=hook)
    run.answer("h1", {})
    over = run.cli(
        type="system", subtype="task_notification", task_id="a1", status="completed", summary="found it"
    )
    run.init()
    run.say(text("ah"), id="msg_5")
    run.end(origin={"kind": "task-notification"})
    assert run.tree()[1:] == [
        "turn go",
        "  model m1",
        "  tool Agent",
        "    subagent look",
        "      model m1",
        "      tool calc: add",
        "        mcp add runs in calc",
        "      model m1",
        "      hook SubagentStop",
        "  model m1",
        "turn Background task finished",
        "  model m1",
    ]
    agent = run.find("subagent")
    assert times(agent) == (started, over)
    assert (agent.name, agent.input, agent.output) == ("helper", "Look.", "found it")
    assert run.timeline.summary.is_over


def test_a_subagent_that_is_waited_for_ends_with_its_call():
    """And a call in a nested one, which the CLI does not report, is known by its function."""
    run = Run()
    run.start()
    run.say(use("t1", "Task", description="look", subagent_type="helper"))
    run.say(use("t2", "Task", description="deeper"), id="msg_2", agent="t1")
    run.cli(type="system", subtype="task_started", task_id="a2", tool_use_id="t2", subagent_type="deep")
    hook = {
        "hook_event_name": "PreToolUse",
        "tool_name": "mcp__calc__add",
        "tool_input": {"a": 1},
        "agent_id": "a2",
    }
    run.ask("h1", "hook_callback", tool_use_id="t3", input=hook)
    run.answer("h1", {})
    run.call_function("t3")
    ran = run.answer("c1", {"mcp_response": {"id": 2, "result": {"content": [text("2")]}}})
    run.result_of("t2", "deep done", agent="t1")
    ended = run.result_of("t1", "done")
    assert run.tree()[2:-1] == [
        "  model m1",
        "  tool Task",
        "    subagent look",
        "      model m1",
        "      tool Task",
        "        subagent deeper",
        "          model Model (no request)",
        "          tool calc: add",
        "            hook PreToolUse",
        "            mcp add runs in calc",
        "      model Model (no request)",
    ]
    nested = next(each for each in run.timeline.spans if each.name == "mcp__calc__add")
    assert (nested.end, nested.output) == (ran, [text("2")])
    assert run.find("subagent").end == ended


def test_a_retry_is_a_part_of_the_request():
    """It lasts as long as the CLI announced, or until the response arrives."""
    run = Run()
    begun = run.start()
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "max_retries": 10,
        "error_status": 529,
        "error": "overloaded",
    }
    first = run.cli(**retry, attempt=1, retry_delay_ms=500)
    second = run.cli(**retry, attempt=2, retry_delay_ms=60_000)
    said = run.say(text("done"))
    run.end()
    assert run.tree()[2:] == ["  model m1", "    retry Retry after 0.5 s", "    retry Retry after 60 s"]
    assert times(run.find("model")) == (begun, said)
    assert times(run.find("retry")) == (first, first + 0.5)
    assert times(run.find("retry", 1)) == (second, said)
    assert run.find("retry").failed == "the model's API returned: overloaded (HTTP 529), attempt 1 of 10"
    assert (run.timeline.summary.failures, run.timeline.summary.error) == (0, None)


def test_prompts_that_wait():
    """A prompt during a turn gets its own turn; if the CLI is idle after the turn, it was answered in that one."""
    run = Run()
    run.start("one")
    run.prompt("two")
    run.end()
    assert not run.timeline.summary.is_over
    begun = run.init()
    run.prompt("three")
    run.end()
    run.cli(type="system", subtype="session_state_changed", state="idle")
    turns = [each for each in run.timeline.spans if each.kind == "turn"]
    assert [each.input for each in turns] == ["one", ["two", "three"]]
    assert turns[1].start == begun
    assert run.timeline.summary.prompts == ["one", "two", "three"]
    assert run.timeline.summary.is_over


def test_an_elicitation_belongs_to_the_call_that_needs_it():
    """The span has the question and the answer."""
    run = Run()
    run.start()
    run.say(use("t1", "mcp__other__x"), use("t2"))
    run.ask("e1", "elicitation", mcp_server_name="calc", message="Which currency?")
    run.answer("e1", {"action": "accept", "content": {"currency": "EUR"}})
    asked = run.find("elicitation")
    assert run.timeline.spans[asked.parent].name == "mcp__calc__add"
    assert (asked.title, asked.output["content"]) == ("Which currency?", {"currency": "EUR"})


def test_hooks_of_settings_and_servers_that_failed():
    """They are found in the CLI's hook events and in its list of servers."""
    run = Run()
    run.prompt("go")
    servers = [{"name": "db", "status": "failed"}, {"name": "web", "status": "needs-auth"}]
    for _ in range(2):
        run.cli(type="system", subtype="init", mcp_servers=servers)
    run.cli(type="system", subtype="hook_started", hook_id="1", hook_event="Stop", hook_name="Stop:lint")
    run.cli(
        type="system",
        subtype="hook_response",
        hook_id="1",
        outcome="error",
        exit_code=2,
        stderr="lint failed",
    )
    assert [(each.title, each.why) for each in run.timeline.problems()] == [
        ("MCP server db", "Claude Code could not connect to it"),
        ("MCP server web", "it requires authentication"),
        ("Stop", "lint failed"),
    ]


def test_an_error_of_a_control_request():
    """For requests of the host and of the CLI, the text of the error is the reason."""
    run = Run()
    run.start()
    run.host(type="control_request", request_id="2", request={"subtype": "set_model", "model": "x"})
    run.cli(
        type="control_response", response={"subtype": "error", "request_id": "2", "error": "no such model"}
    )
    run.ask("h1", "hook_callback", input={"hook_event_name": "Stop"})
    run.host(
        type="control_response", response={"subtype": "error", "request_id": "h1", "error": "KeyError: 'x'"}
    )
    assert (run.find("control").title, run.find("control").failed) == ("set_model", "no such model")
    assert run.find("hook").failed == "KeyError: 'x'"


def test_an_exit_ends_everything():
    """Each span that was open, and the run, get the exit as the reason."""
    run = Run()
    run.start()
    run.say(use("t1"))
    changed = run.timeline.finish(99.0, 137)
    assert {each.kind for each in changed} == {"turn", "tool"}
    assert all(each.end is not None for each in run.timeline.spans)
    assert run.find("tool").failed == "Claude Code exited before this finished (exit code 137)"
    summary = run.timeline.summary
    assert (summary.is_over, summary.error, summary.duration) == (
        True,
        "Claude Code exited with code 137",
        99.0,
    )
    assert [each.fatal for each in run.timeline.problems()] == [True, True]


def test_a_history():
    """Spans get their times from the entries; a turn ends where the next begins, and no result frame is needed."""
    writer = Writer()
    at = writer.answer(writer.ask(None, "first"), "calling", calls=2)
    at = writer.answer(at, "done")
    at = writer.answer(writer.ask(at, "second"), "calling", calls=1, finish_order=[5])
    helper = [{**each, "isSidechain": True} for each in writer.lines[:2]]
    below = LoadedTranscript(helper, {"toolUseId": "toolu_2_0", "agentType": "helper"})
    timeline = read_session(
        RecordedSession(SESSION, "p", LoadedTranscript(writer.lines), {"subagents/agent-1": below})
    )
    kinds = ["  " * each.depth + each.kind for each in timeline.in_order()]
    assert kinds[0] == "turn"
    assert kinds.count("turn") == 2
    assert kinds.count("  tool") == 3
    turns = [each for each in timeline.spans if each.kind == "turn"]
    prompts = [
        n
        for n, each in enumerate(writer.lines)
        if each["type"] == "user" and each["message"]["content"] in ("first", "second")
    ]
    assert [each.start for each in turns] == [float(number) for number in prompts]
    assert turns[0].end == prompts[1] - 1
    assert timeline.summary.prompts == ["first", "second"]
    assert timeline.summary.is_over
    lost = [each for each in timeline.spans if each.failed]
    assert [(each.kind, each.failed) for each in lost] == [("tool", "no result was recorded")]
    assert {each.frame["uuid"] for each in timeline.frames} == {each["uuid"] for each in writer.lines}


def test_an_empty_history():
    """A session without entries has no spans."""
    timeline = read_session(RecordedSession(SESSION, "p", LoadedTranscript([]), {}))
    assert (timeline.spans, timeline.summary.is_over) == ([], True)


class Tapped:
    """A transport that passes its frames on to a timeline, one second apart."""

    def __init__(self, transport, timeline):
        self.transport = transport
        self.timeline = timeline

    def __getattr__(self, name):
        return getattr(self.transport, name)

    def add(self, direction, frame):
        """Add a frame, a second after the one before it."""
        self.timeline.add(float(len(self.timeline.frames)), direction, frame)

    async def write(self, data):
        """Write, and add each frame of the host."""
        for line in data.splitlines():
            self.add("out", json.loads(line))
        await self.transport.write(data)

    async def read_messages(self):
        """Read, and add each frame of the CLI."""
        async for frame in self.transport.read_messages():
            self.add("in", frame)
            yield frame


async def run_live(timeline, calc, *steps, **options):
    """Run the scripted CLI with a timeline; returns the main spans as text, indented."""
    given = ClaudeAgentOptions(
        mcp_servers={"calc": calc},
        spawn_claude_code_process=lambda command: Tapped(ScriptedCLI(steps)(command), timeline),
        **options,
    )
    with anyio.fail_after(30):
        await run("go", options=given)
    kinds = ("turn", "tool", "mcp", "permission")
    spans = [each for each in timeline.in_order() if each.kind in kinds]
    return [
        "  " * each.depth + f"{each.kind} {each.title}"
        for each in spans
        if each.name not in ("initialize", "tools/list")
    ]


@pytest.mark.anyio
async def test_a_live_run_of_the_scripted_cli():
    """Spans are open while they run, and closed when the run is over."""
    calc = ToolServer("calc")
    timeline = Timeline()
    seen = []

    @calc.tool
    def add(a: int, b: int) -> int:
        """Add."""
        seen.extend(each.kind for each in timeline.spans if each.end is None)
        return a + b

    steps = [call("mcp__calc__add", a=1, b=2), say("done")]
    tree = await run_live(timeline, calc, *steps, allowed_tools=["mcp__calc"])
    assert tree == ["turn go", "  tool calc: add", "    mcp add runs in calc"]
    assert seen == ["turn", "tool", "mcp"]
    assert all(each.end is not None for each in timeline.spans)
    assert timeline.summary.is_over
    assert timeline.problems() == []


@pytest.mark.anyio
async def test_a_live_run_in_which_a_call_fails_and_one_is_denied():
    """Both problems have their reason."""
    calc = ToolServer("calc")

    @calc.tool
    def fails() -> str:
        """Fail."""
        raise ValueError("no")

    @calc.tool
    def buy() -> str:
        """Buy."""
        return "bought"

    async def decide(tool, _arguments, _context):
        return PermissionResultDeny(message="never") if tool == "mcp__calc__buy" else PermissionResultAllow()

    timeline = Timeline()
    steps = [turn(say("I try."), call("mcp__calc__fails"), call("mcp__calc__buy")), say("done")]
    assert await run_live(timeline, calc, *steps, can_use_tool=decide) == [
        "turn go",
        "  tool calc: fails",
        "    permission May Claude use calc: fails?",
        "    mcp fails runs in calc",
        "  tool calc: buy",
        "    permission May Claude use calc: buy?",
    ]
    assert [each.why for each in timeline.problems()] == ["ValueError: no", "permission denied: never"]


def write_recording(path, frames):
    """Write a recording with these frames, a millisecond apart."""
    lines = [{"toolwire_recording": 1, "version": "0", "argv": []}]
    lines += [{"t": n / 1000, "dir": "<", "frame": frame} for n, frame in enumerate(frames)]
    path.write_text("\n".join(json.dumps(each) for each in [*lines, {"t": len(frames) / 1000, "exit": 0}]))


def make_frames(calls):
    """Yield the frames of a long run, four for each call."""
    for n in range(calls):
        yield {
            "type": "assistant",
            "message": {"id": f"m{n}", "content": [use(f"t{n}")], "usage": {"input_tokens": 1}},
        }
        params = {"name": "add", "_meta": {"claudecode/toolUseId": f"t{n}"}}
        message = {"method": "tools/call", "params": params, "id": n}
        request = {"subtype": "mcp_message", "server_name": "calc", "message": message}
        yield {"type": "control_request", "request_id": str(n), "request": request}
        yield {"type": "stream_event", "event": {"type": "content_block_delta"}}
        yield {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": f"t{n}"}]}}


def count_lines(frames):
    """Return how many lines of Python are executed to read a run."""
    timeline = Timeline()
    counted = 0

    def trace(*_):
        nonlocal counted
        counted += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for number, frame in enumerate(frames):
            timeline.add(float(number), "in", frame)
        timeline.problems()
        timeline.in_order()
    finally:
        sys.settrace(before)
    return counted


def test_a_long_run_takes_work_in_proportion():
    """Ten times the frames take ten times the work."""
    small, large = (count_lines(list(make_frames(calls))) for calls in (50, 500))
    assert large < 12 * small


def test_a_recording_has_a_timeline_for_each_connection(tmp_path):
    """A timeline ends with the exit of its CLI; a file that is not a recording is refused."""
    path = tmp_path / "run.jsonl"
    write_recording(path, list(make_frames(3)))
    with path.open("a") as file:
        for line in (
            {"toolwire_recording": 1, "connection": 2},
            {"t": 0.5, "dir": ">", "connection": 2, "frame": {"type": "user", "message": {"content": "hi"}}},
            {"t": 0.75, "exit": 3, "connection": 2},
        ):
            file.write("\n" + json.dumps(line))
    first, second = read_recording(path)
    assert (first.summary.tool_calls, len(first.frames)) == (3, 12)
    assert second.summary.error == "Claude Code exited with code 3"
    (tmp_path / "no.jsonl").write_text("{}")
    with pytest.raises(ValueError, match="not a recording"):
        read_recording(tmp_path / "no.jsonl")


def test_names_and_texts():
    """Tools and content are shown in readable form."""
    assert name_tool("mcp__calc__add__up") == "calc: add__up"
    assert [name_tool(each) for each in ("Bash", "mcp__x", "", "a__b__c")] == [
        "Bash",
        "mcp__x",
        "",
        "a__b__c",
    ]
    assert read_text([text("a"), {"type": "image"}, 7, text("b")]) == "a\n[image]\nb"
    assert [read_text(each) for each in ("x", None, 3, {})] == ["x", "", "", ""]


# --- any frames ---


def check(timeline):
    """Check what holds for any timeline."""
    for number, span in enumerate(timeline.spans):
        assert span.number == number
        assert span.end is None or span.end >= span.start
        assert span.frames
        assert span.title
        assert span.parent is None or timeline.spans[span.parent].depth == span.depth - 1
    assert len(timeline.in_order()) == len(timeline.spans)
    assert all(each.why for each in timeline.problems())
    assert timeline.summary.tokens.tokens >= 0


@given(st.lists(st.tuples(MOMENTS, st.sampled_from(["in", "out"]), FRAMES | TYPED), max_size=25))
def test_no_frame_makes_it_raise(frames):
    """The frames have unknown types, missing fields and wrong types, in any order and at any time."""
    timeline = Timeline()
    for number, (t, direction, frame) in enumerate(frames):
        before = json.dumps(frame)
        changed = timeline.add(t, direction, frame)
        assert all(timeline.spans[each.number] is each for each in changed)
        assert timeline.frames[number].frame is frame
        assert json.dumps(frame) == before
        check(timeline)
    timeline.finish(1.0, 1)
    assert all(each.end is not None for each in timeline.spans)
    check(timeline)


GOOD = [
    frame
    for kind in range(2)
    for frame in (
        {"type": "user", "message": {"content": "go"}},
        {"type": "system", "subtype": "init"},
        {"type": "system", "subtype": "status", "status": "requesting"},
        {"type": "system", "subtype": "api_retry", "retry_delay_ms": 5},
        {"type": "system", "subtype": "session_state_changed", "state": "idle"},
        {
            "type": "system",
            "subtype": "task_started",
            "task_id": "a",
            "tool_use_id": "t0",
            "task_type": "local_agent",
        },
        {"type": "system", "subtype": "task_notification", "task_id": "a", "status": "completed"},
        {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}},
        {"type": "stream_event", "event": {"type": "message_stop"}, "parent_tool_use_id": "t0"},
        {"type": "assistant", "message": {"id": "m", "content": [use(f"t{kind}")]}},
        {"type": "assistant", "message": {"id": "n", "content": [use("t1")]}, "parent_tool_use_id": "t0"},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": f"t{kind}"}]}},
        {
            "type": "control_request",
            "request_id": "r",
            "request": {"subtype": "can_use_tool", "tool_use_id": "t1"},
        },
        {"type": "control_response", "response": {"request_id": "r", "response": {"behavior": "deny"}}},
        {"type": "control_cancel_request", "request_id": "r"},
        {"type": "result", "subtype": "success"},
        {"type": "result", "subtype": "success", "origin": {"kind": "task-notification"}},
    )
]


@given(st.lists(st.tuples(MOMENTS, st.sampled_from(["in", "out"]), st.sampled_from(GOOD)), max_size=40))
def test_good_frames_in_any_order(frames):
    """Each frame is valid by itself, but they are in random order."""
    timeline = Timeline()
    for t, direction, frame in frames:
        timeline.add(t, direction, frame)
        check(timeline)
    timeline.finish(float(len(frames)))
    check(timeline)


def test_the_fuzz_corpus():
    """The corpus has all frames that ever broke a parser."""
    timeline = Timeline()
    for file in sorted((CORPUS / "parse").iterdir()):
        try:
            document = json.loads(file.read_bytes())
        except ValueError:
            continue
        for frame in document if isinstance(document, list) else [document]:
            if isinstance(frame, dict):
                timeline.add(1.0, "in", frame)
                timeline.add(1.0, "out", frame)
    check(timeline)
    assert len(timeline.frames) > 20


def test_found_by_changing_real_frames():
    """A model's name may be only spaces, and a part of a response may come after its turn."""
    run = Run()
    run.start()
    run.say(use("t1"))
    run.result_of("t1")
    run.end()
    late = {"id": "msg_1", "model": "  ", "content": [text("late")]}
    run.timeline.add(3.0, "in", {"type": "assistant", "message": late})
    check(run.timeline)


def test_deep_and_long_values():
    """They are kept without being read through, and titles stay short."""
    deep = json.loads("[" * 900 + "]" * 900)
    timeline = Timeline()
    timeline.add(0.0, "out", {"type": "user", "message": {"content": "x" * 5_000_000}})
    timeline.add(0.0, "in", {"type": "assistant", "message": {"content": deep, "id": deep}})
    timeline.add(
        0.0, "in", {"type": "user", "message": {"content": [{"type": "tool_result", "content": deep}]}}
    )
    check(timeline)
    assert all(len(each.title) < 200 for each in timeline.spans)
