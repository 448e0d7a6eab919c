"""The timeline of runs of the real CLI: order and nesting of spans, and their times against the recording's."""

import anyio
import pytest

from shared.waiting import eventually
from toolwire import (
    AgentDefinition,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolServer,
    run,
)
from toolwire.sessions.recorded import open_session
from toolwire.studio.timeline import read_recording, read_session
from toolwire.testing import call, fail, hang, say, turn
from toolwire.testing.recording import Recorder, load

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 90


def make_shop():
    """Return a server with a tool that works, one that fails and one that needs permission."""
    shop = ToolServer("shop")

    @shop.tool
    async def add(a: float, b: float) -> float:
        """Add."""
        return a + b

    @shop.tool
    async def divide(a: float, b: float) -> float:
        """Divide."""
        return a / b

    @shop.tool
    async def buy(item: str) -> str:
        """Buy."""
        return f"bought {item}"

    return shop


async def decide(_tool, given, _context):
    """Deny gold, allow everything else."""
    return PermissionResultDeny(message="too dear") if given["item"] == "gold" else PermissionResultAllow()


async def observe(_event, _call, _context):
    """A hook that changes nothing."""
    return {}


class Conductor:
    """A model that plays the main agent by a list of steps, and the helper beside it."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, request):
        """Return the next step, or that of the helper."""
        if "You are the helper" in str(request.body.get("system")):
            worked = "tool_result" in str(request.body["messages"])
            return say("helper done") if worked else call("mcp__shop__add", a=2, b=2)
        return self.steps.pop(0)


def script(*, in_background):
    """Return a model: two tools at once, of which one fails; two purchases; a subagent; a retry."""
    return Conductor(
        turn(say("I add."), call("mcp__shop__add", a=15, b=27), call("mcp__shop__divide", a=1, b=0)),
        call("mcp__shop__buy", item="tea"),
        call("mcp__shop__buy", item="gold"),
        call(
            "Agent", description="help", prompt="Add", subagent_type="helper", run_in_background=in_background
        ),
        fail(529, retry_after=0.1),
        say("done"),
        say("again done"),
    )


def options_for(path, **more):
    """Return options with a hook for one tool, a permission request for another, and a helper."""
    return {
        "mcp_servers": {"shop": make_shop()},
        "allowed_tools": ["mcp__shop__add", "mcp__shop__divide", "Agent"],
        "can_use_tool": decide,
        "hooks": {"PreToolUse": [HookMatcher(matcher="mcp__shop__divide", hooks=[observe])]},
        "agents": {
            "helper": AgentDefinition(
                description="helps", prompt="You are the helper", tools=["mcp__shop__add"]
            )
        },
        "spawn_claude_code_process": Recorder(path),
        **more,
    }


def of_kind(timeline, kind, name=None):
    """Return the spans of a kind, or of a kind and a name."""
    return [each for each in timeline.spans if each.kind == kind and name in (None, each.name)]


def tree(timeline):
    """Return the spans as indented text, without the handshake of servers."""
    return [
        "  " * each.depth + ("retry" if each.kind == "retry" else f"{each.kind} {each.title}")
        for each in timeline.in_order()
        if each.name not in ("initialize", "tools/list") or each.kind == "start"
    ]


def moments(entries, matches):
    """Return the times of the frames in the recording that match."""
    return [each.t for each in entries if each.kind in "<>" and matches(each)]


def has(entry, *words):
    """Return True if the frame mentions all of the words."""
    return all(word in str(entry.frame) for word in words)


@pytest.mark.filterwarnings("ignore::toolwire.CanUseToolShadowedWarning")
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
async def test_a_run_with_everything(scripted, tmp_path, partial):
    """Spans of tools, permissions, hooks, subagents, retries and turns have the right order, nesting and times."""
    path = tmp_path / "run.jsonl"
    given = options_for(path, include_partial_messages=partial, forward_subagent_text=True)
    async with scripted([script(in_background=False)] * 9, **given) as (_, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                for prompt in ("go", "again"):
                    await client.query(prompt)
                    async for _ in client.receive_response():
                        pass
    (timeline,) = read_recording(path)
    (entries,) = load(path)
    assert tree(timeline) == EXPECTED
    check_times(timeline, entries, partial)

    summary = timeline.summary
    assert summary.prompts == ["go", "again"]
    assert (summary.turns, summary.tool_calls, summary.permission_questions) == (2, 6, 2)
    assert (summary.is_over, summary.error, summary.failures) == (True, None, 2)
    results = [each.frame for each in entries if each.frame.get("type") == "result"]
    assert summary.cost_usd == results[-1]["total_cost_usd"]
    usage = list(results[-1]["modelUsage"].values())
    assert summary.tokens.output_tokens == sum(each["outputTokens"] for each in usage)
    assert summary.session_id == results[-1]["session_id"]
    assert [(each.title, each.why) for each in timeline.problems()][:2] == [
        ("shop: divide", "ZeroDivisionError: float division by zero"),
        ("shop: buy", "permission denied: too dear"),
    ]
    assert "overloaded" in timeline.problems()[2].why


EXPECTED = [
    "start Start of Claude Code",
    "turn go",
    "  model claude-opus-5-5",
    "  tool shop: add",
    "    mcp add runs in shop",
    "  tool shop: divide",
    "    hook PreToolUse",
    "    mcp divide runs in shop",
    "  model claude-opus-5-5",
    "  tool shop: buy",
    "    permission May Claude use shop: buy?",
    "    mcp buy runs in shop",
    "  model claude-opus-5-5",
    "  tool shop: buy",
    "    permission May Claude use shop: buy?",
    "  model claude-opus-5-5",
    "  tool Agent",
    "    subagent help",
    "      model claude-opus-5-5",
    "      tool shop: add",
    "        mcp add runs in shop",
    "      model claude-opus-5-5",
    "  model claude-opus-5-5",
    "    retry",
    "turn again",
    "  model claude-opus-5-5",
]


def check_times(timeline, entries, partial):
    """Assert that each span has the times of its frames in the recording."""
    (initialized,) = moments(entries, lambda e: e.kind == "<" and has(e, "claude_code_version", "'commands'"))
    (start,) = of_kind(timeline, "start")
    assert (start.start, start.end) == (0.0, initialized)

    prompts = moments(entries, lambda e: e.kind == ">" and e.frame.get("type") == "user")
    results = moments(entries, lambda e: e.frame.get("type") == "result")
    assert [(each.start, each.end) for each in of_kind(timeline, "turn")] == list(
        zip(prompts, results, strict=True)
    )

    uses = moments(entries, lambda e: e.frame.get("type") == "assistant" and has(e, "'tool_use'"))
    tools = of_kind(timeline, "tool")
    assert [each.start for each in tools] == uses
    for tool, number in zip(tools, range(1, 7), strict=True):
        (returned,) = moments(
            entries,
            lambda e, n=number: e.frame.get("type") == "user" and has(e, f"'tool_use_id': 'toolu_{n:04}'"),
        )
        assert tool.end == returned

    for kind, word in (("mcp", "tools/call"), ("hook", "hook_callback"), ("permission", "can_use_tool")):
        spans = of_kind(timeline, kind, "tools/call" if kind == "mcp" else None)
        asked = [each for each in entries if each.kind == "<" and has(each, "control_request", word)]
        assert [each.start for each in spans] == [each.t for each in asked]
        for span, request in zip(spans, asked, strict=True):
            name = request.frame["request_id"]
            (answered,) = moments(entries, lambda e, name=name: e.kind == ">" and has(e, name))
            assert span.end == answered

    (retry,) = of_kind(timeline, "retry")
    (reported,) = [each for each in entries if has(each, "api_retry")]
    assert retry.start == reported.t
    assert retry.end == pytest.approx(reported.t + reported.frame["retry_delay_ms"] / 1000)

    main = [each for each in of_kind(timeline, "model") if timeline.spans[each.parent].kind == "turn"]
    if partial:
        requested = moments(entries, lambda e: has(e, "'requesting'"))
        stopped = moments(entries, lambda e: has(e, "'message_stop'"))
        assert [(each.start, each.end) for each in main] == list(zip(requested, stopped, strict=True))
    else:
        begins = moments(entries, lambda e: e.frame.get("subtype") == "init")
        assert (main[0].start, main[-1].start) == (begins[0], begins[1])
        assert [each.start for each in main[1:-1]] == [tools[n].end for n in (1, 2, 3, 4)]
    for above in timeline.spans:
        for each in timeline.spans:
            if each.parent == above.number:
                assert above.start <= each.start
                assert each.end <= above.end


async def test_an_interrupt(scripted, tmp_path):
    """A turn that is interrupted while the model answers, or while a function runs, says so in the timeline."""
    path = tmp_path / "run.jsonl"
    slow = ToolServer("slow")
    begun = anyio.Event()

    @slow.tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    given = {
        "mcp_servers": {"slow": slow},
        "allowed_tools": ["mcp__slow"],
        "spawn_claude_code_process": Recorder(path),
    }
    async with scripted([call("mcp__slow__wait"), hang()], **given) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("use it")
                await begun.wait()
                await client.interrupt()
                async for _ in client.receive_response():
                    pass
                await client.query("think")
                await eventually(lambda: len(model.requests) == 2)
                await client.interrupt()
                async for _ in client.receive_response():
                    pass
    (timeline,) = read_recording(path)
    turns = of_kind(timeline, "turn")
    assert [each.failed for each in turns] == [
        "interrupted while a tool was running",
        "interrupted while the model was responding",
    ]
    (function,) = of_kind(timeline, "mcp", "tools/call")
    (tool,) = of_kind(timeline, "tool")
    assert function.failed.startswith("cancelled by Claude Code")
    assert tool.failed == "interrupted"
    assert of_kind(timeline, "model")[-1].failed == "interrupted while the model was responding"
    controls = of_kind(timeline, "control", "interrupt")
    assert [timeline.spans[each.parent].number for each in controls] == [each.number for each in turns]
    assert timeline.summary.is_over
    assert timeline.summary.error == "interrupted while the model was responding"


@pytest.mark.filterwarnings("ignore::toolwire.CanUseToolShadowedWarning")
async def test_a_history_is_the_same_run(scripted, tmp_path):
    """The session on disk has the same turns, calls, failures and subagent as the recording, in the same order."""
    path = tmp_path / "run.jsonl"
    given = options_for(path, include_partial_messages=True, forward_subagent_text=True)
    async with scripted([script(in_background=False)] * 8, **given) as (_, options):
        with anyio.fail_after(LIMIT):
            reply = await run("go", options=options)
        home = options.env["HOME"]
        history = read_session(open_session(reply.session_id, config_dir=f"{home}/.claude"))
    (recorded,) = read_recording(path)

    def outline(timeline):
        kinds = ("turn", "model", "tool", "subagent")
        return [
            (each.kind, each.depth, each.title, each.failed)
            for each in timeline.in_order()
            if each.kind in kinds
        ]

    assert outline(history) == outline(recorded)
    assert (history.summary.cost_usd, history.summary.tokens.tokens) == (
        recorded.summary.cost_usd,
        recorded.summary.tokens.tokens,
    )
    assert history.summary.prompts == ["go"]
    measured = [each.end - each.start for each in of_kind(recorded, "tool")]
    for span, seconds in zip(of_kind(history, "tool"), measured, strict=True):
        assert span.end - span.start == pytest.approx(seconds, abs=1.0)
