"""Calling a hook: its timeout, its thread, and a defined outcome when it goes wrong."""

import asyncio
import contextvars
import functools
import logging
import threading

import anyio
import pytest

from toolwire import Hooks
from toolwire._support.tasks import is_async
from toolwire.hooks import HookMatcher, HookOutcome, allow, ask, block, change_input, deny, stop
from toolwire.hooks.calling import make_handler
from toolwire.hooks.registry import register

pytestmark = pytest.mark.anyio

WHO = contextvars.ContextVar("WHO")


def calling(callback, event="PreToolUse", **settings):
    """Return a function that calls the only hook."""
    answer = make_handler(register({event: [HookMatcher(hooks=[callback], **settings)]})[1])

    async def call():
        with anyio.fail_after(5):
            return await answer({"callback_id": "hook_0", "input": {"n": 1}, "tool_use_id": "t"})

    return call


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "toolwire.hooks"]


async def test_sync_hooks_run_in_a_thread():
    """A sync function runs beside the event loop, with the caller's context variables."""
    WHO.set("Ada")
    seen = []

    def hook(data, tool_use_id, context):
        seen.append((data, tool_use_id, context, WHO.get(), threading.current_thread()))
        return {"continue_": True}

    assert await calling(hook)() == {"continue": True}
    [(data, tool_use_id, context, who, thread)] = seen
    assert (data, tool_use_id, context, who) == ({"n": 1}, "t", {"signal": None}, "Ada")
    assert thread is not threading.current_thread()


async def test_what_counts_as_async():
    """Coroutine functions, partials of them and objects with an async call run on the loop."""

    async def hook(*_):
        return {}

    class Hook:
        async def __call__(self, *_):
            return {}

    assert all(map(is_async, [hook, functools.partial(hook, 1), Hook()]))
    assert not is_async(lambda *_: hook())
    assert await calling(lambda *_: hook())() == {}  # but its result is awaited


async def test_an_unknown_id_is_an_error():
    """A callback id that was never registered raises an error that names it."""
    with pytest.raises(LookupError, match="hook_7"):
        await make_handler({})({"callback_id": "hook_7"})


@pytest.mark.parametrize("on_failure", [None, "continue", "block"])
async def test_an_exception_is_logged_and_told(caplog, on_failure):
    """The log names event, matcher and function and has the trace; the CLI gets an error and applies on_failure."""

    async def guard(*_):
        raise ValueError("boom")

    with pytest.raises(RuntimeError, match="^boom$") as caught:
        await calling(guard, matcher="Bash", on_failure=on_failure)()
    assert caught.value.__suppress_context__
    [line] = lines(caplog)
    assert f"the PreToolUse hook {__name__}.test_an_exception_is_logged" in line
    assert "guard (matcher 'Bash') failed" in line
    assert ("blocks the action" if on_failure == "block" else "the action continues") in line
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("returned", [None, "yes", 3, ["a"]])
async def test_nonsense_is_an_error(returned):
    """A hook in the official form must return a dict."""
    with pytest.raises(RuntimeError, match="must return a dict"):
        await calling(lambda *_: returned)()


@pytest.mark.parametrize("on_failure", ["continue", "block"])
async def test_a_hung_hook_is_cut(caplog, on_failure):
    """With on_failure set, our timeout comes before the CLI's and cancels the callback."""
    cut = []

    async def hook(*_):
        try:
            await anyio.sleep_forever()
        finally:
            cut.append(True)

    with pytest.raises(RuntimeError, match=r"did not return within 0\.1 s"):
        await calling(hook, timeout=0.1, on_failure=on_failure)()
    assert cut
    assert "did not return within 0.1 s" in lines(caplog)[0]


async def test_a_hung_thread_is_left_behind():
    """What a sync function returns after its timeout is thrown away."""
    release, done = threading.Event(), threading.Event()

    def hook(*_):
        release.wait(5)
        done.set()
        return {"decision": "block"}

    with pytest.raises(RuntimeError, match="did not return"):
        await calling(hook, timeout=0.1, on_failure="continue")()
    release.set()
    assert done.wait(5)


