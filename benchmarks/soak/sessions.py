"""The load of sessions: conversations with tools, hooks and permissions, over and over.

Most use the scripted CLI in memory, some the real one in the fresh environment of `toolwire.testing`. Each
conversation checks its outcome: the right texts, every tool called exactly once, every hook called.

python -m benchmarks.soak.sessions '{"name": "sessions", "seconds": 60, "at_once": 6, "real": 1}'
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count
from typing import Any

import anyio

from benchmarks.soak.load import PATIENCE, Book, ExpectedEnd, WrongError, begin, check, main
from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultMessage,
    ToolServer,
    query,
)
from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedCLI, ScriptedModel, call, exit_early, say, turn

PAUSE = 0.02
REAL_PAUSE = 0.5
_numbers = count(1)


class Stage:
    """The server of one conversation, with counts of the calls of its tools and hooks."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.ran: Counter[str] = Counter()
        self.hooks: Counter[str] = Counter()
        self.waiting, self.cancelled = anyio.Event(), anyio.Event()
        self.server = ToolServer("soak")
        self.server.tool(self.add)
        self.server.tool(self.measure)
        self.server.tool(self.fail)
        self.server.tool(self.wait)

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.ran["add"] += 1
        return a + b

    def measure(self, text: str) -> int:
        """Count the characters of a text, in a thread."""
        self.ran["measure"] += 1
        return len(text)

    async def fail(self) -> str:
        """Fail."""
        self.ran["fail"] += 1
        raise ValueError("out of order")

    async def wait(self) -> str:
        """Wait until cancelled."""
        self.ran["wait"] += 1
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        return "never"

    async def note(self, given: Any, _id: str | None, _context: Any) -> dict[str, Any]:
        """Hook callback: count the event."""
        self.hooks[given["hook_event_name"]] += 1
        return {}

    async def decide(self, _name: str, given: dict[str, Any], _context: Any) -> Any:
        """Permission callback: deny the call if `a` is odd, otherwise change `b`."""
        if given["a"] % 2:
            return PermissionResultDeny(message="not an odd one")
        return PermissionResultAllow(updated_input={**given, "b": 1000})

    def options(self, *, ask_permission: bool = False, **more: Any) -> ClaudeAgentOptions:
        """Return options with the server and the hooks, and with the permission callback or all tools allowed."""
        rules = {"can_use_tool": self.decide} if ask_permission else {"allowed_tools": ["mcp__soak"]}
        hooks = {name: [HookMatcher(hooks=[self.note])] for name in ("PreToolUse", "PostToolUse")}
        return ClaudeAgentOptions(mcp_servers={"soak": self.server}, hooks=hooks, **rules, **more)  # type: ignore[arg-type]

    def repeat_results(self) -> Callable[[Any], Any]:
        """Return a step of a script in which the model repeats the results of the tools."""
        return lambda request: say("; ".join(each.text for each in request.tool_results))


Scene = Callable[[Stage, Callable[..., Any]], Awaitable[None]]
"""A conversation. It gets a stage, and `play(script)`, which returns options for a CLI that follows the script."""


async def ask_once(stage: Stage, play: Callable[..., Any]) -> None:
    """Use `query()`: two calls and a failing one in one turn, then the final text."""
    calls = [call("mcp__soak__add", a=stage.number, b=1), call("mcp__soak__measure", text="ü" * 9)]
    script = [turn(*calls, call("mcp__soak__fail")), stage.repeat_results()]
    results = [
        message
        async for message in query(prompt="go", options=play(script))
        if isinstance(message, ResultMessage)
    ]
    check(len(results) == 1, f"{len(results)} results")
    said = str(results[0].result)
    check(said.startswith(f"{stage.number + 1}; 9; "), f"the final text is {said!r}")
    check("out of order" in said, f"the failure of the tool did not reach the model: {said!r}")
    check(stage.ran == {"add": 1, "measure": 1, "fail": 1}, f"the tools ran {dict(stage.ran)}")
    check(stage.hooks["PreToolUse"] == 3, f"hooks: {dict(stage.hooks)}")  # noqa: PLR2004 - as many as calls


async def talk(stage: Stage, play: Callable[..., Any]) -> None:
    """Use a client for three prompts: the call of the second is changed, that of the third is denied."""
    even = stage.number * 2
    add = "mcp__soak__add"
    script = [
        say("hello"),
        call(add, a=even, b=1),
        stage.repeat_results(),
        call(add, a=even + 1, b=1),
        stage.repeat_results(),
    ]
    async with ClaudeSDKClient(play(script, ask_permission=True)) as client:
        for expected in ("hello", str(even + 1000), "not an odd one"):
            await client.query("go on")
            said = [
                message.result
                async for message in client.receive_response()
                if isinstance(message, ResultMessage)
            ]
            check(len(said) == 1 and expected in str(said[0]), f"expected {expected!r}, got {said!r}")
    check(stage.ran == {"add": 1}, f"the tools ran {dict(stage.ran)}")


