"""Hooks through the public API, with the stand-in CLI: context, failures, sessions that end while a hook runs."""

import contextvars
import json
import threading

import anyio
import pytest

from shared.waiting import eventually
from toolwire import AssistantMessage, ClaudeSDKClient, Hooks, query
from toolwire.hooks import block

pytestmark = pytest.mark.anyio

WHO = contextvars.ContextVar("WHO")


async def answered(options):
    """Return the response that the CLI got from the hook."""
    with anyio.fail_after(10):
        messages = [message async for message in query(prompt="go", options=options)]
    [text] = [message.text for message in messages if isinstance(message, AssistantMessage)]
    return json.loads(text)


async def test_hooks_see_the_context_of_their_session(play):
    """Context variables of the code that started the session are there, in sync and async hooks."""
    WHO.set("Ada")

    async def later(event):
        return block(WHO.get())

    def at_once(event):
        return block(WHO.get())

    for function in (later, at_once):
        hooks = Hooks()
        hooks.stop()(function)
        answer = await answered(play("hook", hooks=hooks))
        assert answer["response"] == {"decision": "block", "reason": "Ada"}


async def test_a_hook_without_an_opinion(play):
    """A decorated function that returns None sends an empty response to the CLI."""
    hooks = Hooks()
    hooks.stop()(lambda event: None)
    assert (await answered(play("hook", hooks=hooks)))["response"] == {}


async def test_a_failing_hook_does_not_end_the_run(play, caplog):
    """The CLI gets an error response and goes on; the log names the function."""
    hooks = Hooks()

    @hooks.stop()
    def broken(event):
        raise ValueError("boom")

    answer = await answered(play("hook", hooks=hooks))
    assert (answer["subtype"], answer["error"]) == ("error", "boom")
    assert f"the Stop hook {__name__}" in caplog.text
    assert "broken failed" in caplog.text


async def test_a_hung_hook_does_not_hold_up_the_run(play):
    """When a hook exceeds its timeout, the CLI gets an error response."""
    hooks = Hooks()
    release = threading.Event()

    @hooks.stop(timeout=0.1, on_failure="continue")
    def hung(event):
        release.wait(10)

    try:
        answer = await answered(play("hook", hooks=hooks))
    finally:
        release.set()
    assert answer["error"] == "did not return within 0.1 s"


async def test_a_session_ends_while_a_hook_runs(play):
    """Closing cancels an async hook and leaves the thread of a sync one behind."""
    release = threading.Event()
    for sync in (False, True):
        hooks, entered = Hooks(), threading.Event()

        async def waits(event, entered=entered):
            entered.set()
            await anyio.sleep_forever()

        def blocks(event, entered=entered):
            entered.set()
            release.wait(10)

        hooks.stop()(blocks if sync else waits)
        with anyio.fail_after(5):
            async with ClaudeSDKClient(play("hook", hooks=hooks)) as client:
                await client.query("go")
                await eventually(entered.is_set)
    release.set()
