"""`Hooks`: collecting hooks with decorators."""

import functools
import inspect
import re
import typing

import pytest

from toolwire import ClaudeAgentOptions, Hooks, OptionsError
from toolwire.hooks import HookEvent, HookMatcher, HookOutcome, events
from toolwire.hooks.calling import make_handler
from toolwire.hooks.registry import describe_callback, register

EVENTS = typing.get_args(HookEvent)


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


async def official(data, tool_use_id, context):
    return {}


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_a_method(event):
    """It has the event's name in snake case, and registers the function under the event, with its settings."""
    hooks = Hooks()

    def function(data):
        return None

    assert getattr(hooks, snake(event))("Some", timeout=5, on_failure="block")(function) is function
    config, registered = register(hooks)
    wire = {"matcher": "Some", "hookCallbackIds": ["hook_0"], "timeout": 5, "onFailure": "block"}
    assert config == {event: [wire]}
    assert describe_callback(registered["hook_0"].callback).endswith(
        "test_every_event_has_a_method.<locals>.function"
    )


@pytest.mark.parametrize("event", EVENTS)
def test_every_method_is_typed(event):
    """Its type has the input of its event, and the event's own output where the CLI reads one."""
    made = Hooks.__dict__[snake(event)]
    told, returned = made.__orig_class__.__args__
    assert told is getattr(events, f"{event}HookInput")
    specific = getattr(events, f"{event}HookSpecificOutput", None)
    assert returned == (events.HookOutput[specific] if specific else events.CommonHookOutput)


class Bound:
    """A class with a method that is a hook."""

    def method(self, event, tool_use_id):
        return {"systemMessage": tool_use_id}


CALLS = [
    (lambda event: event, 1),
    (lambda event, tool_use_id: event, 2),
    (lambda event, tool_use_id, context: event, 3),
    (lambda *args: args[0], 3),
    (lambda event, log=print: event, 1),
    (lambda event=None: event, 1),
    (functools.partial(lambda extra, event: event, 0), 1),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("function", "count"), CALLS)
async def test_functions_get_as_many_arguments_as_they_want(function, count):
    """A hook gets one, two or three arguments; parameters with a default are left alone."""
    hooks, seen = Hooks(), []

    @functools.wraps(function)
    def noting(*args):
        seen.append(args)
        return function(*args)

    noting.__signature__ = inspect.signature(function)
    hooks.stop()(noting)
    assert (
        await make_handler(register(hooks)[1])({"callback_id": "hook_0", "input": {}, "tool_use_id": "t"})
        == {}
    )
    assert seen == [({}, "t", {"signal": None})[:count]]


@pytest.mark.anyio
async def test_methods_can_be_hooks():
    """A bound method is called without its self."""
    hooks = Hooks()
    hooks.stop()(Bound().method)
    answer = await make_handler(register(hooks)[1])(
        {"callback_id": "hook_0", "input": {}, "tool_use_id": "t"}
    )
    assert answer == {"systemMessage": "t"}
    assert str(register(hooks)[1]["hook_0"]) == f"the Stop hook {__name__}.Bound.method"


def giving(function):
    """Return a wrapper that passes a database to the function, and itself takes the input alone."""

    @functools.wraps(function)
    def wrapper(event):
        return function(event, "db")

    return wrapper


def widening(function):
    """Return a wrapper in the official form."""

    @functools.wraps(function)
    def wrapper(event, tool_use_id, context):
        return function(event)

    return wrapper


def passing(function):
    """Return a wrapper that passes on all its arguments."""

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class Wrapped:
    """A class with a method that is wrapped."""

    @passing
    def method(self, event):
        return {"systemMessage": "called"}


def one(event):
    return {"systemMessage": "called"}


def two(event, database):
    return {"systemMessage": "called"} if database == "db" else {}


WRAPPERS = [
    giving(two),
    widening(one),
    passing(one),
    passing(giving(two)),
    giving(passing(two)),
    functools.partial(passing(lambda extra, event: one(event)), 0),
    Wrapped().method,
    functools.singledispatch(one),
]


