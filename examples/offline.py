"""Shared by the examples: a conversation without a key and without a network, whose messages are printed.

Each example runs as it is (`python examples/calculator.py`): it uses the real Claude Code CLI, with a scripted
model in place of Claude. With `--live` it uses your own CLI, key and model.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from toolwire import (
    AssistantMessage,
    ClaudeAgentOptions,
    McpLogMessage,
    McpProgressMessage,
    Message,
    ResultMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    query,
)
from toolwire.testing import ClaudeEnvironment, ScriptedModel

LIVE = "--live" in sys.argv


@asynccontextmanager
async def claude(script: Iterable[Any], **options: Any) -> AsyncIterator[ClaudeAgentOptions]:
    """Yield the options for a conversation: scripted, or with `--live` with your own Claude."""
    if LIVE:
        print("Your own CLI, key and model.\n")
        yield ClaudeAgentOptions(**options)
        return
    print("The real CLI with a scripted model: no key, no network. (--live uses your own.)\n")
    async with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        isolated = {"setting_sources": [], "strict_mcp_config": True, **env.options_kwargs()}
        yield ClaudeAgentOptions(**isolated, include_all_messages=True, **options)
        model.assert_finished()


def show(message: Message | Any, since: float) -> None:
    """Print a line for each text, call, result and notification in a message."""
    for line in _lines(message):
        print(f"{time.monotonic() - since:6.2f} s  {line}")


def _lines(message: Any) -> list[str]:
    match message:
        case AssistantMessage():
            texts = [f"Claude: {block.text}" for block in message.content if isinstance(block, TextBlock)]
            return texts + [
                f"calls {block.name} {block.input}"
                for block in message.content
                if isinstance(block, ToolUseBlock)
            ]
        case UserMessage(content=list() as blocks):
            return [
                f"{'error' if block.is_error else 'result'}: {_text(block.content)}"
                for block in blocks
                if isinstance(block, ToolResultBlock)
            ]
        case McpProgressMessage():
            return [f"progress {message.progress:g}/{message.total:g} {message.message or ''}"]
        case McpLogMessage():
            return [f"log [{message.level}] {message.data}"]
        case ResultMessage():
            cost = f", ${message.total_cost_usd or 0:.4f} as computed by the CLI" if LIVE else ""
            return [f"done in {message.num_turns} turns{cost}"]
        case _:
            return []


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return " ".join(block.get("text", f"<{block.get('type')}>") for block in blocks)


async def converse(prompt: str, script: Iterable[Any], **options: Any) -> None:
    """Send a prompt, and show the messages."""
    async with claude(script, **options) as given:
        print(f"You: {prompt}")
        since = time.monotonic()
        async for message in query(prompt=prompt, options=given):
            show(message, since)


def main(conversation: Any) -> None:
    """Run a conversation."""
    asyncio.run(conversation)
