"""Calls a hook for the CLI: in its own time, in a thread if it is sync, and with a defined end if it goes wrong.

What a failure means for the action is told to the CLI beforehand (`onFailure`) and carried out by it when we
answer with an error. Its own time-out it does not leave to `onFailure`: it stops the action. So ours is a little
shorter where `on_failure` is set. Where it is not, the CLI's time-out decides: it withdraws the question, which
cancels the callback, and ours only makes sure that it is cancelled.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import cancelled_from_inside, is_async, is_cancellation, maybe_await
from toolwire._support.threads import Workers
from toolwire.errors import message_of
from toolwire.hooks.checking import checked, nearest_event
from toolwire.hooks.outcomes import HookOutcome, NoReasonError
from toolwire.hooks.registry import Registered, output_to_wire

logger = logger_for("hooks")

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

_CLI_DEFAULT: Final = 600.0  # seconds that the CLI gives a hook without a time-out of its own: measured
_EARLY: Final = 0.5  # ours ends this much before the CLI's, or a tenth of it if that is less
_GRACE: Final = 5.0  # how long the CLI has to withdraw a question that timed out

_COUNTS: Final = {"block": ("misspelt", "wrong", "malformed"), "continue": ("wrong", "malformed")}

_workers = Workers()  # one pool for all sessions: threads are kept


def answering(hooks: Mapping[str, Registered]) -> Answer:
    """Answers the CLI's `hook_callback` questions with these hooks."""
    warned: set[str] = set()
    for hook in hooks.values():
        if (near := nearest_event(hook.event)) is not None:
            logger.warning("%s will never be called: did you mean %s?", hook, near)

    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        hook = hooks.get(str(body.get("callback_id")))
        if hook is None:
            raise LookupError(f"No hook callback found for ID: {body.get('callback_id')}")
        began = anyio.current_time()
        try:
            returned = await _decision(hook, body)
            return _to_wire(hook, returned, warned)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the boundary of the user's code
            if is_cancellation(error) and not cancelled_from_inside():
                _say_that_it_was_cut(hook, anyio.current_time() - began)
                raise
            reason = message_of(error) or type(error).__name__
            logger.warning("%s failed, %s: %s", hook, _consequence(hook), reason, exc_info=error)
            raise RuntimeError(reason) from None  # the trace has been logged

    return answer


async def invoke(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may be sync or async; a sync one in a worker thread."""
    if is_async(function):
        return await function(*args)
    return await maybe_await(await _workers.run(functools.partial(function, *args)))


async def _decision(hook: Registered, body: Mapping[str, Any]) -> Any:
    try:
        return await _in_time(hook, body)
    except NoReasonError as error:
        if error.outcome.verb == "ask":
            raise
        logger.warning("%s failed, its denial counts all the same: %s", hook, error, exc_info=error)
        return error.outcome


async def _in_time(hook: Registered, body: Mapping[str, Any]) -> Any:
    limit = _limit(hook)
    with anyio.move_on_after(limit):
        return await invoke(hook.callback, body.get("input"), body.get("tool_use_id"), {"signal": None})
    if hook.on_failure is None:
        await anyio.sleep(_GRACE)  # the CLI has the same time-out: it decides, and withdraws the question
    raise TimeoutError(f"did not return within {hook.timeout or _CLI_DEFAULT:g} s")


def _limit(hook: Registered) -> float | None:
    if hook.on_failure is None:
        return hook.timeout or None  # the CLI takes 0 for none, too
    seconds = hook.timeout or _CLI_DEFAULT
    return seconds - min(_EARLY, seconds / 10)


def _say_that_it_was_cut(hook: Registered, seconds: float) -> None:
    """The CLI has given up, or the session ends: tell the one from the other by the time."""
    if seconds >= (hook.timeout or _CLI_DEFAULT) * 0.9:
        logger.warning("%s did not return within %g s: the CLI has given it up", hook, seconds)
    else:
        logger.debug("%s was cancelled after %g s", hook, seconds)


def _consequence(hook: Registered) -> str:
    if hook.on_failure != "block":
        return "the action goes on"
    race = " unless can_use_tool answers first" if hook.event == "PermissionRequest" else ""
    return f"which stops the action{race}"


def _to_wire(hook: Registered, returned: object, warned: set[str]) -> dict[str, Any]:
    output = returned.as_output(hook.event) if isinstance(returned, HookOutcome) else returned
    wire, problems = checked(hook.event, output_to_wire(output))
    for problem in problems:
        if problem.gravity in _COUNTS.get(hook.on_failure or "", ("malformed",)):
            raise ValueError(f"returned nonsense: {problem.text}")
        text = f"{hook} returned something odd: {problem.text}"
        if text not in warned:
            warned.add(text)
            logger.warning("%s", text)
    return wire
