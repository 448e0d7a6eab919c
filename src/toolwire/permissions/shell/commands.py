"""The policy for shell commands.

`allow` is a security boundary on the programs that a line starts. It accepts the literal part of the shell language
only (`allow_patterns`). `deny` parses more of the language and searches for denied commands (`deny_rules`); it
catches accidents, not attackers.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolwire.permissions.policy import Policy, matches_tool
from toolwire.permissions.shell.allow_patterns import (
    AllowPattern,
    NotLiteralError,
    build_allow_pattern,
    check_together,
    read_literal,
    split_rule,
)
from toolwire.permissions.shell.deny_rules import MAX_LINE, DenyRules, UnclearError
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
    """Allow or deny shell commands: `commands(allow=["ls", "git status", "cp [-r] * build/"], deny=["rm -rf"])`.

    `allow` is a security boundary on the programs that start. A line is allowed if it is made of allowed commands
    whose words are all written out, without variables, substitutions, redirections to files or anything else that
    the shell evaluates. `"ls -l"` allows any further words. Programs that can start others or write any file
    (`find`, `git`, `env`, interpreters, `cp`, ...) need their arguments: exact words, `*` for one word that does
    not begin with `-`, a last `...` for any number of them, `[-a --b]` for optional options, `[]` for no more
    words. Raises ValueError for a rule that could not be enforced.

    `deny` prevents accidents and is not a security boundary: it denies lines in which it finds a denied command
    (flags in any order, after `sudo`, in `sh -c` and the like), and lines that it cannot parse. It does not see
    commands that programs start in their own ways (scripts, `python -c`, `make`, an alias), nor every corner of
    the shell.

    Lines over 64 KiB are denied. On all other lines there is no opinion. `tools` adds tools to `Bash`, each with
    the name of the argument that has the command.
    """
    if isinstance(allow, str) or isinstance(deny, str):
        raise ValueError("commands: allow and deny must be lists of rules, got a string")  # noqa: TRY004 - as for rules
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
        if reason := _find_denial(line, denied):
            return PermissionResultDeny(message=reason)
        if given.get("dangerouslyDisableSandbox") or not _is_allowed(line, allowed):
            return None
        return PermissionResultAllow()

    shown = {"allow": [each.text for each in allowed], "deny": [shlex.join(each) for each in denied.rules]}
    return Policy(judge, f"commands({', '.join(f'{key}={value}' for key, value in shown.items() if value)})")


def _find_denial(line: str, denied: DenyRules) -> str | None:
    if len(line) > MAX_LINE:
        return f"The command was refused because it is too long to be checked ({len(line)} characters)."
    try:
        rule = denied.find(line)
    except UnclearError as unclear:
        return f"The command was refused because it cannot be checked: {unclear}. Use a simpler one."
    return None if rule is None else f"Commands like '{shlex.join(rule)}' are not allowed here."


def _is_allowed(line: str, allowed: list[AllowPattern]) -> bool:
    try:
        found = read_literal(line)
    except NotLiteralError:
        return False
    return all(any(pattern.fits(command) for pattern in allowed) for command in found)
