"""Finds the secrets of a profile: in the environment, then in a file that only its owner can read.

Owns the reading. A secret is never part of an error. Must not know how secrets are taken out of texts.
"""

import base64
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire._support.secrets import SHORTEST
from toolwire.catalog.profile.tables import Secret, SecretPart, Settings
from toolwire.errors import CatalogError, UsageError

CREDENTIALS: Final = "TOOLWIRE_CREDENTIALS"
"""The variable with the path of a credentials file."""
_LARGEST_FILE: Final = 64 * 1024
_LONGEST_SECRET: Final = 8 * 1024
_log = logger_for("catalog.secrets")


@dataclass(frozen=True)
class Credentials:
    """The secrets of a profile, as they are sent."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str = field(default="", repr=False)
    """`user:password` for the proxy."""
    values: tuple[str, ...] = field(default=(), repr=False)
    """All that must never be seen: the bare secrets, and what is made of them. For a `Scrubber`."""

    @property
    def digest(self) -> str:
        """A hash that stands for the payer, for names of files and keys of caches. Does not reveal the secrets."""
        return hashlib.sha256("\0".join(sorted(self.values)).encode()).hexdigest()


def find_credentials(
    profile: Settings, environ: Mapping[str, str], file: str | Path | None = None
) -> Credentials:
    """Find the profile's secrets. CatalogError names all that are missing, in one line.

    The environment goes before the file (TOML, or JSON by its suffix), a secret's own variable before its parts.
    """
    sources = _Sources(environ, read_credentials_file(Path(file)) if file is not None else {})
    headers, query, values, missing = dict[str, str](), dict[str, str](), list[str](), list[Secret]()
    for secret in profile.secrets.values():
        value = sources.value_of(secret, values)
        if not value:
            missing.append(secret)
            continue
        sent = secret.template.replace("{value}", value)
        values += [value, sent]
        if secret.place == "query":
            query[secret.key] = sent
        elif secret.place == "basic":
            if ":" not in sent:
                raise UsageError(
                    f"{secret.variable} must be user:password for basic authentication, and has no colon: set it "
                    f"so, or template to 'user:{{value}}' (profile {profile.name})"
                )
            encoded = _base64(sent)
            values += [encoded, f"Basic {encoded}"]
            headers["Authorization"] = f"Basic {encoded}"
        else:
            headers[secret.key] = sent
    proxy = ""
    if variable := profile.network.proxy_variable:
        proxy = sources.find(SecretPart(variable=variable))
        if not proxy:
            raise CatalogError(
                f"{variable} is not set: set it to user:password of the proxy (profile {profile.name})"
            )
        values += [proxy, _base64(proxy), proxy.partition(":")[2] or proxy]
    if missing:
        raise CatalogError(f"{_describe_missing(missing, sources, file)} (profile {profile.name})")
    _check_lengths(values)
    return Credentials(headers, query, proxy, tuple(dict.fromkeys(values)))


def _check_lengths(values: Iterable[str]) -> None:
    """Refuse a secret that is too long to be searched for, and warn of one that is too short."""
    lengths = [len(each) for each in values]
    if max(lengths, default=0) > _LONGEST_SECRET:
        raise UsageError(f"a secret may have {_LONGEST_SECRET} characters: one of them has more")
    if min(lengths, default=SHORTEST) < SHORTEST:
        _log.warning(
            "a secret has less than %d characters: it is hidden only where it stands alone", SHORTEST
        )


class _Sources:
    """Looks up secrets: in the environment, then in a credentials file."""

    def __init__(self, environ: Mapping[str, str], stored: Mapping[str, Any]) -> None:
        self._environ = environ
        self._stored = stored

    def value_of(self, secret: Secret, values: list[str]) -> str:
        """Return the bare secret, or "". The parts that it was made of are added to `values`."""
        own = SecretPart(variable=secret.variable, name=secret.name) if secret.variable else None
        if own and (value := self.find(own, stored=False)):
            return value
        parts = [self.find(each, stored=False) for each in secret.parts]
        if not (parts and all(parts)):
            if own and (value := self.find(own)):
                return value
            parts = [self.find(each) for each in secret.parts]
        if not (parts and all(parts)):
            return ""
        joined = ":".join(parts)
        # The name of a user is no secret, and may be any word of a reply.
        values += [joined, *(parts[-1:] if secret.place == "basic" else parts)]
        return _base64(joined) if secret.encoding == "base64" else joined

    def find(self, part: SecretPart, *, stored: bool = True) -> str:
        """Return one value, or ""."""
        value = self._environ.get(part.variable, "").strip()
        if not value and stored:
            value = str(self._stored.get(part.file_name, "")).strip()
        if not value.isascii() or not value.isprintable() or len(value) > _LONGEST_SECRET:
            raise UsageError(
                f"{part.variable} has characters that a header cannot hold, or too many: copy it again"
            )
        return value


def _describe_missing(missing: list[Secret], sources: _Sources, file: str | Path | None) -> str:
    """Say which variables to set, or what to put into a file."""
    wanted: list[SecretPart] = []
    otherwise = ""
    for secret in missing:
        lacking = [each for each in secret.parts if not sources.find(each)]
        begun = len(lacking) < len(secret.parts)  # some of the parts are there: the others are meant
        if secret.variable and not begun:
            wanted.append(SecretPart(variable=secret.variable, name=secret.name))
            if secret.parts:
                otherwise = f" (or {' and '.join(each.variable for each in secret.parts)})"
        else:
            wanted += lacking
    names = ", ".join(each.variable for each in wanted)
    inside = ", ".join(each.file_name for each in wanted)
    verb, them = ("is", "it") if len(wanted) == 1 else ("are", "them")
    also = f"in {file}" if file is not None else "in a credentials file"
    return f"{names} {verb} not set: set {them}{otherwise}, or put {inside} {also}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def read_credentials_file(path: Path) -> dict[str, Any]:
    """Read a credentials file. It is checked after it was opened, so that it cannot be swapped in between."""
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
