"""Finds and removes characters that a model reads but a person cannot see, in text that an API wrote.

Decides which of them are legitimate where they stand (inside an emoji, between letters of scripts that need them)
and which could carry a hidden instruction. Knows nothing about schemas.
"""

import re
import unicodedata
from typing import Any, Final

# Cf: zero-width and bidi marks, soft hyphens, tags. Cc: controls. Cs: halves of surrogate pairs. Co: private use.
# Cn: unassigned.
_UNSEEN: Final = {"Cf", "Cc", "Cs", "Co", "Cn"}
# Letters and marks of other categories that are blank or change how their neighbours are displayed.
_BLANK: Final = {
    "\u034f",  # combining grapheme joiner
    *("\u115f", "\u1160", "\u17b4", "\u17b5", "\u2800", "\u3164", "\uffa0"),  # fillers
    *("\u180b", "\u180c", "\u180d", "\u180f"),  # variation selectors of Mongolian
    "\U0001d159",  # a note without a head
    *map(chr, range(0xFE00, 0xFE10)),  # the first 16 variation selectors, which can carry hidden bytes
    *map(chr, range(0xE0100, 0xE01F0)),  # and the other 240
}
# Line breaks and tabs; and the signs of Arabic and related scripts that are visible although Unicode puts them in
# Cf.
_SEEN: Final = {
    *("\n", "\t"),
    *map(chr, range(0x0600, 0x0606)),
    *("\u06dd", "\u070f", "\u0890", "\u0891", "\u08e2", "\U000110bd", "\U000110cd"),
}

# Unicode's blocks of pictographs. Unassigned characters of the last range are allowed: future emoji go there.
_PICTOGRAPH: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u3030\u303d\u3297\u3299\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff"
    "\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff]"
)
_EMOJI: Final = f"{_PICTOGRAPH}[\ufe0e\ufe0f]?"
# The flags of England, Scotland and Wales: the only ones that Unicode spells with tags for general use.
_TAGGED_FLAGS: Final = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(each)) for each in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
# Scripts whose spelling needs joiners: Arabic and its relatives, those of India and its neighbours, Mongolian.
_JOINING: Final = (
    "[\u0620-\u06ff\u0700-\u08ff\u0900-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1820-\u18af"
    "\u1900-\u1aaf\u1b00-\u1c7f\ua800-\ua8ff\ua980-\ua9ff\uaa00-\uabff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
_VIRAMA: Final = "[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca]"
_MONGOLIAN: Final = "[\u1820-\u18aa]"
_BRAILLE: Final = "[\u2801-\u28ff]"
# Scripts without spaces between words, which may mark where a line can be broken: Thai, Lao, Myanmar, Khmer.
_SPACELESS: Final = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff]"
_LINE_BREAKS: Final = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_LETTER: Final = r"[^\W\d_]"
_LEGITIMATE: Final = re.compile(
    "|".join(
        (
            _TAGGED_FLAGS,
            f"{_EMOJI}(?:\u200d{_EMOJI})*",
            "[0-9#*]\ufe0f\u20e3",  # a keycap
            f"(?<={_JOINING})[\u200c\u200d](?={_JOINING})",
            f"(?<={_VIRAMA})[\u200c\u200d](?![\u200c\u200d])",  # at the end of a word it spells another letter
            f"(?<={_MONGOLIAN})[\u180b-\u180f]",
            f"(?<={_BRAILLE})\u2800(?={_BRAILLE})",  # the space of Braille
            f"(?<={_SPACELESS})\u200b(?={_SPACELESS})",
            f"(?<={_LETTER})\u00ad(?={_LETTER})",
        )
    )
)


def remove_hidden(text: str) -> str:
    """Remove invisible characters: zero-width, bidi, control, tag and filler characters.

    They stay where they are legitimate: in emoji, beside letters of scripts that need them, soft hyphens in words.
    Every kind of line separator becomes a line break.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_BREAKS.sub("\n", text)
    # Repeated after a removal: a neighbour may not be legitimate any more. This takes three rounds at most.
    while (cleaned := _without_stray(text)) != text:
        text = cleaned
    return text


def has_hidden(value: Any) -> bool:
    """True if a JSON value holds invisible characters, in a text or a name at any depth."""
    return find_hidden(value) is not None


def find_hidden(value: Any) -> str | None:
    """Return a text or name in a JSON value, at any depth, that holds invisible characters."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            stack += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            stack += each
        elif isinstance(each, str):
            text = each.replace("\r", "")  # CRLF line breaks are ordinary
            if remove_hidden(text) != text:
                return each
    return None


def _without_stray(text: str) -> str:
    """Remove invisible characters, except joiners and the like where they belong."""
    pieces, done = [], 0
    for found in _LEGITIMATE.finditer(text):
        pieces += [_without_unseen(text[done : found.start()]), found.group()]
        done = found.end()
    pieces.append(_without_unseen(text[done:]))
    return "".join(pieces)


def _without_unseen(text: str) -> str:
    return "".join(each for each in text if not _is_unseen(each))


def _is_unseen(character: str) -> bool:
    if character in _SEEN:
        return False
    return unicodedata.category(character) in _UNSEEN or character in _BLANK
