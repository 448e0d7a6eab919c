"""How a scripted CLI was started: the few flags of the command line that it follows.

Pure but for one thing: a flag may name a file (a long `--mcp-config`), which is read. Must not know the protocol.
"""

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

DEFAULT_MODEL: Final = "claude-opus-5-5"
_SWITCHES: Final = frozenset(
    {"--verbose", "--include-partial-messages", "--strict-mcp-config", "--fork-session", "--continue"}
)


@dataclass
class Setup:
    """What the command line says."""

    servers: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    disallowed: list[str] = field(default_factory=list)
    mode: str = "default"
    asks: bool = False
    """Whether the host answers `can_use_tool`."""
    schema: dict[str, Any] | None = None
    max_turns: int | None = None
    model: str = DEFAULT_MODEL
    partial: bool = False
    session_id: str = field(default_factory=lambda: str(uuid4()))
    cwd: str = ""

    @classmethod
    def of(cls, argv: Sequence[str], cwd: str | None = None) -> "Setup":
        """Read a command line; flags that are not followed are passed over."""
        flags = _flags(argv)
        given = {"model": flags.get("--model"), "mode": flags.get("--permission-mode")}
        if "--fork-session" not in flags:
            given["session_id"] = flags.get("--resume")
        given["session_id"] = flags.get("--session-id") or given.get("session_id")
        setup = cls(**{name: value for name, value in given.items() if value}, cwd=cwd or "")  # type: ignore[arg-type] # all are texts
        setup.servers = _sdk_servers(flags.get("--mcp-config", ""))
        setup.allowed = _rules(flags.get("--allowedTools", ""))
        setup.disallowed = _rules(flags.get("--disallowedTools", ""))
        setup.asks = (
            flags.get("--permission-prompt-tool") == "stdio" and flags.get("--permission-prompts") != "none"
        )
        setup.schema = json.loads(flags["--json-schema"]) if flags.get("--json-schema") else None
        setup.max_turns = int(flags["--max-turns"]) if flags.get("--max-turns") else None
        setup.partial = "--include-partial-messages" in flags
        if "--dangerously-skip-permissions" in flags:
            setup.mode = "bypassPermissions"
        return setup

    def allows(self, name: str) -> bool:
        """Whether a rule or the mode lets a tool run without a question."""
        return self.mode == "bypassPermissions" or _matches(self.allowed, name)

    def hides(self, name: str) -> bool:
        """Whether a rule takes a tool away from the model."""
        return _matches(self.disallowed, name)


def _matches(rules: Sequence[str], name: str) -> bool:
    server = "__".join(name.split("__")[:2]) if name.startswith("mcp__") else name
    return any(rule in (name, server) or fnmatch.fnmatchcase(name, rule) for rule in rules)


def _rules(text: str) -> list[str]:
    # A rule about arguments, such as Bash(ls *), is no rule for the whole tool.
    return [rule for rule in text.replace(",", " ").split() if "(" not in rule and ")" not in rule]


def _flags(argv: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        if not equals and name not in _SWITCHES and words and not words[0].startswith("--"):
            value = words.pop(0)
        flags[name] = value
    return flags


def _sdk_servers(text: str) -> list[str]:
    if not text:
        return []
    config = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    servers = config.get("mcpServers", {})
    return [name for name, each in servers.items() if each.get("type") == "sdk" and each.get("name")]
