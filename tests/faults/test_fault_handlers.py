"""Whatever the user's own functions do, the CLI gets a response that it can act on, and the conversation ends.

A handler is a tool (async, or sync in a thread), a permission callback, or a hook; the other
functions are the callbacks for stderr and frames, and the generator of prompts.
"""

import asyncio
import threading
import time
from contextlib import suppress

import anyio
import pytest

from faults.hostile_cli import RIGHT
from faults.stage import BACKENDS, DEADLINE, WAYS, Outcome, name_of
from toolwire import (
    ClaudeSDKClient,
    ClaudeSDKError,
    HookMatcher,
    PermissionResultAllow,
    ToolError,
    ToolServer,
    query,
)

SEATS = ("tool", "permission", "hook")
"""Where an async handler is called."""


class Odd(BaseException):
    """An exception that is not an `Exception`."""


class Unspeakable(Exception):  # noqa: N818
    """An exception that cannot be converted to text."""

    def __str__(self):
        raise RuntimeError("no words for it")

    __repr__ = __str__


def options_with(stage, seat, handler, **more):
    """Return options with this handler for one kind and good ones for the others; it gets no arguments."""
    if seat in ("tool", "thread"):
        server = ToolServer("calc")
        if seat == "thread":

            @server.tool
            def add(a: int, b: int):
                """Add."""
                return handler()
        else:

            @server.tool
            async def add(a: int, b: int):
                """Add."""
                return await handler()

        return stage.options(mcp_servers={"calc": server}, **more)

    async def call(*_):
        return await handler()

    changed = (
        {"can_use_tool": call} if seat == "permission" else {"hooks": {"Stop": [HookMatcher(hooks=[call])]}}
    )
    return stage.options(**changed, **more)


def at_once(function):
    """Make an async handler of a sync one."""

    async def handler():
        return function()

    return handler


def fails_in(seat):
    """Return the text of a result if one handler has failed, and the others were right."""
    answers = dict(part.split() for part in RIGHT.split(", "))
    answers["tool" if seat == "thread" else seat] = "failed"
    return ", ".join(f"{name} {answer}" for name, answer in answers.items())


# --- handlers that raise ---


def raises(error):
    def function():
        raise error

    return function


def exhaust():
    return exhaust()


