"""`Hooks`: the hooks of an application, collected with decorators, one method for each event.

It is a mapping of events to matchers, as `ClaudeAgentOptions.hooks` takes it. What is here only collects; what
calls a hook is in `calling`.
"""

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

from toolwire.hooks import inputs as i
from toolwire.hooks import outputs as o
from toolwire.hooks.inputs import HookEvent
from toolwire.hooks.outcomes import HookOutcome
from toolwire.hooks.registry import HookContext, HookMatcher, qualified_name

Input = TypeVar("Input")
Output = TypeVar("Output")
Result: TypeAlias = Output | o.AsyncHookJSONOutput | HookOutcome | None
OnFailure: TypeAlias = Literal["continue", "block"] | None

_ARGUMENTS = 3


class Decorator(Generic[Input, Output]):
    """Adds a function to the hooks and gives it back as it is."""

    def __init__(self, hooks: "Hooks", event: HookEvent, settings: dict[str, Any]) -> None:
        self._hooks = hooks
        self._event: HookEvent = event
        self._settings = settings

    @overload
    def __call__(
        self, function: Callable[[Input], Awaitable[Result[Output]]], /
    ) -> Callable[[Input], Awaitable[Result[Output]]]: ...
    @overload
    def __call__(
        self, function: Callable[[Input, str | None], Awaitable[Result[Output]]], /
    ) -> Callable[[Input, str | None], Awaitable[Result[Output]]]: ...
    @overload
    def __call__(
        self, function: Callable[[Input, str | None, HookContext], Awaitable[Result[Output]]], /
    ) -> Callable[[Input, str | None, HookContext], Awaitable[Result[Output]]]: ...
    @overload
    def __call__(
        self, function: Callable[[Input], Result[Output]], /
    ) -> Callable[[Input], Result[Output]]: ...
    @overload
    def __call__(
        self, function: Callable[[Input, str | None], Result[Output]], /
    ) -> Callable[[Input, str | None], Result[Output]]: ...
    @overload
    def __call__(
        self, function: Callable[[Input, str | None, HookContext], Result[Output]], /
    ) -> Callable[[Input, str | None, HookContext], Result[Output]]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Add the function."""
        self._hooks.add(self._event, HookMatcher(hooks=[Adapted(function)], **self._settings))
        return function


class Event(Generic[Input, Output]):
    """A method of `Hooks`: called with a matcher and settings, it gives the decorator."""

    def __init__(self, name: HookEvent, hooks: "Hooks | None" = None) -> None:
        self.name: HookEvent = name
        self._hooks = hooks

    def __get__(self, hooks: "Hooks | None", owner: type) -> "Event[Input, Output]":
        return Event(self.name, hooks)

    def __call__(
        self,
        matcher: str | None = None,
        *,
        timeout: float | None = None,
        on_failure: OnFailure = None,
    ) -> Decorator[Input, Output]:
        """A decorator for functions of one, two or three arguments: the input, the tool call's id, a context."""
        if self._hooks is None:
            raise TypeError(f"make an object first: hooks = Hooks(), then @hooks for {self.name}")
        if callable(matcher):
            raise TypeError(f"write the decorator for {self.name} with parentheses, as in @hooks.stop()")
        return Decorator(
            self._hooks, self.name, {"matcher": matcher, "timeout": timeout, "on_failure": on_failure}
        )


