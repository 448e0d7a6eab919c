"""OpenTelemetry spans of a run, as an observer: the run, its turns, and in them tool calls, hooks and permissions.

Spans are made only if they are requested (`ClaudeAgentOptions(tracing=True)`, `TOOLWIRE_TRACING`), a provider is
set up, and no other library traces our client: otherwise runs and tokens would be counted twice. Names and
attributes follow OpenTelemetry's conventions for generative AI. Tokens are recorded on the turn and nowhere else,
since backends add up what they find on spans. Prompts, arguments and results are not recorded.
"""

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

from opentelemetry import propagate, trace

from toolwire._conversation.observe import CallInfo, Direction, RunInfo, RunObserver
from toolwire._support.log import logger_for
from toolwire._support.secrets import redact
from toolwire._support.tracing import IN_TRACED_CALL, VARIABLE
from toolwire._version import __version__

logger = logger_for("tracing")

_warned: set[str] = set()
"""Packages because of which no spans are made, each logged once; "" if there is no provider."""

_TURN_STARTS: Final = frozenset({"assistant", "stream_event", "result"})
"""Frames of the CLI that belong to a turn, except those of subagents, which may run in the background.

A turn may start without a prompt, when a background task has ended."""

_PROVIDERS: Final = {
    "CLAUDE_CODE_USE_BEDROCK": "aws.bedrock",
    "CLAUDE_CODE_USE_VERTEX": "gcp.vertex_ai",
    "CLAUDE_CODE_USE_FOUNDRY": "azure.ai.inference",
}


def start_spans(run: RunInfo) -> RunObserver | None:
    """Start the span of a run. Returns None, with one warning, if spans cannot or must not be made."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        package, reason = "", "the program has set up no TracerProvider"
    elif (other := find_other_tracer()) is not None:
        package = other.partition(".")[0]
        reason = f"{other} traces the client already, so runs and tokens would be counted twice"
    else:
        return _RunSpans(run)
    if package not in _warned:
        _warned.add(package)
        logger.warning("no spans are made, although tracing=True or %s is set: %s", VARIABLE, reason)
    return None


class _RunSpans(RunObserver):
    """Makes the spans of one run."""

    def __init__(self, run: RunInfo) -> None:
        self._tracer = trace.get_tracer("toolwire", __version__)
        self._agent = run.options.agent
        self._about = {"gen_ai.provider.name": _provider(run.env)}
        if run.options.model:
            self._about["gen_ai.request.model"] = run.options.model
        self._caller = trace.get_current_span().get_span_context()
        self._run = self._tracer.start_span("toolwire.run", attributes=_clean(self._about))
        self._turn: trace.Span | None = None
        self._cost = 0.0
        _continue_trace(run.env, trace.set_span_in_context(self._run))

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        """Start a turn at a prompt, or at a message without one, and end it at its result."""
        kind = frame.get("type")
        if direction == "out":
            if kind == "user":
                self._start_turn(trace.get_current_span())
        elif kind == "system" and frame.get("subtype") == "init":
            self._about |= {"gen_ai.conversation.id": frame.get("session_id") or ""}
            self._about |= {"gen_ai.request.model": frame.get("model") or ""}
            for span in (self._run, self._turn):
                if span is not None:
                    span.set_attributes(_clean(self._about))
        elif kind in _TURN_STARTS and not frame.get("parent_tool_use_id"):
            turn = self._start_turn()
            if kind == "result":
                self._turn = None
                self._end_turn(turn, frame)

    def _start_turn(self, sender: trace.Span = trace.INVALID_SPAN) -> trace.Span:
        """Return the span of the turn; start one if there is none.

        Its parent is the run, or the span in which the prompt is sent if that is another one than where the run was
        started: a client may outlive the span that it was started in, such as that of a web request.
        """
        if self._turn is None:
            context = sender.get_span_context()
            elsewhere = context.is_valid and context.span_id != self._caller.span_id
            self._turn = self._tracer.start_span(
                f"invoke_agent {self._agent}" if self._agent else "invoke_agent",
                context=trace.set_span_in_context(sender if elsewhere else self._run),
                links=[trace.Link(self._run.get_span_context())] if elsewhere else None,
                attributes=_clean(
                    {
                        "gen_ai.operation.name": "invoke_agent",
                        "gen_ai.agent.name": self._agent,
                        **self._about,
                    }
                ),
            )
        return self._turn

    def _end_turn(self, turn: trace.Span, result: dict[str, Any]) -> None:
        usage = result.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        read, created = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        total = [each for each in (usage.get("input_tokens"), read, created) if isinstance(each, int)]
        cost = result.get("total_cost_usd")
        subtype = str(result.get("subtype"))
        turn.set_attributes(
            _clean(
                {
                    "gen_ai.conversation.id": result.get("session_id"),
                    # Includes tokens from the cache, as the conventions require; the API counts them apart.
                    "gen_ai.usage.input_tokens": sum(total) if total else None,
                    "gen_ai.usage.output_tokens": usage.get("output_tokens"),
                    "gen_ai.usage.cache_read.input_tokens": read,
                    "gen_ai.usage.cache_creation.input_tokens": created,
                    "toolwire.result": subtype,
                    "toolwire.num_turns": result.get("num_turns"),
                    "toolwire.cost_usd": self._cost_since(cost),
                }
            )
        )
        if result.get("is_error"):
            _fail(turn, subtype if subtype != "success" else "error_result")
        turn.end()

    def _cost_since(self, total: Any) -> float | None:
        """Return the cost of one turn. The CLI reports the total of all its turns."""
        if not isinstance(total, int | float):
            return None
        before, self._cost = self._cost, float(total)
        return max(0.0, self._cost - before)

    @contextmanager
    def call(self, call: CallInfo) -> Iterator[None]:
        name, attributes = _describe(call)
        inside = IN_TRACED_CALL.set(True)
        try:
            with self._tracer.start_as_current_span(
                redact(name),
                context=trace.set_span_in_context(self._turn or self._run),
                attributes=_clean(attributes),
                record_exception=False,  # it would copy texts that may hold secrets
                set_status_on_exception=False,
            ) as span:
                try:
                    yield
                except Exception as error:
                    span.add_event("exception", _exception_attributes(error))
                    _fail(span, type(error).__name__, redact(f"{type(error).__name__}: {error}"))
                    raise
                if call.failure is not None:
                    _fail(span, call.failure)
        finally:
            IN_TRACED_CALL.reset(inside)

    def end(self, error: BaseException | None) -> None:
        if self._turn is not None:
            self._turn.end()
        if error is not None:
            _fail(self._run, type(error).__name__)
        self._run.end()


def _describe(call: CallInfo) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of a call's span."""
    tool = {"gen_ai.tool.call.id": call.tool_use_id}
    if call.kind == "tool":
        return f"execute_tool {call.name}", {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "toolwire.server": call.server,
            **tool,
        }
    if call.kind == "hook":
        return f"toolwire.hook {call.name}", {
            "toolwire.hook.event": call.name,
            "toolwire.hook.callback": call.request.get("callback_id"),
            **tool,
        }
    return "toolwire.permission", {"gen_ai.tool.name": call.name, **tool}