@pytest.mark.anyio
@pytest.mark.parametrize("function", WRAPPERS)
async def test_wrappers_get_what_they_want_themselves(function):
    """The wrapped function's parameters count only where a wrapper passes on all its arguments."""
    hooks = Hooks()
    hooks.stop()(function)
    answer = await make_handler(register(hooks)[1])(
        {"callback_id": "hook_0", "input": {}, "tool_use_id": "t"}
    )
    assert answer == {"systemMessage": "called"}


def test_wrappers_without_a_signature_are_looked_through():
    """The wrapped function's signature counts, as for wrappers written in C."""

    class Opaque:
        __wrapped__ = staticmethod(lambda: None)

        @property
        def __signature__(self):
            raise ValueError

        def __call__(self, *args):
            """Never called."""

    with pytest.raises(TypeError, match="cannot be a hook"):
        Hooks().stop()(Opaque())


@pytest.mark.parametrize("wrap", [lambda function: function, passing])
def test_methods_in_a_class_body_are_refused(wrap):
    """They would get the input as their self."""
    hooks = Hooks()
    with pytest.raises(TypeError, match="an unbound method"):

        class Guards:
            @hooks.pre_tool_use("Bash")
            @wrap
            def guard(self, event):
                """Never called."""

    assert not hooks


@pytest.mark.parametrize("function", [lambda: None, lambda a, b, c, d: None, lambda event, *, needed: None])
def test_functions_that_cannot_be_called_are_refused(function):
    """They are refused when they are decorated, not when the CLI calls them."""
    with pytest.raises(TypeError, match="cannot be a hook"):
        Hooks().stop()(function)


def test_functions_without_a_signature_get_everything():
    """They are accepted, as in the official form."""
    hooks = Hooks()
    hooks.stop()(min)
    assert len(hooks["Stop"]) == 1


def test_forgotten_parentheses_and_objects_are_named():
    """Both mistakes say what to write."""
    with pytest.raises(TypeError, match="with parentheses"):
        Hooks().stop(official)
    with pytest.raises(TypeError, match=r"hooks = Hooks\(\)"):
        Hooks.stop()


def test_hooks_add_up():
    """Hooks can be added to hooks and to a dict, on either side, in order; nothing is changed in place."""
    first, second = Hooks(), Hooks()
    first.stop()(official)
    second.stop("b")(official)
    second.setup()(official)
    plain = {"Stop": [HookMatcher("c", [official])]}
    assert [matcher.matcher for matcher in (first + second + plain)["Stop"]] == [None, "b", "c"]
    assert [matcher.matcher for matcher in (plain + first)["Stop"]] == ["c", None]
    assert [*first + second] == ["Stop", "Setup"]
    assert len(first["Stop"]) == 1
    assert len(plain["Stop"]) == 1
    assert [*Hooks(plain)] == ["Stop"]
    assert not Hooks()
    with pytest.raises(TypeError):
        first + 1
    with pytest.raises(TypeError):
        1 + first


def test_options_take_hooks():
    """They are taken like a dict, with the same checks."""
    hooks = Hooks()
    hooks.on("Stop", on_failure="block")(official)
    assert ClaudeAgentOptions(hooks=hooks).hooks is hooks
    assert "official" in repr(hooks)
    hooks.stop(timeout="soon")(official)
    with pytest.raises(OptionsError, match="timeout must be a number"):
        ClaudeAgentOptions(hooks=hooks)


def test_one_decorator_for_several_functions():
    """It can be kept and used again; each use adds a matcher of its own."""
    hooks = Hooks()
    guard = hooks.pre_tool_use("Bash")
    guard(official)
    guard(official)
    assert [len(matcher.hooks) for matcher in hooks["PreToolUse"]] == [1, 1]


def test_outcomes_are_records():
    """They compare and show like any record."""
    assert HookOutcome("stop", "x") == HookOutcome("stop", "x")
    assert "stop" in repr(HookOutcome("stop"))
