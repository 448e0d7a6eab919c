"""Ready-made policies for `can_use_tool` and for hooks. They compose: `deny(...) | inside(...) | ask()`.

The first decision counts, and a call that no policy decides is denied. To add a policy, write a function here that
returns a `Policy`; `inside` is in `folders`, and `shell` parses the command lines for `commands`.
"""

import hashlib
import json
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

import anyio

from toolwire._support.files import append_line
from toolwire._support.tasks import is_async, maybe_await
from toolwire._support.threads import Workers
from toolwire.permissions.folders import FILE_TOOLS, inside
from toolwire.permissions.policy import (
    Answer,
    Asker,
    Decision,
    Judge,
    Otherwise,
    Policy,
    as_hook,
    as_policy,
    first_of,
    logger,
    matches_tool,
    with_timeout,
)
from toolwire.permissions.shell.allow_patterns import (
    AllowPattern,
    NotLiteralError,
    build_allow_pattern,
    check_together,
    read_literal,
    split_rule,
)
from toolwire.permissions.shell.deny_rules import MAX_LINE, DenyRules, UnclearError
from toolwire.permissions.terminal import ask_on_terminal, terminal_elicitation
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolPermissionContext,
)

__all__ = [
    "FILE_TOOLS",
    "Answer",
    "Asker",
    "Decision",
    "Judge",
    "Policy",
    "allow",
    "as_hook",
    "ask",
    "ask_on_terminal",
    "audit",
    "budget",
    "commands",
    "deny",
    "first_of",
    "inside",
    "remember",
    "terminal_elicitation",
    "with_timeout",
]

Fields: TypeAlias = Mapping[str, "str | re.Pattern[str]"]

_workers: Final = Workers()  # for askers that are not async


def allow(*tools: str, where: Fields | None = None, **fields: "str | re.Pattern[str]") -> Policy:
    """Allow tools: `allow("Read|Glob")`, `allow("mcp__calc__*")`, `allow("WebFetch", url=r"https://a\\.org/.*")`.

    Each field is a regular expression that must match the whole argument, so that a forgotten anchor allows too
    little rather than too much. `where` is for names with dots: `{"a.b": "..."}` is the argument `b` inside `a`.
    For shell commands use `commands`: a regular expression cannot parse shell syntax.
    """
    patterns = _compile(where, fields)

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        fits = matches_tool(name, tools) and all(
            (texts := list(_find_texts(given, path))) and all(pattern.fullmatch(text) for text in texts)
            for path, pattern in patterns.items()
        )
        return PermissionResultAllow() if fits else None

    return Policy(judge, _describe("allow", tools, patterns))


def deny(
    *tools: str, reason: str | None = None, where: Fields | None = None, **fields: "str | re.Pattern[str]"
) -> Policy:
    """Deny tools, or calls in whose arguments all the patterns are found: `deny("Bash", command=r"rm\\s+-rf")`.

    A pattern may match anywhere in an argument. The model sees `reason`.
    """
    patterns = _compile(where, fields)

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        if not matches_tool(name, tools, wide=True):
            return None
        for path, pattern in patterns.items():
            if not any(pattern.search(text) for text in _find_texts(given, path)):
                return None
        about = f" with this {' and '.join(patterns)}" if patterns else ""
        return PermissionResultDeny(message=reason or f"{name}{about} is not allowed here.")

    return Policy(judge, _describe("deny", tools, patterns))


def _find_texts(value: Any, path: str) -> Iterator[str]:
    """Yield all texts at a dotted path: of each item of a list, and of all keys and values of a dict at its end."""
    if isinstance(value, list):
        for item in value:
            yield from _find_texts(item, path)
    elif isinstance(value, Mapping):
        if not path:
            for key, item in value.items():
                yield str(key)
                yield from _find_texts(item, "")
            return
        for key, item in value.items():
            if path == key:
                yield from _find_texts(item, "")
            elif path.startswith(f"{key}."):
                yield from _find_texts(item, path[len(key) + 1 :])
    elif not path:
        yield value if isinstance(value, str) else json.dumps(value, default=str)


def _compile(where: Fields | None, fields: Fields) -> "dict[str, re.Pattern[str]]":
    return {path: re.compile(pattern) for path, pattern in {**(where or {}), **fields}.items()}


