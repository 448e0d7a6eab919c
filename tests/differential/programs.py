"""Programs as people write them for the official SDK; each runs on whichever package it is given.

`python programs.py PACKAGE OPTIONS NAME...` runs them one after the other and prints a line of JSON for everything
that they see. They use only what the official package documents.
"""

import asyncio
import dataclasses
import importlib
import json
import sys
from contextlib import suppress
from pathlib import Path

sdk = importlib.import_module(sys.argv[1]) if __name__ == "__main__" else None


def note(*what):
    """Print what a program sees."""
    sys.stdout.write(json.dumps(what, default=repr) + "\n")


def options(**more):
    """The options that keep the CLI to the scripted model, and a program's own."""
    return sdk.ClaudeAgentOptions(**{**json.loads(sys.argv[2]), **more})


def text_of(message):
    return "".join(block.text for block in message.content if isinstance(block, sdk.TextBlock))


async def quick_start():
    """A question, told apart by `isinstance`."""
    async for message in sdk.query(
        prompt="What is 2 + 2?", options=options(system_prompt="Be brief.", max_turns=1)
    ):
        if isinstance(message, sdk.AssistantMessage):
            note("claude", text_of(message), message.model)
        elif isinstance(message, sdk.ResultMessage) and message.total_cost_usd is not None:
            note("cost is known", message.total_cost_usd >= 0, message.num_turns, message.is_error)


async def by_class_name():
    """A bot that looks the class up in a table, and refuses what it does not know."""
    handlers = {
        "SystemMessage": lambda m: note("system", m.subtype, sorted(m.data)[:3]),
        "AssistantMessage": lambda m: note("assistant", [type(block).__name__ for block in m.content]),
        "UserMessage": lambda m: note("user", type(m.content).__name__),
        "ResultMessage": lambda m: note("result", m.subtype, m.result),
        "RateLimitEvent": lambda m: note("limit", m.rate_limit_info.status),
        "StreamEvent": lambda m: note("event", m.event["type"]),
    }
    async for message in sdk.query(prompt="Hello", options=options(include_partial_messages=True)):
        handlers[type(message).__name__](message)


async def by_match():
    """Positional and keyword patterns."""
    async for message in sdk.query(prompt="Think first", options=options()):
        match message:
            case sdk.SystemMessage("init", {"model": model}):
                note("init", bool(model))
            case sdk.SystemMessage(subtype=subtype):
                note("other", subtype)
            case sdk.AssistantMessage([sdk.ThinkingBlock(thinking, _)], model):
                note("thinks", thinking, model)
            case sdk.AssistantMessage([sdk.TextBlock(text)], _):
                note("says", text)
            case sdk.ResultMessage(result=result, is_error=False):
                note("done", result)


async def several_turns():
    """One client, several prompts, each with its response."""
    async with sdk.ClaudeSDKClient(options=options()) as client:
        for prompt in ("My name is Ada.", "What is my name?"):
            await client.query(prompt)
            messages = [message async for message in client.receive_response()]
            note([type(message).__name__ for message in messages], text_of(messages[-2]), messages[-1].result)
        info = await client.get_server_info()
        note("commands" in info, "output_style" in info)


async def reader_in_the_background():
    """One task reads all the time, another sends prompts; the reader is cancelled at the end."""
    async with sdk.ClaudeSDKClient(options=options()) as client:
        results = asyncio.Queue()

        async def read():
            async for message in client.receive_messages():
                if isinstance(message, sdk.ResultMessage):
                    await results.put(message.result)

        task = asyncio.create_task(read())
        for prompt in ("one", "two"):
            await client.query(prompt)
            note(await asyncio.wait_for(results.get(), 60))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        note("reader", task.cancelled() or task.done())


async def streamed_prompts():
    """An async generator of messages, and the connection made by hand."""

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "Hello"}, "parent_tool_use_id": None}

    client = sdk.ClaudeSDKClient(options())
    await client.connect()
    try:
        await client.query(prompts())
        async for message in client.receive_response():
            note(type(message).__name__)
    finally:
        await client.disconnect()
    try:
        await client.query("too late")
    except sdk.CLIConnectionError as error:
        note("error", str(error))


