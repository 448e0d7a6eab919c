"""`Hooks`: collects an application's hooks with decorators, one for each event.

It is a mapping of events to matchers, as `ClaudeAgentOptions.hooks` accepts it. Hooks are called in `calling`.
"""

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from toolwire.hooks import events as e
from toolwire.hooks.events import HookEvent
from toolwire.hooks.outcomes import HookOutcome
from toolwire.hooks.registry import HookContext, HookMatcher, describe_callback

Input = TypeVar("Input")
Output = TypeVar("Output")
Result: TypeAlias = Output | e.AsyncHookJSONOutput | HookOutcome | None
OnFailure: TypeAlias = Literal["continue", "block"] | None

_ARGUMENTS = 3


class Decorator(Generic[Input, Output]):
    """Adds a function to the hooks and returns it unchanged."""

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
        self._hooks.add(self._event, HookMatcher(hooks=[AdaptedHook(function)], **self._settings))
        return function


class Event(Generic[Input, Output]):
    """A method of `Hooks` that returns a decorator. As an attribute `pre_tool_use` it is for `PreToolUse`."""

    name: HookEvent

    def __init__(self, name: HookEvent | None = None, hooks: "Hooks | None" = None) -> None:
        if name is not None:
            self.name = name
        self._hooks = hooks

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = cast("HookEvent", attribute.title().replace("_", ""))

    def __get__(self, hooks: "Hooks | None", owner: type) -> "Event[Input, Output]":
        return Event(self.name, hooks)

    def __call__(
        self, matcher: str | None = None, *, timeout: float | None = None, on_failure: OnFailure = None
    ) -> Decorator[Input, Output]:
        """Return a decorator for functions of one to three arguments: the input, the tool call's id, a context."""
        if self._hooks is None:
            raise TypeError(
                f"the decorator for {self.name} needs an instance: write hooks = Hooks(), then @hooks.<event>()"
            )
        if callable(matcher):
            raise TypeError(f"write the decorator for {self.name} with parentheses, as in @hooks.stop()")
        return Decorator(
            self._hooks, self.name, {"matcher": matcher, "timeout": timeout, "on_failure": on_failure}
        )