def _describe(word: str, tools: tuple[str, ...], patterns: "dict[str, re.Pattern[str]]") -> str:
    """Return the name of a policy; raises ValueError without a tool."""
    if not tools or not all(part.strip() for tool in tools for part in tool.split("|")):
        raise ValueError(f"{word}() needs the name or pattern of a tool; '*' means all")
    parts = [*map(repr, tools), *(f"{path}={pattern.pattern!r}" for path, pattern in patterns.items())]
    return f"{word}({', '.join(parts)})"


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
    not begin with `-`, a last `...` for any number of them, `[-a --b]` for optional flags, `[]` for no more
    words. Raises ValueError for a rule that could not be enforced.

    `deny` prevents accidents and is not a security boundary: it denies lines in which it finds a denied command
    (flags in any order, after `sudo`, in `sh -c` and the like), and lines that it cannot parse. It does not see
    commands that programs start in their own ways (scripts, `python -c`, `make`, an alias), nor every corner of
    the shell.

    Lines over 65,536 characters are denied. There is no opinion on all other lines. `tools` adds tools to `Bash`,
    each with the name of the argument that contains the command.
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
        if given.get("dangerouslyDisableSandbox") or not _is_allowed_line(line, allowed):
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


def _is_allowed_line(line: str, allowed: list[AllowPattern]) -> bool:
    try:
        found = read_literal(line)
    except NotLiteralError:
        return False
    return all(any(pattern.fits(command) for pattern in allowed) for command in found)


