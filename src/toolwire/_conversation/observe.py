"""Observers of runs. Every run reports its events here, however it was started.

An observer is a function that is called when a run starts and returns a `RunObserver`, which gets the events of
that run. Our own OpenTelemetry spans (`spans`) and the option `on_frame` are observers like any other. An observer
never breaks a run: if it raises, the error is logged, and it gets no further events of that run except the end.
Without observers, nothing here is called for a run.
"""

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolwire._protocol.control import Handler
from toolwire._support.log import logger_for
from toolwire.options.agent_options import ClaudeAgentOptions, OnFrame

if TYPE_CHECKING:
    from toolwire.messages import AnyMessage

logger = logger_for("observers")

Direction: TypeAlias = Literal["in", "out"]
"""`"in"`: from the CLI. `"out"`: to the CLI."""

LONGEST_TEXT: Final = 500
"""Longest text that `on_frame` gets; longer ones are cut."""
_LONGEST_LIST: Final = 50


@dataclass(eq=False)
class RunInfo:
    """A run that is starting: one CLI, from its start to its end, with any number of prompts."""

    options: ClaudeAgentOptions
    """The options of the run."""
    env: dict[str, str] = field(repr=False)
    """The environment of the CLI. An observer may add and remove variables when the run starts; those of
    `options.env` stay as the user set them. With a custom transport it is empty and has no effect."""


@dataclass(eq=False)
class CallInfo:
    """A call of the user's code on request of the CLI: a tool, a hook or a permission decision."""

    kind: Literal["tool", "hook", "permission"]
    name: str
    """The tool's name on its server, the hook's event, or the tool that permission is requested for."""
    input: dict[str, Any] = field(repr=False)
    """The arguments of the tool, or the input of the hook."""
    tool_use_id: str | None
    """The id of the model's tool use that the call belongs to, if any."""
    server: str | None = None
    """The name of the tool's server, as in `mcp_servers`."""
    request: dict[str, Any] = field(default_factory=dict, repr=False)
    """The request of the CLI as it was sent."""
    result: dict[str, Any] | None = field(default=None, repr=False)
    """Set when the call has ended: the tool's MCP result, the hook's output or the decision, as the CLI gets it."""
    failure: str | None = None
    """Set when the call has ended: None if it succeeded, else `tool_error` (an error result), `error` (a JSON-RPC
    error), `denied`, or the name of an exception."""


class RunObserver:
    """Gets the events of one run. Override the methods that you need; the defaults do nothing.

    The methods are called on the event loop, one after the other, and must not block. `frame` is called before the
    `message` of the same frame; `end` is called last and once. Arguments must not be modified.
    """

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        """Called with each JSON frame: those of the CLI when they arrive, ours before they are written.

        For a prompt it runs in the context of the task that sends it, whose context variables can be read here.
        """

    def message(self, direction: Direction, message: "AnyMessage") -> None:
        """Called with each message of the conversation, even if the program does not get or read it.

        `"out"` are prompts. The object is not the one that the program gets.
        """

    def call(self, call: CallInfo) -> AbstractContextManager[Any] | None:  # noqa: ARG002 - used by overrides
        """Called before a tool, a hook or `can_use_tool`; may return a context manager that wraps the call.

        The context manager is entered in the context in which the user's code runs, so it can make a span current.
        It gets the exception if there is one, and cannot suppress it.
        """
        return None

    def end(self, error: BaseException | None) -> None:
        """Called when the CLI has ended and no call is running any more, or when it could not be started.

        `error` is the reason if the run failed: it did not start, the CLI failed, or the stream of prompts raised.
        A failed result alone is not an error here, but a message.
        """


StartRun: TypeAlias = Callable[[RunInfo], RunObserver | None]


class _Observer:
    """An observer that was added."""

    def __init__(self, start: StartRun, name: str | None = None) -> None:
        self.start = start
        self.name = name or getattr(start, "__qualname__", type(start).__name__)
        self.removed = False


_observers: tuple[_Observer, ...] = ()
_changing = threading.Lock()


