"""Finds denied commands in a shell line. It prevents accidents and is not a security boundary.

A line is denied if a command in it, or one inside a wrapper such as `sudo` or `sh -c`, may be a denied one. Raises
`UnclearError` if the line cannot be parsed, or if the search would take too long. The lists of wrappers are in
`programs`. Pure.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from toolwire.permissions.shell.programs import (
    COMMAND_READERS,
    EVALUATING_BUILTINS,
    FOREIGN_SHELLS,
    HIDING_BUILTINS,
    INPUT_WRAPPERS,
    OPTIONS_WITH_VALUE,
    POSIX_SHELLS,
    WORD_WRAPPERS,
    WRAPPERS,
    base_name,
)
from toolwire.permissions.shell.reader import SimpleCommand, UnclearError, Word, read

_MAX_WORDS: Final = 2_500
"""Words after a wrapper, where each of them may be a command."""
_MAX_STEPS: Final = 300_000
"""Words and characters to search in one line: some tenths of a second."""


class DenyRules:
    """Denied commands, each a name and words that must all be present."""

    def __init__(self, rules: list[list[str]]) -> None:
        self.rules = rules

    def find(self, line: str) -> list[str] | None:
        """Return the first rule that a command of the line may match; None if there is none."""
        if not self.rules:
            return None
        search = _Search({base_name(rule[0]) for rule in self.rules})
        started = list(search.find_commands(line, 0))
        for rule in self.rules:
            for words in started:
                if base_name(words[0].text) == base_name(rule[0]):
                    search.step(len(words))
                    if _may_match(rule, words):
                        return rule
        return None


class _Search:
    """The search of one line, with a limit on its steps."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._left = _MAX_STEPS

    def step(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UnclearError("it takes too long to check")

    def find_commands(self, text: str, depth: int) -> Iterator[list[Word]]:
        """Yield the words of each command in a text that may be a denied one, and of those that it would start."""
        self.step(len(text))
        for command in read(text, depth):
            yield from self._find_started(command, depth)

    def _find_started(self, command: SimpleCommand, depth: int) -> Iterator[list[Word]]:
        words = command.words
        if not words:
            return
        if not words[0].fixed:
            raise UnclearError("the name of a command is not a literal word")
        name = base_name(words[0].text)
        if name in self._names:
            yield words
        if name in HIDING_BUILTINS or (
            name in EVALUATING_BUILTINS and any("$(" in word.text or "`" in word.text for word in words)
        ):
            raise UnclearError(f"{name!r} may run commands that are not in the line")
        self.step(len(words))
        yield from self._find_inner(words, depth)
        if name in WRAPPERS:
            yield from self._find_wrapped(name, words, depth)

    def _find_wrapped(self, name: str, words: list[Word], depth: int) -> Iterator[list[Word]]:  # noqa: C901 - one branch for each way to start a command
        """Yield the commands that a wrapper may start: any of its words may be the command."""
        if not all(word.fixed for word in words):
            raise UnclearError(f"the words after {name!r} are not all literal")
        if len(words) > _MAX_WORDS:
            raise UnclearError(f"there are too many words after {name!r}")
        bases = [base_name(word.text) for word in words]
        fed = next((at for at, base in enumerate(bases) if base in INPUT_WRAPPERS), len(words))
        if not (POSIX_SHELLS | WRAPPERS | {"eval"}).isdisjoint(bases[fed + 1 :]) or (
            name in ("command", "builtin") and not HIDING_BUILTINS.isdisjoint(bases[1:])
        ):
            raise UnclearError(f"{name!r} runs commands that are not in the line")
        more = [Word(fixed=False)] if fed < len(words) else []
        whole = name not in WORD_WRAPPERS
        for at, word in enumerate(words[1:], start=1):
            if bases[at] in self._names:
                self.step(len(words) - at)
                yield words[at:] + more
            if bases[at] in COMMAND_READERS:
                self.step(len(words) - at)
                yield from self._find_inner(words[at:], depth)
            option = word.text.startswith("-")
            attached = (word.text.partition("=")[2], word.text[2:]) if option else ()
            for text in attached:
                if text and base_name(text) in self._names:
                    self.step(len(words) - at)
                    yield [Word(text), *words[at + 1 :], *more]  # as in `fd -xrm`
            if whole:
                for text in attached if option else (word.text,):
                    if any(char in text for char in " \t\n;|&$`\\"):
                        yield from self.find_commands(text, depth + 1)
            whole = whole or bases[at] in WRAPPERS

    def _find_inner(self, words: list[Word], depth: int) -> Iterator[list[Word]]:
        """Yield the commands that a shell or an eval runs."""
        name = base_name(words[0].text)
        if name in FOREIGN_SHELLS or _hides_commands(name, words):
            raise UnclearError(f"{name!r} runs commands that are not in the line")
        if name in POSIX_SHELLS:
            yield from self.find_commands(_extract_script(words), depth + 1)
        elif name == "eval":
            if not all(word.fixed for word in words):
                raise UnclearError("eval runs words that are not literal")
            yield from self.find_commands(" ".join(word.text for word in words[1:]), depth + 1)


def _hides_commands(name: str, words: list[Word]) -> bool:
    """Return True if a wrapper splits a text in its own way, or reads commands from its input."""
    if name not in OPTIONS_WITH_VALUE:
        said = any(re.match(r"-[A-Za-z]*c|--c", word.text) for word in words[1:])
        return name == "parallel" or (name == "su" and not said)
    options, operands = _split_options(words, OPTIONS_WITH_VALUE[name])
    if name == "env":
        return any(re.match(r"-[^-]*S|--s", text) for text in options)
    if name in ("sudo", "doas"):
        return any(re.match(r"-[^-]*[si]|--sh|--log", text) for text in options)
    if name in ("unshare", "nsenter"):
        return not operands
    following = _split_options(operands, OPTIONS_WITH_VALUE[name])[1] if operands else []
    return bool(operands) and not following  # a host or a folder and no command: a shell


def _split_options(words: list[Word], taking: str) -> tuple[list[str], list[Word]]:
    """Return the options after a name, and the words from the first that is neither an option nor its value."""
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


def _extract_script(words: list[Word]) -> str:
    """Return the text after `sh -c`; raises `UnclearError` if the shell runs anything else."""
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
    raise UnclearError(f"{words[0].text!r} runs a script that is not in the line")


def _may_match(rule: list[str], words: list[Word]) -> bool:
    """Return True if a command may be a denied one. Flags match in any order and spelling, other words in order."""
    if not all(word.fixed for word in words):
        return True  # the missing text may be the rest of the rule
    texts = [word.text for word in words[1:]]
    flags = {letter for text in texts for letter in _list_flags(text)}
    pairs = {one + other for one, other in pairwise(texts) if one.startswith("-")}
    rest = iter(texts)
    for token in rule[1:]:
        if letters := _list_flags(token):
            if not letters <= flags and token not in pairs:
                return False
        elif not any(_has_value(text, token) for text in rest):
            return False
    return True


def _has_value(text: str, token: str) -> bool:
    """Return True if a word is a denied one, or a flag with it as its value: `-XPOST`, `--network=host`."""
    if text.startswith("--"):
        return token in (text, text.partition("=")[2])
    return text == token or (text.startswith("-") and text.endswith(token))


def _list_flags(text: str) -> set[str]:
    """Return the letters of short flags; a long flag counts as its first letter, `--force` as `-f`."""
    if text.startswith("--"):
        return set(text[2:3].casefold())
    return set(text[1:].casefold()) if text.startswith("-") else set()
