"""The public API as users write it, for type checkers: mypy and pyright both read this file, nothing runs it.

`assert_type` holds the types that users see. A line with an error comment must be an error: both checkers report a
comment that suppresses nothing.
"""

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, assert_type

import toolwire
import toolwire.hooks
import toolwire.messages
import toolwire.permissions
import toolwire.types
from toolwire import (
    AgentDefinition,
    AnyMessage,
    AssistantMessage,
    CallInfo,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ContentBlock,
    Context,
    HookContext,
    HookJSONOutput,
    HookMatcher,
    HookOutcome,
    Hooks,
    McpSdkServerConfig,
    McpServerConfig,
    Message,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PostToolUseHookInput,
    PreToolUseHookInput,
    Reply,
    ResultMessage,
    RunInfo,
    RunObserver,
    SystemMessage,
    TextBlock,
    Tool,
    ToolAnnotations,
    ToolPermissionContext,
    ToolServer,
    ToolUseBlock,
    WarmPool,
    add_observer,
    create_sdk_mcp_server,
    query,
    remove_observer,
    run,
    run_sync,
    startup,
    testing,
    tool,
)
from toolwire.catalog import Catalog
from toolwire.permissions.policies import allow as allow_tools
from toolwire.testing import ScriptedCLI, call, connect, say

# The names are the same wherever they are imported from.
assert_type(toolwire.types.TextBlock("x"), TextBlock)
assert_type(toolwire.messages.TextBlock("x"), TextBlock)
assert_type(toolwire.hooks.HookMatcher(), HookMatcher)
assert_type(toolwire.permissions.PermissionResultAllow(), PermissionResultAllow)
assert_type(toolwire.__version__, str)

# Options.
options = ClaudeAgentOptions(
    model="sonnet",
    allowed_tools=["Read"],
    system_prompt={"type": "preset", "preset": "claude_code", "append": "Be brief."},
    permission_mode="acceptEdits",
    thinking={"type": "enabled", "budget_tokens": 1024},
    mcp_servers={"files": {"command": "server"}},
    agents={"reviewer": AgentDefinition("Reviews code.", "You review code.", tools=["Read"])},
    max_turns=3,
    cwd="/tmp",
)
assert_type(options.allowed_tools, list[str])
assert_type(options.max_turns, int | None)
assert_type(options.inherit_env, bool)
ClaudeAgentOptions(permission_mode="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ClaudeAgentOptions(max_turn=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# Conversations.
async def use_query() -> None:
    messages = query(prompt="hello", options=options)
    async for message in messages:
        assert_type(message, Message)
        if isinstance(message, AssistantMessage):
            assert_type(message.content, list[ContentBlock])
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    assert_type(block.input, dict[str, Any])
        elif isinstance(message, ResultMessage):
            assert_type(message.total_cost_usd, float | None)
        elif isinstance(message, SystemMessage):
            assert_type(message.data, dict[str, Any])


async def stream_prompts() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "hello"}}


async def use_client() -> None:
    async with ClaudeSDKClient(options) as client:
        assert_type(client, ClaudeSDKClient)
        await client.query("hello")
        await client.query(stream_prompts())
        async for message in client.receive_response():
            assert_type(message, Message)
        await client.set_permission_mode("plan")
        await client.set_model("haiku")
        assert_type(client.connected, bool)
        status = await client.get_mcp_status()
        for server in status["mcpServers"]:
            assert_type(server["name"], str)


@dataclass
class Weather:
    """An answer of a fixed shape."""

    city: str
    degrees: float


async def use_run() -> None:
    reply = await run("The weather?", output_type=Weather, options=options)
    assert_type(reply, Reply[Weather])
    assert_type(reply.output, Weather)
    assert_type(reply.output.degrees, float)
    assert_type(reply.text, str)
    assert_type(reply.cost, float | None)
    numbers = await run("Numbers?", output_type=list[int])
    assert_type(numbers.output, list[int])
    plain = await run("hello")
    assert_type(plain, Reply[Any])
    for each in plain.tool_calls:
        assert_type(each.name, str)
    assert_type(run_sync("The weather?", output_type=Weather), Reply[Weather])


async def use_warm() -> None:
    assert_type(await startup(options), ClaudeSDKClient)
    async with WarmPool(options, size=2) as pool:
        assert_type(await pool.run("hello"), Reply[Any])
        async with pool.client() as client:
            assert_type(client, ClaudeSDKClient)


# Tools. The decorated function keeps its own type.
server = ToolServer("calc")