def _provider(env: Mapping[str, str]) -> str:
    return next((name for variable, name in _PROVIDERS.items() if env.get(variable)), "anthropic")


def _continue_trace(env: dict[str, str], context: Any) -> None:
    """Pass the run's span to the CLI, in place of a trace context that this process inherited."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    if "traceparent" in carrier:
        for name in ("traceparent", "tracestate"):
            env.pop(name.upper(), None)
            if name in carrier:
                env[name.upper()] = carrier[name]


def _fail(span: trace.Span, kind: str, text: str | None = None) -> None:
    span.set_attribute("error.type", redact(kind))
    span.set_status(trace.StatusCode.ERROR, redact(text or kind))


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
        if isinstance(value, str | int | float | bool) and value != ""
    }


# Detects other libraries that trace our client: they replace parts of it, or wrap it in a client of their own.

_OFFICIAL: Final = "claude_agent_sdk"
_TRACERS: Final = frozenset(
    {
        *("agentops", "arize", "braintrust", "ddtrace", "honeyhive", "judgeval", "langfuse", "langsmith"),
        *("langtrace_python_sdk", "lmnr", "logfire", "mlflow", "newrelic", "openinference", "openlit"),
        *("opentelemetry", "opik", "phoenix", "posthog", "respan", "sentry_sdk", "traceloop", "weave"),
    }
)
"""Packages with a module that traces clients. Modules named after the official package need no entry."""
_ENTRIES: Final = frozenset({"query", "ClaudeSDKClient", "InternalClient"})
_MODULES: Final = (
    *("toolwire", "toolwire.client.client", "toolwire.client.query"),
    "toolwire.official.internals",
)


def find_other_tracer() -> str | None:
    """Return the module of another library that traces this run or all runs; None if there is none."""
    for part in _entry_parts():
        origin = _origin(part)
        if origin.partition(".")[0] in _TRACERS or _is_integration(origin):
            return origin
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - a library's own client is among our callers
    while frame is not None:
        if _is_integration(origin := str(frame.f_globals.get("__name__"))):
            return origin
        frame = frame.f_back
    return None


def _is_integration(module: str) -> bool:
    """True for a module named after the official package, as integrations are, that is not a part of it."""
    return _OFFICIAL in module and module.partition(".")[0] not in {_OFFICIAL, "toolwire"}


def _entry_parts() -> Iterator[Any]:
    """Yield the functions and classes that start a run, and all attributes of those classes."""
    for module in _entry_modules():
        for name in _ENTRIES & vars(module).keys():
            entry = vars(module)[name]
            yield entry
            if isinstance(entry, type):
                for kind in entry.__mro__:
                    yield from vars(kind).values()


def _entry_modules() -> list[ModuleType]:
    """List the loaded modules that expose our client, without those of the official package itself."""
    ours = [sys.modules.get(name) for name in _MODULES]
    aliases = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == _OFFICIAL]
    ours += [module for module in aliases if type(module).__module__.partition(".")[0] == "toolwire"]
    return [module for module in ours if isinstance(module, ModuleType)]


def _origin(value: Any) -> str:
    """Return the module in which a function, a wrapper or a class was defined.

    `functools.wraps` and wrapt copy `__module__` from what they wrap, so it cannot be used.
    """
    value = getattr(value, "_self_wrapper", value)  # wrapt
    value = getattr(value, "__func__", value)
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__", ""))
    if isinstance(value, type):
        return value.__module__
    return type(value).__module__
