"""The conversation of `toolwire demo`: its tools, its script, and its output."""

import time
from contextlib import AsyncExitStack
from typing import Any, Literal

from rich.console import Console

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    CLINotFoundError,
    ResultMessage,
    TextBlock,
    ToolResultBlock,
    ToolServer,
    ToolUseBlock,
    UserMessage,
    query,
)
from toolwire._transport.find_cli import find_cli
from toolwire.cli.shared.printing import markup

Peer = Literal["real", "scripted", "live"]

PROMPT = "What is 15 + 27? And 1 / 0?"
INTRO: dict[Peer, str] = {
    "live": "Your own Claude Code CLI, key and model.",
    "real": "The real Claude Code CLI, and a [bold]scripted[/] model in place of Claude: no key, no network, "
    "no cost.",
    "scripted": "A [bold]scripted CLI[/] in place of Claude Code, because none was found or --scripted was given, "
    "and a scripted model: no key, no network, no cost.",
}


def choose_peer() -> Peer:
    """Choose the real CLI if it is installed."""
    try:
        find_cli()
    except CLINotFoundError:
        return "scripted"
    return "real"


def calculator() -> ToolServer[None]:
    """Create the server of the demo."""
    calc: ToolServer[None] = ToolServer("calc")

    @calc.tool(read_only=True)
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @calc.tool(read_only=True)
    def divide(a: float, b: float) -> float:
        """Divide a by b."""
        return a / b

    return calc


def script() -> list[Any]:
    """Return the script of the model."""
    from toolwire.testing import call, say  # noqa: PLC0415 - not needed with --live

    return [
        call("mcp__calc__add", a=15, b=27),
        call("mcp__calc__divide", a=1, b=0),
        say("15 + 27 is 42, and one cannot divide by zero."),
    ]


async def converse(console: Console, peer: Peer) -> None:
    """Run the conversation and print each step."""
    console.print(INTRO[peer] + "\n")
    async with AsyncExitStack() as stack:
        options = await _make_options(stack, peer)
        console.print(f"[bold]You[/]: {PROMPT}")
        since = time.monotonic()
        async for message in query(prompt=PROMPT, options=options):
            for line in describe(message):
                console.print(f"[dim]{time.monotonic() - since:6.2f} s[/]  {line}", soft_wrap=True)


async def _make_options(stack: AsyncExitStack, peer: Peer) -> ClaudeAgentOptions:
    given: dict[str, Any] = {"mcp_servers": {"calc": calculator()}, "allowed_tools": ["mcp__calc"]}
    if peer == "live":
        return ClaudeAgentOptions(**given)
    if peer == "scripted":
        from toolwire.testing import ScriptedCLI  # noqa: PLC0415

        return ClaudeAgentOptions(**given, spawn_claude_code_process=ScriptedCLI(script()))
    from toolwire.testing import ClaudeEnvironment, ScriptedModel  # noqa: PLC0415

    model = await stack.enter_async_context(ScriptedModel(script()))
    env = await stack.enter_async_context(ClaudeEnvironment(model))
    return ClaudeAgentOptions(**given, **env.options_kwargs(), setting_sources=[], strict_mcp_config=True)


def describe(message: object) -> list[str]:
    """Describe a message in lines of rich markup."""
    if isinstance(message, AssistantMessage):
        texts = [
            f"[bold]Claude[/]: {markup(each.text)}" for each in message.content if isinstance(each, TextBlock)
        ]
        uses = [each for each in message.content if isinstance(each, ToolUseBlock)]
        return texts + [f"[cyan]calls[/] {markup(each.name)} {markup(str(each.input))}" for each in uses]
    if isinstance(message, UserMessage) and isinstance(message.content, list):
        results = [each for each in message.content if isinstance(each, ToolResultBlock)]
        return [
            f"{'[red]error[/]' if each.is_error else '[green]gets[/]'} {_text(each.content)}"
            for each in results
        ]
    if isinstance(message, ResultMessage):
        cost = f"${message.total_cost_usd or 0:.4f}"
        return [f"[dim]{message.num_turns} turns, {cost} as computed by the CLI[/]"]
    return []


def _text(content: str | list[dict[str, Any]] | None) -> str:
    blocks = content if isinstance(content, list) else [{"text": content or ""}]
    return markup(" ".join(str(block.get("text", f"<{block.get('type')}>")) for block in blocks))
