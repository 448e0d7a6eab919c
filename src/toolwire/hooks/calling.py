"""Calls hooks for the CLI: within their timeout, sync functions in a thread, failures turned into error responses.

The CLI knows each hook's `onFailure` from its registration and applies it when the response is an error. After its
own timeout, however, the CLI blocks the action whatever `onFailure` says. So with `on_failure` set, our timeout is
a little shorter. Without it the CLI's timeout decides: the CLI cancels the request, which cancels the callback,
and ours only makes sure of that.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import cancelled_from_inside, is_async, is_cancellation, maybe_await
from toolwire._support.threads import Workers
from toolwire.errors import message_of
from toolwire.hooks.checking import check_output, find_similar_event
from toolwire.hooks.outcomes import HookOutcome, NoReasonError
from toolwire.hooks.registry import RegisteredHook, output_to_wire

logger = logger_for("hooks")

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

_CLI_DEFAULT: Final = 600.0  # seconds; the CLI's timeout for a hook without one (measured)
_EARLY: Final = 0.5  # seconds by which ours is shorter than the CLI's; a tenth of that if it is less
_GRACE: Final = 5.0  # seconds that the CLI has to cancel a request that timed out

_FAILURES: Final = {"block": ("misspelt", "wrong", "malformed"), "continue": ("wrong", "malformed")}
"""`on_failure` -> the problems of an output that count as a failure of the hook."""

_workers = Workers()  # shared by all sessions, because it keeps its threads


def make_handler(hooks: Mapping[str, RegisteredHook]) -> Handler:
    """Return the handler of the CLI's `hook_callback` requests for these hooks."""
    warned: set[str] = set()
    for hook in hooks.values():
        if (near := find_similar_event(hook.event)) is not None:
            logger.warning("%s will never be called: did you mean %s?", hook, near)

    async def handle(body: dict[str, Any]) -> dict[str, Any]:
        hook = hooks.get(str(body.get("callback_id")))
        if hook is None:
            raise LookupError(f"No hook callback found for ID: {body.get('callback_id')}")
        began = anyio.current_time()
        try:
            returned = await _decide(hook, body)
            return _to_wire(hook, returned, warned)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the boundary of the user's code
            if is_cancellation(error) and not cancelled_from_inside():
                _log_cancellation(hook, anyio.current_time() - began)
                raise
            reason = message_of(error) or type(error).__name__
            logger.warning("%s failed, %s: %s", hook, _describe_consequence(hook), reason, exc_info=error)
            raise RuntimeError(reason) from None  # the trace has been logged

    return handle


async def invoke(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may be sync or async; a sync one in a worker thread."""
    if is_async(function):
        return await function(*args)
    return await maybe_await(await _workers.run(functools.partial(function, *args)))


async def _decide(hook: RegisteredHook, body: Mapping[str, Any]) -> Any:
    try:
        return await _call_in_time(hook, body)
    except NoReasonError as error:
        if error.outcome.verb == "ask":
            raise
        logger.warning("%s failed, its denial still counts: %s", hook, error, exc_info=error)
        return error.outcome


async def _call_in_time(hook: RegisteredHook, body: Mapping[str, Any]) -> Any:
    limit = _compute_limit(hook)
    with anyio.move_on_after(limit):
        return await invoke(hook.callback, body.get("input"), body.get("tool_use_id"), {"signal": None})
    if hook.on_failure is None:
        await anyio.sleep(_GRACE)  # the CLI has the same timeout: it decides, and cancels the request
    raise TimeoutError(f"did not return within {hook.timeout or _CLI_DEFAULT:g} s")


def _compute_limit(hook: RegisteredHook) -> float | None:
    if hook.on_failure is None:
        return hook.timeout or None  # the CLI too treats 0 as no timeout
    seconds = hook.timeout or _CLI_DEFAULT
    return seconds - min(_EARLY, seconds / 10)


def _log_cancellation(hook: RegisteredHook, seconds: float) -> None:
    """Log why a hook was cancelled: after its timeout, the CLI gave up on it; earlier, the session ended."""
    if seconds >= (hook.timeout or _CLI_DEFAULT) * 0.9:
        logger.warning("%s did not return within %g s, so the CLI cancelled it", hook, seconds)
    else:
        logger.debug("%s was cancelled after %g s", hook, seconds)


def _describe_consequence(hook: RegisteredHook) -> str:
    if hook.on_failure != "block":
        return "the action continues"
    race = " unless can_use_tool responds first" if hook.event == "PermissionRequest" else ""
    return f"which blocks the action{race}"


def _to_wire(hook: RegisteredHook, returned: object, warned: set[str]) -> dict[str, Any]:
    output = returned.as_output(hook.event) if isinstance(returned, HookOutcome) else returned
    wire, problems = check_output(hook.event, output_to_wire(output))
    for problem in problems:
        if problem.severity in _FAILURES.get(hook.on_failure or "", ("malformed",)):
            raise ValueError(f"returned an invalid output: {problem.text}")
        text = f"{hook} returned an unusual output: {problem.text}"
        if text not in warned:
            warned.add(text)
            logger.warning("%s", text)
    return wire
