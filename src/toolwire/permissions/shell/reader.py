"""Parses a shell line into its simple commands, for `deny_rules`. It decides nothing.

It understands words and quotes, `;`, `&`, `|`, newlines, subshells, `$(...)`, backticks, assignments,
redirections. All else raises `UnclearError`. A word whose value is only known when the line runs (variables,
wildcards, braces) is not `fixed`. Pure.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from toolwire.permissions.shell.programs import KEYWORDS

_META: Final = " \t\n;&|<>()"
_JOINING: Final = "$`{}()[]<>=!*?@+~^"
"""Characters that may have another meaning together with the next."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9?$!#@*-]", re.ASCII)
_BRACED: Final = re.compile(r"\{[A-Za-z_]\w*\}", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=", re.ASCII)
_NUMBERED: Final = re.compile(r"\d+[<>]", re.ASCII)
_BLOCK_WORDS: Final = KEYWORDS - {"nocorrect", "]]"}
"""Keywords that make a line more than a list of commands."""
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

    def read_commands(self, end: str | None) -> None:  # noqa: C901, PLR0912 - one branch for each character that counts
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
                    word.fixed = False  # zsh replaces it by the path of a program
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
                raise UnclearError("backticks hold an escaped quote")  # its meaning depends on the context
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
