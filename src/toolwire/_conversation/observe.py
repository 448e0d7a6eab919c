"""Observing a session: the frames that go by, for debugging, and OpenTelemetry spans.

A tap sees every frame in both directions. One that fails is removed with a log line: looking must never break what
is looked at. Spans are made for the run, its turns, and in them tool calls, hooks and permission requests. Only the
API of OpenTelemetry is used, and only if the program has set it up; nothing is imported for it here. Names and
attributes follow its conventions for generative AI where there is one.
"""

import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

from toolwire._protocol.control import Handler
from toolwire._support.log import logger_for
from toolwire._support.secrets import redact
from toolwire._version import __version__

logger = logger_for("session")

Direction = Literal["in", "out"]
Tap = Callable[[Direction, dict[str, Any]], None]

LONGEST_TEXT: Final = 500
"""Characters of a text that a tap is shown."""
_LONGEST_LIST: Final = 50


class Taps:
    """The taps of a session. False when there are none, so that they cost nothing then."""

    def __init__(self, *taps: Tap | None) -> None:
        self._taps = [tap for tap in taps if tap is not None]

    def __bool__(self) -> bool:
        return bool(self._taps)

    def __call__(self, direction: Direction, frame: dict[str, Any]) -> None:
        for tap in list(self._taps):
            try:
                tap(direction, frame)
            except Exception:
                logger.exception("a tap on frames failed and is removed")
                self._taps.remove(tap)


def shorten_for(tap: Tap) -> Tap:
    """Wrap a tap so that it gets frames with long texts and lists cut."""
    return lambda direction, frame: tap(direction, shorten(frame))


def shorten(value: Any) -> Any:
    """Copy a value with long texts and lists cut; each says by how much."""
    if isinstance(value, str):
        rest = len(value) - LONGEST_TEXT
        return value if rest <= 0 else f"{value[:LONGEST_TEXT]}… ({rest} more characters)"
    if isinstance(value, dict):
        return {key: shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        cut = [shorten(each) for each in value[:_LONGEST_LIST]]
        rest = len(value) - _LONGEST_LIST
        return cut if rest <= 0 else [*cut, f"… ({rest} more items)"]
    return value


def start_tracer() -> "Tracer | None":
    """Start tracing a session; None if the program has set up no provider of spans.

    That the API is loaded says nothing: `mcp` loads it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Tracer(trace)


class Tracer:
    """Makes the spans of one session."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._tracer = trace.get_tracer("toolwire", __version__)
        self._run = self._tracer.start_span("toolwire.run", attributes={"gen_ai.system": "anthropic"})
        self._turn: Any = None

    @property
    def context(self) -> Any:
        """The context of the run's span, to hand on."""
        return self._inside(self._run)

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        """Follow the turns, as a tap: prompts begin them, results end them."""
        kind = frame.get("type")
        if direction == "out" and kind == "user" and self._turn is None:
            self._turn = self._tracer.start_span("toolwire.turn", context=self._inside(self._run))
        elif direction == "in" and kind == "result":
            self._finish_turn(frame)
        elif direction == "in" and kind == "system" and frame.get("subtype") == "init":
            self._run.set_attributes(
                _clean({"session.id": frame.get("session_id"), "gen_ai.request.model": frame.get("model")})
            )

    def _finish_turn(self, result: dict[str, Any]) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        usage = result.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        turn.set_attributes(
            _clean(
                {
                    "toolwire.result": result.get("subtype"),
                    "toolwire.num_turns": result.get("num_turns"),
                    "toolwire.cost_usd": result.get("total_cost_usd"),
                    "gen_ai.usage.input_tokens": usage.get("input_tokens"),
                    "gen_ai.usage.output_tokens": usage.get("output_tokens"),
                }
            )
        )
        if result.get("is_error"):
            turn.set_status(self._trace.StatusCode.ERROR, str(result.get("subtype")))
        turn.end()

    def end(self, error: BaseException | None = None) -> None:
        """End the spans that are open, when the session is over."""
        if self._turn is not None:
            self._turn.end()
            self._turn = None
        if error is not None:
            self._run.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
        self._run.end()

    def trace(self, subtype: str, handler: Handler) -> Handler:
        """Wrap a handler of the session's table so that each request of interest gets a span."""
        describe = _DESCRIPTIONS.get(subtype)
        if describe is None:
            return handler

        def answer(body: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
            description = describe(body)
            return handler(body) if description is None else self._answer(handler, body, *description)

        return answer

    async def _answer(
        self, handler: Handler, body: dict[str, Any], name: str, attributes: Mapping[str, Any]
    ) -> dict[str, Any]:
        with self._span(name, attributes) as span:
            answer = handler(body)
            if not isinstance(answer, dict):
                answer = await answer
            failed = _failure(answer)
            if failed is not None:
                span.set_status(self._trace.StatusCode.ERROR, failed)
            return answer

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, Any]) -> Iterator[Any]:
        context = self._inside(self._turn or self._run)
        with self._tracer.start_as_current_span(
            redact(name),
            context=context,
            attributes=_clean(attributes),
            record_exception=False,  # it would copy texts that may hold secrets
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.add_event("exception", _exception_attributes(error))
                span.set_status(self._trace.StatusCode.ERROR, redact(f"{type(error).__name__}: {error}"))
                raise

    def _inside(self, span: Any) -> Any:
        return self._trace.set_span_in_context(span)


Description = tuple[str, dict[str, Any]] | None


def _tool_call(body: dict[str, Any]) -> Description:
    message = body.get("message")
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    tool_use_id = meta.get("claudecode/toolUseId") if isinstance(meta, dict) else None
    tool = params.get("name")
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": tool_use_id,
        "toolwire.server": body.get("server_name"),
    }
    return f"execute_tool {tool}", attributes


def _hook(body: dict[str, Any]) -> Description:
    given = body.get("input")
    event = given.get("hook_event_name") if isinstance(given, dict) else None
    return f"toolwire.hook {event}", {
        "toolwire.hook.event": event,
        "toolwire.hook.callback": body.get("callback_id"),
        "gen_ai.tool.call.id": body.get("tool_use_id"),
    }


def _permission(body: dict[str, Any]) -> Description:
    return "toolwire.permission", {
        "gen_ai.tool.name": body.get("tool_name"),
        "gen_ai.tool.call.id": body.get("tool_use_id"),
    }


_DESCRIPTIONS: Final[Mapping[str, Callable[[dict[str, Any]], Description]]] = {
    "mcp_message": _tool_call,
    "hook_callback": _hook,
    "can_use_tool": _permission,
}


def _failure(answer: dict[str, Any]) -> str | None:
    """Return why an answer counts as a failure (a tool's error, a denial), None if it does not."""
    reply = answer.get("mcp_response")
    if isinstance(reply, dict):
        if "error" in reply:
            return "error"
        result = reply.get("result")
        return "tool_error" if isinstance(result, dict) and result.get("isError") else None
    return "denied" if answer.get("behavior") == "deny" else None


def _exception_attributes(error: Exception) -> dict[str, str]:
    """Describe an exception by OpenTelemetry's conventions, without secrets."""
    return {
        "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": redact(str(error)),
        "exception.stacktrace": redact("".join(traceback.format_exception(error))),
    }


def _clean(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the attributes that a span can hold, without secrets."""
    return {
        name: redact(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if isinstance(value, str | int | float | bool)
    }
