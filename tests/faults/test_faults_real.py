"""The main faults on the real CLI, with a scripted model on loopback: of its process, and of our handlers."""

import os
import signal
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from faults.leftovers import MARK, processes
from faults.stage import BACKENDS, Outcome
from toolwire import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    HookMatcher,
    PermissionResultAllow,
    ProcessError,
    ToolServer,
)
from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, hang, say

pytestmark = pytest.mark.real

ADD = call("mcp__calc__add", a=15, b=27)


class Scene:
    """A tool, a permission callback and a hook, which work unless a test replaces them."""

    def __init__(self):
        self.in_tool = anyio.Event()

    async def tool(self):
        return 42

    async def permission(self):
        return PermissionResultAllow()

    async def hook(self):
        return {}


@asynccontextmanager
async def real_client(stage, scene, *script):
    """Yield a client of the real CLI, whose model follows a script."""
    server = ToolServer("calc")

    @server.tool
    async def add(a: int, b: int):
        """Add."""
        scene.in_tool.set()
        return await scene.tool()

    async def decide(*_):
        return await scene.permission()

    async def react(*_):
        return await scene.hook()

    async with ScriptedModel(script) as model, ClaudeEnvironment(model, extra={MARK: stage.mark}) as env:
        options = ClaudeAgentOptions(
            **env.options_kwargs(),
            cli_path=bundled_cli(),
            setting_sources=[],
            strict_mcp_config=True,
            mcp_servers={"calc": server},
            can_use_tool=decide,
            hooks={"PreToolUse": [HookMatcher(hooks=[react])]},
        )
        async with ClaudeSDKClient(options) as client:
            yield client


async def read(client):
    """Read up to the result, or keep the error that is raised."""
    outcome = Outcome()
    try:
        async for message in client.receive_response():
            outcome.messages.append(message)
    except ClaudeSDKError as error:
        outcome.error = error
    return outcome


def strike(stage, number):
    """Send a signal to the CLI."""
    for pid in processes(stage.mark):
        os.kill(pid, number)


async def reach(client, scene, step):
    """Bring the conversation to a step: idle, a turn in which the model sends nothing, or a tool call."""
    if step == "idle":
        return
    await client.query("What is 15 + 27?")
    if step == "tool":
        await scene.in_tool.wait()
    else:
        async with aclosing(client.receive_messages()) as messages:
            await anext(messages)


SCRIPTS = {"idle": [], "turn": [hang()], "tool": [ADD, say("It is 42.")]}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", SCRIPTS)
def test_the_cli_is_killed(stage, step, backend):
    """The caller gets a `ProcessError` with the signal as its exit code."""

    async def talk():
        scene = Scene()
        scene.tool = anyio.sleep_forever
        async with real_client(stage, scene, *SCRIPTS[step]) as client:
            await reach(client, scene, step)
            strike(stage, signal.SIGKILL)
            return await read(client)

    outcome = stage.play(backend, talk)
    assert isinstance(outcome.error, ProcessError)
    assert outcome.error.exit_code == -signal.SIGKILL


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", SCRIPTS)
def test_the_cli_is_stopped(stage, step, backend):
    """A CLI that is suspended is ended all the same."""

    async def talk():
        scene = Scene()
        scene.tool = anyio.sleep_forever
        async with real_client(stage, scene, *SCRIPTS[step]) as client:
            await reach(client, scene, step)
            strike(stage, signal.SIGSTOP)

    stage.play(backend, talk)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", SCRIPTS)
def test_the_input_is_closed(stage, step, backend):
    """End of input ends the CLI, after a turn that can end; leaving does not wait for one that cannot."""

    async def talk():
        scene = Scene()
        async with real_client(stage, scene, *SCRIPTS[step]) as client:
            await reach(client, scene, step)
            client._conversation.session._pipe.end_input()
            return None if step == "turn" else await read(client)

    outcome = stage.play(backend, talk)
    if step == "idle":
        assert (outcome.results, outcome.error) == ([], None)
    elif step == "tool":
        assert outcome.results == ["It is 42."] or isinstance(outcome.error, ProcessError)


async def raise_error():
    raise ValueError("no")


async def raise_exit():
    raise SystemExit(3)


async def cancel_a_task_group():
    async with anyio.create_task_group() as tasks:
        tasks.cancel_scope.cancel()
    raise ValueError("and go on")


async def return_nonsense():
    return object()


FAILURES = [
    (fault, seat)
    for fault in (raise_error, raise_exit, cancel_a_task_group, return_nonsense)
    for seat in ("tool", "permission", "hook")
]


@pytest.mark.parametrize(
    ("fault", "seat", "backend"),
    [(*case, BACKENDS[number % 2]) for number, case in enumerate(FAILURES)],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_handler_fails(stage, fault, seat, backend):
    """The real CLI accepts the response, and the turn goes on to its end."""

    async def talk():
        scene = Scene()
        setattr(scene, seat, fault)
        async with real_client(stage, scene, ADD, say("Well.")) as client:
            await client.query("What is 15 + 27?")
            return await read(client)

    outcome = stage.play(backend, talk)
    assert (outcome.results, outcome.error) == (["Well."], None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("verb", ["interrupt", "disconnect"])
def test_a_tool_calls_back(stage, verb, backend):
    """A tool may interrupt the turn that called it, or end the whole conversation."""

    async def talk():
        scene = Scene()
        async with real_client(stage, scene, ADD) as client:
            scene.tool = getattr(client, verb)
            await client.query("What is 15 + 27?")
            return await read(client)

    outcome = stage.play(backend, talk, allowed=("did not stop",))
    assert outcome.error is None
    assert len(outcome.results) == (verb == "interrupt")