@pytest.mark.parametrize("timeout", [0.2, None])
async def test_without_on_failure_the_cli_decides(caplog, timeout):
    """The CLI cancels the request, which cancels the callback; the log warns only if its timeout had passed."""
    caplog.set_level(logging.DEBUG, "toolwire.hooks")
    ended = anyio.Event()

    async def hook(*_):
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.move_on_after(0.3) as withdrawn:
        await calling(hook, timeout=timeout)()
    assert withdrawn.cancelled_caught
    assert ended.is_set()
    [record] = caplog.records
    assert record.levelname == ("DEBUG" if timeout is None else "WARNING")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio lets nobody raise one
async def test_a_cancellation_inside_a_hook_is_a_failure(caplog):
    """A hook that raises a CancelledError of its own has failed, like any other that raises."""

    async def hook(*_):
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="CancelledError"):
        await calling(hook)()
    assert len(lines(caplog)) == 1


ODD = [
    ({"hookSpecificOutput": {"permissionDecision": "deny"}}, "has no 'hookEventName'"),
    ({"hookSpecificOutput": {"hookEventName": "Stop"}}, "is 'Stop', but the event is 'PreToolUse'"),
    (
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecison": "deny"}},
        "did you mean 'permissionDecision'",
    ),
    (
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "no"}},
        "allowed: 'allow'",
    ),
    ({"hookSpecificOutput": {"hookEventName": "PreToolUse", "reason": "no"}}, "belongs beside"),
    ({"hookSpecificOutput": []}, "is a list, not a dict"),
    ({"permissionDecision": "deny"}, "belongs into 'hookSpecificOutput'"),
    ({"systemMesage": "hi"}, "did you mean 'systemMessage'"),
    ({"decision": "allow"}, "allowed: 'block'"),
    ({"zzz": 1}, "unknown key 'zzz'"),
]


@pytest.mark.parametrize(("output", "words"), ODD)
async def test_odd_outputs_are_warned_about_once(caplog, output, words):
    """The warning names the nearest valid key or value; the output is sent all the same."""
    call = calling(lambda *_: output)
    for _ in range(2):
        answer = await call()
        assert answer.keys() == output.keys()
    [line] = lines(caplog)
    assert words in line
    assert "the PreToolUse hook" in line


async def test_a_missing_event_name_is_put_in():
    """Without it the CLI would ignore the decision."""
    answer = await calling(lambda *_: {"hookSpecificOutput": {"permissionDecision": "deny"}})()
    assert answer["hookSpecificOutput"] == {"hookEventName": "PreToolUse", "permissionDecision": "deny"}


@pytest.mark.parametrize(
    ("number", "on_failure"), [(1, "block"), (1, "continue"), (2, "block"), (3, "block"), (7, "block")]
)
async def test_where_on_failure_counts_oddities(number, on_failure):
    """With on_failure set these outputs are failures, so that on_failure decides whether the action goes on."""
    output, words = ODD[number]
    with pytest.raises(RuntimeError, match=words):
        await calling(lambda *_: output, on_failure=on_failure)()


async def test_events_that_read_no_specific_output(caplog):
    """For a known event such an output is warned about; for an unknown event it is not checked."""
    output = {"hookSpecificOutput": {"hookEventName": "SessionEnd", "a": 1}}
    assert await calling(lambda *_: output, event="SessionEnd")() == output
    assert "reads no 'hookSpecificOutput' after SessionEnd" in lines(caplog)[0]
    assert await calling(lambda *_: {"zzz": 1}, event="Tomorrow")() == {"zzz": 1}
    assert len(lines(caplog)) == 1


async def test_a_misspelt_event_is_named(caplog):
    """The CLI accepts any event name; one that resembles no known name is left alone."""
    calling(lambda *_: {}, event="PreToolUes")
    assert "will never be called: did you mean PreToolUse?" in lines(caplog)[0]
    calling(lambda *_: {}, event="SomeEventOfTomorrow")
    assert len(lines(caplog)) == 1


async def test_good_outputs_are_not_warned_about(caplog):
    """All keys of the official types pass, those of asynchronous hooks too."""
    for output in (
        {},
        {"async_": True, "asyncTimeout": 5},
        {"continue_": False, "stopReason": "x", "suppressOutput": True, "systemMessage": "y"},
        {"decision": "approve", "reason": "old"},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {}, "additionalContext": "c"}},
    ):
        await calling(lambda *_, output=output: output)()
    assert lines(caplog) == []


