"""OpenTelemetry spans of a session: the run, its turns, and in them tool calls, hooks and permission questions.

Only the API is used, and only if the program has loaded it: without an SDK nothing happens, and nothing is imported
here for it. Names and attributes follow the conventions for generative AI where there is one.
"""

import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from toolwire._conversation.taps import Direction
from toolwire._support.secrets import redact
from toolwire._version import __version__

Handler = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]

_CALL: Final = "tools/call"


def tracer() -> "Tracer | None":
    """A tracer for one session; None if the program has set up no provider of spans by now.

    That the API is loaded says nothing: `mcp` loads it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Tracer(trace)


class Tracer:
    """The spans of one session."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._tracer = trace.get_tracer("toolwire", __version__)
        self._run = self._tracer.start_span("toolwire.run", attributes={"gen_ai.system": "anthropic"})
        self._turn: Any = None

    @property
    def context(self) -> Any:
        """The context of the run, for others to continue."""
        return self._inside(self._run)

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        """A tap: prompts begin turns, results end them."""
        kind = frame.get("type")
        if direction == "out" and kind == "user" and self._turn is None:
            self._turn = self._tracer.start_span("toolwire.turn", context=self._inside(self._run))
        elif direction == "in" and kind == "result":
            self._finish_turn(frame)
        elif direction == "in" and kind == "system" and frame.get("subtype") == "init":
            self._run.set_attributes(
                _known({"session.id": frame.get("session_id"), "gen_ai.request.model": frame.get("model")})
            )

    def _finish_turn(self, result: dict[str, Any]) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        usage = result.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        turn.set_attributes(
            _known(
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
        """The session is over."""
        if self._turn is not None:
            self._turn.end()
            self._turn = None
        if error is not None:
            self._run.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
        self._run.end()

    def traced(self, subtype: str, handler: Handler) -> Handler:
        """A handler of the session's table that makes spans."""
        describe = _DESCRIBED.get(subtype)
        if describe is None:
            return handler

        def answer(body: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
            described = describe(body)
            if described is None:
                return handler(body)
            return self._answer(handler, body, *described)

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
            attributes=_known(attributes),
            record_exception=False,  # it would copy texts that may hold secrets
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.add_event("exception", _described(error))
                span.set_status(self._trace.StatusCode.ERROR, redact(f"{type(error).__name__}: {error}"))
                raise

    def _inside(self, span: Any) -> Any:
        return self._trace.set_span_in_context(span)


Described = tuple[str, dict[str, Any]] | None


def _tool_call(body: dict[str, Any]) -> Described:
    message = body.get("message")
    if not isinstance(message, dict) or message.get("method") != _CALL:
        return None
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    used = meta.get("claudecode/toolUseId") if isinstance(meta, dict) else None
    tool = params.get("name")
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": used,
        "toolwire.server": body.get("server_name"),
    }
    return f"execute_tool {tool}", attributes


def _hook(body: dict[str, Any]) -> Described:
    given = body.get("input")
    event = given.get("hook_event_name") if isinstance(given, dict) else None
    return f"toolwire.hook {event}", {
        "toolwire.hook.event": event,
        "toolwire.hook.callback": body.get("callback_id"),
        "gen_ai.tool.call.id": body.get("tool_use_id"),
    }


def _permission(body: dict[str, Any]) -> Described:
    return "toolwire.permission", {
        "gen_ai.tool.name": body.get("tool_name"),
        "gen_ai.tool.call.id": body.get("tool_use_id"),
    }


_DESCRIBED: Final[Mapping[str, Callable[[dict[str, Any]], Described]]] = {
    "mcp_message": _tool_call,
    "hook_callback": _hook,
    "can_use_tool": _permission,
}


def _failure(answer: dict[str, Any]) -> str | None:
    """Why an answer counts as a failure of what was traced: a tool's error, a denial."""
    reply = answer.get("mcp_response")
    if isinstance(reply, dict):
        if "error" in reply:
            return "error"
        result = reply.get("result")
        return "tool_error" if isinstance(result, dict) and result.get("isError") else None
    return "denied" if answer.get("behavior") == "deny" else None


def _described(error: Exception) -> dict[str, str]:
    """An exception as OpenTelemetry's conventions have it, without secrets."""
    return {
        "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": redact(str(error)),
        "exception.stacktrace": redact("".join(traceback.format_exception(error))),
    }


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a span takes, without secrets."""
    return {
        name: redact(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if isinstance(value, str | int | float | bool)
    }
