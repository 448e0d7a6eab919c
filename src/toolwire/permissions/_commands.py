"""A policy for shell commands, by their words.

To be allowed, each simple command of a line must begin with the words of an allowed prefix. To be denied, it is
enough that one of them, or one inside a wrapper such as `sudo` or `sh -c`, may be a denied one. What cannot be read
for sure is denied. Pure.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolwire.permissions._matching import named
from toolwire.permissions._shell import Simple, Unclear, Word, read
from toolwire.permissions.policy import Policy
from toolwire.permissions.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

_SHELLS: Final = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "mksh", "rbash", "fish"))
_HIDING: Final = frozenset(
    (".", "source", "trap", "alias", "enable", "complete", "bind", "fc", "hash", "mapfile")
)
"""Run, or let run later, what is not in the line."""
_COUNTING: Final = frozenset(
    (
        "let",
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "integer",
        "test",
        "[",
        "printf",
        "unset",
        "read",
    )
)
"""Builtins that may run a substitution in a quoted subscript."""
_FED: Final = frozenset(("xargs", "parallel"))
"""Wrappers that add words of their input."""
_BY_WORDS: Final = frozenset(("find", "fd"))
"""Wrappers that never take a word for a whole command."""
_WRAPPERS: Final = (
    _FED
    | _BY_WORDS
    | frozenset(
        ("-", "sudo", "doas", "su", "runuser", "gosu", "env", "nohup", "time", "command", "exec", "builtin")
    )
    | frozenset(
        ("noglob", "nocorrect", "nice", "ionice", "chrt", "taskset", "timeout", "stdbuf", "setsid", "chroot")
    )
    | frozenset(
        ("busybox", "toybox", "watch", "strace", "ltrace", "unshare", "nsenter", "flock", "script", "ssh")
    )
    | frozenset(
        ("systemd-run", "caffeinate", "entr", "docker", "podman", "kubectl", "unbuffer", "proxychains")
    )
)


def commands(
    allow: Iterable[str | Sequence[str]] = (),
    deny: Iterable[str | Sequence[str]] = (),
    *,
    tools: Mapping[str, str] | None = None,
) -> Policy:
    """Judge shell commands by prefix: `commands(allow=["git status", "ls"], deny=["rm -rf", "git push"])`.

    Allowed is a line whose commands all begin with an allowed prefix, set no variables and write no files. Denied
    are lines with a denied command in whatever spelling, flags in any order, and lines that cannot be read safely.
    On others there is no opinion. `tools` adds tools and their argument with the command to `Bash`.
    """
    allowed = [_tokens(each) for each in allow]
    denied = [_tokens(each) for each in deny]
    arguments = {"Bash": "command", **(tools or {})}

    def judge(name: str, given: dict[str, Any], _context: ToolPermissionContext) -> PermissionResult | None:
        field = next((field for tool, field in arguments.items() if named(name, (tool,))), None)
        if field is None:
            return None
        line = given.get(field)
        if not isinstance(line, str):
            return PermissionResultDeny(message=f"{name} was refused: {field} is missing.")
        try:
            found = read(line)
            started = list(_unfolded(found))
            for rule in denied:
                if any(_forbids(rule, words) for words in started):
                    return PermissionResultDeny(
                        message=f"Commands like '{shlex.join(rule)}' are not allowed here."
                    )
            leaves = list(_leaves(found))
        except Unclear as unclear:
            return PermissionResultDeny(
                message=f"The command was refused because it cannot be checked: {unclear}. Use a simpler one."
            )
        good = bool(leaves) and all(any(_begins(rule, leaf) for rule in allowed) for leaf in leaves)
        return PermissionResultAllow() if good and not given.get("dangerouslyDisableSandbox") else None

    shown = {"allow": [shlex.join(each) for each in allowed], "deny": [shlex.join(each) for each in denied]}
    return Policy(judge, f"commands({', '.join(f'{key}={value}' for key, value in shown.items() if value)})")


def _tokens(rule: str | Sequence[str]) -> list[str]:
    tokens = shlex.split(rule) if isinstance(rule, str) else list(rule)
    if not tokens or not all(tokens):
        raise ValueError("a command must have at least one word")
    return tokens


def _begins(rule: list[str], command: Simple) -> bool:
    """Whether a command is one of the allowed: exact words, and nothing done beside them."""
    start = command.words[: len(rule)]
    plain = not command.assigns and not command.writes and all(word.fixed for word in start)
    return plain and [word.text for word in start] == rule


def _leaves(found: list[Simple], depth: int = 0) -> Iterator[Simple]:
    """The commands, with `sh -c` replaced by what it runs."""
    for command in found:
        words = command.words
        if (
            words
            and words[0].fixed
            and words[0].text in _SHELLS
            and not command.assigns
            and not command.writes
        ):
            yield from _leaves(read(_script(words), depth + 1), depth + 1)
        else:
            yield command


def _unfolded(found: list[Simple], depth: int = 0) -> Iterator[list[Word]]:
    """The words of each command, and of those that it would start."""
    for command in found:
        yield from _started(command.words, depth)


def _started(words: list[Word], depth: int) -> Iterator[list[Word]]:
    if not words:
        return
    if not words[0].fixed:
        raise Unclear("the name of a command is not written out")
    yield words
    name = _base(words[0])
    if name in _HIDING or (
        name in _COUNTING and any("$(" in word.text or "`" in word.text for word in words)
    ):
        raise Unclear(f"{name!r} may run what cannot be seen")
    yield from _inner(words, depth)
    if name in _WRAPPERS:
        yield from _wrapped(name, words, depth)


def _wrapped(name: str, words: list[Word], depth: int) -> Iterator[list[Word]]:
    """What a wrapper may start. Which of its words is the command depends on it: each of them may be."""
    if not all(word.fixed for word in words):
        raise Unclear(f"the words behind {name!r} are not written out")
    inner = {_base(word) for word in words[1:]}
    if (name in _FED and inner & (_SHELLS | _WRAPPERS | {"eval"})) or (
        name in ("command", "builtin") and inner & _HIDING
    ):
        raise Unclear(f"what {name!r} runs cannot be seen")
    more = [Word(fixed=False)] if name in _FED else []
    for at, word in enumerate(words[1:], start=1):
        yield words[at:] + more
        yield from _inner(words[at:], depth)
        if name not in _BY_WORDS:
            option = word.text.startswith("-")
            for text in (word.text.partition("=")[2], word.text[2:]) if option else (word.text,):
                if any(char in text for char in " \t\n;|&$`\\"):
                    yield from _unfolded(read(text, depth + 1), depth + 1)


def _inner(words: list[Word], depth: int) -> Iterator[list[Word]]:
    """What a shell or an eval runs."""
    name = _base(words[0])
    if name in _SHELLS:
        yield from _unfolded(read(_script(words), depth + 1), depth + 1)
    elif name == "eval":
        if not all(word.fixed for word in words):
            raise Unclear("eval runs what is not written out")
        yield from _unfolded(read(" ".join(word.text for word in words[1:]), depth + 1), depth + 1)


def _script(words: list[Word]) -> str:
    """The text behind `sh -c`; `Unclear` if it runs anything else."""
    given, seen = list(words[1:]), False
    while given:
        word = given.pop(0)
        if not word.fixed:
            break
        if word.text in ("-o", "+o", "-O", "+O"):
            given[:1] = []
        elif not word.text.startswith(("-", "+")):
            if not seen:
                break
            return word.text
        elif word.text.startswith(("--rc", "--init", "-C")) or "o" in word.text.lower()[1:]:
            break
        else:
            seen |= not word.text.startswith(("--", "+")) and "c" in word.text
    raise Unclear(f"{words[0].text!r} runs a script that cannot be seen")


def _forbids(rule: list[str], words: list[Word]) -> bool:
    """Whether a command may be a denied one. Flags count in any order and spelling, further words in order."""
    if _base(words[0]) != _base(Word(rule[0])):
        return False
    if not all(word.fixed for word in words):
        return True  # what is filled in may be the rest of it
    flags = {letter for word in words[1:] for letter in _flags(word.text)}
    rest = iter([word.text for word in words[1:]])
    for token in rule[1:]:
        if letters := _flags(token):
            if not letters <= flags:
                return False
        elif not any(text == token for text in rest):
            return False
    return True


def _flags(text: str) -> set[str]:
    """The letters of short flags; a long one counts by its first letter, as `--force` for `-f`."""
    if text.startswith("--"):
        return set(text[2:3].casefold())
    return set(text[1:].casefold()) if text.startswith("-") else set()


def _base(word: Word) -> str:
    return word.text.replace("\\", "/").rpartition("/")[2].casefold()