async def test_outcomes_become_dicts():
    """An outcome becomes a dict in either form; one that the event does not have is a failure that says so."""
    told = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}
    assert await calling(lambda *_: deny("no"))() == {"hookSpecificOutput": told}
    with pytest.raises(RuntimeError, match=r"a Stop hook cannot return deny\(\); hooks that can: PreToolUse"):
        await calling(lambda *_: deny("no"), event="Stop")()


async def test_decorated_hooks_may_return_nothing():
    """None means no opinion, sync or async."""
    hooks = Hooks()

    @hooks.stop()
    async def later(event):
        """Async."""

    @hooks.stop()
    def at_once(event):
        """Sync."""

    answer = make_handler(register(hooks)[1])
    for callback_id in ("hook_0", "hook_1"):
        assert await answer({"callback_id": callback_id, "input": {}}) == {}


def specific(event="PreToolUse", **fields):
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


DENIED = specific(permissionDecision="deny")
REASONED = specific(permissionDecision="deny", permissionDecisionReason="no")
REFUSED = specific("PermissionRequest", decision={"behavior": "deny"})

DENIALS = [
    ("PreToolUse", HookOutcome("deny", 42), DENIED, "'permissionDecisionReason' is a int, not a str"),
    (
        "PreToolUse",
        specific(permissionDecision="deny", permissionDecisionReason=None),
        DENIED,
        "'permissionDecisionReason' in 'hookSpecificOutput' is None",
    ),
    ("PreToolUse", {"systemMessage": None, **REASONED}, REASONED, "'systemMessage' is None"),
    ("PreToolUse", {"systemMessage": 1, **REASONED}, REASONED, "'systemMessage' is a int, not a str"),
    ("PreToolUse", {"decision": "no", **REASONED}, REASONED, "allowed: 'block'"),
    (
        "PreToolUse",
        specific(permissionDecision="deny", updatedInput=None),
        DENIED,
        "'updatedInput' is a None",
    ),
    ("Stop", {"decision": "block", "reason": 42}, {"decision": "block"}, "'reason' is a int"),
    ("Stop", {"decision": "block", "hookSpecificOutput": []}, {"decision": "block"}, "is a list, not a dict"),
    ("Stop", {"decision": "block", **DENIED}, {"decision": "block"}, "but the event is 'Stop'"),
    ("Stop", {"continue_": False, "stopReason": []}, {"continue": False}, "'stopReason' is a list"),
    (
        "PermissionRequest",
        specific("PermissionRequest", decision={"behavior": "deny", "message": 42}),
        REFUSED,
        "'message' is a int, not a str",
    ),
]


@pytest.mark.parametrize("on_failure", [None, "continue", "block"])
@pytest.mark.parametrize("case", DENIALS)
async def test_a_denial_is_never_lost(caplog, case, on_failure):
    """A clear denial is sent without the value that would make the CLI drop it; the log names hook and field."""
    event, returned, wire, words = case
    assert await calling(lambda *_: returned, event=event, on_failure=on_failure)() == wire
    [line] = lines(caplog)
    assert words in line
    assert f"the {event} hook {__name__}" in line


@pytest.mark.parametrize(
    ("event", "make", "wire"),
    [
        ("PreToolUse", lambda: deny(42), DENIED),
        ("PermissionRequest", lambda: deny(""), REFUSED),
        ("Stop", lambda: block(None), {"decision": "block"}),
        ("Stop", lambda: stop(""), {"continue": False}),
    ],
)
async def test_a_denial_without_a_reason_is_not_lost(caplog, event, make, wire):
    """The function raises in the hook, which is logged with the traceback; the action is denied all the same."""
    assert await calling(lambda *_: make(), event=event)() == wire
    assert "needs a reason" in lines(caplog)[0]
    assert "Traceback" in caplog.text


async def test_a_question_without_a_reason_is_a_failure():
    """`ask()` denies nothing, so it is an ordinary failure and on_failure decides."""
    with pytest.raises(RuntimeError, match="needs a reason"):
        await calling(lambda *_: ask(""))()