async def interrupt(stage: Stage, play: Callable[..., Any]) -> None:
    """Interrupt a running tool, and continue the conversation."""
    async with ClaudeSDKClient(play([call("mcp__soak__wait"), say("still here")])) as client:
        await client.query("wait")
        await stage.waiting.wait()
        await client.interrupt()
        await stage.cancelled.wait()
        first = [message async for message in client.receive_response()]
        check(isinstance(first[-1], ResultMessage), f"no result after the interrupt: {first[-1]!r}")
        await client.query("and now?")
        said = [message async for message in client.receive_response()]
        check(getattr(said[-1], "result", None) == "still here", f"after the interrupt: {said[-1]!r}")
    check(stage.ran == {"wait": 1}, f"the tools ran {dict(stage.ran)}")


async def leave(stage: Stage, play: Callable[..., Any]) -> None:
    """Close the client while a tool runs, which cancels the tool."""
    async with ClaudeSDKClient(play([call("mcp__soak__wait")])) as client:
        await client.query("wait")
        await stage.waiting.wait()
    await stage.cancelled.wait()
    check(stage.ran == {"wait": 1}, f"the tools ran {dict(stage.ran)}")


async def crash(_stage: Stage, play: Callable[..., Any]) -> None:
    """Have the CLI exit in the middle of a turn, which raises a typed error."""
    script = [call("mcp__soak__add", a=1, b=1), exit_early(7)]
    try:
        async for _ in query(prompt="go", options=play(script)):
            pass
    except ProcessError as error:
        check(error.exit_code == 7, f"the exit code is {error.exit_code}")  # noqa: PLR2004 - the script's
        raise ExpectedEnd("ProcessError of a CLI that crashed") from None
    raise WrongError("a crash of the CLI raised no error")


SCRIPTED: dict[str, Scene] = {
    "query with three calls": ask_once,
    "client with three prompts": talk,
    "interrupt and go on": interrupt,
    "leave in mid-call": leave,
    "crash of the CLI": crash,
}
REAL: dict[str, Scene] = {
    name: SCRIPTED[name] for name in ("query with three calls", "interrupt and go on", "leave in mid-call")
}


async def play_scripted(book: Book, number: int, until: float) -> None:
    """Hold conversations with the scripted CLI, one after the other."""
    for turn_ in count(number):
        name = list(SCRIPTED)[turn_ % len(SCRIPTED)]
        with book.track(f"{name}, scripted CLI"), anyio.fail_after(PATIENCE):
            stage = Stage()

            def play(script: list[Any], stage: Stage = stage, **more: Any) -> ClaudeAgentOptions:
                return stage.options(spawn_claude_code_process=ScriptedCLI(script), **more)

            await SCRIPTED[name](stage, play)
        await anyio.sleep(PAUSE)
        if time.monotonic() > until:
            return


async def play_real(book: Book, number: int, until: float) -> None:
    """Hold conversations with the real CLI, one after the other."""
    cli = bundled_cli()
    if cli is None:
        raise RuntimeError("the real CLI comes with claude-agent-sdk, which is not installed")
    given = {"cli_path": cli, "setting_sources": [], "strict_mcp_config": True}
    for turn_ in count(number):
        name = list(REAL)[turn_ % len(REAL)]
        with book.track(f"{name}, real CLI"), ExitStack() as stack, anyio.fail_after(PATIENCE):
            stage = Stage()

            def play(
                script: list[Any], stage: Stage = stage, stack: ExitStack = stack, **more: Any
            ) -> ClaudeAgentOptions:
                environment = ClaudeEnvironment(stack.enter_context(ScriptedModel(script)))
                stack.enter_context(environment)
                return stage.options(**environment.options_kwargs(), **given, **more)

            await REAL[name](stage, play)
        await anyio.sleep(REAL_PAUSE)
        if time.monotonic() > until:
            return


async def work(book: Book, case: dict[str, Any]) -> dict[str, Any]:
    """Run the load: `at_once` scripted and `real` real conversations at a time."""
    until = begin(case)
    async with anyio.create_task_group() as group:
        for number in range(case["at_once"]):
            group.start_soon(play_scripted, book, number, until)
        for number in range(case["real"]):
            group.start_soon(play_real, book, number, until)
    return {}


if __name__ == "__main__":
    main(work, json.loads(sys.argv[1]))