class Hooks(Mapping[HookEvent, list[HookMatcher]]):
    """Functions that the CLI calls at certain moments: decorate them, and give the object as `hooks`.

    `Hooks(mapping)` starts with hooks in the dict form; `hooks + other` has those of both, `other` being `Hooks`
    or such a dict. A function may return None for no opinion, a dict, or what `deny()`, `add_context()` and the
    like give.
    """

    def __init__(self, hooks: Mapping[Any, Sequence[HookMatcher]] | None = None) -> None:
        self._matchers: dict[HookEvent, list[HookMatcher]] = {}
        for event, matchers in (hooks or {}).items():
            self.add(event, *matchers)

    def add(self, event: HookEvent, *matchers: HookMatcher) -> None:
        """Add matchers in the official form."""
        self._matchers.setdefault(event, []).extend(matchers)

    def on(
        self,
        event: HookEvent,
        matcher: str | None = None,
        *,
        timeout: float | None = None,
        on_failure: OnFailure = None,
    ) -> Decorator[Any, Any]:
        """A decorator for the event of this name."""
        return Event[Any, Any](event, self)(matcher, timeout=timeout, on_failure=on_failure)

    def __getitem__(self, event: HookEvent) -> list[HookMatcher]:
        return self._matchers[event]

    def __iter__(self) -> Iterator[HookEvent]:
        return iter(self._matchers)

    def __len__(self) -> int:
        return len(self._matchers)

    def __add__(self, other: Mapping[Any, Sequence[HookMatcher]]) -> "Hooks":
        return _both(self, other) if hasattr(other, "items") else NotImplemented

    def __radd__(self, other: Mapping[Any, Sequence[HookMatcher]]) -> "Hooks":
        return _both(other, self) if hasattr(other, "items") else NotImplemented

    def __repr__(self) -> str:
        return f"Hooks({self._matchers!r})"

    # Tools. The matcher is a pattern of tool names.
    pre_tool_use = Event[i.PreToolUseHookInput, o.HookOutput[o.PreToolUseHookSpecificOutput]]("PreToolUse")
    post_tool_use = Event[i.PostToolUseHookInput, o.HookOutput[o.PostToolUseHookSpecificOutput]](
        "PostToolUse"
    )
    post_tool_use_failure = Event[
        i.PostToolUseFailureHookInput, o.HookOutput[o.PostToolUseFailureHookSpecificOutput]
    ]("PostToolUseFailure")
    post_tool_batch = Event[i.PostToolBatchHookInput, o.HookOutput[o.PostToolBatchHookSpecificOutput]](
        "PostToolBatch"
    )
    permission_request = Event[
        i.PermissionRequestHookInput, o.HookOutput[o.PermissionRequestHookSpecificOutput]
    ]("PermissionRequest")
    permission_denied = Event[
        i.PermissionDeniedHookInput, o.HookOutput[o.PermissionDeniedHookSpecificOutput]
    ]("PermissionDenied")

    # Prompts and answers.
    user_prompt_submit = Event[
        i.UserPromptSubmitHookInput, o.HookOutput[o.UserPromptSubmitHookSpecificOutput]
    ]("UserPromptSubmit")
    user_prompt_expansion = Event[
        i.UserPromptExpansionHookInput, o.HookOutput[o.UserPromptExpansionHookSpecificOutput]
    ]("UserPromptExpansion")
    message_display = Event[i.MessageDisplayHookInput, o.HookOutput[o.MessageDisplayHookSpecificOutput]](
        "MessageDisplay"
    )
    notification = Event[i.NotificationHookInput, o.HookOutput[o.NotificationHookSpecificOutput]](
        "Notification"
    )
    stop = Event[i.StopHookInput, o.HookOutput[o.StopHookSpecificOutput]]("Stop")
    stop_failure = Event[i.StopFailureHookInput, o.CommonHookOutput]("StopFailure")

    # Subagents and teams.
    subagent_start = Event[i.SubagentStartHookInput, o.HookOutput[o.SubagentStartHookSpecificOutput]](
        "SubagentStart"
    )
    subagent_stop = Event[i.SubagentStopHookInput, o.HookOutput[o.SubagentStopHookSpecificOutput]](
        "SubagentStop"
    )
    teammate_idle = Event[i.TeammateIdleHookInput, o.CommonHookOutput]("TeammateIdle")
    task_created = Event[i.TaskCreatedHookInput, o.CommonHookOutput]("TaskCreated")
    task_completed = Event[i.TaskCompletedHookInput, o.CommonHookOutput]("TaskCompleted")

    # The session.
    session_start = Event[i.SessionStartHookInput, o.HookOutput[o.SessionStartHookSpecificOutput]](
        "SessionStart"
    )
    session_end = Event[i.SessionEndHookInput, o.CommonHookOutput]("SessionEnd")
    setup = Event[i.SetupHookInput, o.CommonHookOutput]("Setup")
    pre_compact = Event[i.PreCompactHookInput, o.CommonHookOutput]("PreCompact")
    post_compact = Event[i.PostCompactHookInput, o.CommonHookOutput]("PostCompact")
    pre_model_switch = Event[i.PreModelSwitchHookInput, o.HookOutput[o.PreModelSwitchHookSpecificOutput]](
        "PreModelSwitch"
    )
    post_model_switch = Event[i.PostModelSwitchHookInput, o.HookOutput[o.PostModelSwitchHookSpecificOutput]](
        "PostModelSwitch"
    )
    config_change = Event[i.ConfigChangeHookInput, o.CommonHookOutput]("ConfigChange")
    instructions_loaded = Event[i.InstructionsLoadedHookInput, o.CommonHookOutput]("InstructionsLoaded")

    # MCP servers that ask the user.
    elicitation = Event[i.ElicitationHookInput, o.HookOutput[o.ElicitationHookSpecificOutput]]("Elicitation")
    elicitation_result = Event[
        i.ElicitationResultHookInput, o.HookOutput[o.ElicitationResultHookSpecificOutput]
    ]("ElicitationResult")

    # Files and directories.
    worktree_create = Event[i.WorktreeCreateHookInput, o.HookOutput[o.WorktreeCreateHookSpecificOutput]](
        "WorktreeCreate"
    )
    worktree_remove = Event[i.WorktreeRemoveHookInput, o.CommonHookOutput]("WorktreeRemove")
    cwd_changed = Event[i.CwdChangedHookInput, o.HookOutput[o.CwdChangedHookSpecificOutput]]("CwdChanged")
    file_changed = Event[i.FileChangedHookInput, o.HookOutput[o.FileChangedHookSpecificOutput]]("FileChanged")
    directory_added = Event[i.DirectoryAddedHookInput, o.CommonHookOutput]("DirectoryAdded")


