"""Our classes beside the official ones: same names, fields, order, defaults, keys."""

import copy
import dataclasses
import pickle
import typing

import claude_agent_sdk
import claude_agent_sdk.types
import pytest

from toolwire import hooks, messages, permissions

PLACES = (messages, permissions, hooks)
OURS = {name: getattr(place, name) for place in PLACES for name in place.__all__}
OFFICIAL = {name: value for name, value in vars(claude_agent_sdk.types).items() if not name.startswith("_")}
SHARED = sorted(OURS.keys() & OFFICIAL.keys())

DATACLASSES = [name for name in SHARED if dataclasses.is_dataclass(OFFICIAL[name])]
TYPED_DICTS = [name for name in SHARED if typing.is_typeddict(OFFICIAL[name])]
LITERALS = [name for name in SHARED if typing.get_origin(OFFICIAL[name]) is typing.Literal]

# Names that the official SDK has in other areas: options, MCP configuration, sessions, the client.
ELSEWHERE = (
    "Agent",
    "Claude",
    "Context",
    "Effort",
    "ForkSession",
    "InMemory",
    "Mcp",
    "SDK",
    "Sandbox",
    "Sdk",
    "Session",
    "Setting",
    "TaskBudget",
    "Thinking",
    "ToolAnnotations",
    "Transport",
    "CLI",
    "CanUseToolShadowedWarning",
    "Control",
    "ProcessError",
    "ResultError",
    "SystemPrompt",
    "ToolsPreset",
)


def default_of(spec):
    if spec.default is not dataclasses.MISSING:
        return spec.default
    if spec.default_factory is not dataclasses.MISSING:
        return spec.default_factory()
    return dataclasses.MISSING


def test_no_official_type_is_missing():
    """Blocks, messages, permissions and hooks: every type that the official SDK exports is here."""
    exported = {
        name
        for name in claude_agent_sdk.__all__
        if name[0].isupper() and name not in OURS and name in OFFICIAL and not name.startswith(ELSEWHERE)
    }
    assert exported == set()


def test_what_is_compared_is_most_of_it():
    """The comparison below is not of an empty list."""
    assert len(DATACLASSES) >= 27
    assert len(TYPED_DICTS) >= 42
    assert len(LITERALS) >= 12


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclass_fields(name):
    """The official fields come first, in the same order, with the same defaults and of the same kind."""
    official, ours = dataclasses.fields(OFFICIAL[name]), dataclasses.fields(OURS[name])
    assert [spec.name for spec in ours[: len(official)]] == [spec.name for spec in official]
    for theirs, mine in zip(official, ours, strict=False):
        assert default_of(mine) == default_of(theirs)
        assert type(default_of(mine)) is type(default_of(theirs))
        kinds = [(spec.init, spec.repr, spec.compare, spec.hash, spec.kw_only) for spec in (theirs, mine)]
        assert kinds[0] == kinds[1], mine.name
    extra = ours[len(official) :]
    assert all(default_of(spec) is not dataclasses.MISSING for spec in extra)


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclass_behaviour(name):
    """Same positional construction, same repr, same equality, unhashable; made of official fields alone."""
    kinds = OFFICIAL[name], OURS[name]
    values = [f"value {number}" for number, _ in enumerate(dataclasses.fields(kinds[0]))]
    official, ours = (kind(*values) for kind in kinds)
    if name != "ServerToolResultBlock":  # its `type` is shown, for it tells seven kinds of results apart
        assert repr(ours) == repr(official)
    assert ours == OURS[name](*values)
    assert ours != OURS[name](*values[:-1], "another")
    assert ours != official
    with pytest.raises(TypeError, match="unhashable"):
        hash(ours)


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclass_as_others_see_it(name):
    """Name, bases, positional patterns, attributes in their order: ours may have more behind the official ones."""
    kinds = OFFICIAL[name], OURS[name]
    values = [f"value {number}" for number, _ in enumerate(dataclasses.fields(kinds[0]))]
    official, ours = (kind(*values) for kind in kinds)
    assert (type(ours).__name__, type(ours).__qualname__) == (name, name)
    bases = [kind.__name__ for kind in type(ours).__mro__]
    assert [base for base in bases if base not in ("Record", "RecordWithSecrets")] == [
        kind.__name__ for kind in type(official).__mro__
    ]
    count = len(values)
    for what in (vars, dataclasses.asdict, lambda value: type(value).__match_args__):
        assert list(what(ours))[:count] == list(what(official)), what
    assert list(dataclasses.astuple(ours))[:count] == list(dataclasses.astuple(official))
    assert type(ours).__doc__


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclass_copies(name):
    """Pickled, copied, replaced: equal to itself, of the same class, and not the same object."""
    values = [{"number": [number]} for number, _ in enumerate(dataclasses.fields(OFFICIAL[name]))]
    for kind in (OFFICIAL[name], OURS[name]):
        value = kind(*values)
        copies = [
            *(pickle.loads(pickle.dumps(value, protocol)) for protocol in range(6)),  # noqa: S301 - our own
            copy.copy(value),
            copy.deepcopy(value),
            dataclasses.replace(value),
        ]
        for each in copies:
            assert each == value
            assert type(each) is kind
            assert each is not value
            assert vars(each) == vars(value)


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclass_can_be_changed_and_extended(name):
    """Not frozen, no slots: programs set attributes, also of their own, and derive classes."""
    for kind in (OFFICIAL[name], OURS[name]):

        @dataclasses.dataclass
        class Derived(kind):
            mine: str = "mine"

        values = ["x"] * len(dataclasses.fields(OFFICIAL[name]))
        derived = Derived(*values)
        first = dataclasses.fields(kind)[0].name
        setattr(derived, first, "changed")
        derived.something_else = 1
        assert (getattr(derived, first), derived.mine, derived.something_else) == ("changed", "mine", 1)
        assert isinstance(derived, kind)


