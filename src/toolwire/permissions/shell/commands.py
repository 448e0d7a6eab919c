"""A policy for shell commands.

`allow` is a boundary on which programs a line starts, and knows the literal part of the shell language only
(`_literal`, `_patterns`). `deny` reads more of it and looks for what may be a denied command (`_denying`), which
catches accidents and no attacker.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolwire.permissions.policy import Policy, matches_tool
from toolwire.permissions.shell.denying import DenyRules
from toolwire.permissions.shell.lines import LONGEST_LINE, Unclear
from toolwire.permissions.shell.literal import NotLiteral, read_literal
from toolwire.permissions.shell.patterns import AllowPattern, build_allow_pattern, check_together, split_rule
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)


def commands(
    allow: Iterable[str | Sequence[str]] = (),
    deny: Iterable[str | Sequence[str]] = (),
    *,
    tools: Mapping[str, str] | None = None,
) -> Policy:
    """Judge shell commands: `commands(allow=["ls", "git status", "cp [-r] * build/"], deny=["rm -rf"])`.

    `allow` is a boundary on which programs start. A line is allowed if it is made of allowed commands whose words
    are all written out; variables, substitutions, redirections to files and all else that the shell evaluates have
    no place in it. `"ls -l"` allows any further words. Programs that can start others or write any file (`find`,
    `git`, `env`, interpreters, `cp`, ...) need their arguments: exact words, `*` for one word that does not begin
    with `-`, a last `...` for any number of them, `[-a --b]` for options that may be there, `[]` for no more words.
    `ValueError` for a rule that could not be kept.

    `deny` helps against accidents and is no boundary: it denies lines in which it finds a denied command, flags in
    any order, behind `sudo`, in `sh -c` and the like, and lines that it cannot read. Programs that start others in
    ways of their own (scripts, `python -c`, `make`, an alias) and odd corners of the shell get past it.

    Lines over 64 KiB are denied. On all other lines there is no opinion. `tools` adds tools and their argument with
    the command to `Bash`.
    """
    if isinstance(allow, str) or isinstance(deny, str):
        raise ValueError("commands: allow and deny are lists of rules, not one text")  # noqa: TRY004 - as for rules
    allowed = [build_allow_pattern(each) for each in allow]
    check_together(allowed)
    denied = DenyRules([split_rule(each) for each in deny])
    arguments = {"Bash": "command", **(tools or {})}

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        field = next((field for tool, field in arguments.items() if matches_tool(name, (tool,))), None)
        if field is None:
            return None
        line = given.get(field)
        if not isinstance(line, str):
            return PermissionResultDeny(message=f"{name} was refused: {field} is missing.")
        if reason := _why_denied(line, denied):
            return PermissionResultDeny(message=reason)
        if given.get("dangerouslyDisableSandbox") or not _is_allowed(line, allowed):
            return None
        return PermissionResultAllow()

    shown = {"allow": [each.shown for each in allowed], "deny": [shlex.join(each) for each in denied.rules]}
    return Policy(judge, f"commands({', '.join(f'{key}={value}' for key, value in shown.items() if value)})")


def _why_denied(line: str, denied: DenyRules) -> str | None:
    if len(line) > LONGEST_LINE:
        return f"The command was refused because it is too long to be checked ({len(line)} characters)."
    try:
        rule = denied.find(line)
    except Unclear as unclear:
        return f"The command was refused because it cannot be checked: {unclear}. Use a simpler one."
    return None if rule is None else f"Commands like '{shlex.join(rule)}' are not allowed here."


def _is_allowed(line: str, allowed: list[AllowPattern]) -> bool:
    try:
        found = read_literal(line)
    except NotLiteral:
        return False
    return all(any(pattern.fits(command) for pattern in allowed) for command in found)
