"""An evaluation runner: cases one after the other through `query()`, scored, with errors as results."""

import asyncio
from dataclasses import dataclass, field, replace

import claude_agent_sdk as sdk
import claude_agent_sdk.types as t
from claude_agent_sdk import ClaudeAgentOptions, query
from claude_agent_sdk._errors import MessageParseError

BASE = ClaudeAgentOptions(setting_sources=[], max_turns=2, tools=[], model="claude-sonnet-4-5")


@dataclass
class Case:
    """A prompt, and what the answer must contain."""

    prompt: str
    wanted: str
    options: ClaudeAgentOptions = field(default_factory=lambda: BASE)


async def run(case):
    """Score one case."""
    texts, cost, tokens = [], 0.0, 0
    try:
        async for message in query(prompt=case.prompt, options=case.options):
            match message:
                case sdk.AssistantMessage(content=content, model=model):
                    texts += [block.text for block in content if isinstance(block, t.TextBlock)]
                    texts.append(f"({model})")
                case sdk.ResultMessage(total_cost_usd=total, usage=usage):
                    cost, tokens = total or 0.0, usage["output_tokens"]
    except sdk.CLINotFoundError as error:
        return f"not found: {type(error).__mro__[1].__name__}"
    except sdk.ResultError as error:
        return f"failed: {error.subtype} {error.errors}"
    except (sdk.ClaudeSDKError, MessageParseError) as error:
        return f"broken: {type(error).__name__}"
    text = " ".join(texts)
    return f"{'pass' if case.wanted in text else 'FAIL'}: {text!r} {tokens} tokens, {cost > 0}"


async def main():
    """Run all cases."""
    cases = [
        Case("capital of France?", "Paris"),
        Case("capital of Spain?", "Madrid"),
        Case("anything", "", replace(BASE, cli_path="/nowhere/claude")),
    ]
    for case in cases:
        print(case.prompt, "->", await run(case))


asyncio.run(main())