class Hooks(Mapping[HookEvent, list[HookMatcher]]):
    """Functions that the CLI calls on certain events: decorate them, and pass the object as the option `hooks`.

    `Hooks(mapping)` starts with hooks in the dict form; `hooks + other` has those of both, where `other` is `Hooks`
    or such a dict. A function may return None for no opinion, a dict, or the outcome of `deny()`, `add_context()`
    and the like.
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
        """Return a decorator for the event of this name."""
        return Event[Any, Any](event, self)(matcher, timeout=timeout, on_failure=on_failure)

    def __getitem__(self, event: HookEvent) -> list[HookMatcher]:
        return self._matchers[event]

    def __iter__(self) -> Iterator[HookEvent]:
        return iter(self._matchers)

    def __len__(self) -> int:
        return len(self._matchers)

    def __add__(self, other: Mapping[Any, Sequence[HookMatcher]]) -> "Hooks":
        return _merge(self, other) if hasattr(other, "items") else NotImplemented

    def __radd__(self, other: Mapping[Any, Sequence[HookMatcher]]) -> "Hooks":
        return _merge(other, self) if hasattr(other, "items") else NotImplemented

    def __repr__(self) -> str:
        return f"Hooks({self._matchers!r})"

    # generated from the classes in `events`: begin
    pre_tool_use = Event[e.PreToolUseHookInput, e.HookOutput[e.PreToolUseHookSpecificOutput]]()
    post_tool_use = Event[e.PostToolUseHookInput, e.HookOutput[e.PostToolUseHookSpecificOutput]]()
    post_tool_use_failure = Event[
        e.PostToolUseFailureHookInput, e.HookOutput[e.PostToolUseFailureHookSpecificOutput]
    ]()
    post_tool_batch = Event[e.PostToolBatchHookInput, e.HookOutput[e.PostToolBatchHookSpecificOutput]]()
    permission_request = Event[
        e.PermissionRequestHookInput, e.HookOutput[e.PermissionRequestHookSpecificOutput]
    ]()
    permission_denied = Event[
        e.PermissionDeniedHookInput, e.HookOutput[e.PermissionDeniedHookSpecificOutput]
    ]()
    user_prompt_submit = Event[
        e.UserPromptSubmitHookInput, e.HookOutput[e.UserPromptSubmitHookSpecificOutput]
    ]()
    user_prompt_expansion = Event[
        e.UserPromptExpansionHookInput, e.HookOutput[e.UserPromptExpansionHookSpecificOutput]
    ]()
    message_display = Event[e.MessageDisplayHookInput, e.HookOutput[e.MessageDisplayHookSpecificOutput]]()
    notification = Event[e.NotificationHookInput, e.HookOutput[e.NotificationHookSpecificOutput]]()
    stop = Event[e.StopHookInput, e.HookOutput[e.StopHookSpecificOutput]]()
    stop_failure = Event[e.StopFailureHookInput, e.CommonHookOutput]()
    subagent_start = Event[e.SubagentStartHookInput, e.HookOutput[e.SubagentStartHookSpecificOutput]]()
    subagent_stop = Event[e.SubagentStopHookInput, e.HookOutput[e.SubagentStopHookSpecificOutput]]()
    teammate_idle = Event[e.TeammateIdleHookInput, e.CommonHookOutput]()
    task_created = Event[e.TaskCreatedHookInput, e.CommonHookOutput]()
    task_completed = Event[e.TaskCompletedHookInput, e.CommonHookOutput]()
    session_start = Event[e.SessionStartHookInput, e.HookOutput[e.SessionStartHookSpecificOutput]]()
    session_end = Event[e.SessionEndHookInput, e.CommonHookOutput]()
    setup = Event[e.SetupHookInput, e.CommonHookOutput]()
    pre_compact = Event[e.PreCompactHookInput, e.CommonHookOutput]()
    post_compact = Event[e.PostCompactHookInput, e.CommonHookOutput]()
    pre_model_switch = Event[e.PreModelSwitchHookInput, e.HookOutput[e.PreModelSwitchHookSpecificOutput]]()
    post_model_switch = Event[e.PostModelSwitchHookInput, e.HookOutput[e.PostModelSwitchHookSpecificOutput]]()
    config_change = Event[e.ConfigChangeHookInput, e.CommonHookOutput]()
    instructions_loaded = Event[e.InstructionsLoadedHookInput, e.CommonHookOutput]()
    elicitation = Event[e.ElicitationHookInput, e.HookOutput[e.ElicitationHookSpecificOutput]]()
    elicitation_result = Event[
        e.ElicitationResultHookInput, e.HookOutput[e.ElicitationResultHookSpecificOutput]
    ]()
    worktree_create = Event[e.WorktreeCreateHookInput, e.HookOutput[e.WorktreeCreateHookSpecificOutput]]()
    worktree_remove = Event[e.WorktreeRemoveHookInput, e.CommonHookOutput]()
    cwd_changed = Event[e.CwdChangedHookInput, e.HookOutput[e.CwdChangedHookSpecificOutput]]()
    file_changed = Event[e.FileChangedHookInput, e.HookOutput[e.FileChangedHookSpecificOutput]]()
    directory_added = Event[e.DirectoryAddedHookInput, e.CommonHookOutput]()
    # generated: end


def _merge(first: Mapping[Any, Sequence[HookMatcher]], second: Mapping[Any, Sequence[HookMatcher]]) -> Hooks:
    hooks = Hooks(first)
    for event, matchers in second.items():
        hooks.add(event, *matchers)
    return hooks


class AdaptedHook:
    """A decorated function with the official signature: three arguments, and `{}` in place of None."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._argument_count = _count_arguments(function)

    async def __call__(self, event: Any, tool_use_id: str | None, context: HookContext) -> Any:
        function: Callable[..., Any] = self.__wrapped__  # type: ignore[attr-defined]  # set by update_wrapper
        from toolwire.hooks.calling import invoke  # noqa: PLC0415 - it imports anyio, which options do not need

        output = await invoke(function, *(event, tool_use_id, context)[: self._argument_count])
        return {} if output is None else output

    def __repr__(self) -> str:
        return f"<hook {describe_callback(self)}>"


def _count_arguments(function: Callable[..., Any]) -> int:
    """Return how many of the three arguments to pass: those that the function requires, and at least one."""
    try:
        parameters = _list_parameters(function)
    except ValueError:  # some functions written in C have no signature
        return _ARGUMENTS
    if _is_unbound(function, parameters):
        raise TypeError(
            f"{describe_callback(function)} cannot be a hook: it is an unbound method; decorate the bound method, "
            "as in hooks.stop()(an_object.method), or use a function outside of the class"
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
            f"{describe_callback(function)} cannot be a hook: it must take the input, and may take the id of the "
            "tool call and a context, in this order and by position"
        )
    return max(1, needed)


def _list_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return a function's own parameters, or those of the function it wraps if it passes on any arguments."""
    inner = _unwrap(function)
    try:
        parameters = [*inspect.signature(function, follow_wrapped=False).parameters.values()]
    except ValueError:
        if inner is None:
            raise
        return _list_parameters(inner)
    passes_on = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return parameters if inner is None or not passes_on else _list_parameters(inner)


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function that a function wraps, bound to the same object or arguments."""
    if isinstance(function, functools.partial):
        inner = _unwrap(function.func)
        return inner and functools.partial(inner, *function.args, **function.keywords)
    inner = getattr(function, "__wrapped__", None)
    return types.MethodType(inner, function.__self__) if inner and inspect.ismethod(function) else inner


def _is_unbound(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> bool:
    """Return True for a function of a class body whose first parameter is its object."""
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = bool(around) and not around.endswith("<locals>")
    return in_class and bool(parameters) and parameters[0].name in ("self", "cls")