@server.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool(name="slow", read_only=True)
async def add_slowly(a: int, b: int, context: Context) -> int:
    """Add two numbers, slowly."""
    await context.progress(0.5)
    return a + b


@server.resource("config://app")
def read_config() -> dict[str, str]:
    """The configuration."""
    return {}


@server.prompt
def greet(name: str) -> str:
    """A greeting."""
    return f"Greet {name}."


assert_type(add(1, 2), float)
assert_type(greet("x"), str)
add("1", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@tool("multiply", "Multiply two numbers", {"a": float, "b": float})
async def multiply(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(args["a"] * args["b"])}]}


@tool
def subtract(a: float, b: float) -> float:
    """Subtract."""
    return a - b


assert_type(multiply, Tool[Any])
assert_type(subtract, Tool[Any])
more = create_sdk_mcp_server("more", tools=[multiply])
assert_type(more, McpSdkServerConfig)
assert_type(more["name"], str)
official_servers: dict[str, McpServerConfig] = {"more": more}
ClaudeAgentOptions(mcp_servers={"calc": server, "more": more})
ClaudeAgentOptions(mcp_servers=official_servers)
tool("hinted", "Has hints", {}, annotations=ToolAnnotations(readOnlyHint=True, destructive_hint=False, own=1))
ToolAnnotations(max_result_size_chars=100_000, maxResultSizeChars="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Hooks, with decorators and in the official form.
hooks = Hooks()


@hooks.pre_tool_use("Bash")
async def guard(event: PreToolUseHookInput) -> HookOutcome | None:
    assert_type(event["tool_name"], str)
    return toolwire.hooks.deny("no")


@hooks.post_tool_use()
def log(event: PostToolUseHookInput) -> None:
    assert_type(event["tool_input"], dict[str, Any])


hooks.stop()(guard)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def official_hook(event: Any, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {"continue_": True}


ClaudeAgentOptions(hooks=hooks)
ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[official_hook])]})


# Permissions.
async def decide(name: str, tool_input: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
    assert_type(context.suggestions, list[toolwire.PermissionUpdate])
    if name == "Bash":
        return PermissionResultDeny(message="no")
    return PermissionResultAllow(updated_input=tool_input)


ClaudeAgentOptions(can_use_tool=decide)
ClaudeAgentOptions(can_use_tool=allow_tools("Read").otherwise("deny"))


# Observers of runs: a class, or a function.
class Trace(RunObserver):
    def __init__(self, run: RunInfo) -> None:
        assert_type(run.options, ClaudeAgentOptions)
        run.env["TRACEPARENT"] = "00-..."

    def message(self, direction: Literal["in", "out"], message: AnyMessage) -> None:
        pass

    @contextmanager
    def call(self, call: CallInfo) -> Generator[None, None, None]:
        assert_type(call.failure, str | None)
        yield


def start_run(run: RunInfo) -> RunObserver | None:
    return None if run.options.model == "haiku" else Trace(run)


add_observer(Trace)
add_observer(start_run)
remove_observer(start_run)
add_observer(lambda run: 3)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
ClaudeAgentOptions(tracing=True)


# The test kit.
async def use_test_kit() -> None:
    cli = ScriptedCLI([call("mcp__calc__add", a=1, b=2), say("3")])
    await run("1 + 2?", options=ClaudeAgentOptions(spawn_claude_code_process=cli))
    async with connect(server) as client:
        result = await client.call("add", a=1, b=2)
        assert_type(result.text, str)


async def use_catalog(catalog: Catalog) -> None:
    ClaudeAgentOptions(mcp_servers={"paid": catalog})


def see_tools(tools: Mapping[str, Tool[Any]]) -> list[str]:
    return sorted(tools)


see_tools(server.tools)


def scripts_of_mixed_entries_are_typed() -> None:
    """A script is a plain list: no annotation is needed, whatever stands in it."""
    script = [testing.call("mcp__calc__add", a=1), testing.say("3"), testing.turn(testing.say("x"))]
    testing.ScriptedModel(script)
    testing.ScriptedCLI([*script, testing.expect("3", then=testing.say("yes")), testing.exit_early()])
    answers = [testing.answer([1, 2]), testing.fail(529), testing.hang()]
    testing.ScriptedCLI(answers)


def settings_of_tools_are_named(calc: ToolServer) -> None:
    """A type checker completes them, and finds one that does not exist."""

    @calc.tool(read_only=True, title="Add", timeout=3)
    def add(a: int) -> int:
        return a

    @calc.tool(readonly=True)  # type: ignore[call-overload,untyped-decorator] # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
    def again(a: int) -> int:
        return a

    calc.tool(add, name="more")
    tool(title="x")(add)