def _both(first: Mapping[Any, Sequence[HookMatcher]], second: Mapping[Any, Sequence[HookMatcher]]) -> Hooks:
    hooks = Hooks(first)
    for event, matchers in second.items():
        hooks.add(event, *matchers)
    return hooks


class Adapted:
    """A decorated function in the official form: three arguments, and `{}` for None."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._wanted = _wanted(function)

    async def __call__(self, event: Any, tool_use_id: str | None, context: HookContext) -> Any:
        from toolwire.hooks.calling import invoke  # noqa: PLC0415 - it needs an event loop, and this does not

        function: Callable[..., Any] = self.__wrapped__  # type: ignore[attr-defined]  # set by update_wrapper
        output = await invoke(function, *(event, tool_use_id, context)[: self._wanted])
        return {} if output is None else output

    def __repr__(self) -> str:
        return f"<hook {qualified_name(self)}>"


def _wanted(function: Callable[..., Any]) -> int:
    """How many of the three arguments a function wants: those that it cannot do without, and at least one."""
    try:
        parameters = _parameters(function)
    except ValueError:  # some functions written in C have none
        return _ARGUMENTS
    if _is_unbound(function, parameters):
        raise TypeError(
            f"{qualified_name(function)} cannot be a hook: it is a method that belongs to no object yet; decorate "
            "the bound one, as in hooks.stop()(an_object.method), or make it a function outside of the class"
        )
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return _ARGUMENTS
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    needed = sum(each.default is each.empty for each in positional)
    keywords = any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters)
    if not positional or needed > _ARGUMENTS or keywords:
        raise TypeError(
            f"{qualified_name(function)} cannot be a hook: it must take the input, and may take the id of the "
            "tool call and a context, in this order and by position"
        )
    return max(1, needed)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those of the function itself; of what it wraps only where it passes on whatever it gets."""
    inner = _wrapped(function)
    try:
        parameters = [*inspect.signature(function, follow_wrapped=False).parameters.values()]
    except ValueError:
        if inner is None:
            raise
        return _parameters(inner)
    passes_on = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return parameters if inner is None or not passes_on else _parameters(inner)


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What a function wraps, bound to the same object or arguments."""
    if isinstance(function, functools.partial):
        inner = _wrapped(function.func)
        return inner and functools.partial(inner, *function.args, **function.keywords)
    inner = getattr(function, "__wrapped__", None)
    return types.MethodType(inner, function.__self__) if inner and inspect.ismethod(function) else inner


def _is_unbound(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> bool:
    """Whether it is a function of a class body that wants its object first."""
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = bool(around) and not around.endswith("<locals>")
    return in_class and bool(parameters) and parameters[0].name in ("self", "cls")