def add_observer(start_run: StartRun) -> None:
    """Call `start_run` with a `RunInfo` for each run from now on; the `RunObserver` it returns gets the events.

    `start_run` may return None to ignore a run, and may be a class: `add_observer(MyObserver)`. It is called in the
    task that starts the run, before the CLI is started. Observers are called in the order in which they were added;
    adding one again changes nothing.
    """
    global _observers  # noqa: PLW0603 - one list for the whole process
    if not callable(start_run):
        raise TypeError(f"add_observer() takes a function or a class, got {type(start_run).__name__}")
    with _changing:
        if all(each.start != start_run for each in _observers):
            _observers = (*_observers, _Observer(start_run))


def remove_observer(start_run: StartRun) -> None:
    """Remove an observer. It gets no more events, even of started runs. Does nothing if it was not added."""
    global _observers  # noqa: PLW0603 - as above
    with _changing:
        for each in _observers:
            each.removed = each.removed or each.start == start_run
        _observers = tuple(each for each in _observers if not each.removed)


def observe_run(run: RunInfo, *own: StartRun) -> "RunObservers | None":
    """Start the observers of a run: those that were added, `own` and `on_frame`. Returns None if there are none."""
    on_frame = run.options.on_frame
    if not _observers and not own and on_frame is None:
        return None
    observers = [*map(_Observer, own), *_observers]
    if on_frame is not None:
        observers.insert(0, _Observer(lambda _: _FrameObserver(on_frame), "on_frame"))
    kept = {name: run.env[name] for name in run.options.env if name in run.env}
    watchers = [watcher for each in observers if (watcher := _start(each, run)) is not None]
    run.env.update(kept)
    return RunObservers(watchers) if watchers else None


def _start(observer: _Observer, run: RunInfo) -> "_Watcher | None":
    before = dict(run.env)
    try:
        watching = observer.start(run)
        _check_started(watching, run.env)
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.exception(
            "the observer %s failed at the start of a run; it gets no events of this run", observer.name
        )
        run.env = before
        return None
    return None if watching is None else _Watcher(observer, watching)


def _check_started(watching: object, env: dict[Any, Any]) -> None:
    """Raise if an observer returned a wrong type, or added a variable that no process can be started with."""
    if watching is not None and not isinstance(watching, RunObserver):
        raise TypeError(f"an observer must return a RunObserver or None, got {type(watching).__name__}")
    for name, value in env.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not name or "=" in name or "\0" in name + value:
            raise ValueError(f"an observer added an environment variable that cannot be set: {name!r}")


