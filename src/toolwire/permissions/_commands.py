"""A policy for shell commands, by their words.

To be allowed, each simple command of a line must begin with the words of an allowed prefix. To be denied, it is
enough that one of them, or one inside a wrapper such as `sudo` or `sh -c`, may be a denied one. What cannot be read
for sure is denied. Pure.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
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

_SHELLS: Final = frozenset(("sh", "bash", "zsh", "dash", "ksh"))
_FOREIGN: Final = frozenset(
    (
        *(
            "fish",
            "csh",
            "tcsh",
            "ash",
            "mksh",
            "lksh",
            "oksh",
            "pdksh",
            "ksh93",
            "rksh",
            "rbash",
            "rzsh",
            "yash",
        ),
        *("nu", "nushell", "xonsh", "elvish", "ion", "osh", "ysh", "rc", "es", "pwsh", "powershell", "cmd"),
        *("pwsh.exe", "powershell.exe", "cmd.exe"),
    )
)
"""Shells that read a line in their own way."""
_HIDING: Final = frozenset(
    (
        *(".", "source", "trap", "alias", "enable", "bind", "fc", "hash"),
        *("complete", "compgen", "mapfile", "readarray"),
    )
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
_MOST_WORDS: Final = 2_500
"""Behind a wrapper, where each of them may be a command."""
_FED: Final = frozenset(("xargs", "parallel"))
"""Wrappers that add words of their input."""
_BY_WORDS: Final = frozenset(("find", "fd"))
"""Wrappers that never take a word for a whole command, unless it belongs to a wrapper that they start."""
_TAKING: Final = {
    "env": "uCPa",
    "sudo": "CDghpRrtTUuac",
    "doas": "aCu",
    "ssh": "BbcDEeFIiJLlmOopQRSWw",
    "chroot": "",
    "unshare": "RSGw",
    "nsenter": "tSGwr",
}
"""Wrappers -> short options with a value."""
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
    if len(words) > _MOST_WORDS:
        raise Unclear(f"there are too many words behind {name!r}")
    bases = [_base(word) for word in words]
    fed = next((at for at, base in enumerate(bases) if base in _FED), len(words))
    if not (_SHELLS | _WRAPPERS | {"eval"}).isdisjoint(bases[fed + 1 :]) or (
        name in ("command", "builtin") and not _HIDING.isdisjoint(bases[1:])
    ):
        raise Unclear(f"what {name!r} runs cannot be seen")
    more = [Word(fixed=False)] if fed < len(words) else []
    whole = name not in _BY_WORDS
    for at, word in enumerate(words[1:], start=1):
        yield words[at:] + more
        yield from _inner(words[at:], depth)
        option = word.text.startswith("-")
        attached = (word.text.partition("=")[2], word.text[2:]) if option else ()
        for text in attached:
            if text:
                yield [Word(text), *words[at + 1 :], *more]  # as in `fd -xrm`
        if whole:
            for text in attached if option else (word.text,):
                if any(char in text for char in " \t\n;|&$`\\"):
                    yield from _unfolded(read(text, depth + 1), depth + 1)
        whole = whole or bases[at] in _WRAPPERS


def _inner(words: list[Word], depth: int) -> Iterator[list[Word]]:
    """What a shell or an eval runs."""
    name = _base(words[0])
    if name in _FOREIGN or _hidden(name, words):
        raise Unclear(f"what {name!r} runs cannot be seen")
    if name in _SHELLS:
        yield from _unfolded(read(_script(words), depth + 1), depth + 1)
    elif name == "eval":
        if not all(word.fixed for word in words):
            raise Unclear("eval runs what is not written out")
        yield from _unfolded(read(" ".join(word.text for word in words[1:]), depth + 1), depth + 1)


def _hidden(name: str, words: list[Word]) -> bool:
    """Whether a wrapper splits a text in its own way, or takes commands from its input."""
    if name not in _TAKING:
        said = any(re.match(r"-[A-Za-z]*c|--c", word.text) for word in words[1:])
        return name == "parallel" or (name == "su" and not said)
    options, operands = _parted(words, _TAKING[name])
    if name == "env":
        return any(re.match(r"-[^-]*S|--s", text) for text in options)
    if name in ("sudo", "doas"):
        return any(re.match(r"-[^-]*[si]|--sh|--log", text) for text in options)
    if name in ("unshare", "nsenter"):
        return not operands
    behind = _parted(operands, _TAKING[name])[1] if operands else []
    return bool(operands) and not behind  # a host or a folder and no command: a shell


def _parted(words: list[Word], taking: str) -> tuple[list[str], list[Word]]:
    """The options right behind a name, and the words from the first that is none and belongs to none."""
    options: list[str] = []
    value = False
    for at, word in enumerate(words[1:], start=1):
        text = word.text
        if text == "--":
            return options, words[at + 1 :]
        if text.startswith("-"):
            options.append(text)
            value = text[-1] in taking or (text.startswith("--") and "=" not in text)
        elif value or "=" in text:
            value = False
        else:
            return options, words[at:]
    return options, []


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
    texts = [word.text for word in words[1:]]
    flags = {letter for text in texts for letter in _flags(text)}
    pairs = {one + other for one, other in pairwise(texts) if one.startswith("-")}
    rest = iter(texts)
    for token in rule[1:]:
        if letters := _flags(token):
            if not letters <= flags and token not in pairs:
                return False
        elif not any(_says(text, token) for text in rest):
            return False
    return True


def _says(text: str, token: str) -> bool:
    """Whether a word is a denied one, or a flag with it as its value: `-XPOST`, `--network=host`."""
    if text.startswith("--"):
        return token in (text, text.partition("=")[2])
    return text == token or (text.startswith("-") and text.endswith(token))


def _flags(text: str) -> set[str]:
    """The letters of short flags; a long one counts by its first letter, as `--force` for `-f`."""
    if text.startswith("--"):
        return set(text[2:3].casefold())
    return set(text[1:].casefold()) if text.startswith("-") else set()


def _base(word: Word) -> str:
    return word.text.replace("\\", "/").rpartition("/")[2].casefold()
