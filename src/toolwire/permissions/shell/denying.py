"""Finds denied commands in a shell line: help against accidents, and no boundary.

It is enough that a command of the line, or one inside a wrapper such as `sudo` or `sh -c`, may be a denied one.
`Unclear` if the line cannot be read, or if looking at it would take too long. Pure.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from toolwire.permissions.shell.lines import Simple, Unclear, Word, read

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
_READING: Final = _SHELLS | _FOREIGN | _TAKING.keys() | {"eval", "su", "parallel"}
"""Names whose further words are read as commands, wherever they stand."""
_MOST_STEPS: Final = 300_000
"""Words and characters that are looked at for one line: some tenths of a second."""


class DenyRules:
    """Commands that are denied, each a name and words that must all be there."""

    def __init__(self, rules: list[list[str]]) -> None:
        self.rules = rules

    def find(self, line: str) -> list[str] | None:
        """Return the first rule that a command of the line may break, None if there is none."""
        if not self.rules:
            return None
        search = _Search({_base(Word(rule[0])) for rule in self.rules})
        started = list(search.commands_in(line, 0))
        for rule in self.rules:
            for words in started:
                if _base(words[0]) == _base(Word(rule[0])):
                    search.step(len(words))
                    if _forbids(rule, words):
                        return rule
        return None


class _Search:
    """One look at a line, which ends after so many steps."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._left = _MOST_STEPS

    def step(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Unclear("it takes too long to check")

    def commands_in(self, text: str, depth: int) -> Iterator[list[Word]]:
        """The words of each command in a text that may be a denied one, and of those that it would start."""
        self.step(len(text))
        for command in read(text, depth):
            yield from self._started(command, depth)

    def _started(self, command: Simple, depth: int) -> Iterator[list[Word]]:
        words = command.words
        if not words:
            return
        if not words[0].fixed:
            raise Unclear("the name of a command is not written out")
        name = _base(words[0])
        if name in self._names:
            yield words
        if name in _HIDING or (
            name in _COUNTING and any("$(" in word.text or "`" in word.text for word in words)
        ):
            raise Unclear(f"{name!r} may run what cannot be seen")
        self.step(len(words))
        yield from self._inner(words, depth)
        if name in _WRAPPERS:
            yield from self._wrapped(name, words, depth)

    def _wrapped(self, name: str, words: list[Word], depth: int) -> Iterator[list[Word]]:  # noqa: C901 - one way each
        """The commands that a wrapper may start. Which of its words is the command depends on it: each may be."""
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
            if bases[at] in self._names:
                self.step(len(words) - at)
                yield words[at:] + more
            if bases[at] in _READING:
                self.step(len(words) - at)
                yield from self._inner(words[at:], depth)
            option = word.text.startswith("-")
            attached = (word.text.partition("=")[2], word.text[2:]) if option else ()
            for text in attached:
                if text and _base(Word(text)) in self._names:
                    self.step(len(words) - at)
                    yield [Word(text), *words[at + 1 :], *more]  # as in `fd -xrm`
            if whole:
                for text in attached if option else (word.text,):
                    if any(char in text for char in " \t\n;|&$`\\"):
                        yield from self.commands_in(text, depth + 1)
            whole = whole or bases[at] in _WRAPPERS

    def _inner(self, words: list[Word], depth: int) -> Iterator[list[Word]]:
        """The commands that a shell or an eval runs."""
        name = _base(words[0])
        if name in _FOREIGN or _hidden(name, words):
            raise Unclear(f"what {name!r} runs cannot be seen")
        if name in _SHELLS:
            yield from self.commands_in(_script(words), depth + 1)
        elif name == "eval":
            if not all(word.fixed for word in words):
                raise Unclear("eval runs what is not written out")
            yield from self.commands_in(" ".join(word.text for word in words[1:]), depth + 1)


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
    given, seen = iter(words[1:]), False
    for word in given:
        if not word.fixed:
            break
        if word.text in ("-o", "+o", "-O", "+O"):
            next(given, None)
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
