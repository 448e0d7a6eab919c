"""`inspect` of every public function, class and method on both packages: kind, parameters, defaults, docstring.

Ours may take more: a parameter at the end with a default, or a default where the official one has none. Every call
that the official package accepts must be one that ours accepts, with the same meaning of each position.
"""

import inspect
import typing

import claude_agent_sdk
import claude_agent_sdk.types
import pytest

import toolwire
import toolwire.types
from differential.differences import DIFFERENCES, expected

KINDS = ("isfunction", "iscoroutinefunction", "isasyncgenfunction", "isgeneratorfunction", "isclass")
OFFICIAL = {name: getattr(claude_agent_sdk, name) for name in claude_agent_sdk.__all__} | {
    name: value
    for name, value in vars(claude_agent_sdk.types).items()
    if not name.startswith("_") and getattr(value, "__module__", "") == claude_agent_sdk.types.__name__
}
CALLABLES = sorted(
    name
    for name, value in OFFICIAL.items()
    if (inspect.isfunction(value) or inspect.isclass(value)) and not typing.is_typeddict(value)
)
METHODS = sorted(
    f"{name}.{method}"
    for name in CALLABLES
    if inspect.isclass(OFFICIAL[name])
    and not hasattr(OFFICIAL[name], "model_fields")  # Pydantic's are not its own
    for method, value in vars(OFFICIAL[name]).items()
    if inspect.isroutine(getattr(OFFICIAL[name], method))
    and (not method.startswith("_") or method in ("__init__", "__aenter__", "__aexit__"))
)
MISSING = expected("missing/")


def find(path):
    """Return the official object and ours, by a name with dots."""
    name, _, method = path.partition(".")
    ours = getattr(toolwire, name, None) or getattr(toolwire.types, name, None)
    pair = OFFICIAL[name], ours
    return [getattr(each, method, None) for each in pair] if method else list(pair)


def parameters(thing):
    """Return the parameters of something, or None if Python cannot tell (exceptions written in C)."""
    try:
        return list(inspect.signature(thing).parameters.values())
    except ValueError:
        return None


def describe(value):
    """Return a default in a comparable form: the mark of a default factory is a different object in each class."""
    plain = value is inspect.Parameter.empty or isinstance(value, str | int | float | type(None))
    return value if plain else type(value).__name__


def compare(path):
    """Return the names of what differs."""
    official, ours = find(path)
    if ours is None:
        return {"missing"}
    differing = set()
    if [getattr(inspect, kind)(official) for kind in KINDS] != [
        getattr(inspect, kind)(ours) for kind in KINDS
    ]:
        differing.add("kind")
    if official.__doc__ and not ours.__doc__ and not path.partition(".")[2].startswith("__"):
        differing.add("docstring")
    theirs, mine = parameters(official), parameters(ours)
    if theirs is None or mine is None:
        return differing | ({"parameters"} if theirs != mine else set())
    for position, parameter in enumerate(theirs):
        same = mine[position] if position < len(mine) else None
        if same is None or (same.name, same.kind) != (parameter.name, parameter.kind):
            differing.add("parameters")
        elif describe(same.default) != describe(parameter.default):
            differing.add("defaults")
    for more in mine[len(theirs) :]:
        if more.default is more.empty and more.kind not in (more.VAR_KEYWORD, more.VAR_POSITIONAL):
            differing.add("parameters")
    return differing


def test_what_is_compared_is_most_of_it():
    """The lists below are not empty."""
    assert len(CALLABLES) > 60
    assert len(METHODS) > 30
    assert "ClaudeSDKClient.receive_response" in METHODS
    assert "Transport.read_messages" in METHODS


def test_missing_names():
    """Only names that `differences.py` lists with a reason are missing."""
    ours = {*dir(toolwire), *dir(toolwire.types)}
    assert OFFICIAL.keys() - ours == MISSING


@pytest.mark.parametrize(
    "path", [path for path in [*CALLABLES, *METHODS] if path.partition(".")[0] not in MISSING]
)
def test_the_same(path):
    """Kind, docstring, parameters and defaults are the same, except for the listed differences."""
    assert compare(path) == expected(f"inspect/{path}/")


def test_every_row_is_of_something_that_is_compared():
    """A row about a name that is gone would have no effect."""
    rows = {key.split("/")[1] for key in DIFFERENCES if key.startswith("inspect/")}
    assert rows <= {*CALLABLES, *METHODS}


@pytest.mark.parametrize(
    "name", ["query", "ClaudeSDKClient", "ClaudeAgentOptions", "tool", "create_sdk_mcp_server"]
)
def test_a_wrong_call_is_a_type_error_on_both(name):
    """An argument that does not exist is refused when it is called, not later."""
    for thing in find(name):
        if name in ("tool", "create_sdk_mcp_server"):
            with pytest.raises(TypeError):
                thing("x", "y", {}, None, None, None)
        else:
            with pytest.raises(TypeError):
                thing(no_such_argument=1)
