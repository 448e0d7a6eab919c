"""The options of commands in which Claude uses the tools of targets: `run` and `studio`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target


@dataclass(frozen=True)
class AgentOptions:
    """The options that `run` and `studio` share."""

    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The script of a scripted model: a Python file with script = [...]."
        ),
    ] = None
    model: Annotated[str | None, typer.Option(help="Model to use.")] = None
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.")] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE", help="Allow a server or tool without asking: calc, calc.add. Repeatable."
        ),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Allow all tools of the targets without asking.")
    ] = False
    builtin: Annotated[
        bool, typer.Option("--builtin", help="Enable Claude Code's own tools too: Bash, Edit, ...")
    ] = False
    settings: Annotated[
        bool, typer.Option("--settings", help="Use your own settings and MCP servers too.")
    ] = False

    def for_servers(self, servers: Iterable[str], cwd: Path | None) -> dict[str, Any]:
        """Return arguments of `ClaudeAgentOptions`.

        Without `builtin`, only the tools of the servers are available.
        """
        rules = permission_rules(self.allow or [], servers, yes=self.yes, builtin=self.builtin)
        return {
            "allowed_tools": rules,
            "tools": None if self.builtin else [],
            "setting_sources": None if self.settings else [],
            "strict_mcp_config": not self.settings,
            "model": self.model,
            "system_prompt": self.system,
            **({} if cwd is None else {"cwd": cwd.absolute()}),
        }


CwdOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", exists=True, file_okay=False, help="Working directory of the CLI."),
]


def name_targets(targets: "Iterable[Target]") -> "dict[str, Target]":
    """Give each target a name of its own, by which Claude knows its server."""
    named: dict[str, Target] = {}
    for target in targets:
        name, count = target.name, 1
        while name in named:
            count += 1
            name = f"{target.name}_{count}"
        named[name] = target
    return named


def permission_rules(allow: list[str], servers: Iterable[str], *, yes: bool, builtin: bool) -> list[str]:
    """Translate --allow and --yes to rules of the CLI. `UsageError` for a rule that matches no target."""
    names = list(servers)
    found = [f"mcp__{name}" for name in names] if yes else []
    for rule in allow:
        server, _, tool = rule.removeprefix("mcp__").replace("__", ".", 1).partition(".")
        if server in names:
            found.append(f"mcp__{server}__{tool}" if tool else f"mcp__{server}")
        elif builtin and not rule.startswith("mcp__"):
            found.append(rule)
        else:
            forms = ", ".join(f"{name} or {name}.TOOL" for name in names)
            raise UsageError(f"--allow {rule} matches no tool of the targets: write {forms}.")
    return found
