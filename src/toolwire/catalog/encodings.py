"""The forms that a secret takes on its way through JSON, URLs and base64, as one regular expression.

Each character of the secret is matched in any of its spellings, so that it does not matter which characters an
encoder leaves alone, or how often something was encoded. Every quantifier is bounded and possessive: the cost is
linear in the text.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Final

SHORTEST: Final = 6
_ESCAPES: Final = r"\\{0,7}+"  # as many backslashes as three levels of JSON in JSON put before a quote
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ENTITIES: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_BREAK: Final = r"(?:\\{1,3}[rn]|[\r\n]){0,2}+"  # base64 is often written in lines
_BASE64: Final = "A-Za-z0-9+/_-"
_LONGEST_SPELLING: Final = (
    32  # two escaped surrogates with seven backslashes each: the longest that a character gets
)


def pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Compile what finds any of the secrets in any form; None without secrets.

    It begins with a look at the first character, which makes a search three times as fast: 34 ns a character
    instead of 100.
    """
    secrets = sorted(filter(None, set(secrets)), key=len, reverse=True)
    if not secrets:
        return None
    begin = "".join(map(re.escape, sorted(set().union(*map(_first_characters, secrets)))))
    return re.compile(f"(?=[{begin}])(?:{'|'.join(form for secret in secrets for form in _forms(secret))})")


def longest_match(secrets: Iterable[str]) -> int:
    """How many characters any form of the secrets can take at most: escapes and line breaks included."""
    return max((_LONGEST_SPELLING * len(_bytes(each)) for each in secrets), default=0)


def _first_characters(secret: str) -> set[str]:
    """The characters that a form of the secret can begin with."""
    # Any character may be written with a backslash, a percent sign or an ampersand; without its backslash
    # an escape is a letter.
    first = {secret[0], "\\", "%", "&", "+", "u", *_SHORT.values()}
    first.update(_either_case(_bytes(secret).hex()[0]).strip("[]"))
    encoded = [base64.b64encode(_bytes(secret)).decode(), *_cores(_bytes(secret))]
    for core in filter(None, encoded):
        first.update({"+": "+-", "/": "/_"}.get(core[0], core[0]))
    return first


def _forms(secret: str) -> Iterator[str]:
    if not secret:
        return
    spelled = "".join(map(_spelled, _runs(secret)))
    if len(secret) < SHORTEST:
        # As part of a longer word it is most likely that word.
        yield rf"(?<![A-Za-z0-9]){spelled}(?![A-Za-z0-9])"
        whole = base64.b64encode(_bytes(secret)).decode().rstrip("=")
        yield rf"(?<![{_BASE64}]){_base64(whole)}=*+(?![{_BASE64}])"
        return
    yield spelled
    yield _either_case(_bytes(secret).hex())
    yield from map(_base64, _cores(_bytes(secret)))


def _cores(secret: bytes) -> Iterator[str]:
    """The characters of base64 that depend on the secret alone, for each way in which it can be aligned."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        end = len(encoded) if (before + len(secret)) % 3 == 0 else len(encoded) - 1
        yield encoded[-(-8 * before // 6) : end]


def _base64(core: str) -> str:
    spellings = {"+": r"(?:[+-]|%2[bB]|\\{1,3}u002[bB])", "/": r"(?:\\{0,3}+[/_]|%2[fF]|\\{1,3}u002[fF])"}
    return _BREAK.join(spellings.get(each, each) for each in core)


def _runs(secret: str) -> Iterator[str]:
    """The secret in characters, and backslashes in a row as one: nobody can tell which of them escapes which."""
    yield from re.findall(r"\\+|[^\\]", secret)


def _spelled(piece: str) -> str:
    """One character, or a run of backslashes, in every spelling."""
    if piece.startswith("\\"):
        count = len(piece)
        encoded = rf"(?:%(?:25){{0,2}}+5[cC]){{{count}}}|(?:\\{{1,7}}+u005[cC]){{{count}}}"
        return rf"(?:\\{{{count},{4 * count}}}+|{encoded})"
    escaped = [re.escape(piece), *([_SHORT[piece]] if piece in _SHORT else [])]
    units = piece.encode("utf-16-be", "surrogatepass").hex()
    escaped.append(r"\\{1,7}+".join(f"u{_either_case(units[at : at + 4])}" for at in range(0, len(units), 4)))
    forms = [f"{_ESCAPES}(?:{'|'.join(escaped)})"]
    octets = _bytes(piece).hex()
    # A percent sign is its own escape: what is the sign and what is the text, only the rest can tell.
    forms.append(
        "%(?:25){1,3}"
        if piece == "%"
        else "".join(f"%(?:25){{0,2}}+{_either_case(octets[at : at + 2])}" for at in range(0, len(octets), 2))
    )
    if piece == " ":
        forms.append(r"\+")
    if piece in _ENTITIES:
        forms.append(f"&{_ENTITIES[piece]};")
    if not (piece.isascii() and piece.isalnum()):
        forms.append(f"&#(?:0{{0,3}}+{ord(piece)}|[xX]0{{0,3}}+{_either_case(f'{ord(piece):x}')});")
    return f"(?:{'|'.join(forms)})"


def _either_case(hexadecimal: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in hexadecimal.lower())


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
