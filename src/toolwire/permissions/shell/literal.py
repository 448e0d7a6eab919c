"""Parses the literal part of the shell language, for `allow_patterns`: commands whose words are all written out.

It understands words of plain characters, quotes and backslashes; `;`, `&&`, `||`, `|`, `&` and newlines between
commands; comments; output to `/dev/null` and `2>&1`; `*` and `?`. sh, bash and zsh agree on these. All else raises
`NotLiteralError`. Each character is read once. Pure; the caller decides which commands may run.
"""

import re
from dataclasses import dataclass, field
from typing import Final

_END: Final = r"(?=[ \t\n;&|]|\Z)"
_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t]+)"
    r"|(?P<continued>(?<![^ \t\n])\\\n)"
    r"|(?P<comment>\#[^\n]*)"
    rf"|(?P<both>(?<![0-9])&>>?[ \t]*/dev/null{_END})"
    rf"|(?P<redirect>(?:[12]?>>?|<)[ \t]*/dev/null{_END}|[12]?>&[12]{_END})"
    r"|(?P<operator>\n|(?:&&|\|\||[;&|])(?![;&|]))"
)
_PIECE: Final = re.compile(
    r"(?P<plain>(?:[A-Za-z0-9_./:,@%+=-]|(?<=[A-Za-z0-9])~)++)"
    r"|(?P<wildcard>[*?]++)"
    r"|'(?P<single>[^']*+)'"
    r'|"(?P<double>(?:[^"\\$`!]|\\[^\n!])*+)"'
    r"|\\(?P<escaped>[ -~])"
)
_MAX_COMMANDS: Final = 1_000
_WORD_ENDS: Final = re.compile(_END)
_UNESCAPE: Final = re.compile(r'\\([\\"$`])')
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_REASONS: Final = {
    "$": "it has an expansion ('$')",
    "`": "a backtick runs a command",
    "(": "it has brackets",
    ")": "it has brackets",
    "<": "it redirects to or from a file",
    ">": "it redirects to or from a file",
    "{": "it has braces",
    "}": "it has braces",
    "~": "it has an expansion ('~')",
    "!": "it has a '!' outside of single quotes",
    "'": "a quote is not closed",
    '"': "a quote is not closed, or has '$', a backtick or '!' in it",
    "\\": "a backslash is in an unusual place",
}


class NotLiteralError(Exception):
    """Raised for a line that is not made of literal words; its text says why."""


@dataclass
class LiteralWord:
    """One word. `text` is the program's argument, unless the word has wildcards."""

    text: str = ""
    wildcard: bool = False
    """It has a `*` or `?` that the shell may replace by the names of files."""
    starts_plain: bool = True
    """It does not begin with a wildcard, so the first character of `text` is exact."""


@dataclass
class LiteralCommand:
    """One command with its words."""

    words: list[LiteralWord] = field(default_factory=list)
    piped: bool = False
    """Its input comes from another command of the line."""


def read_literal(line: str) -> list[LiteralCommand]:
    """Return the commands of a line; raises `NotLiteralError` unless all of it is literal."""
    if _CONTROL.search(line):
        raise NotLiteralError("it has control characters")
    found: list[LiteralCommand] = []
    command, redirected, complete, joined = LiteralCommand(), False, False, False
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            if complete:
                raise NotLiteralError("'&>' is not the end of a command")
            at = _read_word(line, at, command)
            continue
        at = token.end()
        if token.lastgroup in ("redirect", "both"):
            redirected = True
            # `&>` ends a command for sh, and begins the next.
            complete |= token.lastgroup == "both"
        elif token.lastgroup == "operator":
            operator = token[0]
            if operator == "\n" and not command.words and not redirected:
                continue
            _finish(found, command)
            joined = operator in ("&&", "||", "|")
            command, redirected, complete = LiteralCommand(piped=operator == "|"), False, False
    if command.words or redirected or joined:
        _finish(found, command)
    if not found:
        raise NotLiteralError("there is no command in it")
    return found


def _finish(found: list[LiteralCommand], command: LiteralCommand) -> None:
    if not command.words:
        raise NotLiteralError("a command is missing")
    found.append(command)
    if len(found) > _MAX_COMMANDS:
        raise NotLiteralError("it has too many commands")


def _read_word(line: str, start: int, command: LiteralCommand) -> int:
    """Add the word that begins at `start`; returns where it ends."""
    parts: list[str] = []
    word = LiteralWord()
    at = start
    while piece := _PIECE.match(line, at):
        kind, text = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind == "plain":
            if "=" in text and (not command.words or (at == start and text.startswith("="))):
                raise NotLiteralError("it sets a variable, or has a word that begins with '='")
        elif kind == "wildcard":
            if not command.words:
                raise NotLiteralError("the name of a command has wildcards")
            word.wildcard = True
            word.starts_plain &= any(parts)
        elif kind == "double":
            text = _UNESCAPE.sub(r"\1", text)
        parts.append(text)
        at = piece.end()
    if at == start or not _WORD_ENDS.match(line, at):
        sign = line[at]
        raise NotLiteralError(_REASONS.get(sign, f"{sign!r} is outside of quotes"))
    word.text = "".join(parts)
    command.words.append(word)
    return at