class _Watcher:
    """A `RunObserver` of one run, called so that its errors are logged and not raised."""

    def __init__(self, observer: _Observer, watching: RunObserver) -> None:
        self._observer = observer
        self._watching = watching
        self._failed = False

    def wants(self, event: str) -> bool:
        """True if the observer overrides the method of the event."""
        return getattr(getattr(self._watching, event), "__func__", None) is not getattr(RunObserver, event)

    def notify(self, event: str, *args: Any) -> Any:
        """Call the method of an event. Returns None if it raises, or if the observer gets no more events."""
        if self._observer.removed or (self._failed and event != "end"):
            return None
        return self.try_call(event, getattr(self._watching, event), *args)

    def try_call(self, event: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the observer. If it raises, that is logged, and the observer gets only the end."""
        try:
            return function(*args)
        except KeyboardInterrupt:
            raise
        except BaseException:  # third-party code, which may raise anything
            name = self._observer.name
            logger.exception(
                "the observer %s failed in %s(); of this run it gets only the end from now on", name, event
            )
            self._failed = True
            return None


class RunObservers:
    """Passes the events of one run to all of its observers."""

    def __init__(self, watchers: list[_Watcher]) -> None:
        self._watchers = watchers
        self._of_frames = [each for each in watchers if each.wants("frame")]
        self._of_messages = [each for each in watchers if each.wants("message")]
        self._of_calls = [each for each in watchers if each.wants("call")]
        self._ended = False
        self.error: BaseException | None = None
        """Why the run failed, if not because of the CLI."""

    @property
    def tap(self) -> Callable[[Direction, dict[str, Any]], None] | None:
        """The function to call with each frame; None if no observer wants frames."""
        return self._frame if self._of_frames or self._of_messages else None

    def _frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        for watcher in self._of_frames:
            watcher.notify("frame", direction, frame)
        if self._of_messages and _is_message(frame):
            from toolwire._protocol.parse import parse, typed  # noqa: PLC0415 - loaded while the CLI starts

            try:
                message = typed(parse(frame))
            except Exception:  # noqa: BLE001 - the program gets the error when it reads the message
                return
            for watcher in self._of_messages:
                watcher.notify("message", direction, message)

    def end(self, error: BaseException | None) -> None:
        """Report the end of the run, once. `error` is the reason if the CLI failed by itself."""
        if not self._ended:
            self._ended = True
            error, self.error = self.error or error, None  # not kept: its traceback refers to the run
            for watcher in self._watchers:
                watcher.notify("end", error)

    def wrap(self, subtype: str, handler: Handler) -> Handler:
        """Wrap a handler of the session's table so that observers get its calls."""
        describe = _DESCRIPTIONS.get(subtype)
        if describe is None or not self._of_calls:
            return handler

        def handle(body: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
            call = describe(body)
            return handler(body) if call is None else self._observe_call(handler, body, call)

        return handle

    async def _observe_call(self, handler: Handler, body: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        with _CallContexts(self._of_calls, call):
            response = handler(body)
            if not isinstance(response, dict):
                response = await response
            call.result, call.failure = _outcome(response)
            return response


def _is_message(frame: dict[str, Any]) -> bool:
    """True if a frame is part of the conversation, not of the control protocol."""
    return not str(frame.get("type")).startswith("control_") and frame.get("sdk_host_only") is not True


class _CallContexts:
    """Enters the context managers of all observers around one call. Their errors do not affect the call."""

    def __init__(self, watchers: list[_Watcher], call: CallInfo) -> None:
        self._watchers = watchers
        self._call = call
        self._entered: list[tuple[_Watcher, Any]] = []

    def __enter__(self) -> None:
        for watcher in self._watchers:
            manager = watcher.notify("call", self._call)
            if manager is not None:
                watcher.try_call("call", self._enter, watcher, manager)

    def _enter(self, watcher: _Watcher, manager: AbstractContextManager[Any]) -> None:
        leave = type(manager).__exit__
        type(manager).__enter__(manager)
        self._entered.append((watcher, lambda *exc: leave(manager, *exc)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._call.failure = type(error).__name__
        for watcher, leave in reversed(self._entered):
            # Also if the observer was removed meanwhile: its context manager was entered.
            watcher.try_call("call", leave, kind, error, trace)


def _tool_call(body: dict[str, Any]) -> CallInfo | None:
    message = _dict(body.get("message"))
    if message.get("method") != "tools/call":
        return None
    params = _dict(message.get("params"))
    tool_use_id = _dict(params.get("_meta")).get("claudecode/toolUseId")
    server = body.get("server_name")
    return CallInfo(
        "tool",
        str(params.get("name")),
        _dict(params.get("arguments")),
        _text(tool_use_id),
        server=_text(server),
        request=body,
    )


def _hook(body: dict[str, Any]) -> CallInfo:
    given = _dict(body.get("input"))
    event = str(given.get("hook_event_name"))
    return CallInfo("hook", event, given, _text(body.get("tool_use_id")), request=body)


def _permission(body: dict[str, Any]) -> CallInfo:
    tool_use_id = _text(body.get("tool_use_id"))
    return CallInfo(
        "permission", str(body.get("tool_name")), _dict(body.get("input")), tool_use_id, request=body
    )


_DESCRIPTIONS: Final[dict[str, Callable[[dict[str, Any]], CallInfo | None]]] = {
    "mcp_message": _tool_call,
    "hook_callback": _hook,
    "can_use_tool": _permission,
}


def _outcome(response: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Return the result and the failure (see `CallInfo`) that a response to the CLI contains."""
    reply = response.get("mcp_response")
    if not isinstance(reply, dict):
        return response, "denied" if response.get("behavior") == "deny" else None
    if "error" in reply:
        return None, "error"
    result = _dict(reply.get("result"))
    return result, "tool_error" if result.get("isError") else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _FrameObserver(RunObserver):
    """Passes frames to the option `on_frame`, with long texts and lists cut."""

    def __init__(self, on_frame: OnFrame) -> None:
        self._on_frame = on_frame

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        self._on_frame(direction, shorten(frame))


def shorten(value: Any) -> Any:
    """Copy a value with long texts and lists cut; the end of each says how much is missing."""
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
