"""`toolwire demo`: a conversation in which Claude calls two functions of this process. Owns them and the script."""

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import typer

import toolwire
from toolwire.cli.shared.printing import markup

if TYPE_CHECKING:
    from rich.console import Console

NEXT = """
Next:
  [bold]toolwire new shop[/]      a project of your own, with tests
  [bold]toolwire demo --live[/]   the same with your own Claude
  [bold]docs/guide.md[/]          your own functions as tools
  [bold]docs/testing.md[/]        test your agent as this demo does"""
Peer = Literal["real", "scripted", "live"]

PROMPT = "What is 15 + 27? And 1 / 0?"
INTRO: dict[Peer, str] = {
    "live": "your own Claude Code CLI, key and model. It may cost money.",
    "real": "the real Claude Code CLI. Claude's part is [bold]scripted[/]: no key, no network, no cost.",
    "scripted": "a [bold]scripted CLI[/] in place of Claude Code, because none was found or --scripted was given. "
    "Claude's part is scripted too: no key, no network, no cost.",
}


def demo(
    live: Annotated[
        bool, typer.Option("--live", help="Use your own CLI, key and model instead of a script.")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use the scripted CLI even if a real one is installed.")
    ] = False,
    next_steps: Annotated[bool, typer.Option(hidden=True, help="Print what to try next.")] = True,
) -> None:
    """Show a conversation in which Claude calls Python functions. Needs no key and no network.

    Examples:

      toolwire demo

      toolwire demo --live    # needs an account
    """
    if live and scripted:
        raise typer.BadParameter("--live and --scripted exclude each other")
    from rich.console import Console  # noqa: PLC0415 - heavy

    console = Console(highlight=False)
    anyio.run(converse, console, "live" if live else "scripted" if scripted else choose_peer())
    if next_steps:
        console.print(NEXT)


def choose_peer() -> Peer:
    """Choose the real CLI if it is installed."""
    from toolwire._transport.find_cli import find_cli  # noqa: PLC0415 - heavy

    try:
        find_cli()
    except toolwire.CLINotFoundError:
        return "scripted"
    return "real"


CODE = '''\
calc = ToolServer("calc")

@calc.tool(read_only=True)
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b

@calc.tool(read_only=True)
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b

options = ClaudeAgentOptions(
    mcp_servers={"calc": calc}, allowed_tools=["mcp__calc"]
)
async for message in query(prompt=PROMPT, options=options):
    print(message)'''
"""The program as it is shown. A test runs it and compares it with the tools here."""


def _show_code(console: "Console") -> None:
    from rich.padding import Padding  # noqa: PLC0415 - heavy
    from rich.syntax import Syntax  # noqa: PLC0415

    code = Syntax(CODE, "python", theme="ansi_dark", background_color="default")
    console.print(Padding(code, (0, 0, 0, 2)))


def calculator() -> "toolwire.ToolServer[None]":
    """Create the server of the demo."""
    calc: toolwire.ToolServer[None] = toolwire.ToolServer("calc")

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


async def converse(console: "Console", peer: Peer) -> None:
    """Run the conversation and print each step."""
    console.print("[bold]The program[/]: two functions, and one call to Claude with them.\n")
    _show_code(console)
    console.print("\n[bold]The run[/]: " + INTRO[peer] + "\n")
    async with AsyncExitStack() as stack:
        options = await _make_options(stack, peer)
        console.print(f"[bold]You[/]: {PROMPT}")
        since = time.monotonic()
        async for message in toolwire.query(prompt=PROMPT, options=options):
            for line in describe(message, priced=peer == "live"):
                console.print(f"[dim]{time.monotonic() - since:6.2f} s[/]  {line}", soft_wrap=True)


async def _make_options(stack: AsyncExitStack, peer: Peer) -> "toolwire.ClaudeAgentOptions":
    given: dict[str, Any] = {"mcp_servers": {"calc": calculator()}, "allowed_tools": ["mcp__calc"]}
    if peer == "live":
        return toolwire.ClaudeAgentOptions(**given)
    if peer == "scripted":
        from toolwire.testing import ScriptedCLI  # noqa: PLC0415

        return toolwire.ClaudeAgentOptions(**given, spawn_claude_code_process=ScriptedCLI(script()))
    from toolwire.testing import ClaudeEnvironment, ScriptedModel  # noqa: PLC0415

    model = await stack.enter_async_context(ScriptedModel(script()))
    env = await stack.enter_async_context(ClaudeEnvironment(model))
    return toolwire.ClaudeAgentOptions(
        **given, **env.options_kwargs(), setting_sources=[], strict_mcp_config=True
    )


def describe(message: object, *, priced: bool) -> list[str]:
    """Describe a message in lines of rich markup. `priced` if the model is a real one, which costs money."""
    if isinstance(message, toolwire.AssistantMessage):
        texts = [each.text for each in message.content if isinstance(each, toolwire.TextBlock)]
        uses = [each for each in message.content if isinstance(each, toolwire.ToolUseBlock)]
        return [
            *(f"[bold]Claude[/]: {markup(text)}" for text in texts),
            *(f"[cyan]calls[/] {markup(each.name)} {markup(str(each.input))}" for each in uses),
        ]
    if isinstance(message, toolwire.UserMessage) and isinstance(message.content, list):
        results = [each for each in message.content if isinstance(each, toolwire.ToolResultBlock)]
        return [
            f"{'[red]error[/]' if each.is_error else '[green]gets[/]'} {_text(each.content)}"
            for each in results
        ]
    if isinstance(message, toolwire.ResultMessage):
        cost = f", ${message.total_cost_usd or 0:.4f} as computed by the CLI" if priced else ""
        return [f"[dim]{message.num_turns} turns{cost}[/]"]
    return []


def _text(content: str | list[dict[str, Any]] | None) -> str:
    blocks = content if isinstance(content, list) else [{"text": content or ""}]
    return markup(" ".join(str(block.get("text", f"<{block.get('type')}>")) for block in blocks))
