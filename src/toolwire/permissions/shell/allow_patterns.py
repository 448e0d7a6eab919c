"""Allowed shell commands: parses the literal part of the language, and matches it with patterns such as
`cp [-r] * build/`. A security boundary.

A line is read as commands whose words are all written out: plain characters, quotes and backslashes; `;`, `&&`,
`||`, `|`, `&` and newlines between commands; comments; output to `/dev/null` and `2>&1`; `*` and `?`. sh, bash and
zsh agree on these. Anything else raises `NotLiteralError`. Each character is read once.

A pattern is checked when it is built: one that would let its program start any other program raises ValueError.
Facts about programs are in `programs`. Pure.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolwire.permissions.shell.programs import (
    ANYTHING,
    BUILTINS,
    CHECKED,
    GNU,
    KEYWORDS,
    KNOWN,
    LISTED,
    READ_DATA,
    SAFE_BUILTINS,
    STARTERS,
    WRITERS,
    Rest,
    base_name,
)

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
    """It has a `*` or `?` that the shell may replace with file names."""
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
            # In sh, `&>` ends a command and begins the next.
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
    """Add the word that begins at `start`; returns the position of its end."""
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


ONE: Final = "*"
MANY: Final = "..."
_VERSION: Final = re.compile(r"[-.]?\d+(\.\d+)*\Z")
_FLAVOUR: Final = re.compile(r"[.-](exe|cmd|bat|basic|tiny|nox|gtk3?|athena|distrib|real|orig|static|dbg)\Z")
_XARGS_OPTIONS: Final = re.compile(r"-[0rtx]+|-[nLP]\d+")
_HELP: Final = (
    "Write out the arguments: '*' stands for one word that does not begin with '-', a last '...' for any number of "
    "them, '[-a --b]' for optional flags, '[]' for no more words"
)


@dataclass(frozen=True)
class _Options:
    """Options that may be present at their position in a pattern or later."""

    words: tuple[str, ...]

    def __contains__(self, word: str) -> bool:
        return any(
            word == each or (each.endswith("=*") and word.startswith(each[:-1])) for each in self.words
        )


_Shape: TypeAlias = tuple[str | _Options, ...] | None


@dataclass(frozen=True)
class AllowPattern:
    """The commands that a rule allows: a program, and the words after it."""

    words: tuple[str, ...]
    """The literal words at the beginning of a command."""
    shape: _Shape
    """All words after them. None means any words, or the `rest`."""
    rest: Rest | None
    """For a listed program: further harmless words."""
    takes_input: bool
    """It is allowed after a pipe."""
    text: str

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def fixed(self) -> bool:
        """True if it matches one command only."""
        return self.shape is not None and not any(
            item.words if isinstance(item, _Options) else item in (ONE, MANY) for item in self.shape
        )

    def fits(self, command: LiteralCommand) -> bool:
        """Return True if the command is allowed."""
        start = len(self.words)
        begins = [word.text for word in command.words[:start]] == list(self.words)
        if not begins or any(word.wildcard for word in command.words[:start]):
            return False
        if command.piped and not self.takes_input:
            return False
        following = command.words[start:]
        if self.shape is not None:
            return self._fits_shape(following)
        return self.rest is None or _fits_rest(self.rest, following)

    def _fits_shape(self, following: list[LiteralWord]) -> bool:
        groups: list[_Options] = []
        items = list(reversed(self.shape or ()))
        first = True
        for word in following:
            while items and isinstance(group := items[-1], _Options):
                groups.append(group)
                items.pop()
            item = items[-1] if items else None
            operand = _is_operand(word, self.rest, first=first)
            if item == word.text and item not in (ONE, MANY) and not word.wildcard:
                items.pop()
            elif not word.wildcard and any(word.text in group for group in groups):
                continue
            elif item == MANY and (operand or _is_option(word, self.rest)):
                first &= not operand
            elif item == ONE and operand and not word.wildcard:
                first = False
                items.pop()
            else:
                return False
        return all(isinstance(item, _Options) or item == MANY for item in items)


def build_allow_pattern(entry: str | Sequence[str]) -> AllowPattern:
    """Return the pattern for a rule; raises ValueError for a rule that could not be enforced."""
    tokens = split_rule(entry)
    shape: _Shape = None
    if isinstance(entry, str):
        text = entry
        words, shape = _parse(tokens, text)
    else:
        text, words = shlex.join(tokens), tuple(tokens)
    program = words[0]
    if program in KEYWORDS or program.startswith(("%", "-")) or "=" in program:
        raise ValueError(f"commands: allow={text!r}: {program!r} is shell syntax, not a command")
    if program in SAFE_BUILTINS:
        return AllowPattern(words, shape, None, takes_input=True, text=text)
    if program in BUILTINS:
        return _build_builtin(words, shape, text)
    names = _list_names(program)
    if names & LISTED:
        return _build_listed(names, words, shape, text)
    return AllowPattern(words, shape, None, takes_input=True, text=text)


def _build_listed(names: set[str], words: tuple[str, ...], shape: _Shape, text: str) -> AllowPattern:
    """Return the pattern for a listed program; raises ValueError if it would allow any arguments."""
    rest = _find_rest(names, words)
    if shape is None and len(words) == 1 and not names & CHECKED:
        does = "start other programs" if names & STARTERS else "write any file"
        raise ValueError(
            f"commands: allow={text!r}: some arguments make {words[0]!r} {does}, so it cannot be allowed with any "
            f"arguments. {_HELP}; for example {_make_example(words[0], names)!r}"
        )
    if "xargs" in names:
        return _build_xargs(words, shape, text)
    if shape is not None:
        _check_wildcards(words, shape, rest, text)
    if shape is None and (rest is None or not rest.implied or _find_unknown_option(words, rest)):
        shape, rest = (), None
    if rest is ANYTHING:
        return AllowPattern(words, shape, None, takes_input=True, text=text)
    takes_input = rest is not None or bool(names & (READ_DATA | WRITERS | CHECKED))
    return AllowPattern(words, shape, rest, takes_input=takes_input, text=text)


def split_rule(rule: str | Sequence[str]) -> list[str]:
    """Return the words of a rule."""
    tokens = shlex.split(rule) if isinstance(rule, str) else list(rule)
    if not tokens or not all(tokens):
        raise ValueError("commands: a rule must have at least one word, and no empty ones")
    return tokens


def check_together(patterns: Sequence[AllowPattern]) -> None:
    """Raise ValueError for patterns that are not safe together."""
    moving = [
        each for each in patterns if each.program in ("cd", "chdir", "pushd", "popd") and not each.fixed
    ]
    for each in patterns:
        if moving and "/" in each.program and not each.program.startswith("/"):
            raise ValueError(
                f"commands: {each.program!r} is relative to the working directory, which {moving[0].text!r} "
                "changes, so it could be any file of that name: write its absolute path, or allow fixed folders "
                "only ('cd app []')"
            )


def _parse(tokens: list[str], text: str) -> tuple[tuple[str, ...], _Shape]:
    """Return the literal words at the beginning, and the shape of the others if the rule has one."""
    first = next((at for at, token in enumerate(tokens) if at and _is_symbol(token)), len(tokens))
    shape: list[str | _Options] = []
    left = tokens[first:]
    while left:
        token = left.pop(0)
        if token.startswith("["):
            shape.append(_parse_options([token], left, text))
        elif token == MANY and left:
            raise ValueError(f"commands: allow={text!r}: '...' must be the last word")
        else:
            shape.append(token)
    for word in (*tokens[:first], *shape):
        if isinstance(word, str) and word != ONE and "*" in word:
            raise ValueError(
                f"commands: allow={text!r}: '*' stands for a whole word and cannot be a part of one ({word!r}). "
                "For any further words write ' ...' at the end; for a literal '*' write the rule as a list of words"
            )
    return tuple(tokens[:first]), tuple(shape) if first < len(tokens) else None


def _parse_options(group: list[str], left: list[str], text: str) -> _Options:
    """Return the options between a `[` and its `]`."""
    while not group[-1].endswith("]"):
        if not left:
            raise ValueError(f"commands: allow={text!r}: a '[' is not closed")
        group.append(left.pop(0))
    options = " ".join(group)[1:-1].split()
    if not all(option.startswith("-") for option in options):
        raise ValueError(f"commands: allow={text!r}: '[...]' may only contain options, which begin with '-'")
    return _Options(tuple(options))


def _is_symbol(token: str) -> bool:
    return token in (ONE, MANY) or token.startswith("[")


def _check_wildcards(
    words: tuple[str, ...], shape: tuple[str | _Options, ...], rest: Rest | None, text: str
) -> None:
    """Raise ValueError for wildcards after words that are not known to be harmless."""
    if not _has_wildcards(shape):
        return
    if rest is None:
        raise ValueError(
            f"commands: allow={text!r}: a wildcard after {shlex.join(words)!r} could make it start "
            "another program. Write out all the words, or allow a script of your own that runs it"
        )
    options = [word for item in shape for word in (item.words if isinstance(item, _Options) else (item,))]
    if unknown := _find_unknown_option((*words, *options), rest):
        raise ValueError(
            f"commands: allow={text!r}: {unknown!r} is not known to be harmless together with wildcards. "
            "Leave it out, or write out all the words"
        )


def _find_unknown_option(words: tuple[str, ...], rest: Rest) -> str | None:
    """Return the first option that may change the meaning of the words after it."""
    if rest.any_option:
        return None
    return next((each for each in words if each.startswith("-") and not rest.options.fullmatch(each)), None)


def _has_wildcards(shape: _Shape) -> bool:
    return any(
        any(word.endswith("=*") for word in item.words) if isinstance(item, _Options) else item in (ONE, MANY)
        for item in shape or ()
    )


def _build_builtin(words: tuple[str, ...], shape: _Shape, text: str) -> AllowPattern:
    if _has_wildcards(shape) or (shape is None and len(words) == 1):
        raise ValueError(
            f"commands: allow={text!r}: {words[0]!r} is a shell builtin that may run its arguments as code, so all "
            f"of them must be written out ('{words[0]} []' for none)"
        )
    return AllowPattern(words, shape or (), None, takes_input=False, text=text)


def _build_xargs(words: tuple[str, ...], shape: _Shape, text: str) -> AllowPattern:
    """Return the pattern for `xargs`; its command must be one that may be allowed with any words."""
    inner = list(words[1:])
    while inner and _XARGS_OPTIONS.fullmatch(inner[0]):
        inner.pop(0)
    if shape is not None or not inner or inner[0].startswith("-") or _list_names(inner[0]) & LISTED:
        raise ValueError(
            f"commands: allow={text!r}: xargs adds words of its input to a command, so it can only be allowed "
            "with a command that starts no other program: 'xargs grep TODO', 'xargs -0 wc -l'"
        )
    return AllowPattern(words, None, None, takes_input=True, text=text)


def _list_names(program: str) -> set[str]:
    """Return the names under which a program may be listed: without folder, version, and the `g` of GNU tools."""
    base = _FLAVOUR.sub("", base_name(program))
    names = {base, _VERSION.sub("", base)}
    names |= {each[1:] for each in names if each.startswith("g") and each[1:] in GNU}
    return names


def _find_rest(names: set[str], words: tuple[str, ...]) -> Rest | None:
    for row, rest in KNOWN.items():
        given = words[1 : len(row)]
        if row[:2] == ("python", "-m") and len(given) == 2:  # noqa: PLR2004 - a package includes its modules
            given = (given[0], given[1].partition(".")[0])
        same = row[0] in names and len(given) == len(row) - 1
        if same and all(_matches(wanted, word) for wanted, word in zip(row[1:], given, strict=True)):
            special = rest is not None and rest.first is not None and len(words) > len(row)
            return None if special else rest
    return None


def _matches(wanted: str, word: str) -> bool:
    return wanted == word or (wanted == ONE and bool(word) and not word.startswith("-"))


def _make_example(program: str, names: set[str]) -> str:
    rows = [row for row, rest in KNOWN.items() if row[0] in names and rest is not None and "*" not in row]
    if not rows:
        return f"{program} --version"
    return shlex.join((program, *rows[0][1:])) + (" * target" if names & WRITERS else " ...")


def _fits_rest(rest: Rest, following: list[LiteralWord]) -> bool:
    first = True
    for word in following:
        if _is_operand(word, rest, first=first):
            first = False
        elif not _is_option(word, rest):
            return False
    return True


def _is_operand(word: LiteralWord, rest: Rest | None, *, first: bool) -> bool:
    if not word.starts_plain or word.text.startswith("-"):
        return False
    if rest is None:
        return True
    looks_like = rest.first if first and rest.first else rest.operands
    return bool(looks_like.fullmatch(word.text)) and not (word.wildcard and looks_like is rest.first)


def _is_option(word: LiteralWord, rest: Rest | None) -> bool:
    return rest is not None and rest.implied and not word.wildcard and bool(rest.options.fullmatch(word.text))
