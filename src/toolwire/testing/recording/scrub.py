"""Secrets out of a recording: which values are secret, and every form in which one may stand in a text.

Owns the forms that are searched for; the names that give a secret away are in `_secrets`. All pure: texts and JSON
values come in and go out. Must not know of files, frames or processes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from toolwire._support.secrets import is_secret_name

SCRUBBED: Final = "<scrubbed>"
SHORTEST: Final = 6
"""A shorter value is left alone: it would be found in the middle of ordinary words and numbers."""

_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_NAMED = {"env", "headers"}  # mappings by name, as in the configuration of an MCP server
_JSON_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_FIRST = (0, 2, 3)  # characters of base64 that hold bits of the 0, 1 or 2 bytes before the secret


class Scrubber:
    """Replaces secrets by `<scrubbed>`, in texts and anywhere in JSON values, keys included.

    A secret is found as it is, JSON-escaped (at any depth), URL-encoded (whichever characters were encoded, also
    twice), in base64 (standard and URL-safe, wherever in the encoded text it begins) and in hex. Values of fewer
    than 6 characters are *not* scrubbed: they would be found in the middle of ordinary words. In mappings named
    `env` or `headers` whatever has the name of a secret is replaced, known or not.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= SHORTEST}
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        # Each pattern begins with literals only: the search then skips through a text at full speed.
        self._patterns = [
            re.compile(pattern)
            for secret in longest_first
            for pattern in (_spelled(secret), _encoded(secret))
        ]

    def text(self, text: str) -> str:
        """The text without secrets."""
        for pattern in self._patterns:
            text = pattern.sub(SCRUBBED, text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets; a number that holds one becomes the text `<scrubbed>`."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(key)): self._member(str(key), each) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
            case bool() | None:
                return value
        spelled = json.dumps(value)
        return value if self.text(spelled) == spelled else SCRUBBED

    def argument(self, argument: str) -> str:
        """One argument of a command line, which may be JSON itself."""
        if argument.startswith("{"):
            try:
                return json.dumps(self.value(json.loads(argument)), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        return self.text(argument)

    def _member(self, key: str, value: Any) -> Any:
        if key in _NAMED and isinstance(value, dict):
            value = {name: SCRUBBED if looks_secret(str(name)) else each for name, each in value.items()}
        return self.value(value)


def looks_secret(name: str) -> bool:
    """Whether a variable or header of this name holds a secret, by its name."""
    return is_secret_name(name)


def secrets_of(*environments: Mapping[str, str]) -> Iterator[str]:
    """The values of variables with names like API_KEY, and passwords in URLs whatever the name."""
    for environment in environments:
        for name, value in environment.items():
            if looks_secret(name):
                yield value
            for password in _IN_URL.findall(value):
                yield password
                yield unquote(password)


def same(expected: Any, came: Any) -> bool:
    """Equality in which a scrubbed secret stands for anything."""
    match expected:
        case str() if SCRUBBED in expected:
            pattern = ".*".join(map(re.escape, expected.split(SCRUBBED)))
            return expected == SCRUBBED or (
                isinstance(came, str) and bool(re.fullmatch(pattern, came, re.DOTALL))
            )
        case dict():
            if not isinstance(came, dict) or len(expected) != len(came):
                return False
            if any(SCRUBBED in key for key in expected):
                pairs = zip(expected.items(), came.items(), strict=True)
                return all(same(key, k) and same(value, v) for (key, value), (k, v) in pairs)
            return all(key in came and same(value, came[key]) for key, value in expected.items())
        case list():
            return isinstance(came, list) and len(expected) == len(came) and all(map(same, expected, came))
    return bool(expected == came)


def _spelled(secret: str) -> str:
    """A pattern for the secret with each character as it is, JSON-escaped or percent-encoded."""
    return "".join(_character(run) for run in re.findall(r"\\+|[^\\]", secret, re.DOTALL))


def _character(run: str) -> str:
    """A pattern for one character, or for a run of backslashes, which escaping makes longer."""
    character = run[0]
    percent = "".join(f"%(?:25)*{_either_case(byte)}" for byte in _bytes(character))
    if character == "\\":
        return rf"(?:(?<!\\)\\{{{len(run)},}}|(?:{percent}|\\\\*+u005[cC]){{{len(run)},}})"
    units = character.encode("utf-16-be", "surrogatepass")
    codes = [units[at : at + 2] for at in range(0, len(units), 2)]
    escaped = "".join(rf"\\\\*+u{_either_case(code[0])}{_either_case(code[1])}" for code in codes)
    ways = [re.escape(character), percent, escaped]
    if character in _JSON_SHORT:
        ways.append(rf"\\\\*+{_JSON_SHORT[character]}")
    if character in '"/':
        ways.append(rf"\\\\*+{character}")
    if character == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"


def _either_case(byte: int) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{byte:02x}")


def _encoded(secret: str) -> str:
    """A pattern for the secret in base64 or hex, as it is or as it stands inside JSON."""
    insides = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    cores = {core for inside in insides for core in _base64_cores(_bytes(inside))}
    ways = ["".join(_base64_character(each) for each in core) + "[A-Za-z0-9+/_-]?" for core in sorted(cores)]
    ways += ["".join(map(_either_case, _bytes(inside))) for inside in sorted(insides)]
    return "|".join(ways)


def _base64_cores(data: bytes) -> Iterator[str]:
    """What of the base64 text depends on `data` alone, for each of the three places where it may begin."""
    for before, first in enumerate(_FIRST):
        whole = (before + len(data)) * 8 // 6
        yield b64encode(b"\0" * before + data).decode()[first:whole]


def _base64_character(character: str) -> str:
    # Standard, URL-safe, and either of them percent-encoded.
    return {"+": "(?:[+-]|%2[bB])", "/": r"(?:[/_]|\\\\*+/|%2[fF])"}.get(character, character)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
