"""Options in other forms than the documented ones, with the values that they are converted to."""

import enum
import types
import uuid
from collections import OrderedDict, UserDict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from toolwire.hooks import HookMatcher
from toolwire.options.types import AgentDefinition

ID = uuid.UUID("0b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f11")
PRESET = {"type": "preset", "preset": "claude_code"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}}
STDIO = {"command": "x"}


class Mode(enum.StrEnum):
    PLAN = "plan"


async def callback(*args: Any) -> dict[str, Any]:
    return {}


def hooks(**settings: Any) -> dict[str, Any]:
    return {"PreToolUse": [HookMatcher(hooks=[callback], **settings)]}


def agents(**settings: Any) -> dict[str, Any]:
    return {"a": AgentDefinition("d", "p", **settings)}


SILENT: list[tuple[str, Any, Any]] = [
    # option, value, what it is converted to
    ("allowed_tools", None, []),
    ("disallowed_tools", None, []),
    ("mcp_servers", None, {}),
    ("mcp_servers", [], {}),
    ("env", None, {}),
    ("extra_args", None, {}),
    ("betas", None, []),
    ("add_dirs", None, []),
    ("plugins", None, []),
    ("include_partial_messages", None, False),
    ("persist_session", None, True),
    ("control_timeout", None, 60.0),
    ("plugin_delivery", None, "argv"),
    ("allowed_tools", {"Read": 1}, ["Read"]),
    ("allowed_tools", {"Read": 1}.keys(), ["Read"]),
    ("disallowed_tools", "", []),
    ("tools", ("Read",), ("Read",)),
    ("tools", {"Read": 1}.keys(), ["Read"]),
    ("setting_sources", ("user",), ("user",)),
    ("setting_sources", "", []),
    ("include_hook_events", 1, True),
    ("include_hook_events", [], False),
    ("include_hook_events", "", False),
    ("max_turns", "5", 5),
    ("max_turns", 5.5, 5.5),
    ("max_turns", -1, -1),
    ("max_budget_usd", "0.5", 0.5),
    ("max_budget_usd", Decimal("0.5"), 0.5),
    ("max_budget_usd", Fraction(1, 2), 0.5),
    ("max_thinking_tokens", 1024.0, 1024),
    ("max_buffer_size", 1e6, 1_000_000),
    ("task_budget", {"total": "1000"}, {"total": 1000}),
    ("task_budget", {"total": 1000.0}, {"total": 1000}),
    ("load_timeout_ms", "soon", "soon"),
    ("session_store_flush", "lazy", "lazy"),
    ("permission_mode", Mode.PLAN, Mode.PLAN),
    ("permission_mode", "", ""),
    ("effort", "", ""),
    ("session_id", ID, str(ID)),
    ("resume", ID, str(ID)),
    ("resume", 7, "7"),
    ("model", Path("m"), "m"),
    ("thinking", {"type": "enabled", "budget_tokens": "2048"}, {"type": "enabled", "budget_tokens": 2048}),
    ("thinking", {"type": "enabled", "budget_tokens": -1}, {"type": "enabled", "budget_tokens": -1}),
    ("thinking", {"type": "adaptive", "display": None}, {"type": "adaptive"}),
    ("system_prompt", {**PRESET, "append": None}, PRESET),
    ("env", {"A": Path("/x"), "B": b"y"}, {"A": "/x", "B": "y"}),
    ("env", types.MappingProxyType({"A": "x"}), {"A": "x"}),
    ("env", {"": "x"}, {"": "x"}),
    ("extra_args", {"add-dir": Path("/x"), "n": Decimal(3)}, {"add-dir": "/x", "n": "3"}),
    (
        "plugins",
        [{"type": "local", "path": "p", "skipMcpDiscovery": None}],
        [{"type": "local", "path": "p", "skipMcpDiscovery": False}],
    ),
    ("hooks", [], None),
    ("hooks", hooks(timeout="5"), hooks(timeout=5)),
    ("hooks", hooks(timeout=True), hooks(timeout=1)),
    ("agents", [], None),
    ("agents", {3: AgentDefinition("d", "p")}, {"3": AgentDefinition("d", "p")}),
    ("mcp_servers", {3: STDIO}, {"3": STDIO}),
    ("mcp_servers", {"a": {**STDIO, "args": None, "env": None, "type": None}}, {"a": STDIO}),
    ("mcp_servers", OrderedDict(a=OrderedDict(STDIO)), {"a": STDIO}),
    ("mcp_servers", UserDict(a=STDIO), {"a": STDIO}),
]