async def calculator():
    """Tools in this process; what they are called with and what they return is shown."""

    @sdk.tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(args):
        return {"content": [{"type": "text", "text": f"{args['a']} + {args['b']} = {args['a'] + args['b']}"}]}

    @sdk.tool("divide", "Divide one number by another", {"a": float, "b": float})
    async def divide(args):
        if args["b"] == 0:
            return {"content": [{"type": "text", "text": "Error: division by zero"}], "is_error": True}
        return {"content": [{"type": "text", "text": str(args["a"] / args["b"])}]}

    server = sdk.create_sdk_mcp_server(name="calculator", version="2.0.0", tools=[add, divide])
    note(add.name, add.description, divide.name, server["type"], server["name"])
    given = options(mcp_servers={"calc": server}, allowed_tools=["mcp__calc__add", "mcp__calc__divide"])
    async with sdk.ClaudeSDKClient(options=given) as client:
        await client.query("Calculate")
        async for message in client.receive_response():
            if isinstance(message, sdk.AssistantMessage | sdk.UserMessage):
                for block in message.content if isinstance(message.content, list) else []:
                    if isinstance(block, sdk.ToolUseBlock):
                        note("uses", block.name, block.input)
                    elif isinstance(block, sdk.ToolResultBlock):
                        note("result", block.content, block.is_error)
                    elif isinstance(block, sdk.TextBlock):
                        note("text", block.text)


async def hooks():
    """One refuses a command, one adds to the prompt, one stops after a failure."""

    async def guard(hook_input, tool_use_id, context):
        note(
            "guard",
            hook_input["hook_event_name"],
            hook_input["tool_name"],
            bool(tool_use_id),
            sorted(context),
        )
        if "forbidden" in hook_input["tool_input"].get("command", ""):
            return {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "not this one",
                }
            }
        return {}

    async def greet(hook_input, tool_use_id, context):
        note("prompt", hook_input["prompt"], bool(tool_use_id))
        return {
            "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is Monday."}
        }

    given = options(
        allowed_tools=["Bash"],
        hooks={
            "PreToolUse": [sdk.HookMatcher(matcher="Bash", hooks=[guard], timeout=30)],
            "UserPromptSubmit": [sdk.HookMatcher(hooks=[greet])],
        },
    )
    async for message in sdk.query(prompt="Run it", options=given):
        if isinstance(message, sdk.UserMessage) and isinstance(message.content, list):
            note([(type(block).__name__, block.is_error) for block in message.content])
        elif isinstance(message, sdk.ResultMessage):
            note(message.result)


async def permissions():
    """A callback that changes an input, and denies another call."""

    async def decide(name, tool_input, context):
        note(
            "asked", name, sorted(tool_input), isinstance(context, sdk.ToolPermissionContext), context.signal
        )
        if name == "Write":
            return sdk.PermissionResultAllow(updated_input={**tool_input, "content": "changed"})
        return sdk.PermissionResultDeny(message="no", interrupt=False)

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": "Write"}, "parent_tool_use_id": None}

    given = options(can_use_tool=decide, permission_mode="default")
    async for message in sdk.query(prompt=prompts(), options=given):
        if isinstance(message, sdk.UserMessage) and isinstance(message.content, list):
            note([(type(block).__name__, bool(block.is_error)) for block in message.content])
    written = Path(given.cwd, "note.txt")
    note(written.read_text() if written.exists() else None)


async def agents_and_budget():
    """Options that take an object or a limit, and the data of `init`."""
    agents = {
        "reviewer": sdk.AgentDefinition(
            description="Reviews", prompt="Review.", tools=["Read"], model="inherit"
        )
    }
    given = options(agents=agents, max_budget_usd=5.0, setting_sources=[], disallowed_tools=["WebSearch"])
    given = dataclasses.replace(given, max_turns=3)
    async for message in sdk.query(prompt="Go", options=given):
        if isinstance(message, sdk.SystemMessage) and message.subtype == "init":
            note("reviewer" in message.data["agents"], "WebSearch" in message.data["tools"])
        elif isinstance(message, sdk.ResultMessage):
            note(message.subtype, message.result, sorted(message.usage)[:3])


async def failing():
    """The errors that people catch."""
    try:
        async for message in sdk.query(prompt="Fail", options=options()):
            if isinstance(message, sdk.ResultMessage):
                note("result", message.is_error, message.subtype)
    except sdk.ProcessError as error:
        note("process", type(error).__name__, error.exit_code)
    try:
        async for _ in sdk.query(prompt="x", options=options(cli_path="/nowhere/claude")):
            pass
    except sdk.CLINotFoundError as error:
        note("not found", "/nowhere/claude" in str(error))
    except sdk.CLIConnectionError as error:
        note("connection", type(error).__name__)


async def left_early():
    """The loop is left with `break`, and the process goes away."""
    async for message in sdk.query(prompt="Talk", options=options()):
        if isinstance(message, sdk.AssistantMessage):
            note(text_of(message))
            break


if __name__ == "__main__":
    for chosen in sys.argv[3:]:
        note("program", chosen)
        asyncio.run(globals()[chosen]())
