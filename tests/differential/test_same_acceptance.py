"""toolwire accepts what the official SDK accepts: its code really builds the command line and the first frames."""

import dataclasses
import json
import pickle
import warnings
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import toolwire
from shared.odd_options import BEYOND, SILENT, WARNED
from toolwire.hooks.registry import register
from toolwire.options.agent_options import prepare
from toolwire.options.command_line import build_command, build_initialize_request
from toolwire.permissions.types import result_to_wire

official = pytest.importorskip("claude_agent_sdk")
official_types = pytest.importorskip("claude_agent_sdk.types")
subprocess_cli = pytest.importorskip("claude_agent_sdk._internal.transport.subprocess_cli")

OFFICIAL_OPTIONS = {field.name for field in dataclasses.fields(official.ClaudeAgentOptions)}
ROWS = [
    (option, value)
    for option, value, *_ in (*SILENT, *WARNED)
    if option in OFFICIAL_OPTIONS and (option, value) not in BEYOND
]


class Silent(official.Transport):  # type: ignore[misc, name-defined]
    """Answers initialize with an empty response, and ends."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](10)

    async def connect(self) -> None: ...

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        if frame["type"] == "control_request":
            answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            if "onFailure" in data:
                answer["response"] = {"hook_on_failure_supported": True}
            await self._send.send({"type": "control_response", "response": answer})
        else:
            self._send.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async with self._receive:
            async for frame in self._receive:
                yield frame

    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None: ...


def start_official(given: dict[str, Any]) -> None:
    """Let the official code do all that it does with options, up to the process."""

    async def run() -> None:
        options = official.ClaudeAgentOptions(cli_path="claude", **given)
        configured = official_types._configure_can_use_tool(options)
        argv = subprocess_cli.SubprocessCLITransport(prompt="", options=configured)._build_command()
        assert all(isinstance(each, str | bytes) or hasattr(each, "__fspath__") for each in argv)
        dict(options.env)
        with anyio.fail_after(20):
            async for _ in official.query(prompt="hi", options=options, transport=Silent()):
                pass

    anyio.run(run)


def start_ours(given: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", toolwire.ToolwireWarning)
        options = prepare(toolwire.ClaudeAgentOptions(cli_path="claude", **given))
    argv = build_command(options, "claude", lambda name, text: name)
    assert all(isinstance(each, str) for each in argv)
    json.dumps(build_initialize_request(options, register(options.hooks or {})[0]))


def wants_mapping(option: str, value: Any) -> bool:
    """Return True for a server table that is no dict, which the official SDK takes for text."""
    return option == "mcp_servers" and not isinstance(value, dict)


@pytest.mark.parametrize(("option", "value"), ROWS)
def test_what_the_official_sdk_takes_is_taken(option: str, value: Any):
    """The official SDK starts with each of these values, and so does toolwire."""
    start_ours({option: value})
    if not wants_mapping(option, value):
        start_official({option: value})


@pytest.mark.parametrize(("option", "value"), BEYOND)
def test_some_are_taken_only_here(option: str, value: Any):
    """The official SDK fails with each of these values; if it accepts one later, the row can go."""
    start_ours({option: value})
    with pytest.raises(Exception):  # noqa: B017, PT011 - a mistake inside, of any kind
        start_official({option: value})


def test_options_of_the_official_class_are_taken():
    """A library that builds options of the official class can be used with ours."""
    options = official.ClaudeAgentOptions(
        model="m",
        agents={"a": official.AgentDefinition("d", "p")},
        hooks={"Stop": [official.HookMatcher(hooks=[print])]},
    )
    prepared = prepare(options)
    assert isinstance(prepared, toolwire.ClaudeAgentOptions)
    assert (prepared.model, prepared.agents) == ("m", options.agents)


def test_permission_results_of_the_official_classes_are_taken():
    """A library that returns those can be used with ours."""
    allow = official.PermissionResultAllow(
        updated_permissions=[official.PermissionUpdate(type="setMode", mode="plan", destination="session")]
    )
    assert result_to_wire(allow, {"a": 1}) == {
        "behavior": "allow",
        "updatedInput": {"a": 1},
        "updatedPermissions": [{"type": "setMode", "mode": "plan", "destination": "session"}],
    }
    deny = official.PermissionResultDeny(message="no", interrupt=True)
    assert result_to_wire(deny, {}) == {"behavior": "deny", "message": "no", "interrupt": True}
    for other in (official.PermissionResultAllow, official.HookMatcher(), {"behavior": "allow"}, None):
        with pytest.raises(TypeError, match="can_use_tool must return"):
            result_to_wire(other, {})


@pytest.mark.parametrize("sdk", [official, toolwire])
def test_what_programs_do_with_options(sdk: Any):
    """Options are made of dicts, changed, replaced, listed, copied and pickled alike."""
    options = sdk.ClaudeAgentOptions(model="m", max_turns=3)
    options.model = "n"
    assert dataclasses.replace(options, max_turns=4).max_turns == 4
    assert [field.name for field in dataclasses.fields(options)][:2] == ["tools", "allowed_tools"]
    assert dataclasses.asdict(dataclasses.replace(options, debug_stderr=None))["model"] == "n"
    assert sdk.ClaudeAgentOptions(**vars(options)) == options
    plain = dataclasses.replace(options, debug_stderr=None)
    assert pickle.loads(pickle.dumps(plain)) == plain  # noqa: S301 - our own bytes
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_turn'"):
        sdk.ClaudeAgentOptions(max_turn=3)

    @dataclasses.dataclass
    class Own(sdk.ClaudeAgentOptions):  # type: ignore[misc, name-defined]
        model: str = "own"
        mine: int = 1

    assert (Own().model, Own(mine=2).mine, Own(model="x").model) == ("own", 2, "x")


TOOL_SCHEMAS: list[Any] = [
    *({"a": "string"}, {"a": "integer"}, {"a": 5}, {"a": None}, {"a": [str]}, {"a": {"type": "integer"}}),
    *({"a": "the city", "b": int}, int, object(), [], "x", None),
]


@pytest.mark.parametrize("schema", TOOL_SCHEMAS, ids=lambda schema: repr(schema).partition(" at 0x")[0])
def test_the_same_tools_can_be_made(schema: Any):
    """A schema that the official `tool` takes has the same parameters here, all required."""

    async def handler(args: Any) -> dict[str, Any]:
        return {"content": []}

    theirs = official.tool("t", "d", schema)(handler)
    official.create_sdk_mcp_server("s", tools=[theirs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", toolwire.ToolwireWarning)
        mine = toolwire.tool("t", "d", schema)(handler)
        toolwire.create_sdk_mcp_server("s", tools=[mine, theirs])  # also the official tool itself
    expected = official._build_input_schema(theirs)
    assert mine.json_schema["properties"].keys() == expected["properties"].keys()
    assert mine.json_schema.get("required", []) == expected.get("required", [])
