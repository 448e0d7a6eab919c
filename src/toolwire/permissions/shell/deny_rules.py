"""Denied shell commands: parses a line and searches it. It prevents accidents and is not a security boundary.

The parser understands words and quotes, `;`, `&`, `|`, newlines, subshells, `$(...)`, backticks, assignments,
redirections. A word whose value is only known at run time (variables, wildcards, braces) is not `fixed`.

A line is denied if a command in it, or one inside a wrapper such as `sudo` or `sh -c`, may be a denied one. Raises
`UnclearError` if the line cannot be parsed, or if the search would take too long. The lists of wrappers are in
`programs`. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from toolwire.permissions.shell.programs import (
    COMMAND_READERS,
    EVALUATING_BUILTINS,
    FOREIGN_SHELLS,
    HIDING_BUILTINS,
    INPUT_WRAPPERS,
    KEYWORDS,
    OPTIONS_WITH_VALUE,
    POSIX_SHELLS,
    WORD_WRAPPERS,
    WRAPPERS,
    base_name,
)

_META: Final = " \t\n;&|<>()"
_JOINING: Final = "$`{}()[]<>=!*?@+~^"
"""Characters that may have another meaning together with the next character."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9?$!#@*-]", re.ASCII)
_BRACED: Final = re.compile(r"\{[A-Za-z_]\w*\}", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=", re.ASCII)
_NUMBERED: Final = re.compile(r"\d+[<>]", re.ASCII)
_BLOCK_WORDS: Final = KEYWORDS - {"nocorrect", "]]"}
"""Keywords of compound commands, which are not parsed."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:,%-]+", re.ASCII)
_PLAIN_QUOTED: Final = re.compile(r'[^"\\$`]+')
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
MAX_LINE: Final = 65_536
"""Characters; longer lines are denied unread."""
_MAX_DEPTH: Final = 12
_MAX_COMMANDS: Final = 5_000


class UnclearError(Exception):
    """Raised for a line that cannot be parsed; its text says why."""


@dataclass
class Word:
    """One word. `text` is exact if the word is `fixed`."""

    text: str = ""
    fixed: bool = True
    quoted: bool = False


@dataclass
class SimpleCommand:
    """A command with its words."""

    words: list[Word] = field(default_factory=list)
    assigns: bool = False
    """It sets variables, for itself or for later commands."""
    writes: bool = False
    """Its output goes to a file."""

    @property
    def started(self) -> bool:
        return bool(self.words or self.assigns or self.writes)


def read(text: str, depth: int = 0) -> list[SimpleCommand]:
    """Return all simple commands, including those of substitutions and subshells."""
    if depth > _MAX_DEPTH or len(text) > MAX_LINE:
        raise UnclearError("it is too long or too deeply nested")
    if _CONTROL.search(text):
        raise UnclearError("it has control characters")
    reader = _Reader(text, depth)
    reader.read_commands(None)
    return reader.found


class _Reader:
    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.at = 0
        self.found: list[SimpleCommand] = []

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.text[at] if at < len(self.text) else ""

    def read_commands(self, end: str | None) -> None:  # noqa: C901, PLR0912 - one branch for each special character
        """Read up to the end, or to the closing bracket."""
        if end is not None:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise UnclearError("it is too deeply nested")
        now, closed = SimpleCommand(), False
        while char := self.peek():
            if char in " \t":
                self.at += 1
            elif char == "\\" and self.peek(1) == "\n":
                self.skip_continuation()
            elif char == "#":
                newline = self.text.find("\n", self.at)
                self.at = newline if newline >= 0 else len(self.text)
            elif char == ")" and end is not None:
                break
            elif char in "<>" or (char == "&" and self.peek(1) == ">"):
                self.read_redirection(now)
            elif char in "\n;&|":
                if self.text.startswith(";;", self.at):
                    raise UnclearError("it has a case")
                self.at += 1
                now, closed = self.add_command(now), False
            elif closed and not _NUMBERED.match(self.text, self.at):
                raise UnclearError("a bracket is followed by more words")
            elif char == "(":
                if now.started or self.peek(1) == "(":
                    raise UnclearError("it has brackets that are not a plain subshell")
                self.at += 1
                self.read_commands(")")
                closed = True
            elif char == ")":
                raise UnclearError("a closing bracket has no opening one")
            else:
                self.read_next_word(now)
        if end is not None:
            if not self.peek():
                raise UnclearError("a bracket is not closed")
            self.at += 1
            self.depth -= 1
        self.add_command(now)

    def add_command(self, command: SimpleCommand) -> SimpleCommand:
        if command.started:
            self.found.append(command)
            if len(self.found) > _MAX_COMMANDS:
                raise UnclearError("it has too many commands")
        return SimpleCommand()

    def read_next_word(self, command: SimpleCommand) -> None:
        word = self.read_word()
        if (
            word.text.isdecimal()
            and word.text.isascii()
            and word.fixed
            and not word.quoted
            and self.peek() in ("<", ">")
        ):
            return  # the number of a file descriptor
        if not command.words:
            if not word.quoted and word.text in ("!", "{", "}"):
                return
            if not word.quoted and word.text in _BLOCK_WORDS:
                raise UnclearError(f"it uses {word.text!r}; use plain commands one after another")
            if _ASSIGNMENT.match(word.text):
                if "$(" in word.text or "`" in word.text:
                    raise UnclearError("it stores a command in a variable")
                command.assigns = True
                return
        command.words.append(word)

    def read_word(self) -> Word:  # noqa: C901, PLR0912 - as above
        word = Word()
        while (char := self.peek()) and char not in _META:
            if run := _PLAIN.match(self.text, self.at):
                word.text += run[0]
                self.at = run.end()
            elif char == "\\":
                if not self.peek(1):
                    raise UnclearError("it ends in a backslash")
                if self.peek(1) == "\n":
                    self.skip_continuation()
                else:
                    word.text += self.peek(1)
                    word.quoted = True
                    self.at += 2
            elif char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise UnclearError("a quote is not closed")
                word.text += self.text[self.at + 1 : end]
                word.quoted = True
                self.at = end + 1
            elif char == '"':
                self.at += 1
                self.read_double_quoted(word)
            elif char in "$`":
                self.read_expansion(word, quoted=False)
            else:
                if char.isspace():
                    raise UnclearError("it has an unusual whitespace character")
                alone = not word.text and not word.quoted and self.peek(1) in ("", *_META)
                braces = not word.text and self.peek(1) == "}" and self.peek(2) in ("", *_META)  # as for find
                if char in "*?" or (char == "[" and not alone) or (char == "{" and not alone and not braces):
                    word.fixed = False
                elif char == "=" and not word.text:
                    word.fixed = False  # zsh replaces it with the path of a program
                word.text += char
                self.at += 1
        if self.peek() == "(":
            raise UnclearError("it has brackets inside a word")
        return word

    def read_double_quoted(self, word: Word) -> None:
        word.quoted = True
        while (char := self.peek()) != '"':
            if not char:
                raise UnclearError("a quote is not closed")
            if char == "\\" and self.peek(1) == "\n":
                self.skip_continuation()
            elif char == "\\" and self.peek(1) in ("$", "`", '"', "\\"):
                word.text += self.peek(1)
                self.at += 2
            elif char in "$`":
                self.read_expansion(word, quoted=True)
            elif run := _PLAIN_QUOTED.match(self.text, self.at):
                word.text += run[0]
                self.at = run.end()
            else:
                word.text += char  # a literal backslash
                self.at += 1
        self.at += 1

    def read_expansion(self, word: Word, *, quoted: bool) -> None:
        """Read a `$` or a backtick."""
        if self.peek() == "`":
            self.read_backticks()
        elif self.peek(1) == "(":
            if self.peek(2) == "(":
                raise UnclearError("it has arithmetic")
            self.at += 2
            self.read_commands(")")
        elif match := _BRACED.match(self.text, self.at + 1) or _NAME.match(self.text, self.at + 1):
            self.at = match.end()
        elif self.peek(1) in ("{", "[") or (self.peek(1) in ("'", '"') and not quoted):
            raise UnclearError("it has an expansion that is not simple")
        else:
            if self.text.startswith("\\\n", self.at + 1):
                raise UnclearError("a line is continued inside an expansion")
            word.text += "$"
            self.at += 1
            if self.peek() in ("", '"', *_META):
                return
            # A literal character to most shells; zsh has `$=x`, `$~x`, `$^x`, `$+x`.
        word.fixed = False

    def skip_continuation(self) -> None:
        """Skip a backslash at the end of a line. The shell joins the lines before it looks for expansions."""
        before, after = self.text[self.at - 1 : self.at], self.peek(2)
        if (before and before in _JOINING) or (
            after and after in _JOINING and before not in ("", " ", "\t", "\n")
        ):
            raise UnclearError("a line is continued inside an expansion")
        self.at += 2

    def read_backticks(self) -> None:
        inner, at = "", self.at + 1
        while at < len(self.text) and self.text[at] != "`":
            if self.text.startswith('\\"', at):
                raise UnclearError("backticks contain an escaped quote")  # its meaning depends on the context
            if self.text[at] == "\\" and self.text[at + 1 : at + 2] in ("`", "$", "\\"):
                at += 1
            inner += self.text[at : at + 1]
            at += 1
        if at >= len(self.text):
            raise UnclearError("a backtick is not closed")
        self.at = at + 1
        self.found += read(inner, self.depth + 1)

    def read_redirection(self, command: SimpleCommand) -> None:
        if self.text.startswith(("<<", "<(", ">("), self.at):
            raise UnclearError("it has a here-document or a process substitution")
        operator = ""
        while self.peek() in ("<", ">", "&", "|") and len(operator) < 3:  # noqa: PLR2004 - `&>>` is the longest
            operator += self.peek()
            self.at += 1
        if operator not in (">", ">>", ">|", "<", "<>", ">&", "<&", "&>", "&>>"):
            raise UnclearError("it has an unknown redirection")
        while self.peek() in (" ", "\t"):
            self.at += 1
        target = self.read_word()
        if not target.text and target.fixed:
            raise UnclearError("a redirection has no target")
        copied = operator in (">&", "<&") and re.fullmatch(r"\d+|-", target.text)
        harmless = target.fixed and (copied or target.text == "/dev/null")
        command.writes |= ">" in operator and not harmless


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
        has_command = any(re.match(r"-[A-Za-z]*c|--c", word.text) for word in words[1:])
        return name == "parallel" or (name == "su" and not has_command)
    options, operands = _split_options(words, OPTIONS_WITH_VALUE[name])
    if name == "env":
        return any(re.match(r"-[^-]*S|--s", text) for text in options)
    if name in ("sudo", "doas"):
        return any(re.match(r"-[^-]*[si]|--sh|--log", text) for text in options)
    if name in ("unshare", "nsenter"):
        return not operands
    following = _split_options(operands, OPTIONS_WITH_VALUE[name])[1] if operands else []
    return bool(operands) and not following  # a host or a folder without a command starts a shell


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