def budget(
    calls: int | None = None,
    per_tool: int | Mapping[str, int] | None = None,
    seconds: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Policy:
    """Deny after a number of calls, of all tools or of one, or some seconds after the first; else no opinion.

    `per_tool` is a number for each tool, or a dict of patterns: `{"WebFetch": 5, "mcp__mail__*": 1}`. The policy
    counts the calls that reach it, for the lifetime of this object.
    """
    counts: Counter[str] = Counter()
    start: float | None = None
    limits = per_tool if isinstance(per_tool, Mapping) else {}

    def find_exceeded(name: str) -> str | None:
        nonlocal start
        now = clock()
        start = now if start is None else start
        if seconds is not None and now - start > seconds:
            return f"the {seconds:g} seconds for tool calls are over"
        if calls is not None and counts.total() >= calls:
            return f"all {calls} tool calls are used up"
        if isinstance(per_tool, int) and counts[name] >= per_tool:
            return f"all {per_tool} calls of {name} are used up"
        for pattern, limit in limits.items():
            if matches_tool(name, (pattern,)) and _count_matching(counts, pattern) >= limit:
                return f"all {limit} calls of {pattern} are used up"
        return None

    def judge(name: str, _given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        if (exceeded := find_exceeded(name)) is not None:
            return PermissionResultDeny(message=f"No more: {exceeded}. Finish with what you have.")
        counts[name] += 1
        return None

    given = {"calls": calls, "per_tool": per_tool, "seconds": seconds}
    shown = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)
    if not shown:
        raise ValueError("budget() needs calls, per_tool or seconds")
    return Policy(judge, f"budget({shown})")


def _count_matching(counts: Counter[str], pattern: str) -> int:
    return sum(count for tool, count in counts.items() if matches_tool(tool, (pattern,)))


def ask(asker: Asker | None = None, *, timeout: float | None = None, otherwise: Otherwise = "deny") -> Policy:
    """Ask a function, by default one that asks the user on the terminal.

    Its answer `"always"` allows the call and adds a rule for the rest of the session. With `timeout` in seconds,
    `otherwise` decides if there is no answer in time.
    """
    asks: Asker = ask_on_terminal() if asker is None else asker
    in_thread = not is_async(asks)  # it may block, and must not keep the timeout from expiring

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Any:
        call = partial(asks, name, given, context)
        answer = await maybe_await(await _workers.run(call) if in_thread else call())
        if answer == "always":
            return PermissionResultAllow(updated_permissions=_make_session_rules(name, context))
        if isinstance(answer, bool):
            denial = PermissionResultDeny(message="The user does not allow this call.")
            return PermissionResultAllow() if answer else denial
        return answer

    policy = Policy(judge, f"ask({getattr(asks, '__qualname__', repr(asks))})")
    return policy if timeout is None else with_timeout(policy, timeout, otherwise)


def _make_session_rules(name: str, context: ToolPermissionContext) -> list[PermissionUpdate] | None:
    """Return rules that allow such calls in this session: those that the CLI suggests, or one for the tool.

    None if the CLI says that no such rule may be added. Suggestions to change the mode or the directories are not
    used: they would allow more than was asked.
    """
    if context.suppress_always_allow_rule:
        return None
    suggested = [
        replace(each, destination="session") for each in context.suggestions if _adds_allow_rule(each)
    ]
    return suggested or [
        PermissionUpdate("addRules", [PermissionRuleValue(name)], "allow", destination="session")
    ]


def remember(policy: Judge) -> Policy:
    """Return `policy`, but allow calls that it has already allowed with a rule, for the lifetime of this object.

    The rule is kept here and not sent to the CLI, so policies before this one still decide, and an audit still
    records. A rule for a whole tool covers all its calls, any other rule only the same call.
    """
    inner = as_policy(policy)
    known: set[tuple[str, str | None]] = set()

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        text = json.dumps(given, sort_keys=True, default=repr)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if (name, None) in known or (name, digest) in known:
            return Decision(PermissionResultAllow(), f"remember({inner!r})")
        decision = await inner.decide(name, given, context)
        if decision is None or not isinstance(decision.result, PermissionResultAllow):
            return decision
        if decision.result.updated_input is not None:
            return decision  # the allowed call has another input than the requested one
        updates = decision.result.updated_permissions or []
        for update in filter(_adds_allow_rule, updates):
            whole = PermissionRuleValue(name) in (update.rules or ())
            known.add((name, None if whole else digest))
        rest = [update for update in updates if not _adds_allow_rule(update)] or None
        return replace(decision, result=replace(decision.result, updated_permissions=rest))

    return Policy(judge, f"remember({inner!r})")


def _adds_allow_rule(update: PermissionUpdate) -> bool:
    return update.type == "addRules" and update.behavior == "allow"


_WRITE_TIMEOUT: Final = 5.0  # seconds for the line of a cancelled call
Detail: TypeAlias = Literal["full", "keys", "digest"]
Sink: TypeAlias = Callable[[str], object]


def audit(
    policy: Judge,
    to: "str | os.PathLike[str] | Sink",
    *,
    input: Detail = "keys",
    on_error: Literal["deny", "allow"] = "deny",
) -> Policy:
    """Return `policy`, and append each decision to a file (created with mode 0600) or pass it to a function.

    `input` says how much of the arguments is recorded: all (`full`), their names and a SHA-256 of the whole
    (`keys`), or only the SHA-256 (`digest`). If a line cannot be written, the call is denied, unless
    `on_error="allow"`.
    """
    if input not in get_args(Detail):
        raise ValueError(f"audit: input must be 'full', 'keys' or 'digest', got {input!r}")
    if on_error not in ("deny", "allow"):
        raise ValueError(f"audit: on_error must be 'deny' or 'allow', got {on_error!r}")
    inner = as_policy(policy)
    write: Sink = to if callable(to) else lambda line: append_line(to, line.encode())

    async def judge(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Decision | None:
        began, decided = time.monotonic(), False
        decision: Decision | None = None
        # Before the policy decides, because its function may change the arguments.
        about = {"tool": name, "tool_use_id": context.tool_use_id, **_describe_input(given, input)}
        try:
            decision = await inner.decide(name, given, context)
            decided = True
        finally:
            word = "cancelled" if not decided else "none" if decision is None else decision.result.behavior
            # A reason may quote the arguments.
            reason = None if decision is None or input == "digest" else decision.reason
            took = time.monotonic() - began
            line = _build_line(word, decision, context, about, reason=reason, took=took)
            # A cancelled call is recorded too, but a function that hangs must not block the cancellation forever.
            with anyio.move_on_after(None if decided else _WRITE_TIMEOUT, shield=not decided):
                error = await _write(write, line)
        if error is None or on_error == "allow" or word == "deny":
            return decision
        message = f"{name} was refused because the decision could not be recorded ({error})."
        return Decision(PermissionResultDeny(message=message), "audit")

    return Policy(judge, f"audit({inner!r})")


def _build_line(
    word: str,
    decision: Decision | None,
    context: ToolPermissionContext,
    about: dict[str, Any],
    *,
    reason: str | None,
    took: float,
) -> str:
    result = decision and decision.result
    changed = isinstance(result, PermissionResultAllow) and result.updated_input is not None
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "session": (context.raw or {}).get("session_id"),
        "agent": context.agent_id,
        **about,
        "decision": word,
        "policy": decision and decision.policy,
        "reason": reason or None,
        "changed_input": changed or None,
        "seconds": round(took, 6),
    }
    shown = {key: value for key, value in entry.items() if value is not None}
    return json.dumps(shown, ensure_ascii=True, default=str)


def _describe_input(given: dict[str, Any], input: Detail) -> dict[str, Any]:
    text = json.dumps(given, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    detail: dict[str, Any] = {"digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}
    if input == "full":
        detail["input"] = json.loads(text)
    elif input == "keys":
        detail["keys"] = sorted(map(str, given))
    return detail


async def _write(write: Sink, line: str) -> str | None:
    """Write a line; returns the kind of error if that failed."""
    try:
        await maybe_await(write(line))
    except Exception as error:  # noqa: BLE001 - the boundary of the user's function: any error means no record
        logger.exception("a decision on a tool call could not be recorded")
        return type(error).__name__
    return None