MALFORMED = [
    (
        "PreToolUse",
        specific(permissionDecision="allow", updatedInput="x"),
        "'updatedInput' is a str, not a dict",
    ),
    ("PreToolUse", specific(permissionDecision="allow", updatedInput=None), "'updatedInput' is a NoneType"),
    (
        "PreToolUse",
        specific(permissionDecision="allow", permissionDecisionReason=3),
        "'permissionDecisionReason'",
    ),
    ("PreToolUse", change_input(None), "'updatedInput' is a NoneType"),
    ("PreToolUse", {"continue_": "no"}, "'continue' is a str, not a bool"),
    ("PreToolUse", {"async_": True, "asyncTimeout": True}, "'asyncTimeout' is a bool, not a float"),
    ("SessionStart", specific("SessionStart", watchPaths="a"), "'watchPaths' is a str, not a list"),
    ("SessionStart", specific("SessionStart", watchPaths=["a", 1]), "'watchPaths' has a int in it"),
    ("WorktreeCreate", specific("WorktreeCreate", worktreePath=None), "'worktreePath' is a NoneType"),
    ("PermissionRequest", specific("PermissionRequest", decision="deny"), "'decision' is a str, not a dict"),
    ("PreModelSwitch", allow(updated_input={"a": 1}), "a PreModelSwitch hook cannot return allow"),
    ("PreModelSwitch", ask("sure?", updated_input={"a": 1}), "a PreModelSwitch hook cannot return ask"),
]


@pytest.mark.parametrize("on_failure", [None, "continue", "block"])
@pytest.mark.parametrize(("event", "returned", "words"), MALFORMED)
async def test_values_of_another_type_are_failures(caplog, event, returned, words, on_failure):
    """Whatever on_failure says, the log names event, callback and field."""
    with pytest.raises(RuntimeError, match=words.replace("(", r"\(")):
        await calling(lambda *_: returned, event=event, on_failure=on_failure)()
    [line] = lines(caplog)
    assert f"the {event} hook {__name__}" in line
    assert words in line


@pytest.mark.parametrize(
    "decision",
    [{"behavior": "denied"}, {"behaviour": "deny"}, {}, {"behavior": None}, {"behavior": ["deny"]}],
)
async def test_permission_decisions_are_looked_into(caplog, decision):
    """An invalid decision stops the action with on_failure="block", and is warned about otherwise."""
    output = specific("PermissionRequest", decision=decision)
    with pytest.raises(RuntimeError, match="behavior"):
        await calling(lambda *_: output, event="PermissionRequest", on_failure="block")()
    caplog.clear()
    assert await calling(lambda *_: output, event="PermissionRequest")() == output
    assert any("behavior" in line for line in lines(caplog))


async def test_a_missing_permission_decision_is_named():
    """A missing decision and a misspelt one are failures that say so."""
    for fields, words in (
        ({}, "'decision' in 'hookSpecificOutput' is missing"),
        ({"decison": {}}, "did you mean"),
    ):
        output = specific("PermissionRequest", **fields)
        with pytest.raises(RuntimeError, match=words):
            await calling(lambda *_, output=output: output, event="PermissionRequest", on_failure="block")()


@pytest.mark.parametrize(
    "output", [{"hookSpecificOutput": None}, {"decision": None}, {"suppressOutput": None}]
)
async def test_nones_are_left_out(caplog, output):
    """None in an optional field is no opinion, with a warning, even for a guard."""
    assert await calling(lambda *_: output, on_failure="block")() == {}
    assert "is None and was removed" in lines(caplog)[0]


async def test_a_misplaced_decision_is_named(caplog):
    """Inside `hookSpecificOutput`, `decision` is the key of another event."""
    output = specific(decision="block", additionalContext=1)
    with pytest.raises(RuntimeError, match="'additionalContext' is a int"):
        await calling(lambda *_: output)()
    assert "belongs beside" in lines(caplog)[0]


async def test_what_a_failing_permission_hook_cannot_promise(caplog):
    """The CLI also asks `can_use_tool`, so the log does not promise that the action is blocked."""
    with pytest.raises(RuntimeError):
        await calling(lambda *_: None, event="PermissionRequest", on_failure="block")()
    assert "unless can_use_tool responds first" in lines(caplog)[0]


async def test_lists_of_the_right_things_pass(caplog):
    """A tuple passes too: it is the same to the CLI."""
    for paths in (["a", "b"], ("a",), []):
        output = specific("SessionStart", watchPaths=paths)
        assert await calling(lambda *_, output=output: output, event="SessionStart")() == output
    assert lines(caplog) == []