@pytest.mark.parametrize("name", TYPED_DICTS)
def test_typed_dict_keys(name):
    """The same keys are required, the same are optional."""
    assert OURS[name].__required_keys__ == OFFICIAL[name].__required_keys__
    assert OURS[name].__optional_keys__ == OFFICIAL[name].__optional_keys__


@pytest.mark.parametrize("name", TYPED_DICTS)
def test_typed_dict_order(name):
    """The keys are declared in the same order."""
    assert list(OURS[name].__annotations__) == list(OFFICIAL[name].__annotations__)


@pytest.mark.parametrize("name", LITERALS)
def test_literals(name):
    """The same values are allowed."""
    assert typing.get_args(OURS[name]) == typing.get_args(OFFICIAL[name])


def test_hook_events_are_more():
    """Ours are the ten official events, and the other twenty-three that the CLI has."""
    official = {
        value for literal in typing.get_args(OFFICIAL["HookEvent"]) for value in typing.get_args(literal)
    }
    ours = typing.get_args(OURS["HookEvent"])
    assert official < set(ours)
    assert len(ours) == len(set(ours)) == 33


def test_constants_and_unions():
    """The terminal statuses are the same, and each official union is part of ours, in the same order.

    The two that are generated have the order of our events. Python takes no notice of it: `A | B == B | A`.
    """
    assert OURS["TERMINAL_TASK_STATUSES"] == OFFICIAL["TERMINAL_TASK_STATUSES"]
    for name in ("HookInput", "HookSpecificOutput"):
        official, ours = (
            {each.__name__ for each in typing.get_args(side[name])} for side in (OFFICIAL, OURS)
        )
        assert official <= ours, name
    for name in ("Message", "ContentBlock", "HookJSONOutput"):
        official = [member.__name__ for member in typing.get_args(OFFICIAL[name])]
        ours = [member.__name__ for member in typing.get_args(OURS[name])]
        assert ours[: len(official)] == official, name
    assert len(typing.get_args(OURS["Message"])) == len(typing.get_args(OFFICIAL["Message"]))
