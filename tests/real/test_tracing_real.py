"""Observers and spans with the real CLI: what it says about tokens and costs is counted once."""

import anyio
import pytest

from shared.spans import exporter
from toolwire import (
    ClaudeSDKClient,
    ResultMessage,
    RunObserver,
    ToolServer,
    UserMessage,
    add_observer,
    query,
    remove_observer,
)
from toolwire.testing import call, say

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 90


def server():
    """Return a server with one tool."""
    calc = ToolServer("calc")

    @calc.tool
    def add(a: float, b: float) -> float:
        """Add."""
        return a + b

    return calc


async def test_spans_of_a_client_with_two_turns_add_up(scripted):
    """Spans have the tokens of each turn, although the CLI reports costs and models of the whole session."""
    exporter().clear()
    script = [call("mcp__calc__add", a=15, b=27), say("42"), say("again")]
    results = []
    with anyio.fail_after(LIMIT):
        async with (
            scripted(script, mcp_servers={"calc": server()}, allowed_tools=["mcp__calc"], tracing=True) as (
                _model,
                options,
            ),
            ClaudeSDKClient(options) as client,
        ):
            for _ in range(2):
                await client.query("What is 15 + 27?")
                async for message in client.receive_response():
                    if isinstance(message, ResultMessage):
                        results.append(message)
    spans = exporter().get_finished_spans()
    assert sorted(span.name for span in spans) == [
        "execute_tool add",
        "invoke_agent",
        "invoke_agent",
        "toolwire.run",
    ]
    for kind in ("input_tokens", "output_tokens"):
        counted = sum(span.attributes.get(f"gen_ai.usage.{kind}", 0) for span in spans)
        assert counted == sum(each.usage[kind] for each in results)
    cost = sum(span.attributes.get("toolwire.cost_usd", 0) for span in spans)
    assert cost == pytest.approx(results[-1].total_cost_usd)
    turn = next(span for span in spans if span.name == "invoke_agent")
    assert turn.attributes["gen_ai.conversation.id"] == results[0].session_id
    assert turn.attributes["gen_ai.request.model"]


async def test_an_observer_sees_a_query(scripted):
    """An observer gets the prompt, the tool call, the result and the end of a query."""
    seen = []

    class Seen(RunObserver):
        def message(self, direction, message):
            if isinstance(message, UserMessage | ResultMessage):
                seen.append((direction, type(message).__name__))

        def call(self, call):
            seen.append((call.kind, call.name))

        def end(self, error):
            seen.append(("end", error))

    def start(_run):
        return Seen()

    add_observer(start)
    try:
        with anyio.fail_after(LIMIT):
            async with scripted(
                [call("mcp__calc__add", a=15, b=27), say("42")],
                mcp_servers={"calc": server()},
                allowed_tools=["mcp__calc"],
            ) as (_model, options):
                async for _ in query(prompt="What is 15 + 27?", options=options):
                    pass
    finally:
        remove_observer(start)
    assert seen == [
        ("out", "UserMessage"),
        ("tool", "add"),
        ("in", "UserMessage"),
        ("in", "ResultMessage"),
        ("end", None),
    ]