WARNED: list[tuple[str, Any, Any, str]] = [
    # option, value, what it is converted to, part of the warning
    ("allowed_tools", "Read", ["Read"], r"counts as \['Read'\]; write a list"),
    ("disallowed_tools", "Bash", ["Bash"], r"counts as \['Bash'\]; write a list"),
    ("tools", "Read", ["Read"], r"counts as \['Read'\]; write a list"),
    ("tools", {"preset": "claude_code"}, PRESET, "counts as all built-in tools"),
    ("tools", True, PRESET, "counts as all built-in tools"),
    ("betas", "b", ["b"], "write a list"),
    ("add_dirs", "/x", ["/x"], "write a list"),
    ("add_dirs", Path("/x"), [Path("/x")], "write a list"),
    ("setting_sources", "user", ["user"], "write a list"),
    ("setting_sources", ["user", "team"], ["user", "team"], "has 'team', which toolwire does not know"),
    ("permission_mode", "manual", "manual", "is passed to the CLI unchanged; known are 'default'"),
    ("permission_mode", "ACCEPTEDITS", "ACCEPTEDITS", r"Did you mean 'acceptEdits'\?$"),
    ("effort", "ultra", "ultra", "is passed to the CLI unchanged"),
    ("include_partial_messages", "false", True, "the string 'false' and counts as True; write True or False"),
    ("thinking", {"type": "on"}, None, "has no effect; write 'adaptive'"),
    (
        "thinking",
        {"type": "adaptive", "display": "highlights"},
        {"type": "adaptive", "display": "highlights"},
        "has 'highlights', which toolwire does not know",
    ),
    (
        "system_prompt",
        {"type": "text", "text": "Hi"},
        {"type": "custom", "prompt": "Hi"},
        "has the type 'text' and counts as the prompt in it",
    ),
    (
        "system_prompt",
        {"role": "system", "content": "Hi"},
        {"type": "custom", "prompt": "Hi"},
        "the prompt in it",
    ),
    ("system_prompt", {"prompt": "Hi"}, {"type": "custom", "prompt": "Hi"}, "the prompt in it"),
    ("system_prompt", {"append": "Hi"}, {**PRESET, "append": "Hi"}, "counts as the preset"),
    ("system_prompt", {"type": "preset", "preset": "x"}, PRESET, "counts as the preset"),
    ("system_prompt", {**PRESET, "snapshot": "on"}, PRESET, "counts as the preset"),
    ("output_format", SCHEMA, {"type": "json_schema", "schema": SCHEMA}, "counts as the schema itself"),
    (
        "output_format",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        {"type": "json_schema", "schema": SCHEMA},
        "has its schema in another place",
    ),
    ("output_format", {"type": "json_object"}, None, "has no effect"),
    ("output_format", "json", None, "has no effect"),
    ("extra_args", {"verbose": True}, {"verbose": None}, r"\['verbose'\] is True and the flag has no value"),
    ("extra_args", {"verbose": False}, {}, "the flag is left out"),
    ("stderr", "x", None, "is ignored"),
    ("hooks", {"OfTomorrow": []}, {"OfTomorrow": []}, "'OfTomorrow', which toolwire does not know"),
    (
        "hooks",
        {"PreToolUs": hooks()["PreToolUse"]},
        {"PreToolUs": hooks()["PreToolUse"]},
        "mean 'PreToolUse'",
    ),
    ("hooks", {"PreToolUse": [callback]}, hooks(), r"write HookMatcher\(hooks=\[function\]\)"),
    (
        "hooks",
        {"PreToolUse": [{"matcher": "Bash", "hooks": [callback]}]},
        hooks(matcher="Bash"),
        "has a dict",
    ),
    ("hooks", hooks(on_failure="Block"), hooks(on_failure="block"), "counts as 'block'"),
    ("agents", agents(tools="Read"), agents(tools=["Read"]), r"\['a'\].tools is a string"),
    ("agents", agents(effort="ultra"), agents(effort="ultra"), "It is passed to the CLI unchanged"),
    ("agents", {"": AgentDefinition("d", "p")}, {"": AgentDefinition("d", "p")}, "It is passed to the CLI"),
    (
        "mcp_servers",
        {"a": {"url": "http://x"}},
        {"a": {"url": "http://x", "type": "http"}},
        'counts as "http"',
    ),
    ("mcp_servers", {"mcpServers": {"a": STDIO}}, {"a": STDIO}, 'leave out "mcpServers"'),
    (
        "mcp_servers",
        {"a": {"type": "sdk", "name": "a", "instance": None}},
        {"a": {"type": "sdk", "name": "a", "instance": None}},
        "must be an MCP server object",
    ),
    ("mcp_servers", {"a": None, "b": STDIO}, {"a": None, "b": STDIO}, "is None; use a config"),
    ("mcp_servers", {"a": "./server.py"}, {"a": "./server.py"}, "is of type str"),
    ("mcp_servers", {"": STDIO}, {"": STDIO}, "empty server name"),
    ("mcp_servers", {"a\nb": STDIO}, {"a\nb": STDIO}, "control characters"),
    ("mcp_servers", {"__proto__": STDIO}, {"__proto__": STDIO}, "does not allow"),
    ("mcp_servers", {"a b": STDIO, "a.b": STDIO}, {"a b": STDIO, "a.b": STDIO}, "mcp__a_b__"),
    ("mcp_servers", {"a": {}}, {"a": {}}, "needs 'command'"),
    ("mcp_servers", {"a": {"command": ["x"]}}, {"a": {"command": ["x"]}}, "is of type list"),
    ("mcp_servers", {"a": {**STDIO, "args": "y"}}, {"a": {**STDIO, "args": "y"}}, "a list of strings"),
    ("mcp_servers", {"a": {"type": "http"}}, {"a": {"type": "http"}}, "needs 'url'"),
    (
        "mcp_servers",
        {"a": {"type": "pigeon"}},
        {"a": {"type": "pigeon"}},
        "allowed are 'stdio', 'sse', 'http'",
    ),
]

BEYOND: list[tuple[str, Any]] = [
    # Values with which the official SDK itself cannot start.
    *((option, None) for option in ("allowed_tools", "env", "extra_args")),
    ("add_dirs", Path("/x")),
    ("system_prompt", {**PRESET, "append": None}),
    ("thinking", {"type": "adaptive", "display": None}),
]