RAISES = {
    "ValueError": raises(ValueError("no")),
    "ToolError": raises(ToolError("no")),
    "ClaudeSDKError": raises(ClaudeSDKError("no")),
    "TimeoutError": raises(TimeoutError()),
    "StopIteration": raises(StopIteration(7)),
    "StopAsyncIteration": raises(StopAsyncIteration()),
    "RecursionError": exhaust,
    "MemoryError": raises(MemoryError()),
    "group": raises(ExceptionGroup("two", [ValueError("a"), KeyError("b")])),
    "surrogate": raises(ValueError("\ud800")),
    "unspeakable": raises(Unspeakable()),
    "long": raises(ValueError("x" * 5_000_000)),
    "BaseException": raises(Odd("no")),
    "group of BaseExceptions": raises(BaseExceptionGroup("two", [Odd("a"), ValueError("b")])),
    "SystemExit": raises(SystemExit(3)),
    "GeneratorExit": raises(GeneratorExit()),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seat", [*SEATS, "thread"])
@pytest.mark.parametrize("fault", RAISES, ids=name_of)
def test_a_handler_that_raises(stage, fault, seat, backend):
    """The CLI gets an error from this handler only, and the run goes on."""
    handler = RAISES[fault] if seat == "thread" else at_once(RAISES[fault])
    outcome = stage.play(backend, WAYS["query"], options_with(stage, seat, handler))
    assert (outcome.results, outcome.error) == ([fails_in(seat)], None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seat", ["permission", "hook"])
def test_a_handler_that_is_interrupted_from_the_keyboard(stage, seat, backend):
    """A `KeyboardInterrupt` in a handler reaches the program, and the CLI is ended."""
    options = options_with(stage, seat, at_once(raises(KeyboardInterrupt())))
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - trio wraps it
        stage.play(backend, WAYS["query"], options)
    assert KeyboardInterrupt in map(type, chain_of(caught.value))
    stage.check()


def chain_of(error):
    """Return an exception, and all its causes, contexts and members."""
    found, stack = [], [error]
    while stack:
        each = stack.pop()
        if each is not None and each not in found:
            found.append(each)
            stack += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    return found


# --- handlers that return nonsense ---


def endless():
    value = []
    value.append(value)
    return value


class Broken:
    """An object that raises at everything that is done with it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError("str")

    __repr__ = __iter__ = __len__ = __bool__ = __str__


RETURNS = {
    "None": lambda: None,
    "object": object,
    "number": lambda: 7,
    "NaN": lambda: {"continue": True, "x": float("nan")},
    "bytes": lambda: b"\xff",
    "text": lambda: "text",
    "surrogate": lambda: {"reason": "\ud800"},
    "big number": lambda: 10**5000,
    "set": lambda: {1, 2},
    "list of nonsense": lambda: [object(), {1: {2: 3}}],
    "contains itself": endless,
    "deep": lambda: nested(2000),
    "generator": lambda: (each for each in [1]),
    "function": lambda: print,
    "class": lambda: dict,
    "broken": Broken,
    "unknown behavior": lambda: {"behavior": "perhaps"},
    "exception": lambda: ValueError("not raised"),
    "50 MB": lambda: "x" * 50_000_000,
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seat", [*SEATS, "thread"])
@pytest.mark.parametrize("fault", RETURNS, ids=name_of)
def test_a_handler_that_returns_nonsense(stage, fault, seat, backend):
    """The CLI gets some response to it, and the other handlers are not affected."""
    handler = RETURNS[fault] if seat == "thread" else at_once(RETURNS[fault])
    outcome = stage.play(backend, WAYS["query"], options_with(stage, seat, handler))
    assert outcome.error is None
    (text,) = outcome.results
    others = [part for part in RIGHT.split(", ") if not part.startswith("tool" if seat == "thread" else seat)]
    assert all(part in text for part in others), text


# --- handlers that take their time ---


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seat", [*SEATS, "thread"])
def test_a_handler_that_blocks(stage, seat, backend):
    """It blocks the event loop or its thread, and nothing is lost."""
    good = {"tool": 42, "thread": 42, "permission": PermissionResultAllow(), "hook": {}}

    def block():
        time.sleep(0.2)
        return good[seat]

    handler = block if seat == "thread" else at_once(block)
    for talk in WAYS.values():
        assert stage.play(backend, talk, options_with(stage, seat, handler)).right


def hang_until_cancelled(_reached):
    return anyio.sleep_forever()


async def swallow(_reached):
    """Swallow the cancellation."""
    with suppress(BaseException):
        await anyio.sleep_forever()


async def replace_error(_reached):
    """Raise another error when cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("in the way")


async def take_a_moment(_reached):
    """Finish something before ending."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.3)


async def hang_in_a_thread(_reached):
    """Wait for a thread that takes half a second, and then for ever."""
    await anyio.to_thread.run_sync(lambda: time.sleep(0.5), abandon_on_cancel=True)
    await anyio.sleep_forever()


HANGS = [hang_until_cancelled, swallow, replace_error, take_a_moment, hang_in_a_thread]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seat", SEATS)
@pytest.mark.parametrize("hang", HANGS, ids=lambda each: each.__name__)
def test_a_handler_that_hangs(stage, hang, seat, way, backend):
    """A caller who leaves the conversation does not wait for the handler."""
    reached = stage.folder / "reached"

    async def handler():
        reached.touch()
        return await hang(reached)

    outcome = stage.play(backend, WAYS[way], options_with(stage, seat, handler), until=reached)
    assert outcome.given_up
    assert outcome.results == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_thread_that_hangs(stage, way, backend):
    """A sync tool cannot be stopped: its thread is left behind, and the conversation ends without it."""
    reached, go = stage.folder / "reached", threading.Event()

    def hang():
        reached.touch()
        go.wait(DEADLINE)

    try:
        outcome = stage.play(backend, WAYS[way], options_with(stage, "thread", hang), until=reached)
    finally:
        go.set()
    assert outcome.given_up


@pytest.mark.usefixtures("quick_end")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seat", SEATS)
@pytest.mark.parametrize("fault", ["exit 1", "SIGKILL", "close stdout"], ids=name_of)
def test_a_cli_that_ends_while_a_handler_runs(stage, fault, seat, way, backend):
    """The handler is cancelled, and the caller gets an error."""
    cancelled = []

    async def handler():
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(seat)

    outcome = stage.play(backend, WAYS[way], options_with(stage, seat, handler, step=seat, fault=fault))
    assert outcome.error is not None
    assert cancelled in ([], [seat]), "the end may come before it has begun"


# --- handlers that cancel themselves ---


async def cancel_own_task():
    asyncio.current_task().cancel()
    await anyio.sleep_forever()


async def raise_cancelled():
    raise asyncio.CancelledError


async def cancel_own_scope():
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anyio.sleep_forever()
    raise ValueError("and go on")


async def cancel_a_group():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        tasks.cancel_scope.cancel()
    raise ValueError("and go on")


async def await_cancelled_task():
    task = asyncio.ensure_future(anyio.sleep_forever())
    task.cancel()
    await task


async def time_out():
    with anyio.fail_after(0.01):
        await anyio.sleep_forever()


ON_ASYNCIO = (cancel_own_task, raise_cancelled, await_cancelled_task)


@pytest.mark.parametrize("seat", SEATS)
@pytest.mark.parametrize(
    ("fault", "backend"),
    [
        *((fault, "asyncio") for fault in ON_ASYNCIO),
        *((fault, backend) for fault in (cancel_own_scope, cancel_a_group, time_out) for backend in BACKENDS),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_handler_that_cancels_itself(stage, fault, seat, backend):
    """That is a failure of this handler, and ends nothing else; the CLI gets an error."""
    outcome = stage.play(backend, WAYS["query"], options_with(stage, seat, fault))
    assert (outcome.results, outcome.error) == ([fails_in(seat)], None)


# --- handlers that use their client ---


async def call_interrupt(client):
    await client.interrupt()


async def call_controls(client):
    await client.set_model("m")
    await client.get_mcp_status()


async def call_query(client):
    await client.query("more")


async def call_receive(client):
    with anyio.move_on_after(0.05):
        async for _ in client.receive_messages():
            pass


async def call_disconnect(client):
    await client.disconnect()


async def call_connect(client):
    with pytest.raises(ClaudeSDKError):
        await client.connect()


async def call_exit(client):
    await client.__aexit__(None, None, None)


CALLS = [call_interrupt, call_controls, call_query, call_receive, call_disconnect, call_connect, call_exit]
ENDS = (call_disconnect, call_exit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seat", SEATS)
@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.__name__)
def test_a_handler_that_calls_back_into_its_client(stage, call, seat, backend):
    """Its calls are answered while the CLI waits for its response; one that disconnects ends the conversation."""
    good = {"tool": 42, "permission": PermissionResultAllow(), "hook": {}}
    held = []

    async def handler():
        await call(held[0])
        return good[seat]

    async def talk():
        outcome = Outcome()
        held.append(ClaudeSDKClient(options_with(stage, seat, handler)))
        async with held[0] as client:
            await client.query("hello")
            try:
                outcome.messages.extend([message async for message in client.receive_response()])
            except ClaudeSDKError as error:
                outcome.error = error
        return outcome

    outcome = stage.play(backend, talk)
    if call in ENDS:
        assert outcome.results == []
    elif call is call_receive:
        assert outcome.results == [RIGHT], "messages that it took are gone, the rest is there"
    else:
        assert outcome.right, outcome


# --- other functions of the user ---


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("callback", ["stderr", "on_frame"])
@pytest.mark.parametrize("fault", ["ValueError", "RecursionError", "unspeakable", "surrogate"])
def test_a_callback_that_raises(stage, fault, callback, backend):
    """The failure is logged, and changes nothing."""
    options = stage.options("stream", "complain", **{callback: lambda *_: RAISES[fault]()})
    allowed = ("the stderr callback failed", "the observer on_frame failed in frame()")
    assert stage.play(backend, WAYS["query"], options, allowed=allowed).right


def prompt(text="hello"):
    return {"type": "user", "message": {"role": "user", "content": text}}


async def prompts_that_raise():
    yield prompt()
    raise ValueError("no more")


async def prompts_that_raise_at_once():
    raise ValueError("none at all")
    yield


async def prompts_of_nonsense():
    yield prompt()
    yield 7


async def prompts_that_are_no_json():
    yield prompt(object())


async def prompts_that_hang():
    yield prompt()
    await anyio.sleep_forever()


async def prompts_that_refuse_to_end():
    while True:
        try:
            yield prompt()
            await anyio.sleep_forever()
        finally:
            await anyio.sleep(0)


async def prompts_that_fail_to_end():
    try:
        yield prompt()
        await anyio.sleep_forever()
    finally:
        raise ValueError("in the way")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "prompts",
    [prompts_that_raise, prompts_that_raise_at_once, prompts_of_nonsense, prompts_that_are_no_json],
    ids=lambda each: each.__name__,
)
def test_prompts_that_fail(stage, prompts, backend):
    """Prompts that were sent before get their results; then the user's own error is raised."""

    async def talk():
        outcome = Outcome()
        try:
            async for message in query(prompt=prompts(), options=stage.options()):
                outcome.messages.append(message)
        except (ValueError, TypeError) as error:
            outcome.error = error
        return outcome

    outcome = stage.play(backend, talk)
    assert isinstance(outcome.error, ValueError | TypeError)
    assert len(outcome.results) == (prompts in (prompts_that_raise, prompts_of_nonsense))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "prompts",
    [prompts_that_hang, prompts_that_refuse_to_end, prompts_that_fail_to_end],
    ids=lambda each: each.__name__,
)
def test_prompts_that_never_end(stage, prompts, backend):
    """A caller who leaves ends the generator too."""

    async def talk():
        outcome = Outcome()
        stream = query(prompt=prompts(), options=stage.options())
        async for message in stream:
            outcome.messages.append(message)
            if outcome.results:
                break
        await stream.aclose()
        return outcome

    assert stage.play(backend, talk).results == [RIGHT]
