"""Secrets: where they come from, and that they go nowhere else.

Owns the reading of a profile's secrets (environment, then a file that only its owner can read) and the scrubber
that takes them out of everything that leaves. A secret is never part of an error.
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolwire._log import logger_for
from toolwire.catalog.encodings import SHORTEST, longest_match, pattern
from toolwire.catalog.profile.model import Profile
from toolwire.errors import CatalogError, UsageError

_MASKS: Final = ("[redacted]", "[***]", "(hidden)")
_PASSES: Final = 3
_PIECE: Final = 64 * 1024  # characters that are searched at a time
_LARGEST_FILE: Final = 64 * 1024
_LONGEST_SECRET: Final = 8 * 1024
_log = logger_for("catalog.secrets")


class Scrubber:
    """Takes known secrets out of text and data: raw, JSON-escaped, URL-encoded, in hex or (part of) base64.

    What it finds becomes `[redacted]`. A value of less than 6 characters is taken out only where it is a word of
    its own, for it would eat ordinary text otherwise; a warning is logged. Neither method raises.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = {each for value in values if value.strip() for each in (value, value.strip())}
        if any(len(each) > _LONGEST_SECRET for each in secrets):
            raise UsageError(f"a secret may have {_LONGEST_SECRET} characters: one of them has more")
        if any(len(each) < SHORTEST for each in secrets):
            _log.warning(
                "a secret has less than %d characters: it is hidden only where it stands alone", SHORTEST
            )
        self._found = pattern(secrets)
        self._overlap = longest_match(secrets)
        self._numeric = any(each.isdecimal() for each in secrets)
        self._mask = next((mask for mask in _MASKS if not self._has(mask)), "")

    @classmethod
    def of(cls, profile: Profile, headers: Mapping[str, str]) -> "Scrubber":
        """Of all that must never be seen of a profile: what the headers say, and the bare secrets in them."""
        return cls(_bare(profile, headers))

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._found is None or not self._has(text):
            return text
        for _ in range(_PASSES):
            parts, kept = [], 0
            for start, end in self._matches(text):
                parts += [text[kept:start], self._mask]
                kept = end
            text = "".join([*parts, text[kept:]])
            if not self._has(text):
                return text
        return (
            self._mask
        )  # the mask and what is around it make a secret again and again: then nothing is shown

    def data(self, data: Any) -> Any:
        """A copy of JSON data without secrets, keys and numbers included. Any depth, and cycles too."""
        if self._found is None:
            return data
        copies: dict[int, Any] = {}
        todo: list[tuple[Any, Any]] = []

        def clean(value: Any) -> Any:
            if isinstance(value, str):
                return self.text(value)
            if isinstance(value, (Mapping, list, tuple, set, frozenset)):
                if id(value) not in copies:
                    copies[id(value)] = {} if isinstance(value, Mapping) else []
                    todo.append((value, copies[id(value)]))
                return copies[id(value)]
            return self._scalar(value)

        result = clean(data)
        while todo:
            given, copy = todo.pop()
            if isinstance(copy, list):
                copy.extend(clean(each) for each in given)
                continue
            for key, value in given.items():
                copy[_free(copy, clean(key) if isinstance(key, str) else self._scalar(key))] = clean(value)
        return result

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._mask if self._has(_digits(value)) else value
        if isinstance(value, (bytes, bytearray)):
            text = value.decode("utf-8", "surrogateescape")
            return self.text(text).encode("utf-8", "surrogateescape") if self._has(text) else value
        return value

    def may_be_in(self, content: bytes) -> bool:
        """Whether the JSON or text in a body may hold a secret. False is certain, and saves a walk through it."""
        if self._found is None:
            return False
        # A number can be written in ways that the text does not show (1.5e6).
        return self._numeric or self._has(content.decode("utf-8", "replace"))

    def _has(self, text: str) -> bool:
        return next(self._matches(text), None) is not None

    def _matches(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the secrets are. Long text is searched piece by piece: a search lets no other thread run."""
        if self._found is None:
            return
        position = 0
        while position < len(text):
            end = position + _PIECE
            found = self._found.search(text, position, end + self._overlap)
            if found is not None and found.start() < end:
                yield found.span()
                position = found.end()
            else:
                position = end


def _bare(profile: Profile, headers: Mapping[str, str]) -> Iterable[str]:
    templates = {name.lower(): secret.template for name, secret in profile.secrets.items()}
    for header, value in headers.items():
        yield value
        before, _, after = templates.get(header.lower(), "{value}").partition("{value}")
        yield value.removeprefix(before).removesuffix(after)


def _digits(value: float) -> str:
    try:
        return repr(value)
    except ValueError:  # more digits than Python writes out: longer than any secret that is a number
        return ""


def _free(taken: Mapping[Any, Any], key: Any) -> Any:
    """A key that is not there yet: two secrets must not become one entry."""
    if key not in taken:
        return key
    number = 2
    while f"{key} {number}" in taken:
        number += 1
    return f"{key} {number}"


def credentials(
    profile: Profile, environ: Mapping[str, str], file: str | Path | None = None
) -> dict[str, str]:
    """The profile's headers with their secrets: `{header: value}`.

    The environment goes before the file (TOML, or JSON by its suffix). CatalogError names all that are missing.
    """
    stored = _stored(Path(file)) if file is not None else {}
    values: dict[str, str] = {}
    missing = []
    for header, secret in profile.secrets.items():
        value = environ.get(secret.variable, "").strip() or str(stored.get(secret.file_name, "")).strip()
        if not value:
            missing.append(secret)
            continue
        if not value.isascii() or not value.isprintable() or len(value) > _LONGEST_SECRET:
            raise UsageError(
                f"{secret.variable} has characters that a header cannot hold, or too many: copy it again"
            )
        values[header] = secret.template.replace("{value}", value)
    if missing:
        names = ", ".join(each.variable for each in missing)
        inside = ", ".join(each.file_name for each in missing)
        also = f"in {file}" if file is not None else "in a credentials file"
        verb = "is" if len(missing) == 1 else "are"
        raise CatalogError(
            f"{names} {verb} not set: set {'it' if len(missing) == 1 else 'them'}, or put {inside} {also} "
            f"(profile {profile.name})"
        )
    return values


def _stored(path: Path) -> dict[str, Any]:
    """What a credentials file holds. It is looked at once it is open, so that nobody can change it in between."""
    try:
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path}: the credentials must be in a plain file")
            mode = stat.S_IMODE(status.st_mode)
            if os.name == "posix" and mode & 0o077:
                raise UsageError(
                    f"{path}: others may read the credentials (mode {mode:04o}): chmod 600 {path}"
                )
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path}: the credentials cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"{path}: too large for a file of credentials")
    try:
        data = json.loads(content) if path.suffix.lower() == ".json" else tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        # Without the cause: it quotes the line, and that is a secret.
        raise UsageError(
            f'{path}: not a file of credentials: write lines such as api_key = "..." (TOML)'
        ) from None
    if not isinstance(data, dict) or not all(isinstance(each, (str, int)) for each in data.values()):
        raise UsageError(f'{path}: the credentials must be names with text, such as api_key = "..."')
    return data
